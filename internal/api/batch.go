package api

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Answers turns results of commits into the answers of one batch's items: of a call, or of a frame.
type Answers struct {
	// s shows errors, and logs the internal ones.
	s *Server
	// method is for the log.
	method string
	// values says that the caller may read values of keys.
	values bool
	// budget is how many bytes of old values still fit the answer. It is that of the whole batch.
	budget int
}

// Answers begins the answers of one batch. values says that the caller may read values of keys: errors show them then.
func (s *Server) Answers(method string, values bool) *Answers {
	return &Answers{s: s, method: method, values: values, budget: AnswerBytes}
}

// Err shows why an item, or the whole batch, was refused.
func (a *Answers) Err(err error) *pb.Error { return a.s.Wire(a.method, err, a.values) }

// Creating is a batch of creates on its way: the commits it became, and what is answered already. One that is made of commits
// alone, each of one create, has nothing answered yet.
type Creating struct {
	// atomic says that all tasks are ops of the one commit.
	atomic bool
	// Commits are in the order of the tasks that are not answered yet; one of all with atomic.
	Commits []core.Commit
	// results has one for each task; nil: it is the result of the next commit, or op.
	results []*pb.CreateResult
}

// Tasks is how many tasks the commits create.
func (b *Creating) Tasks() (n int) {
	for i := range b.Commits {
		n += len(b.Commits[i].Ops)
	}
	return n
}

// Creates reads a batch of tasks. Without atomic each stands alone, and one that cannot be used is refused alone.
// Tasks that come without an id get one here: Apply has no randomness. Errors of the whole batch: none or too many tasks, and with atomic the first task that cannot be
// used.
func (t *Translator) Creates(a *Answers, in []*pb.TaskSpec, atomic bool) (*Creating, core.Fact) {
	if fact := Items(t.l, "tasks", len(in)); fact != nil {
		return nil, fact
	}
	b := &Creating{atomic: atomic, results: make([]*pb.CreateResult, len(in))}
	// One allocation for the ops of all tasks.
	creates := make([]core.TaskCreate, len(in))
	ops := make([]core.Op, 0, len(in))
	if !atomic {
		b.Commits = make([]core.Commit, 0, len(in))
	}
	for i, spec := range in {
		op := &creates[i]
		fact := t.fillCreate(op, spec)
		// With atomic the commit's partition is chosen at the end, for all.
		part := t.part
		if fact == nil && !atomic {
			part, fact = t.placeCreate(op)
		}
		if fact != nil {
			fact = edge.Within(edge.Item("tasks", i), fact)
			if atomic {
				return nil, fact
			}
			b.results[i] = &pb.CreateResult{Id: spec.GetId(), Error: a.Err(fact)}
			continue
		}
		ops = append(ops, op)
		if !atomic {
			n := len(ops) - 1
			b.Commits = append(b.Commits, t.commitIn(part, ops[n:n+1:n+1]))
		}
	}
	if !atomic {
		return b, nil
	}
	b.Commits = []core.Commit{t.commitOf(ops)}
	if fact := t.place(&b.Commits[0], 0); fact != nil {
		return nil, fact
	}
	return b, FitsLog(t.l, &b.Commits[0])
}

// commitOf makes a commit of ops in the translator's partition, by its caller.
func (t *Translator) commitOf(ops []core.Op) core.Commit { return t.commitIn(t.part, ops) }

// commitIn is commitOf in another partition.
// Its principal is the name of the token: the log keeps who did it.
func (t *Translator) commitIn(p core.Partition, ops []core.Op) core.Commit {
	return core.Commit{Partition: p, Principal: t.who.Name, Ops: ops}
}

// Items refuses an empty batch and one of too many items; list is the field that holds them.
func Items(l *edge.Limits, list string, n int) core.Fact {
	if n == 0 {
		return edge.Invalid(list, "must not be empty")
	}
	if int64(n) > l.FrameItems {
		return edge.TooLarge(list, "frame_items", l.FrameItems)
	}
	return nil
}

// answer gives each task its result. An error is the whole batch's: it was one commit, and was refused.
func (b *Creating) Answer(a *Answers, results []core.Result) ([]*pb.CreateResult, error) {
	if b.atomic {
		// All tasks are ops of one commit: they have one fate.
		r := results[0]
		if r.Refusal != nil {
			return nil, edge.Refused(r.Refusal, 0)
		}
		for i := range b.results {
			b.results[i] = createResult(r.Ops[i], r.Replayed)
		}
		return b.results, nil
	}
	if b.results == nil {
		b.results = make([]*pb.CreateResult, len(b.Commits))
	}
	// Results come in the order of the commits, which tasks that were answered before do not have.
	next := 0
	for i := range b.results {
		if b.results[i] != nil {
			continue
		}
		r := results[next]
		if r.Refusal != nil {
			create := b.Commits[next].Ops[0].(*core.TaskCreate) // creates puts no other op
			// The item has but one op, so the fact alone says all.
			b.results[i] = &pb.CreateResult{Id: create.ID.String(), Error: a.Err(r.Refusal.Fact)}
		} else {
			b.results[i] = createResult(r.Ops[0], r.Replayed)
		}
		next++
	}
	return b.results, nil
}

// createResult shows what a create did. replayed says that its whole commit is a repetition.
func createResult(r core.OpResult, replayed bool) *pb.CreateResult {
	return &pb.CreateResult{
		Id: r.Task.String(), Replayed: r.Replayed || replayed, PayloadMatches: r.PayloadMatches,
		Replaced: r.Existed,
	}
}

// Settling is a batch of settles on its way, as Creating.
type Settling struct {
	Commits []core.Commit      // in the order of the items that are not answered yet
	Holds   []core.TaskHold    // one per commit
	results []*pb.SettleResult // one for each item; nil: the next commit's
}

// Settles reads a batch of settles. Each is a commit of its own; one that cannot be used is refused alone.
// Errors of the whole batch: none or too many items.
func (t *Translator) Settles(a *Answers, in []*pb.SettleItem) (*Settling, core.Fact) {
	if fact := Items(t.l, "items", len(in)); fact != nil {
		return nil, fact
	}
	b := &Settling{
		Commits: make([]core.Commit, 0, len(in)), Holds: make([]core.TaskHold, 0, len(in)),
		results: make([]*pb.SettleResult, len(in)),
	}
	for i, it := range in {
		c, h, fact := t.settle(it)
		if fact != nil {
			b.results[i] = &pb.SettleResult{Error: a.Err(edge.Within(edge.Item("items", i), fact))}
			continue
		}
		b.Commits, b.Holds = append(b.Commits, c), append(b.Holds, h)
	}
	return b, nil
}

// settle reads one settle: the end of the attempt first, then the effects.
// Effects are allowed with a completion only: what an attempt that failed did must not stay.
func (t *Translator) settle(in *pb.SettleItem) (c core.Commit, h core.TaskHold, fact core.Fact) {
	if h, fact = hold("id", "token", in.GetId(), in.GetToken()); fact != nil {
		return c, h, fact
	}
	if fact = t.ReachesTask(h.Task); fact != nil {
		return c, h, fact
	}
	effects := in.GetEffects()
	// The end of the attempt is the first op, so that a lease that is lost refuses the effects.
	ops := make([]core.Op, 1, 1+len(effects.GetOps()))
	switch o := in.GetOutcome().(type) {
	case *pb.SettleItem_Complete:
		ops[0], fact = asOp(t.complete(h, o.Complete))
	case *pb.SettleItem_Fail:
		ops[0], fact = asOp(t.fail(h, o.Fail))
	case *pb.SettleItem_Snooze:
		ops[0], fact = asOp(t.snooze(h, o.Snooze))
	// It has nothing to read.
	case *pb.SettleItem_Release:
		ops[0] = &core.TaskRelease{Task: h.Task, Token: h.Token}
	case *pb.SettleItem_Stop:
		ops[0], fact = asOp(t.stop(h, o.Stop))
	default:
		fact = edge.Invalid("", "must name one outcome: complete, fail, snooze, release or stop")
	}
	if fact != nil {
		return c, h, fact
	}
	part, fact := t.placeHold("id", h)
	if fact != nil {
		return c, h, fact
	}
	c = t.commitIn(part, ops)
	if effects == nil {
		return c, h, nil
	}
	if _, ok := in.GetOutcome().(*pb.SettleItem_Complete); !ok {
		return c, h, core.Invalid{Field: "effects", Reason: "not_supported", Message: "are allowed only with complete"}
	}
	return c, h, t.effects(&c, h, effects)
}

// effects reads the effects of a completion into the commit c, whose first op is the completion; ends is the lease that it ends. They
// are held to the rates of keys here, because the completion and they are one.
// Paths of fields begin with effects, as the client wrote them.
func (t *Translator) effects(c *core.Commit, ends core.TaskHold, in *pb.Effects) (fact core.Fact) {
	if most := t.l.CommitOps - 1; int64(len(in.GetConditions())+len(in.GetOps())) > most { // the completion is an op too
		return edge.TooLarge("effects.ops", "commit_ops", most)
	}
	// A repetition of the settle makes the same tasks.
	t.repeatableBy(core.RequestID{}, ends)
	if c.Conditions, fact = t.conditions(in.GetConditions()); fact != nil {
		return edge.Within("effects", fact)
	}
	if c.Ops, fact = t.ops(c.Ops, in.GetOps()); fact != nil {
		return edge.Within("effects", fact)
	}
	c.FailOnRefusal = in.GetFailOnRefusal()
	if fact = t.place(c, 1); fact != nil {
		return edge.Within("effects", fact)
	}
	if fact = FitsLog(t.l, c); fact != nil {
		return edge.Within("effects", fact)
	}
	if t.edge.s == nil { // of a test, without rates
		return nil
	}
	return t.edge.s.Rated(c, t.several() && !t.bound)
}

// answer gives each settle its result.
func (b *Settling) Answer(a *Answers, results []core.Result) []*pb.SettleResult {
	if b.results == nil {
		b.results = make([]*pb.SettleResult, len(b.Commits))
	}
	next := 0
	for i := range b.results {
		if b.results[i] != nil {
			continue
		}
		b.results[i] = a.settleResult(results[next])
		next++
	}
	return b.results
}

// settleResult shows what became of one settle. The first op of its commit is the end of the attempt; those behind it are the effects.
// A refusal may say that the attempt was failed instead, as its effects asked.
func (a *Answers) settleResult(r core.Result) *pb.SettleResult {
	out := &pb.SettleResult{Replayed: r.Replayed, FailedInstead: r.FailedInstead}
	if r.Refusal != nil {
		out.Error = a.Err(edge.Refused(r.Refusal, 1))
	}
	// A repetition whose answer is not kept, or a refusal.
	if len(r.Ops) == 0 {
		return out
	}
	out.Replayed = out.Replayed || r.Ops[0].Replayed
	out.State = pb.State(r.Ops[0].State)
	if r.Refusal == nil {
		out.Effects = a.opResults(r.Ops[1:])
	}
	return out
}

// opResults answers the ops of a commit. Old values that do not fit the answer are left out.
func (a *Answers) opResults(in []core.OpResult) []*pb.OpResult {
	if len(in) == 0 {
		return nil
	}
	out := make([]*pb.OpResult, len(in))
	for i, r := range in {
		o := &pb.OpResult{
			Replayed: r.Replayed, PayloadMatches: r.PayloadMatches, State: pb.State(r.State), Rev: r.Rev, Existed: r.Existed,
		}
		if r.Kind == core.OpTaskCreate {
			o.Existed, o.Replaced = false, r.Existed
		}
		if r.KV != nil {
			o.Sum, o.Count = r.KV.Number, r.KV.Count
		}
		switch r.Kind {
		case core.OpTaskCreate:
			o.Task = r.Task.String()
		case core.OpBatchOpen, core.OpBatchSeal, core.OpBatchCancel:
			o.Batch = r.Task.String()
		}
		// The revision of a point is a part of its version, which names the partition too.
		if r.Kind == core.OpVectorUpsert {
			o.Rev, o.PointVersion = 0, edge.ShowVersion(uint16(r.Version), r.Rev)
		}
		o.Refs = showMoved(r.Refs)
		// Left out, and not cut: a part of a value is of no use.
		if len(r.Prev) <= a.budget {
			o.Prev = r.Prev
			a.budget -= len(r.Prev)
		}
		out[i] = o
	}
	return out
}

// CommitResponse answers one commit.
func (a *Answers) CommitResponse(r core.Result, at core.At) (*pb.CommitResponse, error) {
	if r.Refusal != nil {
		return nil, edge.Refused(r.Refusal, 0)
	}
	return &pb.CommitResponse{Results: a.opResults(r.Ops), Replayed: r.Replayed, At: ShowAt(AtOf(r, at))}, nil
}

// Heartbeats answers the renewals of some commits, in order. shift is what wall clocks show beyond shard time.
func Heartbeats(results []core.Result, shift core.Millis) []*pb.HeartbeatResult {
	var out []*pb.HeartbeatResult
	for _, r := range results {
		for _, op := range r.Ops {
			// Each lease of the op, in the order in which it was named.
			for _, n := range op.Renewed {
				h := &pb.HeartbeatResult{Lost: n.Lost, Cancel: n.Cancel}
				if !n.Lost {
					h.LeaseUntil = TimeOf(n.Until.Add(shift))
				}
				out = append(out, h)
			}
		}
	}
	return out
}
