package checktest

import (
	"fmt"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// LogEntry is one entry of a shard's log as a node wrote it. Data is empty for one that only opens a term.
type LogEntry struct {
	Index uint64
	Data  []byte
}

// Told is a task that a client was told was made by an entry.
type Told struct {
	Task  core.TaskID
	Index uint64
}

// Replay is what a log leads to when it is applied to nothing.
type Replay struct {
	Hash    uint64         // apply hash after the last entry
	Records []check.Record // the entries that hold commits, with what they are answered
	Report  *check.Report  // what the model says to the answers
	model   *check.Model
}

// ReplayLog applies a whole log, from its first entry on, to an empty store, and lets the model judge each answer and
// look for the tasks that clients were told of in the entries that they were told of.
func ReplayLog(log []LogEntry, told []Told) (*Replay, error) {
	st, err := store.Open(store.Options{FS: replogtest.NewDisk().VFS(), Dir: "replay", Manual: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Close() }() // nobody reads it again
	sh, err := st.Shard(0)
	if err != nil {
		return nil, err
	}
	m := commit.New(commit.Options{})
	if err := sh.View(m.Open); err != nil {
		return nil, err
	}
	r := &Replay{}
	for _, e := range log {
		if err := r.apply(sh, m, e); err != nil {
			return nil, fmt.Errorf("replay entry %d: %w", e.Index, err)
		}
	}
	_, r.Hash = sh.Applied()
	calls := make([]check.Call, len(told))
	for i, c := range told {
		calls[i] = check.Call{Op: check.OpCreate, ID: c.Task.String(), Index: c.Index, Outcome: check.OK}
	}
	r.Report, r.model = check.IndexReplay(r.Records, calls)
	return r, nil
}

func (r *Replay) apply(sh *store.Shard, m *commit.Machine, e LogEntry) error {
	if len(e.Data) == 0 {
		return sh.Apply(e.Index, func(*store.Txn) error { return nil })
	}
	entry, err := core.DecodeEntry(e.Data)
	if err != nil {
		return err
	}
	var applied core.Applied
	err = sh.Apply(e.Index, func(tx *store.Txn) (err error) {
		if applied, err = m.Apply(tx, e.Index, entry); err != nil {
			return err
		}
		for i := range applied.Results {
			tx.Fold(core.AppendResult(nil, &applied.Results[i]))
		}
		return nil
	})
	r.Records = append(r.Records, check.Record{Index: e.Index, Entry: entry, Results: applied.Results})
	return err
}

// Audit compares what can be read of a partition, at the end of the log, with what the model has: tasks, counters of the
// queues named, keys.
func (r *Replay) Audit(v core.View, p core.Partition, queues ...string) error {
	for _, id := range r.model.Tasks(p) {
		got, ok, err := queue.Task(v, p, id)
		if err != nil {
			return err
		}
		if err := r.model.AuditTask(p, id, got, ok); err != nil {
			return err
		}
	}
	for _, name := range queues {
		stats, _, err := queue.Stats(v, p, name)
		if err != nil {
			return err
		}
		stats.Queue = name
		if err := r.model.AuditStats(p, stats); err != nil {
			return err
		}
	}
	for _, space := range r.model.Keyspaces(p) {
		for _, key := range r.model.Keys(p, space) {
			value, rev, ok, err := kv.Get(v, p, space, []byte(key))
			if err != nil {
				return err
			}
			if err := r.model.AuditKey(p, space, []byte(key), value, rev, ok); err != nil {
				return err
			}
		}
	}
	return nil
}
