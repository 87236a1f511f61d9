package server

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/store"
)

// RecoverOptions say what the survivor of a lost majority becomes: the only node of another
// cluster.
type RecoverOptions struct {
	Dir     string
	Cluster string // id of the new cluster; default drawn
	Node    uint64 // number of the node there; default the one that it has
	Logger  *slog.Logger
}

// Survivor is a data directory that can become a cluster of its own.
type Survivor struct {
	Member Member            // what it was
	Shards []backup.Standing // what it has
	// The members of its cluster as it has stored them; empty if the membership never changed.
	Members []MemberStatus
}

// AssessSurvivor reads what the directory of a server that does not run has. It changes nothing.
func AssessSurvivor(dir string) (s Survivor, err error) {
	if _, err := store.ReadDir(store.NewFS(store.SystemFS()), dir); err != nil {
		return s, err
	}
	if s.Member, err = clusterMember(dir); err != nil {
		return s, err
	}
	shards, members, err := backup.Stand(dir, backup.Options{})
	if err != nil {
		return s, err
	}
	s.Shards = shards
	if members.Version > 0 {
		s.Members = membership(&members).Members
	}
	return s, nil
}

// clusterMember returns what a directory remembers of its cluster; an error if it belongs to a
// single-node server.
func clusterMember(dir string) (Member, error) {
	m, found, err := readMember(store.NewFS(store.SystemFS()), dir)
	switch {
	case err != nil:
		return m, err
	case !found || m.Cluster == "":
		return m, fmt.Errorf("data directory %s belongs to a single-node server; there is no lost majority to recover from", dir)
	}
	return m, nil
}

// Recover turns the directory of a survivor into that of the only node of a new cluster. It can be
// repeated after a crash: the directory then may have the new cluster's id already, so the id is
// not compared with the old one.
func Recover(o RecoverOptions) (r backup.Recovered, now Member, err error) {
	fsys := store.NewFS(store.SystemFS())
	was, err := clusterMember(o.Dir)
	if err != nil {
		return r, now, err
	}
	if o.Cluster == "" {
		o.Cluster = NewClusterID()
	}
	_, err = store.ReadDir(fsys, o.Dir)
	// The new id must differ from the old one, unless an earlier recovery has already written it.
	old := was.Cluster
	if _, again := errors.AsType[*store.UnfinishedError](err); again {
		old = "" // it may be the new one's already
	}
	now = Member{Format: memberFormat, Node: was.Node, Shards: was.Shards, Entries: was.Entries}
	if o.Node != 0 {
		now.Node = o.Node
	}
	now.Nodes = []uint64{now.Node}
	if now.Cluster, err = newCluster(o.Cluster, old); err != nil {
		return r, now, err
	}
	r, err = backup.Recover(o.Dir, was.Shards, backup.Options{Logger: o.Logger, Prepare: func(int) error {
		return writeMember(fsys, o.Dir, now)
	}})
	return r, now, err
}
