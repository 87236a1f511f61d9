package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath starts this program again. The kernel resolves it to the program that runs, even if its
// file was replaced or removed since, so a supervisor is always of the same version as its worker.
const selfPath = "/proc/self/exe"

// childAttributes puts a command into its own process group, and has the kernel kill it when the
// thread that started it ends. A thread ends at the latest with its process, however the process
// dies. The caller must lock its goroutine to the thread for as long as the child may run.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// keepOrphans makes this process the subreaper of its descendants: when the parent of one ends, the
// process becomes a child of this one instead of a child of init. So none escapes by leaving its
// session.
func keepOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4; without it what leaves its session is not ended
}

// hideMemory stops other processes of the same user, such as the commands of tasks, from reading
// the environment and memory of this one, which hold its token. Root can still read them.
func hideMemory() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// children returns the process ids of the children of pid, including children that have ended and
// were not waited for.
func children(pid int) []int {
	var out []int
	eachProcess(func(dir string, id int) {
		if st, ok := processOf(dir); ok && st.parent == pid {
			out = append(out, id)
		}
	})
	return out
}

// processStatus is what the kernel says of a process.
type processStatus struct {
	// Process id of the parent.
	parent int
	// The process has ended and was not waited for (a zombie).
	ended bool
	// It is a thread of the kernel, which has no environment.
	kernel bool
	// When it started, in ticks (hundredths of a second) since the machine started.
	began uint64
}

// processOf reads the status of a process from its directory below /proc. It returns false if the
// process has ended, or if the file does not have the expected form.
func processOf(dir string) (processStatus, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return processStatus{}, false
	}
	// The fields follow the name of the program, which is in parentheses and may itself contain
	// spaces and parentheses: so they are counted from the last closing one.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	// Numbers of the fields after the name, see proc_pid_stat(5).
	const state, parent, flags, began = 0, 1, 6, 19
	if len(fields) <= began {
		return processStatus{}, false
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(fields[i]), 10, 64) // the kernel writes nothing else
		return n
	}
	const kernelThread = 0x200000 // PF_KTHREAD
	return processStatus{
		parent: int(number(parent)), ended: fields[state][0] == 'Z' || fields[state][0] == 'X',
		kernel: number(flags)&kernelThread != 0, began: number(began),
	}, true
}

// ticks returns the time since the machine started, in hundredths of a second: the unit in which
// the kernel tells when a process began.
func ticks() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // it is there since Linux 2.6.39
	return uint64(now.Nano()) / 1e7
}

// withVariables returns the ids of all processes that were started with every one of vars in their
// environment. unclear reports that some process that began at or after since has no environment at
// all: it may be between fork and exec, and have these variables a moment later. Processes of other
// users cannot be read and are skipped.
func withVariables(since uint64, vars ...string) (found []int, unclear bool) {
	eachProcess(func(dir string, id int) {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			return // it has ended, or belongs to another user
		}
		// A process has no environment before its program starts, after it has ended, or because it
		// was started with none.
		if len(env) == 0 {
			st, ok := processOf(dir)
			unclear = unclear || ok && !st.ended && !st.kernel && st.began >= since
			return
		}
		// The environment is a list of NAME=VALUE, each ended by NUL.
		has := map[string]bool{}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			has[string(v)] = true
		}
		for _, v := range vars {
			if !has[v] {
				return
			}
		}
		found = append(found, id)
	})
	return found, unclear
}

// eachProcess calls fn for each process of this machine, with its directory below /proc and its id.
// A process may end meanwhile.
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
