package row

import (
	"context"
	"math/rand/v2"
	"net"
	"path/filepath"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// system is what clients speak to.
type system interface {
	// reach returns how the i-th client finds it.
	reach(i int) []millrace.Option
	// up reports whether it serves.
	up() bool
}

// one is a server by itself. It may move: its address is a mere name.
type one struct{ *proc.Server }

// reach has the client dial where the server is now, whatever the name.
func (s one) reach(int) []millrace.Option {
	return []millrace.Option{millrace.Address("server.test:1"), millrace.Insecure(), millrace.Dialer(s.Dial)}
}

func (s one) up() bool { return s.Address() != "" }

// many is a cluster. Its clients know all addresses, each another one first, and go to the leader from there.
type many struct{ *proc.Cluster }

func (c many) reach(i int) []millrace.Option {
	return []millrace.Option{millrace.Address(c.Addresses(i % len(c.Nodes)))}
}

// up reports whether all members serve.
func (c many) up() bool {
	for _, n := range c.Members() {
		if !n.Up() {
			return false
		}
	}
	return true
}

// pinned is one node of a cluster for a client that speaks to no other, wherever it is sent.
type pinned struct{ *proc.Node }

func (n pinned) reach(int) []millrace.Option {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", n.API)
	}
	return []millrace.Option{millrace.Address(n.API), millrace.Dialer(dial), millrace.Transport(millrace.TransportStream)}
}

func (n pinned) up() bool { return n.Up() }

// smallLogs reports whether the nodes of a run keep no log for those that are behind, who then need snapshots. A third of the
// runs have that.
func (e Env) smallLogs() bool { return rand.New(rand.NewPCG(e.Seed, 15)).IntN(3) == 0 }

// cluster makes and starts the cluster of a run.
func (e Env) cluster(ctx context.Context, nodes int, proxy bool, tenants ...string) (many, error) {
	return e.clusterOf(ctx, proc.ClusterOptions{Nodes: nodes, Proxy: proxy}, tenants...)
}

// clusterOf makes and starts a cluster as o says, with what is the same for all runs filled in.
func (e Env) clusterOf(ctx context.Context, o proc.ClusterOptions, tenants ...string) (many, error) {
	o.Binary, o.Dir = e.Binary, filepath.Join(e.Dir, "cluster")
	if e.smallLogs() {
		o.Flags = append(o.Flags, "--log-quota", "1")
	}
	if e.Mutant != "" {
		o.Env = append(o.Env, "MILLRACE_MUTANT="+e.Mutant)
	}
	c, err := proc.NewCluster(ctx, o, tenants...)
	if err != nil {
		return many{}, err
	}
	if err := c.Start(ctx); err != nil {
		_ = c.Close() // what could not start tells why
		return many{}, err
	}
	return many{c}, nil
}
