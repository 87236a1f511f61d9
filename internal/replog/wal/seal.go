package wal

import (
	"errors"

	"github.com/millrace/millrace/internal/fault"
)

// sealDue says whether the idle log has something to seal or to record.
func (l *Log) sealDue() bool {
	l.qmu.Lock()
	defer l.qmu.Unlock()
	return l.fatal == nil && (l.writer.unsealed || len(l.cuts) > 0)
}

// sealIdle is seal for a log that was idle for as long as a seal waits: others may have written since the writer's timer was set.
func (l *Log) sealIdle() {
	if l.o.Clock.Boot()-l.writer.wrote >= l.o.SealAfter {
		l.seal()
	}
}

// seal writes the pending cuts and a seal: a batch of its own, which proves that what went before
// was synced. Damage before it is then never taken for a torn write. Pending cuts that have no room
// in the segment go to the next one.
func (l *Log) seal() {
	w := &l.writer
	if !l.sealDue() {
		return
	}
	if err := fault.Point("wal.seal"); err != nil {
		l.fail(err)
		return
	}
	if !l.addCuts() {
		l.flush()
		if !l.rotate(0) {
			return
		}
		l.addCuts()
	}
	if c := (&change{kind: kindSeal, size: headerBytes}); w.off+int64(len(w.enc.buf))+c.size <= w.active.size {
		l.encode(c)
	}
	if l.flush() {
		l.mu.Lock()
		l.stats.Seals++
		l.mu.Unlock()
	}
	w.unsealed = false
}

// finish writes what is queued and a seal, before the log closes. What has no room on the disk ends with ErrClosed.
func (l *Log) finish() {
	w := &l.writer
	timer := l.o.Clock.NewTimer(never)
	defer timer.Stop()
	for l.turn() || len(w.work) > 0 && l.failure() == nil && !l.Full() {
		if len(w.work) == 0 {
			continue
		}
		if l.o.Manual {
			l.tend()
			continue
		}
		timer.Reset(retryAfter)
		wait(l.wake, nil, timer) // the keeper makes a spare, or finds that it cannot
	}
	l.failAll(ErrClosed)
	l.seal()
}

// Close writes what is queued, seals the log and closes its files. It returns the error that stopped the log, if one
// did. The second call does nothing.
func (l *Log) Close() error {
	l.qmu.Lock()
	if l.closed {
		l.qmu.Unlock()
		return nil
	}
	l.closed = true
	l.qmu.Unlock()
	if l.o.Manual {
		l.finish()
	} else {
		close(l.stop)
		<-l.ended
		close(l.stopKeep)
		<-l.endKeep
	}
	all := []error{l.failure()}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range append(l.segments, l.freed...) {
		if g.readers == 0 {
			all = append(all, g.file.Close())
			g.file = nil
		}
	}
	l.segments, l.freed = nil, nil
	return errors.Join(all...)
}
