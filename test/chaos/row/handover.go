package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
)

// What a leader has when it is lost. In brief runs it is a fifth of each.
const (
	handReady   = 10_000
	handDelayed = 10_000
	handLeased  = 1_000
	handClaims  = 100 // that wait for a task
	handWaits   = 100 // for the end of a task
)

// Kinds of tasks, each in a queue of its name.
const (
	// These are ready when the leader is lost.
	handKindReady = "ready"
	// These become due before, while and after there is no leader.
	handKindDelayed = "delayed"
	handKindHeld    = "held"    // under leases of a worker that lives on
	handKindDropped = "dropped" // under leases of a worker that is gone
	handKindLater   = "later"   // claims wait for them before they are made
	// Callers wait for the ends of these.
	handKindAwaited = "awaited"
)

var handKinds = []string{handKindReady, handKindDelayed, handKindHeld, handKindDropped, handKindLater, handKindAwaited}

const (
	// heldLease outlasts a loss. droppedLease ends soon after one, and then others get the tasks.
	heldLease    = time.Minute
	droppedLease = 5 * time.Second
	// Delayed tasks are due from then on, some each step: before, while and after there is no leader.
	firstDue = 3 * time.Second
	dueStep  = 200 * time.Millisecond
	dueSteps = 20
	// early is what the clocks of a client and of shard time may differ by on one machine, with the time an answer takes.
	early = 500 * time.Millisecond
)

// HandOver kills the leader n times when it has thousands of ready and delayed tasks, leases, claims that wait and waits
// for results: the next leader delivers all of it, no lease loses its token or its deadline, and all that waits ends.
func HandOver(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	c, err := e.cluster(ctx, 3, false, "default")
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // what matters was stopped in order
	h := &handover{e: e, o: o, c: c, rand: rand.New(rand.NewPCG(e.Seed, 13))}
	for i := range h.clients {
		if h.clients[i], err = dial(ctx, e, c, i, c.Tokens[0], fmt.Sprint(i)); err != nil {
			return nil, err
		}
	}
	quiet, err := dial(ctx, e, c, 0, c.Tokens[0], "")
	if err != nil {
		return nil, err
	}
	defer quiet.close() //nolint:errcheck // the audit has read all it wants
	for i := range n {
		if err := h.round(ctx); err != nil {
			o.fail(fmt.Errorf("loss %d of the leader: %w", i+1, err))
			break
		}
		o.Done++
	}
	h.gaps.tell(o, "next_ok")
	for _, c := range h.clients {
		o.fail(c.close())
	}
	if !c.up() {
		return o, nil
	}
	final, err := tasks(ctx, quiet.Client, "", handKinds)
	if err != nil {
		return nil, err
	}
	stats, err := counters(ctx, quiet.Client, handKinds)
	if err != nil {
		return nil, err
	}
	calls, err := readLedgers([]string{h.clients[0].ledger.Name(), h.clients[1].ledger.Name()})
	if err != nil {
		return nil, err
	}
	o.judge(check.TotalQueue(calls, final, check.TotalOptions{}), check.LeaseExclusivity(calls), check.IndexOrder(calls), check.StatsRecount(stats, final))
	return o, stopAndJudge(ctx, c, o, calls, nil)
}

// handover is a run of that row.
type handover struct {
	e    Env
	o    *Outcome
	c    many
	rand *rand.Rand
	// clients make calls in turn. Each tries another node first.
	clients [2]*client
	// gaps are the times from a loss to the next acknowledged write.
	gaps byKind
}

// loaded is what a leader has in one round.
type loaded struct {
	// due has the delayed tasks, by id.
	due map[string]dueAt
	// held are the tasks of the worker that lives on.
	held []millrace.Claimed
	// dropped are those of the worker that is gone, by id.
	dropped map[string]millrace.Claimed
	// until has the deadlines of some that are held, as the server shows them.
	until map[string]time.Time
	// awaited are the tasks whose ends callers wait for.
	awaited []*millrace.Handle[string]

	// waits are those callers, and claims the callers that wait for a task.
	waits, claims sync.WaitGroup
	mu            sync.Mutex // guards the fields below
	// seen has the first delivery of each task, by id.
	seen map[string]delivery
	// errs are those of what waited.
	errs []error
}

// dueAt are the earliest and the latest instant at which a delayed task can be meant to be due.
type dueAt struct{ earliest, latest time.Time }

// delivery is the first one of a task that a worker of this round saw.
type delivery struct {
	at      time.Time
	token   uint64
	attempt int
}

// note keeps an error of something that waited.
func (l *loaded) note(err error) {
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.errs = append(l.errs, err)
	}
}

// size is how many there are of something in this run.
func (h *handover) size(full int) int {
	if h.e.Brief {
		return full / 5
	}
	return full
}

// handJob declares the tasks of a kind. Each may lose its worker many times.
func handJob(kind string) *millrace.JobOf[string, string] {
	return millrace.Job[string, string](kind).Lease(10 * time.Second).Crashes(200).Retry(retries)
}

// add makes tasks, through either client, and expects that all are made.
func (h *handover) add(ctx context.Context, kind string, count int, opts ...millrace.AddOption) ([]*millrace.Handle[string], error) {
	made, err := handJob(kind).AddMany(ctx, h.clients[h.rand.IntN(2)].Client, make([]string, count), opts...)
	if err != nil {
		return nil, fmt.Errorf("add %d %s tasks: %w", count, kind, err)
	}
	return made, nil
}

// round is one loss of the leader:
//
//   - The leader is given all that it will hand over, and is killed.
//   - Tasks are made for the claims that wait; the time until then is the gap.
//   - Workers take what is ready and due, while held tasks are completed under their old leases.
//   - The node starts again, and all that waited must have its end.
//   - What came when is judged.
func (h *handover) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	lead, err := h.c.Leader(ctx)
	if err != nil {
		return err
	}
	l := &loaded{due: map[string]dueAt{}, dropped: map[string]millrace.Claimed{}, until: map[string]time.Time{}, seen: map[string]delivery{}}
	if err := h.load(ctx, l); err != nil {
		return err
	}
	at := time.Now()
	if lead.Ended() || !lead.Kill() {
		return fmt.Errorf("node %d ended by itself, see %s", lead.ID, lead.LogFile())
	}
	h.o.Faults["kill"]++
	if _, err := h.add(ctx, handKindLater, h.size(handClaims)); err != nil {
		return err
	}
	h.gaps.add(kindKill, time.Since(at))
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for i, c := range h.clients {
		workers.Go(func() { l.note(h.work(working, l, c, fmt.Sprint("worker-", i))) })
	}
	h.settleHeld(ctx, l)
	drained := settled(ctx, h.clients[0].Client, handKinds)
	stop()
	workers.Wait()
	if _, err := lead.Start(ctx); err != nil {
		return errors.Join(drained, fmt.Errorf("restart node %d: %w, see %s", lead.ID, err, lead.LogFile()))
	}
	late := time.AfterFunc(hangs, cancel) // what waits has what it waited for
	defer late.Stop()
	l.waits.Wait()
	l.claims.Wait()
	for _, err := range l.errs {
		h.o.fail(err)
	}
	h.judge(l)
	return drained
}

// load gives the leader all that it will hand over. Delayed tasks come last, because their time
// begins when they are made.
func (h *handover) load(ctx context.Context, l *loaded) (err error) {
	for _, kind := range []string{handKindHeld, handKindDropped} {
		count, lease := h.size(handLeased)*4/5, heldLease
		if kind == handKindDropped {
			count, lease = h.size(handLeased)/5, droppedLease
		}
		if _, err := h.add(ctx, kind, count); err != nil {
			return err
		}
		if err := h.take(ctx, l, kind, count, lease); err != nil {
			return err
		}
	}
	if l.awaited, err = h.add(ctx, handKindAwaited, h.size(handWaits)); err != nil {
		return err
	}
	for _, task := range l.awaited {
		l.waits.Go(func() {
			if got, err := task.Wait(ctx); err != nil || got != handKindAwaited {
				l.note(fmt.Errorf("wait for task %s: got %q, %w", task.ID, got, err))
			}
		})
	}
	for i := range h.size(handClaims) {
		l.claims.Go(func() { l.note(h.claim(ctx, h.clients[i%2])) })
	}
	if _, err := h.add(ctx, handKindReady, h.size(handReady)); err != nil {
		return err
	}
	for i := range dueSteps {
		after := firstDue + time.Duration(i)*dueStep
		begin := time.Now()
		made, err := h.add(ctx, handKindDelayed, h.size(handDelayed)/dueSteps, millrace.In(after))
		if err != nil {
			return err
		}
		// The leader took them at some time between begin and now.
		for _, task := range made {
			l.due[task.ID] = dueAt{begin.Add(after), time.Now().Add(after)}
		}
	}
	for _, t := range l.held[:min(50, len(l.held))] {
		info, err := h.clients[1].Task(ctx, t.ID)
		if err != nil {
			return fmt.Errorf("read task: %w", err)
		}
		l.until[t.ID] = info.LeaseUntil
	}
	return nil
}

// take claims tasks of a kind, by a worker that does nothing with them yet. A client that does not know the leader learns it
// by its other calls.
func (h *handover) take(ctx context.Context, l *loaded, kind string, count int, lease time.Duration) error {
	for i, taken := 0, 0; taken < count; i++ {
		got, err := h.clients[i%2].Claim(ctx, millrace.ClaimQuery{Queues: []string{kind}, Max: 128, Lease: lease, Wait: time.Second, Worker: "holder"})
		if ctx.Err() != nil {
			return fmt.Errorf("claim %s tasks: %w", kind, err)
		}
		if err != nil {
			pause(ctx, 20*time.Millisecond)
		}
		taken += len(got)
		for _, t := range got {
			if kind == handKindHeld {
				l.held = append(l.held, t)
			} else {
				l.dropped[t.ID] = t
			}
		}
	}
	return nil
}

// claim waits for a task until it has one, and completes it. A call that was under way at the leader ends with it.
func (h *handover) claim(ctx context.Context, c *client) error {
	for ctx.Err() == nil {
		got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{handKindLater}, Lease: 10 * time.Second, Wait: 20 * time.Second, Worker: "waiter"})
		if err != nil {
			pause(ctx, 20*time.Millisecond) // no node leads, or it does not know yet which one does
			continue
		}
		for _, t := range got {
			if _, err := c.Complete(ctx, t.ID, t.Token, "x"); err != nil && !errors.Is(err, millrace.ErrLeaseLost) {
				return fmt.Errorf("complete task %s, which a waiting claim got: %w", t.ID, err)
			}
		}
		if len(got) > 0 {
			return nil
		}
	}
	return errors.New("a claim waits although there is a task for it")
}

// work completes what comes, and notes when it came.
func (h *handover) work(ctx context.Context, l *loaded, c *client, name string) error {
	w := c.Worker(millrace.Slots(64), millrace.Name(name), millrace.DrainTimeout(10*time.Second))
	for _, kind := range []string{handKindReady, handKindDelayed, handKindDropped, handKindAwaited} {
		handJob(kind).Handle(w, func(_ context.Context, t *millrace.Task, _ string) (string, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if _, ok := l.seen[t.ID]; !ok {
				l.seen[t.ID] = delivery{time.Now(), t.Token(), t.Attempt}
			}
			return kind, nil
		})
	}
	return w.Run(ctx)
}

// settleHeld completes, at the next leader, what is held under leases of the last one. Of some of
// them it first reads whether the lease is the same: its attempt and its deadline.
func (h *handover) settleHeld(ctx context.Context, l *loaded) {
	for id, until := range l.until {
		info, err := h.clients[1].Task(ctx, id)
		switch {
		case err != nil:
			h.o.fail(fmt.Errorf("read task: %w", err))
		case info.State != millrace.Running || info.Attempt != 1 || !info.LeaseUntil.Equal(until):
			h.o.fail(fmt.Errorf("task %s was running in attempt 1 until %s, and with the next leader it is %s in attempt %d until %s",
				id, until, info.State, info.Attempt, info.LeaseUntil))
		}
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(l.held, max(1, (len(l.held)+15)/16)) {
		wg.Go(func() {
			for i, t := range part {
				if _, err := h.clients[i%2].Complete(ctx, t.ID, t.Token, "held"); err != nil {
					l.note(fmt.Errorf("complete task %s under the token %d, which its worker had before: %w", t.ID, t.Token, err))
				}
			}
		})
	}
	wg.Wait()
	h.o.Figures["leases_kept"] += float64(len(l.held))
}

// judge compares when and how tasks were delivered with what was asked for. Delayed tasks come when
// they are due, and at most hangs later. Tasks of the worker that is gone come after their leases
// have ended, as the next attempt, under a higher token.
func (h *handover) judge(l *loaded) {
	var late []time.Duration
	for id, due := range l.due {
		got, ok := l.seen[id]
		switch {
		case !ok:
			h.o.fail(fmt.Errorf("delayed task %s was never delivered", id))
		case got.at.Before(due.earliest.Add(-early)):
			h.o.fail(fmt.Errorf("delayed task %s was delivered %s early", id, due.earliest.Sub(got.at)))
		case got.at.After(due.latest.Add(hangs)):
			h.o.fail(fmt.Errorf("delayed task %s was delivered %s late", id, got.at.Sub(due.latest)))
		default:
			late = append(late, got.at.Sub(due.latest))
		}
	}
	for id, old := range l.dropped {
		got, ok := l.seen[id]
		switch {
		case !ok:
			h.o.fail(fmt.Errorf("task %s of a worker that is gone was not delivered again", id))
		case got.at.Before(old.LeaseUntil.Add(-early)):
			h.o.fail(fmt.Errorf("task %s of a worker that is gone was delivered again %s before its lease ended", id, old.LeaseUntil.Sub(got.at)))
		case got.token <= old.Token || got.attempt != old.Attempt+1:
			h.o.fail(fmt.Errorf("task %s had token %d in attempt %d, and then %d in attempt %d", id, old.Token, old.Attempt, got.token, got.attempt))
		}
	}
	h.o.Figures["late_p50_s"] = max(h.o.Figures["late_p50_s"], percentile(late, 50))
	h.o.Figures["late_p99_s"] = max(h.o.Figures["late_p99_s"], percentile(late, 99))
}
