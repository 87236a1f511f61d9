package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/cron"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// cronPageBytes is how many bytes of templates a page of crons has about.
	cronPageBytes = 4 << 20
	// cronPreview is how many slots a preview shows when it does not say, and cronPreviewMost how many at most.
	cronPreview     = 5
	cronPreviewMost = 100
	// cronChanges is how many changes of the clocks a preview shows, of those within a year.
	cronChanges = 4
	// CronRunsListed is how many runs of each cron a list shows at most, so that a page of crons is read at once.
	CronRunsListed = 20
	// cronGaps is how many slots are looked at to find the shortest time between two, which bounds the jitter.
	cronGaps = 1000
)

// CronService makes tasks by schedules. A cron lives in the partition of its name.
type CronService struct {
	pb.UnimplementedCronServiceServer
	s    *Server
	cron CronBackend
}

// Crons is the service of crons.
func (s *Server) Crons() *CronService { return &CronService{s: s, cron: s.node.crons} }

// beginCron is begin for a cron, in its partition. create says that the namespace is made where there is none.
func (cs *CronService) beginCron(ctx context.Context, name string, create bool) (*call, error) {
	if fact := QueueName("name", name); fact != nil {
		return nil, fact
	}
	c, err := cs.s.begin(ctx, create)
	if edge.UnknownNamespace(err) {
		return nil, core.NotFound{Kind: "cron", ID: name}
	}
	if err == nil && c.t.several() {
		c.t.part = c.t.in(int(core.PlaceCron(name, c.t.parts)))
	}
	return c, err
}

// reached reads a cron that the caller's token reaches: its tasks are of a queue that the token names. Another one is not there.
func (cs *CronService) reached(ctx context.Context, c *call, name string, o core.ReadOptions) (core.Cron, core.At, error) {
	got, at, err := cs.cron.Cron(ctx, c.t.part, name, o)
	if err == nil && !c.who.ReachesQueue(got.Template.Queue) {
		err = core.NotFound{Kind: "cron", ID: name}
	}
	return got, at, err
}

// change proposes an op on a cron that must be there and be reached.
func (cs *CronService) change(ctx context.Context, name string, op func(c *call) (core.Op, core.Fact)) (c *call, r core.OpResult, at core.At, err error) {
	if fact := cs.s.shared("name"); fact != nil {
		return nil, r, at, fact
	}
	if c, err = cs.beginCron(ctx, name, false); err != nil {
		return nil, r, at, err
	}
	if !c.who.AllQueues() {
		if _, _, err = cs.reached(ctx, c, name, core.ReadOptions{}); err != nil {
			return nil, r, at, err
		}
	}
	o, fact := op(c)
	if fact != nil {
		return nil, r, at, fact
	}
	r, at, err = c.proposeOp(ctx, o)
	return c, r, at, err
}

// Set makes a cron, or replaces it.
// Errors: Invalid and TooLarge name the field; RevMismatch for another version; Exhausted with limit crons.
func (cs *CronService) Set(ctx context.Context, in *pb.SetCronRequest) (*pb.SetCronResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	if fact := QueueName("name", in.GetName()); fact != nil {
		return nil, fact
	}
	if fact := cs.s.shared("name"); fact != nil {
		return nil, fact
	}
	// Before the namespace is made: a mistake leaves nothing behind.
	schedule, err := cron.Parse(in.GetConfig().GetSchedule(), in.GetConfig().GetZone())
	if err != nil {
		return nil, edge.Within("config", badCron(err))
	}
	if fact := cs.s.reachesQueue(ctx, in.GetConfig().GetTemplate().GetQueue()); fact != nil {
		return nil, fact
	}
	c, err := cs.beginCron(ctx, in.GetName(), true)
	if err != nil {
		return nil, err
	}
	op, fact := c.t.cronSet(in.GetName(), in.GetConfig(), schedule)
	if pinned, ok := fact.(core.QueuePinned); ok {
		return nil, c.t.pinnedCron(in.GetName(), pinned.Queue)
	}
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	if !c.who.AllQueues() { // it may be one of another queue
		was, _, err := cs.cron.Cron(ctx, c.t.part, in.GetName(), core.ReadOptions{})
		if err == nil && !c.who.ReachesQueue(was.Template.Queue) {
			return nil, deniedQueue(was.Template.Queue)
		}
		if err := ignoreNotFound(err); err != nil {
			return nil, err
		}
	}
	op.IfVersion = version
	_, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	shown, err := cs.show(ctx, c, in.GetName(), at)
	if err != nil {
		return nil, err
	}
	return &pb.SetCronResponse{Cron: shown, At: ShowAt(at)}, nil
}

// pinnedCron refuses a cron of a pinned queue that is of another partition by its name, and says which name would do.
func (t *Translator) pinnedCron(name, queue string) core.Fact {
	other := name
	for i := 2; core.PlaceCron(other, t.parts) != core.PinnedPartition; i++ {
		other = fmt.Sprintf("%s-%d", name, i)
	}
	fact := edge.Belongs("name", core.PinnedPartition).(edge.Misplaced)
	fact.Message = fmt.Sprintf("must be one of partition %d, where queue %q has all its tasks, such as %s", core.PinnedPartition, queue, other)
	return fact
}

// show reads a cron as it is at an index or later, with its last run.
func (cs *CronService) show(ctx context.Context, c *call, name string, at core.At) (*pb.Cron, error) {
	got, _, err := cs.cron.Cron(ctx, c.t.part, name, core.ReadOptions{MinIndex: at.Index})
	if err != nil {
		return nil, err
	}
	return cs.withRun(ctx, c, &got, at)
}

// withRun shows a cron with its last run.
func (cs *CronService) withRun(ctx context.Context, c *call, got *core.Cron, at core.At) (*pb.Cron, error) {
	var err error
	if got.Runs > 0 {
		got.Recent, _, err = cs.cron.CronRuns(ctx, c.t.part, got.Name, 0, 1, readOptions(at.Index, true))
	}
	return showCron(got, 0), ignoreNotFound(err)
}

// badCron is the fact of a schedule that cannot be read.
func badCron(err error) core.Fact {
	bad, ok := errors.AsType[*cron.Error](err)
	switch {
	case !ok:
		return edge.Invalid("schedule", "must be a schedule")
	case bad.Limit != "":
		return edge.Beyond(bad.Field, bad.Limit, bad.Max, bad.Message)
	}
	return edge.Invalid(bad.Field, bad.Message)
}

// cronSet reads a cron, whose schedule was read before.
func (t *Translator) cronSet(name string, in *pb.CronConfig, schedule *cron.Schedule) (op *core.CronSet, fact core.Fact) {
	op = &core.CronSet{Name: name, Config: core.CronConfig{Schedule: strings.TrimSpace(in.GetSchedule()), Zone: in.GetZone(), Paused: in.GetPaused()}}
	c := &op.Config
	if c.Jitter, fact = Millis("jitter", in.GetJitter(), Span{0, core.MaxCronJitter, "cron_jitter"}); fact != nil {
		return nil, fact
	}
	if gap := schedule.Shortest(t.now.Time(), cronGaps); c.Jitter.Duration() >= gap {
		return nil, edge.Beyond("jitter", "cron_period", gap.Milliseconds(), "must be shorter than the time between two slots")
	}
	if c.Start, fact = moment("start", in.GetStart(), t.now, t.l.HorizonMs); fact != nil {
		return nil, fact
	}
	if c.End, fact = moment("end", in.GetEnd(), t.now, t.l.HorizonMs); fact != nil {
		return nil, fact
	}
	switch {
	case c.End != 0 && c.End < c.Start:
		return nil, edge.Invalid("end", "must not be before start")
	case in.GetOverlap() < 0 || in.GetOverlap() > pb.CronConfig_CANCEL_PREVIOUS:
		return nil, edge.Invalid("overlap", "must be skip, allow, queue_one or cancel_previous")
	case in.GetCatchUp() < 0 || in.GetCatchUp() > pb.CronConfig_ALL:
		return nil, edge.Invalid("catch_up", "must be one, none or all")
	}
	c.Overlap, c.CatchUp = core.CronOverlap(in.GetOverlap()), core.CronCatchUp(in.GetCatchUp())
	if fact = t.template(&op.Template, in.GetTemplate()); fact != nil {
		return nil, edge.Within("template", fact)
	}
	if fact = t.placeTemplate(&op.Template); fact != nil {
		return nil, edge.Within("template", fact)
	}
	return op, nil
}

// template reads what the tasks of a cron are made of.
func (t *Translator) template(op *core.TaskCreate, in *pb.TaskTemplate) core.Fact {
	if in == nil {
		return edge.Invalid("", "is required")
	}
	if int64(len(in.GetHeaders())) > t.l.Headers-2 { // each task has two of its own
		return edge.TooLarge("headers", "headers", t.l.Headers-2)
	}
	fact := t.fillCreate(op, &pb.TaskSpec{
		Queue: in.GetQueue(), Kind: in.GetKind(), Payload: in.GetPayload(), ContentType: in.GetContentType(), Headers: in.GetHeaders(), Priority: in.GetPriority(),
		MaxAttempts: in.GetMaxAttempts(), MaxCrashes: in.GetMaxCrashes(), MaxDeliveries: in.MaxDeliveries, Lease: in.GetLease(), MaxRun: in.GetMaxRun(),
		Retry: in.GetRetry(), Labels: in.GetLabels(), Tag: in.GetTag(), Key: in.GetKey(), Cost: in.GetCost(), Limiters: in.GetLimiters(),
	})
	op.ID = core.TaskID{}
	if op.Cost == 1 { // as without one: the same template has the same bytes
		op.Cost = 0
	}
	return fact
}

// Get reads a cron.
// Errors: NotFound.
func (cs *CronService) Get(ctx context.Context, in *pb.GetCronRequest) (*pb.GetCronResponse, error) {
	c, err := cs.beginCron(ctx, in.GetName(), false)
	if err != nil {
		return nil, err
	}
	got, at, err := cs.reached(ctx, c, in.GetName(), readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	shown, err := cs.withRun(ctx, c, &got, at)
	if err != nil {
		return nil, err
	}
	return &pb.GetCronResponse{Cron: shown, At: ShowAt(at)}, nil
}

// List reads a page of crons by name, of all partitions.
func (cs *CronService) List(ctx context.Context, in *pb.ListCronsRequest) (*pb.ListCronsResponse, error) {
	limit, fact := cs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	after, fact := readNameCursor(in.GetCursor(), true)
	if fact != nil {
		return nil, fact
	}
	if in.GetRuns() > CronRunsListed {
		return nil, edge.Beyond("runs", "cron_runs_listed", CronRunsListed, "is out of range")
	}
	runs := int(in.GetRuns())
	if p := in.GetPrefix(); p != "" {
		if fact := QueueName("prefix", p); fact != nil {
			return nil, fact
		}
	}
	c, err := cs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListCronsResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &pb.ListCronsResponse{}
	for full := false; !full; {
		q := core.CronQuery{After: after, Limit: limit - len(out.GetCrons()), Runs: max(runs, 1)}
		page, at, more, err := cs.page(ctx, c, q, in.GetPrefix(), readOptions(0, in.GetStale()))
		if err != nil {
			return nil, err
		}
		out.At = ShowAt(at[0])
		for i := range page {
			one := &page[i]
			after = one.Name
			if !strings.HasPrefix(one.Name, in.GetPrefix()) {
				more = false // those behind it have the prefix no more
				break
			}
			if !c.who.ReachesQueue(one.Template.Queue) {
				continue
			}
			out.Crons = append(out.Crons, showCron(one, runs))
		}
		if full = len(out.GetCrons()) == limit || !more; full && more {
			out.Cursor = showCursor([]byte(after))
		}
	}
	return out, nil
}

// page reads a page of crons by name, of all partitions; at is where each of these stands. more says that there may be others behind the
// last one.
func (cs *CronService) page(ctx context.Context, c *call, q core.CronQuery, prefix string, o core.ReadOptions) (list []core.Cron, at []core.At, more bool, err error) {
	if q.After == "" && prefix != "" {
		q.After = before(prefix)
	}
	q.Bytes = cronPageBytes / max(c.t.parts, 1)
	pages, mores, at := make([][]core.Cron, c.t.parts), make([]bool, c.t.parts), make([]core.At, max(c.t.parts, 1))
	if err := c.each(0, func(p core.Partition) (err error) {
		pages[p.Index], mores[p.Index], at[p.Index], err = cs.cron.Crons(ctx, p, q, o)
		return err
	}); err != nil {
		return nil, nil, false, err
	}
	// What lies behind the end of a page that was cut short is not known yet.
	var end string
	for i, page := range pages {
		if mores[i] && len(page) > 0 {
			if last := page[len(page)-1].Name; end == "" || last < end {
				end = last
			}
			more = true
		}
		list = append(list, page...)
	}
	slices.SortFunc(list, func(a, b core.Cron) int { return strings.Compare(a.Name, b.Name) })
	if end != "" {
		list = slices.DeleteFunc(list, func(c core.Cron) bool { return c.Name > end })
	}
	if len(list) > q.Limit {
		list, more = list[:q.Limit], true
	}
	return list, at, more, nil
}

// before is a name just before all names with a prefix.
func before(prefix string) string {
	b := []byte(prefix)
	b[len(b)-1]--
	return string(append(b, 0xff))
}

// Delete removes a cron.
// Errors: NotFound; RevMismatch for another version.
func (cs *CronService) Delete(ctx context.Context, in *pb.DeleteCronRequest) (*pb.DeleteCronResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	_, r, at, err := cs.change(ctx, in.GetName(), func(*call) (core.Op, core.Fact) {
		return &core.CronDelete{Name: in.GetName(), IfVersion: version}, nil
	})
	if err == nil && !r.Existed {
		err = core.NotFound{Kind: "cron", ID: in.GetName()}
	}
	if err != nil {
		return nil, err
	}
	return &pb.DeleteCronResponse{At: ShowAt(at)}, nil
}

// Pause lets the slots of a cron go by.
// Errors: NotFound.
func (cs *CronService) Pause(ctx context.Context, in *pb.PauseCronRequest) (*pb.PauseCronResponse, error) {
	_, r, at, err := cs.change(ctx, in.GetName(), func(*call) (core.Op, core.Fact) {
		return &core.CronSet{Name: in.GetName(), Change: core.CronChangePause, IfVersion: -1}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.PauseCronResponse{Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// Resume lets a paused cron go on.
// Errors: NotFound.
func (cs *CronService) Resume(ctx context.Context, in *pb.ResumeCronRequest) (*pb.ResumeCronResponse, error) {
	_, r, at, err := cs.change(ctx, in.GetName(), func(*call) (core.Op, core.Fact) {
		return &core.CronSet{Name: in.GetName(), Change: core.CronChangeResume, IfVersion: -1}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.ResumeCronResponse{Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// Trigger runs a cron by hand.
// Errors: NotFound.
func (cs *CronService) Trigger(ctx context.Context, in *pb.TriggerCronRequest) (*pb.TriggerCronResponse, error) {
	var id core.TaskID
	c, r, at, err := cs.change(ctx, in.GetName(), func(c *call) (core.Op, core.Fact) {
		var fact core.Fact
		if id, fact = c.t.triggerID(in.GetId()); fact != nil {
			return nil, fact
		}
		return &core.CronFire{Name: in.GetName(), Trigger: id}, nil
	})
	if err != nil {
		return nil, err
	}
	number, _ := core.CronRunOf(r.Version)
	run := &pb.CronRun{Outcome: pb.CronRun_STARTED, Task: id.String(), State: pb.State(r.State), ByHand: true}
	if number > 0 { // else it is a repetition, whose run may be forgotten
		runs, _, err := cs.cron.CronRuns(ctx, c.t.part, in.GetName(), number+1, 1, core.ReadOptions{MinIndex: at.Index})
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 && runs[0].Number == number {
			run = showRun(&runs[0], nil)
		}
	}
	return &pb.TriggerCronResponse{Run: run, At: ShowAt(at)}, nil
}

// triggerID reads the id of the task of a run by hand, or makes one. It must name the partition of the cron.
func (t *Translator) triggerID(s string) (core.TaskID, core.Fact) {
	if s == "" {
		return t.idAt(int(t.part.Index)), nil
	}
	id, fact := ReadTaskID("id", s)
	if fact != nil {
		return id, fact
	}
	return id.WithPartition(t.part.Index), nil
}

// Runs reads the last runs of a cron.
// Errors: NotFound.
func (cs *CronService) Runs(ctx context.Context, in *pb.ListCronRunsRequest) (*pb.ListCronRunsResponse, error) {
	c, err := cs.beginCron(ctx, in.GetName(), false)
	if err != nil {
		return nil, err
	}
	o := readOptions(0, in.GetStale())
	one, _, err := cs.reached(ctx, c, in.GetName(), o)
	if err != nil {
		return nil, err
	}
	runs, at, err := cs.cron.CronRuns(ctx, c.t.part, in.GetName(), 0, core.MaxCronRuns, o)
	if err != nil {
		return nil, err
	}
	return &pb.ListCronRunsResponse{Runs: showRuns(runs, scheduleOf(&one)), At: ShowAt(at)}, nil
}

// Preview says when a schedule holds. It stores nothing.
func (cs *CronService) Preview(ctx context.Context, in *pb.PreviewCronRequest) (*pb.PreviewCronResponse, error) {
	schedule, err := cron.Parse(in.GetSchedule(), in.GetZone())
	if err != nil {
		return nil, badCron(err)
	}
	n := in.GetCount()
	if n == 0 {
		n = cronPreview
	}
	if n > cronPreviewMost {
		return nil, edge.Beyond("count", "cron_preview", cronPreviewMost, "is out of range")
	}
	c, err := cs.s.begin(ctx, false)
	if err != nil && !edge.UnknownNamespace(err) {
		return nil, err
	}
	from := cs.s.o.Clock.Wall()
	if c != nil { // by the clocks of the cluster
		from = c.t.now.Time()
	}
	if in.GetFrom() != nil {
		at, fact := moment("from", in.GetFrom(), core.ShardTimeOf(from), cs.s.Limits.HorizonMs)
		if fact != nil {
			return nil, fact
		}
		from = at.Time()
	}
	out := &pb.PreviewCronResponse{Words: schedule.Words()}
	at := from
	for range n {
		slot, ok := schedule.Next(at, from)
		if !ok {
			break
		}
		out.Times, at = append(out.Times, schedule.Local(slot)), slot
	}
	for _, change := range schedule.Changes(from, from.AddDate(1, 0, 0), cronChanges) {
		out.Dst = append(out.Dst, showChange(&change, schedule))
	}
	return out, nil
}

// showChange shows a change of the clocks.
func showChange(c *cron.Change, in *cron.Schedule) *pb.CronChange {
	out := &pb.CronChange{At: timestamppb.New(c.At), Kind: pb.CronChange_REPEATED, By: durationpb.New(c.By.Abs()), Words: c.Words}
	if c.Skips() {
		out.Kind = pb.CronChange_SKIPPED
	}
	for _, slot := range c.Slots {
		out.Slots = append(out.Slots, in.Local(slot))
	}
	return out
}

// scheduleOf reads the schedule of a cron; nil: it cannot be read here, as it was set by a node that knows other zones.
func scheduleOf(c *core.Cron) *cron.Schedule {
	s, err := cron.Parse(c.Schedule, c.Zone)
	if err != nil {
		return nil
	}
	return s
}

// showCron shows a cron with its last run, and with several of them in recent. A next slot that no leader has computed yet is computed
// here: it follows from what is stored.
func showCron(c *core.Cron, runs int) *pb.Cron {
	out := &pb.Cron{
		Name: c.Name, Version: c.Version, CreatedAt: TimeOf(c.Created), UpdatedAt: TimeOf(c.Updated), WaitingAt: TimeOf(c.Waiting), By: c.By, Runs: c.Runs,
		Config: &pb.CronConfig{
			Schedule: c.Schedule, Zone: c.Zone, Template: showTemplate(&c.Template), Start: TimeOf(c.Start), End: TimeOf(c.End), Paused: c.Paused,
			Jitter: spanOf(c.Jitter), Overlap: pb.CronConfig_Overlap(c.Overlap), CatchUp: pb.CronConfig_CatchUp(c.CatchUp),
		},
	}
	next, schedule := c.Next, scheduleOf(c)
	if schedule != nil {
		out.Words = schedule.Words()
		if next == 0 {
			next = schedule.NextOf(&c.CronConfig, c.Anchor, c.Anchor)
		}
	}
	if out.NextAt = TimeOf(next); out.NextAt != nil && schedule != nil {
		out.NextLocal = schedule.Local(next.Time())
	}
	if len(c.Recent) > 0 {
		out.LastRun = showRun(&c.Recent[0], schedule)
		out.Recent = showRuns(c.Recent[:min(len(c.Recent), runs)], schedule)
	}
	return out
}

// showTemplate shows what tasks are made of, so that a client may send back what it read.
func showTemplate(op *core.TaskCreate) *pb.TaskTemplate {
	out := &pb.TaskTemplate{
		Queue: op.Queue, Kind: op.TaskKind, Payload: op.Payload, ContentType: op.ContentType, Headers: showHeaders(op.Headers), Priority: uint32(op.Priority),
		MaxAttempts: op.MaxAttempts, MaxCrashes: op.MaxCrashes, Lease: spanOf(op.Lease), MaxRun: spanOf(op.MaxRun), Tag: op.Tag, Labels: showLabels(op.Labels),
		Key: op.Key, Cost: op.Cost,
	}
	out.Limiters = op.Limiters
	if op.MaxDeliveries != 0 {
		n := max(op.MaxDeliveries, 0)
		out.MaxDeliveries = &n
	}
	if !op.Retry.IsZero() {
		out.Retry = showRetry(op.Retry)
	}
	return out
}

// runSkips say why a run made no task.
var runSkips = map[core.CronOutcome]string{core.CronOverlaps: "overlap", core.CronMissed: "missed", core.CronReplaced: "replaced"}

// showRuns shows runs of a cron.
func showRuns(runs []core.CronRun, in *cron.Schedule) (out []*pb.CronRun) {
	for i := range runs {
		out = append(out, showRun(&runs[i], in))
	}
	return out
}

// showRun shows a run of a cron, with its slot by the clocks of a schedule; nil: without.
func showRun(r *core.CronRun, in *cron.Schedule) *pb.CronRun {
	out := &pb.CronRun{
		Number: r.Number, Slot: TimeOf(r.Slot), At: TimeOf(r.At), ByHand: r.Trigger, State: pb.State(r.State), Passed: r.Passed, Skipped: runSkips[r.Outcome],
		BeganAt: TimeOf(r.Began), EndedAt: TimeOf(r.Ended),
	}
	if in != nil {
		out.SlotLocal = in.Local(r.Slot.Time())
	}
	if !r.Task.IsZero() {
		out.Task = r.Task.String()
	}
	switch r.Outcome {
	case core.CronStarted:
		out.Outcome = pb.CronRun_STARTED
	case core.CronWaits:
		out.Outcome = pb.CronRun_WAITING
	case core.CronRefused:
		out.Outcome, out.Error = pb.CronRun_REFUSED, &pb.TaskError{Code: r.Code, Message: r.Message}
	default:
		out.Outcome = pb.CronRun_SKIPPED
	}
	return out
}
