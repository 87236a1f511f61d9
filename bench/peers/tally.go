package main

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// tally follows each task of a peer by a number in its payload: whether its create was acknowledged, whether a worker had
// it, and whether its completion was acknowledged.
type tally struct {
	// template is a payload whose number is replaced. It does not change.
	template []byte
	// next is the number of the next task.
	next atomic.Uint64
	// made is the number of creates that were acknowledged.
	made atomic.Uint64
	// done is the number of completions.
	done atomic.Uint64
	// strange is the number of payloads that are not from this run.
	strange atomic.Uint64

	// mu guards tasks.
	mu sync.Mutex
	// tasks is what is known of each task, by its number. It grows up to tasksLimit.
	tasks []fate
}

// fate is what is known of one task: a set of the marks below.
type fate uint8

const (
	// acked: its create was acknowledged.
	acked fate = 1 << iota
	// unknown: it is not known whether it was created.
	unknown
	// had: a worker had it.
	had
	// again: a worker had it more than once.
	again
	// ended: it was completed.
	ended
	// twice: it was completed more than once.
	twice
)

const (
	// payloadHead stands before the number.
	payloadHead = `{"bench":"`
	// payloadTail ends a payload.
	payloadTail = `"}`
	// payloadDigits is the width of the number, with zeros in front: all payloads of a run have one length.
	payloadDigits = 16
	// leastPayload is the size in bytes of a payload without filling.
	leastPayload = len(payloadHead) + payloadDigits + len(payloadTail)
	// tasksLimit bounds the memory of tasks, at one byte each. Tasks with higher numbers are not followed.
	tasksLimit = 50_000_000
)

// newTally follows tasks with JSON payloads of size bytes, or of the smallest size that has room for a number.
func newTally(size int) *tally {
	t := []byte(payloadHead)
	t = append(t, bytes.Repeat([]byte("0"), payloadDigits)...)
	t = append(t, bytes.Repeat([]byte("x"), max(0, size-leastPayload))...)
	return &tally{template: append(t, payloadTail...)}
}

// issue makes the payloads of n new tasks, and returns the number of the first.
func (t *tally) issue(n int) (first uint64, payloads [][]byte) {
	first = t.next.Add(uint64(n)) - uint64(n)
	payloads = make([][]byte, n)
	for i := range payloads {
		p := bytes.Clone(t.template)
		digits := strconv.AppendUint(nil, first+uint64(i), 10)
		copy(p[len(payloadHead)+payloadDigits-len(digits):], digits)
		payloads[i] = p
	}
	return first, payloads
}

// number reads the number of a payload. It fails for one that is not as it was issued.
func (t *tally) number(payload []byte) (uint64, bool) {
	if len(payload) != len(t.template) {
		return 0, false
	}
	const from, to = len(payloadHead), len(payloadHead) + payloadDigits
	n, err := strconv.ParseUint(string(payload[from:to]), 10, 64)
	same := bytes.Equal(payload[:from], t.template[:from]) && bytes.Equal(payload[to:], t.template[to:])
	if err != nil || !same || n >= t.next.Load() {
		return 0, false
	}
	return n, true
}

// set adds a mark, or the second mark where the first is there already.
func (t *tally) set(n uint64, m, second fate) {
	if n >= tasksLimit {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for uint64(len(t.tasks)) <= n {
		t.tasks = append(t.tasks, 0)
	}
	if t.tasks[n]&m != 0 {
		m = second
	}
	t.tasks[n] |= m
}

// created notes that the create of a task was acknowledged.
func (t *tally) created(n uint64) {
	t.set(n, acked, acked)
	t.made.Add(1)
}

// handled notes that a worker has a task, and returns its number.
func (t *tally) handled(payload []byte) (uint64, bool) {
	n, ok := t.number(payload)
	if !ok {
		t.strange.Add(1)
		return 0, false
	}
	t.set(n, had, again)
	return n, true
}

// completed notes that a completion was acknowledged.
func (t *tally) completed(n uint64) {
	t.set(n, ended, twice)
	t.done.Add(1)
}

// judge holds creates against completions: each task whose create was acknowledged was completed, once. It is called
// when all callers and workers have ended. That a worker had a task more than once is not a violation: queues promise
// delivery at least once.
func (t *tally) judge() (checked int, redelivered int, violations []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// lost counts tasks that were acknowledged and not completed, doubled those completed more than once, strangers those
	// whose create had failed.
	lost, doubled, strangers := 0, 0, 0
	for _, m := range t.tasks {
		if m&acked != 0 && (m&had == 0 || m&ended == 0) {
			lost++
		}
		if m&twice != 0 {
			doubled++
		}
		if m&again != 0 {
			redelivered++
		}
		if m&had != 0 && m&(acked|unknown) == 0 {
			strangers++
		}
	}
	violate := func(n uint64, format string) {
		if n > 0 {
			violations = append(violations, fmt.Sprintf(format, n))
		}
	}
	violate(uint64(lost), "lost: %d tasks that were acknowledged were never completed")
	violate(uint64(doubled), "doubled: %d tasks were completed more than once")
	violate(uint64(strangers), "unexpected: %d tasks came to a worker whose create had failed")
	violate(t.strange.Load(), "different: %d payloads came that are not as they were sent")
	return len(t.tasks), redelivered, violations
}

// traces times the way from create to claim of one task in 64. The answer to a create can come after the claim, so an
// end that comes first waits for the other.
type traces struct {
	// op is where the latencies are recorded.
	op *bench.Op

	// mu guards open.
	mu sync.Mutex
	// open are the tasks of which one end is known, by their key.
	open map[uint64]trace
}

// trace has both ends of the way of a task; zero: it is not known yet.
type trace struct{ created, claimed time.Time }

// traceOne is the share of tasks that are timed: those whose key it divides.
const traceOne = 64

// newTraces returns traces that record into op.
func newTraces(op *bench.Op) *traces { return &traces{op: op, open: map[uint64]trace{}} }

// note takes one end of the way of a task: created is when its create began.
func (t *traces) note(key uint64, created, claimed time.Time) {
	if key%traceOne != 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.open[key]
	if !created.IsZero() {
		x.created = created
	}
	if !claimed.IsZero() {
		x.claimed = claimed
	}
	if x.created.IsZero() || x.claimed.IsZero() {
		t.open[key] = x
		return
	}
	delete(t.open, key)
	t.op.Latency(0, x.claimed.Sub(x.created))
}
