//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env/envtest"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// startWork starts `millrace work` against s.
func startWork(t *testing.T, s *proc.Server, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, append([]string{"work", "--server", s.Address()}, args...)...)
	cmd.Env = append(os.Environ(), "MILLRACE_TOKEN="+s.Tokens[0].Secret)
	cmd.Stderr = os.Stderr
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func TestAKilledWorkerLeavesNoCommandRunning(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	const commands = 4
	for i := range commands {
		_, err := millrace.Job[string, string]("q").Add(ctx, c, fmt.Sprint(i))
		noErr(t, err)
	}
	dir := t.TempDir()
	work := startWork(t, s, "-q", "q", "-c", fmt.Sprint(commands), "--shell", "--exec",
		`echo $$ > "`+dir+`/$MILLRACE_TASK_ID.tmp"; mv "`+dir+`/$MILLRACE_TASK_ID.tmp" "`+dir+`/$MILLRACE_TASK_ID.pid"; exec sleep 600`)
	var pids []int
	eventually(t, "all commands run", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "*.pid"))
		noErr(t, err)
		return len(names) == commands
	})
	names, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	noErr(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		noErr(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		noErr(t, err)
		pids = append(pids, pid)
		t.Cleanup(func() {
			if runs(pid) {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill()
				}
			}
		})
		if !runs(pid) {
			t.Errorf("command %d has ended although its worker lives", pid)
		}
	}
	noErr(t, work.Process.Kill())
	_ = work.Wait() // killed, as it should be
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("command %d ends with its worker", pid), func() bool { return !runs(pid) })
	}
}

// TestCommandsOutliveTheThreadsOfTheirWorker: a command is bound to the thread that started it, which must stay for as
// long as the command runs, whatever else the worker does meanwhile.
func TestCommandsOutliveTheThreadsOfTheirWorker(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	const tasks = 60
	var ids []string
	for i := range tasks {
		seconds := "0.05"
		if i%6 == 0 {
			seconds = "1.5" // long enough for many others to begin and end meanwhile
		}
		h, err := millrace.Job[string, string]("q").Add(ctx, c, seconds)
		noErr(t, err)
		ids = append(ids, h.ID)
	}
	work := startWork(t, s, "-q", "q", "-c", "12", "--drain", "--shell", "--exec", `sleep $(tr -d '"')`)
	if err := work.Wait(); err != nil {
		t.Errorf("work: %v", err)
	}
	for _, id := range ids {
		info, err := c.Task(ctx, id)
		noErr(t, err)
		if info.State != millrace.Completed || info.Attempt != 1 {
			t.Errorf("task %s: %v after %d attempts: %s", id, info.State, info.Attempt, info.ErrorMessage)
		}
	}
}

// runPage runs all commands of a page of the documentation, one after the other, against a server of its own. It returns what they
// printed.
func runPage(t *testing.T, path string) (out string, c *millrace.Client) {
	t.Helper()
	s, c := serve(t)
	page, err := os.ReadFile(path)
	noErr(t, err)
	var script strings.Builder
	for rest := string(page); ; {
		_, block, found := strings.Cut(rest, "\n```sh\n")
		if !found {
			break
		}
		block, rest, _ = strings.Cut(block, "\n```")
		script.WriteString(block + "\n")
	}
	bin := t.TempDir()
	noErr(t, os.Symlink(program, filepath.Join(bin, "millrace")))
	cmd := exec.CommandContext(bounded(t, time.Minute), "sh", "-eux", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MILLRACE_URL="+s.Address(), "MILLRACE_TOKEN="+s.Tokens[0].Secret)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	return string(text), c
}

// TestThePageOnTasksIsTrue runs all commands of docs/start/tasks.md, one after the other.
func TestThePageOnTasksIsTrue(t *testing.T) {
	t.Parallel()
	out, c := runPage(t, "../../docs/start/tasks.md")
	for _, want := range []string{"\n+ millrace kv get counts thumbs\n1", " --raw payload\n\"april\"", " 1  going on from page 0\n", "It waits for 2 tasks to end.", " 2  going on from page 1\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if got, err := c.KV("thumbs").Get(bounded(t, time.Minute), "7"); err != nil || string(got.Bytes) != "small" {
		t.Errorf("the key of an effect: %q, %v", got.Bytes, err)
	}
}

// TestThePageOnOperationIsTrue runs all commands of docs/start/operate.md, and looks for what the page says of them.
func TestThePageOnOperationIsTrue(t *testing.T) {
	t.Parallel()
	out, _ := runPage(t, "../../docs/start/operate.md")
	for _, want := range []string{
		"It is the next task of queue \"mail\"", ": the mail server is down", "3 tasks\n", "3 of 3 done", "       3, ", "The task is dead.",
		"Worker \"", "  cancel      done     2 of 2 done", "current  kv_put sent 1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q in\n%s", want, out)
		}
	}
}

// TestThePageOnLimitsIsTrue runs all commands of docs/start/limits.md, and looks for what the page says of them.
func TestThePageOnLimitsIsTrue(t *testing.T) {
	t.Parallel()
	out, _ := runPage(t, "../../docs/start/limits.md")
	for _, want := range []string{
		"ann\ttasks 4\tready 4\trunning 0", "key ann: set", `As many tasks of key "app" run as may: 1.`,
		"app\ttasks 2\tready 1\trunning 1\twaits for concurrency", "key web: paused", "key web: resumed",
		`As much runs under limiter "openai" as may: 2.`, "openai\tused 2 of 2\tat most 600/1m0s", " of summary\n", "openai\tused 3 of 3", "openai\tused 3\t", "is in use by queue transcribe",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q in\n%s", want, out)
		}
	}
}

// TestThePageOnCronsIsTrue runs all commands of docs/start/cron.md, and looks for what the page says of them.
func TestThePageOnCronsIsTrue(t *testing.T) {
	t.Parallel()
	out, _ := runPage(t, "../../docs/start/cron.md")
	for _, want := range []string{
		"at 02:30 every day", "02:30 is skipped; it fires at 03:00", "every 1 minute 30 seconds", "  at 02:00 every day Europe/Berlin  queue reports  next ",
		"  started ", "skipped: overlap  by hand", "\"skipped\":\"overlap\"", "\"key\":\"acme\",\"cost\":5", "removed nightly",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q in\n%s", want, out)
		}
	}
}

// TestThePageOnBatchesIsTrue runs all commands of docs/start/batches.md, and looks for what the page says of them.
func TestThePageOnBatchesIsTrue(t *testing.T) {
	t.Parallel()
	out, _ := runPage(t, "../../docs/start/batches.md")
	for _, want := range []string{
		"  open  2 tasks: 2 waiting", "  finished  2 tasks: 0 waiting, 0 running, 2 completed, 0 dead, 0 cancelled  made ", `"state":"sealed","total":1,"waiting":1`,
		"  finished  1 tasks: 1 waiting", "  finished  1 tasks: 0 waiting, 0 running, 0 completed, 0 dead, 1 cancelled  made ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q in\n%s", want, out)
		}
	}
}

// TestAWorkerTellsWhenItsServerIsLostAndBack: it waits for as long as that takes, and not in silence; then it goes on.
func TestAWorkerTellsWhenItsServerIsLostAndBack(t *testing.T) {
	t.Parallel()
	// The same over restarts. Next to an address that is named, the other listeners have those of a server of its own.
	s, c := serve(t, "--listen", envtest.Ports(t, 1)[0], "--http", "off", "--admin", "off")
	ctx := bounded(t, time.Minute)
	said := filepath.Join(t.TempDir(), "said")
	f, err := os.Create(said)
	noErr(t, err)
	defer f.Close() //nolint:errcheck // the worker's
	cmd := exec.Command(program, "work", "--server", s.Address(), "-q", "q", "--", "cat")
	cmd.Env = append(os.Environ(), "MILLRACE_TOKEN="+s.Tokens[0].Secret)
	cmd.Stderr = f
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	done := func(payload string) {
		h, err := millrace.Job[string, string]("q").Add(ctx, c, payload)
		noErr(t, err)
		if got, err := h.Wait(ctx); err != nil || got != payload {
			t.Errorf("got %q, %v", got, err)
		}
	}
	says := func(what string, n int) {
		eventually(t, fmt.Sprintf("the worker says %d times that the server %s", n, what), func() bool {
			b, err := os.ReadFile(said)
			noErr(t, err)
			return strings.Count(string(b), "the server "+what) == n
		})
	}
	done("before")
	for n := range 2 {
		s.Kill()
		says("is not reached", n+1)
		_, err := s.Start(ctx)
		noErr(t, err)
		says("is reached again", n+1)
		done("after")
	}
}

// TestAServerThatStoodStillCostsNoAttempt: what workers sent meanwhile was not heard, so that is not their fault.
func TestAServerThatStoodStillCostsNoAttempt(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	h, err := millrace.Job[string, string]("q").Lease(time.Second).Add(ctx, c, "x")
	noErr(t, err)
	dir := t.TempDir()
	startWork(t, s, "-q", "q", "--shell", "--exec", `touch "`+dir+`/runs"; while ! [ -e "`+dir+`/go" ]; do sleep 0.05; done; echo done`)
	eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "runs"))
		return err == nil
	})
	for range 2 {
		noErr(t, s.Pause())
		time.Sleep(4 * time.Second) // the lease, and more than a second
		noErr(t, s.Resume())
		_, err := c.Task(ctx, h.ID) // it serves
		noErr(t, err)
	}
	noErr(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if _, err := h.Wait(ctx); err != nil {
		t.Error(err)
	}
	if info, err := h.Get(ctx); err != nil || info.Attempt != 1 || info.Crashes != 0 {
		t.Errorf("got %+v, %v; want one attempt", info, err)
	}
}
