package sim

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// ledger is what clients and workers were told, which the end of a history must still hold. It also
// counts what has been begun.
type ledger struct {
	w     *world
	space *space // that tasks are in
	rival *space // of another tenant
	// Namespaces that were created.
	opened int
	// Tasks that clients have begun to create, and how many of these they gave up.
	made    int
	lost    int // of those: given up
	written int // writes that were begun
	// Follow-up tasks that completions created.
	followed int
	workers  []*worker
	// The shard of each place, once a host has looked it up.
	shards map[place]core.ShardID
	// Requests without an outcome, and when they began.
	open map[*request]time.Duration

	// Creates that were acknowledged, with the index of the entry.
	acked  map[core.TaskID]uint64
	recent []core.TaskID // the same, in order
	// Tasks whose create was under way when days passed. Their repetition may be done a second
	// time, as the server may have forgotten the first.
	aged map[core.TaskID]bool
	// Tasks that a writer has asked to delete.
	deleted map[core.TaskID]bool
	// Completions that were acknowledged, with the value of their effect.
	ended map[core.TaskID]string
	// Tasks of which a client was told that they are cancelled, in order, and those that a client has asked to redrive. A cancelled
	// task that neither a client nor a bulk job redrives stays so.
	cancelled map[core.TaskID]bool
	stopped   []core.TaskID
	redriven  map[core.TaskID]bool
	jobs      []bulkJob           // whose start was sent, in order
	acts      map[core.OpKind]int // what operators did with tasks and queues
	// The highest token that a worker was given.
	tokens map[core.TaskID]core.Token
	// By shard: the highest index that was acknowledged, or shown by a read. A later read must show
	// at least this.
	top []uint64
	// By shard: the highest term that had a leader.
	newest  []uint64
	leaders map[leaderKey]*leadership
	// Answers of the event that is happening; checked when it is over.
	answers []answer
	// By shard: all results that clients were told.
	told [][]told
	// By shard: all reads that were answered.
	shown [][]shown
}

// answer is that a host has answered a proposal. From then on the entry must not be lost.
type answer struct {
	host  uint64
	shard core.ShardID
	index uint64
}

// told is a result that a client was told: the entry's index, what finds the commit in it, and the
// encoded result.
type told struct {
	index   uint64
	matches func(*core.Commit) bool
	result  []byte
}

// newLedger returns an empty ledger with two namespaces of different tenants.
func newLedger(w *world) *ledger {
	n := w.plan.Shards
	return &ledger{
		w: w, space: &space{"acme", w.plan.Partitions}, rival: &space{"rival", 1}, shards: make(map[place]core.ShardID),
		open: make(map[*request]time.Duration), acked: make(map[core.TaskID]uint64), aged: make(map[core.TaskID]bool), deleted: make(map[core.TaskID]bool), ended: make(map[core.TaskID]string),
		cancelled: make(map[core.TaskID]bool), redriven: make(map[core.TaskID]bool), acts: make(map[core.OpKind]int),
		tokens: make(map[core.TaskID]core.Token), top: make([]uint64, n), newest: make([]uint64, n),
		leaders: make(map[leaderKey]*leadership), told: make([][]told, n), shown: make([][]shown, n),
	}
}

// answered records that a host ends a proposal. It is called at the host, before the answer
// travels.
func (l *ledger) answered(h *host, at place, d core.Proposed) {
	if d.Err == nil {
		l.answers = append(l.answers, answer{h.id, l.shards[at], d.At.Index})
	}
}

// checkAnswers checks the answers of an event: the host has applied the entry, and a majority has
// it durably.
func (l *ledger) checkAnswers() {
	for _, a := range l.answers {
		e := l.w.history.at(a.shard, a.index)
		if e == nil {
			l.w.violate("host %d answered entry %d of shard %d, which it has not applied", a.host, a.index, a.shard)
			continue
		}
		if !l.w.committed(a.shard, e.index, e.term) {
			l.w.violate("host %d answered entry %d of shard %d, which most voters do not have durably", a.host, a.index, a.shard)
		}
	}
	l.answers = l.answers[:0]
}

// acknowledged records what a client was told.
func (l *ledger) acknowledged(at place, d core.Proposed, matches func(*core.Commit) bool) {
	shard := l.shards[at]
	l.top[shard] = max(l.top[shard], d.At.Index)
	l.told[shard] = append(l.told[shard], told{d.At.Index, matches, core.AppendResult(nil, &d.Results[0])})
}

// age records that days pass in shard time: whatever makes a create safe to repeat may be forgotten
// before the create is repeated.
func (l *ledger) age() {
	for q := range l.open {
		l.aged[q.creates] = true
	}
}

// created records a create that was acknowledged.
func (l *ledger) created(id core.TaskID, at core.At) {
	l.acked[id] = at.Index
	l.recent = append(l.recent, id)
}

// leased records that a worker was given a task. A token is given once, tokens of a task rise, and
// a completed task is not given again.
func (l *ledger) leased(k *worker, t core.Assigned) {
	if t.Token < l.tokens[t.Task] {
		return // an assignment that was long on its way
	}
	if t.Token == l.tokens[t.Task] {
		l.w.violate("task %s was given out twice under token %d, now to %s", t.Task, t.Token, k.name)
	}
	if value, over := l.ended[t.Task]; over && !l.aged[t.Task] {
		l.w.violate("task %s, completed by %s, was given out again to %s", t.Task, value, k.name)
	}
	l.tokens[t.Task] = t.Token
}

// completed records that a worker was told that it completed a task. Only one attempt can have.
func (l *ledger) completed(j *job) {
	if value, twice := l.ended[j.task.Task]; twice && value != j.value && !l.aged[j.task.Task] {
		l.w.violate("task %s was completed twice, by %s and %s", j.task.Task, value, j.value)
	}
	l.ended[j.task.Task] = j.value
}

// somePlace draws a partition.
func (l *ledger) somePlace() place {
	return place{l.space, uint16(l.w.rng.IntN(l.space.partitions))}
}

// places lists the partitions that have tasks.
func (l *ledger) places() []place {
	out := make([]place, l.space.partitions)
	for i := range out {
		out[i] = place{l.space, uint16(i)}
	}
	return out
}

// idle reports whether all tasks were created and have ended, as a host's replicas have it.
func (l *ledger) idle(h *host) bool {
	if l.made < l.w.plan.Tasks || len(l.acked)+l.lost < l.made {
		return false
	}
	for _, at := range l.places() {
		p, ok := h.find(at)
		if !ok {
			return false
		}
		idle := true
		l.view(h, at, func(v core.View, _ uint64) error {
			s, _, err := queue.Stats(v, p, queueName)
			idle = s.States[core.Ready]+s.States[core.Running]+s.States[core.Scheduled] == 0
			return err
		})
		if !idle {
			return false
		}
	}
	return true
}

// view calls fn with the state of a partition on a host, and the index of that state. An error of
// fn breaks a rule.
func (l *ledger) view(h *host, at place, fn func(v core.View, index uint64) error) {
	sh, err := h.state.Shard(l.shards[at])
	if err == nil {
		err = sh.ViewAt(fn)
	}
	if err != nil {
		l.w.violate("host %d: read: %v", h.id, err)
	}
}

// audit recounts what a host has stored and reports contradictions.
func (h *host) audit() {
	l := h.w.ledger
	for _, at := range l.places() {
		p, ok := h.find(at)
		if !ok {
			continue
		}
		l.view(h, at, func(v core.View, _ uint64) error {
			findings, err := queue.Audit(v, p)
			for _, f := range findings {
				h.w.violate("host %d: audit: %s", h.id, f)
			}
			return err
		})
	}
}

// retention is the time after which a task that has ended may be removed.
const retention = 24 * time.Hour

// settle compares what a host has stored at the end with what clients were told: every acknowledged
// task is there, unless it may have been removed.
func (l *ledger) settle(h *host) {
	h.audit()
	for _, id := range slices.SortedFunc(maps.Keys(l.acked), compareIDs) {
		at := place{l.space, id.Partition()}
		p, ok := h.find(at)
		if !ok {
			l.w.violate("host %d has no namespace", h.id)
			return
		}
		l.view(h, at, func(v core.View, _ uint64) error {
			t, found, err := queue.Task(v, p, id)
			switch {
			case err != nil:
				return err
			case found:
				l.judge(h, v, p, at, &t)
			case l.w.passed < retention-time.Hour && !l.deleted[id]:
				l.w.violate("host %d: task %s was acknowledged at entry %d and is not there", h.id, id, l.acked[id])
			}
			return nil
		})
	}
}

// judge compares one task with its effect and with what its worker was told. The effect must exist
// exactly if the task is completed. That of a task that was made a second time, after the first was removed,
// may be of the first.
func (l *ledger) judge(h *host, v core.View, p core.Partition, at place, t *core.Task) {
	value, _, has, err := kv.Get(v, p, "done", keyAt(at, t.ID.String()))
	if err != nil {
		l.w.violate("host %d: key of task %s: %v", h.id, t.ID, err)
		return
	}
	done := t.State == core.Completed
	switch {
	case has && !done && l.aged[t.ID]:
	case has != done:
		l.w.violate("host %d: task %s is %s, and its effect is there: %v", h.id, t.ID, t.State, has)
	case has && !bytes.Equal(value, t.Result):
		l.w.violate("host %d: task %s has the result %q and the effect %q", h.id, t.ID, t.Result, value)
	}
	if l.cancelled[t.ID] && !l.redriven[t.ID] && !l.aged[t.ID] && t.State != core.Cancelled && !l.bulkRedriven(t) {
		l.w.violate("host %d: task %s is %s, and it was acknowledged that it is cancelled", h.id, t.ID, t.State)
	}
	if told, ok := l.ended[t.ID]; ok && told != string(t.Result) && !l.aged[t.ID] {
		l.w.violate("host %d: task %s has the result %q, and %q was acknowledged", h.id, t.ID, t.Result, told)
	}
}
