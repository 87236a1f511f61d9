package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Exit statuses of a command that mean something other than "failed".
const (
	statusSnooze      = 75  // not now
	statusUsage       = 64  // 64 to 66: the task itself is wrong
	statusNoInput     = 66  //
	statusConfig      = 78  // so is its configuration
	statusNotRunnable = 126 // 126 and 127: this machine cannot run the command
	statusNotFound    = 127
)

// maxResult bounds what a command may print as its result.
const maxResult = 1 << 20

// killAfter is how long a command that was told to end may take.
const killAfter = 10 * time.Second

type workFlags struct {
	queues      []string
	slots       int
	exec        string
	shell       bool
	lease       time.Duration
	once, drain bool
	grace       time.Duration
}

func (a *app) workCmd() *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "work -q QUEUE --exec COMMAND | -- COMMAND [ARG...]",
		Short: "Run a command for each task of a queue",
		Long: `Work takes tasks and runs a command for each: the payload is its standard input, what it prints is
the result. Leases are renewed beside it. JSON lines that it writes to the file named in
MILLRACE_EFFECTS are committed with the completion, in the same log entry:

  {"op":"kv_put","keyspace":"thumbs","key":"7","value":"...","if_rev":12}
  {"op":"kv_delete","keyspace":"thumbs","key":"6"}
  {"op":"kv_add","keyspace":"counts","key":"thumbs","delta":1}
  {"op":"kv_delete_range","keyspace":"parts","prefix":"7/"}
  {"op":"ref_update","repo":"app","ref":"refs/heads/main","old":"5ab7...","new":"9c1d..."}
  {"op":"vector_upsert","collection":"people","id":"ada","payload":{"text":"..."}}
  {"op":"vector_delete","collection":"people","id":"bob"}
  {"op":"task_create","queue":"mail","payload":{"to":"ada"}}

All of them happen, or none: a key that is not at if_rev, or a ref that is not at old, fails the attempt.
An empty old says that the ref must not exist, an empty new deletes it. In a namespace of several
partitions all must be of the task's own: with its tag in the braces of the key, and as "tag" of the
repository and of the new task.

MILLRACE_TASK_ID, _KIND, _QUEUE, _ATTEMPT and _TOKEN (a fencing token) tell which task it is.

Exit status 0 completes the task, 75 snoozes it for 30 s, 64 to 66 and 78 end it for good, 126 and
127 give it back and stop this worker; any other fails the attempt. A command whose lease is lost is
sent SIGTERM, and SIGKILL after 10 s, with all it started. On Linux a command is killed when its
worker is.

SIGINT and SIGTERM let commands end within --grace, then kill them and give their tasks back; the second
of them does so at once. SIGHUP, as from a terminal that is closed, ends no worker.`,
		Example: `  millrace work -q build -c 4 --exec ./build.sh
  millrace work -q hash --drain -- sha256sum`,
		RunE: func(c *cobra.Command, args []string) error {
			argv := args
			if f.exec != "" {
				argv = append([]string{f.exec}, args...)
				if f.shell {
					argv = append([]string{"/bin/sh", "-c", f.exec}, args...)
				}
			}
			if len(argv) == 0 || len(f.queues) == 0 {
				return usageError{errors.New("name a queue with -q and a command with --exec or after --")}
			}
			return a.work(c.Context(), f, argv)
		},
	}
	a.connectionFlags(c)
	flags := c.Flags()
	flags.StringSliceVarP(&f.queues, "queue", "q", nil, "queue to take tasks of; may be repeated (required)")
	flags.IntVarP(&f.slots, "concurrency", "c", 1, "commands at once")
	flags.StringVar(&f.exec, "exec", "", "command, run without a shell")
	flags.BoolVar(&f.shell, "shell", false, "run --exec by /bin/sh")
	flags.DurationVar(&f.lease, "lease", 0, "lease instead of the tasks' own")
	flags.BoolVar(&f.once, "once", false, "end after one task")
	flags.BoolVar(&f.drain, "drain", false, "end when the queues hold nothing ready or running")
	spanVar(flags, &f.grace, "grace", 30*time.Second, "how long commands may go on when the worker is told to end")
	return c
}

// runner runs commands for tasks.
type runner struct {
	a    *app
	argv []string
	stop context.CancelFunc
	mu   sync.Mutex // guards why
	why  error      // that this worker had to stop
	one  atomic.Bool
	once bool
}

func (a *app) work(ctx context.Context, f workFlags, argv []string) error {
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // Run's error tells what happened
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a.serves = true
	a.told.patient.Store(true)
	r := &runner{a: a, argv: argv, stop: stop, once: f.once}
	opts := []millrace.WorkerOption{millrace.Slots(f.slots), millrace.Queues(f.queues...), millrace.DrainTimeout(f.grace)}
	if f.once {
		opts = append(opts, millrace.Slots(1), millrace.Batch(1))
	}
	if f.lease > 0 {
		opts = append(opts, millrace.Lease(f.lease))
	}
	w := client.Worker(opts...)
	w.HandleAny(r.run)
	if f.drain {
		go drainQueues(ctx, client, f.queues, stop)
	}
	if err := w.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// drainQueues calls done when no queue holds anything ready or running.
func drainQueues(ctx context.Context, c *millrace.Client, queues []string, done func()) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		busy := false
		for _, q := range queues {
			s, err := c.Queue(q).Stats(ctx)
			if err != nil && !errors.Is(err, millrace.ErrNotFound) || s.Ready+s.Running > 0 {
				busy = true
			}
		}
		if !busy {
			done()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// run runs the command for one task.
func (r *runner) run(ctx context.Context, t *millrace.Task) ([]byte, error) {
	if r.once && !r.one.CompareAndSwap(false, true) {
		return nil, millrace.Release()
	}
	if r.once {
		defer r.stop()
	}
	effects, err := os.CreateTemp("", "millrace-effects-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(effects.Name()) //nolint:errcheck // a file of the system's temporary directory
	if err := effects.Close(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &bounded{max: maxResult}
	cmd := exec.CommandContext(ctx, r.argv[0], r.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(t.Payload), out, r.a.err
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error {
		if r.a.told.hurry.Err() != nil {
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	cmd.WaitDelay = killAfter
	cmd.Env = append(os.Environ(),
		"MILLRACE_TASK_ID="+t.ID, "MILLRACE_TASK_KIND="+t.Kind, "MILLRACE_TASK_QUEUE="+t.Queue,
		"MILLRACE_TASK_ATTEMPT="+strconv.Itoa(t.Attempt), "MILLRACE_TASK_TOKEN="+strconv.FormatUint(t.Token(), 10),
		"MILLRACE_EFFECTS="+effects.Name())
	defer context.AfterFunc(r.a.told.hurry, cancel)()
	runtime.LockOSThread() // the command dies with the thread that starts it: it must stay until the command has ended
	err = cmd.Run()
	runtime.UnlockOSThread()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind; nothing, as a rule
	}
	switch {
	case err != nil && r.a.told.hurry.Err() != nil:
		return nil, millrace.Release() // it was killed
	case err != nil:
		return nil, r.outcome(err)
	}
	if out.over {
		return nil, millrace.Fatal(fmt.Errorf("the result is larger than %d bytes", maxResult))
	}
	if err := readEffects(effects.Name(), t.Effects()); err != nil {
		return nil, millrace.Fatal(err)
	}
	return out.Bytes(), nil
}

// outcome turns a command's end into a task's.
func (r *runner) outcome(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		r.giveUp(err)
		return millrace.Release()
	}
	switch status := exit.ExitCode(); {
	case status == statusSnooze:
		return millrace.Snooze(30 * time.Second)
	case status >= statusUsage && status <= statusNoInput, status == statusConfig:
		return millrace.Fatal(err)
	case status == statusNotRunnable, status == statusNotFound:
		r.giveUp(err)
		return millrace.Release()
	}
	return err
}

// giveUp stops the worker: this machine cannot run the command.
func (r *runner) giveUp(err error) {
	r.mu.Lock()
	r.why = fmt.Errorf("%s cannot be run here: %w", r.argv[0], err)
	r.mu.Unlock()
	r.stop()
}

// bounded is a buffer that drops what is beyond max.
type bounded struct {
	bytes.Buffer
	max  int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		b.over = true
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
