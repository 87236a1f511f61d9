// Package checktest sets the model of package check against the real state machines: random histories, with restarts in
// between, whose every result the model must allow, and whose final state must read back as the model has it.
//
// The histories are small worlds on purpose, few tasks, workers, keys and queues, so that operations meet: stale tokens,
// repeats, taken keys, expired leases. Elsewhere: suites that judge the machines by themselves (machinetest).
package checktest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Options of one random history.
type Options struct {
	Seed    uint64
	Entries int
	// Distort may change what the machine answered before the model sees it; it reports whether it did.
	Distort func(r *rand.Rand, c *core.Commit, got *core.Result) bool
	// Join adds ops of batches to commits of others, as effects of completions too.
	Join bool
}

// Stats tell what a history reached, so that a test can see that it was worth running.
type Stats struct {
	Commits, Applied, Refused, Replayed, Granted, Expired, Restarts, Distorted int
	Closed, Held, Cleared, Gone                                                int // steps of removals of namespaces
	// What operated tasks and queues; Asked are cancels of running tasks, Early what an older format does not have.
	Cancels, Asked, Stops, Redrives, Forced, Updates, Reports, Pauses, Resumes, Early int
	// Bulk jobs that were started and stopped, and the tasks that they had acted on at the times of the audits.
	BulkStarts, BulkStops, Bulked int
	// Creates that replaced what another had asked for.
	Replaces int
	// Copies of dead tasks that were given out.
	Letters int
	// FullTenants are creates, redrives and edits that a tenant's quota of tasks refused.
	FullTenants int
	// Creates of tasks that wait for others: those that are blocked, those that wait for none by then, and those that were cancelled at once.
	Blocked, NotBlocked, BornCancelled int
	// What runs of crons came to, by outcome, with CronHands by hand, and proposals that came too late.
	CronOutcomes         [8]int
	CronHands, CronStale int
	// Tasks that were added to batches, batches that were sealed and cancelled, creates that came too late, and batches that had made a
	// follow-up at the times of the audits.
	BatchTasks, BatchSeals, BatchCancels, BatchClosed, BatchFollows int
	// Keys that had a writer at the times of the audits.
	Writers int
	// Commits of others to which ops of batches were added, and such ops that a completion had as effects.
	Joined, BatchEffects int
}

type run struct {
	o      Options
	rand   *rand.Rand
	model  *check.Model
	real   *commit.Machine
	tx     *machinetest.Txn
	index  uint64
	format uint16 // of entries: it rises
	stamp  core.ShardTime
	world  *world
	refs   *world // makes commits of refs, and ops on refs that come into others; it draws from a source of its own
	gone   *removals
	crons  *crons

	batches *batches
	stats   Stats
}

// Run makes one history and judges it. The error is the first answer, or the first state read back, that the model does
// not allow.
func Run(o Options) (Stats, error) {
	r := &run{
		o: o, rand: rand.New(rand.NewPCG(o.Seed, 1)), model: check.NewModel(),
		tx: machinetest.NewTxn(), stamp: 1_000_000, format: core.FormatCurrent,
	}
	switch {
	case o.Seed%10 == 3:
		r.format = core.FormatFirst
	case o.Seed%5 == 1:
		r.format = core.FormatQueues
	}
	r.world, r.refs = newWorld(r.rand), newWorld(rand.New(rand.NewPCG(o.Seed, 2)))
	r.world.company = r.refs
	r.crons = &crons{rand: rand.New(rand.NewPCG(o.Seed, 4)), fired: map[core.Partition][]*core.CronFire{}}
	r.batches = &batches{rand: rand.New(rand.NewPCG(o.Seed, 5)), open: map[core.Partition][]core.TaskID{}}
	r.gone = &removals{rand: rand.New(rand.NewPCG(o.Seed, 3)), first: 1}
	if err := r.open(); err != nil {
		return r.stats, err
	}
	for range o.Entries {
		if r.rand.IntN(40) == 0 {
			r.stats.Restarts++
			if err := r.open(); err != nil {
				return r.stats, err
			}
		}
		if err := r.entry(); err != nil {
			return r.stats, err
		}
		if r.rand.IntN(20) == 0 {
			if err := r.audit(); err != nil {
				return r.stats, fmt.Errorf("after entry %d: %w", r.index, err)
			}
		}
	}
	return r.stats, r.audit()
}

// open starts the machine again from what it stored.
func (r *run) open() error {
	r.real = commit.New(commit.Options{})
	if err := r.real.Open(r.tx); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// entry proposes one entry, as bytes, and judges what became of it.
func (r *run) entry() error {
	r.index++
	r.stamp = r.stamp.Add(r.world.pause())
	if r.format < core.FormatCurrent && r.rand.IntN(80) == 0 {
		r.format++
	}
	e := &core.Entry{Format: r.format, Stamp: r.stamp, Proposer: 1, Seq: r.index}
	for range 1 + r.rand.IntN(3) {
		e.Commits = append(e.Commits, r.world.commit(r.stamp))
	}
	if r.refs.rand.IntN(2) == 0 {
		e.Commits = append(e.Commits, r.refs.refsCommit())
	}
	if r.gone.rand.IntN(3) == 0 {
		e.Commits = append(e.Commits, r.gone.commit(r.stamp))
	}
	if err := r.cronEntry(e); err != nil {
		return err
	}
	r.batchEntry(e)
	decoded, err := core.DecodeEntry(core.AppendEntry(nil, e))
	if err != nil {
		return fmt.Errorf("decode entry %d: %w", r.index, err)
	}
	applied, err := r.real.Apply(r.tx, r.index, decoded)
	if err != nil {
		return fmt.Errorf("apply entry %d: %w", r.index, err)
	}
	for i := range applied.Results {
		got := &applied.Results[i]
		r.count(got)
		r.stats.countControl(&e.Commits[i], got)
		r.stats.countAfter(&e.Commits[i], got)
		r.stats.countBatches(&e.Commits[i], got)
		r.countRemoval(&e.Commits[i], got)
		r.countCrons(&e.Commits[i], got)
		if r.o.Distort != nil && r.o.Distort(r.rand, &e.Commits[i], got) {
			r.stats.Distorted++
		}
		r.world.saw(&e.Commits[i], got)
	}
	for _, e := range applied.Events {
		if _, lost := e.(*core.Lost); lost {
			r.stats.Expired++
		}
	}
	return r.model.Judge(r.index, e, applied.Results)
}

// countRemoval counts what became of a step of the removal of a namespace.
func (r *run) countRemoval(c *core.Commit, got *core.Result) {
	if got.Refusal != nil {
		if _, ok := got.Refusal.Fact.(core.NotEmpty); ok {
			r.stats.Held++
		}
		return
	}
	switch op := c.Ops[0].(type) {
	case *core.PartitionRemove:
		switch op.Step {
		case core.PartitionClose:
			r.stats.Closed++
		case core.PartitionClear:
			r.stats.Cleared++
		}
	case *core.NamespaceRemove:
		if op.Step == core.RemovalFinish {
			r.stats.Gone++
		}
	}
}

func (r *run) count(got *core.Result) {
	r.stats.Commits++
	switch {
	case got.Refusal != nil:
		r.stats.Refused++
	case got.Replayed:
		r.stats.Replayed++
	default:
		r.stats.Applied++
	}
	for _, op := range got.Ops {
		r.stats.Granted += len(op.Assigned)
	}
}

// audit reads everything back through the read functions and compares it with the model.
func (r *run) audit() error {
	for _, p := range r.world.parts {
		found, err := queue.Audit(r.tx, p)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("stored of partition %s: %v", p, found)
		}
		for _, id := range r.model.Tasks(p) {
			got, ok, err := queue.Task(r.tx, p, id)
			if err != nil {
				return err
			}
			if err := r.model.AuditTask(p, id, got, ok); err != nil {
				return err
			}
		}
		for _, name := range r.world.queues {
			stats, ok, err := queue.Stats(r.tx, p, name)
			if err != nil {
				return err
			}
			if !ok {
				stats.Queue = name
			}
			if err := r.model.AuditStats(p, stats); err != nil {
				return err
			}
		}
		if err := r.auditBulks(p); err != nil {
			return err
		}
		if err := r.auditCrons(p); err != nil {
			return err
		}
		if err := r.auditBatches(p); err != nil {
			return err
		}
		if err := r.auditLimiters(p); err != nil {
			return err
		}
		if err := r.auditKeys(p); err != nil {
			return err
		}
		if err := r.auditRefs(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) auditKeys(p core.Partition) error {
	for _, space := range r.world.spaces {
		found := slices.Concat(r.model.Keys(p, space), r.world.keys)
		for _, key := range found {
			got, err := kv.Read(r.tx, p, space, []byte(key))
			if err != nil {
				return err
			}
			if err := r.model.AuditKey(p, space, []byte(key), got); err != nil {
				return err
			}
			if got.Writer != nil {
				r.stats.Writers++
			}
		}
	}
	return nil
}
