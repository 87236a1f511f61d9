package check

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// task is one id that was created, with every standing that the answers so far allow.
type task struct {
	id      core.TaskID
	first   core.TaskCreate // by which a repetition of its create is told
	create  core.TaskCreate // the create that holds: the first, or the last one that replaced it
	creator string
	index   uint64
	at      core.ShardTime
	now     content // what edits have made of it
	worker  string  // that had it last
	result  int64   // bytes
	may     []standing
	told    reported
	letter  *letter                  // nil: it is not a copy of a dead task
	follows bool                     // a batch makes it, at the stamp that it has or later
	perhaps []uint8                  // priorities that bulk jobs may have set since now.priority was
	past    map[core.Token]settledAs // attempts that their holder ended

	deps       []*task // those that it was made to wait for
	dependents []*task // those that were made to wait for it
}

type settledAs struct {
	outcome core.Outcome
	attempt uint32
	unsure  bool // the attempt may have ended in another way, of which nothing is told
	taken   bool // it counts as no attempt, and is known while its token is the last
}

// keepAttempts is how many attempts a task that is kept remembers; a removed one remembers its last token alone.
const keepAttempts = 20

// standing is where a task may stand.
type standing struct {
	state core.State
	token core.Token // of the last grant
	until core.ShardTime
	lease core.Millis
	limit core.ShardTime // max_run of this attempt; Never without
	given core.ShardTime // when this attempt began
	// earliest and latest bound the time at which a scheduled task is due.
	earliest, latest core.ShardTime
	wall             bool // they are what wall clocks are to show

	deliveries, failures, crashes, snoozes uint32
	redrives                               uint32
	base                                   uint32 // deliveries before the last redrive

	cancel  core.CancelAsked // of a running or cancelled task
	last    core.Outcome     // how the attempt of token ended, when its holder did not end it; else none
	expires core.ShardTime   // what wall clocks show when the task is dead, unless it has started; 0: never, or it has
	lapsed  bool             // it is dead since that

	frees core.UniqueUntil // what is to free its unique key; 0: nothing but time, or it is free

	session core.SessionID
	ended   core.ShardTime
	gone    bool // removed after it ended
	known   bool // gone, but its id is still answered for
	fresh   bool // ready since its creation, never delivered

	pending awaited // what a blocked task waits for; earliest and latest are when it may be ready after that
	unswept bool    // its queue was removed before it ended, and those that wait for it may not have been told yet
}

func (s *standing) live(token core.Token) bool { return s.state == core.Running && s.token == token }

// keep drops the standings for which is is false; it reports false, and keeps all, when none is left.
func (m *Model) keep(p *part, t *task, is func(*standing) bool) bool {
	left := slices.DeleteFunc(slices.Clone(t.may), func(s standing) bool { return !is(&s) })
	if len(left) == 0 {
		return false
	}
	m.stand(p, t, left)
	return true
}

func (t *task) sure(is func(*standing) bool) bool {
	return !slices.ContainsFunc(t.may, func(s standing) bool { return !is(&s) })
}

func (t *task) might(is func(*standing) bool) bool {
	return slices.ContainsFunc(t.may, func(s standing) bool { return is(&s) })
}

// forgettable reports whether nothing may be known of the task any more.
func (t *task) forgettable(now core.ShardTime) bool {
	return t.might(func(s *standing) bool { return s.gone && (!s.known || now >= s.ended.Add(keepIdentity)) })
}

// answer is what an op was seen to answer: a result, a fact, or nothing, when a later op of the commit was refused.
type answer struct {
	result *core.OpResult
	fact   core.Fact
	blind  bool
}

// step is one way in which an op can end from one standing.
type step struct {
	fact     core.Fact // refused; the standing stays
	replayed bool      // nothing changes
	next     standing
}

// explains reports whether the step could have been answered so.
func (s step) explains(a answer) bool {
	switch {
	case a.blind:
		return s.fact == nil
	case a.fact != nil:
		return s.fact != nil && alike(s.fact, a.fact)
	case s.fact != nil || s.replayed != a.result.Replayed:
		return false
	}
	return s.replayed || a.result.State == 0 || a.result.State == s.next.state
}

// alike compares facts; how an unknown thing is called back to the caller is the edge's matter.
func alike(want, got core.Fact) bool {
	if w, ok := want.(core.NotFound); ok {
		g, ok := got.(core.NotFound)
		return ok && w.Kind == g.Kind
	}
	return reflect.DeepEqual(want, got)
}

// move keeps the steps that explain the answer and puts the task where they lead.
func (m *Model) move(p *part, t *task, a answer, steps func(standing) []step) error {
	var next []standing
	var tried []string
	for _, s := range t.may {
		for _, st := range steps(s) {
			tried = append(tried, st.String())
			if !st.explains(a) {
				continue
			}
			if st.fact != nil || st.replayed {
				st.next = s
			}
			if !slices.Contains(next, st.next) {
				next = append(next, st.next)
			}
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("task %s: answered %s; allowed: %v", t.id, a, tried)
	}
	m.stand(p, t, next)
	return nil
}

// stand replaces a task's standings, to be taken back with the commit.
func (m *Model) stand(p *part, t *task, next []standing) {
	old := t.may
	m.place(p, t, next)
	m.moved(p, t, old)
}

// place is stand for what bulk jobs do.
func (m *Model) place(p *part, t *task, next []standing) {
	old, timed := t.may, p.timed[t.id]
	m.letters(p, t, old, next)
	m.change(func() {
		t.may = old
		p.setTimed(t.id, timed)
	})
	t.may = next
	p.setTimed(t.id, t.might(func(s *standing) bool {
		return s.state == core.Running || s.state == core.Scheduled || (s.state == core.Ready || s.state == core.Blocked) && s.expires != 0
	}))
	m.noteEnds(p, t, old)
	m.noteBatch(p, t, old)
}

func (p *part) setTimed(id core.TaskID, timed bool) {
	if timed {
		p.timed[id] = true
	} else {
		delete(p.timed, id)
	}
}

func (a answer) String() string {
	switch {
	case a.blind:
		return "applied"
	case a.fact != nil:
		return fmt.Sprintf("%T(%v)", a.fact, a.fact)
	}
	return fmt.Sprintf("applied, replayed=%v, state=%v", a.result.Replayed, a.result.State)
}

func (s step) String() string {
	switch {
	case s.fact != nil:
		return fmt.Sprintf("%T(%v)", s.fact, s.fact)
	case s.replayed:
		return "replayed"
	}
	return s.next.state.String()
}

// op judges one op of a commit, and what follows for tasks that wait for others, and for batches.
func (m *Model) op(p *part, c *core.Commit, op core.Op, a answer, before uint64) error {
	m.follow, m.batchLooks = nil, nil
	err := m.opAlone(p, c, op, a, before)
	m.followEnds()
	m.followBatches()
	return err
}

// opAlone judges one op. before is the largest revision of earlier commits.
func (m *Model) opAlone(p *part, c *core.Commit, op core.Op, a answer, before uint64) error {
	if a.result != nil && a.result.Kind != 0 && a.result.Kind != op.Kind() {
		return fmt.Errorf("answer is of kind %d, op of kind %d", a.result.Kind, op.Kind())
	}
	if (m.rules < core.FormatOperate && operates(op) || m.rules < core.FormatShare && shares(op)) && (a.fact == nil || tooEarly(a)) {
		return m.judgeTooEarly(op, a)
	}
	if m.rules < core.FormatShare && (ofCrons(op) || ofBatches(op)) {
		return m.judgeTooEarly(op, a)
	}
	if bad := misfits(op); len(bad) > 0 {
		return judgeMisfit(op, bad, a)
	}
	if _, _, _, ok := settleOf(op); ok {
		return m.settle(p, op, a)
	}
	if ofRefs(op) {
		return m.refsOp(p, c, op, a)
	}
	if ofSearch(op) {
		return m.searchOp(p, op, a, before)
	}
	switch op := op.(type) {
	case *core.TaskCreate:
		return m.create(p, c, op, true, a)
	case *core.TaskCancel, *core.TaskRedrive, *core.TaskForceRelease, *core.TaskUpdate:
		return m.control(p, c, op, a)
	case *core.TenantQuota:
		return m.tenantQuota(p, op, a)
	case *core.SessionLost:
		return m.sessionLost(p, op, a)
	case *core.TaskReport:
		return m.report(p, op, a)
	case *core.QueuePause:
		return m.pause(p, c, op, a)
	case *core.KeySet:
		return m.keySet(p, c, op, a)
	case *core.BulkStart:
		return m.bulkStart(p, c, op, a)
	case *core.BulkStop:
		return m.bulkStop(p, op, a)
	case *core.CronSet, *core.CronDelete, *core.CronFire:
		return m.cronOp(p, c, op, a)
	case *core.BatchOpen, *core.BatchSeal, *core.BatchCancel:
		return m.batchOp(p, c, op, a)
	case *core.LimiterSet, *core.LimiterDelete:
		return m.limiterOp(p, op, a)
	case *core.TaskDelete:
		return m.remove(p, op.Task, a)
	case *core.TaskRunNow:
		return m.runNow(p, op.Task, a)
	case *core.TaskRenew:
		return m.renew(p, op, a)
	case *core.Grant:
		return m.grant(p, op, a)
	case *core.Tick:
		return m.tick(op, a)
	case *core.TermStart:
		m.termStart = m.stamp
		return m.applied(op, a)
	case *core.ClockShift:
		return m.clockShift(op, a)
	case *core.QueueSet:
		return m.queueSet(p, op, a)
	case *core.QueueDelete:
		return m.queueDelete(p, op, a)
	case *core.NamespaceSet, *core.NamespaceCreate, *core.NamespaceRemove, *core.PartitionRemove:
		return m.namespaceOp(p, op, a)
	case *core.FormatRaise:
		return m.formatRaise(op, a)
	case *core.MembersInit, *core.MemberChange, *core.MemberStep:
		return m.memberOp(op, a)
	}
	return m.kvOp(p, c, op, a, before)
}

func (m *Model) applied(op core.Op, a answer) error {
	if a.fact != nil {
		return fmt.Errorf("%T was refused with %w", op, a.fact)
	}
	return nil
}

// remove judges the removal of a terminal task.
func (m *Model) remove(p *part, id core.TaskID, a answer) error {
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	return m.move(p, t, anyState(a), func(s standing) []step {
		switch {
		case s.gone:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case !s.state.Terminal():
			return []step{{fact: core.WrongState{Task: id, State: s.state}}}
		}
		s.gone, s.known = true, true
		return []step{{next: s}}
	})
}

// runNow judges that a scheduled task becomes ready.
func (m *Model) runNow(p *part, id core.TaskID, a answer) error {
	t := p.tasks[id]
	if t == nil {
		return unknownTask(id, a)
	}
	return m.move(p, t, a, func(s standing) []step {
		switch {
		case s.gone:
			return []step{{fact: core.NotFound{Kind: "task"}}}
		case s.state != core.Scheduled:
			return []step{{fact: core.WrongState{Task: id, State: s.state}}}
		}
		return []step{{next: s.ready()}}
	})
}

func unknownTask(id core.TaskID, a answer) error {
	if f, ok := a.fact.(core.NotFound); ok && f.Kind == "task" {
		return nil
	}
	return fmt.Errorf("task %s is unknown: answered %s", id, a)
}

// anyState leaves out the state of an answer, where it is not documented.
func anyState(a answer) answer {
	if a.result == nil {
		return a
	}
	r := *a.result
	r.State = 0
	a.result = &r
	return a
}

// renew judges each lease of a heartbeat alone.
func (m *Model) renew(p *part, op *core.TaskRenew, a answer) error {
	if err := m.applied(op, a); err != nil || a.blind {
		return err
	}
	if len(a.result.Renewed) != len(op.Items) {
		return fmt.Errorf("%d answers for %d renewals", len(a.result.Renewed), len(op.Items))
	}
	for i, item := range op.Items {
		got, t := a.result.Renewed[i], p.tasks[item.Task]
		if t == nil {
			if !got.Lost {
				return fmt.Errorf("renewals[%d]: task %s is unknown and its lease was renewed", i, item.Task)
			}
			continue
		}
		var next []standing
		for _, s := range t.may {
			if s.live(item.Token) == got.Lost || got.Cancel != (!got.Lost && s.cancel.At != 0) {
				continue
			}
			if !got.Lost {
				extend := op.Extend
				if extend == 0 {
					extend = s.lease
				}
				s.until = min(max(s.until, m.stamp.Add(extend)), max(s.until, s.limit))
				until := s.until
				if s.cancel.At != 0 {
					until = min(until, s.cancel.Until)
				}
				if until != got.Until {
					continue
				}
			}
			next = append(next, s)
		}
		if len(next) == 0 {
			return fmt.Errorf("renewals[%d]: task %s token %d answered %+v, its standings are %+v", i, item.Task, item.Token, got, t.may)
		}
		m.stand(p, t, next)
	}
	return nil
}

// namespaceOp judges an op about a namespace, or about a partition of one that was removed.
func (m *Model) namespaceOp(p *part, op core.Op, a answer) error {
	switch op := op.(type) {
	case *core.NamespaceSet:
		return m.namespaceSet(p, op, a)
	case *core.NamespaceCreate:
		return m.namespaceCreate(op, a)
	case *core.NamespaceRemove:
		return m.namespaceRemove(op, a)
	case *core.PartitionRemove:
		return m.partitionRemove(p, op, a)
	}
	return nil
}
