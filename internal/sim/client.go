package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// queueName is the one queue of a partition that clients fill and workers empty.
const queueName = "q"

const (
	patience = 1500 * time.Millisecond // after it a client takes a request for lost, and asks again
	giveUp   = 8 * time.Minute         // after it a client asks no more: what it was answered before may be forgotten
)

// space is a namespace that clients use.
type space struct {
	tenant     string
	partitions int
}

// place is one partition of a space, by its index there.
type place struct {
	*space
	index uint16
}

// system is the place of the cluster's own partition, which holds the directory of namespaces.
var system = place{}

// find returns the partition of a place, as this host's replica of the directory has it; false if
// the host does not know the namespace yet. It also notes in the ledger which shard the partition
// is in.
func (h *host) find(at place) (core.Partition, bool) {
	if at == system {
		return core.Partition{}, true
	}
	info, ok, err := h.node.FindNamespace(at.tenant, "default")
	if err != nil {
		h.w.violate("host %d: directory: %v", h.id, err)
	}
	if !ok {
		return core.Partition{}, false
	}
	p := info.Partitions[at.index]
	h.w.ledger.shards[at] = p.Shard
	return p.Partition, true
}

// client sends requests and repeats each until it knows the outcome. host is the host that it
// believes to lead.
type client struct {
	w    *world
	host uint64
}

// request is one commit that a client wants. It may be sent many times; make builds the same
// content for each try, because a node may change what it is given.
type request struct {
	at place
	// The task that it creates; zero for other requests.
	creates core.TaskID
	make    func() core.Commit
	// Finds the commit in the log, to compare the result that the client was told.
	matches func(*core.Commit) bool
	answer  func(core.Result, core.At)
	// Called if the client gives up; nil: it never does.
	unknown func()
	since   time.Duration // when it was first sent
	// How often it was sent. An answer or a timeout of an earlier try is recognised by its number.
	tries int
	// The outcome is known, or the client gave up.
	over bool
}

// create creates the next task, and plans the one after it, until the plan's number is reached.
// Some tasks have one of few unique keys, so that creates of different clients meet.
func (c *client) create() {
	w := c.w
	if w.ledger.made >= w.plan.Tasks {
		return
	}
	w.ledger.made++
	at := w.ledger.somePlace()
	id := w.taskID(at)
	op := core.TaskCreate{
		ID: id, Queue: queueName, Delay: w.someDelay(), Lease: core.MillisOf(w.plan.Lease), MaxAttempts: 500, MaxCrashes: 500,
		MaxDeliveries: 10_000, Retry: core.Retry{Base: 100, Max: 1000}, Priority: uint8(w.rng.IntN(3)),
		Payload: fmt.Appendf(nil, "%d", w.ledger.made),
	}
	if w.chance(100) {
		op.Unique.Key = uniqueKeyAt(at, w.rng.IntN(4))
	}
	if w.plan.Operate {
		w.dress(&op)
	}
	if w.plan.Wait {
		w.wait(at, &op)
	}
	next := func() { w.after(w.between(0, 20*time.Millisecond), "client", 0, c.create) }
	c.begin(&request{
		at: at,
		make: func() core.Commit {
			create := op
			return core.Commit{Principal: "client", Ops: []core.Op{&create}}
		},
		creates: id,
		matches: creates(id),
		answer: func(r core.Result, at core.At) {
			if w.full(r) || isPinned(r) || len(op.After)+len(op.Limiters) > 0 && isMissing(r) { // what it was to wait for may be gone, or a limiter
				w.ledger.lost++
				next()
				return
			}
			if r.Refusal != nil {
				w.violate("create of %s was refused: %v", id, r.Refusal.Fact)
				return
			}
			if r.Ops[0].Task == id {
				w.ledger.created(id, at)
			} else {
				w.ledger.lost++ // another has its key
			}
			next()
		},
		unknown: func() { w.ledger.lost++; next() },
	})
}

// wait lets some tasks wait for up to two of those of their partition that were made last. However these end, the task goes.
func (w *world) wait(at place, op *core.TaskCreate) {
	l := w.ledger
	for range w.rng.IntN(3) {
		if len(l.recent) == 0 {
			return
		}
		a := core.After{Task: l.recent[w.rng.IntN(len(l.recent))], Terminal: w.chance(500)}
		same := func(b core.After) bool { return b.Task == a.Task }
		if at.space == l.space && a.Task.Partition() == at.index && !slices.ContainsFunc(op.After, same) {
			op.After, op.OnDepFailure = append(op.After, a), core.DepRun
		}
	}
	slices.SortFunc(op.After, func(a, b core.After) int { return bytes.Compare(a.Task[:], b.Task[:]) })
}

// isMissing reports whether a create was refused because it named a task that is not there.
func isMissing(r core.Result) bool {
	if r.Refusal == nil {
		return false
	}
	f, ok := r.Refusal.Fact.(core.NotFound)
	return ok && (f.Kind == "task" || f.Kind == "limiter")
}

// isPinned reports whether an op was refused because its task is of a queue whose tasks are made in another partition.
func isPinned(r core.Result) bool {
	if r.Refusal == nil {
		return false
	}
	_, ok := r.Refusal.Fact.(core.QueuePinned)
	return ok
}

// uniqueKeyAt returns unique key n for a partition: it tries suffixes until the key is placed
// there.
func uniqueKeyAt(at place, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("u%d-%d", n, i); core.PlaceText([]byte(key), at.partitions) == at.index {
			return key
		}
	}
}

// creates returns what finds the commit that creates a task.
func creates(id core.TaskID) func(*core.Commit) bool {
	return func(c *core.Commit) bool {
		op, ok := c.Ops[0].(*core.TaskCreate)
		return ok && op.ID == id
	}
}

// someDelay draws a task's delay: mostly none, sometimes seconds, and days if the plan lets days
// pass.
func (w *world) someDelay() core.Millis {
	switch {
	case w.plan.Days && w.chance(150):
		return core.Millis(w.rng.Int64N(10 * 24 * 3600 * 1000))
	case w.chance(150):
		return core.Millis(w.rng.IntN(3000))
	}
	return 0
}

// begin sends a request for the first time.
func (c *client) begin(q *request) {
	q.since = c.w.time()
	c.w.ledger.open[q] = c.w.now
	c.send(q)
}

// send sends a request to the host that the client believes to lead, and plans another try in case
// no answer comes. After giveUp it ends the request as unknown: the server may have forgotten what
// makes a repetition safe.
func (c *client) send(q *request) {
	w := c.w
	if w.time()-q.since > giveUp && q.unknown != nil {
		q.over = true
		delete(w.ledger.open, q)
		q.unknown()
		return
	}
	q.tries++
	try := q.tries
	target := c.host
	w.after(w.delay(), "request", target, func() {
		h := w.host(target)
		if h.node == nil || !w.healthy && w.chance(w.plan.Drop) || w.time()-q.since > giveUp {
			return
		}
		h.whenAwake(func() { c.arrive(q, try, h) })
	})
	w.after(patience, "patience", 0, func() { c.elsewhere(q, try, nil) })
}

// arrive is a request that reaches a host. Its answer may be lost on the way back.
func (c *client) arrive(q *request, try int, h *host) {
	w := c.w
	p, ok := h.find(q.at)
	if !ok {
		w.after(w.delay(), "unavailable", 0, func() { c.elsewhere(q, try, nil) })
		return
	}
	commit := q.make()
	commit.Partition = p
	h.node.Propose(p, []core.Commit{commit}, func(d core.Proposed) {
		w.ledger.answered(h, q.at, d)
		if !w.healthy && w.chance(w.plan.Drop) {
			return
		}
		w.after(w.delay(), "response", 0, func() { c.take(q, try, d) })
	})
	h.kick()
}

// take is an answer that reaches the client. A result is compared with the log later; an error
// makes the client try again.
func (c *client) take(q *request, try int, d core.Proposed) {
	w := c.w
	if q.over {
		return
	}
	if d.Err != nil {
		c.elsewhere(q, try, d.Err)
		return
	}
	q.over = true
	delete(w.ledger.open, q)
	w.note("answer %d %v", d.At.Index, d.Results[0].Refusal)
	w.ledger.acknowledged(q.at, d, q.matches)
	q.answer(d.Results[0], d.At)
}

// elsewhere plans another try, at the leader that the error names or at another host. It does
// nothing if the request is over, or if try is not the newest one.
func (c *client) elsewhere(q *request, try int, why error) {
	if q.over || q.tries != try {
		return
	}
	c.host = c.w.leaderOf(why, c.host)
	c.w.after(c.w.between(time.Millisecond, 50*time.Millisecond), "retry", 0, func() {
		if !q.over && q.tries == try {
			c.send(q)
		}
	})
}

// leaderOf returns the host that an error names as leader, else a random one other than the one
// that was tried.
func (w *world) leaderOf(why error, tried uint64) uint64 {
	var moved core.NotLeader
	if errors.As(why, &moved) {
		if id, err := strconv.ParseUint(strings.TrimPrefix(moved.Leader, "n"), 10, 64); err == nil && id >= 1 && int(id) <= len(w.hosts) {
			return id
		}
	}
	if len(w.hosts) == 1 {
		return 1
	}
	return w.inside(1 + (tried+w.rng.Uint64N(uint64(len(w.hosts)-1)))%uint64(len(w.hosts)))
}

// taskID makes an id from which the partition can be found.
func (w *world) taskID(at place) core.TaskID {
	var random [9]byte
	for i := range random {
		random[i] = byte(w.rng.Uint32())
	}
	return core.PlacedID(int64(w.shardTime()), at.index, at.partitions, random)
}
