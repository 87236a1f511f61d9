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
	_, release := newPaceClock()
	inside, err := unix.SchedGetAttr(0, 0)
	release()
	if err != nil {
		t.Fatal(err)
	}
	if inside.Policy != unix.SCHED_FIFO && before.Runtime == 0 {
		t.Skip("no real time for this process, and no slices of threads before Linux 6.12")
	}
	if inside.Policy != unix.SCHED_FIFO && inside.Runtime != paceSliceNanos {
		t.Errorf("a pacer's thread has policy %d and a slice of %d ns", inside.Policy, inside.Runtime)
	}
	after, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if after.Policy != before.Policy || after.Nice != before.Nice || after.Priority != before.Priority {
		t.Errorf("the thread was %+v before the pacer, and is %+v after it", before, after)
	}
}
