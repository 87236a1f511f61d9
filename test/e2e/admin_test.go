package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/test/chaos/proc"
)

// listeners are the addresses that a server's ready file tells.
type listeners struct {
	GRPC  string `json:"grpc"`
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
	PID   int    `json:"pid"`
}

// serveAdmin is serveWith for a test that needs to know every address, and does not care how full this machine's disk is.
func serveAdmin(t *testing.T, flags ...string) (*proc.Server, listeners) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready")
	s := serveWith(t, append(flags, "--ready-file", file)...)
	b, err := os.ReadFile(file)
	noErr(t, err)
	var l listeners
	noErr(t, json.Unmarshal(b, &l))
	if l.Admin == "" || l.GRPC == "" || l.PID == 0 {
		t.Fatalf("the ready file says %s", b)
	}
	return s, l
}

// fetch asks an HTTP listener, over a connection of its own.
func fetch(t *testing.T, method, address, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t, 20*time.Second), method, "http://"+address+path, nil)
	noErr(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// metric is the value of one series, named as the text format writes it.
func metric(t *testing.T, address, series string) float64 {
	t.Helper()
	code, body := fetch(t, http.MethodGet, address, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("metrics: %d %s", code, body)
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			noErr(t, err)
			return v
		}
	}
	t.Fatalf("there is no %s", series)
	return 0
}

func TestTheAdminListenerCountsWhatTheAPICounts(t *testing.T) {
	t.Parallel()
	s, l := serveAdmin(t)
	r := newRaw(t, l.GRPC, s.Tokens[0].Secret)
	const creates = 20
	for range creates {
		must(t, r, "TaskService/Create", task(func(*millracev1.TaskSpec) {}), &millracev1.CreateResponse{})
	}
	big := r.call(t, "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Payload = make([]byte, 1<<20+1) }))
	if big.code() != "TOO_LARGE" {
		t.Fatalf("a payload of 1 MiB and a byte: %v", big.err())
	}
	huge := r.call(t, "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Payload = make([]byte, 17<<20) }))
	if huge.code() != "TOO_LARGE" {
		t.Errorf("a message of 17 MiB: status %d, %s", huge.status, huge.message)
	}
	for series, want := range map[string]float64{
		`millrace_api_ended_calls_total{code="OK",method="/millrace.v1.TaskService/Create"}`:        creates,
		`millrace_api_ended_calls_total{code="TOO_LARGE",method="/millrace.v1.TaskService/Create"}`: 2,
		`millrace_api_refusals_total{limit="payload_bytes"}`:                                        1,
		`millrace_api_refusals_total{limit="grpc_message"}`:                                         1,
		`millrace_node_present_tasks{shard="0",state="ready"}`:                                      creates,
	} {
		if got := metric(t, l.Admin, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	var report struct {
		Status struct {
			Fsyncs         float64 `json:"fsyncs"`
			LogBytes       float64 `json:"log_bytes"`
			StoreMutations float64 `json:"store_mutations"`
			Durability     string  `json:"durability"`
		} `json:"status"`
		Build struct {
			Version, Go string
		} `json:"build"`
	}
	before := must(t, r, "ServerService/Status", &millracev1.StatusRequest{}, &millracev1.StatusResponse{})
	code, body := fetch(t, http.MethodGet, l.Admin, "/debug/status")
	noErr(t, json.Unmarshal([]byte(body), &report))
	after := must(t, r, "ServerService/Status", &millracev1.StatusRequest{}, &millracev1.StatusResponse{})
	if code != http.StatusOK || report.Status.Durability != "fsync" || report.Build.Go == "" || report.Build.Version != after.GetVersion() {
		t.Errorf("%d %s", code, body)
	}
	if strings.Contains(body, s.Tokens[0].Secret) {
		t.Error("the status shows a token")
	}
	for name, c := range map[string]struct {
		got         float64
		least, most uint64
	}{
		"fsyncs":          {report.Status.Fsyncs, before.GetFsyncs(), after.GetFsyncs()},
		"log bytes":       {report.Status.LogBytes, before.GetLogBytes(), after.GetLogBytes()},
		"store mutations": {report.Status.StoreMutations, before.GetStoreMutations(), after.GetStoreMutations()},
	} {
		if c.got < float64(c.least) || c.got > float64(c.most) || c.got == 0 && c.most > 0 {
			t.Errorf("%s: %v, the API said %d before and %d after", name, c.got, c.least, c.most)
		}
	}
}

// TestEachListenerServesItsOwnRoutesOnly asks every listener for what the others serve.
func TestEachListenerServesItsOwnRoutesOnly(t *testing.T) {
	t.Parallel()
	s, l := serveAdmin(t)
	adminRoutes := []string{"/metrics", "/healthz", "/readyz", "/debug/status", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"}
	for _, path := range adminRoutes {
		if code, body := fetch(t, http.MethodGet, l.Admin, path); code != http.StatusOK || body == "" {
			t.Errorf("admin %s: %d %.100s", path, code, body)
		}
		for name, address := range map[string]string{"gRPC": l.GRPC, "REST": l.HTTP} {
			if address == "" {
				continue // it is off
			}
			if code, body := fetch(t, http.MethodGet, address, path); code == http.StatusOK || strings.Contains(body, "millrace_") {
				t.Errorf("%s %s: %d %.100s", name, path, code, body)
			}
		}
	}
	for _, path := range []string{"/", "/v1/tasks", "/v1/status", "/v1/openapi.json", "/debug/vars", "/debug/pprof/../../../etc/passwd"} {
		if code, body := fetch(t, http.MethodGet, l.Admin, path); code != http.StatusNotFound {
			t.Errorf("admin %s: %d %.100s", path, code, body)
		}
	}
	r := newRaw(t, l.Admin, s.Tokens[0].Secret)
	resp, err := r.open(bounded(t, 30*time.Second), "ServerService/Status", bytes.NewReader(frame(nil)))
	if err == nil {
		resp.Body.Close()
		t.Errorf("the admin listener answers gRPC with %d", resp.StatusCode)
	}
}

func TestAServerThatStopsIsNotReadyWhileItsCallsEnd(t *testing.T) {
	t.Parallel()
	s, l := serveAdmin(t, "--grace", "3s")
	if code, body := fetch(t, http.MethodGet, l.Admin, "/readyz"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("while it serves: %d %s", code, body)
	}
	r := newRaw(t, l.GRPC, s.Tokens[0].Secret)
	body, rest := io.Pipe() // a request that never ends holds the server up for all of its grace
	defer rest.Close()
	ended := make(chan error, 1)
	go func() {
		resp, err := r.open(bounded(t, 20*time.Second), "TaskService/Create", body)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		ended <- err
	}()
	for metric(t, l.Admin, "millrace_api_open_calls") != 1 {
		time.Sleep(10 * time.Millisecond)
	}
	noErr(t, syscall.Kill(l.PID, syscall.SIGTERM))
	for {
		code, why := fetch(t, http.MethodGet, l.Admin, "/readyz")
		if code == http.StatusServiceUnavailable && why == "stopping\n" {
			break
		}
		if code != http.StatusOK {
			t.Fatalf("on its way: %d %s", code, why)
		}
	}
	if code, _ := fetch(t, http.MethodGet, l.Admin, "/healthz"); code != http.StatusOK {
		t.Errorf("it lives, and says %d", code)
	}
	<-ended // it is cut
	if code := s.ExitCode(time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, logOf(s))
	}
	if code, body := fetch(t, http.MethodGet, l.Admin, "/healthz"); code != 0 {
		t.Errorf("after its end: %d %s", code, body)
	}
}

func TestTheAdminListenerNeedsLoopbackOrTheOperatorsWord(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "--admin", "off")
	noErr(t, s.Stop())
	for _, admin := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0"} {
		e := run(t, "serve", "--dev", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--admin", admin)
		if e.code == 0 || !strings.Contains(e.out, "admin: ") {
			t.Errorf("%s: exit code %d\n%s", admin, e.code, e.out)
		}
	}
}
