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

// A pair is two runs, one of each side, close together in time: what drifts on the host hits both alike, and
// their ratio keeps only the difference of the programs. Pairs of an interleaved comparison.
const (
	DefaultPairs = 6
	// deciding is the least number of pairs that a 95 % interval can be made of; see
	// Figure.Interval.
	deciding = 6
	maxPairs = 50
)

// Pair is one run of each side, one after the other.
type Pair struct {
	// BaseFirst says which side ran first. It is drawn from the seed for each pair, so that an effect of the
	// order evens out over the pairs. Base and Head are the headline metric of each side.
	BaseFirst bool    `json:"base_first"`
	Base      float64 `json:"base"`
	Head      float64 `json:"head"`
	// Ratio is head ÷ base.
	Ratio float64 `json:"ratio"`
}

// AB is one row of two programs that were measured in turn.
type AB struct {
	Suite      string `json:"suite"`
	Row        string `json:"row"`
	Durability string `json:"durability"`
	Metric     string `json:"metric"`
	Unit       string `json:"unit"`
	Pairs      []Pair `json:"pairs"`
	// Left counts pairs that were measured and dropped, because a run of them does not count.
	Left int `json:"left_out"`
	// Ratio has the head ÷ base of each pair, as a figure whose median is the verdict's value.
	Ratio Figure `json:"ratio"`
	// Low and High are the 95 % interval of the median ratio; both are 0 below deciding pairs.
	Low  float64 `json:"ci95_low,omitempty"`
	High float64 `json:"ci95_high,omitempty"`
	// Word is one of Unchanged, Better, Worse and Unclear; Why gives the numbers behind it.
	Word string `json:"word"`
	Why  string `json:"why"`
}

// ABResult is what two programs did in turn. Both sides' results lie below the output directory, in base and head.
type ABResult struct {
	Command string `json:"command"`
	Seed    uint64 `json:"seed"`
	// Base and Head are the path of a program, or the address of a server.
	Base string `json:"base"`
	Head string `json:"head"`
	Rows []AB   `json:"rows"`
	Exit int    `json:"exit"`
}

// abSide is one of the two programs: a runner of its own, with an output directory and a result of
// its own, and the name that errors use (base or head).
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
		s.u.judge()
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

// sideName names what c itself measures, for the result: a target's address, a program's path, or
// this program.
func (c *Config) sideName() string {
	switch {
	case c.Target != "":
		return c.Target
	case c.Executable != "":
		return c.Executable
	}
	return "this program"
}

// abRow measures pairs of one row until enough of them count, twice as many at most. It stops
// between two runs when ctx ends, and judges the pairs that there are.
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

// abError wraps the error of a run. A *UsageError stays what it is, since the command line is
// wrong; all else becomes a *CannotError with side and row.
func abError(side string, spec *runSpec, err error) error {
	if lie, ok := errors.AsType[*UsageError](err); ok {
		return lie
	}
	return &CannotError{fmt.Errorf("%s, %s: %w", spec, side, err)}
}

// add takes one pair. Both runs must count, have no errors and no failed audit, and have the headline metric,
// of which that of base must be above 0; otherwise the pair is only counted as left out.
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

// pairLine tells the newest pair in one line of progress.
func (ab *AB) pairLine(runs [2]*Run) string {
	v := func(r *Run) string { return Number(r.Metrics[ab.Metric].Value) }
	unit := runs[0].Metrics[ab.Metric].Unit
	return fmt.Sprintf("base %s, head %s %s, %s; %d pairs count, %d are left out", v(runs[0]), v(runs[1]), unit, ab.Durability, len(ab.Pairs), ab.Left)
}

// judge decides by the pairs' ratios. A row changed when the 95 % interval of the median ratio excludes 1, and
// the median moved by 3 % at least. Ratios are judged and not values, since each pair has seen the same host.
// Which direction is better depends on the unit. Error: the ratios make no figure.
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

// exit is the worst of what happened, from worst to best: a failed audit of any run, errors or a
// regression, a row that could not be decided.
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
