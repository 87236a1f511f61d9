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

// The window is cut into rounds. In each round ours and git work in turn on the same disk: what
// slows the host slows all.
const (
	refsRounds = 6
	// refsCount is the number of refs of a cell that deletes.
	refsCount = 100
)

// How git keeps its refs, and whether it syncs them. Only the synced kinds are as durable as ours with fsync.
const (
	// gitSynced keeps refs in files and syncs them: the fair comparison.
	gitSynced = "synced"
	// gitDefault is git as it comes: refs in files, without a sync.
	gitDefault = "default"
	// gitReftable keeps refs in tables and syncs them.
	gitReftable = "reftable"
)

// noReftable is why a row with tables is not measured.
const noReftable = "git keeps refs in tables from 2.45 on, and this one is older"

// refsCell is what a row measures: one kind of change in transactions of one size.
type refsCell struct {
	// remove says that refs are deleted, else updated. packed says that they are packed before.
	remove bool
	packed bool
	// size is the number of refs of a transaction.
	size int
	// peer is the one kind of git to compare with; empty: all that suit the row.
	peer string
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
	// The size is always the last part, behind what is changed.
	c.remove, c.packed = parts[0] == "delete", parts[1] == "packed"
	c.size, err = strconv.Atoi(parts[len(parts)-1])
	return c, err
}

// refs returns how many refs there are: those of one transaction of updates, or refsCount to delete.
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

// refsSide is one system in a run: its refs, its ledger, and what it did.
type refsSide struct {
	// name begins the names of its metrics; empty for ours.
	name string
	// system carries out the changes, and ledger has what it acknowledged.
	system refsSystem
	ledger *bench.RefLedger
	// op is where transactions are recorded.
	op *bench.Op
	// turn is the index of the commit that its refs are at.
	turn int

	// now is the tally of the slice under way, and rounds those of the window.
	now refsTally
	// rounds has the tallies of the window, one for each round.
	rounds []refsTally
}

// refsTally is what one side did in one slice. Only transactions on the clock count.
type refsTally struct {
	// refs is the number of changes, transactions how many they came in.
	refs, transactions uint64
	// spent is the time in transactions, without what is made ready between them.
	spent time.Duration
	// bytes and objects are what this process allocated in the slice.
	bytes, objects uint64
}

// rate is refs a second of the time in transactions.
func (t refsTally) rate() float64 {
	if t.spent <= 0 {
		return 0
	}
	return float64(t.refs) / t.spent.Seconds()
}

// refsRun is a cell on ours and on each kind of git in turn. All happens on one goroutine.
type refsRun struct {
	rig *bench.Rig
	// cell is what the row measures.
	cell refsCell
	// stock has the commits that refs are moved between.
	stock refsStock
	// sides has ours first.
	sides []*refsSide
	// heap reads what this process allocates.
	heap heapReader
	// took is the length of the window.
	took time.Duration
}

// RefsGitaly is one client that changes refs, one transaction after the other, in turn with git.
// The name is that of the reference whose figures it is compared with.
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

// open connects the sides. Classes are not mixed: servers that acknowledge without a sync are
// compared only with git without one.
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

// gitMetric begins the names of the metrics of a kind of git.
func gitMetric(kind string) string {
	switch kind {
	case gitSynced:
		return "git_files_synced"
	case gitReftable:
		return "git_reftable_synced"
	}
	return "git_files_default"
}

// all makes one change of each ref, in transactions of size. An empty old means that the ref is
// created, an empty new that it is deleted. Only what is timed counts; the ledger notes all.
func (r *refsRun) all(ctx context.Context, s *refsSide, size int, old, new string, timed bool) error {
	// What this process allocates is read before and after all transactions, not around each one: a
	// reading takes time.
	bytes, objects := r.heap.read()
	for i := 0; i < r.cell.refs(); i += size {
		numbers := make([]int, 0, size)
		changes := make([]refsChange, 0, size)
		for n := i; n < min(i+size, r.cell.refs()); n++ {
			numbers = append(numbers, n)
			// All refs of a transaction move from and to the same commit.
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

// prepare makes the refs, off the clock, and packs them where the cell says so.
func (r *refsRun) prepare(ctx context.Context, s *refsSide) error {
	if err := r.all(ctx, s, r.cell.refs(), "", r.stock.commits[0], false); err != nil {
		return err
	}
	return s.system.restored(ctx, r.cell.packed)
}

// once changes each ref once. Refs that were deleted are made again, off the clock.
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

// slice works on one side for a time, once at least, and leaves its tally in s.now.
func (r *refsRun) slice(ctx context.Context, s *refsSide, d time.Duration) error {
	s.now = refsTally{}
	// The time is looked at after each pass over all refs, so that a slice ends with every ref
	// alike.
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

// window works through the rounds, each with a slice of every side.
func (r *refsRun) window(ctx context.Context) error {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	// Each side has the same share of the window in each round.
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

// report tells the rates of all sides as medians of the rounds. Ratios are made within each round
// and then their median is taken, since a round has seen one state of the host.
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
	// The one caller is off the clock between transactions, and waits while the other sides work.
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
		// Only rounds in which the other side did something have a ratio.
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

// middle is the median of what of says of each element; 0 for none.
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
	// For an even number this is the mean of the two in the middle.
	return (values[(n-1)/2] + values[n/2]) / 2
}

// heapReader reads what this process has allocated so far, without stopping it.
type heapReader []metrics.Sample

// newHeapReader names the two counters, of bytes and of objects.
func newHeapReader() heapReader {
	return heapReader{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}}
}

// read returns both counters since the process began.
func (h heapReader) read() (bytes, objects uint64) {
	metrics.Read(h)
	return h[0].Value.Uint64(), h[1].Value.Uint64()
}
