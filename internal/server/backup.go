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

// backups gives the edge backups of the whole server.
type backups struct{ r *Running }

// Backup takes one.
func (b backups) Backup(ctx context.Context, rate int64, sink core.BackupSink) error {
	cluster := strings.ToLower(b.r.o.Cluster.ID)
	if cluster == "" {
		cluster = b.r.dir.Identity().Cluster
	}
	o := node.BackupOptions{Cluster: cluster, Version: b.r.o.Version, Rate: rate}
	if b.r.objects != nil {
		held := heldPacks{b.r.objects.Hold(), b.r.objects}
		defer held.Close()
		o.Packs = held
	}
	return b.r.node.Backup(ctx, o, sink)
}

// heldPacks are the packs of one backup as the node needs them.
type heldPacks struct {
	*gitobj.Holding
	a *gitobj.Area
}

// Freeze keeps packs from being removed.
func (h heldPacks) Freeze() (thaw func()) { return h.a.Freeze() }

// Add holds a pack if it is on this node.
func (h heldPacks) Add(at node.PackPlace, p core.Pack) (here bool, err error) {
	return h.Holding.Add(gitobj.Place(at), p)
}

// Ensure holds a pack, wherever it comes from.
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

// RestoreOptions say what a backup is to become.
type RestoreOptions struct {
	Dir     string // of the data; must not exist, be empty, or be left by a restore that did not end
	Cluster string // id of the cluster of which the server is the only node; empty: a server by itself
	Node    uint64 // its number there
	Logger  *slog.Logger
}

// Restore makes a data directory of a backup, for a server that begins a history of its own.
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

// member is what the directory is to remember of its settings.
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

// newCluster checks the id of a cluster that takes the place of another.
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

// NewClusterID draws the id of a cluster.
func NewClusterID() string {
	var b [16]byte
	env.SystemRand{}.Fill(b[:])
	return fmt.Sprintf("%x", b)
}
