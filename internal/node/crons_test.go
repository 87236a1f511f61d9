package node

import (
	"fmt"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the tests must not depend on the machine's

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/cron"
	"github.com/millrace/millrace/internal/env/envtest"
)

// cronSet sets a cron of the rig.
func (l *long) cronSet(name string, c core.CronConfig) {
	l.t.Helper()
	l.must(&core.CronSet{Name: name, IfVersion: -1, Config: c, Template: core.TaskCreate{Queue: "q"}})
}

// runs reads the runs of a cron, the first one first.
func (l *long) runs(name string) []core.CronRun {
	l.t.Helper()
	runs, _, err := l.node.CronRuns(l.t.Context(), l.ns, name, 0, 100, core.ReadOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

// The days on which the clocks change, in three zones: while the time goes by, and the node is restarted, each cron runs at the slots
// that its zone has, each once.
func TestCronsRunAsTheirZonesChangeTheClocks(t *testing.T) {
	l := openLong(t, longOptions{clock: envtest.NewClock(moment(t, "2026-03-28T20:00:00Z"))})
	defer func() { l.close() }()
	for name, c := range map[string][2]string{
		"berlin": {"30 2 * * *", "Europe/Berlin"}, "york": {"30 1,2 * * *", "America/New_York"}, "howe": {"45 1 * * *", "Australia/Lord_Howe"},
		"hourly": {"0 * * * *", "Europe/Berlin"},
	} {
		l.cronSet(name, core.CronConfig{Schedule: c[0], Zone: c[1], Overlap: core.CronAllow})
	}
	step := []time.Duration{7 * time.Minute, 20 * time.Minute, 3 * time.Minute}
	over := func(from string, hours int) {
		t.Helper()
		for at := moment(t, from); l.clock.Wall().Before(at); {
			l.pass(min(6*time.Hour, at.Sub(l.clock.Wall())))
		}
		for i, end := 0, l.clock.Wall().Add(time.Duration(hours)*time.Hour); l.clock.Wall().Before(end); i++ {
			l.pass(step[i%len(step)])
			if i%11 == 0 {
				l.restart()
			}
		}
	}
	since := func(name, zone, from string) (out []string) {
		t.Helper()
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.runs(name) {
			if at := r.Slot.Time(); at.After(moment(t, from)) {
				if r.Passed > 0 || r.Outcome != core.CronStarted {
					t.Errorf("%s: %+v", name, r)
				}
				out = append(out, at.In(loc).Format("02 15:04 -0700"))
			}
		}
		return out
	}
	for _, c := range []struct {
		from, name, zone string
		hours            int
		want             []string
	}{
		{"2026-03-28T22:00:00Z", "berlin", "Europe/Berlin", 4, []string{"29 03:00 +0200"}},
		{"2026-03-29T00:30:00Z", "hourly", "Europe/Berlin", 1, []string{"29 03:00 +0200", "29 04:00 +0200", "29 05:00 +0200"}},
		{"2026-04-04T13:00:00Z", "howe", "Australia/Lord_Howe", 4, []string{"05 01:45 +1100"}},
		{"2026-10-03T14:00:00Z", "howe", "Australia/Lord_Howe", 3, []string{"04 01:45 +1030"}},
		{"2026-10-24T22:00:00Z", "berlin", "Europe/Berlin", 4, []string{"25 02:30 +0200"}},
		{"2026-11-01T04:00:00Z", "york", "America/New_York", 4, []string{"01 01:30 -0400", "01 02:30 -0500"}},
		{"2027-03-14T05:00:00Z", "york", "America/New_York", 3, []string{"14 01:30 -0500", "14 03:00 -0400"}},
	} {
		over(c.from, c.hours)
		if got := since(c.name, c.zone, c.from); !slices.Equal(got, c.want) {
			t.Errorf("%s from %s: %q, want %q", c.name, c.from, got, c.want)
		}
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// What was missed while the node was down is made up for as the cron says.
func TestMissedSlotsAreMadeUpFor(t *testing.T) {
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	for name, catchUp := range map[string]core.CronCatchUp{"one": core.CronCatchUpOne, "none": core.CronCatchUpNone, "all": core.CronCatchUpAll} {
		l.cronSet(name, core.CronConfig{Schedule: "@every 10m", Overlap: core.CronAllow, CatchUp: catchUp})
		l.cronSet(name+", often", core.CronConfig{Schedule: "* * * * * *", Overlap: core.CronAllow, CatchUp: catchUp})
	}
	begin := l.now()
	l.pass(10 * time.Minute)
	for _, name := range []string{"one", "none", "all"} {
		if got := l.runs(name); len(got) != 1 || got[0].Slot > begin.Add(600_000) || got[0].Passed != 0 {
			t.Errorf("%s: on time: %+v", name, got)
		}
	}
	l.close()
	l.clock.Advance(55 * time.Minute)
	l.open(t, l.disk)
	l.workOff()
	for name, want := range map[string]string{"one": "0 4", "none": "0 5!", "all": "0 0 0 0 0 0"} {
		var got string
		for _, r := range l.runs(name) {
			got += fmt.Sprintf(" %d", r.Passed)
			if r.Outcome == core.CronMissed {
				got += "!"
			}
		}
		if got != " "+want {
			t.Errorf("%s: after the standstill: runs that passed over%s, want %s", name, got, want)
		}
	}
	l.pass(5 * time.Minute)
	for _, name := range []string{"one", "none", "all"} {
		runs := l.runs(name)
		if r := runs[len(runs)-1]; r.Passed != 0 || r.Outcome != core.CronStarted {
			t.Errorf("%s: it goes on: %+v", name, r)
		}
	}
	// A slot in each second: the last one is on time, so it runs even where none is made up for.
	for name, runs := range map[string]int{"one, often": 2, "none, often": 2, "all, often": 100} {
		if got := l.runs(name); len(got) < runs {
			t.Errorf("%s: %d runs", name, len(got))
		}
	}
}

// Pausing keeps the next slot: what went by is made up for after the resumption.
func TestAPausedCronMakesUpForWhatItMissed(t *testing.T) {
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	l.cronSet("n", core.CronConfig{Schedule: "@every 1m", Overlap: core.CronAllow})
	l.pass(time.Minute)
	l.must(&core.CronSet{Name: "n", Change: core.CronChangePause, IfVersion: -1})
	entries := l.log.Stats().Entries
	l.clock.Advance(time.Hour)
	l.workOff()
	if got := l.runs("n"); len(got) != 1 || l.log.Stats().Entries > entries+5 {
		t.Errorf("while it is paused: %d runs, %d entries", len(got), l.log.Stats().Entries-entries)
	}
	l.must(&core.CronSet{Name: "n", Change: core.CronChangeResume, IfVersion: -1})
	l.workOff()
	if got := l.runs("n"); len(got) != 2 || got[1].Passed != 59 {
		t.Errorf("after the resumption: %+v", got)
	}
}

// A slot is done when it comes, without a call of a client, and until then a cron costs nothing.
func TestACronFiresByItselfAndCostsNothingBefore(t *testing.T) {
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	l.cronSet("n", core.CronConfig{Schedule: "@every 24h"})
	l.workOff()
	claimed := make(chan core.TaskID, 1)
	go func() {
		tasks, _, err := l.node.Claim(t.Context(), l.ns, core.ClaimSpec{Queues: []core.GrantQueue{{Name: "q"}}, Max: 1, Wait: 48 * 3_600_000, Worker: "w"})
		if err != nil || len(tasks) != 1 {
			t.Errorf("%d tasks, %v", len(tasks), err)
			close(claimed)
			return
		}
		claimed <- tasks[0].Task
	}()
	for l.waitingClaims() == 0 {
		l.must(&core.KVPut{Keyspace: "k", Key: []byte("x")})
	}
	entries := l.log.Stats().Entries
	for range 23 {
		l.clock.Advance(time.Hour)
	}
	if got := l.log.Stats().Entries; got != entries {
		t.Errorf("%d entries were appended before the slot", got-entries)
	}
	l.clock.Advance(time.Hour)
	if id := <-claimed; id.IsZero() || id.Millis() > int64(l.now()) {
		t.Errorf("task %s", id)
	}
	// It overlaps: the run that waits begins when the first one ends, though no slot is near.
	l.must(&core.CronSet{Name: "n", IfVersion: -1, Config: core.CronConfig{Schedule: "@every 24h", Overlap: core.CronQueueOne}, Template: core.TaskCreate{Queue: "q"}})
	p := l.propose(core.Commit{Ops: []core.Op{&core.CronFire{Name: "n", Trigger: taskID(7)}}})
	if _, outcome := core.CronRunOf(p.Results[0].Ops[0].Version); outcome != core.CronWaits {
		t.Fatalf("%+v", p.Results[0])
	}
	first := l.runs("n")[0].Task
	l.must(&core.TaskCancel{Task: first, Force: true})
	if got := l.claimUpTo("q", 1); len(got) != 1 || got[0].Task != taskID(7) {
		l.workOff()
		if got = l.claimUpTo("q", 1); len(got) != 1 || got[0].Task != taskID(7) {
			t.Errorf("the run that waited: %+v", got)
		}
	}
}

// Two schedules that many crons have are read once, and many due crons are done in several entries.
func TestManyCronsAreDoneInParts(t *testing.T) {
	l := openLong(t, longOptions{})
	defer func() { l.close() }()
	const many = 3*cronBatch + 5
	for i := range many {
		l.cronSet(fmt.Sprintf("c%d", i), core.CronConfig{Schedule: "@hourly"})
	}
	l.workOff()
	entries := l.log.Stats().Entries
	l.pass(time.Hour)
	if st := l.stats("q"); st.Created != many {
		t.Errorf("%d of %d crons made a task", st.Created, many)
	}
	if n := l.log.Stats().Entries - entries; n > 20 {
		t.Errorf("%d entries", n)
	}
	if s := l.node.shards[0]; len(s.loop.crons.read) != 1 {
		t.Errorf("%d schedules are remembered", len(s.loop.crons.read))
	}
}

func TestPlansOfCrons(t *testing.T) {
	const day = 24 * 3_600_000
	begin := core.ShardTimeOf(moment(t, "2026-03-01T00:00:00Z"))
	for _, c := range []struct {
		name, schedule string
		config         core.CronConfig
		next, wall     core.ShardTime // after begin; next 0: none was computed
		run            core.ShardTime // after begin; -1: none
		passed         uint32
		after          core.ShardTime // after begin; Never: none
	}{
		{name: "first", schedule: "@hourly", run: -1, after: 3_600_000},
		{name: "first, starts later", schedule: "@hourly", config: core.CronConfig{Start: begin + day}, run: -1, after: day},
		{name: "first, periods from the start", schedule: "@every 7h", config: core.CronConfig{Start: begin + day}, run: -1, after: day},
		{name: "first, ends before", schedule: "@daily", config: core.CronConfig{End: begin + 1000}, run: -1, after: core.Never},
		{name: "on time", schedule: "@hourly", next: 3_600_000, wall: 3_600_100, run: 3_600_000, after: 7_200_000},
		{name: "the last one", schedule: "@hourly", config: core.CronConfig{End: begin + 3_600_000}, next: 3_600_000, wall: 3_600_100, run: 3_600_000, after: core.Never},
		{name: "late, one", schedule: "@hourly", next: 3_600_000, wall: 9_000_000, run: 7_200_000, passed: 1, after: 10_800_000},
		{name: "late, none", schedule: "@hourly", config: core.CronConfig{CatchUp: core.CronCatchUpNone}, next: 3_600_000, wall: 9_000_000, run: -1, passed: 2, after: 10_800_000},
		{name: "a little late, none", schedule: "@hourly", config: core.CronConfig{CatchUp: core.CronCatchUpNone}, next: 3_600_000, wall: 7_259_000, run: 7_200_000, passed: 1, after: 10_800_000},
		{name: "late, all", schedule: "@hourly", config: core.CronConfig{CatchUp: core.CronCatchUpAll}, next: 3_600_000, wall: 9_000_000, run: 3_600_000, after: 7_200_000},
		{name: "very late, all", schedule: "@every 1s", config: core.CronConfig{CatchUp: core.CronCatchUpAll}, next: 1000, wall: 300 * day, run: 300*day - 99_000, passed: 1, after: 300*day - 98_000},
		{name: "very late, one", schedule: "@every 1s", next: 1000, wall: 300 * day, run: 300 * day, passed: 100, after: 300*day + 1000},
		{name: "ended meanwhile", schedule: "@hourly", config: core.CronConfig{End: begin + 7_200_000}, next: 3_600_000, wall: 5 * day, run: 7_200_000, passed: 1, after: core.Never},
	} {
		schedule, err := cron.Parse(c.schedule, "")
		if err != nil {
			t.Fatal(err)
		}
		d := core.CronDue{Name: "n", Config: c.config, Version: 3, Anchor: begin}
		if c.next != 0 {
			d.Next = begin + c.next
		}
		want := core.CronFire{Name: "n", Version: 3, Slot: d.Next, Passed: c.passed, Next: c.after}
		if c.after != core.Never {
			want.Next = begin + c.after
		}
		if c.run >= 0 {
			want.Run = begin + c.run
		}
		if got := planCron(schedule, &d, begin+c.wall); *got != want {
			t.Errorf("%s: %+v, want %+v", c.name, *got, want)
		}
	}
}
