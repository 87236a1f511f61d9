//go:build faults

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Enabled says whether this build can plant faults.
const Enabled = true

// hook decides what happens at each point; the environment may plant a kill before any code runs.
var hook = planned(os.Getenv("MILLRACE_FAULT_KILL"))

// Set installs the function that decides what happens at each point; nil removes it.
func Set(f func(name string) error) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// Point returns the fault planted at name, if any. Names are package.event, such as wal.synced.
func Point(name string) error {
	if f := hook.Load(); f != nil {
		return (*f)(name)
	}
	return nil
}

// planned reads a plan such as wal.synced:3: at its third visit of that point the process ends as by kill -9. A plan that
// makes no sense fails every point.
func planned(plan string) *atomic.Pointer[func(name string) error] {
	out := new(atomic.Pointer[func(name string) error])
	if plan == "" {
		return out
	}
	point, count, _ := strings.Cut(plan, ":")
	left, err := strconv.ParseInt(count, 10, 64)
	visits := new(atomic.Int64)
	f := func(name string) error {
		switch {
		case err != nil || left < 1 || point == "":
			return fmt.Errorf("fault plan %q: want a point, a colon and a count", plan)
		case name == point && visits.Add(1) == left:
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // nothing can refuse it
			select {}                                           // and nothing comes after it
		}
		return nil
	}
	out.Store(&f)
	return out
}
