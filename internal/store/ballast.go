package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/internal/env"
)

// maxBallast is the most that is held back: enough to complete and delete what there is, and little on a big disk.
const maxBallast = 1 << 30

// BallastSize returns how much of the disk is held back by default: 1 %, at most 1 GiB.
func (d *Dir) BallastSize() (int64, error) {
	_, total, err := d.fs.Disk(d.path)
	if err != nil {
		return 0, fmt.Errorf("size the ballast: %w", err)
	}
	return int64(min(total/100, maxBallast)), nil
}

// ReserveBallast holds size bytes of the disk back in a file, so that there is room to work with when the rest is full.
// 0 means BallastSize. Where the file system cannot reserve without writing, it holds nothing back. Doing it again does
// no harm, and makes a ballast whole that a full disk left incomplete.
func (d *Dir) ReserveBallast(size int64) (err error) {
	if size == 0 {
		if size, err = d.BallastSize(); err != nil {
			return err
		}
	}
	f, err := d.fs.OpenReadWrite(d.ballast())
	if err != nil {
		return fmt.Errorf("open the ballast: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Preallocate(0, size); err != nil {
		return fmt.Errorf("reserve the ballast: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync the ballast: %w", err)
	}
	return nil
}

// ReleaseBallast gives the room back that ReserveBallast took. It reports whether there was a ballast.
func (d *Dir) ReleaseBallast() (released bool, err error) {
	switch err := d.fs.Remove(d.ballast()); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("release the ballast: %w", err)
	}
	if err := env.SyncDir(d.fs, d.path); err != nil {
		return true, fmt.Errorf("sync %s: %w", d.path, err)
	}
	return true, nil
}

// HasBallast reports whether the directory has a ballast.
func (d *Dir) HasBallast() bool {
	_, err := d.fs.Size(d.ballast())
	return err == nil
}

// ballast is the path of the ballast file.
func (d *Dir) ballast() string { return filepath.Join(d.path, ballastName) }
