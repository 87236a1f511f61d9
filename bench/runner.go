package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"
)

// Exit codes of the bench. When several hold, the command ends with the first of 4, 3, 1, 5.
const (
	ExitOK          = 0
	ExitFail        = 1   // errors, a wrong ratio, a target that is judged and missed, a failing diagnosis
	ExitUsage       = 2   // bad flag, file or combination
	ExitCannot      = 3   // no server, disk full: nothing could be measured
	ExitAudit       = 4   // acknowledged writes are lost, doubled or different
	ExitNoVerdict   = 5   // too noisy, still invalid after all repeats, or a lower bound
	ExitInterrupted = 130 // a partial result was written
)

// CannotError says that nothing could be measured, and why.
type CannotError struct{ Err error }

func (e *CannotError) Error() string { return e.Err.Error() }

func (e *CannotError) Unwrap() error { return e.Err }

// SkipError is what a driver returns for a row that this host has not the means for, such as a newer git. The row says so,
// and nothing fails.
type SkipError struct{ Lacks string }

func (e *SkipError) Error() string { return "skipped: " + e.Lacks }

// runner carries one command out, on one goroutine. Its result grows row by row and is saved after every run.
type runner struct {
	c      *Config
	h      *Harness
	r      *Result
	clocks Clocks
	host   Observer
	// looked says that a ceiling was measured by this command.
	looked bool
	// fatal ends the command: a figure of it would say something wrong.
	fatal error
}

// Bytes that a run may write: what a fast machine writes, and what even a small run needs.
const (
	minFree = 2 << 30
	// tasksPerSec is more than a fast machine does; bytesPerTask is what a task takes without its payload.
	tasksPerSec  = 50_000
	bytesPerTask = 200
	// keysAtOnce is the number of puts that lie in stores and logs at one time, however long the run is.
	keysAtOnce = 4_000_000
)

// checkRoom refuses to begin on a disk without room for twice what the longest run may write. Each
// run removes its data unless that is to be kept, so that one run counts and not the sum of all.
func (c *Config) checkRoom(specs []runSpec) error {
	need := uint64(minFree)
	for i := range specs {
		s := &specs[i]
		if s.suite.Local || s.topology == Remote {
			continue
		}
		if s.row.Servers != "" {
			continue
		}
		perTask := float64(bytesPerTask + 2*len(payload(s.shape.Payload)))
		tasks := (s.warmup+s.window).Seconds()*tasksPerSec + float64(s.shape.Prefill)
		if s.shape.Puts > 0 {
			tasks = s.warmup.Seconds()*tasksPerSec + float64(s.shape.Puts)
		} else if s.shape.Key > 0 { // keys are put again and again: the log goes round
			tasks = min(tasks, keysAtOnce)
		}
		need = max(need, uint64(2*float64(s.shape.Voters())*tasks*perTask))
	}
	n, err := free(c.dataParent())
	if err != nil || n >= need || c.Topology == Remote {
		return nil // where it is not known, the servers refuse by themselves
	}
	return &CannotError{fmt.Errorf("%s has %d bytes free, %d are needed", c.dataParent(), n, need)}
}

// driverGC is how far the driver's small heap grows before it is collected, in percent of what
// lives in it. A service with the memory of this machine would be set alike.
const driverGC = 400

// collectRarely sets the collector to driverGC, unless the environment sets it. It returns what undoes that.
func collectRarely() func() {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(driverGC)
	return func() { debug.SetGCPercent(before) }
}

// Execute measures what c asks for. The result is written to c.Out after every run. Errors: *UsageError for what makes no
// sense, *CannotError when nothing can be measured, *UnfitError when the host would spoil it; a measurement that went wrong is in the result's Exit.
func Execute(ctx context.Context, c Config, h Harness) (*Result, error) {
	defer collectRarely()()
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := c.takeUp(); err != nil {
		return nil, err
	}
	c.nameOut()
	specs, err := choose(&c, &h)
	if err != nil {
		return nil, err
	}
	if err := c.checkOut(); err != nil {
		return nil, err
	}
	u, err := newRunner(ctx, &c, &h)
	if err != nil {
		return nil, err
	}
	if err := c.checkRoom(specs); err != nil {
		return nil, err
	}
	if err := u.fit(ctx, specs); err != nil {
		if c.Resume == "" { // the same command can be given again
			err = errors.Join(err, os.Remove(filepath.Join(c.Out, configFile)))
		}
		return nil, err
	}
	return u.r, u.measure(ctx, specs)
}

// newRunner makes the output directory and the result, or takes up a partial result. It writes
// config.json, which --resume reads.
func newRunner(ctx context.Context, c *Config, h *Harness) (*runner, error) {
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return nil, &CannotError{err}
	}
	u := &runner{c: c, h: h, clocks: h.Clocks, host: h.Observer}
	if u.clocks == nil {
		u.clocks = systemClocks{}
	}
	if u.host == nil {
		u.host = systemObserver()
	}
	env, err := Environment(ctx, c)
	if err != nil {
		return nil, &CannotError{err}
	}
	if err := u.begin(env); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(c.Out, configFile), c); err != nil {
		return nil, &CannotError{err}
	}
	return u, nil
}

// begin makes the result, or takes up a partial one. A partial result of another program, host or
// configuration is refused, since its rows would mix.
func (u *runner) begin(env Env) error {
	now := time.Now().UTC()
	u.r = &Result{
		Schema: Schema, ID: newResultID(now, env), Command: u.c.Command, Seed: u.c.Seed, Profile: u.c.Profile, Started: now,
		Finished: now, Env: env, Suites: []Row{}, Verdicts: []Verdict{},
	}
	if u.r.Profile == "" {
		u.r.Profile = "custom"
	}
	if u.c.Resume == "" {
		return nil
	}
	old, err := Load(u.c.Resume)
	if err != nil {
		return usage("resume", "%v", err)
	}
	if why := sameEnv(old.Env, env); why != "" {
		return usage("resume", "%s was measured with another %s", u.c.Resume, why)
	}
	u.r = old
	return nil
}

// Load reads the result of an output directory, or of a file as ReadResult takes it. Errors: a schema other than Schema.
func Load(path string) (*Result, error) {
	b, err := ReadResult(path)
	if err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s has schema %q, not %q", path, r.Schema, Schema)
	}
	return &r, nil
}

// measure runs all rows, and ends the result. The result is partial until the last row is done, so that a
// process that dies leaves one that can be resumed. An interrupted measurement is judged and rendered too.
func (u *runner) measure(ctx context.Context, specs []runSpec) error {
	u.r.Partial = true
	for i := range specs {
		if ctx.Err() != nil {
			break
		}
		last := i+1 == len(specs) || specs[i+1].suite != specs[i].suite
		u.row(ctx, &specs[i], last)
		if u.fatal != nil {
			return u.fatal
		}
		if err := u.save(); err != nil {
			return &CannotError{err}
		}
	}
	u.r.Partial = ctx.Err() != nil
	u.r.Finished = time.Now().UTC()
	u.judge()
	u.r.Exit = u.exit(specs)
	if err := u.save(); err != nil {
		return &CannotError{err}
	}
	if u.h.Render != nil {
		if err := u.h.Render(u.c.Out, u.r); err != nil {
			return &CannotError{err}
		}
	}
	return nil
}

// judge fills in the targets and the verdicts of the result.
func (u *runner) judge() {
	if u.h.Judge != nil {
		u.r.Verdicts = u.h.Judge(u.r, u.c.Judge, u.c.Reference)
	}
	if u.r.Verdicts == nil {
		u.r.Verdicts = []Verdict{}
	}
}

// row measures one row: runs until enough of them count, twice as many at most, and exactly as many
// where spoiled runs are not repeated. profile says that it is the last row of its suite, which
// gets the profiled run. Runs that a resumed result has already count. It stops early after an
// error of the harness, a skip, or a failed audit. A *UsageError of a run, such as a server with
// another durability, ends the whole command.
func (u *runner) row(ctx context.Context, spec *runSpec, profile bool) {
	row := u.r.Find(spec.suite.Name, spec.row.Name, spec.class())
	if row == nil {
		u.r.Suites = append(u.r.Suites, u.newRow(spec))
		row = &u.r.Suites[len(u.r.Suites)-1]
	}
	row.Error, row.Skipped = "", ""
	u.ceiling(ctx, spec, row)
	if err := u.save(); err != nil {
		row.Error = err.Error()
		return
	}
	most := 2 * spec.runs
	if !spec.repeat {
		most = spec.runs
	}
	for len(row.Runs) < most && valid(row) < spec.runs && ctx.Err() == nil {
		run, err := u.run(ctx, spec.after(valid(row)), len(row.Runs)+1, false)
		if ctx.Err() != nil {
			break // an interrupted run proves nothing
		}
		var lie *UsageError
		if errors.As(err, &lie) {
			u.fatal = err
			return
		}
		if skip, ok := errors.AsType[*SkipError](err); ok {
			row.Skipped = skip.Lacks
			u.c.say("%s: %v", spec, skip)
			break
		}
		if err != nil {
			row.Error = err.Error()
			u.c.say("%s: %v", spec, err)
			break
		}
		row.Runs = append(row.Runs, *run)
		u.finish(spec, row)
		u.c.say("%s run %d: %s", spec, run.Number, u.runLine(row, run))
		if err := u.save(); err != nil {
			row.Error = err.Error()
			break
		}
		if run.Audit != nil && !run.Audit.OK {
			break // more of the same proves nothing
		}
	}
	if profile && row.Diagnosis == nil && !u.c.NoProfile && !spec.suite.NoProfile && spec.verdicts && u.h.Profile != nil && row.Error == "" && row.Skipped == "" && ctx.Err() == nil && !spec.suite.Local {
		u.profiled(ctx, spec, row)
	}
	u.finish(spec, row)
}

// exit decides the exit code: the worst of what any row says. Interruption outweighs all but a failed audit.
func (u *runner) exit(specs []runSpec) int {
	code := ExitOK
	worse := func(c int) {
		rank := []int{ExitOK, ExitNoVerdict, ExitFail, ExitCannot, ExitAudit}
		if slices.Index(rank, c) > slices.Index(rank, code) {
			code = c
		}
	}
	for i := range u.r.Suites {
		row := &u.r.Suites[i]
		if row.Error != "" {
			worse(ExitCannot)
		}
		for j := range row.Runs {
			run := &row.Runs[j]
			if run.Audit != nil && !run.Audit.OK {
				worse(ExitAudit)
			}
			if run.Failed != "" || len(run.Errors) > 0 {
				worse(ExitFail)
			}
		}
		if len(row.Diagnosis.Failing()) > 0 {
			worse(ExitFail)
		}
		for _, t := range row.Targets {
			if t.Judged && t.MustMet != nil && !*t.MustMet {
				worse(ExitFail)
			}
		}
		if row.Skipped != "" {
			continue
		}
		if v := row.Label.Validity; v == NoVerdict || v == Invalid || v == LowerBound {
			if judged(specs, row) {
				worse(ExitNoVerdict)
			}
		}
	}
	for _, v := range u.r.Verdicts {
		if v.Status.Fails() {
			worse(ExitFail)
		}
	}
	if u.r.Partial && code != ExitAudit {
		return ExitInterrupted
	}
	return code
}

// judged reports whether a row was run for a verdict. A row of an older part of a resumed result
// counts as such.
func judged(specs []runSpec, row *Row) bool {
	for i := range specs {
		if s := &specs[i]; s.suite.Name == row.Suite && s.row.Name == row.Row {
			return s.verdicts
		}
	}
	return true
}

// save writes the result and its environment. Each file is written under another name and renamed
// into place, so that a reader or a crash finds the old one or the new one whole.
func (u *runner) save() error {
	u.r.Finished = time.Now().UTC()
	if err := writeJSON(filepath.Join(u.c.Out, "env.json"), u.r.Env); err != nil {
		return err
	}
	return writeJSON(filepath.Join(u.c.Out, "result.json"), u.r)
}

// writeJSON replaces a file by the JSON of v. It does not sync: a crash of the machine may lose the
// newest result.
func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(name), err)
	}
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(tmp))
	}
	return nil
}
