package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// EntryUse is what one process did for each entry of the log.
type EntryUse struct {
	// Process is its name, and Role what it is: client, leader, follower or server.
	Process string `json:"process"`
	Role    string `json:"role"`
	// User and Kernel are processor time in microseconds.
	User   float64 `json:"user_us"`
	Kernel float64 `json:"kernel_us"`
	// Sleeps counts the times that a thread gave its processor up to wait, and Preempted those that it was taken from one. Threads that
	// ended within the window are left out.
	Sleeps    float64 `json:"sleeps"`
	Preempted float64 `json:"preempted"`
	// Reads and Writes are system calls of files and sockets.
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"`
	// Allocs counts what was allocated, and Bytes its size.
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"alloc_bytes"`
	// Parts has the processor time by what it was spent on, from a second run with a profiler; the largest first.
	Parts []EntryPart `json:"parts"`
}

// EntryPart is processor time of an entry that was spent on one thing.
type EntryPart struct {
	Name string `json:"name"`
	// US is microseconds: the share of the profile, of the time that was used without the profiler.
	US    float64 `json:"us"`
	Share float64 `json:"share"`
}

// EntryReport says where the processor time of one entry goes.
type EntryReport struct {
	Row        string     `json:"row"`
	Title      string     `json:"title"`
	Durability Durability `json:"durability"`
	// Seconds is the length of the window, Entries what was acknowledged in it.
	Seconds float64 `json:"seconds"`
	Entries uint64  `json:"entries"`
	// CPU is the processor time of all processes for each entry, in microseconds.
	CPU       float64    `json:"cpu_us"`
	Processes []EntryUse `json:"processes"`
	Env       Env        `json:"env"`
}

// Entry measures the one row that c selects twice, once for the counters and once with a profiler, and says where the processor time of
// an operation goes. It is for rows whose operations are one entry each. Errors are those of Execute; a run that failed, or whose audit did,
// is an error too.
func Entry(ctx context.Context, c Config, h Harness) (*EntryReport, error) {
	defer collectRarely()()
	if err := c.Check(); err != nil {
		return nil, err
	}
	specs, err := choose(&c, &h)
	if err != nil {
		return nil, err
	}
	if len(specs) != 1 {
		return nil, usage("select", "must name one row of one durability")
	}
	if c.Out == "" {
		if c.Out, err = os.MkdirTemp("", "millrace-entry-"); err != nil {
			return nil, &CannotError{err}
		}
		defer os.RemoveAll(c.Out) //nolint:errcheck // only what was measured is in it, and that is returned
	}
	u, err := newRunner(ctx, &c, &h)
	if err != nil {
		return nil, err
	}
	spec := &specs[0]
	plain, err := u.entryRun(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	out := &EntryReport{
		Row: spec.suite.Name + "/" + spec.row.Name, Title: spec.row.Title, Durability: spec.durability, Seconds: plain.run.Seconds, Entries: plain.run.Ops,
		Env: u.r.Env,
	}
	profiles := map[string][]byte{}
	if h.Sample != nil {
		if _, err = u.entryRun(ctx, spec, profiles); err != nil {
			return nil, err
		}
	}
	for i, name := range plain.names {
		use := plain.end[i].over(&plain.begin[i], float64(plain.run.Ops))
		use.Process, use.Role = name, roleOf(i, len(plain.names))
		if b := profiles[name]; b != nil {
			if use.Parts, err = h.Parts(b, use.User+use.Kernel); err != nil {
				return nil, fmt.Errorf("profile of %s: %w", name, err)
			}
		}
		out.CPU += use.User + use.Kernel
		out.Processes = append(out.Processes, use)
	}
	return out, nil
}

// roleOf names what process i of n is. The driver is the first, and shards are dealt out from the first server on.
func roleOf(i, n int) string {
	switch {
	case i == 0:
		return "client"
	case n == 2:
		return "server"
	case i == 1:
		return "leader"
	}
	return "follower"
}

// entryRun is one run of a row, and the counters of its processes at the edges of the window.
type entryRun struct {
	run        *Run
	names      []string
	begin, end []entryCounters
}

// entryRun carries out one run. Into profiles, if it is not nil, go profiles of the processor time of each process, by its name.
func (u *runner) entryRun(ctx context.Context, spec *runSpec, profiles map[string][]byte) (*entryRun, error) {
	c, err := u.startCluster(ctx, *spec)
	if err != nil {
		return nil, err
	}
	out := &entryRun{run: &Run{Number: 1, Profiled: profiles != nil, Started: time.Now().UTC()}, names: []string{"driver"}}
	pids, admin := []int{os.Getpid()}, []string{""}
	for i, p := range c.procs {
		out.names, pids, admin = append(out.names, p.name), append(pids, p.pid), append(admin, c.endpoints[i].Admin)
	}
	one := &oneRun{u: u, spec: spec, c: c, run: out.run}
	var failed error
	var sampling sync.WaitGroup
	one.edges = func(e edge) {
		if profiles == nil {
			counters, err := readEntryCounters(ctx, pids, admin)
			failed = errors.Join(failed, err)
			if e == windowBegins {
				out.begin = counters
			} else {
				out.end = counters
			}
			return
		}
		if e == windowEnds {
			sampling.Wait()
			return
		}
		var mu sync.Mutex
		for i, name := range out.names {
			sampling.Go(func() {
				b, err := u.h.Sample(ctx, admin[i], spec.window)
				mu.Lock()
				defer mu.Unlock()
				profiles[name], failed = b, errors.Join(failed, err)
			})
		}
	}
	err = one.carry(ctx)
	sampling.Wait()
	err = errors.Join(err, failed)
	if err == nil {
		err = out.run.fault()
	}
	if err = errors.Join(err, one.end(err)); err != nil {
		return nil, err
	}
	return out, nil
}

// fault returns why a run proves nothing; nil: it does.
func (r *Run) fault() error {
	switch {
	case r.Failed != "":
		return errors.New(r.Failed)
	case len(r.Errors) > 0:
		return fmt.Errorf("calls failed: %v", r.Errors)
	case r.Audit != nil && !r.Audit.OK:
		return fmt.Errorf("the audit failed: %v", r.Audit.Violations)
	case r.Ops == 0:
		return errors.New("nothing was acknowledged in the window")
	}
	return nil
}

// entryCounters are counters of a process, which only grow.
type entryCounters struct {
	user, kernel  float64 // seconds
	reads, writes float64
	allocs, bytes float64
	// threads are those that live, by id: what one counted goes with it.
	threads map[string]threadCounters
}

// threadCounters are counters of a thread.
type threadCounters struct{ sleeps, preempted float64 }

// over returns what was used since before for each of n entries.
func (c *entryCounters) over(before *entryCounters, n float64) EntryUse {
	use := EntryUse{
		User: (c.user - before.user) * 1e6 / n, Kernel: (c.kernel - before.kernel) * 1e6 / n,
		Reads: (c.reads - before.reads) / n, Writes: (c.writes - before.writes) / n,
		Allocs: (c.allocs - before.allocs) / n, Bytes: (c.bytes - before.bytes) / n,
	}
	for id, t := range c.threads {
		was := before.threads[id]
		if t.sleeps < was.sleeps || t.preempted < was.preempted { // another thread, with the id of one that ended
			was = threadCounters{}
		}
		use.Sleeps += t.sleeps - was.sleeps
		use.Preempted += t.preempted - was.preempted
	}
	use.Sleeps, use.Preempted = use.Sleeps/n, use.Preempted/n
	return use
}

// readEntryCounters reads the counters of processes. One without an admin listener is this one.
func readEntryCounters(ctx context.Context, pids []int, admin []string) ([]entryCounters, error) {
	out := make([]entryCounters, len(pids))
	for i, pid := range pids {
		if err := out[i].read("/proc/" + strconv.Itoa(pid)); err != nil {
			return out, err
		}
		if admin[i] == "" {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			out[i].allocs, out[i].bytes = float64(m.Mallocs), float64(m.TotalAlloc)
			continue
		}
		const allocs, size = "go_memstats_mallocs_total", "go_memstats_alloc_bytes_total"
		m, err := Metrics(ctx, admin[i], allocs, size)
		if err != nil {
			return out, err
		}
		out[i].allocs, out[i].bytes = m[allocs], m[size]
	}
	return out, nil
}

// read reads what Linux counts of a process and its threads.
func (c *entryCounters) read(dir string) error {
	t, err := readTimes(dir)
	if err != nil {
		return err
	}
	c.user, c.kernel = t.user, t.kernel
	if err := addFields(filepath.Join(dir, "io"), map[string]*float64{"syscr": &c.reads, "syscw": &c.writes}); err != nil {
		return err
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return err
	}
	c.threads = make(map[string]threadCounters, len(threads))
	for _, thread := range threads {
		var t threadCounters
		err := addFields(filepath.Join(dir, "task", thread.Name(), "status"), map[string]*float64{
			"voluntary_ctxt_switches": &t.sleeps, "nonvoluntary_ctxt_switches": &t.preempted,
		})
		switch {
		case err == nil:
			c.threads[thread.Name()] = t
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH): // a thread may have ended
			return err
		}
	}
	return nil
}

// addFields adds numbers of a file whose lines are "name: number".
func addFields(file string, to map[string]*float64) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		name, text, _ := strings.Cut(line, ":")
		if sum := to[name]; sum != nil {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			*sum += n
		}
	}
	return nil
}

// Parts returns the names of all parts of a report, those that took the most time of all processes first.
func (r *EntryReport) Parts() []string {
	sum := map[string]float64{}
	for i := range r.Processes {
		for _, p := range r.Processes[i].Parts {
			sum[p.Name] += p.US
		}
	}
	names := sortedKeys(sum)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(sum[b], sum[a]) })
	return names
}
