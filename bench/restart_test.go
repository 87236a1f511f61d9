package bench

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/check"
)

// ticking is a host on which every process has used a second of CPU per process id.
type ticking struct{}

func (ticking) CPU() (HostCPU, error)               { return HostCPU{}, nil }
func (ticking) Pressure() (Pressure, error)         { return Pressure{}, nil }
func (ticking) Process(pid int) (ProcessUse, error) { return ProcessUse{CPU: float64(pid)}, nil }
func (ticking) Cores() int                          { return 2 }

func TestAServerThatWasStartedWithinTheWindowIsChargedWithAllItUsed(t *testing.T) {
	w := newWatch(systemClocks{}, ticking{}, []watched{{name: "driver", pid: 7}, {name: "server-1", pid: 100}}, nil)
	w.start()
	w.replace([]watched{{name: "driver", pid: 7}, {name: "server-1", pid: 30}})
	w.stop()
	if got := w.cpu(0); got != 0 {
		t.Errorf("the driver, which stayed, used %v s more, want 0", got)
	}
	if got := w.cpu(1); got != 30 {
		t.Errorf("the new server used %v s, want the 30 s since it began", got)
	}
}

// busyHost is ticking on a host whose processors were busy for 100 s more at each look.
type busyHost struct {
	ticking
	looks int
}

func (h *busyHost) CPU() (HostCPU, error) {
	h.looks++
	return HostCPU{Busy: 100 * float64(h.looks)}, nil
}

func TestWhatAServerUsedUntilItWasKilledIsNotTakenForThatOfOthers(t *testing.T) {
	shares := func(tell bool) float64 {
		w := newWatch(systemClocks{}, &busyHost{}, []watched{{name: "driver", pid: 7}, {name: "server-1", pid: 100}}, nil)
		w.start()
		if tell {
			w.ended(100, 160) // 60 of them since the window began
		}
		w.replace([]watched{{name: "driver", pid: 7}, {name: "server-1", pid: 40}})
		w.stop()
		return w.report().Foreign
	}
	if without, with := shares(false), shares(true); without <= 0 || with != 0 {
		t.Errorf("others used %v of the host with the 60 s of the killed server, %v without", with, without)
	}
}

func TestServersThatAreNotOursAreNeitherKilledNorStarted(t *testing.T) {
	r := &Rig{}
	if err := r.Kill(); !errors.Is(err, errNotOurs) {
		t.Errorf("kill: %v", err)
	}
	if err := r.Restart(t.Context()); !errors.Is(err, errNotOurs) {
		t.Errorf("restart: %v", err)
	}
}

func TestAGaugeStandsBesideEachSecondThatFollows(t *testing.T) {
	r := &Rig{}
	w := newWatch(systemClocks{}, nil, nil, nil)
	w.gauges = func() map[string]float64 { return map[string]float64{"disk_bytes": r.gauges["disk_bytes"]} }
	w.start()
	for _, v := range []float64{1, 2} {
		r.Gauge("disk_bytes", v)
		w.second()
	}
	got := w.series()
	if len(got) != 2 || got[0].Gauges["disk_bytes"] != 1 || got[1].Gauges["disk_bytes"] != 2 {
		t.Errorf("series %+v, want 1 and 2", got)
	}
}

func TestOnlyACompletedTaskMayBeGoneAndOnlyWhereTasksAreRemoved(t *testing.T) {
	done := sampled{id: "a", followed: true, completions: []completion{{outcome: check.OK}}}
	open := sampled{id: "b", followed: true, completions: []completion{{outcome: check.Unknown}}}
	removed, none := &Audit{Counts: map[string]uint64{"purged": 3}}, &Audit{Counts: map[string]uint64{}}
	for name, c := range map[string]struct {
		purges bool
		s      sampled
		out    *Audit
		want   bool
	}{
		"completed and removed":                  {true, done, removed, true},
		"never acknowledged":                     {true, open, removed, false},
		"the servers removed none":               {true, done, none, false},
		"the run said nothing of removing":       {false, done, removed, false},
		"its completion was not followed at all": {true, sampled{id: "c"}, removed, true},
	} {
		if got := (&auditor{purges: c.purges}).purged(c.s, c.out); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
