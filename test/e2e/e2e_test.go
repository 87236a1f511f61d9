package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/campaign"
	"github.com/millrace/millrace/test/chaos/proc"
)

var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		root, err := campaign.Root(".")
		if err == nil {
			program, err = proc.Build(context.Background(), root, dir, "invariants")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// checking says that make check runs the tests.
func checking() bool { return os.Getenv("MILLRACE_CHECK") != "" }

// onlyInCheck leaves a test to make check, which sets MILLRACE_CHECK, and says why.
func onlyInCheck(t *testing.T, why string) {
	t.Helper()
	if !checking() {
		t.Skipf("make check runs it: %s", why)
	}
}

// serve starts a server and returns it with a client that follows it over restarts.
func serve(t *testing.T, flags ...string) (*proc.Server, *millrace.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Flags: flags}, "default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	t.Cleanup(func() { s.Kill() })
	c, err := millrace.Dial(t.Context(), millrace.Address("server.test:1"), millrace.Insecure(),
		millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial), millrace.Timeout(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c
}

func logOf(s *proc.Server) string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

var upper = millrace.Job[string, string]("upper")

func TestATaskItsResultAndItsEffectSurviveARestart(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done, err := upper.Add(ctx, c, "first")
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	w := c.Worker(millrace.Slots(2))
	upper.Handle(w, func(_ context.Context, task *millrace.Task, arg string) (string, error) {
		task.Effects().KV("seen").Put(task.ID, arg)
		return arg + "!", nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	if got, err := done.Wait(ctx); err != nil || got != "first!" {
		t.Errorf("result %q, err %v", got, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("drain: %v", err)
	}
	waiting, err := upper.Add(ctx, c, "second", millrace.In(time.Hour))
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	if err := s.Doctor(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}

	info, err := done.Get(ctx)
	if err != nil || info.State != millrace.Completed || info.Attempt != 1 {
		t.Errorf("first task is %+v, err %v", info, err)
	}
	if v, err := c.KV("seen").Get(ctx, done.ID); err != nil || v.String() != "first" {
		t.Errorf("effect %q, err %v", v, err)
	}
	if info, err := waiting.Get(ctx); err != nil || info.State != millrace.Scheduled {
		t.Errorf("second task is %+v, err %v", info, err)
	}
}

func TestAServerWithoutTokensDoesNotStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0").CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok || ctx.Err() != nil {
		t.Errorf("it started, or hung: err %v\n%s", err, out)
	}
}
