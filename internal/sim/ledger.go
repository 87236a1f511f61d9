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

// ledger is what clients were told, and what replicas have shown.
type ledger struct {
	w          *world
	opened     bool
	newestTask core.TaskID // of which a client was told
	made       int         // tasks that clients have begun to create
	followed   int
	workers    []*worker

	acked   map[core.TaskID]uint64             // creates that were acknowledged, and the entry's index
	ended   map[core.TaskID]string             // completions that were acknowledged, and the value of their effect
	tokens  map[core.TaskID]core.Token         // highest that a worker was given
	follows map[core.TaskHold]core.TaskID      // tasks that a completion creates
	top     map[core.ShardID]uint64            // highest index that was acknowledged
	states  map[core.ShardID]map[uint64]uint64 // apply hash by index, of the first replica to get there
	leaders map[leaderKey]uint64
}

type leaderKey struct {
	shard core.ShardID
	term  uint64
}

func newLedger(w *world) *ledger {
	return &ledger{
		w: w, acked: make(map[core.TaskID]uint64), ended: make(map[core.TaskID]string), tokens: make(map[core.TaskID]core.Token),
		follows: make(map[core.TaskHold]core.TaskID), top: make(map[core.ShardID]uint64),
		states: make(map[core.ShardID]map[uint64]uint64), leaders: make(map[leaderKey]uint64),
	}
}

// clientShard is the shard of the partition that clients use.
const clientShard core.ShardID = 0

func (l *ledger) acknowledged(at core.At) { l.top[clientShard] = max(l.top[clientShard], at.Index) }

func (l *ledger) created(id core.TaskID, at core.At) {
	l.acked[id] = at.Index
	l.newestTask = id
}

// leased takes in that a worker was given a task. A token is given once, and tokens of a task rise.
func (l *ledger) leased(k *worker, t core.Assigned) {
	if t.Token < l.tokens[t.Task] {
		return // an assignment that was long on its way
	}
	if t.Token == l.tokens[t.Task] {
		l.w.violate("task %s was given out twice under token %d, now to %s", t.Task, t.Token, k.name)
	}
	if value, over := l.ended[t.Task]; over {
		l.w.violate("task %s, completed by %s, was given out again to %s", t.Task, value, k.name)
	}
	for _, other := range l.workers {
		if j := other.held[t.Task]; j != nil && !j.unsure && l.w.now-j.since < leaseOf*9/10 {
			l.w.violate("task %s was given to %s %v after %s got it, which holds its lease of %v", t.Task, k.name, l.w.now-j.since, other.name, leaseOf)
		}
	}
	l.tokens[t.Task] = t.Token
}

// leaseOf is the lease of all tasks. Nobody renews it.
const leaseOf = 10 * time.Second

// completed takes in that a worker was told that it completed a task.
func (l *ledger) completed(j *job) {
	if value, twice := l.ended[j.task.Task]; twice && value != j.value {
		l.w.violate("task %s was completed twice, by %s and %s", j.task.Task, value, j.value)
	}
	l.ended[j.task.Task] = j.value
}

// applied takes in the state of a replica, and who leads.
func (l *ledger) applied(h *host, shard core.ShardID, index, hash uint64) {
	states := l.states[shard]
	if states == nil {
		states = make(map[uint64]uint64)
		l.states[shard] = states
	}
	if first, seen := states[index]; !seen {
		states[index] = hash
	} else if first != hash {
		l.w.violate("host %d: shard %d differs from another replica at entry %d: apply hash %016x, not %016x", h.id, shard, index, hash, first)
	}
	term, serves := h.node.Leads(shard)
	if term == 0 {
		return
	}
	k := leaderKey{shard, term}
	if other, led := l.leaders[k]; led && other != h.id {
		l.w.violate("hosts %d and %d both lead shard %d in term %d", other, h.id, shard, term)
	}
	if l.leaders[k] == 0 {
		l.w.note("leader %d of %d in %d", h.id, shard, term)
	}
	l.leaders[k] = h.id
	if serves && shard == clientShard && index < l.top[shard] && l.newest(k) {
		l.w.violate("host %d serves shard %d in term %d at entry %d, and entry %d was acknowledged", h.id, shard, term, index, l.top[shard])
	}
}

// newest reports whether no later term has a leader.
func (l *ledger) newest(k leaderKey) bool {
	for other := range l.leaders {
		if other.shard == k.shard && other.term > k.term {
			return false
		}
	}
	return true
}

// idle reports whether every task that was created has ended, as a host's replica has it.
func (l *ledger) idle(h *host) bool {
	p, ok := h.partition()
	if !ok || l.made < l.w.plan.Tasks || len(l.acked) < l.made {
		return false
	}
	idle := false
	l.view(h, func(v core.View) error {
		s, found, err := queue.Stats(v, p, queueName)
		if err != nil || !found {
			return err
		}
		idle = s.States[core.Ready]+s.States[core.Running]+s.States[core.Scheduled] == 0
		return nil
	})
	return idle
}

func (l *ledger) view(h *host, fn func(v core.View) error) {
	sh, err := h.store.Shard(clientShard)
	if err == nil {
		err = sh.View(fn)
	}
	if err != nil {
		l.w.violate("host %d: read: %v", h.id, err)
	}
}

// settle holds the end of a run to what clients were told: on every replica.
func (l *ledger) settle(h *host) {
	p, ok := h.partition()
	if !ok {
		l.w.violate("host %d has no namespace", h.id)
		return
	}
	l.view(h, func(v core.View) error {
		findings, err := queue.Audit(v, p)
		if err != nil {
			return err
		}
		for _, f := range findings {
			l.w.violate("host %d: audit: %s", h.id, f)
		}
		for _, id := range slices.SortedFunc(maps.Keys(l.acked), compareIDs) {
			t, found, err := queue.Task(v, p, id)
			if err != nil {
				return err
			}
			if !found {
				l.w.violate("host %d: task %s was acknowledged at entry %d and is not there", h.id, id, l.acked[id])
				continue
			}
			l.judge(h, v, p, &t)
		}
		return nil
	})
}

// judge holds one task to its effects and to what its worker was told.
func (l *ledger) judge(h *host, v core.View, p core.Partition, t *core.Task) {
	value, _, has, err := kv.Get(v, p, "done", t.ID[:])
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
	if told, ok := l.ended[t.ID]; ok && told != string(t.Result) {
		l.w.violate("host %d: task %s has the result %q, and %q was acknowledged", h.id, t.ID, t.Result, told)
	}
}
