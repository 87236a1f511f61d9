package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Clocks are the clocks of the host. They are compared with each other, never with those of another host.
type Clocks interface {
	Realtime() time.Duration  // since 1970
	Monotonic() time.Duration // without suspension
	Boottime() time.Duration  // with suspension
}

// HostCPU is the CPU time of the whole host so far, in seconds over all its cores.
type HostCPU struct{ Busy, Idle, Steal float64 }

// Pressure is how long something waited so far, in seconds.
type Pressure struct{ CPU, IO, Memory float64 }

// ProcessUse is what one process used so far.
type ProcessUse struct {
	// CPU is in seconds of all its threads. Helpers is in seconds too, of the programs that it ran
	// and that have ended; it is not part of CPU.
	CPU     float64 // seconds
	Helpers float64 // seconds of programs that it ran and that have ended
	// RSS is the bytes in memory now. Written is bytes that it made the disk write; 0 where that is not told.
	RSS     uint64 // bytes now
	Written uint64 // bytes that it made the disk write; 0 where that is not told
}

// Observer reads counters of the host, all of which only grow, except the RSS of a process. An
// error means that it cannot be read here.
type Observer interface {
	CPU() (HostCPU, error)
	Pressure() (Pressure, error)
	Process(pid int) (ProcessUse, error)
	Cores() int
}

// procfs is the Observer of Linux. root is /proc; tests give another directory.
type procfs struct{ root string }

// userHZ is the unit of CPU times in procfs, the same on all Linux systems.
const userHZ = 100

// CPU reads the first line of stat: user nice system idle iowait irq softirq steal.
func (p procfs) CPU() (HostCPU, error) {
	b, err := os.ReadFile(filepath.Join(p.root, "stat"))
	if err != nil {
		return HostCPU{}, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 9 || f[0] != "cpu" {
		return HostCPU{}, fmt.Errorf("stat begins with %q", line)
	}
	var v [8]float64
	for i := range v {
		n, err := strconv.ParseUint(f[i+1], 10, 64)
		if err != nil {
			return HostCPU{}, err
		}
		v[i] = float64(n) / userHZ
	}
	return HostCPU{Busy: v[0] + v[1] + v[2] + v[5] + v[6], Idle: v[3] + v[4], Steal: v[7]}, nil
}

// Pressure reads the totals of pressure/cpu, io and memory.
func (p procfs) Pressure() (out Pressure, err error) {
	for _, f := range []struct {
		name string
		to   *float64
	}{{"cpu", &out.CPU}, {"io", &out.IO}, {"memory", &out.Memory}} {
		b, err := os.ReadFile(filepath.Join(p.root, "pressure", f.name))
		if err != nil {
			return Pressure{}, err
		}
		line, _, _ := strings.Cut(string(b), "\n")
		_, total, ok := strings.Cut(line, "total=")
		us, err := strconv.ParseUint(strings.TrimSpace(total), 10, 64)
		if !ok || err != nil {
			return Pressure{}, fmt.Errorf("pressure/%s begins with %q", f.name, line)
		}
		*f.to = float64(us) / 1e6
	}
	return out, nil
}

// Process reads stat and statm of a process. Fields 14 and 15 of stat are its own CPU time, 16 and
// 17 that of its children that were waited for.
func (p procfs) Process(pid int) (ProcessUse, error) {
	dir := filepath.Join(p.root, strconv.Itoa(pid))
	t, err := readTimes(dir)
	if err != nil {
		return ProcessUse{}, err
	}
	out := ProcessUse{CPU: t.user + t.kernel, Helpers: t.helpers}
	b, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return ProcessUse{}, err
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		pages, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return ProcessUse{}, err
		}
		out.RSS = pages * uint64(os.Getpagesize())
	}
	out.Written = p.written(dir)
	return out, nil
}

// times is the CPU time of a process, in seconds: its own in programs and in the kernel, and that of its children that were waited for.
type times struct{ user, kernel, helpers float64 }

// readTimes reads the stat of a process from its folder.
func readTimes(dir string) (t times, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return t, err
	}
	wrong := fmt.Errorf("stat of process %s is %q", filepath.Base(dir), b)
	// The name of the process, in brackets, may hold anything: fields count from the last bracket.
	_, rest, ok := strings.Cut(string(b[max(bytes.LastIndexByte(b, ')'), 0):]), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 15 {
		return t, wrong
	}
	var v [4]float64
	for i := range v {
		n, err := strconv.ParseUint(f[11+i], 10, 64)
		if err != nil {
			return t, wrong
		}
		v[i] = float64(n) / userHZ
	}
	return times{user: v[0], kernel: v[1], helpers: v[2] + v[3]}, nil
}

// written reads how many bytes a process made the disk write, by whole pages; 0 when it may not be read.
func (p procfs) written(dir string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, "io"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "\nwrite_bytes: ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Cores counts the cores of the host.
func (p procfs) Cores() int {
	b, err := os.ReadFile(filepath.Join(p.root, "stat"))
	if err != nil {
		return 0
	}
	n := 0
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		if t := lines.Text(); strings.HasPrefix(t, "cpu") && len(t) > 3 && t[3] != ' ' {
			n++
		}
	}
	return n
}
