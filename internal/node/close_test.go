package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/replog"
)

// When an entry of what waits is closed, by what is on its way before it.
func TestWhenAnEntryIsClosed(t *testing.T) {
	single := func(inLog int) replog.Status {
		return replog.Status{Single: true, Last: 10, Commit: 10 - uint64(inLog)}
	}
	open := func(n uint64) replog.Status { return replog.Status{Last: 10, Commit: 10 - n} }
	for _, c := range []struct {
		name    string
		st      replog.Status
		inLog   int
		last    int // commits of the last entry
		waiting int
		passed  time.Duration // since it was closed
		want    bool
	}{
		{"nothing is on its way", single(0), 0, 9, 1, 0, true},
		{"as much waits as the last one holds", single(1), 1, 9, 9, 0, true},
		{"less waits", single(1), 1, 9, 8, time.Hour, false},
		{"as much waits as an entry may hold", single(1), 1, 900, 100, 0, true},
		{"two are on their way to the disk", single(2), 2, 9, 100, time.Hour, false},

		{"with others: all is committed", open(0), 0, 9, 1, 0, true},
		{"with others: all is committed, and is still written here", open(0), 1, 9, 1, 0, true},
		{"with others: one is durable here alone", open(1), 0, 9, 9, holdShort - 1, false},
		{"with others: for long", open(1), 0, 9, 1, holdShort, true},
		{"with others: for long, and nothing waits", open(1), 0, 9, 0, time.Hour, false},
		{"with others: as much waits as an entry may hold", open(1), 1, 9, 100, 0, true},
		{"with others: two are on their way to the disk", open(2), 2, 9, 100, time.Hour, false},
		{"with others: many answers are awaited", open(10), 1, 9, 1, holdShort, true},
	} {
		clock := envtest.NewClock(time.UnixMilli(0))
		s := &shard{n: &Node{o: Options{EntryCommits: 100, Clock: clock}}}
		s.loop.inLog, s.loop.last, s.loop.closedAt, s.in.commits = c.inLog, c.last, clock.Boot(), c.waiting
		clock.Advance(c.passed)
		if got := s.closes(c.st); got != c.want {
			t.Errorf("%s: closed %v, want %v", c.name, got, c.want)
		}
	}
}

// What waits is held longer where commits can be fast: they are slow only because processors are busy.
func TestHowLongIsHeldGoesByTheFastestCommitOfLate(t *testing.T) {
	var p pace
	now := time.Minute
	commit := func(index uint64, takes time.Duration) {
		p.proposed(index, now)
		now += takes
		p.committed(index, now)
	}
	want := func(when string, d time.Duration) {
		t.Helper()
		if got := p.hold(); got != d {
			t.Errorf("%s: held for %v, want %v", when, got, d)
		}
	}
	want("nothing is known", holdShort)
	commit(1, slowCommit)
	want("on a slow network", holdShort)
	commit(2, time.Millisecond)
	want("one was fast", holdLong)
	for i := range uint64(20) {
		commit(3+i, 10*time.Millisecond)
	}
	want("most are slow", holdLong)
	for i := range uint64(2) { // the network becomes slow: the fast one is forgotten
		now += paceWindow
		commit(30+i, 50*time.Millisecond)
	}
	now += paceWindow
	p.committed(40, now)
	want("none was fast for long", holdShort)
	p.proposed(50, now)
	p.proposed(51, now+time.Millisecond)
	now += 2 * time.Millisecond
	p.committed(50, now)
	p.committed(51, now+time.Hour)
	want("two are on their way, the first was fast", holdLong)
	for i := range uint64(1_000) {
		p.proposed(60+i, now)
	}
	if len(p.open) > paceOpen {
		t.Errorf("%d entries are timed", len(p.open))
	}
}
