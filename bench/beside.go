package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// besideName is the process of the single-node server that runs next to the nodes of a row.
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

// newBeside makes what a driver reaches the server of one node by. Windows, operations and audits are the row's: a driver
// counts through the rig that has this one.
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
	if o.c.beside == nil {
		return nil
	}
	clients, err := o.c.beside.dial(ctx)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	one := &oneRun{spec: o.spec, c: o.c.beside, clients: clients}
	return one.checkServers(ctx)
}

// all are all processes of the run: the row's own, and the single-node server next to them.
func (c *cluster) all() []*process {
	if c.beside == nil {
		return c.procs
	}
	return append(append([]*process{}, c.procs...), c.beside.procs...)
}

// watched are the processes whose use is charged to the run, the driver's apart.
func (c *cluster) watched() []watched {
	var out []watched
	for i, p := range c.all() {
		out = append(out, watched{p.name, p.pid, i >= len(c.procs)})
	}
	return out
}

// restartAll starts every server that ended by itself.
func (c *cluster) restartAll(ctx context.Context) error {
	var err error
	if c.restart != nil {
		err = c.restart(ctx)
	}
	if b := c.beside; b != nil && b.procs[0].done() {
		err = errors.Join(err, b.restart(ctx))
	}
	return err
}
