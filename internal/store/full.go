package store

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
)

// Back-off while the disk is full: short enough to go on soon after there is room, long enough to cost nothing.
const (
	fullWaitMin = 100 * time.Millisecond
	fullWaitMax = time.Second
)

// patientFS is the file system beneath the database. A write that finds the disk full waits and goes on where it
// stopped, so that the database never sees a full disk: some of its writes (of its manifest) it could not survive
// otherwise. After the first failure that ends the store's use, nothing changes on disk any more: what the database
// would tidy up then might be what the disk did keep.
type patientFS struct {
	vfs.FS
	// clock times the pauses between attempts.
	clock   env.Clock
	waiting atomic.Int32    // writes that wait for room
	closing <-chan struct{} // ends the waiting at Close
	dead    <-chan struct{} // closed by the failure
	cause   func() error    // that failure
}

// Unwrap returns the file system beneath.
func (f *patientFS) Unwrap() vfs.FS { return f.FS }

// allowed refuses changes after the failure. It takes its time, because the database repeats a failed flush at once.
func (f *patientFS) allowed() error {
	select {
	case <-f.dead:
		f.pause(fullWaitMin)
		return f.cause()
	default:
		return nil
	}
}

// pause waits for d and reports whether to try again.
func (f *patientFS) pause(d time.Duration) bool {
	t := f.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-f.closing:
		return false
	}
}

// retry repeats act for as long as it finds the disk full.
func (f *patientFS) retry(act func() error) error {
	if err := f.allowed(); err != nil {
		return err
	}
	err := act()
	if !IsFull(err) {
		return err
	}
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for wait := fullWaitMin; IsFull(err) && f.pause(wait); wait = min(2*wait, fullWaitMax) {
		if dead := f.allowed(); dead != nil {
			return dead
		}
		err = act()
	}
	return err
}

// full reports whether a write waits for room.
func (f *patientFS) full() bool { return f.waiting.Load() > 0 }

// file opens a file patiently, and makes what is written to it patient too.
func (f *patientFS) file(open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := f.retry(func() (err error) {
		file, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &patientFile{File: file, fs: f}, nil
}

// Create waits while the disk is full, and so do the files that it returns.
func (f *patientFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.Create(name, c) })
}

func (f *patientFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f *patientFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, c) })
}

// OpenDir does not wait: it takes no room.
func (f *patientFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &patientFile{File: file, fs: f}, nil
}

// Link does not wait: a file gains a second name only in the exchange of a shard's state, which fails if the disk is full.
func (f *patientFS) Link(from, to string) error {
	if err := f.allowed(); err != nil {
		return err
	}
	if err := f.FS.Link(from, to); err != nil {
		return &linkError{err}
	}
	return nil
}

// linkError keeps the database from copying a file that it cannot link: it copies after any error but a few, and this one
// counts as one of those. The copy would wait for room, and take its time.
type linkError struct{ error }

// Is makes the database take a link that failed for one that is not permitted.
func (e *linkError) Is(target error) bool { return target == fs.ErrPermission }

// Unwrap returns the error of the file system.
func (e *linkError) Unwrap() error { return e.error }

// Rename waits while the disk is full, since a directory may grow by it.
func (f *patientFS) Rename(from, to string) error {
	return f.retry(func() error { return f.FS.Rename(from, to) })
}

func (f *patientFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.retry(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Remove does not wait: it takes no room.
func (f *patientFS) Remove(name string) error {
	if err := f.allowed(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *patientFS) RemoveAll(name string) error {
	if err := f.allowed(); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// patientFile writes through a patientFS. A sync that finds the disk full is not repeated, because the second one may
// succeed without having written anything: it fails, and the caller writes the file again or gives up.
type patientFile struct {
	vfs.File
	fs *patientFS
}

// Write goes on behind what was written, until all of b is.
func (f *patientFile) Write(b []byte) (done int, err error) {
	err = f.fs.retry(func() error {
		n, err := f.File.Write(b[done:])
		done += n
		return err
	})
	return done, err
}

func (f *patientFile) WriteAt(b []byte, offset int64) (done int, err error) {
	err = f.fs.retry(func() error {
		n, err := f.File.WriteAt(b[done:], offset+int64(done))
		done += n
		return err
	})
	return done, err
}

// Preallocate makes room ahead of writes, which find room themselves or wait for it.
func (f *patientFile) Preallocate(offset, length int64) error {
	if err := f.File.Preallocate(offset, length); err != nil && !IsFull(err) {
		return err
	}
	return nil
}

func (f *patientFile) Sync() error { return f.sync(f.File.Sync) }

func (f *patientFile) SyncData() error { return f.sync(f.File.SyncData) }

// sync is for Sync and SyncData. It is not repeated; see patientFile.
func (f *patientFile) sync(act func() error) error {
	if err := f.fs.allowed(); err != nil {
		return err
	}
	err := act()
	if IsFull(err) {
		f.fs.waiting.Add(1) // a flush that failed is repeated at once: not before there may be room
		f.fs.pause(fullWaitMax)
		f.fs.waiting.Add(-1)
	}
	return err
}

func (f *patientFile) SyncTo(length int64) (fullSync bool, err error) {
	if err := f.fs.allowed(); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
