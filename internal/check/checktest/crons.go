package checktest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// crons makes commits of operators who set crons, and of leaders who propose their slots: some of these propose what another one did.
type crons struct {
	rand  *rand.Rand
	next  uint64
	fired map[core.Partition][]*core.CronFire // newest last
}

// cronNames are few, so that crons of one name follow each other.
var cronNames = []string{"nightly", "poll", "poll", "late"}

// commit draws a commit of one op. stamp is that of the entry, which shows about what the wall clocks do.
func (w *crons) commit(p core.Partition, stamp core.ShardTime, there []core.Cron) core.Commit {
	c := core.Commit{Partition: p, Principal: "leader"}
	if len(there) > 0 && w.rand.IntN(6) > 0 {
		c.Ops = []core.Op{w.fire(p, stamp, pick(w.rand, there))}
		return c
	}
	c.Principal = "operator"
	name := pick(w.rand, cronNames)
	switch w.rand.IntN(8) {
	case 0:
		c.Ops = []core.Op{&core.CronDelete{Name: name, IfVersion: int64(w.rand.IntN(4) - 1)}}
	case 1, 2:
		c.Ops = []core.Op{&core.CronSet{Name: name, Change: core.CronChange(1 + w.rand.IntN(2)), IfVersion: int64(w.rand.IntN(4) - 1)}}
	default:
		c.Ops = []core.Op{w.set(name, stamp)}
	}
	return c
}

// set draws a cron. Some say what they may not.
func (w *crons) set(name string, stamp core.ShardTime) core.Op {
	op := &core.CronSet{Name: name, IfVersion: -1, Config: core.CronConfig{
		Schedule: pick(w.rand, []string{"* * * * *", "@hourly"}), Zone: pick(w.rand, []string{"", "Europe/Berlin"}),
		Overlap: core.CronOverlap(w.rand.IntN(4)), CatchUp: core.CronCatchUp(w.rand.IntN(3)), Jitter: pick(w.rand, []core.Millis{0, 0, 4000}),
		Paused: w.rand.IntN(8) == 0,
	}}
	op.Template = core.TaskCreate{
		Queue: pick(w.rand, []string{"mail", "img"}), Payload: []byte{byte(w.rand.IntN(3))}, Priority: uint8(w.rand.IntN(3)), Lease: core.Millis(1000 + w.rand.IntN(4000)),
		Key: pick(w.rand, []string{"", "", "ann"}), Cost: pick(w.rand, []uint32{0, 0, 3}),
	}
	switch w.rand.IntN(30) {
	case 0:
		op.Config.Jitter = core.MaxCronJitter + 1
	case 1:
		op.Config.Schedule = strings.Repeat("*", core.MaxSchedule+1)
	case 2:
		op.Template.Delay = 1
	case 3:
		op.Template.Priority = 10
	case 4:
		op.Config.Start, op.Config.End = stamp, stamp-1
	case 5:
		op.Config.Start, op.Config.End = stamp, stamp+1000
	}
	return op
}

// fire draws what a leader proposes who sees the cron, and at times what one proposes who saw it before.
func (w *crons) fire(p core.Partition, stamp core.ShardTime, c core.Cron) core.Op {
	if w.rand.IntN(12) == 0 {
		w.next++
		return &core.CronFire{Name: c.Name, Trigger: core.NewTaskID(int64(stamp), p.Index, [9]byte{'c', 7: byte(w.next), 6: byte(w.next >> 8)})}
	}
	if old := w.fired[p]; len(old) > 0 && w.rand.IntN(5) == 0 {
		return recent(w.rand, old)
	}
	later := max(stamp, c.Anchor, c.Next) + core.ShardTime(1+w.rand.IntN(2000))
	if c.Next == core.Never {
		later = core.Never
	}
	op := &core.CronFire{Name: c.Name, Version: c.Version, Slot: c.Next, Run: c.Next, Next: later}
	switch {
	case c.Waiting != 0 && w.rand.IntN(2) == 0:
		op = &core.CronFire{Name: c.Name, Version: c.Version, Slot: c.Waiting, Waiting: true}
	case c.Next != 0 && w.rand.IntN(6) == 0:
		op.Run, op.Passed = 0, uint32(1+w.rand.IntN(3))
	case c.Next != 0 && w.rand.IntN(10) == 0:
		op.Run, op.Passed = c.Next+1, 1
	case w.rand.IntN(30) == 0:
		op.Next = pick(w.rand, []core.ShardTime{0, c.Next, core.Never})
	}
	if w.rand.IntN(20) == 0 {
		op.Version++
	}
	w.fired[p] = append(w.fired[p], op)
	return op
}

// cronEntry adds a commit of crons to an entry, at times.
func (r *run) cronEntry(e *core.Entry) error {
	if r.crons.rand.IntN(3) > 0 {
		return nil
	}
	p := pick(r.crons.rand, r.world.parts)
	there, _, err := queue.Crons(r.tx, p, "", 100, 1<<20)
	if err == nil {
		e.Commits = append(e.Commits, r.crons.commit(p, e.Stamp, there))
	}
	return err
}

// countCrons counts what crons did, and lets others act on their tasks.
func (r *run) countCrons(c *core.Commit, got *core.Result) {
	if len(c.Ops) == 0 {
		return
	}
	op, ok := c.Ops[0].(*core.CronFire)
	if !ok {
		return
	}
	if got.Refusal != nil {
		if _, stale := got.Refusal.Fact.(core.RevMismatch); stale {
			r.stats.CronStale++
		}
		return
	}
	_, outcome := core.CronRunOf(got.Ops[0].Version)
	r.stats.CronOutcomes[outcome]++
	if outcome == core.CronStarted {
		r.world.ids[c.Partition] = append(r.world.ids[c.Partition], got.Ops[0].Task)
	}
	if !op.Trigger.IsZero() {
		r.stats.CronHands++
	}
}

func (s *Stats) addCrons(o *Stats) {
	for i, n := range o.CronOutcomes {
		s.CronOutcomes[i] += n
	}
	s.CronHands += o.CronHands
	s.CronStale += o.CronStale
}

// missesCrons reports whether something that crons do never came.
func (s *Stats) missesCrons() bool {
	for o := core.CronStarted; o <= core.CronRefused; o++ {
		if s.CronOutcomes[o] == 0 {
			return true
		}
	}
	return s.CronStale == 0 || s.CronHands == 0
}

// auditCrons reads the crons of a partition back.
func (r *run) auditCrons(p core.Partition) error {
	list, _, err := queue.Crons(r.tx, p, "", 100, 1<<20)
	if err == nil {
		err = r.model.AuditCrons(p, list, func(name string) ([]core.CronRun, error) {
			runs, _, err := queue.CronRuns(r.tx, p, name, 0, 1000)
			return runs, err
		})
	}
	if err != nil {
		return fmt.Errorf("partition %s: %w", p, err)
	}
	return nil
}
