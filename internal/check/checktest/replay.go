package checktest

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// LogEntry is one entry of a shard's log as a node wrote it. Data is empty for one that only opens a term.
type LogEntry struct {
	Index uint64
	Conf  bool // Data changes the configuration of the log
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
	Index   uint64         // of the last entry
	Records []check.Record // the entries that hold commits, with what they are answered
	Report  *check.Report  // what the model says to the answers
	model   *check.Model
	hashes  map[uint64]uint64 // apply hash by index
}

// ReplayLog applies a whole log, from its first entry on, to an empty store, and lets the model judge each answer and
// look for the tasks that clients were told of in the entries that they were told of.
func ReplayLog(log []LogEntry, told []Told) (*Replay, error) {
	calls := make([]check.Call, len(told))
	for i, c := range told {
		calls[i] = check.Call{Op: check.OpCreate, ID: c.Task.String(), Index: c.Index, Outcome: check.OK}
	}
	return ReplayCalls(log, calls)
}

// ReplayCalls is ReplayLog for the calls of ledgers: each acknowledged one that names a task or a request must be found,
// applied, in the entry that it was acknowledged with.
func ReplayCalls(log []LogEntry, calls []check.Call) (*Replay, error) {
	r := &Replay{hashes: map[uint64]uint64{}}
	var err error
	note := func(index, hash uint64) { r.hashes[index] = hash }
	r.Records, err = player{chosen: everything, applied: note}.play(log, func(sh *store.Shard) error {
		r.Index, r.Hash = sh.Applied()
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Report, r.model = check.IndexReplay(r.Records, calls)
	return r, nil
}

func everything(*core.Commit) bool { return true }

// player replays logs.
type player struct {
	chosen  func(*core.Commit) bool  // the commits that are applied, each in its entry
	applied func(index, hash uint64) // is told of each entry; may be nil
}

// play applies a log to an empty store, returns the answers, and shows the store at the end.
func (p player) play(log []LogEntry, end func(*store.Shard) error) (out []check.Record, err error) {
	st, err := store.Open(store.Options{FS: replogtest.NewDisk().VFS(), Dir: "replay", Manual: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Close() }() // it is not read again
	sh, err := st.Shard(0)
	if err != nil {
		return nil, err
	}
	m := commit.New(commit.Options{})
	if err := sh.View(m.Open); err != nil {
		return nil, err
	}
	var conf replog.Conf
	for _, e := range log {
		if e.Conf {
			if conf, err = applyConf(sh, conf, e); err != nil {
				return nil, fmt.Errorf("replay entry %d: %w", e.Index, err)
			}
			if p.applied != nil {
				p.applied(sh.Applied())
			}
			continue
		}
		rec, err := p.apply(sh, m, e)
		if err != nil {
			return nil, fmt.Errorf("replay entry %d: %w", e.Index, err)
		}
		if rec.Entry != nil {
			out = append(out, rec)
		}
		if p.applied != nil {
			p.applied(sh.Applied())
		}
	}
	return out, end(sh)
}

// applyConf stores the configuration that an entry leads to, as a node does.
func applyConf(sh *store.Shard, conf replog.Conf, e LogEntry) (replog.Conf, error) {
	next, known, err := replog.ConfAfterChange(e.Index, e.Data)
	if err == nil && !known {
		next, err = conf.After(e.Index, e.Data)
	}
	if err != nil {
		return conf, err
	}
	return next, sh.Apply(e.Index, func(tx *store.Txn) error {
		tx.Set(keys.ShardConf(), next.Append(nil))
		return nil
	})
}

func (p player) apply(sh *store.Shard, m *commit.Machine, e LogEntry) (check.Record, error) {
	if len(e.Data) == 0 {
		return check.Record{}, sh.Apply(e.Index, func(*store.Txn) error { return nil })
	}
	entry, err := core.DecodeEntry(e.Data)
	if err != nil {
		return check.Record{}, err
	}
	kept := entry.Commits[:0]
	for i := range entry.Commits {
		if p.chosen(&entry.Commits[i]) {
			kept = append(kept, entry.Commits[i])
		}
	}
	entry.Commits = kept
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
	return check.Record{Index: e.Index, Entry: entry, Results: applied.Results}, err
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
			got, err := kv.Read(v, p, space, []byte(key))
			if err != nil {
				return err
			}
			if err := r.model.AuditKey(p, space, []byte(key), got); err != nil {
				return err
			}
		}
	}
	return nil
}

// Alone judges that what a partition was answered, and what is stored of it, is what it would be if no other tenant had been
// there: the log is replayed without the commits of others. Rules: answer, stored.
func Alone(log []LogEntry, p core.Partition) (*check.Report, error) {
	r := check.NewReport("tenant_alone")
	var rowsWith, rowsWithout []row
	with, err := player{chosen: everything}.play(log, rowsOf(p, &rowsWith))
	if err != nil {
		return nil, err
	}
	mine := func(c *core.Commit) bool { return c.Partition == p || c.Partition == core.Partition{} }
	without, err := player{chosen: mine}.play(log, rowsOf(p, &rowsWithout))
	if err != nil {
		return nil, fmt.Errorf("without others: %w", err)
	}
	a, b := answersTo(p, with), answersTo(p, without)
	r.Checked = len(a) + len(rowsWith)
	r.Counts["answers"], r.Counts["rows"] = len(a), len(rowsWith)
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i].index != b[i].index || !bytes.Equal(a[i].bytes, b[i].bytes) {
			r.Violate("answer", "commit %d of partition %s is answered differently when others are there", i, p)
			break
		}
	}
	for i := range max(len(rowsWith), len(rowsWithout)) {
		if i >= len(rowsWith) || i >= len(rowsWithout) || rowsWith[i] != rowsWithout[i] {
			r.Violate("stored", "row %d of partition %s is stored differently when others are there", i, p)
			break
		}
	}
	return r.Done(), nil
}

type answerBytes struct {
	index uint64
	bytes []byte
}

func answersTo(p core.Partition, records []check.Record) (out []answerBytes) {
	for _, rec := range records {
		for i := range rec.Results {
			if rec.Entry.Commits[i].Partition == p {
				out = append(out, answerBytes{rec.Index, core.AppendResult(nil, &rec.Results[i])})
			}
		}
	}
	return out
}

type row struct{ key, value string }

// rowsOf reads all that is stored of a partition.
func rowsOf(p core.Partition, out *[]row) func(*store.Shard) error {
	return func(sh *store.Shard) error {
		return sh.View(func(v core.View) error {
			from, to := keys.PartitionRange(p)
			return v.Scan(from, to, func(key, value []byte) bool {
				*out = append(*out, row{string(key), string(value)})
				return true
			})
		})
	}
}
