package profile

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pb "github.com/google/pprof/profile"
)

// Share is what one function has of a profile. Value is in the unit of the profile: nanoseconds,
// bytes or goroutines.
type Share struct {
	Function string
	//
	Value int64
	Share float64 `json:"share"` // of the profile's total, 0 to 1
}

// Pools are what CPU time is charged to when no function outside of the runtime had a part in it.
const (
	poolGC        = "garbage collection"
	poolScheduler = "scheduler"
)

// stack returns the functions of a sample, innermost first, inlined ones in their place.
func stack(s *pb.Sample) []string {
	var out []string
	for _, loc := range s.Location {
		for _, line := range loc.Line {
			if line.Function != nil {
				out = append(out, line.Function.Name)
			}
		}
		if len(loc.Line) == 0 {
			out = append(out, "") // code without symbols, such as the vDSO
		}
	}
	return out
}

// packageOf returns the import path of a function's package; empty for assembly bodies and code
// without symbols.
func packageOf(function string) string {
	name, _, _ := strings.Cut(function, "[") // type arguments hold import paths of their own
	slash := strings.LastIndex(name, "/") + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot < 0 {
		return ""
	}
	return name[:slash+dot]
}

// plumbing reports whether time in a function is charged to its caller: the runtime with its
// copying and comparing of memory, also where it stands under the name of another package
// (sync.runtime_Semacquire), and system calls with the thin layers around them.
func plumbing(function string) bool {
	pkg := packageOf(function)
	switch pkg {
	case "", "runtime", "syscall", "internal/bytealg", "internal/poll", "golang.org/x/sys/unix", "type:", "go:":
		return true
	}
	return strings.HasPrefix(pkg, "runtime/internal/") || strings.HasPrefix(pkg, "internal/runtime/") ||
		strings.HasPrefix(pkg, "internal/syscall/") || strings.HasPrefix(function[len(pkg):], ".runtime_")
}

// locking reports whether a frame belongs to waiting as such: plumbing, or the locks of the standard library.
func locking(function string) bool {
	pkg := packageOf(function)
	return plumbing(function) || pkg == "sync" || pkg == "internal/sync" || pkg == "sync/atomic"
}

// profiling reports whether a stack waits in order to be profiled. What it shows is the bench itself.
func profiling(frames []string) bool {
	return slices.ContainsFunc(frames, func(f string) bool {
		pkg := packageOf(f)
		return pkg == "net/http/pprof" || pkg == "github.com/millrace/millrace/bench/profile"
	})
}

// collectors are functions of the runtime below which time is spent on garbage: background marking,
// sweeping, the return of memory, and the help that allocations give to marking.
var collectors = map[string]bool{
	"runtime._GC": true, "runtime.gcBgMarkWorker": true, "runtime.gcStart": true, "runtime.gcMarkDone": true,
	"runtime.gcMarkTermination": true, "runtime.gcDrain": true, "runtime.gcDrainN": true, "runtime.gcAssistAlloc": true,
	"runtime.gcAssistAlloc1": true, "runtime.bgsweep": true, "runtime.bgscavenge": true, "runtime.sweepone": true,
	"runtime.deductSweepCredit": true, "runtime.(*mspan).sweep": true, "runtime.wbBufFlush": true,
	"runtime.markroot": true, "runtime.runfinq": true, "runtime.gcWriteBarrier": true,
}

// chargeCPU returns the function, or the pool, that a CPU sample belongs to. A collector anywhere below the
// first function outside of the runtime wins, so that the help of an allocation counts as collection.
func chargeCPU(frames []string) string {
	for _, f := range frames {
		if !plumbing(f) {
			return f
		}
		if name, _, _ := strings.Cut(f, ".func"); collectors[name] {
			return poolGC
		}
	}
	return poolScheduler
}

// chargeWait returns the first function outside of runtime and sync; "runtime" when there is none,
// and "" for a wait that profiling itself makes.
func chargeWait(frames []string) string {
	if profiling(frames) {
		return ""
	}
	for _, f := range frames {
		if !locking(f) {
			return f
		}
	}
	return "runtime"
}

// shares sums one column of a profile by what charge says of each stack, the largest first; names
// break ties, so that the order is the same every time. What is charged to "" does not count.
func shares(p *pb.Profile, column int, charge func([]string) string) (out []Share, sum int64) {
	by := make(map[string]int64)
	for _, s := range p.Sample {
		if to := charge(stack(s)); to != "" && s.Value[column] != 0 {
			by[to] += s.Value[column]
			sum += s.Value[column]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, Share{Function: name, Value: by[name], Share: float64(by[name]) / float64(sum)})
	}
	slices.SortStableFunc(out, func(a, b Share) int { return cmp.Compare(b.Value, a.Value) })
	return out, sum
}

// column returns the index of a sample type; ok is false when the profile has none of that name.
func column(p *pb.Profile, name string) (int, bool) {
	i := slices.IndexFunc(p.SampleType, func(v *pb.ValueType) bool { return v.Type == name })
	return i, i >= 0
}
