package bench

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/server"
)

func TestAShardThatChangedItsLeaderOrTermInTheWindowIsNamed(t *testing.T) {
	before := leaders{0: {1, 4}, 1: {2, 4}, 2: {3, 4}}
	for name, c := range map[string]struct {
		after leaders
		want  string
	}{
		"nothing moved":        {leaders{0: {1, 4}, 1: {2, 4}, 2: {3, 4}}, ""},
		"it is not known":      {nil, ""},
		"another leader":       {leaders{0: {2, 5}, 1: {2, 4}, 2: {3, 4}}, "shard 0 was led by server-1 in term 4 when the window began, and by server-2 in term 5 when it ended"},
		"away, and back":       {leaders{0: {1, 6}, 1: {2, 4}, 2: {3, 4}}, "by server-1 in term 6 when it ended"},
		"no leader at the end": {leaders{0: {1, 4}, 1: {2, 4}}, "shard 2 was led by server-3 in term 4 when the window began, and by no node when it ended"},
	} {
		got := moved(before, c.after)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// fakeAdmin is the admin listener of a node of three, which answers for all of them.
type fakeAdmin struct {
	mu     sync.Mutex // guards the fields below
	led    map[string]string
	refuse int // transfers that fail first
	asked  []string
}

func (a *fakeAdmin) serve(t *testing.T) Endpoint {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		shard, to := r.FormValue("shard"), r.FormValue("to")
		switch {
		case r.URL.Path == "/cluster/status":
			all := server.ClusterStatus{Shards: []server.ShardStatus{{Shard: 0, Term: 3}, {Shard: 1, Term: 3}}}
			for i, key := range []string{"0", "1"} {
				if n := a.led[key]; n != "" {
					all.Shards[i].Leader = uint64(n[0] - '0')
				}
			}
			if err := json.NewEncoder(w).Encode(all); err != nil {
				t.Error(err)
			}
		case a.refuse > 0:
			a.refuse--
			http.Error(w, "shard "+shard+" has no leader now", http.StatusServiceUnavailable)
		default:
			a.asked = append(a.asked, shard+" to "+to)
			a.led[shard] = to
		}
	}))
	t.Cleanup(s.Close)
	dir, err := os.MkdirTemp("", "sock") // the name of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	operator := &httptest.Server{Listener: lis, Config: &http.Server{Handler: s.Config.Handler}}
	operator.Start()
	t.Cleanup(operator.Close)
	return Endpoint{Name: "server-1", Admin: s.URL, Socket: lis.Addr().String()}
}

// deaf is a server that does not answer.
func deaf(t *testing.T) Endpoint {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close() //nolint:errcheck // so that the port is closed
	return Endpoint{Name: "server-9", Admin: "http://" + lis.Addr().String()}
}

func TestEveryShardIsGivenToItsNodeHoweverLongThatTakes(t *testing.T) {
	a := &fakeAdmin{led: map[string]string{}, refuse: 2}
	c := &cluster{endpoints: []Endpoint{a.serve(t), {}, {}}}
	c.leaders = func(ctx context.Context) (leaders, error) { return readLeaders(ctx, c.endpoints) }
	n := &nodes{spec: &runSpec{shape: Shape{Nodes: 3, Shards: 2}}}
	if err := n.placeLeaders(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.asked, ", "); got != "0 to 1, 1 to 2" {
		t.Errorf("asked for %s", got)
	}
}

func TestLeadersAreReadFromTheFirstNodeThatAnswers(t *testing.T) {
	a := &fakeAdmin{led: map[string]string{"1": "3"}}
	got, err := readLeaders(t.Context(), []Endpoint{deaf(t), a.serve(t)})
	if err != nil || len(got) != 1 || got[1] != (leader{3, 3}) {
		t.Errorf("leaders %v, %v; want server-3 of shard 1 alone", got, err)
	}
	if _, err := readLeaders(t.Context(), []Endpoint{deaf(t)}); err == nil || !strings.Contains(err.Error(), "server-9") {
		t.Errorf("error %v, want one that names the server", err)
	}
}
