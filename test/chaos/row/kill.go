package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// KillServer kills the server n times under a mixed load, and then lets the load end and judges all of it.
func KillServer(ctx context.Context, e Env, n int) (*Outcome, error) {
	o, _, err := killUnderLoad(ctx, e, n, kinds...)
	if err == nil {
		o.Done = o.Faults["kill"]
	}
	return o, err
}

// KillUnderEffects makes about n completions with effects while the server is killed. Each effect task completes and puts
// a key of its own in one commit, which is read while it happens, at the end and in the log: both or neither, at one
// index.
func KillUnderEffects(ctx context.Context, e Env, n int) (*Outcome, error) {
	kills := max(2, min(8, n/150)) // what a load makes between two kills, with room to spare
	o, final, err := killUnderLoad(ctx, e, kills, kindEffect, kindMove)
	if err == nil {
		o.Done = min(n, final)
		if o.Done == 0 && o.Invalid == "" {
			o.Invalid = "no task with effects was completed"
		}
	}
	return o, err
}

// killUnderLoad makes a server that archives its log, and kills it under a mixed load of the kinds
// that are made. It returns also how many tasks with effects were completed.
func killUnderLoad(ctx context.Context, e Env, kills int, made ...string) (o *Outcome, effects int, err error) {
	s, err := e.server(ctx, e.archiveFlags(), "default", "neighbour")
	if err != nil {
		return nil, 0, err
	}
	return faultsUnderLoad(ctx, e, s, e.archive(), made, func(ctx context.Context, o *Outcome) error { return killLoop(ctx, e, s, o, kills) })
}

// faultsUnderLoad starts a server, loads it with tasks of the kinds that are made, makes faults, lets the load end, and judges
// all of it. It returns also how many tasks with effects were completed.
func faultsUnderLoad(ctx context.Context, e Env, s *proc.Server, archive string, made []string, faults func(ctx context.Context, o *Outcome) error) (o *Outcome, effects int, err error) {
	o = newOutcome()
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, 0, err
	}
	m, err := newMixed(ctx, e, one{s}, s.Tokens[0], made...)
	if err != nil {
		return nil, 0, err
	}
	defer m.quiet.close() //nolint:errcheck // the audit has read all it wants
	b, err := newNeighbour(ctx, e, one{s}, s.Tokens[1])
	if err != nil {
		return nil, 0, err
	}
	defer b.quiet.close() //nolint:errcheck // the audit has read all it wants
	underLoad(ctx, one{s}, o, m, b, func(ctx context.Context) error { return faults(ctx, o) })
	if s.Address() == "" {
		return o, 0, nil // it does not serve any more: that is among the errors
	}
	if err := errors.Join(m.audit(ctx, o), b.audit(ctx, o)); err != nil {
		return nil, 0, fmt.Errorf("audit: %w", err)
	}
	for _, r := range o.Reports {
		if r.Checker == "effects_once" {
			effects += r.Counts["completed"] / 2 // lists and own keys
		}
		effects += r.Counts["transfers"]
	}
	if !finish(ctx, s, o) {
		return o, effects, nil
	}
	own, err := m.calls()
	if err != nil {
		return nil, 0, err
	}
	others, err := b.calls()
	if err != nil {
		return nil, 0, err
	}
	if err := auditLog(archive, s.DataDir(), o, append(own, others...), m.completed); err != nil {
		return nil, 0, fmt.Errorf("audit the log: %w", err)
	}
	return o, effects, nil
}

// underLoad makes faults while both tenants are at work, and then lets what they began come to its
// end: first the loads stop, then the workers, when no task is left, and then the clients. What
// goes wrong is among the errors of o.
func underLoad(ctx context.Context, s system, o *Outcome, m *mixed, b *neighbour, faults func(context.Context) error) {
	loading, stopLoad := context.WithCancel(ctx)
	working, stopWork := context.WithCancel(ctx)
	defer stopLoad()
	defer stopWork()
	var load, work sync.WaitGroup
	load.Go(func() { m.load(loading) })
	load.Go(func() { b.load(loading, rand.New(rand.NewPCG(m.e.Seed, 300))) })
	var ended [2]error
	work.Go(func() { ended[0] = m.work(working) })
	work.Go(func() { ended[1] = b.work(working) })
	o.fail(faults(ctx))
	pause(ctx, 200*time.Millisecond)
	stopLoad()
	load.Wait()
	if s.up() {
		// What a caller no longer waits for may still be on its way. A stream keeps its order, so that it is in when this is.
		for i, c := range []*client{m.clients[0], m.clients[1], b.client} {
			o.fail(c.Commit(ctx, func(tx *millrace.Tx) { tx.KV("barrier").Put(strconv.Itoa(i), "in") }))
		}
		o.fail(settled(ctx, m.quiet.Client, kinds))
		o.fail(settled(ctx, b.quiet.Client, kinds))
	}
	stopWork()
	work.Wait()
	o.fail(errors.Join(ended[:]...))
	for _, c := range []*client{m.clients[0], m.clients[1], b.client} {
		o.fail(c.close())
	}
}

// killer kills one server and keeps account of it.
type killer struct {
	e Env
	s *proc.Server
	o *Outcome
	// r draws when and where.
	r *rand.Rand
	// ready is how long restarts took.
	ready []time.Duration
}

// killLoop kills and restarts: 50 to 800 ms after the server is ready, one time in four a second later, when state has
// been written out, one time in ten again while it recovers, and one time in twenty at a point of its code. Once it is
// stopped in order: after that, restarts begin with stored state and the log is no longer all there is.
func killLoop(ctx context.Context, e Env, s *proc.Server, o *Outcome, kills int) error {
	k := &killer{e: e, s: s, o: o, r: rand.New(rand.NewPCG(e.Seed, 7))}
	// atPoint is how many kills come before the one at a point of the code. In every other run it
	// is more than there are.
	atPoint := k.r.IntN(2 * kills)
	for done := 0; done < kills && ctx.Err() == nil; done++ {
		if done > 0 && done >= kills/2 && o.Faults["stop"] == 0 {
			pause(ctx, 100*time.Millisecond)
			if err := restart(ctx, s); err != nil {
				return err
			}
			o.Faults["stop"]++
		}
		delay := time.Duration(50+k.r.IntN(750)) * time.Millisecond
		if done%4 == 1 {
			delay += time.Second
		}
		pause(ctx, delay)
		if err := k.kill(); err != nil {
			return err
		}
		if done+1 < kills && k.r.IntN(10) == 0 {
			done++
			if err := k.killInRecovery(ctx); err != nil {
				return err
			}
		}
		if done+1 < kills && e.Faults != "" && done >= atPoint {
			done++
			atPoint = kills // once is enough
			if err := k.killAtPoint(ctx); err != nil {
				return err
			}
		}
		if err := k.start(ctx); err != nil {
			return fmt.Errorf("restart after kill %d: %w, see %s", done+1, err, s.LogFile())
		}
	}
	o.Figures["ready_p50_s"], o.Figures["ready_p99_s"] = percentile(k.ready, 50), percentile(k.ready, 99)
	return ctx.Err()
}

// start starts the server, and notes how long it took until it was ready.
func (k *killer) start(ctx context.Context) error {
	took, err := k.s.Start(ctx)
	if err == nil {
		k.ready = append(k.ready, took)
	}
	return err
}

// kill kills the server, which may not have ended by itself.
func (k *killer) kill() error {
	if k.s.Ended() || !k.s.Kill() {
		return fmt.Errorf("the server ended by itself, see %s", k.s.LogFile())
	}
	k.o.Faults["kill"]++
	return nil
}

// killInRecovery starts the server and kills it within 60 ms, which is before it is ready or soon after.
func (k *killer) killInRecovery(ctx context.Context) error {
	if _, err := k.s.Launch(); err != nil {
		return err
	}
	pause(ctx, time.Duration(k.r.IntN(60))*time.Millisecond)
	if !k.s.Kill() {
		return fmt.Errorf("the server ended by itself while it recovered, see %s", k.s.LogFile())
	}
	k.o.Faults["kill"]++
	k.o.Faults["kill_in_recovery"]++
	return nil
}

// points are places of the server's code at which it is killed. visits is how many visits of one a
// run can count on; the kill comes at one of those.
var points = []struct {
	name   string
	visits int
}{
	{"wal.open", 1},
	{"wal.create", 2},
	{"wal.recycle", 1},
	{"wal.archive", 1},
	{"wal.seal", 3},
	{"wal.append", 300},
	{"wal.write", 100},
	{"wal.written", 100},
	{"wal.synced", 100},
	{"store.layer_frozen", 2},
	{"store.layer_written", 2},
}

// pointWithin is how long a server may take to come to the point where it is to end.
const pointWithin = 4 * time.Second

// killAtPoint starts the server so that it ends at a point of its code, in recovery or under load, and sees to it that it
// has ended when it does not come there.
func (k *killer) killAtPoint(ctx context.Context) error {
	p := points[k.r.IntN(len(points))]
	plan := fmt.Sprintf("MILLRACE_FAULT_KILL=%s:%d", p.name, 1+k.r.IntN(p.visits))
	k.s.Plan(proc.Plan{Binary: k.e.Faults, Env: []string{plan}})
	if _, err := k.s.Launch(); err != nil {
		return err
	}
	if k.s.AwaitKill(ctx, pointWithin) {
		k.o.Faults["kill"]++
		k.o.Faults["kill_at_"+p.name]++
		return nil
	}
	k.o.Faults["point_not_reached"]++
	return k.kill()
}

// restart stops the server in order and starts it.
func restart(ctx context.Context, s *proc.Server) error {
	if err := s.Stop(); err != nil {
		return err
	}
	_, err := s.Start(ctx)
	return err
}

// isUnknownQueue reports whether the server does not know a queue, as before its first task.
func isUnknownQueue(err error) bool {
	var e *millrace.Error
	ok := errors.As(err, &e)
	return ok && e.Code == millrace.CodeNotFound
}
