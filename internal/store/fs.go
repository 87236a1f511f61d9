package store

import (
	"fmt"
	"io"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
)

// SystemFS is the machine's file system.
func SystemFS() vfs.FS { return vfs.Default }

// dirMode keeps what a node stores to its own user.
const dirMode = 0o700

// writeCategory names, in the file system's own statistics, what the store writes outside of the database.
const writeCategory vfs.DiskWriteCategory = "millrace"

// NewFS adapts the file system beneath the database, so that the log and everything else durable is written through
// the same one: a crash then hits all of it at one instant.
func NewFS(fs vfs.FS) env.FS { return fileSystem{fs} }

// fileSystem gives the file system beneath the database the form that the other packages use.
type fileSystem struct{ fs vfs.FS }

// Create makes a file, or empties one that is there.
func (f fileSystem) Create(name string) (env.File, error) {
	return wrapFile(f.fs.Create(name, writeCategory))
}

// Open opens a file for reading.
func (f fileSystem) Open(name string) (env.File, error) { return wrapFile(f.fs.Open(name)) }

// OpenReadWrite opens a file for reading and writing, and makes it if it is missing.
func (f fileSystem) OpenReadWrite(name string) (env.File, error) {
	return wrapFile(f.fs.OpenReadWrite(name, writeCategory))
}

// OpenDir opens a directory, so that its entries can be synced.
func (f fileSystem) OpenDir(name string) (env.File, error) { return wrapFile(f.fs.OpenDir(name)) }

func (f fileSystem) Remove(name string) error { return f.fs.Remove(name) }

func (f fileSystem) Rename(from, to string) error { return f.fs.Rename(from, to) }

func (f fileSystem) Link(from, to string) error { return f.fs.Link(from, to) }

func (f fileSystem) MkdirAll(dir string) error { return f.fs.MkdirAll(dir, dirMode) }

func (f fileSystem) Lock(name string) (io.Closer, error) { return f.fs.Lock(name) }

func (f fileSystem) List(dir string) ([]string, error) { return f.fs.List(dir) }

// Size is the length of a file in bytes.
func (f fileSystem) Size(name string) (int64, error) {
	info, err := f.fs.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Stamp describes the content of a file.
func (f fileSystem) Stamp(name string) (env.Stamp, error) {
	info, err := f.fs.Stat(name)
	if err != nil {
		return env.Stamp{}, err
	}
	s := env.Stamp{Size: info.Size(), Modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode, s.Changed = uint64(sys.Dev), sys.Ino, changeTime(sys)
	}
	return s, nil
}

// Disk is the room of the file system that a path lies in, in bytes.
func (f fileSystem) Disk(path string) (free, total uint64, err error) {
	u, err := f.fs.GetDiskUsage(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read disk usage: %w", err)
	}
	return u.AvailBytes, u.TotalBytes, nil
}

// wrapFile hides the error's absence behind a nil interface: a nil vfs.File must not become a non-nil env.File.
func wrapFile(f vfs.File, err error) (env.File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
