package server

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/env"
)

// ownGroups lists the control groups of this process: hierarchy, controllers and path, one hierarchy a line.
const ownGroups = "/proc/self/cgroup"

// machineMemory returns the memory of the machine, or the limit of a control group that this process is in when that is less.
func machineMemory(fs env.FS) int64 {
	memory := int64(4 * minMemory)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
	}
	return min(memory, groupMemory(fs, memory))
}

// groupMemory returns the least limit of memory of the control groups that this process is in, or most without one. A limit
// holds for all groups below its own, so those above count too. A container may see its own group as the root, whatever path
// the process has outside.
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

// readSmall returns the first 4 KiB of a file, nothing of one that cannot be read.
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
