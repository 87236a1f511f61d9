package commit

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/machine/refs"
	"github.com/millrace/millrace/internal/machine/search"
)

// service is the state machine of one service in one partition. It reads and writes through the Txn alone. What it derives from
// stored rows follows the Txn's own mark: Mark, Undo and Keep are called in step.
type service interface {
	// Open rebuilds all derived state from what is stored. What was derived before is dropped.
	Open(v core.View) error
	// Apply applies an op. A Fact is a refusal, and nothing was changed; an error is corruption.
	Apply(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error)
	// Mark remembers derived state as it is now. There is one mark at a time.
	Mark()
	// Undo brings back what Mark remembered; the rows are the Txn's to bring back.
	Undo()
	// Keep forgets the mark: what changed since stays.
	Keep()
	// Due returns when the earliest timed work is due; core.Never without any. It may be early.
	Due() core.ShardTime
	// Tick does at most limit steps of what is due. It returns how many it used, and whether something due is left.
	Tick(tx core.Txn, c *core.ApplyContext, limit uint32) (used uint32, more bool, err error)
	// End writes what an entry changed and has not written yet.
	End(tx core.Txn, c *core.ApplyContext) error
	// Events adds what happened since the last call.
	Events(to *core.EventList)
}

// serviceCount is how many services a partition has.
const serviceCount = int(core.ServiceSearch-core.ServiceQueue) + 1

// partition is one partition's machines and what the commit machine itself keeps of it.
type partition struct {
	// Which partition it is.
	p core.Partition
	// services are the four machines below, in the order of core.Service from ServiceQueue on. Their order is a rule of Apply: that
	// of ticks, and of what an entry writes at its end.
	services [serviceCount]service
	// The machines have types here, for what only one of them does.
	queue  *queue.Machine
	kv     *kv.Machine
	refs   *refs.Machine
	search *search.Machine
	// Reads the queue of a task here, as the entry at hand sees it.
	queueOf func(core.TaskID) (string, error)

	// The configuration of the namespace, as this partition was told.
	config core.NamespaceConfig
	// The state record as it is after the ops so far.
	counts counts
	// The state record as the store has it: it is written at the end of an entry, if it differs.
	stored counts
	// When the earliest request id or session is due; core.Never without any.
	due core.ShardTime

	// What is known of the removal of its namespace.
	removal removal

	// When the earliest of all timed work is due, after the last entry.
	nextDue core.ShardTime
	// When something of a cron is due, likewise.
	nextCron core.ShardTime
	// The entry at hand touched it: it is in Machine.touched.
	touched bool
	// How it was when begin marked it.
	mark markedState
}

// counts is the partition's state record.
type counts struct {
	// Commit counter: the last revision given to a commit that wrote keys. It only rises.
	rev uint64
	// Live request ids; at most Options.MaxRequests.
	requests int64
	// Live sessions; at most Options.MaxSessions.
	sessions int64
}

// markedState is what Undo brings back.
type markedState struct {
	// The part of partition that ops may change.
	config core.NamespaceConfig
	counts counts
	due    core.ShardTime
}

// partition returns the machines of p, opening them on first use. One that has nothing stored costs a few structs; one that was
// cleared has no machines.
func (m *Machine) partition(v core.View, p core.Partition) (*partition, error) {
	if part := m.parts[p]; part != nil {
		return part, nil
	}
	gone, err := readRemoval(v, p)
	if err != nil {
		return nil, err
	}
	if gone.state == partitionCleared { // it has no rows, and takes no ops: nothing to keep in memory
		return &partition{p: p, removal: gone}, nil
	}
	o := m.o.Queue
	o.Above = core.Token(m.floor)
	part := &partition{
		p: p, removal: gone, queue: queue.New(p, o), kv: kv.New(p), refs: refs.New(p, m.o.Refs), search: search.New(p, m.o.Search), nextDue: core.Never, nextCron: core.Never,
	}
	part.services = [...]service{part.queue, part.kv, part.refs, part.search}
	part.queueOf = func(id core.TaskID) (string, error) {
		t, _, err := queue.Task(m.tx, p, id)
		return t.Queue, err
	}
	if err := part.open(v); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", p, err)
	}
	part.counts.rev = max(part.counts.rev, m.floor)
	part.stored.rev = part.counts.rev // it is written with the next revision
	m.parts[p] = part
	at, _ := slices.BinarySearchFunc(m.sorted, p, func(a *partition, p core.Partition) int {
		return comparePartitions(a.p, p)
	})
	m.sorted = slices.Insert(m.sorted, at, part)
	return part, nil
}

// comparePartitions orders partitions as their keys are ordered in the store.
func comparePartitions(a, b core.Partition) int {
	var ka, kb [16]byte
	return slices.Compare(keys.AppendPartition(ka[:0], a), keys.AppendPartition(kb[:0], b))
}

// open reads what is stored of the partition, and opens its machines.
func (part *partition) open(v core.View) error {
	row, ok, err := v.Get(keys.PartitionState(part.p))
	if err != nil {
		return err
	}
	if ok {
		if part.counts, err = decodeCounts(row); err != nil {
			return err
		}
		part.stored = part.counts
	}
	if part.config, err = NamespaceConfig(v, part.p); err != nil {
		return err
	}
	if part.due, err = earliest(v, part.p); err != nil {
		return err
	}
	for _, s := range part.services {
		if err := s.Open(v); err != nil {
			return err
		}
	}
	return nil
}

// dueOf returns when the partition's earliest timed work is due. The queue knows it for the term and the configuration that it was
// told last.
func (m *Machine) dueOf(part *partition) core.ShardTime {
	// It must be told first, since the clock may have moved without an op of the queue.
	part.queue.Observe(m.context(part, nil))
	due := part.due
	for _, s := range part.services {
		due = min(due, s.Due())
	}
	return due
}

// movesDue reports whether the entry at hand changed, for all partitions, what it depends on when work is due.
func (m *Machine) movesDue() bool {
	return m.clock.termStart != m.saved.termStart || m.clock.term != m.saved.term || m.clock.shift != m.saved.shift || m.clock.format != m.saved.format
}

// refreshDue finds again when work is due in the partitions given.
func (m *Machine) refreshDue(parts []*partition) {
	for _, part := range parts {
		part.nextDue = m.dueOf(part)
		if part.nextCron = core.Never; part.removal.state == partitionOpen {
			part.nextCron = part.queue.CronDue()
		}
	}
	m.due, m.cronDue = core.Never, core.Never
	for _, part := range m.sorted {
		m.due, m.cronDue = min(m.due, part.nextDue), min(m.cronDue, part.nextCron)
	}
}

// begin marks the transaction and all derived state of the partition, in step.
func (part *partition) begin(tx core.Txn) {
	tx.Mark()
	for _, s := range part.services {
		s.Mark()
	}
	part.mark = markedState{part.config, part.counts, part.due}
}

// undo takes back what changed since begin.
func (part *partition) undo(tx core.Txn) {
	tx.Undo()
	for _, s := range part.services {
		s.Undo()
	}
	part.config, part.counts, part.due = part.mark.config, part.mark.counts, part.mark.due
}

// keep keeps what changed since begin.
func (part *partition) keep(tx core.Txn) {
	tx.Keep()
	for _, s := range part.services {
		s.Keep()
	}
}

// end writes what the entry changed and has not written yet.
func (part *partition) end(tx core.Txn, c *core.ApplyContext) error {
	part.touched = false
	for _, s := range part.services {
		if err := s.End(tx, c); err != nil {
			return err
		}
	}
	if part.counts != part.stored {
		tx.Set(keys.PartitionState(part.p), part.counts.append(nil))
		part.stored = part.counts
	}
	return nil
}

// append writes the record: three varints.
func (c counts) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, c.rev)
	dst = binary.AppendUvarint(dst, uint64(c.requests))
	return binary.AppendUvarint(dst, uint64(c.sessions))
}

// decodeCounts reads what append wrote, and refuses a row that goes on behind it.
func decodeCounts(row []byte) (counts, error) {
	var v [3]uint64
	rest := row
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(rest); n <= 0 {
			return counts{}, errs.Corruptf("partition state %x", row)
		}
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return counts{}, errs.Corruptf("partition state %x", row)
	}
	return counts{v[0], int64(v[1]), int64(v[2])}, nil
}

// NamespaceConfig reads the configuration of the namespace in one of its partitions; the zero one when it was never
// set.
func NamespaceConfig(v core.View, p core.Partition) (core.NamespaceConfig, error) {
	row, ok, err := v.Get(keys.NamespaceConfig(p))
	if err != nil || !ok {
		return core.NamespaceConfig{}, err
	}
	c, err := core.DecodeNamespaceConfig(row)
	if err != nil {
		return c, errs.Corruptf("configuration of %s: %v", p, err)
	}
	return c, nil
}

// clock is the shard's own record.
type clock struct {
	// Stamp of the last entry. It never falls.
	stamp core.ShardTime
	// Stamp of the first entry of the term.
	termStart core.ShardTime
	// The term, as its first commit stated it.
	term uint64
	// Replica id of its leader.
	leader uint64
	// The partition that used up the last tick's steps; the next tick begins after it.
	ticked core.Partition
	// Format of the last entry: what is due depends on its rules.
	format uint16
	// What most nodes' wall clocks show beyond shard time, in milliseconds; negative: they are behind it.
	shift core.Millis
}

// Shift reads what most nodes' wall clocks showed beyond shard time when a leader said so last.
func Shift(v core.View) (core.Millis, error) {
	c, err := readClock(v)
	return c.shift, err
}

// readClock reads the record. The zero one is that of a shard that has applied no entry.
func readClock(v core.View) (clock, error) {
	row, ok, err := v.Get(keys.ShardTime())
	if err != nil || !ok {
		return clock{}, err
	}
	const fixed = 4*8 + keys.PartitionLen
	c := clock{format: core.FormatFirst}
	switch len(row) { // programs before FormatQueues wrote no format, and the first ones after that no shift
	case fixed + 2 + 8:
		c.shift = core.Millis(binary.BigEndian.Uint64(row[fixed+2:]))
		fallthrough
	case fixed + 2:
		c.format = binary.BigEndian.Uint16(row[fixed:])
	case fixed:
	default:
		return clock{}, errs.Corruptf("shard time is %d bytes", len(row))
	}
	ticked, ok := keys.DecodePartition(row[4*8 : fixed])
	if !ok {
		return clock{}, errs.Corruptf("shard time names no partition")
	}
	c.stamp = core.ShardTime(binary.BigEndian.Uint64(row))
	c.termStart = core.ShardTime(binary.BigEndian.Uint64(row[8:]))
	c.term, c.leader = binary.BigEndian.Uint64(row[16:]), binary.BigEndian.Uint64(row[24:])
	c.ticked = ticked
	return c, nil
}

// append writes the record: four numbers of 8 bytes, the partition, and from the second format on the format and the
// shift.
func (c clock) append(dst []byte) []byte {
	for _, v := range [...]uint64{uint64(c.stamp), uint64(c.termStart), c.term, c.leader} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	dst = keys.AppendPartition(dst, c.ticked)
	if c.format > core.FormatFirst { // programs of the first format know no other length
		dst = binary.BigEndian.AppendUint16(dst, c.format)
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.shift))
	}
	return dst
}

// setShift notes what most nodes' wall clocks show beyond shard time. What was to be ready by them may be due at once.
func (m *Machine) setShift(op *core.ClockShift) (core.OpResult, core.Fact) {
	if m.clock.format < core.FormatQueues {
		return core.OpResult{}, core.Invalid{Field: "shift", Reason: "not_supported", Message: fmt.Sprintf("a shard follows the wall clocks from format %d on", core.FormatQueues)}
	}
	m.clock.shift = op.Shift
	return core.OpResult{}, nil
}
