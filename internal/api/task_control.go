package api

import (
	"cmp"
	"context"
	"slices"
	"unicode/utf8"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// RunNow makes a scheduled task ready.
// Errors: WrongState for a task that does not wait for a time.
func (ts *TaskService) RunNow(ctx context.Context, in *pb.RunNowRequest) (*pb.RunNowResponse, error) {
	_, at, err := ts.change(ctx, in.GetId(), nil, func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return &core.TaskRunNow{Task: id}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.RunNowResponse{At: at}, nil
}

// Delete removes a task that has ended.
// Its id is refused for a while. Errors: WrongState for a task that has not ended.
func (ts *TaskService) Delete(ctx context.Context, in *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	_, at, err := ts.change(ctx, in.GetId(), nil, func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return &core.TaskDelete{Task: id}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteResponse{At: at}, nil
}

// Update edits a task that waits or is dead.
// Fields that are left out stay as they are. Errors: WrongState for a task that runs or has ended
// otherwise.
func (ts *TaskService) Update(ctx context.Context, in *pb.UpdateRequest) (*pb.UpdateResponse, error) {
	r, at, err := ts.operate(ctx, in.GetId(), in.GetRequestId(), func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return asOp(c.t.taskUpdate(id, in))
	})
	if err != nil {
		return nil, err
	}
	return &pb.UpdateResponse{State: pb.State(r.State), At: at}, nil
}

// Cancel cancels a task that has not ended.
// One that waits is cancelled at once; the worker of one that runs is asked to stop, unless force
// takes the task from it. A second cancel changes nothing.
func (ts *TaskService) Cancel(ctx context.Context, in *pb.CancelRequest) (*pb.CancelResponse, error) {
	r, at, err := ts.operate(ctx, in.GetId(), in.GetRequestId(), func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return &core.TaskCancel{Task: id, Reason: in.GetReason(), Force: in.GetForce()}, reason(in.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &pb.CancelResponse{State: pb.State(r.State), Replayed: r.Replayed, At: at}, nil
}

// Retry makes a dead or cancelled task ready.
// Its counts begin at 0 again, its attempts stay. Errors: WrongState for any other task.
func (ts *TaskService) Retry(ctx context.Context, in *pb.RetryRequest) (*pb.RetryResponse, error) {
	r, at, err := ts.operate(ctx, in.GetId(), in.GetRequestId(), func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return &core.TaskRedrive{Task: id}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.RetryResponse{State: pb.State(r.State), At: at}, nil
}

// ForceRelease takes a running task from its worker.
// attempt, if given, must be the one that runs: the operator means the worker that was seen. Errors:
// WrongState.
func (ts *TaskService) ForceRelease(ctx context.Context, in *pb.ForceReleaseRequest) (*pb.ForceReleaseResponse, error) {
	r, at, err := ts.operate(ctx, in.GetId(), in.GetRequestId(), func(c *call, id core.TaskID) (core.Op, core.Fact) {
		return &core.TaskForceRelease{Task: id, Attempt: in.GetAttempt()}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.ForceReleaseResponse{State: pb.State(r.State), At: at}, nil
}

// operate is change by an op of core.FormatOperate.
func (ts *TaskService) operate(ctx context.Context, id string, request []byte, op func(c *call, id core.TaskID) (core.Op, core.Fact)) (core.OpResult, *pb.At, error) {
	if fact := ts.s.operated("id"); fact != nil {
		return core.OpResult{}, nil, fact
	}
	return ts.change(ctx, id, request, op)
}

// change proposes an op on a task that must exist. With a request id it is applied once, however often it is sent.
// op makes the op once the call has its partition. Errors: NotFound where the task, or its namespace,
// is not there.
func (ts *TaskService) change(ctx context.Context, id string, request []byte, op func(c *call, id core.TaskID) (core.Op, core.Fact)) (core.OpResult, *pb.At, error) {
	none := core.OpResult{}
	task, fact := ReadTaskID("id", id)
	if fact != nil {
		return none, nil, fact
	}
	key, fact := requestID(request)
	if fact != nil {
		return none, nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return none, nil, noTask(err, id)
	}
	if err := c.goTo(ctx, task); err != nil {
		return none, nil, sameTask(err, id)
	}
	o, fact := op(c, task)
	if fact != nil {
		return none, nil, fact
	}
	commit := c.t.commitOf([]core.Op{o})
	// Apply knows a repetition by it, and answers as it did first.
	commit.RequestID = key
	r, at, err := c.proposeOne(ctx, commit)
	if err != nil {
		return none, nil, sameTask(err, id)
	}
	return r, ShowAt(at), nil
}

// operated refuses what a cluster does from core.FormatOperate on until it writes such entries.
func (s *Server) operated(field string) core.Fact {
	return s.fromFormat(core.FormatOperate, field, upgraded)
}

// reason holds why an operator does something to its length.
func reason(s string) core.Fact { return TextUpTo("reason", s, "reason_bytes", core.MaxReason) }

// taskUpdate reads an edit of a task.
// Whether the state of the task allows it is judged in Apply.
func (t *Translator) taskUpdate(id core.TaskID, in *pb.UpdateRequest) (op *core.TaskUpdate, fact core.Fact) {
	op = &core.TaskUpdate{Task: id}
	// Optional fields: what is not given stays as it is.
	if in.Priority != nil {
		if int64(in.GetPriority()) > t.l.Priority {
			return nil, edge.Beyond("priority", "priority", t.l.Priority, "is out of range")
		}
		op.HasPriority, op.Priority = true, uint8(in.GetPriority())
	}
	if fact = t.updateTimes(op, in); fact != nil {
		return nil, fact
	}
	if in.Payload != nil {
		if int64(len(in.GetPayload())) > t.l.PayloadBytes {
			return nil, edge.TooLarge("payload", "payload_bytes", t.l.PayloadBytes)
		}
		op.HasPayload, op.Payload = true, in.GetPayload()
	}
	if fact = TextUpTo("content_type", in.GetContentType(), "content_type_bytes", t.l.ContentTypeBytes); fact != nil {
		return nil, fact
	}
	op.ContentType = in.GetContentType()
	if in.GetClearLabels() && len(in.GetLabels()) > 0 {
		return nil, edge.Invalid("clear_labels", "and labels are mutually exclusive")
	}
	// An empty map cannot be told from none on the wire, so clearing has a field of its own.
	op.HasLabels = in.GetClearLabels() || len(in.GetLabels()) > 0
	if op.Labels, fact = labels(in.GetLabels()); fact != nil {
		return nil, fact
	}
	// An edit of nothing is a mistake, and would cost an entry.
	if !op.HasPriority && !op.HasRunAt && !op.HasPayload && op.ContentType == "" && !op.HasLabels && !op.HasExpiry {
		return nil, edge.Invalid("", "must change something")
	}
	return op, nil
}

// updateTimes reads when an edited task becomes ready, and when it expires.
func (t *Translator) updateTimes(op *core.TaskUpdate, in *pb.UpdateRequest) (fact core.Fact) {
	switch {
	case in.GetRunAt() != nil && in.GetDelay() != nil:
		return edge.Invalid("delay", "and run_at are mutually exclusive")
	case in.GetExpiresAt() != nil && in.GetNeverExpires():
		return edge.Invalid("never_expires", "and expires_at are mutually exclusive")
	}
	op.HasRunAt = in.GetRunAt() != nil || in.GetDelay() != nil
	if op.RunAt, fact = moment("run_at", in.GetRunAt(), t.now, t.l.HorizonMs); fact != nil {
		return fact
	}
	if op.Delay, fact = Millis("delay", in.GetDelay(), HorizonSpan(t.l)); fact != nil {
		return fact
	}
	op.HasExpiry = in.GetExpiresAt() != nil || in.GetNeverExpires()
	op.ExpiresAt, fact = moment("expires_at", in.GetExpiresAt(), t.now, t.l.HorizonMs)
	return fact
}

// labels reads the labels of a task, sorted by name.
func labels(in map[string]string) ([]core.Label, core.Fact) {
	if len(in) == 0 {
		return nil, nil
	}
	if len(in) > core.MaxLabels {
		return nil, edge.TooLarge("labels", "labels", core.MaxLabels)
	}
	out := make([]core.Label, 0, len(in))
	for name, value := range in {
		out = append(out, core.Label{Name: name, Value: value})
	}
	// Sorted, since maps have no order and commits that are repeated must be equal.
	slices.SortFunc(out, func(a, b core.Label) int { return cmp.Compare(a.Name, b.Name) })
	for _, l := range out {
		if !isLabelName(l.Name) {
			return nil, edge.Invalid("labels."+core.Cut(l.Name, core.MaxLabelName), "must have a name of 1 to 63 letters, digits, dot, underscore, hyphen and slash, from a letter or digit on")
		}
		if fact := TextUpTo("labels."+l.Name, l.Value, "label_value_bytes", core.MaxLabelValue); fact != nil {
			return nil, fact
		}
	}
	return out, nil
}

// isLabelName reports whether a label may have a name.
func isLabelName(s string) bool {
	if s == "" || len(s) > core.MaxLabelName || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case i > 0 && (c == '.' || c == '_' || c == '-' || c == '/'):
		default:
			return false
		}
	}
	return true
}

// Pause stops giving out a queue's tasks, in all partitions of the namespace.
// Tasks that run go on, and delays come due. A queue that is paused already stays so under the new
// reason and time.
func (qs *QueueService) Pause(ctx context.Context, in *pb.PauseQueueRequest) (*pb.PauseQueueResponse, error) {
	op := &core.QueuePause{Queue: in.GetQueue(), Reason: in.GetReason()}
	if fact := QueueName("queue", op.Queue); fact != nil {
		return nil, fact
	}
	if fact := reason(in.GetReason()); fact != nil {
		return nil, fact
	}
	replayed, at, err := qs.pause(ctx, op, func(t *Translator) (fact core.Fact) {
		op.Until, fact = moment("until", in.GetUntil(), t.now, t.l.HorizonMs)
		return fact
	})
	if err != nil {
		return nil, err
	}
	return &pb.PauseQueueResponse{Replayed: replayed, At: ShowAt(at)}, nil
}

// Resume lets a paused queue go on.
func (qs *QueueService) Resume(ctx context.Context, in *pb.ResumeQueueRequest) (*pb.ResumeQueueResponse, error) {
	replayed, at, err := qs.pause(ctx, &core.QueuePause{Queue: in.GetQueue(), Resume: true}, nil)
	if err != nil {
		return nil, err
	}
	return &pb.ResumeQueueResponse{Replayed: replayed, At: ShowAt(at)}, nil
}

// pause proposes op to all partitions, the first one first. A queue that some of them have is made in the others, so that it is
// paused where its next task comes to be.
// times reads what depends on the time of the shard, which is known only with the namespace; nil:
// nothing does. at is where the first partition's part stands.
func (qs *QueueService) pause(ctx context.Context, op *core.QueuePause, times func(t *Translator) core.Fact) (replayed bool, at core.At, err error) {
	if fact := QueueName("queue", op.Queue); fact != nil {
		return false, at, fact
	}
	if fact := qs.s.reachesQueue(ctx, op.Queue); fact != nil {
		return false, at, fact
	}
	if fact := qs.s.operated("queue"); fact != nil {
		return false, at, fact
	}
	c, err := qs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return false, at, core.NotFound{Kind: "queue", ID: op.Queue}
	}
	if err != nil {
		return false, at, err
	}
	if times != nil {
		if fact := times(&c.t); fact != nil {
			return false, at, fact
		}
	}
	if c.t.several() {
		// A queue that no partition has is not made by a pause.
		if _, _, err := c.queue(ctx, op.Queue, core.ReadOptions{}); err != nil {
			return false, at, err
		}
		op.Make = true
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil || !c.t.several() {
		return r.Replayed, at, err
	}
	_, err = c.elsewhere(ctx, op)
	return r.Replayed, at, err
}
