// Package disk is a file system that knows, of everything written to it, whether it would be there after a power cut.
//
// What programs see is the newest state of all. What the disk has is kept separately: a cut of the power takes the files back
// to that, but for a share of the rest, drawn from a seed, because some of it may have been on its way. The model is more
// careless than any journalling file system, within what POSIX allows, so that what survives it survives those:
//
//   - Bytes of a file, and its length, are on the disk once an fsync or fdatasync of that file has returned, and only those
//     that were written before it began. Of the others each sector of 512 bytes survives or not by itself, whatever was
//     written first; a sector is written whole or not at all. A length that survives without its bytes shows zeros.
//   - A name is on the disk once an fsync of its directory has returned. An fsync of a new file does not keep its name,
//     although ext4 does that; nor does an fsync of a directory keep what is in its files, or in directories below.
//   - Of names that were not synced each survives or not by itself, in any order, but for two things: changes of one name
//     stay in order, and a rename is one change. A rename to another directory never loses the file, but before both
//     directories are synced it may show under both names.
//   - After an fsync that failed what it was to write is not on the disk, looks as if it were, and is not tried again: later
//     syncs succeed without it. That is what Linux does.
//   - Modes, owners and times are kept without a sync. No test asks for them after a power cut.
//   - sync and syncfs keep nothing.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Disk is the file system. Programs use it through a Session, which ends when the power is cut.
// Gate is where each call comes by first.
type Disk struct {
	*Gate
	// store is the folder of the files' bytes, each file under its number.
	store string

	mu sync.Mutex // guards the fields below, and all nodes
	// nodes has every node that can still be reached, by number.
	nodes map[uint64]*node
	// last is the number that was given last.
	last uint64
	root *node
	// boots counts sessions; those before the last have ended.
	boots uint64
}

// rootID is the number of the root, as FUSE wants it.
const rootID = 1

// New makes an empty file system whose bytes are stored in a folder.
func New(store string) (*Disk, error) {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of bytes: %w", err)
	}
	d := &Disk{Gate: newGate(), store: store, nodes: map[uint64]*node{}}
	d.root = d.newNode(syscall.S_IFDIR|0o700, uint32(os.Geteuid()), uint32(os.Getegid()))
	return d, nil
}

// Session is what programs use from one power-up to the next power cut. Its methods answer as system calls do.
type Session struct {
	d    *Disk
	boot uint64
}

// Boot begins a session.
func (d *Disk) Boot() *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boots++
	d.open()
	return &Session{d, d.boots}
}

// node is a file, a directory or a symbolic link. Exactly one of dir, file and target is set.
type node struct {
	id                  uint64
	mode, uid, gid      uint32
	atime, mtime, ctime time.Time
	// target is that of a symbolic link.
	target string
	// names is the number of names that it has now.
	names int
	// held is how often the kernel was told of it without having forgotten it. A node that is held
	// is kept although it has no name.
	held uint64
	// dir is set for a directory, and file for a file.
	*dir
	//
	*file
}

// newNode makes a node without a name. The caller holds the lock, except in New.
func (d *Disk) newNode(mode, uid, gid uint32) *node {
	d.last++
	now := time.Now()
	n := &node{id: d.last, mode: mode, uid: uid, gid: gid, atime: now, mtime: now, ctime: now}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n.dir = &dir{now: map[string]*node{}, disk: map[string]*node{}}
	}
	d.nodes[n.id] = n
	return n
}

// failedAt notes which file a failed write was to, by one of its names.
func (d *Disk) failedAt(id uint64) {
	d.mu.Lock()
	name := "a file without a name"
	for _, n := range d.nodes {
		if n.dir == nil {
			continue
		}
		for at, in := range n.now {
			if in.id == id {
				name = at
			}
		}
	}
	d.mu.Unlock()
	d.gmu.Lock()
	d.calls.Wrote = name
	d.gmu.Unlock()
}

// path is where the bytes of a file are stored.
func (d *Disk) path(id uint64) string { return filepath.Join(d.store, strconv.FormatUint(id, 10)) }

// enter waits at the gate and takes the lock, which the caller gives back by leave unless there was
// an error. The gate comes first, so that a call which hangs does not hold up others. A session
// that has ended gets EIO.
func (s *Session) enter(kinds ...Kind) (short bool, errno syscall.Errno) {
	if short, errno = s.d.pass(kinds...); errno != 0 {
		return false, errno
	}
	s.d.mu.Lock()
	if s.boot != s.d.boots {
		s.d.mu.Unlock()
		return false, syscall.EIO
	}
	return short, 0
}

func (s *Session) leave() { s.d.mu.Unlock() }

// node finds a node by number. ESTALE: the kernel names one that is gone.
func (s *Session) node(id uint64) (*node, syscall.Errno) {
	n := s.d.nodes[id]
	if n == nil {
		return nil, syscall.ESTALE
	}
	return n, 0
}

// folder finds a directory by number.
func (s *Session) folder(id uint64) (*node, syscall.Errno) {
	n, errno := s.node(id)
	if errno == 0 && n.dir == nil {
		errno = syscall.ENOTDIR
	}
	return n, errno
}

// Attr says what a node is.
type Attr struct {
	ID                  uint64
	Mode, UID, GID      uint32
	Links               uint32
	Size                int64
	Atime, Mtime, Ctime time.Time
}

// attr is what a node is. A directory always has two links, whatever is in it.
func (n *node) attr() Attr {
	a := Attr{ID: n.id, Mode: n.mode, UID: n.uid, GID: n.gid, Links: uint32(n.names), Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime}
	switch {
	case n.file != nil:
		a.Size = n.size
	case n.dir != nil:
		a.Links = 2
	default:
		a.Size = int64(len(n.target))
	}
	return a
}

// Attr reads what a node is.
func (s *Session) Attr(id uint64) (a Attr, errno syscall.Errno) {
	if _, errno = s.enter(Read); errno != 0 {
		return a, errno
	}
	defer s.leave()
	n, errno := s.node(id)
	if errno != 0 {
		return a, errno
	}
	return n.attr(), 0
}

// Change is what changes of a node; nil fields stay.
type Change struct {
	Mode, UID, GID *uint32
	Size           *int64
	Atime, Mtime   *time.Time
}

// Set changes what a node is.
func (s *Session) Set(id uint64, c Change) (a Attr, errno syscall.Errno) {
	kinds := []Kind{Write}
	if c.Size == nil {
		kinds = []Kind{Name}
	}
	if _, errno = s.enter(kinds...); errno != 0 {
		return a, errno
	}
	defer s.leave()
	n, errno := s.node(id)
	if errno != 0 {
		return a, errno
	}
	if c.Size != nil {
		if n.file == nil {
			return a, syscall.EISDIR
		}
		if err := n.truncate(*c.Size); err != nil {
			return a, errnoOf(err)
		}
		n.mtime = time.Now()
	}
	if c.Mode != nil {
		n.mode = n.mode&syscall.S_IFMT | *c.Mode&^syscall.S_IFMT
	}
	set(&n.uid, c.UID)
	set(&n.gid, c.GID)
	set(&n.atime, c.Atime)
	set(&n.mtime, c.Mtime)
	n.ctime = time.Now()
	return n.attr(), 0
}

// set copies a value, if there is one.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Forget takes back that many tellings of a node. A node that is neither held nor named goes with its bytes.
func (s *Session) Forget(id, times uint64) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if n := s.d.nodes[id]; n != nil && s.boot == s.d.boots {
		n.held -= min(times, n.held)
		if n.held == 0 && n.names == 0 {
			s.d.sweep()
		}
	}
}

// sweep forgets nodes that no process can reach any more, and removes their bytes. A node is
// reached through names now, through names on the disk, and through changes in between, because a
// power cut may bring any of them back.
func (d *Disk) sweep() {
	reached := map[*node]bool{}
	var reach func(n *node)
	reach = func(n *node) {
		if n == nil || reached[n] {
			return
		}
		reached[n] = true
		if n.dir == nil {
			return
		}
		for _, of := range []map[string]*node{n.now, n.dir.disk} {
			for _, child := range of {
				reach(child)
			}
		}
		for _, c := range n.log {
			for _, to := range c.names {
				reach(to.node)
			}
		}
	}
	reach(d.root)
	for _, n := range d.nodes {
		if n.held > 0 {
			reach(n)
		}
	}
	for id, n := range d.nodes {
		if reached[n] {
			continue
		}
		delete(d.nodes, id)
		if n.file != nil {
			_ = errors.Join(n.f.Close(), os.Remove(d.path(id))) // its bytes are of no use to anybody
		}
	}
}

// Space says how many bytes there are, and how many are free.
func (s *Session) Space() (st syscall.Statfs_t, errno syscall.Errno) {
	if _, errno = s.enter(Read); errno != 0 {
		return st, errno
	}
	defer s.leave()
	if err := syscall.Statfs(s.d.store, &st); err != nil {
		return st, errnoOf(err)
	}
	if s.d.full() {
		st.Bavail, st.Bfree = 0, 0
	}
	return st, 0
}

// Export moves everything, as programs saw it last, into a folder, where it can be looked at after
// the end. The disk cannot be used afterwards.
func (d *Disk) Export(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boots++
	return d.export(d.root, to)
}

// export links the files of a directory into a folder. At the end it removes the store, whose files
// live on under their new names.
func (d *Disk) export(n *node, to string) error {
	for _, name := range slices.Sorted(maps.Keys(n.now)) {
		child, path := n.now[name], filepath.Join(to, name)
		var err error
		switch {
		case child.dir != nil:
			if err = os.Mkdir(path, fs.FileMode(child.mode)&fs.ModePerm); err == nil {
				err = d.export(child, path)
			}
		case child.file != nil:
			err = os.Link(d.path(child.id), path)
		default:
			err = os.Symlink(child.target, path)
		}
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	if n == d.root {
		return os.RemoveAll(d.store)
	}
	return nil
}

// errnoOf is the number of a system's error, or EIO.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
