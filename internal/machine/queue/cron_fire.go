package queue

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Headers of the tasks of crons: of which cron they are, and of which slot.
const (
	cronHeader = "millrace-cron"
	slotHeader = "millrace-slot"
)

// applyCron does an op about a cron.
func (m *Machine) applyCron(tx core.Txn, c *core.ApplyContext, op core.Op) (res core.OpResult, fact core.Fact, err error) {
	switch op := op.(type) {
	case *core.CronSet:
		return m.applyCronSet(tx, c, op)
	case *core.CronDelete:
		res, fact = m.applyCronDelete(tx, c, op)
	case *core.CronFire:
		return m.applyCronFire(tx, c, op)
	}
	return res, fact, nil
}

// applyCronFire does what a leader proposes for a cron, or a run by hand. What a leader proposes is refused unless the cron is as the
// leader saw it.
func (m *Machine) applyCronFire(tx core.Txn, c *core.ApplyContext, op *core.CronFire) (core.OpResult, core.Fact, error) {
	if fact := notShared(c, "has crons"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	one := m.cronNames[op.Name]
	if one == nil {
		return core.OpResult{}, core.NotFound{Kind: "cron", ID: op.Name}, nil
	}
	if !op.Trigger.IsZero() {
		return m.triggerCron(tx, c, one, op.Trigger)
	}
	stale := core.RevMismatch{Rev: one.version, Key: []byte(op.Name)}
	if op.Waiting {
		return m.beginWaiting(tx, c, one, op, stale)
	}
	if op.Version != one.version || op.Slot != one.next || op.Slot != 0 && one.config.Paused {
		return core.OpResult{}, stale, nil
	}
	wall := now(c, true)
	switch {
	case op.Next <= max(op.Slot, op.Run), op.Slot == 0 && (op.Run != 0 || op.Passed != 0 || op.Next <= one.anchor):
		return core.OpResult{}, core.Invalid{Field: "next", Message: "must be after the slots before it"}, nil
	case op.Slot > wall || op.Run > wall || op.Run != 0 && op.Run < op.Slot || op.Slot == core.Never:
		return core.OpResult{}, core.Invalid{Field: "slot", Message: "must be due"}, nil
	}
	row := one.cronRow
	row.next = op.Next
	if op.Slot == 0 {
		m.changeCron(tx, one, row)
		return core.OpResult{}, nil, nil
	}
	run := core.CronRun{Slot: op.Run, Passed: op.Passed}
	if op.Run == 0 {
		run.Slot, run.Outcome = op.Slot, core.CronMissed
		return m.endRun(tx, c, one, row, run, core.OpResult{}), nil, nil
	}
	run.Task = m.cronTask(one, op.Run)
	return m.runCron(tx, c, one, row, run)
}

// triggerCron runs a cron by hand. Its next slot stays. A repetition is told by the id of the task.
func (m *Machine) triggerCron(tx core.Txn, c *core.ApplyContext, one *cron, id core.TaskID) (core.OpResult, core.Fact, error) {
	if w := one.waiting; w.run != 0 && w.task == id {
		return core.OpResult{Task: id, Version: core.CronVersion(w.run, core.CronWaits), Replayed: true}, nil, nil
	}
	m.key = keys.AppendTaskState(m.key[:0], m.p, id)
	if _, known, err := tx.Get(m.key); err != nil {
		return core.OpResult{}, nil, err
	} else if known {
		res := core.OpResult{Task: id, Replayed: true}
		rec, ok, err := m.loadRecord(tx, id)
		if ok {
			res.State = rec.state
		}
		return res, nil, err
	}
	return m.runCron(tx, c, one, one.cronRow, core.CronRun{Slot: now(c, true), Trigger: true, Task: id})
}

// runCron does what overlap says at a run of a cron: it makes a task now, when the one before has ended, or never. run has its slot and
// the id of its task. row is what the cron becomes, apart from that.
func (m *Machine) runCron(tx core.Txn, c *core.ApplyContext, one *cron, row cronRow, run core.CronRun) (core.OpResult, core.Fact, error) {
	lives, err := m.taskLives(tx, row.last)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	busy := lives || row.waiting.run != 0
	switch row.config.Overlap {
	case core.CronAllow:
		busy = false
	case core.CronCancelPrevious:
		if row.waiting.run != 0 {
			if err := m.replaceRun(tx, one.name, row.waiting.run); err != nil {
				return core.OpResult{}, nil, err
			}
			row.waiting = cronWait{}
		}
		if lives {
			if lives, err = m.cancelBefore(tx, c, one, row.last); err != nil {
				return core.OpResult{}, nil, err
			}
		}
		busy = lives
	}
	if !busy {
		return m.beginRun(tx, c, one, row, run)
	}
	if row.config.Overlap == core.CronSkip || row.waiting.run != 0 {
		run.Outcome, run.Task = core.CronOverlaps, core.TaskID{}
		return m.endRun(tx, c, one, row, run, core.OpResult{}), nil, nil
	}
	run.Outcome = core.CronWaits
	row.waiting = cronWait{run: row.runs + 1, slot: run.Slot, task: run.Task, trigger: run.Trigger, passed: run.Passed}
	return m.endRun(tx, c, one, row, run, core.OpResult{Task: run.Task}), nil, nil
}

// cancelBefore cancels the task of the run before, and reports whether it has not ended: its holder was asked to stop.
func (m *Machine) cancelBefore(tx core.Txn, c *core.ApplyContext, one *cron, id core.TaskID) (lives bool, err error) {
	by := *c
	by.Principal = cronPrincipal(one.name)
	_, fact, err := m.applyCancel(tx, &by, &core.TaskCancel{Task: id, Reason: "the next run of cron " + one.name + " is due"})
	if fact != nil && err == nil {
		return false, errs.Corruptf("task %s has not ended, and its cancel is refused: %v", id, fact)
	}
	if err != nil {
		return false, err
	}
	return m.taskLives(tx, id)
}

// beginWaiting begins the run that waited. It is refused while the task before has not ended.
func (m *Machine) beginWaiting(tx core.Txn, c *core.ApplyContext, one *cron, op *core.CronFire, stale core.Fact) (core.OpResult, core.Fact, error) {
	w := one.waiting
	if w.run == 0 || op.Version != one.version || op.Slot != w.slot {
		return core.OpResult{}, stale, nil
	}
	lives, err := m.taskLives(tx, one.last)
	if lives || err != nil {
		return core.OpResult{}, stale, err
	}
	row := one.cronRow
	row.waiting = cronWait{}
	return m.beginRun(tx, c, one, row, core.CronRun{Number: w.run, Slot: w.slot, Trigger: w.trigger, Task: w.task, Passed: w.passed})
}

// cronPrincipal is who creates the tasks of a cron.
func cronPrincipal(name string) string { return "cron/" + name }

// beginRun makes the task of a run. A refusal is not one of the op: it is what the run came to.
func (m *Machine) beginRun(tx core.Txn, c *core.ApplyContext, one *cron, row cronRow, run core.CronRun) (core.OpResult, core.Fact, error) {
	m.key = keys.AppendCronTemplate(m.key[:0], m.p, one.name)
	value, err := must(tx, m.key, "template of cron %s", one.name)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	create, err := core.DecodeTemplate(m.mem.own(value))
	if err != nil {
		return core.OpResult{}, nil, errs.Corruptf("template of cron %s: %v", one.name, err)
	}
	create.ID = run.Task
	create.Headers = append(slices.Clone(create.Headers),
		core.Header{Name: cronHeader, Value: one.name}, core.Header{Name: slotHeader, Value: run.Slot.Time().Format(time.RFC3339)})
	if !run.Trigger {
		create.Delay = cronJitter(one.name, run.Slot, row.config.Jitter)
	}
	by := *c
	by.Principal = cronPrincipal(one.name)
	m.byCron = true
	res, fact, err := m.applyCreate(tx, &by, &create, false)
	m.byCron = false
	if err != nil {
		return core.OpResult{}, nil, err
	}
	if fact != nil {
		run.Outcome, run.Task = core.CronRefused, core.TaskID{}
		run.Code, run.Message = fact.Code().String(), core.Cut(fact.Error(), core.MaxReason)
		return m.endRun(tx, c, one, row, run, core.OpResult{}), nil, nil
	}
	run.Outcome, row.last = core.CronStarted, run.Task
	return m.endRun(tx, c, one, row, run, core.OpResult{Task: run.Task, State: res.State}), nil, nil
}

// endRun stores a run, and the cron with the row that follows from it. A run that waited has its number already.
func (m *Machine) endRun(tx core.Txn, c *core.ApplyContext, one *cron, row cronRow, run core.CronRun, res core.OpResult) core.OpResult {
	run.At = c.Stamp
	if run.Number == 0 {
		row.runs++
		if run.Number = row.runs; run.Number > core.MaxCronRuns {
			m.key = keys.AppendCronRun(m.key[:0], m.p, one.name, run.Number-core.MaxCronRuns)
			tx.Delete(m.mem.own(m.key))
		}
	}
	if run.Number+core.MaxCronRuns > row.runs { // else it waited for so long that it is not remembered
		m.saveRun(tx, one.name, &run)
	}
	m.changeCron(tx, one, row)
	res.Version = core.CronVersion(run.Number, run.Outcome)
	return res
}

// saveRun stores a run.
func (m *Machine) saveRun(tx core.Txn, name string, run *core.CronRun) {
	m.key = keys.AppendCronRun(m.key[:0], m.p, name, run.Number)
	m.value = appendCronRun(m.value[:0], run)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// replaceRun notes that a run which waited will not begin. A run so old that it is not remembered has nothing to be noted.
func (m *Machine) replaceRun(tx core.Txn, name string, number uint64) error {
	m.key = keys.AppendCronRun(m.key[:0], m.p, name, number)
	value, ok, err := tx.Get(m.key)
	if err != nil || !ok {
		return err
	}
	run, err := decodeCronRun(value)
	if err != nil {
		return err
	}
	run.Number, run.Outcome, run.Task = number, core.CronReplaced, core.TaskID{}
	m.saveRun(tx, name, &run)
	return nil
}

// cronTask is the id of the task of a slot: another one for each slot of each cron that ever had the name.
func (m *Machine) cronTask(one *cron, slot core.ShardTime) core.TaskID {
	of := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte(one.name), one.born), uint64(slot))
	var random [9]byte
	binary.BigEndian.PutUint64(random[:], hash(of))
	random[8] = byte(hash(append(of, 1)))
	return core.NewTaskID(int64(slot), m.p.Index, random)
}

// cronJitter is for how long the task of a slot waits: the same on every replica, and spread over the crons.
func cronJitter(name string, slot core.ShardTime, jitter core.Millis) core.Millis {
	if jitter <= 0 {
		return 0
	}
	return core.Millis(hash([]byte(name+"/"+strconv.FormatInt(int64(slot), 10))) % uint64(jitter))
}

// appendCron writes a cron without its template.
func appendCron(b []byte, r *cronRow) []byte {
	c := &r.config
	b = append(b, formCron, boolByte(c.Paused), byte(c.Overlap), byte(c.CatchUp))
	b = putInt(putString(putString(b, c.Schedule), c.Zone), int64(c.Jitter))
	b = putInt(putInt(b, int64(c.Start)), int64(c.End))
	b = putUint(putUint(b, r.version), r.born)
	b = putString(putInt(putInt(b, int64(r.created)), int64(r.updated)), r.by)
	b = putInt(putInt(b, int64(r.anchor)), int64(r.next))
	b = putUint(append(b, r.last[:]...), r.runs)
	w := &r.waiting
	if b = putUint(b, w.run); w.run != 0 {
		b = putUint(append(append(putInt(b, int64(w.slot)), w.task[:]...), boolByte(w.trigger)), uint64(w.passed))
	}
	return b
}

// decodeCron reads what appendCron wrote.
func decodeCron(b []byte) (row cronRow, err error) {
	r := read(b, formCron)
	c := &row.config
	c.Paused, c.Overlap, c.CatchUp = r.byte() != 0, core.CronOverlap(r.byte()), core.CronCatchUp(r.byte())
	c.Schedule, c.Zone, c.Jitter = r.string(), r.string(), core.Millis(r.int())
	c.Start, c.End = core.ShardTime(r.int()), core.ShardTime(r.int())
	row.version, row.born = r.uint(), r.uint()
	row.created, row.updated, row.by = core.ShardTime(r.int()), core.ShardTime(r.int()), r.string()
	row.anchor, row.next = core.ShardTime(r.int()), core.ShardTime(r.int())
	row.last, row.runs = r.id(), r.uint()
	if row.waiting.run = r.uint(); row.waiting.run != 0 {
		row.waiting.slot, row.waiting.task, row.waiting.trigger, row.waiting.passed = core.ShardTime(r.int()), r.id(), r.byte() != 0, r.u32()
	}
	return row, r.done("cron")
}

// appendCronRun writes a run. Its number is in its key.
func appendCronRun(b []byte, run *core.CronRun) []byte {
	b = append(b, formCronRun, byte(run.Outcome), boolByte(run.Trigger))
	b = putInt(putInt(b, int64(run.Slot)), int64(run.At))
	b = putUint(append(b, run.Task[:]...), uint64(run.Passed))
	return putString(putString(b, run.Code), run.Message)
}

// decodeCronRun reads what appendCronRun wrote.
func decodeCronRun(b []byte) (run core.CronRun, err error) {
	r := read(b, formCronRun)
	run.Outcome, run.Trigger = core.CronOutcome(r.byte()), r.byte() != 0
	run.Slot, run.At = core.ShardTime(r.int()), core.ShardTime(r.int())
	run.Task, run.Passed = r.id(), r.u32()
	run.Code, run.Message = r.string(), r.string()
	return run, r.done("run of a cron")
}

// Crons reads the crons of a partition by name, those after a name, at most n of them or about bytes of templates. more says that
// there are others behind them.
func Crons(v core.View, p core.Partition, after string, n, bytes int) (out []core.Cron, more bool, err error) {
	from, to := keys.CronRange(p)
	if after != "" {
		from = keys.AppendCron(nil, p, after+"\x00")
	}
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		if more = len(out) == n || bytes <= 0; more {
			return false, nil
		}
		row, err := decodeCron(value)
		if err == nil {
			out = append(out, showCron(keys.DecodeCron(key), &row))
		}
		return true, err
	})
	for i := 0; i < len(out) && err == nil; i++ {
		if bytes <= 0 {
			return out[:i], true, nil
		}
		var size int
		out[i].Template, size, err = readTemplate(v, p, out[i].Name)
		bytes -= size
	}
	return out, more, err
}

// CronOf reads a cron; ok is false when there is none.
func CronOf(v core.View, p core.Partition, name string) (c core.Cron, ok bool, err error) {
	value, ok, err := v.Get(keys.AppendCron(nil, p, name))
	if err != nil || !ok {
		return c, false, err
	}
	row, err := decodeCron(value)
	if err != nil {
		return c, false, err
	}
	c = showCron(name, &row)
	c.Template, _, err = readTemplate(v, p, name)
	return c, true, err
}

// readTemplate reads the template of a cron, and how many bytes it takes.
func readTemplate(v core.View, p core.Partition, name string) (op core.TaskCreate, size int, err error) {
	value, err := must(v, keys.AppendCronTemplate(nil, p, name), "template of cron %s", name)
	if err != nil {
		return op, 0, err
	}
	op, err = core.DecodeTemplate(slices.Clone(value))
	if err != nil {
		err = errs.Corruptf("template of cron %s: %v", name, err)
	}
	return op, len(value), err
}

// showCron makes of a row what readers get.
func showCron(name string, r *cronRow) core.Cron {
	return core.Cron{
		CronConfig: r.config, Name: name, Version: r.version, Created: r.created, Updated: r.updated, By: r.by, Anchor: r.anchor, Next: r.next,
		Last: r.last, Waiting: r.waiting.slot, Runs: r.runs,
	}
}

// CronRuns reads the last n runs of a cron before a number, the last first; 0: there is no bound. ok is false when there is no cron.
func CronRuns(v core.View, p core.Partition, name string, before uint64, n int) (out []core.CronRun, ok bool, err error) {
	if _, ok, err = v.Get(keys.AppendCron(nil, p, name)); err != nil || !ok {
		return nil, false, err
	}
	from, to := keys.CronRunRange(p, name)
	if before > 0 {
		to = keys.AppendCronRun(nil, p, name, before)
	}
	var bad error
	err = v.ScanBack(from, to, func(key, value []byte) bool {
		if len(out) == n {
			return false
		}
		var run core.CronRun
		if run, bad = decodeCronRun(value); bad != nil {
			return false
		}
		row, ok := keys.DecodeQueue(key)
		if !ok {
			bad = errs.Corruptf("run of cron %s is stored under %x", name, key)
			return false
		}
		run.Number = row.Run
		out = append(out, run)
		return true
	})
	if err == nil {
		err = bad
	}
	for i := range out {
		if run := &out[i]; !run.Task.IsZero() && err == nil {
			rec, there, bad := readRecord(v, p, run.Task)
			if err = bad; there {
				run.State, run.Began, run.Ended = rec.state, rec.startedAt, rec.endedAt
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("runs of cron %s: %w", name, err)
	}
	return out, true, err
}
