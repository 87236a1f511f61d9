package node

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// fair holds the proposals of a shard while those of several tenants wait, and says in which order they join entries: by weighted
// deficit round robin in bytes. Each tenant's turn brings it quantum times its weight of credit, and it proposes while its next
// proposal costs no more than its credit. So tenants share what the shard takes by their weights, whatever the sizes of their
// proposals are, and one that asks for little waits for no more than one turn of each of the others.
//
// Within a tenant the order of proposals is that in which they came, but for ends of attempts and renewals of leases: these pass
// creates of tasks, and nothing else.
type fair struct {
	// first are the proposals of the shard itself, which go before those of all tenants.
	first []*proposal
	// turns are the tenants of which something waits, in the order of their turns; the first has the turn now.
	turns []*tenantQueue
	// begun says that the tenant whose turn it is has its credit for this turn.
	begun bool
	// byTenant finds the tenants of turns.
	byTenant map[core.TenantID]*tenantQueue
	// waiting is how many proposals there are, and bytes what they take.
	waiting int
	bytes   int64
	// weights are those of tenants that have one; the others have 1.
	weights map[core.TenantID]int64
}

// tenantQueue holds the proposals of one tenant.
type tenantQueue struct {
	// Whose they are.
	tenant core.TenantID
	// ends are those that only end attempts or renew leases, while nothing but creates waits in rest.
	ends []*proposal
	// rest are all others, in the order in which they came.
	rest []*proposal
	// ordered is how many of rest are not only creates: ends pass none of them.
	ordered int
	// bytes of ends and rest.
	bytes int64
	// credit is how many bytes it may propose; what is left of it stays while something waits.
	credit int64
}

const (
	// quantum is the credit in bytes that one turn brings to a tenant of weight 1. It is a small part of an entry, so that many
	// tenants have a turn in each.
	quantum = 8 << 10
	// OthersRoom is by how much all tenants together may have more waiting than one alone may.
	OthersRoom = 2
)

// tenant is the tenant of all commits of p; 0 is the shard itself.
func (p *proposal) tenant() core.TenantID { return p.commits[0].Partition.Tenant }

// len is how many proposals of the tenant wait.
func (q *tenantQueue) len() int { return len(q.ends) + len(q.rest) }

// next is the proposal that goes first.
func (q *tenantQueue) next() *proposal {
	if len(q.ends) > 0 {
		return q.ends[0]
	}
	return q.rest[0]
}

// pop takes out what next returns.
func (q *tenantQueue) pop() {
	from := &q.ends
	if len(q.ends) == 0 {
		from = &q.rest
		if !onlyCreates(q.rest[0]) {
			q.ordered--
		}
	}
	p := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	q.bytes -= int64(p.bytes)
}

// endsOrRenews reports whether all that p does is to end attempts, without effects, and to renew leases.
func endsOrRenews(p *proposal) bool {
	for i := range p.commits {
		c := &p.commits[i]
		if c.Seq != 0 || len(c.Ops) != 1 || len(c.Conditions) > 0 {
			return false
		}
		if kind := c.Ops[0].Kind(); kind != core.OpTaskRenew && !kind.Has(core.OpSettles) {
			return false
		}
	}
	return true
}

// onlyCreates reports whether all that p does is to create tasks.
func onlyCreates(p *proposal) bool {
	for i := range p.commits {
		c := &p.commits[i]
		if c.Seq != 0 || len(c.Conditions) > 0 || c.Fence != nil {
			return false
		}
		for _, op := range c.Ops {
			if op.Kind() != core.OpTaskCreate {
				return false
			}
		}
	}
	return true
}

// push adds a proposal behind those of its tenant.
func (f *fair) push(p *proposal) {
	f.waiting++
	f.bytes += int64(p.bytes)
	t := p.tenant()
	if t == 0 {
		f.first = append(f.first, p)
		return
	}
	q := f.byTenant[t]
	if q == nil {
		if f.byTenant == nil {
			f.byTenant = make(map[core.TenantID]*tenantQueue)
		}
		q = &tenantQueue{tenant: t}
		f.byTenant[t] = q
		f.turns = append(f.turns, q)
	}
	q.bytes += int64(p.bytes)
	switch {
	case q.ordered == 0 && endsOrRenews(p):
		q.ends = append(q.ends, p)
		return
	case !onlyCreates(p):
		q.ordered++
	}
	q.rest = append(q.rest, p)
}

// refusal says why a proposal finds no room. waiting and bytes are what of all tenants waits; max and maxBytes are what one tenant may
// have waiting while no other has anything. While others have, a tenant may have as much as is left of OthersRoom times that. So
// whatever a few tenants leave waiting, there is room for the next one. Ends of attempts and renewals are refused only when there is
// no room at all.
func (f *fair) refusal(p *proposal, waiting, max int, bytes, maxBytes int64) core.Fact {
	room, roomBytes := OthersRoom*max-waiting, OthersRoom*maxBytes-bytes
	switch {
	case room <= 0:
		return core.Unavailable{Reason: "overload", Limit: "proposals"}
	case int64(p.bytes) > roomBytes:
		return core.Unavailable{Reason: "overload", Limit: "proposal_bytes"}
	}
	q := f.byTenant[p.tenant()]
	switch {
	case q == nil || endsOrRenews(p):
		return nil
	case q.len() >= room:
		return core.Unavailable{Reason: "overload", Limit: "tenant_proposals"}
	case q.bytes+int64(p.bytes) > roomBytes:
		return core.Unavailable{Reason: "overload", Limit: "tenant_proposal_bytes"}
	}
	return nil
}

// gather takes out what joins an entry of at most that many bytes and commits; the first proposal always does.
func (f *fair) gather(bytes, commits int) (out []*proposal, count int) {
	size := 0
	take := func(p *proposal) bool {
		if len(out) > 0 && (size+p.bytes > bytes || count+len(p.commits) > commits) {
			return false
		}
		size += p.bytes
		count += len(p.commits)
		out = append(out, p)
		f.waiting--
		f.bytes -= int64(p.bytes)
		return true
	}
	for len(f.first) > 0 {
		if !take(f.first[0]) {
			return out, count
		}
		f.first = f.first[1:]
	}
	idle := 0 // turns in a row that took nothing
	for len(f.turns) > 0 {
		if idle == len(f.turns) {
			f.credit()
			idle = 0
		}
		q := f.turns[0]
		if !f.begun {
			q.credit += f.turnOf(q)
			f.begun = true
		}
		idle++
		for q.len() > 0 && int64(q.next().bytes) <= q.credit {
			p := q.next()
			if !take(p) {
				return out, count // its turn goes on in the next entry
			}
			q.pop()
			q.credit -= int64(p.bytes)
			idle = 0
		}
		f.endTurn(q)
	}
	return out, count
}

// endTurn passes the turn on. A tenant of which nothing waits any more leaves, and its credit goes with it.
func (f *fair) endTurn(q *tenantQueue) {
	f.begun = false
	copy(f.turns, f.turns[1:])
	if q.len() > 0 {
		f.turns[len(f.turns)-1] = q
		return
	}
	f.turns[len(f.turns)-1] = nil
	f.turns = f.turns[:len(f.turns)-1]
	delete(f.byTenant, q.tenant)
}

// turnOf is the credit that a turn brings to a tenant.
func (f *fair) turnOf(q *tenantQueue) int64 {
	return quantum * max(f.weights[q.tenant], 1)
}

// credit gives all tenants at once the credit of the rounds in which none of them could propose anything. It is called between
// turns, after each had one.
func (f *fair) credit() {
	rounds := int64(0)
	for i, q := range f.turns {
		turn := f.turnOf(q)
		needs := max((int64(q.next().bytes)-q.credit+turn-1)/turn-1, 0) // the next turn brings the last of it
		if i == 0 || needs < rounds {
			rounds = needs
		}
	}
	for _, q := range f.turns {
		q.credit += rounds * f.turnOf(q)
	}
}

// several reports whether proposals of more than one tenant wait.
func (f *fair) several() bool { return len(f.turns) > 1 }

// drain takes out everything, in no order.
func (f *fair) drain() []*proposal {
	all := slices.Clone(f.first)
	for _, q := range f.turns {
		all = append(append(all, q.ends...), q.rest...)
	}
	*f = fair{weights: f.weights}
	return all
}
