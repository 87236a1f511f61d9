// Package commit is the state machine of a shard: it applies the log's entries, commit by commit, to the machines of
// the services.
//
// A commit is judged inside Apply, on state that every replica shares: first its fence, then all conditions, then its
// ops in order, later ones seeing earlier ones. The first refusal undoes everything the commit did, and is a result,
// equal on all replicas. So the completion of a task and its effects on other services stand in one entry, or nowhere.
//
// A commit that is repeated because its answer was lost is answered, not done again: a settle by its token, another
// by its request id or by its session's sequence number, whose answers are kept in the store.
//
// Promised: equal entries on equal bytes give equal results and equal changes; a machine opened again from the bytes
// goes on exactly as the one that wrote them. A Go error from Apply means corruption: the shard must stop. Elsewhere:
// what an op means (machine/queue, machine/kv, machine/search), who orders entries (replog), when results may be shown (node).
package commit

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/machine/refs"
	"github.com/millrace/millrace/internal/machine/search"
)

// Options of a shard's machine. The limits are part of the rules of Apply: all replicas must use the same. A zero
// field means its default; only tests change one.
type Options struct {
	// Number of the shard: ops of the directory belong to shard 0 alone.
	Shard core.ShardID

	// Live request ids per partition; default 1,000,000, about 300 MB of answers.
	MaxRequests int64
	// Live sessions per partition; default 100,000.
	MaxSessions int64
	// Ops and conditions of a commit; default core.MaxCommitOps.
	MaxOps int

	// Options of every partition's queue.
	Queue queue.Options
	// Options of its refs.
	Refs refs.Options
	// Options of its collections.
	Search search.Options
}

// keepAnswers is how long a request id, or a session after its last frame, is kept at least. Clients stop repeating well
// before, counted from their first try: what they repeat later would be applied again.
const keepAnswers core.Millis = 10 * 60 * 1000

// sessionAnswers is how many answers of a session are kept: as many frames as a client may have unacknowledged.
const sessionAnswers = 64

// withDefaults returns o with the defaults in the place of zeros.
func (o Options) withDefaults() Options {
	if o.MaxRequests == 0 {
		o.MaxRequests = 1_000_000
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 100_000
	}
	if o.MaxOps == 0 {
		o.MaxOps = core.MaxCommitOps
	}
	return o
}

// Machine applies one shard's entries. It is not safe for concurrent use.
type Machine struct {
	// With the defaults in the place of zeros. They are rules of Apply: all replicas have the same.
	o Options
	// Time, term and format, as of the entry at hand or the last one.
	clock clock
	// The clock as it is stored: what differs is written at the end of the entry.
	saved clock
	// parts holds the partitions that have rows, or were named since Open; sorted holds the same by partition.
	parts map[core.Partition]*partition
	// Ascending by partition: ticks and lists go by it.
	sorted []*partition
	// Partitions that the entry at hand touched. Which those are is derived state, in what order they end is not.
	touched []*partition
	// When the earliest timed work of all partitions is due.
	due core.ShardTime
	// When something of a cron of any partition is due.
	cronDue core.ShardTime
	// The directory of members as stored; a change takes another slice of members.
	members core.Directory
	// Every token and revision is above it; see floor.go.
	floor uint64
	// The format of entries, as stored; of shard 0 alone.
	format uint16

	// Namespaces that left the directory, by the entry at hand.
	left []core.NamespaceInfo
	// Partitions that the entry at hand cleared.
	cleared []core.Partition

	// The transaction of the entry at hand; nil between two.
	tx core.Txn
	// The context of the commit at hand: in one place, since services get a pointer to it.
	ctx core.ApplyContext
	// Events of the entry at hand, or of the last one.
	events core.EventList
	// Index of the entry at hand.
	index uint64
	// How many queues a partition may have, as the entry at hand says.
	queues uint32
	// Room for the answers of the entry at hand, one per op.
	answers []core.OpResult
}

// New returns the machine of a shard, empty until Open.
func New(o Options) *Machine {
	return &Machine{o: o.withDefaults(), parts: map[core.Partition]*partition{}, due: core.Never, cronDue: core.Never}
}

// Open rebuilds derived state from v: it finds the shard's partitions by one seek each, and opens their machines.
func (m *Machine) Open(v core.View) error {
	m.parts, m.sorted, m.touched = map[core.Partition]*partition{}, nil, nil
	c, err := readClock(v)
	if err != nil {
		return err
	}
	m.clock, m.saved = c, c
	// The records of the shard come first: partitions are opened under the floor.
	if m.members, err = readMembers(v); err != nil {
		return err
	}
	if m.format, err = readFormat(v); err != nil {
		return err
	}
	if m.floor, err = readFloor(v); err != nil {
		return err
	}
	// The first key of each partition leads to the next one: what lies between is not read.
	var from []byte
	for {
		p, ok, err := firstPartition(v, from)
		if err != nil {
			return err
		}
		if !ok {
			m.refreshDue(m.sorted)
			return nil
		}
		if _, err := m.partition(v, p); err != nil {
			return err
		}
		if _, from = keys.PartitionRange(p); from == nil {
			m.refreshDue(m.sorted)
			return nil
		}
	}
}

// firstPartition returns the partition of the first key at or after from.
func firstPartition(v core.View, from []byte) (p core.Partition, found bool, err error) {
	err = core.ScanRows(v, from, nil, func(key, _ []byte) (bool, error) {
		if p, _, found = keys.PartitionOf(key); !found {
			return false, errs.Corruptf("key %x belongs to no partition", key)
		}
		return false, nil
	})
	return p, found, err
}

// Due returns when the earliest timed work of any partition is due, core.Never without any. It may be early.
func (m *Machine) Due() core.ShardTime { return m.due }

// CronDue returns the shard time at which a leader has something to propose for a cron: 0 is at any time, core.Never is never.
func (m *Machine) CronDue() core.ShardTime { return m.cronDue }

// DueCrons appends crons of which something is due at a stamp, of all partitions, until there are most. Those of a partition that takes
// no ops are left out.
func (m *Machine) DueCrons(dst []core.CronDue, stamp core.ShardTime, most int) []core.CronDue {
	if m.cronDue > stamp {
		return dst
	}
	for _, part := range m.sorted {
		if part.nextCron <= stamp && len(dst) < most {
			dst = part.queue.DueCrons(dst, stamp, most)
		}
	}
	return dst
}

// LastStamp returns the stamp of the last entry applied.
func (m *Machine) LastStamp() core.ShardTime { return m.clock.stamp }

// TermStart returns the stamp of the first entry of the current term.
func (m *Machine) TermStart() core.ShardTime { return m.clock.termStart }

// Shift returns what most nodes' wall clocks showed beyond shard time when a leader said so last.
func (m *Machine) Shift() core.Millis { return m.clock.shift }

// Term returns the current term and its leader's replica id, as its first entry stated them.
func (m *Machine) Term() (term, leader uint64) { return m.clock.term, m.clock.leader }

// Queue returns the queue of a partition, or nil when nothing was ever committed there.
func (m *Machine) Queue(p core.Partition) *queue.Machine {
	if part := m.parts[p]; part != nil {
		return part.queue
	}
	return nil
}

// Search returns the collections of a partition, or nil when nothing was ever committed there.
func (m *Machine) Search(p core.Partition) *search.Machine {
	if part := m.parts[p]; part != nil {
		return part.search
	}
	return nil
}

// Partitions lists the partitions that the machine knows, in order.
func (m *Machine) Partitions() []core.Partition {
	out := make([]core.Partition, len(m.sorted))
	for i, part := range m.sorted {
		out[i] = part.p
	}
	return out
}

// CountPartitions counts the partitions that the machine knows.
func (m *Machine) CountPartitions() int { return len(m.sorted) }

// touch notes that the entry at hand changes part.
func (m *Machine) touch(part *partition) {
	if !part.touched {
		part.touched = true
		m.touched = append(m.touched, part)
	}
}

// context sets what the ops of c in part are judged under, and returns it; c is nil for timed work.
func (m *Machine) context(part *partition, c *core.Commit) *core.ApplyContext {
	// It is replaced as a whole, so that nothing of the commit before is left in it.
	m.ctx = core.ApplyContext{
		Index: m.index, Stamp: m.clock.stamp, Format: m.clock.format, Queues: m.queues, TermStart: m.clock.termStart, Shift: m.clock.shift,
		Namespace: part.config, Commit: c, Rev: part.counts.rev + 1, QueueOf: part.queueOf,
	}
	if c != nil {
		m.ctx.Principal = c.Principal
	}
	return &m.ctx
}
