package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A row whose machine is its wall measures the machine: nearly all of the CPU is in use, or the
// disk takes no more.
const (
	// cpuWall is a share of all cores.
	cpuWall = 0.95
	// diskWall is a share of what a sequential writer reaches that syncs each write.
	diskWall = 0.80
)

// The disk's own rate is measured by writes as large as an entry becomes, each synced, over a file
// that has its size. It takes at most wallWithin.
const (
	wallBytes  = 32 << 20
	wallChunk  = 256 << 10
	wallWithin = 2 * time.Second
)

// probeWalls measures what the disk takes, for rows that may meet it. It runs before the driver does.
func (o *oneRun) probeWalls() (err error) {
	if o.spec.row.Box {
		o.disk, err = probeStream(o.c.dir)
	}
	return err
}

// probeStream returns how many bytes a second the disk of dir takes from one writer that syncs each
// write. The file is removed.
func probeStream(dir string) (perSecond float64, err error) {
	name := filepath.Join(dir, "stream-probe")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("probe the disk: %w", err)
	}
	defer func() {
		_ = f.Close() // only a probe
		_ = os.Remove(name)
	}()
	chunk := bytes.Repeat([]byte{0x5a}, wallChunk)
	for range wallBytes / wallChunk {
		if _, err := f.Write(chunk); err != nil {
			return 0, fmt.Errorf("probe the disk: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("probe the disk: %w", err)
	}
	start, n := time.Now(), 0
	for ; n < wallBytes/wallChunk && time.Since(start) < wallWithin; n++ {
		if _, err := f.WriteAt(chunk, int64(n)*wallChunk); err != nil {
			return 0, fmt.Errorf("probe the disk: %w", err)
		}
		if err := fdatasync(f); err != nil {
			return 0, fmt.Errorf("probe the disk: %w", err)
		}
	}
	return float64(n*wallChunk) / time.Since(start).Seconds(), nil
}

// walls sets what n operations took of the machine, and whether that is all that the machine has.
// Only rows with Box ask for it.
func (o *oneRun) walls(n float64, set func(name, unit string, v float64)) {
	run, w := o.run, o.rig.watch
	if !run.Host.Observed || !o.spec.row.Box || run.Seconds <= 0 {
		return
	}
	cores := float64(max(w.host.Cores(), 1))
	cpu := (w.end.cpu.Busy - w.begin.cpu.Busy) / (run.Seconds * cores)
	server, written := 0.0, 0.0
	for i := 1; i < len(w.procs) && i < len(w.begin.use) && i < len(w.end.use); i++ {
		server += w.cpu(i)
		written += float64(w.end.use[i].Written) - float64(w.begin.use[i].Written)
	}
	set("box_cpu_percent", "%", 100*cpu)
	set("replica_cpu_us_per_op", "µs", server*1e6/n/float64(o.spec.shape.Voters()))
	set("disk_bytes_per_op", "B", written/n)
	disk := 0.0
	if o.disk > 0 && written > 0 {
		disk = written / run.Seconds / o.disk
		set("disk_takes_mib_per_s", "MiB/s", o.disk/(1<<20))
		set("disk_share_percent", "%", 100*disk)
	}
	bound := func(name string, is bool) {
		v := 0.0
		if is {
			v = 1
		}
		set(name, "0 or 1", v)
	}
	bound(CPUBound, cpu >= cpuWall)
	bound(DiskBound, disk >= diskWall)
	if cpu >= cpuWall {
		run.Warnings = append(run.Warnings, Warning{"box_bound", fmt.Sprintf("the machine is the wall: %.0f %% of its CPU was in use", 100*cpu), cpu})
	}
	if disk >= diskWall {
		run.Warnings = append(run.Warnings, Warning{"box_bound", fmt.Sprintf("the disk is the wall: %.0f %% of what it takes was written", 100*disk), disk})
	}
}

// Metrics that say which wall of the machine a row met: 1 when it did, else 0.
const (
	CPUBound  = "cpu_is_the_wall"
	DiskBound = "disk_is_the_wall"
)

// BoxBound reports whether the machine was the row's wall in most of its runs, and which part of it.
func (r *Row) BoxBound() (cpu, disk bool) {
	most := func(name string) bool {
		f, ok := r.Figures[name]
		return ok && !f.IsZero() && f.Median() > 0.5
	}
	return most(CPUBound), most(DiskBound)
}
