package replogtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/env"
)

// SectorBytes is what a Sectors disk writes at a time: of a write that was not synced, a crash keeps whole sectors.
const SectorBytes = 512

// Sectors is a file system in memory that knows what was synced, sector by sector and name by name. What a crash leaves
// depends on nothing but what was done and the seed, unlike a Disk's. It is for one goroutine: a simulator's.
type Sectors struct {
	dirs map[string]*sectorDir // by path; the root is "."
	// locks are the names that are locked.
	locks map[string]bool
}

// sectorDir is a directory's names: those there are, and those that a crash leaves.
type sectorDir struct{ now, synced map[string]*sectorFile }

// sectorFile is a file's content. old holds what a crash may find instead in sectors that were changed since they were
// synced; a sector beyond size is zeros.
type sectorFile struct {
	data []byte
	old  map[int64][]byte
	// syncedSize is the length that a crash may leave.
	syncedSize int64
}

// NewSectors returns an empty disk.
func NewSectors() *Sectors {
	return &Sectors{dirs: map[string]*sectorDir{".": newSectorDir()}, locks: make(map[string]bool)}
}

// newSectorDir returns a directory without names.
func newSectorDir() *sectorDir {
	return &sectorDir{now: make(map[string]*sectorFile), synced: make(map[string]*sectorFile)}
}

// Crash returns the disk as a power cut now may leave it: all that was synced, and of each sector, length and name that
// was not, keep percent. It leaves s as it is.
func (s *Sectors) Crash(keep int, seed uint64) *Sectors {
	rng := rand.New(rand.NewPCG(seed, seed))
	kept := func() bool { return rng.IntN(100) < keep }
	out := NewSectors()
	copies := make(map[*sectorFile]*sectorFile) // a file may have one name that is synced and another that is not
	for _, path := range slices.Sorted(maps.Keys(s.dirs)) {
		d, left := s.dirs[path], newSectorDir()
		names := maps.Clone(d.synced)
		for _, name := range slices.Sorted(maps.Keys(d.now)) {
			if d.synced[name] != d.now[name] && kept() {
				names[name] = d.now[name]
			}
		}
		for _, name := range slices.Sorted(maps.Keys(d.synced)) {
			if d.now[name] == nil && kept() {
				delete(names, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			f := names[name]
			if copies[f] == nil {
				copies[f] = f.crash(kept)
			}
			left.now[name], left.synced[name] = copies[f], copies[f]
		}
		out.dirs[path] = left
	}
	return out
}

// crash returns the file as a power cut leaves it.
func (f *sectorFile) crash(kept func() bool) *sectorFile {
	out := &sectorFile{data: slices.Clone(f.data), old: make(map[int64][]byte)}
	for _, n := range slices.Sorted(maps.Keys(f.old)) {
		if kept() {
			continue
		}
		at := n * SectorBytes
		if at < int64(len(out.data)) {
			clear(out.data[at:min(at+SectorBytes, int64(len(out.data)))])
			copy(out.data[at:], f.old[n])
		}
	}
	if int64(len(f.data)) != f.syncedSize && !kept() {
		out.resize(f.syncedSize)
	}
	out.syncedSize = int64(len(out.data))
	return out
}

// resize cuts the content, or adds zeros.
func (f *sectorFile) resize(n int64) {
	if n <= int64(len(f.data)) {
		f.data = f.data[:n]
		return
	}
	f.data = append(f.data, make([]byte, n-int64(len(f.data)))...)
}

// write changes content, and keeps what was there before of sectors that were not changed since the last sync.
func (f *sectorFile) write(p []byte, off int64) {
	end := off + int64(len(p))
	for n := off / SectorBytes; n*SectorBytes < end; n++ {
		if _, dirty := f.old[n]; dirty {
			continue
		}
		at := min(n*SectorBytes, int64(len(f.data)))
		f.old[n] = slices.Clone(f.data[at:min(at+SectorBytes, int64(len(f.data)))])
	}
	if end > int64(len(f.data)) {
		f.resize(end)
	}
	copy(f.data[off:], p)
}

// sync makes the content and the length what every crash leaves.
func (f *sectorFile) sync() {
	clear(f.old)
	f.syncedSize = int64(len(f.data))
}

// Files returns the paths of all files, in order.
func (s *Sectors) Files() []string {
	var out []string
	for _, dir := range slices.Sorted(maps.Keys(s.dirs)) {
		for _, name := range slices.Sorted(maps.Keys(s.dirs[dir].now)) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out
}

// find returns the directory of a name, the name in it, and the file; nil for what is not there.
func (s *Sectors) find(name string) (d *sectorDir, base string, f *sectorFile) {
	name = filepath.Clean(name)
	d, base = s.dirs[filepath.Dir(name)], filepath.Base(name)
	if d != nil {
		f = d.now[base]
	}
	return d, base, f
}

// missing is the error about a name that is not there.
func missing(name string) error { return fmt.Errorf("%s: %w", name, fs.ErrNotExist) }

// Create makes a file, empty if it was there before.
func (s *Sectors) Create(name string) (env.File, error) {
	d, base, _ := s.find(name)
	if d == nil {
		return nil, missing(name)
	}
	f := &sectorFile{old: make(map[int64][]byte)}
	d.now[base] = f
	return &openSectors{f: f}, nil
}

// Open opens for reading.
func (s *Sectors) Open(name string) (env.File, error) {
	_, _, f := s.find(name)
	if f == nil {
		return nil, missing(name)
	}
	return &openSectors{f: f}, nil
}

// OpenReadWrite opens for reading and writing, and makes the file if it is not there.
func (s *Sectors) OpenReadWrite(name string) (env.File, error) {
	if _, _, f := s.find(name); f != nil {
		return &openSectors{f: f}, nil
	}
	return s.Create(name)
}

// OpenDir opens a directory.
func (s *Sectors) OpenDir(name string) (env.File, error) {
	d := s.dirs[filepath.Clean(name)]
	if d == nil {
		return nil, missing(name)
	}
	return &openSectors{dir: d}, nil
}

// Remove removes a file.
func (s *Sectors) Remove(name string) error {
	d, base, f := s.find(name)
	if f == nil {
		return missing(name)
	}
	delete(d.now, base)
	return nil
}

// Rename moves a file. Until its directories are synced a crash may find it under either name, both or, if the old name
// was never synced, none.
func (s *Sectors) Rename(from, to string) error {
	d, base, f := s.find(from)
	if f == nil {
		return missing(from)
	}
	target, as, _ := s.find(to)
	if target == nil {
		return missing(to)
	}
	delete(d.now, base)
	target.now[as] = f
	return nil
}

// Link gives a file a second name, which a crash may lose until its directory is synced.
func (s *Sectors) Link(from, to string) error {
	_, _, f := s.find(from)
	if f == nil {
		return missing(from)
	}
	target, as, taken := s.find(to)
	if target == nil {
		return missing(to)
	}
	if taken != nil {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	target.now[as] = f
	return nil
}

// MkdirAll makes directories. They outlive every crash: what is lost is in them.
func (s *Sectors) MkdirAll(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if s.dirs[at] == nil {
			s.dirs[at] = newSectorDir()
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// Lock locks a file of that name until it is closed, or the power goes.
func (s *Sectors) Lock(name string) (io.Closer, error) {
	name = filepath.Clean(name)
	if s.locks[name] {
		return nil, fmt.Errorf("lock %s: held", name)
	}
	s.locks[name] = true
	return sectorLock{s, name}, nil
}

// sectorLock is a lock that is held.
type sectorLock struct {
	s    *Sectors
	name string
}

// Close ends the lock.
func (l sectorLock) Close() error {
	delete(l.s.locks, l.name)
	return nil
}

// List returns the names in a directory, sorted: of files, and of directories directly below.
func (s *Sectors) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	d := s.dirs[dir]
	if d == nil {
		return nil, missing(dir)
	}
	out := slices.Collect(maps.Keys(d.now))
	for path := range s.dirs {
		if path != dir && filepath.Dir(path) == dir {
			out = append(out, filepath.Base(path))
		}
	}
	slices.Sort(out)
	return out, nil
}

// Size returns a file's length.
func (s *Sectors) Size(name string) (int64, error) {
	_, _, f := s.find(name)
	if f == nil {
		return 0, missing(name)
	}
	return int64(len(f.data)), nil
}

// Stamp returns a file's length alone.
func (s *Sectors) Stamp(name string) (env.Stamp, error) {
	size, err := s.Size(name)
	return env.Stamp{Size: size}, err
}

// Disk says that there is room.
func (s *Sectors) Disk(string) (free, total uint64, err error) { return 1 << 40, 1 << 40, nil }

// openSectors is one open file, or directory.
type openSectors struct {
	// f is the file, or nil for a directory; dir is the directory, or nil for a file.
	f   *sectorFile
	dir *sectorDir
	pos int64
}

// errIsDir says that a directory cannot be read or written as a file.
var errIsDir = errors.New("is a directory")

// Write appends at the file's own position.
func (o *openSectors) Write(p []byte) (int, error) {
	n, err := o.WriteAt(p, o.pos)
	o.pos += int64(n)
	return n, err
}

// WriteAt writes.
func (o *openSectors) WriteAt(p []byte, off int64) (int, error) {
	if o.f == nil {
		return 0, errIsDir
	}
	o.f.write(p, off)
	return len(p), nil
}

// ReadAt reads.
func (o *openSectors) ReadAt(p []byte, off int64) (int, error) {
	if o.f == nil {
		return 0, errIsDir
	}
	if off >= int64(len(o.f.data)) {
		return 0, io.EOF
	}
	n := copy(p, o.f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Preallocate does nothing.
func (o *openSectors) Preallocate(int64, int64) error { return nil }

// Sync makes content and length, or a directory's names, durable.
func (o *openSectors) Sync() error {
	if o.dir != nil {
		o.dir.synced = maps.Clone(o.dir.now)
		return nil
	}
	o.f.sync()
	return nil
}

// SyncData is Sync.
func (o *openSectors) SyncData() error { return o.Sync() }

// Close does nothing: files live as long as their names.
func (o *openSectors) Close() error { return nil }
