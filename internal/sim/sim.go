package sim

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Options say how long a run is and what is shown of it.
type Options struct {
	Steps int          // the run ends after this many; 0 = at its end. What is then left open is not a failure
	Trace func(string) // gets a line for each thing that happens
	Keep  int          // the last lines are kept for Result.Last
}

// Result is the outcome of a run. Two runs with one seed have the same Trace, or the simulation is
// not deterministic.
type Result struct {
	Seed      uint64
	Trace     uint64 // hash of everything that happened, in order
	Steps     int
	Virtual   time.Duration
	Tasks     int                 // acknowledged
	Answers   int                 // results that clients were told, and that the log was held to
	Reads     int                 // that the model was held to
	Claims    int                 // votes and acknowledgements of replicas that were held to their disks
	Leaders   int                 // terms that had one
	Snapshots int                 // states that replicas got instead of entries
	Changes   int                 // of membership, that were done
	Acts      map[core.OpKind]int // by which operators acted on tasks and queues, as clients were told
	Struck    map[string]int
	Last      []string // lines of what happened last, with Options.Keep
	Violation error
}

func (r Result) String() string {
	s := fmt.Sprintf("seed 0x%x: trace %016x, %d steps in %v, %d tasks, %d answers, %d reads, %d leaders, %d snapshots, %d changes of membership",
		r.Seed, r.Trace, r.Steps, r.Virtual.Round(time.Millisecond), r.Tasks, r.Answers, r.Reads, r.Leaders, r.Snapshots, r.Changes)
	if r.Violation != nil {
		s += ": " + r.Violation.Error()
	}
	return s
}

// Run simulates one history. A process must make its runs one after the other: the Raft library
// draws its election times from a source that all of a process share, which Run replaces.
func Run(seed uint64, p Plan, o Options) Result {
	source := rand.Reader
	rand.Reader = seededReader{mathrand.New(mathrand.NewPCG(seed, 1))}
	defer func() { rand.Reader = source }()
	w := newWorld(seed, p)
	w.most = o.Steps
	if o.Trace != nil || o.Keep > 0 {
		w.diary = &diary{keep: o.Keep, print: o.Trace}
	}
	w.ledger = newLedger(w)
	for id := range p.Nodes + p.Spares {
		w.hosts = append(w.hosts, newHost(w, uint64(id+1)))
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
	w.live(seed)
	r := Result{
		Seed: seed, Trace: w.trace.Sum64(), Steps: w.steps, Virtual: w.now, Tasks: len(w.ledger.acked),
		Claims: w.history.claims, Leaders: len(w.ledger.leaders), Snapshots: w.snapshots, Changes: w.changes, Acts: w.ledger.acts, Struck: w.struck, Violation: w.fail,
	}
	for i := range w.ledger.told {
		r.Answers += len(w.ledger.told[i])
		r.Reads += len(w.ledger.shown[i])
	}
	if w.diary != nil {
		r.Last = w.diary.last()
	}
	return r
}

func never() bool { return false }

// One history in alone also checks that tenants do not see each other, which takes as long as
// everything else.
const alone = 10

// live is a whole history:
//
//  1. Namespaces are created, and clients, writers, workers and reads begin.
//  2. Faults happen for the time of the plan; then all of them heal.
//  3. The cluster must recover, and all tasks must end.
//  4. All hosts lose power once more, recover, and everything must still be there.
//  5. The logs are replayed and judged.
func (w *world) live(seed uint64) {
	w.open()
	w.run(time.Hour, func() bool { return w.ledger.opened == 2 })
	w.people()
	w.look()
	w.misfortune()
	w.operate()
	w.run(w.now+w.plan.Faults, never)
	w.heal()
	w.recover()
	w.finish()
	if w.over() {
		return
	}
	w.end()
	for _, h := range w.hosts {
		h.crash(w.between(0, time.Second))
	}
	w.run(w.now+time.Second, never)
	w.recover()
	w.finish()
	if w.over() {
		return
	}
	w.end()
	for i := range w.plan.Shards {
		w.replay(core.ShardID(i))
		if seed%alone == 0 && w.fail == nil {
			w.judgeAlone(core.ShardID(i))
		}
	}
}

// open creates the namespaces that clients use.
func (w *world) open() {
	for _, s := range []*space{w.ledger.space, w.ledger.rival} {
		c := &client{w: w, host: 1}
		op := core.NamespaceCreate{Tenant: s.tenant, Name: "default", Partitions: uint16(s.partitions), Shards: uint16(w.plan.Shards)}
		c.begin(&request{
			make: func() core.Commit {
				create := op
				return core.Commit{Principal: "client", Ops: []core.Op{&create}}
			},
			matches: func(c *core.Commit) bool {
				create, ok := c.Ops[0].(*core.NamespaceCreate)
				return ok && create.Tenant == op.Tenant
			},
			answer: func(r core.Result, _ core.At) {
				if r.Refusal != nil {
					w.violate("namespace of %s was refused: %v", s.tenant, r.Refusal.Fact)
				}
				w.ledger.opened++
			},
		})
	}
}

// people starts clients, writers and workers.
func (w *world) people() {
	host := func(i int) uint64 { return 1 + uint64(i%w.plan.Nodes) }
	for i := range w.plan.Clients {
		c := &client{w: w, host: host(i)}
		w.after(0, "client", 0, c.create)
	}
	for i := range w.plan.Writers {
		r := &writer{client: client{w: w, host: host(i)}, spaces: []*space{w.ledger.space, w.ledger.rival}}
		w.after(0, "writer", 0, r.write)
	}
	for i := range w.plan.Workers {
		at := place{w.ledger.space, uint16(i % w.plan.Partitions)}
		k := &worker{w: w, name: fmt.Sprint("w", i), at: at, host: host(i), held: make(map[core.TaskID]*job)}
		k.id[0] = byte(i + 1)
		w.ledger.workers = append(w.ledger.workers, k)
		w.after(0, "connect", k.host, k.connect)
	}
}

// recovery is how long a cluster may take after the last fault until every shard has a leader that
// serves, and every earlier call has ended.
const recovery = 30 * time.Second

// recover runs until the cluster has recovered, and reports what is missing after recovery.
func (w *world) recover() {
	begin := w.now
	w.run(begin+recovery, func() bool { return w.steps%16 == 0 && w.recovered(begin) == "" })
	if w.over() {
		return
	}
	if why := w.recovered(begin); why != "" {
		w.violate("%s, %v after the last fault", why, recovery)
	}
}

// recovered returns what is missing: a leader, or the end of a call or read from before begin.
func (w *world) recovered(begin time.Duration) string {
	for i := range w.plan.Shards {
		if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.node != nil && h.terms[i].serves }) {
			return fmt.Sprintf("shard %d has no leader that serves:%s", i, w.standings(i))
		}
	}
	for _, since := range w.ledger.open {
		if since < begin {
			return "a call has not ended"
		}
	}
	for _, h := range w.placed() {
		for i := range h.reads {
			if r := &h.reads[i]; r.since < begin {
				shard := w.ledger.shards[r.at]
				return fmt.Sprintf("a read of shard %d at host %d, begun at %v, is not answered; it stands at %+v", shard, h.id, r.since, h.node.Standings()[shard])
			}
		}
	}
	return ""
}

// standings tells how a shard stands on all hosts.
func (w *world) standings(shard int) (out string) {
	for _, h := range w.hosts {
		if h.node != nil {
			out += fmt.Sprintf(" at host %d %+v", h.id, h.node.Standings()[shard])
		}
	}
	return out
}

// finish runs until all tasks have ended and all replicas are equal, at most for the plan's Drain.
// If tasks wait for days, it lets days pass.
func (w *world) finish() {
	done := func() bool {
		return w.steps%512 == 0 && w.settled() == "" && w.equal() && !slices.ContainsFunc(w.placed(), func(h *host) bool { return h.node == nil || !w.ledger.idle(h) })
	}
	for until := w.now + w.plan.Drain; w.now < until && !w.over(); {
		slice := w.now + 2*time.Second
		w.run(slice, done)
		if w.over() || w.now < slice {
			break
		}
		if w.plan.Days {
			w.leap(24 * time.Hour)
		}
	}
}

// equal reports whether all hosts have applied the same entries.
func (w *world) equal() bool {
	list := w.placed()
	for _, h := range list[1:] {
		if !slices.Equal(h.applied, list[0].applied) {
			return false
		}
	}
	return true
}

// end compares what is stored on each host with what clients were told.
func (w *world) end() {
	if why := w.settled(); why != "" {
		w.violate("%s, %v after the last fault: %+v", why, w.plan.Drain, w.members.Job)
		return
	}
	for _, h := range w.placed() {
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
