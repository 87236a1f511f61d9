package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/fault"
)

// keeper is what only the keeping goroutine touches: it archives and recycles segments and keeps a spare ready, so that
// the writer neither waits for that nor learns too late that the disk is full.
type keeper struct {
	// next is the number of the next spare.
	next      uint64
	makeAt    time.Duration // boot time before which no spare is tried to be made again
	archiveAt time.Duration // boot time before which nothing is tried to be archived again
}

// retryAfter is how long the keeper waits when the disk is full.
const retryAfter = 100 * time.Millisecond

// startSpares are kept for starts: each begins a segment, also on a disk that is full. The first one may add to what is on the
// disk; those after it take one, and free that of the start before, unless much was written meanwhile.
const startSpares = 2

// startBytes is the most that each of them takes.
const startBytes = 8 << 20

// startSpare is how large a spare is that only a start takes.
func (l *Log) startSpare() int64 { return min(l.o.SegmentBytes, startBytes) }

// keptSpares is how many spares there may be: one cut frees several segments at once. Those beyond it are removed.
const keptSpares = 4 + startSpares

// runKeeper is the keeper's goroutine.
func (l *Log) runKeeper() {
	defer close(l.endKeep)
	timer := l.o.Clock.NewTimer(never)
	defer timer.Stop()
	for {
		if l.tend() {
			timer.Reset(retryAfter)
		} else {
			timer.Reset(never)
		}
		if stopped, _ := wait(l.keep, l.stopKeep, timer); stopped {
			return
		}
	}
}

// tend recycles what is free and keeps a spare ready. It reports whether something is to be tried
// again. A full disk, and an archive that fails, are tried again after retryAfter; any other error
// stops the log.
func (l *Log) tend() (again bool) {
	if l.failure() != nil {
		return false
	}
	waits, err := l.recycleFreed()
	if err == nil {
		err = l.keepSpare()
	}
	switch {
	case noRoom(err):
		l.setFull(true)
		return true
	case err != nil:
		l.fail(err)
		return false
	}
	l.setFull(false)
	return waits
}

// setFull notes whether the disk is full. When it is not any more, a writer that waits for a
// segment tries again.
func (l *Log) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full = full; !full && l.want > 0 {
		notify(l.wake)
	}
}

// recycleFreed archives the free segments that are not being read, and makes spares of them.
// Archiving that fails is tried again later: the log goes on, and takes more room meanwhile.
func (l *Log) recycleFreed() (again bool, err error) {
	for {
		if l.o.Clock.Boot() < l.keeper.archiveAt {
			return true, nil
		}
		g := l.takeFreed()
		if g == nil {
			return false, nil
		}
		if err := l.archive(g); err != nil {
			l.mu.Lock()
			l.freed = append([]*segment{g}, l.freed...)
			l.stats.ArchiveFailures++
			l.mu.Unlock()
			l.keeper.archiveAt = l.o.Clock.Boot() + retryAfter
			return true, nil //nolint:nilerr // the segment waits; the log goes on
		}
		if err := l.recycle(g); err != nil {
			return false, err
		}
	}
}

// takeFreed returns a free segment that is not being read, or nil.
func (l *Log) takeFreed() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, g := range l.freed {
		if g.readers == 0 {
			l.freed = append(l.freed[:i:i], l.freed[i+1:]...)
			return g
		}
	}
	return nil
}

// recycle makes a segment a spare, or removes it when there are enough. The new name is durable before the spare is
// ready: what is written to it then can never be found under the old name.
func (l *Log) recycle(g *segment) error {
	if err := fault.Point("wal.recycle"); err != nil {
		return fmt.Errorf("recycle %s: %w", g.name, err)
	}
	if err := g.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", g.name, err)
	}
	l.mu.Lock()
	l.stats.Recycled++
	enough := len(l.spares) >= keptSpares || g.size > 2*l.o.SegmentBytes
	l.mu.Unlock()
	if enough {
		if err := l.o.FS.Remove(g.name); err != nil {
			return fmt.Errorf("remove %s: %w", g.name, err)
		}
		return nil
	}
	s := spare{number: l.keeper.next, size: g.size}
	l.keeper.next++
	if err := l.o.FS.Rename(g.name, l.path(spareName(s.number))); err != nil {
		return fmt.Errorf("recycle %s: %w", g.name, err)
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	l.addSpare(s)
	return nil
}

// addSpare gives a spare to the writer.
func (l *Log) addSpare(s spare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spares = append(l.spares, s)
	notify(l.wake)
}

// keepSpare makes a spare when the log lacks one of the size that the writer waits for, and those
// that are kept for starts. It makes one at a time, and stops at the first for which there is no
// room.
func (l *Log) keepSpare() error {
	for {
		size, missing := l.spareMissing()
		if !missing {
			return nil
		}
		if l.o.Clock.Boot() < l.keeper.makeAt {
			return errNoRoom // as a moment ago
		}
		s := l.takeSmallSpare(size)
		small := s.size > 0
		err := l.makeSpare(&s, size)
		if err == nil || noRoom(err) && small {
			l.addSpare(s)
		}
		if err != nil {
			l.keeper.makeAt = l.o.Clock.Boot() + retryAfter
			return err
		}
	}
}

// spareMissing says whether a spare is needed, and how many bytes it must have: no spare is large enough for the next
// segment, or too few others are left for starts.
func (l *Log) spareMissing() (size int64, missing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size = max(l.o.SegmentBytes, l.want)
	if !slices.ContainsFunc(l.spares, func(s spare) bool { return s.size >= size }) {
		return size, true
	}
	kept := 0
	for _, s := range l.spares {
		if s.size >= l.startSpare() {
			kept++
		}
	}
	return l.startSpare(), kept < 1+startSpares
}

// takeSmallSpare returns a spare to be filled up to a size, or a new one.
func (l *Log) takeSmallSpare(size int64) (s spare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.spares {
		if s.size < size {
			l.spares = slices.Delete(l.spares, i, i+1)
			return s
		}
	}
	l.keeper.next++
	return spare{number: l.keeper.next - 1}
}

// makeSpare fills a spare. A full disk takes nothing away: what was written of a new spare is removed again.
func (l *Log) makeSpare(s *spare, size int64) error {
	if err := fault.Point("wal.create"); err != nil {
		return fmt.Errorf("make a segment: %w", err)
	}
	free, _, err := l.o.FS.Disk(l.o.Dir)
	if err == nil && free < uint64(size-s.size) { // not every file system can tell
		return errNoRoom
	}
	err = l.fill(s, size)
	if name := l.path(spareName(s.number)); noRoom(err) && s.size == 0 {
		if e := l.o.FS.Remove(name); e != nil && !isMissing(e) {
			return fmt.Errorf("remove %s: %w", name, e)
		}
	}
	return err
}

// archive copies a segment's records to the archive, durably in every mode. The copy has a
// temporary name until it is durable, so a file of the archive is always whole.
func (l *Log) archive(g *segment) (err error) {
	if l.o.ArchiveDir == "" || g.end == 0 {
		return nil
	}
	if err := fault.Point("wal.archive"); err != nil {
		return err
	}
	if err := env.MakeDirs(l.o.FS, l.o.ArchiveDir); err != nil { // a copy below a name that is not durable is none
		return fmt.Errorf("make directory %s: %w", l.o.ArchiveDir, err)
	}
	name := filepath.Join(l.o.ArchiveDir, segmentName(g.number))
	if err := l.copyTo(name+".tmp", g); err != nil {
		return fmt.Errorf("archive %s: %w", g.name, err)
	}
	if err := l.o.FS.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("archive %s: %w", g.name, err)
	}
	return syncDir(l.o.FS, l.o.ArchiveDir)
}

// copyTo copies the records of a segment into a file, durably.
func (l *Log) copyTo(name string, g *segment) (err error) {
	f, err := l.o.FS.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, io.NewSectionReader(g.file, 0, g.end)); err != nil {
		return err
	}
	return f.Sync()
}
