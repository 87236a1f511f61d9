package server

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/store"
)

// ownGroups lists the control groups of this process, one hierarchy per line: its number, its
// controllers, and the path of the group.
const ownGroups = "/proc/self/cgroup"

// machineMemory returns the memory of the machine in bytes, or the limit of a control group of this
// process if that is less. If the system does not tell, it assumes four times the least.
func machineMemory(fs env.FS) int64 {
	memory := int64(4 * minMemory)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
	}
	return min(memory, groupMemory(fs, memory))
}

// groupMemory returns the least memory limit of this process's control groups and all groups above
// them, or most if there is none. A limit holds for all groups below, so each path is walked up to
// the root. In a container the own group may be mounted as the root whatever the path says, so the
// root is always looked at.
func groupMemory(fs env.FS, most int64) int64 {
	for line := range strings.Lines(readSmall(fs, ownGroups) + "\n0::/\n") {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max" // version 2
		if slices.Contains(strings.Split(part[1], ","), "memory") {
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
		} else if part[0] != "0" {
			continue
		}
		for group := path.Clean("/" + part[2]); ; group = path.Dir(group) {
			limit, err := strconv.ParseInt(strings.TrimSpace(readSmall(fs, path.Join(root, group, file))), 10, 64)
			if err == nil && limit > 0 { // version 2 says max where there is none
				most = min(most, limit)
			}
			if group == "/" {
				break
			}
		}
	}
	return most
}

// readSmall returns the first 4 KiB of a file; an empty text if it cannot be read.
func readSmall(fs env.FS, name string) string {
	f, err := fs.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // nothing was written
	b := make([]byte, 4<<10)
	n, _ := f.ReadAt(b, 0) // it ends before the buffer does
	return string(b[:n])
}

// residentMemory returns how many bytes of memory the process takes; 0: the system does not tell.
func residentMemory() uint64 {
	// Sizes in pages: of the whole address space, and of what is in memory.
	fields := strings.Fields(readSmall(store.NewFS(store.SystemFS()), "/proc/self/statm"))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
