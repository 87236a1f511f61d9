package profile

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// scripted is a Source whose snapshots come from a list per kind.
type scripted struct {
	calls     []string
	snapshots map[Kind][][]byte
	err       error // of Sample
}

func (s *scripted) Rates(_ context.Context, block, mutex int) error {
	s.calls = append(s.calls, "rates "+string(rune('0'+block))+string(rune('0'+mutex)))
	return nil
}

func (s *scripted) Sample(context.Context, time.Duration) ([]byte, error) {
	s.calls = append(s.calls, "sample")
	return s.take(CPU), s.err
}

func (s *scripted) Snapshot(_ context.Context, k Kind) ([]byte, error) {
	s.calls = append(s.calls, string(k))
	if len(s.snapshots[k]) == 0 {
		return nil, ErrAbsent
	}
	return s.take(k), nil
}

func (s *scripted) take(k Kind) []byte {
	b := s.snapshots[k][0]
	s.snapshots[k] = s.snapshots[k][1:]
	return b
}

func script(t *testing.T) *scripted {
	t.Helper()
	return &scripted{snapshots: map[Kind][][]byte{
		CPU:       {cpuProfile().cpu("a.f", 100).bytes(t)},
		Goroutine: {goroutineProfile().add("a.f", 7).bytes(t), goroutineProfile().add("a.f", 9).bytes(t)},
		Heap:      {newBuilder("inuse_objects", "inuse_space").add("a.f", 1, 10).bytes(t)},
		Block:     {waitProfile().add("a.f", 1, 1).bytes(t), waitProfile().add("a.f", 1, 1).bytes(t)},
		Mutex:     {waitProfile().bytes(t), waitProfile().add("a.f", 3, 30).bytes(t)},
		Alloc: {
			allocProfile().add("a.f", 5, 500).add("a.g", 1, 64).bytes(t),
			allocProfile().add("a.f", 8, 800).add("a.g", 1, 63).add("a.h", 2, 20).bytes(t),
		},
	}}
}

func TestCollectedProfilesCountTheWindowOnly(t *testing.T) {
	src := script(t)
	s, err := Collect(t.Context(), Target{Process: "server-1", Procs: 2, Source: src}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d := diagnose(t, s)
	if got, want := d.Alloc, []Share{{"a.f", 300, 300.0 / 320}, {"a.h", 20, 20.0 / 320}}; !slices.Equal(got, want) {
		t.Errorf("allocations %v, want %v", got, want)
	}
	if got, want := d.Mutex, []Share{{"a.f", 30, 1}}; !slices.Equal(got, want) {
		t.Errorf("mutex %v, want %v", got, want)
	}
	if len(d.Block) != 0 {
		t.Errorf("block %v: all of it was before the window", d.Block)
	}
	if d.GoroutinesStart != 7 || d.GoroutinesEnd != 9 {
		t.Errorf("goroutines %d to %d, want 7 to 9", d.GoroutinesStart, d.GoroutinesEnd)
	}
	want := "rates 11,goroutine,alloc,block,mutex,sample,alloc,heap,block,mutex,goroutine,goroutineleak,rates 00"
	if got := strings.Join(src.calls, ","); got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

func TestRatesAreResetAfterAFailedCollection(t *testing.T) {
	src := script(t)
	src.err = errors.New("gone")
	if _, err := Collect(t.Context(), Target{Process: "server-1", Source: src}, time.Second); !errors.Is(err, src.err) {
		t.Errorf("error %v", err)
	}
	if last := src.calls[len(src.calls)-1]; last != "rates 00" {
		t.Errorf("last call %q", last)
	}
}

func TestSixFilesAreWrittenAndReadBack(t *testing.T) {
	s, err := Collect(t.Context(), Target{Process: "server-1", Source: script(t)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "queue.cycle", "unbatched", "server-1")
	paths, err := s.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	want := "cpu.pb.gz alloc.pb.gz heap.pb.gz block.pb.gz mutex.pb.gz goroutine.pb.gz"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	back := &Set{}
	if err := back.Read(dir); err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		if string(back.Files[k]) != string(s.Files[k]) {
			t.Errorf("%s came back changed", k)
		}
	}
	if err := os.Remove(filepath.Join(dir, "mutex.pb.gz")); err != nil {
		t.Fatal(err)
	}
	if err := back.Read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a file missing: %v", err)
	}
}

func TestOwnProcessHasAllSixProfiles(t *testing.T) {
	s, err := Collect(t.Context(), Target{Process: "driver", Driver: true, Procs: runtime.GOMAXPROCS(0), Source: Self{}}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		if len(s.Files[k]) == 0 {
			t.Errorf("no %s profile", k)
		}
	}
	if d := diagnose(t, s); d.GoroutinesEnd < 1 {
		t.Errorf("%d goroutines", d.GoroutinesEnd)
	}
	if runtime.SetMutexProfileFraction(-1) != 0 {
		t.Error("lock waits are still kept")
	}
}

func TestServerIsAskedOnItsAdminListener(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		switch {
		case strings.HasSuffix(r.URL.Path, "/goroutineleak"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, "/block"):
			http.Error(w, "busy\nmore", http.StatusInternalServerError)
		default:
			_, _ = w.Write([]byte("bytes"))
		}
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "sock") // the name of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	socket := &httptest.Server{Listener: lis, Config: &http.Server{Handler: server.Config.Handler}}
	socket.Start()
	defer socket.Close()
	h := HTTP{Base: server.URL + "/"}
	h.Socket = lis.Addr().String()
	if err := h.Rates(t.Context(), 1, 1); err != nil {
		t.Error(err)
	}
	if b, err := h.Sample(t.Context(), 1500*time.Millisecond); err != nil || string(b) != "bytes" {
		t.Errorf("sample %q, %v", b, err)
	}
	for _, k := range []Kind{Heap, Alloc, Mutex, Goroutine} {
		if b, err := h.Snapshot(t.Context(), k); err != nil || string(b) != "bytes" {
			t.Errorf("%s: %q, %v", k, b, err)
		}
	}
	if _, err := h.Snapshot(t.Context(), Leak); !errors.Is(err, ErrAbsent) {
		t.Errorf("a profile the server lacks: %v", err)
	}
	if _, err := h.Snapshot(t.Context(), Block); err == nil || !strings.HasSuffix(err.Error(), "500 Internal Server Error: busy") {
		t.Errorf("a server's refusal: %v", err)
	}
	if _, err := h.Snapshot(t.Context(), "other"); !errors.Is(err, ErrAbsent) {
		t.Errorf("an unknown kind: %v", err)
	}
	want := []string{
		"POST /debug/pprof/rates?block=1&mutex=1", "GET /debug/pprof/profile?seconds=2", "GET /debug/pprof/heap?gc=1",
		"GET /debug/pprof/allocs", "GET /debug/pprof/mutex", "GET /debug/pprof/goroutine", "GET /debug/pprof/goroutineleak",
		"GET /debug/pprof/block",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}
