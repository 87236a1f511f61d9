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
		if st, ok := processOf(dir); ok && st.parent == pid {
			out = append(out, id)
		}
	})
	return out
}

// processStatus is what the kernel says of a process.
type processStatus struct {
	parent int
	ended  bool   // and was not waited for yet
	kernel bool   // it is a thread of the kernel
	began  uint64 // ticks since the start of the machine
}

// processOf reads a process's status; false: it has ended.
func processOf(dir string) (processStatus, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return processStatus{}, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before may hold anything
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

// ticks is the time since the start of the machine, as the kernel tells that of processes: in hundredths of a second.
func ticks() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // it is there since Linux 2.6.39
	return uint64(now.Nano()) / 1e7
}

// withVariables returns the ids of the processes that were started with all of these variables. unclear says that some process
// that began since has no variables: it may be about to start another program, and have them then.
func withVariables(since uint64, vars ...string) (found []int, unclear bool) {
	eachProcess(func(dir string, id int) {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			return // it has ended, or belongs to another user
		}
		if len(env) == 0 {
			st, ok := processOf(dir)
			unclear = unclear || ok && !st.ended && !st.kernel && st.began >= since
			return
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
		found = append(found, id)
	})
	return found, unclear
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
