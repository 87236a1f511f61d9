package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheMachineIsTheWallOfARunThatTakesAllOfIt(t *testing.T) {
	for _, c := range []struct {
		name       string
		busy       float64 // seconds of CPU a second, of 2 cores
		written    uint64  // bytes a second
		cpu, disk  float64
		warnings   int
		perReplica float64
	}{
		{"neither", 1.0, 10 << 20, 0, 0, 0, 50},
		{"CPU", 1.95, 10 << 20, 1, 0, 1, 50},
		{"disk", 1.0, 90 << 20, 0, 1, 1, 50},
	} {
		h := &fakeHost{use: map[int]ProcessUse{}}
		w := newWatch(h, h, []watched{{name: "driver", pid: 1}, {name: "server-1", pid: 2}}, nil)
		w.start()
		h.pass(w, 2*time.Second, func(at time.Duration) {
			h.cpu.Busy = c.busy * at.Seconds()
			h.use[2] = ProcessUse{CPU: 0.5 * at.Seconds(), Written: uint64(float64(c.written) * at.Seconds())}
		})
		w.stop()
		o := &oneRun{
			spec: &runSpec{row: &RowSpec{Box: true}, shape: Shape{Nodes: 2}}, run: &Run{Seconds: 2, Host: HostReport{Observed: true}},
			rig: &Rig{watch: w}, disk: 100 << 20,
		}
		got := map[string]float64{}
		o.walls(10_000, func(name, _ string, v float64) { got[name] = v })
		if got[CPUBound] != c.cpu || got[DiskBound] != c.disk || len(o.run.Warnings) != c.warnings {
			t.Errorf("%s: %v, warnings %+v", c.name, got, o.run.Warnings)
		}
		if v := got["replica_cpu_us_per_op"]; v < c.perReplica-0.01 || v > c.perReplica+0.01 {
			t.Errorf("%s: %v µs for each of 2 replicas, want %v", c.name, v, c.perReplica)
		}
	}
}

func TestTheDisksRateIsProbedAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	if testing.Short() {
		t.Skip("writes 64 MiB")
	}
	if rate, err := probeStream(dir); err != nil || rate <= 0 {
		t.Errorf("%v bytes a second, %v", rate, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := probeStream(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was probed")
	}
}

func TestBytesThatAProcessWroteAreReadOffProcfs(t *testing.T) {
	dir := t.TempDir()
	const page = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n"
	if err := os.WriteFile(filepath.Join(dir, "io"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (procfs{}).written(dir); got != 8192 {
		t.Errorf("%d bytes, want 8,192", got)
	}
	if got := (procfs{}).written(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("%d bytes of a process that may not be looked at, want 0", got)
	}
}
