package node

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// A session whose stream broke has Options.DisconnectGrace to be resumed. Then the leader proposes that its leases are lost, and
// Apply judges each (core.SessionLost). What is known of it here is soft state: the next leader knows only sessions that came to
// it, and leases of all others end by their own time.

// lostPatience is for how long a session that was not resumed in time waits for proposals that are in the inbox: one of them may
// renew its leases. Under overload there are always some.
const lostPatience = time.Second

// broken is a session whose stream broke while it held leases.
type broken struct {
	key sessionKey
	// The boot time at which its leases end, unless it is resumed.
	due time.Duration
	// Its leases that were not renewed since, and when they ended as the stream broke.
	leases map[core.TaskHold]core.ShardTime
}

// heldBy names a lease of a partition.
type heldBy struct {
	p    core.Partition
	hold core.TaskHold
}

// graces are the sessions that may still be resumed. The dispatcher's mutex guards them, except first. Each holds a lease, so that
// running tasks bound how many there are.
type graces struct {
	// A boot time before which no grace is over, in nanoseconds: the loop reads it for each entry, without the mutex. 0: there is
	// no session.
	first atomic.Int64
	// By session.
	sessions map[sessionKey]*broken
	// By each of their leases, so that a renewal finds its session.
	leases map[heldBy]*broken
}

// add notes a session whose stream broke at now.
func (g *graces) add(b *broken) {
	if g.sessions == nil {
		g.sessions, g.leases = make(map[sessionKey]*broken), make(map[heldBy]*broken)
	}
	g.drop(b.key)
	g.sessions[b.key] = b
	if first := g.first.Load(); first == 0 || int64(b.due) < first {
		g.first.Store(max(int64(b.due), 1))
	}
	for h := range b.leases {
		g.leases[heldBy{b.key.p, h}] = b
	}
}

// drop forgets a session.
func (g *graces) drop(k sessionKey) {
	b := g.sessions[k]
	if b == nil {
		return
	}
	for h := range b.leases {
		delete(g.leases, heldBy{k.p, h})
	}
	delete(g.sessions, k)
}

// dropOf forgets the sessions of a partition.
func (g *graces) dropOf(p core.Partition) {
	for k := range g.sessions {
		if k.p == p {
			g.drop(k)
		}
	}
}

// clear forgets all.
func (g *graces) clear() {
	g.sessions, g.leases = nil, nil
	g.first.Store(0)
}

// find looks up when the first grace is over.
func (g *graces) find() {
	first := int64(0)
	for _, b := range g.sessions {
		if due := max(int64(b.due), 1); first == 0 || due < first {
			first = due
		}
	}
	g.first.Store(first)
}

// renewed takes a lease out of its session's, which lives on by itself.
func (g *graces) renewed(p core.Partition, h core.TaskHold) {
	b := g.leases[heldBy{p, h}]
	if b == nil {
		return
	}
	delete(g.leases, heldBy{p, h})
	delete(b.leases, h)
	if len(b.leases) == 0 {
		delete(g.sessions, b.key)
	}
}

// again notes leases once more whose end was proposed and not applied, as due at now. A renewal that came in between is judged in
// Apply.
func (g *graces) again(commits []core.Commit, now time.Duration) {
	for _, c := range commits {
		op := c.Ops[0].(*core.SessionLost)
		b := &broken{key: sessionKey{c.Partition, op.Session}, due: now, leases: make(map[core.TaskHold]core.ShardTime)}
		if left := g.sessions[b.key]; left != nil {
			maps.Copy(b.leases, left.leases)
		}
		for _, l := range op.Leases {
			b.leases[core.TaskHold{Task: l.Task, Token: l.Token}] = l.Until
		}
		g.add(b)
	}
}

// Break ends the stream's side after the stream broke: unless the session is resumed in time, its leases end.
func (ses *session) Break() {
	d := ses.d
	leased, _, _ := d.lockWithHeld(ses.p, ses.spec.ID)
	defer d.mu.Unlock()
	ses.end()
	grace := d.s.n.o.DisconnectGrace
	k := sessionKey{ses.p, ses.spec.ID}
	// Another stream of the session is open, this one was heard of, or another node leads.
	if grace <= 0 || ses.broke || d.sessions[k] != nil || d.closed || !d.s.view.ready.Load() || d.s.n.Format() < core.FormatOperate {
		return
	}
	ses.broke = true
	b := &broken{key: k, due: d.s.n.o.Clock.Boot() + grace, leases: make(map[core.TaskHold]core.ShardTime)}
	for _, t := range leased {
		h := core.TaskHold{Task: t.Task, Token: t.Token}
		if _, going := d.releasing[h]; !going {
			b.leases[h] = t.LeaseUntil
		}
	}
	if len(b.leases) > 0 {
		d.graces.add(b)
	}
}

// anyLost reports whether a session may not have been resumed in time.
func (d *dispatcher) anyLost(now time.Duration) bool {
	first := d.graces.first.Load()
	return first != 0 && first <= int64(now)
}

// stoodStill gives sessions that broke their grace once more: none could be resumed while the node stood still.
func (d *dispatcher) stoodStill(now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.graces.sessions {
		b.due = now + d.s.n.o.DisconnectGrace
	}
	d.graces.find()
}

// lost returns the commits by which leases end whose sessions were not resumed in time; one entry ends core.MaxLostLeases of them.
// The commits of the entry so far may renew some, which then live. more says that proposals wait which are not among them.
func (d *dispatcher) lost(now time.Duration, commits []core.Commit, more bool) []core.Commit {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.graces.sessions) == 0 {
		return nil
	}
	for i := range commits {
		for _, op := range commits[i].Ops {
			if renew, ok := op.(*core.TaskRenew); ok {
				for _, h := range renew.Items {
					d.graces.renewed(commits[i].Partition, h)
				}
			}
		}
	}
	if !d.anyLost(now) {
		return nil
	}
	defer d.graces.find()
	var due []*broken
	for _, b := range d.graces.sessions {
		if b.due <= now && (!more || b.due+lostPatience <= now) {
			due = append(due, b)
		}
	}
	slices.SortFunc(due, func(a, b *broken) int {
		return cmp.Or(cmp.Compare(a.due, b.due), slices.Compare(a.key.id[:], b.key.id[:]), (queueKey{p: a.key.p}).compare(queueKey{p: b.key.p}))
	})
	var out []core.Commit
	room := core.MaxLostLeases
	for _, b := range due {
		if room == 0 {
			break
		}
		op := &core.SessionLost{Session: b.key.id}
		holds := slices.SortedFunc(maps.Keys(b.leases), func(a, b core.TaskHold) int { return cmp.Compare(a.Token, b.Token) })
		for _, h := range holds[:min(room, len(holds))] {
			op.Leases = append(op.Leases, core.SeenLease{Task: h.Task, Token: h.Token, Until: b.leases[h]})
			d.graces.renewed(b.key.p, h) // it is not asked for twice
		}
		room -= len(op.Leases)
		out = append(out, core.Commit{Partition: b.key.p, Principal: "millrace", Ops: []core.Op{op}})
	}
	return out
}
