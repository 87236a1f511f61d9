package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/localport"
	millrace "github.com/millrace/millrace/sdk/go"
)

// What the demo uses. The lease is short so that the tasks of the killed worker return within
// seconds; two workers with four slots each keep work going while one of them is replaced.
const (
	// demoQueue has the tasks, and demoKeyspace a key for each file.
	demoQueue    = "gofmt"
	demoKeyspace = "sum"
	// demoLease is short so that a killed worker's tasks return soon.
	demoLease   = 2 * time.Second
	demoWorkers = 2
	demoSlots   = 4
)

// verdict is what a worker finds of one file: the task's result, and the value of its key.
type verdict struct {
	// The hash of the file in hexadecimal digits.
	SHA256 string `json:"sha256"`
	Gofmt  string `json:"gofmt"` // clean, differs, or invalid: not Go that parses
}

// demoJob is the job of the demo: its argument is the path of a file relative to the source tree,
// with slashes.
var demoJob = millrace.Job[string, verdict](demoQueue).Lease(demoLease)

// judge computes the verdict of one file. It is what workers do for each task and what the demo
// itself does at the end to check them. A file that does not parse is a verdict, not an error.
func judge(path string) (verdict, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return verdict{}, err
	}
	sum := sha256.Sum256(b)
	v := verdict{SHA256: hex.EncodeToString(sum[:]), Gofmt: "clean"}
	formatted, err := format.Source(b)
	switch {
	case err != nil:
		v.Gofmt = "invalid"
	case !bytes.Equal(formatted, b):
		v.Gofmt = "differs"
	}
	return v, nil
}

// demoFlags are the flags of demo. An empty source is that of the local Go installation, an empty
// data directory is a temporary one.
type demoFlags struct {
	// source is the tree of files, and data the directory of the server's data.
	source string
	data   string
	// The most files to use; 0 is all.
	limit int
	// Kills nothing.
	calm bool
	// Serves on at the end.
	ui bool
}

// demoCmd makes the command that shows a crash of a worker and of a server without a lost or
// repeated task.
func (a *app) demoCmd() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo",
		Short: "Check and hash a tree of Go files through a server that is killed half-way",
		Long: `Demo starts a server in a temporary directory and makes one task per .go file of a source tree. Two
worker processes check the format of each file and hash it; the verdict is the task's result and, in
the same log entry, the key sum/<path>. Half-way one worker and then the server are killed with
SIGKILL and started again. At the end every result and key is compared with a direct walk.

The link that it prints shows the work in a browser while it goes on. With --ui the server goes on at the end, until
the command is interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := &demo{a: a, f: f}
			return d.run(c.Context())
		},
	}
	c.Flags().StringVar(&f.source, "source", "", "source tree; default that of the local Go installation")
	c.Flags().StringVar(&f.data, "data", "", "data directory, kept afterwards; default a temporary one, which is removed")
	c.Flags().IntVar(&f.limit, "limit", 0, "use at most this many files; 0 = all")
	c.Flags().BoolVar(&f.ui, "ui", false, "print a new link at the end, and serve the web interface until interrupted")
	c.Flags().BoolVar(&f.calm, "calm", false, "do not kill the server and the worker")
	return c
}

// demoWorkerCmd makes the hidden command of one worker process. The task's result and the key are
// written by the same commit, which is what the proof relies on.
func (a *app) demoWorkerCmd() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use: "demo-worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer client.Close() //nolint:errcheck // Run's error tells what happened
			w := client.Worker(millrace.Slots(demoSlots))
			demoJob.Handle(w, func(_ context.Context, t *millrace.Task, name string) (verdict, error) {
				v, err := judge(filepath.Join(root, filepath.FromSlash(name)))
				if err == nil {
					t.Effects().KV(demoKeyspace).Put(name, v)
				}
				return v, err
			})
			return w.Run(c.Context())
		},
	}
	a.connectionFlags(c)
	c.Flags().StringVar(&root, "root", "", "source tree")
	return c
}

// demo is the state of one run. One goroutine uses it; create and walk use others only inside.
type demo struct {
	// a is the command line, for its output; f are the flags.
	a *app
	f demoFlags
	// The directory of the data, the token and the log; removed at the end if it is temporary.
	dir string
	// The token that the server wrote to its token file, and the address of its gRPC listener,
	// which stays the same over the kill.
	token string
	addr  string
	// web is the address of its REST listener, which may change over the kill.
	web string

	// The processes that run now. A killed one is replaced here.
	server  *exec.Cmd
	workers []*exec.Cmd
	// The files of the tree, relative to it and with slashes, in the order of the walk. Handles and
	// verdicts use the same indexes.
	files []string
	// The sums of counters of servers that were killed. A server counts from its start, so base and
	// latest together are the run's.
	base millrace.ServerStatus
	// The last status that was read from the running server.
	latest millrace.ServerStatus
	// One line for each kill.
	kills []string
	// How many tenths of the work were reported, where no bar is drawn.
	tenths uint64
}

// run carries out the demo:
//
//  1. It finds the files, reserves an address and starts the server.
//  2. It creates one task per file, then starts the workers, so that all of the work is in the
//     queue first.
//  3. It watches the counters and kills a worker and the server on the way.
//  4. It compares every result and key with a direct walk.
//
// The deferred function stops all processes in every case, and removes a temporary directory.
func (d *demo) run(ctx context.Context) (err error) {
	if err := d.prepare(); err != nil {
		return err
	}
	reserved, err := localport.Reserve(1) // the server is killed, and comes back at the same address
	if err != nil {
		return err
	}
	defer reserved.Release()
	runtime.LockOSThread() // the server and the workers die with the thread that starts them, so none outlives the demo
	defer runtime.UnlockOSThread()
	defer func() {
		d.stopAll()
		if d.f.data == "" {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	if err := d.startServer(ctx, reserved.Addresses()[0]); err != nil {
		return err
	}
	client, err := d.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // everything was acknowledged, or an error tells
	start := time.Now()
	handles, creates, err := d.create(ctx, client)
	if err != nil {
		return err
	}
	for range demoWorkers {
		if err := d.startWorker(); err != nil {
			return err
		}
	}
	took, err := d.watch(ctx, client)
	if err != nil {
		return err
	}
	total := time.Since(start)
	if err := d.prove(ctx, client, handles, figures{creates: creates, working: took, total: total}); err != nil || !d.f.ui {
		return err
	}
	return d.serveOn(ctx)
}

// serveOn prints a link and waits for the signal that ends the command.
func (d *demo) serveOn(ctx context.Context) error {
	link, lasts, err := fetchLink(ctx, "http://"+d.web, d.token)
	if err != nil {
		return err
	}
	if err := d.a.print(map[string]string{"url": link, "expires_in": lasts}, func(w io.Writer) {
		fmt.Fprintf(w, "the web interface goes on until Ctrl-C; signs in once: %s\n", link)
	}); err != nil {
		return err
	}
	d.a.serves = true
	<-ctx.Done()
	return nil
}

// prepare finds the files and chooses the data directory. Without --source it asks the go command
// for its tree, so it fails where Go is not installed.
func (d *demo) prepare() error {
	root := d.f.source
	if root == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("find the local Go source tree: %w; name another tree with --source", err)
		}
		root = strings.TrimSpace(string(out))
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	d.f.source = root
	if d.files, err = goFiles(root, d.f.limit); err != nil {
		return err
	}
	if len(d.files) == 0 {
		return fmt.Errorf("no .go files under %s", root)
	}
	d.dir = d.f.data
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "millrace-demo-")
	}
	return err
}

// goFiles returns the regular files below root whose names end in .go, at most limit of them if
// limit is not 0.
func goFiles(root string, limit int) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Type().IsRegular() && strings.HasSuffix(path, ".go") {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, filepath.ToSlash(rel))
		}
		if limit > 0 && len(files) >= limit {
			return filepath.SkipAll
		}
		return nil
	})
	return files, err
}

// tokenFile is where the server keeps its token, so that it is the same after the kill.
func (d *demo) tokenFile() string { return filepath.Join(d.dir, "token") }

// startServer starts this program's serve and waits until it prints its addresses, which it does
// once it serves. Then it reads the token. On a second start with the same directory and listen the
// server has the same token and address.
func (d *demo) startServer(ctx context.Context, listen string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	// The server prints one line of JSON when it serves.
	cmd := exec.Command(exe, "serve", "--dev", "--json", "--data", filepath.Join(d.dir, "data"), "--token-file",
		d.tokenFile(), "--listen", listen, "--http", "127.0.0.1:0", "--admin", "off", "--name", "demo")
	cmd.Stderr, cmd.SysProcAttr = d.a.err, childAttributes()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.server = cmd
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("server did not start: %w", errors.Join(err, cmd.Wait()))
	}
	var ready struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http"`
		SignIn  string `json:"sign_in"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("server said %q: %w", line, err)
	}
	d.addr, d.web = ready.Address, ready.HTTP
	if !d.a.json {
		fmt.Fprintf(d.a.out, "web interface, signs in once within a minute: %s\n", ready.SignIn)
	}
	b, err := os.ReadFile(d.tokenFile())
	d.token = strings.TrimSpace(string(b))
	return errors.Join(err, ctx.Err())
}

// startWorker starts a worker process. The token is passed in the environment, which other users
// cannot read.
func (d *demo) startWorker() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "demo-worker", "--root", d.f.source, "--server", d.addr)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), "MILLRACE_TOKEN="+d.token), childAttributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	d.workers = append(d.workers, cmd)
	return nil
}

// client connects to the server of the demo. Its calls go on when the server is killed and returns.
func (d *demo) client(ctx context.Context) (*millrace.Client, error) {
	return millrace.Dial(ctx, millrace.Address(d.addr), millrace.Token(d.token), millrace.Timeout(0))
}

// create makes one task per file from 32 goroutines, and returns the handle of each task and how
// long its call took, both by the file's index. After an error each goroutine that sees one stops;
// the first error is returned.
func (d *demo) create(ctx context.Context, c *millrace.Client) ([]*millrace.Handle[verdict], []time.Duration, error) {
	handles := make([]*millrace.Handle[verdict], len(d.files))
	took := make([]time.Duration, len(d.files))
	var next atomic.Int64
	var failed error
	var once sync.Once
	var running sync.WaitGroup
	// Many calls at once, so that one sync of the log serves many of them.
	for range 32 {
		running.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(d.files) {
					return
				}
				start := time.Now()
				h, err := demoJob.Add(ctx, c, d.files[i])
				if err != nil {
					once.Do(func() { failed = err })
					return
				}
				handles[i], took[i] = h, time.Since(start)
			}
		})
	}
	running.Wait()
	if failed != nil {
		return nil, nil, fmt.Errorf("create tasks: %w", failed)
	}
	if !d.a.json {
		fmt.Fprintf(d.a.out, "%d tasks, one per .go file of %s; %d workers of %d slots; every acknowledgement is on disk\n",
			len(d.files), d.f.source, demoWorkers, demoSlots)
	}
	return handles, took, nil
}

// watch shows progress until all tasks are completed, and returns how long that took. At two fifths
// of the work it kills a worker, at half of it the server, unless --calm is set. A dead task ends
// the demo with an error, as its file would have no verdict.
func (d *demo) watch(ctx context.Context, c *millrace.Client) (time.Duration, error) {
	start := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	total := uint64(len(d.files))
	// A calm run counts both kills as done.
	killedWorker, killedServer := d.f.calm, d.f.calm
	for {
		s, err := c.Queue(demoQueue).Stats(ctx)
		if err != nil {
			return 0, err
		}
		// The counters are read at each step because those of a killed server are lost; what it
		// counted after the last reading is missing.
		if st, err := c.Status(ctx); err == nil {
			d.latest = *st
		}
		d.progress(s, total)
		switch done := s.Completed; {
		case s.Dead > 0:
			return 0, fmt.Errorf("%d tasks failed for good", s.Dead)
		case done == total:
			if !d.a.json && d.a.animates() {
				fmt.Fprintln(d.a.out)
			}
			return time.Since(start), nil
		case !killedWorker && done >= total*2/5:
			killedWorker = true
			if err := d.killWorker(done); err != nil {
				return 0, err
			}
		case !killedServer && done >= total/2:
			killedServer = true
			if err := d.killServer(ctx, done); err != nil {
				return 0, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// killWorker kills the oldest worker with SIGKILL and starts another one. The tasks that it held
// run again when their leases end.
func (d *demo) killWorker(done uint64) error {
	w := d.workers[0]
	d.workers = d.workers[1:]
	_ = w.Process.Kill() // an error here means that it is gone already
	_ = w.Wait()
	d.say(fmt.Sprintf("worker %d killed with SIGKILL at %d of %d; another one starts", w.Process.Pid, done, len(d.files)))
	return d.startWorker()
}

// killServer kills the server with SIGKILL, adds its last known counters to base, and starts it
// again on the same directory and address.
func (d *demo) killServer(ctx context.Context, done uint64) error {
	pid := d.server.Process.Pid
	_ = d.server.Process.Kill()
	_ = d.server.Wait()
	d.base.Fsyncs += d.latest.Fsyncs
	d.base.LogBytes += d.latest.LogBytes
	d.base.Entries += d.latest.Entries
	d.latest = millrace.ServerStatus{}
	d.say(fmt.Sprintf("server %d killed with SIGKILL at %d of %d; it starts again on the same directory", pid, done, len(d.files)))
	return d.startServer(ctx, d.addr)
}

// say records an event for the result and prints it on its own line, above a bar.
func (d *demo) say(what string) {
	d.kills = append(d.kills, what)
	switch {
	case d.a.json:
	case d.a.animates():
		fmt.Fprintf(d.a.out, "\r\033[K  %s\n", what)
	default:
		fmt.Fprintf(d.a.out, "  %s\n", what)
	}
}

// progress draws a bar on a terminal. Elsewhere it prints a line for each tenth of the work, so
// that a log stays short. With --json it prints nothing.
func (d *demo) progress(s millrace.QueueStats, total uint64) {
	if d.a.json {
		return
	}
	if !d.a.animates() {
		if tenth := s.Completed * 10 / total; tenth > d.tenths {
			d.tenths = tenth
			fmt.Fprintf(d.a.out, "%d/%d  ready %d  running %d\n", s.Completed, total, s.Ready+s.Scheduled, s.Running)
		}
		return
	}
	const width = 40
	full := int(s.Completed * width / total)
	fmt.Fprintf(d.a.out, "\r\033[K[%s%s] %d/%d  ready %d  running %d", strings.Repeat("#", full), strings.Repeat(".", width-full),
		s.Completed, total, s.Ready+s.Scheduled, s.Running)
}

// figures are what a run measured: how long each create call took, how long the workers took for
// all tasks, and both together.
type figures struct {
	// creates has a latency for each call that created tasks.
	creates        []time.Duration
	working, total time.Duration
}

// demoResult is what a run printed at its end: JSON with --json, else a table. Times are in
// milliseconds, unless their names say seconds.
type demoResult struct {
	// Tasks is the number of files, since each is one task.
	Tasks int `json:"tasks"`
	// Attempts of all tasks, and how many of them were cut short by a kill.
	Attempts int `json:"attempts"`
	Crashes  int `json:"crashes"`
	// Tasks per second while the workers ran.
	CyclesPerSec float64 `json:"cycles_per_second"`
	CreateP50    float64 `json:"create_p50_ms"`
	CreateP99    float64 `json:"create_p99_ms"`
	RunP50       float64 `json:"run_p50_ms"` // from a worker's start to the durable end
	RunP99       float64 `json:"run_p99_ms"`
	LogBytes     uint64  `json:"log_bytes"`
	// Fsyncs counts the server's syncs, over all its processes of the run.
	Fsyncs  uint64   `json:"fsyncs"`
	Seconds float64  `json:"seconds"`
	Kills   []string `json:"kills"`
	// How many results and keys are what the direct walk finds.
	ResultsEqual int `json:"results_equal"`
	// KeysEqual counts the keys whose value is what the walk finds.
	KeysEqual int `json:"keys_equal"`
	// Clean, Differs and Invalid count the files by what gofmt says of them.
	Clean   int `json:"gofmt_clean"`
	Differs int `json:"gofmt_differs"`
	Invalid int `json:"gofmt_invalid"`
	// The queue's counters say that each file was one task and was completed once.
	CompletedOnce bool   `json:"every_file_once"`
	Durability    string `json:"durability"`
}

// prove compares every task's result and every key with a direct walk, prints the figures, and
// returns an error if anything differs. That each file was done exactly once is read from the
// queue's counters: as many tasks were created and completed as there are files.
func (d *demo) prove(ctx context.Context, c *millrace.Client, handles []*millrace.Handle[verdict], f figures) error {
	r := demoResult{
		Tasks: len(d.files), Seconds: f.total.Seconds(), Kills: d.kills,
		CyclesPerSec: float64(len(d.files)) / f.working.Seconds(),
		CreateP50:    quantile(f.creates, 0.5), CreateP99: quantile(f.creates, 0.99),
	}
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	r.Fsyncs, r.LogBytes, r.Durability = d.base.Fsyncs+st.Fsyncs, d.base.LogBytes+st.LogBytes, st.Durability
	direct, err := walk(d.f.source, d.files)
	if err != nil {
		return err
	}
	var wrong []string
	runs := make([]time.Duration, len(handles))
	for i, h := range handles {
		name, want := d.files[i], direct[i]
		switch want.Gofmt {
		case "clean":
			r.Clean++
		case "differs":
			r.Differs++
		default:
			r.Invalid++
		}
		t, err := c.Task(ctx, h.ID)
		if err != nil {
			return fmt.Errorf("task of %s: %w", name, err)
		}
		r.Attempts += t.Attempt
		r.Crashes += t.Crashes
		runs[i] = t.FinishedAt.Sub(t.StartedAt)
		var got verdict
		// The result must be equal, and the task must have completed.
		if err := json.Unmarshal(t.Result, &got); err != nil || got != want || t.State != millrace.Completed {
			wrong = append(wrong, "result of "+name)
		} else {
			r.ResultsEqual++
		}
		v, err := c.KV(demoKeyspace).Get(ctx, name)
		if err != nil {
			return fmt.Errorf("key of %s: %w", name, err)
		}
		if err := v.Decode(&got); err != nil || got != want {
			wrong = append(wrong, "key of "+name)
		} else {
			r.KeysEqual++
		}
	}
	r.RunP50, r.RunP99 = quantile(runs, 0.5), quantile(runs, 0.99)
	s, err := c.Queue(demoQueue).Stats(ctx)
	if err != nil {
		return err
	}
	r.CompletedOnce = s.CompletedTotal == uint64(len(d.files)) && s.Created == uint64(len(d.files))
	if err := d.a.print(r, r.table); err != nil {
		return err
	}
	if len(wrong) > 0 || !r.CompletedOnce {
		return fmt.Errorf("the proof failed: %d differ from a direct walk, completed %d of %d; first: %v",
			len(wrong), s.CompletedTotal, len(d.files), wrong[:min(len(wrong), 3)])
	}
	return nil
}

// walk computes the verdicts of all files directly, with one goroutine per core. It returns one of
// the errors, if there were any.
func walk(root string, files []string) ([]verdict, error) {
	out := make([]verdict, len(files))
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return
				}
				v, err := judge(filepath.Join(root, filepath.FromSlash(files[i])))
				if err != nil {
					failed.Store(&err)
					return
				}
				out[i] = v
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return out, nil
}

// table prints the result for a person.
func (r demoResult) table(w io.Writer) {
	yes := map[bool]string{true: "yes", false: "NO"}
	for _, l := range [][2]string{
		{"tasks", fmt.Sprint(r.Tasks)},
		{"attempts", fmt.Sprintf("%d (%d cut short by kills)", r.Attempts, r.Attempts-r.Tasks)},
		{"cycles/s", fmt.Sprintf("%.0f (bound by checking the files)", r.CyclesPerSec)},
		{"create p50 / p99", fmt.Sprintf("%.2f / %.2f ms, 32 callers", r.CreateP50, r.CreateP99)},
		{"run p50 / p99", fmt.Sprintf("%.0f / %.0f ms, from grant to durable end", r.RunP50, r.RunP99)},
		{"bytes written", fmt.Sprintf("%.1f MiB of log", float64(r.LogBytes)/(1<<20))},
		{"fsyncs", fmt.Sprintf("%d (%.2f per task; durability %s)", r.Fsyncs, float64(r.Fsyncs)/float64(r.Tasks), r.Durability)},
		{"files", fmt.Sprintf("%d formatted, %d not, %d do not parse", r.Clean, r.Differs, r.Invalid)},
		{"proof", fmt.Sprintf("every file once: %s; results equal a direct walk: %d of %d; keys: %d of %d",
			yes[r.CompletedOnce], r.ResultsEqual, r.Tasks, r.KeysEqual, r.Tasks)},
	} {
		fmt.Fprintf(w, "%-18s %s\n", l[0], l[1])
	}
}

// quantile returns the q-quantile of in, in milliseconds; 0 if in is empty. It does not change in.
func quantile(in []time.Duration, q float64) float64 {
	if len(in) == 0 {
		return 0
	}
	s := slices.Clone(in)
	slices.Sort(s)
	return float64(s[int(q*float64(len(s)-1))]) / float64(time.Millisecond)
}

// stopAll stops the processes that still run: SIGTERM, and SIGKILL ten seconds later. It waits for
// each.
func (d *demo) stopAll() {
	for _, c := range append(d.workers, d.server) {
		if c != nil && c.ProcessState == nil {
			_ = c.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
			_ = c.Wait()
			kill.Stop()
		}
	}
}
