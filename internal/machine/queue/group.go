package queue

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// The lanes of a queue whose next tasks need the same limiters are a group. A queue serves the group whose first lane is served first
// among those that no limiter holds up. A group that one holds up is in no heap of its queue: its lanes and tasks cost nothing to skip,
// however many they are, until the limiter changes.
//
// Tasks without a key wait in a lane for each set of limiters that they name, so that a full limiter holds up no others. Tasks with a key
// keep their order: the first one holds up those of its key behind it. Which limiters it names is read from its payload record, for keys
// of which some task names one.

// group is the lanes of a queue whose next tasks name the same limiters themselves.
type group struct {
	// The queue's share.
	share *share
	// name has the names of these limiters, with zero bytes between them; empty: they name none.
	name string
	// own are the limiters of the name, and limits those with the queue's: all that a task needs.
	own, limits []*limiter
	// turns are the lanes that may give a task but for limiters, the next one first.
	turns heap[turn]
	// can is the sum of what these may give.
	can uint64
	// due is when rates of limiters let its next task go; Never: it does not wait for that.
	due core.ShardTime
	// byTurn is the place in share.open; -1: it has no lane, limiters hold it up, or no limiter is named in the queue. byRefill is the
	// place in Machine.groupRefills.
	byTurn, byRefill int32
	// stale says that it is in share.staleGroups.
	stale bool
}

// place and before are for the heap of the groups that may give a task. Each of them has a lane.
func (g *group) place() *int32 { return &g.byTurn }

func (g *group) before(o *group) bool {
	return g.turns.items[0].before(o.turns.items[0])
}

// groupRefill orders the groups that wait for rates of limiters, by when these let them go.
type groupRefill struct{ *group }

func (r groupRefill) place() *int32 { return &r.byRefill }
func (r groupRefill) before(o groupRefill) bool {
	if r.due != o.due {
		return r.due < o.due
	}
	return r.compare(o.group) < 0
}

// compare orders groups by the numbers of their queues, and then by their names.
func (g *group) compare(o *group) int {
	return cmp.Or(cmp.Compare(g.share.queue.number, o.share.queue.number), cmp.Compare(g.name, o.name))
}

// laneKey is what a lane is found by: its key, or for tasks without a key a zero byte before each of the limiters that they name. No key
// has a zero byte.
func laneKey(key string, limiters []string) string {
	if key != "" || len(limiters) == 0 {
		return key
	}
	return "\x00" + strings.Join(limiters, "\x00")
}

// keyless reports whether the tasks of a lane have no key.
func (ln *lane) keyless() bool { return ln.key == "" || ln.key[0] == 0 }

// shownKey is the key of a lane's tasks.
func (ln *lane) shownKey() string {
	if ln.keyless() {
		return ""
	}
	return ln.key
}

// names are the limiters that all tasks of a lane without a key name.
func (ln *lane) names() []string {
	if len(ln.key) < 2 || ln.key[0] != 0 {
		return nil
	}
	return strings.Split(ln.key[1:], "\x00")
}

// isLimited reports whether groups matter: limiters are named by the queue's configuration, or by the next task of some lane.
func (s *share) isLimited() bool { return len(s.groups) > 0 || len(s.limits) > 0 }

// next returns the lane that is served next, if any may give a task.
func (s *share) next() (turn, bool) {
	if !s.isLimited() {
		return s.none.turns.top()
	}
	g, ok := s.open.top()
	if !ok {
		return turn{}, false
	}
	return g.turns.top()
}

// mostCounted bounds how far the tasks are counted that the groups of a queue can give. No grant is that large.
const mostCounted = 1 << 16

// gives is how many tasks the lanes may give at a stamp. What several groups would take of one limiter is counted for each of them: it is
// too much then, and grants judge exactly. It is at most mostCounted where limiters are named.
func (s *share) gives(stamp core.ShardTime) uint64 {
	if !s.isLimited() {
		return s.none.can
	}
	var n uint64
	for _, g := range s.open.items {
		can := uint32(min(g.can, mostCounted))
		for _, x := range g.limits {
			can = x.room(stamp, can)
		}
		if n += uint64(max(can, 1)); n >= mostCounted { // its next task fits: it was judged
			return mostCounted
		}
	}
	return n
}

// lookGroup notes a group of which something is about to change. Until it is looked at again none of its lanes is served. Without
// limiters the order of lanes alone counts, and nothing is to be noted.
func (s *share) lookGroup(g *group) {
	if g.stale || g.byTurn < 0 && !s.isLimited() {
		return
	}
	g.stale = true
	s.staleGroups = append(s.staleGroups, g)
	s.open.keep(g, false)
}

// leaveTurns takes a lane out of those that may give a task.
func (s *share) leaveTurns(ln *lane) {
	if ln.byTurn < 0 {
		return
	}
	g := ln.group
	s.lookGroup(g)
	g.turns.remove(turn{ln})
	g.can -= uint64(ln.can)
	ln.can, ln.group = 0, nil
}

// enterTurns puts a lane that may give some tasks among those of its group.
func (m *Machine) enterTurns(v core.View, s *share, ln *lane) error {
	g, err := m.groupOf(v, s, ln)
	if err != nil {
		return err
	}
	ln.group = g
	s.lookGroup(g)
	g.can += uint64(ln.can)
	g.turns.push(turn{ln})
	return nil
}

// groupOf returns the group of a lane that has a ready task, and makes it where there is none.
func (m *Machine) groupOf(v core.View, s *share, ln *lane) (*group, error) {
	var name string
	switch {
	case ln.key != "" && ln.key[0] == 0:
		name = ln.key[1:]
	case ln.named:
		list, err := m.firstList(v, ln)
		if err != nil {
			return nil, err
		}
		made, err := m.loadSpec(v, ln.nextID(list))
		if err != nil {
			return nil, err
		}
		name = strings.Join(made.limiters, "\x00")
	}
	if name == "" {
		return &s.none, nil
	}
	if g := s.groups[name]; g != nil {
		return g, nil
	}
	own, err := m.resolve(strings.Split(name, "\x00"))
	if err != nil {
		return nil, err
	}
	g := &group{share: s, name: name, own: own, due: core.Never, byTurn: -1, byRefill: -1}
	if s.groups == nil {
		s.groups = map[string]*group{}
	}
	s.groups[name] = g
	g.limits = appendBoth(nil, own, s.limits)
	g.link()
	s.lookGroup(&s.none) // from here on it is one of several
	return g, nil
}

// nextID is the task of a lane that goes next. Its heads are loaded.
func (ln *lane) nextID(list *headList) core.TaskID {
	if ln.queue.config.Share.Strict && ln.hold != nil {
		return ln.hold.task
	}
	return list.rows[list.first].id
}

// link has the limiters of a group know it.
func (g *group) link() {
	for _, x := range g.limits {
		if i, found := slices.BinarySearchFunc(x.groups, g, (*group).compare); !found {
			x.groups = slices.Insert(x.groups, i, g)
		}
	}
}

// unlink is the inverse of link.
func (g *group) unlink() {
	for _, x := range g.limits {
		if i, found := slices.BinarySearchFunc(x.groups, g, (*group).compare); found {
			x.groups = slices.Delete(x.groups, i, i+1)
		}
	}
}

// lookAtLimiters notes the groups of a queue whose limiters have changed since it was looked at last.
func (m *Machine) lookAtLimiters(s *share) {
	at := m.limBase + uint64(len(m.limLog))
	if s.limSeen >= at {
		return
	}
	from := max(s.limSeen, m.limBase) - m.limBase
	s.limSeen = at
	if !s.isLimited() {
		return
	}
	for _, x := range m.limLog[from:] {
		i, _ := slices.BinarySearchFunc(x.groups, s.queue.number, func(g *group, number uint32) int {
			return cmp.Compare(g.share.queue.number, number)
		})
		for ; i < len(x.groups) && x.groups[i].share == s; i++ {
			s.lookGroup(x.groups[i])
		}
	}
}

// judgeGroups finds out which of the groups that were noted may give a task at a stamp.
func (m *Machine) judgeGroups(v core.View, stamp core.ShardTime, s *share) error {
	for _, g := range s.staleGroups {
		g.stale = false
		if err := m.judge(v, stamp, g); err != nil {
			return err
		}
	}
	clear(s.staleGroups)
	s.staleGroups = emptied(s.staleGroups)
	return nil
}

// judge puts a group where it belongs: among those that may give a task, or where it waits for a rate. One that waits for the end of
// running tasks is in neither, and one without lanes is forgotten.
func (m *Machine) judge(v core.View, stamp core.ShardTime, g *group) error {
	s := g.share
	t, some := g.turns.top()
	if !some && g != &s.none {
		m.dropGroup(g)
		return nil
	}
	open, due := some && s.isLimited(), core.Never
	if open && len(g.limits) > 0 {
		list, err := m.firstList(v, t.lane)
		if err != nil {
			return err
		}
		cost := t.nextCost(list)
		var at core.ShardTime
		for _, x := range g.limits {
			if open = open && x.fits(cost); open {
				at = max(at, x.rate.from(&x.Rate, cost))
			}
		}
		if open && at > stamp {
			open, due = false, at
		}
	}
	g.due = due
	s.open.keep(g, open)
	m.groupRefills.keep(groupRefill{g}, due != core.Never)
	return nil
}

// dropGroup forgets a group without lanes.
func (m *Machine) dropGroup(g *group) {
	s := g.share
	if s.groups[g.name] != g {
		return
	}
	g.unlink()
	m.groupRefills.keep(groupRefill{g}, false)
	s.open.keep(g, false)
	delete(s.groups, g.name)
	if !s.isLimited() { // the lanes that are left are in one order
		s.open.keep(&s.none, false)
	}
}

// ruleLimits takes over the limiters that a queue's configuration names. All of them are there: QueueSet has seen to that, or Open.
func (m *Machine) ruleLimits(s *share) {
	limits, err := m.resolve(s.queue.config.Share.LimiterNames())
	_ = errs.Assertf(err == nil, "limiters of queue %q: %v", s.queue.name, err)
	s.eachGroup(func(g *group) {
		s.lookGroup(g)
		g.unlink()
	})
	s.limits = limits
	s.eachGroup(func(g *group) {
		g.limits = appendBoth(nil, g.own, limits)
		g.link()
		s.lookGroup(g)
	})
}

// eachGroup calls fn for all groups, in order of their names.
func (s *share) eachGroup(fn func(g *group)) {
	fn(&s.none)
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		fn(s.groups[name])
	}
}

// emptyTurns takes all lanes out of their turns at once: what orders them changed.
func (s *share) emptyTurns() {
	for _, g := range s.open.items {
		g.byTurn = -1
	}
	s.open.items = nil
	s.eachGroup(func(g *group) {
		s.lookGroup(g)
		for _, t := range g.turns.items {
			t.byTurn, t.can, t.group = -1, 0, nil
		}
		g.turns.items, g.can = nil, 0
	})
}

// forgetGroups takes all groups of a queue away that is no longer shared.
func (m *Machine) forgetGroups(s *share) {
	s.emptyTurns()
	s.eachGroup(func(g *group) {
		g.unlink()
		m.groupRefills.keep(groupRefill{g}, false)
		g.limits, g.stale = nil, false
	})
	s.groups, s.limits, s.staleGroups = nil, nil, nil
}
