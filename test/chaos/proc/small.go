package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// SmallDisk is a real file system in a file, small enough to be filled.
type SmallDisk struct{ At string }

// NewSmallDisk makes and mounts an ext4 of that many bytes below dir. Where that cannot be, the error is a NotRunError.
func NewSmallDisk(dir string, bytes int64) (*SmallDisk, error) {
	if os.Geteuid() != 0 {
		return nil, NotRunError{"only root may mount a file system"}
	}
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes)); err != nil {
		return nil, fmt.Errorf("make a small disk: %w", err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, NotRunError{fmt.Sprintf("%s does not work here: %v: %s", args[0], err, out)}
		}
	}
	return &SmallDisk{at}, nil
}

// filler is the file that takes all the room.
func (d *SmallDisk) filler() string { return filepath.Join(d.At, "filler") }

// Fill writes a file until there is no room left for a kilobyte.
func (d *SmallDisk) Fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	for size := 1 << 20; size >= 1<<10 && err == nil; {
		if _, err = f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size, err = size/2, nil
		}
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// Free takes back what Fill wrote.
func (d *SmallDisk) Free() error { return os.Remove(d.filler()) }

// Close unmounts the disk, which must not be in use any more.
func (d *SmallDisk) Close() error {
	if out, err := exec.Command("umount", d.At).CombinedOutput(); err != nil {
		return fmt.Errorf("unmount: %w: %s", err, out)
	}
	return nil
}
