package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// Effects reads what the completion of a task did besides ending it.
// Keys, refs and points are named, and looked at, where the caller may read them, and tasks and queues where the token reaches them.
func (ts *TaskService) Effects(ctx context.Context, in *pb.EffectsRequest) (*pb.EffectsResponse, error) {
	c, id, err := ts.one(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	e, at, err := ts.tasks.Effects(ctx, c.t.part, id, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, sameTask(err, in.GetId())
	}
	out := &pb.EffectsResponse{
		CommitIndex: e.Index, CompletedAt: TimeOf(e.At), Token: uint64(e.Token), Rev: e.Rev, Count: uint32(e.Count), Checked: uint32(e.Checked), At: ShowAt(at),
	}
	for i := range e.Ops {
		if !c.reachesEffect(ctx, &e.Ops[i]) {
			out.Effects = append(out.Effects, &pb.Effect{Op: e.Ops[i].Op.Name()})
			continue
		}
		one := c.showEffect(&e.Ops[i])
		if one.Now, err = c.now(ctx, &e.Ops[i]); err != nil {
			return nil, err
		}
		out.Effects = append(out.Effects, one)
	}
	for i := range e.Conditions {
		out.Conditions = append(out.Conditions, c.showEffect(&e.Conditions[i]))
	}
	return out, nil
}

// one begins a call about one task.
func (ts *TaskService) one(ctx context.Context, s string) (*call, core.TaskID, error) {
	id, fact := ReadTaskID("id", s)
	if fact != nil {
		return nil, id, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return nil, id, noTask(err, s)
	}
	if err := c.goTo(ctx, id); err != nil {
		return nil, id, sameTask(err, s)
	}
	return c, id, nil
}

// reads reports whether the caller may read what an op of a kind is about.
func (c *call) reads(kind core.OpKind) bool {
	switch kind.Service() {
	case core.ServiceKV:
		return c.who.Scopes.Has(auth.KVRead)
	case core.ServiceRefs, core.ServiceInTxn:
		return c.who.Scopes.Has(auth.RefRead)
	case core.ServiceSearch:
		return c.who.Scopes.Has(auth.SearchRead)
	}
	return true
}

// showEffect shows an effect, without its key where the caller may not read it.
func (c *call) showEffect(e *core.Effect) *pb.Effect {
	out := &pb.Effect{Op: e.Op.Name(), Space: e.Space, Rev: e.Rev, Cut: e.Long}
	if c.reads(e.Op) {
		out.Key, out.To = e.Key, e.To
	}
	return out
}

// now tells whether an effect still stands.
func (c *call) now(ctx context.Context, e *core.Effect) (pb.Effect_Now, error) {
	if e.Long || !c.reads(e.Op) {
		return pb.Effect_UNKNOWN, nil
	}
	o := core.ReadOptions{Stale: true} // what the read of the list waited for is there
	if e.Op.Has(core.OpWritesOne) {
		return c.writtenNow(ctx, e, o)
	}
	switch e.Op {
	case core.OpTaskCreate:
		id, err := core.ParseTaskID(string(e.Key))
		if err != nil {
			return pb.Effect_UNKNOWN, nil
		}
		_, _, err = c.s.node.tasks.Task(ctx, c.t.part, id, o)
		return stands(err == nil, true), ignoreNotFound(err)
	case core.OpRefCreate, core.OpRefUpdate, core.OpRefDelete, core.OpSymrefCreate, core.OpSymrefUpdate, core.OpSymrefDelete:
		return c.refNow(ctx, e, o)
	}
	return pb.Effect_UNKNOWN, nil
}

// writtenNow is now for an op that wrote one key, or one point.
func (c *call) writtenNow(ctx context.Context, e *core.Effect, o core.ReadOptions) (pb.Effect_Now, error) {
	var now uint64 // its revision, or its version; 0: it is not there
	var err error
	if e.Op.Service() == core.ServiceKV {
		var read core.KeyRead
		read, _, err = c.s.node.keys.Key(ctx, c.t.part, e.Space, e.Key, o)
		now = read.Rev
	} else {
		var points []core.StoredPoint
		points, _, err = c.s.node.search.Points(ctx, c.t.part, e.Space, []string{string(e.Key)}, o)
		if len(points) > 0 {
			now = points[0].Version
		}
	}
	if e.Op == core.OpKVDelete || e.Op == core.OpVectorDelete {
		return absent(now == 0), ignoreNotFound(err)
	}
	return stands(now != 0, now == e.Rev), ignoreNotFound(err)
}

// refNow is now for a change of a ref. A ref that is hidden from the caller is not looked at.
func (c *call) refNow(ctx context.Context, e *core.Effect, o core.ReadOptions) (pb.Effect_Now, error) {
	if c.s.o.Refs == nil {
		return pb.Effect_UNKNOWN, nil
	}
	name := string(e.Key)
	info, refs, _, err := c.s.o.Refs.Refs(ctx, c.t.part, e.Space, []string{name}, false, o)
	if err != nil {
		return pb.Effect_GONE, nil // the repository is not there any more
	}
	if !c.refAdmin() && c.s.o.Refs.RefHidden(&info, name) {
		return pb.Effect_UNKNOWN, nil
	}
	there := refs[0].Name != ""
	if e.To == "" {
		return absent(!there), nil
	}
	return stands(there, there && (refs[0].ID.String() == e.To || refs[0].Target == e.To)), nil
}

// stands is what stands where something was written.
func stands(there, same bool) pb.Effect_Now {
	switch {
	case !there:
		return pb.Effect_GONE
	case same:
		return pb.Effect_CURRENT
	}
	return pb.Effect_CHANGED
}

// absent is what stands where something was removed.
func absent(still bool) pb.Effect_Now {
	if still {
		return pb.Effect_CURRENT
	}
	return pb.Effect_CHANGED
}

// Why says why a task is where it is.
// Where no node leads its partition, it is read as this node has it.
func (ts *TaskService) Why(ctx context.Context, in *pb.WhyRequest) (*pb.WhyResponse, error) {
	c, id, err := ts.one(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	_, here, led := ts.s.node.places.Leader(c.t.part)
	w, at, err := ts.tasks.Why(ctx, c.t.part, id, core.ReadOptions{Stale: !led})
	if err != nil {
		return nil, sameTask(err, in.GetId())
	}
	// What holds a task up most comes first: a partition without leader, a pause, workers.
	var first []core.WhyReason
	switch {
	case w.State.Terminal():
	case !led:
		first = append(first, core.WhyReason{Code: core.WhyUnled, Object: strconv.Itoa(int(c.t.part.Index))})
	case w.State == core.Ready:
		for len(w.Reasons) > 0 && w.Reasons[0].Code == core.WhyPaused {
			first, w.Reasons = append(first, w.Reasons[0]), w.Reasons[1:]
		}
		first = append(first, c.takers(ctx, &w)...)
	case w.State == core.Running && here:
		if st := ts.s.node.self.Status(); st.DiskFull {
			w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyDiskFull, Object: st.Node})
		}
	}
	w.Reasons = append(first, w.Reasons...)
	out := &pb.WhyResponse{
		Queue: w.Queue, State: pb.State(w.State), Since: TimeOf(w.Since), Ahead: w.Ahead, Exact: w.Exact, At: ShowAt(at),
	}
	for i := range w.Reasons {
		r := &w.Reasons[i]
		held := r.HeldBy
		if len(r.Holders) == len(held) { // of queues that the token may not reach
			held = nil
			for i, queue := range r.Holders {
				if c.who.ReachesQueue(queue) {
					held = append(held, r.HeldBy[i])
				}
			}
		}
		out.Reasons = append(out.Reasons, &pb.WhyReason{
			Code: r.Code, Text: whyText(&w, r), Object: r.Object, Note: r.Note, Until: TimeOf(r.Until), Limit: r.Limit, HeldBy: held,
		})
	}
	return out, nil
}

// takers says what keeps workers from a ready task: there are none, or none with a handler for its kind, or all their slots are in
// use. Nothing is said where a leader did not tell of its workers.
func (c *call) takers(ctx context.Context, w *core.Why) []core.WhyReason {
	list, partial := c.s.o.Backend.Workers(ctx, c.partitions)
	if partial {
		return nil
	}
	list = slices.DeleteFunc(list, func(one core.Worker) bool { return !slices.Contains(one.Queues, w.Queue) })
	names := func(list []core.Worker) (names []string) {
		for i := range list[:min(len(list), core.MaxHolders)] {
			names = append(names, list[i].ID)
		}
		return names
	}
	awake := slices.DeleteFunc(slices.Clone(list), func(one core.Worker) bool { return one.Quiet })
	if len(awake) == 0 {
		return []core.WhyReason{{Code: core.WhyNoWorker, Object: w.Queue, HeldBy: names(list)}}
	}
	able := slices.DeleteFunc(slices.Clone(awake), func(one core.Worker) bool { return !one.Handles(w.Kind) })
	if len(able) == 0 {
		return []core.WhyReason{{Code: core.WhyNoHandler, Object: w.Kind, HeldBy: names(awake)}}
	}
	slots := 0
	for i := range able {
		// A caller of claims has no slots of its own: it may claim again while it runs others.
		if len(able[i].Sessions) == 0 || able[i].Running < able[i].Slots {
			return nil
		}
		slots += able[i].Slots
	}
	return []core.WhyReason{{Code: core.WhyNoSlot, Object: w.Queue, Limit: uint64(slots), HeldBy: names(able)}}
}

// limitText says in words which limit holds a task up.
func limitText(w *core.Why, r *core.WhyReason) string {
	switch r.Code {
	case core.WhyLaneLimit:
		return fmt.Sprintf("As many tasks of %s run as may: %d.", strings.ToLower(keyText(r.Object)[:1])+keyText(r.Object)[1:], r.Limit)
	case core.WhyQueueLimit:
		return fmt.Sprintf("As many tasks of queue %q run as may: %d.", w.Queue, r.Limit)
	case core.WhyMaxWorkers:
		return fmt.Sprintf("As many workers have tasks of queue %q as may: %d.", w.Queue, r.Limit)
	case core.WhyTenant:
		return fmt.Sprintf("As many tasks of the tenant run as may: %d.", r.Limit)
	case core.WhyOrder:
		return "A task of its key that goes before it has not ended."
	case core.WhyLimiter:
		if r.Until != 0 {
			return fmt.Sprintf("As much began lately under limiter %q as its rate lets.", r.Object)
		}
		return fmt.Sprintf("As much runs under limiter %q as may: %d.", r.Object, r.Limit)
	}
	if r.Object != w.Queue {
		return fmt.Sprintf("%s began as much lately as its rate lets it.", keyText(r.Object))
	}
	return fmt.Sprintf("Queue %q began as much lately as its rate lets it.", w.Queue)
}

// keyText names a key in a sentence; the empty one stands for the tasks without a key.
func keyText(key string) string {
	if key == "" {
		return "The line of tasks without a key"
	}
	return fmt.Sprintf("Key %q", key)
}

// whyText says a reason in words.
func whyText(w *core.Why, r *core.WhyReason) string {
	switch r.Code {
	case core.WhyEnded:
		return fmt.Sprintf("The task is %s.", w.State)
	case core.WhyRunning:
		return fmt.Sprintf("Worker %q holds the task until its lease ends.", r.Object)
	case core.WhyStopping:
		return "Its worker was asked to stop."
	case core.WhyAfter:
		if r.Object != "" {
			return fmt.Sprintf("It waits for task %s, which %s.", r.Object, r.Note)
		}
		if r.Limit == 1 {
			return "It waits for another task to end."
		}
		return fmt.Sprintf("It waits for %d tasks to end.", r.Limit)
	case core.WhyDelay:
		return "Its time has not come."
	case core.WhyRetry:
		return "The last attempt failed, and the wait before the next one is not over."
	case core.WhySnooze:
		return "Its worker put it off."
	case core.WhyNoWorker:
		if len(r.HeldBy) > 0 {
			return fmt.Sprintf("All workers that take tasks of queue %q are quiet.", w.Queue)
		}
		return fmt.Sprintf("No worker takes tasks of queue %q.", w.Queue)
	case core.WhyNoHandler:
		return fmt.Sprintf("No worker of queue %q has a handler for kind %q.", w.Queue, w.Kind)
	case core.WhyNoSlot:
		return fmt.Sprintf("All slots of the workers of queue %q are in use.", w.Queue)
	case core.WhyUnled:
		return fmt.Sprintf("No node leads partition %s: nothing of it changes.", r.Object)
	case core.WhyDiskFull:
		return fmt.Sprintf("Node %s has no room on its disk: a report of its worker, or a completion that writes anything else, is refused.", r.Object)
	case core.WhyLaneLimit, core.WhyQueueLimit, core.WhyRate, core.WhyMaxWorkers, core.WhyLimiter, core.WhyTenant, core.WhyOrder:
		return limitText(w, r)
	case core.WhyPaused:
		if r.Object != w.Queue {
			return fmt.Sprintf("%s is paused: its tasks are not given out.", keyText(r.Object))
		}
		return fmt.Sprintf("Queue %q is paused and gives out no tasks.", w.Queue)
	case core.WhyBehind:
		if !w.Exact {
			return fmt.Sprintf("More than %d tasks of queue %q go before it.", w.Ahead, w.Queue)
		}
		if w.Ahead == 1 {
			return fmt.Sprintf("1 task of queue %q goes before it.", w.Queue)
		}
		return fmt.Sprintf("%d tasks of queue %q go before it.", w.Ahead, w.Queue)
	case core.WhyNext:
		return fmt.Sprintf("It is the next task of queue %q: it waits for a worker that asks for one.", w.Queue)
	}
	return ""
}
