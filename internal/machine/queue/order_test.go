package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// first finds the task of a queue that is to be served next, in all records: the aging of now ranks it.
func (w *world) first(queue string) (id core.TaskID, ok bool) {
	w.t.Helper()
	l := w.m.names[queue]
	if l == nil {
		return id, false
	}
	var best uint64
	var seq uint64
	from, to := keys.ReadyRange(testPartition, l.number)
	if err := w.tx.Scan(from, to, func(_, value []byte) bool {
		rec, _, err := readRecord(w.tx, testPartition, toID(value))
		if err != nil {
			w.t.Fatal(err)
		}
		rank := sortKey(rec.readyAt, rec.priority, l.aging())
		if !ok || rank < best || rank == best && rec.seq < seq {
			id, best, seq, ok = toID(value), rank, rec.seq, true
		}
		return true
	}); err != nil {
		w.t.Fatal(err)
	}
	return id, ok
}

// TestTheAgingOfNowRulesWhatWaits changes a queue's aging while tasks wait, in every direction, with restarts in between
// and few heads in memory: each grant takes the task that the aging of that moment ranks first.
func TestTheAgingOfNowRulesWhatWaits(t *testing.T) {
	agings := []core.Millis{-1, 0, 1, 500, 60_000, 3_600_000}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, Options{Heads: 1 + int(seed%5)})
		w.loose = true
		for i := range 400 {
			switch r.IntN(10) {
			case 0:
				w.do(&core.QueueSet{Queue: "q", Config: core.QueueConfig{Aging: agings[r.IntN(len(agings))]}, IfVersion: -1})
			case 1:
				w.c.Stamp = w.c.Stamp.Add(core.Millis(r.IntN(200_000)))
			case 2:
				if r.IntN(4) == 0 {
					w.restart()
				}
			case 3, 4:
				want, some := w.first("q")
				got := w.do(claimOp(1, "q")).res.Assigned
				if some != (len(got) == 1) || some && got[0].Task != want {
					t.Fatalf("seed %d, step %d: given %v, want %s", seed, i, got, nameOf(want))
				}
			default:
				w.do(&core.TaskCreate{ID: idOf(fmt.Sprint(seed, ".", i)), Queue: "q", Priority: uint8(r.IntN(10))})
			}
		}
		w.check()
	}
}

// TestPlacesOfTheFirstFormatAreServedWithTheOthers has tasks wait whose places entries of format 1 made. Under entries of
// that format all is as it was. Later their first one is compared with the others by the aging of then.
func TestPlacesOfTheFirstFormatAreServedWithTheOthers(t *testing.T) {
	w := newWorld(t, Options{Heads: 2})
	w.c.Format = core.FormatFirst
	create := func(name string, priority uint8) {
		w.do(&core.TaskCreate{ID: idOf(name), Queue: "q", Priority: priority})
		w.c.Stamp = w.c.Stamp.Add(1000)
	}
	w.do(&core.QueueSet{Queue: "q", Config: core.QueueConfig{Aging: -1}, IfVersion: -1})
	for _, name := range []string{"old0", "older0", "old9"} {
		create(name, map[bool]uint8{true: 9}[name == "old9"])
	}
	w.c.Format = core.FormatQueues
	w.restart()
	create("new5", 5)
	create("new0", 0)
	w.do(&core.QueueSet{Queue: "q", Config: core.QueueConfig{Aging: 1}, IfVersion: -1}) // by age, almost alone
	create("new9", 9)
	var order []string
	for range 6 {
		order = append(order, nameOf(w.do(claimOp(1, "q")).res.Assigned[0].Task))
	}
	if got, want := fmt.Sprint(order), "[old9 old0 older0 new5 new0 new9]"; got != want {
		t.Errorf("served in the order %s, want %s", got, want)
	}
}

// TestARefusedEntryLetsQueuesGoAsAnyOther has a queue be left empty under the first format, in which no queue goes. The first entry of a
// later format is a commit that is refused: its end lets the queue go, and nothing else is changed.
func TestARefusedEntryLetsQueuesGoAsAnyOther(t *testing.T) {
	for _, refused := range [][]core.Op{
		{&core.TaskCreate{}},
		{&core.TaskCreate{ID: idOf("b"), Queue: "r"}, &core.TaskCreate{}},
	} {
		w := newWorld(t, Options{})
		w.c.Format = core.FormatFirst
		w.do(&core.TaskCreate{ID: idOf("a"), Queue: "q"})
		given := w.do(claimOp(1, "q")).res.Assigned
		w.do(&core.TaskComplete{Task: given[0].Task, Token: given[0].Token})
		w.advance(400 * 24 * 3_600_000)
		l := w.m.lineOf("q")
		if l == nil || !l.isVacant() {
			t.Fatalf("under the first format the queue that was left empty is %+v", l)
		}
		w.c.Format = core.FormatQueues
		if _, _, fact := w.commit(refused...); fact == nil {
			t.Fatal("a create without an id is not refused")
		}
		if w.m.lineOf("q") != nil || w.m.lineOf("r") != nil {
			t.Error("a queue without anything is there after an entry that lets such queues go")
		}
		if got, want := w.m.meta.gone, (gone{created: 1, completed: 1}); got != want {
			t.Errorf("queues that are gone count %+v, want %+v", got, want)
		}
	}
}
