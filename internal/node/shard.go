package node

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// proposal is commits that arrived together and are answered together.
type proposal struct {
	commits []core.Commit
	bytes   int
	done    func(core.Proposed)
	settles *settling // set for the settles of a session
}

// refuse ends a proposal that was in no entry. What it was to settle is held still, and takes its slots back.
func (p *proposal) refuse(why core.Fact) {
	if p.settles != nil {
		d := p.settles.session.d
		d.mu.Lock()
		p.settles.session.unsettle(p.settles.holds)
		d.mu.Unlock()
	}
	p.done(core.Proposed{Err: why})
}

// inflight is one entry that was proposed and not yet applied.
type inflight struct {
	entry     *core.Entry // as it was encoded; nothing changes it any more
	proposals []*proposal
	grants    []*grant   // one per Grant commit, after all proposals' commits
	creates   []creating // ready tasks the entry's creates may add
	shifts    bool       // a ClockShift goes before all else
	stood     bool       // a TermStart goes before the tick
	tick      bool
	term      uint64 // set if it holds the first commit of this term
}

// first returns where in the entry the proposals' commits begin.
func (f *inflight) first() int {
	if f.shifts {
		return 1
	}
	return 0
}

// shard is one shard on this node. The loop goroutine owns core and what is named so below.
type shard struct {
	n       *Node
	id      core.ShardID
	core    *replog.Core
	store   *store.Shard
	machine *commit.Machine
	// machineMu guards machine's derived state: the applier writes, others read what they need of it.
	machineMu sync.RWMutex
	disp      *dispatcher
	points    points

	mu         sync.Mutex // guards the fields of this group
	queue      []*proposal
	commits    int         // of queue
	lazy       []*proposal // renewals, waiting for company
	queued     int64       // bytes in queue and lazy
	lazyAt     time.Duration
	appends    []appendDone
	applies    []*replog.Apply
	installed  *installing
	closed     bool
	inbox      []peerMessage
	inboxBytes int
	// inboxDropped counts messages of peers for which there was no room.
	inboxDropped uint64

	wake chan struct{}
	// mayLack is how many acknowledged entries a power cut may have taken from the log's end before this run.
	mayLack uint64
	alone   atomic.Bool // this replica was the only one from the start on: there is no other to ask

	pendMu  sync.Mutex // guards pending
	pending map[uint64]*inflight

	// Owned by the loop.
	nextTick   time.Duration // boot time of Raft's next tick
	toldAhead  time.Duration // by how much shard time was said to be ahead of the wall clock; 0: it is not
	shift      core.Millis   // of the last ClockShift that was proposed, or applied when the term began
	stood      bool          // the node stood still since the last entry: leases get time to report
	sleepUntil time.Duration // with Options.Manual: when a turn is due though nothing woke the shard
	seq        uint64
	encoded    int           // what an entry may take
	waiting    []*appendWait // appends handed to the log, in order
	unsent     []*appendWait // of waiting, those that the log has not taken
	inLog      int           // entries proposed whose append is not durable
	last       int           // commits of the last entry proposed
	closedAt   time.Duration // boot time when it was
	pace       pace
	wasTerm    uint64
	leading    bool
	termAsked  bool // this term's first commit was proposed
	report     report
	settledAt  time.Duration // boot time when this replica began to lead
	spreadAt   time.Duration // when it next looks where the shard is at home
	transfer   transfer
	snap       snapshots
	confIndex  uint64                   // of the configuration that Raft goes by
	confAt     time.Duration            // boot time before which no change of it is proposed again
	askedAt    time.Duration            // boot time when it last asked who the members are
	ledAt      time.Duration            // boot time when it last heard of whom it follows
	unled      atomic.Bool              // it has heard of no leader lately, at its last tick
	confCheck  confCheck                // whether most voters know the configuration
	marks      marks                    // last indexes of the log, while this replica leads
	heard      map[uint64]time.Duration // by replica, when the leader last heard of it
	wantedConf wantedConf               // the configuration that the directory asks for

	timers   atomic.Bool // a Tick is proposed and not applied
	ready    atomic.Bool // leads, and applied an entry of its own term; changed under role's lock
	role     role
	applied  atomic.Uint64
	due      atomic.Int64 // earliest timed work, as the applier left it
	more     atomic.Bool  // the last Tick left work that is due
	lastSeen atomic.Int64 // newest applied stamp
	shifted  atomic.Int64 // what wall clocks show beyond it, as applied
	clock    shardClock
	advance  notifier // applied moved
	applyC   chan applierWork
	waits    waits
	rounds   rounds
	hashes   hashes
	standing standing
	fresh    atomic.Int64                // boot time at which a majority was asked for what is applied here by now
	leader   atomic.Uint64               // the node that leads, as far as this replica knows; 0 = none
	safe     atomic.Uint64               // every replica has all entries up to here
	scratch  []byte                      // the applier's: the results of an entry, encoded,
	ends     []int                       // and where each of them ends
	conf     atomic.Pointer[replog.Conf] // as applied; the applier's to change
	reached  atomic.Pointer[[]uint64]    // replicas that were heard of lately, by the leader; ascending
}

type appendDone struct {
	w   *appendWait
	err error
}

type appendWait struct {
	a     *replog.Append
	waits bool // the log does not take it yet, nor what is behind it: the state is being exchanged
	done  bool
}

// applierWork is for the applier: a run of entries, or another state.
type applierWork struct {
	run     *replog.Apply
	install *installing
}

// shardClock turns the boot clock's progress into shard time. It steps only at the start of a term.
type shardClock struct {
	mu     sync.Mutex // guards the fields below
	base   core.ShardTime
	bootAt time.Duration
	last   core.ShardTime
	set    bool
}

// start begins a term: time goes on from the later of the last stamp and the shard time that the wall clock shows.
func (c *shardClock) start(last, wall core.ShardTime, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.bootAt, c.set = max(last, wall), boot, true
	c.last = c.base
}

func (c *shardClock) now(boot time.Duration) core.ShardTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.set {
		return c.last
	}
	if t := c.base.Add(core.Millis((boot - c.bootAt) / time.Millisecond)); t > c.last {
		c.last = t
	}
	return c.last
}

func (s *shard) now() core.ShardTime {
	return s.clock.now(s.n.o.Clock.Boot())
}

func (s *shard) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// enqueue takes a proposal, or refuses it at once by calling done.
func (s *shard) enqueue(p *proposal, lazy bool) {
	if !s.ready.Load() {
		p.refuse(s.notLeading())
		return
	}
	if refuse := s.admit(p, lazy); refuse != nil {
		p.refuse(refuse)
		return
	}
	s.poke()
}

// admit puts a proposal in its line, or says why there is no place for it.
func (s *shard) admit(p *proposal, lazy bool) (refuse core.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		refuse = core.Unavailable{Reason: "stopping"}
	case !s.ready.Load(): // it stepped down meanwhile; if it does from here on, it finds this proposal
		refuse = s.notLeading()
	case len(s.queue)+len(s.lazy) >= s.n.o.QueueProposals:
		refuse = core.Unavailable{Reason: "overload", Limit: "proposals"}
	case s.queued+int64(p.bytes) > s.n.o.QueueBytes:
		refuse = core.Unavailable{Reason: "overload", Limit: "proposal_bytes"}
	}
	if refuse != nil {
		return refuse
	}
	s.queued += int64(p.bytes)
	if lazy {
		if len(s.lazy) == 0 {
			s.lazyAt = s.n.o.Clock.Boot()
		}
		s.lazy = append(s.lazy, p)
	} else {
		s.queue = append(s.queue, p)
		s.commits += len(p.commits)
	}
	return nil
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
	if now := s.n.o.Clock.Boot(); now >= s.nextTick {
		s.notePause(now)
		if err := s.core.Tick(); err != nil {
			return err
		}
		s.nextTick = now + s.n.o.TickEvery
		if s.ready.Load() {
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
	if late := now - s.nextTick; s.nextTick > 0 && late >= s.n.o.PauseAfter && s.ready.Load() {
		s.stood = true
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
	d := s.nextTick - now
	if s.ready.Load() && !s.timers.Load() {
		if due := core.ShardTime(s.due.Load()); due < core.Never {
			d = min(d, core.Millis(due-s.now()).Duration())
		}
	}
	if retry, waits := s.rounds.due(); waits {
		d = min(d, retry-now)
	}
	s.mu.Lock()
	if len(s.lazy) > 0 {
		d = min(d, s.lazyAt+s.n.o.RenewEvery-now)
	}
	if len(s.queue) > 0 && s.leading && s.ready.Load() && !s.alone.Load() && s.inLog < maxInLog { // as closes has it
		d = min(d, s.closedAt+s.pace.hold()-now)
	}
	s.mu.Unlock()
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
		if (!s.alone.Load() || s.rounds.wanted()) && s.core.MayRead() {
			if round := s.rounds.next(s.n.o.Clock.Boot()); round != "" {
				s.core.ReadIndex(round)
			}
		}
		if !s.core.Ready() {
			return nil
		}
		out, err := s.core.Take()
		if err != nil {
			return err
		}
		if err := s.handOut(out); err != nil {
			return err
		}
	}
}

func (s *shard) takeIn() error {
	s.mu.Lock()
	appends, applies, inbox, installed := s.appends, s.applies, s.inbox, s.installed
	s.appends, s.applies, s.inbox, s.inboxBytes, s.installed = nil, nil, nil, 0, nil
	s.mu.Unlock()
	s.takeMessages(inbox)
	if installed != nil {
		installed.append.waits = false
		s.submit()
	}
	for _, d := range appends {
		if d.err != nil {
			return fmt.Errorf("append: %w", d.err)
		}
		d.w.done = true
	}
	for len(s.waiting) > 0 && s.waiting[0].done {
		w := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.inLog -= w.a.Len()
		if err := s.core.AppendDone(w.a); err != nil {
			return err
		}
		if _, anew := w.a.Snapshot(); anew {
			s.restarted()
		}
	}
	for _, a := range applies {
		if err := s.core.ApplyDone(a); err != nil {
			return err
		}
	}
	s.reconfigured()
	return nil
}

func (s *shard) handOut(out replog.Output) error {
	s.send(out.Messages)
	s.rounds.end(out.Reads)
	if a := out.Append; a != nil {
		_, anew := a.Snapshot()
		w := &appendWait{a: a, waits: anew, done: a.Empty()}
		if w.done {
			s.poke()
		}
		s.waiting = append(s.waiting, w)
		s.inLog += a.Len()
		if anew {
			if err := s.exchange(w); err != nil {
				return err
			}
		}
		if !a.Empty() {
			s.unsent = append(s.unsent, w)
			s.submit()
		}
	}
	if out.Apply == nil {
		return nil
	}
	if s.n.o.Manual {
		return s.applyAll(out.Apply)
	}
	s.applyC <- applierWork{run: out.Apply} // bounded by MaxApplyBytes of what is not done
	return nil
}

// submit hands waiting appends to the log, in order. A log whose queue is full takes them later: at the next step, which
// the next tick brings at the latest.
func (s *shard) submit() {
	for len(s.unsent) > 0 {
		w := s.unsent[0]
		if w.waits {
			return
		}
		err := replog.Submit(s.n.o.Log, s.id, w.a, func(err error) { s.appendDone(w, err) })
		if errors.Is(err, replog.ErrQueueFull) {
			return
		}
		s.unsent = s.unsent[1:]
		if err != nil {
			s.appendDone(w, err)
		}
	}
}

func (s *shard) appendDone(w *appendWait, err error) {
	s.mu.Lock()
	s.appends = append(s.appends, appendDone{w, err})
	s.mu.Unlock()
	s.poke()
}

// lead does what only a leader does: open its term, propose what waits.
func (s *shard) lead() error {
	st := s.core.Status()
	s.note(st)
	if st.Term != s.wasTerm || st.Leading != s.leading {
		s.wasTerm, s.leading, s.termAsked = st.Term, st.Leading, false
		s.enterTerm(st)
		s.pace = pace{}
		s.moved(st.Leading)
		if st.Leading {
			s.settledAt = s.n.o.Clock.Boot()
		} else {
			s.stepDown()
		}
		if !s.alone.Load() {
			s.n.o.Logger.Info("term of a shard", "shard", s.id, "term", st.Term, "leads", st.Leading)
		}
	}
	if !s.leading {
		return nil
	}
	if !s.termAsked {
		if s.applied.Load() < st.Last {
			return nil // older entries, or the term's own empty one, are still to be applied
		}
		return s.openTerm(st.Term)
	}
	s.pace.committed(st.Commit, s.n.o.Clock.Boot())
	if !s.ready.Load() || s.moves(st) {
		return nil
	}
	return s.propose(st)
}

// firstTimeWait is for how long the first leader of a shard waits for other nodes' clocks to confirm its own.
const firstTimeWait = 10 * time.Second

// begins returns what time a term may begin at, the last stamp at the least: the one that the wall clock shows when most nodes' clocks agree
// with it, else the last stamp. A shard that has no stamp yet begins at no other time than a clock's: a beginning in 1970
// would have the next term step over all the years since, and every deadline with it. So its first leader waits until the
// clocks agree, and takes its own when they do not for long.
func begins(last, wall core.ShardTime, agree bool, waited time.Duration) (at core.ShardTime, known bool) {
	switch {
	case agree:
		return wall, true
	case last > 0:
		return last, true
	}
	return wall, waited >= firstTimeWait
}

// openTerm sets shard time and proposes the term's first commit, once it knows the time. Everything in the log is applied.
func (s *shard) openTerm(term uint64) error {
	last, boot := core.ShardTime(s.lastSeen.Load()), s.n.o.Clock.Boot()
	s.shift = core.Millis(s.shifted.Load())
	wall, known := begins(last, core.ShardTimeOf(s.n.o.Clock.Wall()).Add(-s.shift), s.n.clocks.agree(s.n), boot-s.settledAt)
	if !known {
		return nil
	}
	s.clock.start(last, wall, boot)
	s.termAsked = true
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
	f := &inflight{}
	commits := s.gather(f)
	s.last, s.closedAt = len(commits), s.n.o.Clock.Boot()
	if c, ok := s.clockShift(); ok { // before what it decides about
		f.shifts, s.shift = true, c.Shift
		commits = slices.Insert(commits, 0, core.Commit{Partition: systemPartition, Principal: "millrace", Ops: []core.Op{c}})
	}
	if now := s.now(); !s.timers.Load() && (s.more.Load() || core.ShardTime(s.due.Load()) <= now || s.confCheck.wanted && len(commits) == 0) {
		if s.stood { // before any lease ends
			f.stood, s.stood = true, false
			commits = append(commits, s.termStart(st.Term))
		}
		f.tick = true
		s.timers.Store(true)
		commits = append(commits, core.Commit{
			Partition: systemPartition, Principal: "millrace", Ops: []core.Op{&core.Tick{Max: s.n.o.TimerBatch}},
		})
	}
	f.grants, f.creates = s.disp.collect(countCreates(commits))
	for _, g := range f.grants {
		commits = append(commits, core.Commit{Partition: g.partition, Principal: "millrace", Ops: []core.Op{g.op}})
	}
	if len(commits) == 0 {
		return nil
	}
	s.confCheck.wanted = false
	s.pace.proposed(st.Last+1, s.closedAt)
	return s.put(f, commits)
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
	case s.inLog >= maxInLog:
		return false
	case st.Single && s.inLog == 0, !st.Single && st.Commit == st.Last:
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.Single {
		return s.commits >= s.n.o.EntryCommits || s.commits > 0 && s.n.o.Clock.Boot() >= s.closedAt+s.pace.hold()
	}
	return s.commits > 0 && s.commits >= min(s.last, s.n.o.EntryCommits)
}

// gather takes proposals up to an entry's size.
func (s *shard) gather(f *inflight) []core.Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lazy) > 0 && (len(s.queue) > 0 || s.n.o.Clock.Boot() >= s.lazyAt+s.n.o.RenewEvery) {
		for _, p := range s.lazy {
			s.commits += len(p.commits)
		}
		s.queue = append(s.queue, s.lazy...)
		s.lazy = nil
	}
	size, n, count := 0, 0, 0
	for n < len(s.queue) {
		p := s.queue[n]
		if n > 0 && (size+p.bytes > s.n.o.EntryBytes || count+len(p.commits) > s.n.o.EntryCommits) {
			break
		}
		size += p.bytes
		s.queued -= int64(p.bytes)
		count += len(p.commits)
		n++
	}
	if n == 0 {
		return nil
	}
	s.commits -= count
	f.proposals = slices.Clone(s.queue[:n])
	commits := make([]core.Commit, 0, count+grantRoom)
	for _, p := range f.proposals {
		commits = append(commits, p.commits...)
	}
	clear(s.queue[:n])
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	return commits
}

// put proposes one entry.
func (s *shard) put(f *inflight, commits []core.Commit) error {
	s.seq++
	f.entry = &core.Entry{
		Format: s.n.Format(), Stamp: s.now(), Proposer: s.n.boot, Seq: s.seq, Queues: s.n.o.Queues, Commits: commits,
	}
	s.pendMu.Lock()
	s.pending[s.seq] = f
	s.pendMu.Unlock()
	err := s.core.Propose(s.encode(f.entry))
	if err == nil {
		s.n.batches.Observe(uint64(len(commits)))
		return nil
	}
	s.pendMu.Lock()
	delete(s.pending, s.seq)
	s.pendMu.Unlock()
	s.stood = s.stood || f.stood
	s.shift = core.Millis(s.shifted.Load())
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
	b := core.AppendEntry(make([]byte, 0, s.encoded), e)
	s.encoded = max(len(b), s.encoded-s.encoded/16)
	return b
}

// drop ends an entry that was not applied, or of which that is not known.
func (s *shard) drop(f *inflight, why core.Fact) {
	for _, p := range f.proposals {
		p.done(core.Proposed{Err: why})
	}
	s.disp.drop(f)
	if f.tick {
		s.timers.Store(false)
	}
	if f.term != 0 {
		s.termAsked = false
	}
}

// drainAtStop ends the loop: nothing is taken any more, everything that waits is told.
func (s *shard) drainAtStop() {
	s.ready.Store(false)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.applyC)
	s.n.appliers.Wait()
	s.abandon(core.Unavailable{Reason: "stopping", Unknown: true})
	s.disp.close()
	s.advance.close()
}
