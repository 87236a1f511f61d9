package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench"
)

// The window is cut into slices, of the peer and of Millrace in turn: what slows the host slows both. The first part of a
// slice is not counted where calls are.
const (
	// turns is the number of slices in a window, half of them of each system.
	turns = 6
	// settlePart: the first fifth of a slice is not counted.
	settlePart = 5
	// idleLimit is what the system that is not driven may use, in cores, before the run warns of it.
	idleLimit = 0.05
	// clientWall is a share of the machine. A client that takes more is the limit of the rate, so servers are compared
	// by their CPU.
	clientWall = 0.5
)

// turner is one of two systems that are driven in turn by callers, each of which waits for its answer. One goroutine
// drives slices and changes the sums; callers only call once.
type turner struct {
	// name is what warnings call it.
	name string
	// once makes one call and records it.
	once func(ctx context.Context, caller int)
	// done is the number of calls that were acknowledged so far.
	done func() uint64
	// used is the CPU of its servers so far, in seconds.
	used func(ctx context.Context) (cpu float64, err error)

	// Sums over its slices; idleCPU and idleFor are over those in which the other one was driven. calls is the number
	// of calls that were acknowledged.
	calls uint64
	// seconds is how long they took.
	seconds float64
	// cpu is what its servers used, client what this process used, in seconds of CPU.
	cpu, client float64
	// idleCPU is what its servers used in idleFor, in seconds.
	idleCPU, idleFor float64
	// active is how long it was driven, in seconds, with what is not counted.
	active float64
}

// sliced is a system whose work comes in slices, during which the other one is idle.
type sliced[S any] interface {
	// slice drives the system for one slice of the window.
	slice(ctx context.Context, rig *bench.Rig, idle S) error
}

// alternate measures both, the peer first. The type of both is the same, so that each can look at the other while it is
// driven.
func alternate[S sliced[S]](ctx context.Context, rig *bench.Rig, theirs, ours S) error {
	return rig.MeasureWork(ctx, func(ctx context.Context) error {
		for i := range turns {
			driven, idle := theirs, ours
			if i%2 == 1 {
				driven, idle = ours, theirs
			}
			if err := driven.slice(ctx, rig, idle); err != nil {
				return err
			}
		}
		return nil
	})
}

// inTurns measures both, and tells how many calls were under way.
func inTurns(ctx context.Context, rig *bench.Rig, theirs, ours *turner) error {
	err := alternate(ctx, rig, theirs, ours)
	if err == nil {
		rig.UnderWay(float64(rig.Shape.Callers) * ours.active / (ours.active + theirs.active))
	}
	return err
}

// slice drives one system with all callers. Figures are taken between two marks; the first comes when the slice has
// settled, the second before the callers stop.
func (s *turner) slice(ctx context.Context, rig *bench.Rig, idle *turner) error {
	began := time.Now()
	defer func() { s.active += time.Since(began).Seconds() }()
	var over atomic.Bool
	var callers sync.WaitGroup
	for i := range rig.Shape.Callers {
		callers.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				s.once(ctx, i)
			}
		})
	}
	stop := func() {
		over.Store(true)
		callers.Wait()
	}
	length := rig.Window / turns
	if err := bench.Pause(ctx, length/settlePart); err != nil {
		stop()
		return err
	}
	before, err := s.mark(ctx, idle)
	if err == nil {
		err = bench.Pause(ctx, length-length/settlePart)
	}
	if err != nil {
		stop()
		return err
	}
	after, err := s.mark(ctx, idle)
	stop()
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at).Seconds()
	s.calls += after.calls - before.calls
	s.seconds += took
	s.cpu += after.cpu - before.cpu
	s.client += after.client - before.client
	idle.idleCPU += after.idle - before.idle
	idle.idleFor += took
	return ctx.Err()
}

// mark is where both systems stand at one time.
type mark struct {
	// at is when the mark was made.
	at time.Time
	// calls is the number of calls that were acknowledged so far.
	calls uint64
	// cpu is that of the driven system's servers, client of this process, idle of the other system's servers, all in
	// seconds.
	cpu, client, idle float64
}

// mark reads where both systems stand. An error is one of reading their CPU.
func (s *turner) mark(ctx context.Context, idle *turner) (m mark, err error) {
	m = mark{at: time.Now(), calls: s.done(), client: ownCPU()}
	if m.cpu, err = s.used(ctx); err != nil {
		return m, err
	}
	m.idle, err = idle.used(ctx)
	return m, err
}

// rate is the number of calls per second.
func (s *turner) rate() float64 { return float64(s.calls) / s.seconds }

// share is what of the machine the client took.
func (s *turner) share() float64 { return s.client / s.seconds / float64(runtime.NumCPU()) }

// figures sets what the table of all peers has of a system, and warns if it was busy while the other was driven. It reports
// whether there is anything.
func (s *turner) figures(rig *bench.Rig, column, unit string) bool {
	if s.calls == 0 || s.seconds <= 0 {
		rig.Fail(s.name, errors.New("nothing was acknowledged"))
		return false
	}
	rig.Metric(column+"_per_s", s.rate(), unit)
	rig.Metric(column+"_server_cpu_us_per_cycle", s.cpu*1e6/float64(s.calls), "µs")
	rig.Metric(column+"_client_cpu_us_per_cycle", s.client*1e6/float64(s.calls), "µs")
	if idle := s.idleCPU / s.idleFor; idle > idleLimit {
		rig.Warn("idle_peer", fmt.Sprintf("%s used %.0f %% of a core while the other was driven", s.name, 100*idle), idle)
	}
	return true
}

// ownCPU is what this process used so far, in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
