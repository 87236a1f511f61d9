package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

const (
	// recoverCommand is what the mark says that keeps servers away while Recover is at work.
	recoverCommand = "cluster recover"
	// newLogDir is a log that is about to take the place of the old one.
	newLogDir = "wal.new"
	// oldLogPrefix, and a number from 1, name logs that were set aside.
	oldLogPrefix = "wal.before-recover-"
	// replayBytes of entries are read at a time.
	replayBytes = 8 << 20
)

// Standing is how a shard stands in the data directory of a server that does not run.
type Standing struct {
	Shard  core.ShardID
	Stored uint64 // the state is of this entry
	Commit uint64 // up to here entries are known to be committed
	Last   uint64 // the log, and with it all that the directory has, ends here
	Term   uint64 // newest that is known
}

// Stand reads how all shards of a data directory stand, and which members its cluster had as of what shard 0 has stored. It
// changes nothing. A directory of members without a version: the members were never changed. Errors: *errs.Corruption.
func Stand(dir string, o Options) (out []Standing, members core.Directory, err error) {
	o = o.withDefaults()
	logs, err := wal.Check(store.NewFS(o.Store.FS), filepath.Join(dir, logDir))
	if err != nil {
		return nil, members, err
	}
	if logs.Corrupt != nil {
		return nil, members, fmt.Errorf("log: %w", logs.Corrupt)
	}
	o.Store.Dir = filepath.Join(dir, storeDir)
	states, err := store.Inspect(o.Store, func(id core.ShardID, v core.View) (err error) {
		if id == 0 {
			members, err = commit.ReadMembers(v)
		}
		return err
	})
	if err != nil {
		return nil, members, fmt.Errorf("store: %w", err)
	}
	stored := map[core.ShardID]uint64{}
	for _, s := range states.Shards {
		stored[s.Shard] = s.Index
	}
	for _, l := range logs.Shards {
		s, err := standing(l.Shard, l.ShardState, stored[l.Shard])
		if err != nil {
			return nil, members, err
		}
		out = append(out, s)
	}
	return out, members, nil
}

// standing puts together what the log and the store say of a shard. Each of them may be ahead of
// the other.
func standing(id core.ShardID, log wal.ShardState, stored uint64) (Standing, error) {
	p, err := replog.PromisedIn(log.HardState)
	if err != nil {
		return Standing{}, fmt.Errorf("hard state of shard %d: %w", id, err)
	}
	return Standing{
		Shard: id, Stored: stored, Commit: max(p.Commit, stored), Last: max(log.Last, log.CutIndex, stored), Term: max(p.Term, log.CutTerm),
	}, nil
}

// Recovered says what became of a data directory.
type Recovered struct {
	Shards []RecoveredShard
	OldLog string // where the log is that it had, with its votes
}

// RecoveredShard is one shard of it, as it stood before.
type RecoveredShard struct {
	Standing
	Begin uint64 // its log begins behind it
}

// Recover makes the data directory of the survivor of a lost majority one that begins a history of its own: with all entries
// that its log has, whether they were known to be committed or not, and without the others' votes. The log that it had is
// set aside. Until that is done no server starts on the directory; what ended on the way is gone on with by calling Recover
// again. Errors: *errs.Corruption, store.ErrLocked, and what keeps a directory from being opened.
//
// What is durable after each step, so that a process that dies goes on where it was:
//  1. The mark is in the directory: no server starts.
//  2. Every shard's state has all entries of its log, and its history is broken off. A second run
//     finds the entries applied and breaks off further on.
//  3. wal.new holds an empty log that begins behind each state. Until the next step it is made
//     again from the beginning.
//  4. The old log has its name aside; then the new one has the name wal. Between the two renames
//     there is no wal, and wal.new is whole, which run sees.
//  5. Prepare has written what else belongs to the directory, and the mark goes.
func Recover(dir string, shards int, o Options) (out Recovered, err error) {
	o = o.withDefaults()
	fsys := store.NewFS(o.Store.FS)
	made, err := store.Remake(fsys, dir, recoverCommand)
	if err != nil {
		return out, err
	}
	r := &recovery{o: o, fs: fsys, dir: dir, shards: shards}
	if out, err = r.run(); err != nil {
		return out, errors.Join(err, made.Leave())
	}
	return out, made.Finish()
}

// recovery is one Recover that is under way.
type recovery struct {
	o   Options
	fs  env.FS
	dir string
	// shards is how many shards the server has.
	shards int
}

func (r *recovery) path(name string) string { return filepath.Join(r.dir, name) }

// has reports whether a directory of that name is in the data directory.
func (r *recovery) has(name string) bool {
	_, err := r.fs.List(r.path(name))
	return err == nil
}

// run does the steps of Recover between its mark and the end of it.
func (r *recovery) run() (out Recovered, err error) {
	if r.has(logDir) || !r.has(newLogDir) { // else an attempt ended between the two renames: the new log is whole
		if out.Shards, err = r.replay(); err != nil {
			return out, err
		}
		if err := fault.Point("backup.replayed"); err != nil {
			return out, err
		}
		if err := r.newLog(out.Shards); err != nil {
			return out, err
		}
	}
	if out.OldLog, err = r.exchange(); err != nil {
		return out, err
	}
	if err := fault.Point("backup.logs_exchanged"); err != nil {
		return out, err
	}
	if r.o.Prepare != nil {
		if err := r.o.Prepare(r.shards); err != nil {
			return out, err
		}
	}
	return out, fault.Point("backup.recovered")
}

// replay brings the state of every shard to the end of its log, and breaks the history off there.
func (r *recovery) replay() (out []RecoveredShard, err error) {
	log, err := replog.OpenLog(replog.LogOptions{FS: r.fs, Clock: r.o.Clock, Dir: r.path(logDir), SegmentBytes: segmentBytes})
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	o := r.o.Store
	o.Dir = r.path(storeDir)
	st, err := store.Open(o)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for i := range r.shards {
		s, err := r.shard(log, st, core.ShardID(i))
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", i, err)
		}
		out = append(out, s)
	}
	if err := flush(st, r.o.Clock); err != nil {
		return nil, fmt.Errorf("make the store durable: %w", err)
	}
	return out, nil
}

// shard brings one shard to the end of its log and breaks its history off. A log that begins behind
// the state has lost entries between the two, and is refused.
func (r *recovery) shard(log *replog.Log, st *store.Store, id core.ShardID) (s RecoveredShard, err error) {
	sh, err := st.Shard(id)
	if err != nil {
		return s, err
	}
	state := log.State(id)
	applied, _ := sh.Applied()
	if s.Standing, err = standing(id, state, applied); err != nil {
		return s, err
	}
	if state.CutIndex > max(applied, replog.FirstIndex) {
		return s, errs.Corruptf("the state ends at entry %d, and the log begins behind %d", applied, state.CutIndex)
	}
	term := s.Term
	if state.Last > max(applied, state.CutIndex) {
		if term, err = replay(log, sh, id, max(applied, replog.FirstIndex)); err != nil {
			return s, err
		}
	}
	begin, err := breakOff(sh, id, max(term, s.Term), r.o.Clock.Wall())
	s.Begin = begin.index
	s.Term = begin.term
	return s, err
}

// replay applies the entries of a log behind an index, and returns the term of the last.
func replay(log *replog.Log, sh *store.Shard, id core.ShardID, applied uint64) (term uint64, err error) {
	m := commit.New(commit.Options{Shard: id})
	if err := sh.View(m.Open); err != nil {
		return 0, fmt.Errorf("open the state: %w", err)
	}
	for last := log.State(id).Last; applied < last; {
		entries, err := log.Entries(id, applied+1, last+1, replayBytes)
		if err != nil {
			return 0, fmt.Errorf("read entries behind %d: %w", applied, err)
		}
		for _, e := range entries {
			if err := applyEntry(m, sh, e); err != nil {
				return 0, fmt.Errorf("apply entry %d: %w", e.Index, err)
			}
			applied, term = e.Index, e.Term
		}
	}
	return term, nil
}

// applyEntry applies one entry as a node does. One that is not of the machines, such as a change of
// the log's own configuration, changes nothing that is kept. It folds the results into the state's
// hash, as a node does too, so that both come to the same state.
func applyEntry(m *commit.Machine, sh *store.Shard, e wal.Entry) error {
	if e.Kind != 0 || len(e.Data) == 0 {
		return sh.Apply(e.Index, func(*store.Txn) error { return nil })
	}
	entry, err := core.DecodeEntry(e.Data)
	if err != nil {
		return errs.Corruptf("decode: %v", err)
	}
	return sh.Apply(e.Index, func(tx *store.Txn) error {
		applied, err := m.Apply(tx, e.Index, entry)
		if err != nil {
			return err
		}
		for i := range applied.Results {
			tx.Fold(core.AppendResult(nil, &applied.Results[i]))
		}
		return nil
	})
}

// newLog makes the log that is to take the place of the old one.
func (r *recovery) newLog(shards []RecoveredShard) error {
	if err := store.RemoveTree(r.fs, r.path(newLogDir)); err != nil {
		return fmt.Errorf("clear %s: %w", newLogDir, err)
	}
	begin := make([]beginning, len(shards))
	for i, s := range shards {
		begin[i] = beginning{s.Shard, s.Begin, s.Term}
	}
	return beginLogs(r.fs, r.o.Clock, r.path(newLogDir), begin)
}

// exchange sets the old log aside and puts the new one in its place. After a crash between the
// renames there is no old log left to rename; the name that it got is the one with the highest
// number.
func (r *recovery) exchange() (old string, err error) {
	names, err := r.fs.List(r.dir)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", r.dir, err)
	}
	n := 0
	for _, name := range names {
		var k int
		if _, err := fmt.Sscanf(name, oldLogPrefix+"%d", &k); err == nil {
			n = max(n, k)
		}
	}
	if r.has(logDir) {
		n++
		if err := r.rename(logDir, fmt.Sprint(oldLogPrefix, n)); err != nil {
			return "", err
		}
		if err := fault.Point("backup.log_aside"); err != nil {
			return "", err
		}
	}
	if err := r.rename(newLogDir, logDir); err != nil {
		return "", err
	}
	return r.path(fmt.Sprint(oldLogPrefix, n)), nil
}

// rename gives a directory another name and makes that durable.
func (r *recovery) rename(from, to string) error {
	err := r.fs.Rename(r.path(from), r.path(to))
	if err == nil {
		err = env.SyncDir(r.fs, r.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return err
}
