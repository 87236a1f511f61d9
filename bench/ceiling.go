package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The generator is looked at for a short time: its rate is steady, since no disk is involved.
// smokeWindow serves rows without a verdict.
const (
	ceilingWarmup = 500 * time.Millisecond
	ceilingWindow = 2 * time.Second
	smokeWindow   = 500 * time.Millisecond
)

// ceiling measures what the generator of a closed loop reaches against a server that only acknowledges, in a
// process of its own. A row whose rate comes near it measures the generator, and is called a lower bound
// (Row.Bounded). Failure is a warning at the row: the row is measured all the same.
func (u *runner) ceiling(ctx context.Context, spec *runSpec, row *Row) {
	if !spec.verdicts && u.looked {
		return // one look shows that it can be measured, and bounds decide nothing here
	}
	if row.Ceiling != nil || spec.suite.Local || spec.row.NoCeiling || u.c.Rate > 0 || u.h.NullServer == nil {
		return
	}
	rate, unit, err := u.generatorRate(ctx, spec, row.Headline)
	if err != nil {
		row.Warnings = append(row.Warnings, Warning{"no_ceiling", fmt.Sprintf("what the generator can reach is not known: %v", err), 0})
		u.c.say("%s: what the generator can reach is not known: %v", spec, err)
		return
	}
	row.Ceiling, u.looked = &Ceiling{Rate: rate, Unit: unit}, true
	u.c.say("%s: the generator reaches %s %s against a server that only acknowledges", spec, Number(rate), unit)
}

// generatorRate runs the row's driver against a null server and returns the headline metric.
// Nothing is audited, since nothing is kept. The null server ends before it returns.
func (u *runner) generatorRate(ctx context.Context, spec *runSpec, headline string) (rate float64, unit string, err error) {
	exe, err := u.executable()
	if err != nil {
		return 0, "", err
	}
	dir, err := os.MkdirTemp(u.c.dataParent(), "millrace-bench-")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only a log is in it
	cmd := exec.Command(exe, "bench", "null-server", "--json")
	p, line, err := startProcess(ctx, "null-server", filepath.Join(dir, "null-server.log"), cmd, nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var told struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http"`
	}
	if err := json.Unmarshal(line, &told); err != nil || told.Address == "" {
		return 0, "", fmt.Errorf("the null server said %q", line)
	}
	c := &cluster{endpoints: []Endpoint{{Name: "null-server", Address: told.Address, HTTP: base(told.HTTP)}}, procs: []*process{p}, token: "none", namespace: "default"}
	rig := u.newRig(spec, c)
	rig.Ceiling, rig.Rate, rig.Warmup, rig.Window = true, 0, ceilingWarmup, ceilingWindow
	if !spec.repeat {
		rig.Warmup, rig.Window = smokeWindow/2, smokeWindow
	}
	if err := spec.suite.Drive(ctx, rig); err != nil {
		return 0, "", err
	}
	o := &oneRun{u: u, spec: spec, c: c, rig: rig, run: &Run{}}
	o.collect()
	m, ok := o.run.Metrics[headline]
	if !ok || m.Value <= 0 {
		return 0, "", fmt.Errorf("no %s was measured", headline)
	}
	return m.Value, m.Unit, nil
}
