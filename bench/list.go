package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Listed is one row of the list of what can be measured, as `bench list --json` prints it.
type Listed struct {
	Suite    string  `json:"suite"`
	Row      string  `json:"row"`
	Title    string  `json:"title"`
	Priority string  `json:"priority"`
	Built    bool    `json:"built"`
	Shape    []Param `json:"shape"`
	Window   string  `json:"window"`
	// Later is the window of runs after the first that counts, if it is another.
	Later      string      `json:"later_window,omitempty"`
	References []Reference `json:"references"`
	Targets    []Target    `json:"targets"`
	Profiles   []string    `json:"profiles"`
	// Minutes is the expected time of the whole suite in the profile seeds.
	Minutes float64 `json:"minutes"`
}

// Listing returns every row of the suites.
func Listing(suites []Suite) []Listed {
	var out []Listed
	for _, s := range suites {
		for _, r := range s.Rows {
			window := r.Window
			if window == 0 {
				window = s.Window
			}
			later := ""
			if r.Later != 0 {
				later = r.Later.String()
			}
			out = append(out, Listed{
				Suite: s.Name, Row: r.Name, Title: r.Title, Priority: s.Priority, Built: s.Built() && r.Lacks == "", Shape: r.Shape.Params(),
				Window: window.String(), Later: later, References: orEmpty(r.References), Targets: orEmpty(r.Targets), Profiles: orEmpty(r.Profiles),
				Minutes: s.Minutes,
			})
		}
	}
	return out
}

// Narrow keeps the suites and rows that the patterns match (names or globs, as a run takes them);
// without patterns it keeps all. A pattern that matches nothing is a *UsageError. The suites it is
// given are not changed.
func Narrow(suites []Suite, patterns []string) ([]Suite, error) {
	if len(patterns) == 0 {
		return suites, nil
	}
	var out []Suite
	matched := make([]bool, len(patterns))
	for _, s := range suites {
		all := s.Rows
		s.Rows = nil
		for _, row := range all {
			named := false
			for k, pattern := range patterns {
				if matchRow(pattern, s.Name, row.Name) {
					named, matched[k] = true, true
				}
			}
			if named {
				s.Rows = append(s.Rows, row)
			}
		}
		if len(s.Rows) > 0 {
			out = append(out, s)
		}
	}
	if k := slices.Index(matched, false); k >= 0 {
		return nil, usage("suite", "%q is not known; nearest: %s", patterns[k], strings.Join(Nearest(patterns[k], rowNames(suites)), ", "))
	}
	return out, nil
}

// orEmpty makes an empty list of none: JSON then has [] and not null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// WriteList prints every suite with its rows, published figures and targets.
func WriteList(w io.Writer, suites []Suite) error {
	var b strings.Builder
	for _, s := range suites {
		state := ""
		switch {
		case s.Built():
		case s.Peer != "":
			state = " (by millrace-peers, against " + s.Peer + ")"
		default:
			state = " (not built yet)"
		}
		fmt.Fprintf(&b, "%s  %s%s", s.Name, s.Title, state)
		if s.Minutes > 0 {
			fmt.Fprintf(&b, "  about %s min in seeds", Number(s.Minutes))
		}
		b.WriteByte('\n')
		for _, r := range s.Rows {
			fmt.Fprintf(&b, "  %-24s %s", r.Name, r.Title)
			if len(r.Profiles) > 0 {
				fmt.Fprintf(&b, "  [%s]", strings.Join(r.Profiles, " "))
			}
			b.WriteByte('\n')
			if r.Lacks != "" {
				b.WriteString("    lacks     " + r.Lacks + "\n")
			}
			if params := r.Shape.Params(); len(params) > 0 {
				b.WriteString("    shape     ")
				for i, p := range params {
					if i > 0 {
						b.WriteByte(' ')
					}
					fmt.Fprintf(&b, "%s=%s", p.Name, p.Value)
				}
				b.WriteByte('\n')
			}
			for _, f := range r.References {
				fmt.Fprintf(&b, "    reference %s, %s: %s %s (%s)\n", f.System, f.Name, Number(f.Value), f.Unit, f.Note)
			}
			for _, t := range r.Targets {
				b.WriteString("    target    " + t.String() + "\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String prints what is to be reached.
func (t Target) String() string {
	sign := "≥"
	if t.AtMost {
		sign = "≤"
	}
	s := t.Metric
	if t.Durability != "" {
		s += " (" + t.Durability + ")"
	}
	if t.Must != 0 {
		s += fmt.Sprintf(" must %s %s", sign, Number(t.Must))
	}
	if t.Aim != 0 {
		s += fmt.Sprintf(" aim %s %s", sign, Number(t.Aim))
	}
	return s + ", " + t.Source
}
