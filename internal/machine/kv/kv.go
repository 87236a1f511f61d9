// Package kv is the state machine of plain keyspaces: named sets of keys of which the newest value is kept.
//
// A keyspace comes into being with its first write and is numbered by an incarnation, so that its keys are one
// contiguous range and a later keyspace of the same name could never show an earlier one's keys. Each key's row holds
// its value and its revision: the partition's commit counter at its last write, which package commit hands in. The
// table of names and incarnations is kept in memory too, so a put without a condition is one blind write: Apply reads
// nothing.
//
// A keyspace may keep who writes its keys: the lease under which a key was written last, which is that of the task that
// the commit settles, or of its fence. It lies in the key's row, so that every write decides it: one from outside of a task, or
// in a keyspace that keeps no writers any more, leaves none behind. So what a row tells is of its last write, whatever the
// keyspace was set to since. Other keyspaces have the rows, and the work, that they have without this.
//
// Promised: a refused op changes nothing; equal ops on equal state give equal results. Elsewhere: the order of fence,
// conditions and ops, and undoing a commit (package commit, which calls Mark, Undo and Keep in step with the Txn's).
package kv

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// Limits that Apply judges: the most that an edge may be configured to let through, equal on all replicas.
const (
	// MaxKey is in bytes: a key is kept in index blocks and caches.
	MaxKey = 64 << 10
	// MaxValue is in bytes: what fits into a commit together with its key.
	MaxValue = core.MaxCommitBytes - 128<<10
	// MaxKeyspaces is per partition: their table is kept in memory.
	MaxKeyspaces = 1000
)

// Machine is the key-value service of one partition. One goroutine at a time calls its methods.
// Keys are only in the store; the table of keyspaces is in memory too.
type Machine struct {
	// p is the partition whose keys these are.
	p core.Partition
	// names maps each keyspace to its row. It is derived from the store and bounded by
	// MaxKeyspaces. A row is never changed in place, so that Undo can put the old one back.
	names map[string]space
	// last is the incarnation that was given out last.
	last uint32
	// used is the bytes on disk of all keyspaces of the namespace, as measured last.
	used uint64
	// tenant is what all keyspaces of the tenant take and may take, as told last.
	tenant core.TenantUse
	// bounded is the number of keyspaces that have a bound.
	bounded int
	// bytes is the length of keys and values that were put since Open, also by commits that were
	// taken back. It decides nothing, so replicas may differ in it.
	bytes uint64

	// The fields below hold what Undo needs: last, used and tenant when the mark was set.
	marked bool
	// lastMark, usedMark and wasUsed are last, used and tenant at the mark.
	lastMark uint32
	usedMark uint64
	wasUsed  core.TenantUse
	// changed are the names that changed since Mark, in order, with what they stood for.
	changed []changedSpace
}

// New returns the machine of p, empty until Open.
func New(p core.Partition) *Machine { return &Machine{p: p} }

// Open rebuilds the table of keyspaces from v, with one scan. An incarnation above the last one
// means that the store is damaged.
func (m *Machine) Open(v core.View) error {
	m.names, m.bounded, m.marked, m.changed = nil, 0, false, nil
	rows, err := spacesOf(v, m.p)
	if err != nil {
		return err
	}
	// Also where no keyspace is left: a number is given out once.
	c, err := readCounts(v, m.p)
	if err != nil {
		return err
	}
	m.last, m.used, m.tenant = c.last, c.used, c.tenant
	if len(rows) == 0 {
		return nil
	}
	m.names = make(map[string]space, len(rows))
	for _, k := range rows {
		if k.incarnation == 0 || k.incarnation > m.last {
			return errs.Corruptf("keyspace %q of %s: incarnation %d, last is %d", k.name, m.p, k.incarnation, m.last)
		}
		m.names[k.name] = k.space
		m.count(k.space, 1)
	}
	return nil
}

// Mark starts remembering changes of derived state, so that Undo can take them back. Marks do not nest.
func (m *Machine) Mark() {
	m.marked, m.lastMark, m.usedMark, m.wasUsed, m.changed = true, m.last, m.used, m.tenant, m.changed[:0]
}

// Undo takes back every change since Mark, and ends the mark.
func (m *Machine) Undo() {
	for _, c := range slices.Backward(m.changed) {
		m.count(m.names[c.name], -1)
		if c.there {
			m.count(c.old, 1)
			m.names[c.name] = c.old
		} else {
			delete(m.names, c.name)
		}
	}
	m.last, m.used, m.tenant = m.lastMark, m.usedMark, m.wasUsed
	m.Keep()
}

// Keep keeps every change since Mark, and ends the mark.
func (m *Machine) Keep() { m.marked, m.changed = false, m.changed[:0] }

// Put is how many bytes of keys and values were put since the machine was opened.
func (m *Machine) Put() uint64 { return m.bytes }

// Due returns core.Never: the service has no timed work.
func (m *Machine) Due() core.ShardTime { return core.Never }

// Tick has nothing to do.
func (m *Machine) Tick(core.Txn, *core.ApplyContext, uint32) (used uint32, more bool, err error) {
	return 0, false, nil
}

// End has nothing to write: each op wrote what it changed.
func (m *Machine) End(core.Txn, *core.ApplyContext) error { return nil }

// Events has nothing to tell.
func (m *Machine) Events(*core.EventList) {}
