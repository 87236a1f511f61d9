//go:build unix

package env

import (
	"io/fs"
	"os"
	"syscall"
)

// PrivateFiles has all files and directories that this process makes from now on, and those that its children make, be
// its user's alone. It is the process's umask, so only a command that writes data calls it.
func PrivateFiles() { syscall.Umask(int(othersAll)) }

// foreignOwner returns the owner of a file that belongs neither to root nor to this process's user. To a process of root
// every file is as good as its own: root has chosen it.
func foreignOwner(info fs.FileInfo) (uid int, foreign bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	me := os.Geteuid()
	return int(st.Uid), me != 0 && st.Uid != 0 && int(st.Uid) != me
}

// LockHolder returns the process that holds the lock on a file, or 0 if it cannot be told. This process must not hold it:
// looking would end its own lock.
func LockHolder(name string) (pid int) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // nothing was written
	spec := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &spec); err != nil || spec.Type == syscall.F_UNLCK {
		return 0
	}
	return int(spec.Pid)
}
