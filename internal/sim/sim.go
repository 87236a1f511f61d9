package sim

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// Plan is what a run simulates. Chances are in a thousand.
type Plan struct {
	Nodes   int
	Shards  int
	Clients int
	Workers int
	Tasks   int // that clients create

	Drop   int // messages, requests and answers that are lost
	Repeat int // messages that arrive twice
	Slow   int // messages that are overtaken
	Stuck  int // tasks that are worked on beyond their lease

	Faults     time.Duration // how long things go wrong
	FaultEvery time.Duration // at most so long between two faults
	Drain      time.Duration // how long it may take then until the last task has ended
	NoSync     bool          // logs are not synced: a control that must lose something
}

// Usual is a cluster of three under faults of all kinds.
func Usual() Plan {
	return Plan{
		Nodes: 3, Shards: 2, Clients: 4, Workers: 3, Tasks: 120, Drop: 20, Repeat: 10, Slow: 20, Stuck: 15,
		Faults: 20 * time.Second, FaultEvery: 1500 * time.Millisecond, Drain: 5 * time.Minute,
	}
}

// Result is what a run came to.
type Result struct {
	Seed      uint64
	Trace     uint64 // hash of everything that happened, in order
	Steps     int
	Virtual   time.Duration
	Tasks     int // acknowledged
	Leaders   int // terms that had one
	Violation error
}

func (r Result) String() string {
	s := fmt.Sprintf("seed %d: trace %016x, %d events in %v, %d tasks, %d leaders", r.Seed, r.Trace, r.Steps, r.Virtual.Round(time.Millisecond), r.Tasks, r.Leaders)
	if r.Violation != nil {
		s += ": " + r.Violation.Error()
	}
	return s
}

// Run simulates one history. Runs of one process are made one after the other: the Raft library draws its election times
// from a source that all of a process share.
func Run(seed uint64, p Plan) Result {
	source := rand.Reader
	rand.Reader = seededReader{mathrand.New(mathrand.NewPCG(seed, 1))}
	defer func() { rand.Reader = source }()
	w := newWorld(seed, p)
	w.ledger = newLedger(w)
	for id := range p.Nodes {
		w.hosts = append(w.hosts, &host{w: w, id: uint64(id + 1), disk: replogtest.NewDisk(), data: replogtest.NewDisk(), streams: make(map[*worker]bool)})
	}
	for _, h := range w.hosts {
		h.start()
	}
	defer func() {
		for _, h := range w.hosts {
			if h.node != nil {
				h.release()
			}
		}
	}()
	w.open()
	w.run(time.Hour, func() bool { return w.ledger.opened })
	w.people()
	w.look()
	w.misfortune()
	w.run(w.now+p.Faults, never)
	w.heal()
	w.run(w.now+p.Drain, w.drained)
	w.end()
	return Result{
		Seed: seed, Trace: w.trace.Sum64(), Steps: w.steps, Virtual: w.now, Tasks: len(w.ledger.acked),
		Leaders: len(w.ledger.leaders), Violation: w.fail,
	}
}

func never() bool { return false }

// open makes the namespace that clients use.
func (w *world) open() {
	c := &client{w: w, host: 1}
	c.send(&request{
		system: true,
		make: func() core.Commit {
			return core.Commit{Principal: "client", Ops: []core.Op{&core.NamespaceCreate{Tenant: "acme", Name: "default", Partitions: 1}}}
		},
		answer: func(core.Result, core.At) { w.ledger.opened = true },
	})
}

// people begin to work.
func (w *world) people() {
	for i := range w.plan.Clients {
		c := &client{w: w, host: 1 + uint64(i%len(w.hosts))}
		w.after(0, "client", 0, c.next)
	}
	for i := range w.plan.Workers {
		k := &worker{w: w, name: fmt.Sprint("w", i), host: 1 + uint64(i%len(w.hosts)), held: make(map[core.TaskID]*job)}
		k.id[0] = byte(i + 1)
		w.ledger.workers = append(w.ledger.workers, k)
		w.after(0, "connect", k.host, k.connect)
	}
}

// drained reports whether every host has applied that every task has ended.
func (w *world) drained() bool {
	if w.steps%64 != 0 {
		return false
	}
	for _, h := range w.hosts {
		if h.node == nil || !w.ledger.idle(h) {
			return false
		}
	}
	return w.equal()
}

// equal reports whether all hosts have applied the same entries.
func (w *world) equal() bool {
	for _, h := range w.hosts[1:] {
		for i := range h.applied {
			if h.applied[i] != w.hosts[0].applied[i] {
				return false
			}
		}
	}
	return true
}

// end holds what is left to what clients were told.
func (w *world) end() {
	if w.fail != nil {
		return
	}
	for _, h := range w.hosts {
		if h.node == nil || !w.ledger.idle(h) {
			w.violate("host %d has tasks that did not end, %v after the last fault", h.id, w.plan.Drain)
			return
		}
		w.ledger.settle(h)
	}
	if !w.equal() {
		w.violate("replicas do not catch up")
	}
}
