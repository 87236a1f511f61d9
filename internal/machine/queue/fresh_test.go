package queue

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// apply applies one op without ending the entry, and returns what it answered.
func (w *world) apply(op core.Op) string {
	w.t.Helper()
	res, fact, err := w.m.Apply(w.tape, &w.c, op)
	if err != nil {
		w.t.Fatalf("apply %T: %v", op, err)
	}
	return fmt.Sprintf("%+v %v", res, fact)
}

// freshOps draws the ops of one entry: mostly creates and grants, in any order.
func freshOps(r *rand.Rand, entry int, held []core.TaskHold) []core.Op {
	var ops []core.Op
	for i := range 1 + r.IntN(12) {
		q := []string{"a", "b"}[r.IntN(2)]
		switch r.IntN(5) {
		case 0, 1, 2:
			ops = append(ops, &core.TaskCreate{
				ID: idOf(fmt.Sprintf("%d.%d", entry, i)), Queue: q, Priority: uint8(r.IntN(10)), Payload: []byte{byte(i)},
			})
		case 3:
			queues := []core.GrantQueue{{Name: q, Weight: 1}, {Name: "b", Weight: 1}}
			ops = append(ops, &core.Grant{Sub: 1, Worker: "w", N: uint32(1 + r.IntN(5)), Queues: queues[:1+r.IntN(2)]})
		case 4:
			if len(held) > 0 {
				h := held[r.IntN(len(held))]
				ops = append(ops, &core.TaskRelease{Task: h.Task, Token: h.Token})
			}
		}
	}
	return ops
}

// TestWhatIsInMemoryDecidesNothingWithinAnEntry applies the same entries, of many creates and grants each, to machines
// that keep one head, a few and all of them, and to one that is opened again before each entry. Their answers, their
// changes and the order of those are the same, also around commits that are taken back.
func TestWhatIsInMemoryDecidesNothingWithinAnEntry(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 9))
		worlds := []*world{
			newWorld(t, Options{Heads: 1}), newWorld(t, Options{Heads: 3}), newWorld(t, Options{}), newWorld(t, Options{Heads: 2}),
		}
		var held []core.TaskHold
		for entry := range 60 {
			ops := freshOps(r, entry, held)
			undoFrom, undoTo := len(ops), len(ops) // a commit of these is taken back
			if r.IntN(3) == 0 {
				undoFrom = r.IntN(len(ops) + 1)
				undoTo = undoFrom + r.IntN(len(ops)-undoFrom+1)
			}
			var want []string
			var tape []string
			for i, w := range worlds {
				w.c.Index++
				w.c.Stamp += core.ShardTime(entry % 3)
				w.tape.on, w.tape.lines = true, nil
				if i == 3 {
					w.restart()
				}
				var got []string
				for j, op := range ops {
					if j == undoFrom && j < undoTo {
						w.tape.Mark()
						w.m.Mark()
					}
					got = append(got, w.apply(op))
					if j+1 == undoTo && j >= undoFrom {
						w.tape.Undo()
						w.m.Undo()
					}
				}
				if err := w.m.End(w.tape, &w.c); err != nil {
					t.Fatal(err)
				}
				eventsOf(w.m)
				if err := w.m.checkHeads(w.tx); err != nil {
					t.Fatalf("seed %d, entry %d, machine %d: %v", seed, entry, i, err)
				}
				if i == 0 {
					want, tape = got, w.tape.lines
					continue
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, entry %d, machine %d answers\n%q, want\n%q", seed, entry, i, got, want)
				}
				if !reflect.DeepEqual(w.tape.lines, tape) {
					t.Fatalf("seed %d, entry %d, machine %d changes\n%q, want\n%q", seed, entry, i, w.tape.lines, tape)
				}
				if w.m.derived() != worlds[0].m.derived() {
					t.Fatalf("seed %d, entry %d: machines 0 and %d differ", seed, entry, i)
				}
			}
			held = held[:0]
			for _, r := range worlds[0].m.runs {
				held = append(held, core.TaskHold{Task: r.id, Token: r.rec.token})
			}
			slices.SortFunc(held, func(a, b core.TaskHold) int { return int(a.Token) - int(b.Token) })
		}
		if seed == 0 && worlds[0].m.names["a"].states[core.Ready] == 0 {
			t.Error("nothing was left ready")
		}
	}
}
