package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// queueSystem is one of the two systems in a run, as its clients drive it.
type queueSystem interface {
	// create returns when n new tasks are acknowledged, with how many surely are.
	create(ctx context.Context, caller, n int) (made int, err error)
	// settled is how many tasks have been completed, as the servers tell.
	settled(ctx context.Context) (uint64, error)
	// left is how many tasks have not ended, as the servers tell.
	left(ctx context.Context) (uint64, error)
	// fsyncs is how often the servers have synced, as they tell; negative: they do not.
	fsyncs(ctx context.Context) (float64, error)
	// close ends the workers, and removes what the bench made.
	close(ctx context.Context) error
}

const (
	// drainWithin is how long workers may take to complete what was created in a slice.
	drainWithin = 60 * time.Second
	// lookAgain is the time between two looks at a server that is waited for.
	lookAgain = 20 * time.Millisecond
	// closeWithin is how long a system may take to close, even when the run was cancelled.
	closeWithin = 20 * time.Second
)

// lane is one system with what a run has seen of it. One goroutine drives lanes in turn; callers and workers change
// only what is atomic or a channel.
type lane struct {
	queueSystem
	// name is what the names of its figures begin with: ours or peer.
	name string
	// calls is where the latencies and errors of creates are recorded.
	calls *bench.Op
	// servers are the processes whose CPU and memory are measured.
	servers processes
	// room has an item for each task that is created and not handled yet. Its capacity bounds the backlog.
	room chan struct{}
	// created is the number of tasks whose create was acknowledged. Callers add to it.
	created atomic.Uint64

	// Sums over its slices, in seconds where they are times or CPU. tasks is the number of completions, seconds how
	// long they took.
	tasks, seconds float64
	// cpu is what the servers used, client what this process used.
	cpu, client float64
	// written and flushed are what the disks of this host did.
	written, flushed float64
	// synced is how often the servers synced, as they tell.
	synced float64
	// memory is the highest that was seen at the end of a slice, in bytes.
	memory float64
	// waited is how long callers waited for room, in nanoseconds. Callers add to it.
	waited atomic.Int64
	// creating is the time in which its callers called.
	creating float64
	// idleCPU is what its servers used in idleFor, the time in which the other system was driven.
	idleCPU, idleFor float64
	// syncedKnown says that the servers told of their syncs at every look.
	syncedKnown bool
}

// newLane returns a lane without its system. op is the name of its creates in the result.
func newLane(name string, rig *bench.Rig, op string, address string) *lane {
	return &lane{name: name, calls: rig.Op(op), servers: listening(address), room: make(chan struct{}, depth(rig.Shape)), syncedKnown: true}
}

// depth is how many tasks of a system may wait for a worker: producers that are faster than workers wait. It holds at
// least two calls of each caller.
func depth(s bench.Shape) int { return max(s.Depth, 2*s.Callers*max(s.ProducerBatch, 1)) }

// handled makes room for one more task.
func (l *lane) handled() {
	select {
	case <-l.room:
	default: // of a create that failed, and was carried out
	}
}

// take waits for room for n tasks. When over is closed first, it gives back what it has taken and returns false.
func (l *lane) take(n int, over <-chan struct{}) bool {
	began := time.Now()
	defer func() { l.waited.Add(int64(time.Since(began))) }()
	for i := range n {
		select {
		case l.room <- struct{}{}:
		case <-over:
			for range i {
				l.handled()
			}
			return false
		}
	}
	return true
}

// call creates n tasks once. What was not surely made gives its room back. A task that was carried out all the same
// finds the room given back when a worker has it: see handled.
func (l *lane) call(ctx context.Context, caller, n int, over <-chan struct{}) {
	if !l.take(n, over) {
		return
	}
	at := time.Now()
	made, err := l.create(ctx, caller, n)
	l.created.Add(uint64(made))
	for range n - made {
		l.handled()
	}
	l.calls.Record(caller, at, made, err)
}

// slice drives one system with all callers, then lets its workers drain; idle is the other system. All of it counts: a
// queue that takes tasks faster than it hands them out has not done its work before it has drained.
func (l *lane) slice(ctx context.Context, rig *bench.Rig, idle *lane) error {
	before, err := l.look(ctx, idle)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	var callers sync.WaitGroup
	for i := range rig.Shape.Callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-over:
					return
				default:
					l.call(ctx, i, max(rig.Shape.ProducerBatch, 1), over)
				}
			}
		})
	}
	err = bench.Pause(ctx, rig.Window/turns)
	close(over)
	callers.Wait()
	l.creating += time.Since(before.at).Seconds()
	if err != nil {
		return err
	}
	if err := l.drain(ctx); err != nil {
		return err
	}
	after, err := l.look(ctx, idle)
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at).Seconds()
	l.tasks += float64(after.tasks - before.tasks)
	l.seconds += took
	l.cpu += after.used.cpu - before.used.cpu
	l.written += after.disk.written - before.disk.written
	l.client += after.client - before.client
	l.flushed += after.disk.flushed - before.disk.flushed
	l.synced += after.synced - before.synced
	l.syncedKnown = l.syncedKnown && before.synced >= 0 && after.synced >= 0
	l.memory = max(l.memory, after.used.memory)
	idle.idleCPU += after.idle - before.idle
	idle.idleFor += took
	return nil
}

// look is where both systems stand at one time.
type look struct {
	// at is when the look was complete.
	at time.Time
	// tasks is the number of completions so far, as the system tells.
	tasks uint64
	// used is what the servers of the driven system have used so far.
	used spent
	// client is the CPU of this process so far, in seconds.
	client float64
	// idle is the CPU of the servers of the other system so far, in seconds.
	idle float64
	// disk is what the disks of this host have done so far.
	disk diskUse
	// synced is how often the servers have synced so far; negative: they do not tell.
	synced float64
}

// look reads where both systems stand. idle is the lane that is not driven.
func (l *lane) look(ctx context.Context, idle *lane) (k look, err error) {
	if k.synced, err = l.fsyncs(ctx); err != nil {
		return k, err
	}
	k.used, k.idle, k.disk, k.client = l.servers.used(), idle.servers.used().cpu, disks(), ownCPU()
	k.tasks, err = l.settled(ctx)
	k.at = time.Now()
	return k, err
}

// drain waits until the workers have completed what was created, or fails after drainWithin. It asks for what is left
// only when the completions suffice: until then some tasks are left for sure.
func (l *lane) drain(ctx context.Context) error {
	until := time.Now().Add(drainWithin)
	for {
		done, err := l.settled(ctx)
		if err != nil {
			return err
		}
		// n is what is left; 1 until it is asked for, which only has to differ from 0.
		n := uint64(1)
		if done >= l.created.Load() {
			if n, err = l.left(ctx); err != nil {
				return err
			}
		}
		switch {
		case n == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%s: not drained after %s: %d of %d tasks are completed, %d are left", l.name, drainWithin, done, l.created.Load(), n)
		}
		if err := bench.Pause(ctx, lookAgain); err != nil {
			return err
		}
	}
}

// queuePeer is a peer with a queue, which runs.
type queuePeer struct {
	// name is the peer's, as in the names of suites.
	name string
	// addresses are those given for it; the first is of its server, another may be of its monitor.
	addresses []string
	// declared is the class that was given on the command line: F or N. Empty: none was given, and the server is asked.
	declared string
	// open connects to the peer and starts its workers.
	open opener
}

// brokerOptions is what a run wants of a peer.
type brokerOptions struct {
	// addresses are as in queuePeer.
	addresses []string
	// callers is the number of goroutines that create, slots the number of tasks that workers hold at a time.
	callers, slots int
	// class is what the peer must be set to: F or N.
	class string
	// declared is the class that was given on the command line; empty: none.
	declared string
	// work hears of tasks; the broker's workers call it.
	work work
	// payload is the size of a payload in bytes.
	payload int
}

// work hears of tasks in workers. Its functions are called from all workers at the same time.
type work struct {
	// handled: a worker has a task, whose number is returned. Not ok: the task is not from this run.
	handled func(payload []byte) (n uint64, ok bool)
	// completed: the completion of the task was acknowledged.
	completed func(n uint64)
	// failed: a worker could not go on.
	failed func(err error)
}

// broker is the queue of a peer.
type broker interface {
	// about tells what it is.
	about() bench.PeerReport
	// server is where it listens, as host:port.
	server() string
	// create returns when all payloads are acknowledged as tasks. What fails may be there.
	create(ctx context.Context, caller int, payloads [][]byte) error
	// settled is how many completions the server counted; 0, false: those that were acknowledged are counted.
	settled(ctx context.Context) (n uint64, counted bool, err error)
	// left is how many tasks have not ended, as the server tells.
	left(ctx context.Context) (uint64, error)
	// fsyncs is how often the server has synced; negative: it does not tell.
	fsyncs(ctx context.Context) (float64, error)
	// settle is told after the last drain; it returns how many tasks are left that left could not see.
	settle() (uint64, error)
	// close ends the workers, removes what the bench made, and closes all connections.
	close(ctx context.Context) error
}

// opener connects to a peer and starts its workers. Errors: *bench.CannotError when it does not answer,
// *bench.UsageError when it is set otherwise than the run wants it or holds what a bench has left there.
type opener func(ctx context.Context, o brokerOptions) (broker, error)

// drive carries out one run: the window is cut into slices, of the peer and of Millrace in turn.
func (p *queuePeer) drive(ctx context.Context, rig *bench.Rig) (err error) {
	theirs, side, err := p.lane(ctx, rig)
	if err != nil {
		return err
	}
	shut := func(l *lane) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		err = errors.Join(err, l.close(ctx))
	}
	defer shut(theirs)
	ours, err := millraceLane(ctx, rig)
	if err != nil {
		return err
	}
	defer shut(ours)
	before := theirs.servers.used().cpu
	if err := alternate(ctx, rig, theirs, ours); err != nil {
		return err
	}
	rig.PeerCPU(theirs.servers.used().cpu - before)
	calling := float64(rig.Shape.Callers)*ours.creating - time.Duration(ours.waited.Load()).Seconds()
	rig.UnderWay(max(0, calling) / (ours.seconds + theirs.seconds))
	for _, l := range []*lane{ours, theirs} {
		l.figures(rig)
	}
	ratios(rig, ours, theirs)
	return side.prove(rig, p.name)
}

// lane opens the peer, and returns its lane with what its audit reads.
func (p *queuePeer) lane(ctx context.Context, rig *bench.Rig) (*lane, *peerSide, error) {
	class := classOf(rig)
	s := &peerSide{tally: newTally(rig.Shape.Payload), traces: newTraces(rig.Op("peer_create_to_claim"))}
	l := newLane("peer", rig, "peer_create", "")
	w := work{
		handled: func(payload []byte) (uint64, bool) {
			n, ok := s.tally.handled(payload)
			if ok {
				s.traces.note(n, time.Time{}, time.Now())
				l.handled()
			}
			return n, ok
		},
		completed: s.tally.completed,
		failed:    func(err error) { rig.Fail("peer_work", err) },
	}
	b, err := p.open(ctx, brokerOptions{
		addresses: p.addresses, callers: rig.Shape.Callers, slots: max(rig.Shape.Slots, 1), class: class, declared: p.declared, work: w,
		payload: rig.Shape.Payload,
	})
	if err != nil {
		return nil, nil, err
	}
	s.broker = b
	l.queueSystem, l.servers = s, listening(b.server())
	rig.Peer(b.about())
	return l, s, nil
}

// peerSide is a peer with what is known of each of its tasks: the queueSystem of its lane.
type peerSide struct {
	broker
	// tally follows all tasks.
	tally *tally
	// traces times the way from create to claim of some.
	traces *traces
}

// create issues the payloads of n tasks and sends them. When a call fails, all its tasks are unknown: which ones the
// server has taken is not told.
func (s *peerSide) create(ctx context.Context, caller, n int) (int, error) {
	first, payloads := s.tally.issue(n)
	at := time.Now()
	err := s.broker.create(ctx, caller, payloads)
	for i := range uint64(n) {
		if err != nil {
			s.tally.set(first+i, unknown, unknown)
			continue
		}
		s.tally.created(first + i)
		s.traces.note(first+i, at, time.Time{})
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// settled returns what the server counts, or what the tally has seen acknowledged if the server does not count.
func (s *peerSide) settled(ctx context.Context) (uint64, error) {
	n, counted, err := s.broker.settled(ctx)
	if !counted {
		n = s.tally.done.Load()
	}
	return n, err
}

// prove adds what the audit of the peer found to that of ours. It also counts what is left after the workers have
// ended.
func (s *peerSide) prove(rig *bench.Rig, name string) error {
	checked, redelivered, violations := s.tally.judge()
	more, err := s.broker.settle()
	if err != nil {
		return err
	}
	if more > 0 {
		violations = append(violations, fmt.Sprintf("stuck: %d tasks are left after the drain", more))
	}
	rig.Metric("peer_tasks_checked", float64(checked), "tasks")
	if redelivered > 0 {
		rig.Warn("redelivered", fmt.Sprintf("%s gave %d tasks to a worker more than once", name, redelivered), float64(redelivered))
	}
	for i, v := range violations {
		violations[i] = name + ": " + v
	}
	rig.Proofs = append(rig.Proofs, func(context.Context) ([]string, error) { return violations, nil })
	return nil
}

// classOf is the class that a peer of a run must be set to.
func classOf(rig *bench.Rig) string {
	return map[bench.Durability]string{bench.Fsync: "F", bench.None: "N"}[rig.Durability]
}

// refusedPeer is how a peer is refused that is not as the run wants it.
func refusedPeer(name, format string, args ...any) error {
	return &bench.UsageError{Field: "peer " + name, Message: fmt.Sprintf(format, args...)}
}

// absent is how a peer is reported that does not answer.
func absent(name string, err error) error {
	return &bench.CannotError{Err: fmt.Errorf("%s does not answer: %w", name, err)}
}

// param is one setting in the report of a peer.
func param(name, format string, args ...any) bench.Param {
	return bench.Param{Name: name, Value: strings.TrimSpace(fmt.Sprintf(format, args...))}
}
