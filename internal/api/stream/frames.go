package stream

import (
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// create proposes a frame of creates, which the long way reads: a commit for each task, or one of all when it is atomic.
func (st *stream) create(p *pending, in *pb.CreateFrame) core.Fact {
	t := st.translator(p)
	b, fact := t.Creates(p.answers, in.GetTasks(), in.GetAtomic())
	if fact != nil {
		return fact
	}
	if fact := st.d.RatedCreates(st.home.Partition, b.Tasks(), false); fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		created, err := b.Answer(p.answers, d.Results)
		if err != nil {
			ack.Error = p.answers.Err(err)
			return
		}
		ack.Created = created
	}
	st.propose(p, b.Commits)
	return nil
}

// commit proposes a frame that holds one commit. One that has a number in its session waits for its rate, because those behind it
// count on it; one that has none is refused instead.
func (st *stream) commit(p *pending, in *pb.CommitFrame) core.Fact {
	t := st.translator(p)
	c, fact := t.Commit(in.GetCommit())
	if fact != nil {
		return fact
	}
	if in.GetCommitSeq() != 0 {
		if c.RequestID != (core.RequestID{}) {
			return edge.Invalid("commit_seq", "and a request id are mutually exclusive")
		}
		c.Session, c.Seq = st.key.id, in.GetCommitSeq()
		st.awaitRate(c.Ops)
	} else if fact := st.d.Rated(&c, false); fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		out, err := p.answers.CommitResponse(d.Results[0], d.At)
		if err != nil {
			ack.Error = p.answers.Err(err)
			return
		}
		ack.Commit, ack.At = out, out.GetAt()
	}
	st.propose(p, []core.Commit{c})
	return nil
}

// settle proposes a frame of settles, which the long way reads: a commit for each, with its effects.
func (st *stream) settle(p *pending, in *pb.SettleFrame) core.Fact {
	t := st.translator(p)
	b, fact := t.Settles(p.answers, in.GetItems())
	if fact != nil {
		return fact
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) { ack.Settled = b.Answer(p.answers, d.Results) }
	st.proposeSettles(p, b)
	return nil
}

// proposeSettles is propose for settles. They go by the session, which frees the slots of the tasks as soon as they are applied.
func (st *stream) proposeSettles(p *pending, b *api.Settling) {
	if p.commits = len(b.Commits); p.commits == 0 {
		st.done(p, core.Proposed{})
		return
	}
	st.handOver(p, func(done func(core.Proposed)) { st.session.Settle(st.home.Partition, b.Commits, b.Holds, done) })
}

// renew proposes that leases go on: those that the frame names, or all that the session holds. There can be more of those than one
// commit may have items.
func (st *stream) renew(p *pending, in *pb.RenewFrame) core.Fact {
	l := &st.d.Limits
	extend, fact := api.Millis("extend", in.GetExtend(), api.LeaseSpan(l))
	if fact != nil {
		return fact
	}
	var holds []core.TaskHold
	if in.GetAll() {
		if len(in.GetItems()) > 0 {
			return edge.Invalid("items", "and all are mutually exclusive")
		}
		holds = st.session.Held()
	} else {
		if fact := api.Items(l, "items", len(in.GetItems())); fact != nil {
			return fact
		}
		if holds, fact = api.Holds("items", in.GetItems()); fact != nil {
			return fact
		}
		for i, h := range holds {
			if place := int(h.Task.Partition()); place < st.home.Of && !st.home.hasTask(h.Task) { // its lease is not lost, and must not be called so
				return edge.Belongs(edge.Item("items", i)+".id", place)
			}
		}
	}
	t := st.translator(p)
	holds, lost, fact := t.Reached(holds)
	if fact != nil {
		return fact
	}
	// Each commit has as many items as a frame may have: what the log takes at once stays bounded.
	var commits []core.Commit
	for part := range slices.Chunk(holds, int(l.FrameItems)) {
		commits = append(commits, st.commitOf(p, &core.TaskRenew{Items: part, Extend: extend}))
	}
	p.answer = func(ack *pb.Ack, d core.Proposed) {
		for _, r := range d.Results { // one refusal stands for the whole frame: the client asks again for all
			if r.Refusal != nil {
				ack.Error = p.answers.Err(r.Refusal.Fact)
				return
			}
		}
		ack.Renewed = api.WithLost(api.Heartbeats(d.Results, st.d.backend.Shift(st.home.Partition)), lost)
	}
	st.propose(p, commits)
	return nil
}

// subscribe adds a subscription or replaces the one that has its number. It is acknowledged by nothing but tasks.
func (st *stream) subscribe(in *pb.Subscribe) core.Fact {
	l := &st.d.Limits
	queues, fact := st.d.GrantQueues(in.GetQueues(), in.GetStrict())
	if fact == nil {
		fact = api.ReachesQueues(st.who(), queues)
	}
	if fact != nil {
		return fact
	}
	if int64(in.GetSlots()) > l.Slots {
		return edge.Beyond("slots", "slots", l.Slots, "is out of range")
	}
	if int64(in.GetBatch()) > l.ClaimTasks {
		return edge.Beyond("batch", "claim_tasks", l.ClaimTasks, "is out of range")
	}
	lease, fact := api.Millis("lease", in.GetLease(), api.LeaseSpan(l))
	if fact != nil {
		return fact
	}
	if !st.subs[in.GetSub()] && int64(len(st.subs)) >= l.Subscriptions {
		return core.Exhausted{Limit: "subscriptions", Max: l.Subscriptions}
	}
	st.subs[in.GetSub()] = true // for as long as the stream lives: a number is never free again
	batch := in.GetBatch()      // most tasks of one grant; 0 is the limit
	if batch == 0 {
		batch = uint32(l.ClaimTasks)
	}
	st.session.Subscribe(core.Subscription{
		Sub: in.GetSub(), Queues: queues, Strict: in.GetStrict(), Slots: in.GetSlots(), Batch: batch, Lease: lease,
	})
	return nil
}

// slots says how many tasks of a subscription the client takes at once from now on.
func (st *stream) slots(in *pb.Slots) core.Fact {
	if !st.subs[in.GetSub()] {
		return edge.Invalid("sub", "must be a subscription of this stream")
	}
	if int64(in.GetSlots()) > st.d.Limits.Slots {
		return edge.Beyond("slots", "slots", st.d.Limits.Slots, "is out of range")
	}
	st.session.Slots(in.GetSub(), in.GetSlots())
	return nil
}

// auth replaces the stream's token by another of the same tenant.
func (st *stream) auth(in *pb.AuthFrame) core.Fact {
	// The address is that of the connection: a token that is refused is told with it.
	who, fact := st.d.CallerBy(in.GetToken(), st.call.Holder().From)
	if fact != nil {
		return fact
	}
	if !st.call.Renew(who) {
		return core.Unauthenticated{}
	}
	return nil
}
