package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// local carries out one run of a suite that measures the bench process itself: there is no server,
// and nothing to audit.
func (u *runner) local(ctx context.Context, spec *runSpec, number int) (*Run, error) {
	dir, err := os.MkdirTemp(u.c.dataParent(), "millrace-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only scratch is in it
	c := &cluster{dir: dir, namespace: "default"}
	o := &oneRun{u: u, spec: spec, c: c, run: &Run{Number: number, Started: time.Now().UTC()}}
	o.rig = u.newRig(spec, c)
	if err := spec.suite.Drive(ctx, o.rig); err != nil {
		return nil, err
	}
	o.run.Host = o.rig.watch.report()
	o.collect()
	name := strings.ReplaceAll(fmt.Sprintf("%s.%s.%d", spec.suite.Name, spec.row.Name, number), "/", "_")
	hists, err := o.rig.hists.save(u.c.Out, name)
	o.run.Hists = hists
	return o.run, err
}

// profiled adds one run that is profiled. No figure is made of it except what profiling costs: the
// overhead is 1 − its rate ÷ the row's median. A failure is a warning at the row.
func (u *runner) profiled(ctx context.Context, spec *runSpec, row *Row) {
	run, diagnosis, err := u.profileRun(ctx, spec, len(row.Runs)+1)
	if err != nil {
		row.Warnings = append(row.Warnings, Warning{"no_profile", err.Error(), 0})
		u.c.say("%s: not profiled: %v", spec, err)
		return
	}
	row.Runs = append(row.Runs, *run)
	row.Diagnosis = diagnosis
	if f, ok := row.Figures[row.Headline]; ok && f.Median() > 0 {
		if m, ok := run.Metrics[row.Headline]; ok {
			diagnosis.Overhead = 1 - m.Value/f.Median()
		}
	}
	u.c.say("%s: profiled, overhead %.0f %%", spec, diagnosis.Overhead*100)
}
