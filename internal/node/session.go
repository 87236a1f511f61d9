package node

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/queue"
)

// session is the node's side of one stream. Its fields are guarded by the dispatcher's mutex.
type session struct {
	// The dispatcher of the shard that has its partition.
	d *dispatcher
	// The partition of all of its tasks.
	p core.Partition
	// What the client said of itself when it opened the stream.
	spec core.SessionSpec
	// Where its messages go.
	sink core.Sink
	// Its subscriptions by the client's number.
	subs map[uint32]*sub
	// The leases that its client holds, settles or is about to get.
	tasks map[core.TaskID]*held
	// Settles that are in the log, or about to be.
	open []core.TaskHold
	// Leased to the session, not held by the client, waiting for a subscription.
	waiting []core.Assigned
	// The stream is over, or another one has taken the session's place.
	closed bool
	// The client asked for no more tasks, for good.
	drained bool
	// Its worker is quiet: it is given no tasks until that is taken back.
	quiet bool
	// When it was opened, by the boot clock.
	opened time.Duration
	// Its stream broke, and what that means for its leases is noted.
	broke bool
}

// held is one lease of a session.
type held struct {
	// The token that the client holds it under.
	token core.Token
	// The subscription whose slot it takes; nil until one of its queue comes.
	sub *sub
	// Name of the task's queue, by which a later subscription finds it.
	queue string
	// Its settle is proposed and has no result: its slot is free meanwhile, and is taken back if the lease stays.
	settling bool
}

// Session opens or resumes a stream's session: leases that the client holds are kept, those it does not know of are
// assigned again under the same token once a subscription of their queue comes. Both are told from the state of this replica, so a
// majority confirms first that it leads: one that was deposed and does not know it yet has leases that another leader saw end.
// With Options.Manual nothing waits: the caller waits for Reading before.
func (n *Node) Session(ctx context.Context, p core.Partition, spec core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error) {
	s, err := n.shardOf(p)
	if err != nil {
		return nil, core.Welcome{}, err
	}
	if !s.view.ready.Load() {
		return nil, core.Welcome{}, s.notLeading()
	}
	if !n.o.Manual {
		if err := s.confirmLead(ctx); err != nil {
			return nil, core.Welcome{}, err
		}
	}
	d := s.disp
	ses := &session{
		d: d, p: p, spec: spec, sink: sink, subs: make(map[uint32]*sub), tasks: make(map[core.TaskID]*held),
	}
	var w core.Welcome
	if err := s.store.View(func(v core.View) error {
		w.AppliedSeq, err = commit.AppliedSeq(v, p, spec.ID)
		return err
	}); err != nil {
		return nil, core.Welcome{}, err
	}
	w.At = s.at(p)
	leased, wanted, cleared := d.lockWithHeld(p, spec.ID)
	defer d.mu.Unlock()
	if cleared {
		return nil, core.Welcome{}, removedFact
	}
	if d.closed {
		return nil, core.Welcome{}, core.Unavailable{Reason: "stopping"}
	}
	if !s.view.ready.Load() { // it stepped down meanwhile; if it does from here on, it finds this session
		return nil, core.Welcome{}, s.notLeading()
	}
	k := sessionKey{p, spec.ID}
	if old := d.sessions[k]; old != nil {
		old.end()
	}
	d.sessions[k] = ses
	leased, wanted = ofReached(&spec, leased, wanted)
	ses.opened, ses.quiet = n.o.Clock.Boot(), n.workers.isQuiet(ses.worker(), n.o.Clock.Boot())
	d.graces.drop(k)
	live := make(map[core.TaskHold]core.Assigned, len(leased))
	for _, t := range leased {
		live[core.TaskHold{Task: t.Task, Token: t.Token}] = t
	}
	for _, h := range spec.Held {
		if _, going := d.releasing[h]; going {
			w.Lost = append(w.Lost, h)
		} else if t, ok := live[h]; ok {
			w.Kept = append(w.Kept, h)
			ses.tasks[h.Task] = &held{token: h.Token, queue: t.Queue}
			delete(live, h)
		} else {
			w.Lost = append(w.Lost, h)
		}
	}
	w.Cancelled = wanted
	for _, t := range leased {
		h := core.TaskHold{Task: t.Task, Token: t.Token}
		_, unknown := live[h]
		if _, going := d.releasing[h]; unknown && !going {
			ses.waiting = append(ses.waiting, t)
		}
	}
	return ses, w, nil
}

// lockWithHeld locks mu and returns the tasks that are leased to a session, those of them whose holder is to stop, and whether the
// partition was cleared. It holds the machine until then, so that no grant between the list and what follows is missed.
func (d *dispatcher) lockWithHeld(p core.Partition, id core.SessionID) (leased []core.Assigned, wanted []core.CancelWanted, cleared bool) {
	d.s.applier.machineMu.RLock()
	defer d.s.applier.machineMu.RUnlock()
	if m := d.s.applier.machine.Queue(p); m != nil {
		leased, wanted = m.Held(id), m.Wanted(id)
		for i := range wanted {
			wanted[i].Until = wanted[i].Until.Add(d.s.applier.machine.Shift())
		}
	} else {
		cleared = d.s.isCleared(p)
	}
	d.mu.Lock()
	return leased, wanted, cleared
}

// Subscribe adds or replaces a subscription.
func (ses *session) Subscribe(spec core.Subscription) {
	d := ses.d
	u := &sub{
		session: ses, number: spec.Sub, worker: ses.spec.Worker, window: int(spec.Slots),
		batch: int(max(spec.Batch, 1)), lease: spec.Lease, shares: sharesOf(spec.Queues, spec.Strict),
	}
	again, open := ses.replace(u, &spec)
	if !open {
		return
	}
	ses.assignAgain(u, again)
	d.attach(ses.p, u, spec.Queues)
}

// replace puts a subscription in the place of the one of its number. It returns the tasks that were leased to the session,
// never reached its client, and are of the subscription's queues; open is false when the session has ended.
func (ses *session) replace(u *sub, spec *core.Subscription) (again []core.Assigned, open bool) {
	d := ses.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if ses.closed {
		return nil, false
	}
	if old := ses.subs[spec.Sub]; old != nil {
		d.detach(old)
		old.heir = u
		u.used, u.inLog, u.counted = old.used-old.owed, old.inLog, old.counted
		for _, h := range ses.tasks {
			if h.sub == old {
				h.sub = u
			}
		}
	}
	ses.subs[spec.Sub] = u
	serves := func(q string) bool {
		return slices.ContainsFunc(spec.Queues, func(g core.GrantQueue) bool { return g.Name == q })
	}
	for _, h := range ses.tasks {
		if h.sub == nil && serves(h.queue) {
			h.sub = u
			if !h.settling {
				u.used++
			}
		}
	}
	ses.waiting = slices.DeleteFunc(ses.waiting, func(t core.Assigned) bool {
		if !serves(t.Queue) {
			return false
		}
		again = append(again, t)
		ses.tasks[t.Task] = &held{token: t.Token, sub: u, queue: t.Queue}
		u.used++
		return true
	})
	return again, true
}

// assignAgain sends tasks that were leased to the session and never reached its client.
func (ses *session) assignAgain(u *sub, tasks []core.Assigned) {
	if len(tasks) == 0 {
		return
	}
	s := ses.d.s
	full := make([]core.Assigned, 0, len(tasks))
	var over []core.Assigned // their settles, of the stream before, were in the log
	err := s.store.View(func(v core.View) error {
		shift, err := commit.Shift(v)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			a, ok, err := queue.Assigned(v, ses.p, t.Task)
			switch {
			case err != nil:
				return err
			case ok && a.Token == t.Token:
				show(shift, &a.CreatedAt)
				full = append(full, a)
			default:
				over = append(over, t)
			}
		}
		return nil
	})
	if err != nil {
		s.n.fail(err)
		return
	}
	ses.giveUp(over)
	for chunk := range slices.Chunk(full, max(u.batch, 1)) {
		ses.d.deliver([]send{{session: ses, sub: u.number, assign: chunk, at: s.at(ses.p), partition: ses.p}})
	}
}

// has reports whether the session took t over from the stream before.
func (ses *session) has(t core.Assigned) bool {
	if h := ses.tasks[t.Task]; h != nil && h.token == t.Token {
		return true
	}
	return slices.ContainsFunc(ses.waiting, func(w core.Assigned) bool { return w.Task == t.Task && w.Token == t.Token })
}

// holds reports whether the session's client holds a lease, or is about to get it.
func (ses *session) holds(task core.TaskID, token core.Token) bool {
	h := ses.tasks[task]
	return h != nil && h.token == token
}

// giveUp frees the slots of tasks that ended before they could be assigned again.
func (ses *session) giveUp(tasks []core.Assigned) {
	ses.d.mu.Lock()
	defer ses.d.mu.Unlock()
	for _, a := range tasks {
		t := ses.tasks[a.Task]
		if t == nil || t.token != a.Token {
			continue
		}
		if t.sub != nil && !t.settling {
			t.sub.used--
			ses.d.heat(t.sub)
		}
		delete(ses.tasks, a.Task)
	}
}

// Slots sets the window of a subscription.
func (ses *session) Slots(number, window uint32) {
	ses.d.mu.Lock()
	defer ses.d.mu.Unlock()
	ses.heard()
	if u := ses.subs[number]; u != nil {
		u.window = int(window)
		ses.d.window(u)
	}
}

// Settle frees the slots of the holds and proposes the commits.
func (ses *session) Settle(p core.Partition, commits []core.Commit, holds []core.TaskHold, done func(core.Proposed)) {
	ses.d.mu.Lock()
	ses.heard()
	for _, h := range holds {
		if t := ses.tasks[h.Task]; t != nil && t.token == h.Token && !t.settling {
			t.settling = true
			ses.open = append(ses.open, h)
			if t.sub != nil {
				t.sub.used--
				ses.d.heat(t.sub)
			}
		}
	}
	ses.d.mu.Unlock()
	ses.d.s.n.propose(p, commits, &settling{session: ses, holds: holds}, done)
}

// settled takes in the results of settles: a refusal that keeps the lease takes the slot back. One that failed the attempt instead
// has ended the lease.
func (ses *session) settled(holds []core.TaskHold, results []core.Result) {
	for i, h := range holds {
		t := ses.tasks[h.Task]
		if t == nil || t.token != h.Token {
			continue
		}
		if r := results[i]; r.Refusal != nil && !r.FailedInstead && !endsLease(r.Refusal) {
			ses.reopen(h, t)
			continue
		}
		ses.forget(h)
		delete(ses.tasks, h.Task)
	}
}

// endsLease reports whether a refused settle means that the lease is gone. The end of the attempt is the first op: what is refused behind
// it are the effects, which may name other tasks.
func endsLease(r *core.Refusal) bool {
	if r.Op > 0 {
		return false
	}
	switch r.Fact.(type) {
	case core.LeaseLost, core.NotFound, core.WrongState:
		return true
	}
	return false
}

// unsettle takes slots back for settles that were not applied, or of which that is not known.
func (ses *session) unsettle(holds []core.TaskHold) {
	for _, h := range holds {
		if t := ses.tasks[h.Task]; t != nil && t.token == h.Token {
			ses.reopen(h, t)
		}
	}
}

// reopen takes the slot of a settle back that left the lease as it was. The mutex is held.
func (ses *session) reopen(h core.TaskHold, t *held) {
	if !t.settling {
		return
	}
	t.settling = false
	ses.forget(h)
	if t.sub != nil {
		t.sub.used++
	}
}

// forget takes a settle off the list of open ones. The order of the list does not matter. The mutex is held.
func (ses *session) forget(h core.TaskHold) {
	if i := slices.Index(ses.open, h); i >= 0 {
		ses.open[i] = ses.open[len(ses.open)-1]
		ses.open = ses.open[:len(ses.open)-1]
	}
}

// unsettled lists the settles of u's tasks whose outcome is not known yet.
func (ses *session) unsettled(u *sub) []core.TaskHold {
	var out []core.TaskHold
	for _, h := range ses.open {
		if t := ses.tasks[h.Task]; t != nil && t.sub == u {
			out = append(out, h)
		}
	}
	return out
}

// lost takes in a lease that the leader ended; it reports whether the client should be told. The slot stays taken until
// the client is heard of: one that stopped would be given task after task, and crash each.
func (ses *session) lost(l core.Lost) bool {
	t := ses.tasks[l.Task]
	if t == nil || t.token != l.Token {
		return false
	}
	if t.sub != nil && !t.settling {
		t.sub.owed++
	}
	ses.forget(core.TaskHold{Task: l.Task, Token: l.Token})
	delete(ses.tasks, l.Task)
	return true
}

// heard frees the slots of leases that the leader ended: the client lives.
func (ses *session) heard() {
	owed := 0
	for _, u := range ses.subs {
		owed += u.owed
	}
	if owed == 0 {
		return
	}
	for _, number := range sortedKeys(ses.subs) {
		u := ses.subs[number]
		u.used -= u.owed
		u.owed = 0
		ses.d.heat(u)
	}
}

// Held lists the session's leases, the settling ones too.
func (ses *session) Held() []core.TaskHold {
	ses.d.mu.Lock()
	defer ses.d.mu.Unlock()
	out := make([]core.TaskHold, 0, len(ses.tasks))
	for id, t := range ses.tasks {
		if !t.settling {
			out = append(out, core.TaskHold{Task: id, Token: t.token})
		}
	}
	slices.SortFunc(out, func(a, b core.TaskHold) int { return slices.Compare(a.Task[:], b.Task[:]) })
	return out
}

// Drain stops grants for good.
func (ses *session) Drain() {
	ses.d.mu.Lock()
	defer ses.d.mu.Unlock()
	ses.drained = true
}

// Close ends the stream's side. Leases stay until they are resumed or expire.
func (ses *session) Close() {
	ses.d.mu.Lock()
	defer ses.d.mu.Unlock()
	ses.end()
}

// Leave ends the stream's side, and gives back what the client has neither settled nor named elsewhere.
func (ses *session) Leave() {
	d := ses.d
	leased, _, _ := d.lockWithHeld(ses.p, ses.spec.ID)
	ses.end()
	var left []core.Assigned
	if d.sessions[sessionKey{ses.p, ses.spec.ID}] == nil && !d.closed { // another stream of the session knows better
		for _, t := range leased {
			if h := ses.tasks[t.Task]; h != nil && h.settling && h.token == t.Token {
				continue
			}
			if _, going := d.releasing[core.TaskHold{Task: t.Task, Token: t.Token}]; !going {
				left = append(left, t)
			}
		}
		d.giveBack(left)
	}
	d.mu.Unlock()
	d.release(ses.p, left)
}

// end detaches all subscriptions and frees the session's key, once. The mutex is held.
func (ses *session) end() {
	if ses.closed {
		return
	}
	ses.closed = true
	ses.d.s.n.workers.touch(ses.worker(), ses.d.s.n.o.Clock.Boot())
	for _, number := range sortedKeys(ses.subs) {
		ses.d.detach(ses.subs[number])
	}
	k := sessionKey{ses.p, ses.spec.ID}
	if ses.d.sessions[k] == ses {
		delete(ses.d.sessions, k)
	}
}
