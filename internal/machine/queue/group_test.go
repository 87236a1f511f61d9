package queue

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// checkGroups holds what is derived of the groups of a queue's lanes to what it is derived of. can is what all lanes can give.
func (m *Machine) checkGroups(v core.View, s *share, stamp core.ShardTime, can uint64) error {
	if len(s.staleGroups) > 0 {
		return fmt.Errorf("%d groups are not judged after an entry", len(s.staleGroups))
	}
	var sum uint64
	var open int
	var bad error
	s.eachGroup(func(g *group) {
		if err := m.checkGroup(v, g, stamp); err != nil && bad == nil {
			bad = fmt.Errorf("group %q: %w", g.name, err)
		}
		sum += g.can
		if g.byTurn >= 0 {
			open++
		}
	})
	switch {
	case bad != nil:
		return bad
	case sum != can:
		return fmt.Errorf("lanes can give %d, and groups say %d", can, sum)
	case open != len(s.open.items):
		return fmt.Errorf("%d groups are open, of which %d are known", len(s.open.items), open)
	}
	return nil
}

func (m *Machine) checkGroup(v core.View, g *group, stamp core.ShardTime) error {
	s := g.share
	if want := appendBoth(nil, g.own, s.limits); !slices.Equal(want, g.limits) {
		return fmt.Errorf("holds to %d limiters, not %d", len(g.limits), len(want))
	}
	var can uint64
	for _, t := range g.turns.items {
		can += uint64(t.can)
		if t.group != g {
			return fmt.Errorf("lane %q is in another group", t.key)
		}
	}
	if can != g.can || len(g.turns.items) == 0 && g.name != "" {
		return fmt.Errorf("its %d lanes can give %d, and it says %d", len(g.turns.items), can, g.can)
	}
	for _, x := range g.limits {
		if x.gone || m.limiters[x.name] != x || !slices.Contains(x.groups, g) {
			return fmt.Errorf("limiter %q does not know it", x.name)
		}
	}
	t, some := g.turns.top()
	fits, due := some && s.isLimited(), core.Never
	if fits {
		list, err := m.firstList(v, t.lane)
		if err != nil {
			return err
		}
		cost := t.nextCost(list)
		var at core.ShardTime
		for _, x := range g.limits {
			fits = fits && x.fits(cost)
			at = max(at, x.rate.from(&x.Rate, cost))
		}
		if fits && at > stamp {
			fits, due = false, at
		}
	}
	// What waits for a rate is let go by a tick, or by the grant that finds it due.
	waits := g.due != core.Never
	if waits != (g.byRefill >= 0) || (g.byTurn >= 0) != fits && !(fits && waits) || due != core.Never && g.due != due {
		return fmt.Errorf("fits %v due %d, and it says due %d, places %d %d", fits, due, g.due, g.byTurn, g.byRefill)
	}
	return nil
}
