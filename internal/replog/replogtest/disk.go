// Package replogtest has disks for tests of what is durable: one that loses power, and one that fails, fills up and counts.
//
// Only tests import it.
package replogtest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/store"
)

// Disk is a file system in memory that knows what was synced.
type Disk struct {
	env.FS
	mem *vfs.MemFS
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return onDisk(vfs.NewCrashableMem()) }

// onDisk returns a disk over a file system in memory.
func onDisk(mem *vfs.MemFS) *Disk { return &Disk{FS: store.NewFS(mem), mem: mem} }

// System returns the machine's file system, for benchmarks.
func System() env.FS { return store.NewFS(store.SystemFS()) }

// VFS is the same disk for the store, so that one crash hits both.
func (d *Disk) VFS() vfs.FS { return d.mem }

// Crash returns the disk as a power cut now may leave it: all that was synced, and of each 4 KiB block and each name
// that was not, keep percent. It leaves d as it is.
func (d *Disk) Crash(keep int, seed uint64) *Disk {
	return onDisk(d.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(seed, seed)),
	}))
}

// ReadFile returns the content of a file.
func ReadFile(fsys env.FS, name string) ([]byte, error) {
	return env.ReadFile(fsys, name, math.MaxInt64)
}

// WriteFile replaces the content of a file, durably.
func WriteFile(fsys env.FS, name string, b []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Clone(b)) // with invariants, it spoils what it was given
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Copy returns a disk with the files of one directory of fsys, all durable.
func Copy(fsys env.FS, dir string) (*Disk, error) {
	d := NewDisk()
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	if err := d.MkdirAll(dir); err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := ReadFile(fsys, dir+"/"+name)
		if err != nil {
			return nil, err
		}
		if err := WriteFile(d, dir+"/"+name, b); err != nil {
			return nil, err
		}
	}
	return d, nil
}
