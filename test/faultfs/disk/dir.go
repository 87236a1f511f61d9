package disk

import (
	"maps"
	"os"
	"slices"
	"syscall"
	"time"
)

// dir is what a directory has: now, as programs see it, and on the disk.
type dir struct {
	now, disk map[string]*node
	// log are the changes that lead from disk to now, oldest first.
	log []*change
}

// change is one change of a directory: either all of it is on the disk, or nothing.
type change struct {
	// in is the directory that it changes.
	in    *node
	names []named
	// needs is a change of another directory that must be on the disk no later than this one: a
	// file that is renamed to another directory must not get lost in between.
	needs *change
	// done says that it is on the disk.
	done bool
}

// named says what a name stands for from then on; without a node the name is free.
type named struct {
	name string
	node *node
}

// touches reports whether two changes are about the same name, so that their order must stay.
func (c *change) touches(other *change) bool {
	for _, a := range c.names {
		for _, b := range other.names {
			if a.name == b.name {
				return true
			}
		}
	}
	return false
}

// before lists the changes that must be on the disk before c: the one that it needs, and earlier
// ones in its directory about the same names.
func (c *change) before() (out []*change) {
	if c.needs != nil {
		out = append(out, c.needs)
	}
	for _, earlier := range c.in.log {
		if earlier == c {
			break
		}
		if c.touches(earlier) {
			out = append(out, earlier)
		}
	}
	return out
}

// keep puts a change on the disk, after those that must be there before it.
func (c *change) keep() {
	if c.done {
		return
	}
	for _, b := range c.before() {
		b.keep()
	}
	c.done = true
	for _, to := range c.names {
		if to.node == nil {
			delete(c.in.dir.disk, to.name)
		} else {
			c.in.dir.disk[to.name] = to.node
		}
	}
}

// prune forgets changes that are on the disk.
func (n *node) prune() {
	n.log = slices.DeleteFunc(n.log, func(c *change) bool { return c.done })
}

// change changes names of a directory, as programs see them. It is not on the disk yet. It counts
// the names of the nodes.
func (n *node) change(needs *change, names ...named) *change {
	for _, to := range names {
		if was := n.now[to.name]; was != nil {
			was.names--
		}
		if to.node == nil {
			delete(n.now, to.name)
		} else {
			n.now[to.name] = to.node
			to.node.names++
		}
	}
	c := &change{in: n, needs: needs, names: names}
	n.log = append(n.log, c)
	n.mtime = time.Now()
	return c
}

// Lookup finds what a name of a directory stands for, and holds it until it is forgotten.
func (s *Session) Lookup(parent uint64, name string) (a Attr, errno syscall.Errno) {
	if _, errno = s.enter(Read); errno != 0 {
		return a, errno
	}
	defer s.leave()
	p, errno := s.folder(parent)
	if errno != 0 {
		return a, errno
	}
	n := p.now[name]
	if n == nil {
		return a, syscall.ENOENT
	}
	n.held++
	return n.attr(), 0
}

// Entry is a name of a directory.
type Entry struct {
	Name string
	ID   uint64
	Mode uint32
}

// List lists the names of a directory in order.
func (s *Session) List(id uint64) (out []Entry, errno syscall.Errno) {
	if _, errno = s.enter(Read); errno != 0 {
		return nil, errno
	}
	defer s.leave()
	p, errno := s.folder(id)
	if errno != 0 {
		return nil, errno
	}
	for _, name := range slices.Sorted(maps.Keys(p.now)) {
		out = append(out, Entry{name, p.now[name].id, p.now[name].mode})
	}
	return out, 0
}

// Make makes a file, a directory or a symbolic link to target, and holds it until it is forgotten.
func (s *Session) Make(parent uint64, name string, mode, uid, gid uint32, target string) (a Attr, errno syscall.Errno) {
	if _, errno = s.enter(Name, Grow); errno != 0 {
		return a, errno
	}
	defer s.leave()
	p, errno := s.folder(parent)
	if errno != 0 {
		return a, errno
	}
	if p.now[name] != nil {
		return a, syscall.EEXIST
	}
	n := s.d.newNode(mode, uid, gid)
	n.target = target
	if mode&syscall.S_IFMT == syscall.S_IFREG {
		f, err := os.OpenFile(s.d.path(n.id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			delete(s.d.nodes, n.id)
			return a, errnoOf(err)
		}
		n.file = newFile(f)
	}
	p.change(nil, named{name, n})
	n.held++
	return n.attr(), 0
}

// Link gives a file another name, and holds it once more.
func (s *Session) Link(id, parent uint64, name string) (a Attr, errno syscall.Errno) {
	if _, errno = s.enter(Name, Grow); errno != 0 {
		return a, errno
	}
	defer s.leave()
	n, errno := s.node(id)
	if errno != 0 {
		return a, errno
	}
	p, errno := s.folder(parent)
	switch {
	case errno != 0:
		return a, errno
	case n.dir != nil:
		return a, syscall.EPERM
	case p.now[name] != nil:
		return a, syscall.EEXIST
	}
	p.change(nil, named{name, n})
	n.held++
	return n.attr(), 0
}

// Remove takes a name of a file, or that of an empty directory.
func (s *Session) Remove(parent uint64, name string, directory bool) syscall.Errno {
	if _, errno := s.enter(Name); errno != 0 {
		return errno
	}
	defer s.leave()
	p, errno := s.folder(parent)
	if errno != 0 {
		return errno
	}
	n := p.now[name]
	if errno := removable(n, directory); errno != 0 {
		return errno
	}
	p.change(nil, named{name, nil})
	return 0
}

// removable says why a name cannot be removed; 0: it can.
func removable(n *node, directory bool) syscall.Errno {
	switch {
	case n == nil:
		return syscall.ENOENT
	case directory && n.dir == nil:
		return syscall.ENOTDIR
	case !directory && n.dir != nil:
		return syscall.EISDIR
	case directory && len(n.now) > 0:
		return syscall.ENOTEMPTY
	}
	return 0
}

// Rename gives what a name stands for another name. What the other name stood for goes, unless free
// says that it must be free.
func (s *Session) Rename(from uint64, name string, to uint64, as string, free bool) syscall.Errno {
	if _, errno := s.enter(Name); errno != 0 {
		return errno
	}
	defer s.leave()
	a, errno := s.folder(from)
	if errno != 0 {
		return errno
	}
	b, errno := s.folder(to)
	if errno != 0 {
		return errno
	}
	n, old := a.now[name], b.now[as]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n == old:
		return 0
	case old != nil && free:
		return syscall.EEXIST
	case old != nil:
		if errno := removable(old, n.dir != nil); errno != 0 {
			return errno
		}
	}
	// Within a directory a rename is one change. Between two it is two, of which the new name must
	// not come later on the disk.
	if a == b {
		a.change(nil, named{name, nil}, named{as, n})
		return 0
	}
	added := b.change(nil, named{as, n})
	a.change(added, named{name, nil})
	return 0
}

// Target reads a symbolic link.
func (s *Session) Target(id uint64) (string, syscall.Errno) {
	if _, errno := s.enter(Read); errno != 0 {
		return "", errno
	}
	defer s.leave()
	n, errno := s.node(id)
	if errno != 0 {
		return "", errno
	}
	if n.mode&syscall.S_IFMT != syscall.S_IFLNK {
		return "", syscall.EINVAL
	}
	return n.target, 0
}
