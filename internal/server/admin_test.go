package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// defaults makes o complete, with one token of tenant acme.
func defaults(t *testing.T, o Options) Options {
	t.Helper()
	if o.Tokens == nil && o.TokensFile == "" {
		tokens, err := auth.New(auth.Token{
			Hash: auth.Hash("t"), Principal: auth.Principal{Name: "one", Tenant: "acme", Scopes: auth.All},
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Tokens = tokens
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "data")
	}
	o.Memory, o.Reserve = max(o.Memory, minMemory), cmp.Or(o.Reserve, 16<<20)
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func startForAdmin(t *testing.T, o Options) *Running {
	t.Helper()
	r, err := Start(t.Context(), defaults(t, o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(0); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// reply is what the listener answered.
type reply struct {
	code   int
	header http.Header
	body   string
}

func ask(t *testing.T, method, url string, change func(*http.Request)) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	return replyTo(t, &http.Transport{DisableKeepAlives: true}, req)
}

// replyTo sends a request and reads its whole answer.
func replyTo(t *testing.T, way *http.Transport, req *http.Request) reply {
	t.Helper()
	resp, err := (&http.Client{Transport: way}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func get(t *testing.T, r *Running, path string) reply {
	t.Helper()
	return ask(t, "GET", "http://"+r.AdminAddress+path, nil)
}

var sampleLine = regexp.MustCompile(`^([a-z_][a-z0-9_]*)(\{.*\})? (\S+)$`)

// scrape reads the metrics: the value of each series, which is its name and labels.
func scrape(t *testing.T, r *Running) map[string]float64 {
	t.Helper()
	got := get(t, r, "/metrics")
	if got.code != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
		t.Fatalf("metrics: %d %s", got.code, got.body)
	}
	series := make(map[string]float64)
	for line := range strings.Lines(got.body) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("a line that makes no sense: %q", line)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if _, twice := series[m[1]+m[2]]; err != nil || twice {
			t.Fatalf("%q is not a figure, or there twice (err %v)", line, err)
		}
		series[m[1]+m[2]] = v
	}
	return series
}

func TestMetricsTellWhatWasDone(t *testing.T) {
	r := startForAdmin(t, Options{Version: "v7"})
	n := r.Node()
	ns, err := n.Namespace(t.Context(), "acme", "default", true)
	if err != nil {
		t.Fatal(err)
	}
	p := ns.Partitions[0].Partition
	for i := range 3 {
		propose(t, r, p, &core.TaskCreate{ID: core.NewTaskID(1, p.Index, [9]byte{byte(i)}), Queue: "q", Payload: []byte("1")})
	}
	got := scrape(t, r)
	for series, want := range map[string]float64{
		`millrace_node_present_tasks{shard="0",state="ready"}`: 3,
		`millrace_node_created_tasks_total{shard="0"}`:         3,
		`millrace_node_present_queues{shard="0"}`:              1,
		`millrace_node_ready_state{shard="0"}`:                 1,
		`millrace_server_ready_state`:                          1,
		`millrace_node_disk_full_state`:                        0,
		`millrace_api_refusals_total{limit="payload_bytes"}`:   0,
		`millrace_wal_sync_seconds_count`:                      got["millrace_wal_syncs_total"],
		`millrace_node_entry_commits_count`:                    got["millrace_wal_entries_total"] - 1, // Raft opens the term with its own
		fmt.Sprintf(`millrace_server_build_info{durability="fsync",go_version=%q,version="v7"}`, runtime.Version()): 1,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", series, v, ok, want)
		}
	}
	for _, series := range []string{
		"millrace_wal_syncs_total", "millrace_wal_written_bytes_total", "millrace_node_disk_free_bytes",
		`millrace_node_applied_index{shard="0"}`, "go_goroutines", "process_open_fds",
	} {
		if got[series] <= 0 {
			t.Errorf("%s is %v", series, got[series])
		}
	}
}

func propose(t *testing.T, r *Running, p core.Partition, op core.Op) {
	t.Helper()
	done := make(chan core.Proposed, 1)
	r.Node().Propose(p, []core.Commit{{Partition: p, Principal: "t", Ops: []core.Op{op}}}, func(p core.Proposed) { done <- p })
	if got := <-done; got.Err != nil || got.Results[0].Refusal != nil {
		t.Fatalf("%T: %+v", op, got)
	}
}

// TestNoNameThatUsersChooseIsALabel has many tenants wait on unknown queues, and fills queues of theirs: the
// series stay the same.
func TestNoNameThatUsersChooseIsALabel(t *testing.T) {
	names := 10_000
	if testing.Short() {
		names = 300
	}
	r := startForAdmin(t, Options{Durability: None})
	before := scrape(t, r)
	var all sync.WaitGroup
	next := make(chan int)
	for range 64 {
		all.Go(func() {
			for i := range next {
				tenant, queue := fmt.Sprintf("secret-t%d", i), fmt.Sprintf("secret-q%d", rand.Uint64())
				ns, err := r.Node().Namespace(t.Context(), tenant, "secret-n", true)
				if err != nil {
					t.Error(err)
					return
				}
				p := ns.Partitions[0].Partition
				if _, _, err := r.Node().Claim(t.Context(), p, core.ClaimSpec{Queues: []core.GrantQueue{{Name: queue, Weight: 1}}, Max: 1, Lease: 5000}); err != nil {
					t.Error(err)
				}
				if i%10 == 0 {
					propose(t, r, p, &core.TaskCreate{ID: core.NewTaskID(1, p.Index, [9]byte{1}), Queue: queue})
				}
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	all.Wait()
	for i := range 100 { // and over REST, on routes that there are and others
		path := []string{"/v1/queues/secret-q%d", "/v1/kv/secret-k%d/keys/a", "/v1/tasks/secret%d", "/secret%d", "/v1/tasks?queue=secret%d"}[i%5]
		ask(t, "GET", "http://"+r.HTTPAddress+fmt.Sprintf(path, i), func(q *http.Request) { q.Header.Set("Authorization", "Bearer t") })
	}
	after := scrape(t, r)
	if got := after[`millrace_node_present_queues{shard="0"}`]; got != float64(names)/10 {
		t.Errorf("%v queues, want %d", got, names/10)
	}
	if got := after[`millrace_node_waited_queues{shard="0"}`]; got != 0 {
		t.Errorf("%v queues are counted as waited on, though no worker waits", got)
	}
	for series := range after {
		closed := strings.HasPrefix(series, "millrace_api_ended_calls_total{") // methods and codes
		if _, ok := before[series]; !ok && !closed || strings.Contains(series, "secret") {
			t.Errorf("new series %s", series)
		}
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	a, err := newAdmin(defaults(t, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	probe := func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		a.http.Handler.ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1"+path, nil))
		return rec
	}
	if got := probe("/readyz"); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "starting") {
		t.Errorf("before there is a node: %d %s", got.Code, got.Body)
	}
	if got := probe("/healthz"); got.Code != http.StatusOK {
		t.Errorf("health before there is a node: %d %s", got.Code, got.Body)
	}
	if got := probe("/metrics"); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "millrace_server_ready_state 0") {
		t.Errorf("metrics before there is a node: %d", got.Code)
	}
	if got := probe("/debug/status"); got.Code != http.StatusOK || strings.Contains(got.Body.String(), "applied_index") {
		t.Errorf("status before there is a node: %d %s", got.Code, got.Body)
	}
	r := startForAdmin(t, Options{})
	a = r.admin
	if got := probe("/readyz"); got.Code != http.StatusOK {
		t.Errorf("running: %d %s", got.Code, got.Body)
	}
	if err := r.Close(0); err != nil {
		t.Fatal(err)
	}
	if got := probe("/readyz"); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "stopping") {
		t.Errorf("stopped: %d %s", got.Code, got.Body)
	}
	if got := r.Node().Unready(); got != "stopping" {
		t.Errorf("the node says %q", got)
	}
}

func TestAFullDiskIsReadyAndSaysSo(t *testing.T) {
	r := startForAdmin(t, Options{Reserve: 1 << 60})
	if got := get(t, r, "/readyz"); got.code != http.StatusOK || !strings.Contains(got.body, "disk is full") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := scrape(t, r)["millrace_node_disk_full_state"]; got != 1 {
		t.Errorf("the metric says %v", got)
	}
}

func TestStatusIsThatOfTheAPIAndShowsNoSecret(t *testing.T) {
	token := NewToken()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	row := fmt.Sprintf("tokens:\n  - {name: ci, tenant: acme, hash: %q, roles: [worker]}\n", HashToken(token))
	if err := os.WriteFile(file, []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startForAdmin(t, Options{TokensFile: file, Version: "v7", Shards: 2})
	got := get(t, r, "/debug/status")
	if got.code != http.StatusOK || strings.Contains(got.body, token) || strings.Contains(got.body, HashToken(token)) || strings.Contains(got.body, "acme") {
		t.Fatalf("%d %s", got.code, got.body)
	}
	var report struct {
		Status map[string]any
		Config map[string]any
		Limits map[string]int64
	}
	if err := json.Unmarshal([]byte(got.body), &report); err != nil {
		t.Fatal(err)
	}
	fields := (&pb.StatusResponse{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if _, ok := report.Status[string(fields.Get(i).Name())]; !ok {
			t.Errorf("the API's status has %s, this one does not", fields.Get(i).Name())
		}
	}
	if len(report.Status) != fields.Len() {
		t.Errorf("%d fields, the API's has %d: %v", len(report.Status), fields.Len(), report.Status)
	}
	if report.Status["version"] != "v7" || report.Status["shards"] != 2.0 || report.Status["durability"] != "fsync" {
		t.Errorf("status %v", report.Status)
	}
	if report.Config["data"] != r.o.Dir || report.Limits["payload_bytes"] != 1<<20 {
		t.Errorf("config %v, limits %v", report.Config, report.Limits)
	}
}

func TestProfilesAreServed(t *testing.T) {
	r := startForAdmin(t, Options{})
	for path, want := range map[string]int{
		"/debug/pprof/":                     200,
		"/debug/pprof/goroutine?debug=1":    200,
		"/debug/pprof/heap":                 200,
		"/debug/pprof/allocs":               200,
		"/debug/pprof/block":                200,
		"/debug/pprof/mutex":                200,
		"/debug/pprof/threadcreate":         200,
		"/debug/pprof/cmdline":              200,
		"/debug/pprof/symbol":               200,
		"/debug/pprof/none":                 404,
		"/debug/pprof/trace?seconds=0.01":   200,
		"/debug/pprof/profile?seconds=601":  400,
		"/debug/pprof/trace?seconds=nan":    400,
		"/debug/pprof/heap?seconds=1e9":     400,
		"/debug/pprof/profile?seconds=many": 400,
	} {
		if got := get(t, r, path); got.code != want {
			t.Errorf("%s: %d %.100s", path, got.code, got.body)
		}
	}
}

func TestProfileRatesAreSetWhileItRuns(t *testing.T) {
	r := startForAdmin(t, Options{AdminSocket: socketFor(t)})
	const path = "/debug/pprof/rates"
	want := func(got reply, block, mutex int) {
		t.Helper()
		var rates profileRates
		if err := json.Unmarshal([]byte(got.body), &rates); err != nil || got.code != 200 || rates != (profileRates{block, mutex}) {
			t.Errorf("%d %s, want block %d, mutex %d", got.code, got.body, block, mutex)
		}
	}
	want(get(t, r, path), 0, 0)
	want(operate(t, r, "POST", path+"?block=1&mutex=5"), 1, 5)
	want(operate(t, r, "POST", path+"?mutex=0"), 1, 0)
	for _, bad := range []string{"?block=-1", "?block=x", "?cpu=1", "?block=1&block=2", "?mutex=1000000001"} {
		if got := operate(t, r, "POST", path+bad); got.code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, got.code, got.body)
		}
	}
	want(get(t, r, path), 1, 0)
	// Something blocks, and the profile has seen it.
	c := make(chan int)
	go func() { c <- 1 }()
	<-c
	var b bytes.Buffer
	if err := pprof.Lookup("block").WriteTo(&b, 1); err != nil || !strings.Contains(b.String(), "cycles/second") {
		t.Errorf("block profile %q, err %v", b.String(), err)
	}
	if err := r.Close(0); err != nil {
		t.Error(err)
	}
	if r.admin.rates != (profileRates{}) {
		t.Errorf("rates after the end: %+v", r.admin.rates)
	}
}

// TestWebPagesCannotUseTheListener: a page in a browser of the same machine reaches loopback, by a name that its author
// lets lead there, or by sending a form across origins.
func TestWebPagesCannotUseTheListener(t *testing.T) {
	r := startForAdmin(t, Options{})
	_, port, _ := net.SplitHostPort(r.AdminAddress)
	base := "http://" + r.AdminAddress
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example:" + port, ""} {
		got := ask(t, "GET", base+"/debug/status", func(q *http.Request) { q.Host = host })
		if want := http.StatusMisdirectedRequest; host != "" && got.code != want {
			t.Errorf("Host %q: %d", host, got.code)
		}
	}
	for _, host := range []string{"localhost:" + port, "localhost", "127.0.0.1", "[::1]", "[::1]:" + port} {
		if got := ask(t, "GET", base+"/healthz", func(q *http.Request) { q.Host = host }); got.code != http.StatusOK {
			t.Errorf("Host %q: %d %s", host, got.code, got.body)
		}
	}
	for name, header := range map[string][2]string{
		"another origin": {"Origin", "http://evil.example"}, "another site": {"Sec-Fetch-Site", "cross-site"},
		"another port of this machine": {"Sec-Fetch-Site", "same-site"}, "a page of a file": {"Origin", "null"},
		"what no browser says": {"Sec-Fetch-Site", "Cross-Site"}, "nonsense for an origin": {"Origin", "http://%zz"},
	} {
		for _, path := range []string{"/debug/pprof/profile?seconds=600", "/debug/pprof/trace?seconds=600", "/debug/pprof/heap?gc=1", "/metrics", "/debug/status", "/cluster/status"} {
			for _, method := range []string{"GET", "HEAD", "POST"} {
				got := ask(t, method, base+path, func(q *http.Request) { q.Header.Set(header[0], header[1]) })
				if got.code != http.StatusForbidden {
					t.Errorf("%s: %s %s: %d %.100s", name, method, path, got.code, got.body)
				}
			}
		}
	}
	for name, header := range map[string][2]string{
		"a person": {"Sec-Fetch-Site", "none"}, "a page of its own": {"Sec-Fetch-Site", "same-origin"}, "its own origin": {"Origin", base},
	} {
		if got := ask(t, "GET", base+"/healthz", func(q *http.Request) { q.Header.Set(header[0], header[1]) }); got.code != http.StatusOK {
			t.Errorf("%s: %d %s", name, got.code, got.body)
		}
	}
	if got := get(t, r, "/healthz"); got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", got.header)
	}
}

// TestTheNameOfAListenerIsCheckedWhateverTheFlags: on a public address too, and there by the name that the operator gave it.
func TestTheNameOfAListenerIsCheckedWhateverTheFlags(t *testing.T) {
	for address, want := range map[string]map[string]bool{
		"0.0.0.0:" + "7083":        {"evil.example": false, "10.1.2.3:7083": true, "localhost": true, "n1.example:7083": false},
		":" + "7083":               {"evil.example:7083": false, "": false, "[::1]:" + "7083": true},
		"n1.example:7083":          {"evil.example": false, "n1.example:7083": true, "N1.Example": true, "n1.example.evil.example": false},
		net.JoinHostPort("::", ""): {"evil.example": false, "192.0.2.1": true},
	} {
		a := &admin{o: Options{Admin: address, Insecure: []string{ListenerAdmin, ListenerGRPC, ListenerHTTP}}}
		for host, ok := range want {
			if got := a.addressed(host); got != ok {
				t.Errorf("--admin %s, Host %q: %v, want %v", address, host, got, ok)
			}
		}
	}
}

func TestTheAdminListenerServesNothingElse(t *testing.T) {
	r := startForAdmin(t, Options{})
	for _, path := range []string{
		"/", "/v1/tasks", "/v1/status", "/v1/openapi.json", "/metrics/", "/debug", "/debug/", "/debug/vars", "/debug/pprof/../../etc/passwd",
		"/..%2f..%2fetc/passwd", "/millrace.v1.TaskService/Create",
	} {
		if got := get(t, r, path); got.code != http.StatusNotFound {
			t.Errorf("GET %s: %d %.100s", path, got.code, got.body)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/status"} {
		if got := ask(t, "POST", "http://"+r.AdminAddress+path, nil); got.code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, got.code)
		}
	}
	long := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
	if said := talk(t, r.AdminAddress, long); !bytes.Contains(said, []byte(" 431 ")) && len(said) > 0 { // it may be cut at once
		t.Errorf("64 KiB of headers: %q", said)
	}
	if got := get(t, r, "/healthz"); got.code != http.StatusOK {
		t.Errorf("afterwards: %d", got.code)
	}
}

// talk sends text over a connection of its own and returns all that comes back until it is closed or cut.
func talk(t *testing.T, address, text string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // it may be cut meanwhile
	said, _ := io.ReadAll(conn)
	return said
}

func TestTheRESTPortServesNoAdminRoute(t *testing.T) {
	r := startForAdmin(t, Options{})
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/status", "/debug/pprof/heap", "/debug/vars"} {
		got := ask(t, "GET", "http://"+r.HTTPAddress+path, func(q *http.Request) { q.Header.Set("Authorization", "Bearer t") })
		if got.code != http.StatusNotFound || strings.Contains(got.body, "millrace_") {
			t.Errorf("%s on the REST port: %d %.200s", path, got.code, got.body)
		}
	}
}

// TestTheGRPCPortServesNoAdminRoute: the edge speaks HTTP/2 to who has a token, and answers nothing to a plain request.
func TestTheGRPCPortServesNoAdminRoute(t *testing.T) {
	r := startForAdmin(t, Options{})
	for _, path := range []string{"/metrics", "/healthz", "/debug/pprof/", "/debug/status"} {
		b := talk(t, r.Address, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if bytes.Contains(b, []byte("200 OK")) || bytes.Contains(b, []byte("millrace_")) {
			t.Errorf("%s on the gRPC port: %.200q", path, b)
		}
	}
}

func TestTheAdminListenerStartsOnlyWhereStrangersAreNot(t *testing.T) {
	for _, c := range []struct {
		name, admin string
		insecure    []string
		want        string // in the error; empty starts
	}{
		{"every address", ":0", nil, "admin"},
		{"a public address", "192.0.2.1:7083", []string{"grpc", "http"}, "admin"},
		{"a name", "example.org:7083", nil, "admin"},
		{"no port", "127.0.0.1", []string{"admin"}, "admin"},
		{"every address, on purpose", ":0", []string{"admin"}, ""},
		{"loopback", "127.0.0.1:0", nil, ""},
		{"loopback of IPv6", "[::1]:0", nil, ""},
		{"off", "off", nil, ""},
		{"not said", "", nil, ""},
	} {
		o := Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Tokens: holderOf(t, "t"), Admin: c.admin, Insecure: c.insecure}
		_, err := o.withDefaults()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q first in it", c.name, err, c.want)
		}
	}
	if _, err := Dev(Options{Admin: ":0", Insecure: []string{"admin"}}, NewToken()); err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
		t.Errorf("development on every address: %v", err)
	}
	const standard = "192.0.2.9:7083"
	for listen, want := range map[string]string{"127.0.0.1:0": "127.0.0.1:0", "192.0.2.1:7081": standard, "": standard} {
		if got := listenerNextTo("", listen, standard); got != want {
			t.Errorf("next to %q: %q, want %q", listen, got, want)
		}
	}
}

func TestWithoutAnAdminListenerNothingListens(t *testing.T) {
	r := startForAdmin(t, Options{Admin: "off"})
	if r.AdminAddress != "" || goroutinesOf(t, "server.(*admin)") != 0 {
		t.Errorf("address %q", r.AdminAddress)
	}
}

func TestAPortInUseIsNamedBeforeDataIsTouched(t *testing.T) {
	lis, err := env.SystemNet{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	o := defaults(t, Options{Admin: lis.Addr().String()})
	if _, err := Start(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(o.Dir); err == nil {
		t.Error("the data directory was made")
	}
}

// TestIdleMetricsCostOneGoroutine which waits for connections.
func TestIdleMetricsCostOneGoroutine(t *testing.T) {
	r := startForAdmin(t, Options{})
	scrape(t, r)
	if n := goroutinesOf(t, "created by github.com/millrace/millrace/internal/server.(*admin)"); n != 1 {
		t.Errorf("%d goroutines", n)
	}
	for _, creator := range []string{"created by github.com/prometheus", "created by github.com/millrace/millrace/internal/obs"} {
		if n := goroutinesOf(t, creator); n != 0 {
			t.Errorf("%d goroutines %s", n, creator)
		}
	}
}

// goroutinesOf counts the goroutines whose stack names what.
func goroutinesOf(t *testing.T, what string) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, what) {
			n++
		}
	}
	return n
}

// TestCloseEndsARunningProfile: a server that stops does not wait for a profile of minutes.
func TestCloseEndsARunningProfile(t *testing.T) {
	r := startForAdmin(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.AdminAddress+"/debug/pprof/trace?seconds=500", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // it answers when the trace has begun
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := r.Close(0); err != nil {
		t.Error(err)
	}
	if n := goroutinesOf(t, "net/http/pprof.Trace"); n != 0 {
		t.Errorf("%d traces run on", n)
	}
}

// BenchmarkScrape reads every counter of a running server once.
func BenchmarkScrape(b *testing.B) {
	r, err := Start(b.Context(), Options{
		Dir: filepath.Join(b.TempDir(), "data"), Listen: "127.0.0.1:0", Tokens: holderOf(b, "t"), Memory: minMemory, Durability: None,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close(0)
	request := httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil)
	for b.Loop() {
		rec := httptest.NewRecorder()
		r.admin.http.Handler.ServeHTTP(rec, request)
		if rec.Code != http.StatusOK {
			b.Fatal(rec.Code)
		}
	}
}
