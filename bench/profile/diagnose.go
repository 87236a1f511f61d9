package profile

import (
	"fmt"
	"math"
	"strings"
	"time"

	pb "github.com/google/pprof/profile"

	"github.com/millrace/millrace/bench"
)

// Diagnosis is what the profiles of one process show. Lists have at most topEntries functions, the
// largest first.
type Diagnosis struct {
	Process    string
	Driver     bool
	Window     time.Duration
	CPUSeconds float64
	// Samples is the number of CPU samples; below minSamples no share is judged.
	Samples int
	// CPU has the functions alone: GCShare and SchedulerShare are the two pools.
	CPU            []Share
	GCShare        float64
	SchedulerShare float64
	// MutexDelay is the time that goroutines waited for locks, added up.
	MutexDelay time.Duration
	// MutexJudged says that the delay is large enough for its order to mean something.
	MutexJudged     bool
	Mutex           []Share
	Block           []Share
	Alloc           []Share
	GoroutinesStart int
	GoroutinesEnd   int

	// judged are the findings above a limit.
	judged []bench.Finding
}

// Limits of the diagnosis. Shares are of the profile's total, 0 to 1.
const (
	// minSamples is a second of CPU at 100 Hz: below it a share says nothing.
	minSamples = 100
	// cpuWarn and cpuFail are limits of one function's share of the CPU.
	cpuWarn = 0.15
	cpuFail = 0.40
	gcWarn  = 0.25
	// mutexJudged is the least total delay, as a share of window × GOMAXPROCS: below it some lock
	// is first and none matters.
	mutexJudged = 0.01
	// mutexWarn is one lock's share of the delay.
	mutexWarn = 0.10
	// leakShare and leakAllowance are how many more goroutines at the end do not count as a leak
	// yet: this share of those at the start, and this many more.
	leakShare = 0.10
	//
	leakAllowance = 50
	topEntries    = 5
)

// logLocks begin the names of functions that hold a lock of the write-ahead log or of group commit.
// All writes pass there, so such a lock on top of the list means that writers queue for the lock
// and not for the disk.
var logLocks = []string{
	"github.com/millrace/millrace/internal/replog.",
	"github.com/millrace/millrace/internal/replog/wal.",
	"github.com/millrace/millrace/internal/node.(*shard).",
}

// Diagnose judges the profiles of a process. A finding about a driver never fails: its bottleneck
// bounds the figures, which the generator's ceiling shows, and is not a bottleneck of the system.
func Diagnose(s *Set) (*Diagnosis, error) {
	d := &Diagnosis{
		Process: s.Process, Driver: s.Driver, Window: s.Window, GoroutinesStart: s.Start,
	}
	for _, step := range []struct {
		kind   Kind
		column string
		judge  func(p *pb.Profile, column int, s *Set)
	}{
		{CPU, "cpu", d.judgeCPU},
		{Mutex, "delay", d.judgeMutex},
		{Block, "delay", func(p *pb.Profile, c int, _ *Set) { d.Block = first(shares(p, c, chargeWait)) }},
		{Alloc, "alloc_space", func(p *pb.Profile, c int, _ *Set) { d.Alloc = first(shares(p, c, chargeAlloc)) }},
		{Goroutine, "goroutine", d.judgeGoroutines},
	} {
		b, ok := s.Files[step.kind]
		if !ok {
			return nil, fmt.Errorf("diagnose %s: profile %s: %w", s.Process, step.kind, ErrAbsent)
		}
		p, err := parse(b)
		if err != nil {
			return nil, fmt.Errorf("diagnose %s: profile %s: %w", s.Process, step.kind, err)
		}
		c, ok := column(p, step.column)
		if !ok && len(p.Sample) > 0 {
			return nil, fmt.Errorf("diagnose %s: profile %s has no column %q", s.Process, step.kind, step.column)
		}
		step.judge(p, c, s)
	}
	return d, nil
}

// judgeCPU sorts the pools out of the functions, and judges both when there are enough samples.
func (d *Diagnosis) judgeCPU(p *pb.Profile, c int, _ *Set) {
	all, sum := shares(p, c, chargeCPU)
	d.CPUSeconds = time.Duration(sum).Seconds()
	if n, ok := column(p, "samples"); ok {
		d.Samples = int(total(p, n))
	}
	var functions []Share
	for _, f := range all {
		switch f.Function {
		case poolGC:
			d.GCShare = f.Share
		case poolScheduler:
			d.SchedulerShare = f.Share
		default:
			functions = append(functions, f)
		}
	}
	d.CPU = top(functions)
	if d.Samples < minSamples {
		return
	}
	for _, f := range functions {
		switch {
		case f.Share > cpuFail:
			d.find(bench.Fail, "cpu", f, "new bottleneck: %s has %s of the CPU", f.Function, percent(f.Share))
		case f.Share > cpuWarn:
			d.find(bench.Warn, "cpu", f, "%s has %s of the CPU", f.Function, percent(f.Share))
		}
	}
	if d.GCShare > gcWarn {
		d.find(bench.Warn, "gc", Share{Function: poolGC, Share: d.GCShare}, "%s has %s of the CPU", poolGC, percent(d.GCShare))
	}
}

// judgeMutex judges the locks by their share of the delay. A lock of the log that is first fails,
// whatever its share is.
func (d *Diagnosis) judgeMutex(p *pb.Profile, c int, s *Set) {
	locks, sum := shares(p, c, chargeWait)
	d.Mutex, d.MutexDelay = top(locks), time.Duration(sum)
	d.MutexJudged = sum > 0 && float64(sum) >= mutexJudged*float64(s.Window)*float64(max(s.Procs, 1))
	if !d.MutexJudged {
		return
	}
	for i, l := range locks {
		switch {
		case i == 0 && ofLog(l.Function):
			d.find(bench.Fail, "mutex", l, "writers queue for the lock of the log or of group commit: %s has %s of %s of lock delay",
				l.Function, percent(l.Share), d.MutexDelay.Round(time.Millisecond))
		case l.Share > mutexWarn:
			d.find(bench.Warn, "mutex", l, "the lock that %s releases has %s of %s of lock delay",
				l.Function, percent(l.Share), d.MutexDelay.Round(time.Millisecond))
		}
	}
}

// judgeGoroutines compares the number of goroutines at the end with that before the window.
func (d *Diagnosis) judgeGoroutines(p *pb.Profile, c int, s *Set) {
	kinds, sum := shares(p, c, chargeWait)
	d.GoroutinesEnd = int(sum)
	if float64(sum) <= float64(s.Start)*(1+leakShare)+leakAllowance {
		return
	}
	d.find(bench.Warn, "goroutine", Share{Function: kinds[0].Function, Share: kinds[0].Share},
		"leak: %d goroutines at the end, %d at the start; most of them, %d, in %s",
		sum, s.Start, kinds[0].Value, kinds[0].Function)
}

// find notes a finding above a limit. One about the driver becomes a warning.
func (d *Diagnosis) find(level, kind string, f Share, format string, args ...any) {
	if d.Driver {
		level = bench.Warn
	}
	d.judged = append(d.judged, bench.Finding{
		Process: d.Process, Kind: kind, Level: level, Name: f.Function, Share: f.Share, Detail: fmt.Sprintf(format, args...),
	})
}

// ofLog reports whether a function belongs to the log or to group commit.
func ofLog(function string) bool {
	for _, prefix := range logLocks {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// chargeAlloc returns the function that asked for memory: the first one outside of the runtime and its like.
func chargeAlloc(frames []string) string {
	for _, f := range frames {
		if !plumbing(f) {
			return f
		}
	}
	return "runtime"
}

// first is top for what shares returns.
func first(all []Share, _ int64) []Share { return top(all) }

// top returns the first entries; the list is never nil, so that JSON has [].
func top(all []Share) []Share {
	return append([]Share{}, all[:min(len(all), topEntries)]...)
}

func percent(share float64) string { return fmt.Sprintf("%d %%", int(math.Round(share*100))) }
