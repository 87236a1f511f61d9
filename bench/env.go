package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment describes where and with what a result is measured. dir is where data directories are made.
func Environment(ctx context.Context, c *Config) (Env, error) {
	e := Env{Version: c.Version, Go: runtime.Version(), Build: map[string]string{}, Tools: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				e.Commit = s.Value
			case "vcs.modified":
				e.Dirty = s.Value == "true"
			case "-tags", "-ldflags", "-race", "-trimpath", "-pgo", "CGO_ENABLED", "GOAMD64", "GOARM64", "GOEXPERIMENT":
				e.Build[s.Key] = s.Value
			}
		}
	}
	if exe, err := os.Executable(); err == nil {
		if sum, err := fileDigest(exe); err == nil {
			e.Build["executable"] = sum
		}
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"} {
		if v, ok := os.LookupEnv(name); ok {
			e.Build[name] = v
		}
	}
	if out, err := exec.CommandContext(ctx, "git", "--version").Output(); err == nil {
		e.Tools["git"] = strings.TrimSpace(strings.TrimPrefix(string(out), "git version "))
	}
	h, err := host(c.dataParent())
	if err != nil {
		return e, err
	}
	e.Host = h
	e.ConfigHash, e.HostHash = c.hash(), h.hash()
	return e, nil
}

// host describes the machine. What cannot be read is left empty, on another system than Linux most
// of it. It syncs a file in dir and talks over the loopback device, which takes a moment. Error:
// dir cannot be written, or the loopback device cannot be used.
func host(dir string) (Host, error) {
	h := Host{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), FileSystem: fileSystem(dir), Flags: []string{},
		Kernel: line("/proc/sys/kernel/osrelease"), ClockSource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), HaltPoll: haltPoll(), Load: line("/proc/loadavg"), Cgroup: cgroup(),
	}
	for _, l := range strings.Split(text("/proc/cpuinfo"), "\n") {
		key, value, _ := strings.Cut(l, ":")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case key == "model name" && h.CPU == "":
			h.CPU = value
		case key == "flags" && len(h.Flags) == 0:
			for _, f := range strings.Fields(value) {
				if slices.Contains([]string{"avx2", "avx512f", "aes", "sha_ni", "bmi2", "hypervisor", "constant_tsc", "nonstop_tsc"}, f) {
					h.Flags = append(h.Flags, f)
				}
			}
		}
	}
	for _, l := range strings.Split(text("/proc/meminfo"), "\n") {
		if rest, ok := strings.CutPrefix(l, "MemTotal:"); ok {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			h.RAM = kib << 10
		}
	}
	var err error
	if h.FdatasyncP50, h.FdatasyncP99, err = probeSync(dir, probeSyncs); err != nil {
		return h, err
	}
	h.LoopbackP50, h.LoopbackP99, err = probeLoopback(probeRounds)
	return h, err
}

// haltPoll returns for how many nanoseconds an idle core of a guest polls before it halts. It is
// empty where Linux does not halt idle cores that way.
func haltPoll() string {
	if line("/sys/devices/system/cpu/cpuidle/current_governor") != "haltpoll" {
		return ""
	}
	return line("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
}

// text returns the content of a small file of the kernel; empty: it cannot be read.
func text(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(b)
}

// line returns the first line of such a file, without spaces around it.
func line(file string) string {
	first, _, _ := strings.Cut(text(file), "\n")
	return strings.TrimSpace(first)
}

// cgroup tells the limits of this process's group of the unified hierarchy, or of the container's root.
func cgroup() string {
	dir := "/sys/fs/cgroup"
	if _, path, ok := strings.Cut(line("/proc/self/cgroup"), "0::"); ok {
		if _, err := os.Stat(filepath.Join(dir, path, "cpu.max")); err == nil {
			dir = filepath.Join(dir, path)
		}
	}
	cpu, memory := line(filepath.Join(dir, "cpu.max")), line(filepath.Join(dir, "memory.max"))
	if cpu == "" && memory == "" {
		return "none seen"
	}
	return fmt.Sprintf("cpu.max %s, memory.max %s", cpu, memory)
}

// hash names a host. What changes from minute to minute, such as the load and the probed latencies, is not
// part of it. RAM counts by 256 MiB, since the kernel reserves a little less or more at each boot. HaltPoll is
// added only where it is set, so that hosts without it keep the hash of older results.
func (h Host) hash() string {
	all := []any{h.OS, h.Arch, h.CPU, h.Governor, h.Cores, h.RAM >> 28, h.Kernel, h.FileSystem, h.ClockSource, h.Cgroup}
	if h.HaltPoll != "" {
		all = append(all, h.HaltPoll)
	}
	return digest(all...)
}

// hash names everything that decides what is measured. Places, tokens and what is only printed are
// not part of it.
func (c *Config) hash() string {
	return digest(c.Select, c.Profile, c.Runs, c.Window, c.Warmup, c.Durability, c.Topology, c.Target, c.Seed, c.Validate, c.Concurrency,
		c.Rate, c.Arrivals, c.InFlight, c.WorkerBatch, c.ProducerBatch, c.Shards, c.Payload, c.GroupCommit)
}

// digest returns 16 hexadecimal digits of the SHA-256 sum of the values as JSON.
func digest(values ...any) string {
	b, err := json.Marshal(values)
	if err != nil { // numbers and text always have a form
		b = fmt.Append(nil, values...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// fileDigest names the content of a file.
func fileDigest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// newResultID names a result: when it began, and what it measured with.
func newResultID(started time.Time, e Env) string {
	return started.UTC().Format("20060102T150405") + "-" + e.HostHash[:6] + "-" + e.ConfigHash[:6]
}

// sameEnv says why results of two environments do not belong together; empty: they do.
func sameEnv(a, b Env) string {
	for _, d := range []struct{ what, a, b string }{
		{"commit", a.Commit, b.Commit},
		{"version", a.Version, b.Version},
		{"Go", a.Go, b.Go},
		{"configuration", a.ConfigHash, b.ConfigHash},
		{"host", a.HostHash, b.HostHash},
	} {
		if d.a != d.b {
			return fmt.Sprintf("%s: %s, and now %s", d.what, d.a, d.b)
		}
	}
	if x, y := mustJSON(a.Build), mustJSON(b.Build); !bytes.Equal(x, y) {
		return fmt.Sprintf("build: %s, and now %s", x, y)
	}
	return ""
}

// mustJSON encodes a map with its keys in order, so that equal maps have equal bytes.
func mustJSON(m map[string]string) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		return nil // a map of text always has a form
	}
	return b
}
