package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/queue"
)

// queueKey names a queue of a partition.
type queueKey struct {
	p    core.Partition
	name string
}

// compare orders keys, so that what walks over a map of them does it in the same order each time.
func (k queueKey) compare(other queueKey) int {
	return cmp.Or(
		cmp.Compare(k.p.Tenant, other.p.Tenant), cmp.Compare(k.p.Namespace, other.p.Namespace), cmp.Compare(k.p.Index, other.p.Index),
		cmp.Compare(k.name, other.name),
	)
}

// dispatcher knows who waits for tasks of a shard's queues. It is soft state: sessions rebuild it by attaching again.
//
// It grants ahead of Apply: what a queue can give is what it had ready when the last entry applied, plus the creates
// and minus the grants that are in the log and not yet applied. Granting too much is harmless, because Apply hands out
// what there is and the slots come back.
type dispatcher struct {
	// The shard whose queues these are.
	s *shard

	// Guards everything below, and all demands, subs and sessions.
	mu sync.Mutex
	// The session that each id has now. One that resumes takes the place of the one before.
	sessions map[sessionKey]*session
	// The queues that a subscription or a claim waits for, and those that an entry in the log still counts on.
	demands map[queueKey]*demand
	// releasing holds leases that are being given back because no stream received them. A stream that resumes their session
	// meanwhile does not get them again.
	releasing map[core.TaskHold]struct{}
	// Sessions whose streams broke, and which may still be resumed.
	graces graces
	// Partitions whose queues give nothing because their tenants have as many running tasks as they may.
	full map[core.Partition]struct{}
	// Queues that may have something to give and someone to take it. Each is in it once.
	hot []*demand
	// Unary claims that wait; at most Options.Claims.
	claims int
	// How many claims have weights so far: it tells one from another.
	draws atomic.Uint64
	// How many entries were built so far: it tells the grants of one entry from those of another.
	round uint64
	// The node stops: nothing may begin to wait.
	closed bool
}

// sessionKey names a session: ids are the clients' own, so two partitions may have the same.
type sessionKey struct {
	p  core.Partition
	id core.SessionID
}

// creating is how many ready tasks an entry may add to a queue.
type creating struct {
	queue queueKey
	// At least 1.
	n int
}

// sub is one subscription of a session, or a unary claim.
type sub struct {
	// The session that it belongs to; nil for a claim.
	session *session
	// The unary claim that it stands for; nil for a session.
	claim *claim
	// The client's number of it, by which assignments name it; 0 for a claim.
	number uint32
	// Name of the worker, which attempts are recorded under.
	worker string
	// The queues it takes tasks of, in the order in which the client named them.
	demands []*demand
	// Most tasks in flight, as the client set it last.
	window int
	// Tasks that are assigned and not settled, and those that grants in the log may bring.
	used int
	// Grants in the log.
	inLog int
	// Of used: leases that the leader ended, until the client is heard of again.
	owed int
	// Most tasks of one grant; at least 1.
	batch int
	// Lease of its tasks; 0 = each task's own.
	lease core.Millis
	// How its slots are shared among its queues; nil: in turn.
	shares *shares
	// It was detached, and is given nothing more; what is in the log for it goes to its heir, or back.
	gone bool
	// Its window is 0, and its client was not told of tasks since it became so.
	idle bool
	// Round of the last grant that answers for open settles: one grant of each entry does.
	counted uint64
	// The subscription that replaced it, and took over what it has in flight and in the log.
	heir *sub
}

// current returns the subscription that stands where u stood.
func (u *sub) current() *sub {
	for u.heir != nil {
		u = u.heir
	}
	return u
}

// once reports whether u is a claim that takes what there is and does not wait.
func (u *sub) once() bool { return u.claim != nil && u.claim.once }

// free is how many more tasks it takes; it may be negative after a window was made smaller. A claim is answered with what one grant
// gives, so it takes no other while one is in the log.
func (u *sub) free() int {
	if u.gone || u.session != nil && (u.session.closed || u.session.drained || u.session.quiet) || u.claim != nil && (u.claim.quiet || u.inLog > 0) {
		return 0
	}
	return u.window - u.used
}

// finds reports whether one of u's queues has something to give.
func (u *sub) finds() bool {
	for _, dm := range u.demands {
		if dm.available() > 0 && dm.admits(u.worker) {
			return true
		}
	}
	return false
}

// grant is one Grant commit of an entry.
type grant struct {
	// That of all of its queues.
	partition core.Partition
	// Who it is for; by the time it is applied an heir may have taken its place.
	sub *sub
	// As it stands in the entry, which nothing changes any more.
	op *core.Grant
	// How many tasks are expected from each of op.Queues.
	counts []int
	// The demands of op.Queues, in the same order.
	demands []*demand
	// By op.Queues: the places in the subscription's demands. Of weighted grants alone.
	places []int
}

// settling is the part of a proposal that ends attempts: one hold per commit.
type settling struct {
	// The session whose slots the settles free. It may be closed by the time they are applied.
	session *session
	// The lease that each commit of the proposal ends, in the same order.
	holds []core.TaskHold
}

// newDispatcher returns the dispatcher of a shard, with no session and no claim.
func newDispatcher(s *shard) *dispatcher {
	return &dispatcher{s: s, sessions: make(map[sessionKey]*session), demands: make(map[queueKey]*demand), releasing: make(map[core.TaskHold]struct{}), full: make(map[core.Partition]struct{})}
}

// lockWithSupply locks mu and returns what each queue can give out, and whether the partition was cleared. It holds the
// machine until then, so that no entry between the look and what follows is missed.
func (d *dispatcher) lockWithSupply(p core.Partition, queues []core.GrantQueue) (supplies []queue.Supply, cleared bool) {
	supplies = make([]queue.Supply, len(queues))
	d.s.applier.machineMu.RLock()
	defer d.s.applier.machineMu.RUnlock()
	m := d.s.applier.machine.Queue(p)
	if m != nil {
		for i, q := range queues {
			supplies[i] = m.Supply(q.Name)
		}
	} else {
		cleared = d.s.isCleared(p)
	}
	d.mu.Lock()
	if m != nil && !m.MayRun() {
		d.full[p] = struct{}{}
	}
	return supplies, cleared
}

// attach adds u to the queues it names; what they can give out comes from the machine. It reports false, and does nothing, in
// a partition that was cleared.
func (d *dispatcher) attach(p core.Partition, u *sub, queues []core.GrantQueue) bool {
	supplies, cleared := d.lockWithSupply(p, queues)
	defer d.mu.Unlock()
	if cleared {
		return false
	}
	for i, q := range queues {
		k := queueKey{p, q.Name}
		dm := d.demands[k]
		if dm == nil {
			dm = &demand{key: k}
			dm.supply(supplies[i])
			d.demands[k] = dm
		}
		dm.subs = append(dm.subs, u)
		u.demands = append(u.demands, dm)
		if u.once() {
			dm.once++
		}
	}
	d.window(u)
	return true
}

// window takes in that u's window was set. The mutex is held.
func (d *dispatcher) window(u *sub) {
	u.setIdle(u.session != nil && u.window == 0)
	if !u.idle {
		d.heat(u)
		return
	}
	for _, dm := range u.demands { // the next collect tells of what no other takes
		if d.heatQueue(dm) {
			d.s.poke()
		}
	}
}

// setIdle notes whether u waits to be told of tasks.
func (u *sub) setIdle(idle bool) {
	if u.idle == idle {
		return
	}
	u.idle = idle
	for _, dm := range u.demands {
		if idle {
			dm.idle++
		} else {
			dm.idle--
		}
	}
}

// tell tells the subscriptions without slots that the queue has tasks which no other takes, each once. The mutex is held.
func (q *demand) tell() {
	if q.idle == 0 || q.available() <= 0 {
		return
	}
	for _, u := range q.subs {
		if !u.idle {
			continue
		}
		u.setIdle(false)
		if ses := u.session; !ses.closed && !ses.drained && !ses.quiet {
			ses.sink.Available(u.number)
		}
	}
}

// isCleared reports whether a partition was cleared because its namespace was removed. The machine, which does not know the
// partition, is held.
func (s *shard) isCleared(p core.Partition) (is bool) {
	if err := s.store.View(func(v core.View) (err error) {
		is, err = commit.Cleared(v, p)
		return err
	}); err != nil {
		s.n.fail(err)
	}
	return is
}

// cleared ends the sessions and claims of partitions that an entry cleared. It returns the sessions, whose streams are to be told.
// The caller holds the machine.
func (d *dispatcher) cleared(events []core.Event) (ended []*session) {
	var parts []core.Partition
	for _, e := range events {
		if c, ok := e.(*core.PartitionCleared); ok {
			parts = append(parts, c.Partition)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(d.sessions), func(a, b sessionKey) int { return slices.Compare(a.id[:], b.id[:]) }) {
		if ses := d.sessions[k]; slices.Contains(parts, k.p) {
			ses.end()
			ended = append(ended, ses)
		}
	}
	for _, p := range parts {
		d.graces.dropOf(p)
	}
	for _, k := range slices.SortedFunc(maps.Keys(d.demands), queueKey.compare) {
		if !slices.Contains(parts, k.p) {
			continue
		}
		for _, u := range d.demands[k].subs {
			if u.claim != nil {
				u.claim.over, u.gone = true, true
				u.claim.end(claimed{err: core.NotFound{Kind: "namespace"}})
			}
		}
	}
	return ended
}

// detach removes u. A queue without a waiting stream is forgotten once no entry in the log counts on it.
func (d *dispatcher) detach(u *sub) {
	u.gone = true
	u.setIdle(false)
	for _, dm := range u.demands {
		for i, other := range dm.subs {
			if other == u {
				dm.subs = append(dm.subs[:i:i], dm.subs[i+1:]...)
				if u.once() {
					dm.once--
				}
				break
			}
		}
		d.forget(dm)
	}
}

// forget drops a queue that no stream waits for and no entry in the log counts on. The mutex is held.
func (d *dispatcher) forget(dm *demand) {
	if len(dm.subs) == 0 && dm.creating == 0 && dm.granting == 0 && d.demands[dm.key] == dm {
		delete(d.demands, dm.key)
	}
}

// heat marks u's queues for the next collect, if they may give and u may take.
func (d *dispatcher) heat(u *sub) {
	if u.free() <= 0 {
		return
	}
	woke := false
	for _, dm := range u.demands {
		woke = d.heatQueue(dm) || woke
	}
	if woke {
		d.s.poke()
	}
}

// heatQueue marks one queue for the next collect, and reports whether it was not marked before. The mutex is held.
func (d *dispatcher) heatQueue(dm *demand) bool {
	if dm.isHot || dm.available() <= 0 || len(dm.subs) == 0 {
		return false
	}
	dm.isHot = true
	d.hot = append(d.hot, dm)
	return true
}

// collect makes the grants that ride in an entry whose commits create the tasks counted in creates, and end the attempts of
// settles. It returns, too, what is counted on, to be counted back when the entry applies: the queues that somebody waits for.
func (d *dispatcher) collect(creates []creating, settles []*proposal) (grants []*grant, counted []creating) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round++
	counted = creates[:0]
	for _, c := range creates {
		if dm := d.demands[c.queue]; dm != nil {
			dm.creating += c.n
			d.heatQueue(dm)
			counted = append(counted, c)
		}
	}
	for _, p := range settles {
		if p.settles != nil {
			counted = d.releases(p.settles, counted)
		}
	}
	keep := d.hot[:0]
	for _, dm := range d.hot {
		stalled := false
		for dm.available() > 0 {
			u, full := dm.turn()
			if u == nil {
				stalled = full
				break
			}
			grants = append(grants, d.grant(u))
		}
		if stalled { // somebody has free slots but no room to send: tried again at the next tick
			keep = append(keep, dm)
		} else {
			dm.isHot = false
			d.turnAway(dm)
			dm.tell()
		}
	}
	clear(d.hot[len(keep):])
	d.hot = keep
	return grants, counted
}

// releases counts on a task for each that ends in a queue in which tasks are blocked: the end of one often lets another go, which
// then needs no entry of its own to be given out. It adds to counted what it counts. The mutex is held.
func (d *dispatcher) releases(s *settling, counted []creating) []creating {
	for _, h := range s.holds {
		t := s.session.tasks[h.Task]
		if t == nil {
			continue
		}
		k := queueKey{s.session.p, t.queue}
		dm := d.demands[k]
		if dm == nil || !dm.blocked {
			continue
		}
		dm.creating++
		d.heatQueue(dm)
		if last := len(counted) - 1; last >= 0 && counted[last].queue == k {
			counted[last].n++
		} else {
			counted = append(counted, creating{queue: k, n: 1})
		}
	}
	return counted
}

// turnAway answers the claims of a queue that do not wait and for which others left nothing.
func (d *dispatcher) turnAway(q *demand) {
	if q.once == 0 || q.available() > 0 {
		return
	}
	for _, u := range q.subs {
		if u.once() && !u.claim.over && u.inLog == 0 && !u.finds() {
			u.claim.over, u.gone = true, true
			u.claim.end(claimed{at: d.s.at(q.key.p)})
		}
	}
}

// turn returns the next subscription of the queue that can take a task; full says that one could but for room.
func (q *demand) turn() (u *sub, full bool) {
	for range q.subs {
		if q.next >= len(q.subs) {
			q.next = 0
		}
		u := q.subs[q.next]
		q.next++
		if u.free() <= 0 || !q.admits(u.worker) {
			continue
		}
		if u.session != nil && !u.session.sink.Room() {
			full = true
			continue
		}
		return u, false
	}
	return nil, full
}

// grant builds one grant for u from all of its queues that can give.
func (d *dispatcher) grant(u *sub) *grant {
	g := &grant{sub: u, op: &core.Grant{Sub: u.number, Worker: u.worker, Lease: u.lease}}
	n := min(u.free(), u.batch)
	for at, dm := range u.demands {
		if dm.available() > 0 && dm.admits(u.worker) {
			g.partition = dm.key.p
			g.demands = append(g.demands, dm)
			g.op.Queues = append(g.op.Queues, core.GrantQueue{Name: dm.key.name, Weight: 1})
			if u.shares != nil {
				g.places = append(g.places, at)
			}
		}
	}
	g.counts = make([]int, len(g.demands))
	var total int
	if u.shares != nil {
		total = u.shares.expect(g, n)
	} else {
		total = g.inTurn(n)
	}
	g.op.N = uint32(total)
	u.used += total
	u.inLog++
	if ses := u.session; ses != nil {
		g.op.Session = ses.spec.ID
		if u.counted != d.round { // one grant of the entry answers for the subscription's open settles
			u.counted = d.round
			g.op.Settles = ses.unsettled(u)
		}
	}
	return g
}

// inTurn expects up to n tasks of the grant's queues in turn, and returns how many.
func (g *grant) inTurn(n int) (total int) {
	for progress := true; progress && total < n; {
		progress = false
		for i, dm := range g.demands {
			if total < n && dm.available() > 0 {
				dm.granting++
				g.counts[i]++
				total++
				progress = true
			}
		}
	}
	return total
}

// observer grants what became ready, and sends what was granted when the entry is published.
func (d *dispatcher) observer() observer {
	var out []send
	var ended []*session
	return observer{
		name: "dispatcher",
		held: func(a *appliedEntry) {
			out = d.applied(d.s.applier.machine, a)
			ended = d.cleared(a.Events)
		},
		after: func(*appliedEntry) {
			d.deliver(out)
			for _, ses := range ended {
				ses.sink.End(core.NotFound{Kind: "namespace"})
			}
			out, ended = nil, nil
		},
	}
}

// applied takes in what an applied entry did. It returns what to send. The caller holds the machine.
func (d *dispatcher) applied(m *commit.Machine, a *appliedEntry) []send {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []send
	for _, e := range a.Events {
		if w, ok := e.(*core.Woken); ok {
			if dm := d.demands[queueKey{w.Partition, w.Queue}]; dm != nil {
				d.refresh(m, dm)
			}
		}
	}
	for _, e := range a.Events {
		switch e := e.(type) {
		case *core.Lost:
			ses := d.sessions[sessionKey{e.Partition, e.Session}]
			if ses != nil && ses.lost(*e) {
				out = append(out, send{session: ses, lost: core.TaskHold{Task: e.Task, Token: e.Token}, reason: e.Reason})
			}
		case *core.CancelWanted:
			ses := d.sessions[sessionKey{e.Partition, e.Session}]
			if ses != nil && ses.holds(e.Task, e.Token) {
				wanted := *e // the event is the applier's
				wanted.Until = e.Until.Add(m.Shift())
				out = append(out, send{session: ses, cancel: &wanted})
			}
		}
	}
	if len(d.full) > 0 {
		d.givesAgain(m)
	}
	f := a.own
	if f == nil {
		return out
	}
	base := len(a.Results) - len(f.grants)
	i := f.first()
	for _, p := range f.proposals {
		if p.settles != nil {
			p.settles.session.settled(p.settles.holds, a.Results[i:i+len(p.commits)])
		}
		i += len(p.commits)
	}
	for _, c := range f.creates {
		if dm := d.demands[c.queue]; dm != nil {
			dm.creating -= c.n
			d.refresh(m, dm)
			d.forget(dm)
		}
	}
	for gi, g := range f.grants {
		r := &a.Results[base+gi]
		var tasks []core.Assigned
		if r.Refusal == nil && len(r.Ops) == 1 {
			tasks = showAssigned(r.Ops[0].Assigned, m.Shift())
		}
		out = append(out, d.granted(m, g, tasks, a.at(g.partition))...)
	}
	return out
}

// refresh takes over how many tasks of a queue are ready in the machine, and marks the queue if it can give. The
// caller holds the machine and the mutex.
func (d *dispatcher) refresh(m *commit.Machine, dm *demand) {
	var s queue.Supply
	if q := m.Queue(dm.key.p); q != nil {
		s = q.Supply(dm.key.name)
		if !q.MayRun() {
			d.full[dm.key.p] = struct{}{}
		}
	}
	dm.supply(s)
	d.heatQueue(dm)
}

// givesAgain looks at partitions that gave nothing, and takes in those that may again. The caller holds the machine and the mutex.
func (d *dispatcher) givesAgain(m *commit.Machine) {
	again := make(map[core.Partition]bool)
	for p := range d.full {
		if q := m.Queue(p); q == nil || q.MayRun() {
			again[p] = true
			delete(d.full, p)
		}
	}
	if len(again) == 0 {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(d.demands), queueKey.compare) {
		if again[k.p] {
			d.refresh(m, d.demands[k])
		}
	}
}

// granted books one grant's tasks to its subscription and says where they go.
func (d *dispatcher) granted(m *commit.Machine, g *grant, tasks []core.Assigned, at core.At) []send {
	for i, dm := range g.demands {
		dm.granting -= g.counts[i]
		d.refresh(m, dm)
		d.forget(dm)
	}
	if s := g.sub.shares; s != nil {
		s.gave(g, tasks)
	}
	u := g.sub.current()
	u.inLog--
	u.used -= int(g.op.N) - len(tasks)
	defer d.heat(u)
	if u.claim != nil {
		return d.claimed(g, tasks, at)
	}
	if len(tasks) == 0 {
		return nil
	}
	ses := u.session
	var out []send
	if ses.closed || u.gone {
		// The stream was replaced while the grant was in the log: its successor, if any, takes what its slots can.
		next := d.sessions[sessionKey{g.partition, ses.spec.ID}]
		if next == nil {
			d.giveBack(tasks)
			return []send{{release: tasks, partition: g.partition}}
		}
		to := next.subs[u.number]
		if to == nil {
			next.waiting = append(next.waiting, tasks...)
			return nil
		}
		u, ses = to, next
		if fits := max(u.free(), 0); fits < len(tasks) {
			d.giveBack(tasks[fits:])
			out = append(out, send{release: tasks[fits:], partition: g.partition})
			tasks = tasks[:fits]
		}
		if len(tasks) == 0 {
			return out
		}
		u.used += len(tasks)
	}
	for _, t := range tasks {
		ses.tasks[t.Task] = &held{token: t.Token, sub: u, queue: t.Queue}
	}
	return append(out, send{session: ses, sub: u.number, assign: tasks, at: at, partition: g.partition})
}

// drop takes back what an entry counted on, when it was not applied, or may not have been.
func (d *dispatcher) drop(f *inflight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range f.creates {
		if dm := d.demands[c.queue]; dm != nil {
			dm.creating -= c.n
			d.forget(dm)
		}
	}
	for _, g := range f.grants {
		for i, dm := range g.demands {
			dm.granting -= g.counts[i]
			d.heatQueue(dm)
			d.forget(dm)
		}
		if s := g.sub.shares; s != nil {
			s.gave(g, nil)
		}
		u := g.sub.current()
		u.inLog--
		u.used -= int(g.op.N)
		if c := u.claim; c != nil && c.last && !c.over {
			c.over = true
			c.end(claimed{at: d.s.at(g.partition)})
		}
		d.heat(u)
	}
	d.graces.again(f.lost, d.s.n.o.Clock.Boot())
	for _, p := range f.proposals {
		if p.settles != nil {
			p.settles.session.unsettle(p.settles.holds)
		}
	}
}

// close ends everybody's waiting.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	claims := d.waitingClaims()
	d.mu.Unlock()
	for _, c := range claims {
		c.end(claimed{err: core.Unavailable{Reason: "stopping"}})
	}
}

// waitingClaims returns the claims that wait, each once. The mutex is held.
func (d *dispatcher) waitingClaims() []*claim {
	var claims []*claim
	seen := make(map[*claim]bool)
	for _, k := range slices.SortedFunc(maps.Keys(d.demands), queueKey.compare) {
		for _, u := range d.demands[k].subs {
			if u.claim != nil && !seen[u.claim] {
				seen[u.claim] = true
				claims = append(claims, u.claim)
			}
		}
	}
	return claims
}

// countCreates counts the ready tasks that commits may create, by queue, in the order of each queue's first.
func countCreates(commits []core.Commit) (out []creating) {
	var at map[queueKey]int // where each is in out, once there are several
	last := -1              // where the last one is: mostly the next one's place too
	for i := range commits {
		c := &commits[i]
		for _, op := range c.Ops {
			t, ok := op.(*core.TaskCreate)
			if !ok || t.Delay != 0 || t.RunAt != 0 || len(t.After) > 0 {
				continue
			}
			if k := (queueKey{c.Partition, t.Queue}); last < 0 || out[last].queue != k {
				if last == 0 && at == nil {
					at = map[queueKey]int{out[0].queue: 0}
				}
				was, found := at[k]
				if last = was; !found {
					last = len(out)
					out = append(out, creating{queue: k})
					if at != nil {
						at[k] = last
					}
				}
			}
			out[last].n++
		}
	}
	return out
}
