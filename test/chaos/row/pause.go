package row

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// pausedQueue has the tasks, whose leases last pausedLease without a heartbeat.
	pausedQueue = "paused"
	pausedLease = time.Second
	// opsPerTask is how many settles with an outdated token are tried for each task that was taken over.
	opsPerTask = 8
)

// hold is a lease that the paused worker had.
type hold struct {
	ID    string
	Token uint64
}

// PauseWorker stops a worker process past its leases, lets another worker take its tasks over, and then makes about n
// attempts to settle with outdated tokens: by the process itself, once it goes on, and directly.
func PauseWorker(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	s, err := e.server(ctx, nil, "default")
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	c, err := dial(ctx, e, one{s}, 0, s.Tokens[0], "honest")
	if err != nil {
		return nil, err
	}
	p := &paused{e: e, s: s, c: c, o: o, winners: map[string]uint64{}}
	err = p.run(ctx, max(1, min(100, n/opsPerTask)))
	if err == nil {
		err = p.audit(ctx)
	}
	o.fail(c.close())
	if err != nil {
		return nil, err
	}
	if err := p.ledgers(); err != nil {
		return nil, err
	}
	finish(ctx, s, o)
	return o, nil
}

// paused is one run of that row.
type paused struct {
	e Env
	s *proc.Server
	c *client
	o *Outcome

	// held are the leases that the process had when it was paused.
	held []hold
	// cmd is the worker process, stdin its input, and lines are what it says.
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan workerLine

	//
	mu sync.Mutex
	// mu guards winners, which is the token that completed each task, by id.
	winners map[string]uint64
}

// workerLine is one event that the worker process tells: that it holds a task, or how a fenced
// commit of its own ended, with the error's code.
type workerLine struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	Token uint64 `json:"token,string"`
	Code  string `json:"code"`
}

// ledgerFile is where the worker process keeps its ledger.
func (p *paused) ledgerFile() string { return filepath.Join(p.e.Dir, "ledger-paused.jsonl") }

// run goes through the row:
//
//   - The process claims count tasks and is paused.
//   - An honest worker completes them all once their leases have expired.
//   - The process goes on, and tries to settle all that it held.
//   - Old, wrong and guessed tokens are tried directly.
func (p *paused) run(ctx context.Context, count int) error {
	job := millrace.Job[string, string](pausedQueue).Lease(pausedLease).Crashes(200).Retry(retries)
	for range count {
		if _, err := job.Add(ctx, p.c.Client, "x"); err != nil {
			return fmt.Errorf("add: %w", err)
		}
	}
	if err := p.launch(count); err != nil {
		return err
	}
	defer func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process does not read that its input is closed
		_ = p.stdin.Close()
		_ = p.cmd.Process.Kill() // it has ended by itself unless something failed
		_ = p.cmd.Wait()
	}()
	for taken := map[string]bool{}; len(taken) < count; {
		l, err := p.next(ctx, "held")
		if err != nil {
			return err
		}
		taken[l.ID] = true
		p.held = append(p.held, hold{l.ID, l.Token})
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause worker: %w", err)
	}
	p.o.Faults["pause"]++
	if err := p.takeOver(ctx, job); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume worker: %w", err)
	}
	if _, err := io.WriteString(p.stdin, "go on\n"); err != nil {
		return fmt.Errorf("resume worker: %w", err)
	}
	for open := len(p.held); open > 0; {
		l, err := p.next(ctx, "fenced")
		if err != nil {
			return err
		}
		p.o.Done++
		if slices.Contains(p.held, hold{l.ID, l.Token}) {
			open--
		}
		if l.Code != string(millrace.CodeLeaseLost) {
			p.o.fail(fmt.Errorf("fenced commit of paused worker, task %s token %d: %s", l.ID, l.Token, l.Code))
		}
	}
	if err := p.settleDirectly(ctx); err != nil {
		return err
	}
	return p.end()
}

// launch starts the worker process, and reads what it says into lines, which is closed when its output ends.
func (p *paused) launch(count int) error {
	p.cmd = exec.Command(p.e.Worker, "-queue", pausedQueue, "-slots", strconv.Itoa(count), "-lease", pausedLease.String(), "-ledger", p.ledgerFile())
	p.cmd.Env = append(os.Environ(), "MILLRACE_URL="+p.s.Address(), "MILLRACE_TOKEN="+p.s.Tokens[0].Secret)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	p.lines = make(chan workerLine, 4*count)
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(out)
		for in.Scan() {
			var l workerLine
			if json.Unmarshal(in.Bytes(), &l) == nil {
				p.lines <- l
			}
		}
	}()
	return nil
}

// next waits for the worker's next event of a kind; others are passed over.
func (p *paused) next(ctx context.Context, event string) (workerLine, error) {
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				return l, fmt.Errorf("the worker ended before it said %q", event)
			}
			if l.Event == event {
				return l, nil
			}
		case <-late.C:
			return workerLine{}, fmt.Errorf("the worker did not say %q", event)
		case <-ctx.Done():
			return workerLine{}, ctx.Err()
		}
	}
}

// takeOver completes all tasks by an honest worker of the same name, once their leases have expired.
func (p *paused) takeOver(ctx context.Context, job *millrace.JobOf[string, string]) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := p.c.Worker(millrace.Slots(16), millrace.Name("shared-name"), millrace.DrainTimeout(10*time.Second))
	job.Handle(w, func(_ context.Context, t *millrace.Task, _ string) (string, error) {
		t.Effects().KV("owner").Put(t.ID, "honest", millrace.IfAbsent())
		p.mu.Lock()
		p.winners[t.ID] = t.Token()
		p.mu.Unlock()
		return "honest", nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	err := settled(ctx, p.c.Client, []string{pausedQueue})
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	return err
}

// settleDirectly tries everything that an old, wrong or guessed token could be used for.
func (p *paused) settleDirectly(ctx context.Context) error {
	api := millracev1.NewTaskServiceClient(p.c.Conn())
	for _, h := range p.held {
		won := p.winners[h.ID]
		for _, item := range []*millracev1.SettleItem{
			complete(h.ID, h.Token, "zombie", true), // its own token, with effects
			fail(h.ID, h.Token),                     // another outcome
			release(h.ID, h.Token),
			complete(h.ID, won+1000, "zombie", true), // one that was never issued
			complete(h.ID, 1+h.Token%7, "zombie", true),
			fail(h.ID, won), // the winner's, the other way round
		} {
			if item.Token == won && item.GetComplete() != nil {
				continue // the guess was right: that is a replay, and judged below
			}
			code, _, err := settle(ctx, api, item)
			if err != nil {
				return err
			}
			p.o.Done++
			if code != "LEASE_LOST" {
				p.o.fail(fmt.Errorf("task %s: settle with token %d, completed by %d: answered %q", h.ID, item.Token, won, code))
			}
		}
		code, replayed, err := settle(ctx, api, complete(h.ID, won, "honest", false))
		if err != nil {
			return err
		}
		p.o.Done++
		if code != "" || !replayed {
			p.o.fail(fmt.Errorf("task %s: the same settle again with token %d: code %q, replayed %v", h.ID, won, code, replayed))
		}
		beat, err := api.Heartbeat(ctx, &millracev1.HeartbeatRequest{Items: []*millracev1.Hold{{Id: h.ID, Token: h.Token}}})
		if err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		if len(beat.Results) != 1 || !beat.Results[0].Lost {
			p.o.fail(fmt.Errorf("task %s: heartbeat with old token %d is not lost", h.ID, h.Token))
		}
	}
	return nil
}

// settle settles one item. code is that of its error, empty for none; replayed says that the item
// had been settled in the same way before.
func settle(ctx context.Context, api millracev1.TaskServiceClient, item *millracev1.SettleItem) (code string, replayed bool, err error) {
	resp, err := api.Settle(ctx, &millracev1.SettleRequest{Items: []*millracev1.SettleItem{item}})
	if err != nil {
		return "", false, fmt.Errorf("settle: %w", err)
	}
	if len(resp.Results) != 1 {
		return "", false, fmt.Errorf("settle: %d results for one item", len(resp.Results))
	}
	return resp.Results[0].Error.GetCode(), resp.Results[0].Replayed, nil
}

// complete, fail and release make an item each. Effects of complete would show if they were taken:
// a key that differs from the honest one, and a task.
func complete(id string, token uint64, result string, effects bool) *millracev1.SettleItem {
	item := &millracev1.SettleItem{Id: id, Token: token, Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: []byte(strconv.Quote(result))}}}
	if effects {
		put := &millracev1.KVPut{Keyspace: "owner", Key: []byte(id), Value: []byte("zombie")}
		task := &millracev1.TaskSpec{Id: millrace.NewID(), Queue: "followed", Payload: []byte(`"zombie"`)}
		item.Effects = &millracev1.Effects{Ops: []*millracev1.Op{
			{Op: &millracev1.Op_KvPut{KvPut: put}}, {Op: &millracev1.Op_TaskCreate{TaskCreate: task}},
		}}
	}
	return item
}

func fail(id string, token uint64) *millracev1.SettleItem {
	return &millracev1.SettleItem{Id: id, Token: token, Outcome: &millracev1.SettleItem_Fail{Fail: &millracev1.Fail{Fatal: true}}}
}

func release(id string, token uint64) *millracev1.SettleItem {
	return &millracev1.SettleItem{Id: id, Token: token, Outcome: &millracev1.SettleItem_Release{Release: &millracev1.Release{}}}
}

// end closes the worker's input and waits until it has ended.
func (p *paused) end() error {
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("end worker: %w", err)
	}
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return nil // its output is closed: it has ended, or is about to
			}
		case <-late.C:
			return fmt.Errorf("the worker did not end")
		}
	}
}

// audit reads back that every task was completed by the honest worker, and that nothing of a zombie is there.
func (p *paused) audit(ctx context.Context) error {
	for _, h := range p.held {
		info, err := p.c.Task(ctx, h.ID)
		if err != nil {
			return fmt.Errorf("read task: %w", err)
		}
		// A server that goes on to give tasks to a worker which has stopped makes more of them than two.
		p.o.Figures["attempts_most"] = max(p.o.Figures["attempts_most"], float64(info.Attempt))
		if info.State != millrace.Completed || string(info.Result) != "honest" {
			p.o.fail(fmt.Errorf("task %s is %s with result %q, completed by token %d", h.ID, info.State, info.Result, p.winners[h.ID]))
		}
		owner, _, err := text(ctx, p.c.KV("owner"), h.ID)
		if err != nil {
			return err
		}
		fenced, _, err := text(ctx, p.c.KV("fenced"), h.ID)
		if err != nil {
			return err
		}
		if owner != "honest" || fenced != "" {
			p.o.fail(fmt.Errorf("task %s: its keys are %q and %q", h.ID, owner, fenced))
		}
	}
	followed, err := tasks(ctx, p.c.Client, "", []string{"followed"})
	if err != nil {
		return err
	}
	for _, t := range followed {
		p.o.fail(fmt.Errorf("follow-up task %s of a zombie is there", t.ID))
	}
	return nil
}

// ledgers judges the calls of both workers. The paused one may not have completed anything.
func (p *paused) ledgers() error {
	calls, err := readLedgers([]string{p.c.ledger.Name(), p.ledgerFile()})
	if err != nil {
		return err
	}
	for _, c := range calls {
		if c.Clock == filepath.Base(p.ledgerFile()) && c.Op == check.OpComplete && c.Outcome == check.OK {
			p.o.fail(fmt.Errorf("the paused worker completed a task: %s", &c))
		}
	}
	p.o.judge(check.LeaseExclusivity(calls), check.IndexOrder(calls))
	return nil
}
