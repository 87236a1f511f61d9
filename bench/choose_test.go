package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func nothing(context.Context, *Rig) error { return nil }

func tables() *Harness {
	return &Harness{
		Suites: []Suite{
			{
				Name: "queue.cycle", Headline: "cycles_per_s", Window: 20 * time.Second, Warmup: 2 * time.Second, Drive: nothing,
				Rows: []RowSpec{
					{Name: "unbatched", Profiles: []string{"seeds", "quick"}, Shape: Shape{Nodes: 1, Shards: 1, Producers: 1, Pumps: 32, Workers: 1}},
					{Name: "batch", Profiles: []string{"seeds"}, Shape: Shape{Nodes: 1, Producers: 1, Pumps: 32, Workers: 1, WorkerBatch: 32, ProducerBatch: 8}},
				},
			},
			{Name: "queue.codec", Local: true, Drive: nothing, Window: time.Second, Rows: []RowSpec{{Name: "json-64", Shape: Shape{Payload: 64}}}},
			{Name: "kv.latency", Rows: []RowSpec{{Name: "64", Profiles: []string{"seeds"}}}},
		},
		Profiles: []Profile{
			{Name: "quick", Runs: 3, Fsync: true, Verdicts: true, Window: func(_ string, w time.Duration) time.Duration { return w / 4 }},
			{Name: "seeds", Runs: 5, Fsync: true, Verdicts: true},
			{Name: "full", Runs: 5, Fsync: true, None: true, Verdicts: true},
		},
	}
}

func chosen(t *testing.T, change func(c *Config)) []string {
	t.Helper()
	c := Defaults()
	change(&c)
	specs, err := choose(&c, tables())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range specs {
		out = append(out, specs[i].String())
	}
	return out
}

func TestRowsAreChosenByNameGlobAndProfile(t *testing.T) {
	for _, c := range []struct {
		change func(c *Config)
		want   []string
	}{
		{func(c *Config) { c.Select = []string{"queue.cycle"} }, []string{"queue.cycle/unbatched fsync×1", "queue.cycle/batch fsync×1"}},
		{func(c *Config) { c.Select = []string{"queue.cycle/batch"} }, []string{"queue.cycle/batch fsync×1"}},
		{func(c *Config) { c.Select, c.Durability = []string{"queue.cycle/batch"}, "both" }, []string{"queue.cycle/batch fsync×1", "queue.cycle/batch none×1"}},
		{func(c *Config) { c.Select = []string{"queue.*"} }, []string{"queue.cycle/unbatched fsync×1", "queue.cycle/batch fsync×1", "queue.codec/json-64 fsync×1"}},
		{func(c *Config) { c.Profile = "quick" }, []string{"queue.cycle/unbatched fsync×1"}},
		{func(c *Config) { c.Profile = "seeds" }, []string{"queue.cycle/unbatched fsync×1", "queue.cycle/batch fsync×1"}},
		{func(c *Config) { c.Profile, c.Select = "seeds", []string{"*/batch"} }, []string{"queue.cycle/batch fsync×1"}},
	} {
		if got := chosen(t, c.change); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWhatIsNotKnownIsRefusedWithTheNearestNames(t *testing.T) {
	for name, want := range map[string]string{
		"queue.cycel": "nearest: queue.cycle", "queue.cycle/bach": "queue.cycle/batch", "kv.latency": "not built yet", "": "name a suite",
		"kv.*": "nothing that is built",
	} {
		c := Defaults()
		if name != "" {
			c.Select = []string{name}
		}
		_, err := choose(&c, tables())
		var refused *UsageError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want a refusal with %q", name, err, want)
		}
	}
}

func TestTheCommandLineReplacesWhatTheRowSays(t *testing.T) {
	c := Defaults()
	c.Select, c.WorkerBatch, c.ProducerBatch, c.Shards, c.Payload = []string{"queue.cycle/batch"}, 0, 4, 2, 256
	c.Window, c.Runs, c.GroupCommit = 3*time.Second, 2, false
	specs, err := choose(&c, tables())
	if err != nil {
		t.Fatal(err)
	}
	s := specs[0]
	if s.shape.WorkerBatch != 0 || s.shape.ProducerBatch != 4 || s.shape.Shards != 2 || s.shape.Payload != 256 || s.window != 3*time.Second || s.runs != 2 {
		t.Errorf("%+v", s)
	}
	if l := s.label(Valid); l.Note != "one commit per entry" || s.shape.Commit != "single" {
		t.Errorf("label %+v and shape %+v do not say that group commit is off", l, s.shape)
	}
	c = Defaults()
	c.Profile = "quick"
	if specs, _ = choose(&c, tables()); specs[0].window != 5*time.Second || specs[0].runs != 3 {
		t.Errorf("quick runs %d times %s, want 3 times 5 s", specs[0].runs, specs[0].window)
	}
}

func TestRunsAfterTheFirstThatCountsHaveTheirOwnWindow(t *testing.T) {
	h := tables()
	h.Suites[0].Rows[0].Window, h.Suites[0].Rows[0].Later = 180*time.Second, 45*time.Second
	for _, c := range []struct {
		change       func(c *Config)
		first, later time.Duration
	}{
		{func(*Config) {}, 180 * time.Second, 45 * time.Second},
		{func(c *Config) { c.Select, c.Profile = nil, "quick" }, 45 * time.Second, 11_250 * time.Millisecond},
		{func(c *Config) { c.Window = 3 * time.Second }, 3 * time.Second, 3 * time.Second},
	} {
		config := Defaults()
		config.Select = []string{"queue.cycle/unbatched"}
		c.change(&config)
		specs, err := choose(&config, h)
		if err != nil {
			t.Fatal(err)
		}
		if s := &specs[0]; s.after(0).window != c.first || s.after(1).window != c.later || s.after(2).window != c.later {
			t.Errorf("windows %s, then %s and %s; want %s, then %s", s.after(0).window, s.after(1).window, s.after(2).window, c.first, c.later)
		}
	}
}

func TestConfigurationsOutsideTheLimitsAreRefused(t *testing.T) {
	for field, spoil := range map[string]func(c *Config){
		"runs":           func(c *Config) { c.Runs = 101 },
		"window":         func(c *Config) { c.Window = time.Millisecond },
		"warm-up":        func(c *Config) { c.Warmup = time.Hour },
		"concurrency":    func(c *Config) { c.Concurrency = 100_001 },
		"rate":           func(c *Config) { c.Rate = 2e7 },
		"shards":         func(c *Config) { c.Shards = 65 },
		"payload":        func(c *Config) { c.Payload = 2 << 20 },
		"worker-batch":   func(c *Config) { c.WorkerBatch = 513 },
		"producer-batch": func(c *Config) { c.ProducerBatch = -2 },
		"durability":     func(c *Config) { c.Durability = "some" },
		"topology":       func(c *Config) { c.Topology = "moon" },
		"validate":       func(c *Config) { c.Validate = "no" },
		"keep":           func(c *Config) { c.Keep = "no" },
		"arrivals":       func(c *Config) { c.Arrivals = "burst:x" },
		"target":         func(c *Config) { c.Target, c.Topology = "a:1", InProc },
	} {
		c := Defaults()
		spoil(&c)
		var refused *UsageError
		if err := c.Check(); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: error %v, want a refusal of that field", field, err)
		}
	}
	c := Defaults()
	if err := c.Check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestTheEnvironmentIsReadUnderOwnNamesAndThoseOfTheReferences(t *testing.T) {
	c := Defaults()
	err := c.FromEnvironment([]string{
		"PHASE6_BATCH=32", "PHASE6_PROD_BATCH=8", "MILLRACE_BENCH_PRODUCER_BATCH=16", "PHASE8_SHARDS=4", "RUN_COALESCER=false",
		"MILLRACE_BENCH_RUNS=7", "OTHER=1",
	}, func(flag string) bool { return flag == "runs" })
	if err != nil {
		t.Fatal(err)
	}
	if c.WorkerBatch != 32 || c.ProducerBatch != 16 || c.Shards != 4 || c.GroupCommit || c.Runs != 0 {
		t.Errorf("%+v: want a worker batch of 32, a producer batch of 16, 4 shards, no group commit, and the flag's runs", c)
	}
	for _, bad := range []string{"PHASE6_BATCH=x", "PHASE8_SHARDS=", "MILLRACE_BENCH_SHARD=4", "RUN_COALESCER=perhaps", "MILLRACE_BENCH_RUNS=0"} {
		c := Defaults()
		var refused *UsageError
		if err := c.FromEnvironment([]string{bad}, nil); !errors.As(err, &refused) {
			t.Errorf("%s: error %v, want a refusal", bad, err)
		}
	}
}

func TestPayloadsHaveTheLengthThatIsAskedForAndAreJSON(t *testing.T) {
	if got := string(payload(0)); got != `{"bench":true}` {
		t.Errorf("the payload is %s", got)
	}
	for _, n := range []int{1, 5, 12, 13, 64, 4096} {
		if b := payload(n); len(b) != n || !json.Valid(b) {
			t.Errorf("%d bytes: %d bytes, JSON %v: %.40s", n, len(b), json.Valid(b), b)
		}
	}
}

func TestEveryCodecReadsWhatItWrote(t *testing.T) {
	for _, kind := range []string{"ours", "protobuf", "json"} {
		c, err := newCodecCase(kind, payload(1024))
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.encode(nil)
		if err != nil || len(b) < 1024 {
			t.Errorf("%s: %d bytes, err %v", kind, len(b), err)
		}
		if err := c.decode(b); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := c.decode(b[:len(b)/2]); err == nil {
			t.Errorf("%s: half a task was read", kind)
		}
	}
}

func TestRowsOfSeveralServersHaveNoRoomInOneProcess(t *testing.T) {
	h := tables()
	h.Suites[0].Rows[1].Shape.Nodes = 3
	choice := func(names ...string) ([]runSpec, error) {
		c := Defaults()
		c.Select, c.Topology = names, InProc
		return choose(&c, h)
	}
	var refused *UsageError
	if _, err := choice("queue.cycle/batch"); !errors.As(err, &refused) || refused.Field != "topology" || !strings.Contains(refused.Message, "queue.cycle/batch") {
		t.Errorf("error %v, want a refusal of the topology", err)
	}
	specs, err := choice("queue.*")
	if err != nil || len(specs) != 2 || specs[0].row.Name != "unbatched" {
		t.Errorf("a glob chose %d rows, %v; want the others", len(specs), err)
	}
}

func TestCallersOfAllProducersTakeThePlaceOfThoseOfEach(t *testing.T) {
	for want, s := range map[int]Shape{96: {Producers: 3, Pumps: 32}, 3: {Producers: 3}, 128: {Producers: 12, Callers: 128}} {
		if got := s.Loops(); got != want {
			t.Errorf("%+v: %d callers, want %d", s, got, want)
		}
	}
}

func TestNamesAndGlobsNarrowTheListAsTheyDoARun(t *testing.T) {
	suites := []Suite{
		{Name: "kv.etcd", Rows: []RowSpec{{Name: "put"}, {Name: "range"}}},
		{Name: "kv.etcd.native", Rows: []RowSpec{{Name: "callers"}}},
		{Name: "queue.cycle", Rows: []RowSpec{{Name: "one"}}},
	}
	for pattern, want := range map[string]string{
		"kv.etcd*":      "kv.etcd/put kv.etcd/range kv.etcd.native/callers",
		"kv.etcd":       "kv.etcd/put kv.etcd/range",
		"kv.*/put":      "kv.etcd/put",
		"queue.cycle/*": "queue.cycle/one",
	} {
		got, err := Narrow(suites, []string{pattern})
		var names []string
		for _, l := range Listing(got) {
			names = append(names, l.Suite+"/"+l.Row)
		}
		if strings.Join(names, " ") != want || err != nil {
			t.Errorf("%s lists %v, %v, want %s", pattern, names, err, want)
		}
	}
	if all, err := Narrow(suites, nil); len(all) != 3 || err != nil {
		t.Errorf("without a pattern: %d suites, %v", len(all), err)
	}
	if _, err := Narrow(suites, []string{"kv.etcd", "kv.nothing"}); err == nil || !strings.Contains(err.Error(), "kv.nothing") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestAnOutputDirectoryThatHoldsSomethingIsRefusedUnlessItIsResumed(t *testing.T) {
	c := Defaults()
	c.Out = t.TempDir()
	if err := c.checkOut(); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(c.Out, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if refused, ok := errors.AsType[*UsageError](c.checkOut()); !ok || refused.Field != "out" {
		t.Errorf("error %v, want a refusal of the directory", c.checkOut())
	}
	if c.Resume = c.Out; c.checkOut() != nil {
		t.Errorf("resumed: %v", c.checkOut())
	}
}
