package bench

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestThePacersThreadGoesBeforeAllOthersAndIsAsItWasAfterwards(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if before.Policy != unix.SCHED_NORMAL {
		t.Skipf("threads are of policy %d here", before.Policy)
	}
	for _, urgent := range []bool{true, false} {
		_, release := newPaceClock(urgent)
		inside, err := unix.SchedGetAttr(0, 0)
		release()
		if err != nil {
			t.Fatal(err)
		}
		realTime := urgent && mayBeRealTime(t)
		sliced := inside.Runtime == paceSliceNanos || inside.Runtime == 0 // before Linux 6.12 there is none
		if (inside.Policy == unix.SCHED_FIFO) != realTime || !realTime && !sliced {
			t.Errorf("urgent %t: a pacer's thread has policy %d and a slice of %d ns", urgent, inside.Policy, inside.Runtime)
		}
		after, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if after.Policy != before.Policy || after.Nice != before.Nice || after.Priority != before.Priority {
			t.Errorf("the thread was %+v before the pacer, and is %+v after it", before, after)
		}
	}
}

// mayBeRealTime reports whether a thread of this process may be one of real time.
func mayBeRealTime(t *testing.T) bool {
	t.Helper()
	may := make(chan bool)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: pacePriority}
		may <- unix.SchedSetAttr(0, &a, 0) == nil
	}()
	return <-may
}
