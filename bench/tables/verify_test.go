package tables

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/report"
)

func committed(t *testing.T) []string {
	t.Helper()
	files, err := bench.ResultFiles("../results/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no committed results: %v", err)
	}
	return files
}

// judgeAgain writes the judgement of committed results into them again, after the targets of a row have changed.
var judgeAgain = flag.Bool("judge-again", false, "judge the committed results again")

func TestCommittedResultsFollowFromTheirRuns(t *testing.T) {
	h := Harness()
	for _, file := range committed(t) {
		if *judgeAgain {
			rejudge(t, file)
		}
		wrong, err := bench.Verify(file, &h)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", file, w)
		}
	}
}

// rejudge gives the rows of a result their targets of now, and judges them. Runs and figures stay.
func rejudge(t *testing.T, file string) {
	t.Helper()
	r, err := bench.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Suites {
		row := &r.Suites[i]
		for _, s := range Suites() {
			for k := range s.Rows {
				if s.Name == row.Suite && s.Rows[k].Name == row.Row {
					row.Targets = slices.Clone(s.Rows[k].Targets)
				}
			}
		}
	}
	r.Verdicts = Judge(r, strings.Contains(r.Command, "--judge-targets"), strings.Contains(r.Command, "--require-reference"))
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if strings.HasSuffix(file, ".gz") {
		b = packed(t, b)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// packed is what gzip -9 --no-name makes of b.
func packed(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Committed results are a part of every clone: they are packed, in the same bytes wherever that was done, and stay within a size.
func TestCommittedResultsArePackedAndSmall(t *testing.T) {
	const most = 6 << 20 // bytes of all
	all := 0
	for _, file := range committed(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += len(b)
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Errorf("%s: must be packed, by gzip -9 --no-name: %v", file, err)
			continue
		}
		if r.Name != "" || !r.ModTime.IsZero() {
			t.Errorf("%s: must be packed without a name and a time, by gzip -9 --no-name", file)
		}
	}
	if all > most {
		t.Errorf("committed results have %d bytes, over %d: drop what newer ones supersede", all, most)
	}
}

// A host has one result of a row that pages quote, apart from rows that were measured again with others.
func TestACommittedResultIsQuotedAndNotSuperseded(t *testing.T) {
	type one struct {
		file    string
		started time.Time
		rows    []string
	}
	hosts := map[string][]one{}
	for _, file := range committed(t) {
		r, err := bench.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		dir, name := filepath.Split(file)
		if quoted, err := os.ReadFile(filepath.Join(dir, report.BaselineFile)); err != nil || !slices.Contains(strings.Fields(string(quoted)), name) {
			t.Errorf("%s is not named by %s: no page quotes it", file, report.BaselineFile)
		}
		o := one{file: file, started: r.Started}
		for i := range r.Suites {
			s := &r.Suites[i]
			o.rows = append(o.rows, s.Suite+"/"+s.Row+" "+s.Durability)
		}
		hosts[dir] = append(hosts[dir], o)
	}
	for _, all := range hosts {
		for _, old := range all {
			for _, o := range all {
				if o.started.After(old.started) && !slices.ContainsFunc(old.rows, func(row string) bool { return !slices.Contains(o.rows, row) }) {
					t.Errorf("%s has every row of %s, and is newer: drop the older result", o.file, old.file)
				}
			}
		}
	}
}

// object is a result as text has it.
type object = map[string]any

func firstRow(r object) object { return r["suites"].([]any)[0].(object) }

func firstRun(r object) object { return firstRow(r)["runs"].([]any)[0].(object) }

// wholeResult is a committed result that was not interrupted: it has verdicts that are final.
func wholeResult(t *testing.T) []byte {
	t.Helper()
	for _, file := range committed(t) {
		raw, err := bench.ReadResult(file)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Partial  bool  `json:"partial"`
			Verdicts []any `json:"verdicts"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Partial && len(r.Verdicts) > 0 {
			return raw
		}
	}
	t.Fatal("no committed result is whole and has verdicts")
	return nil
}

func TestAResultThatWasTouchedDoesNotHold(t *testing.T) {
	raw := wholeResult(t)
	h := Harness()
	for what, c := range map[string]struct {
		spoil func(r object)
		want  string
	}{
		"a run's rate":       {func(r object) { metricOf(firstRow(r))["value"] = 1e9 }, "is made of"},
		"a run left out":     {func(r object) { firstRun(r)["excluded"] = []any{object{"cause": "steal"}} }, "is made of"},
		"a missing audit":    {func(r object) { delete(firstRun(r), "audit") }, "not audited"},
		"a failed audit":     {func(r object) { firstRun(r)["audit"].(object)["violations"] = []any{"lost: t1"} }, "audit is called ok"},
		"a durability":       {func(r object) { firstRow(r)["durability"] = "none×1" }, "its label says"},
		"a field of no form": {func(r object) { r["speed"] = "fast" }, "schema"},
		"another schema":     {func(r object) { r["schema"] = "millrace.bench/2" }, "schema"},
		"a verdict's status": {func(r object) {
			v := r["verdicts"].([]any)[0].(object)
			if v["status"] == "inverted" {
				v["status"] = "healthy"
			} else {
				v["status"] = "inverted"
			}
		}, "verdict on"},
		"a target that is met": {func(r object) {
			for _, row := range r["suites"].([]any) {
				targets, _ := row.(object)["targets"].([]any)
				for _, one := range targets {
					if met, ok := one.(object)["must_met"].(bool); ok {
						one.(object)["must_met"] = !met
						return
					}
				}
			}
		}, "target"},
	} {
		var r object
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		c.spoil(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "result.json")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		wrong, err := bench.Verify(file, &h)
		if err != nil || !strings.Contains(strings.Join(wrong, "\n"), c.want) {
			t.Errorf("%s: %q, %v; want %q", what, wrong, err, c.want)
		}
	}
}

// metricOf is the headline of the first run of a row that counts.
func metricOf(row object) object {
	for _, one := range row["runs"].([]any) {
		run := one.(object)
		if _, left := run["excluded"]; left {
			continue
		}
		return run["metrics"].(object)[row["headline"].(string)].(object)
	}
	return nil
}
