package sim

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/queue"
)

// replay judges a shard's log. The log is applied once more from its first entry, and the model,
// which shares no code with the machines, must allow each answer.
//
//  1. Each entry is applied to a machine, and the model judges the results.
//  2. Each read that showed this index must be what the model has now.
//  3. What clients were told must be results of this replay.
//  4. What the replicas have stored must be what the model has at the end.
func (w *world) replay(shard core.ShardID) {
	l := w.ledger
	tx, model := machinetest.NewTxn(), check.NewModel()
	m := commit.New(commit.Options{Shard: shard})
	if err := m.Open(tx); err != nil {
		w.violate("replay of shard %d: %v", shard, err)
		return
	}
	answers := make(map[uint64][]core.Result)
	reads := l.shown[shard]
	slices.SortStableFunc(reads, func(a, b shown) int { return cmp.Compare(a.index, b.index) })
	for _, e := range w.history.entries[shard] {
		if e.entry != nil {
			applied, err := m.Apply(tx, e.index, e.entry)
			if err != nil {
				w.violate("replay of shard %d: entry %d: %v", shard, e.index, err)
				return
			}
			if err := model.Judge(e.index, e.entry, applied.Results); err != nil {
				w.violate("shard %d: %v", shard, err)
				return
			}
			answers[e.index] = applied.Results
		}
		for len(reads) > 0 && reads[0].index <= e.index {
			if err := reads[0].judge(model); err != nil {
				w.violate("shard %d: a read at entry %d: %v", shard, reads[0].index, err)
			}
			reads = reads[1:]
		}
	}
	for _, t := range l.told[shard] {
		w.judgeTold(shard, t, answers[t.index])
	}
	for _, h := range w.placed() {
		w.judgeStored(shard, h, model)
	}
}

// judge compares what a read has shown with the model.
func (s *shown) judge(m *check.Model) error {
	if s.key == nil {
		return m.AuditTask(s.part, s.task, s.value, s.found)
	}
	return m.AuditKey(s.part, "keys", s.key, s.held)
}

// judgeTold looks for a commit in the entry whose result is what the client was told.
func (w *world) judgeTold(shard core.ShardID, t told, results []core.Result) {
	if e := w.history.at(shard, t.index); e != nil && e.entry != nil {
		for i := range e.entry.Commits {
			c := &e.entry.Commits[i]
			if len(c.Ops) > 0 && t.matches(c) && bytes.Equal(core.AppendResult(nil, &results[i]), t.result) {
				return
			}
		}
	}
	w.violate("shard %d: a client was told a result of entry %d that the log does not lead to", shard, t.index)
}

// judgeStored compares what a host has stored with the model at the end of the log: tasks, counters
// of queues, and keys.
func (w *world) judgeStored(shard core.ShardID, h *host, model *check.Model) {
	for _, at := range append(w.ledger.places(), place{w.ledger.rival, 0}) {
		if s, known := w.ledger.shards[at]; !known || s != shard {
			continue
		}
		p, _ := h.find(at)
		w.ledger.view(h, at, func(v core.View, _ uint64) error {
			for _, id := range model.Tasks(p) {
				t, found, err := queue.Task(v, p, id)
				if err == nil {
					err = model.AuditTask(p, id, t, found)
				}
				if err != nil {
					return err
				}
			}
			for _, name := range model.Queues(p) {
				stats, _, err := queue.Stats(v, p, name)
				stats.Queue = name
				if err == nil {
					err = model.AuditStats(p, stats)
				}
				if err != nil {
					return err
				}
			}
			jobs, err := queue.Bulks(v, p)
			if err == nil {
				err = model.AuditBulks(p, jobs)
			}
			if err == nil {
				err = w.auditCrons(v, p, model)
			}
			if err == nil {
				err = w.auditBatches(v, p, model)
			}
			if err == nil {
				err = w.auditLimiters(v, p, model)
			}
			if err != nil {
				return err
			}
			return auditKeys(v, p, model)
		})
	}
}

// judgeAlone replays the log for each partition without all others, and compares: a tenant must not
// see another one in any answer or state.
func (w *world) judgeAlone(shard core.ShardID) {
	h := w.placed()[0]
	var log []checktest.LogEntry
	for _, e := range w.history.entries[shard] {
		log = append(log, checktest.LogEntry{Index: e.index, Conf: e.conf, Data: e.data})
	}
	for _, at := range append(w.ledger.places(), place{w.ledger.rival, 0}) {
		if s, known := w.ledger.shards[at]; !known || s != shard {
			continue
		}
		p, _ := h.find(at)
		r, err := checktest.Alone(log, p)
		if err != nil {
			w.violate("shard %d: replay of partition %s alone: %v", shard, p, err)
		} else if r.Total > 0 {
			w.violate("shard %d: %v", shard, r)
		}
	}
}

// auditKeys compares the keys of a partition with the model.
func auditKeys(v core.View, p core.Partition, model *check.Model) error {
	for _, space := range model.Keyspaces(p) {
		for _, key := range model.Keys(p, space) {
			got, err := kv.Read(v, p, space, []byte(key))
			if err == nil {
				err = model.AuditKey(p, space, []byte(key), got)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
