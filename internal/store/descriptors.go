package store

import (
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
)

// Back-off while no file can be opened: one may be closed any moment, and an attempt costs next to nothing.
const (
	openWaitMin = 10 * time.Millisecond
	openWaitMax = time.Second
	// openNoteEvery bounds how often the log says that opens wait.
	openNoteEvery = 10 * time.Second
)

// Descriptors makes file systems on which an open waits while too many files are open, in the process or on the machine. It
// passes, as a full disk does, and must not end a node: the database and the log could not survive the error. Only the open is
// repeated; what fails after it fails as before. It is safe for concurrent use.
type Descriptors struct {
	// fs is the file system beneath. Descriptors itself does not wrap it: FS does, with a bound for
	// its waits.
	fs    vfs.FS
	clock env.Clock
	log   *slog.Logger

	waiting atomic.Int64  // opens that wait now
	waits   atomic.Uint64 // opens that had to wait, since the start
	// stop is closed by Stop, once, after which no open waits.
	stop chan struct{}
	once sync.Once

	mu sync.Mutex // guards noted
	// noted is when the log last said that opens wait, as boot time.
	noted time.Duration
}

// NewDescriptors stands above a file system.
func NewDescriptors(fs vfs.FS, clock env.Clock, log *slog.Logger) *Descriptors {
	return &Descriptors{fs: fs, clock: clock, log: log, stop: make(chan struct{}), noted: -openNoteEvery}
}

// FS returns the file system whose opens wait for so long at most, 0 until Stop. Then they return the error that they found,
// which satisfies env.NoDescriptors.
func (d *Descriptors) FS(most time.Duration) vfs.FS { return &openFS{FS: d.fs, d: d, most: most} }

// Short reports whether an open waits.
func (d *Descriptors) Short() bool { return d.waiting.Load() > 0 }

// Waits counts the opens that had to wait.
func (d *Descriptors) Waits() uint64 { return d.waits.Load() }

// Stop ends all waiting, for good.
func (d *Descriptors) Stop() { d.once.Do(func() { close(d.stop) }) }

// note says in the log that opens wait, now and then.
func (d *Descriptors) note(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.clock.Boot(); now-d.noted >= openNoteEvery {
		d.noted = now
		d.log.Warn("too many open files: what opens one waits", "file", name, "err", err.Error())
	}
}

// openFS is a file system of Descriptors.
type openFS struct {
	vfs.FS
	d *Descriptors
	// most is how long an open waits at most; 0 is until Stop.
	most time.Duration
}

// sequential opens a file that is read from its beginning to its end. The database's own option of this kind is for a second
// descriptor of an open file, which is not waited for.
type sequential struct{}

// Apply tells the operating system.
func (sequential) Apply(f vfs.File) { vfs.SequentialReadsOption.Apply(f) }

// Unwrap returns the file system beneath.
func (f *openFS) Unwrap() vfs.FS { return f.FS }

// patiently repeats act for as long as it finds that too many files are open.
func patiently[T any](f *openFS, name string, act func() (T, error)) (T, error) {
	out, err := act()
	if !env.NoDescriptors(err) {
		return out, err
	}
	d := f.d
	d.waits.Add(1)
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	d.note(name, err)
	began := d.clock.Boot()
	for wait := openWaitMin; env.NoDescriptors(err) && (f.most == 0 || d.clock.Boot()-began < f.most); wait = min(2*wait, openWaitMax) {
		if !d.pause(wait) {
			break
		}
		out, err = act()
	}
	return out, err
}

// pause waits and reports whether to try again.
func (d *Descriptors) pause(wait time.Duration) bool {
	t := d.clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-d.stop:
		return false
	}
}

// The methods below wait, for each of them needs a descriptor.
func (f *openFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return patiently(f, name, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

// Open waits, except for a second file of one that is open.
func (f *openFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	for _, o := range opts {
		if o == vfs.SequentialReadsOption { // a second one of a file that is open: the database reads from the first without it
			return f.FS.Open(name, opts...)
		}
	}
	return patiently(f, name, func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite waits until a file can be opened.
func (f *openFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return patiently(f, name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// OpenDir waits until a file can be opened.
func (f *openFS) OpenDir(name string) (vfs.File, error) {
	return patiently(f, name, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite renames a file and opens it for writing; only the open waits.
func (f *openFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	// Its first half, the rename, may be done when the open fails.
	if err := f.Rename(from, to); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(to, c)
}

// Lock waits until the lock's file can be opened.
func (f *openFS) Lock(name string) (io.Closer, error) {
	return patiently(f, name, func() (io.Closer, error) { return f.FS.Lock(name) })
}

// List waits, because a list of a directory opens it.
func (f *openFS) List(dir string) ([]string, error) {
	return patiently(f, dir, func() ([]string, error) { return f.FS.List(dir) })
}

// RemoveAll waits, because it opens directories to list them.
func (f *openFS) RemoveAll(name string) error {
	_, err := patiently(f, name, func() (struct{}, error) { return struct{}{}, f.FS.RemoveAll(name) })
	return err
}
