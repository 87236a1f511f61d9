package node

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/machine/queue"
)

// What a node knows of the workers that take tasks of the partitions it leads. Streams are known by their sessions; callers of
// claims, which come and go, are remembered for a while. All of it is soft state: the next leader knows who came to it.

const (
	// maxClaimers bounds the callers of claims that a node remembers; the one that was heard of the longest ago makes room.
	maxClaimers = 10_000
	// claimerShown is for how long a caller of claims is shown after its last one: longer than the longest wait of a claim.
	claimerShown = 5 * time.Minute
	// maxQuiet bounds the workers that a node remembers to be quiet; the one that was heard of the longest ago makes room.
	maxQuiet = 10_000
	// quietKept is for how long a worker that is gone is remembered to be quiet: long enough for it to come back, here or, after an
	// election, at another node.
	quietKept = 10 * time.Minute
	// maxWorkers bounds the workers that one answer lists.
	maxWorkers = 10_000
)

// workerKey names a worker within its namespace.
type workerKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	id        string
}

// claimer is a caller of claims.
type claimer struct {
	key workerKey
	// The queues that it asked for last, and the most tasks.
	queues []string
	slots  int
	// When it came first and last, by the boot clock.
	since, seen time.Duration
	// Its claims under way.
	waiting int
}

// workers is what a node remembers of workers that have no session, and which of all are quiet.
type workers struct {
	// Guards the fields below. It is a leaf.
	mu sync.Mutex
	// The callers of claims, by key: elements of order.
	claimers map[workerKey]*list.Element
	// order has the same *claimer, the one that was heard of the longest ago first.
	order list.List
	// Quiet workers, and when each was heard of last, by the boot clock.
	quiet map[workerKey]time.Duration
}

// claims notes that a worker claims, and reports whether it is quiet. The call of claimed belongs to it.
func (w *workers) claims(k workerKey, spec *core.ClaimSpec, now time.Duration) (quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.claimers[k]
	if e == nil {
		if len(w.claimers) >= maxClaimers {
			oldest := w.order.Front()
			delete(w.claimers, oldest.Value.(*claimer).key)
			w.order.Remove(oldest)
		}
		if w.claimers == nil {
			w.claimers = make(map[workerKey]*list.Element)
		}
		e = w.order.PushBack(&claimer{key: k, since: now})
		w.claimers[k] = e
	}
	w.order.MoveToBack(e)
	c := e.Value.(*claimer)
	c.queues, c.slots, c.seen = namesOf(spec.Queues), int(spec.Max), now
	c.waiting++
	return w.isQuietLocked(k, now)
}

// claimed notes that a claim is over.
func (w *workers) claimed(k workerKey, clock env.Clock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.claimers[k]; e != nil {
		c := e.Value.(*claimer)
		c.waiting, c.seen = max(c.waiting-1, 0), clock.Boot()
		w.order.MoveToBack(e)
	}
}

// isQuiet reports whether a worker is quiet, which has just been heard of.
func (w *workers) isQuiet(k workerKey, now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isQuietLocked(k, now)
}

// isQuietLocked is isQuiet. The mutex is held.
func (w *workers) isQuietLocked(k workerKey, now time.Duration) bool {
	if !w.knownQuiet(k, now) {
		delete(w.quiet, k)
		return false
	}
	w.quiet[k] = now
	return true
}

// knownQuiet reports whether a worker is quiet, and was heard of lately enough for that to count. The mutex is held.
func (w *workers) knownQuiet(k workerKey, now time.Duration) bool {
	seen, is := w.quiet[k]
	return is && now-seen < quietKept
}

// touch notes that a worker was heard of until now.
func (w *workers) touch(k workerKey, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, is := w.quiet[k]; is {
		w.quiet[k] = now
	}
}

// set makes a worker quiet, or takes that back. It reports whether that changed anything.
func (w *workers) set(k workerKey, on bool, now time.Duration) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.knownQuiet(k, now)
	if !on {
		delete(w.quiet, k)
		return is
	}
	if w.quiet == nil {
		w.quiet = make(map[workerKey]time.Duration)
	}
	if _, there := w.quiet[k]; !there && len(w.quiet) >= maxQuiet {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(w.quiet)), func(a, b workerKey) int {
			return cmp.Or(cmp.Compare(w.quiet[a], w.quiet[b]), cmp.Compare(a.id, b.id))
		})
		delete(w.quiet, oldest)
	}
	w.quiet[k] = now
	return !is
}

// of returns the callers of claims of a namespace as they are now.
func (w *workers) of(tenant core.TenantID, namespace core.NamespaceID) (out []claimer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := w.order.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*claimer); c.key.tenant == tenant && c.key.namespace == namespace {
			out = append(out, *c)
		}
	}
	return out
}

// namesOf lists queues by name, sorted.
func namesOf(queues []core.GrantQueue) []string {
	out := make([]string, len(queues))
	for i, q := range queues {
		out[i] = q.Name
	}
	return distinct(out)
}

// worker is the key of a session's worker.
func (ses *session) worker() workerKey {
	return workerKey{ses.p.Tenant, ses.p.Namespace, ses.spec.Worker}
}

// heard is implemented by sinks that know when their client was heard of last, by the boot clock.
type heard interface{ Heard() time.Duration }

// setQuiet makes a worker quiet at this node, or takes that back. Its running tasks go on.
func (n *Node) setQuiet(k workerKey, on bool) (changed bool) {
	changed = n.workers.set(k, on, n.o.Clock.Boot()) // before the dispatchers: who comes later finds it there
	for _, s := range n.shards {
		s.disp.setQuiet(k, on)
	}
	return changed
}

// setQuiet is Node.setQuiet for the sessions and claims of a shard.
func (d *dispatcher) setQuiet(k workerKey, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, ses := range d.sessions {
		if key.p.Tenant != k.tenant || key.p.Namespace != k.namespace || ses.spec.Worker != k.id {
			continue
		}
		ses.quiet = on
		for _, u := range ses.subs {
			d.heat(u)
		}
	}
	for key, dm := range d.demands {
		if key.p.Tenant != k.tenant || key.p.Namespace != k.namespace {
			continue
		}
		for _, u := range dm.subs {
			if u.claim != nil && u.worker == k.id {
				d.quietClaimLocked(u, on)
			}
		}
	}
}

// quietClaim makes a claim quiet, or takes that back.
func (d *dispatcher) quietClaim(u *sub, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quietClaimLocked(u, on)
}

// quietClaimLocked is quietClaim. One that does not wait is answered here, as it is in no turn any more. The mutex is held.
func (d *dispatcher) quietClaimLocked(u *sub, on bool) {
	u.claim.quiet = on
	if on && u.claim.once && u.inLog == 0 && !u.claim.over {
		u.claim.over, u.gone = true, true
		u.claim.end(claimed{at: d.s.at(u.demands[0].key.p)})
		return
	}
	d.heat(u)
}

// workersHere lists the workers of a namespace that this node knows as a leader, sorted. partial says that there are more.
func (n *Node) workersHere(tenant core.TenantID, namespace core.NamespaceID) (out []core.Worker, partial bool) {
	boot := n.o.Clock.Boot()
	wall := core.ShardTimeOf(n.o.Clock.Wall())
	at := func(then time.Duration) core.ShardTime { return wall.Add(-core.MillisOf(boot - then)) }
	held := make(map[queue.Holder]queue.Holding)
	for p, s := range n.partitionsOf(tenant, namespace) {
		if !s.view.ready.Load() {
			continue
		}
		s.holdings(p, held)
		out = s.disp.workersOf(p, at, out)
	}
	for _, c := range n.workers.of(tenant, namespace) {
		_, holds := held[queue.Holder{Worker: c.key.id}]
		if c.waiting == 0 && !holds && boot-c.seen >= claimerShown {
			continue
		}
		seen := c.seen
		if c.waiting > 0 {
			seen = boot
		}
		out = append(out, core.Worker{ID: c.key.id, Queues: c.queues, Slots: c.slots, Since: at(c.since), Seen: at(seen)})
	}
	host := make(map[core.SessionID]string)
	for i := range out {
		for _, id := range out[i].Sessions {
			host[id] = out[i].Host
		}
	}
	for h, what := range held { // also of those that this node has not heard of
		w := core.Worker{ID: h.Worker, Host: host[h.Session], Running: what.Tasks, OldestLease: what.Oldest}
		if h.Session != (core.SessionID{}) {
			w.Sessions = []core.SessionID{h.Session}
		}
		out = append(out, w)
	}
	for i := range out {
		out[i].Nodes = []string{n.o.Name}
	}
	out = MergeWorkers(out)
	for i := range out {
		out[i].Quiet = n.workers.shownQuiet(workerKey{tenant, namespace, out[i].ID}, boot)
	}
	if partial = len(out) > maxWorkers; partial {
		out = out[:maxWorkers]
	}
	return out, partial
}

// shownQuiet is isQuiet without taking the worker for one that was heard of.
func (w *workers) shownQuiet(k workerKey, now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knownQuiet(k, now)
}

// partitionsOf returns the partitions of a namespace and their shards.
func (n *Node) partitionsOf(tenant core.TenantID, namespace core.NamespaceID) map[core.Partition]*shard {
	n.dirMu.RLock()
	defer n.dirMu.RUnlock()
	out := make(map[core.Partition]*shard)
	for p, id := range n.partitions {
		if p.Tenant == tenant && p.Namespace == namespace && int(id) < len(n.shards) {
			out[p] = n.shards[id]
		}
	}
	return out
}

// holdings adds who holds the running tasks of a partition.
func (s *shard) holdings(p core.Partition, into map[queue.Holder]queue.Holding) {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	m := s.applier.machine.Queue(p)
	if m == nil {
		return
	}
	shift := s.applier.machine.Shift()
	for h, what := range m.Holders() {
		what.Oldest = what.Oldest.Add(shift)
		if other, ok := into[h]; ok {
			what.Tasks += other.Tasks
			what.Oldest = min(what.Oldest, other.Oldest)
		}
		into[h] = what
	}
}

// workersOf adds the sessions of a partition that have subscriptions.
func (d *dispatcher) workersOf(p core.Partition, at func(time.Duration) core.ShardTime, out []core.Worker) []core.Worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, ses := range d.sessions {
		if k.p != p || len(ses.subs) == 0 {
			continue
		}
		w := core.Worker{
			ID: ses.spec.Worker, Sessions: []core.SessionID{k.id}, Host: ses.spec.Host, SDK: ses.spec.SDK, Kinds: ses.spec.Kinds, Since: at(ses.opened), Seen: at(ses.opened),
		}
		if sink, ok := ses.sink.(heard); ok {
			w.Seen = max(w.Since, at(sink.Heard()))
		}
		for _, u := range ses.subs {
			w.Slots += u.window
			for _, dm := range u.demands {
				w.Queues = append(w.Queues, dm.key.name)
			}
		}
		out = append(out, w)
	}
	return out
}

// MergeWorkers joins what is known of the same worker on the same host, sorted by both.
func MergeWorkers(list []core.Worker) []core.Worker {
	slices.SortStableFunc(list, func(a, b core.Worker) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Host, b.Host)) })
	out := list[:0]
	for _, w := range list {
		if n := len(out); n > 0 && out[n-1].ID == w.ID && out[n-1].Host == w.Host {
			join(&out[n-1], &w)
		} else {
			out = append(out, w)
		}
	}
	for i := range out {
		w := &out[i]
		w.Queues, w.Nodes = distinct(w.Queues), distinct(w.Nodes)
		w.Sessions = slices.Clone(w.Sessions)
		slices.SortFunc(w.Sessions, func(a, b core.SessionID) int { return slices.Compare(a[:], b[:]) })
		w.Sessions = slices.Compact(w.Sessions)
		w.Sessions = w.Sessions[:min(len(w.Sessions), core.MaxSessions)]
	}
	return out
}

// join adds what another node, or another partition, knows of a worker.
func join(w, o *core.Worker) {
	w.SDK = cmp.Or(w.SDK, o.SDK)
	if len(w.Kinds) == 0 {
		w.Kinds = o.Kinds
	}
	w.Queues, w.Nodes = append(w.Queues, o.Queues...), append(w.Nodes, o.Nodes...)
	if len(w.Sessions)+len(o.Sessions) == 0 {
		w.Slots = max(w.Slots, o.Slots) // each of its claims may have any of its partitions
	} else {
		w.Slots += o.Slots
	}
	w.Sessions = append(slices.Clip(w.Sessions), o.Sessions...)
	w.Running += o.Running
	w.OldestLease, w.Since = earlier(w.OldestLease, o.OldestLease), earlier(w.Since, o.Since)
	w.Seen = max(w.Seen, o.Seen)
	w.Quiet = w.Quiet || o.Quiet
}

// earlier is the lesser of two times of which 0 is none.
func earlier(a, b core.ShardTime) core.ShardTime {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// distinct sorts a list and drops repetitions.
func distinct(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
