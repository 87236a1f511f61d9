package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
)

// drawn walks an HTML report as XML, which it must be, and counts the data points of each plot by its title. It fails on
// anything that a browser would fetch or run.
func drawn(t *testing.T, page string) map[string]int {
	t.Helper()
	out := map[string]int{}
	in := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!DOCTYPE html>")))
	in.Entity = xml.HTMLEntity
	plot := ""
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the page is no XML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				switch {
				case a.Name.Local == "src", a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#"), strings.HasPrefix(a.Name.Local, "on"):
					t.Errorf("<%s %s=%q> leaves the page", e.Name.Local, a.Name.Local, a.Value)
				case e.Name.Local == "svg" && a.Name.Local == "aria-label":
					plot = fmt.Sprintf("%s #%d", a.Value, len(out))
					out[plot] = 0
				case a.Name.Local == "data-point":
					n, err := strconv.Atoi(a.Value)
					if err != nil {
						t.Errorf("data-point %q", a.Value)
					}
					out[plot] += n
				case strings.Contains(a.Value, "NaN"), strings.Contains(a.Value, "Inf"):
					t.Errorf("%s: <%s %s=%q>", plot, e.Name.Local, a.Name.Local, a.Value)
				}
			}
			if e.Name.Local == "script" || e.Name.Local == "link" || e.Name.Local == "img" {
				t.Errorf("<%s> in the page", e.Name.Local)
			}
		case xml.EndElement:
			if e.Name.Local == "svg" {
				plot = ""
			}
		}
	}
}

func TestEachPlotOfTheHTMLReportHoldsData(t *testing.T) {
	results, err := bench.ResultFiles("../results/*")
	if err != nil || len(results) == 0 {
		t.Fatalf("no committed results: %v", err)
	}
	for _, file := range results {
		r, err := bench.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		plots := drawn(t, render(t, "html", r))
		if len(plots) < len(r.Suites) {
			t.Errorf("%s: %d plots of %d rows", file, len(plots), len(r.Suites))
		}
		for name, points := range plots {
			if points == 0 {
				t.Errorf("%s: plot %s is empty", file, name)
			}
		}
	}
}

// lines makes a suite whose rows differ in a number, with a published line next to ours.
func lines(t *testing.T, values ...float64) *bench.Result {
	t.Helper()
	r := &bench.Result{Schema: bench.Schema, ID: "x", Env: environment()}
	for i, v := range values {
		n := 32 << i
		row := bench.Row{
			Suite: "kv.aurora.len", Row: fmt.Sprintf("value-%d", n), Durability: "fsync×1", Headline: "puts_per_s",
			Label: label1(bench.Fsync, bench.Valid), Summary: fig(t, bench.Fsync, bench.Valid, "puts/s", v),
			Reference: []bench.Reference{{System: "Aurora", Name: "chart", Value: v / 3, Unit: "puts/s", Note: "none×3"}},
			Runs:      []bench.Run{{Number: 1, Metrics: map[string]bench.Metric{"puts_per_s": {Value: v, Unit: "puts/s"}}, Latency: map[string]bench.Latency{"put": {P50: 900, P99: 2000}}}},
		}
		r.Suites = append(r.Suites, row)
	}
	return r
}

func TestRowsThatDifferInANumberAreOneCurveBesideThePublishedOne(t *testing.T) {
	page := render(t, "html", lines(t, 60_000, 58_000, 50_000))
	plots := drawn(t, page)
	if got := plots["kv.aurora.len/value #0"]; got != 12 { // two lines of three points, each with its dots
		t.Errorf("the curve has %d data points, want 12; plots %v", got, plots)
	}
	for _, want := range []string{"Aurora, chart (published)", "kv.aurora.len/value, latency"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if page := render(t, "html", lines(t, 60_000, 58_000)); strings.Contains(page, "kv.aurora.len/value, latency") {
		t.Error("two rows make a curve")
	}
}

func TestRowsThatDifferInTheirVotersAreOneCurve(t *testing.T) {
	r := lines(t, 60_000, 50_000, 40_000)
	for i := range r.Suites {
		row := &r.Suites[i]
		l := row.Label
		l.Voters = 3 + i
		f, err := bench.NewFigure(l, "puts/s", row.Summary.Values()...)
		if err != nil {
			t.Fatal(err)
		}
		row.Suite, row.Row, row.Label, row.Summary, row.Durability = "kv.aurora.followers", fmt.Sprintf("followers-%d", 2+i), l, f, l.Class()
	}
	page := render(t, "html", r)
	if got := drawn(t, page)["kv.aurora.followers/followers #0"]; got != 12 {
		t.Errorf("the curve has %d data points, want 12", got)
	}
	for _, want := range []string{"puts/s, fsync×3 to fsync×5", "followers-3: 50,000 puts/s · fsync×4"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestTheHTMLReportPrintsNoRateWithoutItsDurability(t *testing.T) {
	r := sample(t)
	r.Suites[0].Reference = append(r.Suites[0].Reference, bench.Reference{System: "codeQ", Name: "x", Value: 83_420, Unit: "cycles/s"})
	rates := 0
	for _, element := range regexp.MustCompile(`</(tr|p|title|text)>`).Split(render(t, "html", r), -1) {
		if rate.MatchString(element) {
			rates++
			if !class.MatchString(element) {
				t.Errorf("a rate without durability: %s", element)
			}
		}
	}
	if rates < 10 {
		t.Errorf("only %d elements with a rate were looked at", rates)
	}
}

func TestTextOfAResultIsNoMarkup(t *testing.T) {
	r := sample(t)
	r.Command, r.Suites[0].Title, r.Suites[0].Runs[0].Failed = `<script>alert(1)</script>`, `"><img src=x>`, "a<b"
	page := render(t, "html", r)
	drawn(t, page)
	if bytes.Contains([]byte(page), []byte("<script>")) {
		t.Error("a script stands in the page")
	}
}

func TestAxesAreRound(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.2: 2, 2.1: 5, 7: 10, 11_000: 20_000} {
		if got := niceStep(v); got != want {
			t.Errorf("a step for %v is %v, want %v", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 3: "3", 0.25: "0.25", 1500: "1,500", 20_000: "20k", 1_250_000: "1.25M"} {
		if got := short(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}
