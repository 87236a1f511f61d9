package api

import (
	"context"
	"math"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// TaskService is the unary door to tasks.
type TaskService struct {
	pb.UnimplementedTaskServiceServer
	s     *Server // what all services share
	tasks TaskBackend
}

// Create makes one task.
// A repetition is known by the id or by the unique key, and answers with the first task. Errors:
// Invalid and TooLarge for what cannot be used; AlreadyExists where the unique key rejects; Exhausted
// for a bound of the queue.
func (ts *TaskService) Create(ctx context.Context, in *pb.CreateRequest) (*pb.CreateResponse, error) {
	return ts.CreateKeyed(ctx, in.GetTask(), false)
}

// CreateKeyed is Create of a task whose unique key, with request, is the Idempotency-Key of the call.
// Such keys are in a space of their own, so that a client's unique keys never meet them.
func (ts *TaskService) CreateKeyed(ctx context.Context, in *pb.TaskSpec, request bool) (*pb.CreateResponse, error) {
	c, err := ts.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	op, fact := c.t.taskCreate(in)
	if fact != nil {
		return nil, edge.Within("task", fact)
	}
	// Older formats keep both kinds of keys in one space.
	op.Unique.Request = request && ts.s.node.self.Format() >= core.FormatQueues
	// The partition first: the id of a task says it.
	if c.t.part, fact = c.t.placeCreate(op); fact != nil {
		return nil, edge.Within("task", fact)
	}
	if fact := ts.s.RatedCreates(c.t.part, 1, false); fact != nil {
		return nil, fact
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	return &pb.CreateResponse{
		Id: r.Task.String(), Replayed: r.Replayed, PayloadMatches: r.PayloadMatches, Replaced: r.Existed, At: ShowAt(at),
	}, nil
}

// BatchCreate makes several tasks: each alone, or all or none.
// Without atomic the results tell of each task. With it there is one commit, of one partition.
func (ts *TaskService) BatchCreate(ctx context.Context, in *pb.BatchCreateRequest) (*pb.BatchCreateResponse, error) {
	c, err := ts.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	// Items that cannot be used are answered at once; the others become commits.
	a := c.answers("BatchCreate")
	b, fact := c.t.Creates(a, in.GetTasks(), in.GetAtomic())
	if fact != nil {
		return nil, fact
	}
	// Where no item is left, nothing is proposed.
	p := core.Proposed{}
	if len(b.Commits) > 0 {
		if fact := ts.s.RatedCreates(b.Commits[0].Partition, b.Tasks(), c.t.several()); fact != nil {
			return nil, fact
		}
		if p, err = c.proposeEach(ctx, b.Commits); err != nil {
			return nil, err
		}
	}
	results, err := b.Answer(a, p.Results)
	if err != nil {
		return nil, err
	}
	return &pb.BatchCreateResponse{Results: results, At: ShowAt(p.At)}, nil
}

// Get reads one task; with meta without its payload and result.
// Errors: NotFound, also where the namespace is not there.
func (ts *TaskService) Get(ctx context.Context, in *pb.GetRequest) (*pb.GetResponse, error) {
	most := core.ContentSize{Payload: math.MaxInt, Result: math.MaxInt}
	if in.GetMeta() {
		most = core.ContentSize{}
	}
	task, size, at, err := ts.readUpTo(ctx, in, most)
	if err != nil {
		return nil, err
	}
	out := &pb.GetResponse{Task: ShowTask(&task), At: ShowAt(at)}
	if in.GetMeta() {
		showSize(out.GetTask(), size)
	}
	return out, nil
}

// sameTask puts the id as the caller wrote it into the answer for an unknown task, wherever it was found to be unknown.
func sameTask(err error, id string) error {
	if edge.Is[core.NotFound](err) {
		return core.NotFound{Kind: "task", ID: id}
	}
	return err
}

// ListAttempts reads the last attempts of a task.
// The node keeps the last 20 of a task, and counts those before them.
func (ts *TaskService) ListAttempts(ctx context.Context, in *pb.ListAttemptsRequest) (*pb.ListAttemptsResponse, error) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return nil, noTask(err, in.GetId())
	}
	if err := c.goTo(ctx, id); err != nil {
		return nil, sameTask(err, in.GetId())
	}
	list, at, err := ts.tasks.Attempts(ctx, c.t.part, id, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, sameTask(err, in.GetId())
	}
	out := &pb.ListAttemptsResponse{Attempts: make([]*pb.Attempt, len(list.Attempts)), At: ShowAt(at)}
	for i, a := range list.Attempts {
		out.Attempts[i] = showAttempt(a)
	}
	for _, c := range list.Older {
		out.Older = append(out.Older, &pb.OutcomeCount{Outcome: pb.Outcome(c.Outcome), Count: c.Count})
	}
	return out, nil
}

// BatchGet reads several tasks, those that are there.
// They are without payload and result, and not of one instant. An id that is unknown has no entry.
func (ts *TaskService) BatchGet(ctx context.Context, in *pb.BatchGetRequest) (*pb.BatchGetResponse, error) {
	// Each is a read of its own partition, one after the other.
	const most = 100
	switch n := len(in.GetIds()); {
	case n == 0:
		return nil, edge.Invalid("ids", "must not be empty")
	case n > most:
		return nil, edge.TooLarge("ids", "get_tasks", most)
	}
	head, fact := headOf(in.GetHead())
	if fact != nil {
		return nil, fact
	}
	ids := make([]core.TaskID, len(in.GetIds()))
	for i, s := range in.GetIds() {
		var fact core.Fact
		if ids[i], fact = ReadTaskID(edge.Item("ids", i), s); fact != nil {
			return nil, fact
		}
	}
	out := new(pb.BatchGetResponse)
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		if edge.UnknownNamespace(err) {
			out.At = ShowAt(core.At{})
			return out, nil
		}
		return nil, err
	}
	var all core.At
	for _, id := range ids {
		if err := c.goTo(ctx, id); err != nil {
			if edge.Is[core.NotFound](err) {
				continue
			}
			return nil, err
		}
		task, size, at, err := ts.tasks.TaskUpTo(ctx, c.t.part, id, core.ContentSize{Payload: head}, core.ReadOptions{})
		if edge.Is[core.NotFound](err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// An answer of several partitions has no index.
		if all = at; c.t.several() {
			all = core.At{Stamp: at.Stamp}
		}
		task.PayloadSize = size.Payload
		out.Tasks = append(out.Tasks, showListed(&task, head))
	}
	out.At = ShowAt(all)
	return out, nil
}

// List reads a page of tasks.
// A page may be short, and even empty, and have a cursor all the same: filters are looked at as tasks
// are read, up to a bound.
func (ts *TaskService) List(ctx context.Context, in *pb.ListRequest) (*pb.ListResponse, error) {
	q, fact := ts.listQuery(in)
	if fact != nil {
		return nil, fact
	}
	if fact := ts.s.reachesQueue(ctx, q.Queue); fact != nil {
		return nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		if edge.UnknownNamespace(err) {
			return &pb.ListResponse{At: ShowAt(core.At{})}, nil
		}
		return nil, err
	}
	if !q.Batch.IsZero() { // its tasks are in its partition
		p, ok := c.t.partOf(q.Batch)
		if !ok {
			return &pb.ListResponse{At: ShowAt(core.At{})}, nil
		}
		return ts.s.listTasks(ctx, p, q)
	}
	if c.t.several() {
		return c.listAll(ctx, q)
	}
	return ts.s.listTasks(ctx, c.t.part, q)
}

// listQuery reads what a list asks for.
func (ts *TaskService) listQuery(in *pb.ListRequest) (q core.ListQuery, fact core.Fact) {
	// Each filter is checked here, so that a mistake does not look like an empty page.
	for _, name := range [...]struct{ field, value string }{{"queue", in.GetQueue()}, {"kind", in.GetKind()}} {
		if name.value == "" {
			continue
		}
		if fact = QueueName(name.field, name.value); fact != nil {
			return q, fact
		}
	}
	if in.GetState() < 0 || in.GetState() > pb.State_CANCELLED {
		return q, edge.NotSupported("state")
	}
	q.Read = readOptions(0, in.GetStale())
	if q.Limit, fact = ts.s.page(in.GetLimit()); fact != nil {
		return q, fact
	}
	if q.Cursor, fact = readCursor(in.GetCursor()); fact != nil {
		return q, fact
	}
	if fact = TextUpTo("worker", in.GetWorker(), "worker_bytes", ts.s.Limits.WorkerBytes); fact != nil {
		return q, fact
	}
	if fact = TextUpTo("unique", in.GetUnique(), "unique_key_bytes", ts.s.Limits.UniqueKeyBytes); fact != nil {
		return q, fact
	}
	if q.Head, fact = headOf(in.GetHead()); fact != nil {
		return q, fact
	}
	if in.GetBatch() != "" {
		if q.Batch, fact = ReadTaskID("batch", in.GetBatch()); fact != nil {
			return q, fact
		}
	}
	q.Queue, q.State, q.Desc = in.GetQueue(), core.State(in.GetState()), in.GetDesc()
	q.Kind, q.Worker, q.Unique = in.GetKind(), in.GetWorker(), in.GetUnique()
	if q.Fingerprint, fact = fingerprint("fingerprint", in.GetFingerprint()); fact != nil {
		return q, fact
	}
	// Any time is allowed: the horizon is for times at which something is to happen.
	if q.From, fact = moment("from", in.GetFrom(), core.Never, 0); fact != nil {
		return q, fact
	}
	if q.To, fact = moment("to", in.GetTo(), core.Never, 0); fact != nil {
		return q, fact
	}
	if len(in.GetLabel()) > core.MaxLabels {
		return q, edge.TooLarge("label", "labels", core.MaxLabels)
	}
	for _, text := range in.GetLabel() {
		// A value may hold the sign too: the first one separates.
		name, value, ok := strings.Cut(text, "=")
		if !ok || !isLabelName(name) {
			return q, edge.Invalid("label", "must be NAME=VALUE with the name of a label")
		}
		if fact = TextUpTo("label", value, "label_value_bytes", core.MaxLabelValue); fact != nil {
			return q, fact
		}
		q.Labels = append(q.Labels, core.Label{Name: name, Value: value})
	}
	return q, nil
}

// listTasks reads a page of one partition's tasks.
func (s *Server) listTasks(ctx context.Context, p core.Partition, q core.ListQuery) (*pb.ListResponse, error) {
	page, err := s.tasksUpTo(ctx, p, q, AnswerBytes)
	if err != nil {
		return nil, err
	}
	out := &pb.ListResponse{
		Tasks: make([]*pb.Task, len(page.Tasks)), Cursor: showCursor(page.Next), Inspected: uint32(page.Inspected), At: ShowAt(page.at),
		Reached: TimeOf(page.Reached),
	}
	for i := range page.Tasks {
		out.Tasks[i] = showListed(&page.Tasks[i], q.Head)
	}
	return out, nil
}

// MaxHead bounds the first bytes of payloads that a list shows, so that an answer fits whatever its tasks hold.
const MaxHead = 256

// headOf reads how many of them are asked for.
func headOf(n uint32) (int, core.Fact) {
	if n > MaxHead {
		return 0, edge.Beyond("head", "head_bytes", MaxHead, "is out of range")
	}
	return int(n), nil
}

// showListed shows a task of a list: of its payload the first bytes, where they were asked for.
func showListed(t *core.Task, head int) *pb.Task {
	out := ShowTask(t)
	out.Payload, out.Result = nil, nil
	if head > 0 {
		size := uint64(t.PayloadSize)
		out.Head, out.PayloadSize = t.Payload, &size
	}
	return out
}

// taskPage is a page of tasks, where it stands, and about what it takes on the wire.
type taskPage struct {
	core.TaskPage
	at    core.At
	bytes int // about what the tasks take on the wire
	// cut says that it is shorter than it was asked for, to fit.
	cut bool
}

// tasksUpTo reads a page of at most room bytes: a page of tasks with long errors is read again, with fewer tasks.
func (s *Server) tasksUpTo(ctx context.Context, p core.Partition, q core.ListQuery, room int) (page taskPage, err error) {
	// A page that is too long is read again with half as many tasks: how long they are is known only
	// then.
	for {
		page.TaskPage, page.at, err = s.node.tasks.Tasks(ctx, p, q)
		if err != nil {
			return page, err
		}
		page.bytes = 0
		for i := range page.Tasks {
			page.bytes += TaskBytes(&page.Tasks[i])
		}
		if page.bytes <= room || q.Limit <= 1 || len(page.Tasks) <= 1 {
			return page, nil
		}
		q.Limit, page.cut = min(q.Limit, len(page.Tasks))/2, true
	}
}

// page reads the length of a page.
// n is what the client asked for; 0: the default.
func (s *Server) page(n uint32) (int, core.Fact) {
	if int64(n) > s.Limits.ListItems {
		return 0, edge.Beyond("limit", "list_items", s.Limits.ListItems, "is out of range")
	}
	if n == 0 {
		return ListDefault, nil
	}
	return int(n), nil
}

// Wait answers when a task has ended.
// It is woken by the entry that ends the task. Errors: NotFound, DeadlineExceeded when the caller's
// time is over, Unavailable when the server stops.
func (ts *TaskService) Wait(ctx context.Context, in *pb.WaitRequest) (*pb.WaitResponse, error) {
	id, fact := ReadTaskID("id", in.GetId())
	if fact != nil {
		return nil, fact
	}
	c, err := ts.s.begin(ctx, false)
	if err != nil {
		return nil, noTask(err, in.GetId())
	}
	if err := c.goTo(ctx, id); err != nil {
		return nil, sameTask(err, in.GetId())
	}
	// The wait ends with the server too.
	ctx, cancel := ts.s.waiting(ctx)
	defer cancel()
	task, at, err := ts.tasks.Wait(ctx, c.t.part, id)
	if err != nil {
		return nil, sameTask(waited(ctx, err), in.GetId())
	}
	return &pb.WaitResponse{Task: ShowTask(&task), At: ShowAt(at)}, nil
}
