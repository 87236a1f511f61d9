package bench

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeHost is clocks and counters that a test sets.
type fakeHost struct {
	mono, jump, slept time.Duration
	cpu               HostCPU
	pressure          Pressure
	use               map[int]ProcessUse
}

func (h *fakeHost) Realtime() time.Duration  { return h.mono + h.jump + h.slept }
func (h *fakeHost) Monotonic() time.Duration { return h.mono }
func (h *fakeHost) Boottime() time.Duration  { return h.mono + h.slept }

func (h *fakeHost) CPU() (HostCPU, error)               { return h.cpu, nil }
func (h *fakeHost) Pressure() (Pressure, error)         { return h.pressure, nil }
func (h *fakeHost) Process(pid int) (ProcessUse, error) { return h.use[pid], nil }
func (h *fakeHost) Cores() int                          { return 2 }

// pass lets d go by with heartbeats and seconds, of which each may change the host.
func (h *fakeHost) pass(w *watch, d time.Duration, each func(at time.Duration)) {
	for at := heartbeat; at <= d; at += heartbeat {
		h.mono += heartbeat
		if each != nil {
			each(at)
		}
		w.beat()
		if at%time.Second == 0 {
			w.second()
		}
	}
}

// watched8 looks at 8 s of a host.
func watched8(h *fakeHost, each func(at time.Duration)) []Exclusion {
	w := newWatch(h, h, []watched{{name: "driver", pid: 1}, {name: "server-1", pid: 2}}, nil)
	w.start()
	h.pass(w, 8*time.Second, each)
	w.stop()
	return judgeHost(w.report(), w.elapsed().Seconds())
}

func causes(ex []Exclusion) (out []Cause) {
	for _, e := range ex {
		out = append(out, e.Cause)
	}
	return out
}

func TestAQuietHostLeavesNothingOut(t *testing.T) {
	h := &fakeHost{use: map[int]ProcessUse{}}
	ex := watched8(h, func(time.Duration) {
		h.cpu.Busy += 0.05
		h.use[1] = ProcessUse{CPU: h.cpu.Busy / 2}
		h.use[2] = ProcessUse{CPU: h.cpu.Busy / 2}
	})
	if len(ex) != 0 {
		t.Errorf("left out for %+v", ex)
	}
}

func TestAClockStepWithinTheWindowIsSeenEvenWhenItIsTakenBack(t *testing.T) {
	h := &fakeHost{}
	ex := watched8(h, func(at time.Duration) {
		h.jump = 0
		if at == 4*time.Second {
			h.jump = 50 * time.Minute
		}
	})
	if !slices.Equal(causes(ex), []Cause{ClockJump}) || !strings.Contains(ex[0].Detail, "50.0 min") {
		t.Errorf("left out for %+v, want a jump of 50.0 min", ex)
	}
	h = &fakeHost{}
	if ex := watched8(h, func(time.Duration) { h.jump -= time.Millisecond / 2 }); !slices.Equal(causes(ex), []Cause{ClockJump}) {
		t.Errorf("a drift of −80 ms: left out for %+v", ex)
	}
	h = &fakeHost{}
	if ex := watched8(h, func(time.Duration) { h.jump += 100 * time.Microsecond }); len(ex) != 0 {
		t.Errorf("a drift of 16 ms: left out for %+v", ex)
	}
}

func TestAHostThatSleptLeavesTheRunOut(t *testing.T) {
	h := &fakeHost{}
	ex := watched8(h, func(at time.Duration) {
		if at == 2*time.Second {
			h.slept = 3 * time.Second
		}
	})
	if len(ex) == 0 || ex[0].Cause != ClockJump || !strings.Contains(ex[0].Detail, "slept for 3.00 s") {
		t.Errorf("left out for %+v, want a sleep of 3 s", ex)
	}
}

func TestMissingHeartbeatsLeaveTheRunOut(t *testing.T) {
	h := &fakeHost{}
	w := newWatch(h, h, nil, nil)
	w.start()
	h.pass(w, 3*time.Second, nil)
	h.mono += 2 * time.Second
	h.pass(w, 3*time.Second, nil)
	w.stop()
	ex := judgeHost(w.report(), w.elapsed().Seconds())
	if !slices.Equal(causes(ex), []Cause{HostStall}) || !strings.Contains(ex[0].Detail, "2.05 s") {
		t.Errorf("left out for %+v, want a stall of 2.05 s", ex)
	}
}

func TestFewStolenSecondsOfALongWindowAreTold(t *testing.T) {
	look := func(stolen int) HostReport {
		h := &fakeHost{}
		w := newWatch(h, h, nil, nil)
		w.start()
		h.pass(w, 10*time.Minute, func(at time.Duration) {
			if second := int((at - 1) / time.Second); second%100 == 50 && second/100 < stolen {
				h.cpu.Steal += 0.05 * 2 * heartbeat.Seconds()
			}
		})
		w.stop()
		return w.report()
	}
	few := look(3)
	if ex := judgeHost(few, 600); len(ex) != 0 {
		t.Errorf("3 of 600: left out for %+v", ex)
	}
	if w := stolen(few); w == nil || !strings.Contains(w.Detail, "up to 5.0 % of the CPU in 3 of 6") {
		t.Errorf("3 of 600: %+v", w)
	}
	many := look(4)
	if ex := judgeHost(many, 600); !slices.Equal(causes(ex), []Cause{Steal}) || stolen(many) != nil {
		t.Errorf("4 of 600: left out for %+v, warned of %+v", ex, stolen(many))
	}
}

func TestOneStolenSecondLeavesTheRunOut(t *testing.T) {
	h := &fakeHost{}
	ex := watched8(h, func(at time.Duration) {
		if at > 3*time.Second && at <= 4*time.Second {
			h.cpu.Steal += 0.05 * 2 * heartbeat.Seconds() // 5 % of two cores
		}
	})
	if !slices.Equal(causes(ex), []Cause{Steal}) || !strings.Contains(ex[0].Detail, "5.0 %") {
		t.Errorf("left out for %+v, want 5 %% steal", ex)
	}
}

func TestCPUAndPressureOfOthersLeaveTheRunOut(t *testing.T) {
	h := &fakeHost{use: map[int]ProcessUse{}}
	ex := watched8(h, func(time.Duration) {
		h.cpu.Busy += 2 * heartbeat.Seconds()
		h.use[1] = ProcessUse{CPU: h.use[1].CPU + heartbeat.Seconds()}
		h.use[2] = ProcessUse{CPU: h.use[2].CPU + 0.5*heartbeat.Seconds()}
	})
	if !slices.Equal(causes(ex), []Cause{ForeignCPU}) || !strings.Contains(ex[0].Detail, "25.0 %") {
		t.Errorf("left out for %+v, want 25 %% of others", ex)
	}
	h = &fakeHost{}
	ex = watched8(h, func(time.Duration) { h.pressure.Memory += 0.2 * heartbeat.Seconds() })
	if !slices.Equal(causes(ex), []Cause{HostPressure}) {
		t.Errorf("left out for %+v, want memory pressure", ex)
	}
	if ex := judgeHost(HostReport{Observed: true, Heartbeat: 1, IdleIO: 0.2}, 8); !slices.Equal(causes(ex), []Cause{HostPressure}) {
		t.Errorf("left out for %+v, want IO pressure before the start", ex)
	}
	if ex := judgeHost(HostReport{Heartbeat: 1, Foreign: 0.9}, 8); len(ex) != 0 {
		t.Errorf("a host that is not observed is left out for %+v", ex)
	}
}

func TestAGeneratorThatFallsShortMakesALowerBound(t *testing.T) {
	good := generator{offered: offered{due: 1000, started: 1000}, lag: Latency{P99: 10}, latency: Latency{P99: 1000}, driver: 1, idle: 5}
	if ex := judgeGenerator(good); len(ex) != 0 {
		t.Fatalf("left out for %+v", ex)
	}
	for name, spoil := range map[string]func(*generator){
		"under-offers by 5 %": func(g *generator) { g.offered.started = 950 },
		"drops an arrival":    func(g *generator) { g.offered.dropped = 1 },
		"starts late":         func(g *generator) { g.lag.P99 = 101 },
		"uses all its CPU":    func(g *generator) { g.idle = 0.05 },
	} {
		g := good
		spoil(&g)
		if ex := judgeGenerator(g); !slices.Equal(causes(ex), []Cause{GeneratorSaturated}) {
			t.Errorf("a generator that %s is left out for %+v", name, ex)
		}
	}
}

func TestLittlesLawFindsTheTimeOutsideTheCall(t *testing.T) {
	w := little(10, 2704, 2300)
	if w == nil || !strings.Contains(w.Detail, "1.398 ms per call") || w.Value < 0.37 || w.Value > 0.39 {
		t.Errorf("10 callers at 2,704/s with a mean of 2.30 ms: %+v, want 1.398 ms missing, 38 %%", w)
	}
	if w := little(10, 2704, 3600); w != nil {
		t.Errorf("10 callers at 2,704/s with a mean of 3.60 ms: %+v", w)
	}
}

func TestUnevenRunsAreWarnedAbout(t *testing.T) {
	if w := steady(1000, 850); w == nil || w.Code != "not_steady" {
		t.Errorf("1,000/s, then 850/s: %+v", w)
	}
	if w := steady(1000, 950); w != nil {
		t.Errorf("1,000/s, then 950/s: %+v", w)
	}
	if w := balance(1000, 900); w == nil || w.Code != "producer_outruns" {
		t.Errorf("1,000 created, 900 completed: %+v", w)
	}
	if w := balance(1000, 960); w != nil {
		t.Errorf("1,000 created, 960 completed: %+v", w)
	}
}

func TestTheSpreadDecidesHowFarAFigureIsTrusted(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Validity
	}{
		{[]float64{100, 101, 99, 100, 102}, Valid},
		{[]float64{100, 125, 99, 100, 102}, Unsteady},
		{[]float64{100, 131, 99, 100, 102}, NoVerdict},
		{[]float64{100, 101}, NoVerdict},
	} {
		if got, _ := judgeSpread(figure(t, c.values...), 5); got != c.want {
			t.Errorf("%v is %q, want %q", c.values, got, c.want)
		}
	}
}

func TestTheWindowIsCountedInThirds(t *testing.T) {
	h := &fakeHost{}
	n := uint64(0)
	w := newWatch(h, nil, nil, func() (uint64, uint64) { return n, n / 2 })
	w.start()
	h.pass(w, 6*time.Second, func(at time.Duration) {
		if at <= 3*time.Second {
			n += 10
		} else {
			n += 20
		}
	})
	w.stop()
	if first, last := w.ends(func(p progress) uint64 { return p.created }); first != 200 || last != 400 {
		t.Errorf("rates of the first and the last third are %v and %v, want 200 and 400", first, last)
	}
	if s := w.series(); len(s) != 6 || s[0].Created != 200 || s[5].Created != 400 || s[5].Completed != 200 {
		t.Errorf("by second: %+v", s)
	}
}

func TestProcfsIsRead(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "cpu  100 20 30 400 50 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 1\n")
	write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n")
	write("pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n")
	write("pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	write("42/stat", "42 (a (b) c) S 1 42 42 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 1 1 1 1\n")
	write("42/statm", "1000 200 3 4 5 6 7\n")
	p := procfs{root}
	if got, err := p.CPU(); err != nil || math.Abs(got.Busy-1.63) > 1e-9 || got.Idle != 4.5 || got.Steal != 0.8 {
		t.Errorf("CPU %+v, err %v", got, err)
	}
	if got, err := p.Pressure(); err != nil || got != (Pressure{CPU: 1.5, IO: 2.5}) {
		t.Errorf("pressure %+v, err %v", got, err)
	}
	if got, err := p.Process(42); err != nil || got != (ProcessUse{CPU: 3, RSS: uint64(200 * os.Getpagesize())}) {
		t.Errorf("process %+v, err %v", got, err)
	}
	if got := p.Cores(); got != 2 {
		t.Errorf("%d cores, want 2", got)
	}
	if _, err := p.Process(43); err == nil {
		t.Error("a process that is not there was read")
	}
}
