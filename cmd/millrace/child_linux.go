package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath is this program, also when its file was replaced or removed since.
const selfPath = "/proc/self/exe"

// childAttributes puts a command in a process group of its own, and has the kernel kill it when the thread that started
// it ends, as every thread does with this process, however it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// keepOrphans makes processes below this one its children when their parents end.
func keepOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4; without it what leaves its session is not ended
}

// hideMemory keeps other processes of the same user, such as commands, from reading this one's environment and memory, which hold
// its token. It does not bind root.
func hideMemory() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// children returns the ids of pid's children, those that have ended and were not waited for too.
func children(pid int) []int {
	var out []int
	eachProcess(func(dir string, id int) {
		b, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			return // it has ended
		}
		_, rest, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte(" ")) // the name may hold anything
		fields := bytes.Fields(rest)                                            // state, parent, ...
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(pid) {
			out = append(out, id)
		}
	})
	return out
}

// withVariables returns the ids of the processes that were started with all of these variables.
func withVariables(vars ...string) []int {
	var out []int
	eachProcess(func(dir string, id int) {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			return // it has ended, or belongs to another user
		}
		has := map[string]bool{}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			has[string(v)] = true
		}
		for _, v := range vars {
			if !has[v] {
				return
			}
		}
		out = append(out, id)
	})
	return out
}

// eachProcess calls fn with each process's directory and id.
func eachProcess(fn func(dir string, id int)) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return // the pattern is a constant
	}
	for _, dir := range names {
		if id, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			fn(dir, id)
		}
	}
}
