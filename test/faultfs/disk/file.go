package disk

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"
)

// sector is the number of bytes that a disk writes whole or not at all.
const sector = 512

// file is a file's bytes as programs see them, and what the disk has instead.
//
// The bytes in f are the newest. What the disk has is found by undoing eras from the newest to the oldest,
// each of which has the sectors as they were before it. A sync that succeeds drops the eras that it wrote.
type file struct {
	// f has the bytes as they are now.
	f    *os.File
	size int64
	// eras are those that are not on the disk, oldest first. What is written now belongs to the
	// last one, so there is always one.
	eras []*era
}

// era is what was written between the beginnings of two syncs.
type era struct {
	// size is the file's length when it began; -1: that is not asked any more.
	size int64
	// old has the sectors as they were before, by number; nil: there was nothing, which reads as zeros.
	old map[int64][]byte
	// lost says that its sync failed: no later sync writes it.
	lost bool
}

// newFile is an empty file, whose bytes will be in f. The era that it begins with is not on the disk.
func newFile(f *os.File) *file { return &file{f: f, eras: []*era{{old: map[int64][]byte{}}}} }

// last is the era that is written to now.
func (f *file) last() *era { return f.eras[len(f.eras)-1] }

// remember notes what is in sectors that are about to change, once in each era. from and to are
// offsets in bytes.
func (f *file) remember(from, to int64) error {
	e := f.last()
	for s := from / sector; s*sector < to; s++ {
		if _, ok := e.old[s]; ok {
			continue
		}
		if s*sector >= f.size {
			e.old[s] = nil
			continue
		}
		was := make([]byte, sector)
		if _, err := f.f.ReadAt(was, s*sector); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		e.old[s] = was
	}
	return nil
}

// write writes bytes and notes what was there before.
func (f *file) write(data []byte, at int64) (int, error) {
	if err := f.remember(at, at+int64(len(data))); err != nil {
		return 0, err
	}
	n, err := f.f.WriteAt(data, at)
	f.size = max(f.size, at+int64(n))
	return n, err
}

// truncate changes the length. A shorter file notes what is cut off, since a power cut may bring
// the old length back.
func (f *file) truncate(size int64) error {
	if size < f.size {
		if err := f.remember(size, f.size); err != nil {
			return err
		}
	}
	if err := f.f.Truncate(size); err != nil {
		return err
	}
	f.size = size
	return nil
}

// begin begins a sync of everything written so far. What is written from now on belongs to the next
// era and is not part of it.
func (f *file) begin() *era {
	e := f.last()
	f.eras = append(f.eras, &era{size: f.size, old: map[int64][]byte{}})
	return e
}

// synced ends a sync that began with the end of era through. What it wrote is on the disk, or, if
// it failed, lost for ever: the era stays, so that a power cut undoes it.
func (f *file) synced(through *era, failed bool) {
	end := slices.Index(f.eras, through)
	if end < 0 {
		return // a later sync was faster
	}
	// Eras that are lost keep what they undo, but for sectors that a later sync wrote. Their lengths
	// are forgotten once such a sync has succeeded.
	var left []*era
	for _, e := range f.eras[:end+1] {
		switch {
		case failed:
			e.lost = true
			left = append(left, e)
		case e.lost:
			e.size = -1
			left = append(left, e)
		default:
			for _, older := range left { // what was lost and written again is there now
				for s := range e.old {
					delete(older.old, s)
				}
			}
		}
	}
	left = slices.DeleteFunc(left, func(e *era) bool { return len(e.old) == 0 && e.size < 0 })
	f.eras = append(left, f.eras[end+1:]...)
}

// durable is the file's length on the disk: that at the beginning of the oldest era that is not there.
func (f *file) durable() int64 {
	for _, e := range f.eras {
		if e.size >= 0 {
			return e.size
		}
	}
	return f.size
}

// cut leaves what the disk has, and a share of the rest, in percent. For each sector it goes back
// through the eras, until one of them survives.
func (f *file) cut(r *rand.Rand, share int, c *Cut) error {
	size := f.survives(r, share)
	changed := map[int64]bool{}
	for _, e := range f.eras {
		for s := range e.old {
			changed[s] = true
		}
	}
	for _, s := range sorted(changed) {
		gone := s*sector >= f.size // it was cut off: it is there again if the old length is
		for _, e := range slices.Backward(f.eras) {
			was, ok := e.old[s]
			if !ok {
				continue
			}
			if !gone && r.IntN(100) < share {
				c.SectorsKept++
				break
			}
			c.SectorsLost++
			if was == nil {
				was = make([]byte, sector)
			}
			if _, err := f.f.WriteAt(was, s*sector); err != nil {
				return err
			}
		}
	}
	f.size = size
	f.eras = []*era{{size: size, old: map[int64][]byte{}}}
	return f.f.Truncate(size)
}

// survives draws the length that a power cut leaves: the old one, the new one, or one in between,
// at the end of a sector.
func (f *file) survives(r *rand.Rand, share int) int64 {
	old := f.durable()
	low, high := min(old, f.size), max(old, f.size)
	switch {
	case share <= 0 || low == high:
		return old
	case share >= 100:
		return f.size
	}
	switch r.IntN(3) {
	case 0:
		return old
	case 1:
		return f.size
	}
	return min(high, low+(r.Int64N(high-low)/sector)*sector)
}

// Read reads bytes of a file, fewer at its end.
func (s *Session) Read(id uint64, into []byte, at int64) (int, syscall.Errno) {
	if _, errno := s.enter(Read); errno != 0 {
		return 0, errno
	}
	defer s.leave()
	n, errno := s.regular(id)
	if errno != 0 {
		return 0, errno
	}
	got, err := n.f.ReadAt(into, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, errnoOf(err)
	}
	return got, 0
}

// Write writes bytes of a file. A rule may fail it or make it write half.
func (s *Session) Write(id uint64, data []byte, at int64) (int, syscall.Errno) {
	kinds := []Kind{Write}
	if s.grows(id, at+int64(len(data))) {
		kinds = append(kinds, Grow)
	}
	short, errno := s.enter(kinds...)
	if errno != 0 {
		s.d.failedAt(id)
		return 0, errno
	}
	defer s.leave()
	n, errno := s.regular(id)
	if errno != 0 {
		return 0, errno
	}
	if short && len(data) > 1 {
		data = data[:len(data)/2]
	}
	wrote, err := n.write(data, at)
	if err != nil {
		return wrote, errnoOf(err)
	}
	n.mtime = time.Now()
	return wrote, 0
}

// grows reports whether a file is shorter than size. It is asked before the gate, which tells calls
// that take space from others.
func (s *Session) grows(id uint64, size int64) bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	n := s.d.nodes[id]
	return n != nil && n.file != nil && n.size < size
}

// Reserve makes a file at least size bytes long. Blocks that are reserved beyond its end are not counted.
func (s *Session) Reserve(id uint64, size int64) syscall.Errno {
	if _, errno := s.enter(Write, Grow); errno != 0 {
		return errno
	}
	defer s.leave()
	n, errno := s.regular(id)
	if errno != 0 || n.size >= size {
		return errno
	}
	if err := n.truncate(size); err != nil {
		return errnoOf(err)
	}
	return 0
}

// regular finds a file by number.
func (s *Session) regular(id uint64) (*node, syscall.Errno) {
	n, errno := s.node(id)
	switch {
	case errno != 0:
		return nil, errno
	case n.dir != nil:
		return nil, syscall.EISDIR
	case n.file == nil:
		return nil, syscall.EINVAL
	}
	return n, 0
}

// Sync puts on the disk what a file, or a directory, was given before it began. It takes that down
// first and then waits at the gate, so that what is written while it waits is not part of it.
func (s *Session) Sync(id uint64) syscall.Errno {
	begun, errno := s.begin(id)
	if errno != 0 {
		return errno
	}
	_, failed := s.enter(Sync)
	if failed != 0 {
		s.d.mu.Lock()
		if s.boot != s.d.boots {
			s.d.mu.Unlock()
			return failed
		}
	}
	defer s.leave()
	begun(failed != 0)
	return failed
}

// begin notes what a sync will write, and returns the function that ends it, which is called with
// the lock held.
func (s *Session) begin(id uint64) (end func(failed bool), errno syscall.Errno) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.boot != s.d.boots {
		return nil, syscall.EIO
	}
	n, errno := s.node(id)
	switch {
	case errno != 0:
		return nil, errno
	case n.dir != nil:
		begun := slices.Clone(n.log)
		return func(failed bool) {
			if failed {
				return
			}
			for _, c := range begun {
				c.keep()
			}
			s.d.pruneAll()
			s.d.sweep()
		}, 0
	case n.file != nil:
		through := n.file.begin()
		return func(failed bool) { n.synced(through, failed) }, 0
	}
	return func(bool) {}, 0
}
