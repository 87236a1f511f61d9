package profile

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/bench"
)

// Findings returns what the diagnosis shows: first what is above a limit, failures before warnings;
// then, as info, the largest entries of each profile that were not named yet.
func (d *Diagnosis) Findings() []bench.Finding {
	out := make([]bench.Finding, 0, 4*topEntries)
	for _, level := range []string{bench.Fail, bench.Warn} {
		for _, f := range d.judged {
			if f.Level == level {
				out = append(out, f)
			}
		}
	}
	info := func(kind string, share Share, detail string) {
		if !slices.ContainsFunc(out, func(f bench.Finding) bool { return f.Kind == kind && f.Name == share.Function }) {
			out = append(out, bench.Finding{
				Process: d.Process, Kind: kind, Level: bench.Info, Name: share.Function, Share: share.Share, Detail: detail,
			})
		}
	}
	for _, s := range d.CPU {
		info("cpu", s, seconds(s.Value)+" of CPU")
	}
	info("gc", Share{Function: poolGC, Share: d.GCShare}, "of the CPU")
	info("scheduler", Share{Function: poolScheduler, Share: d.SchedulerShare}, "of the CPU")
	for _, s := range d.Mutex {
		info("mutex", s, seconds(s.Value)+" of lock delay")
	}
	for _, s := range d.Block {
		info("block", s, seconds(s.Value)+" blocked")
	}
	for _, s := range d.Alloc {
		info("alloc", s, fmt.Sprintf("%.1f MiB allocated", float64(s.Value)/(1<<20)))
	}
	if !slices.ContainsFunc(out, func(f bench.Finding) bool { return f.Kind == "goroutine" }) {
		info("goroutine", Share{}, fmt.Sprintf("%d at the start, %d at the end", d.GoroutinesStart, d.GoroutinesEnd))
	}
	return out
}

// seconds prints nanoseconds.
func seconds(nanoseconds int64) string {
	return fmt.Sprintf("%.2f s", time.Duration(nanoseconds).Seconds())
}

// Report diagnoses all sets of one profiled run. Overhead is 1 − profiled ÷ unprofiled rate, files the paths of the
// profiles below the output directory.
func Report(sets []*Set, overhead float64, files []string) (*bench.Diagnosis, error) {
	out := &bench.Diagnosis{Overhead: overhead, Findings: []bench.Finding{}, Files: files}
	for _, s := range sets {
		d, err := Diagnose(s)
		if err != nil {
			return nil, err
		}
		out.Findings = append(out.Findings, d.Findings()...)
	}
	return out, nil
}
