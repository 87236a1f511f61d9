package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// The window is cut into rounds. In each round three nodes and one work in turn, first for one client with
// large transactions, then for many clients with small ones: what slows the host slows all.
const (
	nodesRounds = 4
	// nodesSides is the two systems, and nodesWaysIn the two ways of load.
	nodesSides  = 2
	nodesWaysIn = 2
	// nodesSettle says that the first quarter of a slice is not counted: the side that was driven
	// before still has work.
	nodesSettle = 4
)

// nodesSide is one of the two systems: a cluster, or a server of one node.
type nodesSide struct {
	// name begins the names of its metrics; empty for the cluster.
	name string
	// rig is that of the side's servers.
	rig *bench.Rig
	// ledger has what the side acknowledged, and op records its transactions.
	ledger *bench.RefLedger
	op     *bench.Op
	// stock has the commits that refs are moved between.
	stock refsStock
	// many is one client, whose transactions move many refs.
	many *ourRefs
	// each are many clients, each of which moves a ref of its own.
	each []*ourRefs
	// turns is by ref the index of the commit that it is at. The refs of many follow those of each;
	// a ref belongs to one goroutine.
	turns []int
	// rates has a rate for each round, by way.
	rates [nodesWaysIn][]float64
}

// nodesRun is ref transactions on three nodes, in turn with one node.
type nodesRun struct {
	// rig is the run, whose servers are the cluster.
	rig *bench.Rig
	// sides has the cluster first.
	sides [nodesSides]*nodesSide
}

// refsNodes measures ref transactions on the row's nodes and on one node, in turn, and what part of
// one node's rate the cluster keeps.
func refsNodes(ctx context.Context, rig *bench.Rig) error {
	return (&nodesRun{rig: rig}).run(ctx)
}

// run opens both sides, warms them up and measures. The refs of the single node are proved in
// addition to the row's own audit.
func (r *nodesRun) run(ctx context.Context) (err error) {
	rig := r.rig
	if rig.NextTo == nil {
		return errors.New("no single-node server runs for comparison: the servers must be processes of the bench")
	}
	defer func() {
		for _, s := range r.sides {
			err = errors.Join(err, s.close())
		}
	}()
	for i, at := range [nodesSides]*bench.Rig{rig, rig.NextTo} {
		s := &nodesSide{rig: at, op: rig.Op("update")}
		if i > 0 {
			s.name, s.op = "one_node_", rig.Op("one_node_update")
		}
		r.sides[i] = s
		if err := s.open(ctx, max(rig.Shape.Pumps, 1)); err != nil {
			return fmt.Errorf("%s: %w", at.Servers[0].Name, err)
		}
	}
	rig.Refs = r.sides[0].ledger
	proveRefs(rig, r.sides[1].ledger, besideRefs(rig.NextTo))
	if err := r.warm(ctx); err != nil {
		return err
	}
	if err := rig.MeasureWork(ctx, r.window); err != nil {
		return err
	}
	return r.report()
}

// open makes the repository, the refs and the clients of one side. One transaction makes all refs.
func (s *nodesSide) open(ctx context.Context, clients int) (err error) {
	if s.stock, err = newRefsStock(ctx, s.rig); err != nil {
		return err
	}
	s.ledger = s.stock.ledger(refsPrefix, true)
	if s.many, err = newOurRefs(ctx, s.rig); err != nil {
		return err
	}
	for range clients {
		o, err := newOurRefs(ctx, s.rig)
		if err != nil {
			return err
		}
		s.each = append(s.each, o)
	}
	// All refs begin at the first commit, whose index is 0.
	s.turns = make([]int, clients+scaleMany)
	numbers, changes := make([]int, len(s.turns)), make([]refsChange, len(s.turns))
	for n := range numbers {
		numbers[n], changes[n] = n, refsChange{s.ledger.Name(n), "", s.stock.commits[0]}
	}
	err = s.many.transact(ctx, changes)
	noteRefs(s.ledger, numbers, s.stock.commits[0], err)
	return err
}

// close closes the clients that were opened; a side that was not opened is nil.
func (s *nodesSide) close() error {
	if s == nil {
		return nil
	}
	var all []error
	for _, o := range append([]*ourRefs{s.many}, s.each...) {
		if o != nil {
			all = append(all, o.close())
		}
	}
	return errors.Join(all...)
}

// move makes one transaction that moves refs to the other commit. All of them are at the same one.
// Only after a success they count as moved.
func (s *nodesSide) move(ctx context.Context, caller int, by *ourRefs, numbers ...int) error {
	changes := make([]refsChange, len(numbers))
	to := s.stock.commits[1-s.turns[numbers[0]]]
	for i, n := range numbers {
		changes[i] = refsChange{s.ledger.Name(n), s.stock.commits[s.turns[n]], to}
	}
	began := time.Now()
	err := by.transact(ctx, changes)
	noteRefs(s.ledger, numbers, to, err)
	s.op.Record(caller, began, len(numbers), err)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		s.turns[n] = 1 - s.turns[n]
	}
	return nil
}

// slice drives one side in one way for a time, and returns how many refs a second it moved after
// the settling part. Each client moves once at least. The first failure stops all.
func (s *nodesSide) slice(ctx context.Context, way int, length time.Duration) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(length)
	var driving sync.WaitGroup
	var mu sync.Mutex // guards the failure below
	var failed error
	drive := func(caller int, by *ourRefs, numbers ...int) {
		driving.Go(func() {
			// A client works until the end of the slice, and finishes what it has begun.
			for first := true; first || time.Now().Before(end); first = false {
				if err := s.move(ctx, caller, by, numbers...); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					cancel() // the others stop too
					return
				}
			}
		})
	}
	// Way 0 is one client with large transactions, way 1 many clients with one ref each.
	if way == 0 {
		numbers := make([]int, scaleMany)
		for i := range numbers {
			numbers[i] = len(s.each) + i
		}
		drive(0, s.many, numbers...)
	} else {
		for i, o := range s.each {
			drive(i, o, i)
		}
	}
	settled := bench.Pause(ctx, length/nodesSettle)
	began, before := time.Now(), s.op.Acked()
	driving.Wait()
	moved, took := s.op.Acked()-before, time.Since(began)
	if err := errors.Join(failed, settled); err != nil {
		return 0, err
	}
	return float64(moved) / took.Seconds(), nil
}

// warm drives both sides in both ways, each for its part of the warm-up.
func (r *nodesRun) warm(ctx context.Context) error {
	for way := range nodesWaysIn {
		for _, s := range r.sides {
			if _, err := s.slice(ctx, way, r.rig.Warmup/(nodesSides*nodesWaysIn)); err != nil {
				return err
			}
		}
	}
	return nil
}

// window works through the rounds: in each, both ways on both sides.
func (r *nodesRun) window(ctx context.Context) error {
	length := r.rig.Window / (nodesRounds * nodesSides * nodesWaysIn)
	for range nodesRounds {
		for way := range nodesWaysIn {
			for _, s := range r.sides {
				rate, err := s.slice(ctx, way, length)
				if err != nil {
					return err
				}
				s.rates[way] = append(s.rates[way], rate)
			}
		}
	}
	return nil
}

// report tells both rates of both sides as medians of the rounds, and the ratios within each round.
// The smaller ratio is the headline: what three nodes keep of one.
func (r *nodesRun) report() error {
	// The rates are already single values, so the median is of them as they are.
	same := func(v float64) float64 { return v }
	for _, s := range r.sides {
		r.rig.Metric(s.name+"refs_per_s", middle(s.rates[0], same), "refs/s")
		r.rig.Metric(s.name+"clients_refs_per_s", middle(s.rates[1], same), "refs/s")
	}
	least := 0.0
	for way, name := range [nodesWaysIn]string{"refs", "clients"} {
		var ratios []float64
		for i, one := range r.sides[1].rates[way] {
			if one > 0 {
				ratios = append(ratios, r.sides[0].rates[way][i]/one)
			}
		}
		if len(ratios) == 0 {
			return errors.New("one node moved no ref in the window")
		}
		ratio := middle(ratios, same)
		r.rig.Metric(name+"_ratio_to_one_node", ratio, "×")
		if way == 0 || ratio < least {
			least = ratio
		}
	}
	r.rig.Metric("ratio_to_one_node", least, "×")
	callers := float64(len(r.sides[0].each)+1) / (nodesSides * nodesWaysIn) // one, then many, and in turn with one node
	r.rig.UnderWay(callers)
	return nil
}

// besideRefs reads every ref of the single-node server, over a connection of its own.
func besideRefs(beside *bench.Rig) bench.RefReader {
	return bench.RefReader{Name: "one node", Each: func(ctx context.Context, fn func(name, object string) error) error {
		c, err := beside.Dial(ctx, 0)
		if err != nil {
			return err
		}
		_, err = c.Repo(refsRepo).Each(ctx, millrace.RefQuery{}, bench.OnlyRefs(fn))
		return errors.Join(err, c.Close())
	}}
}
