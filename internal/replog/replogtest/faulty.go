package replogtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/millrace/millrace/internal/env"
)

// Op is one operation that changes a file system, before it is done.
type Op struct {
	N    int    // 1 for the first
	Kind string // create, rename, remove, mkdir, write, sync, syncdir
	Name string // base name of the file
	Len  int    // bytes of a write
}

// Short is a hook's error for a write of which a part is done before it fails with Err.
type Short struct {
	Percent int
	Err     error
}

// Error is that of Err.
func (s Short) Error() string { return s.Err.Error() }

// Unwrap returns Err.
func (s Short) Unwrap() error { return s.Err }

// part does what is done of a write that fails.
func part(err error, p []byte, write func([]byte) (int, error)) (int, error) {
	short, ok := errors.AsType[Short](err)
	if !ok {
		return 0, err
	}
	n, failed := write(p[:len(p)*short.Percent/100])
	return n, errors.Join(err, failed)
}

// Faulty wraps a file system: it counts what changes it, lets a test look or fail before each operation, and bounds what
// the files of one directory may take.
type Faulty struct {
	env.FS

	mu sync.Mutex // guards the fields below
	// ops is how many operations there were, and counts how many of each kind.
	ops    int
	counts map[string]int
	// before is the hook; nil: there is none.
	before func(Op) error
	// quota bounds the sum of sizes, in bytes; 0: there is no bound.
	quota int64
	// sizes are the largest sizes that the files have had, by name.
	sizes map[string]int64
}

// NewFaulty wraps fsys.
func NewFaulty(fsys env.FS) *Faulty {
	return &Faulty{FS: fsys, counts: make(map[string]int), sizes: make(map[string]int64)}
}

// Before installs f, which is called before each operation that changes something; its error is the operation's. nil
// removes it.
func (f *Faulty) Before(hook func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// FailAt makes the n-th operation from now on fail with err, and those after it go on as usual.
func (f *Faulty) FailAt(n int, err error) {
	at := f.Ops() + n
	f.Before(func(op Op) error {
		if op.N == at {
			return err
		}
		return nil
	})
}

// SetQuota bounds the bytes of all files together, beyond which a write fails with ENOSPC; 0: unbounded. A file that was
// there before counts once it is opened for writing, or gets another name.
func (f *Faulty) SetQuota(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = n
}

// Used returns the bytes of all files that were written through f.
func (f *Faulty) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

// used returns the sum of sizes. mu is held.
func (f *Faulty) used() int64 {
	var n int64
	for _, s := range f.sizes {
		n += s
	}
	return n
}

// Ops returns how many operations there were.
func (f *Faulty) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Count returns how many operations of a kind there were.
func (f *Faulty) Count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind]
}

// step counts an operation and asks the hook about it, without the lock, so that the hook may use
// f.
func (f *Faulty) step(kind, name string, n int) error {
	f.mu.Lock()
	f.ops++
	f.counts[kind]++
	hook, op := f.before, Op{N: f.ops, Kind: kind, Name: filepath.Base(name), Len: n}
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	if err := hook(op); err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

// Create counts as create.
func (f *Faulty) Create(name string) (env.File, error) {
	if err := f.step("create", name, 0); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.sizes[name] = 0
	f.mu.Unlock()
	return f.wrap(name, "sync")(f.FS.Create(name))
}

// OpenReadWrite counts as create, for it may make the file.
func (f *Faulty) OpenReadWrite(name string) (env.File, error) {
	if err := f.step("create", name, 0); err != nil {
		return nil, err
	}
	f.learn(name)
	return f.wrap(name, "sync")(f.FS.OpenReadWrite(name))
}

// Open wraps the file, so that its syncs count.
func (f *Faulty) Open(name string) (env.File, error) { return f.wrap(name, "sync")(f.FS.Open(name)) }

// OpenDir wraps the directory: its syncs count as syncdir.
func (f *Faulty) OpenDir(name string) (env.File, error) {
	return f.wrap(name, "syncdir")(f.FS.OpenDir(name))
}

// Rename counts as rename.
func (f *Faulty) Rename(from, to string) error {
	if err := f.step("rename", from, 0); err != nil {
		return err
	}
	f.learn(from)
	if err := f.FS.Rename(from, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes[to] = f.sizes[from]
	delete(f.sizes, from)
	return nil
}

// Remove counts as remove.
func (f *Faulty) Remove(name string) error {
	if err := f.step("remove", name, 0); err != nil {
		return err
	}
	if err := f.FS.Remove(name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sizes, name)
	return nil
}

// MkdirAll counts as mkdir.
func (f *Faulty) MkdirAll(dir string) error {
	if err := f.step("mkdir", dir, 0); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir)
}

// Disk shows the quota.
func (f *Faulty) Disk(path string) (free, total uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quota == 0 {
		return 1 << 40, 1 << 40, nil
	}
	return uint64(max(0, f.quota-f.used())), uint64(f.quota), nil
}

// wrap makes a file that was opened count and fail as f does. sync is what its syncs count as.
func (f *Faulty) wrap(name, sync string) func(env.File, error) (env.File, error) {
	return func(file env.File, err error) (env.File, error) {
		if err != nil {
			return nil, err
		}
		return &faultyFile{File: file, fs: f, name: name, sync: sync}, nil
	}
}

// learn counts a file that was there before with the room that it has.
func (f *Faulty) learn(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.sizes[name]; known {
		return
	}
	if n, err := f.FS.Size(name); err == nil {
		f.sizes[name] = n
	}
}

// grow takes room for a file; it fails beyond the quota.
func (f *Faulty) grow(name string, end int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end <= f.sizes[name] {
		return nil
	}
	if f.quota > 0 && f.used()-f.sizes[name]+end > f.quota {
		return fmt.Errorf("write %s: %w", name, syscall.ENOSPC)
	}
	f.sizes[name] = end
	return nil
}

// faultyFile is an open file of a Faulty.
type faultyFile struct {
	env.File
	fs   *Faulty
	name string
	sync string
	// pos is where the next Write goes.
	pos int64
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.step("write", f.name, len(p)); err != nil {
		return part(err, p, f.File.Write)
	}
	if err := f.fs.grow(f.name, f.pos+int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.pos += int64(n)
	return n, err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.step("write", f.name, len(p)); err != nil {
		return part(err, p, func(b []byte) (int, error) { return f.File.WriteAt(b, off) })
	}
	if err := f.fs.grow(f.name, off+int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.step(f.sync, f.name, 0); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) SyncData() error {
	if err := f.fs.step(f.sync, f.name, 0); err != nil {
		return err
	}
	return f.File.SyncData()
}
