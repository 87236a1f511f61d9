package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/server"
)

// restoreCmd makes the command that turns a backup into a data directory. It needs no server; the
// directory must not exist or must be empty.
func (a *app) restoreCmd() *cobra.Command {
	var from string
	var o server.RestoreOptions
	c := &cobra.Command{
		Use:   "restore --from DIR|FILE.tar --data DIR",
		Short: "Make a data directory from a backup",
		Long: `Restore makes a new data directory from a backup, for one server. The server has a new identity and can
never join the server or cluster that was backed up. The directory holds everything in the backup: tasks
with their leases, keys, git repositories with their objects, configurations and namespaces. Leases expire
as usual; a worker that holds one from before the backup may settle its task. Tokens and revisions that
were given out after the backup are never valid again.

Without --cluster-id the server is a single node. With it, the server is the first node of that cluster,
whose settings millrace cluster init --nodes 1 makes. Serve it with the number of --shards that it prints.

A restore that is cut short leaves a directory that no server starts on; the same command starts it again
from the beginning.

Exit 0: restored. 1: refused; nothing was changed. 21: the backup is damaged; the file is named. 22: no
room on the disk. 23: the backup was made by a newer build, or the directory is in use. 24: restored, but the
backup was made without the objects of git repositories; it says of how many.`,
		Example: `  millrace restore --from /backups/monday --data ./data
  millrace serve --data ./data --shards 4 --tokens ./tokens.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if from == "" || o.Dir == "" {
				return usageError{errors.New("--from and --data are required")}
			}
			server.PrivateFiles()
			b, err := server.OpenBackup(from)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			return a.restore(b, from, o)
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "backup to restore: a directory or a file (required)")
	f.StringVar(&o.Dir, "data", "", "data directory to make; it must not exist or must be empty (required)")
	f.StringVar(&o.Cluster, "cluster-id", "", "id of the new cluster, 32 hexadecimal digits; empty: a single-node server")
	f.Uint64Var(&o.Node, "node-id", 0, "number of the node in that cluster; default 1")
	return c
}

// restoredView is a restored directory as the command line prints it. Node is the new identity of
// the server.
type restoredView struct {
	// Absolute path of the directory; From is the backup as the user named it.
	Dir    string              `json:"dir"`
	From   string              `json:"from"`
	Node   string              `json:"node"`
	Shards []restoredShardView `json:"shards"`
	// The number of git repositories that have objects, and how many of these have no objects in
	// the backup.
	Repositories uint64 `json:"repositories"`
	Bare         uint64 `json:"repositories_without_objects"`
}

// restoredShardView is one restored shard. The restore breaks the shard's history off at the backup
// with one change of its own, and the new log begins behind that change.
type restoredShardView struct {
	// Shard is the number of the shard.
	Shard int `json:"shard"`
	// The last entry of the backup.
	Index uint64 `json:"index"`
	// The index of that change.
	Begin uint64 `json:"log_begin"`
	// Keys is the number of keys that the shard has.
	Keys uint64 `json:"keys"`
}

// restore writes the directory and prints what it holds. server.Restore marks the directory until
// it is complete: if the process dies in between, no server starts on it, and the same command
// starts again. Repositories without objects make it exit with ExitPartial, although the directory
// is complete as far as the backup is.
func (a *app) restore(b *backup.Backup, from string, o server.RestoreOptions) error {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = dir
	r, err := server.Restore(b, o)
	if err != nil {
		return err
	}
	v := restoredView{Dir: dir, From: from, Node: r.Identity.Node, Shards: []restoredShardView{}, Repositories: r.Content.Repositories, Bare: r.Content.Bare}
	for _, s := range r.Shards {
		v.Shards = append(v.Shards, restoredShardView{int(s.Shard), s.Index, s.Begin, s.Keys})
	}
	return errors.Join(a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "restored %s into %s, node %s\n", v.From, v.Dir, v.Node)
		for _, s := range v.Shards {
			fmt.Fprintf(w, "shard %d    up to entry %d, %d keys\n", s.Shard, s.Index, s.Keys)
		}
		if v.Repositories > 0 {
			fmt.Fprintf(w, "git        %d repositories have objects, %d of them have none in this backup\n", v.Repositories, v.Bare)
		}
		fmt.Fprintf(w, "\nserve it with --data %s --shards %d\n", v.Dir, len(v.Shards))
	}), withoutObjects(r.Content))
}
