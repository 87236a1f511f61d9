package seedtest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// reported are the metrics that a benchmark prints in addition to its headline.
var reported = map[string]bool{
	"create_p99_us": true, "create_p999_us": true, "gc_p999_ratio": true, "gc_pause_p99_us": true, "fsyncs_per_op": true,
}

// metrics are what a benchmark prints of a row, as medians: the time per operation where the
// headline is a rate, the headline with its durability in the unit, and those of reported under
// their own names.
func metrics(row *bench.Row) []bench.Metric {
	if row.Summary.IsZero() {
		return nil
	}
	var out []bench.Metric
	median, headline := row.Summary.Median(), row.Summary.Unit()
	if strings.HasSuffix(headline, "/s") && median > 0 {
		out = append(out, bench.Metric{Value: 1e9 / median, Unit: "ns/op"})
	}
	// The class stands in the unit, so that no value is without it.
	of := row.Summary.Label().Class()
	if n := row.Summary.Label().Note; n != "" {
		of += "·" + strings.ReplaceAll(n, " ", "-")
	}
	out = append(out, bench.Metric{Value: median, Unit: headline + "·" + of})
	for _, name := range slices.Sorted(maps.Keys(row.Figures)) {
		if reported[name] {
			out = append(out, bench.Metric{Value: row.Figures[name].Median(), Unit: strings.ReplaceAll(name, "_", "-")})
		}
	}
	return out
}

// best returns the run that stands for a row: the last one that counts, or else the last one
// without profiles; nil when there is none.
func best(row *bench.Row) *bench.Run {
	if valid := row.ValidRuns(); len(valid) > 0 {
		return valid[len(valid)-1]
	}
	// A profiled run is slower, so it never stands for a row.
	for i := len(row.Runs) - 1; i >= 0; i-- {
		if !row.Runs[i].Profiled {
			return &row.Runs[i]
		}
	}
	return nil
}

// cycleLines are the lines that scripts of the reference look for. Their figures are of the window
// without profiles, as the profiled one is slower.
func cycleLines(row *bench.Row) []string {
	run := best(row)
	if run == nil {
		return nil
	}
	// The window is shown in whole seconds, as the reference's scripts expect.
	window := time.Duration(math.Round(run.Seconds)) * time.Second
	out := append([]string{fmt.Sprintf("PROFILE WINDOW (%s):", window)}, rateLines(row, run)...)
	if d := row.Diagnosis; d != nil {
		out = append(out, fmt.Sprintf("a second window with profiles cost %.0f %% of the rate", d.Overhead*100))
	}
	return out
}

// rateLines are what was created and completed in a run; a line is there when that was measured, also for 0.
func rateLines(row *bench.Row, run *bench.Run) (out []string) {
	for _, m := range []struct{ name, metric string }{{"created", "creates_per_s"}, {"completed", "completes_per_s"}} {
		if rate, measured := run.Metrics[m.metric]; measured { // also where nothing was completed
			out = append(out, fmt.Sprintf("%s = %.0f (%.0f/s) %s", m.name, rate.Value*run.Seconds, rate.Value, row.Durability))
		}
	}
	return out
}

// labelLine tells what the figure holds for, with which settings, and what the audit found.
func labelLine(row *bench.Row) string {
	audit := "no audit"
	if run := best(row); run != nil && run.Audit != nil {
		a := run.Audit
		audit = fmt.Sprintf("audit FAILED: %s", strings.Join(a.Violations, "; "))
		if a.OK {
			audit = fmt.Sprintf("audit clean: %d created, %d completed, %d read back", a.Created, a.Completed, a.ReadBack)
		}
	}
	var shape []string
	for _, p := range row.Shape {
		shape = append(shape, p.Name+"="+p.Value)
	}
	return fmt.Sprintf("%s/%s: %s · %s · %s", row.Suite, row.Row, row.Summary, strings.Join(shape, " "), audit)
}

// failures lists what fails a test: errors, audits, a clock that jumped in every run, inverted ratios. No rate does.
func failures(r *bench.Result) []string {
	var out []string
	add := func(row *bench.Row, format string, args ...any) {
		out = append(out, row.Suite+"/"+row.Row+": "+fmt.Sprintf(format, args...))
	}
	for i := range r.Suites {
		row := &r.Suites[i]
		if row.Error != "" {
			add(row, "%s", row.Error)
		}
		for k := range row.Runs {
			run := &row.Runs[k]
			if run.Failed != "" {
				add(row, "run %d: %s", run.Number, run.Failed)
			}
			for _, e := range run.Errors {
				add(row, "run %d: %s %s × %d, first: %s", run.Number, e.Op, e.Code, e.Count, e.First)
			}
			if run.Audit != nil && !run.Audit.OK {
				add(row, "run %d: audit: %s", run.Number, strings.Join(run.Audit.Violations, "; "))
			}
		}
		if why := clock(row); why != "" {
			add(row, "the clock is invalid: %s", why)
		}
	}
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.Status == bench.Inverted {
			out = append(out, fmt.Sprintf("%s is inverted: %s", v.Name, bench.Number(v.Value)))
		}
	}
	return out
}

// clock says what the clock did in the last run, when it spoiled every run; empty otherwise. One
// run that it did not spoil is enough for a figure.
func clock(row *bench.Row) (why string) {
	for i := range row.Runs {
		run := &row.Runs[i]
		if run.Profiled {
			continue
		}
		k := slices.IndexFunc(run.Excluded, func(e bench.Exclusion) bool { return e.Cause == bench.ClockJump })
		if k < 0 {
			return ""
		}
		why = cmp.Or(run.Excluded[k].Detail, string(bench.ClockJump))
	}
	return why
}

// flatten copies the profiles below from into one directory, where the reference's tools look for
// them. Those of the server, or of the one process that is driver and server, keep their names;
// those of other processes begin with the name of the process.
func flatten(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	files, processes := map[string]string{}, map[string]bool{}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".pb.gz") {
			files[path] = filepath.Base(filepath.Dir(path))
			processes[files[path]] = true
		}
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0:
		return errors.New("no profile was written")
	case err != nil:
		return fmt.Errorf("write profiles: %w", err)
	}
	for path, process := range files {
		name := filepath.Base(path)
		if len(processes) > 1 && process != "server-1" {
			name = process + "-" + name
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write profiles: %w", err)
		}
	}
	return nil
}
