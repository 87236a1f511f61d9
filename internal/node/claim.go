package node

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// claim is a unary caller that waits for tasks. answer holds one value.
type claim struct {
	// Gets the first answer; a second one is dropped.
	answer chan claimed
	// It does not wait: an empty grant is an answer.
	once bool
	// Its wait is over: what the grant that is in the log gives is the answer. Guarded by the dispatcher's mutex.
	last bool
	// Its worker is quiet: it is given nothing.
	quiet bool
	// Answered or abandoned: what is granted to it from here on goes back. Guarded by the dispatcher's mutex.
	over bool
}

// claimed is what a unary claim is answered with: tasks, which may be none, or why there are none.
type claimed struct {
	// What the grant gave; empty: the wait was over, or nothing was ready.
	tasks []core.Assigned
	// Position of the grant, or of the partition where nothing was granted.
	at core.At
	// Why there is no answer; nil: at and tasks are one.
	err core.Fact
}

// end answers a claim, unless it was answered before. It does not wait.
func (c *claim) end(r claimed) {
	select {
	case c.answer <- r:
	default: // answered already
	}
}

// Claim takes ready tasks for a unary caller, waiting up to spec.Wait. None is an empty answer.
func (n *Node) Claim(ctx context.Context, p core.Partition, spec core.ClaimSpec) ([]core.Assigned, core.At, error) {
	s, err := n.shardOf(p)
	if err != nil {
		return nil, core.At{}, err
	}
	if !s.view.ready.Load() {
		return nil, core.At{}, s.notLeading()
	}
	d := s.disp
	c := &claim{answer: make(chan claimed, 1), once: spec.Wait <= 0}
	u := &sub{claim: c, worker: spec.Worker, window: int(spec.Max), batch: int(spec.Max), lease: spec.Lease, shares: sharesOf(spec.Queues, spec.Strict)}
	if u.shares != nil {
		u.shares.draw(d.draws.Add(1))
	}
	if f := d.admit(); f != nil {
		return nil, core.At{}, f
	}
	worker := workerKey{p.Tenant, p.Namespace, spec.Worker}
	c.quiet = n.workers.claims(worker, &spec, n.o.Clock.Boot())
	defer n.workers.claimed(worker, n.o.Clock)
	there := d.attach(p, u, spec.Queues)
	defer d.leave(u)
	if n.workers.isQuiet(worker, n.o.Clock.Boot()) { // it may have been made so before u was attached
		d.quietClaim(u, true)
	}
	if !there {
		return nil, core.At{}, removedFact
	}
	if !s.view.ready.Load() { // it stepped down before u was attached
		return nil, s.at(p), s.notLeading()
	}
	if c.once && (c.quiet || !d.mayGive(u)) {
		return nil, s.at(p), nil
	}
	wait := spec.Wait.Duration()
	if c.once {
		wait = n.o.ReadWait
	}
	r, over := d.await(ctx, p, u, wait)
	if !over { // its time is over, and what is granted already is not to be in vain
		r, _ = d.await(ctx, p, u, n.o.ReadWait)
	}
	if r.err != nil {
		return nil, r.at, r.err
	}
	return r.tasks, r.at, nil
}

// await waits for the answer of a claim, until a time has passed or the caller wants no more tasks. It reports false where the time is over and a grant for the claim is in the log: then the
// claim gets no further grant, and is answered with what that one gives.
func (d *dispatcher) await(ctx context.Context, p core.Partition, u *sub, wait time.Duration) (r claimed, over bool) {
	timer := d.s.n.o.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case r = <-u.claim.answer:
	case <-timer.C():
		if d.awaitsLast(u) {
			return claimed{}, false
		}
		r = d.abandon(u, claimed{at: d.s.at(p)})
	case <-ctx.Done(): // what a grant in the log gives goes back
		r = claimed{at: d.s.at(p)}
		if !errors.Is(context.Cause(ctx), core.ErrClaimEnded) {
			r.err = core.DeadlineExceeded{}
		}
		r = d.abandon(u, r)
	case <-d.s.n.stopping:
		r = d.abandon(u, claimed{err: core.Unavailable{Reason: "stopping"}})
	}
	return r, true
}

// awaitsLast ends the wait of a claim for which a grant is in the log, once, and reports whether it did.
func (d *dispatcher) awaitsLast(u *sub) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := u.claim
	if c.last || c.over || u.inLog == 0 {
		return false
	}
	c.last, u.gone = true, true
	return true
}

// admit counts a claim in, within its limit.
func (d *dispatcher) admit() core.Fact {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return core.Unavailable{Reason: "stopping"}
	}
	if d.claims >= d.s.n.o.Claims {
		return core.Unavailable{Reason: "overload", Limit: "waiting_claims"}
	}
	d.claims++
	return nil
}

// leave takes a claim off its queues and gives its place back. It comes after every admit.
func (d *dispatcher) leave(u *sub) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims--
	u.claim.over = true
	d.detach(u)
}

// mayGive reports whether one of u's queues has a task, or a grant for u is in the log.
func (d *dispatcher) mayGive(u *sub) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.inLog > 0 || u.finds() {
		return true
	}
	select {
	case r := <-u.claim.answer: // granted in between
		u.claim.answer <- r
		return true
	default:
	}
	return false
}

// abandon ends a claim unless it was answered meanwhile.
func (d *dispatcher) abandon(u *sub, r claimed) claimed {
	d.mu.Lock()
	defer d.mu.Unlock()
	u.claim.over, u.gone = true, true
	select {
	case r = <-u.claim.answer:
	default:
	}
	return r
}

// claimed books a claim's grant.
func (d *dispatcher) claimed(g *grant, tasks []core.Assigned, at core.At) []send {
	c := g.sub.claim
	switch {
	case c.over && len(tasks) > 0:
		return []send{{release: tasks, partition: g.partition}}
	case len(tasks) > 0 || c.once || c.last:
		c.over = true
		g.sub.gone = true // no further grant, before the caller has come to leave
		c.end(claimed{tasks: tasks, at: at})
	}
	return nil
}
