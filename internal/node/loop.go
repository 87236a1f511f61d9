package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// loopState is what the loop of a shard knows. Only the loop reads and changes it, or openShard before the loop begins.
type loopState struct {
	// The Raft replica.
	core *replog.Core

	// nextTick is the boot time of Raft's next tick.
	nextTick time.Duration
	// sleepUntil is, with Options.Manual, the boot time at which a turn is due though nothing woke the shard.
	sleepUntil time.Duration
	// stood says that the node stood still since the last entry: leases get time to report.
	stood bool
	// toldAhead is by how much the log said that shard time is ahead of the wall clock; 0: it is not.
	toldAhead time.Duration
	// What it knows of crons.
	crons cronState
	// shift is that of the last ClockShift that was proposed, or that was applied when the term began.
	shift core.Millis

	// waiting holds the appends that were handed to the log, in order; unsent those of them that the log has not taken.
	waiting []*appendWait
	unsent  []*appendWait
	// tellAt is the boot time at which followers are told how far entries are committed, where no entry told them; 0: they know.
	tellAt time.Duration
	// inLog is how many entries were proposed whose append is not durable.
	inLog int
	// seq is the sequence number of the last entry that this replica proposed in this run of the node.
	seq uint64
	// encoded is the room in bytes that the next entry gets.
	encoded int
	// last is how many commits of callers the last proposed entry has, and closedAt the boot time at which it was closed.
	last int
	// Likewise, when the entry was closed: its age decides whether the next one waits.
	closedAt time.Duration
	// How fast entries were committed lately, which says how long the next one may wait.
	pace pace
	// How much of the applier's time ticks take, while many timers are due.
	ticks tickPace

	// wasTerm and leading are the term and the role that the loop saw last.
	wasTerm uint64
	leading bool
	// termAsked says that this term's first commit was proposed.
	termAsked bool
	// settledAt is the boot time at which this replica began to lead.
	settledAt time.Duration
	// spreadAt is the boot time at which it next looks where the shard is at home.
	spreadAt time.Duration
	// When followers are told next how much of the log all have, and its apply hash.
	report report
	// slow is how many more runs of entries go to the applier because one took long in the loop.
	slow int

	// confIndex is the index of the configuration that Raft goes by.
	confIndex uint64
	// confAt is the boot time before which no change of the configuration is proposed again.
	confAt time.Duration
	// Whether most voters know the configuration.
	confCheck confCheck
	// The configuration that the directory asks for.
	wantedConf wantedConf
	// marks has the last indexes of the log, while this replica leads.
	marks marks
	// heard has, by replica, the boot time at which the leader last heard of it.
	heard map[uint64]time.Duration
	// askedAt is the boot time at which it last asked who the members are, ledAt that at which it last heard of its leader.
	askedAt time.Duration
	ledAt   time.Duration
}

// appendWait is an append that the log has not finished.
type appendWait struct {
	// What the log is to write: entries, hard state, or the restart behind a snapshot.
	a *replog.Append
	// The log does not take it yet, nor what is behind it: the state is being exchanged.
	waits bool
	// The log has it durably. It is reported to Raft when all before it are done too.
	done bool
}

// run is the loop.
func (s *shard) run() {
	defer s.n.loops.Done()
	tick := s.n.o.Clock.NewTimer(s.n.o.TickEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.wake:
		case <-tick.C():
		case <-s.n.stopping:
			s.drainAtStop()
			return
		}
		if err := s.turn(); err != nil {
			s.n.fail(fmt.Errorf("shard %d: %w", s.id, err))
			s.drainAtStop()
			return
		}
		tick.Reset(s.sleep())
	}
}

// turn is one turn of the loop: Raft's tick when it is time, and what can be done now.
func (s *shard) turn() error {
	if now := s.n.o.Clock.Boot(); now >= s.loop.nextTick {
		s.notePause(now)
		if err := s.loop.core.Tick(); err != nil {
			return err
		}
		s.loop.nextTick = now + s.n.o.TickEvery
		if s.view.ready.Load() {
			s.tellClock()
		}
		if !s.alone.Load() {
			if s.id == 0 {
				s.askMembers(now)
			}
			s.sendReport(now)
			s.spread(now)
			s.tickSnapshots(now)
		}
		if err := s.tickMembers(now); err != nil {
			return err
		}
	}
	return s.step()
}

// notePause sees that the node stood still: stopped, or with its machine suspended. Shard time went on, and what workers sent
// meanwhile was not heard, so their leases get the time to report that a new term gives them.
func (s *shard) notePause(now time.Duration) {
	if late := now - s.loop.nextTick; s.loop.nextTick > 0 && late >= s.n.o.PauseAfter && s.view.ready.Load() {
		s.loop.stood = true
		s.disp.stoodStill(now)
		s.n.o.Logger.Warn("the server stood still; leases get time to report", "shard", s.id, "for", late.Round(time.Millisecond))
	}
}

// termStart is the commit that begins a term, or gives leases their time to report within one.
func (s *shard) termStart(term uint64) core.Commit {
	return core.Commit{
		Partition: systemPartition, Principal: "millrace",
		Ops: []core.Op{&core.TermStart{Term: term, Leader: s.n.o.Replica}},
	}
}

// sleep returns how long the loop may sleep: until the next tick, timed work or waiting renewal.
func (s *shard) sleep() time.Duration {
	now := s.n.o.Clock.Boot()
	d := s.loop.nextTick - now
	if s.view.ready.Load() && !s.view.timers.Load() {
		if s.view.more.Load() {
			_, at := s.nextTick(now)
			d = min(d, at-now)
		} else if due := core.ShardTime(s.view.due.Load()); due < core.Never {
			d = min(d, core.Millis(due-s.now()).Duration())
		}
	}
	if s.view.ready.Load() {
		if at, ok := s.nextCron(now); ok {
			d = min(d, at-now)
		}
	}
	if retry, waits := s.rounds.due(); waits {
		d = min(d, retry-now)
	}
	if s.loop.tellAt > 0 {
		d = min(d, s.loop.tellAt-now)
	}
	if at, wait := s.in.renewalsAt(s.n.o.RenewEvery); wait {
		d = min(d, at-now)
	}
	if s.in.waiting() > 0 && s.loop.leading && s.view.ready.Load() && !s.alone.Load() && s.loop.inLog < maxInLog { // as closes has it
		d = min(d, s.loop.closedAt+s.loop.pace.hold()-now)
	}
	return max(d, time.Millisecond)
}

// step takes in what happened and hands out what follows, until nothing follows.
func (s *shard) step() error {
	s.submit()
	if !s.alone.Load() {
		if err := s.checkHashes(); err != nil {
			return err
		}
		if err := s.takeSnapshots(); err != nil {
			return err
		}
	}
	for {
		if err := s.takeIn(); err != nil {
			return err
		}
		if err := s.lead(); err != nil {
			return err
		}
		if (!s.alone.Load() || s.rounds.wanted()) && s.loop.core.MayRead() {
			if round := s.rounds.next(s.n.o.Clock.Boot()); round != "" {
				s.loop.core.ReadIndex(round)
			}
		}
		if err := s.tellNews(); err != nil {
			return err
		}
		if !s.loop.core.Ready() {
			return nil
		}
		out, err := s.loop.core.Take()
		if err != nil {
			return err
		}
		if err := s.handOut(out); err != nil {
			return err
		}
	}
}

// newsWait is how long the news of a commit waits for the next entry, which tells it too.
const newsWait = 2 * time.Millisecond

// tellNews tells followers how far entries are committed once that has waited for long enough.
func (s *shard) tellNews() error {
	if !s.loop.core.HasNews() {
		s.loop.tellAt = 0
		return nil
	}
	switch now := s.n.o.Clock.Boot(); {
	case s.loop.tellAt == 0:
		s.loop.tellAt = now + newsWait
	case now >= s.loop.tellAt:
		s.loop.tellAt = 0
		return s.loop.core.TellNews()
	}
	return nil
}

// takeIn takes in what others left in the inbox: messages, finished appends and finished applies. Appends are
// reported to Raft in their order, whatever the order in which they finished.
func (s *shard) takeIn() error {
	in := s.in.take()
	s.takeMessages(in.messages)
	if in.installed != nil {
		in.installed.append.waits = false
		s.submit()
	}
	for _, d := range in.appends {
		if d.err != nil {
			return fmt.Errorf("append: %w", d.err)
		}
		d.w.done = true
	}
	for len(s.loop.waiting) > 0 && s.loop.waiting[0].done {
		w := s.loop.waiting[0]
		s.loop.waiting = s.loop.waiting[1:]
		s.loop.inLog -= w.a.Len()
		if err := s.loop.core.AppendDone(w.a); err != nil {
			return err
		}
		if _, restarts := w.a.Snapshot(); restarts {
			s.restarted()
		}
	}
	for _, a := range in.applies {
		if err := s.loop.core.ApplyDone(a); err != nil {
			return err
		}
	}
	s.reconfigured()
	return nil
}

// handOut does what Raft asks for: sends its messages, hands its append to the log and its entries to the applier.
func (s *shard) handOut(out replog.Output) error {
	s.send(out.Messages)
	s.rounds.end(out.Reads)
	if a := out.Append; a != nil {
		_, restarts := a.Snapshot()
		w := &appendWait{a: a, waits: restarts, done: a.Empty()}
		if w.done {
			s.poke()
		}
		s.loop.waiting = append(s.loop.waiting, w)
		s.loop.inLog += a.Len()
		if restarts {
			if err := s.exchange(w); err != nil {
				return err
			}
		}
		if !a.Empty() {
			s.loop.unsent = append(s.loop.unsent, w)
			s.submit()
		}
	}
	if out.Apply == nil {
		return nil
	}
	if s.n.o.Manual {
		return s.applyAll(out.Apply)
	}
	if s.appliesHere(out.Apply) {
		return s.applyHere(out.Apply)
	}
	s.handOver(applierWork{run: out.Apply}) // bounded by MaxApplyBytes of what is not done
	return nil
}

// submit hands waiting appends to the log, in order. A log whose queue is full takes them later: at the next step, which
// the next tick brings at the latest.
func (s *shard) submit() {
	for len(s.loop.unsent) > 0 {
		w := s.loop.unsent[0]
		if w.waits {
			return
		}
		err := replog.Submit(s.n.o.Log, s.id, w.a, func(err error) { s.appendDone(w, err) })
		if errors.Is(err, replog.ErrQueueFull) {
			return
		}
		s.loop.unsent = s.loop.unsent[1:]
		if err != nil {
			s.appendDone(w, err)
		}
	}
}

// appendDone leaves the end of an append to the loop. The log calls it, from its own goroutine.
func (s *shard) appendDone(w *appendWait, err error) {
	s.in.appended(w, err)
	s.poke()
}

// lead does what only a leader does: open its term, propose what waits.
func (s *shard) lead() error {
	st := s.loop.core.Status()
	s.note(st)
	if st.Term != s.loop.wasTerm || st.Leading != s.loop.leading {
		s.loop.wasTerm, s.loop.leading, s.loop.termAsked = st.Term, st.Leading, false
		s.enterTerm(st)
		s.loop.pace = pace{}
		s.moved(st.Leading)
		if st.Leading {
			s.loop.settledAt = s.n.o.Clock.Boot()
		} else {
			s.stepDown()
		}
		if !s.alone.Load() {
			s.n.o.Logger.Info("term of a shard", "shard", s.id, "term", st.Term, "leads", st.Leading)
		}
	}
	if !s.loop.leading {
		return nil
	}
	if !s.loop.termAsked {
		if s.view.applied.Load() < st.Last {
			return nil // older entries, or the term's own empty one, are still to be applied
		}
		return s.openTerm(st.Term)
	}
	s.loop.pace.committed(st.Commit, s.n.o.Clock.Boot())
	if !s.view.ready.Load() || s.moves(st) {
		return nil
	}
	return s.propose(st)
}

// openTerm sets shard time and proposes the term's first commit, once it knows the time. Everything in the log is applied.
func (s *shard) openTerm(term uint64) error {
	last, boot := core.ShardTime(s.view.lastSeen.Load()), s.n.o.Clock.Boot()
	s.loop.shift = core.Millis(s.view.shifted.Load())
	wall, known := begins(last, core.ShardTimeOf(s.n.o.Clock.Wall()).Add(-s.loop.shift), s.n.clocks.agree(s.n), boot-s.loop.settledAt)
	if !known {
		return nil
	}
	s.clock.start(last, wall, boot)
	s.loop.termAsked = true
	f := &inflight{term: term}
	commits := []core.Commit{s.termStart(term)}
	if op := s.firstFormat(last); op != nil {
		commits = append(commits, core.Commit{Partition: systemPartition, Principal: "millrace", Ops: []core.Op{op}})
	}
	return s.put(f, commits)
}

// propose closes one entry of what waits, if it is time.
func (s *shard) propose(st replog.Status) error {
	if !s.closes(st) {
		return nil
	}
	if s.disp.anyLost(s.n.o.Clock.Boot()) {
		s.in.hurry(&s.n.o)
	}
	proposals, commits := s.in.gather(&s.n.o)
	f := &inflight{proposals: proposals}
	s.loop.last, s.loop.closedAt = len(commits), s.n.o.Clock.Boot()
	f.lost = s.disp.lost(s.loop.closedAt, commits, s.in.waiting() > 0)
	if c, ok := s.clockShift(); ok { // before what it decides about
		f.shifts, s.loop.shift = true, c.Shift
		commits = slices.Insert(commits, 0, core.Commit{Partition: systemPartition, Principal: "millrace", Ops: []core.Op{c}})
	}
	others := len(commits) > 0
	if timers := s.dueTimers(others); timers > 0 {
		if s.loop.stood { // before any lease ends
			f.stood, s.loop.stood = true, false
			commits = append(commits, s.termStart(st.Term))
		}
		f.tick = true
		s.view.timers.Store(true)
		commits = append(commits, core.Commit{
			Partition: systemPartition, Principal: "millrace", Ops: []core.Op{&core.Tick{Max: timers}},
		})
	}
	f.grants, f.creates = s.disp.collect(countCreates(commits), f.proposals)
	commits = append(commits, f.lost...) // behind the tick, whose place is known by the proposals
	if fires := s.fireCrons(s.loop.closedAt); len(fires) > 0 {
		f.crons = len(fires)
		s.view.firing.Store(true)
		commits = append(commits, fires...)
	}
	for _, g := range f.grants {
		commits = append(commits, core.Commit{Partition: g.partition, Principal: "millrace", Ops: []core.Op{g.op}})
	}
	if len(commits) == 0 {
		return nil
	}
	s.loop.ticks.proposed(s.loop.closedAt, f.tick, others)
	s.loop.confCheck.wanted = false
	s.loop.pace.proposed(st.Last+1, s.loop.closedAt)
	return s.put(f, commits)
}

// dueTimers returns how many timers a tick is to take in an entry that is closed now; 0: the entry has none. others says that the entry
// has commits of others.
func (s *shard) dueTimers(others bool) uint32 {
	switch {
	case s.view.timers.Load():
		return 0
	case s.view.more.Load():
		timers, _ := s.nextTick(s.loop.closedAt)
		return timers
	case core.ShardTime(s.view.due.Load()) <= s.now(), s.loop.confCheck.wanted && !others:
		return s.n.o.TimerBatch
	}
	return 0
}

// nextTick is tickPace.next of this shard, after a tick that left work.
func (s *shard) nextTick(now time.Duration) (timers uint32, at time.Duration) {
	return s.loop.ticks.next(now, time.Duration(s.view.timerCost.Load()), s.n.o.TimerBatch)
}

// grantRoom is room in an entry for a tick and the grants that its creates and settles allow.
const grantRoom = 8

// maxInLog is how many entries may be on their way to the disk: one that is synced, and the next, so that the log finds
// its next write ready when a sync ends.
const maxInLog = 2

// closes reports whether an entry is to be closed now: when none is on its way, because waiting gains nothing then.
//
// Of an only voter it is also closed when one is on its way to the disk and as much waits as that one holds, or as an entry may
// hold. So entries get no smaller than those that were closed one by one would.
//
// Where others vote, each entry costs every node a write, a sync and some messages, whatever it holds, so it is closed early
// only when as much waits as an entry may hold, or none was closed for a while (pace). An entry that is closed when the one
// before it is committed takes that news along.
func (s *shard) closes(st replog.Status) bool {
	switch {
	case s.loop.inLog >= maxInLog:
		return false
	case st.Single && s.loop.inLog == 0, !st.Single && st.Commit == st.Last:
		return true
	}
	waiting := s.in.waiting()
	if !st.Single {
		return waiting >= s.n.o.EntryCommits || waiting > 0 && s.n.o.Clock.Boot() >= s.loop.closedAt+s.loop.pace.hold()
	}
	return waiting > 0 && waiting >= min(s.loop.last, s.n.o.EntryCommits)
}

// put proposes one entry.
func (s *shard) put(f *inflight, commits []core.Commit) error {
	s.loop.seq++
	f.entry = &core.Entry{
		Format: s.n.Format(), Stamp: s.now(), Proposer: s.n.boot, Seq: s.loop.seq, Queues: s.n.o.Queues, Commits: commits,
	}
	s.pending.add(s.loop.seq, f)
	err := s.loop.core.Propose(s.encode(f.entry))
	if err == nil {
		s.n.batches.Observe(uint64(len(commits)))
		return nil
	}
	s.pending.take(s.loop.seq)
	s.loop.stood = s.loop.stood || f.stood
	s.loop.shift = core.Millis(s.view.shifted.Load())
	refuse := core.Fact(core.Unavailable{Reason: "no_leader"})
	if errors.Is(err, replog.ErrLogFull) {
		refuse = core.Unavailable{Reason: "overload", Limit: "uncommitted_log"}
	} else if !errors.Is(err, replog.ErrNotLeader) {
		return err
	}
	s.drop(f, refuse)
	return nil
}

// encode returns the bytes of an entry. The room is that of the largest of the last entries, so that it seldom grows.
func (s *shard) encode(e *core.Entry) []byte {
	b := core.AppendEntry(make([]byte, 0, s.loop.encoded), e)
	s.loop.encoded = max(len(b), s.loop.encoded-s.loop.encoded/16)
	return b
}

// drop ends an entry that was not applied, or of which that is not known.
func (s *shard) drop(f *inflight, why core.Fact) {
	for _, p := range f.proposals {
		p.done(core.Proposed{Err: why})
	}
	s.disp.drop(f)
	if f.tick {
		s.view.timers.Store(false)
	}
	if f.crons > 0 {
		s.view.firing.Store(false)
	}
	if f.term != 0 {
		s.loop.termAsked = false
	}
}

// drainAtStop ends the loop: nothing is taken any more, everything that waits is told.
func (s *shard) drainAtStop() {
	s.view.ready.Store(false)
	s.in.close()
	close(s.applyC)
	s.n.appliers.Wait()
	s.abandon(core.Unavailable{Reason: "stopping", Unknown: true})
	s.disp.close()
	s.advance.close()
}
