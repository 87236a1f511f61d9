package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// withAdmin gives each node an admin listener on a free port.
func withAdmin(o *server.Options) { o.Admin = "127.0.0.1:0" }

func TestACleanStopLeavesALeaderBehind(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	for range 4 {
		lead := c.leader()
		before := c.running[lead].Node().Standings()[0].Term
		begin := time.Now()
		c.stop(lead)
		took := time.Since(begin)
		var leads, term uint64 // no time is left for an election that somebody has to wait for
		for i, r := range c.running {
			if r == nil {
				continue
			}
			if st := r.Node().Standings()[0]; st.Leader == uint64(i+1) {
				leads, term = st.Leader, st.Term
			}
		}
		if leads == 0 || term != before+1 {
			t.Errorf("node %d stopped in term %d within %v, and node %d leads in term %d", lead+1, before, took, leads, term)
		}
		c.start(lead)
	}
}

func TestTheLastNodeStopsWithoutASuccessor(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	c.leader()
	for i := range 3 {
		c.stop(i) // the last has no other to hand over to, and says so at once
	}
}

// clusterOf is what millrace cluster status says.
func clusterOf(t *testing.T, c *nodes, i, code int) (s server.ClusterStatus) {
	t.Helper()
	e := run(t, append([]string{"cluster", "status", "--json"}, c.door(i)...)...)
	line, _, _ := strings.Cut(e.out, "\n")
	if err := json.Unmarshal([]byte(line), &s); err != nil || e.code != code {
		t.Fatalf("exit %d, want %d: %v\n%s", e.code, code, err, e.out)
	}
	return s
}

func TestOperatorsSeeAndMoveLeadersFromAnyNode(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, 3, 2, withAdmin)
	c.leader()
	admin := func(i int) string { return c.running[i].AdminAddress }
	k := c.client(0)
	for i := range 20 {
		if _, err := k.KV("s").Put(bounded(t, 20*time.Second), fmt.Sprint(i), i); err != nil {
			t.Fatal(err)
		}
	}
	var s server.ClusterStatus
	for i := range 3 {
		s = clusterOf(t, c, i, 0)
		if s.Asked != uint64(i+1) || len(s.Nodes) != 3 || len(s.Shards) != 2 || s.Cluster != strings.Repeat("0a", 16) {
			t.Fatalf("node %d says %+v", i+1, s)
		}
		for _, shard := range s.Shards {
			if shard.Leader == 0 || shard.Term == 0 || shard.Commit == 0 {
				t.Errorf("node %d shows shard %+v", i+1, shard)
			}
		}
		for at, n := range s.Nodes {
			if n.ID != uint64(at+1) || !n.Reachable || n.Address != c.peers[at].Address || n.GRPC != c.peers[at].API || n.Name != fmt.Sprint("n", at+1) || len(n.Replicas) != 2 {
				t.Errorf("node %d shows node %+v", i+1, n)
			}
		}
	}
	for to := uint64(1); to <= 3; to++ {
		asked := int(to+s.Shards[1].Leader) % 3 // any: the leader, the next one, or neither
		e := run(t, append([]string{"cluster", "transfer", "--shard", "1", "--to", fmt.Sprint(to)}, c.door(asked)...)...)
		if e.code != 0 || !strings.Contains(e.out, fmt.Sprintf("node %d leads shard 1", to)) {
			t.Fatalf("to node %d: exit %d\n%s", to, e.code, e.out)
		}
		if got := got[string](t)(leaderOf(t, c, 1)); got != fmt.Sprint(to) {
			t.Errorf("after the transfer node %s leads, want %d", got, to)
		}
	}
	if e := run(t, append([]string{"cluster", "status"}, c.door(0)...)...); e.code != 0 || !strings.Contains(e.out, "SHARD") || !strings.Contains(e.out, c.peers[2].Address) {
		t.Errorf("for people: exit %d\n%s", e.code, e.out)
	}
	for _, bad := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--shard", "1"}, 2, "--to"},
		{[]string{"--to", "1"}, 2, "--shard"},
		{[]string{"--shard", "9", "--to", "1"}, 1, "shard 9 does not exist"},
		{[]string{"--shard", "1", "--to", "9"}, 1, "no node 9"},
	} {
		e := run(t, append(append([]string{"cluster", "transfer"}, c.door(0)...), bad.args...)...)
		if e.code != bad.code || !strings.Contains(e.out, bad.says) {
			t.Errorf("%v: exit %d\n%s", bad.args, e.code, e.out)
		}
	}
	operateByTheServer(t, c)
	wantMetrics(t, admin(0))
	c.stop(2)
	s = clusterOf(t, c, 0, 3)
	if n := s.Nodes[2]; n.Reachable || n.Error == "" || n.Address != c.peers[2].Address {
		t.Errorf("a node that is gone is shown as %+v", n)
	}
	e := run(t, append([]string{"cluster", "transfer", "--shard", "1", "--to", "3"}, c.door(0)...)...)
	if e.code == 0 || !strings.Contains(e.out, "node 3 is not reached") {
		t.Errorf("to a node that is gone: exit %d\n%s", e.code, e.out)
	}
	if e := run(t, append([]string{"cluster", "status", "--timeout", "1s"}, c.door(2)...)...); e.code != 3 {
		t.Errorf("where no process listens: exit %d\n%s", e.code, e.out)
	}
}

// operateByTheServer operates a cluster of three with two shards through its servers, by the command line and by both
// transports of the SDK.
func operateByTheServer(t *testing.T, c *nodes) {
	t.Helper()
	door := []string{"--server", c.peers[1].API, "--token", c.token}
	do := func(code int, args ...string) ended {
		t.Helper()
		e := run(t, append(append([]string{"cluster"}, args...), door...)...)
		if e.code != code {
			t.Fatalf("cluster %v: exit %d, want %d\n%s", args, e.code, code, e.out)
		}
		return e
	}
	var s server.ClusterStatus
	line, _, _ := strings.Cut(do(0, "status", "--json").out, "\n")
	noErr(t, json.Unmarshal([]byte(line), &s))
	if s.Asked != 2 || len(s.Nodes) != 3 || len(s.Shards) != 2 || s.Format != 4 || s.Nodes[0].Knows != 4 || len(s.Nodes[0].Replicas) != 2 {
		t.Errorf("a server says %+v", s)
	}
	do(0, "transfer", "--shard", "1", "--to", "3")
	if got := got[string](t)(leaderOf(t, c, 1)); got != "3" {
		t.Errorf("after the transfer node %s leads", got)
	}
	if e := do(1, "transfer", "--shard", "9", "--to", "3"); !strings.Contains(e.out, "shard 9 does not exist") {
		t.Errorf("a shard that is none: %s", e.out)
	}
	do(0, "drain", "n3")
	if e := do(0, "drain", "n3", "--undo"); strings.Contains(e.out, "drained") {
		t.Errorf("after the drain is over: %s", e.out)
	}
	if e := do(1, "remove", "n9"); !strings.Contains(e.out, "NOT_FOUND") {
		t.Errorf("a node that is none: %s", e.out)
	}
	do(0, "balance")
	if e := do(0, "finalize"); !strings.Contains(e.out, "format 4 already") {
		t.Errorf("finalize: %s", e.out)
	}
	if e := run(t, "cluster", "status", "--server", c.peers[1].API, "--socket", "./operator.sock"); e.code != 2 {
		t.Errorf("with both: exit %d\n%s", e.code, e.out)
	}
	ctx := bounded(t, 30*time.Second)
	k, err := millrace.Dial(ctx, millrace.Address(c.peers[0].API), millrace.RESTAddress(c.peers[0].HTTP), millrace.Token(c.token), millrace.Transport(millrace.TransportREST))
	noErr(t, err)
	defer k.Close() //nolint:errcheck // nothing is under way
	byREST, err := k.Operator().Status(ctx)
	noErr(t, err)
	byGRPC, err := c.client(0).Operator().Status(ctx)
	noErr(t, err)
	if byREST.Asked != 1 || len(byREST.Nodes) != 3 || byREST.Nodes[2].Address != byGRPC.Nodes[2].Address || byREST.Cluster != byGRPC.Cluster || byREST.Format != byGRPC.Format || len(byREST.Shards) != 2 {
		t.Errorf("by REST %+v\nby gRPC %+v", byREST, byGRPC)
	}
	m, err := k.Operator().Add(ctx, millrace.AddNode{Node: 4})
	if err != nil || m.JoinToken == "" || len(m.Members) != 4 || m.Job.State != "running" {
		t.Errorf("add by REST: %+v, %v", m, err)
	}
	if _, err := c.client(0).Operator().Add(ctx, millrace.AddNode{Node: 5}); !errors.Is(err, millrace.ErrWrongState) {
		t.Errorf("a second change by gRPC: %v", err)
	}
	if m, err := k.Operator().Cancel(ctx); err != nil || m.Job.State != "cancelled" || len(m.Members) != 3 {
		t.Errorf("cancel by REST: %+v, %v", m, err)
	}
}

// wantMetrics waits until a node of a cluster of three with two shards, which may be on their way, tells all of its peers and
// logs.
func wantMetrics(t *testing.T, admin string) {
	t.Helper()
	lines := []string{
		`millrace_transport_connected_state{class="bulk",direction="outbound",peer="2"} 1`,
		`millrace_transport_connected_state{class="control",direction="inbound",peer="3"} 1`,
		`millrace_transport_dropped_messages_total{class="bulk",limit="peer_bulk",peer="2"} 0`,
		`millrace_transport_dropped_messages_total{class="parts",limit="peer_parts",peer="2"} 0`,
		`millrace_node_known_leader_state{shard="1"} 1`, `millrace_node_leader_changes_total{shard="1"} `,
		`millrace_server_memory_share_bytes{share="peer_inbox"} 4.194304e+06`,
		`millrace_transport_refused_connections_total{reason="other_shards"} 0`,
	}
	eventually(t, "the metrics say "+strings.Join(lines, ", "), func() bool {
		resp, err := http.Get("http://" + admin + "/metrics")
		noErr(t, err)
		metrics, err := io.ReadAll(resp.Body)
		noErr(t, errors.Join(err, resp.Body.Close()))
		return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(string(metrics), line) })
	})
}

// leaderOf waits until a node serves a shard, and names it.
func leaderOf(t *testing.T, c *nodes, shard int) (string, error) {
	ctx := bounded(t, 20*time.Second)
	for {
		for i, r := range c.running {
			if r != nil && r.Node().Standings()[shard].Serves {
				return fmt.Sprint(i + 1), nil
			}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestANodeThatForwardsAnswersForTheLeaderUnlessToldNotTo(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, 3, 1, func(o *server.Options) { o.Forward = true })
	lead := c.leader()
	follower := c.peers[(lead+1)%3]
	for _, ask := range []struct {
		query string
		want  int
	}{{"", http.StatusCreated}, {"?forward=1", http.StatusCreated}, {"?forward=0", http.StatusTemporaryRedirect}} {
		body := fmt.Sprintf(`{"id":%q,"queue":"q","payload":{"n":1}}`, newID())
		req, err := http.NewRequestWithContext(bounded(t, 20*time.Second), http.MethodPost, "http://"+follower.HTTP+"/v1/tasks"+ask.query, bytes.NewReader([]byte(body)))
		noErr(t, err)
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, err := client.Do(req)
		noErr(t, err)
		text, _ := io.ReadAll(resp.Body)
		noErr(t, resp.Body.Close())
		if resp.StatusCode != ask.want {
			t.Errorf("%q gets %d, want %d: %s", ask.query, resp.StatusCode, ask.want, text)
		}
	}
}

func TestANodeWithAnotherNumberOfShardsIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, 3, 2, withAdmin)
	c.leader()
	c.stop(2)
	odd := make(chan error, 1)
	ctx, cancel := context.WithCancel(bounded(t, 60*time.Second))
	defer cancel()
	first := c.change
	c.change = func(o *server.Options) { first(o); o.Shards, o.Dir = 3, filepath.Join(c.dir, "odd") }
	o := c.options(2)
	go func() {
		r, err := startAt(ctx, o)
		if err == nil {
			err = r.Close(0)
		}
		odd <- err
	}()
	want := []string{"other_shards", "this is node 1", "the peer is node 3", "hosts 3 shards, this node 2"}
	for {
		told := clusterOf(t, c, 0, 3).Nodes[2].Error
		missing := 0
		for _, w := range want {
			if !strings.Contains(told, w) {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it is told as %q, want %q", told, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	if err := <-odd; err == nil {
		t.Error("a node with another number of shards became ready")
	}
}
