//go:build faults

package fault

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestAPlannedKillEndsTheProcessAtItsVisit(t *testing.T) {
	if os.Getenv("MILLRACE_FAULT_KILL") != "" {
		for range 5 {
			if err := Point("a.other"); err != nil {
				os.Exit(3)
			}
		}
		if err := errors.Join(Point("a.b"), Point("a.b")); err != nil {
			os.Exit(4)
		}
		_, _ = os.Stdout.WriteString("twice\n")
		_ = Point("a.b")
		os.Exit(5) // not reached
	}
	for plan, want := range map[string]struct {
		out  string
		kill bool
		code int
	}{
		"a.b:3": {"twice\n", true, -1}, "a.b:1": {"", true, -1}, "a.b": {"", false, 3}, "a.b:x": {"", false, 3},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=TestAPlannedKill")
		cmd.Env = append(os.Environ(), "MILLRACE_FAULT_KILL="+plan)
		out, err := cmd.Output()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			t.Fatalf("plan %s: %v", plan, err)
		}
		status := exit.Sys().(syscall.WaitStatus)
		if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != want.kill || string(out) != want.out || exit.ExitCode() != want.code {
			t.Errorf("plan %s: %v, printed %q", plan, exit, out)
		}
	}
}
