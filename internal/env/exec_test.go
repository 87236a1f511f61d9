package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sh(t *testing.T, script string) Command {
	t.Helper()
	path, err := SystemExec{}.Find("sh")
	if err != nil {
		t.Skip("no shell")
	}
	return Command{Path: path, Args: []string{"-c", script}, StderrBytes: 100}
}

func TestAProgramGetsItsInputAndAnEnvironmentThatIsGiven(t *testing.T) {
	t.Setenv("MILLRACE_SECRET", "hidden")
	c := sh(t, `cat; echo "${MILLRACE_SECRET-none} $GIVEN" >&2; pwd; exit 3`)
	c.Env = []string{"GIVEN=yes", "PATH=/usr/bin:/bin"}
	var out bytes.Buffer
	c.Feed = func(w io.Writer) error { _, err := io.WriteString(w, "in\n"); return err }
	c.Drain = func(r io.Reader) error { _, err := io.Copy(&out, r); return err }
	e, err := SystemExec{}.Run(t.Context(), c)
	if err != nil || e.Code != 3 || e.OK() || !slices.Equal(e.Lines(), []string{"none yes"}) || out.String() != "in\n/\n" {
		t.Errorf("%+v, %v; printed %q", e, err, out.String())
	}
}

func TestAProgramThatIsNotThereIsNamedSo(t *testing.T) {
	if _, err := (SystemExec{}).Find("no-such-program-of-any-machine"); !errors.Is(err, ErrNoProgram) {
		t.Errorf("found: %v", err)
	}
	if _, err := (SystemExec{}).Run(t.Context(), Command{Path: "/nonexistent/program"}); err == nil {
		t.Error("it was run")
	}
}

func TestAProgramThatEndsBeforeItsInputDoesIsNoError(t *testing.T) {
	c := sh(t, "exit 7")
	c.Feed = func(w io.Writer) error { _, err := io.Copy(w, endless{}); return err }
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || e.Code != 7 {
		t.Errorf("%+v, %v", e, err)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestErrorOutputIsBounded(t *testing.T) {
	c := sh(t, `i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done >&2`)
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || !e.OK() || len(e.Stderr) > 101 || len(e.Stderr) < 50 {
		t.Errorf("code %d, %d bytes, %v", e.Code, len(e.Stderr), err)
	}
}

// alive reports whether a process of that number runs; a zombie, which only its parent can end, does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestWhenTheCallerIsGoneTheWholeGroupIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := sh(t, `sleep 1000 & echo $!; wait`)
	c.Env = []string{"PATH=/usr/bin:/bin"}
	child := 0
	c.Drain = func(r io.Reader) error {
		var b [32]byte
		n, err := r.Read(b[:])
		child, _ = strconv.Atoi(strings.TrimSpace(string(b[:n])))
		cancel()
		return err
	}
	e, err := SystemExec{}.Run(ctx, c)
	if !errors.Is(err, context.Canceled) || e.Signal != syscall.SIGKILL.String() || child == 0 {
		t.Errorf("%+v, %v, child %d", e, err, child)
	}
	// Run has seen the end of the output, which the child held too.
	for deadline := time.Now().Add(10 * time.Second); alive(child); {
		if time.Now().After(deadline) {
			t.Fatal("the child lives on")
		}
	}
}

func TestWhatAProgramLeavesBehindIsKilled(t *testing.T) {
	c := sh(t, `sleep 1000 & exit 0`)
	c.Env = []string{"PATH=/usr/bin:/bin"}
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || !e.OK() {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestAFailureOfEitherStreamEndsTheProgram(t *testing.T) {
	broken := errors.New("broken")
	c := sh(t, `sleep 1000`)
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.Feed = func(io.Writer) error { return broken }
	if e, err := (SystemExec{}).Run(t.Context(), c); !errors.Is(err, broken) || e.OK() {
		t.Errorf("fed: %+v, %v", e, err)
	}
	c.Feed, c.Drain = nil, func(io.Reader) error { return broken }
	if e, err := (SystemExec{}).Run(t.Context(), c); !errors.Is(err, broken) || e.OK() {
		t.Errorf("drained: %+v, %v", e, err)
	}
}
