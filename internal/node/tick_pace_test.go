package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func TestTicksLeaveOthersTheirShareOfTheApplier(t *testing.T) {
	t.Parallel()
	const cost, most = 2 * time.Microsecond, 1000
	for name, c := range map[string]struct {
		last, others, now, cost time.Duration
		timers                  uint32
		at                      time.Duration
	}{
		"without others":             {last: 10 * time.Second, others: 8 * time.Second, now: 10 * time.Second, cost: cost, timers: most, at: 10 * time.Second},
		"before the first cost":      {last: 10 * time.Second, others: 10 * time.Second, now: 10 * time.Second, timers: most, at: 10 * time.Second},
		"too early":                  {last: 10 * time.Second, others: 10 * time.Second, now: 10*time.Second + 1199*time.Microsecond, cost: cost, at: 10*time.Second + 1200*time.Microsecond},
		"in time":                    {last: 10 * time.Second, others: 10 * time.Second, now: 10*time.Second + 1200*time.Microsecond, cost: cost, timers: 200, at: 10*time.Second + 1200*time.Microsecond},
		"late, as behind a sync":     {last: 10 * time.Second, others: 10 * time.Second, now: 10*time.Second + 3*time.Millisecond, cost: cost, timers: 500, at: 10*time.Second + 3*time.Millisecond},
		"so late that it takes most": {last: 10 * time.Second, others: 10 * time.Second, now: 10*time.Second + time.Second, cost: cost, timers: most, at: 11 * time.Second},
		"of a store that is slow":    {last: 10 * time.Second, others: 10 * time.Second, now: 10*time.Second + 20*time.Millisecond, cost: time.Millisecond, timers: 200, at: 10*time.Second + 20*time.Millisecond},
	} {
		p := tickPace{at: c.last, othersAt: c.others}
		if timers, at := p.next(c.now, c.cost, most); timers != c.timers || at != c.at {
			t.Errorf("%s: %d timers at %s, expected %d at %s", name, timers, at, c.timers, c.at)
		}
	}
	var p tickPace
	if timers, _ := p.next(time.Millisecond, cost, 40); timers != 40 {
		t.Errorf("a tick of at most 40 timers takes %d", timers)
	}
	p.proposed(time.Second, true, false)
	p.proposed(2*time.Second, false, true)
	p.proposed(3*time.Second, false, false)
	if p != (tickPace{at: time.Second, othersAt: 2 * time.Second}) {
		t.Errorf("%+v", p)
	}
}

// The first tick of what becomes due waits for nothing, and one that follows a tick which left work waits for its turn.
func TestOnlyATickThatFollowsOneWaits(t *testing.T) {
	t.Parallel()
	s := &shard{n: &Node{o: Options{TimerBatch: 1000}}}
	s.view.due.Store(int64(core.Never))
	s.loop.closedAt = 10 * time.Second
	s.loop.ticks.proposed(s.loop.closedAt, true, true)
	s.view.timerCost.Store(int64(2 * time.Microsecond))
	s.view.more.Store(true)
	if got := s.dueTimers(true); got != 0 {
		t.Errorf("a tick that follows one at once takes %d timers", got)
	}
	s.loop.closedAt += 3 * time.Millisecond
	if got := s.dueTimers(true); got != 500 {
		t.Errorf("a tick 3 ms after one takes %d timers", got)
	}
	s.view.timers.Store(true)
	if got := s.dueTimers(true); got != 0 {
		t.Errorf("while a tick is on its way another takes %d timers", got)
	}
}
