// Package row holds the fault rows: those that run against real processes, with the real binary,
// the real SDK, kill -9 and SIGSTOP, and those that damage what a log has written.
//
// A row of processes makes faults on one server, or on the nodes of a cluster, while a workload
// runs. The workload writes a ledger of every call, reads everything back at the end and lets the
// checkers judge. A seed makes every choice of the plan; what the machine makes of it is its own.
//
// Runners has the rows, and Outcome is what a run of one did and found. Their workloads are mixed,
// which uses all services; neighbour, a second tenant; and linear, registers that all clients
// share. Rows on one server go through faultsUnderLoad, and rows on a cluster through clusterRun,
// which judge in the same way.
package row

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/test/chaos/proc"
)

// Env is what a row needs to run.
type Env struct {
	// Binary is the server's program.
	Binary string
	// Faults is the program of a server that can be killed at a point of its code. Where it is
	// empty, such kills are left out.
	Faults string
	// Worker is the program of the worker process, for rows that pause one.
	Worker string
	// Disk is the program of the file system that loses power, for rows that cut it.
	Disk string
	// Dir is for the files of the run, which are kept on failure.
	Dir string
	// Seed makes every choice.
	Seed uint64
	// Mutant is the planted bug to switch on, in a binary that has them.
	Mutant string
	// Brief says that faults which may last long are short.
	Brief bool
	Log   func(format string, args ...any)
}

// Outcome is what one run of a row did and found.
type Outcome struct {
	// Done is how much was done, in the row's unit.
	Done int
	// Faults counts the faults that were made, by kind.
	Faults map[string]int
	// Reports are the checkers' judgments.
	Reports []*check.Report
	// Errors are broken promises that no checker states, such as a server that ended by itself.
	Errors []error
	// Invalid is why the run proves nothing; empty when it proves something.
	Invalid string
	// Figures are what was measured, by name.
	Figures map[string]float64
	// Windows counts the windows of calls at registers that a search for an order has judged.
	Windows int
	// Look is what broke no promise and is worth a look: the run's files are kept.
	Look []string
}

func newOutcome() *Outcome {
	return &Outcome{Faults: map[string]int{}, Figures: map[string]float64{}}
}

// Violations counts what was broken.
func (o *Outcome) Violations() int {
	n := len(o.Errors)
	for _, r := range o.Reports {
		n += r.Total
	}
	return n
}

// fail notes a broken promise, unless err is nil.
func (o *Outcome) fail(err error) {
	if err != nil {
		o.Errors = append(o.Errors, err)
	}
}

// judge keeps reports. The first of them that proves nothing makes the run prove nothing.
func (o *Outcome) judge(reports ...*check.Report) {
	for _, r := range reports {
		o.Reports = append(o.Reports, r)
		if r.Invalid != "" && o.Invalid == "" {
			o.Invalid = r.Checker + ": " + r.Invalid
		}
	}
}

// String lists reports, errors, faults and figures, one a line.
func (o *Outcome) String() string {
	s := fmt.Sprintf("done %d, windows %d, faults %v", o.Done, o.Windows, o.Faults)
	for _, name := range slices.Sorted(maps.Keys(o.Figures)) {
		s += fmt.Sprintf(", %s %.4g", name, o.Figures[name])
	}
	for _, r := range o.Reports {
		s += "\n  " + r.String()
	}
	for _, err := range o.Errors {
		s += "\n  FAIL: " + err.Error()
	}
	if o.Invalid != "" {
		s += "\n  INVALID: " + o.Invalid
	}
	return s
}

// Runner makes one run of a row, of at most n of its unit, and says how many it did. An error means that the run could
// not be made.
type Runner func(ctx context.Context, e Env, n int) (*Outcome, error)

// How is the way in which a row is run.
type How struct {
	Run Runner
	// Max is how many of the row's unit one run makes at most.
	Max int
	// InProcess says that the row starts no process: planted bugs are those of the program that runs it.
	InProcess bool
	// Disk says that the row mounts disks of its own, which takes a program for that. Where nothing can be mounted its error is
	// a proc.NotRunError.
	Disk bool
	// Faults says that the row also kills the server at points of its code, which takes a build that has them.
	Faults bool
}

// Runners returns the rows by id.
func Runners() map[string]How {
	return map[string]How{
		"R-01":        {Run: KillServer, Max: 10, Faults: true},
		"R-01-3":      {Run: KillNodes, Max: 20},
		"R-03":        {Run: CutPower, Max: 10, Disk: true},
		"R-04":        {Run: CutPowers, Max: 9, Disk: true},
		"R-05":        {Run: DamageTail, Max: 4096, InProcess: true},
		"R-06":        {Run: DamageSealed, Max: 500, InProcess: true},
		"R-07-1":      {Run: BreakDisk, Max: 10, Disk: true},
		"R-08":        {Run: FillDisk, Max: 3},
		"R-09":        {Run: SlowDisks, Max: 6, Disk: true},
		"R-09-1":      {Run: SlowDisk, Max: 3, Disk: true},
		"R-10":        {Run: CutLinks, Max: 8000},
		"R-11":        {Run: LoseLeader, Max: 8},
		"R-12":        {Run: HinderLinks, Max: 60},
		"R-14":        {Run: ChangeMembers, Max: 12},
		"R-14-1":      {Run: CatchUp, Max: 2},
		"R-15":        {Run: PauseWorker, Max: 500},
		"R-16":        {Run: KillUnderEffects, Max: 2000},
		"R-17":        {Run: RepeatUnderKills, Max: 2000},
		"R-18":        {Run: LittleMemory, Max: 1},
		"R-23-search": {Run: SearchSoak, Max: 10},
		"R-24":        {Run: RollNodes, Max: 10},
		"R-24-1":      {Run: MoveLeaders, Max: 20},
		"R-30":        {Run: GitUnderKills, Max: 25, Faults: true},
		"R-31":        {Run: SearchUnderKills, Max: 50},
		"R-34":        {Run: HandOver, Max: 3},
	}
}

// Unable says why a row cannot be run on this machine; nil: it can.
func Unable(id string) error {
	if id != "R-18" {
		return nil
	}
	g, err := proc.NewGroup(largeGroup)
	if err != nil {
		return err
	}
	return g.Close()
}

// server makes the server of a run.
func (e Env) server(ctx context.Context, flags []string, tenants ...string) (*proc.Server, error) {
	o := proc.Options{Binary: e.Binary, Dir: filepath.Join(e.Dir, "server"), Flags: flags}
	if e.Mutant != "" {
		o.Env = append(o.Env, "MILLRACE_MUTANT="+e.Mutant)
	}
	return proc.New(ctx, o, tenants...)
}

// finish stops the server in order and checks its files. It reports whether they are whole.
func finish(ctx context.Context, s *proc.Server, o *Outcome) bool {
	if err := s.Stop(); err != nil {
		o.fail(fmt.Errorf("at the end: %w", err))
		return false
	}
	err := s.Doctor(ctx)
	o.fail(err)
	return err == nil
}

// readLedgers reads the ledger files of a run; each is a clock of its own.
func readLedgers(paths []string) ([]check.Call, error) {
	var all [][]check.Call
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open ledger: %w", err)
		}
		calls, torn, err := check.ReadLedger(f, filepath.Base(path))
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if torn {
			return nil, fmt.Errorf("ledger %s: its last line is cut, though its writer was not killed", path)
		}
		all = append(all, calls)
	}
	return check.Merge(all...), nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) { _ = proc.Rest(ctx, d) }

// percentile is the p-th percentile of durations, in seconds; 0 when there are none.
func percentile(of []time.Duration, p int) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].Seconds()
}
