package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/store"
)

// backups is what the API needs to take backups of the whole server.
type backups struct{ r *Running }

// Backup streams a backup to sink. The packs of git repositories are held for its duration, so that
// none is removed between the moment its repository is read and the moment the pack is sent.
func (b backups) Backup(ctx context.Context, rate int64, sink core.BackupSink) error {
	cluster := strings.ToLower(b.r.o.Cluster.ID)
	if cluster == "" {
		cluster = b.r.dir.Identity().Cluster
	}
	o := node.BackupOptions{Cluster: cluster, Version: b.r.o.Version, Rate: rate}
	// Without the service refs there are no packs to hold.
	if b.r.objects != nil {
		held := heldPacks{b.r.objects.Hold(), b.r.objects}
		defer held.Close()
		o.Packs = held
	}
	return b.r.node.Backup(ctx, o, sink)
}

// heldPacks are the packs of one backup in the form that the node needs. A pack that is held is not
// removed until Close.
type heldPacks struct {
	*gitobj.Holding
	a *gitobj.Area
}

// Freeze keeps all packs from being removed until thaw is called. It covers the short time until
// the packs of a repository are held.
func (h heldPacks) Freeze() (thaw func()) { return h.a.Freeze() }

// Add holds a pack if this node has it.
func (h heldPacks) Add(at node.PackPlace, p core.Pack) (here bool, err error) {
	return h.Holding.Add(gitobj.Place(at), p)
}

// Ensure holds a pack, and fetches it from another node if it is missing or damaged here. A pack
// that no node has whole is node.ErrPackGone.
func (h heldPacks) Ensure(ctx context.Context, at node.PackPlace, p core.Pack) error {
	err := h.Holding.Ensure(ctx, gitobj.Place(at), p)
	switch {
	case errors.As(err, new(*gitobj.DamagedError)):
		return fmt.Errorf("%w: %w", node.ErrPackGone, gitError(err))
	case errors.Is(err, core.Unavailable{Reason: "pack_unavailable"}):
		return fmt.Errorf("%w: %w", node.ErrPackGone, err)
	}
	return err
}

// CreateBackup begins a backup at a path of this machine: see package backup.
func CreateBackup(path string) (*backup.Writer, error) {
	return backup.Create(store.NewFS(store.SystemFS()), path)
}

// OpenBackup reads the backup at a path of this machine: see package backup.
func OpenBackup(path string) (*backup.Backup, error) {
	return backup.Open(store.NewFS(store.SystemFS()), path)
}

// RestoreOptions say what server a backup becomes.
type RestoreOptions struct {
	Dir     string // of the data; must not exist, be empty, or be left by a restore that did not end
	Cluster string // id of the cluster of which the server is the only node; empty: a server by itself
	Node    uint64 // its number there
	Logger  *slog.Logger
}

// Restore makes a data directory from a backup. The server that starts on it has another identity
// than those that were backed up, and a history of its own. The format of the entries stays that of
// the backup.
func Restore(b *backup.Backup, o RestoreOptions) (backup.Restored, error) {
	m, err := o.member(b.Manifest.Cluster)
	if err != nil {
		return backup.Restored{}, err
	}
	if format := uint16(b.Manifest.Entries); format > core.FormatFirst {
		m.Entries = format
	}
	return b.Restore(o.Dir, backup.Options{Logger: o.Logger, Prepare: func(shards int) error {
		m.Shards = shards
		return writeMember(store.NewFS(store.SystemFS()), o.Dir, m)
	}})
}

// member returns what the restored directory remembers. old is the cluster of the backup, whose id
// must not be used again.
func (o RestoreOptions) member(old string) (Member, error) {
	m := Member{Format: memberFormat}
	switch {
	case o.Cluster == "" && o.Node != 0:
		return m, errors.New("node-id needs cluster-id")
	case o.Cluster == "":
		return m, nil
	}
	id, err := newCluster(o.Cluster, old)
	if err != nil {
		return m, err
	}
	m.Cluster, m.Node = id, max(o.Node, 1)
	m.Nodes = []uint64{m.Node}
	return m, nil
}

// newCluster checks and normalizes the id of a cluster that replaces another. It must be a
// different id: nodes of the old cluster that come back would otherwise take the new one for
// theirs.
func newCluster(id, old string) (string, error) {
	c := config.Cluster{ID: id}
	if _, err := c.ClusterID(); err != nil {
		return "", err
	}
	if id = strings.ToLower(id); id == old {
		return "", fmt.Errorf("cluster-id: %s is the cluster that this takes the place of; its nodes must not take this one for theirs", id)
	}
	return id, nil
}

// NewClusterID returns a random id, 32 hexadecimal digits.
func NewClusterID() string {
	var b [16]byte
	env.SystemRand{}.Fill(b[:])
	return fmt.Sprintf("%x", b)
}
