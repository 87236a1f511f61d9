package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Pairs of an interleaved comparison.
const (
	DefaultPairs = 6
	deciding     = 6 // fewer pairs have no interval of 95 %
	maxPairs     = 50
)

// Pair is one run of each side, one after the other.
type Pair struct {
	BaseFirst bool    `json:"base_first"`
	Base      float64 `json:"base"`
	Head      float64 `json:"head"`
	Ratio     float64 `json:"ratio"` // head ÷ base
}

// AB is one row of two programs that were measured in turn.
type AB struct {
	Suite      string  `json:"suite"`
	Row        string  `json:"row"`
	Durability string  `json:"durability"`
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit"`
	Pairs      []Pair  `json:"pairs"`
	Left       int     `json:"left_out"` // pairs of which a run does not count
	Ratio      Figure  `json:"ratio"`    // head ÷ base, median of the pairs
	Low        float64 `json:"ci95_low,omitempty"`
	High       float64 `json:"ci95_high,omitempty"`
	Word       string  `json:"word"` // no change, better, worse, cannot decide
	Why        string  `json:"why"`
}

// ABResult is what two programs did in turn. Both sides' results lie below the output directory, in base and head.
type ABResult struct {
	Command string `json:"command"`
	Seed    uint64 `json:"seed"`
	Base    string `json:"base"` // program, or address
	Head    string `json:"head"`
	Rows    []AB   `json:"rows"`
	Exit    int    `json:"exit"`
}

// abSide is one of the two programs.
type abSide struct {
	u    *runner
	name string
}

// Against measures the rows that c chooses in pairs: each pair has one run of the program or server named base, and one of
// c's own, in an order drawn from the seed. Errors: as of Execute.
func Against(ctx context.Context, c Config, h Harness, base string, pairs int) (*ABResult, error) {
	if pairs < 1 || pairs > maxPairs {
		return nil, usage("pairs", "%d is not in 1..%d", pairs, maxPairs)
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.nameOut()
	other, err := c.against(base)
	if err != nil {
		return nil, err
	}
	c.Runs, other.Runs = pairs, pairs
	specs, err := choose(&c, &h)
	if err != nil {
		return nil, err
	}
	for i := range specs {
		if specs[i].suite.Local {
			return nil, usage("suite", "%s measures the bench process itself: two programs cannot be compared", specs[i].suite.Name)
		}
	}
	if err := c.checkOut(); err != nil {
		return nil, err
	}
	if err := c.checkRoom(specs); err != nil {
		return nil, err
	}
	out := &ABResult{Command: c.Command, Seed: c.Seed, Base: base, Head: c.sideName()}
	sides := [2]*abSide{{name: "base"}, {name: "head"}}
	for i, config := range []Config{other, c} {
		config.Out = filepath.Join(c.Out, sides[i].name)
		if sides[i].u, err = newRunner(ctx, &config, &h); err != nil {
			return nil, err
		}
	}
	order := rand.New(rand.NewPCG(c.Seed, c.Seed))
	for i := range specs {
		row, err := abRow(ctx, sides, &specs[i], pairs, order)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, *row)
		c.say("%s %s: %s", &specs[i], row.Word, row.Why)
	}
	for _, s := range sides {
		s.u.r.Finished = time.Now().UTC()
		if err := s.u.save(); err != nil {
			return nil, &CannotError{err}
		}
	}
	out.Exit = out.exit(sides)
	if ctx.Err() != nil {
		out.Exit = ExitInterrupted
	}
	return out, nil
}

// against is the configuration of the other side: a program, or a server that runs where one runs on this side too.
func (c *Config) against(base string) (Config, error) {
	other := *c
	if info, err := os.Stat(base); err == nil && !info.IsDir() {
		if c.Target != "" {
			return other, usage("base", "%s is a program, and the other side is a server that runs: give two of one kind", base)
		}
		abs, err := filepath.Abs(base)
		other.Executable = abs
		return other, err
	}
	address := strings.TrimPrefix(base, "http://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return other, usage("base", "%q is neither a program nor HOST:PORT", base)
	}
	if c.Target == "" {
		return other, usage("target", "%s is a server that runs: name the other one by --target", base)
	}
	other.Target = address
	return other, nil
}

func (c *Config) sideName() string {
	switch {
	case c.Target != "":
		return c.Target
	case c.Executable != "":
		return c.Executable
	}
	return "this program"
}

// abRow measures pairs until enough of them count, twice as many at most.
func abRow(ctx context.Context, sides [2]*abSide, spec *runSpec, pairs int, order *rand.Rand) (*AB, error) {
	var rows [2]*Row
	for i, s := range sides {
		s.u.r.Suites = append(s.u.r.Suites, s.u.newRow(spec))
		rows[i] = &s.u.r.Suites[len(s.u.r.Suites)-1]
	}
	ab := &AB{Suite: spec.suite.Name, Row: spec.row.Name, Durability: spec.class(), Metric: rows[0].Headline}
	for n := 1; n <= 2*pairs && len(ab.Pairs) < pairs && ctx.Err() == nil; n++ {
		baseFirst := order.IntN(2) == 0
		turns := [2]int{0, 1}
		if !baseFirst {
			turns = [2]int{1, 0}
		}
		var runs [2]*Run
		for _, i := range turns {
			run, err := sides[i].u.run(ctx, spec, n, false)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return nil, abError(sides[i].name, spec, err)
			}
			runs[i] = run
			rows[i].Runs = append(rows[i].Runs, *run)
			sides[i].u.finish(spec, rows[i])
		}
		if runs[0] != nil && runs[1] != nil {
			ab.add(runs, baseFirst)
			sides[0].u.c.say("%s pair %d: %s", spec, n, ab.pairLine(runs))
		}
	}
	return ab, ab.judge(spec)
}

// abError keeps what a command line got wrong apart from what could not be measured.
func abError(side string, spec *runSpec, err error) error {
	if lie, ok := errors.AsType[*UsageError](err); ok {
		return lie
	}
	return &CannotError{fmt.Errorf("%s, %s: %w", spec, side, err)}
}

// add takes one pair, of which both runs must count.
func (ab *AB) add(runs [2]*Run, baseFirst bool) {
	a, okA := runs[0].Metrics[ab.Metric]
	b, okB := runs[1].Metrics[ab.Metric]
	bad := func(r *Run) bool { return !r.Counts() || len(r.Errors) > 0 || r.Audit != nil && !r.Audit.OK }
	if bad(runs[0]) || bad(runs[1]) || !okA || !okB || a.Value <= 0 {
		ab.Left++
		return
	}
	ab.Unit = a.Unit
	ab.Pairs = append(ab.Pairs, Pair{baseFirst, a.Value, b.Value, b.Value / a.Value})
}

func (ab *AB) pairLine(runs [2]*Run) string {
	v := func(r *Run) string { return Number(r.Metrics[ab.Metric].Value) }
	unit := runs[0].Metrics[ab.Metric].Unit
	return fmt.Sprintf("base %s, head %s %s, %s; %d pairs count, %d are left out", v(runs[0]), v(runs[1]), unit, ab.Durability, len(ab.Pairs), ab.Left)
}

// judge decides by the pairs' ratios: a change is one whose 95 % interval has no 1 in it, and whose median is 3 % at least.
func (ab *AB) judge(spec *runSpec) error {
	ab.Word = Unclear
	if len(ab.Pairs) == 0 {
		ab.Why = fmt.Sprintf("no pair of runs counts, %d are left out", ab.Left)
		return nil
	}
	ratios := make([]float64, len(ab.Pairs))
	for i, p := range ab.Pairs {
		ratios[i] = p.Ratio
	}
	var err error
	if ab.Ratio, err = NewFigure(spec.label(Valid), "×", ratios...); err != nil {
		return fmt.Errorf("ratios of %s: %w", spec, err)
	}
	change := 100 * (ab.Ratio.Median() - 1)
	low, high, ok := ab.Ratio.Interval()
	if !ok {
		ab.Why = fmt.Sprintf("%+.1f %%, by %d pairs; %d decide", change, len(ab.Pairs), deciding)
		return nil
	}
	ab.Low, ab.High = low, high
	ab.Why = fmt.Sprintf("%+.1f %%, 95 %% interval %+.1f to %+.1f %%, %d pairs, %s", change, 100*(low-1), 100*(high-1), len(ab.Pairs), ab.Durability)
	up := ab.Ratio.Median() > 1
	switch {
	case low <= 1 && high >= 1 || change < 100*compareChange && change > -100*compareChange:
		ab.Word = Unchanged
	case up == moreIsBetter(ab.Unit):
		ab.Word = Better
	default:
		ab.Word = Worse
	}
	return nil
}

// exit is the worst of what happened: a failed audit, errors or a regression, nothing decided.
func (r *ABResult) exit(sides [2]*abSide) int {
	code := ExitOK
	for i := range r.Rows {
		switch word := r.Rows[i].Word; {
		case word == Worse:
			code = ExitFail
		case word == Unclear && code == ExitOK:
			code = ExitNoVerdict
		}
	}
	for _, s := range sides {
		for i := range s.u.r.Suites {
			for _, run := range s.u.r.Suites[i].Runs {
				if run.Audit != nil && !run.Audit.OK {
					return ExitAudit
				}
				if run.Failed != "" || len(run.Errors) > 0 {
					code = ExitFail
				}
			}
		}
	}
	return code
}

// WriteAB prints what was found, a line per row.
func WriteAB(w io.Writer, r *ABResult) error {
	var b strings.Builder
	fmt.Fprintf(&b, "base %s\nhead %s\n", r.Base, r.Head)
	for i := range r.Rows {
		ab := &r.Rows[i]
		fmt.Fprintf(&b, "%-13s %s/%s %s, %s: %s\n", ab.Word, ab.Suite, ab.Row, ab.Metric, ab.Durability, ab.Why)
		for _, p := range ab.Pairs {
			first := "head first"
			if p.BaseFirst {
				first = "base first"
			}
			fmt.Fprintf(&b, "    %s: base %s, head %s %s · %s, ratio %.3f\n", first, Number(p.Base), Number(p.Head), ab.Unit, ab.Durability, p.Ratio)
		}
	}
	fmt.Fprintf(&b, "Again: %s (seed %d)\n", r.Command, r.Seed)
	_, err := io.WriteString(w, b.String())
	return err
}
