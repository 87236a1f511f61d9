package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// A worker has one subscription, whose window is the number of tasks that it may hold.
const (
	subscription = 1
	slots        = 8 // its window
)

// worker takes tasks over a stream, works on them and settles them with effects. When its stream
// ends it opens another one, wherever the leader is, and goes on with the tasks that it holds.
type worker struct {
	w    *world
	id   core.SessionID
	name string
	// The host that it believes to lead.
	host   uint64
	life   uint64 // of the stream: what an earlier one sends arrives no more
	tries  uint64 // to open a stream: an earlier one opens none
	stream core.Session
	at     place
	part   core.Partition
	// The tasks that it believes to hold.
	held map[core.TaskID]*job
	// When the last message of the stream arrives, in each direction. A later one arrives after it,
	// as streams keep their order.
	in  time.Duration
	out time.Duration // the same of what the worker sends
	// Number of its jobs so far, which makes each value of an effect unique.
	count int
}

// job is a task that a worker has. settle builds the commit that ends it, the same each time.
type job struct {
	task   core.Assigned
	since  time.Duration
	value  string // of its effect
	settle func() core.Commit
	// A settle was sent and its outcome is not known, so it must be repeated.
	unsure bool
	// The outcome is known, or the lease was lost before a settle was sent.
	over bool
	// A settle is under way on the current stream.
	sending bool
	// It ended before its work did, as the task was cancelled.
	stopped bool
	// How many reports of it were sent.
	reports uint64
}

// sink is what a node calls to send to a worker. It belongs to one stream of the worker.
type sink struct {
	k    *worker
	life uint64
}

// arrive plans the arrival of something at the worker, in order; false if the stream has ended.
func (s sink) arrive(name string, do func()) bool {
	k := s.k
	if k.life != s.life {
		return false
	}
	k.in = k.w.behind(k.in)
	k.w.after(k.in-k.w.now, name, 0, func() {
		if k.life == s.life {
			do()
		}
	})
	return true
}

// behind draws when something that is sent on a stream arrives: not before what was sent earlier.
func (w *world) behind(last time.Duration) time.Duration { return max(last, w.now+w.delay()) }

// Assign sends tasks to the worker.
func (s sink) Assign(_ uint32, tasks []core.Assigned, _ core.At) bool {
	tasks = slices.Clone(tasks)
	return s.arrive("assign", func() {
		for _, t := range tasks {
			s.k.take(t)
		}
	})
}

// Cancel does nothing: workers of the simulation learn of a cancel by their renewals.
func (s sink) Cancel(core.TaskHold, string, core.ShardTime) {}

// LeaseLost tells the worker that it lost a lease. The worker states its window again, as the lease
// holds its slot until the server has heard of that.
func (s sink) LeaseLost(h core.TaskHold, _ string) {
	s.arrive("lost", func() {
		s.k.say("slots", func(ses core.Session) { ses.Slots(subscription, slots) })
		s.k.w.note("%s loses %s under %d", s.k.name, h.Task, h.Token)
		if j := s.k.held[h.Task]; j != nil && j.task.Token == h.Token && !j.sending {
			j.over = true
			delete(s.k.held, h.Task)
		}
	})
}

// Room says that there always is some.
func (s sink) Room() bool { return true }

// Available changes nothing: a worker here sets its windows by chance.
func (s sink) Available(uint32) {}

// End sends the worker to the new leader.
func (s sink) End(why core.Fact) {
	s.arrive("end", func() {
		s.k.host = s.k.w.leaderOf(why, s.k.host)
		s.k.lose()
	})
}

// lose ends a worker's stream. Settles that were under way become unsure, and it connects again
// soon.
func (k *worker) lose() {
	if k.stream != nil {
		if h := k.w.host(k.host); h.node != nil && h.streams[k] {
			k.stream.Break()
			delete(h.streams, k)
		}
		k.stream = nil
	}
	k.life++
	life := k.life
	for _, j := range k.held {
		j.unsure, j.sending = j.unsure || j.sending, false
	}
	k.w.after(k.w.between(time.Millisecond, 200*time.Millisecond), "connect", 0, func() {
		if k.life == life {
			k.connect()
		}
	})
}

// dropStreams ends the streams of all workers that were connected to a host that died.
func (w *world) dropStreams(h *host) {
	for _, k := range w.ledger.workers {
		if h.streams[k] {
			delete(h.streams, k)
			k.stream = nil
			k.host = w.leaderOf(nil, h.id)
			k.lose()
		}
	}
}

// connect opens a session at the host that the worker believes to lead, once that has confirmed it,
// states the leases that it holds, and repeats the settles that are unsure.
func (k *worker) connect() {
	w, current := k.w, k.try()
	h := w.host(k.host)
	again := func(why error) {
		k.host = w.leaderOf(why, k.host)
		current := k.try() // the stream opens there no more
		w.after(w.between(10*time.Millisecond, 100*time.Millisecond), "connect", 0, func() {
			if current() {
				k.connect()
			}
		})
	}
	if h.node == nil || h.paused {
		again(nil)
		return
	}
	p, ok := h.find(k.at)
	if !ok {
		again(nil)
		return
	}
	may, err := h.node.Reading(p)
	if err != nil {
		again(err)
		return
	}
	h.opens = append(h.opens, opening{may, func() {
		if current() {
			k.open(h, p, again)
		}
	}})
	h.kick()
	w.after(w.between(300*time.Millisecond, time.Second), "connect again", 0, func() {
		if current() {
			again(nil)
		}
	})
}

// try begins to open a stream, and ends what was begun before. current reports whether it is still wanted.
func (k *worker) try() (current func() bool) {
	k.tries++
	life, try := k.life, k.tries
	return func() bool { return k.life == life && k.tries == try && k.stream == nil }
}

// opening is a stream that opens as soon as the host is known to lead, as a session of a node that has goroutines waits for it.
type opening struct {
	may  func() bool
	open func()
}

// openStreams opens the streams that may be opened.
func (h *host) openStreams() {
	all := h.opens
	h.opens = nil
	for _, o := range all {
		if o.may() {
			o.open()
		} else {
			h.opens = append(h.opens, o)
		}
	}
}

// open opens the session, at a host that was known to lead a moment ago.
func (k *worker) open(h *host, p core.Partition, again func(why error)) {
	w, life := k.w, k.life
	spec := core.SessionSpec{ID: k.id, Worker: k.name, Principal: k.name}
	for _, id := range slices.SortedFunc(maps.Keys(k.held), compareIDs) {
		spec.Held = append(spec.Held, core.TaskHold{Task: id, Token: k.held[id].task.Token})
	}
	ses, welcome, err := h.node.Session(context.Background(), p, spec, sink{k, life})
	if err != nil {
		again(err)
		return
	}
	k.stream, k.part = ses, p
	h.streams[k] = true
	w.note("%s connects to %d in %d: holds %d, %d of them lost", k.name, h.id, life, len(spec.Held), len(welcome.Lost))
	for _, lost := range welcome.Lost {
		if j := k.held[lost.Task]; j != nil && !j.unsure {
			delete(k.held, lost.Task)
		}
	}
	ses.Subscribe(core.Subscription{Sub: subscription, Queues: []core.GrantQueue{{Name: queueName, Weight: 1}}, Slots: slots, Batch: 4})
	for _, id := range slices.SortedFunc(maps.Keys(k.held), compareIDs) {
		if j := k.held[id]; j.unsure {
			k.send(j)
		}
	}
	h.kick()
}

// compareIDs orders task ids. Maps are walked in this order, or the history would not repeat.
func compareIDs(a, b core.TaskID) int { return slices.Compare(a[:], b[:]) }

// take begins to work on a task. Some tasks take longer than their lease, so that they are given to
// another worker meanwhile.
func (k *worker) take(t core.Assigned) {
	w := k.w
	if old := k.held[t.Task]; old != nil && old.task.Token == t.Token {
		return // assigned again after the stream broke
	}
	w.note("%s takes %s under %d in %d", k.name, t.Task, t.Token, k.life)
	w.ledger.leased(k, t)
	k.count++
	j := &job{task: t, since: w.now, value: fmt.Sprintf("%s/%d", k.name, k.count)}
	k.held[t.Task] = j
	j.settle = k.verdict(j)
	d := w.between(time.Millisecond, 200*time.Millisecond)
	if !w.healthy && w.chance(w.plan.Stuck) {
		d = w.between(w.plan.Lease*9/10, w.plan.Lease*5/2) // beyond its lease, which is never renewed
	}
	if w.chance(200) {
		w.after(d/2, "meanwhile", 0, func() { k.meanwhile(j) })
	} else if w.plan.Operate && w.chance(400) {
		w.after(d/2, "renew", 0, func() { k.renew(j) })
		w.after(d/3, "report", 0, func() { k.report(j) })
	}
	w.after(d, "worked", 0, func() {
		switch other := k.held[t.Task]; {
		case j.stopped:
			return
		case other == j:
		case !w.chance(500):
			return
		case other == nil:
			k.held[t.Task] = j // it does not know yet that it lost the lease
		}
		j.unsure = true
		if k.stream != nil {
			k.send(j)
		}
	})
}

// meanwhile renews a lease that a worker believes to hold, or writes keys under its fence. Both
// have a request id and are repeated until answered, also after the lease was lost.
func (k *worker) meanwhile(j *job) {
	hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
	c := core.Commit{Principal: k.name}
	if k.w.chance(500) {
		c.Ops = []core.Op{&core.TaskRenew{Items: []core.TaskHold{hold}}}
	} else {
		c.Fence = &core.Fence{Task: hold.Task, Token: hold.Token}
		c.Ops = fencedWrites(k.at, j.value)
	}
	(&client{w: k.w, host: k.host}).once(k.at, c, func() {})
}

// verdict draws how a job ends: mostly completed, else failed, snoozed or released. It returns what
// builds the commit.
func (k *worker) verdict(j *job) func() core.Commit {
	w := k.w
	hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
	switch n := w.rng.IntN(100); {
	case w.healthy || n < 80:
		follow := core.TaskID{}
		if w.ledger.followed < w.plan.Tasks/4 && w.chance(200) {
			w.ledger.followed++
			follow = w.taskID(k.at)
		}
		return func() core.Commit {
			ops := []core.Op{
				&core.TaskComplete{Task: hold.Task, Token: hold.Token, Result: []byte(j.value)},
				&core.KVPut{Keyspace: "done", Key: keyAt(k.at, hold.Task.String()), Value: []byte(j.value)},
			}
			if !follow.IsZero() {
				ops = append(ops, &core.TaskCreate{ID: follow, Queue: queueName, Lease: core.MillisOf(w.plan.Lease), MaxAttempts: 500, MaxCrashes: 500, Payload: []byte(j.value)})
			}
			return core.Commit{Principal: k.name, Ops: ops}
		}
	case n < 90:
		return k.failing(j)
	case n < 95:
		return func() core.Commit {
			return core.Commit{Principal: k.name, Ops: []core.Op{&core.TaskSnooze{Task: hold.Task, Token: hold.Token, Delay: 500}}}
		}
	default:
		return func() core.Commit {
			return core.Commit{Principal: k.name, Ops: []core.Op{&core.TaskRelease{Task: hold.Task, Token: hold.Token}}}
		}
	}
}

// failing returns what builds the commit by which a job fails.
func (k *worker) failing(j *job) func() core.Commit {
	op := core.TaskFail{Task: j.task.Task, Token: j.task.Token, Error: core.TaskError{Code: "x"}}
	return func() core.Commit {
		fail := op
		return core.Commit{Principal: k.name, Ops: []core.Op{&fail}}
	}
}

// say sends something over the stream, behind what was sent before. It does not arrive if the
// stream ends first.
func (k *worker) say(name string, do func(ses core.Session)) {
	w, life, stream := k.w, k.life, k.stream
	h := w.host(k.host)
	k.out = w.behind(k.out)
	w.after(k.out-w.now, name, h.id, func() {
		if k.life != life || h.node == nil {
			return
		}
		h.whenAwake(func() {
			if k.life == life {
				do(stream)
				h.kick()
			}
		})
	})
}

// send settles a job over the stream that is open.
func (k *worker) send(j *job) {
	life, h, part := k.life, k.w.host(k.host), k.part
	j.sending = true
	k.say("settle", func(ses core.Session) {
		c := j.settle()
		c.Partition = part
		hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
		ses.Settle(part, []core.Commit{c}, []core.TaskHold{hold}, func(d core.Proposed) {
			k.w.ledger.answered(h, k.at, d)
			k.in = k.w.behind(k.in)
			k.w.after(k.in-k.w.now, "settled", 0, func() {
				if k.life == life {
					k.settled(j, d)
				}
			})
		})
	})
}

// settled takes the outcome of a settle. An error is tried again; a result ends the job.
func (k *worker) settled(j *job, d core.Proposed) {
	w := k.w
	j.sending = false
	if j.over {
		return
	}
	if d.Err != nil {
		w.after(w.between(time.Millisecond, 100*time.Millisecond), "settle again", 0, func() {
			if !j.over && !j.sending && k.stream != nil && k.held[j.task.Task] == j {
				k.send(j)
			}
		})
		return
	}
	w.ledger.acknowledged(k.at, d, settles(j.task.Token))
	r := d.Results[0]
	if w.full(r) || isPinned(r) { // the follow-up task cannot be made, and the lease goes on: the attempt fails
		j.settle = k.failing(j)
		if k.stream != nil && k.held[j.task.Task] == j {
			k.send(j)
		}
		return
	}
	j.over = true
	if k.held[j.task.Task] == j {
		delete(k.held, j.task.Task)
	}
	w.ledger.acted(j.settle().Ops[0], r)
	w.note("settled %s %d %v %v", j.task.Task, j.task.Token, r.Replayed, r.Refusal)
	if _, completes := j.settle().Ops[0].(*core.TaskComplete); completes && r.Refusal == nil {
		w.ledger.completed(j)
	}
}

// settles returns what finds the commit that ends the attempt of a token. A token is unique in its
// partition. The server's own releases are not meant.
func settles(token core.Token) func(*core.Commit) bool {
	return func(c *core.Commit) bool {
		switch op := c.Ops[0].(type) {
		case *core.TaskComplete:
			return op.Token == token
		case *core.TaskFail:
			return op.Token == token
		case *core.TaskSnooze:
			return op.Token == token
		case *core.TaskStop:
			return op.Token == token
		case *core.TaskRelease:
			return op.Token == token && c.Principal != "millrace"
		}
		return false
	}
}
