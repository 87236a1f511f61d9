package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// nodes are the servers of one cluster in this process, with an admin's token.
type nodes struct {
	t       *testing.T
	dir     string
	token   string
	peers   []config.Peer
	shards  int
	change  func(o *server.Options) // what is special about the nodes; may be nil
	running []*server.Running       // nil: stopped
}

func startCluster(t *testing.T, n, shards int) *nodes {
	t.Helper()
	return startClusterWith(t, n, shards, nil)
}

func startClusterWith(t *testing.T, n, shards int, change func(o *server.Options)) *nodes {
	t.Helper()
	c := newCluster(t, n, shards, change)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { c.start(i) })
	}
	all.Wait()
	return c
}

// newCluster makes a cluster of which no node runs.
func newCluster(t *testing.T, n, shards int, change func(o *server.Options)) *nodes {
	t.Helper()
	if testing.Short() {
		t.Skip("whole servers")
	}
	c := &nodes{t: t, dir: t.TempDir(), token: server.NewToken(), shards: shards, change: change, running: make([]*server.Running, n)}
	tokens := fmt.Sprintf("tokens:\n  - name: a\n    tenant: default\n    hash: %s\n    roles: [admin, operator]\n", server.HashToken(c.token))
	noErr(t, os.WriteFile(filepath.Join(c.dir, "tokens.yaml"), []byte(tokens), 0o600))
	for i := range n {
		at := envtest.Ports(t, 3)
		c.peers = append(c.peers, config.Peer{ID: uint64(i + 1), Address: at[0], API: at[1], HTTP: at[2]})
	}
	t.Cleanup(func() {
		for i := range n {
			c.stop(i)
		}
	})
	return c
}

// options are those of the i-th node.
func (c *nodes) options(i int) server.Options {
	p := c.peers[i]
	o := server.Options{
		Dir: filepath.Join(c.dir, fmt.Sprint("n", p.ID)), Listen: p.API, HTTP: p.HTTP, Admin: "off",
		TokensFile: filepath.Join(c.dir, "tokens.yaml"), Memory: 128 << 20, Shards: c.shards, Name: fmt.Sprint("n", p.ID),
		Cluster: config.Cluster{
			ID: strings.Repeat("0a", 16), Node: p.ID, Listen: p.Address, Peers: c.peers, Plain: true,
		},
	}
	if c.change != nil {
		c.change(&o)
	}
	return o
}

func (c *nodes) start(i int) {
	r, err := startAt(bounded(c.t, 30*time.Second), c.options(i))
	if err != nil {
		c.t.Errorf("start node %d: %v", i+1, err)
		return
	}
	c.running[i] = r
}

func (c *nodes) stop(i int) {
	if r := c.running[i]; r != nil {
		c.running[i] = nil
		if err := r.Close(0); err != nil {
			c.t.Errorf("stop node %d: %v", i+1, err)
		}
	}
}

// leader returns the place of the node that leads shard 0.
func (c *nodes) leader() int {
	c.t.Helper()
	ctx := bounded(c.t, 20*time.Second)
	for {
		for i, r := range c.running {
			if r == nil {
				continue
			}
			if _, serves := r.Node().Leads(0); serves {
				return i
			}
		}
		select {
		case <-ctx.Done():
			c.t.Fatal("no node leads")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// client knows all nodes, the i-th first.
func (c *nodes) client(i int, opts ...millrace.Option) *millrace.Client {
	c.t.Helper()
	var all []string
	for k := range c.peers {
		all = append(all, c.peers[(i+k)%len(c.peers)].API)
	}
	opts = append(opts, millrace.Address(strings.Join(all, ",")), millrace.Token(c.token), millrace.Timeout(0))
	m, err := millrace.Dial(c.t.Context(), opts...)
	noErr(c.t, err)
	c.t.Cleanup(func() { m.Close() })
	return m
}

func TestAClusterGoesOnWithoutItsLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	const tasks = 300
	job := millrace.Job[int, int]("double")
	k := c.client((lead + 1) % 3) // it is sent to the leader
	w := k.Worker(millrace.Slots(16))
	var done sync.Map
	var twice atomic.Int64
	job.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) {
		if _, was := done.LoadOrStore(n, t.ID); was {
			twice.Add(1)
		}
		t.Effects().KV("out").Put(fmt.Sprint(n), 2*n)
		return 2 * n, nil
	})
	ctx, cancel := context.WithCancel(bounded(t, 90*time.Second))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	producer := c.client((lead + 2) % 3)
	watched := got[*millrace.Handle[int]](t)(job.Add(ctx, producer, tasks, millrace.In(time.Hour)))
	seen := make(chan millrace.State, 1)
	go func() { seen <- lastState(ctx, producer, watched.ID) }()
	handles := make([]*millrace.Handle[int], tasks)
	for i := range handles {
		if i == tasks/3 {
			c.stop(lead)
			noErr(t, producer.RunNow(ctx, watched.ID))
		}
		if i == 2*tasks/3 {
			c.start(lead)
		}
		h, err := job.Add(ctx, producer, i)
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		handles[i] = h
	}
	for i, h := range handles {
		if got, err := h.Wait(ctx); err != nil || got != 2*i {
			t.Fatalf("task %d: %d, %v", i, got, err)
		}
	}
	for i := range tasks {
		if v, err := producer.KV("out").Get(ctx, fmt.Sprint(i)); err != nil || v.String() != fmt.Sprint(2*i) {
			t.Errorf("key %d: %s, %v", i, v, err)
		}
	}
	if s := <-seen; s != millrace.Completed {
		t.Errorf("a watch that lost its leader ended with %v", s)
	}
	cancel()
	<-ended
	t.Logf("%d tasks were handled again after the leader went", twice.Load())
}

// lastState watches a task, and returns the state that it saw last.
func lastState(ctx context.Context, k *millrace.Client, id string) (last millrace.State) {
	for info, err := range k.Watch(ctx, id) {
		if err != nil {
			return 0
		}
		last = info.State
	}
	return last
}

func TestARequestAtAFollowerGoesToTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	follower := c.peers[(lead+1)%3]
	first := c.peers[lead]
	ask := func(client *http.Client, query, id string) *http.Response {
		t.Helper()
		body := fmt.Sprintf(`{"id":%q,"queue":"q","payload":{"n":1}}`, id)
		req, err := http.NewRequestWithContext(bounded(t, 20*time.Second), http.MethodPost, "http://"+follower.HTTP+"/v1/tasks"+query, bytes.NewReader([]byte(body)))
		noErr(t, err)
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		noErr(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	id := func(n int) string { return fmt.Sprintf("01M7ZG0SGH003DZ6VPNJG2N1B%d", n) }
	stays := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	follows := &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		req.Header.Set("Authorization", "Bearer "+c.token) // another port of one host is another host to some
		return nil
	}}

	resp := ask(stays, "?ns=default", id(1))
	to := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusTemporaryRedirect || !strings.HasPrefix(to, "http://"+first.HTTP+"/v1/tasks?") {
		t.Errorf("a follower answers %d and %q, want 307 to %s", resp.StatusCode, to, first.HTTP)
	}
	if resp := ask(stays, "?hop=1", id(1)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a follower that was named as the leader answers %d, want 503: no client is sent on twice", resp.StatusCode)
	}
	if resp := ask(follows, "", id(2)); resp.StatusCode != http.StatusCreated {
		b, _ := io.ReadAll(resp.Body)
		t.Errorf("a client that follows gets %d: %s", resp.StatusCode, b)
	}
	resp = ask(stays, "?forward=1", id(3))
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated || !bytes.Contains(b, []byte(id(3))) {
		t.Errorf("a request to be forwarded gets %d: %s", resp.StatusCode, b)
	}
	if resp := ask(stays, "?forward=2", id(4)); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("forward=2 gets %d, want 400", resp.StatusCode)
	}
}

// lead has the i-th node lead shard 0.
func (c *nodes) lead(i int) {
	c.t.Helper()
	ctx := bounded(c.t, 30*time.Second)
	for at := c.leader(); at != i; at = c.leader() {
		if err := c.running[at].Node().Transfer(ctx, 0, uint64(i+1)); err != nil && ctx.Err() != nil {
			c.t.Fatal(err)
		}
	}
}
