package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// world is virtual time and what will happen in it.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	events events
	number uint64
	steps  int
	trace  hash.Hash64
	fail   error // the first violation

	hosts   []*host
	cut     map[[2]uint64]bool // wires that carry nothing: from, to
	healthy bool               // no more faults
	plan    Plan
	ledger  *ledger
}

// event is something that happens at a time. Events of one time happen in the order they were planned in.
type event struct {
	at     time.Duration
	number uint64
	name   string
	host   uint64 // whose it is, or 0
	do     func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push and Pop are container/heap's.
func (e *events) Push(x any) { *e = append(*e, x.(*event)) }

// Pop takes the last.
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return x
}

// after plans an event.
func (w *world) after(d time.Duration, name string, host uint64, do func()) {
	w.number++
	heap.Push(&w.events, &event{at: w.now + max(d, 0), number: w.number, name: name, host: host, do: do})
}

// note makes something part of the trace.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.trace, format+"\n", args...)
}

// violate ends the run: the rule was broken.
func (w *world) violate(format string, args ...any) {
	if w.fail == nil {
		w.fail = fmt.Errorf("at %v, step %d: %s", w.now, w.steps, fmt.Sprintf(format, args...))
	}
}

// run lets events happen until a time, or until nothing is left, or a rule is broken, or done says so.
func (w *world) run(until time.Duration, done func() bool) {
	for len(w.events) > 0 && w.fail == nil && !done() {
		e := w.events[0]
		if e.at > until {
			w.now = until
			return
		}
		heap.Pop(&w.events)
		w.now = e.at
		w.steps++
		var b [24]byte
		binary.BigEndian.PutUint64(b[:], uint64(e.at))
		binary.BigEndian.PutUint64(b[8:], e.number)
		binary.BigEndian.PutUint64(b[16:], e.host)
		_, _ = w.trace.Write(b[:])
		_, _ = w.trace.Write([]byte(e.name))
		e.do()
		for _, h := range w.hosts {
			h.check()
		}
	}
}

// chance is true n times in a thousand.
func (w *world) chance(n int) bool { return w.rng.IntN(1000) < n }

// between draws a time.
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

func newWorld(seed uint64, p Plan) *world {
	return &world{
		rng: rand.New(rand.NewPCG(seed, 0x6d696c6c72616365)), trace: fnv.New64a(), cut: make(map[[2]uint64]bool), plan: p,
	}
}

// seededReader is what the Raft library draws its election times from during a run.
type seededReader struct{ r *rand.Rand }

// Read fills b.
func (s seededReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(s.r.Uint32())
	}
	return len(b), nil
}
