package load

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/internal/server"
)

// keptRun is a run of a suite whose data is kept, and its directory.
func keptRun(t *testing.T, s bench.Suite) (dir string, c bench.Config) {
	t.Helper()
	r := measure(t, s, "", func(to *bench.Config, h *bench.Harness) {
		to.Topology, to.Executable, to.Keep, h.DrainWithin = bench.Procs, self(t), "always", time.Minute
		c = *to
	})
	run := onlyRun(t, r)
	clean(t, run)
	if run.Kept == "" || !bench.HoldsEvidence(run.Kept) {
		t.Fatalf("data is kept in %q, without evidence", run.Kept)
	}
	return run.Kept, c
}

// edit changes a file of evidence.
func edit(t *testing.T, file string, change func(e *bench.Evidence)) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var e bench.Evidence
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	change(&e)
	if b, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheAuditOfKeptDataIsRepeatedAndFindsWhatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		suite func(t *testing.T) bench.Suite
		plant func(e *bench.Evidence)
	}{
		"tasks": {
			func(*testing.T) bench.Suite { return small(Queue, cycling) },
			func(e *bench.Evidence) {
				id := &e.Tasks.Sample[0].ID
				*id = (*id)[:10] + strings.Repeat("0", 16)
			},
		},
		"tasks of three nodes": {
			func(*testing.T) bench.Suite {
				return three(Queue, bench.Shape{Producers: 3, Callers: 8, Workers: 3, Slots: 16})
			},
			func(e *bench.Evidence) { e.Tasks.Created++ },
		},
		"keys": {
			func(*testing.T) bench.Suite {
				s := small(Keys, bench.Shape{Producers: 1, Puts: 500, Payload: 64, Key: 16, Ahead: 32})
				s.Op = "put"
				return s
			},
			func(e *bench.Evidence) { e.Keys.Sample[0].Key = "0000000000000000" },
		},
		"refs": {
			func(t *testing.T) bench.Suite {
				return refsSuite(t, RefsGitaly, "update", bench.Shape{Pumps: 1, Kind: "default-update-10"})
			},
			func(e *bench.Evidence) { e.Refs.At = append(e.Refs.At, 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, config := keptRun(t, c.suite(t))
			one, err := bench.AuditKept(t.Context(), config, dir)
			if err != nil {
				t.Fatal(err)
			}
			if !one.Audit.OK || one.Audit.ReadBack == 0 {
				t.Fatalf("audit of what was kept: %+v", one.Audit)
			}
			edit(t, filepath.Join(dir, "evidence.json"), c.plant)
			if one, err = bench.AuditKept(t.Context(), config, dir); err != nil {
				t.Fatal(err)
			}
			if one.Audit.OK || !strings.Contains(strings.Join(one.Audit.Violations, "\n"), "lost") || bench.AgainExit([]bench.Again{*one}) != bench.ExitAudit {
				t.Errorf("audit %+v, want one that finds a loss", one.Audit)
			}
		})
	}
}

func TestTheAuditOfARunIsRepeatedOnTheServerAndFindsATaskThatItLostSince(t *testing.T) {
	var forget atomic.Bool
	address := startFaulty(t, faults{forget: &forget})
	var out string
	run := onlyRun(t, measure(t, cycle(Queue), address, func(c *bench.Config, _ *bench.Harness) { out = c.Out }))
	clean(t, run)
	if run.Evidence == "" {
		t.Fatal("nothing is kept of a run against a target that its audit can be repeated by")
	}
	c := bench.Defaults()
	c.Target, c.Token = address, "none"
	all, err := bench.AuditTarget(t.Context(), c, "", out)
	if err != nil || len(all) != 1 || !all[0].Audit.OK || all[0].Audit.ReadBack != run.Audit.ReadBack {
		t.Fatalf("%+v, %v; want a clean audit of the run", all, err)
	}
	forget.Store(true)
	if all, err = bench.AuditTarget(t.Context(), c, "", filepath.Join(out, run.Evidence)); err != nil {
		t.Fatal(err)
	}
	if v := strings.Join(all[0].Audit.Violations, "\n"); bench.AgainExit(all) != bench.ExitAudit || !strings.Contains(v, "lost") {
		t.Errorf("violations %q, want one of a lost task", v)
	}
}

func TestTheCountersOfAServerAddUpWithoutEvidence(t *testing.T) {
	t.Parallel()
	token := server.NewToken()
	o, err := server.Dev(server.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Admin: "off", Memory: 128 << 20}, token)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(time.Second) //nolint:errcheck // what it kept is not looked at again
	c := bench.Defaults()
	c.Target, c.Token, c.Out, c.Data, c.Profile, c.Select = s.Address, token, t.TempDir(), t.TempDir(), "look", []string{"queue.cycle"}
	suite := cycle(Queue)
	suite.Rows[0].Profiles = []string{"look"}
	r, err := bench.Execute(t.Context(), c, bench.Harness{Suites: []bench.Suite{suite}, Profiles: []bench.Profile{{Name: "look", Runs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	run := onlyRun(t, r)
	clean(t, run)
	file := filepath.Join(c.Out, run.Evidence)
	var namespace string
	edit(t, file, func(e *bench.Evidence) { namespace = e.Namespace })
	all, err := bench.AuditTarget(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	if a := all[0].Audit; !a.OK || a.Created != run.Audit.Created || a.Counted != a.Created {
		t.Errorf("audit %+v, want %d tasks that add up", a, run.Audit.Created)
	}
	c.Token = "wrong"
	_, err = bench.AuditTarget(t.Context(), c, namespace)
	if _, ok := errors.AsType[*bench.CannotError](err); !ok {
		t.Errorf("error %v, want one that says that nothing could be read", err)
	}
}

func TestWhatIsNoEvidenceIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "evidence.json")
	c := bench.Defaults()
	c.Target = "nowhere.invalid:1"
	refused := func(what string, paths ...string) {
		t.Helper()
		_, err := bench.AuditTarget(t.Context(), c, "default", paths...)
		if e, ok := errors.AsType[*bench.UsageError](err); !ok || e.Field != "evidence" {
			t.Errorf("%s: error %v, want a refusal of the evidence", what, err)
		}
	}
	refused("nothing there", filepath.Join(dir, "none"))
	refused("an empty directory", dir)
	const head = `{"schema":"millrace.bench.evidence/1",`
	for what, text := range map[string]string{
		"no JSON":          "x",
		"another schema":   `{"schema":"a","tasks":{}}`,
		"another field":    head + `"a":1}`,
		"no ledger":        `{"schema":"millrace.bench.evidence/1"}`,
		"two ledgers":      head + `"tasks":{},"refs":{}}`,
		"no keys":          head + `"keys":{"options":{}}}`,
		"a huge value":     head + `"keys":{"options":{"Keys":1,"ValueBytes":4000000000}}}`,
		"an object beyond": head + `"refs":{"objects":["a"],"at":[2]}}`,
		"a key not put":    head + `"keys":{"options":{"Keys":1},"sample":[{"key":"a"}]}}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(what, file)
	}
}
