package load

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// The window is cut into rounds. In each, ours and git work in turn on the same disk: what slows the host slows all.
const (
	refsRounds = 6
	refsCount  = 100 // refs of a deleting cell
)

// How git keeps its refs.
const (
	gitSynced   = "synced"   // files, refs synced: what is fair
	gitDefault  = "default"  // files, as git comes: refs are not synced
	gitReftable = "reftable" // tables, synced
)

// noReftable is why a row of tables is not measured.
const noReftable = "git keeps refs in tables from 2.45 on, and this one is older"

// refsCell is what a row measures.
type refsCell struct {
	remove bool // else update
	packed bool
	size   int    // refs of a transaction
	peer   string // the one kind of git to compare with; empty: all that suit the row
}

// cellOf reads a row's kind, such as update-10, delete-packed-100 or synced-update-1.
func cellOf(kind string) (c refsCell, err error) {
	parts := strings.Split(kind, "-")
	if slices.Contains([]string{gitSynced, gitDefault, gitReftable}, parts[0]) {
		c.peer, parts = parts[0], parts[1:]
	}
	if len(parts) < 2 {
		return c, fmt.Errorf("%q must be a cell of refs", kind)
	}
	c.remove, c.packed = parts[0] == "delete", parts[1] == "packed"
	c.size, err = strconv.Atoi(parts[len(parts)-1])
	return c, err
}

// refs returns how many refs there are: as many as a transaction updates, or 100 to delete.
func (c refsCell) refs() int {
	if c.remove {
		return refsCount
	}
	return c.size
}

// op is the operation that the cell counts.
func (c refsCell) op() string {
	if c.remove {
		return "delete"
	}
	return "update"
}

// refsSide is one system in a run.
type refsSide struct {
	name   string // of its metrics: empty for ours
	system refsSystem
	ledger *bench.RefLedger
	op     *bench.Op
	turn   int // which commit its refs are at

	now    refsTally   // of the slice under way
	rounds []refsTally // of the window
}

// refsTally is what one side did in one slice, of transactions that count.
type refsTally struct {
	refs, transactions uint64
	spent              time.Duration
	bytes, objects     uint64 // that this process allocated
}

func (t refsTally) rate() float64 {
	if t.spent <= 0 {
		return 0
	}
	return float64(t.refs) / t.spent.Seconds()
}

// refsRun is a cell on ours and git in turn.
type refsRun struct {
	rig   *bench.Rig
	cell  refsCell
	stock refsStock
	sides []*refsSide
	heap  heapReader
	took  time.Duration // of the window
}

// RefsGitaly is one client that changes refs, one transaction after the other, in turn with git.
func RefsGitaly(ctx context.Context, rig *bench.Rig) (err error) {
	if rig.Ceiling {
		return errors.New("no null server reads what this suite sends")
	}
	r := &refsRun{rig: rig, heap: newHeapReader()}
	if r.cell, err = cellOf(rig.Shape.Kind); err != nil {
		return err
	}
	if r.stock, err = newRefsStock(ctx, rig); err != nil {
		return err
	}
	children := childrenCPU()
	defer func() { rig.PeerCPU(childrenCPU() - children) }() // of gits that have ended
	defer func() {
		for _, s := range r.sides {
			err = errors.Join(err, s.system.close())
		}
	}()
	if err := r.open(ctx); err != nil {
		return err
	}
	for _, s := range r.sides {
		if err := r.prepare(ctx, s); err != nil {
			return err
		}
	}
	if err := r.warm(ctx); err != nil {
		return err
	}
	if err := rig.MeasureWork(ctx, r.window); err != nil {
		return err
	}
	return r.report()
}

// open connects the sides. Classes are not mixed: what is acknowledged without a sync is held against git without one.
func (r *refsRun) open(ctx context.Context) error {
	ours, err := newOurRefs(ctx, r.rig)
	if err != nil {
		return err
	}
	r.rig.Refs = r.stock.ledger(refsPrefix, true)
	r.sides = append(r.sides, &refsSide{system: ours, ledger: r.rig.Refs, op: r.rig.Op(r.cell.op())})
	took, err := ours.roundTrip(ctx, r.stock.commits[0])
	if err != nil {
		return err
	}
	r.rig.Metric("stream_round_trip_us", float64(took)/1e3, "µs")
	kinds := []string{gitSynced, gitDefault, gitReftable}
	switch {
	case r.cell.peer != "":
		kinds = []string{r.cell.peer}
	case r.rig.Durability == bench.None:
		kinds = []string{gitDefault}
	}
	for _, kind := range kinds {
		if kind == gitReftable && !hasReftable(ctx) {
			if r.cell.peer == kind {
				return &bench.SkipError{Lacks: noReftable}
			}
			continue
		}
		system, err := newGitRefs(ctx, r.stock.git, kind)
		if err != nil {
			return err
		}
		s := &refsSide{name: gitMetric(kind), system: system, ledger: r.stock.ledger(refsPrefix, false), op: r.rig.Op("git_" + kind)}
		r.sides = append(r.sides, s)
		proveRefs(r.rig, s.ledger, system.refReader("git, "+kind))
	}
	return nil
}

// gitMetric names what is measured of a kind of git.
func gitMetric(kind string) string {
	switch kind {
	case gitSynced:
		return "git_files_synced"
	case gitReftable:
		return "git_reftable_synced"
	}
	return "git_files_default"
}

// all makes one change of each ref, in transactions of size. Only what is timed counts.
func (r *refsRun) all(ctx context.Context, s *refsSide, size int, old, new string, timed bool) error {
	bytes, objects := r.heap.read()
	for i := 0; i < r.cell.refs(); i += size {
		numbers := make([]int, 0, size)
		changes := make([]refsChange, 0, size)
		for n := i; n < min(i+size, r.cell.refs()); n++ {
			numbers = append(numbers, n)
			changes = append(changes, refsChange{s.ledger.Name(n), old, new})
		}
		began := time.Now()
		err := s.system.transact(ctx, changes)
		took := time.Since(began)
		noteRefs(s.ledger, numbers, new, err)
		if err != nil {
			return err
		}
		if timed {
			s.now.refs += uint64(len(changes))
			s.now.transactions++
			s.now.spent += took
			s.op.Record(0, began, len(changes), nil)
		}
	}
	if timed {
		b, o := r.heap.read()
		s.now.bytes += b - bytes
		s.now.objects += o - objects
	}
	return nil
}

// prepare makes the refs.
func (r *refsRun) prepare(ctx context.Context, s *refsSide) error {
	if err := r.all(ctx, s, r.cell.refs(), "", r.stock.commits[0], false); err != nil {
		return err
	}
	return s.system.restored(ctx, r.cell.packed)
}

// once changes each ref once. Refs that were deleted are made again off the clock.
func (r *refsRun) once(ctx context.Context, s *refsSide) error {
	old := r.stock.commits[s.turn]
	if !r.cell.remove {
		s.turn = 1 - s.turn
		return r.all(ctx, s, r.cell.size, old, r.stock.commits[s.turn], true)
	}
	if err := r.all(ctx, s, r.cell.size, old, "", true); err != nil {
		return err
	}
	return r.prepare(ctx, s)
}

// slice works on one side for a time, once at least.
func (r *refsRun) slice(ctx context.Context, s *refsSide, d time.Duration) error {
	s.now = refsTally{}
	for until := time.Now().Add(d); ; {
		if err := r.once(ctx, s); err != nil {
			return err
		}
		if ctx.Err() != nil || !time.Now().Before(until) {
			return ctx.Err()
		}
	}
}

// warm works on each side for its part of the warm-up.
func (r *refsRun) warm(ctx context.Context) error {
	for _, s := range r.sides {
		if err := r.slice(ctx, s, r.rig.Warmup/time.Duration(len(r.sides))); err != nil {
			return err
		}
	}
	return nil
}

// window is the rounds, each with a slice of every side.
func (r *refsRun) window(ctx context.Context) error {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	length := r.rig.Window / time.Duration(refsRounds*len(r.sides))
	for range refsRounds {
		for _, s := range r.sides {
			if err := r.slice(ctx, s, length); err != nil {
				return err
			}
			s.rounds = append(s.rounds, s.now)
		}
	}
	return nil
}

// report tells the rates of all sides, medians of the rounds, and the ratios within each.
func (r *refsRun) report() error {
	ours := r.sides[0]
	r.rig.Metric("refs_per_s", middle(ours.rounds, refsTally.rate), "refs/s")
	var spent time.Duration
	for _, t := range ours.rounds {
		spent += t.spent
	}
	if spent <= 0 {
		return errors.New("no transaction was answered in the window")
	}
	r.rig.UnderWay(spent.Seconds() / r.took.Seconds()) // of one caller, off the clock and in turn with others
	perTransaction := func(of func(refsTally) uint64) float64 {
		return middle(ours.rounds, func(t refsTally) float64 { return float64(of(t)) / float64(max(t.transactions, 1)) })
	}
	r.rig.Metric("client_bytes_per_transaction", perTransaction(func(t refsTally) uint64 { return t.bytes }), "B/op")
	r.rig.Metric("client_allocs_per_transaction", perTransaction(func(t refsTally) uint64 { return t.objects }), "allocs/op")
	r.rig.Metric("ns_per_transaction", middle(ours.rounds, func(t refsTally) float64 {
		return float64(t.spent) / float64(max(t.transactions, 1))
	}), "ns/op")
	for _, s := range r.sides[1:] {
		r.rig.Metric(s.name+"_refs_per_s", middle(s.rounds, refsTally.rate), "refs/s")
		if r.cell.peer != "" {
			r.rig.Metric("git_refs_per_s", middle(s.rounds, refsTally.rate), "refs/s")
		}
		var ratios []float64
		for i, t := range s.rounds {
			if t.rate() > 0 {
				ratios = append(ratios, ours.rounds[i].rate()/t.rate())
			}
		}
		if len(ratios) > 0 {
			r.rig.Metric("ratio_to_"+s.name, middle(ratios, func(v float64) float64 { return v }), "×")
		}
	}
	return nil
}

// middle is the median of what of says of each.
func middle[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, v := range all {
		values[i] = of(v)
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// heapReader reads what this process has allocated so far, without stopping it.
type heapReader []metrics.Sample

func newHeapReader() heapReader {
	return heapReader{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}}
}

func (h heapReader) read() (bytes, objects uint64) {
	metrics.Read(h)
	return h[0].Value.Uint64(), h[1].Value.Uint64()
}
