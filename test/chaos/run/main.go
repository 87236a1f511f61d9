// Command run makes one piece of a campaign: N runs, or operations, of one fault row. It judges
// each run, appends one line to the row's results, and prints how far the campaign is.
//
// It exits with 1 when a promise was broken, 2 on wrong use, and 3 when the piece proved nothing.
//
// With -mutant the binary is built with planted bugs, as this program must have been for rows that
// start no process. Then nothing is added to the results, and it is a failure of the row that
// counts as success.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/test/chaos/campaign"
	"github.com/millrace/millrace/test/chaos/proc"
	"github.com/millrace/millrace/test/chaos/row"
)

// pieceWithin ends a piece between two runs; what is done by then counts.
const pieceWithin = time.Hour

// options are the flags of the command.
type options struct {
	row     string
	n       int
	seed    string
	mutant  string
	results string
	keep    bool
	brief   bool
}

func main() {
	var o options
	flag.StringVar(&o.row, "row", "", "row of faults, such as R-01")
	flag.IntVar(&o.n, "n", 0, "runs or operations, in the row's unit; 0 prints where the row stands")
	flag.StringVar(&o.seed, "seed", "", "seed of the piece; default random")
	flag.StringVar(&o.mutant, "mutant", "", "planted bug that the row must find")
	flag.StringVar(&o.results, "results", "", "folder of results; default test/chaos/results")
	flag.BoolVar(&o.keep, "keep", false, "keep the files of good runs too")
	flag.BoolVar(&o.brief, "brief", false, "faults that may last long are short, as in make check; nothing is added to the results")
	flag.Parse()
	code, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	os.Exit(code)
}

// run makes a piece as the options say, and returns the exit code. Without a number of runs it only
// prints where the row stands.
func run(o options) (int, error) {
	r, ok := campaign.Find(o.row)
	runner, can := row.Runners()[o.row]
	if !ok || !can {
		return 2, fmt.Errorf("no row %q; there are %s", o.row, known())
	}
	if err := row.Unable(o.row); err != nil && o.n > 0 {
		return 3, fmt.Errorf("this row cannot be run here: %w", err)
	}
	root, err := campaign.Root(".")
	if err != nil {
		return 2, err
	}
	if o.results == "" {
		o.results = filepath.Join(root, "test", "chaos", "results")
	}
	seed := campaign.Seed(rand.Uint64())
	if o.seed != "" {
		if err := seed.UnmarshalText([]byte(o.seed)); err != nil {
			return 2, err
		}
	}
	code, err := campaign.CodeHash(root, r)
	if err != nil {
		return 1, err
	}
	if o.n <= 0 {
		return 0, show(o.results, r, code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if runner.InProcess && o.mutant != "" {
		if err := os.Setenv("MILLRACE_MUTANT", o.mutant); err != nil {
			return 2, err
		}
	}
	p := &piece{o: o, row: r, how: runner, root: root, line: campaign.Line{
		Row: r.ID, Code: code, Commit: campaign.Commit(root), Seed: seed, Planned: o.n,
		Faults: map[string]int{}, Figures: map[string]float64{}, Host: campaign.Host(),
	}}
	err = p.make(ctx)
	return p.end(err)
}

// known lists the rows that can be run here.
func known() string {
	s := ""
	runners := row.Runners()
	for _, r := range campaign.Rows() {
		if _, can := runners[r.ID]; can {
			s += "\n  " + r.ID + ": " + r.What
		}
	}
	return s
}

// show prints where a row stands on a code.
func show(results string, r campaign.Row, code string) error {
	lines, err := campaign.Read(results, r.ID)
	if err != nil {
		return err
	}
	fmt.Println(campaign.Count(r, lines, code))
	return nil
}

// piece is one piece of a campaign: one call of this command.
type piece struct {
	o   options
	row campaign.Row
	// how is the way in which the row is run.
	how  row.How
	root string
	// line is what will be appended to the row's file.
	line campaign.Line
	// kept are the folders of runs whose files stay.
	kept []string
}

// make builds the programs and makes runs until the piece is done, its time is over, or ctx ends.
// Each run has a folder and a seed of its own.
func (p *piece) make(ctx context.Context) error {
	// Files of good runs are removed, and the whole folder with them when nothing is kept.
	dir, err := os.MkdirTemp("", "millrace-chaos-")
	if err != nil {
		return err
	}
	tags := "invariants"
	if p.o.mutant != "" {
		tags += ",mutants"
	}
	var bin, faults, worker, disk string
	if !p.how.InProcess {
		if bin, err = proc.Build(ctx, p.root, dir, tags); err != nil {
			return err
		}
		if p.how.Faults {
			if faults, err = proc.Build(ctx, p.root, dir, tags+",faults"); err != nil {
				return err
			}
		}
		if worker, err = proc.BuildWorker(ctx, p.root, dir); err != nil {
			return err
		}
		if p.how.Disk {
			if disk, err = proc.BuildDisk(ctx, p.root, dir); err != nil {
				return err
			}
		}
	}
	begin := time.Now()
	fmt.Printf("%s, SEED=%s, files in %s\n", p.row.ID, p.line.Seed, dir)
	for i := 0; p.line.Done < p.o.n && ctx.Err() == nil && time.Since(begin) < pieceWithin; i++ {
		seed := p.line.Seed.Run(i)
		e := row.Env{
			Binary: bin, Faults: faults, Worker: worker, Disk: disk, Dir: filepath.Join(dir, fmt.Sprintf("run-%03d", i)), Seed: uint64(seed), Mutant: p.o.mutant, Brief: p.o.brief,
			Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
		}
		if err := os.MkdirAll(e.Dir, 0o700); err != nil {
			return err
		}
		if err := p.once(ctx, e, seed); err != nil {
			return err
		}
		if p.o.mutant != "" && p.line.Violations > 0 {
			break // found
		}
	}
	p.line.Figures["seconds"] = time.Since(begin).Seconds()
	if len(p.kept) == 0 && !p.o.keep {
		return os.RemoveAll(dir)
	}
	return nil
}

// A run that proves nothing is told, and another one is made in its place, up to mostInvalid of
// them in a piece. invalidRuns is the figure that counts them.
const (
	invalidRuns = "invalid_runs"
	mostInvalid = 3
)

// once makes one run and adds what came of it to the line.
//
// What was stopped by ctx does not count, unless it found a violation. Violations count even in a
// run that proves nothing. An error means that the piece ends here.
func (p *piece) once(ctx context.Context, e row.Env, seed campaign.Seed) error {
	out, err := p.how.Run(ctx, e, min(p.how.Max, p.o.n-p.line.Done))
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped: what was done before counts
		}
		if notRun := (proc.NotRunError{}); errors.As(err, &notRun) {
			return errors.Join(err, os.RemoveAll(e.Dir))
		}
		p.kept = append(p.kept, e.Dir)
		return fmt.Errorf("run with SEED=%s: %w; files in %s", seed, err, e.Dir)
	}
	fmt.Printf("%s: %s\n", seed, out)
	if ctx.Err() != nil && len(out.Errors) == out.Violations() {
		return nil // it was stopped on its way: what could not be done then does not count as a failure
	}
	for kind, n := range out.Faults {
		p.line.Faults[kind] += n
	}
	for name, v := range out.Figures {
		p.line.Figures[name] = max(p.line.Figures[name], v)
	}
	if out.Violations() > 0 {
		p.line.Violations += out.Violations()
		p.line.Failed = append(p.line.Failed, seed)
	}
	for _, look := range out.Look {
		fmt.Println(look)
	}
	if out.Violations() > 0 || out.Invalid != "" || len(out.Look) > 0 {
		p.kept = append(p.kept, e.Dir)
		fmt.Printf("ledgers, log and data are kept in %s\n", e.Dir)
	} else if !p.o.keep {
		if err := os.RemoveAll(e.Dir); err != nil {
			return err
		}
	}
	if out.Invalid != "" {
		if out.Violations() == 0 && p.line.Figures[invalidRuns] < mostInvalid {
			p.line.Figures[invalidRuns]++ // the machine was too busy for a judgement: another run takes its place
			return nil
		}
		p.line.Invalid = out.Invalid
		return errors.New("the run proves nothing: " + out.Invalid)
	}
	if out.Done == 0 {
		p.line.Invalid = "nothing was done"
		return errors.New("the run did nothing")
	}
	p.line.Done += out.Done
	p.line.Windows += out.Windows
	return nil
}

// end writes the piece's line and prints where the row stands. With a planted bug nothing is
// written, and finding it is the success. It returns the exit code of the command.
func (p *piece) end(failed error) (int, error) {
	if p.o.mutant != "" {
		if p.line.Violations > 0 {
			fmt.Printf("%s found %s\n", p.row.ID, p.o.mutant)
			return 0, nil
		}
		return 1, errors.Join(failed, fmt.Errorf("%s did not find %s in %d %s", p.row.ID, p.o.mutant, p.line.Done, p.row.Unit))
	}
	if made := p.line.Done > 0 || p.line.Violations > 0 || p.line.Invalid != ""; made && !p.o.brief {
		p.line.Time = time.Now().UTC().Truncate(time.Second)
		if err := campaign.Append(p.o.results, p.line); err != nil {
			return 1, errors.Join(failed, err)
		}
	}
	if err := show(p.o.results, p.row, p.line.Code); err != nil {
		return 1, errors.Join(failed, err)
	}
	switch {
	case p.line.Violations > 0:
		return 1, errors.Join(failed, fmt.Errorf("%d violations", p.line.Violations))
	case p.line.Invalid != "":
		return 3, failed
	case failed != nil:
		return 1, failed
	}
	return 0, nil
}
