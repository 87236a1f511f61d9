package main

import (
	"errors"
	"fmt"
	"log"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/millrace/millrace/test/faultfs/disk"
)

// mounted is a disk, and where it is mounted. fs is the newest mount: each power cut ends one and
// begins another.
type mounted struct {
	d  *disk.Disk
	at string
	fs *fuse.Server
}

// maxWrite is the largest write of the kernel, in bytes.
const (
	maxWrite = 1 << 20
	// cached is how long the kernel may rely on names and attributes: only the kernel changes them.
	cached = time.Hour
	// closedWithin is how long the kernel may take to let go of the mount: processes that used it have ended.
	closedWithin = 10 * time.Second
)

// up mounts the disk for a new session, and returns when it can be used.
func (m *mounted) up() error {
	server, err := fuse.NewServer(&bridge{RawFileSystem: fuse.NewDefaultRawFileSystem(), s: m.d.Boot(), lists: map[uint64][]disk.Entry{}}, m.at, &fuse.MountOptions{
		FsName: "faultfs", Name: "faultfs", DirectMountStrict: true, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV,
		MaxWrite: maxWrite, DisableXAttrs: true, DisableReadDirPlus: true, Logger: log.Default(),
	})
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	m.fs = server
	go server.Serve()
	return server.WaitMount()
}

// down unmounts, and waits until the kernel has let go. A detached mount disappears for new calls at once.
func (m *mounted) down() error {
	if err := syscall.Unmount(m.at, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		m.fs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(closedWithin):
		return errors.New("unmount: somebody has files open")
	}
}

// bridge answers the kernel's calls by a session of the disk. Names of its methods are those of FUSE; each
// translates arguments and results and decides nothing, except where its comment says so.
type bridge struct {
	fuse.RawFileSystem
	s *disk.Session

	mu sync.Mutex // guards the fields below
	// opened numbers directories that were opened, and lists has what each reader of one was given.
	opened uint64
	lists  map[uint64][]disk.Entry
}

func (b *bridge) String() string { return "faultfs" }

func status(errno syscall.Errno) fuse.Status { return fuse.Status(errno) }

// attr copies what a node is, with its size in blocks of 512 bytes too.
func attr(a disk.Attr, out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink, out.Uid, out.Gid = a.ID, a.Mode, a.Links, a.UID, a.GID
	out.Size, out.Blocks, out.Blksize = uint64(a.Size), uint64(a.Size+511)/512, 4096
	out.SetTimes(&a.Atime, &a.Mtime, &a.Ctime)
}

// entry tells the kernel of a node, which it may rely on: it is the only one that changes names and
// attributes.
func entry(a disk.Attr, out *fuse.EntryOut) {
	out.NodeId = a.ID
	attr(a, &out.Attr)
	out.SetEntryTimeout(cached)
	out.SetAttrTimeout(cached)
}

func (b *bridge) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	a, errno := b.s.Lookup(in.NodeId, name)
	if errno == 0 {
		entry(a, out)
	}
	return status(errno)
}

func (b *bridge) Forget(id, times uint64) { b.s.Forget(id, times) }

func (b *bridge) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	a, errno := b.s.Attr(in.NodeId)
	if errno == 0 {
		attr(a, &out.Attr)
		out.SetTimeout(cached)
	}
	return status(errno)
}

func (b *bridge) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	var c disk.Change
	if v, ok := in.GetMode(); ok {
		c.Mode = &v
	}
	if v, ok := in.GetUID(); ok {
		c.UID = &v
	}
	if v, ok := in.GetGID(); ok {
		c.GID = &v
	}
	if v, ok := in.GetSize(); ok {
		size := int64(v)
		c.Size = &size
	}
	if v, ok := in.GetATime(); ok {
		c.Atime = &v
	}
	if v, ok := in.GetMTime(); ok {
		c.Mtime = &v
	}
	a, errno := b.s.Set(in.NodeId, c)
	if errno == 0 {
		attr(a, &out.Attr)
		out.SetTimeout(cached)
	}
	return status(errno)
}

// make answers the calls that make something. target is that of a symbolic link.
func (b *bridge) make(in *fuse.InHeader, name string, mode uint32, target string, out *fuse.EntryOut) fuse.Status {
	a, errno := b.s.Make(in.NodeId, name, mode, in.Uid, in.Gid, target)
	if errno == 0 {
		entry(a, out)
	}
	return status(errno)
}

// Mknod makes files only: sockets and devices are not needed.
func (b *bridge) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return status(syscall.ENOTSUP)
	}
	return b.make(&in.InHeader, name, in.Mode, "", out)
}

func (b *bridge) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return b.make(&in.InHeader, name, in.Mode&^syscall.S_IFMT|syscall.S_IFDIR, "", out)
}

func (b *bridge) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return b.make(in, name, syscall.S_IFLNK|0o777, target, out)
}

func (b *bridge) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	target, errno := b.s.Target(in.NodeId)
	return []byte(target), status(errno)
}

func (b *bridge) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return status(b.s.Remove(in.NodeId, name, false))
}

func (b *bridge) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return status(b.s.Remove(in.NodeId, name, true))
}

// renameFree is RENAME_NOREPLACE: the new name must be free.
const renameFree = 1

func (b *bridge) Rename(_ <-chan struct{}, in *fuse.RenameIn, name, as string) fuse.Status {
	if in.Flags&^renameFree != 0 {
		return status(syscall.EINVAL)
	}
	return status(b.s.Rename(in.NodeId, name, in.Newdir, as, in.Flags == renameFree))
}

func (b *bridge) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	a, errno := b.s.Link(in.Oldnodeid, in.NodeId, name)
	if errno == 0 {
		entry(a, out)
	}
	return status(errno)
}

func (b *bridge) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (b *bridge) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return b.make(&in.InHeader, name, in.Mode&^syscall.S_IFMT|syscall.S_IFREG, "", &out.EntryOut)
}

// Open truncates where it must. There are no handles: a node's number is enough.
func (b *bridge) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	if in.Flags&syscall.O_TRUNC == 0 {
		return fuse.OK
	}
	_, errno := b.s.Set(in.NodeId, disk.Change{Size: new(int64)})
	return status(errno)
}

func (b *bridge) Read(_ <-chan struct{}, in *fuse.ReadIn, into []byte) (fuse.ReadResult, fuse.Status) {
	n, errno := b.s.Read(in.NodeId, into, int64(in.Offset))
	if errno != 0 {
		return nil, status(errno)
	}
	return fuse.ReadResultData(into[:n]), fuse.OK
}

func (b *bridge) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, errno := b.s.Write(in.NodeId, data, int64(in.Offset))
	return uint32(n), status(errno)
}

// Flush does nothing: closing a file keeps nothing.
func (b *bridge) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (b *bridge) Release(<-chan struct{}, *fuse.ReleaseIn) {}

// Fsync and FsyncDir wait until the disk has what was written before.
func (b *bridge) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(b.s.Sync(in.NodeId))
}

func (b *bridge) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(b.s.Sync(in.NodeId))
}

// keepSize is FALLOC_FL_KEEP_SIZE: blocks are reserved, and the length stays.
const keepSize = 1

func (b *bridge) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	switch in.Mode {
	case 0:
		return status(b.s.Reserve(in.NodeId, int64(in.Offset+in.Length)))
	case keepSize:
		return status(b.s.Reserve(in.NodeId, 0))
	}
	return status(syscall.EOPNOTSUPP)
}

func (b *bridge) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	out.Fh = b.opened
	return fuse.OK
}

func (b *bridge) ReleaseDir(in *fuse.ReleaseIn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lists, in.Fh)
}

// ReadDir gives the names that there were when its reader began, so that names which come and go
// meanwhile hide no others.
func (b *bridge) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	b.mu.Lock()
	all, begun := b.lists[in.Fh]
	b.mu.Unlock()
	if !begun || in.Offset == 0 {
		var errno syscall.Errno
		if all, errno = b.s.List(in.NodeId); errno != 0 {
			return status(errno)
		}
		b.mu.Lock()
		b.lists[in.Fh] = all
		b.mu.Unlock()
	}
	for i := in.Offset; i < uint64(len(all)); i++ {
		if !out.AddDirEntry(fuse.DirEntry{Name: all[i].Name, Ino: all[i].ID, Mode: all[i].Mode, Off: i + 1}) {
			break
		}
	}
	return fuse.OK
}

func (b *bridge) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	st, errno := b.s.Space()
	if errno == 0 {
		out.FromStatfsT(&st)
	}
	return status(errno)
}
