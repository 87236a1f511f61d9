package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		Short: "Back a running server or cluster up, and verify backups",
		Long: `Backup asks any node for the state of the whole server or cluster, of all tenants, and writes it into a
new directory, or into one file if its name ends in .tar. The token must have the scope backup, which the
role operator has. All that was acknowledged before the command began is in the backup. The node serves
meanwhile; it needs room on its disk for its largest shard once more, and takes one backup at a time.

A backup that is cut short leaves nothing, or what is marked as not whole: verify and restore refuse it,
and the same command begins it anew.`,
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
	c.Flags().StringVar(&to, "to", "", "directory, or file whose name ends in .tar, that does not exist (required)")
	c.Flags().StringVar(&rate, "rate", "", "bytes per second at most, such as 16MiB; default the server's --snapshot-rate")
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
		return 0, fmt.Errorf("%q is no number of bytes within 1 to 1024GiB", s)
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
	m, err := receive(from, w)
	if err != nil {
		return err
	}
	v := viewBackup(to, &m)
	return a.print(v, func(out io.Writer) { v.write(out, "backed up to") })
}

// private makes the file that is to hold a backup in one file, so that nobody else can read it. A directory for one is
// private from the beginning.
func private(to string) error {
	if !strings.HasSuffix(to, ".tar") {
		return nil
	}
	f, err := os.OpenFile(to+".incomplete", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

// receive writes a backup as it comes.
func receive(from *millrace.Backup, w *backup.Writer) (m backup.Manifest, err error) {
	h := from.Head
	if err := w.Head(backup.Head{
		Cluster: h.Cluster, Node: h.Node, Version: h.Version, Format: h.Format, Shards: h.Shards, StartedMillis: h.StartedAt.UnixMilli(),
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
		Long: `Verify reads everything: sizes and sums of all files, the order and form of all keys, and the content of
each shard against what its server said of it. It changes nothing.

Exit 0: whole. 1: no backup, or one that was cut. 21: damaged; the file is named. 23: made by a newer build.`,
		Example: `  millrace backup verify /backups/monday`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			b, err := server.OpenBackup(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			if err := b.Verify(); err != nil {
				return err
			}
			v := viewBackup(args[0], &b.Manifest)
			return a.print(v, func(w io.Writer) { v.write(w, "whole:") })
		},
	}
}
