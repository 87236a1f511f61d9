package checktest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// ReadLog reads all entries of a shard from folders of log segments that no process writes to, oldest first: archives,
// then the log's own. What stands there several times was written again; an entry of a later term replaces the earlier
// one and all behind it.
func ReadLog(shard core.ShardID, folders ...string) ([]LogEntry, error) {
	type kept struct {
		term uint64
		conf bool
		data []byte
	}
	found := map[uint64]kept{}
	for _, folder := range folders {
		err := wal.Scan(store.NewFS(store.SystemFS()), folder, func(s core.ShardID, e wal.Entry) error {
			if s != shard {
				return nil
			}
			old, ok := found[e.Index]
			switch {
			case ok && old.term == e.Term:
				return nil
			case ok && old.term > e.Term: // written again before it was replaced
				return nil
			case ok:
				maps.DeleteFunc(found, func(i uint64, _ kept) bool { return i > e.Index })
			}
			found[e.Index] = kept{e.Term, e.Kind == replog.KindConf, bytes.Clone(e.Data)}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read log in %s: %w", folder, err)
		}
	}
	var out []LogEntry
	for _, i := range slices.Sorted(maps.Keys(found)) {
		if len(out) > 0 && out[len(out)-1].Index != i-1 {
			return nil, fmt.Errorf("the log lacks entries %d to %d", out[len(out)-1].Index+1, i-1)
		}
		out = append(out, LogEntry{Index: i, Conf: found[i].conf, Data: found[i].data})
	}
	if len(out) == 0 {
		return nil, errors.New("the log is empty")
	}
	return out, nil
}

// AuditStore compares the store of a data directory, whose server was stopped in order, with what the log leads to:
// applied index, apply hash, and every task, counter and key that the model has. Rules: applied, hash, read_back.
func (r *Replay) AuditStore(data string) (*check.Report, error) {
	out := check.NewReport("store_replay")
	o := store.Options{FS: store.SystemFS(), Dir: filepath.Join(data, "store")}
	states, err := store.Inspect(o, func(id core.ShardID, v core.View) error {
		if id != 0 {
			return nil
		}
		for _, p := range r.model.Partitions() {
			if p == (core.Partition{}) {
				continue
			}
			out.Checked += len(r.model.Tasks(p))
			if err := r.Audit(v, p, r.model.Queues(p)...); err != nil {
				out.Violate("read_back", "partition %s: %v", p, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range states.Shards {
		if s.Shard != 0 {
			continue
		}
		out.Checked++
		switch {
		case s.Index != r.Index:
			out.Violate("applied", "the store has applied entry %d, the log ends at %d", s.Index, r.Index)
		case s.ApplyHash != r.Hash:
			out.Violate("hash", "after entry %d the store has apply hash %016x, the log leads to %016x", s.Index, s.ApplyHash, r.Hash)
		}
	}
	return out.Done(), nil
}

// Together judges that each task of ids was completed by one commit that also put the key of its id into a keyspace: both
// stand at one index. Rules: apart (completed without the key, or the key put without the completion), never, twice.
func (r *Replay) Together(keyspace string, ids []string) *check.Report {
	out := check.NewReport("one_index")
	done := map[string]int{}
	for _, rec := range r.Records {
		for i := range rec.Results {
			res := &rec.Results[i]
			if res.Refusal != nil || res.Replayed {
				continue
			}
			completed, put := map[string]bool{}, map[string]bool{}
			for k, op := range rec.Entry.Commits[i].Ops {
				switch op := op.(type) {
				case *core.TaskComplete:
					completed[op.Task.String()] = !res.Ops[k].Replayed
				case *core.KVPut:
					if op.Keyspace == keyspace {
						put[string(op.Key)] = true
					}
				}
			}
			for id := range put {
				if !completed[id] {
					out.Violate("apart", "entry %d puts the key of task %s, and does not complete it", rec.Index, id)
				}
				done[id]++
			}
		}
	}
	for _, id := range ids {
		out.Checked++
		switch done[id] {
		case 0:
			out.Violate("never", "no entry completes task %s and puts its key", id)
		case 1:
		default:
			out.Violate("twice", "%d entries complete task %s and put its key", done[id], id)
		}
	}
	return out.Done()
}

// Namespaces lists the partitions that the log names, the system's own left out.
func (r *Replay) Namespaces() []core.Partition {
	return slices.DeleteFunc(r.model.Partitions(), func(p core.Partition) bool { return p == core.Partition{} })
}
