package bench

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ran makes a runner whose result has one row with these runs.
func ran(t *testing.T, wanted int, runs ...Run) (*runner, *Row) {
	t.Helper()
	h := tables()
	spec := runSpec{suite: &h.Suites[0], row: &h.Suites[0].Rows[0], durability: Fsync, topology: Procs, group: true, runs: wanted, verdicts: true}
	u := &runner{c: &Config{}, h: h, r: &Result{}}
	u.r.Suites = append(u.r.Suites, u.newRow(&spec))
	row := &u.r.Suites[0]
	for i := range runs {
		runs[i].Number = i + 1
		runs[i].Host.Observed = true
	}
	row.Runs = runs
	u.finish(&spec, row)
	u.r.Exit = u.exit([]runSpec{spec})
	return u, row
}

func rate(v float64) map[string]Metric { return map[string]Metric{"cycles_per_s": {v, "cycles/s"}} }

func TestFiguresAreMadeOfTheRunsThatCount(t *testing.T) {
	u, row := ran(t, 3,
		Run{Metrics: rate(100)}, Run{Metrics: rate(10), Excluded: []Exclusion{{Cause: Steal}}}, Run{Metrics: rate(102)},
		Run{Metrics: rate(98)}, Run{Metrics: rate(50), Profiled: true})
	if row.Summary.Median() != 100 || row.Summary.Runs() != 3 || row.Label.Validity != Valid || len(row.Runs) != 5 {
		t.Errorf("figure %s of %d runs", row.Summary, len(row.Runs))
	}
	if u.r.Exit != ExitOK {
		t.Errorf("exit code %d, want 0", u.r.Exit)
	}
}

func TestTheExitCodeIsTheWorstOfWhatHappened(t *testing.T) {
	clean := func() []Run { return []Run{{Metrics: rate(100)}, {Metrics: rate(101)}, {Metrics: rate(99)}} }
	for name, c := range map[string]struct {
		spoil func(u *runner, runs []Run)
		want  int
	}{
		"nothing": {func(*runner, []Run) {}, ExitOK},
		"noise":   {func(_ *runner, runs []Run) { runs[0].Metrics = rate(500) }, ExitNoVerdict},
		"every run is left out": {func(_ *runner, runs []Run) {
			for i := range runs {
				runs[i].Excluded = []Exclusion{{Cause: Steal}}
			}
		}, ExitNoVerdict},
		"errors":           {func(_ *runner, runs []Run) { runs[0].Errors = []ErrorClass{{Op: "create"}} }, ExitFail},
		"errors and noise": {func(_ *runner, runs []Run) { runs[0].Metrics, runs[0].Errors = rate(500), []ErrorClass{{Op: "create"}} }, ExitFail},
		"a failed audit":   {func(_ *runner, runs []Run) { runs[0].Audit, runs[1].Errors = &Audit{}, []ErrorClass{{Op: "create"}} }, ExitAudit},
	} {
		runs := clean()
		c.spoil(nil, runs)
		if u, row := ran(t, 3, runs...); u.r.Exit != c.want {
			t.Errorf("%s: exit code %d with %s, want %d", name, u.r.Exit, row.Summary, c.want)
		}
	}
	u, _ := ran(t, 3, clean()...)
	u.r.Verdicts = []Verdict{{Status: Inverted}}
	if got := u.exit(nil); got != ExitFail {
		t.Errorf("an inverted ratio: exit code %d, want %d", got, ExitFail)
	}
	u, _ = ran(t, 3, clean()...)
	u.r.Partial = true
	if got := u.exit(nil); got != ExitInterrupted {
		t.Errorf("a partial result: exit code %d, want %d", got, ExitInterrupted)
	}
	no := false
	u, row := ran(t, 3, clean()...)
	row.Targets = []Target{{Judged: true, MustMet: &no}}
	if got := u.exit(nil); got != ExitFail {
		t.Errorf("a missed target: exit code %d, want %d", got, ExitFail)
	}
}

func TestHistogramsOfEachIntervalCanBeReadBack(t *testing.T) {
	dir := t.TempDir()
	start := time.UnixMilli(1_700_000_000_000)
	l := newHistLog(start)
	for i := range 3 {
		h := newHist()
		for range i + 1 {
			if err := h.RecordValue(1234); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.add("create", h, start.Add(time.Duration(i)*time.Second), start.Add(time.Duration(i+1)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	names, err := l.save(dir, "run")
	if err != nil || len(names) != 1 {
		t.Fatalf("files %q, err %v", names, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	r := hdrhistogram.NewHistogramLogReader(bytes.NewReader(b))
	var counts []int64
	for {
		h, err := r.NextIntervalHistogram()
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if h == nil {
			break
		}
		counts = append(counts, h.TotalCount())
	}
	if len(counts) != 3 || counts[0] != 1 || counts[2] != 3 {
		t.Errorf("the intervals have %v values, want 1, 2, 3", counts)
	}
}

func TestADiskWithoutRoomIsRefusedWithBothFigures(t *testing.T) {
	c := Defaults()
	c.Data = t.TempDir()
	if _, err := free(c.Data); err != nil {
		t.Skip(err)
	}
	h := tables()
	spec := runSpec{suite: &h.Suites[0], row: &h.Suites[0].Rows[0], topology: Procs, window: 24 * time.Hour, shape: Shape{Payload: 1 << 20}}
	err := c.checkRoom([]runSpec{spec})
	if _, ok := errors.AsType[*CannotError](err); !ok {
		t.Errorf("a day of payloads of 1 MiB: error %v, want a refusal", err)
	}
}
