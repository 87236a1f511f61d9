package sdk

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/agents"
	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// TestKillsLoseAndDoubleNothing kills servers and workers with SIGKILL under load, with producers and workers of all languages that write
// ledgers, and has these judged: what was acknowledged is there, each task completed once, at most one token was good at a time, and the
// effects happened once for each completion. MILLRACE_SDK_KILLS is how many runs are made, MILLRACE_SDK_SEED the first seed.
func TestKillsLoseAndDoubleNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	runs, err := strconv.Atoi(os.Getenv("MILLRACE_SDK_KILLS"))
	if err != nil {
		t.Skip("MILLRACE_SDK_KILLS=n makes n runs: each keeps both processors busy for six seconds")
	}
	seed := uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("MILLRACE_SDK_SEED"), 10, 64); err == nil {
		seed = n
	}
	langs := languages(t)
	for i := range runs {
		s := seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			k := newKills(t, s, langs)
			over := time.Now().Add(killsFor)
			k.play(t.Context(), func() bool {
				switch k.draw.IntN(5) {
				case 0:
					k.killServer()
				case 1:
					k.killWorker()
				case 2:
					k.cut()
				}
				return time.Now().Before(over)
			})
		})
	}
}

// TestCountsOfFaultsHold has each language live through one kind of fault many times under load: workers that drain at SIGTERM, answers
// that are lost, connections that are cut or fall silent, servers that are killed. Then it judges as TestKillsLoseAndDoubleNothing does. Of
// drains alone also: each ends well and in time, and no attempt counts as a failure or a crash. MILLRACE_SDK_COUNTS is how many times, and
// MILLRACE_SDK_SILENCE how long each silence lasts, such as 10m.
func TestCountsOfFaultsHold(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("MILLRACE_SDK_COUNTS"))
	if err != nil {
		t.Skip("MILLRACE_SDK_COUNTS=n has each kind of fault n times for each language")
	}
	faults := []struct {
		name   string
		strike func(k *kills)
		gentle bool
	}{
		{"drain", (*kills).drainWorker, true},
		{"answers", (*kills).loseAnswers, false},
		{"cut", (*kills).cut, false},
		{"restart", (*kills).killServer, false},
		{"silence", (*kills).fallSilent, false},
	}
	silence, err := time.ParseDuration(cmp.Or(os.Getenv("MILLRACE_SDK_SILENCE"), "200ms"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages(t) {
		for _, f := range faults {
			t.Run(l.Name+"/"+f.name, func(t *testing.T) {
				if f.name == "silence" {
					t.Parallel() // it mostly waits
				}
				k := newKills(t, 1, []agents.Language{l})
				k.silence, k.served = silence, f.name == "restart"
				// A burst takes the workers longer than the rest: the faults find tasks that run.
				k.gentle, k.burst, k.rest = f.gentle, 200, 50*time.Millisecond
				left := times
				k.play(t.Context(), func() bool {
					f.strike(k)
					left--
					return left > 0
				})
			})
		}
	}
}

// kills is one run.
type kills struct {
	t     *testing.T
	draw  *rand.Rand
	dir   string
	langs []agents.Language
	// gentle says that nothing happens which may count as a failure or a crash of an attempt.
	gentle bool
	// burst is how many tasks are added at once, and rest the longest time from then to a fault.
	burst int
	rest  time.Duration
	// served says that a fault comes after an answer: a server that is killed as soon as it serves carries out nothing.
	served bool
	// silence is how long a connection carries nothing when it falls silent.
	silence time.Duration

	server  *proc.Server
	front   *proc.Proxy
	ledgers []string
	ledger  map[*agents.Agent]string
	killed  map[string]bool // ledgers of agents that were killed
	deaths  map[string]int
	workers []*agents.Agent
}

func newKills(t *testing.T, seed uint64, langs []agents.Language) *kills {
	return &kills{
		t: t, draw: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), langs: langs,
		burst: 40, rest: 200 * time.Millisecond, deaths: map[string]int{}, ledger: map[*agents.Agent]string{}, killed: map[string]bool{},
	}
}

const (
	killsFor    = 6 * time.Second
	killsDrain  = 60 * time.Second
	addWait     = 60 * time.Second
	remembered  = 9 * time.Minute // servers remember calls for a little longer
	killsWorker = 2               // workers at a time
)

// agent starts an agent of a drawn language, with a ledger of its own.
func (k *kills) agent() *agents.Agent {
	k.t.Helper()
	l := k.langs[k.draw.IntN(len(k.langs))]
	a, err := agents.Start(l.Line...)
	if err != nil {
		k.t.Fatal(err)
	}
	ledger := filepath.Join(k.dir, fmt.Sprintf("ledger-%d-%s", len(k.ledgers), l.Name))
	k.ledgers = append(k.ledgers, ledger)
	k.ledger[a] = ledger
	fields := map[string]any{"address": k.front.Address(), "token": k.server.Tokens[0].Secret, "namespace": "default", "ledger": ledger}
	if _, err := a.Ask("open", fields, StepWait); err != nil {
		a.Close()
		k.t.Fatalf("%s: %v\n%s", l.Name, err, a.Said())
	}
	return a
}

// worker starts an agent that works.
func (k *kills) worker() *agents.Agent {
	k.t.Helper()
	a := k.agent()
	handler := []any{
		map[string]any{"fx": []any{map[string]any{"op": "kv_add", "keyspace": "sums", "key": "done", "delta": 1}}},
		map[string]any{"sleep_ms": 5},
		map[string]any{"return": "$args"},
	}
	job := map[string]any{"job": "work", "handler": handler, "lease_ms": 2000}
	if _, err := a.Ask("worker", map[string]any{"slots": 8, "lease_ms": 2000, "jobs": []any{job}}, StepWait); err != nil {
		a.Close()
		k.t.Fatalf("%v\n%s", err, a.Said())
	}
	return a
}

// serve starts the server, and the proxy in front of it.
func (k *kills) serve(ctx context.Context) {
	k.t.Helper()
	var err error
	if k.server, err = proc.New(ctx, proc.Options{Binary: program, Dir: filepath.Join(k.dir, "server")}, "default"); err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.server.Start(ctx); err != nil {
		k.t.Fatal(err)
	}
	if k.front, err = proc.NewProxy(k.server.Address()); err != nil {
		k.server.Kill()
		k.t.Fatal(err)
	}
}

// end ends what serve started.
func (k *kills) end() {
	_ = k.front.Close()
	k.server.Kill()
}

// play adds tasks and has strike do its worst between bursts of them until it reports false; then it judges.
func (k *kills) play(ctx context.Context, strike func() bool) {
	t := k.t
	k.serve(ctx)
	defer k.end()
	producer := k.agent()
	defer producer.Close()
	k.workers = make([]*agents.Agent, killsWorker)
	for i := range k.workers {
		k.workers[i] = k.worker()
	}
	defer func() {
		for _, w := range k.workers {
			w.Close()
		}
	}()
	added := k.load(producer, strike)
	added.Wait()
	k.drained(ctx)
	for _, w := range k.workers {
		_, _ = w.Ask("stop", nil, StepWait)
	}
	for _, a := range append(k.workers, producer) {
		a.Close() // ledgers are whole now
	}
	k.judge(ctx)
	t.Logf("%v", k.deaths)
}

// load adds tasks and has strike act between bursts until it reports false. The answers of adds may still be on their way when it returns.
func (k *kills) load(producer *agents.Agent, strike func() bool) *sync.WaitGroup {
	var added sync.WaitGroup
	for n, more := 0, true; more; more = strike() {
		answered := make(chan struct{}, k.burst)
		for range k.burst {
			n++
			c, err := producer.Do("add", map[string]any{"job": "work", "args": strconv.Itoa(n), "lease_ms": 2000, "attempts": 100, "timeout_ms": (addWait + k.silence).Milliseconds()})
			if err != nil {
				k.t.Fatalf("%v\n%s", err, producer.Said())
			}
			added.Go(func() {
				a, ok := <-c
				answered <- struct{}{}
				// No client sends what left it longer ago than servers remember it: its caller is told that its outcome is unknown.
				if ok && a.Err != nil && (k.silence < remembered || a.Err["reason"] != "expired" || a.Err["outcome"] != "unknown") {
					k.t.Errorf("an add failed: %v", a.Err)
				}
			})
		}
		if k.served {
			<-answered
		}
		time.Sleep(k.rest/4 + time.Duration(k.draw.Int64N(int64(k.rest)*3/4)))
	}
	return &added
}

// killServer ends the server with SIGKILL and starts it again.
func (k *kills) killServer() {
	k.deaths["server"]++
	k.server.Kill()
	time.Sleep(time.Duration(k.draw.IntN(300)) * time.Millisecond)
	if _, err := k.server.Start(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	k.front.Retarget(k.server.Address())
}

// killWorker ends a worker with SIGKILL; another one takes its place.
func (k *kills) killWorker() {
	k.deaths["worker"]++
	i := k.draw.IntN(len(k.workers))
	k.workers[i].Kill()
	k.killed[k.ledger[k.workers[i]]] = true
	k.workers[i] = k.worker()
}

// drainWorker ends a worker with SIGTERM; another one takes its place. Orchestrators kill after 30 s.
func (k *kills) drainWorker() {
	k.deaths["drain"]++
	i := k.draw.IntN(len(k.workers))
	w := k.workers[i]
	if err := w.Signal(syscall.SIGTERM); err != nil {
		k.t.Fatal(err)
	}
	if code, err := w.Exit(28 * time.Second); err != nil || code != 0 {
		k.t.Fatalf("a worker that drains ended with %d (%v)\n%s", code, err, w.Said())
	}
	k.workers[i] = k.worker()
}

// cut ends all connections.
func (k *kills) cut() {
	k.deaths["link"]++
	k.front.Reset()
}

// fallSilent has all connections carry nothing for a while, and ends them or not.
func (k *kills) fallSilent() {
	k.deaths["silence"]++
	k.front.Set(proc.Silence)
	time.Sleep(k.silence)
	k.front.Set(proc.Rule{})
	if k.draw.IntN(2) == 0 {
		k.front.Reset()
	}
}

// loseAnswers lets requests through and holds their answers, then ends all connections.
func (k *kills) loseAnswers() {
	k.deaths["answers"]++
	k.front.Set(proc.Rule{Back: proc.Way{Stall: true}})
	time.Sleep(time.Duration(10+k.draw.IntN(40)) * time.Millisecond)
	k.front.Set(proc.Rule{})
	k.front.Reset()
}

// client is the runner's own.
func (k *kills) client(ctx context.Context) *millrace.Client {
	k.t.Helper()
	c, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(), millrace.Token(k.server.Tokens[0].Secret),
		millrace.Dialer(k.server.Dial), millrace.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		k.t.Fatal(err)
	}
	return c
}

// tasks are all of the queue.
func (k *kills) tasks(ctx context.Context, c *millrace.Client) (all []*millrace.TaskInfo) {
	k.t.Helper()
	for page := ""; ; {
		tasks, next, err := c.List(ctx, millrace.ListQuery{Queue: "work", Limit: 500, Cursor: page})
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, tasks...)
		if page = next; page == "" {
			return all
		}
	}
}

// drained waits until no task waits or runs.
func (k *kills) drained(ctx context.Context) {
	k.t.Helper()
	c := k.client(ctx)
	defer c.Close() //nolint:errcheck // it only reads
	late := time.Now().Add(killsDrain)
	for {
		s, err := c.Queue("work").Stats(ctx)
		if err == nil && s.Ready+s.Running+s.Scheduled == 0 {
			return
		}
		if time.Now().After(late) {
			k.t.Fatalf("tasks are left after %v: %+v, %v", killsDrain, s, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// underWay adds a completion of unknown outcome for each delivery to a worker that was killed before it wrote down the end of the attempt:
// a ledger has a line for a settle once it is answered, so one that had left is in none.
func underWay(calls []check.Call) []check.Call {
	ended := map[string]bool{}
	name := func(c *check.Call) string { return fmt.Sprint(c.ID, c.Token) }
	for i := range calls {
		if c := &calls[i]; c.Op != check.OpDeliver && c.Op != check.OpCreate && c.Outcome != check.Unknown {
			ended[name(c)] = true
		}
	}
	for i := range len(calls) {
		if c := calls[i]; c.Op == check.OpDeliver && !ended[name(&c)] {
			c.Op, c.Outcome, c.Index = check.OpComplete, check.Unknown, 0
			c.Return = math.MaxInt64
			calls = append(calls, c)
		}
	}
	return calls
}

// judge reads everything back and has the ledgers judged.
func (k *kills) judge(ctx context.Context) {
	t := k.t
	t.Helper()
	var all [][]check.Call
	for _, path := range k.ledgers {
		f, err := os.Open(path)
		if err != nil {
			continue // the agent was killed before its first call
		}
		calls, _, err := check.ReadLedger(f, filepath.Base(path))
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if k.killed[path] {
			calls = underWay(calls)
		}
		all = append(all, calls)
	}
	calls := check.Merge(all...)
	c := k.client(ctx)
	defer c.Close() //nolint:errcheck // it only reads
	var final []check.TaskState
	completed := 0
	for _, x := range k.tasks(ctx, c) {
		state, _ := check.ParseState(x.State.String())
		final = append(final, check.TaskState{ID: x.ID, Queue: x.Queue, State: state, Attempt: uint32(x.Attempt)})
		if state == check.Completed {
			completed++
		}
		if k.gentle && (x.Failures > 0 || x.Crashes > 0) {
			t.Errorf("task %s has %d failures and %d crashes", x.ID, x.Failures, x.Crashes)
		}
	}
	for _, r := range []*check.Report{check.TotalQueue(calls, final, check.TotalOptions{}), check.LeaseExclusivity(calls)} {
		if r.Total > 0 || r.Invalid != "" {
			t.Errorf("%v", r)
		}
		t.Log(r)
	}
	sum, err := c.KV("sums").Get(ctx, "done")
	if err != nil || sum.String() != strconv.Itoa(completed) || completed == 0 {
		t.Errorf("%d tasks are completed, and their effects add up to %s (%v)", completed, sum, err)
	}
}
