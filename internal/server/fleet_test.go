package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env/envtest"
)

// fleetToken is the token of tenant acme, with every scope, at each node of a fleet.
const fleetToken = "mr_fleet"

// fleet is a cluster in this process whose nodes have certificates of one authority.
type fleet struct {
	t       *testing.T
	dir     string
	plan    *config.DevelopmentFiles
	shards  int
	peers   []config.Peer
	change  func(i int, o *Options) // what is special about the nodes; may be nil
	running []*Running              // nil: stopped
}

// newFleet makes a cluster of which no node runs.
func newFleet(t *testing.T, n, shards int, change func(i int, o *Options)) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("whole servers")
	}
	f := &fleet{t: t, dir: t.TempDir(), shards: shards, change: change, running: make([]*Running, n)}
	var err error
	f.plan, err = config.Development{Dir: f.dir, Nodes: 9, Host: "127.0.0.1", BasePort: 7400, Shards: shards, Tokens: []byte("tokens: []"), Now: time.Now()}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range f.plan.Files {
		path := filepath.Join(f.dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		at := envtest.Ports(t, 3)
		f.peers = append(f.peers, config.Peer{ID: uint64(i + 1), Address: at[0], API: at[1], HTTP: at[2]})
	}
	t.Cleanup(func() {
		for i := range f.running {
			f.stop(i)
		}
	})
	return f
}

// startFleet starts a cluster, and returns when a node leads and all know the directory of members.
func startFleet(t *testing.T, n, shards int, change func(i int, o *Options)) *fleet {
	t.Helper()
	f := newFleet(t, n, shards, change)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f.start(i) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	f.until("all nodes know the members", func() bool {
		for _, r := range f.running {
			if r.Node().Members().Version == 0 {
				return false
			}
		}
		return true
	})
	return f
}

// options are those of the i-th node.
func (f *fleet) options(i int) Options {
	p := f.peers[i]
	name := fmt.Sprint("n", p.ID)
	in := func(file string) string { return filepath.Join(f.dir, name, file) }
	o := Options{
		Dir: in("data"), Listen: p.API, HTTP: p.HTTP, Admin: "127.0.0.1:0", Shards: f.shards, Name: name, Memory: minMemory, Reserve: 16 << 20, Durability: None,
		Cluster: config.Cluster{
			ID: f.plan.Cluster, Node: p.ID, Listen: p.Address, Peers: f.peers, CA: in("ca.pem"), Cert: in("node.pem"), Key: in("node.key"),
		},
	}
	o.TokensFile = in("tokens.yaml")
	if f.change != nil {
		f.change(i, &o)
	}
	rows := fmt.Sprintf("tokens:\n  - {name: one, tenant: acme, hash: %q, roles: [admin, operator]}\n", HashToken(fleetToken))
	if err := os.WriteFile(o.TokensFile, []byte(rows), 0o600); err != nil {
		f.t.Error(err)
	}
	return o
}

func (f *fleet) start(i int) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	r, err := Start(ctx, f.options(i))
	if err != nil {
		f.t.Errorf("start node %d: %v", i+1, err)
		return
	}
	f.running[i] = r
}

func (f *fleet) stop(i int) {
	if r := f.running[i]; r != nil {
		f.running[i] = nil
		if err := r.Close(0); err != nil {
			f.t.Errorf("stop node %d: %v", i+1, err)
		}
	}
}

// until waits for what nodes do by themselves.
func (f *fleet) until(what string, done func() bool) {
	f.t.Helper()
	late, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late.Done():
			f.t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// leader is the place of the node that leads a shard and serves.
func (f *fleet) leader(shard int) (at int) {
	f.t.Helper()
	f.until(fmt.Sprintf("a node leads shard %d", shard), func() bool {
		for i, r := range f.running {
			if r != nil && r.Node().Standings()[shard].Serves {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

// member is the newest member of a node, as another one knows it.
func (f *fleet) member(at int, node uint64) core.Member {
	d := f.running[at].Node().Members()
	if m := d.OfNode(node); m != nil {
		return *m
	}
	return core.Member{}
}

// eavesdropper listens for connections and keeps all that comes.
type eavesdropper struct {
	address string
	mu      sync.Mutex // guards the fields below
	conns   int
	heard   []byte
}

// eavesdrop listens on an address of its own, until the test ends.
func eavesdrop(t *testing.T) *eavesdropper {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &eavesdropper{address: lis.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns++
			e.mu.Unlock()
			all.Go(func() { e.listen(c) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		all.Wait()
	})
	return e
}

// listen answers whatever it hears as a server of REST would, for as long as the connection lives.
func (e *eavesdropper) listen(c net.Conn) {
	defer c.Close()
	b := make([]byte, 64<<10)
	for {
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return
		}
		n, err := c.Read(b)
		e.mu.Lock()
		e.heard = append(e.heard, b[:n]...)
		e.mu.Unlock()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 11\r\nContent-Type: application/json\r\n\r\n{\"rev\":\"1\"}")) // it may be gone
	}
}

// all is what was heard, over how many connections.
func (e *eavesdropper) all() (string, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.heard), e.conns
}
