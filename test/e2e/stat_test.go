package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// statOf returns what the kernel says of a process, from its state on; nothing once it is gone.
func statOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // a program's name may be anything
}

func gone(stat []string) bool { return len(stat) < 2 || stat[0] == "Z" || stat[0] == "X" }

// runs reports whether a process exists and is not merely waiting to be reaped.
func runs(pid int) bool { return !gone(statOf(pid)) }

// children returns the processes that run and whose parent is pid.
func children(pid int) (out []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, name := range dirs {
		child, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if f := statOf(child); !gone(f) && f[1] == strconv.Itoa(pid) {
			out = append(out, child)
		}
	}
	return out
}

// bytesRead is how much a process has read, of files and of sockets; 0 once it is gone.
func bytesRead(pid int) (n int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)) // gone: nothing is scanned
	_, _ = fmt.Sscanf(string(b), "rchar: %d", &n)
	return n
}
