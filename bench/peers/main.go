// Command millrace-peers measures Millrace against other systems, in turn within each run, with the harness of `millrace
// bench`: its windows, audits, validity and reports. Clients of the other systems are linked here and nowhere else.
//
// It starts the Millrace that it is given as an executable. A peer it starts, configures and installs not: it is found
// running at its address. The script setup beside this file builds and starts one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "millrace-peers:", err)
	}
	os.Exit(code)
}

const usage = `usage: millrace-peers run SUITE[/ROW]... --millrace PATH --peer etcd=HOST:PORT,... [flags]

A row is measured when the peer has as many members as the row has nodes. Flags:`

// peers are the addresses of peers by name.
type peers map[string][]string

// String is what flag prints.
func (p peers) String() string { return "" }

// Set reads NAME=ADDRESS,...
func (p peers) Set(s string) error {
	name, addresses, ok := strings.Cut(s, "=")
	if !ok || addresses == "" {
		return fmt.Errorf("%q is no NAME=HOST:PORT,...", s)
	}
	if name != "etcd" {
		return fmt.Errorf("peer %q is not known: etcd is", name)
	}
	p[name] = strings.Split(addresses, ",")
	return nil
}

// run carries the command out, and returns its exit code: those of `millrace bench`.
func run(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	c := bench.Defaults()
	found := peers{}
	f := flag.NewFlagSet("millrace-peers", flag.ContinueOnError)
	f.SetOutput(progress)
	f.Usage = func() {
		fmt.Fprintln(progress, usage)
		f.PrintDefaults()
	}
	f.Var(found, "peer", "where a peer runs: etcd=HOST:PORT,...")
	f.StringVar(&c.Executable, "millrace", "", "executable of the Millrace that is measured; required")
	f.IntVar(&c.Runs, "runs", 3, "runs of each row that count, 1 to 100")
	f.DurationVar(&c.Window, "window", 0, "measured time of each run, both systems together; default the row's")
	f.StringVar(&c.Durability, "durability", c.Durability, "of Millrace: fsync, none")
	f.StringVar(&c.Validate, "validate", c.Validate, "sample: 1 % of what was acknowledged is read back; full: all")
	f.StringVar(&c.Out, "out", filepath.Join("bench-out", time.Now().UTC().Format("20060102-150405")), "directory for the result")
	f.StringVar(&c.Data, "data", "", "parent of Millrace's data directories; default the system's for temporary files")
	tool := f.String("etcd-benchmark", "", "etcd's own tool, which is run beside; default: it is not")
	if len(args) == 0 || args[0] != "run" {
		f.Usage()
		return bench.ExitUsage, errors.New("there is one command: run")
	}
	rest := args[1:]
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		c.Select, rest = append(c.Select, rest[0]), rest[1:]
	}
	if err := f.Parse(rest); err != nil {
		return bench.ExitUsage, err
	}
	c.Select = append(c.Select, f.Args()...)
	switch {
	case c.Executable == "":
		return bench.ExitUsage, errors.New("millrace: which executable is measured")
	case len(found["etcd"]) == 0:
		return bench.ExitCannot, errors.New("peer: no etcd is given, and none is started here")
	}
	c.Command, c.Progress, c.NoProfile = "millrace-peers "+strings.Join(args, " "), progress, true
	h := tables.Harness()
	for i := range h.Suites {
		if h.Suites[i].Peer == "etcd" {
			h.Suites[i].Drive = (&etcdPeer{endpoints: found["etcd"], tool: *tool}).drive
			h.Suites[i].Rows = withNodes(h.Suites[i].Rows, len(found["etcd"]))
		}
	}
	r, err := bench.Execute(ctx, c, h)
	if err != nil {
		var refused *bench.UsageError
		if errors.As(err, &refused) {
			return bench.ExitUsage, err
		}
		return bench.ExitCannot, err
	}
	return r.Exit, h.Write(out, "md", r)
}

// withNodes keeps the rows that have as many nodes as the peer has members.
func withNodes(rows []bench.RowSpec, n int) []bench.RowSpec {
	var out []bench.RowSpec
	for _, r := range rows {
		if r.Shape.Nodes == n {
			out = append(out, r)
		}
	}
	return out
}
