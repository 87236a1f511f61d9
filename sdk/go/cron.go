package millrace

import (
	"cmp"
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// CronOverlap says what happens at a slot of a cron while the task of the run before has not ended.
type CronOverlap int

// What happens then.
const (
	CronSkip           CronOverlap = CronOverlap(millracev1.CronConfig_SKIP)            // the slot makes no task
	CronAllow          CronOverlap = CronOverlap(millracev1.CronConfig_ALLOW)           // it makes one all the same
	CronQueueOne       CronOverlap = CronOverlap(millracev1.CronConfig_QUEUE_ONE)       // one run waits for the end of that task
	CronCancelPrevious CronOverlap = CronOverlap(millracev1.CronConfig_CANCEL_PREVIOUS) // that task is cancelled, and the run begins when it has ended
)

// cronOverlaps are the names of the values.
var cronOverlaps = []string{CronSkip: "skip", CronAllow: "allow", CronQueueOne: "queue_one", CronCancelPrevious: "cancel_previous"}

// String returns the name of the value in lower case.
func (o CronOverlap) String() string { return nameAt(cronOverlaps, int(o)) }

// ParseCronOverlap returns the value of a name that String returns.
func ParseCronOverlap(name string) (CronOverlap, bool) {
	i, ok := placeOfName(cronOverlaps, name)
	return CronOverlap(i), ok
}

// CronCatchUp says what becomes of slots that were missed, as nothing led the partition or the cron was paused.
type CronCatchUp int

// What becomes of them.
const (
	CatchUpOne  CronCatchUp = CronCatchUp(millracev1.CronConfig_ONE)  // the last one runs, however late
	CatchUpNone CronCatchUp = CronCatchUp(millracev1.CronConfig_NONE) // none does that is more than a minute late
	CatchUpAll  CronCatchUp = CronCatchUp(millracev1.CronConfig_ALL)  // each does, the last 100 of them
)

// cronCatchUps are the names of the values.
var cronCatchUps = []string{CatchUpOne: "one", CatchUpNone: "none", CatchUpAll: "all"}

// String returns the name of the value in lower case.
func (c CronCatchUp) String() string { return nameAt(cronCatchUps, int(c)) }

// ParseCronCatchUp returns the value of a name that String returns.
func ParseCronCatchUp(name string) (CronCatchUp, bool) {
	i, ok := placeOfName(cronCatchUps, name)
	return CronCatchUp(i), ok
}

// nameAt returns a name by its place.
func nameAt(names []string, i int) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return "unknown"
}

// placeOfName is the place of a name.
func placeOfName(names []string, name string) (int, bool) {
	for i, n := range names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}

// CronOption changes a cron that is set.
type CronOption interface {
	cron(s *cronSettings)
}

// cronSettings is what options say of a cron.
type cronSettings struct {
	req  *millracev1.SetCronRequest
	task []AddOption
}

// cronFunc is a CronOption that fills in the request.
type cronFunc func(s *cronSettings)

func (f cronFunc) cron(s *cronSettings) { f(s) }

// CronZone sets the zone of the schedule, by its name in the IANA database. Default: UTC.
func CronZone(name string) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.Zone = name })
}

// CronJitter has each task wait for a part of d, the same for the same slot. It must be shorter than the time between two slots, and
// at most 24 h. Default: none.
func CronJitter(d time.Duration) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.Jitter = durationpb.New(d) })
}

// CronBetween bounds the slots: from start to end. A zero time bounds nothing. @every counts from start.
func CronBetween(start, end time.Time) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.Start, s.req.Config.End = momentOf(start), momentOf(end) })
}

// CronPaused sets a cron whose slots go by until it is resumed.
func CronPaused() CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.Paused = true })
}

// CronOverlaps sets what happens at a slot while the task before has not ended. Default: CronSkip.
func CronOverlaps(o CronOverlap) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.Overlap = millracev1.CronConfig_Overlap(o) })
}

// CronCatchesUp sets what becomes of slots that were missed. Default: CatchUpOne.
func CronCatchesUp(c CronCatchUp) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.Config.CatchUp = millracev1.CronConfig_CatchUp(c) })
}

// CronTask sets options of the tasks: labels, headers, a tag, a key and what they cost. Those that one task alone can have, such as an id
// or a delay, are ErrInvalid. In a namespace of several partitions the tag, or without one the key, must name the partition that the name
// of the cron does, else it is ErrPartition: a tag that is the name always does.
func CronTask(opts ...AddOption) CronOption {
	return cronFunc(func(s *cronSettings) { s.task = append(s.task, opts...) })
}

// CronIfVersion is a condition on the version of the cron; 0: it must not be there yet. Another one is ErrPrecondition.
func CronIfVersion(v uint64) CronOption {
	return cronFunc(func(s *cronSettings) { s.req.IfVersion = &v })
}

// Cron is a cron, and where it stands.
type Cron struct {
	Name     string
	Schedule string
	Zone     string // empty: UTC
	Words    string // the schedule in English
	Jitter   time.Duration
	Start    time.Time // zero: there is no bound
	End      time.Time
	Paused   bool
	Overlap  CronOverlap
	CatchUp  CronCatchUp

	// Of its tasks.
	Queue, Kind string
	Payload     []byte
	ContentType string
	Priority    int
	Key         string
	Cost        int
	Limiters    []string
	Tag         string
	Labels      map[string]string

	Version uint64
	Next    time.Time // its next slot; zero: there is none
	Waiting time.Time // the slot of the run that waits for the end of a task; zero: none does
	Created time.Time
	Updated time.Time
	By      string   // name of the token that changed it last
	Runs    uint64   // ever
	LastRun *CronRun // nil: it has had none
}

// cronOf reads a cron of the contract.
func cronOf(c *millracev1.Cron) *Cron {
	cfg, t := c.GetConfig(), c.GetConfig().GetTemplate()
	return &Cron{
		Name: c.GetName(), Schedule: cfg.GetSchedule(), Zone: cfg.GetZone(), Words: c.GetWords(), Jitter: cfg.GetJitter().AsDuration(),
		Start: timeOf(cfg.GetStart()), End: timeOf(cfg.GetEnd()), Paused: cfg.GetPaused(), Overlap: CronOverlap(cfg.GetOverlap()), CatchUp: CronCatchUp(cfg.GetCatchUp()),
		Queue: t.GetQueue(), Kind: cmp.Or(t.GetKind(), t.GetQueue()), Payload: t.GetPayload(), ContentType: cmp.Or(t.GetContentType(), "application/json"),
		Priority: int(t.GetPriority()), Key: t.GetKey(), Cost: int(max(t.GetCost(), 1)), Limiters: t.GetLimiters(), Tag: t.GetTag(), Labels: maps.Clone(t.GetLabels()),
		Version: c.GetVersion(), Next: timeOf(c.GetNextAt()), Waiting: timeOf(c.GetWaitingAt()), Created: timeOf(c.GetCreatedAt()),
		Updated: timeOf(c.GetUpdatedAt()), By: c.GetBy(), Runs: c.GetRuns(), LastRun: cronRunOf(c.GetLastRun()),
	}
}

// CronRun is a run of a cron.
type CronRun struct {
	Number uint64    // from 1
	Slot   time.Time // when it was due; of a run by hand, when it was asked for
	At     time.Time // when that was done
	ByHand bool
	// Outcome is started, waiting, skipped or refused. Skipped says why it made no task: overlap, missed or replaced.
	Outcome, Skipped string
	Task             string // the id of its task, or of the one that it will make; empty: it made none
	State            State  // that of the task; 0: the task is not there any more
	Passed           int    // slots that were passed over before it; 100 stands for 100 and more
	Code, Message    string // why the task was refused
	// Of its task: the start of its last attempt, and its end; zero: there was none.
	Began, Ended time.Time
}

// cronRunOf reads a run of the contract.
func cronRunOf(r *millracev1.CronRun) *CronRun {
	if r == nil {
		return nil
	}
	outcomes := []string{"", "started", "waiting", "skipped", "refused"}
	return &CronRun{
		Number: r.GetNumber(), Slot: timeOf(r.GetSlot()), At: timeOf(r.GetAt()), ByHand: r.GetByHand(), Outcome: nameAt(outcomes, int(r.GetOutcome())), Skipped: r.GetSkipped(),
		Task: r.GetTask(), State: State(r.GetState()), Passed: int(r.GetPassed()), Code: r.GetError().GetCode(), Message: r.GetError().GetMessage(),
		Began: timeOf(r.GetBeganAt()), Ended: timeOf(r.GetEndedAt()),
	}
}

// Cron makes a cron whose tasks are those of the job with args, or replaces it (needs the scope admin). schedule has five fields as in
// crontab(5), or six with seconds first, or is @every with a duration, @hourly, @daily, @weekly, @monthly or @yearly.
//
// Errors: ErrInvalid and ErrTooLarge with the field; ErrPrecondition for CronIfVersion; ErrExhausted when there are 10,000 crons.
func (j *JobOf[A, R]) Cron(ctx context.Context, c *Client, name, schedule string, args A, opts ...CronOption) (*Cron, error) {
	s := cronSettings{req: &millracev1.SetCronRequest{Name: name, Config: &millracev1.CronConfig{Schedule: schedule}}}
	for _, o := range opts {
		o.cron(&s)
	}
	req := s.req
	spec := new(millracev1.TaskSpec)
	if err := j.fill(spec, c.opts.codec, args, s.task); err != nil {
		return nil, err
	}
	var err error
	if req.Config.Template, err = templateOf("template", spec); err != nil {
		return nil, err
	}
	for field, text := range map[string]string{"name": name, "schedule": schedule, "zone": req.Config.Zone} {
		if !utf8.ValidString(text) {
			return nil, badText(field)
		}
	}
	var resp *millracev1.SetCronResponse
	if err := c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Set(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	return cronOf(resp.GetCron()), nil
}

// templateOf makes a template of a task, for a field of a request. What one task alone can have is refused.
func templateOf(in string, s *millracev1.TaskSpec) (*millracev1.TaskTemplate, error) {
	for _, f := range [...]struct {
		field string
		set   bool
	}{
		{"id", s.Id != ""},
		{"run_at", s.RunAt != nil},
		{"delay", s.Delay != nil},
		{"unique", s.Unique != nil},
		{"expires_at", s.ExpiresAt != nil},
		{"after", len(s.After) > 0 || s.OnDepFailure != 0},
		{"batch", s.Batch != ""},
	} {
		if f.set {
			return nil, errorOf(fault.Invalid(in+"."+f.field, "must not be set in a template"))
		}
	}
	return &millracev1.TaskTemplate{
		Queue: s.Queue, Kind: s.Kind, Payload: s.Payload, ContentType: s.ContentType, Headers: s.Headers, Priority: s.Priority, MaxAttempts: s.MaxAttempts,
		MaxCrashes: s.MaxCrashes, MaxDeliveries: s.MaxDeliveries, Lease: s.Lease, MaxRun: s.MaxRun, Retry: s.Retry, Labels: s.Labels, Tag: s.Tag,
		Key: s.Key, Cost: s.Cost, Limiters: s.Limiters,
	}, nil
}

// Cron reads a cron. One that is not there is ErrNotFound.
func (c *Client) Cron(ctx context.Context, name string) (*Cron, error) {
	var resp *millracev1.GetCronResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Get(ctx, &millracev1.GetCronRequest{Name: name})
		return err
	}); err != nil {
		return nil, err
	}
	return cronOf(resp.GetCron()), nil
}

// Crons reads a page of crons by name, at most limit of them, from 1 to 1,000; 0: 100. cursor is empty, or that of the page before; next
// is empty after the last page.
func (c *Client) Crons(ctx context.Context, limit int, cursor string) (crons []*Cron, next string, err error) {
	var resp *millracev1.ListCronsResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.List(ctx, &millracev1.ListCronsRequest{Limit: uint32(max(limit, 0)), Cursor: cursor})
		return err
	}); err != nil {
		return nil, "", err
	}
	for _, one := range resp.GetCrons() {
		crons = append(crons, cronOf(one))
	}
	return crons, resp.GetCursor(), nil
}

// DeleteCron removes a cron with the list of its runs (needs the scope admin). Its tasks stay. One that is not there is ErrNotFound.
func (c *Client) DeleteCron(ctx context.Context, name string) error {
	return c.change(ctx, anywhere, func(ctx context.Context) error {
		_, err := c.crons.Delete(ctx, &millracev1.DeleteCronRequest{Name: name})
		return err
	})
}

// TriggerCron runs a cron now, also one that is paused, and tells what the run came to (needs the scope task:operate or admin). Its next
// slot stays.
func (c *Client) TriggerCron(ctx context.Context, name string) (*CronRun, error) {
	req := &millracev1.TriggerCronRequest{Name: name, Id: place.NewID()} // so that it is safe to repeat
	var resp *millracev1.TriggerCronResponse
	if err := c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Trigger(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	return cronRunOf(resp.GetRun()), nil
}

// PauseCron lets the slots of a cron go by until it is resumed, and reports whether it was paused before (needs the scope task:operate
// or admin).
func (c *Client) PauseCron(ctx context.Context, name string) (replayed bool, err error) {
	var resp *millracev1.PauseCronResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Pause(ctx, &millracev1.PauseCronRequest{Name: name})
		return err
	})
	return resp.GetReplayed(), err
}

// ResumeCron lets a paused cron go on, and reports whether it was not paused (needs the scope task:operate or admin).
func (c *Client) ResumeCron(ctx context.Context, name string) (replayed bool, err error) {
	var resp *millracev1.ResumeCronResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Resume(ctx, &millracev1.ResumeCronRequest{Name: name})
		return err
	})
	return resp.GetReplayed(), err
}

// CronRuns reads the last runs of a cron, at most 100, the last one first.
func (c *Client) CronRuns(ctx context.Context, name string) (runs []*CronRun, err error) {
	var resp *millracev1.ListCronRunsResponse
	err = c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Runs(ctx, &millracev1.ListCronRunsRequest{Name: name})
		return err
	})
	for _, r := range resp.GetRuns() {
		runs = append(runs, cronRunOf(r))
	}
	return runs, err
}

// CronPreview says when a schedule holds.
type CronPreview struct {
	Words string // the schedule in English
	// Times are its next slots in RFC 3339, with the offset that the zone has then.
	Times   []string
	Changes []CronChange // the changes of the zone's clocks within a year, at most 4
}

// CronChange is a change of the clocks of a zone, and what it does to a schedule.
type CronChange struct {
	At    time.Time     // the first instant after it
	By    time.Duration // how far the clocks are moved; negative: back
	Words string        // what it does to the schedule, in English
	Slots []string      // the slots that it moved, or that are within the time that comes twice
}

// PreviewCron says when a schedule holds: its next slots, count of them, from 1 to 100; 0: 5. zone may be empty, for UTC. Nothing is
// stored.
func (c *Client) PreviewCron(ctx context.Context, schedule, zone string, count int) (*CronPreview, error) {
	var resp *millracev1.PreviewCronResponse
	if err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.crons.Preview(ctx, &millracev1.PreviewCronRequest{Schedule: schedule, Zone: zone, Count: uint32(max(count, 0))})
		return err
	}); err != nil {
		return nil, err
	}
	out := &CronPreview{Words: resp.GetWords(), Times: resp.GetTimes()}
	for _, d := range resp.GetDst() {
		by := d.GetBy().AsDuration()
		if d.GetKind() == millracev1.CronChange_REPEATED {
			by = -by
		}
		out.Changes = append(out.Changes, CronChange{At: timeOf(d.GetAt()), By: by, Words: d.GetWords(), Slots: d.GetSlots()})
	}
	return out, nil
}
