package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
)

// drainWithin bounds the drain after the window, unless the harness says otherwise.
const drainWithin = 60 * time.Second

// Drain waits until workers have completed what was created, at most drainLimit (a minute by
// default). When nothing moves for askAfter it asks the servers what is left; if they say that
// nothing is, it returns without an error. The audit then tells whether tasks are lost or the count
// of the driver is wrong.
func (r *Rig) Drain(ctx context.Context) error {
	start := time.Now()
	defer func() { r.drained = time.Since(start) }()
	last, moved := uint64(0), start
	for {
		created, done := r.Ledger.Counts()
		if done >= created {
			return nil
		}
		now := time.Now()
		if done != last {
			last, moved = done, now
		}
		if quiet := now.Sub(moved); quiet > askAfter && r.left != nil && !r.Ceiling {
			if n, err := r.left(ctx); err == nil && n == 0 {
				return nil
			}
			moved = now.Add(-askAfter / 2)
		}
		if now.Sub(start) > r.drainLimit {
			return fmt.Errorf("not drained after %.0f s: %d of %d tasks are completed", now.Sub(start).Seconds(), done, created)
		}
		if err := Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// askAfter is how long nothing moves before the servers are asked what is left.
const askAfter = 500 * time.Millisecond

// auditor proves that every acknowledged task is there, once and whole. It works on the ledger's sums, the
// servers' counters, and a sample of tasks that it reads back. One audit is one call of run.
type auditor struct {
	sums ledgerSums
	// sample lists the tasks to read back; first is the server that all others are compared with.
	sample  []sampled
	first   source
	queue   string
	payload []byte
	result  []byte
	// works says that the suite completes what it creates, so that missing completions are an error.
	works bool
	// drained says that the driver came to its end: what is left over then is stuck.
	drained bool
	// purges says that servers may have removed ended tasks, so that a completed one may be gone.
	purges bool

	// replicas are all other servers, which must hold the same as first.
	replicas []replica
}

// run makes the audit. It compares the sums of the ledger with the counters of the first server,
// then ids, then reads the sample back from all servers. An error means that a server could not be
// read; what is wrong with the data is in Violations.
//
// The bounds allow for creates whose end is not known: they may be there or not. So tasks may
// number from created to created plus unknown, and completions may miss at most the replayed ones,
// which were counted by their first answer.
func (a *auditor) run(ctx context.Context) (*Audit, error) {
	sums := a.sums
	out := &Audit{Created: sums.created, Completed: sums.completed, Unknown: sums.unknown, Checked: "every id"}
	if sums.every > 1 {
		out.Checked = fmt.Sprintf("every %dth id", sums.every)
	}
	stats, err := a.stats(ctx, a.first)
	if err != nil {
		return nil, err
	}
	out.Counts = countsOf(&stats)
	out.Counted = tasksOf(&stats)
	violate := func(format string, args ...any) {
		out.Violations = append(out.Violations, fmt.Sprintf(format, args...))
	}
	if out.Counted < sums.created {
		violate("lost: %d creates were acknowledged, the servers count %d tasks", sums.created, out.Counted)
	}
	if out.Counted > sums.created+sums.unknown {
		violate("unexpected: the servers count %d tasks, %d were created and %d may have been", out.Counted, sums.created, sums.unknown)
	}
	if stats.Created != out.Counted {
		violate("counters: %d created, but the states and purged make %d", stats.Created, out.Counted)
	}
	if sums.twice > 0 {
		violate("doubled: %d tasks were completed more than once", sums.twice)
	}
	if sums.createdTwice > 0 {
		violate("doubled: %d ids were created more than once", sums.createdTwice)
	}
	if stats.CompletedTotal < sums.completed-min(sums.replayed, sums.completed) {
		violate("completions lost: %d were acknowledged, the servers count %d", sums.completed, stats.CompletedTotal)
	}
	a.judgeIDs(sums, out, violate)
	if err := a.readBack(ctx, out, violate); err != nil {
		return nil, err
	}
	if err := a.compareCounts(ctx, out.Counts, violate); err != nil {
		return nil, err
	}
	out.OK = len(out.Violations) == 0
	return out, nil
}

// judgeIDs compares ids, which is stricter than counts: a lost task and a doubled one cancel out in
// counts, and do not in ids. A stranger is a task that was completed without an acknowledged
// create; an unknown create explains it. With a thinned ledger each id stands for sums.every ids,
// and missing ids are not judged.
func (a *auditor) judgeIDs(sums ledgerSums, out *Audit, violate func(format string, args ...any)) {
	if !a.works {
		return
	}
	if uint64(sums.strangers*sums.every) > sums.unknown {
		violate("unexpected: %d tasks were completed whose create was not acknowledged, %d creates ended unknown", sums.strangers, sums.unknown)
	}
	left := out.Counts["blocked"] + out.Counts["scheduled"] + out.Counts["ready"] + out.Counts["running"]
	ended := out.Counts["dead"] + out.Counts["cancelled"] + out.Counts["purged"]
	if missing := uint64(sums.missing * sums.every); sums.every == 1 && missing > left+ended+sums.unknown {
		violate("lost: %d tasks that were acknowledged were never completed, and %d are left", missing, left)
	}
	if a.drained && left > 0 {
		violate("stuck: %d tasks are left after the drain", left)
	}
}

// readBack reads the sample from the first server and compares payload, result and state with what
// was acknowledged. The checkers of package check judge its history. Each further server must have
// every task of the sample in the same state.
func (a *auditor) readBack(ctx context.Context, out *Audit, violate func(format string, args ...any)) error {
	sample := a.sample
	found, err := a.readAll(ctx, a.first, sample)
	if err != nil {
		return err
	}
	out.ReadBack = uint64(len(sample))
	for i, f := range found {
		if f.differs != "" && len(out.Violations) < maxViolations {
			violate("different: task %s has another %s", sample[i].id, f.differs)
		}
	}
	a.checkHistory(sample, found, out, violate)
	for _, r := range a.replicas {
		again, err := a.readAll(ctx, r, sample)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		for i := range again {
			if again[i] != found[i] && len(out.Violations) < maxViolations {
				violate("replicas differ: %s has task %s as %s, the first server as %s", r.name, sample[i].id, again[i], found[i])
			}
		}
	}
	return nil
}

// maxViolations bounds the list of an audit: a lost disk would fill memory with the same sentence.
const maxViolations = 100

// different names the part of a task that differs from what was acknowledged; empty: none does.
func (a *auditor) different(t *millrace.TaskInfo) string {
	switch {
	case string(t.Payload) != string(a.payload):
		return "payload"
	case a.works && t.State == millrace.Completed && string(t.Result) != string(a.result):
		return "result"
	}
	return ""
}

// purged reports whether retention accounts for a task that is gone: it was completed, as far as that is known of it, and
// the servers count tasks that they removed.
func (a *auditor) purged(s sampled, out *Audit) bool {
	done := slices.ContainsFunc(s.completions, func(c completion) bool { return c.outcome == check.OK })
	return a.purges && out.Counts["purged"] > 0 && (done || !s.followed)
}

// checkHistory gives the calls of the sample, and what was read back, to the checkers of package
// check, which share no code with the servers. Only a drained run has whole histories, and only of
// tasks that were followed; of the others it is only checked that they are there.
func (a *auditor) checkHistory(sample []sampled, found []readTask, out *Audit, violate func(format string, args ...any)) {
	var calls []check.Call
	var final []check.TaskState
	for i, s := range sample {
		if found[i].state.ID == "" && a.purged(s, out) {
			continue
		}
		if !s.followed || !a.works || !a.drained {
			if found[i].state.ID == "" && len(out.Violations) < maxViolations {
				violate("lost: task %s was acknowledged and is not there", s.id)
			}
			continue
		}
		calls = append(calls, check.Call{Op: check.OpCreate, ID: s.id, Answer: s.id, Queue: a.queue, Outcome: check.OK})
		for _, c := range s.completions {
			calls = append(calls, check.Call{
				Op: check.OpComplete, ID: s.id, Token: c.token, Queue: a.queue, Outcome: c.outcome, Replayed: c.replayed,
			})
		}
		if found[i].state.ID != "" {
			final = append(final, found[i].state)
		}
	}
	if len(calls) == 0 {
		return
	}
	for _, v := range check.TotalQueue(calls, final, check.TotalOptions{}).Violations {
		violate("%s", v)
	}
}
