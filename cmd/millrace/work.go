package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Exit statuses of a command that do not simply mean that it failed. They follow sysexits.h (64 to
// 78) and the shell (126, 127).
const (
	// Not now: the task is tried again later, and the attempt does not count as failed.
	statusSnooze = 75
	// 64 to 66 and 78 say that the task itself is wrong: no attempt can succeed.
	statusUsage   = 64
	statusNoInput = 66
	statusConfig  = 78
	// 126 and 127 say that this machine cannot run the command, so the task is given back.
	statusNotRunnable = 126
	statusNotFound    = 127
)

// workFlags are the flags of work.
type workFlags struct {
	// queues are those that tasks are taken from.
	queues []string
	// Shares of queues, 1 for those that are not named, or in the order of queues.
	weights map[string]int
	inOrder bool
	// The number of commands that run at once.
	slots int
	// The command; empty: it follows --. With shell it is text for /bin/sh.
	exec  string
	shell bool
	// 0: each task's own.
	lease time.Duration
	// Stop after one task; stop when the queues are empty.
	once, drain bool
	// How long commands may go on after the worker was told to stop, then how long after SIGTERM
	// until SIGKILL.
	grace     time.Duration
	killAfter time.Duration
	// passToken gives the command the worker's own token in its environment.
	passToken bool
}

// workCmd makes the command that runs a program for each task.
func (a *app) workCmd() *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "work -q QUEUE --exec COMMAND | -- COMMAND [ARG...]",
		Short: "Run a command for each task of a queue",
		Long: `Work takes tasks and runs a command for each. The payload is the standard input of the command. What it
prints is the result, without the white space around it if it is one JSON value. The worker renews the
lease meanwhile. JSON lines that the command writes to the file named in MILLRACE_EFFECTS are committed
with the completion, in the same log entry:

` + effectExamples() + `
All of them happen, or none: a key that is not at if_rev, or a ref that is not at old, fails the attempt.
An empty old says that the ref must not exist, an empty new deletes it. In a namespace of several
partitions all must be of the task's own: with its tag in the braces of the key, and as "tag" of the
repository and of the new task.

The fields of a line are those of the op over REST, key_base64, value_base64 and payload_base64 too.
A file of more than 4 MiB, of more than 1,023 lines, or with a line that no server could take, ends
the task for good.

Each line of the command's standard error is told to the task's log, as millrace task logs prints it, besides
being passed on. A line such as "40 compiling" that it writes to the pipe named in MILLRACE_PROGRESS is how far it
is. The file named in MILLRACE_CHECKPOINT, at most 64 KiB, is saved within a second after it was replaced (write
another file, then mv it), and given to the next attempt, until the task completes.

MILLRACE_TASK_ID, _KIND, _QUEUE, _ATTEMPT and _TOKEN (a fencing token) tell which task it is. The
worker's own token is not passed on, unless --pass-token says so: a command that has it can write past
its lease, and all that it starts or prints may have it.

Exit status 0 completes the task, 75 snoozes it for 30 s, 64 to 66 and 78 end it for good, 126 and
127 give it back and stop this worker; any other, and the end by a signal, fails the attempt. What the
command started and left running is killed when it has ended; only then is its slot free. A command
whose lease is lost, or whose task is cancelled, is sent SIGTERM, and SIGKILL after --kill-after, with all
it started; a cancelled task then ends so, whatever the exit status is. When the worker is killed, its
commands are too.

A worker that cannot run commands itself, because its disk is full or it has no descriptors, tries again
for 30 s, then gives the task back and stops, as it does at once where it has no temporary directory.

SIGINT and SIGTERM let commands end within --grace, then send them SIGTERM, and SIGKILL after
--kill-after, and give their tasks back; the second of them kills at once. SIGHUP, as from a terminal
that is closed, does not end the worker.`,
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
	flags.StringSliceVarP(&f.queues, "queue", "q", nil, "queue to take tasks from; may be repeated (required)")
	flags.StringToIntVar(&f.weights, "weight", nil, "share of a queue among those that have tasks ready, QUEUE=1..1000; may be repeated")
	flags.BoolVar(&f.inOrder, "in-order", false, "take tasks of a queue when those before it have none ready")
	flags.IntVarP(&f.slots, "concurrency", "c", 1, "number of commands to run at once")
	flags.StringVar(&f.exec, "exec", "", "command to run, without a shell")
	flags.BoolVar(&f.shell, "shell", false, "run --exec with /bin/sh")
	flags.DurationVar(&f.lease, "lease", 0, "length of the lease; default the tasks' own")
	flags.BoolVar(&f.once, "once", false, "exit after one task")
	flags.BoolVar(&f.drain, "drain", false, "exit when the queues have no ready or running tasks")
	spanVar(flags, &f.killAfter, "kill-after", 10*time.Second, "how long a command may run after SIGTERM before it is killed")
	flags.BoolVar(&f.passToken, "pass-token", false, "set MILLRACE_TOKEN for commands to this worker's token")
	spanVar(flags, &f.grace, "grace", 30*time.Second, "how long commands may go on after the worker is told to stop")
	return c
}

// runner runs commands for tasks. The SDK's worker calls run from one goroutine per slot.
type runner struct {
	a *app
	// The command, of which argv[0] is looked up in PATH for each attempt.
	argv []string
	// The environment of all commands, without the variables of a task.
	env  []string
	pool *supervisors
	// The texts of troubles of this machine that were reported already, so that each is reported
	// once.
	told sync.Map
	// printing is held while a line of a command is printed.
	printing sync.Mutex
	// Ends the worker: it takes no more tasks, and Run returns when its commands have ended.
	stop context.CancelFunc
	// mu guards why.
	mu sync.Mutex
	// The first reason for which the worker had to stop; nil if it ended in order.
	why error
	// With once: whether a task was taken. The first to set it runs, the others give their tasks
	// back.
	one atomic.Bool
	// --once: stop after one task.
	once bool
	// The pause before something that the machine lacked is tried again.
	wait time.Duration
}

// work runs the worker until ctx ends, the queues are drained, or it cannot run commands. It
// returns the reason in the last case.
//
// The worker's token is kept from the commands, unless --pass-token is set: it is removed from
// their environment, and hideMemory keeps them from reading it from this process. The pool is
// closed after Run has returned, when no command runs any more.
func (a *app) work(ctx context.Context, f workFlags, argv []string) error {
	if err := roomFor(f.slots); err != nil {
		return err
	}
	// The token is read here too, besides in dial, because --pass-token hands it to commands.
	token, err := a.conn.token.read()
	if err != nil {
		return err
	}
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // Run's error tells what happened
	env := environment(os.Environ())
	if f.passToken {
		if token = cmp.Or(token, os.Getenv("MILLRACE_TOKEN")); token != "" {
			env = append(env, "MILLRACE_TOKEN="+token)
		}
	} else {
		hideMemory()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Messages of the worker may fail to print, and the second signal must leave time to give tasks
	// back.
	a.serves = true
	a.told.patient.Store(true)
	r := &runner{a: a, argv: argv, env: env, stop: stop, once: f.once, wait: troubleWait, pool: &supervisors{env: environment(os.Environ()), killAfter: f.killAfter, stderr: a.err}}
	defer r.pool.close()
	opts := []millrace.WorkerOption{
		millrace.Slots(f.slots), millrace.Queues(f.queues...), millrace.DrainTimeout(f.grace), millrace.WaitForHandlers(), millrace.Weights(f.weights),
	}
	if f.inOrder {
		opts = append(opts, millrace.InOrder())
	}
	// One slot and a batch of one keep a --once worker from taking tasks that it would only give
	// back.
	if f.once {
		opts = append(opts, millrace.Slots(1), millrace.Batch(1))
	}
	if f.lease > 0 {
		opts = append(opts, millrace.Lease(f.lease))
	}
	w := client.Worker(opts...)
	w.HandleAny(r.run)
	if f.drain {
		go r.drainQueues(ctx, client, f.queues)
	}
	if err := w.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// descriptorsPerSlot is the number of files that a slot has open: the pipes of its supervisor,
// both ends of two named pipes, the checkpoint, and a file of effects.
const descriptorsPerSlot = 9

// roomFor refuses more slots than the limit of open files allows: it is better to refuse than to
// fail on single tasks later. 64 descriptors are left for everything else.
func roomFor(slots int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if need := uint64(max(slots, 0)*descriptorsPerSlot + 64); need > limit.Cur {
		return usageError{fmt.Errorf("--concurrency %d needs %d file descriptors, and the limit is %d (ulimit -n)", slots, need, limit.Cur)}
	}
	return nil
}

// environment returns the variables that commands inherit from the worker. It leaves out the
// worker's secrets, and the variables of a task, which are set if the worker itself was started by
// a command of another worker.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "MILLRACE_TOKEN" || name == "MILLRACE_EFFECTS" || name == "MILLRACE_PROGRESS" || name == "MILLRACE_CHECKPOINT" ||
			strings.HasPrefix(name, "MILLRACE_TASK_") || strings.HasPrefix(name, "MILLRACE_SERVE_")
	})
}

// drainQueues polls the queues' counters and stops the worker when none has ready or running tasks.
// Delayed tasks do not hold it up. A queue that does not exist is empty. An error that will not
// pass, such as a missing permission, stops the worker with that reason; any other is taken as busy
// and asked again.
func (r *runner) drainQueues(ctx context.Context, c *millrace.Client, queues []string) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		busy := false
		for _, q := range queues {
			s, err := c.Queue(q).Stats(ctx)
			switch e, known := errors.AsType[*millrace.Error](err); {
			case err == nil:
				busy = busy || s.Ready+s.Running > 0
			// A queue that nothing used yet has nothing to drain.
			case errors.Is(err, millrace.ErrNotFound):
			// Asking again would not help, and the worker would never stop.
			case known && (e.Code == millrace.CodePermissionDenied || e.Code == millrace.CodeInvalidArgument || e.Code == millrace.CodeUnauthenticated):
				r.fail(fmt.Errorf("--drain: read what queue %s holds: %w", q, err))
				return
			default:
				busy = true
			}
		}
		if !busy {
			r.stop()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
