package node

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// applierState is what the applier of a shard writes, or the loop while the applier does nothing. Nothing else does, once the shard is made.
type applierState struct {
	// The state that is derived from the store. install replaces it.
	machine *commit.Machine
	// machineMu guards the derived state of machine: the applier holds it while it judges an entry, others while they read.
	machineMu sync.RWMutex
	// cronRefusals is how many entries in a row had slots of crons of which all were refused.
	cronRefusals int
	// scratch has the encoded results of the entry at hand, and ends the place at which each of them ends.
	scratch []byte
	ends    []int
	// now is the entry that observers are told of.
	now appliedEntry
	// observers are told of each applied entry. They are fixed once the shard is made.
	observers []observer
}

// applierWork is for the applier: a run of entries, or another state.
type applierWork struct {
	// Entries to apply, in order; nil with install.
	run *replog.Apply
	// Another state in the place of this one; nil with run.
	install *installing
}

// applyLoop is the applier: the only writer of the shard's state.
func (s *shard) applyLoop() {
	defer s.n.appliers.Done()
	failed := false
	for a := range s.applyC {
		if failed {
			continue // the node is ending; the channel is drained so that the loop is not stuck
		}
		var err error
		if a.install != nil {
			err = s.install(a.install)
		} else {
			err = s.applyAll(a.run)
		}
		if err != nil {
			s.n.fail(err)
			failed = true
			continue
		}
		s.applying.Add(-1)
	}
}

// handOver gives work to the applier. Only the loop does.
func (s *shard) handOver(w applierWork) {
	s.loop.slow = max(s.loop.slow-1, 0)
	s.applying.Add(1)
	s.applyC <- w
}

const (
	// hereBytes bounds the entries of a run that the loop applies itself, in bytes: a change or two.
	hereBytes = 256
	// hereMost is how long a run may take in the loop. Where one took longer, the next slowRuns go to the applier.
	hereMost = 500 * time.Microsecond
	slowRuns = 256
)

// appliesHere reports whether the loop applies a run of entries itself: one that is short, while the applier does nothing, no proposal
// waits and the store does not. To wake the applier, and it the loop, costs more processor time than a small change; under load both
// have work at the same time.
func (s *shard) appliesHere(a *replog.Apply) bool {
	bytes := 0
	for _, e := range a.Entries {
		if bytes += len(e.Data); e.Conf || bytes > hereBytes {
			return false
		}
	}
	return s.loop.slow == 0 && s.applying.Load() == 0 && !s.view.timers.Load() && s.in.waiting() == 0 && !s.store.Busy()
}

// applyHere applies a run of entries in the loop, which takes the end of it in by itself.
func (s *shard) applyHere(a *replog.Apply) error {
	began := s.n.o.Clock.Boot()
	if err := s.applyRun(a); err != nil {
		return err
	}
	if s.n.o.Clock.Boot()-began > hereMost {
		s.loop.slow = slowRuns
	}
	s.in.applied(a)
	return nil
}

// applyAll applies a run of entries and tells the loop.
func (s *shard) applyAll(a *replog.Apply) error {
	if err := s.applyRun(a); err != nil {
		return err
	}
	s.in.applied(a)
	s.poke()
	return nil
}

// applyRun applies a run of entries.
func (s *shard) applyRun(a *replog.Apply) error {
	for _, e := range a.Entries {
		if err := s.applyEntry(e); err != nil {
			return fmt.Errorf("apply entry %d of shard %d: %w", e.Index, s.id, err)
		}
	}
	return nil
}

// applyEntry applies one entry, publishes it and tells the observers. What needs no more than its own results is answered on the
// way (early), the rest afterwards.
func (s *shard) applyEntry(e replog.Entry) error {
	if e.Conf {
		return s.applyConf(e)
	}
	if len(e.Data) == 0 { // opens a term
		if err := s.store.Apply(e.Index, func(*store.Txn) error { return nil }); err != nil {
			return err
		}
		s.publish(e.Index)
		return nil
	}
	if format := core.EntryFormat(e.Data); format > core.NewestFormat() {
		return &core.NewerFormatError{Of: fmt.Sprintf("entry %d of shard %d", e.Index, s.id), Found: format, Known: core.NewestFormat()}
	}
	f, entry, err := s.open(e.Data)
	if err != nil {
		return errs.Corruptf("decode: %v", err)
	}
	a := &s.applier.now
	*a = appliedEntry{index: e.Index, entry: entry, own: f}
	defer func() { *a = appliedEntry{} }()
	began := s.n.o.Clock.Boot()
	s.applier.machineMu.Lock()
	if a.Applied, err = s.judge(e.Index, entry, f.early(a.at, s.n.countRefused)); err == nil && len(a.Results) != len(entry.Commits) {
		err = errs.Corruptf("%d results for %d commits", len(a.Results), len(entry.Commits))
	}
	if err != nil {
		s.applier.machineMu.Unlock()
		return err
	}
	s.tellHeld(a)
	s.applier.machineMu.Unlock()
	if err := s.tellBefore(a); err != nil {
		return err
	}
	s.publish(e.Index)
	if f != nil {
		f.took = s.n.o.Clock.Boot() - began
		s.answer(f, entry, a.Results, a.at)
	}
	s.tellAfter(a)
	return nil
}

// judge applies an entry in a transaction of the store, and calls early, if there is one, with the results so far after each
// commit. Results are encoded before anybody is shown them: what the apply hash is of is of this replica alone.
func (s *shard) judge(index uint64, entry *core.Entry, early func([]core.Result)) (applied core.Applied, err error) {
	if cap(s.applier.scratch) > scratchKept {
		s.applier.scratch = nil
	}
	s.applier.scratch, s.applier.ends = s.applier.scratch[:0], s.applier.ends[:0]
	judged := func(results []core.Result) {
		s.applier.scratch = core.AppendResult(s.applier.scratch, &results[len(results)-1])
		s.applier.ends = append(s.applier.ends, len(s.applier.scratch))
		if early != nil {
			early(results)
		}
	}
	err = s.store.Apply(index, func(tx *store.Txn) error {
		applied, err = s.applier.machine.ApplyEach(tx, index, entry, judged)
		if err != nil {
			return err
		}
		from := 0
		for _, end := range s.applier.ends {
			tx.Fold(s.applier.scratch[from:end])
			from = end
		}
		return nil
	})
	return applied, err
}

// scratchKept bounds the buffer for an entry's results that is left for the next.
const scratchKept = 1 << 20

// open returns the entry that data encodes. One that this node proposed in this life is at hand, with what waits for it.
func (s *shard) open(data []byte) (*inflight, *core.Entry, error) {
	proposer, seq, err := core.EntryOrigin(data)
	if err != nil {
		return nil, nil, err
	}
	if proposer == s.n.boot {
		if f := s.pending.take(seq); f != nil {
			if errs.Invariants {
				_ = errs.Assertf(bytes.Equal(core.AppendEntry(nil, f.entry), data), "entry %d changed after it was proposed", seq)
			}
			return f, f.entry, nil
		}
	}
	entry, err := core.DecodeEntry(data)
	return nil, entry, err
}

// early returns what answers, while the entry is being applied, each proposal whose commits are judged: clients need not
// wait for the other proposals of the entry. judged is told of the results first. The entry is committed, and every read waits until it is applied as a whole, so
// no client can tell the difference. What a session settles waits for the end: its slots change hands there.
func (f *inflight) early(at func(core.Partition) core.At, judged func(core.Partition, []core.Result)) func([]core.Result) {
	if f == nil || len(f.proposals) == 0 {
		return nil
	}
	next, from := 0, f.first()
	return func(results []core.Result) {
		for next < len(f.proposals) {
			p := f.proposals[next]
			if len(results) < from+len(p.commits) {
				return
			}
			own := results[from:len(results):len(results)]
			next, from = next+1, len(results)
			if p.settles == nil {
				judged(p.commits[0].Partition, own)
				p.done(core.Proposed{Results: own, At: at(p.commits[0].Partition)})
			}
		}
	}
}

// answer ends the proposals of an applied entry that wait for all of it.
func (s *shard) answer(f *inflight, entry *core.Entry, results []core.Result, at func(core.Partition) core.At) {
	i := f.first()
	for _, p := range f.proposals {
		if p.settles != nil {
			own := results[i : i+len(p.commits)]
			s.n.countRefused(p.commits[0].Partition, own)
			p.done(core.Proposed{Results: own, At: at(p.commits[0].Partition)})
		}
		i += len(p.commits)
	}
	if f.tick {
		if f.stood {
			i++
		}
		r := results[i]
		more := r.Refusal == nil && len(r.Ops) == 1 && r.Ops[0].More
		if tick, ok := entry.Commits[i].Ops[0].(*core.Tick); more && ok {
			s.view.timerCost.Store(int64(f.took) / int64(max(tick.Max, 1)))
		}
		s.view.more.Store(more)
		s.view.timers.Store(false)
		s.poke()
	}
	if f.crons > 0 {
		end := len(results) - len(f.grants)
		s.cronsFired(results[end-f.crons : end])
	}
	if f.term != 0 && s.serve(f.term) {
		s.advance.notify() // who waits for it may have looked before
		s.poke()
	}
}

// publish lets readers see everything up to an index, which only rises, and wakes those who wait for it.
func (s *shard) publish(index uint64) {
	s.view.applied.Store(index)
	s.advance.notify()
}
