package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestASecondSignalEndsAServerAtOnce sends one signal while a request that never ends holds the server up for its grace, and
// another one. The exit code is that of the second.
func TestASecondSignalEndsAServerAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second syscall.Signal }{
		"TERM twice":          {syscall.SIGTERM, syscall.SIGTERM},
		"TERM, then INT":      {syscall.SIGTERM, syscall.SIGINT},
		"INT, then TERM":      {syscall.SIGINT, syscall.SIGTERM},
		"HUP ends no server":  {syscall.SIGHUP, 0},
		"PIPE ends no server": {syscall.SIGPIPE, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := serveAdmin(t, "--grace", "10m")
			ctx := bounded(t, time.Minute)
			k, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(), millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial))
			noErr(t, err)
			defer k.Close()
			_, err = k.KV("k").Put(ctx, "a", "1")
			noErr(t, err)
			if c.second != 0 {
				holdUp(t, l.GRPC, l.Admin, s.Tokens[0].Secret)
			}
			noErr(t, syscall.Kill(l.PID, c.first))
			if c.second == 0 {
				_, err = k.KV("k").Put(ctx, "b", "1")
				noErr(t, err)
				noErr(t, s.Stop())
				return
			}
			until(t, "the server stops", func() bool {
				code, why := fetch(t, http.MethodGet, l.Admin, "/readyz")
				return code == http.StatusServiceUnavailable && why == "stopping\n"
			})
			noErr(t, syscall.Kill(l.PID, c.second))
			if code := s.ExitCode(30 * time.Second); code != 128+int(c.second) {
				t.Errorf("exit code %d\n%s", code, logOf(s))
			}
			if _, err := s.Start(ctx); err != nil {
				t.Fatalf("%v\n%s", err, logOf(s))
			}
			if v, err := k.KV("k").Get(ctx, "a"); err != nil || v.String() != "1" {
				t.Errorf("after it a key reads as %q, %v", v.String(), err)
			}
			noErr(t, s.Stop())
		})
	}
}

// holdUp has a server wait for a request that does not end.
func holdUp(t *testing.T, address, admin, token string) {
	t.Helper()
	r := newRaw(t, address, token)
	body := newUnfinished(0)
	t.Cleanup(func() { _ = body.Close() })
	go func() {
		if resp, err := r.open(t.Context(), "TaskService/Create", body); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // it is cut
			resp.Body.Close()
		}
	}()
	until(t, "a request is under way", func() bool { return metric(t, admin, "millrace_api_open_calls") == 1 })
}

// startDemo starts `millrace demo` on many files, whose temporary directory is below dir, and returns when it works on them.
func startDemo(t *testing.T, dir string) (cmd *exec.Cmd, ended <-chan error, said *bytes.Buffer) {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	source := t.TempDir()
	file := filepath.Join(source, "f.go") // that takes a while to check
	noErr(t, os.WriteFile(file, []byte("package p\n"+strings.Repeat("\nvar _ = 1\n", 20_000)), 0o600))
	for i := range 1000 {
		noErr(t, os.Link(file, filepath.Join(source, fmt.Sprintf("f%d.go", i))))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, program, "demo", "--calm", "--source", source)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	said = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = 20 * time.Second // a child that is left holds the streams open
	noErr(t, cmd.Start())
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return cmd, end, said
}

// endsWith waits for the end of a process and of its children, and returns its exit code.
func endsWith(t *testing.T, cmd *exec.Cmd, ended <-chan error, young []int) int {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	for _, pid := range young {
		until(t, "a child ends", func() bool { return !runs(pid) })
	}
	return cmd.ProcessState.ExitCode()
}

func TestAnInterruptedDemoTakesAllWithIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second syscall.Signal
		codes  []int
	}{
		"once":       {0, []int{1}},
		"twice":      {syscall.SIGTERM, []int{128 + int(syscall.SIGTERM), 128 + int(syscall.SIGINT)}}, // they may come in any order
		"and killed": {syscall.SIGKILL, []int{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd, ended, said := startDemo(t, dir)
			var young []int
			until(t, "its server and workers", func() bool {
				young = children(cmd.Process.Pid)
				return len(young) == 3
			})
			t.Cleanup(func() {
				for _, pid := range young {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it is gone, unless the test fails
				}
			})
			if c.second != 0 { // one of its children does not end by itself, so that it waits
				noErr(t, syscall.Kill(young[0], syscall.SIGSTOP))
			}
			noErr(t, cmd.Process.Signal(syscall.SIGINT))
			if c.second != 0 {
				noErr(t, cmd.Process.Signal(c.second))
			}
			if code := endsWith(t, cmd, ended, young); !slices.Contains(c.codes, code) {
				t.Errorf("exit code %d\n%s", code, said.String())
			}
			left, err := os.ReadDir(dir)
			noErr(t, err)
			if c.second == 0 && len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

func TestASecondInterruptEndsABenchAtOnce(t *testing.T) {
	t.Parallel()
	b := startBench(t, "queue.cycle/unbatched", "--runs", "1", "--window", "60s", "--warm-up", "0s", "--no-profile")
	b.untilLoaded()
	young := children(b.cmd.Process.Pid)
	for _, pid := range young { // so that it waits for their ends
		noErr(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	noErr(t, b.cmd.Process.Signal(syscall.SIGINT))
	noErr(t, b.cmd.Process.Signal(syscall.SIGTERM))
	if code := b.code(); code != 128+int(syscall.SIGTERM) && code != 128+int(syscall.SIGINT) { // they may come at once, in any order
		t.Errorf("exit code %d, not that of a signal (%d is that of one interrupt)\n%s", code, bench.ExitInterrupted, b.said.String())
	}
	for _, pid := range young {
		until(t, "a server of the bench ends", func() bool { return !runs(pid) })
	}
}
