package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// town is a shard in memory that has the directory and all partitions, where removers and writers meet one step at a time. A
// step that is asked for is applied with its answer, applied without one, applied much later, or never; and removers end
// between two steps, as a killed node does.
type town struct {
	t     *testing.T
	rand  *rand.Rand
	m     *commit.Machine
	tx    *machinetest.Txn
	index uint64

	asks  chan ask      // of removers, which then wait
	ends  chan struct{} // one for each remover that has returned
	late  []core.Commit
	acked map[core.NamespaceID]int // writes that were acknowledged
	gone  map[core.NamespaceID]bool
}

type ask struct {
	c      core.Commit
	read   func() // instead of a commit
	answer chan core.Proposed
}

func (w *town) apply(c core.Commit) core.Result {
	w.index++
	e := &core.Entry{Format: core.FormatCurrent, Stamp: core.ShardTime(w.index), Proposer: 1, Seq: w.index, Commits: []core.Commit{c}}
	a, err := w.m.Apply(w.tx, w.index, e)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range a.Events {
		ns, ok := e.(*core.NamespaceGone)
		if !ok {
			continue
		}
		w.gone[ns.Namespace] = true
		if n := w.acked[ns.Namespace]; n > 0 {
			w.t.Fatalf("namespace %d was removed with %d acknowledged writes", ns.Namespace, n)
		}
	}
	if w.rand.IntN(30) == 0 {
		w.m = commit.New(commit.Options{})
		if err := w.m.Open(w.tx); err != nil {
			w.t.Fatal(err)
		}
	}
	return a.Results[0]
}

func (w *town) ask(c core.Commit, read func()) (core.OpResult, error) {
	a := ask{c, read, make(chan core.Proposed, 1)}
	w.asks <- a
	return answerOf(<-a.answer)
}

func (w *town) remover() remover {
	return remover{
		directory: func(_ context.Context, op *core.NamespaceRemove) (core.OpResult, error) {
			return w.ask(core.Commit{Ops: []core.Op{op}}, nil)
		},
		partition: func(_ context.Context, p core.PartitionInfo, op *core.PartitionRemove) error {
			_, err := w.ask(core.Commit{Partition: p.Partition, Ops: []core.Op{op}}, nil)
			return err
		},
		find: func(_ context.Context, t core.TenantID, ns core.NamespaceID) (r commit.Removal, ok bool, err error) {
			_, _ = w.ask(core.Commit{}, func() { r, ok, err = commit.FindRemoval(w.tx, t, ns) })
			return r, ok, err
		},
	}
}

// settle does something with a step that was asked for.
func (w *town) settle(a ask, calm bool) {
	lost := core.Proposed{Err: core.Unavailable{Reason: "no_leader", Unknown: true}}
	fate := w.rand.IntN(12)
	switch {
	case a.read != nil:
		a.read()
		a.answer <- core.Proposed{Results: []core.Result{{Ops: []core.OpResult{{}}}}}
	case !calm && fate == 0: // never, as the remover's node is gone
		a.answer <- core.Proposed{Err: core.Unavailable{Reason: "stopping"}}
	case !calm && fate == 1:
		w.apply(a.c)
		a.answer <- lost
	case !calm && fate == 2:
		w.late = append(w.late, a.c)
		a.answer <- lost
	default:
		a.answer <- core.Proposed{Results: []core.Result{w.apply(a.c)}}
	}
}

// write puts or deletes a key of the namespace that has the name now, or that had it when the writer looked.
func (w *town) write(seen *core.NamespaceInfo) {
	if seen.Namespace == 0 || w.rand.IntN(4) == 0 {
		now, ok, err := commit.Namespace(w.tx, "acme", "shop")
		if err != nil {
			w.t.Fatal(err)
		}
		if !ok {
			w.apply(core.Commit{Ops: []core.Op{&core.NamespaceCreate{Tenant: "acme", Name: "shop", Partitions: uint16(1 + w.rand.IntN(3))}}})
			return
		}
		*seen = now
	}
	p := seen.Partitions[w.rand.IntN(len(seen.Partitions))].Partition
	key := []byte(fmt.Sprint(w.rand.IntN(2)))
	if w.rand.IntN(3) == 0 {
		r := w.apply(core.Commit{Partition: p, Ops: []core.Op{&core.KVPut{Keyspace: "k", Key: key, IfAbsent: true}}})
		if r.Refusal == nil {
			w.acked[seen.Namespace]++
		}
		return
	}
	r := w.apply(core.Commit{Partition: p, Ops: []core.Op{&core.KVDelete{Keyspace: "k", Key: key}}})
	if r.Refusal == nil && r.Ops[0].Existed {
		w.acked[seen.Namespace]--
	}
}

// removeOnce starts a remover of the name, or of a removal that stands in the directory.
func (w *town) removeOnce() {
	marks, err := commit.Removals(w.tx)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, m := context.Background(), w.remover()
	switch n := w.rand.IntN(2 + len(marks)); {
	case n < 2:
		go func() {
			_, _ = m.remove(ctx, "acme", "shop", 0)
			w.ends <- struct{}{}
		}()
	case marks[n-2].Finished:
		go func() {
			_ = m.finish(ctx, marks[n-2])
			w.ends <- struct{}{}
		}()
	default:
		go func() {
			_, _ = m.remove(ctx, "acme", "shop", marks[n-2].Space.Namespace)
			w.ends <- struct{}{}
		}()
	}
}

// run lets removers and writers meet for a number of steps. Steps of up to two removers are under way at a time.
func (w *town) run(steps int) {
	var seen [2]core.NamespaceInfo
	var open []ask
	running := 0
	for range steps {
		switch n := w.rand.IntN(10); {
		case n == 0 && running < 2:
			running++
			w.removeOnce()
		case n == 1 && len(w.late) > 0:
			i := w.rand.IntN(len(w.late))
			w.apply(w.late[i])
			w.late = append(w.late[:i], w.late[i+1:]...)
		case n < 6:
			w.write(&seen[w.rand.IntN(2)])
		case len(open) > 0:
			i := w.rand.IntN(len(open))
			a := open[i]
			open = append(open[:i], open[i+1:]...)
			w.settle(a, false)
		case running > 0: // somebody is about to ask, or to end
			select {
			case a := <-w.asks:
				open = append(open, a)
			case <-w.ends:
				running--
			}
		}
	}
	w.drain(open, running)
}

// drain lets the removers that are under way end, and applies what was late.
func (w *town) drain(open []ask, running int) {
	for running > 0 {
		for _, a := range open {
			w.settle(a, false)
		}
		open = open[:0]
		select {
		case a := <-w.asks:
			open = append(open, a)
		case <-w.ends:
			running--
		}
	}
	for _, c := range w.late {
		w.apply(c)
	}
	w.late = nil
}

// goOn does what the leader of shard 0 does with removals that were left, while nothing fails.
func (w *town) goOn() {
	for range 20 {
		marks, err := commit.Removals(w.tx)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(marks) == 0 {
			return
		}
		go func() {
			if r := marks[0]; r.Finished {
				_ = w.remover().finish(context.Background(), r)
			} else {
				_, _ = w.remover().remove(context.Background(), "acme", "shop", r.Space.Namespace)
			}
			w.ends <- struct{}{}
		}()
		for running := true; running; {
			select {
			case a := <-w.asks:
				w.settle(a, true)
			case <-w.ends:
				running = false
			}
		}
	}
	w.t.Fatal("a removal that was left comes to no end")
}

// check holds that a namespace of the directory takes writes in all of its partitions, and that one that was removed takes none
// and has no rows.
func (w *town) check(last core.NamespaceID) {
	now, there, err := commit.Namespace(w.tx, "acme", "shop")
	if err != nil {
		w.t.Fatal(err)
	}
	for ns := core.NamespaceID(1); ns <= last; ns++ {
		for i := range 3 {
			p := core.Partition{Tenant: 1, Namespace: ns, Index: uint16(i)}
			of := there && now.Namespace == ns && i < len(now.Partitions)
			if !of && !w.gone[ns] {
				continue
			}
			if !of {
				if rows := w.rows(p); rows > 0 {
					w.t.Fatalf("removed partition %s has %d rows", p, rows)
				}
				continue
			}
			r := w.apply(core.Commit{Partition: p, Ops: []core.Op{&core.KVDelete{Keyspace: "none", Key: []byte("x")}}})
			if r.Refusal != nil {
				w.t.Fatalf("partition %s is of the directory, and refuses: %v", p, r.Refusal.Fact)
			}
		}
	}
}

func (w *town) rows(p core.Partition) (n int) {
	for _, known := range w.m.Partitions() {
		if known == p {
			n++
		}
	}
	return n
}

// However removers, writers, losses and ends meet, no acknowledged write goes with a namespace, and in the end a namespace is
// there in all of its partitions, or in none.
func TestRemovalsMeetWritesAndOneAnother(t *testing.T) {
	t.Parallel()
	histories, removed, kept := 400, 0, 0
	if testing.Short() {
		histories = 100
	}
	for seed := range histories {
		w := &town{
			t: t, rand: rand.New(rand.NewPCG(uint64(seed), 1)), m: commit.New(commit.Options{}), tx: machinetest.NewTxn(),
			asks: make(chan ask), ends: make(chan struct{}), acked: make(map[core.NamespaceID]int), gone: make(map[core.NamespaceID]bool),
		}
		if err := w.m.Open(w.tx); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			w.run(150)
			w.goOn()
			w.check(40)
		}
		removed += len(w.gone)
		now, there, err := commit.Namespace(w.tx, "acme", "shop")
		if err != nil {
			t.Fatal(err)
		}
		if there && w.acked[now.Namespace] > 0 {
			kept++
		}
	}
	t.Logf("%d namespaces removed, %d kept with what they hold", removed, kept)
	if removed == 0 || kept == 0 {
		t.Error("the histories missed what they are for")
	}
}
