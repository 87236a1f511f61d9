package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// besideName names the process of the single-node server that runs next to the nodes of a row, and
// its folder below the row's directory.
const besideName = "one-node"

// startBeside starts the server of one node that a driver takes turns with, below the directory of the row's own servers.
func (u *runner) startBeside(ctx context.Context, exe, dir string, spec *runSpec) (*cluster, error) {
	one := *spec
	one.shape.Nodes, one.shape.Beside, one.server = 1, false, besideName
	dir = filepath.Join(dir, besideName)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	return u.startOne(ctx, exe, dir, &one)
}

// newBeside makes the rig by which a driver reaches the single-node server. It counts nothing: windows,
// operations and audits belong to r, the row's own rig. It shares queue, payload and clocks with r.
func newBeside(r *Rig, c *cluster) *Rig {
	b := &Rig{
		Suite: r.Suite, Row: r.Row, Shape: r.Shape, Durability: r.Durability, Servers: c.endpoints, Token: c.token, Namespace: c.namespace,
		Queue: r.Queue, Payload: r.Payload, Result: r.Result, Dir: filepath.Join(r.Dir, besideName), clocks: r.clocks,
	}
	b.Shape.Nodes = 1
	b.init()
	return b
}

// checkBeside refuses a server of one node that is less durable than the figure would say.
func (o *oneRun) checkBeside(ctx context.Context) error {
	if o.c.nextTo == nil {
		return nil
	}
	clients, err := o.c.nextTo.dial(ctx)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	one := &oneRun{spec: o.spec, c: o.c.nextTo, clients: clients}
	return one.checkServers(ctx)
}

// all are all processes of the run: the row's own first, then the single-node server next to them.
func (c *cluster) all() []*process {
	if c.nextTo == nil {
		return c.procs
	}
	return append(append([]*process{}, c.procs...), c.nextTo.procs...)
}

// watched are the processes whose CPU and memory the run reports. Those of the single-node server
// are marked apart, since they are not a cost of the row.
func (c *cluster) watched() []watched {
	var out []watched
	for i, p := range c.all() {
		out = append(out, watched{p.name, p.pid, i >= len(c.procs)})
	}
	return out
}

// restartAll starts every server that ended by itself, on its own directory. It tries all of them
// and joins the errors.
func (c *cluster) restartAll(ctx context.Context) error {
	var err error
	if c.restart != nil {
		err = c.restart(ctx)
	}
	if b := c.nextTo; b != nil && b.procs[0].done() {
		err = errors.Join(err, b.restart(ctx))
	}
	return err
}
