package wal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/fault"
)

// Log is the log of a node. Its methods may be called from any goroutine, unless Options.Manual says otherwise.
type Log struct {
	// o are the options, with defaults.
	o Options
	// mark is the content of the log's mark.
	mark mark
	// seed is where all checksums of records start: the checksum of the mark's salt.
	seed uint32
	// turns is held by the goroutine that writes: the writer, or with NoSync one that appends. It is taken before all other locks.
	turns  sync.Mutex
	writer writer // of the goroutine that holds turns
	keeper keeper // the keeper's own

	wake     chan struct{} // tells the writer that there is something to do; holds one
	keep     chan struct{} // the same for the keeper
	stop     chan struct{} // closed by Close, for the writer
	stopKeep chan struct{} // closed when the writer has ended, for the keeper
	ended    chan struct{} // closed when the writer has ended
	endKeep  chan struct{} // closed when the keeper has ended

	// qmu guards the fields below. It is taken before mu, never after.
	qmu sync.Mutex
	// queue are changes that the writer has not taken yet, in the order in which they came.
	queue []*change
	// queued is how many bytes wait, until they are written.
	queued int64
	// ends are the last indexes of the shards, with what is queued.
	ends map[core.ShardID]uint64
	// floors are the highest indexes that cuts were asked for: no entry up to them is written any
	// more.
	floors map[core.ShardID]uint64
	// cuts are the newest cuts of the shards that are not written yet. They wait for the next
	// batch, so that a cut costs no write of its own.
	cuts map[core.ShardID]*change
	// fatal is the first error that stopped the log. Nothing is written after it.
	fatal error
	// closed says that Close was called: nothing more is queued.
	closed bool

	// mu guards the fields below.
	mu sync.Mutex
	// tables are what is durable of each shard. Only the writer changes them.
	tables map[core.ShardID]*table
	// segments are in order; the last is the one that is written to.
	segments []*segment
	// freed are segments without live entries, to be archived and recycled by the keeper.
	freed  []*segment
	spares []spare
	// want is the size of the segment that the writer waits for; 0: it does not wait.
	want int64
	// full says that no segment could be made for want of room.
	full bool
	// cached is the sum of the tables' recentBytes.
	cached int64
	// stats are the counters, which Stats copies.
	stats Stats
	// began is the boot time, plus 1, at which the write that is under way began; 0: there is none.
	began atomic.Int64
}

// Append queues a batch. It never waits for the disk; b.Done tells the end, unless Append itself refuses: ErrQueueFull,
// ErrClosed, ErrTooLarge or ErrOrder.
func (l *Log) Append(b Batch) error {
	if err := fault.Point("wal.append"); err != nil {
		return err
	}
	c := &change{kind: kindEntry, shard: b.Shard, hard: b.HardState, entries: b.Entries, done: b.Done}
	for i, e := range b.Entries {
		if len(e.Data) > MaxEntryBytes {
			return fmt.Errorf("entry %d of shard %d has %d bytes: %w", e.Index, b.Shard, len(e.Data), ErrTooLarge)
		}
		if e.Index != b.Entries[0].Index+uint64(i) || e.Index > maxIndex {
			return fmt.Errorf("entry %d of shard %d follows %d: %w", e.Index, b.Shard, e.Index-1, ErrOrder)
		}
	}
	if len(b.HardState) > MaxEntryBytes {
		return fmt.Errorf("hard state of shard %d has %d bytes: %w", b.Shard, len(b.HardState), ErrTooLarge)
	}
	c.size = c.encodedSize()
	if err := l.pushBatch(b, c); err != nil {
		return err
	}
	if !l.o.NoSync || l.o.Manual || !l.writeHere(c.size) {
		notify(l.wake)
	}
	return nil
}

// pushBatch queues the change of a batch. The caller wakes the writer.
func (l *Log) pushBatch(b Batch, c *change) error {
	l.qmu.Lock()
	defer l.qmu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.queued > 0 && l.queued+c.size > l.o.QueueBytes:
		return ErrQueueFull
	}
	if len(b.Entries) > 0 {
		first, end, floor := b.Entries[0].Index, l.ends[b.Shard], l.floors[b.Shard]
		if first > end+1 || first <= floor {
			return fmt.Errorf("entry %d of shard %d, which has %d to %d: %w", first, b.Shard, floor+1, end, ErrOrder)
		}
		l.ends[b.Shard] = b.Entries[len(b.Entries)-1].Index
	}
	l.push(c)
	return nil
}

// hereBytes bounds the batches that are written in the goroutine that appends, in bytes.
const hereBytes = 1 << 10

// writeHere writes what is queued in the goroutine that appends a small batch, where the log does not wait for the disk: the writer need
// not be woken then. It reports false where the writer has to see to the rest, or is writing.
func (l *Log) writeHere(size int64) bool {
	if size > hereBytes || !l.turns.TryLock() {
		return false
	}
	defer l.turns.Unlock()
	l.turn()
	return len(l.writer.work) == 0 && l.writer.armed
}

// Manual reports whether the caller has to call Step for anything to be written.
func (l *Log) Manual() bool { return l.o.Manual }

// push queues a change. qmu is held. The caller wakes the writer.
func (l *Log) push(c *change) {
	c.queued = true
	l.queue = append(l.queue, c)
	l.queued += c.size
}

// ResetTo restarts a shard's log after (index, term): all its entries go, and the next one is index+1. A nil hardState
// leaves the old one. done is called exactly once.
func (l *Log) ResetTo(s core.ShardID, index, term uint64, hardState []byte, done func(error)) {
	c := &change{kind: kindReset, shard: s, index: index, term: term, hard: hardState, done: done}
	c.size = c.encodedSize()
	if index > maxIndex {
		c.end(ErrOrder)
		return
	}
	l.qmu.Lock()
	if l.closed {
		l.qmu.Unlock()
		c.end(ErrClosed)
		return
	}
	l.ends[s], l.floors[s] = index, index
	delete(l.cuts, s) // the cut goes with the entries
	l.push(c)
	notify(l.wake)
	l.qmu.Unlock()
}

// Cut tells that a shard's entries up to index are no longer needed. It is recorded with the next batch, or with the
// next seal; until then State shows the old cut. A lower index than before changes nothing. Entries up to index must be
// committed: a cut of one that a queued batch replaces is forgotten.
func (l *Log) Cut(s core.ShardID, index uint64) error {
	l.qmu.Lock()
	defer l.qmu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.fatal != nil {
		return l.fatal
	}
	term, err := l.Term(s, index)
	if errors.Is(err, ErrCompacted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cut shard %d at %d: %w", s, index, err)
	}
	switch {
	case index > l.ends[s]:
		return fmt.Errorf("cut shard %d at %d, which ends at %d: %w", s, index, l.ends[s], ErrUnavailable)
	case index <= l.floors[s]:
		return nil
	}
	l.floors[s] = index
	c := &change{kind: kindCut, shard: s, index: index, term: term}
	c.size = c.encodedSize()
	l.cuts[s] = c
	notify(l.wake)
	return nil
}

// Shards returns the shards that the log knows, in order.
func (l *Log) Shards() []core.ShardID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.tables))
}

// State returns what is durable of a shard. A shard that the log does not know has First 1 and Last 0.
func (l *Log) State(s core.ShardID) ShardState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tables[s]; t != nil {
		return t.state()
	}
	return ShardState{First: 1}
}

// Term returns the term of an entry, the one at the cut included. ErrCompacted and ErrUnavailable say that it is not
// here.
func (l *Log) Term(s core.ShardID, index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[s]
	switch {
	case t == nil && index == 0:
		return 0, nil
	case t == nil:
		return 0, ErrUnavailable
	case index == t.cut:
		return t.cutTerm, nil
	case index < t.cut:
		return 0, ErrCompacted
	}
	if p := t.at(index); p != nil {
		return p.term, nil
	}
	return 0, ErrUnavailable
}

// Full reports whether no new segment can be made for want of disk space. What is queued waits, in order, and is tried
// again every 100 ms.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// Writing returns how long the write or sync that is under way has taken so far; 0: there is none. What takes long is a
// disk that is slow, or does not answer.
func (l *Log) Writing() time.Duration {
	began := l.began.Load()
	if began == 0 {
		return 0
	}
	return l.o.Clock.Boot() - time.Duration(began-1)
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	l.qmu.Lock()
	queued := l.queued
	l.qmu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.QueuedBytes, s.CacheBytes = uint64(queued), uint64(l.cached)
	s.Segments, s.Spares = uint64(len(l.segments)), uint64(len(l.spares))
	for _, seg := range l.segments {
		s.SegmentBytes += uint64(seg.size)
	}
	for _, seg := range l.freed {
		s.SpareBytes += uint64(seg.size)
	}
	for _, sp := range l.spares {
		s.SpareBytes += uint64(sp.size)
	}
	return s
}

// fail stops the log: nothing is written after it, and every batch gets err.
func (l *Log) fail(err error) {
	l.qmu.Lock()
	defer l.qmu.Unlock()
	if l.fatal == nil {
		l.fatal = &fatalError{cause: err}
	}
	notify(l.wake)
}

// failure returns the error that stopped the log, if one did.
func (l *Log) failure() error {
	l.qmu.Lock()
	defer l.qmu.Unlock()
	return l.fatal
}

// notify leaves a token in c if there is none.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait blocks until c has a token, the timer fires or stop is closed; it reports whether stop was.
// A token says only that there may be something: the caller looks.
func wait(c, stop <-chan struct{}, t env.Timer) (stopped, fired bool) {
	select {
	case <-c:
	case <-t.C():
		fired = true
	case <-stop:
		stopped = true
	}
	return stopped, fired
}

// never is what a timer is set to that is not to fire.
const never = 1000 * time.Hour
