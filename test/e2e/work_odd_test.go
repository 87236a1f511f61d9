//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// oddCommand is a command that does not behave as commands should, and what becomes of its task.
type oddCommand struct {
	name, script string
	maxRun       time.Duration // 0: none
	state        millrace.State
	result       string // of a task that is completed
	message      string // that the error of one that is dead holds
}

var oddCommands = []oddCommand{
	{name: "leaves a child with its output", script: `sleep 600 & echo done`, state: millrace.Completed, result: "done\n"},
	{name: "traps SIGTERM and ends well", script: `trap 'exit 0' TERM; while :; do sleep 0.02; done`, maxRun: time.Second, state: millrace.Dead},
	{name: "ignores SIGTERM", script: `trap '' TERM; while :; do sleep 0.02; done`, maxRun: time.Second, state: millrace.Dead},
	{name: "prints without end", script: `yes | head -c $PRINTED`, state: millrace.Dead, message: "1048576 bytes"},
	{name: "closes its input at once", script: `exec <&-; echo ok`, state: millrace.Completed, result: "ok\n"},
	{name: "forks and ends", script: `(sh -c 'trap "" TERM HUP; sleep 600' &) ; exit 0`, state: millrace.Completed},
	{name: "leaves its session", script: `setsid sleep 600 & setsid sh -c 'setsid sleep 600 & setsid sleep 600 &'; echo out`, state: millrace.Completed, result: "out\n"},
	{name: "kills its parent", script: `setsid sleep 600 & kill -9 $PPID; sleep 600`, state: millrace.Dead, message: "supervisor was killed"},
	{name: "signals its parent", script: `kill $PPID; kill -INT $PPID; kill -HUP $PPID; kill $PPID; echo alive`, state: millrace.Completed, result: "alive\n"},
	{name: "sleeps past max_run", script: `sleep 600`, maxRun: time.Second, state: millrace.Dead},
	{name: "fills the disk", script: `cat /dev/zero > "$(dirname "$MILLRACE_EFFECTS")/big"; exit 3`, state: millrace.Dead, message: "exit status 3"},
	{name: "dies of a signal", script: `kill -SEGV $$`, state: millrace.Dead, message: "signal"},
	{name: "stops its parent", script: `kill -STOP $PPID; sleep 600`, maxRun: time.Second, state: millrace.Dead},
	{name: "puts a pipe in the place of its effects", script: `rm "$MILLRACE_EFFECTS"; mkfifo "$MILLRACE_EFFECTS"`, state: millrace.Dead, message: "regular file"},
	{name: "writes effects without end", script: `yes '{"op":"kv_add","keyspace":"k","key":"n","delta":1}' | head -c 5000000 > "$MILLRACE_EFFECTS"`, state: millrace.Dead, message: "4194304"},
	{name: "removes its effects", script: `rm -r "$(dirname "$MILLRACE_EFFECTS")"`, state: millrace.Dead, message: "removed"},
	{name: "points its effects elsewhere", script: `ln -sf /etc/hostname "$MILLRACE_EFFECTS"`, state: millrace.Dead, message: "regular file"},
}

// TestNoCommandEndsItsWorker runs commands that end in every odd way: the worker goes on, the task ends as its row of the manual
// says, never more run at once than there are slots, and nothing is left behind. MILLRACE_ODD says how many of each, else 4.
func TestNoCommandEndsItsWorker(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	for _, odd := range oddCommands {
		t.Run(strings.ReplaceAll(odd.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			n, printed := 4, 20_000_000
			if v := os.Getenv("MILLRACE_ODD"); v != "" {
				n, printed = atoi(t, v), 1_000_000_000
			}
			queue := "odd-" + strings.ReplaceAll(odd.name, " ", "-")
			ctx := bounded(t, 10*time.Minute)
			job := millrace.Job[[]byte, []byte](queue).Attempts(1)
			if odd.maxRun > 0 {
				job = job.MaxRun(odd.maxRun)
			}
			var ids []string
			for range n {
				h, err := job.Add(ctx, c, bytes.Repeat([]byte("x"), 300_000))
				noErr(t, err)
				ids = append(ids, h.ID)
			}
			tmp := t.TempDir()
			if odd.name == "fills the disk" {
				tmp = filepath.Join(smallDisk(t, 8<<20).At, "tmp")
				noErr(t, os.Mkdir(tmp, 0o700))
			}
			run := exec.CommandContext(ctx, program, "work", "--server", s.Address(), "-q", queue, "-c", "4", "--kill-after", "300ms", "--drain", "--shell", "--exec", odd.script)
			run.Env = append(os.Environ(), "MILLRACE_TOKEN="+s.Tokens[0].Secret, "TMPDIR="+tmp, "PRINTED="+strconv.Itoa(printed))
			var said bytes.Buffer
			run.Stdout, run.Stderr = &said, &said
			noErr(t, run.Start())
			most := watchCommands(ctx, queue)
			if err := run.Wait(); err != nil {
				t.Errorf("the worker ended: %v\n%s", err, said.String())
			}
			if got := most(); got > 4 {
				t.Errorf("%d commands ran at once in 4 slots", got)
			}
			if left := tokensRunning(queue); len(left) > 0 {
				t.Errorf("processes of %d tasks are left", len(left))
			}
			for _, id := range ids {
				info, err := c.Task(ctx, id)
				noErr(t, err)
				if info.State != odd.state || info.Attempt != 1 || info.Crashes != 0 || odd.state == millrace.Completed && string(info.Result) != odd.result || !strings.Contains(info.ErrorMessage, odd.message) {
					t.Errorf("task %s: %v after %d attempts and %d crashes, result %q, error %q", id, info.State, info.Attempt, info.Crashes, info.Result, info.ErrorMessage)
				}
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("the temporary directory holds %v, %v", left, err)
			}
		})
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	noErr(t, err)
	return n
}

// watchCommands counts attempts of queue that have processes, until most is called, which returns the highest count.
func watchCommands(ctx context.Context, queue string) (most func() int) {
	ctx, stop := context.WithCancel(ctx)
	highest := 0
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			highest = max(highest, len(tokensRunning(queue)))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() int {
		stop()
		watch.Wait()
		return highest
	}
}

// tokensRunning returns the tokens of the attempts of queue that have a process.
func tokensRunning(queue string) map[string]bool {
	out := map[string]bool{}
	names, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is a constant
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte("MILLRACE_TASK_QUEUE="+queue+"\x00")) {
			continue
		}
		for v := range strings.SplitSeq(string(env), "\x00") {
			if token, ok := strings.CutPrefix(v, "MILLRACE_TASK_TOKEN="); ok {
				out[token] = true
			}
		}
	}
	return out
}

// TestACommandHasNoTokenUnlessAskedFor: what a command prints is read by many, and a token writes past the end of a lease.
func TestACommandHasNoTokenUnlessAskedFor(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	token := s.Tokens[0].Secret
	file := filepath.Join(t.TempDir(), "token")
	noErr(t, os.WriteFile(file, []byte(token), 0o600))
	for i, tc := range []struct {
		args []string
		env  bool
		want bool
	}{
		{env: true},
		{args: []string{"--token-file", file}},
		{args: []string{"--pass-token"}, env: true, want: true},
		{args: []string{"--pass-token", "--token-file", file}, want: true},
	} {
		queue := fmt.Sprint("token-", i)
		h, err := millrace.Job[string, string](queue).Add(ctx, c, "")
		noErr(t, err)
		args := append([]string{"work", "--server", s.Address(), "-q", queue, "--once"}, tc.args...)
		run := exec.CommandContext(ctx, program, append(args, "--shell", "--exec", `env; cat /proc/$PPID/environ | tr '\0' '\n'`)...)
		run.Env = []string{"PATH=" + os.Getenv("PATH"), "MILLRACE_SERVE_JOIN_TOKEN=secret", "HOME=/home/somebody"}
		if tc.env {
			run.Env = append(run.Env, "MILLRACE_TOKEN="+token)
		}
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		info, err := c.Task(ctx, h.ID)
		noErr(t, err)
		if got := strings.Contains(string(info.Result), token); got != tc.want {
			t.Errorf("%v: the command has the token: %v, want %v", tc.args, got, tc.want)
		}
		if !strings.Contains(string(info.Result), "HOME=/home/somebody\n") || !strings.Contains(string(info.Result), "MILLRACE_TASK_ID="+h.ID) || strings.Contains(string(info.Result), "JOIN_TOKEN") {
			t.Errorf("%v: the command's environment is\n%s", tc.args, info.Result)
		}
	}
}

// TestAWorkerThatIsKilledLeavesNothing: what its commands started in other sessions ends with it too, and its temporary files go.
func TestAWorkerThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	const queue = "killed-worker"
	for range 3 {
		_, err := millrace.Job[string, string](queue).Add(ctx, c, "x")
		noErr(t, err)
	}
	tmp := t.TempDir()
	run := exec.CommandContext(ctx, program, "work", "--server", s.Address(), "-q", queue, "-c", "3", "--shell", "--exec",
		`setsid sleep 600 & sh -c 'trap "" TERM; setsid sleep 600' & touch "$(dirname "$MILLRACE_EFFECTS")/up"; wait`)
	run.Env = append(os.Environ(), "MILLRACE_TOKEN="+s.Tokens[0].Secret, "TMPDIR="+tmp)
	noErr(t, run.Start())
	eventually(t, "three commands run", func() bool {
		up, err := filepath.Glob(filepath.Join(tmp, "*", "up"))
		return err == nil && len(up) == 3
	})
	noErr(t, run.Process.Kill())
	_ = run.Wait() // killed, as it should be
	eventually(t, "all that it started has ended", func() bool { return len(tokensRunning(queue)) == 0 })
	eventually(t, "its temporary files are gone", func() bool {
		left, err := os.ReadDir(tmp)
		return err == nil && len(left) == 0
	})
}
