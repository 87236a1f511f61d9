package node

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/cron"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Who leads a shard computes the slots of its crons and proposes each when it is due (core.CronFire). Apply knows by the stored slot
// whether it was done. Nothing of this is remembered: the next leader finds what is due in its own state.

const (
	// cronBatch is how many slots one entry does at most. They bound for how long the loop computes, and the size of the entry.
	cronBatch = 64
	// cronPause is when crons are looked at again after none of those that were due could be proposed, or when cronRefusals entries in
	// a row had nothing but refusals of slots. A refusal means that the cron has changed since: it does not come twice.
	cronPause    = time.Second
	cronRefusals = 3
	// cronSchedules bounds the schedules that a shard has read and remembers.
	cronSchedules = 10_000
)

// cronState is what the loop of a shard knows of crons.
type cronState struct {
	// Schedules that were read, by schedule and zone; nil: it cannot be read here.
	read map[[2]string]*cron.Schedule
	// The boot time before which crons are not looked at again.
	at time.Duration
}

// nextCron returns the boot time at which crons are to be looked at; ok is false when none is due some time.
func (s *shard) nextCron(now time.Duration) (at time.Duration, ok bool) {
	due := core.ShardTime(s.view.crons.Load())
	if due == core.Never || s.view.firing.Load() || s.n.Format() < core.FormatShare {
		return 0, false
	}
	return max(now+core.Millis(due-s.now()).Duration(), s.loop.crons.at, time.Duration(s.view.cronsAt.Load())), true
}

// fireCrons returns the commits by which crons do what is due, at most cronBatch.
func (s *shard) fireCrons(now time.Duration) (out []core.Commit) {
	if at, ok := s.nextCron(now); !ok || at > now {
		return nil
	}
	due, wall := s.dueCrons()
	for i := range due {
		d := &due[i]
		schedule := s.schedule(d)
		if schedule == nil && d.Waiting == 0 {
			continue
		}
		op := planCron(schedule, d, wall)
		out = append(out, core.Commit{Partition: d.Partition, Principal: "millrace", Ops: []core.Op{op}})
	}
	if len(out) == 0 { // the bound of when they are due was early, or no schedule can be read
		s.loop.crons.at = now + cronPause
	}
	return out
}

// dueCrons returns crons of which something is due, at most cronBatch, and the wall time at which it is.
func (s *shard) dueCrons() (due []core.CronDue, wall core.ShardTime) {
	s.applier.machineMu.RLock()
	defer s.applier.machineMu.RUnlock()
	stamp := s.now()
	return s.applier.machine.DueCrons(nil, stamp, cronBatch), stamp.Add(s.applier.machine.Shift())
}

// schedule reads the schedule of a cron. One that this node cannot read was set by a node that knows other zones.
func (s *shard) schedule(d *core.CronDue) *cron.Schedule {
	key := [2]string{d.Config.Schedule, d.Config.Zone}
	c := &s.loop.crons
	read, known := c.read[key]
	if !known {
		if len(c.read) >= cronSchedules || c.read == nil {
			c.read = make(map[[2]string]*cron.Schedule)
		}
		var err error
		if read, err = cron.Parse(key[0], key[1]); err != nil {
			read = nil
			s.n.o.Logger.Error("the schedule of a cron cannot be read here; it does not run", "shard", s.id, "cron", d.Name, "err", err)
		}
		c.read[key] = read
	}
	return read
}

// cronsFired notes that the entry of some slots was applied.
func (s *shard) cronsFired(results []core.Result) {
	if slices.ContainsFunc(results, func(r core.Result) bool { return r.Refusal == nil }) {
		s.applier.cronRefusals = 0
	} else if s.applier.cronRefusals++; s.applier.cronRefusals >= cronRefusals {
		s.view.cronsAt.Store(int64(s.n.o.Clock.Boot() + cronPause))
	}
	s.view.firing.Store(false)
	s.poke()
}

// planCron says what is to be done for a cron of which something is due at a wall time.
func planCron(schedule *cron.Schedule, d *core.CronDue, wall core.ShardTime) *core.CronFire {
	op := &core.CronFire{Name: d.Name, Version: d.Version, Slot: d.Next}
	if d.Waiting != 0 {
		op.Slot, op.Waiting = d.Waiting, true
		return op
	}
	if d.Next == 0 {
		op.Next = schedule.NextOf(&d.Config, d.Anchor, d.Anchor)
		return op
	}
	slots := dueSlots(schedule, d, wall)
	run := len(slots) - 1
	switch d.Config.CatchUp {
	case core.CronCatchUpNone:
		if wall-slots[run] > core.CronGrace {
			run = len(slots)
		}
	case core.CronCatchUpAll:
		run = max(0, len(slots)-core.MaxCronMissed)
	}
	op.Passed = uint32(run)
	last := slots[len(slots)-1]
	if run < len(slots) {
		op.Run, last = slots[run], slots[run]
	}
	op.Next = schedule.NextOf(&d.Config, d.Anchor, last)
	return op
}

// dueSlots returns the slots of a cron from its next one to a wall time: the last ones, one more than may be made up for. The next one
// is due, so there is one at least. After a long standstill the last ones are looked for from the end.
func dueSlots(schedule *cron.Schedule, d *core.CronDue, wall core.ShardTime) []core.ShardTime {
	for back := core.Millis(1_000); ; back *= 2 {
		from := wall.Add(-back)
		slots := []core.ShardTime{d.Next}
		if from > d.Next {
			slots = slots[:0]
		} else {
			from = d.Next
		}
		for at := schedule.NextOf(&d.Config, d.Anchor, from); at <= wall; at = schedule.NextOf(&d.Config, d.Anchor, at) {
			slots = append(slots, at)
		}
		if n := len(slots) - core.MaxCronMissed - 1; n >= 0 {
			return slots[n:]
		}
		if from == d.Next {
			return slots
		}
	}
}

// Crons reads a page of the crons of a partition by name, each with its last runs. more says that others follow.
func (n *Node) Crons(ctx context.Context, p core.Partition, q core.CronQuery, o core.ReadOptions) (list []core.Cron, more bool, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		list, more, err = queue.Crons(v, p, q.After, q.Limit, q.Bytes)
		for i := range list {
			show(shift, &list[i].Created, &list[i].Updated)
			if q.Runs > 0 && err == nil {
				list[i].Recent, err = cronRuns(v, p, list[i].Name, 0, q.Runs, shift)
			}
		}
		return err
	})
	return list, more, at, err
}

// Cron reads a cron. NotFound says that there is none.
func (n *Node) Cron(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (c core.Cron, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		if c, ok, err = queue.CronOf(v, p, name); err == nil && !ok {
			return core.NotFound{Kind: "cron", ID: name}
		}
		show(shift, &c.Created, &c.Updated)
		return err
	})
	return c, at, err
}

// CronRuns reads the last runs of a cron before a number, the last first; 0: there is no bound. NotFound says that there is no cron.
func (n *Node) CronRuns(ctx context.Context, p core.Partition, name string, before uint64, most int, o core.ReadOptions) (runs []core.CronRun, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		runs, err = cronRuns(v, p, name, before, most, shift)
		return err
	})
	return runs, at, err
}

// cronRuns is CronRuns on a view.
func cronRuns(v core.View, p core.Partition, name string, before uint64, most int, shift core.Millis) ([]core.CronRun, error) {
	runs, ok, err := queue.CronRuns(v, p, name, before, most)
	if err == nil && !ok {
		err = core.NotFound{Kind: "cron", ID: name}
	}
	for i := range runs {
		show(shift, &runs[i].At, &runs[i].Began, &runs[i].Ended)
	}
	return runs, err
}
