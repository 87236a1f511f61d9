package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Verify reads a result again and proves what it says by its own runs: the form is that of the schema, every run that the
// harness audits has a clean audit, figures are made of the runs that count, and targets, verdicts and the exit code
// follow from them. It returns what does not hold. Error: the file cannot be read.
func Verify(path string, h *Harness) (wrong []string, err error) {
	b, err := ReadResult(path)
	if err != nil {
		return nil, err
	}
	var r Result
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		return []string{"schema: " + err.Error()}, nil
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		wrong = append(wrong, "schema: something follows the result")
	}
	if r.Schema != Schema {
		return append(wrong, fmt.Sprintf("schema: %q, not %q", r.Schema, Schema)), nil
	}
	v := &verifier{h: h, wrong: wrong}
	for i := range r.Suites {
		v.row(&r.Suites[i])
	}
	v.verdicts(b, &r)
	return v.wrong, nil
}

// verifier collects what does not hold, in the order in which it was found.
type verifier struct {
	h     *Harness
	wrong []string
}

func (v *verifier) say(format string, args ...any) {
	if len(v.wrong) < maxViolations {
		v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
	}
}

// row proves one row by its runs: its figures are the metrics of its valid runs, its summary is the
// figure of the headline, and its label fits.
func (v *verifier) row(row *Row) {
	name := row.Suite + "/" + row.Row + " " + row.Durability
	if row.Durability != row.Label.Class() {
		v.say("%s: its label says %s", name, row.Label.Class())
	}
	v.audits(name, row)
	runs := row.ValidRuns()
	if len(runs) == 0 {
		switch {
		case row.Summary.IsZero():
		case row.Label.Validity != Invalid && row.Label.Validity != LowerBound && row.Label.Validity != AuditFailed:
			v.say("%s: no run counts, and the figure is called %s", name, row.Label.Validity)
		}
		return
	}
	for _, metric := range sortedKeys(row.Figures) {
		var values []float64
		for _, run := range runs {
			if m, ok := run.Metrics[metric]; ok {
				values = append(values, m.Value)
			}
		}
		if !slices.EqualFunc(values, row.Figures[metric].values, near) {
			v.say("%s: %s is made of %v, its runs say %v", name, metric, row.Figures[metric].values, values)
		}
	}
	if f, ok := row.Figures[row.Headline]; ok {
		if !near(f.Median(), row.Summary.Median()) || row.Summary.Unit() != f.Unit() {
			v.say("%s: the summary is %s, the figure %s", name, row.Summary, f)
		}
		if got := row.Label.Validity; got == Valid && f.Spread() > spreadWarn {
			v.say("%s: spread %.0f %%, and it is called valid", name, 100*f.Spread())
		}
	}
	if got := row.Summary.Label(); !row.Summary.IsZero() && got != row.Label {
		v.say("%s: the summary holds for %+v, the row for %+v", name, got, row.Label)
	}
}

// near allows for what a number loses as text.
func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

// audits wants a clean audit of each run whose servers keep something, and syncs of a run that writes with
// fsync on one server. A suite that the tables do not know is taken for one that is audited.
func (v *verifier) audits(name string, row *Row) {
	audited, reads := true, false
	for i := range v.h.Suites {
		s := &v.h.Suites[i]
		if s.Name != row.Suite {
			continue
		}
		audited, reads = !s.Local, s.Reads
		for k := range s.Rows {
			if s.Rows[k].Name == row.Row && s.Rows[k].Servers != "" {
				audited = false
			}
		}
	}
	for i := range row.Runs {
		run := &row.Runs[i]
		switch a := run.Audit; {
		case a == nil && audited && run.Failed == "":
			v.say("%s: run %d was not audited", name, run.Number)
		case a == nil:
		case a.OK != (len(a.Violations) == 0):
			v.say("%s: run %d: the audit is called ok=%v with %d violations", name, run.Number, a.OK, len(a.Violations))
		case !a.OK:
			v.say("%s: run %d: the audit failed: %s", name, run.Number, a.Violations[0])
		}
		if row.Durability == string(Fsync)+"×1" && run.Counts() && run.Metrics["fsyncs_per_op"] == (Metric{}) && audited && !reads && run.Ops > 0 {
			v.say("%s: run %d counts no syncs", name, run.Number)
		}
	}
}

// verdicts derives targets and verdicts again from the raw result, and compares. A verdict that the
// tables gained since is passed over; one that they lost too.
func (v *verifier) verdicts(raw []byte, r *Result) {
	if v.h.Judge == nil || r.Partial {
		return
	}
	var again Result
	if err := json.Unmarshal(raw, &again); err != nil {
		v.say("schema: %v", err)
		return
	}
	targets, required := judgedBy(r)
	derived := v.h.Judge(&again, targets, required)
	said := map[string]Verdict{}
	for _, one := range r.Verdicts {
		said[one.Name+" "+one.Durability] = one
	}
	for _, one := range derived {
		was, ok := said[one.Name+" "+one.Durability]
		switch {
		case !ok: // ratios that were added since
		case was.Status != one.Status || !near(was.Value, one.Value):
			v.say("verdict on %s, %s: %s at %s, the runs say %s at %s", one.Name, one.Durability, was.Status, Number(was.Value), one.Status, Number(one.Value))
		}
	}
	for i := range r.Suites {
		row, fresh := &r.Suites[i], &again.Suites[i]
		for k := range row.Targets {
			if k >= len(fresh.Targets) || row.Targets[k].Metric != fresh.Targets[k].Metric || !sameTruth(row.Targets[k].MustMet, fresh.Targets[k].MustMet) {
				v.say("%s/%s %s: target %s is called %s, the runs say otherwise", row.Suite, row.Row, row.Durability, row.Targets[k].Metric, truth(row.Targets[k].MustMet))
			}
		}
	}
}

// judgedBy tells by a result how its command asked for targets and references to be judged.
func judgedBy(r *Result) (targets, references bool) {
	for i := range r.Suites {
		for _, t := range r.Suites[i].Targets {
			targets = targets || t.Judged && !t.MachineFree
		}
	}
	for _, v := range r.Verdicts {
		references = references || v.Status != Printed && v.Under.Suite == "" && v.Reference != "" && v.Over.Metric == ""
	}
	return targets, references
}

// sameTruth compares two answers of yes, no or not known.
func sameTruth(a, b *bool) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func truth(b *bool) string {
	switch {
	case b == nil:
		return "undecided"
	case *b:
		return "met"
	}
	return "missed"
}
