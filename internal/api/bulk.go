package api

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// bulkSample is how many tasks a count shows.
	bulkSample = 10
	// bulkCounts bounds how long a start counts what the job will find. A job of more tasks is begun all the same: its count is
	// then not exact.
	bulkCounts = 3 * time.Second
	// bulkChanged is the code of tasks that were counted and not met.
	bulkChanged = "CHANGED"
)

// BulkService runs jobs about many tasks. A job has the same id in all partitions of its namespace.
type BulkService struct {
	pb.UnimplementedBulkServiceServer
	s    *Server
	bulk BulkBackend
}

// Bulk is the service of jobs about many tasks.
func (s *Server) Bulk() *BulkService { return &BulkService{s: s, bulk: s.node.bulk} }

// Start begins a job, or counts what it would find.
// Errors: NotFound for a queue that is not there; AlreadyExists for an id whose job is another one; Exhausted
// with limit bulk_jobs.
func (bs *BulkService) Start(ctx context.Context, in *pb.StartBulkRequest) (*pb.StartBulkResponse, error) {
	return bs.start(ctx, "filter", in)
}

// start is Start for a request whose filter has a path; empty: its fields are those of the request.
func (bs *BulkService) start(ctx context.Context, path string, in *pb.StartBulkRequest) (*pb.StartBulkResponse, error) {
	op, fact := bs.startOf(path, in)
	if fact != nil {
		return nil, fact
	}
	if fact := bs.s.reachesQueue(ctx, op.Tasks.Queue); fact != nil {
		return nil, fact
	}
	if op.ToQueue != "" {
		if fact := bs.s.reachesQueue(ctx, op.ToQueue); fact != nil {
			return nil, edge.Within("to_queue", fact)
		}
	}
	if fact := bs.s.operated("action"); fact != nil {
		return nil, fact
	}
	if op.HasShare() {
		field := "patch"
		switch {
		case op.ToQueue != "":
			field = "to_queue"
		case !op.Tasks.Batch.IsZero():
			field = "filter.batch"
		}
		if fact := bs.s.shared(field); fact != nil {
			return nil, fact
		}
	}
	c, err := bs.s.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	// To delete is an admin's, one task or many.
	if op.Action == core.BulkDelete {
		if fact := edge.Needs(auth.Admin).Missing(c.who.Scopes); fact != nil {
			return nil, fact
		}
	}
	if op.ID, fact = bs.idOf(c, in.GetId()); fact != nil {
		return nil, fact
	}
	return bs.begin(ctx, c, op, in.GetDryRun())
}

// Redrive begins a job that makes the dead tasks of a queue ready.
// Errors: as of Start.
func (bs *BulkService) Redrive(ctx context.Context, in *pb.RedriveRequest) (*pb.StartBulkResponse, error) {
	if fact := QueueName("queue", in.GetQueue()); fact != nil {
		return nil, fact
	}
	return bs.start(ctx, "", &pb.StartBulkRequest{
		Id: in.GetId(), Action: pb.BulkJob_RETRY, Rate: in.GetRate(), Reason: in.GetReason(), DryRun: in.GetDryRun(),
		ToQueue: in.GetToQueue(), Patch: in.GetPatch(),
		Filter: &pb.TaskFilter{
			Queue: in.GetQueue(), State: pb.State_DEAD, Kind: in.GetKind(), Labels: in.GetLabels(), From: in.GetFrom(), To: in.GetTo(),
		},
	})
}

// startOf reads a start, but for the id.
func (bs *BulkService) startOf(path string, in *pb.StartBulkRequest) (op *core.BulkStart, fact core.Fact) {
	op = &core.BulkStart{Action: core.BulkAction(in.GetAction()), Force: in.GetForce(), Reason: in.GetReason()}
	if in.GetAction() <= 0 || in.GetAction() > pb.BulkJob_PRIORITIZE {
		return nil, edge.Invalid("action", "must be cancel, retry, delete or prioritize")
	}
	if fact = reason(in.GetReason()); fact != nil {
		return nil, fact
	}
	if in.GetRate() > core.MaxBulkRate {
		return nil, edge.Beyond("rate", "bulk_rate", core.MaxBulkRate, "is out of range")
	}
	op.Rate = cmp.Or(in.GetRate(), core.DefaultBulkRate)
	switch {
	case in.GetForce() && op.Action != core.BulkCancel:
		return nil, edge.Invalid("force", "must not be set unless the action is cancel")
	case in.GetPriority() != 0 && op.Action != core.BulkPrioritize:
		return nil, edge.Invalid("priority", "must not be set unless the action is prioritize")
	case int64(in.GetPriority()) > bs.s.Limits.Priority:
		return nil, edge.Beyond("priority", "priority", bs.s.Limits.Priority, "is out of range")
	}
	op.Priority = uint8(in.GetPriority())
	if fact = moveOf(op, in); fact != nil {
		return nil, fact
	}
	if op.Tasks, fact = bs.filter(in.GetFilter()); fact != nil && path != "" {
		fact = edge.Within(path, fact)
	}
	if fact != nil {
		return nil, fact
	}
	if s := op.Tasks.State; s != 0 && !slices.Contains(op.Action.States(), s) {
		return nil, edge.Invalid("filter.state", "must be a state that the action is about")
	}
	return op, nil
}

// moveOf reads where the tasks of a retry go, and what becomes of their payloads.
func moveOf(op *core.BulkStart, in *pb.StartBulkRequest) core.Fact {
	op.ToQueue, op.Patch = in.GetToQueue(), in.GetPatch()
	switch {
	case op.ToQueue != "" && op.Action != core.BulkRetry:
		return edge.Invalid("to_queue", "must not be set unless the action is retry")
	case len(op.Patch) > 0 && op.Action != core.BulkRetry:
		return edge.Invalid("patch", "must not be set unless the action is retry")
	case len(op.Patch) > core.MaxBulkPatch:
		return edge.TooLarge("patch", "patch_bytes", core.MaxBulkPatch)
	case len(op.Patch) > 0 && (op.Patch[0] != '{' || !json.Valid(op.Patch)):
		return edge.Invalid("patch", "must be a JSON object")
	case op.ToQueue != "":
		return QueueName("to_queue", op.ToQueue)
	}
	return nil
}

// filter reads which tasks a job is about.
func (bs *BulkService) filter(in *pb.TaskFilter) (f core.TaskFilter, fact core.Fact) {
	q, fact := bs.s.Tasks().listQuery(&pb.ListRequest{
		Queue: in.GetQueue(), State: in.GetState(), Kind: in.GetKind(), Worker: in.GetWorker(), Unique: in.GetUnique(),
		From: in.GetFrom(), To: in.GetTo(), Fingerprint: in.GetFingerprint(), Batch: in.GetBatch(),
	})
	if fact != nil {
		return f, fact
	}
	f = core.TaskFilter{Queue: q.Queue, State: q.State, Kind: q.Kind, Worker: q.Worker, Unique: q.Unique, From: q.From, To: q.To, Fingerprint: q.Fingerprint, Batch: q.Batch}
	f.Labels, fact = labels(in.GetLabels())
	return f, fact
}

// idOf reads the id of a job, or makes one.
func (bs *BulkService) idOf(c *call, s string) (core.TaskID, core.Fact) {
	if s != "" {
		return ReadTaskID("id", s)
	}
	ms, random := c.t.draw()
	return core.NewTaskID(ms, 0, random), nil
}

// begin counts what a job will find, and begins it in all partitions, the first one first, unless it is for show.
func (bs *BulkService) begin(ctx context.Context, c *call, op *core.BulkStart, dry bool) (*pb.StartBulkResponse, error) {
	if op.Tasks.Queue != "" {
		// A queue that no partition has is a mistake, and not one without tasks.
		if _, _, err := c.queue(ctx, op.Tasks.Queue, core.ReadOptions{}); err != nil {
			return nil, err
		}
	}
	found := make([]core.BulkCount, c.t.parts)
	until := bs.s.o.Clock.Boot() + bulkCounts
	if err := c.each(0, func(p core.Partition) (err error) {
		found[p.Index], err = bs.count(ctx, p, op, until)
		return err
	}); err != nil {
		return nil, err
	}
	out := &pb.StartBulkResponse{Found: showCount(found)}
	if dry {
		return out, nil
	}
	in := func(p core.Partition) *core.BulkStart {
		one := *op
		one.Matched, one.Exact = found[p.Index].Count, found[p.Index].Next == nil
		return &one
	}
	r, at, err := c.proposeOp(ctx, in(c.t.part))
	if err != nil {
		return nil, err
	}
	out.Replayed, out.At = r.Replayed, ShowAt(at)
	if c.t.several() {
		if err := c.each(1, func(p core.Partition) error {
			end := c.s.forward(ctx, p, []core.Commit{c.t.commitIn(p, []core.Op{in(p)})})
			switch {
			case end.Err != nil:
				return halfway(end.Err)
			case end.Results[0].Refusal != nil:
				return halfway(end.Results[0].Refusal.Fact)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	job, _, err := bs.job(ctx, c, op.ID, core.ReadOptions{})
	if err != nil {
		return nil, err
	}
	out.Job = job
	return out, nil
}

// count counts the tasks of a partition that a job will find. Where the states of a queue say it, it is known without a look at each;
// else it stops at until, a time of the clock since boot. Next is set where not all were looked at.
func (bs *BulkService) count(ctx context.Context, p core.Partition, op *core.BulkStart, until time.Duration) (all core.BulkCount, err error) {
	f := op.Tasks.Query()
	plain := f.Queue != "" && !f.Picky() && op.Action != core.BulkPrioritize
	for {
		c, _, err := bs.bulk.CountBulk(ctx, p, op, all.Next, bulkSample-len(all.Sample))
		if err != nil {
			return all, err
		}
		all.Count, all.Inspected = all.Count+c.Count, all.Inspected+c.Inspected
		if all.Oldest == 0 || c.Oldest != 0 && c.Oldest < all.Oldest {
			all.Oldest = c.Oldest
		}
		all.Newest = max(all.Newest, c.Newest)
		all.Sample, all.Next = append(all.Sample, c.Sample...), c.Next
		if c.Next == nil || plain || bs.s.o.Clock.Boot() >= until {
			break
		}
	}
	if !plain || all.Next == nil {
		return all, nil
	}
	q, _, err := bs.s.node.queues.Queue(ctx, p, f.Queue, core.ReadOptions{})
	if err != nil {
		return all, ignoreNotFound(err)
	}
	all.Count, all.Next = 0, nil
	for _, s := range op.Action.States() {
		if f.State == 0 || f.State == s {
			all.Count += q.States[s]
		}
	}
	return all, nil
}

// showCount shows the counts of all partitions as one.
func showCount(found []core.BulkCount) *pb.BulkCount {
	out := &pb.BulkCount{Exact: true}
	var oldest, newest core.ShardTime
	for i := range found {
		f := &found[i]
		out.Count, out.Inspected = out.Count+f.Count, out.Inspected+f.Inspected
		out.Exact = out.Exact && f.Next == nil
		if oldest == 0 || f.Oldest != 0 && f.Oldest < oldest {
			oldest = f.Oldest
		}
		newest = max(newest, f.Newest)
		for j := range f.Sample[:min(len(f.Sample), bulkSample-len(out.Sample))] {
			out.Sample = append(out.Sample, ShowTask(&f.Sample[j]))
		}
	}
	out.Oldest, out.Newest = TimeOf(oldest), TimeOf(newest)
	return out
}

// List reads the jobs of the namespace, the last begun first.
func (bs *BulkService) List(ctx context.Context, in *pb.ListBulkRequest) (*pb.ListBulkResponse, error) {
	c, err := bs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListBulkResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	jobs, at, err := bs.jobs(ctx, c, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.ListBulkResponse{At: ShowAt(at)}
	for i := range jobs {
		out.Jobs = append(out.Jobs, showJob(&jobs[i]))
	}
	return out, nil
}

// Get reads one job.
// Errors: NotFound for one that was forgotten a day after its end, too.
func (bs *BulkService) Get(ctx context.Context, in *pb.GetBulkRequest) (*pb.GetBulkResponse, error) {
	c, id, err := bs.find(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	job, at, err := bs.job(ctx, c, id, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.GetBulkResponse{Job: job, At: ShowAt(at)}, nil
}

// Cancel ends a job before its end, in all partitions.
func (bs *BulkService) Cancel(ctx context.Context, in *pb.CancelBulkRequest) (*pb.CancelBulkResponse, error) {
	c, id, err := bs.find(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	jobs, _, err := bs.jobs(ctx, c, core.ReadOptions{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(jobs, func(j core.BulkJob) bool { return j.ID == id })
	if i < 0 {
		return nil, core.NotFound{Kind: "bulk", ID: in.GetId()}
	}
	r, at, err := c.proposeOp(ctx, &core.BulkStop{ID: id})
	// Where a start got only to some partitions, the others have nothing to end.
	if err = ignoreNotFound(err); err != nil {
		return nil, err
	}
	if c.t.several() {
		if err := c.each(1, func(p core.Partition) error {
			end := c.s.forward(ctx, p, []core.Commit{c.t.commitIn(p, []core.Op{&core.BulkStop{ID: id}})})
			if end.Err == nil && end.Results[0].Refusal != nil {
				end.Err = end.Results[0].Refusal.Fact
			}
			if end.Err != nil && ignoreNotFound(end.Err) != nil {
				return halfway(end.Err)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return &pb.CancelBulkResponse{Replayed: r.Replayed || jobs[i].State != core.BulkRunning, At: ShowAt(at)}, nil
}

// find begins a call about a job.
func (bs *BulkService) find(ctx context.Context, s string) (*call, core.TaskID, error) {
	id, fact := ReadTaskID("id", s)
	if fact != nil {
		return nil, id, fact
	}
	c, err := bs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		err = core.NotFound{Kind: "bulk", ID: s}
	}
	return c, id, err
}

// job reads one job.
func (bs *BulkService) job(ctx context.Context, c *call, id core.TaskID, o core.ReadOptions) (*pb.BulkJob, core.At, error) {
	jobs, at, err := bs.jobs(ctx, c, o)
	if err != nil {
		return nil, at, err
	}
	for i := range jobs {
		if jobs[i].ID == id {
			return showJob(&jobs[i]), at, nil
		}
	}
	return nil, at, core.NotFound{Kind: "bulk", ID: id.String()}
}

// jobs reads the jobs of all partitions, those of one id as one, the last begun first. A job of another queue than the caller's token
// reaches is left out.
func (bs *BulkService) jobs(ctx context.Context, c *call, o core.ReadOptions) (all []core.BulkJob, at core.At, err error) {
	if !c.t.several() {
		all, at, err = bs.bulk.Bulks(ctx, c.t.part, o)
		estimate(all, bs.s.wallTime(c.t.part))
	} else {
		var mu sync.Mutex // guards the answer
		err = c.each(0, func(p core.Partition) error {
			list, one, err := bs.bulk.Bulks(ctx, p, o)
			if err != nil {
				return err
			}
			estimate(list, bs.s.wallTime(p))
			mu.Lock()
			defer mu.Unlock()
			merge(&at, one)
			for i := range list {
				all = addJob(all, &list[i])
			}
			return nil
		})
	}
	all = slices.DeleteFunc(all, func(j core.BulkJob) bool { return !c.who.ReachesQueue(j.Tasks.Queue) })
	slices.SortFunc(all, func(a, b core.BulkJob) int {
		return cmp.Or(cmp.Compare(b.Started, a.Started), slices.Compare(b.ID[:], a.ID[:]))
	})
	return all, at, err
}

// wallTime is the time of a partition by the wall clocks.
func (s *Server) wallTime(p core.Partition) core.ShardTime {
	return s.node.places.Now(p).Add(s.node.places.Shift(p))
}

// estimate tells of jobs that run when they will be done: at the pace that each had so far, and no faster than its rate allows.
// Nothing is told of one that did not count all of its tasks.
func estimate(jobs []core.BulkJob, now core.ShardTime) {
	for i := range jobs {
		j := &jobs[i]
		if j.State != core.BulkRunning || !j.Exact {
			continue
		}
		handled := j.Done
		for _, r := range j.Refused {
			handled += r.Count
		}
		left := float64(j.Matched) - float64(handled)
		rest := 1000 * left / float64(max(j.Rate, 1))
		if handled > 0 {
			rest = max(rest, left*float64(now-j.Started)/float64(handled))
		}
		j.ETA = now.Add(core.Millis(min(max(rest, 0), maxETA)))
	}
}

// maxETA is how far ahead an estimate goes: a year, in milliseconds.
const maxETA = 365 * 24 * 3600 * 1000

// addJob adds a partition's part of a job. It runs while any part does, and was stopped if any part was.
func addJob(all []core.BulkJob, j *core.BulkJob) []core.BulkJob {
	i := slices.IndexFunc(all, func(a core.BulkJob) bool { return a.ID == j.ID })
	if i < 0 {
		one := *j
		one.Refused = slices.Clone(j.Refused)
		return append(all, one)
	}
	a := &all[i]
	switch {
	case a.State == core.BulkRunning || j.State == core.BulkRunning:
		a.State, a.Ended = core.BulkRunning, 0
	default:
		a.State, a.Ended = max(a.State, j.State), max(a.Ended, j.Ended)
	}
	a.Started = min(a.Started, j.Started)
	a.Matched, a.Looked, a.Done = a.Matched+j.Matched, a.Looked+j.Looked, a.Done+j.Done
	a.Exact = a.Exact && j.Exact
	// It is done when its last part is, and not known where that of a part is not.
	if a.ETA = max(a.ETA, j.ETA); !a.Exact {
		a.ETA = 0
	}
	for _, r := range j.Refused {
		if at := slices.IndexFunc(a.Refused, func(have core.BulkRefused) bool { return have.Code == r.Code }); at >= 0 {
			a.Refused[at].Count += r.Count
		} else {
			a.Refused = append(a.Refused, r)
		}
	}
	return all
}

// showJob shows a job. Tasks that were counted before its start and not met count as refused once it is done.
func showJob(j *core.BulkJob) *pb.BulkJob {
	out := &pb.BulkJob{
		Id: j.ID.String(), Action: pb.BulkJob_Action(j.Action), Filter: showFilter(&j.Tasks), Priority: uint32(j.Priority), Force: j.Force,
		Rate: j.Rate, Reason: j.Reason, By: j.By, State: pb.BulkJob_State(j.State), StartedAt: TimeOf(j.Started), EndedAt: TimeOf(j.Ended),
		Matched: j.Matched, Exact: j.Exact, Looked: j.Looked, Done: j.Done, Eta: TimeOf(j.ETA), ToQueue: j.ToQueue, Patch: j.Patch,
	}
	met := j.Done
	for _, r := range j.Refused {
		met += r.Count
		out.Refused = append(out.Refused, &pb.BulkRefused{Code: r.Code, Count: r.Count})
	}
	if j.State == core.BulkDone && j.Exact && j.Matched > met {
		out.Refused = append(out.Refused, &pb.BulkRefused{Code: bulkChanged, Count: j.Matched - met})
	}
	return out
}

// showFilter shows which tasks a job is about.
func showFilter(f *core.TaskFilter) *pb.TaskFilter {
	out := &pb.TaskFilter{
		Queue: f.Queue, State: pb.State(f.State), Kind: f.Kind, Worker: f.Worker, Unique: f.Unique, From: TimeOf(f.From), To: TimeOf(f.To),
		Fingerprint: f.Fingerprint.String(), Batch: showTaskID(f.Batch),
	}
	for _, l := range f.Labels {
		if out.Labels == nil {
			out.Labels = make(map[string]string, len(f.Labels))
		}
		out.Labels[l.Name] = l.Value
	}
	return out
}
