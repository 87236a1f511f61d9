package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/millrace/millrace/bench"
)

var update = flag.Bool("update", false, "write the golden files and the reference page")

func render(t *testing.T, format string, r *bench.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, format, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -update writes it again, then read the diff:\n%s", path, got)
	}
}

func TestEveryFormatIsAsInItsGoldenFile(t *testing.T) {
	for format, name := range map[string]string{
		"md": "report.md", "json": "result.json", "gobench": "bench.txt", "csv": "report.csv", "text": "report.txt", "html": "report.html",
	} {
		golden(t, name, render(t, format, sample(t)))
	}
}

func TestUnknownFormatIsRefusedByName(t *testing.T) {
	err := Write(&bytes.Buffer{}, "xml", sample(t))
	var usage *bench.UsageError
	if !errors.As(err, &usage) || usage.Field != "format" {
		t.Errorf("error %v", err)
	}
}

func TestReportFromTheRawResultIsTheSameByteForByte(t *testing.T) {
	dir := t.TempDir()
	r := sample(t)
	if err := os.WriteFile(filepath.Join(dir, ResultFile), []byte(render(t, "json", r)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Render(dir, r); err != nil {
		t.Fatal(err)
	}
	again, err := bench.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for format, name := range map[string]string{"md": MarkdownFile, "html": HTMLFile, "gobench": BenchFile, "json": ResultFile} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, format, again); got != string(want) {
			t.Errorf("%s differs when it is rendered again", name)
		}
	}
	var env bench.Env
	b, err := os.ReadFile(filepath.Join(dir, EnvFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &env); err != nil || env.Host.CPU != r.Env.Host.CPU {
		t.Errorf("env.json holds %+v, %v", env, err)
	}
}

func TestResultOfAnotherSchemaIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{"schema":"millrace.bench/2"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Load(path); err == nil || !strings.Contains(err.Error(), "millrace.bench/2") {
		t.Errorf("error %v", err)
	}
}

// rate is a number with a unit per second; class is a durability.
var (
	rate  = regexp.MustCompile(`[0-9][^ ]* [a-z]+/s\b`)
	class = regexp.MustCompile(`(fsync|none)×[1-9]|durability[= ](fsync|none|not stated)`)
)

func TestNoFormatPrintsARateWithoutItsDurability(t *testing.T) {
	r := sample(t)
	r.Suites[0].Reference = append(r.Suites[0].Reference, bench.Reference{System: "codeQ", Name: "x", Value: 83_420, Unit: "cycles/s"})
	for _, format := range []string{"md", "gobench", "text"} {
		rates := 0
		for n, line := range strings.Split(render(t, format, r), "\n") {
			if rate.MatchString(line) {
				rates++
				if !class.MatchString(line) {
					t.Errorf("%s:%d: a rate without durability: %s", format, n+1, line)
				}
			}
		}
		if rates < 5 {
			t.Errorf("%s: only %d lines with a rate were looked at", format, rates)
		}
	}
	records, err := csv.NewReader(strings.NewReader(render(t, "csv", r))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for n, rec := range records[1:] {
		if !class.MatchString(rec[2]) || rec[3] == "" || rec[4] == "" {
			t.Errorf("csv:%d: a value without durability, topology or validity: %q", n+2, rec)
		}
	}
	var tree any
	if err := json.Unmarshal([]byte(render(t, "json", r)), &tree); err != nil {
		t.Fatal(err)
	}
	if n := labelled(t, "$", tree, false); n < 20 {
		t.Errorf("json: only %d rates were looked at", n)
	}
}

// labelled walks JSON: an object with a unit per second is below, or is, an object with durability.
func labelled(t *testing.T, path string, v any, known bool) (rates int) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if d, ok := v["durability"].(string); ok && d != "" {
			known = true
		}
		if unit, ok := v["unit"].(string); ok && strings.HasSuffix(unit, "/s") {
			rates++
			if !known {
				t.Errorf("json: %s: a rate without durability", path)
			}
		}
		for k, child := range v {
			rates += labelled(t, path+"."+k, child, known)
		}
	case []any:
		for i, child := range v {
			rates += labelled(t, fmt.Sprintf("%s[%d]", path, i), child, known)
		}
	}
	return rates
}

func TestRunsThatWereLeftOutAreShownWithTheirCause(t *testing.T) {
	r := sample(t)
	for _, format := range []string{"md", "html", "json", "csv", "text", "gobench"} {
		text := render(t, format, r)
		for _, want := range []string{"clock_jump", "steal", "the server ended"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", format, want)
			}
		}
	}
}

func TestBenchstatReadsTheBenchmarkText(t *testing.T) {
	r := sample(t)
	in := benchfmt.NewReader(strings.NewReader(render(t, "gobench", r)), "bench.txt")
	names := make(map[string]int)
	for in.Scan() {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("line %v", rec)
		case *benchfmt.Result:
			names[string(rec.Name)]++
			if rec.GetConfig("commit") != "abcdef0" || rec.GetConfig("cpu") != "Example CPU @ 2.0 GHz" {
				t.Errorf("%s lacks its configuration", rec.Name)
			}
			if strings.HasPrefix(string(rec.Name), "QueueCycle") {
				for _, unit := range []string{"sec/op", "cycles/s", "p99-us", "claim-p99-us"} {
					if _, ok := rec.Value(unit); !ok {
						t.Errorf("%s has no %s: %v", rec.Name, unit, rec.Values)
					}
				}
				if v, _ := rec.Value("cycles/s"); v < 44_000 {
					t.Errorf("%s: %v cycles/s", rec.Name, v)
				}
			}
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"QueueCycle/durability=fsync/nodes=1/shards=1/batch=1-2":  6,
		"QueueCycle/durability=fsync/nodes=1/shards=1/batch=32-2": 3,
		"QueueCycle/durability=none/nodes=1/shards=1/batch=1-2":   1,
		"QueueCodec/durability=none/row=ours-64-2":                1,
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("lines %v, want %v", names, want)
	}
}

func TestTargetsAreShownAsMetOrMissed(t *testing.T) {
	text := render(t, "md", sample(t))
	for _, want := range []string{
		"cycles_per_s (cycles/s, fsync×1): must ≥ 45,000 met, aim ≥ 60,000 missed [queue targets], printed only",
		"cpu_us_per_cycle (µs/cycle, fsync×1): must ≤ 20.0 undecided [bench targets]",
		"must ≥ 45,000 met, aim ≥ 60,000 missed; cpu_us_per_cycle must ≤ 20.0 undecided |",
		"create_fdatasync_ratio (fsync×1): must ≤ 5.00 not measured, aim ≤ 4.00 not measured [queue targets]",
		"**FAIL inverted** group commit ÷ capped, parallelism 16 (a side is a lower bound) = 0.90",
		"**no verdict** stream ÷ REST creates: queue.transport/stream creates_per_s (not measured)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}

func TestInterruptedResultSaysSo(t *testing.T) {
	r := sample(t)
	if text := render(t, "md", r); !strings.Contains(text, "**Partial**") {
		t.Error("a partial report does not say so")
	}
	r.Partial = false
	if text := render(t, "md", r); strings.Contains(text, "**Partial**") {
		t.Error("a whole report says that it is partial")
	}
}

func TestEmptyResultRenders(t *testing.T) {
	for _, format := range Formats() {
		render(t, format, &bench.Result{Schema: bench.Schema})
	}
}
