package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

func (a *app) backupCmd() *cobra.Command {
	var to, rate string
	c := &cobra.Command{
		Use:   "backup --to DIR|FILE.tar",
		Short: "Back up a running server or cluster, and verify backups",
		Long: `Backup asks any node for the state of the whole server or cluster, of all tenants, and writes it into a
new directory, or into one file if its name ends in .tar. The token must have the scope backup, which the
role operator has. All that was acknowledged before the command began is in the backup, with the objects
of git repositories. The node serves meanwhile; it needs room on its disk for its largest shard once more,
and takes one backup at a time. Nothing in a backup is encrypted: only its owner may read it.

A backup that is cut short leaves nothing, or what is marked as not whole: verify and restore refuse it,
and the same command starts it again from the beginning.

Exit 24: done, but the server is too old to send objects, and there are repositories that have some.`,
		Example: `  millrace backup --to /backups/monday
  millrace backup --to /backups/monday.tar --rate 16MiB
  millrace backup verify /backups/monday`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if to == "" {
				return usageError{errors.New("--to is required")}
			}
			bytes, err := parseRate(rate)
			if err != nil {
				return usageError{fmt.Errorf("--rate: %w", err)}
			}
			server.PrivateFiles()
			return a.backup(c.Context(), to, bytes)
		},
	}
	a.connectionFlags(c)
	c.Flags().StringVar(&to, "to", "", "directory to write, or file whose name ends in .tar; it must not exist (required)")
	c.Flags().StringVar(&rate, "rate", "", "highest rate in bytes per second, such as 16MiB; default the server's --snapshot-rate")
	c.AddCommand(a.backupVerifyCmd())
	return c
}

// parseRate reads a number of bytes, perhaps with KiB, MiB or GiB; empty is 0.
func parseRate(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := s, int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > (1<<40)/unit {
		return 0, fmt.Errorf("%q must be a number of bytes from 1 to 1024GiB, such as 16MiB", s)
	}
	return n * unit, nil
}

// backupView is a backup as the command line prints it.
type backupView struct {
	Path    string            `json:"path"`
	Cluster string            `json:"cluster"`
	Node    string            `json:"node"`
	Version string            `json:"version"`
	Started time.Time         `json:"started"`
	Bytes   int64             `json:"bytes"`
	Shards  []backupShardView `json:"shards"`
	// Of git repositories. Those that have objects, and of these the ones without them in the backup, are counted by verify.
	ObjectFiles  uint64  `json:"object_files"`
	ObjectBytes  int64   `json:"object_bytes"`
	Repositories *uint64 `json:"repositories,omitempty"`
	Bare         *uint64 `json:"repositories_without_objects,omitempty"`
}

type backupShardView struct {
	Shard   int    `json:"shard"`
	Index   uint64 `json:"index"`
	Keys    uint64 `json:"keys"`
	Files   int    `json:"files"`
	Hash    string `json:"apply_hash"`
	Content string `json:"content_hash"`
}

func viewBackup(path string, m *backup.Manifest) backupView {
	v := backupView{
		Path: path, Cluster: m.Cluster, Node: m.Node, Version: m.Version, Started: m.Started, Bytes: m.Bytes(), Shards: []backupShardView{},
		ObjectFiles: m.Objects.Files(), ObjectBytes: m.Objects.Bytes(),
	}
	for _, s := range m.Shards {
		v.Shards = append(v.Shards, backupShardView{
			Shard: int(s.Shard), Index: s.Index, Keys: s.Keys, Files: len(s.Files), Hash: fmt.Sprintf("%016x", s.Hash),
			Content: fmt.Sprintf("%016x", s.Content),
		})
	}
	return v
}

func (v backupView) write(w io.Writer, done string) {
	fmt.Fprintf(w, "%s %s: cluster %s, taken from %s at %s, %d bytes\n", done, v.Path, v.Cluster, v.Node, v.Started.Format(time.RFC3339), v.Bytes)
	for _, s := range v.Shards {
		fmt.Fprintf(w, "shard %d    up to entry %d, %d keys in %d files\n", s.Shard, s.Index, s.Keys, s.Files)
	}
	if v.ObjectFiles > 0 {
		fmt.Fprintf(w, "objects    %d files of git repositories, %d bytes\n", v.ObjectFiles, v.ObjectBytes)
	}
	if v.Repositories != nil {
		fmt.Fprintf(w, "git        %d repositories have objects\n", *v.Repositories)
	}
}

// withoutObjects is how a command ends that was done with a backup in which repositories lack their objects; nil: none does.
func withoutObjects(c backup.Content) error {
	if c.Bare == 0 {
		return nil
	}
	return exitError{server.ExitPartial, fmt.Errorf("%d repositories have no objects in this backup: their refs are there, and nothing of them can be fetched", c.Bare)}
}

// backup takes a backup. A signal ends it in order.
func (a *app) backup(ctx context.Context, to string, rate int64) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if a.conn.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.conn.timeout)
		defer cancel()
	}
	c, err := a.dial(ctx, millrace.Transport(millrace.TransportStream))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the backup's error tells what happened
	from, err := c.Backup(ctx, rate)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := private(to); err != nil {
		return err
	}
	w, err := server.CreateBackup(to)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := privateDir(to); err != nil {
		return err
	}
	m, err := receive(from, w)
	if err != nil {
		return err
	}
	v := viewBackup(to, &m)
	if !m.Objects.Held {
		return a.verifyBackup(to, "backed up to") // which counts what lacks
	}
	return a.print(v, func(out io.Writer) { v.write(out, "backed up to") })
}

// private makes the file that is to hold a backup in one file, so that its owner alone can read it. What an attempt left there
// that did not end is removed; nothing else is, and no link is followed.
func private(to string) error {
	if info, err := os.Lstat(to); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link: --to must be the place itself", to)
	}
	if !strings.HasSuffix(to, ".tar") {
		return nil
	}
	name := to + ".incomplete"
	info, err := os.Lstat(name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; the backup is written there first", name)
	case err == nil:
		err = os.Remove(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

// privateDir lets the owner alone into a directory that is to hold a backup, also if it was there.
func privateDir(to string) error {
	info, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil // one file
	}
	if err == nil && info.Mode().Perm() != 0o700 {
		err = os.Chmod(to, 0o700)
	}
	return err
}

// receive writes a backup as it comes.
func receive(from *millrace.Backup, w *backup.Writer) (m backup.Manifest, err error) {
	h := from.Head
	if err := w.Head(backup.Head{
		Cluster: h.Cluster, Node: h.Node, Version: h.Version, Format: h.Format, Shards: h.Shards, StartedMillis: h.StartedAt.UnixMilli(),
		Objects: h.Objects,
	}); err != nil {
		return m, err
	}
	for {
		p, err := from.Next()
		switch {
		case errors.Is(err, io.EOF):
			return w.Finish()
		case err == nil && p.Shard != nil:
			err = w.Shard(p.Shard)
		case err == nil && p.File != nil:
			err = w.File(backup.File{Digest: p.File.Digest, Size: p.File.Size, Index: p.File.Index})
		case err == nil:
			err = w.Data(p.Data)
		}
		if err != nil {
			return m, err
		}
	}
}

func (a *app) backupVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR|FILE.tar",
		Short: "Read a backup and say whether it is whole; no server is needed",
		Long: `Verify reads everything: sizes and sums of all files, the order and form of all keys, the content of
each shard against what its server said of it; the files of git repositories, and whether each one is there
that a repository needs. It changes nothing.

Exit 0: whole. 1: no backup, or one that was cut. 21: damaged; the file is named. 23: made by a newer build.
24: as it was made, but by a program or a server that left out the objects of repositories; it says of how
many.`,
		Example: `  millrace backup verify /backups/monday`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.verifyBackup(args[0], "whole:") },
	}
}

// verifyBackup reads a backup and says what it holds: that it is whole, if it is.
func (a *app) verifyBackup(path, whole string) (err error) {
	b, err := server.OpenBackup(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	c, err := b.Verify()
	if err != nil {
		return err
	}
	partial := withoutObjects(c)
	if partial != nil && whole == "whole:" {
		whole = "NOT WHOLE:"
	}
	v := viewBackup(path, &b.Manifest)
	v.Repositories, v.Bare = &c.Repositories, &c.Bare
	return errors.Join(a.print(v, func(w io.Writer) { v.write(w, whole) }), partial)
}
