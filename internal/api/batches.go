package api

import (
	"context"
	"encoding/binary"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// batchPageBytes is how many bytes of follow-ups a page of batches has about.
const batchPageBytes = 4 << 20

// BatchService counts tasks together. A batch lives in the partition that its id names, and so do its tasks.
//
// A token that is limited to queues reaches a batch that was opened under its name, and one that has follow-ups if it reaches the queues
// of all of them. Another one is not there.
type BatchService struct {
	pb.UnimplementedBatchServiceServer
	s     *Server
	batch BatchBackend
}

// Batches is the service of batches.
func (s *Server) Batches() *BatchService { return &BatchService{s: s, batch: s.node.batches} }

// beginBatch begins a call about a batch, in its partition.
func (bs *BatchService) beginBatch(ctx context.Context, s string) (*call, core.TaskID, error) {
	id, fact := ReadTaskID("id", s)
	if fact != nil {
		return nil, id, fact
	}
	unknown := core.NotFound{Kind: "batch", ID: s}
	c, err := bs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, id, unknown
	}
	if err != nil {
		return nil, id, err
	}
	p, ok := c.t.partOf(id)
	if !ok {
		return nil, id, unknown
	}
	c.t.part = p
	if !c.who.AllQueues() {
		if err := c.t.findBatch(ctx, id); err != nil {
			return nil, id, err
		}
	}
	return c, id, nil
}

// reachesBatch reports whether the caller's token reaches a batch.
func (t *Translator) reachesBatch(b *core.Batch) bool {
	if t.who.AllQueues() || b.By != "" && b.By == t.who.Name {
		return true
	}
	if b.OnDone == nil && b.OnSuccess == nil {
		return false
	}
	for _, follow := range [...]*core.TaskCreate{b.OnDone, b.OnSuccess} {
		if follow != nil && !t.who.ReachesQueue(follow.Queue) {
			return false
		}
	}
	return true
}

// addTo reads the batch that a new task is added to.
func (t *Translator) addTo(op *core.TaskCreate, s string) (fact core.Fact) {
	if fact = t.shared("batch"); fact != nil {
		return fact
	}
	if op.Batch, fact = ReadTaskID("batch", s); fact != nil {
		return fact
	}
	if int(op.Batch.Partition()) >= max(t.parts, 1) {
		return core.NotFound{Kind: "batch", ID: s} // the namespace has no such partition
	}
	if t.who.AllQueues() {
		return nil
	}
	return t.findBatchSoon(op.Batch)
}

// Open makes a batch.
// Errors: Invalid and TooLarge name the field; AlreadyExists for an id whose batch was opened with something else; Exhausted with limit
// batches.
func (bs *BatchService) Open(ctx context.Context, in *pb.OpenBatchRequest) (*pb.OpenBatchResponse, error) {
	if fact := bs.s.shared("id"); fact != nil {
		return nil, fact
	}
	for _, follow := range [...]*pb.TaskTemplate{in.GetOnDone(), in.GetOnSuccess()} {
		// Before the namespace is made: a mistake leaves nothing behind.
		if follow == nil {
			continue
		}
		if fact := bs.s.reachesQueue(ctx, follow.GetQueue()); fact != nil {
			return nil, fact
		}
	}
	c, err := bs.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	op, fact := c.t.batchOpen(in)
	if fact != nil {
		return nil, fact
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	shown, err := bs.show(ctx, c, op.ID, at)
	if err != nil {
		return nil, err
	}
	return &pb.OpenBatchResponse{Batch: shown, Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// batchOpen reads a batch, gives it an id if it has none, and goes to its partition.
func (t *Translator) batchOpen(in *pb.OpenBatchRequest) (*core.BatchOpen, core.Fact) {
	op, fact := t.opening("id", in)
	if fact != nil {
		return nil, fact
	}
	if op.ID.IsZero() {
		op.ID = t.idAt(t.batchPlace(op))
	}
	t.part, _ = t.partOf(op.ID)
	for field, follow := range map[string]*core.TaskCreate{"on_done": op.OnDone, "on_success": op.OnSuccess} {
		if follow == nil {
			continue
		}
		if fact := t.placeTemplate(follow); fact != nil {
			return nil, edge.Within(field, fact)
		}
	}
	return op, nil
}

// show reads a batch as it is at an index or later.
func (bs *BatchService) show(ctx context.Context, c *call, id core.TaskID, at core.At) (*pb.Batch, error) {
	got, _, err := bs.batch.Batch(ctx, c.t.part, id, core.ReadOptions{MinIndex: at.Index})
	if err != nil {
		return nil, err
	}
	return showBatch(&got), nil
}

// Get reads a batch.
// Errors: NotFound, also for one that was kept long enough after it finished.
func (bs *BatchService) Get(ctx context.Context, in *pb.GetBatchRequest) (*pb.GetBatchResponse, error) {
	c, id, err := bs.beginBatch(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	got, at, err := bs.batch.Batch(ctx, c.t.part, id, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.GetBatchResponse{Batch: showBatch(&got), At: ShowAt(at)}, nil
}

// Wait answers with a batch when it has finished.
// Errors: NotFound.
func (bs *BatchService) Wait(ctx context.Context, in *pb.WaitBatchRequest) (*pb.WaitBatchResponse, error) {
	c, id, err := bs.beginBatch(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	// The wait ends with the server too.
	ctx, cancel := bs.s.waiting(ctx)
	defer cancel()
	got, at, err := bs.batch.WaitBatch(ctx, c.t.part, id)
	if err != nil {
		return nil, waited(ctx, err)
	}
	return &pb.WaitBatchResponse{Batch: showBatch(&got), At: ShowAt(at)}, nil
}

// List reads a page of batches, partition after partition, in each those that were opened last first.
func (bs *BatchService) List(ctx context.Context, in *pb.ListBatchesRequest) (*pb.ListBatchesResponse, error) {
	limit, fact := bs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	cursor, fact := readCursor(in.GetCursor())
	if fact != nil {
		return nil, fact
	}
	c, err := bs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListBatchesResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	parts := max(c.t.parts, 1)
	place, rest, fact := readPlaceCursor(cursor, parts)
	if fact != nil {
		return nil, fact
	}
	var below uint64
	switch len(rest) {
	case 0:
	case 8:
		below = binary.BigEndian.Uint64(rest)
	default:
		return nil, badCursor()
	}
	out := &pb.ListBatchesResponse{At: ShowAt(core.At{})}
	for ; place < parts; place, below = place+1, 0 {
		for more := true; more; {
			var list []core.Batch
			var at core.At
			list, more, at, err = bs.batch.Batches(ctx, c.t.in(place), below, limit-len(out.GetBatches()), batchPageBytes, readOptions(0, in.GetStale()))
			if err != nil {
				return nil, err
			}
			if !c.t.several() {
				out.At = ShowAt(at)
			}
			for i := range list {
				if below = list[i].Number; c.t.reachesBatch(&list[i]) {
					out.Batches = append(out.Batches, showBatch(&list[i]))
				}
			}
			if len(out.GetBatches()) < limit && len(list) > 0 {
				continue
			}
			if more {
				out.Cursor = showPlaceCursor(place, binary.BigEndian.AppendUint64(nil, below))
				return out, nil
			}
			break
		}
		if len(out.GetBatches()) == limit && place+1 < parts {
			out.Cursor = showPlaceCursor(place+1, nil)
			return out, nil
		}
	}
	return out, nil
}

// Seal says that a batch gets no more tasks.
// Errors: NotFound.
func (bs *BatchService) Seal(ctx context.Context, in *pb.SealBatchRequest) (*pb.SealBatchResponse, error) {
	c, id, err := bs.beginBatch(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	shown, r, at, err := bs.change(ctx, c, id, &core.BatchSeal{ID: id})
	if err != nil {
		return nil, err
	}
	return &pb.SealBatchResponse{Batch: shown, Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// Cancel seals a batch and cancels its tasks.
// Errors: NotFound; WrongBatch for one that has finished; Exhausted with limit bulk_jobs.
func (bs *BatchService) Cancel(ctx context.Context, in *pb.CancelBatchRequest) (*pb.CancelBatchResponse, error) {
	op, fact := cancelBatch(core.TaskID{}, in) // before anything is looked up
	if fact != nil {
		return nil, fact
	}
	c, id, err := bs.beginBatch(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	op.ID = id
	shown, r, at, err := bs.change(ctx, c, id, op)
	if err != nil {
		return nil, err
	}
	return &pb.CancelBatchResponse{Batch: shown, Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// change proposes an op on a batch, and reads the batch after it.
func (bs *BatchService) change(ctx context.Context, c *call, id core.TaskID, op core.Op) (shown *pb.Batch, r core.OpResult, at core.At, err error) {
	if fact := bs.s.shared("id"); fact != nil {
		return nil, r, at, fact
	}
	if r, at, err = c.proposeOp(ctx, op); err != nil {
		return nil, r, at, err
	}
	shown, err = bs.show(ctx, c, id, at)
	return shown, r, at, err
}

// showBatch shows a batch.
func showBatch(b *core.Batch) *pb.Batch {
	out := &pb.Batch{
		Id: b.ID.String(), State: pb.Batch_State(b.State), Labels: showLabels(b.Labels), By: b.By, OpenedAt: TimeOf(b.Opened), SealedAt: TimeOf(b.Sealed),
		FinishedAt: TimeOf(b.Finished), Cancel: showCancel(b.Cancel),
		Counts: &pb.BatchCounts{
			Total: b.Counts.Total, Waiting: b.Counts.Waiting, Running: b.Counts.Running, Completed: b.Counts.Completed, Dead: b.Counts.Dead,
			Cancelled: b.Counts.Cancelled,
		},
	}
	if b.OnDone != nil {
		out.OnDone = showTemplate(b.OnDone)
	}
	if b.OnSuccess != nil {
		out.OnSuccess = showTemplate(b.OnSuccess)
	}
	if !b.DoneTask.IsZero() {
		out.DoneTask = b.DoneTask.String()
	}
	if !b.SuccessTask.IsZero() {
		out.SuccessTask = b.SuccessTask.String()
	}
	if b.RefusedCode != "" {
		out.Refused = &pb.TaskError{Code: b.RefusedCode, Message: b.RefusedMessage}
	}
	return out
}
