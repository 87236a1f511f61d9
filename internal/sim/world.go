package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// world is virtual time and what will happen in it.
type world struct {
	rng       *rand.Rand
	now       time.Duration
	passed    time.Duration // days that went by at once: every clock shows them, and what is under way does not feel them
	events    events
	number    uint64
	steps     int
	snapshots int // states that hosts got instead of entries
	most      int // steps after which the run ends; 0 = none
	trace     hash.Hash64
	fail      error  // the first violation
	diary     *diary // nil: what happens is not written down

	hosts    []*host
	members  core.Directory      // the newest that was seen
	replicas map[uint64]*replica // every replica id there ever was
	tokens   uint64              // to join with, that were made
	jobs     uint64              // the last change of membership that has ended
	changes  int                 // that were done
	cut      map[[2]uint64]int   // wires that carry nothing: from, to; how many faults cut them
	healthy  bool                // no more faults
	plan     Plan
	struck   map[string]int // faults that happened
	ledger   *ledger
	history  history
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

// time is how late it is in the world, the days that went by at once included.
func (w *world) time() time.Duration { return w.now + w.passed }

// shardTime is what a right clock shows.
func (w *world) shardTime() core.ShardTime { return core.ShardTimeOf(epoch.Add(w.time())) }

// note makes something part of the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Appendf(nil, format, args...)
	_, _ = w.trace.Write(line)
	if w.diary != nil {
		w.diary.add(w, "  "+string(line))
	}
}

// violate ends the run: the rule was broken.
func (w *world) violate(format string, args ...any) {
	if w.fail == nil {
		w.fail = fmt.Errorf("at %v, step %d: %s", w.now, w.steps, fmt.Sprintf(format, args...))
	}
}

// over reports whether the run has ended.
func (w *world) over() bool { return w.fail != nil || w.most > 0 && w.steps >= w.most }

// run lets events happen until a time, or until nothing is left, or the run is over, or done says so.
func (w *world) run(until time.Duration, done func() bool) {
	for len(w.events) > 0 && !w.over() && !done() {
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
		if w.diary != nil {
			w.diary.add(w, fmt.Sprintf("%s %d", e.name, e.host))
		}
		e.do()
		if e.host > 0 {
			w.host(e.host).check()
		}
		w.ledger.checkAnswers()
		if w.steps%boundsEvery == 0 {
			for _, h := range w.hosts {
				h.checkBounds()
			}
		}
	}
}

// boundsEvery is after how many steps the lengths of queues are looked at.
const boundsEvery = 256

// chance is true n times in a thousand.
func (w *world) chance(n int) bool { return w.rng.IntN(1000) < n }

// between draws a time.
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

func newWorld(seed uint64, p Plan) *world {
	return &world{
		rng: rand.New(rand.NewPCG(seed, 0x6d696c6c72616365)), trace: fnv.New64a(), cut: make(map[[2]uint64]int), plan: p,
		struck: make(map[string]int), history: newHistory(p.Shards, p.Nodes), replicas: make(map[uint64]*replica),
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

// diary is what happened, as text: the last lines of it, or all as they come.
type diary struct {
	keep  int
	lines []string
	print func(string)
}

func (d *diary) add(w *world, line string) {
	line = fmt.Sprintf("%6d %12v %s", w.steps, w.now, line)
	if d.print != nil {
		d.print(line)
		return
	}
	d.lines = append(d.lines, line)
	if len(d.lines) > 2*d.keep {
		d.lines = slices.Clone(d.lines[len(d.lines)-d.keep:])
	}
}

// last returns the last lines.
func (d *diary) last() []string { return d.lines[max(0, len(d.lines)-d.keep):] }
