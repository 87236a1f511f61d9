package profile

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// admin serves the profiles of a script as an admin listener does.
func admin(t *testing.T) string {
	t.Helper()
	src := script(t)
	names := make(map[string]Kind)
	for k, name := range paths {
		names[name] = k
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
		switch {
		case name == "rates":
			w.WriteHeader(http.StatusNoContent)
		case name == "profile":
			_, _ = w.Write(src.take(CPU))
		case len(src.snapshots[names[name]]) == 0:
			http.NotFound(w, r)
		default:
			_, _ = w.Write(src.take(names[name]))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// ratesSocket is an operator's socket that takes all rates.
func ratesSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") // the name of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: lis, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return lis.Addr().String()
}

// window returns a run whose window begins when measure is called and which ends with err.
func window(t *testing.T, addresses map[string]string, err error) bench.ProfileRun {
	t.Helper()
	begin, sockets := make(chan struct{}), make(map[string]string)
	for name := range addresses {
		sockets[name] = ratesSocket(t)
	}
	return bench.ProfileRun{
		Dir:   filepath.Join(t.TempDir(), "profiles", "queue.cycle", "unbatched"),
		Admin: addresses, Sockets: sockets, Window: time.Second, Cores: 2, Begin: begin,
		Measure: func(context.Context) error { close(begin); return err },
	}
}

func TestEveryProcessOfARunGetsItsOwnSixProfiles(t *testing.T) {
	p := window(t, map[string]string{"server-1": admin(t), "server-2": admin(t), "server-3": admin(t)}, nil)
	d, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(p.Dir, "..", "..", "..")
	for _, process := range []string{"server-1", "server-2", "server-3", "driver"} {
		for _, k := range Kinds() {
			name := "profiles/queue.cycle/unbatched/" + process + "/" + string(k) + ".pb.gz"
			if !slices.Contains(d.Files, name) {
				t.Errorf("the diagnosis does not name %s", name)
			}
			if _, err := os.Stat(filepath.Join(out, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestDriverAndServerInOneProcessAreJudgedAsAServer(t *testing.T) {
	got := targets(bench.ProfileRun{Admin: map[string]string{"server-1": ""}})
	if len(got) != 1 || got[0].Process != "server-1" || got[0].Driver {
		t.Errorf("targets %+v", got)
	}
	got = targets(bench.ProfileRun{})
	if len(got) != 1 || got[0].Process != "driver" || !got[0].Driver {
		t.Errorf("without servers: %+v", got)
	}
}

func TestRunThatFailsIsNotDiagnosed(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Run(t.Context(), window(t, nil, broken)); !errors.Is(err, broken) {
		t.Errorf("a failed window: %v", err)
	}
	p := window(t, nil, nil)
	p.Measure = func(context.Context) error { return broken }
	p.Begin = make(chan struct{})
	if _, err := Run(t.Context(), p); !errors.Is(err, broken) {
		t.Errorf("a run without a window: %v", err)
	}
	p = window(t, map[string]string{"server-1": "http://127.0.0.1:0"}, nil)
	if _, err := Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "server-1") {
		t.Errorf("a server that cannot be asked: %v", err)
	}
}
