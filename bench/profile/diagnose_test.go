package profile

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestNothingWrongHasNoFindings(t *testing.T) {
	d := diagnose(t, calm(t, nil))
	wantFindings(t, d)
	if failed(d) {
		t.Error("a calm process failed")
	}
	if got, want := d.CPUSeconds, 10.0; got != want {
		t.Errorf("CPU seconds %v, want %v", got, want)
	}
}

func TestPlantedFunctionWithHalfTheCPUFailsByItsName(t *testing.T) {
	d := diagnose(t, calm(t, map[Kind]*builder{
		CPU: cpuProfile().cpu("example.com/m/hot.Planted example.com/m.main", 500).
			cpu("a.a", 140).cpu("a.b", 140).cpu("a.c", 120).cpu("a.d", 100),
	}))
	wantFindings(t, d, "fail cpu example.com/m/hot.Planted")
	if !failed(d) {
		t.Error("the run did not fail")
	}
	if got, want := d.Findings()[0].Detail, "new bottleneck: example.com/m/hot.Planted has 50 % of the CPU"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestShareOfCPUIsJudgedAboveItsLimitOnly(t *testing.T) {
	rest := func(b *builder, n int) *builder {
		for i := range n {
			b.cpu("rest.f"+string(rune('a'+i)), 10)
		}
		return b
	}
	for _, c := range []struct {
		name  string
		stack string
		n     int64
		rest  int
		want  []string
	}{
		{"15 percent is nothing", "a.f", 30, 17, nil},
		{"16 percent warns", "a.f", 32, 17, []string{"warn cpu a.f"}},
		{"40 percent warns", "a.f", 80, 12, []string{"warn cpu a.f"}},
		{"41 percent fails", "a.f", 84, 12, []string{"fail cpu a.f"}},
		{"the collector at 25 percent is nothing", "runtime.scanobject runtime.gcDrain runtime.gcBgMarkWorker", 50, 15, nil},
		{"the collector at 26 percent warns", "runtime.scanobject runtime.gcDrain runtime.gcBgMarkWorker", 53, 15, []string{"warn gc garbage collection"}},
		{"the scheduler is never judged", "runtime.findRunnable runtime.schedule runtime.mcall", 180, 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := diagnose(t, calm(t, map[Kind]*builder{CPU: rest(cpuProfile().cpu(c.stack, c.n), c.rest)}))
			wantFindings(t, d, c.want...)
		})
	}
}

func TestFewSamplesAreNotJudged(t *testing.T) {
	d := diagnose(t, calm(t, map[Kind]*builder{CPU: cpuProfile().cpu("a.f", 99)}))
	wantFindings(t, d)
	if len(d.CPU) != 1 || d.CPU[0].Share != 1 {
		t.Errorf("shares %v: they are shown all the same", d.CPU)
	}
}

func TestLeavesOfTheRuntimeAreChargedToTheirCaller(t *testing.T) {
	for stack, want := range map[string]string{
		"a.leaf a.root":                                         "a.leaf",
		"runtime.memmove a.copy a.root":                         "a.copy",
		"runtime.mallocgc runtime.newobject a.make":             "a.make",
		"memeqbody runtime.memequal a.compare":                  "a.compare",
		"cmpbody internal/bytealg.Compare bytes.Compare a.seek": "bytes.Compare",
		"internal/runtime/syscall.Syscall6 syscall.write internal/poll.(*FD).Write net.(*netFD).Write a.send": "net.(*netFD).Write",
		"internal/runtime/maps.(*Map).getWithKey runtime.mapaccess2 a.lookup":                                 "a.lookup",
		"runtime.scanobject runtime.gcAssistAlloc runtime.mallocgc a.make":                                    poolGC,
		"runtime.gcDrain runtime.gcBgMarkWorker.func2 runtime.systemstack":                                    poolGC,
		"runtime.futex runtime.findRunnable runtime.schedule runtime.mcall":                                   poolScheduler,
		"runtime.futex runtime.ready runtime.chansend1 a.notify":                                              "a.notify",
		"golang.org/x/sys/unix.Fdatasync a/store.sync":                                                        "a/store.sync",
		"a/b%2ec.Sort[go.shape.*uint8,example.com/x.T] a.root":                                                "a/b%2ec.Sort[go.shape.*uint8,example.com/x.T]",
		"runtime.memmove example.com/x/y.(*T[example.com/z.K]).put a.root":                                    "example.com/x/y.(*T[example.com/z.K]).put",
		"runtime.futex sync.runtime_notifyListNotifyOne sync.(*Cond).Signal a.wake":                           "sync.(*Cond).Signal",
		"runtime/pprof.profileWriter":                                                                         "runtime/pprof.profileWriter",
	} {
		if got := chargeCPU(strings.Fields(stack)); got != want {
			t.Errorf("%s\n is charged to %q, want %q", stack, got, want)
		}
	}
}

func TestLockDelayIsChargedToWhoReleasedTheLock(t *testing.T) {
	const second = int64(time.Second)
	d := diagnose(t, calm(t, map[Kind]*builder{
		Mutex: waitProfile().
			add("internal/sync.(*Mutex).Unlock sync.(*Mutex).Unlock a.(*box).put a.root", 9, 9*second/10).
			add("runtime.unlock runtime.chansend a.send", 1, second/10/2).
			add("sync.(*RWMutex).RUnlock a.read", 1, second/10/2),
	}))
	wantFindings(t, d, "warn mutex a.(*box).put")
	if got, want := d.MutexDelay, time.Second; got != want {
		t.Errorf("delay %v, want %v", got, want)
	}
}

func TestLockDelayBelowOnePercentOfTheWindowIsNotJudged(t *testing.T) {
	lock := "sync.(*Mutex).Unlock github.com/millrace/millrace/internal/replog/wal.(*Log).Append"
	for delay, judged := range map[time.Duration]bool{199 * time.Millisecond: false, 200 * time.Millisecond: true} {
		d := diagnose(t, calm(t, map[Kind]*builder{Mutex: waitProfile().add(lock, 1, int64(delay))}))
		if d.MutexJudged != judged || failed(d) != judged {
			t.Errorf("%v of 10 s on 2 cores: judged %v, failed %v, want %v", delay, d.MutexJudged, failed(d), judged)
		}
	}
}

func TestLockOfTheLogOnTopOfTheListFails(t *testing.T) {
	const second = int64(time.Second)
	for _, lock := range []string{
		"github.com/millrace/millrace/internal/replog/wal.(*Log).Append",
		"github.com/millrace/millrace/internal/node.(*shard).enqueue",
		"github.com/millrace/millrace/internal/replog.(*Replica).Step",
	} {
		top := calm(t, map[Kind]*builder{
			Mutex: waitProfile().add("sync.(*Mutex).Unlock "+lock, 1, second).add("sync.(*Mutex).Unlock a.f", 1, second/20),
		})
		wantFindings(t, diagnose(t, top), "fail mutex "+lock)
		second := calm(t, map[Kind]*builder{
			Mutex: waitProfile().add("sync.(*Mutex).Unlock "+lock, 1, second/20).add("sync.(*Mutex).Unlock a.f", 1, second),
		})
		wantFindings(t, diagnose(t, second), "warn mutex a.f")
	}
}

func TestBlockAndAllocationsListTheirFirstFive(t *testing.T) {
	block, alloc := waitProfile(), allocProfile()
	for i := range 7 {
		name := "a.f" + string(rune('0'+i))
		block.add("runtime.selectgo "+name, 1, int64(i+1))
		alloc.add("runtime.makeslice "+name, 1, int64(i+1)<<10)
	}
	d := diagnose(t, calm(t, map[Kind]*builder{Block: block, Alloc: alloc}))
	for kind, list := range map[Kind][]Share{Block: d.Block, Alloc: d.Alloc} {
		var names []string
		for _, s := range list {
			names = append(names, s.Function)
		}
		if got, want := strings.Join(names, " "), "a.f6 a.f5 a.f4 a.f3 a.f2"; got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	wantFindings(t, d)
}

func TestWaitsOfTheProfilerDoNotCount(t *testing.T) {
	d := diagnose(t, calm(t, map[Kind]*builder{
		Block: waitProfile().add("runtime.selectgo net/http/pprof.sleep net/http/pprof.Profile net/http.(*conn).serve", 1, 900).
			add("runtime.chanrecv1 a.wait", 1, 100),
	}))
	if len(d.Block) != 1 || d.Block[0] != (Share{"a.wait", 100, 1}) {
		t.Errorf("block %v", d.Block)
	}
}

func TestGoroutinesThatGrowAreALeak(t *testing.T) {
	for end, want := range map[int64][]string{160: nil, 161: {"warn goroutine a.wait"}} {
		s := calm(t, map[Kind]*builder{Goroutine: goroutineProfile().add("runtime.gopark sync.runtime_SemacquireMutex a.wait", end)})
		s.Start = 100
		wantFindings(t, diagnose(t, s), want...)
	}
}

func TestDriverIsWarnedAboutAndNeverFails(t *testing.T) {
	s := calm(t, map[Kind]*builder{CPU: cpuProfile().cpu("a.hot", 900).cpu("a.b", 100)})
	s.Driver = true
	d := diagnose(t, s)
	wantFindings(t, d, "warn cpu a.hot")
	if failed(d) {
		t.Error("the driver failed the run")
	}
}

func TestMissingOrBrokenProfileIsAnError(t *testing.T) {
	s := calm(t, nil)
	delete(s.Files, Mutex)
	if _, err := Diagnose(s); !errors.Is(err, ErrAbsent) {
		t.Errorf("without a mutex profile: %v", err)
	}
	s.Files[Mutex] = []byte("no profile")
	if _, err := Diagnose(s); err == nil {
		t.Error("broken bytes were diagnosed")
	}
	s.Files[Mutex] = newBuilder("other").add("a.f", 1).bytes(t)
	if _, err := Diagnose(s); err == nil || !strings.Contains(err.Error(), `no column "delay"`) {
		t.Errorf("without a delay column: %v", err)
	}
}

func TestReportShowsEveryProcessWithItsGreatestShares(t *testing.T) {
	server := calm(t, map[Kind]*builder{
		CPU:   cpuProfile().cpu("a.hot", 500).cpu("runtime.gcDrain", 100).cpu("runtime.schedule", 400),
		Mutex: waitProfile().add("sync.(*Mutex).Unlock a.lock", 1, 1000),
		Alloc: allocProfile().add("a.make", 1, 3<<20),
	})
	driver := calm(t, nil)
	driver.Process, driver.Driver = "driver", true
	report, err := Report([]*Set{server, driver}, 0.12, []string{"profiles/x"})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failing()) != 1 || report.Failing()[0] != report.Findings[0] {
		t.Errorf("the failure does not stand first: %v", report.Findings)
	}
	var text strings.Builder
	for _, f := range report.Findings {
		if f.Process == "server-1" {
			text.WriteString(strings.Join([]string{f.Level, f.Kind, f.Name, f.Detail}, "|") + "\n")
		}
	}
	want := `fail|cpu|a.hot|new bottleneck: a.hot has 50 % of the CPU
info|gc|garbage collection|of the CPU
info|scheduler|scheduler|of the CPU
info|mutex|a.lock|0.00 s of lock delay
info|alloc|a.make|3.0 MiB allocated
info|goroutine||10 at the start, 10 at the end
`
	if got := text.String(); got != want {
		t.Errorf("findings\n%s\nwant\n%s", got, want)
	}
	if last := report.Findings[len(report.Findings)-1]; last.Process != "driver" {
		t.Errorf("last finding %v, want the driver's", last)
	}
	delete(driver.Files, CPU)
	if _, err := Report([]*Set{server, driver}, 0, nil); !errors.Is(err, ErrAbsent) {
		t.Errorf("with a profile missing: %v", err)
	}
}
