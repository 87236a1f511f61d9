package profile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/bench"
)

// driverName is the process that generates load.
const driverName = "driver"

// Run profiles every process of one run over its window, writes p.Dir/<process>/<kind>.pb.gz, and
// diagnoses what the profiles show. A process whose address is empty is this one, with driver and
// server in it. Without such a process this one is the driver alone. Where p.Dir is below a folder
// named profiles, the diagnosis names files from that folder on. The caller fills in the overhead,
// since it knows the rates. An error of profiling cancels the run and waits for its end.
func Run(ctx context.Context, p bench.ProfileRun) (*bench.Diagnosis, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	measured := make(chan error, 1)
	go func() { measured <- p.Measure(ctx) }()
	select {
	case <-p.Begin:
	case err := <-measured:
		// Both may be ready when this goroutine wakes, and select then draws one.
		select {
		case <-p.Begin: // both may be so by the time that anybody looks
			measured <- err
		default:
			return nil, errors.Join(errors.New("profile: the run ended before its window"), err)
		}
	}
	sets, err := collectAll(ctx, targets(p), wholeSeconds(p.Window))
	if err != nil {
		cancel()
		return nil, errors.Join(err, ignoreCancel(<-measured))
	}
	if err := <-measured; err != nil {
		return nil, fmt.Errorf("profiled run: %w", err)
	}
	var files []string
	for _, s := range sets {
		paths, err := s.Write(filepath.Join(p.Dir, s.Process))
		if err != nil {
			return nil, fmt.Errorf("write profiles: %w", err)
		}
		files = append(files, paths...)
	}
	return Report(sets, 0, below(p.Dir, files))
}

// wholeSeconds rounds down to whole seconds, at least one, so that profiles end within the window.
func wholeSeconds(d time.Duration) time.Duration {
	return max(d.Truncate(time.Second), time.Second)
}

// targets lists the processes to profile: the servers in order of name, and this process last.
func targets(p bench.ProfileRun) []Target {
	own := Target{Process: driverName, Driver: true, Procs: p.Cores, Source: Self{}}
	var out []Target
	for _, name := range slices.Sorted(maps.Keys(p.Admin)) {
		if p.Admin[name] == "" {
			own.Process, own.Driver = name, false
			continue
		}
		out = append(out, Target{Process: name, Procs: p.Cores, Source: HTTP{Base: p.Admin[name], Socket: p.Sockets[name]}})
	}
	return append(out, own)
}

// collectAll takes the sets of all targets over the same window, at the same time.
func collectAll(ctx context.Context, all []Target, window time.Duration) ([]*Set, error) {
	sets, errs := make([]*Set, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, t := range all {
		wg.Go(func() { sets[i], errs[i] = Collect(ctx, t, window) })
	}
	wg.Wait()
	return sets, errors.Join(errs...)
}

// ignoreCancel drops the error that a cancelled run ends with: the reason is told already.
func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// below names files from the directory that holds profiles/ on; files of any other directory keep their names.
func below(dir string, files []string) []string {
	sep := string(filepath.Separator)
	i := strings.LastIndex(sep+dir+sep, sep+"profiles"+sep)
	out := make([]string, len(files))
	for n, f := range files {
		out[n] = filepath.ToSlash(f)
		if i >= 0 && len(f) > i {
			out[n] = filepath.ToSlash(f[i:])
		}
	}
	return out
}
