package api

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// answers turns results of commits into the answers of a batch's items.
type answers struct {
	s      *Server
	method string // for the log
	values bool   // the caller may read values
	budget int    // bytes of old values that still fit the answer
}

func (s *Server) answers(method string, values bool) *answers {
	return &answers{s: s, method: method, values: values, budget: prevBytes}
}

func (a *answers) err(err error) *pb.Error { return a.s.Wire(a.method, err, a.values) }

// creating is a batch of creates on its way: the commits it became, and what is answered already.
type creating struct {
	atomic  bool // all tasks are ops of the one commit
	commits []core.Commit
	results []*pb.CreateResult // nil: the next commit's, or op's
}

// creates reads a batch of tasks. Without atomic each stands alone, and one that cannot be used is refused alone.
func (t *translator) creates(a *answers, in []*pb.TaskSpec, atomic bool) (*creating, core.Fact) {
	if fact := t.items("tasks", len(in)); fact != nil {
		return nil, fact
	}
	b := &creating{atomic: atomic, results: make([]*pb.CreateResult, len(in))}
	creates := make([]core.TaskCreate, len(in))
	ops := make([]core.Op, 0, len(in))
	if !atomic {
		b.commits = make([]core.Commit, 0, len(in))
	}
	for i, spec := range in {
		op := &creates[i]
		fact := t.fillCreate(op, spec)
		part := t.part
		if fact == nil && !atomic {
			part, fact = t.placeCreate(op)
		}
		if fact != nil {
			fact = edge.Within(edge.Item("tasks", i), fact)
			if atomic {
				return nil, fact
			}
			b.results[i] = &pb.CreateResult{Id: spec.GetId(), Error: a.err(fact)}
			continue
		}
		ops = append(ops, op)
		if !atomic {
			n := len(ops) - 1
			b.commits = append(b.commits, t.commitIn(part, ops[n:n+1:n+1]))
		}
	}
	if !atomic {
		return b, nil
	}
	b.commits = []core.Commit{t.commitOf(ops)}
	if fact := t.place(&b.commits[0], 0); fact != nil {
		return nil, fact
	}
	return b, t.encoded(&b.commits[0])
}

func (t *translator) commitOf(ops []core.Op) core.Commit { return t.commitIn(t.part, ops) }

func (t *translator) commitIn(p core.Partition, ops []core.Op) core.Commit {
	return core.Commit{Partition: p, Principal: t.who.Name, Ops: ops}
}

// items refuses an empty batch and one of too many items.
func (t *translator) items(list string, n int) core.Fact {
	if n == 0 {
		return edge.Invalid(list, "must not be empty")
	}
	if int64(n) > t.l.FrameItems {
		return edge.TooLarge(list, "frame_items", t.l.FrameItems)
	}
	return nil
}

// answer gives each task its result. An error is the whole batch's: it was one commit, and was refused.
func (b *creating) answer(a *answers, results []core.Result) ([]*pb.CreateResult, error) {
	if b.atomic {
		r := results[0]
		if r.Refusal != nil {
			return nil, edge.Refused(r.Refusal, 0)
		}
		for i := range b.results {
			b.results[i] = createResult(r.Ops[i], r.Replayed)
		}
		return b.results, nil
	}
	next := 0
	for i := range b.results {
		if b.results[i] != nil {
			continue
		}
		r := results[next]
		if r.Refusal != nil {
			create := b.commits[next].Ops[0].(*core.TaskCreate) // creates puts no other op
			// The item has but one op, so the fact alone says all.
			b.results[i] = &pb.CreateResult{Id: create.ID.String(), Error: a.err(r.Refusal.Fact)}
		} else {
			b.results[i] = createResult(r.Ops[0], r.Replayed)
		}
		next++
	}
	return b.results, nil
}

func createResult(r core.OpResult, replayed bool) *pb.CreateResult {
	return &pb.CreateResult{
		Id: r.Task.String(), Replayed: r.Replayed || replayed, PayloadMatches: r.PayloadMatches,
	}
}

// settling is a batch of settles on its way, as creating.
type settling struct {
	commits []core.Commit
	holds   []core.TaskHold // one per commit
	results []*pb.SettleResult
}

// settles reads a batch of settles. Each is a commit of its own; one that cannot be used is refused alone.
func (t *translator) settles(a *answers, in []*pb.SettleItem) (*settling, core.Fact) {
	if fact := t.items("items", len(in)); fact != nil {
		return nil, fact
	}
	b := &settling{
		commits: make([]core.Commit, 0, len(in)), holds: make([]core.TaskHold, 0, len(in)),
		results: make([]*pb.SettleResult, len(in)),
	}
	for i, it := range in {
		c, h, fact := t.settle(it)
		if fact != nil {
			b.results[i] = &pb.SettleResult{Error: a.err(edge.Within(edge.Item("items", i), fact))}
			continue
		}
		b.commits, b.holds = append(b.commits, c), append(b.holds, h)
	}
	return b, nil
}

// settle reads one settle: the end of the attempt first, then the effects.
func (t *translator) settle(in *pb.SettleItem) (c core.Commit, h core.TaskHold, fact core.Fact) {
	if h, fact = hold("id", "token", in.GetId(), in.GetToken()); fact != nil {
		return c, h, fact
	}
	effects := in.GetEffects()
	ops := make([]core.Op, 1, 1+len(effects.GetOps()))
	switch o := in.GetOutcome().(type) {
	case *pb.SettleItem_Complete:
		ops[0], fact = asOp(t.complete(h, o.Complete))
	case *pb.SettleItem_Fail:
		ops[0], fact = asOp(t.fail(h, o.Fail))
	case *pb.SettleItem_Snooze:
		ops[0], fact = asOp(t.snooze(h, o.Snooze))
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

func (t *translator) effects(c *core.Commit, ends core.TaskHold, in *pb.Effects) (fact core.Fact) {
	if most := t.l.CommitOps - 1; int64(len(in.GetConditions())+len(in.GetOps())) > most { // the completion is an op too
		return edge.TooLarge("effects.ops", "commit_ops", most)
	}
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
	if fact = t.encoded(c); fact != nil {
		return edge.Within("effects", fact)
	}
	if t.edge.s == nil { // of a test, without rates
		return nil
	}
	return t.edge.s.rated(c, t.several() && !t.bound)
}

// answer gives each settle its result.
func (b *settling) answer(a *answers, results []core.Result) []*pb.SettleResult {
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

func (a *answers) settleResult(r core.Result) *pb.SettleResult {
	out := &pb.SettleResult{Replayed: r.Replayed, FailedInstead: r.FailedInstead}
	if r.Refusal != nil {
		out.Error = a.err(edge.Refused(r.Refusal, 1))
	}
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
func (a *answers) opResults(in []core.OpResult) []*pb.OpResult {
	if len(in) == 0 {
		return nil
	}
	out := make([]*pb.OpResult, len(in))
	for i, r := range in {
		o := &pb.OpResult{
			Replayed: r.Replayed, PayloadMatches: r.PayloadMatches, State: pb.State(r.State), Rev: r.Rev, Existed: r.Existed,
		}
		if r.KV != nil {
			o.Sum, o.Count = r.KV.Number, r.KV.Count
		}
		if r.Kind == core.OpTaskCreate {
			o.Task = r.Task.String()
		}
		if r.Kind == core.OpVectorUpsert {
			o.Rev, o.PointVersion = 0, edge.ShowVersion(uint16(r.Version), r.Rev)
		}
		o.Refs = showMoved(r.Refs)
		if len(r.Prev) <= a.budget {
			o.Prev = r.Prev
			a.budget -= len(r.Prev)
		}
		out[i] = o
	}
	return out
}

// commitResponse answers one commit.
func (a *answers) commitResponse(r core.Result, at core.At) (*pb.CommitResponse, error) {
	if r.Refusal != nil {
		return nil, edge.Refused(r.Refusal, 0)
	}
	return &pb.CommitResponse{Results: a.opResults(r.Ops), Replayed: r.Replayed, At: ShowAt(atOf(r, at))}, nil
}

// heartbeats answers the renewals of some commits, in order. shift is what wall clocks show beyond shard time.
func heartbeats(results []core.Result, shift core.Millis) []*pb.HeartbeatResult {
	var out []*pb.HeartbeatResult
	for _, r := range results {
		for _, op := range r.Ops {
			for _, n := range op.Renewed {
				h := &pb.HeartbeatResult{Lost: n.Lost, Cancel: n.Cancel}
				if !n.Lost {
					h.LeaseUntil = timeOf(n.Until.Add(shift))
				}
				out = append(out, h)
			}
		}
	}
	return out
}
