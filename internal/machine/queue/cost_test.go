package queue

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

func numbered(n int) core.TaskID {
	var r [9]byte
	binary.BigEndian.PutUint64(r[:], uint64(n))
	return core.NewTaskID(1, 0, r)
}

func claimOp(n uint32, queues ...string) *core.Grant {
	op := &core.Grant{Worker: "worker-1", Session: core.SessionID{1}, N: n}
	for _, q := range queues {
		op.Queues = append(op.Queues, core.GrantQueue{Name: q})
	}
	return op
}

// TestCycleWithinOneLayerWritesFewRecords counts what a store would write for tasks that are created, given out and
// completed before anything is written: payload, state and the index of ended tasks, and a result that is not small.
func TestCycleWithinOneLayerWritesFewRecords(t *testing.T) {
	for result, records := range map[string]int{"ok": 3, strings.Repeat("r", inlineResult): 4} {
		t.Run(fmt.Sprint(len(result), " bytes of result"), func(t *testing.T) { testCycleWrites(t, result, records) })
	}
}

func testCycleWrites(t *testing.T, result string, records int) {
	w := newWorld(t, Options{})
	w.do(&core.TaskCreate{ID: idOf("warm"), Queue: "mail"})
	w.tx.StartLayer()
	const n = 100
	for i := range n {
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "mail", Priority: 9, Payload: []byte("payload")})
	}
	for _, a := range w.do(claimOp(n, "mail")).res.Assigned {
		w.do(&core.TaskComplete{Task: a.Task, Token: a.Token, Result: []byte(result)})
	}
	writes, deletes := w.tx.Mutations()
	if want := records*n + 2; writes != want || deletes != 0 { // and one record of the queue's counters, one of the partition's
		t.Errorf("%d writes and %d deletes for %d tasks, want %d and 0", writes, deletes, n, want)
	}
}

// A settle reads nothing, unless it counts an error: then it reads and writes the row of its group, and the kind of the task where the
// machine was opened since the grant.
func TestSettleReadsNothing(t *testing.T) {
	w := newWorld(t, Options{})
	settles := []func(h core.TaskHold) core.Op{
		func(h core.TaskHold) core.Op {
			return &core.TaskComplete{Task: h.Task, Token: h.Token, Result: []byte("r")}
		},
		func(h core.TaskHold) core.Op { return &core.TaskFail{Task: h.Task, Token: h.Token} },
		func(h core.TaskHold) core.Op { return &core.TaskFail{Task: h.Task, Token: h.Token, Fatal: true} },
		func(h core.TaskHold) core.Op { return &core.TaskSnooze{Task: h.Task, Token: h.Token, Delay: 1} },
		func(h core.TaskHold) core.Op { return &core.TaskRelease{Task: h.Task, Token: h.Token} },
		func(h core.TaskHold) core.Op { return &core.TaskRenew{Items: []core.TaskHold{h}, Extend: 90_000} },
	}
	for i := range settles {
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "mail"})
	}
	assigned := w.do(claimOp(10, "mail")).res.Assigned
	w.restart()
	for i, settle := range settles {
		w.tx.ResetCounts()
		gets := 0
		op := settle(core.TaskHold{Task: assigned[i].Task, Token: assigned[i].Token})
		if _, fact, err := w.m.Apply(w.tx, &w.c, op); fact != nil || err != nil {
			t.Fatal(fact, err)
		}
		if _, fails := op.(*core.TaskFail); fails {
			gets = 2
		}
		if c := w.tx.Counts(); c.Gets+c.Scans != gets {
			t.Errorf("%T reads: %+v", op, c)
		}
	}
}

func TestStateRecordStaysSmall(t *testing.T) {
	largest := record{
		state: core.Running, priority: 9, hasResult: true, queue: 10_000, token: 1 << 40, attempt: 1_000_000,
		failures: 1000, crashes: 1000, snoozes: 1_000_000, redrives: 100, readyAt: epoch, startedAt: epoch + 3_600_000,
		sort: 1 << 60, seq: 1 << 40, session: core.SessionID{1}, worker: string(make([]byte, inlineWorker)),
		lease: maxLease, leaseUntil: epoch + 48*3_600_000, runEnd: epoch + 96*3_600_000,
	}
	for _, state := range []core.State{core.Scheduled, core.Ready, core.Running, core.Completed, core.Dead} {
		rec := largest
		rec.state, rec.runAt, rec.endedAt, rec.endedIdx = state, epoch, epoch+48*3_600_000, 1<<40
		if n := len(appendRecord(nil, &rec)); n > 120 {
			t.Errorf("the record of a task %s has %d bytes, more than 120", state, n)
		}
	}
	largest.state, largest.result = core.Completed, make([]byte, inlineResult)
	if n := len(appendRecord(nil, &largest)); n > 160 {
		t.Errorf("the record of a task with its result has %d bytes, more than 160", n)
	}
}

// BenchmarkCycle is a task's whole life in the machine alone, on a state in memory whose own cost is most of it: a batch of
// creates and a claim in one entry, the completions in the next.
func BenchmarkCycle(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			c := core.ApplyContext{Stamp: epoch, Format: core.FormatCurrent, Principal: "alice"}
			payload, result := []byte(`{"bench":true}`), []byte(`{"ok":true}`)
			creates, completes := make([]core.TaskCreate, batch), make([]core.TaskComplete, batch)
			grant := claimOp(uint32(batch), "bench")
			var tx *machinetest.Txn
			var m *Machine
			var total machinetest.Counts
			var events core.EventList
			apply := func(op core.Op) core.OpResult {
				res, fact, err := m.Apply(tx, &c, op)
				if fact != nil || err != nil {
					b.Fatal(fact, err)
				}
				return res
			}
			end := func() {
				_ = m.End(tx, &c)
				events.Reset()
				m.Events(&events)
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if n%1024 == 0 { // a layer is written out at some time; a run must not grow with its length
					if tx != nil {
						total.Add(tx.Counts())
					}
					tx, m = machinetest.NewTxn(), New(testPartition, Options{})
					tx.Untracked()
				}
				c.Index++
				c.Stamp++
				for i := range creates {
					creates[i] = core.TaskCreate{ID: numbered(n), Queue: "bench", Payload: payload}
					apply(&creates[i])
					n++
				}
				assigned := apply(grant).Assigned
				end()
				for i, a := range assigned {
					completes[i] = core.TaskComplete{Task: a.Task, Token: a.Token, Result: result}
					apply(&completes[i])
				}
				end()
			}
			total.Add(tx.Counts())
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cycle")
			b.ReportMetric(float64(total.Gets)/float64(n), "gets/cycle")
			b.ReportMetric(float64(total.Sets+total.Inserts)/float64(n), "writes/cycle")
			b.ReportMetric(float64(total.Deletes)/float64(n), "deletes/cycle")
		})
	}
}

// BenchmarkCreate is a create in the machine without the cost of a store: every change is dropped, every read finds nothing.
func BenchmarkCreate(b *testing.B) {
	m := New(testPartition, Options{})
	c := core.ApplyContext{Stamp: epoch, Format: core.FormatCurrent, Principal: "alice"}
	op := core.TaskCreate{Queue: "bench", Payload: []byte(`{"bench":true}`)}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		op.ID = numbered(n)
		if _, fact, err := m.Apply(nowhere{}, &c, &op); fact != nil || err != nil {
			b.Fatal(fact, err)
		}
	}
}

// nowhere is a transaction that keeps nothing.
type nowhere struct{ core.Txn }

func (nowhere) Get([]byte) ([]byte, bool, error) { return nil, false, nil }
func (nowhere) Set(_, _ []byte)                  {}
func (nowhere) Insert(_, _ []byte)               {}
func (nowhere) Delete([]byte)                    {}
