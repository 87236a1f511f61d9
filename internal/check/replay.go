package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// Record is one entry of a log with what Apply answered.
type Record struct {
	Index   uint64
	Entry   *core.Entry
	Results []core.Result
}

// IndexReplay judges a log: the model replays it and must allow each result, and each acknowledged call of the ledger
// that names a task or request must be found in the entry it was acknowledged with. Rules: result, not_in_log. The
// model is returned for audits of what can be read back.
func IndexReplay(log []Record, calls []Call) (*Report, *Model) {
	r, m := NewReport("index_replay"), NewModel()
	names := map[uint64]map[string]bool{}
	for _, rec := range log {
		r.Checked += len(rec.Results)
		if err := m.Judge(rec.Index, rec.Entry, rec.Results); err != nil {
			r.Violate("result", "%v", err)
			if _, ok := errors.AsType[*Mismatch](err); ok {
				break // what follows would be judged on a wrong state
			}
		}
		names[rec.Index] = entryNames(rec)
	}
	r.Counts["entries"] = len(log)
	if r.Total > 0 {
		return r.Done(), m
	}
	for i := range calls {
		c := &calls[i]
		if c.Outcome != OK || c.Index == 0 || !c.writes() || c.Replayed {
			continue
		}
		name := c.ID
		if name == "" {
			name = c.RequestID
		}
		if name == "" {
			continue
		}
		r.Counts["calls"]++
		if !names[c.Index][name] {
			r.Violate("not_in_log", "%s", c)
		}
	}
	return r.Done(), m
}

// entryNames lists the tasks and requests that the applied commits of an entry name.
func entryNames(rec Record) map[string]bool {
	out := map[string]bool{}
	for i := range rec.Entry.Commits {
		c := &rec.Entry.Commits[i]
		if rec.Results[i].Refusal != nil {
			continue
		}
		if c.RequestID != (core.RequestID{}) {
			out[fmt.Sprintf("%x", c.RequestID[:])] = true
		}
		if c.Fence != nil {
			out[c.Fence.Task.String()] = true
		}
		for _, op := range c.Ops {
			if id, ok := taskOf(op); ok {
				out[id.String()] = true
			}
			if renew, ok := op.(*core.TaskRenew); ok {
				for _, item := range renew.Items {
					out[item.Task.String()] = true
				}
			}
		}
	}
	return out
}

// AuditTask compares a task as it is read back, at the index that was judged last, with what it may be. A task that is
// absent is read as ok=false.
func (m *Model) AuditTask(p core.Partition, id core.TaskID, got core.Task, ok bool) error {
	t := m.part(p).tasks[id]
	switch {
	case t == nil && ok:
		return fmt.Errorf("task %s is there, but was never made", id)
	case t == nil:
		return nil
	case !ok && t.might(func(s *standing) bool { return s.gone }):
		return nil
	case !ok:
		return fmt.Errorf("task %s is absent, it may be %+v", id, t.may)
	}
	if got.Queue != t.create.Queue || got.Creator != t.creator {
		return fmt.Errorf("task %s holds another queue or creator than it was made with", id)
	}
	now := t.now
	now.priority = t.priorityOf(got.Priority)
	if err := now.sameContent(&got); err != nil && !t.isLoose() {
		return fmt.Errorf("task %s reads with %w", id, err)
	}
	same := func(s *standing) bool {
		return !s.gone && s.state == got.State && s.deliveries == got.Attempt && s.failures == got.Failures &&
			s.crashes == got.Crashes && s.snoozes == got.Snoozes && s.redrives == got.Redrives && (s.state != core.Running || s.until == got.LeaseUntil) &&
			s.samePending(&got) && s.expires == got.ExpiresAt && s.cancel == got.Cancel && s.lapsed == (got.Reason == "expired")
	}
	if !t.might(same) {
		return fmt.Errorf("task %s reads as %s %s, attempt %d, failures %d, crashes %d, snoozes %d, redrives %d, lease until %d, expires at %d, cancel %+v; it may be %+v",
			id, got.State, got.Reason, got.Attempt, got.Failures, got.Crashes, got.Snoozes, got.Redrives, got.LeaseUntil, got.ExpiresAt, got.Cancel, t.may)
	}
	return nil
}

// AuditKey compares a key as it is read back with what it must be.
func (m *Model) AuditKey(p core.Partition, keyspace string, key []byte, got core.KeyRead) error {
	want, there := m.part(p).spaces[keyspace][string(key)]
	if ok := got.Rev != 0; there != ok || got.Rev != want.rev || !bytes.Equal(got.Value, want.value) {
		return fmt.Errorf("key %q of %q reads as %q at revision %d (there: %v), it is %q at %d (%v)",
			key, keyspace, got.Value, got.Rev, ok, want.value, want.rev, there)
	}
	var by writer
	if got.Writer != nil {
		by = writer{got.Writer.Task, got.Writer.Token}
	}
	if by != want.writer || got.Writer != nil && by == (writer{}) {
		return fmt.Errorf("key %q of %q reads as written by %+v, it was by %+v", key, keyspace, by, want.writer)
	}
	return nil
}

// AuditStats compares a queue's counters with what its tasks may be.
func (m *Model) AuditStats(p core.Partition, got core.QueueStats) error {
	var least, most [8]uint64
	for _, t := range m.part(p).tasks {
		if t.create.Queue != got.Queue {
			continue
		}
		for _, state := range core.States() {
			in := func(s *standing) bool { return !s.gone && s.state == state }
			if t.sure(in) {
				least[state]++
			}
			if t.might(in) {
				most[state]++
			}
		}
	}
	if paused := m.part(p).queues[got.Queue].paused(); !slices.Contains(paused, got.Paused) {
		return fmt.Errorf("queue %s reads as paused %+v, it may be %+v", got.Queue, got.Paused, paused)
	}
	sum := got.Purged
	for _, state := range core.States() {
		n := got.States[state]
		sum += n
		if n < least[state] || n > most[state] {
			return fmt.Errorf("queue %s counts %d tasks as %s, there are %d to %d", got.Queue, n, state, least[state], most[state])
		}
	}
	if sum != got.Created {
		return fmt.Errorf("queue %s: created %d, states and purged make %d", got.Queue, got.Created, sum)
	}
	return nil
}

// Partitions lists the partitions that the log names, in order.
func (m *Model) Partitions() []core.Partition {
	return slices.SortedFunc(maps.Keys(m.parts), func(a, b core.Partition) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Index, b.Index))
	})
}

// Queues lists the queues of a partition, in order.
func (m *Model) Queues(p core.Partition) []string { return slices.Sorted(maps.Keys(m.part(p).queues)) }

// Tasks lists the ids that were ever made in a partition and are not forgotten, in order.
func (m *Model) Tasks(p core.Partition) []core.TaskID {
	return slices.SortedFunc(maps.Keys(m.part(p).tasks), func(a, b core.TaskID) int { return bytes.Compare(a[:], b[:]) })
}

// Keys lists the keys of a keyspace that there are, in order.
func (m *Model) Keys(p core.Partition, keyspace string) []string {
	return slices.Sorted(maps.Keys(m.part(p).spaces[keyspace]))
}

// Keyspaces lists the keyspaces of a partition, in order.
func (m *Model) Keyspaces(p core.Partition) []string {
	return slices.Sorted(maps.Keys(m.part(p).spaces))
}
