package machinetest

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/millrace/millrace/internal/core"
)

// Machine is a shard's state machine as the suites need it.
type Machine interface {
	Open(v core.View) error
	Apply(tx core.Txn, index uint64, e *core.Entry) (core.Applied, error)
	Due() core.ShardTime
}

// Pair is two replicas of a shard. A applies entries as they were made; B applies what their encoding decodes
// to, and may be opened again from its bytes at any time. Apply fails as soon as the two differ in a result,
// an event, a byte, or the order of their changes, which the apply hash covers.
type Pair struct {
	A, B Machine
	TxA  *Txn
	TxB  *Txn
	// Index is that of the last entry, and Stamp the one that the next entry gets.
	Index uint64
	Stamp core.ShardTime

	// make makes a machine, for B at first and for both when they are opened again.
	make func() Machine
	// guard is A's transaction for entries that may touch their own partitions only. logA and logB
	// note the changes of an entry.
	guard *Guard
	logA  *changeLog
	logB  *changeLog
}

// NewPair returns two empty replicas of machines that fn makes.
func NewPair(fn func() Machine) (*Pair, error) {
	p := &Pair{make: fn, A: fn(), TxA: NewTxn(), TxB: NewTxn()}
	p.logA, p.logB = &changeLog{Txn: p.TxA}, &changeLog{Txn: p.TxB}
	p.guard = NewGuard(p.logA)
	if err := p.A.Open(p.TxA); err != nil {
		return nil, err
	}
	return p, p.Reopen()
}

// Reopen replaces the second replica's machine by a new one, opened from what is stored.
func (p *Pair) Reopen() error {
	p.B = p.make()
	if err := p.B.Open(p.TxB); err != nil {
		return fmt.Errorf("reopen after entry %d: %w", p.Index, err)
	}
	return nil
}

// Restart replaces both machines, as when all replicas were stopped.
func (p *Pair) Restart() error {
	p.A = p.make()
	if err := p.A.Open(p.TxA); err != nil {
		return fmt.Errorf("reopen after entry %d: %w", p.Index, err)
	}
	return p.Reopen()
}

// Apply applies one entry of commits at the current stamp to both replicas. An entry without timed work may touch
// its own partitions only.
func (p *Pair) Apply(commits ...core.Commit) (core.Applied, error) {
	p.Index++
	e := &core.Entry{Format: core.FormatCurrent, Stamp: p.Stamp, Proposer: 1, Seq: p.Index, Commits: commits}
	raw := core.AppendEntry(nil, e)
	decoded, err := core.DecodeEntry(raw)
	if err != nil {
		return core.Applied{}, err
	}
	var tx core.Txn = p.logA
	p.logA.clear()
	p.logB.clear()
	if parts, only := partitionsOf(commits); only {
		p.guard.AllowOnly(parts...)
		tx = p.guard
	}
	a, err := p.A.Apply(tx, p.Index, e)
	if err != nil {
		return a, err
	}
	if len(p.guard.Strays) > 0 {
		return a, fmt.Errorf("entry %d touched other partitions: %q", p.Index, p.guard.Strays)
	}
	b, err := p.B.Apply(p.logB, p.Index, decoded)
	if err != nil {
		return a, err
	}
	return a, p.compare(&a, &b)
}

// partitionsOf lists the partitions of commits; only is false when timed work may touch all.
func partitionsOf(commits []core.Commit) (parts []core.Partition, only bool) {
	for i := range commits {
		for _, op := range commits[i].Ops {
			if op.Kind() == core.OpTick {
				return nil, false
			}
		}
		parts = append(parts, commits[i].Partition)
	}
	return parts, true
}

// compare compares what both replicas answered, told, changed and hold after an entry.
func (p *Pair) compare(a, b *core.Applied) error {
	if len(a.Results) != len(b.Results) {
		return fmt.Errorf("entry %d: %d and %d results", p.Index, len(a.Results), len(b.Results))
	}
	for i := range a.Results {
		ra, rb := core.AppendResult(nil, &a.Results[i]), core.AppendResult(nil, &b.Results[i])
		if !bytes.Equal(ra, rb) {
			return fmt.Errorf("entry %d, commit %d: replicas answer %+v and %+v", p.Index, i, a.Results[i], b.Results[i])
		}
	}
	if len(a.Events) != len(b.Events) {
		return fmt.Errorf("entry %d: replicas tell of %d and %d events", p.Index, len(a.Events), len(b.Events))
	}
	for i := range a.Events {
		if !reflect.DeepEqual(a.Events[i], b.Events[i]) {
			return fmt.Errorf("entry %d, event %d: replicas tell of %+v and %+v", p.Index, i, a.Events[i], b.Events[i])
		}
	}
	if !reflect.DeepEqual(p.logA.changes, p.logB.changes) {
		return fmt.Errorf("entry %d: replicas change\n%q\nand\n%q", p.Index, p.logA.changes, p.logB.changes)
	}
	if da, db := p.TxA.Dump(), p.TxB.Dump(); da != db {
		return fmt.Errorf("entry %d: replicas hold different bytes:\n%s\nand\n%s", p.Index, da, db)
	}
	return nil
}

// changeLog is a core.Txn that notes the changes made through it, in order and without those that were undone.
type changeLog struct {
	core.Txn
	changes []string
	// mark is the number of changes when the mark was set.
	mark int
}

func (l *changeLog) clear() { l.changes, l.mark = l.changes[:0], 0 }

func (l *changeLog) note(what string, key, value []byte) {
	l.changes = append(l.changes, fmt.Sprintf("%s %x %x", what, key, value))
}

func (l *changeLog) Set(key, value []byte) {
	l.note("set", key, value)
	l.Txn.Set(key, value)
}

func (l *changeLog) Insert(key, value []byte) {
	l.note("insert", key, value)
	l.Txn.Insert(key, value)
}

func (l *changeLog) Delete(key []byte) {
	l.note("delete", key, nil)
	l.Txn.Delete(key)
}

func (l *changeLog) DeleteRange(from, to []byte) {
	l.note("delete range", from, to)
	l.Txn.DeleteRange(from, to)
}

func (l *changeLog) Mark() {
	l.mark = len(l.changes)
	l.Txn.Mark()
}

func (l *changeLog) Undo() {
	l.changes = l.changes[:l.mark]
	l.Txn.Undo()
}
