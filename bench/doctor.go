package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// ExitUnfit is the exit code of a host that is not fit to be measured on.
const ExitUnfit = 6

// HostCheck is one thing that was looked at on the host.
type HostCheck struct {
	Name string `json:"name"`
	// Level is Info, Warn or Fail. Only Fail keeps a host from being measured on.
	Level string `json:"level"`
	// Found is what was seen. Fix says what the operator can do; it is empty when nothing is wrong.
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

// The limits of a host, in addition to those that leave a run out (validity.go). doctorLook is how
// long the CPU is looked at.
const (
	doctorLook = 2 * time.Second
	// syncTail is p99 of a sync ÷ p50: beyond it others use the same disk.
	syncTail = 10.0
	// syncSlow is the p50 of a sync in microseconds that an SSD stays below.
	syncSlow = 20_000.0
	// minFiles is the limit of open files, and minMemory is in bytes.
	minFiles     = 4096
	minMemory    = 2 << 30
	unknownValue = "not known"
)

// Doctor looks at the host for two seconds, and says what stands in the way of figures that repeat. dir is where data
// directories would be made. Error: ctx ended, or dir cannot be written.
func Doctor(ctx context.Context, c *Config, host Observer) ([]HostCheck, error) {
	if host == nil {
		host = systemObserver()
	}
	env, err := Environment(ctx, c)
	if err != nil {
		return nil, &CannotError{err}
	}
	out := []HostCheck{quiet(ctx, host), pressure(ctx, host)}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return append(out, fixed(&env.Host, c.dataParent())...), nil
}

// looked makes a check: of the given level when bad holds, else of level info and without a fix.
func looked(name string, bad bool, level, found, fix string) HostCheck {
	if !bad {
		return HostCheck{name, Info, found, ""}
	}
	return HostCheck{name, level, found, fix}
}

// quiet looks for doctorLook at which processes use the CPU. It takes the use of this process off,
// so that the looking itself is not blamed on others.
func quiet(ctx context.Context, host Observer) HostCheck {
	a, err := host.CPU()
	own, ownErr := host.Process(os.Getpid())
	if err != nil || ownErr != nil || Pause(ctx, doctorLook) != nil {
		return HostCheck{"cpu", Warn, unknownValue, "without procfs interference cannot be seen: figures say that the host was not observed"}
	}
	b, err := host.CPU()
	after, ownErr := host.Process(os.Getpid())
	if err != nil || ownErr != nil {
		return HostCheck{"cpu", Warn, unknownValue, "without procfs interference cannot be seen"}
	}
	return judgeQuiet(a, b, after.CPU-own.CPU)
}

// judgeQuiet holds two readings of the CPU, a before b, against the limits that leave runs out. own
// is the CPU seconds of this process between them.
func judgeQuiet(a, b HostCPU, own float64) HostCheck {
	all := b.Busy - a.Busy + b.Idle - a.Idle + b.Steal - a.Steal
	if all <= 0 {
		return HostCheck{"cpu", Warn, unknownValue, ""}
	}
	foreign, steal := max(0, b.Busy-a.Busy-own)/all, (b.Steal-a.Steal)/all
	found := fmt.Sprintf("others use %.1f %% of it, the hypervisor takes %.1f %%", 100*foreign, 100*steal)
	switch {
	case steal > stealLimit:
		return HostCheck{"cpu", Fail, found, "take a machine whose cores are its own"}
	case foreign > foreignLimit:
		return HostCheck{"cpu", Fail, found, "end what else runs; top shows it"}
	}
	return HostCheck{"cpu", Info, found, ""}
}

// pressure looks for idleLook at how long processes wait for the disk and for memory. A kernel
// without these counters makes a check of level info: nothing is known.
func pressure(ctx context.Context, host Observer) HostCheck {
	a, err := host.Pressure()
	if err != nil || Pause(ctx, idleLook) != nil {
		return HostCheck{"pressure", Info, unknownValue, ""}
	}
	b, err := host.Pressure()
	if err != nil {
		return HostCheck{"pressure", Info, unknownValue, ""}
	}
	io, memory := (b.IO-a.IO)/idleLook.Seconds(), (b.Memory-a.Memory)/idleLook.Seconds()
	found := fmt.Sprintf("something waits for IO %.0f %% of the time, for memory %.0f %%", 100*io, 100*memory)
	return looked("pressure", io > ioLimit || memory > memoryLimit, Fail, found, "wait until the disk is quiet; end what takes the memory")
}

// fixed judges what does not change from run to run: settings of the kernel, the disk of dir,
// memory, and the limits of this process.
func fixed(h *Host, dir string) []HostCheck {
	out := []HostCheck{
		looked("governor", h.Governor != "" && h.Governor != "performance", Warn, orUnknown(h.Governor), "cpupower frequency-set -g performance"),
		looked("idle", h.HaltPoll == "0", Warn, cmp.Or(h.IdleCore(), "is not halted as a guest's"),
			"a guest's core that has nothing to do is halted at once, and each wake costs an exit to the host: echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns"),
		looked("clock source", h.ClockSource != "" && !strings.HasPrefix(h.ClockSource, "tsc") && h.ClockSource != "kvm-clock" && h.ClockSource != "arch_sys_counter",
			Warn, orUnknown(h.ClockSource), "reading the clock is slow here: boot with clocksource=tsc if the CPU's is steady"),
		looked("fdatasync", h.FdatasyncP50 > 0 && h.FdatasyncP99 > syncTail*h.FdatasyncP50, Fail,
			fmt.Sprintf("p50 %s µs, p99 %s µs in %s (%s)", Number(h.FdatasyncP50), Number(h.FdatasyncP99), dir, orUnknown(h.FileSystem)),
			"others use this disk: give --data on a private file system"),
		looked("disk", h.FdatasyncP50 > syncSlow, Warn, fmt.Sprintf("a sync takes %s µs", Number(h.FdatasyncP50)), "measure on an SSD"),
		looked("memory", h.RAM > 0 && h.RAM < minMemory, Warn, fmt.Sprintf("%.1f GiB", float64(h.RAM)/(1<<30)), "rows of deep queues and many refs need 2 GiB"),
		looked("loopback", h.LoopbackP99 > 50*max(h.LoopbackP50, 1), Warn, fmt.Sprintf("p50 %s µs, p99 %s µs", Number(h.LoopbackP50), Number(h.LoopbackP99)), "something takes the CPU away for long"),
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		out = append(out, looked("open files", files.Cur < minFiles, Fail, fmt.Sprint(files.Cur), fmt.Sprintf("ulimit -n %d", minFiles)))
	}
	if n, err := free(dir); err == nil {
		out = append(out, looked("room", n < minFree, Fail, fmt.Sprintf("%.1f GiB free in %s", float64(n)/(1<<30), dir), "make room, or give --data elsewhere"))
	}
	return out
}

func orUnknown(s string) string {
	if s == "" {
		return unknownValue
	}
	return s
}

// DoctorExit is the exit code of what was looked at.
func DoctorExit(all []HostCheck) int {
	for _, c := range all {
		if c.Level == Fail {
			return ExitUnfit
		}
	}
	return ExitOK
}

// WriteDoctor prints what was looked at, a line each, with the fix of what is wrong.
func WriteDoctor(w io.Writer, all []HostCheck) error {
	var b strings.Builder
	for _, c := range all {
		word := map[string]string{Info: "ok", Warn: "WARN", Fail: "FAIL"}[c.Level]
		fmt.Fprintf(&b, "%-4s %-13s %s\n", word, c.Name, c.Found)
		if c.Fix != "" {
			fmt.Fprintf(&b, "     fix: %s\n", c.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
