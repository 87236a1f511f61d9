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

// backupCmd makes the command that takes a backup, with verify below it. It creates files for the
// owner only, as PrivateFiles sets the umask of the process.
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

// parseRate reads a rate in bytes per second, with an optional KiB, MiB or GiB. An empty text is 0,
// which leaves the rate to the server. The highest rate is 1 TiB per second, so that the product
// cannot overflow.
func parseRate(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := s, int64(1)
	// At most one suffix matches, so the order of the map does not matter.
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
	// Where the backup is, as the user named it.
	Path string `json:"path"`
	// The identity of the cluster, the node that sent the backup, and the program of that node.
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Version string `json:"version"`
	// When the server began to send; all that was acknowledged before is in the backup.
	Started time.Time `json:"started"`
	// The size of all files of the backup, in bytes.
	Bytes  int64             `json:"bytes"`
	Shards []backupShardView `json:"shards"`
	// The files of git repositories, and their sizes in bytes.
	ObjectFiles uint64 `json:"object_files"`
	ObjectBytes int64  `json:"object_bytes"`
	// The number of repositories that have objects, and how many of these have no objects in the
	// backup. Only verify counts them: nil after a backup that was not verified.
	Repositories *uint64 `json:"repositories,omitempty"`
	Bare         *uint64 `json:"repositories_without_objects,omitempty"`
}

// backupShardView is one shard of a backup.
type backupShardView struct {
	// Shard is the number of the shard, and Index that of the last entry that the backup has of it.
	Shard int    `json:"shard"`
	Index uint64 `json:"index"`
	// Keys is the number of keys, and Files that of the files with them.
	Keys  uint64 `json:"keys"`
	Files int    `json:"files"`
	// Hashes in 16 hexadecimal digits: of the entries that were applied up to Index, and of the
	// keys themselves.
	Hash    string `json:"apply_hash"`
	Content string `json:"content_hash"`
}

// viewBackup makes the view of a manifest. The counts that only verify knows stay nil.
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

// write prints a backup for a person. done is what was done to it, such as "backed up to".
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

// withoutObjects returns the error that ends a command whose backup lacks the objects of some
// repositories: the command did its work, but exits with ExitPartial. It returns nil if no
// repository lacks its objects.
func withoutObjects(c backup.Content) error {
	if c.Bare == 0 {
		return nil
	}
	return exitError{server.ExitPartial, fmt.Errorf("%d repositories have no objects in this backup: their refs are there, and nothing of them can be fetched", c.Bare)}
}

// backup takes a backup and writes it to the path to, at most rate bytes per second; a rate of 0 is
// the server's own limit.
//
// A backup is marked as incomplete until its manifest is written: a directory by a file in it, a
// .tar file by its name. Verify and restore refuse what has the mark. SIGINT, SIGTERM and --timeout
// end the stream, and Abort removes what was written. If the process is killed, the incomplete
// backup stays, and the same command starts again from the beginning.
//
// A server that is too old to send objects makes the command verify the backup at the end, to count
// the repositories that lack them.
func (a *app) backup(ctx context.Context, to string, rate int64) error {
	// The command handles signals itself: the first one must end the stream and still leave time to
	// remove what was written.
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
	// The incomplete file exists already and is private; CreateBackup takes it over and writes into
	// it.
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
	// A server that does not know of objects sent none. Verify counts the repositories that lack
	// them.
	if !m.Objects.Held {
		return a.verifyBackup(to, "backed up to") // which counts what lacks
	}
	return a.print(v, func(out io.Writer) { v.write(out, "backed up to") })
}

// private prepares the path of a backup so that only its owner can read it. For a .tar file it
// makes the incomplete file with mode 0600 before anything is written to it. It removes an
// incomplete file that an earlier attempt left, and nothing else. It refuses a symbolic link:
// another user could have placed it there.
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

// privateDir sets the mode of a backup directory to 0700, also if the directory was there before.
// For a backup in one file it does nothing.
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

// receive copies a backup from the stream to w, in the order in which the server sends it: the
// head, then per shard its description and its files, each a description followed by its data. At
// the end of the stream Finish writes the manifest, which makes the backup whole. Any error before
// leaves the backup incomplete.
func receive(from *millrace.Backup, w *backup.Writer) (m backup.Manifest, err error) {
	h := from.Head
	if err := w.Head(backup.Head{
		Cluster: h.Cluster, Node: h.Node, Version: h.Version, Format: h.Format, Shards: h.Shards, StartedMillis: h.StartedAt.UnixMilli(),
		Objects: h.Objects,
	}); err != nil {
		return m, err
	}
	for {
		// Each part is the description of a shard, that of a file, or a piece of the current file.
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

// backupVerifyCmd makes the command that reads a backup again. It needs no server and changes
// nothing.
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

// verifyBackup reads all of a backup and prints what it holds. whole is the word for a backup
// without a fault; the exact text "whole:" becomes "NOT WHOLE:" if repositories lack their objects,
// which is also the error that it returns.
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
