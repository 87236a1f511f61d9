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

// world is virtual time and the events that will happen in it, with everything that takes part.
type world struct {
	rng *rand.Rand
	now time.Duration
	// Time that passed at once (Leap). All clocks show it, but planned events do not come closer.
	passed    time.Duration
	events    events
	number    uint64
	steps     int
	snapshots int // states that hosts got instead of entries
	// Number of steps after which the run ends; 0: none.
	most int
	// Hash of everything that happened, in order.
	trace hash.Hash64
	// The first violation; it ends the run.
	fail  error
	diary *diary // nil: what happens is not written down

	hosts   []*host
	members core.Directory // the newest that was seen
	// Every replica id that there ever was.
	replicas map[uint64]*replica
	// Number of join tokens that were made.
	tokens uint64
	// Number of the last change of membership that has ended.
	jobs    uint64
	changes int // that were done
	// Wires that carry nothing, from and to, with the number of faults that cut them.
	cut map[[2]uint64]int
	// No more faults happen.
	healthy bool
	plan    Plan
	// How often each fault happened.
	struck  map[string]int
	ledger  *ledger
	history history
}

// event is something that happens at a time. Events of the same time happen in the order in which
// they were planned.
type event struct {
	at     time.Duration
	number uint64
	name   string
	host   uint64 // whose it is, or 0
	do     func()
}

// events is a heap, the next event first.
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

// after plans an event d from now. host is the host that it belongs to, which is checked after it;
// 0: none.
func (w *world) after(d time.Duration, name string, host uint64, do func()) {
	w.number++
	heap.Push(&w.events, &event{at: w.now + max(d, 0), number: w.number, name: name, host: host, do: do})
}

// time returns the true time since the beginning, with the time that passed at once.
func (w *world) time() time.Duration { return w.now + w.passed }

// shardTime is what a right clock shows.
func (w *world) shardTime() core.ShardTime { return core.ShardTimeOf(epoch.Add(w.time())) }

// note makes something part of the trace, and of the diary if there is one.
func (w *world) note(format string, args ...any) {
	line := fmt.Appendf(nil, format, args...)
	_, _ = w.trace.Write(line)
	if w.diary != nil {
		w.diary.add(w, "  "+string(line))
	}
}

// violate records that a rule was broken, which ends the run. Only the first one counts: what
// follows may be a consequence.
func (w *world) violate(format string, args ...any) {
	if w.fail == nil {
		w.fail = fmt.Errorf("at %v, step %d: %s", w.now, w.steps, fmt.Sprintf(format, args...))
	}
}

// over reports whether the run has ended.
func (w *world) over() bool { return w.fail != nil || w.most > 0 && w.steps >= w.most }

// run makes events happen until the time until, until none is left, until the run is over, or until
// done says so. After each event it checks the host that the event belongs to and the answers that
// were given.
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

// boundsEvery is the number of steps between two checks of limits and configurations.
const boundsEvery = 256

// chance is true n times in a thousand.
func (w *world) chance(n int) bool { return w.rng.IntN(1000) < n }

// between draws a duration from lo to hi, both included.
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

// newWorld returns a world without hosts.
func newWorld(seed uint64, p Plan) *world {
	return &world{
		rng: rand.New(rand.NewPCG(seed, 0x6d696c6c72616365)), trace: fnv.New64a(), cut: make(map[[2]uint64]int), plan: p,
		struck: make(map[string]int), history: newHistory(p.Shards, p.Nodes), replicas: make(map[uint64]*replica),
	}
}

// seededReader is the source of the Raft library's election times during a run.
type seededReader struct{ r *rand.Rand }

// Read fills b.
func (s seededReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(s.r.Uint32())
	}
	return len(b), nil
}

// diary is what happened as text: the last keep lines, or all of them given to print as they come.
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
