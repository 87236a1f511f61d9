package queue

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// A cron makes tasks by a schedule, which no machine reads: the leader of the shard knows the slots, and proposes each with the one
// after it (core.CronFire). What is stored of a cron is which slot is next, so the first proposal of a slot that is applied is the only
// one. Due crons are found by a heap.

// cronRow is what is stored of a cron, apart from its template.
type cronRow struct {
	config  core.CronConfig
	version uint64
	// born is the index of the entry that made the cron: the ids of its tasks depend on it.
	born uint64
	// Stamps of the entries that made and changed it, and who changed it last.
	created, updated core.ShardTime
	by               string
	// anchor is when its schedule was set, and next its next slot: wall times, the latter as in core.Cron.
	anchor, next core.ShardTime
	// last is the task that it made last; zero: none.
	last core.TaskID
	// The run that begins when that task has ended.
	waiting cronWait
	// runs is the number of the last run.
	runs uint64
}

// cronWait is a run that waits.
type cronWait struct {
	// The number of the run; 0: none waits.
	run uint64
	//
	slot core.ShardTime
	// The id that its task will have.
	task core.TaskID
	//
	trigger bool
	// How many slots were passed over before its slot.
	passed uint32
}

// cron is a cron in memory.
type cron struct {
	// Its name.
	name string
	// As it is stored.
	cronRow
	// free says that a run waits and that the task before it has ended: it may begin. It is exact at the end of an entry.
	free bool
	// at is the place in Machine.crons; -1: nothing of it will be due.
	at int32
}

// wants is the wall time at which a leader has something to propose for a cron; minTime: at once, core.Never: nothing.
func (c *cron) wants() core.ShardTime {
	switch {
	case c.free || c.next == 0:
		return minTime
	case c.config.Paused:
		return core.Never
	}
	return c.next
}

// stored is the version of a cron; 0: there is none.
func (c *cron) stored() uint64 {
	if c == nil {
		return 0
	}
	return c.version
}

// place is for the heap.
func (c *cron) place() *int32 { return &c.at }

// before orders by when something is due; names break ties.
func (c *cron) before(o *cron) bool {
	a, b := c.wants(), o.wants()
	return a < b || a == b && c.name < o.name
}

// cronChange is a cron as it was before a change, for Undo.
type cronChange struct {
	cron *cron
	row  cronRow
	free bool
	// The change made the cron, or removed it.
	made, removed bool
}

// putCron gives a cron another row.
func (m *Machine) putCron(c *cron, row cronRow, free bool) {
	if c.waiting.run != 0 {
		delete(m.cronWaits, c.last)
	}
	c.cronRow, c.free = row, free && row.waiting.run != 0
	if row.waiting.run != 0 {
		m.cronWaits[row.last] = c
	}
	m.crons.keep(c, c.wants() < core.Never)
}

// addCron adds a cron that is not there.
func (m *Machine) addCron(c *cron, free bool) {
	m.cronNames[c.name] = c
	row := c.cronRow
	c.cronRow = cronRow{}
	m.putCron(c, row, free)
}

// dropCron takes a cron out.
func (m *Machine) dropCron(c *cron) {
	if c.waiting.run != 0 {
		delete(m.cronWaits, c.last)
	}
	m.crons.keep(c, false)
	delete(m.cronNames, c.name)
}

// changeCron gives a cron another row, in memory and stored, so that Undo can take it back.
func (m *Machine) changeCron(tx core.Txn, c *cron, row cronRow) {
	m.log.cron(cronChange{cron: c, row: c.cronRow, free: c.free})
	m.putCron(c, row, c.free)
	if row.waiting.run != 0 {
		m.noteCron(row.last)
	}
	m.saveCron(tx, c)
}

// saveCron stores a cron.
func (m *Machine) saveCron(tx core.Txn, c *cron) {
	m.key = keys.AppendCron(m.key[:0], m.p, c.name)
	m.value = appendCron(m.value[:0], &c.cronRow)
	tx.Set(m.mem.own(m.key), m.mem.own(m.value))
}

// undoCron takes a change back.
func (m *Machine) undoCron(ch cronChange) {
	switch {
	case ch.made:
		m.dropCron(ch.cron)
	case ch.removed:
		ch.cron.cronRow = ch.row
		m.addCron(ch.cron, ch.free)
	default:
		m.putCron(ch.cron, ch.row, ch.free)
	}
}

// noteCron notes that a task came, ended or was made ready again: where a run of a cron waits for it, End looks whether that is over.
func (m *Machine) noteCron(id core.TaskID) {
	if len(m.cronWaits) > 0 && m.cronWaits[id] != nil {
		m.cronCheck = append(m.cronCheck, id)
	}
}

// settleCrons looks, at the end of an entry, for which tasks runs need not wait any more.
func (m *Machine) settleCrons(v core.View) error {
	if m.cronCheckAll {
		m.cronCheck = append(m.cronCheck[:0], slices.SortedFunc(maps.Keys(m.cronWaits), compareIDs)...)
	}
	for _, id := range m.cronCheck {
		c := m.cronWaits[id]
		if c == nil {
			continue
		}
		lives, err := m.taskLives(v, id)
		if err != nil {
			return err
		}
		m.putCron(c, c.cronRow, !lives)
	}
	m.cronCheck, m.cronCheckAll = m.cronCheck[:0], false
	return nil
}

func compareIDs(a, b core.TaskID) int { return bytes.Compare(a[:], b[:]) }

// taskLives reports whether a task is there and has not ended.
func (m *Machine) taskLives(v core.View, id core.TaskID) (bool, error) {
	if id.IsZero() {
		return false, nil
	}
	rec, ok, err := m.loadRecord(v, id)
	return ok && !rec.state.Terminal(), err
}

// openCrons reads all crons. Whether their runs may begin is looked up when the tasks are known.
func (m *Machine) openCrons(v core.View) error {
	from, to := keys.CronRange(m.p)
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		c := &cron{name: keys.DecodeCron(key), at: -1}
		var err error
		if c.cronRow, err = decodeCron(value); err != nil {
			return false, fmt.Errorf("open cron %q: %w", c.name, err)
		}
		m.addCron(c, false)
		m.cronCheckAll = true
		return true, nil
	})
}

// CronDue returns when, in shard time, a leader has something to propose for a cron of the partition: 0 is at any time, core.Never is
// never.
func (m *Machine) CronDue() core.ShardTime {
	c, ok := m.crons.top()
	switch {
	case !ok:
		return core.Never
	case c.wants() == minTime:
		return 0
	}
	return c.wants().Add(-m.shift)
}

// DueCrons appends crons of which something is due at a stamp, until there are most. It does not look at others.
func (m *Machine) DueCrons(dst []core.CronDue, stamp core.ShardTime, most int) []core.CronDue {
	now := stamp.Add(m.shift)
	var look func(i int)
	look = func(i int) {
		if len(dst) >= most || i >= len(m.crons.items) {
			return
		}
		c := m.crons.items[i]
		if c.wants() > now {
			return // nor is what stands below it
		}
		due := core.CronDue{Partition: m.p, Name: c.name, Config: c.config, Version: c.version, Anchor: c.anchor, Next: c.next}
		if c.free {
			due.Waiting = c.waiting.slot
		}
		dst = append(dst, due)
		look(2*i + 1)
		look(2*i + 2)
	}
	look(0)
	return dst
}

// checkCron refuses what no cron may say. The edge refuses it with better words, and reads the schedule; this holds for entries.
func checkCron(c *core.ApplyContext, op *core.CronSet) core.Fact {
	cfg := &op.Config
	switch {
	case op.Name == "" || len(op.Name) > maxName || bytes.IndexByte([]byte(op.Name), 0) >= 0:
		return core.Invalid{Field: "name", Message: fmt.Sprintf("must have 1 to %d characters", maxName)}
	case op.Change > core.CronChangeResume:
		return core.Invalid{Field: "change", Message: "must be known"}
	case op.Change != core.CronChangeAll:
		return nil
	case cfg.Schedule == "":
		return core.Invalid{Field: "schedule", Message: "is required"}
	case len(cfg.Schedule) > core.MaxSchedule:
		return core.TooLarge{Field: "schedule", Limit: "schedule_bytes", Max: core.MaxSchedule}
	case len(cfg.Zone) > core.MaxZone:
		return core.TooLarge{Field: "zone", Limit: "zone_bytes", Max: core.MaxZone}
	case cfg.Jitter < 0:
		return core.Invalid{Field: "jitter", Message: "must not be negative"}
	case cfg.Jitter > core.MaxCronJitter:
		return core.TooLarge{Field: "jitter", Limit: "cron_jitter", Max: core.MaxCronJitter}
	case cfg.Start < 0:
		return core.Invalid{Field: "start", Message: "must not be before 1970"}
	case cfg.End != 0 && cfg.End < max(cfg.Start, 1):
		return core.Invalid{Field: "end", Message: "must not be before start"}
	case cfg.Overlap > core.CronCancelPrevious:
		return core.Invalid{Field: "overlap", Message: "must be skip, allow, queue_one or cancel_previous"}
	case cfg.CatchUp > core.CronCatchUpAll:
		return core.Invalid{Field: "catch_up", Message: "must be one, none or all"}
	}
	return checkTemplate(c, "template", &op.Template)
}

// checkTemplate refuses what the tasks of a cron, or the follow-ups of a batch, may not say. in is the field that has the template.
func checkTemplate(c *core.ApplyContext, in string, op *core.TaskCreate) core.Fact {
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"id", !op.ID.IsZero()},
		{"run_at", op.RunAt != 0},
		{"delay", op.Delay != 0},
		{"unique", op.Unique != core.Unique{}},
		{"expires_at", op.ExpiresAt != 0},
		{"after", len(op.After) > 0 || op.OnDepFailure != core.DepHold},
		{"batch", !op.Batch.IsZero()},
	} {
		if f.set {
			return core.Invalid{Field: in + "." + f.name, Message: "must not be set in a template"}
		}
	}
	one := *op
	one.ID = core.TaskID{1}
	switch fact := checkCreate(c, &one).(type) {
	case core.Invalid:
		fact.Field = in + "." + fact.Field
		return fact
	case core.TooLarge:
		fact.Field = in + "." + fact.Field
		return fact
	case nil:
		return nil
	default:
		return fact
	}
}

// applyCronSet makes or changes a cron.
func (m *Machine) applyCronSet(tx core.Txn, c *core.ApplyContext, op *core.CronSet) (core.OpResult, core.Fact, error) {
	if fact := notShared(c, "has crons"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	if fact := checkCron(c, op); fact != nil {
		return core.OpResult{}, fact, nil
	}
	was := m.cronNames[op.Name]
	version := was.stored()
	switch {
	case op.IfVersion >= 0 && uint64(op.IfVersion) != version:
		return core.OpResult{}, core.RevMismatch{Rev: version, Missing: was == nil, Key: []byte(op.Name)}, nil
	case was == nil && op.Change != core.CronChangeAll:
		return core.OpResult{}, core.NotFound{Kind: "cron", ID: op.Name}, nil
	case was == nil && len(m.cronNames) >= m.o.Crons:
		return core.OpResult{}, core.Exhausted{Limit: "crons", Max: int64(m.o.Crons)}, nil
	case op.Change != core.CronChangeAll:
		paused := op.Change == core.CronChangePause
		if was.config.Paused == paused {
			return core.OpResult{Version: version, Existed: true, Replayed: true}, nil, nil
		}
		row := was.cronRow
		row.config.Paused = paused
		m.setCron(tx, c, was, row)
		return core.OpResult{Version: row.version + 1, Existed: true}, nil, nil
	case m.pinnedElsewhere(m.lineOf(op.Template.Queue)):
		return core.OpResult{}, core.QueuePinned{Queue: op.Template.Queue}, nil
	}
	return m.replaceCron(tx, c, op, was)
}

// replaceCron gives a cron the configuration and template of an op. was is nil where there is none.
func (m *Machine) replaceCron(tx core.Txn, c *core.ApplyContext, op *core.CronSet, was *cron) (core.OpResult, core.Fact, error) {
	template := core.AppendTemplate(nil, &op.Template)
	m.key = keys.AppendCronTemplate(m.key[:0], m.p, op.Name)
	if was == nil {
		tx.Set(m.mem.own(m.key), template)
		one := &cron{name: op.Name, at: -1}
		one.cronRow = cronRow{config: op.Config, version: 1, born: c.Index, created: c.Stamp, updated: c.Stamp, by: c.Principal, anchor: now(c, true)}
		m.log.cron(cronChange{cron: one, made: true})
		m.addCron(one, false)
		m.saveCron(tx, one)
		return core.OpResult{Version: 1}, nil, nil
	}
	stored, err := must(tx, m.key, "template of cron %s", op.Name)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	same := bytes.Equal(stored, template)
	if same && was.config == op.Config {
		return core.OpResult{Version: was.version, Existed: true, Replayed: true}, nil, nil
	}
	if !same {
		tx.Set(m.mem.own(m.key), template)
	}
	row := was.cronRow
	row.config = op.Config
	if o := &was.config; o.Schedule != op.Config.Schedule || o.Zone != op.Config.Zone || o.Start != op.Config.Start || o.End != op.Config.End {
		row.anchor, row.next = now(c, true), 0
	}
	m.setCron(tx, c, was, row)
	return core.OpResult{Version: row.version + 1, Existed: true}, nil, nil
}

// setCron is changeCron by an operator: it raises the version.
func (m *Machine) setCron(tx core.Txn, c *core.ApplyContext, one *cron, row cronRow) {
	row.version++
	row.updated, row.by = c.Stamp, c.Principal
	m.changeCron(tx, one, row)
}

// applyCronDelete removes a cron with its runs.
func (m *Machine) applyCronDelete(tx core.Txn, c *core.ApplyContext, op *core.CronDelete) (core.OpResult, core.Fact) {
	if fact := notShared(c, "has crons"); fact != nil {
		return core.OpResult{}, fact
	}
	was := m.cronNames[op.Name]
	version := was.stored()
	switch {
	case op.IfVersion >= 0 && uint64(op.IfVersion) != version:
		return core.OpResult{}, core.RevMismatch{Rev: version, Missing: was == nil, Key: []byte(op.Name)}
	case was == nil:
		return core.OpResult{}, nil
	}
	m.log.cron(cronChange{cron: was, row: was.cronRow, free: was.free, removed: true})
	m.dropCron(was)
	m.key = keys.AppendCron(m.key[:0], m.p, op.Name)
	tx.Delete(m.mem.own(m.key))
	m.key = keys.AppendCronTemplate(m.key[:0], m.p, op.Name)
	tx.Delete(m.mem.own(m.key))
	if was.runs > 0 {
		tx.DeleteRange(keys.CronRunRange(m.p, op.Name))
	}
	return core.OpResult{Existed: true, Version: version}, nil
}
