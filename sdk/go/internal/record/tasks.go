package record

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// task is a task and what became of it. mu of its server guards it.
type task struct {
	// first is what was asked for first, by which a repetition is told; spec is what is asked for now. info is what readers see.
	first *millracev1.TaskSpec
	spec  *millracev1.TaskSpec
	info  *millracev1.Task
	// token is that of the attempt that runs, and ran is closed when that has ended; 0: none runs.
	token      uint64
	ran        chan struct{}
	checkpoint []byte
	lines      []*millracev1.LogLine
	dropped    uint64 // lines that workers dropped
}

// uniqueKey is a unique key and its queue.
type uniqueKey struct{ queue, key string }

// What holds for tasks of a queue without a configuration.
const (
	defaultAttempts   = 5
	defaultCrashes    = 10
	defaultDeliveries = 1000
	defaultLease      = time.Minute
)

// terminal reports whether the task has ended.
func (t *task) terminal() bool { return t.info.State >= millracev1.State_COMPLETED }

// createAll answers a frame of creates.
func (s *Server) createAll(f *millracev1.CreateFrame) *millracev1.Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next()
	a := &millracev1.Ack{Seq: f.Seq, At: s.at()}
	for i, spec := range f.Tasks {
		var r *millracev1.CreateResult
		e := judge(spec)
		if e != nil {
			e = within(e, item("tasks", i)+".")
		} else if r, e = s.create(spec); e != nil && f.Atomic {
			e = atOp(e, i)
		}
		switch {
		case e != nil && f.Atomic:
			s.rollback()
			return &millracev1.Ack{Seq: f.Seq, Error: e}
		case e != nil:
			r = &millracev1.CreateResult{Id: spec.Id, Error: e}
		}
		a.Created = append(a.Created, r)
	}
	return a
}

// create makes a task that judge has let pass, or finds the one that is there. It needs mu.
func (s *Server) create(spec *millracev1.TaskSpec) (*millracev1.CreateResult, *millracev1.Error) {
	if old := s.tasks[spec.Id]; old != nil {
		if !proto.Equal(old.first, spec) {
			return nil, exists("task", spec.Id)
		}
		return &millracev1.CreateResult{Id: spec.Id, Replayed: true, PayloadMatches: true}, nil
	}
	held := uniqueKey{spec.Queue, spec.Unique.GetKey()}
	if old := s.unique[held]; old != nil && held.key != "" && !old.freed() {
		if spec.Unique.OnConflict == millracev1.Unique_REJECT {
			return nil, exists("unique", held.key)
		}
		if spec.Unique.OnConflict == millracev1.Unique_REPLACE && old.info.Attempt == 0 && !old.terminal() && (spec.Delay != nil || !alike(old.spec, spec)) {
			return s.replace(old, spec), nil
		}
		return &millracev1.CreateResult{Id: old.spec.Id, Replayed: true, PayloadMatches: alike(old.spec, spec)}, nil
	}
	t := &task{first: spec, spec: spec, info: infoOf(spec)}
	s.tasks[spec.Id], s.order = t, append(s.order, t)
	s.undo = append(s.undo, func() {
		delete(s.tasks, spec.Id)
		s.order = s.order[:len(s.order)-1]
	})
	if held.key != "" {
		before := s.unique[held]
		s.unique[held] = t
		s.undo = append(s.undo, func() {
			if before != nil {
				s.unique[held] = before
			} else {
				delete(s.unique, held)
			}
		})
	}
	return &millracev1.CreateResult{Id: spec.Id}, nil
}

// freed reports whether the start or the end of a task has freed its unique key.
func (t *task) freed() bool {
	switch t.spec.Unique.GetUntil() {
	case millracev1.Unique_START:
		return t.info.Attempt > 0 || t.terminal()
	case millracev1.Unique_TERMINAL:
		return t.terminal()
	}
	return false
}

// replace makes a task that has not started what another create of its unique key asks for. It needs mu.
func (s *Server) replace(t *task, spec *millracev1.TaskSpec) *millracev1.CreateResult {
	was, info := t.spec, t.info
	s.undo = append(s.undo, func() { t.spec, t.info = was, info })
	t.spec = proto.CloneOf(spec)
	t.spec.Id = was.Id
	t.info = infoOf(t.spec)
	t.info.CreatedAt = info.CreatedAt
	return &millracev1.CreateResult{Id: was.Id, Replaced: true}
}

// judge refuses a task that no server takes.
func judge(spec *millracev1.TaskSpec) *millracev1.Error {
	_, isID := place.Parse(spec.Id)
	switch {
	case !validName(spec.Queue, "._:-"):
		return invalid("queue", "not a name of a queue")
	case !validName(spec.Kind, "._:-"):
		return invalid("kind", "not a name of a kind")
	case !isID:
		return invalid("id", "not an id of a task")
	case spec.Priority > 9:
		return invalid("priority", "must be at most 9")
	}
	return nil
}

// alike reports whether two tasks were asked for with the same words, but for their ids and unique keys.
func alike(a, b *millracev1.TaskSpec) bool {
	bare := func(in *millracev1.TaskSpec) *millracev1.TaskSpec {
		out := proto.CloneOf(in)
		out.Id, out.Unique = "", nil
		return out
	}
	return proto.Equal(bare(a), bare(b))
}

// infoOf is a new task as readers see it.
func infoOf(spec *millracev1.TaskSpec) *millracev1.Task {
	now := timestamppb.Now()
	t := &millracev1.Task{
		Id: spec.Id, Queue: spec.Queue, Kind: spec.Kind, State: millracev1.State_READY, Payload: spec.Payload, ContentType: spec.ContentType,
		Headers: spec.Headers, Priority: spec.Priority, UniqueKey: spec.Unique.GetKey(), MaxAttempts: spec.MaxAttempts,
		MaxCrashes: spec.MaxCrashes, MaxDeliveries: defaultDeliveries, Lease: spec.Lease, MaxRun: spec.MaxRun, CreatedAt: now, ReadyAt: now,
		Tag: spec.Tag, Labels: spec.Labels, ExpiresAt: spec.ExpiresAt,
	}
	if t.MaxAttempts == 0 {
		t.MaxAttempts = defaultAttempts
	}
	if t.MaxCrashes == 0 {
		t.MaxCrashes = defaultCrashes
	}
	if spec.MaxDeliveries != nil {
		t.MaxDeliveries = *spec.MaxDeliveries
	}
	if t.Lease == nil {
		t.Lease = durationpb.New(defaultLease)
	}
	run := spec.RunAt
	if spec.Delay != nil {
		run = timestamppb.New(now.AsTime().Add(spec.Delay.AsDuration()))
	}
	if run.AsTime().After(now.AsTime()) {
		t.State, t.Reason, t.RunAt, t.ReadyAt = millracev1.State_SCHEDULED, "delay", run, nil
	}
	return t
}

// Next begins an attempt at the first task that waits in one of queues, is of a kind that is taken, and is not one of passed. A time that
// it waits for does not matter. nil: there is none.
func (s *Server) Next(queues []string, takes func(kind string) bool, passed map[string]bool) *millracev1.Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended < len(s.order) && s.order[s.ended].terminal() {
		s.ended++
	}
	for _, t := range s.order[s.ended:] {
		if t.terminal() || t.token != 0 || passed[t.spec.Id] || !slices.Contains(queues, t.spec.Queue) || !takes(t.spec.Kind) {
			continue
		}
		s.token++
		t.token, t.ran = s.token, make(chan struct{})
		t.info.State, t.info.Reason, t.info.StartedAt = millracev1.State_RUNNING, "", timestamppb.Now()
		t.info.RunAt, t.info.Progress = nil, nil
		t.info.Attempt++
		lease := uint64(t.info.Lease.AsDuration().Milliseconds())
		return &millracev1.Assignment{
			Id: t.spec.Id, Token: t.token, Attempt: t.info.Attempt, Queue: t.spec.Queue, Kind: t.spec.Kind, Payload: t.spec.Payload,
			ContentType: t.spec.ContentType, Headers: t.spec.Headers, Priority: t.spec.Priority, LeaseMs: lease, LeaseLeftMs: lease,
			MaxAttempts: t.info.MaxAttempts, Failures: t.info.Failures, CreatedMs: t.info.CreatedAt.AsTime().UnixMilli(),
			Checkpoint: t.checkpoint, Tag: t.spec.Tag,
		}
	}
	return nil
}

// holder returns the task whose attempt has a token. It needs mu.
func (s *Server) holder(id string, token uint64) (*task, *millracev1.Error) {
	t := s.tasks[id]
	if t == nil || token == 0 || t.token != token {
		return nil, &millracev1.Error{Code: wire.LeaseLost, Message: fmt.Sprintf("task %s: token %d lost its lease", id, token)}
	}
	return t, nil
}

// Settle ends an attempt. A refusal leaves it running, unless its effects ask for a failure in its place: then failed is true.
func (s *Server) Settle(m *millracev1.SettleItem) (failed bool, refusal *millracev1.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, e := s.holder(m.Id, m.Token)
	if e != nil {
		return false, e
	}
	switch x := m.Outcome.(type) {
	case *millracev1.SettleItem_Complete:
		if refusal = shape(m.Effects.GetConditions(), m.Effects.GetOps()); refusal != nil {
			return false, within(refusal, item("items", 0)+".effects.")
		}
		if _, refusal = s.apply(m.Effects.GetConditions(), m.Effects.GetOps()); refusal != nil {
			if failed = m.Effects.FailOnRefusal; failed {
				t.fail(&millracev1.Fail{Error: &millracev1.TaskError{Code: refusal.Code, Message: "effects refused: " + wire.Cut(refusal.Message, 1<<10)}})
			}
			return failed, refusal
		}
		t.info.HasResult, t.info.Result, t.info.ResultType = true, slices.Clone(x.Complete.GetResult()), x.Complete.GetResultType()
		t.end(millracev1.State_COMPLETED, "")
	case *millracev1.SettleItem_Fail:
		t.fail(x.Fail)
	case *millracev1.SettleItem_Snooze:
		t.info.Snoozes++
		t.put("snooze", x.Snooze.GetDelay().AsDuration())
	case *millracev1.SettleItem_Stop:
		t.info.Error = x.Stop.GetError()
		t.end(millracev1.State_CANCELLED, "")
	default: // a release
		t.put("", 0)
	}
	return false, nil
}

// fail ends an attempt as a failure. The wait before the next one is as the failure asks, or none.
func (t *task) fail(f *millracev1.Fail) {
	t.info.Error = f.GetError()
	t.info.Failures++
	switch {
	case f.GetFatal():
		t.end(millracev1.State_DEAD, "fatal")
	case t.info.Failures >= uint32(max(t.info.MaxAttempts, 0)):
		t.end(millracev1.State_DEAD, "max_attempts")
	default:
		t.put("retry", f.GetRetryAfter().AsDuration())
	}
}

// put has the task wait for its next attempt, without a wait as a ready one.
func (t *task) put(reason string, wait time.Duration) {
	t.leave()
	at := timestamppb.New(time.Now().Add(wait))
	t.info.State, t.info.Reason, t.info.RunAt, t.info.ReadyAt = millracev1.State_READY, "", nil, at
	if wait > 0 {
		t.info.State, t.info.Reason, t.info.RunAt, t.info.ReadyAt = millracev1.State_SCHEDULED, reason, at, nil
	}
}

// end ends the task.
func (t *task) end(state millracev1.State, reason string) {
	t.leave()
	t.info.State, t.info.Reason, t.info.RunAt, t.info.FinishedAt = state, reason, nil, timestamppb.Now()
}

// leave ends the attempt that runs, if one does.
func (t *task) leave() {
	if t.token != 0 {
		t.token = 0
		close(t.ran)
	}
}

// cancelTask cancels a task that waits. It needs mu.
func (s *Server) cancelTask(id, reason string, force bool) (state millracev1.State, replayed bool, refusal *millracev1.Error) {
	t := s.tasks[id]
	switch {
	case t == nil:
		return 0, false, notFound(id)
	case t.info.State == millracev1.State_CANCELLED:
		return t.info.State, true, nil
	case t.terminal():
		return 0, false, &millracev1.Error{
			Code: wire.WrongState, Message: "task " + id + " is " + t.state(), Details: map[string]string{"state": t.state()},
		}
	case t.token != 0:
		return 0, false, refused("a Recorder does not cancel a task that runs: pass RunHandler a context that was cancelled")
	}
	old := proto.CloneOf(t.info)
	s.undo = append(s.undo, func() { t.info = old })
	t.info.Cancel = &millracev1.CancelAsked{At: timestamppb.Now(), Reason: reason, Force: force}
	t.end(millracev1.State_CANCELLED, "")
	return t.info.State, false, nil
}

// state is the task's state as it is written.
func (t *task) state() string { return wire.State(int32(t.info.State)) }

// Tasks returns all tasks as they are now, in the order in which they were added.
func (s *Server) Tasks() []*millracev1.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*millracev1.Task, len(s.order))
	for i, t := range s.order {
		out[i] = proto.CloneOf(t.info)
	}
	return out
}

// get reads a task.
func (s *Server) get(req *millracev1.GetRequest) (*millracev1.GetResponse, *millracev1.Error) {
	t := s.tasks[req.Id]
	if t == nil {
		return nil, notFound(req.Id)
	}
	return &millracev1.GetResponse{Task: proto.CloneOf(t.info), At: s.at()}, nil
}

// OnWait has f called before the answer to a call that waits for a task which does not run and has not ended. An error of f is the answer.
func (s *Server) OnWait(f func(ctx context.Context) error) { s.waited.Store(&f) }

// wait answers when the task has ended, or when no attempt of it runs: then it may be that none will.
func (s *Server) wait(st grpc.ServerStream) error {
	req := new(millracev1.WaitRequest)
	if err := st.RecvMsg(req); err != nil {
		return err
	}
	called := false
	for {
		resp, ran, refusal := s.over(req.Id)
		switch f := s.waited.Load(); {
		case resp != nil:
			return st.SendMsg(resp)
		case ran != nil:
			called = false // who runs it may have left it to this call
			select {
			case <-ran:
			case <-st.Context().Done():
				return st.Context().Err()
			}
		case called || f == nil || refusal.Code == wire.NotFound:
			return statusOf(refusal)
		default:
			called = true
			if err := (*f)(st.Context()); err != nil {
				return statusOf(refused(err.Error()))
			}
		}
	}
}

// over is the answer about a task that has ended. Else ran is closed when the attempt that runs has ended, or refusal says that none runs.
func (s *Server) over(id string) (resp *millracev1.WaitResponse, ran <-chan struct{}, refusal *millracev1.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	switch {
	case t == nil:
		return nil, nil, notFound(id)
	case t.terminal():
		return &millracev1.WaitResponse{Task: proto.CloneOf(t.info), At: s.at()}, nil, nil
	case t.token != 0:
		return nil, t.ran, nil
	}
	return nil, nil, &millracev1.Error{
		Code: wire.WrongState, Reason: Reason, Details: map[string]string{"state": t.state()},
		Message: "task " + id + " is " + t.state() + ", and nothing runs it: call Drain before, or DrainOnWait",
	}
}

// cancel cancels a task outside of a commit.
func (s *Server) cancel(req *millracev1.CancelRequest) (*millracev1.CancelResponse, *millracev1.Error) {
	s.next()
	state, replayed, e := s.cancelTask(req.Id, req.Reason, req.Force)
	if e != nil {
		return nil, e
	}
	op := &millracev1.TaskCancel{Id: req.Id, Reason: req.Reason, Force: req.Force}
	s.ops = append(s.ops, &millracev1.Op{Op: &millracev1.Op_TaskCancel{TaskCancel: op}})
	return &millracev1.CancelResponse{State: state, Replayed: replayed, At: s.at()}, nil
}

// report keeps what the handler of a task tells.
func (s *Server) report(req *millracev1.ReportRequest) (*millracev1.ReportResponse, *millracev1.Error) {
	t, e := s.holder(req.Id, req.Token)
	if e != nil {
		return nil, e
	}
	now := timestamppb.Now()
	if req.Progress != nil {
		t.info.Progress = proto.CloneOf(req.Progress)
		t.info.Progress.At = now
	}
	for _, line := range req.Lines {
		t.lines = append(t.lines, &millracev1.LogLine{Number: uint64(len(t.lines) + 1), Attempt: t.info.Attempt, At: now, Line: line})
	}
	t.dropped += req.LinesDropped
	if req.Checkpoint != nil {
		t.checkpoint = req.Checkpoint
	}
	return &millracev1.ReportResponse{At: s.at()}, nil
}

// logs reads what the handlers of a task told.
func (s *Server) logs(req *millracev1.LogsRequest) (*millracev1.LogsResponse, *millracev1.Error) {
	t := s.tasks[req.Id]
	if t == nil {
		return nil, notFound(req.Id)
	}
	limit := int(req.Limit)
	if limit == 0 {
		limit = 100
	}
	out := &millracev1.LogsResponse{Dropped: t.dropped, Last: req.After, At: s.at()}
	for _, l := range t.lines {
		switch {
		case l.Number <= req.After || req.Attempt != 0 && l.Attempt != req.Attempt:
		case len(out.Lines) == limit:
			out.More = true
			return out, nil
		default:
			out.Lines, out.Last = append(out.Lines, l), l.Number
		}
	}
	return out, nil
}

// notFound is the error of a task that is not there.
func notFound(id string) *millracev1.Error {
	return &millracev1.Error{Code: wire.NotFound, Message: fmt.Sprintf("task %q not found", id)}
}

// exists is the refusal of an id or unique key that is taken.
func exists(kind, id string) *millracev1.Error {
	return &millracev1.Error{Code: wire.AlreadyExists, Message: fmt.Sprintf("%s %q exists with other content", kind, id)}
}

// invalid refuses a field.
func invalid(field, text string) *millracev1.Error {
	return &millracev1.Error{Code: wire.InvalidArgument, Field: field, Message: field + ": " + text}
}

// within says where in a message the bad field of e is.
func within(e *millracev1.Error, where string) *millracev1.Error {
	e.Field, e.Message = where+e.Field, where+e.Message
	return e
}

// item names an element of a list.
func item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// validName reports whether name is one of the contract: 1 to 128 letters, digits and some more, of which it does not begin with one.
func validName(name, more string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !slices.Contains([]byte(more), c)) {
			return false
		}
	}
	return true
}
