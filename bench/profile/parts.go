package profile

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// Sample profiles the processor time of a process for a window, and nothing else: that costs it little. admin is the base address of its
// admin listener; empty: this process.
func Sample(ctx context.Context, admin string, window time.Duration) ([]byte, error) {
	var src Source = Self{}
	if admin != "" {
		src = HTTP{Base: admin}
	}
	return src.Sample(ctx, wholeSeconds(window))
}

// Parts divides processor time of us microseconds by what a CPU profile says it was spent on, the largest part first.
func Parts(cpu []byte, us float64) ([]bench.EntryPart, error) {
	p, err := parse(cpu)
	if err != nil {
		return nil, err
	}
	col, ok := column(p, "cpu")
	if !ok {
		return nil, nil
	}
	all, _ := shares(p, col, partOf)
	out := make([]bench.EntryPart, len(all))
	for i, s := range all {
		out[i] = bench.EntryPart{Name: s.Function, US: us * s.Share, Share: s.Share}
	}
	return out, nil
}

// kernelCalls say what a system call is for, by a function on its way. The first that is on the stack counts.
var kernelCalls = []struct{ function, part string }{
	{"runtime.futexwakeup", "kernel: wake a thread"},
	{"runtime.futexsleep", "kernel: put a thread to sleep"},
	{"runtime.netpoll", "kernel: look for ready sockets"},
	{"runtime.usleep", "kernel: short sleeps of the scheduler"},
	{"runtime.osyield", "kernel: short sleeps of the scheduler"},
	{"runtime.nanotime", "kernel: read a clock"},
	{"internal/poll.(*FD).Fsync", "kernel: sync a file"},
	{"golang.org/x/sys/unix.Fdatasync", "kernel: sync a file"},
	{"internal/poll.(*FD).Pread", "kernel: read a file"},
	{"internal/poll.(*FD).Pwrite", "kernel: write a file"},
	{"os.(*File).", "kernel: files"},
	{"internal/poll.(*FD).Read", "kernel: read a socket"},
	{"internal/poll.(*FD).Write", "kernel: write a socket"},
}

// calls are the functions in which a system call is made.
func calls(function string) bool {
	switch function {
	case "runtime.futex", "runtime.epollwait", "runtime.usleep", "runtime.osyield", "runtime.write1", "runtime.read", "runtime.madvise", "runtime.tgkill":
		return true
	}
	return strings.HasPrefix(function, "internal/runtime/syscall.Syscall") || strings.HasPrefix(function, "syscall.RawSyscall") ||
		strings.HasPrefix(function, "syscall.rawVforkSyscall") || strings.HasPrefix(function, "internal/runtime/syscall/linux.")
}

// partOf names what a stack of a CPU profile is spent on: a kind of system call, a part of the runtime, or the package that asked for it. Time
// in the standard library counts for who calls it.
func partOf(frames []string) string {
	if len(frames) == 0 {
		return poolScheduler
	}
	if slices.ContainsFunc(frames[:min(len(frames), 4)], calls) {
		for _, c := range kernelCalls {
			if slices.ContainsFunc(frames, func(f string) bool { return strings.HasPrefix(f, c.function) }) {
				return c.part
			}
		}
		return "kernel: other calls"
	}
	for _, f := range frames {
		name, _, _ := strings.Cut(f, ".func")
		switch {
		case collectors[name]:
			return poolGC
		case f == "runtime.mallocgc", f == "runtime.growslice", f == "runtime.newobject":
			return "allocation"
		case runtimeParts[name] != "":
			return runtimeParts[name]
		case strings.HasPrefix(f, "type:."): // hashes and comparisons that the compiler makes for keys
			return "maps"
		}
		if pkg := packageOf(f); !plumbing(f) && !standard(pkg) {
			return moduleOf(pkg)
		}
	}
	return poolScheduler
}

// runtimeParts are functions of the runtime below which time is spent on one thing, by any caller.
var runtimeParts = map[string]string{
	"runtime.schedule": poolScheduler, "runtime.findRunnable": poolScheduler, "runtime.mcall": poolScheduler, "runtime.ready": poolScheduler,
	"runtime.goready": poolScheduler, "runtime.wakep": poolScheduler, "runtime.park_m": poolScheduler, "runtime.gopark": poolScheduler,
	"runtime.chansend": "channels", "runtime.chanrecv": "channels", "runtime.selectgo": "channels",
	"runtime.(*timers).check": "timers", "runtime.(*timer).modify": "timers", "runtime.(*timer).stop": "timers",
	"runtime.mapaccess1": "maps", "runtime.mapaccess2": "maps", "runtime.mapassign": "maps", "internal/runtime/maps.(*Map).getWithoutKeySmallFastStr": "maps",
}

// standard reports whether a package is of the standard library: its first element has no dot.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".") && first != "main"
}

// own is the module's path, with which packages of the program begin.
const own = "github.com/millrace/millrace/"

// moduleOf shortens a package: those of this program to what is behind the module, others to their module.
func moduleOf(pkg string) string {
	if rest, ok := strings.CutPrefix(pkg, own); ok {
		return rest
	}
	parts := strings.Split(pkg, "/")
	n := 2
	if parts[0] == "github.com" || parts[0] == "golang.org" {
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}
