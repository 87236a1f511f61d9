package env

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownThread keeps the goroutine on its thread: the kernel sends a child the signal of its parent's death when the thread
// that made it ends, and the runtime may end one that is idle.
func ownThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// processAttributes puts a child into a group of its own, and has it killed when this process is.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit bounds a process from outside, and with it all that it starts later.
func limit(pid int, l Limits) error {
	for _, r := range []struct {
		resource int
		value    uint64
		always   bool
	}{
		{unix.RLIMIT_CORE, 0, true},
		{unix.RLIMIT_DATA, l.MemoryBytes, false},
		{unix.RLIMIT_FSIZE, l.FileBytes, false},
		{unix.RLIMIT_CPU, uint64((l.CPU + time.Second - 1) / time.Second), false},
	} {
		if r.value == 0 && !r.always {
			continue
		}
		err := unix.Prlimit(pid, r.resource, &unix.Rlimit{Cur: r.value, Max: r.value}, nil)
		if err != nil && err != unix.ESRCH { // a process that has ended already needs no limit
			return fmt.Errorf("limit process: %w", err)
		}
	}
	return nil
}
