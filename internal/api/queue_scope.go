package api

import (
	"context"
	"errors"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file holds callers to the queues that their tokens' patterns name (decision 0039). What names a queue is judged by that name,
// before anything is looked up, and refused as Denied. What names a task is judged by the queue of the task, which a task never changes:
// the edge reads it, and a task of another queue is answered like one that is not there.

// deniedQueue refuses what is about a queue that the caller's token does not reach; no name: about all of them.
func deniedQueue(name string) core.Fact {
	if name == "" {
		return core.Denied{Scope: "for all queues"}
	}
	return core.Denied{Scope: "for queue " + name}
}

// reachesQueue refuses a caller whose token does not reach a queue; no name stands for all of them.
func (s *Server) reachesQueue(ctx context.Context, name string) core.Fact {
	who, ok := edge.CallerOf(ctx)
	switch {
	case !ok:
		return core.Unauthenticated{}
	case !who.ReachesQueue(name):
		return deniedQueue(name)
	}
	return nil
}

// Hears refuses a caller to whom the rows of a topic are not to be told. kind and name are those of the topic; name is empty where it
// is about all queues. A task, a job and a batch of another queue are answered as if they were not there.
func (s *Server) Hears(ctx context.Context, kind, name string) error {
	who, ok := edge.CallerOf(ctx)
	if kind == "cluster" { // it is of no queue
		if !who.Scopes.Has(auth.Cluster) {
			return core.Denied{Scope: auth.Cluster.String()}
		}
		return nil
	}
	if ok && who.AllQueues() {
		return nil
	}
	var err error
	switch kind {
	case "task":
		_, _, err = s.Tasks().one(ctx, name)
	case "bulk":
		_, err = s.Bulk().Get(ctx, &pb.GetBulkRequest{Id: name})
	case "batch":
		_, err = s.Batches().Get(ctx, &pb.GetBatchRequest{Id: name})
	default: // other topics are about the queue that they name, or about all
		if fact := s.reachesQueue(ctx, name); fact != nil {
			return fact
		}
	}
	return err
}

// ReachesQueues is reachesQueue for the queues of a claim or subscription.
func ReachesQueues(who *edge.Caller, queues []core.GrantQueue) core.Fact {
	for i := range queues {
		if !who.ReachesQueue(queues[i].Name) {
			return deniedQueue(queues[i].Name)
		}
	}
	return nil
}

// reachesQueue is Server.reachesQueue for a queue that a message names.
func (t *Translator) reachesQueue(name string) core.Fact {
	if t.who.ReachesQueue(name) {
		return nil
	}
	return deniedQueue(name)
}

// queueLooks is how the queues of tasks were looked up for one request, whose tasks may be many.
type queueLooks struct {
	// fresh are the partitions whose newest state was asked for: a task that is not there now was not there when the request came.
	fresh map[core.Partition]bool
	// failed is why a look-up failed; the others are not tried then.
	failed core.Fact
}

// ReachesTask refuses a caller whose token does not reach the queue of a task, as if there were no such task.
func (t *Translator) ReachesTask(id core.TaskID) core.Fact {
	if t.who.AllQueues() {
		return nil
	}
	if t.queues.failed != nil {
		return t.queues.failed
	}
	// Not the caller's context: translation has none. The time is short.
	ctx, cancel := context.WithTimeout(t.edge.ctx, lookupWait)
	defer cancel()
	err := t.findTask(ctx, id)
	if err == nil {
		return nil
	}
	fact, ok := errors.AsType[core.Fact](edge.FactOf(err, false))
	if !ok {
		fact = core.Unavailable{Reason: "store"}
	}
	if !edge.Is[core.NotFound](fact) {
		t.queues.failed = fact
	}
	return fact
}

// findTask is ReachesTask within the time of ctx.
func (t *Translator) findTask(ctx context.Context, id core.TaskID) error {
	unknown := core.NotFound{Kind: "task", ID: id.String()}
	p, ok := t.partOf(id)
	if !ok || t.space == "" { // the namespace is not there
		return unknown
	}
	// What this node has is enough where it has the task at all. For one that it has not heard of the newest state is asked for, once.
	task, _, _, err := t.edge.s.node.tasks.TaskUpTo(ctx, p, id, core.ContentSize{}, core.ReadOptions{Stale: true})
	if edge.Is[core.NotFound](err) && !t.queues.fresh[p] {
		task, _, _, err = t.edge.s.node.tasks.TaskUpTo(ctx, p, id, core.ContentSize{}, core.ReadOptions{})
		if err == nil || edge.Is[core.NotFound](err) {
			t.queues.isFresh(p)
		}
	}
	switch {
	case edge.Is[core.NotFound](err):
		return unknown
	case err != nil:
		return err
	case !t.who.ReachesQueue(task.Queue):
		return unknown
	}
	return nil
}

// isFresh notes that the newest state of a partition was asked for.
func (l *queueLooks) isFresh(p core.Partition) {
	if l.fresh == nil {
		l.fresh = make(map[core.Partition]bool)
	}
	l.fresh[p] = true
}

// reachesOp refuses an op about a queue, or a task of a queue, that the caller's token does not reach. An op that says neither is
// refused to a token that does not reach all queues.
func (t *Translator) reachesOp(op core.Op) core.Fact {
	if op.Kind().Service() != core.ServiceQueue || t.who.AllQueues() {
		return nil
	}
	switch op := op.(type) {
	case *core.TaskCreate:
		return t.reachesQueue(op.Queue)
	case *core.QueuePause:
		return t.reachesQueue(op.Queue)
	case *core.BatchOpen, *core.BatchSeal, *core.BatchCancel:
		return t.reachesBatchOp(op)
	}
	if id, ok := core.TaskOf(op); ok {
		return t.ReachesTask(id)
	}
	return deniedQueue("")
}

// Reached divides leases into those of tasks that the caller's token reaches and those, by their places, of tasks that it does not: to
// the caller they are lost. An error of the look-up is that of the whole.
func (t *Translator) Reached(holds []core.TaskHold) (reached []core.TaskHold, lost []int, fact core.Fact) {
	if t.who.AllQueues() {
		return holds, nil, nil
	}
	for i, h := range holds {
		fact := t.ReachesTask(h.Task)
		switch {
		case fact == nil:
			reached = append(reached, h)
		case edge.Is[core.NotFound](fact):
			lost = append(lost, i)
		default:
			return nil, nil, fact
		}
	}
	return reached, lost, nil
}

// WithLost adds the answers of leases that are lost, by their places, to those of the others.
func WithLost(others []*pb.HeartbeatResult, lost []int) []*pb.HeartbeatResult {
	if len(lost) == 0 {
		return others
	}
	out := make([]*pb.HeartbeatResult, 0, len(others)+len(lost))
	for len(others)+len(lost) > 0 {
		if len(lost) > 0 && lost[0] == len(out) || len(others) == 0 {
			out, lost = append(out, &pb.HeartbeatResult{Lost: true}), lost[1:]
			continue
		}
		out, others = append(out, others[0]), others[1:]
	}
	return out
}

// reachedQueues reads a page of the queues that the caller's token reaches, by name. What lies between them is passed over, so that
// neither a page nor its cursor names another queue.
func (c *call) reachedQueues(ctx context.Context, after string, limit int, o core.ReadOptions) (page []core.QueueStats, at core.At, err error) {
	if c.who.AllQueues() {
		return c.queues(ctx, after, limit, o)
	}
	for {
		some, one, err := c.queues(ctx, after, max(limit, ListDefault), o)
		if err != nil {
			return nil, at, err
		}
		if at.Stamp == 0 {
			at = one // the oldest part of the answer
		}
		for i := range some {
			if !c.who.ReachesQueue(some[i].Queue) {
				continue
			}
			if page = append(page, some[i]); len(page) == limit {
				return page, at, nil
			}
		}
		if len(some) < max(limit, ListDefault) {
			return page, at, nil
		}
		after = some[len(some)-1].Queue
	}
}

// reachesWorker reports whether the caller's token reaches all queues that a worker takes tasks of. Of one that only has leases no
// queue is known.
func (c *call) reachesWorker(w *core.Worker) bool {
	if c.who.AllQueues() {
		return true
	}
	for _, queue := range w.Queues {
		if !c.who.ReachesQueue(queue) {
			return false
		}
	}
	return len(w.Queues) > 0
}

// reachesEffect reports whether the caller's token reaches the queue, or the task, that an effect is about. The list of effects was
// waited for, so what this node has is new enough.
func (c *call) reachesEffect(ctx context.Context, e *core.Effect) bool {
	if c.who.AllQueues() || e.Op.Service() != core.ServiceQueue {
		return true
	}
	if e.Space != "" {
		return c.who.ReachesQueue(e.Space)
	}
	id, err := core.ParseTaskID(string(e.Key))
	if err != nil {
		return false
	}
	switch e.Op {
	case core.OpBatchOpen, core.OpBatchSeal, core.OpBatchCancel:
		return c.t.findBatch(ctx, id) == nil
	}
	return c.t.findTask(ctx, id) == nil
}

// reachesAs reports whether the caller's token reaches all workers of a list that have an id, wherever they run, and at least one where
// it does not reach all queues: of a worker that is not in the list no queue is known.
func (c *call) reachesAs(list []core.Worker, id string) bool {
	found := false
	for i := range list {
		if list[i].ID != id {
			continue
		}
		if found = true; !c.reachesWorker(&list[i]) {
			return false
		}
	}
	return found || c.who.AllQueues()
}
