package server

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/env"
)

// groupLimit is where version 2 of control groups shows a container its own memory limit.
const groupLimit = "/sys/fs/cgroup/memory.max"

// machineMemory returns the memory of the machine, or of the control group when that is less.
func machineMemory(fs env.FS) int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 4 * minMemory
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	f, err := fs.Open(groupLimit)
	if err != nil {
		return memory
	}
	defer f.Close() //nolint:errcheck // nothing was written
	b := make([]byte, 64)
	n, _ := f.ReadAt(b, 0) // it ends before the buffer does
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(b[:n])), 10, 64); err == nil && limit > 0 {
		memory = min(memory, limit)
	}
	return memory
}
