package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// queueName is the one queue that clients fill and workers empty.
const queueName = "q"

// patience is after what time a client takes a request for lost, and asks again.
const patience = 1500 * time.Millisecond

// client creates tasks, one request at a time, and repeats each until it knows its outcome.
type client struct {
	w    *world
	host uint64
}

// request is one commit on its way. make builds it anew for each try, with the same content.
type request struct {
	make   func() core.Commit
	answer func(core.Result, core.At)
	system bool // for the cluster's own partition
	tries  int
	over   bool
}

// next sends the next request, until enough tasks were created.
func (c *client) next() {
	w := c.w
	if w.ledger.made >= w.plan.Tasks {
		return
	}
	w.ledger.made++
	id := w.taskID()
	delay := core.Millis(0)
	if w.chance(150) {
		delay = core.Millis(w.rng.IntN(3000))
	}
	payload := fmt.Appendf(nil, "%d", w.ledger.made)
	c.send(&request{
		make: func() core.Commit {
			return core.Commit{Principal: "client", Ops: []core.Op{&core.TaskCreate{
				ID: id, Queue: queueName, Delay: delay, Lease: 10_000, MaxAttempts: 50, MaxCrashes: 50, MaxDeliveries: 1000,
				Retry: core.Retry{Base: 100}, Payload: payload,
			}}}
		},
		answer: func(r core.Result, at core.At) {
			if r.Refusal != nil {
				w.violate("create of %s was refused: %v", id, r.Refusal.Fact)
				return
			}
			w.ledger.created(id, at)
			w.after(w.between(0, 5*time.Millisecond), "client", 0, c.next)
		},
	})
}

// send sends a request to the host that the client believes to lead, and again when no answer comes.
func (c *client) send(q *request) {
	w := c.w
	q.tries++
	try := q.tries
	target := c.host
	w.after(w.delay(), "request", target, func() {
		h := w.host(target)
		if h.node == nil || !w.healthy && w.chance(w.plan.Drop) {
			return
		}
		h.whenAwake(func() {
			p, ok := core.Partition{}, true
			if !q.system {
				p, ok = h.partition()
			}
			if !ok {
				w.after(w.delay(), "unavailable", 0, func() { c.elsewhere(q, try, nil) })
				return
			}
			commit := q.make()
			commit.Partition = p
			h.node.Propose(p, []core.Commit{commit}, func(d core.Proposed) {
				if !w.healthy && w.chance(w.plan.Drop) {
					return
				}
				w.after(w.delay(), "response", 0, func() { c.take(q, try, d) })
			})
			h.kick()
		})
	})
	w.after(patience, "patience", 0, func() { c.elsewhere(q, try, nil) })
}

func (c *client) take(q *request, try int, d core.Proposed) {
	w := c.w
	if q.over {
		return
	}
	if d.Err != nil {
		c.elsewhere(q, try, d.Err)
		return
	}
	q.over = true
	w.note("answer %d %v", d.At.Index, d.Results[0].Refusal)
	w.ledger.acknowledged(d.At)
	q.answer(d.Results[0], d.At)
}

// elsewhere tries again: at the leader that was named, or at any host.
func (c *client) elsewhere(q *request, try int, why error) {
	if q.over || q.tries != try {
		return
	}
	c.host = c.w.leaderOf(why, c.host)
	c.w.after(c.w.between(time.Millisecond, 50*time.Millisecond), "retry", c.host, func() {
		if !q.over && q.tries == try {
			c.send(q)
		}
	})
}

// leaderOf returns the host that an error names, or another one than was tried.
func (w *world) leaderOf(why error, tried uint64) uint64 {
	var moved core.NotLeader
	if errors.As(why, &moved) {
		if id, err := strconv.ParseUint(strings.TrimPrefix(moved.Leader, "n"), 10, 64); err == nil && id >= 1 && int(id) <= len(w.hosts) {
			return id
		}
	}
	return 1 + (tried+w.rng.Uint64N(uint64(len(w.hosts)-1)))%uint64(len(w.hosts))
}

func (w *world) taskID() core.TaskID {
	var random [9]byte
	for i := range random {
		random[i] = byte(w.rng.Uint32())
	}
	return core.NewTaskID(epoch.UnixMilli()+int64(w.now/time.Millisecond), 0, random)
}

// partition finds the namespace that all clients use, as this host's replica has it.
func (h *host) partition() (core.Partition, bool) {
	info, ok, err := h.node.FindNamespace("acme", "default")
	if err != nil {
		h.w.violate("host %d: directory: %v", h.id, err)
	}
	if !ok {
		return core.Partition{}, false
	}
	return info.Partitions[0].Partition, true
}

// worker holds leases over a stream, works on them, and settles them with effects. It opens its session again wherever
// the leader is.
type worker struct {
	w      *world
	id     core.SessionID
	name   string
	host   uint64
	life   uint64 // of the stream: what an earlier one sends arrives no more
	stream core.Session
	part   core.Partition
	held   map[core.TaskID]*job
	count  int
}

// job is a task that a worker has.
type job struct {
	task    core.Assigned
	since   time.Duration
	value   string // of its effect
	settle  func() core.Commit
	unsure  bool // a settle is under way whose outcome is not known
	over    bool
	sending bool
}

// sink is the host's side of a worker's stream.
type sink struct {
	k    *worker
	life uint64
}

func (s sink) arrive(name string, do func()) bool {
	k := s.k
	if k.life != s.life {
		return false
	}
	k.w.after(k.w.delay(), name, 0, func() {
		if k.life == s.life {
			do()
		}
	})
	return true
}

// Assign sends tasks to the worker.
func (s sink) Assign(_ uint32, tasks []core.Assigned, _ core.At) bool {
	tasks = slices.Clone(tasks)
	return s.arrive("assign", func() {
		for _, t := range tasks {
			s.k.take(t)
		}
	})
}

// LeaseLost tells the worker that it lost a lease.
func (s sink) LeaseLost(h core.TaskHold, _ string) {
	s.arrive("lost", func() {
		if j := s.k.held[h.Task]; j != nil && j.task.Token == h.Token && !j.sending {
			j.over = true
			delete(s.k.held, h.Task)
		}
	})
}

// Room says that there always is some.
func (s sink) Room() bool { return true }

// End sends the worker to the new leader.
func (s sink) End(why core.Fact) {
	s.arrive("end", func() {
		s.k.host = s.k.w.leaderOf(why, s.k.host)
		s.k.lose()
	})
}

// lose ends a worker's stream; it opens another one.
func (k *worker) lose() {
	if k.stream != nil {
		if h := k.w.host(k.host); h.node != nil && h.streams[k] {
			k.stream.Close()
			delete(h.streams, k)
		}
		k.stream = nil
	}
	k.life++
	life := k.life
	for _, j := range k.held {
		j.unsure, j.sending = j.unsure || j.sending, false
	}
	k.w.after(k.w.between(time.Millisecond, 200*time.Millisecond), "connect", k.host, func() {
		if k.life == life {
			k.connect()
		}
	})
}

// dropStreams breaks all streams of a host that died.
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

func (k *worker) connect() {
	w, life := k.w, k.life
	h := w.host(k.host)
	again := func(why error) {
		k.host = w.leaderOf(why, k.host)
		w.after(w.between(10*time.Millisecond, 100*time.Millisecond), "connect", k.host, func() {
			if k.life == life {
				k.connect()
			}
		})
	}
	if h.node == nil || h.paused {
		again(nil)
		return
	}
	p, ok := h.partition()
	if !ok {
		again(nil)
		return
	}
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
	for _, lost := range welcome.Lost {
		if j := k.held[lost.Task]; j != nil && !j.unsure {
			delete(k.held, lost.Task)
		}
	}
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: queueName, Weight: 1}}, Slots: 8, Batch: 4})
	for _, id := range slices.SortedFunc(maps.Keys(k.held), compareIDs) {
		if j := k.held[id]; j.unsure {
			k.send(j)
		}
	}
	h.kick()
}

func compareIDs(a, b core.TaskID) int { return slices.Compare(a[:], b[:]) }

// take begins to work on a task.
func (k *worker) take(t core.Assigned) {
	w := k.w
	if old := k.held[t.Task]; old != nil && old.task.Token == t.Token {
		return // assigned again after the stream broke
	}
	w.ledger.leased(k, t)
	k.count++
	j := &job{task: t, since: w.now, value: fmt.Sprintf("%s/%d", k.name, k.count)}
	k.held[t.Task] = j
	j.settle = k.verdict(j)
	d := w.between(time.Millisecond, 200*time.Millisecond)
	if !w.healthy && w.chance(w.plan.Stuck) {
		d = w.between(9*time.Second, 25*time.Second) // beyond its lease, which nobody renews
	}
	w.after(d, "worked", 0, func() {
		if k.held[t.Task] != j {
			if !w.chance(500) {
				return
			}
			k.held[t.Task] = j // it does not know yet that it lost the lease
		}
		j.unsure = true
		if k.stream != nil {
			k.send(j)
		}
	})
}

// verdict draws how a job ends, and returns what builds its commit.
func (k *worker) verdict(j *job) func() core.Commit {
	w := k.w
	hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
	switch n := w.rng.IntN(100); {
	case w.healthy || n < 80:
		follow := core.TaskID{}
		if w.ledger.followed < w.plan.Tasks/4 && w.chance(200) {
			w.ledger.followed++
			follow = w.taskID()
		}
		return func() core.Commit {
			ops := []core.Op{
				&core.TaskComplete{Task: hold.Task, Token: hold.Token, Result: []byte(j.value)},
				&core.KVPut{Keyspace: "done", Key: hold.Task[:], Value: []byte(j.value)},
			}
			if !follow.IsZero() {
				ops = append(ops, &core.TaskCreate{ID: follow, Queue: queueName, Lease: 10_000, MaxAttempts: 50, MaxCrashes: 50, Payload: []byte(j.value)})
				w.ledger.follows[hold] = follow
			}
			return core.Commit{Principal: k.name, Ops: ops}
		}
	case n < 90:
		return func() core.Commit {
			return core.Commit{Principal: k.name, Ops: []core.Op{&core.TaskFail{Task: hold.Task, Token: hold.Token, Error: core.TaskError{Code: "x"}}}}
		}
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

// send settles a job over the stream that is open.
func (k *worker) send(j *job) {
	w, life := k.w, k.life
	h, part := w.host(k.host), k.part
	stream := k.stream
	j.sending = true
	w.after(w.delay(), "settle", h.id, func() {
		if k.life != life || h.node == nil {
			return
		}
		h.whenAwake(func() {
			if k.life != life {
				return
			}
			c := j.settle()
			c.Partition = part
			hold := core.TaskHold{Task: j.task.Task, Token: j.task.Token}
			stream.Settle(part, []core.Commit{c}, []core.TaskHold{hold}, func(d core.Proposed) {
				w.after(w.delay(), "settled", 0, func() {
					if k.life == life {
						k.settled(j, d)
					}
				})
			})
			h.kick()
		})
	})
}

func (k *worker) settled(j *job, d core.Proposed) {
	w := k.w
	j.sending = false
	if j.over {
		return
	}
	if d.Err != nil {
		w.after(w.between(time.Millisecond, 100*time.Millisecond), "settle again", k.host, func() {
			if !j.over && !j.sending && k.stream != nil && k.held[j.task.Task] == j {
				k.send(j)
			}
		})
		return
	}
	w.ledger.acknowledged(d.At)
	r := d.Results[0]
	j.over = true
	if k.held[j.task.Task] == j {
		delete(k.held, j.task.Task)
	}
	w.note("settled %s %d %v %v", j.task.Task, j.task.Token, r.Replayed, r.Refusal)
	if _, completes := j.settle().Ops[0].(*core.TaskComplete); completes && r.Refusal == nil {
		w.ledger.completed(j)
	}
}
