package bench

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttr makes a child end with this process, and keeps the terminal's Ctrl-C to this one.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// systemClocks are the kernel's.
type systemClocks struct{}

// clock reads one of the kernel's clocks; 0 when there is no such clock.
func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Realtime is the wall clock.
func (systemClocks) Realtime() time.Duration { return clock(unix.CLOCK_REALTIME) }

// Monotonic stands still while the host is suspended.
func (systemClocks) Monotonic() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

// Boottime does not.
func (systemClocks) Boottime() time.Duration { return clock(unix.CLOCK_BOOTTIME) }

func systemObserver() Observer { return procfs{"/proc"} }

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// free returns the free bytes of the file system that holds dir.
func free(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// fileSystem names the type of the file system that holds dir.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	}
	if n, ok := names[int64(s.Type)]; ok {
		return n
	}
	return "unknown"
}
