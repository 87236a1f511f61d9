package load

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/internal/server"
)

// refusing is what the program of a planted cluster has in its name: nodes that do not lead refuse, and do not say who
// does.
const refusing = "refusing"

// nodeFile is the configuration of one node of a test's cluster.
type nodeFile struct {
	Dir, Listen, HTTP, Admin, Tokens, Name string
	Shards                                 int
	Cluster                                json.RawMessage // of the server's options
}

// clusterInit is cluster init with the flags that the bench gives it: peers speak plain text.
func clusterInit(args []string) error {
	f := flag.NewFlagSet("cluster init", flag.ContinueOnError)
	f.Bool("json", false, "")
	dir, n := f.String("dir", "", ""), f.Int("nodes", 0, "")
	port, shards := f.Int("base-port", 0, ""), f.Int("shards", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	at := func(i, k int) string { return fmt.Sprintf("127.0.0.1:%d", *port+10*i+k) }
	token := server.NewToken()
	files := map[string]string{
		"token":  token,
		"tokens": fmt.Sprintf("tokens:\n  - name: a\n    tenant: default\n    hash: %s\n    roles: [admin, operator]\n", server.HashToken(token)),
	}
	type peer struct {
		ID                 int
		Address, API, HTTP string
	}
	var peers []peer
	for i := range *n {
		peers = append(peers, peer{i + 1, at(i, 0), at(i, 1), at(i, 2)})
	}
	type node struct {
		Config string `json:"config"`
	}
	var nodes []node
	for i, p := range peers {
		cluster, err := json.Marshal(map[string]any{
			"ID": strings.Repeat("0a", 16), "Node": p.ID, "Listen": p.Address, "Peers": peers, "Plain": true,
		})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("n%d", p.ID)
		b, err := json.Marshal(nodeFile{
			filepath.Join(*dir, name), p.API, p.HTTP, at(i, 3), filepath.Join(*dir, "tokens"), name, *shards, cluster,
		})
		if err != nil {
			return err
		}
		files[name+".json"] = string(b)
		nodes = append(nodes, node{filepath.Join(*dir, name+".json")})
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(*dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"token_file": filepath.Join(*dir, "token"), "nodes": nodes})
}

// serveNode is one node of a cluster that clusterInit made.
func serveNode(file, durability string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c nodeFile
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	o := server.Options{
		Dir: c.Dir, Listen: c.Listen, HTTP: c.HTTP, Admin: c.Admin, AdminSocket: os.Getenv("MILLRACE_SERVE_ADMIN_SOCKET"), TokensFile: c.Tokens, Name: c.Name, Shards: c.Shards, Memory: 128 << 20, Reserve: 16 << 20,
		Durability: server.Durability(durability),
	}
	if err := json.Unmarshal(c.Cluster, &o.Cluster); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, o)
	if err != nil {
		return err
	}
	door := s.HTTPAddress
	if strings.Contains(os.Args[0], refusing) {
		if door, err = refuse(door); err != nil {
			return errors.Join(err, s.Close(0))
		}
	}
	told := map[string]string{"grpc": s.Address, "http": door, "admin": s.AdminAddress, "socket": s.SocketPath}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		return errors.Join(err, s.Close(0))
	}
	select {
	case <-ctx.Done():
		return s.Close(time.Second)
	case err := <-s.Fatal():
		return errors.Join(err, s.Close(0))
	}
}

// refuse serves what door does, but takes out of redirects where to go. It serves until the process ends.
func refuse(door string) (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: door})
	p.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusTemporaryRedirect {
			r.StatusCode, r.Status = http.StatusServiceUnavailable, ""
			r.Header.Del("Location")
		}
		return nil
	}
	h := &http.Server{Handler: p, ReadHeaderTimeout: nullTimeout}
	go func() { _ = h.Serve(lis) }()
	return lis.Addr().String(), nil
}

// three is a suite of one row on three nodes.
func three(drive bench.Driver, shape bench.Shape) bench.Suite {
	s := small(drive, shape)
	s.Rows[0].Shape.Nodes, s.Rows[0].Shape.Lease = 3, time.Minute
	return s
}

// planted names this program so that its nodes have a fault.
func planted(t *testing.T, fault string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), fault)
	if err := os.Symlink(self(t), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// callers is the shape of callers each of which creates, claims and completes.
func callers(kind string) bench.Shape {
	return bench.Shape{Producers: 1, Workers: 1, Callers: 8, Slots: 8, Kind: kind}
}

func TestThreeNodesAreMeasuredEachByItselfAndAuditedOnAll(t *testing.T) {
	run := on(t, bench.Procs, three(Queue, bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16}))
	clean(t, run)
	wantMetrics(t, run, "cycles_per_s", "server_1_fsyncs_per_op", "server_2_fsyncs_per_op", "server_3_wal_bytes_per_op")
	for i, want := range []float64{1, 0, 0} {
		name := fmt.Sprintf("server_%d_led", i+1)
		if got := run.Metrics[name].Value; got != want {
			t.Errorf("%s is %v, want %v: the first node leads the only shard", name, got, want)
		}
	}
	one, all := run.Metrics["server_1_fsyncs_per_op"].Value, run.Metrics["fsyncs_per_op"].Value
	if all <= one {
		t.Errorf("all servers count %v syncs per operation, the first alone %v", all, one)
	}
}

func TestSeveralShardsAreDealtOutAndEachHasWork(t *testing.T) {
	s := three(Queue, bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16})
	s.Rows[0].Shape.Shards = 4
	run := on(t, bench.Procs, s)
	clean(t, run)
	for i, want := range []float64{2, 1, 1} {
		name := fmt.Sprintf("server_%d_led", i+1)
		if got := run.Metrics[name].Value; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if w := warned(run, "uneven_shards"); w != nil {
		t.Errorf("%s", w.Detail)
	}
}

// killing is Queue while the n-th server dies in the middle of the window.
func killing(n int) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		go func() {
			select {
			case <-rig.Began():
				if err := rig.KillServer(n); err != nil {
					rig.Fail("kill", err)
				}
			case <-ctx.Done():
			}
		}()
		return Queue(ctx, rig)
	}
}

func TestANodeThatDiesInTheWindowFailsTheRunAndIsAuditedAfterAnotherStart(t *testing.T) {
	s := three(killing(0), bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16})
	s.Window = 30 * time.Second // it ends with the server
	run := on(t, bench.Procs, s)
	if !strings.Contains(run.Failed, "server-1 ended by itself") {
		t.Errorf("failed %q, want a word on the server that ended", run.Failed)
	}
	if run.Audit == nil || !run.Audit.OK {
		t.Errorf("audit %+v: what was acknowledged is on the other nodes", run.Audit)
	}
}

// moving is Queue while an operator gives shard 0 to the second node in the middle of the window.
func moving(ctx context.Context, rig *bench.Rig) error {
	moved := make(chan error, 1)
	go func() {
		select {
		case <-rig.Began():
			resp, err := bench.SocketClient(rig.Servers[0].Socket).Post("http://operator/cluster/transfer?shard=0&to=2", "", nil)
			if err == nil {
				err = resp.Body.Close()
			}
			moved <- err
		case <-ctx.Done():
			moved <- ctx.Err()
		}
	}()
	return errors.Join(Queue(ctx, rig), <-moved)
}

func TestALeadershipThatMovesInTheWindowFailsTheRun(t *testing.T) {
	run := on(t, bench.Procs, three(moving, bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16}))
	for _, want := range []string{"shard 0 was led by server-1 in term", "by server-2 in term"} {
		if !strings.Contains(run.Failed, want) {
			t.Errorf("failed %q, want %q", run.Failed, want)
		}
	}
	if run.Audit == nil || !run.Audit.OK {
		t.Errorf("audit %+v", run.Audit)
	}
}

func TestAPlainClientPaysForEveryFollowerThatItAsks(t *testing.T) {
	run := on(t, bench.Procs, three(Smart, callers("plain")))
	clean(t, run)
	// A third of the requests begin at the leader, the others take two.
	if got := run.Metrics["requests_per_op"].Value; got < 1.5 || got > 1.8 {
		t.Errorf("%v requests per operation, want 5/3", got)
	}
	if got := run.Metrics["redirects_per_request"].Value; got < 0.33 || got > 0.45 {
		t.Errorf("%v redirects per request, want 2/5", got)
	}
	for _, name := range []string{"requests_per_create", "requests_per_claim", "requests_per_complete"} {
		if got := run.Metrics[name].Value; got < 1.4 || got > 1.9 {
			t.Errorf("%s is %v, want 5/3", name, got)
		}
	}
	if _, ok := run.Metrics["empty_claims_per_cycle"]; !ok {
		t.Error("empty claims are not counted")
	}
	if c := run.Calls; c["create"].OK == 0 || c["claim"].OK == 0 || c["complete"].OK == 0 {
		t.Errorf("calls %+v", c)
	}
}

func TestAClientThatFollowsNothingAsksEveryNode(t *testing.T) {
	run := on(t, bench.Procs, three(Smart, callers("rotation")))
	clean(t, run)
	if got := run.Metrics["requests_per_op"].Value; got < 2.5 || got > 3.5 {
		t.Errorf("%v requests per operation, want 3", got)
	}
}

func TestFollowersThatRefuseWithoutRedirectAreKnownByTheRequests(t *testing.T) {
	run := onProgram(t, planted(t, refusing), three(Smart, callers("plain")))
	clean(t, run)
	if got := run.Metrics["requests_per_op"].Value; got <= 2 {
		t.Errorf("%v requests per operation, though no follower says who leads", got)
	}
	if got := run.Metrics["redirects_per_request"].Value; got != 0 {
		t.Errorf("%v redirects per request, though there are none", got)
	}
	if got := run.Metrics["refusals_per_request"].Value; got < 0.5 {
		t.Errorf("%v refusals per request, want 2/3", got)
	}
}

func TestTheSDKRemembersTheLeader(t *testing.T) {
	run := on(t, bench.Procs, three(Smart, callers("sdk")))
	clean(t, run)
	if got := run.Metrics["requests_per_op"].Value; got <= 0 || got > 1.05 {
		t.Errorf("%v requests per operation, want at most one and a few", got)
	}
}

func TestCallsForTasksAreReadOffAServersMetrics(t *testing.T) {
	calls, elsewhere, err := taskCalls(strings.NewReader(`# HELP millrace_api_ended_calls_total x
millrace_api_ended_calls_total{code="NOT_LEADER",method="/millrace.v1.TaskService/Claim"} 3
millrace_api_ended_calls_total{code="OK",method="/millrace.v1.QueueStream/Open"} 1
millrace_api_ended_calls_total{code="OK",method="/millrace.v1.ServerService/Status"} 50
millrace_api_ended_calls_total{code="OK",method="/millrace.v1.TaskService/Settle"} 1e+03
millrace_api_open_calls 7
`))
	if err != nil || calls != 1004 || elsewhere != 3 {
		t.Errorf("%d calls, %d of them elsewhere, %v; want 1004, 3", calls, elsewhere, err)
	}
}
