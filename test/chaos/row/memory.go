package row

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// largeGroup is enough memory, in bytes; half of it is for the server's buffers and caches.
	largeGroup = 256 << 20
	// smallGroup is less than a server needs under load, in bytes.
	smallGroup = 64 << 20
	// serverMemory is what the server is told to take, in bytes.
	serverMemory = largeGroup / 2
	// backlogTimes is how many times its memory the backlog is; in brief runs it is twice.
	backlogTimes = 10
	// backlogPayload is the size of a task's payload, in bytes.
	backlogPayload = 64 << 10
	// backlogMakers is how many goroutines make tasks.
	backlogMakers = 8
	kindBacklog   = "backlog"
	// endsWithin bounds how long the system takes to end a server that has too little memory, under load.
	endsWithin = 30 * time.Second
)

var backlogJob = job[string](kindBacklog)

// LittleMemory has a server make and work off a backlog of ten times its memory within a control group of twice its memory,
// under a mixed load of two tenants: the system does not end it, and each call of a patient caller ends as done or refused.
// Then it is started in groups so small that the system ends it, n times, and nothing that was acknowledged is lost.
func LittleMemory(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	s, err := e.server(ctx, []string{"--memory", strconv.Itoa(serverMemory)}, "default", "neighbour")
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	large, err := proc.NewGroup(largeGroup)
	if err != nil {
		return nil, err
	}
	defer func() { s.Kill(); o.fail(large.Close()) }()
	s.Within(large)
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	r := &memoryRun{e: e, o: o, s: s, large: large}
	if r.backlog, err = dial(ctx, e, one{s}, 0, s.Tokens[0], "backlog"); err != nil {
		return nil, err
	}
	m, err := newMixed(ctx, e, one{s}, s.Tokens[0], kinds...)
	if err != nil {
		return nil, err
	}
	defer m.quiet.close() //nolint:errcheck // the audit has read all it wants
	b, err := newNeighbour(ctx, e, one{s}, s.Tokens[1])
	if err != nil {
		return nil, err
	}
	defer b.quiet.close() //nolint:errcheck // the audit has read all it wants
	underLoad(ctx, one{s}, o, m, b, func(ctx context.Context) error { return r.faults(ctx, n) })
	o.fail(r.backlog.close())
	if s.Address() == "" {
		return o, nil // it does not serve any more: that is among the errors
	}
	if err := errors.Join(m.audit(ctx, o), b.audit(ctx, o), r.audit(ctx, m.quiet)); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	finish(ctx, s, o)
	return o, nil
}

// memoryRun is a run with little memory.
type memoryRun struct {
	e Env
	o *Outcome
	s *proc.Server
	// large is the group with enough memory.
	large *proc.Group
	// backlog is the client that makes the backlog and works it off.
	backlog *client

	mu sync.Mutex // guards the fields below
	// made and refused count the creates of the backlog by their ends.
	made    int
	refused int
	// most is the most memory of the server that was seen, without caches, in bytes.
	most int64
}

// faults fills the backlog, has the server ended for its memory, and works the backlog off.
func (r *memoryRun) faults(ctx context.Context, n int) error {
	times := backlogTimes
	if r.e.Brief {
		times = 2
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(watching) })
	r.fill(ctx, times*serverMemory/backlogPayload)
	if err := r.unharmed(); err != nil {
		return err
	}
	for i := range n {
		if err := r.starve(ctx); err != nil {
			return fmt.Errorf("end %d for memory: %w", i+1, err)
		}
		r.o.Done++
	}
	err := r.drain(ctx)
	stop()
	watch.Wait()
	r.o.Figures["backlog_mib"] = float64(r.made * backlogPayload >> 20)
	r.o.Figures["refused"] = float64(r.refused)
	r.o.Figures["memory_mib"] = float64(r.most >> 20)
	return errors.Join(err, r.unharmed())
}

// unharmed returns an error when the system has ended the server in the large group, or when the
// server has ended by itself.
func (r *memoryRun) unharmed() error {
	kills, err := r.large.Kills()
	if err == nil && kills > 0 {
		err = fmt.Errorf("the system ended the server for its memory in a group of %d MiB, %d times, see %s", largeGroup>>20, kills, r.s.LogFile())
	}
	if err == nil && r.s.Ended() {
		err = fmt.Errorf("the server ended by itself, see %s", r.s.LogFile())
	}
	return err
}

// watch looks at the server's memory, ten times a second, until ctx ends.
func (r *memoryRun) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := r.large.Anonymous(); err == nil {
			r.mu.Lock()
			r.most = max(r.most, n)
			r.mu.Unlock()
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// fill makes n tasks that no worker takes yet.
func (r *memoryRun) fill(ctx context.Context, n int) {
	var next atomic.Int64
	var makers sync.WaitGroup
	for i := range backlogMakers {
		makers.Go(func() {
			payload := payloads(r.e.Seed, uint64(i), backlogPayload)
			for ctx.Err() == nil && next.Add(1) <= int64(n) && !r.s.Ended() {
				r.make(ctx, payload(), true)
			}
		})
	}
	makers.Wait()
}

// payloads returns what makes texts of about a size, each another one, which compression makes
// hardly smaller. The same seed and stream make the same texts.
func payloads(seed, stream uint64, size int) func() string {
	random, b := rand.New(rand.NewPCG(seed, 500+stream)), make([]byte, size*3/4)
	return func() string {
		for i := 0; i+8 <= len(b); i += 8 {
			v := random.Uint64()
			for k := range 8 {
				b[i+k] = byte(v >> (8 * k))
			}
		}
		return base64.StdEncoding.EncodeToString(b)
	}
}

// make makes one task of the backlog. Such a call must end as done or refused, within patience, where the server is not ended
// meanwhile.
func (r *memoryRun) make(ctx context.Context, payload string, must bool) {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := backlogJob.Add(call, r.backlog.Client, payload)
	end := millrace.OutcomeOf(err)
	r.mu.Lock()
	switch {
	case end == millrace.OK:
		r.made++
	case end == millrace.Refused:
		r.refused++
	case must && ctx.Err() == nil:
		r.o.fail(fmt.Errorf("create of the backlog: %w", err))
	}
	r.mu.Unlock()
	if err != nil {
		pause(ctx, 20*time.Millisecond)
	}
}

// starve starts the server with too little memory, has it do more and more until the system ends
// it, and starts it with enough. Where it survives, half of that memory is tried next.
func (r *memoryRun) starve(ctx context.Context) error {
	for size := int64(smallGroup); ; size /= 2 {
		if err := r.s.Stop(); err != nil {
			return err
		}
		small, err := proc.NewGroup(size)
		if err != nil {
			return err
		}
		ended, err := r.endIn(ctx, small, size)
		r.s.Kill()
		if err := errors.Join(err, small.Close()); err != nil {
			return err
		}
		r.s.Within(r.large)
		if _, err := r.s.Start(ctx); err != nil {
			return fmt.Errorf("start with enough memory: %w, see %s", err, r.s.LogFile())
		}
		if ended {
			r.o.Faults[fmt.Sprintf("oom_kill_%d_mib", size>>20)]++
			return nil
		}
		r.o.Faults[fmt.Sprintf("survived_%d_mib", size>>20)]++
		if size <= 4<<20 {
			return errors.New("the system ends no server for its memory here")
		}
	}
}

// endIn starts the server in a group, and loads it until it is ended there. That it ends in any
// other way is an error.
func (r *memoryRun) endIn(ctx context.Context, g *proc.Group, size int64) (ended bool, err error) {
	r.s.Within(g)
	if _, err := r.s.Launch(); err != nil {
		return false, err
	}
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	for i := range backlogMakers {
		load.Go(func() {
			payload := payloads(r.e.Seed, uint64(100+i), backlogPayload)
			for loading.Err() == nil {
				r.make(loading, payload(), false)
			}
		})
	}
	killed := r.s.AwaitKill(ctx, endsWithin)
	kills, err := g.Kills()
	stop()
	load.Wait()
	if killed != (kills > 0) || !killed && r.s.Ended() {
		err = errors.Join(err, fmt.Errorf("in a group of %d MiB the server ended by itself, see %s", size>>20, r.s.LogFile()))
	}
	return killed, errors.Join(err, ctx.Err())
}

// drain works the backlog off, with one worker.
func (r *memoryRun) drain(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	var ended error
	work.Go(func() {
		w := r.backlog.Worker(millrace.Slots(slots), millrace.Name("backlog"), millrace.DrainTimeout(10*time.Second))
		backlogJob.Handle(w, func(context.Context, *millrace.Task, string) (string, error) { return "", nil })
		ended = w.Run(working)
	})
	err := r.drained(ctx)
	stop()
	work.Wait()
	return errors.Join(err, ended)
}

// drained waits until the backlog is worked off, as long as it becomes less.
func (r *memoryRun) drained(ctx context.Context) error {
	before, since := ^uint64(0), time.Now()
	for {
		left, err := r.left(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("stats of the backlog: %w", err)
		case left == 0:
			return nil
		case left < before:
			before, since = left, time.Now()
		case time.Since(since) > drainWithin:
			return fmt.Errorf("%d tasks of the backlog are left, and nothing was done about them for %s", left, drainWithin)
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// left counts the tasks of the backlog that have not ended.
func (r *memoryRun) left(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := r.backlog.Queue(kindBacklog).Stats(ctx)
	return s.Blocked + s.Scheduled + s.Ready + s.Running, err
}

// audit judges that each task of the backlog which was acknowledged is there, and was completed once.
func (r *memoryRun) audit(ctx context.Context, quiet *client) error {
	final, err := tasks(ctx, quiet.Client, "", []string{kindBacklog})
	if err != nil {
		return err
	}
	calls, err := readLedgers([]string{r.backlog.ledger.Name()})
	if err != nil {
		return err
	}
	total := check.TotalQueue(calls, final, check.TotalOptions{})
	total.Checker = "backlog_queue"
	r.o.judge(total)
	return nil
}
