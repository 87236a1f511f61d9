package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// socketFor is a path for a socket: the folder of a test may have too long a name.
func socketFor(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "operator.sock")
}

// operate asks the operator's socket of a server.
func operate(t *testing.T, r *Running, method, path string) reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://operator"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return replyTo(t, &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.SocketPath)
		},
	}, q)
}

// logged keeps what a server logs.
type logged struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write keeps a line.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// has reports whether there is a line with all words.
func (l *logged) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true
		}
	}
	return false
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// changes are all requests that change something, at the operator's socket.
var changes = []string{
	"/cluster/transfer?shard=0&to=2", "/cluster/balance", "/cluster/finalize", "/debug/pprof/rates?block=1&mutex=1",
	"/cluster/members/add?node=4&peer=h:1", "/cluster/members/remove?node=1", "/cluster/members/replace?node=1&with=2",
	"/cluster/members/promote?node=2", "/cluster/members/set?node=1&http=stranger.example:1&api=stranger.example:2&peer=stranger.example:3",
	"/cluster/members/cancel", "/cluster/members/drain?node=1", "/cluster/members/undrain?node=1",
}

// TestAProcessWithoutATokenChangesNothingByAnyPort: being on the machine does not give the right to change anything.
func TestAProcessWithoutATokenChangesNothingByAnyPort(t *testing.T) {
	var logs logged
	f := startFleet(t, 3, 1, func(i int, o *Options) {
		o.Metrics = "127.0.0.1:0"
		if i == 0 {
			o.Logger = logs.logger()
		}
	})
	f.settled()
	r := f.running[0]
	before := membership(ptr(r.Node().Members()))
	leads := r.Node().Standings()[0].Leader
	paths := append(slices.Clone(changes), "/metrics", "/healthz", "/readyz", "/debug/status", "/cluster/status", "/debug/pprof/", "/debug/pprof/symbol", "/debug/pprof/cmdline", "/")
	for _, address := range []string{r.AdminAddress, r.MetricsAddress} {
		for _, path := range paths {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "CONNECT"} {
				if method == "CONNECT" && path != "/" {
					continue
				}
				got := ask(t, method, "http://"+address+path, nil)
				if got.code != http.StatusNotFound && got.code != http.StatusMethodNotAllowed && got.code != http.StatusBadRequest {
					t.Errorf("%s %s at %s: %d %.100s", method, path, address, got.code, got.body)
				}
			}
		}
	}
	for _, path := range changes { // nor by a request that only reads
		for _, address := range []string{r.AdminAddress, r.MetricsAddress} {
			if got := ask(t, "GET", "http://"+address+path, nil); got.code == http.StatusOK && !strings.HasPrefix(path, "/debug/pprof/rates") {
				t.Errorf("GET %s at %s: %d %.100s", path, address, got.code, got.body)
			}
		}
	}
	for _, route := range restRoutes(t, r) { // REST has all of them, for who has a token
		got := ask(t, route[0], "http://"+r.HTTPAddress+route[1], nil)
		if got.code != http.StatusUnauthorized && !slices.Contains([]string{"/v1/openapi.json", "/v1/session"}, route[1]) { // who signs in has no session yet
			t.Errorf("%s %s without a token: %d %.100s", route[0], route[1], got.code, got.body)
		}
	}
	for _, path := range changes {
		if got := ask(t, "POST", "http://"+r.HTTPAddress+path, nil); got.code < 400 {
			t.Errorf("POST %s at the REST port: %d", path, got.code)
		}
		if b := talk(t, r.Address, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); bytes.Contains(b, []byte(" 200 ")) {
			t.Errorf("POST %s at the gRPC port: %.100q", path, b)
		}
	}
	after := membership(ptr(r.Node().Members()))
	before.Version, after.Version = 0, 0 // nodes may still announce themselves
	if a, b := asText(t, before), asText(t, after); a != b {
		t.Errorf("the members were\n%s\nand are\n%s", a, b)
	}
	if now := r.Node().Standings()[0].Leader; now != leads {
		t.Errorf("node %d leads, it was %d", now, leads)
	}
	if r.admin.rates != (profileRates{}) || runtime.SetMutexProfileFraction(-1) != 0 {
		t.Errorf("rates are %+v", r.admin.rates)
	}
	if logs.has("operator:") {
		t.Error("something was done for an operator")
	}
}

func ptr[T any](v T) *T { return &v }

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// restRoutes lists the methods and paths of the REST edge, by its own document.
func restRoutes(t *testing.T, r *Running) (out [][2]string) {
	t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	got := ask(t, "GET", "http://"+r.HTTPAddress+"/v1/openapi.json", nil)
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if method = strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "PATCH", "DELETE", "HEAD"}, method) {
				out = append(out, [2]string{method, strings.NewReplacer("{", "", "}", "").Replace(path)})
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("%d routes", len(out))
	}
	return out
}

func TestAnOperatorOnTheMachineChangesTheClusterAndIsNamed(t *testing.T) {
	var logs logged
	path := socketFor(t)
	f := startFleet(t, 3, 1, func(i int, o *Options) {
		if i == 0 {
			o.AdminSocket, o.Logger = path, logs.logger()
		}
	})
	f.settled()
	r := f.running[0]
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 || r.SocketPath != path {
		t.Errorf("the socket %s is %v, %v", r.SocketPath, info, err)
	}
	if got := operate(t, r, "GET", "/cluster/status"); got.code != http.StatusOK || !strings.Contains(got.body, f.plan.Cluster) {
		t.Errorf("status: %d %s", got.code, got.body)
	}
	if got := operate(t, r, "POST", "/cluster/members/drain?node=3"); got.code != http.StatusOK || !strings.Contains(got.body, `"drained": true`) {
		t.Errorf("drain: %d %s", got.code, got.body)
	}
	if got := operate(t, r, "POST", "/cluster/members/set?node=3&http=stranger.example:1"); got.code != http.StatusNotFound {
		t.Errorf("set: %d %s", got.code, got.body)
	}
	if got := operate(t, r, "POST", "/cluster/members/remove?node=9"); got.code != http.StatusNotFound {
		t.Errorf("remove of a node that is not there: %d %s", got.code, got.body)
	}
	f.until("shard 0 moves to node 2", func() bool { return operate(t, r, "POST", "/cluster/transfer?shard=0&to=2").code == http.StatusOK })
	if got := operate(t, r, "POST", "/cluster/balance"); got.code != http.StatusOK {
		t.Errorf("balance: %d %s", got.code, got.body)
	}
	if got := operate(t, r, "POST", "/cluster/finalize"); got.code != http.StatusOK {
		t.Errorf("finalize: %d %s", got.code, got.body)
	}
	// The same by a token.
	got := ask(t, "POST", "http://"+r.HTTPAddress+"/v1/cluster/members", func(q *http.Request) {
		q.Header.Set("Authorization", "Bearer "+fleetToken)
		q.Header.Set("Content-Type", "application/json")
		body := `{"verb":"undrain","node":3}`
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	})
	if got.code != http.StatusOK {
		t.Errorf("undrain: %d %s", got.code, got.body)
	}
	who := []string{"uid ", "pid ", "socket " + path}
	for _, words := range [][]string{
		append([]string{"operator: done", "what=drain", "node=3"}, who...), append([]string{"operator: refused", "what=remove", "node=9"}, who...),
		append([]string{"operator: done", "what=transfer", "shard=0", "to=2"}, who...), append([]string{"operator: done", "what=balance"}, who...),
		append([]string{"operator: done", "what=finalize"}, who...),
		{"operator: done", "what=undrain", "node=3", "token one of tenant acme", "from=127.0.0.1:"},
	} {
		if !logs.has(words...) {
			t.Errorf("no line has %q", words)
		}
	}
	if logs.has(fleetToken) {
		t.Error("a token is in the log")
	}
	f.stop(0)
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestWhereTheSocketCannotBe(t *testing.T) {
	long := filepath.Join(filepath.Dir(socketFor(t)), strings.Repeat("a", 120))
	o := defaults(t, Options{AdminSocket: long})
	if _, err := Start(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "admin-socket: ") || !strings.Contains(err.Error(), "off") {
		t.Errorf("a path that is too long: %v", err)
	}
	file := socketFor(t)
	if err := os.WriteFile(file, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = defaults(t, Options{AdminSocket: file})
	if _, err := Start(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "admin-socket: ") {
		t.Errorf("over a file: %v", err)
	}
	// In a data directory with a long name the server starts without one, and says what to set.
	var logs logged
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	r := startForAdmin(t, Options{Dir: deep, Logger: logs.logger()})
	if r.SocketPath != "" || !logs.has("level=WARN", "set admin-socket") {
		t.Errorf("the socket is %q", r.SocketPath)
	}
	if r := startForAdmin(t, Options{AdminSocket: off}); r.SocketPath != "" {
		t.Errorf("off: the socket is %q", r.SocketPath)
	}
}

// TestIdleConnectionsKeepNoProbeOut: of the admin listener, and of that for metrics and health.
func TestIdleConnectionsKeepNoProbeOut(t *testing.T) {
	r := startForAdmin(t, Options{Metrics: "127.0.0.1:0"})
	for name, address := range map[string]string{"admin": r.AdminAddress, "metrics": r.MetricsAddress} {
		for what, says := range map[string]string{
			"say nothing": "", "have half a line": "GET /hea", "have half a head": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-",
			"are kept alive": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "owe a body": "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
		} {
			for range adminConnections + 16 {
				c, err := net.DialTimeout("tcp", address, 20*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, says); err != nil {
					t.Logf("%s: %v", what, err) // it was closed for another
				}
			}
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				q, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
				if err != nil {
					t.Errorf("%s next to %d connections that %s: %s: %v", name, adminConnections+16, what, path, err)
					cancel()
					continue
				}
				if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s: %d, %v", name, path, resp.StatusCode, err)
				}
				_ = resp.Body.Close()
				cancel()
			}
		}
	}
}

func TestTheListenerOfMetricsServesNothingElse(t *testing.T) {
	r := startForAdmin(t, Options{Metrics: "127.0.0.1:0", Admin: off})
	for path, want := range map[string]int{
		"/metrics": 200, "/healthz": 200, "/readyz": 200, "/debug/status": 404, "/debug/pprof/": 404, "/debug/pprof/profile?seconds=1": 404,
		"/cluster/status": 404, "/debug/pprof/rates": 404, "/": 404, "/v1/tasks": 404, "/v1/cluster": 404,
	} {
		got := ask(t, "GET", "http://"+r.MetricsAddress+path, func(q *http.Request) { q.Host = "n1.example" }) // it is public
		if got.code != want {
			t.Errorf("%s: %d %.100s", path, got.code, got.body)
		}
	}
}

func TestPlainTextIsByListener(t *testing.T) {
	for name, x := range map[string]struct {
		o    Options
		want string // of the error; empty starts
	}{
		"gRPC, for REST":             {Options{Listen: "0.0.0.0:0", HTTP: off, Insecure: []string{"http"}}, "listen: "},
		"gRPC":                       {Options{Listen: "0.0.0.0:0", HTTP: off, Insecure: []string{"grpc"}}, ""},
		"REST, for gRPC":             {Options{HTTP: "0.0.0.0:0", Insecure: []string{"grpc", "admin"}}, "http: "},
		"REST":                       {Options{HTTP: "0.0.0.0:0", Insecure: []string{"http"}}, ""},
		"admin, for both of clients": {Options{Admin: "0.0.0.0:0", Insecure: []string{"grpc", "http"}}, "admin: "},
		"admin":                      {Options{Admin: "0.0.0.0:0", Insecure: []string{"admin"}}, ""},
		"no listener":                {Options{Insecure: []string{"all"}}, "insecure: "},
		"metrics needs no word":      {Options{Metrics: "0.0.0.0:0"}, ""},
		"metrics is not a name":      {Options{Insecure: []string{"metrics"}}, "insecure: "},
		"twice":                      {Options{Insecure: []string{"grpc", "grpc"}}, "insecure: "},
		"a capital":                  {Options{Insecure: []string{"GRPC"}}, "insecure: "},
		"no address for metrics":     {Options{Metrics: "nonsense"}, "metrics: "},
	} {
		o := x.o
		o.Dir, o.TokensFile = t.TempDir(), "tokens.yaml"
		if o.Listen == "" {
			o.Listen = "127.0.0.1:0"
		}
		o.HTTP, o.Admin = listenerNextTo(o.HTTP, o.Listen, off), listenerNextTo(o.Admin, o.Listen, off)
		o.Durability, o.Shards, o.Memory = Fsync, 1, minMemory
		err := o.check()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.HasPrefix(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q first", name, err, x.want)
		}
	}
}

func TestPlainTextOnAPublicAddressIsToldAtTheStart(t *testing.T) {
	var logs logged
	o := Options{Listen: "0.0.0.0:" + "7081", HTTP: "n1.example:7080", Admin: "0.0.0.0:" + "7083", Insecure: []string{"grpc", "http", "admin"}, Logger: logs.logger()}
	r := &Running{o: o, Address: "[::]:" + "7081", HTTPAddress: "n1.example:7080", AdminAddress: "[::]:" + "7083"}
	r.warnOfPlainText()
	for _, words := range [][]string{
		{"level=WARN", "listener=grpc", "[::]:" + "7081", "tokens and data", "every network of this machine"},
		{"level=WARN", "listener=http", "n1.example:7080", "every machine that reaches n1.example"},
		{"level=WARN", "listener=admin", "[::]:" + "7083", "profiles", "without a token"},
	} {
		if !logs.has(words...) {
			t.Errorf("no line has %q", words)
		}
	}
	var quiet logged
	o.Logger, o.Listen, o.HTTP, o.Admin = quiet.logger(), "127.0.0.1:"+"7081", "localhost:"+"7080", "[::1]:"+"7083"
	(&Running{o: o}).warnOfPlainText()
	o.Listen, o.HTTP, o.Admin, o.TLSCert = "0.0.0.0:"+"7081", "0.0.0.0:"+"7080", off, "cert.pem"
	(&Running{o: o}).warnOfPlainText()
	if quiet.has("insecure") {
		t.Error("loopback and TLS are told as plain text")
	}
}
