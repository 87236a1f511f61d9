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

// ledger is what clients were told.
type ledger struct {
	w        *world
	space    *space // that tasks are in
	rival    *space // of another tenant
	opened   int    // namespaces that were made
	made     int    // tasks that clients have begun to create
	lost     int    // of those: given up
	written  int    // writes that were begun
	followed int
	workers  []*worker
	shards   map[place]core.ShardID
	open     map[*request]time.Duration // calls that have not ended, and when they began

	acked   map[core.TaskID]uint64     // creates that were acknowledged, and the entry's index
	recent  []core.TaskID              // the same, in order
	aged    map[core.TaskID]bool       // days went by while their create was under way: what is repeated may be done again
	deleted map[core.TaskID]bool       // tasks that somebody has asked to delete
	ended   map[core.TaskID]string     // completions that were acknowledged, and the value of their effect
	tokens  map[core.TaskID]core.Token // highest that a worker was given
	top     []uint64                   // by shard: highest index that was acknowledged, or shown by a read
	newest  []uint64                   // by shard: highest term that had a leader
	leaders map[leaderKey]*leadership
	answers []answer // of the event at hand
	told    [][]told // by shard: all results that clients were told
	shown   [][]shown
}

// answer is that a host has answered a proposal: from here on the entry may not be lost.
type answer struct {
	host  uint64
	shard core.ShardID
	index uint64
}

// told is a result that a client was told.
type told struct {
	index   uint64
	matches func(*core.Commit) bool
	result  []byte
}

func newLedger(w *world) *ledger {
	n := w.plan.Shards
	return &ledger{
		w: w, space: &space{"acme", w.plan.Partitions}, rival: &space{"rival", 1}, shards: make(map[place]core.ShardID),
		open: make(map[*request]time.Duration), acked: make(map[core.TaskID]uint64), aged: make(map[core.TaskID]bool), deleted: make(map[core.TaskID]bool), ended: make(map[core.TaskID]string),
		tokens: make(map[core.TaskID]core.Token), top: make([]uint64, n), newest: make([]uint64, n),
		leaders: make(map[leaderKey]*leadership), told: make([][]told, n), shown: make([][]shown, n),
	}
}

// answered takes in that a host ends a proposal.
func (l *ledger) answered(h *host, at place, d core.Proposed) {
	if d.Err == nil {
		l.answers = append(l.answers, answer{h.id, l.shards[at], d.At.Index})
	}
}

// checkAnswers holds the answers of an event to the logs: most hosts have the entry, durably.
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

// acknowledged takes in what a client was told.
func (l *ledger) acknowledged(at place, d core.Proposed, matches func(*core.Commit) bool) {
	shard := l.shards[at]
	l.top[shard] = max(l.top[shard], d.At.Index)
	l.told[shard] = append(l.told[shard], told{d.At.Index, matches, core.AppendResult(nil, &d.Results[0])})
}

// age notes that days go by in shard time: a create that is under way may be forgotten before it is repeated.
func (l *ledger) age() {
	for q := range l.open {
		l.aged[q.creates] = true
	}
}

func (l *ledger) created(id core.TaskID, at core.At) {
	l.acked[id] = at.Index
	l.recent = append(l.recent, id)
}

// leased takes in that a worker was given a task. A token is given once, and tokens of a task rise.
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

// completed takes in that a worker was told that it completed a task.
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

// places lists the partitions that tasks are in.
func (l *ledger) places() []place {
	out := make([]place, l.space.partitions)
	for i := range out {
		out[i] = place{l.space, uint16(i)}
	}
	return out
}

// idle reports whether every task that was created has ended, as a host's replicas have it.
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

// view shows a partition as a host's replica has it, and the index of what it shows.
func (l *ledger) view(h *host, at place, fn func(v core.View, index uint64) error) {
	sh, err := h.state.Shard(l.shards[at])
	if err == nil {
		err = sh.ViewAt(fn)
	}
	if err != nil {
		l.w.violate("host %d: read: %v", h.id, err)
	}
}

// audit looks for what contradicts itself in what a host has stored.
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

// retention is after what time a task that has ended may be gone.
const retention = 24 * time.Hour

// settle holds the end of a run to what clients were told: on every replica.
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

// judge holds one task to its effects and to what its worker was told.
func (l *ledger) judge(h *host, v core.View, p core.Partition, at place, t *core.Task) {
	value, _, has, err := kv.Get(v, p, "done", keyAt(at, t.ID.String()))
	if err != nil {
		l.w.violate("host %d: key of task %s: %v", h.id, t.ID, err)
		return
	}
	switch {
	case has != (t.State == core.Completed):
		l.w.violate("host %d: task %s is %s, and its effect is there: %v", h.id, t.ID, t.State, has)
	case has && !bytes.Equal(value, t.Result):
		l.w.violate("host %d: task %s has the result %q and the effect %q", h.id, t.ID, t.Result, value)
	}
	if told, ok := l.ended[t.ID]; ok && told != string(t.Result) && !l.aged[t.ID] {
		l.w.violate("host %d: task %s has the result %q, and %q was acknowledged", h.id, t.ID, t.Result, told)
	}
}
