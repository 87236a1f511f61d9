package store

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/keys"
)

// bubbleClock is the clock of a synctest bubble, boot time included.
type bubbleClock struct {
	env.SystemClock
	start time.Time
}

func newBubbleClock() bubbleClock { return bubbleClock{start: time.Now()} }

func (c bubbleClock) Boot() time.Duration { return time.Since(c.start) }

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "db"
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustShard(t *testing.T, s *Store, id core.ShardID) *Shard {
	t.Helper()
	sh, err := s.Shard(id)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key is a key of the test partition.
func key(s string) []byte { return keys.KV(core.Partition{Tenant: 1, Namespace: 1}, 1, []byte(s)) }

// set applies one entry that sets the given keys to themselves.
func set(t *testing.T, sh *Shard, index uint64, names ...string) {
	t.Helper()
	must(t, sh.Apply(index, func(tx *Txn) error {
		for _, n := range names {
			tx.Set(key(n), []byte(n))
		}
		return nil
	}))
}

// count returns how many keys a shard has.
func count(t *testing.T, sh *Shard) (n int) {
	t.Helper()
	must(t, sh.View(func(v core.View) error {
		return v.Scan(nil, nil, func(_, _ []byte) bool { n++; return true })
	}))
	return n
}

// read returns all that a shard holds, and its applied index.
func read(t *testing.T, sh *Shard) (m map[string]string, index uint64) {
	t.Helper()
	m = map[string]string{}
	must(t, sh.ViewAt(func(v core.View, at uint64) error {
		index = at
		return v.Scan(nil, nil, func(k, v []byte) bool { m[string(k)] = string(v); return true })
	}))
	return m, index
}

// carry copies the files of a snapshot to another file system, durably.
func carry(t rapid.TB, from vfs.FS, fromDir string, to vfs.FS, toDir string) {
	t.Helper()
	names, err := from.List(fromDir)
	if err == nil {
		err = env.MakeDirs(NewFS(to), toDir)
	}
	for _, name := range names {
		if err == nil {
			err = writeFile(NewFS(to), toDir+"/"+name, bytesOf(t, from, fromDir+"/"+name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func bytesOf(t rapid.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := env.ReadFile(NewFS(fs), name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// makeSnapshot exports what entries 1 to index of a program leave, into dir, in several files.
func makeSnapshot(t rapid.TB, fs vfs.FS, dir string, p program, id core.ShardID, index uint64) Snapshot {
	t.Helper()
	s, err := Open(Options{FS: vfs.NewMem(), Dir: "db", Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	s.fileBytes = 16 << 10
	sh, err := s.Shard(id)
	for i := uint64(1); i <= index && err == nil; i++ {
		err = p.apply(sh, i)
	}
	var snap Snapshot
	if err == nil {
		snap, err = sh.Export(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	carry(t, s.o.FS, dir, fs, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return snap
}

// files returns the names in a directory; one that is missing has none.
func files(t *testing.T, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// quotaFS is a disk of a limited number of bytes, until more are granted. Removed files give no room back.
type quotaFS struct {
	vfs.FS
	left atomic.Int64
}

func newQuotaFS(left int64) *quotaFS {
	q := &quotaFS{FS: vfs.NewMem()}
	q.left.Store(left)
	return q
}

func (q *quotaFS) take(want int) (granted int) {
	for {
		left := q.left.Load()
		granted = int(min(left, int64(want)))
		if q.left.CompareAndSwap(left, left-int64(granted)) {
			return granted
		}
	}
}

func (q *quotaFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return quotaFile{f, q}, nil
}

func (q *quotaFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return q.wrap(q.FS.Create(name, c))
}

func (q *quotaFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return q.wrap(q.FS.OpenReadWrite(name, c, o...))
}

type quotaFile struct {
	vfs.File
	q *quotaFS
}

func (f quotaFile) Write(b []byte) (int, error) {
	granted := f.q.take(len(b))
	n, err := f.File.Write(b[:granted])
	if err == nil && granted < len(b) {
		err = &errno{syscall.ENOSPC}
	}
	return n, err
}

// errno wraps an error number as file systems do.
type errno struct{ syscall.Errno }

func (e *errno) Unwrap() error { return e.Errno }

// brokenFS fails each operation that hit says, by its name and the file's.
type brokenFS struct {
	vfs.FS
	mu      sync.Mutex // guards the fields below
	hit     func(op, name string) bool
	with    error    // what it fails with; nil means errBroken
	changes []string // operations that changed the disk, failed ones excepted
}

var errBroken = errors.New("input/output error")

func (b *brokenFS) do(op, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doLocked(op, name)
}

func (b *brokenFS) doLocked(op, name string) error {
	if b.hit != nil && b.hit(op, name) {
		return cmp.Or(b.with, errBroken)
	}
	b.changes = append(b.changes, op+" "+name)
	return nil
}

func (b *brokenFS) arm(hit func(op, name string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hit = hit
}

func (b *brokenFS) changed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.changes)
}

func (b *brokenFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := b.do("create", name); err != nil {
		return nil, err
	}
	f, err := b.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return brokenFile{f, b, name}, nil
}

func (b *brokenFS) Remove(name string) error {
	if err := b.do("remove", name); err != nil {
		return err
	}
	return b.FS.Remove(name)
}

func (b *brokenFS) Link(from, to string) error {
	b.mu.Lock() // held over the link: MemFS takes a lock twice for it, and would wait for ever for a hit that clones it between
	defer b.mu.Unlock()
	if err := b.doLocked("link", to); err != nil {
		return err
	}
	return b.FS.Link(from, to)
}

func (b *brokenFS) Rename(from, to string) error {
	if err := b.do("rename", to); err != nil {
		return err
	}
	return b.FS.Rename(from, to)
}

func (b *brokenFS) OpenDir(name string) (vfs.File, error) {
	f, err := b.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return brokenFile{f, b, name}, nil
}

type brokenFile struct {
	vfs.File
	b    *brokenFS
	name string
}

func (f brokenFile) Write(p []byte) (int, error) {
	if err := f.b.do("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f brokenFile) Sync() error {
	if err := f.b.do("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f brokenFile) SyncData() error {
	if err := f.b.do("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}
