package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// KillUnderEffects makes about n completions with effects while the server is killed.
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

// killUnderLoad returns also how many tasks with effects were completed.
func killUnderLoad(ctx context.Context, e Env, kills int, made ...string) (o *Outcome, effects int, err error) {
	o = newOutcome()
	s, err := e.server(ctx, "default")
	if err != nil {
		return nil, 0, err
	}
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, 0, err
	}
	m, err := newMixed(ctx, e, s, made...)
	if err != nil {
		return nil, 0, err
	}
	defer m.quiet.close() //nolint:errcheck // the audit has read all it wants
	loading, stopLoad := context.WithCancel(ctx)
	working, stopWork := context.WithCancel(ctx)
	defer stopLoad()
	defer stopWork()
	var load, work sync.WaitGroup
	load.Go(func() { m.load(loading) })
	work.Go(func() { o.fail(m.work(working)) })
	o.fail(killLoop(ctx, s, o, kills, rand.New(rand.NewPCG(e.Seed, 7))))
	pause(ctx, 200*time.Millisecond)
	stopLoad()
	load.Wait()
	if s.Address() != "" {
		o.fail(settled(ctx, m.quiet.Client, kinds))
	}
	stopWork()
	work.Wait()
	for _, c := range m.clients {
		o.fail(c.close())
	}
	if s.Address() == "" {
		return o, 0, nil // it does not serve any more: that is among the errors
	}
	if err := m.audit(ctx, o); err != nil {
		return nil, 0, fmt.Errorf("audit: %w", err)
	}
	for _, r := range o.Reports {
		if r.Checker == "effects_once" {
			effects += r.Counts["completed"] / 2 // lists and own keys
		}
		effects += r.Counts["transfers"]
	}
	finish(ctx, s, o)
	return o, effects, nil
}

// killLoop kills and restarts: 50 to 800 ms after the server is ready, one time in four a second later, when state has
// been written out, and one time in ten again while it recovers. Once it is stopped in order: after that, restarts begin
// with stored state and the log is no longer all there is.
func killLoop(ctx context.Context, s *proc.Server, o *Outcome, kills int, r *rand.Rand) error {
	var ready []time.Duration
	for done := 0; done < kills && ctx.Err() == nil; done++ {
		if done > 0 && done >= kills/2 && o.Faults["stop"] == 0 {
			pause(ctx, 100*time.Millisecond)
			if err := restart(ctx, s); err != nil {
				return err
			}
			o.Faults["stop"]++
		}
		delay := time.Duration(50+r.IntN(750)) * time.Millisecond
		if done%4 == 1 {
			delay += time.Second
		}
		pause(ctx, delay)
		if s.Ended() || !s.Kill() {
			return fmt.Errorf("the server ended by itself, see %s", s.LogFile())
		}
		o.Faults["kill"]++
		if r.IntN(10) == 0 && done+1 < kills {
			done++
			if _, err := s.Launch(); err != nil {
				return err
			}
			pause(ctx, time.Duration(r.IntN(60))*time.Millisecond)
			if !s.Kill() {
				return fmt.Errorf("the server ended by itself while it recovered, see %s", s.LogFile())
			}
			o.Faults["kill"]++
			o.Faults["kill_in_recovery"]++
		}
		took, err := s.Start(ctx)
		if err != nil {
			return fmt.Errorf("restart after kill %d: %w, see %s", done+1, err, s.LogFile())
		}
		ready = append(ready, took)
	}
	o.Figures["ready_p50_s"], o.Figures["ready_p99_s"] = percentile(ready, 50), percentile(ready, 99)
	return ctx.Err()
}

// restart stops the server in order and starts it.
func restart(ctx context.Context, s *proc.Server) error {
	if err := s.Stop(); err != nil {
		return err
	}
	_, err := s.Start(ctx)
	return err
}

func isUnknownQueue(err error) bool {
	var e *millrace.Error
	ok := errors.As(err, &e)
	return ok && e.Code == millrace.CodeNotFound
}
