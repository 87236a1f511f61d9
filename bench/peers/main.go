// Command millrace-peers measures Millrace against other systems, in turn within each run, with the harness of `millrace
// bench`: its windows, audits, validity and reports. Clients of the other systems are linked here and nowhere else.
//
// It starts the Millrace that it is given as an executable. It does not install, configure or start a peer: the peer must
// run at its address. The script setup in this directory builds and starts one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
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

// usage is printed before the list of flags.
const usage = `usage: millrace-peers run SUITE[/ROW]... --millrace PATH --peer NAME=ADDRESS,... [flags]

Rows of peers that are given are measured; queue.peers is all of them that are queues. A row of etcd is measured when it
has as many members as the row has nodes. Flags:`

// queuePeers are the peers with a queue, whose suites are queue.peers.NAME.
var queuePeers = map[string]opener{
	"asynq": openAsynq, "beanstalkd": openBeanstalkd, "jetstream": openJetStream, "rabbitmq": openRabbitMQ, "river": openRiver,
}

// classesTold are the classes of durability that who started a peer tells, by peer: F or N.
type classesTold map[string]string

// String is what flag prints.
func (c classesTold) String() string { return "" }

// Set reads NAME=CLASS.
func (c classesTold) Set(s string) error {
	name, class, ok := strings.Cut(s, "=")
	if _, known := queuePeers[name]; !ok || !known || class != "F" && class != "N" {
		return fmt.Errorf("%q is no NAME=F or NAME=N", s)
	}
	c[name] = class
	return nil
}

// peers are the addresses of peers by name.
type peers map[string][]string

// String is what flag prints.
func (p peers) String() string { return "" }

// Set reads NAME=ADDRESS,...
func (p peers) Set(s string) error {
	name, addresses, ok := strings.Cut(s, "=")
	if !ok || addresses == "" {
		return fmt.Errorf("%q has not the form NAME=HOST:PORT, with commas between several addresses", s)
	}
	if _, known := queuePeers[name]; name != "etcd" && name != "pgvector" && !known {
		return fmt.Errorf("peer %q is not known: there are etcd, pgvector, %s", name, strings.Join(slices.Sorted(maps.Keys(queuePeers)), ", "))
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
	declared := classesTold{}
	f.Var(found, "peer", "where a peer runs: NAME=ADDRESS,..., as setup prints it; once for each")
	f.Var(declared, "peer-durability", "NAME=F: the peer, which cannot be asked, was started so that it syncs each write; NAME=N: it does not")
	f.StringVar(&c.Executable, "millrace", "", "executable of the Millrace that is measured; required")
	f.IntVar(&c.Runs, "runs", 3, "runs of each row that count, 1 to 100")
	f.DurationVar(&c.Window, "window", 0, "measured time of each run, both systems together; default the row's")
	f.StringVar(&c.Durability, "durability", c.Durability, "of Millrace: fsync, none")
	f.StringVar(&c.Validate, "validate", c.Validate, "sample: 1 % of what was acknowledged is read back; full: all")
	f.StringVar(&c.Out, "out", filepath.Join("bench-out", time.Now().UTC().Format("20060102-150405")), "directory for the result")
	f.StringVar(&c.Data, "data", "", "parent of Millrace's data directories; default the system's for temporary files")
	tool := f.String("etcd-benchmark", "", "path of etcd's own tool, to run it for comparison (default: it is not run)")
	if len(args) == 0 || args[0] != "run" {
		f.Usage()
		return bench.ExitUsage, errors.New("there is one command: run")
	}
	// Names of suites stand before the flags, and may stand after them too.
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
	case len(found) == 0:
		return bench.ExitCannot, errors.New("peer: none is given, and none is started here")
	}
	// Profiles are left out: they would be of Millrace alone, and cost it time.
	c.Command, c.Progress, c.NoProfile = "millrace-peers "+strings.Join(args, " "), progress, true
	h := tables.Harness()
	// A suite of a peer that is given gets its driver here. One that is asked for by name without its peer is an error.
	for i := range h.Suites {
		s := &h.Suites[i]
		addresses, given := found[s.Peer]
		switch open := queuePeers[s.Peer]; {
		case !given:
			if s.Peer != "" && slices.Contains(c.Select, s.Name) {
				return bench.ExitCannot, fmt.Errorf("peer: no %s is given, and none is started here", s.Peer)
			}
		case open != nil:
			s.Drive = (&queuePeer{name: s.Peer, addresses: addresses, declared: declared[s.Peer], open: open}).drive
		case s.Peer == "pgvector":
			s.Drive = (&pgvectorPeer{url: addresses[0]}).drive
		// What is left is etcd, whose rows are for one number of members each.
		default:
			s.Drive = (&etcdPeer{endpoints: addresses, tool: *tool}).drive
			s.Rows = withNodes(s.Rows, len(addresses))
		}
	}
	// queue.peers stands for the suites of all peers with a queue.
	for i, pattern := range c.Select {
		if pattern == "queue.peers" {
			c.Select[i] = "queue.peers.*"
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

// module names a module that is linked, with its version.
func module(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return path + " " + m.Version
			}
		}
	}
	return path
}
