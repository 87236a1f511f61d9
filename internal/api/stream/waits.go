package stream

import (
	"context"
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// waits are the tasks of which the client wants to know the end. The stream's mutex guards it.
type waits struct {
	// cancel ends the wait for a task. A task that the client was told of is not here any more.
	cancel map[core.TaskID]context.CancelFunc
	// turn holds one word while a task is read and queued: results are large, so they are read one after the other, as they can be sent.
	turn chan struct{}
}

// wait starts to wait for the end of tasks, and forgets others. The ack says of each task whether it is waited for; it goes out before
// the first Ended.
func (st *stream) wait(p *pending, in *pb.WaitsFrame) core.Fact {
	l := &st.d.Limits
	if len(in.GetIds()) == 0 && len(in.GetForget()) == 0 {
		return edge.Invalid("ids", "is required, or forget")
	}
	switch {
	case int64(len(in.GetIds())) > l.FrameItems:
		return edge.TooLarge("ids", "frame_items", l.FrameItems)
	case int64(len(in.GetForget())) > l.FrameItems:
		return edge.TooLarge("forget", "frame_items", l.FrameItems)
	}
	forget := make([]core.TaskID, len(in.GetForget()))
	for i, s := range in.GetForget() {
		id, fact := api.ReadTaskID(edge.Item("forget", i), s)
		if fact != nil {
			return fact
		}
		forget[i] = id
	}
	t := st.translator(p)
	facts := make([]core.Fact, len(in.GetIds()))
	begun := make([]begunWait, 0, len(facts))
	st.forget(forget)
	for i, s := range in.GetIds() {
		id, fact := api.ReadTaskID(edge.Item("ids", i), s)
		switch {
		case fact != nil:
		case !st.home.hasTask(id):
			fact = edge.Belongs(edge.Item("ids", i), int(id.Partition()))
		default:
			fact = t.ReachesTask(id)
		}
		if fact == nil {
			var w begunWait
			if w, fact = st.beginWait(id); w.ctx != nil {
				begun = append(begun, w)
			}
		}
		facts[i] = fact
	}
	p.answer = func(ack *pb.Ack, _ core.Proposed) {
		ack.Waits = make([]*pb.WaitsResult, len(facts))
		for i, fact := range facts {
			ack.Waits[i] = &pb.WaitsResult{}
			if fact != nil {
				ack.Waits[i].Error = p.answers.Err(fact)
			}
		}
	}
	st.done(p, core.Proposed{})
	for _, w := range begun {
		st.d.Work.Add(1)
		go func() {
			defer st.d.Work.Done()
			defer st.recovered()
			st.awaitEnd(w, p.answers)
		}()
	}
	return nil
}

// begunWait is a wait for the end of one task. ctx ends with the stream, or when the client wants to be told nothing more.
type begunWait struct {
	ctx context.Context
	id  core.TaskID
}

// beginWait notes that the stream waits for a task. Without a context in what it returns the stream does so already.
func (st *stream) beginWait(id core.TaskID) (w begunWait, fact core.Fact) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.waits.cancel == nil {
		st.waits.cancel = make(map[core.TaskID]context.CancelFunc)
		st.waits.turn = make(chan struct{}, 1)
	}
	if st.waits.cancel[id] != nil {
		return w, nil
	}
	if most := st.d.Limits.StreamWaits; int64(len(st.waits.cancel)) >= most {
		return w, core.Exhausted{Limit: "stream_waits", Max: most}
	}
	w.id = id
	w.ctx, st.waits.cancel[id] = context.WithCancel(st.ss.Context())
	return w, nil
}

// forget ends waits that the client needs no more.
func (st *stream) forget(ids []core.TaskID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range ids {
		if cancel := st.waits.cancel[id]; cancel != nil {
			cancel()
			delete(st.waits.cancel, id)
		}
	}
}

// awaitEnd waits for the end of a task and queues the frame that tells of it. A wait that was forgotten, or whose stream is over, tells
// nothing.
func (st *stream) awaitEnd(w begunWait, answers *api.Answers) {
	err := st.d.backend.WaitEnd(w.ctx, st.home.Partition, w.id)
	select {
	case st.waits.turn <- struct{}{}:
	case <-w.ctx.Done():
		return
	}
	defer func() { <-st.waits.turn }()
	if !st.awaitSending() || w.ctx.Err() != nil {
		return
	}
	out := &pb.Ended{Id: w.id.String()}
	bytes := frameBytes
	if err == nil {
		var task core.Task
		var at core.At
		// The end was seen here, so what this node has is enough.
		task, _, at, err = st.d.backend.TaskUpTo(w.ctx, st.home.Partition, w.id, core.ContentSize{Result: math.MaxInt}, core.ReadOptions{Stale: true})
		if err == nil {
			out.Task, out.At = api.ShowTask(&task), api.ShowAt(at)
			bytes += api.TaskBytes(&task)
		}
	}
	if err != nil {
		out.Error = answers.Err(edge.FactOf(err, false))
	}
	// It is forgotten first: a client that was told may ask again.
	st.mu.Lock()
	cancel := st.waits.cancel[w.id]
	if cancel == nil || w.ctx.Err() != nil {
		st.mu.Unlock()
		return
	}
	delete(st.waits.cancel, w.id)
	st.mu.Unlock()
	st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Ended{Ended: out}}, bytes: int64(bytes)})
	cancel()
}
