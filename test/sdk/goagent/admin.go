package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// administering is what the commands of crons, queues, keys, bulk jobs, limiters and batches have of their own.
type administering struct {
	Schedule  string          `json:"schedule"`
	Zone      string          `json:"zone"`
	Overlap   string          `json:"overlap"`
	CatchUp   string          `json:"catch_up"`
	JitterMS  int64           `json:"jitter_ms"`
	Start     time.Time       `json:"start"`
	End       time.Time       `json:"end"`
	Paused    bool            `json:"paused"`
	IfVersion *uint64         `json:"if_version"`
	Count     int             `json:"count"`
	Prefix    string          `json:"prefix"`
	Sort      string          `json:"sort"`
	ForMS     int64           `json:"for_ms"`
	Purge     bool            `json:"purge"`
	Settings  json.RawMessage `json:"settings"`

	Action    string          `json:"action"`
	State     string          `json:"state"`
	Kind      string          `json:"kind"`
	ToQueue   string          `json:"to_queue"`
	Patch     json.RawMessage `json:"patch"`
	PerSecond int             `json:"per_second"`

	Weight      int    `json:"weight"`
	Concurrency int64  `json:"concurrency"`
	Rate        *limit `json:"rate"`

	OnDone    *adding `json:"on_done"`
	OnSuccess *adding `json:"on_success"`
}

// limit is a rate in commands and answers.
type limit struct {
	Limit int64 `json:"limit"`
	PerMS int64 `json:"per_ms"`
	Burst int64 `json:"burst"`
}

func (l *limit) rate() millrace.Rate {
	if l == nil {
		return millrace.Rate{}
	}
	return millrace.Rate{Limit: l.Limit, Per: millis(l.PerMS), Burst: l.Burst}
}

func showRate(r millrace.Rate) any {
	if r == (millrace.Rate{}) {
		return nil
	}
	return map[string]any{"limit": r.Limit, "per_ms": r.Per.Milliseconds(), "burst": r.Burst}
}

// administer carries out a command about crons, queues and keys.
func (a *agent) administer(ctx context.Context, c *command) (any, error) {
	none := map[string]any{}
	replayed := func(replayed bool, err error) (any, error) { return map[string]any{"replayed": replayed}, err }
	q := a.c.Queue(c.Queue)
	switch c.Do {
	case "cron_set":
		return showCron(a.setCron(ctx, c))
	case "cron_get":
		return showCron(a.c.Cron(ctx, c.Name))
	case "crons":
		return a.crons(ctx)
	case "cron_pause":
		return replayed(a.c.PauseCron(ctx, c.Name))
	case "cron_resume":
		return replayed(a.c.ResumeCron(ctx, c.Name))
	case "cron_trigger":
		run, err := a.c.TriggerCron(ctx, c.Name)
		return showRun(run), err
	case "cron_runs":
		runs, err := a.c.CronRuns(ctx, c.Name)
		list := make([]any, len(runs))
		for i, r := range runs {
			list[i] = showRun(r)
		}
		return map[string]any{"runs": list}, err
	case "cron_delete":
		return none, a.c.DeleteCron(ctx, c.Name)
	case "cron_preview":
		return a.preview(ctx, c)
	case "queue_get":
		return a.queueGet(ctx, q)
	case "queue_set":
		var cfg millrace.QueueConfig
		if err := change(&cfg, c.Settings); err != nil {
			return nil, err
		}
		if c.IfVersion != nil {
			cfg.Version = *c.IfVersion
		}
		return version(q.Set(ctx, cfg))
	case "queue_update":
		var failed error
		v, err := q.Update(ctx, func(cfg *millrace.QueueConfig) { failed = change(cfg, c.Settings) })
		if failed != nil {
			return nil, failed
		}
		return version(v, err)
	case "queue_delete":
		if c.Purge {
			return none, q.Delete(ctx, millrace.Purge())
		}
		return none, q.Delete(ctx)
	case "queue_pause":
		if c.Key != "" {
			return replayed(q.PauseKey(ctx, c.Key, pauses(c.Reason, c.ForMS)...))
		}
		return replayed(q.Pause(ctx, pauses(c.Reason, c.ForMS)...))
	case "queue_resume":
		if c.Key != "" {
			return replayed(q.ResumeKey(ctx, c.Key))
		}
		return replayed(q.Resume(ctx))
	case "queue_key":
		return replayed(q.SetKey(ctx, c.Key, millrace.KeySettings{Weight: c.Weight, Concurrency: c.Concurrency, Rate: c.Rate.rate()}))
	case "queue_keys":
		return a.queueKeys(ctx, q, c)
	}
	return a.bulk(ctx, c)
}

// bulk carries out a command about bulk jobs.
func (a *agent) bulk(ctx context.Context, c *command) (any, error) {
	action, _ := millrace.ParseBulkAction(c.Action)
	state, _ := millrace.ParseState(c.State)
	filter := millrace.TaskFilter{Queue: c.Queue, State: state, Kind: c.Kind, Labels: c.Labels, Batch: c.Batch}
	switch c.Do {
	case "bulk_start":
		return showBulk(a.c.StartBulk(ctx, action, filter, c.bulkOptions()...))
	case "bulk_count":
		n, err := a.c.CountBulk(ctx, action, filter, c.bulkOptions()...)
		sample := []string{}
		for _, t := range n.Sample {
			sample = append(sample, t.ID)
		}
		return map[string]any{"count": n.Count, "exact": n.Exact, "sample": sample}, err
	case "bulk_get":
		return showBulk(a.c.Bulk(ctx, c.ID))
	case "bulks":
		jobs, err := a.c.Bulks(ctx)
		list := []any{}
		for _, j := range jobs {
			one, _ := showBulk(j, nil)
			list = append(list, one)
		}
		return map[string]any{"bulks": list}, err
	case "bulk_stop":
		replayed, err := a.c.StopBulk(ctx, c.ID)
		return map[string]any{"replayed": replayed}, err
	case "redrive":
		return showBulk(a.c.Queue(c.Queue).Redrive(ctx, c.bulkOptions()...))
	}
	return a.limiter(ctx, c)
}

// bulkOptions say how a bulk job is run.
func (c *command) bulkOptions() []millrace.BulkOption {
	opts := []millrace.BulkOption{
		millrace.BulkReason(c.Reason), millrace.BulkRate(c.PerSecond), millrace.BulkPriority(c.Priority), millrace.BulkToQueue(c.ToQueue), millrace.BulkPatch(c.Patch),
	}
	if c.Force {
		opts = append(opts, millrace.BulkForce())
	}
	return opts
}

// showBulk is a bulk job as the protocol has it.
func showBulk(j *millrace.BulkJob, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	refused := j.Refused
	if refused == nil {
		refused = map[string]uint64{}
	}
	return map[string]any{
		"id": j.ID, "action": j.Action.String(), "state": j.State.String(), "rate": j.Rate, "reason": j.Reason, "matched": j.Matched, "done": j.Done, "refused": refused,
	}, nil
}

// setCron sets a cron, whose tasks are of the codec that the command names.
func (a *agent) setCron(ctx context.Context, c *command) (*millrace.Cron, error) {
	overlap, _ := millrace.ParseCronOverlap(c.Overlap)
	catchUp, _ := millrace.ParseCronCatchUp(c.CatchUp)
	opts := []millrace.CronOption{
		millrace.CronZone(c.Zone), millrace.CronOverlaps(overlap), millrace.CronCatchesUp(catchUp), millrace.CronBetween(c.Start, c.End),
		millrace.CronTask(c.options()...),
	}
	if c.JitterMS != 0 {
		opts = append(opts, millrace.CronJitter(millis(c.JitterMS)))
	}
	if c.Paused {
		opts = append(opts, millrace.CronPaused())
	}
	if c.IfVersion != nil {
		opts = append(opts, millrace.CronIfVersion(*c.IfVersion))
	}
	var text string
	if err := json.Unmarshal(c.Args, &text); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if c.Codec == "text" {
		return textJob(&c.adding).Cron(ctx, a.c, c.Name, c.Schedule, text, opts...)
	}
	return jsonJob(&c.adding).Cron(ctx, a.c, c.Name, c.Schedule, json.RawMessage(text), opts...)
}

// crons lists all crons, page by page.
func (a *agent) crons(ctx context.Context) (any, error) {
	list := []any{}
	for cursor := ""; ; {
		page, next, err := a.c.Crons(ctx, 2, cursor)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			one, _ := showCron(c, nil)
			list = append(list, one)
		}
		if cursor = next; cursor == "" {
			return map[string]any{"crons": list}, nil
		}
	}
}

// showCron is a cron as the protocol has it.
func showCron(c *millrace.Cron, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	out := map[string]any{
		"name": c.Name, "schedule": c.Schedule, "zone": c.Zone, "words": c.Words, "jitter_ms": c.Jitter.Milliseconds(), "paused": c.Paused,
		"overlap": c.Overlap.String(), "catch_up": c.CatchUp.String(), "queue": c.Queue, "kind": c.Kind, "priority": c.Priority, "task_key": c.Key,
		"cost": c.Cost, "limiters": texts(c.Limiters), "tag": c.Tag, "labels": c.Labels, "version": strconv.FormatUint(c.Version, 10), "runs": c.Runs,
		"start": moment(c.Start), "end": moment(c.End), "next_at": moment(c.Next), "waiting_at": moment(c.Waiting), "last_run": nil,
	}
	if c.LastRun != nil {
		out["last_run"] = showRun(c.LastRun)
	}
	return out, nil
}

// showRun is a run of a cron as the protocol has it.
func showRun(r *millrace.CronRun) any {
	if r == nil {
		return nil
	}
	state := ""
	if r.State != 0 {
		state = r.State.String()
	}
	return map[string]any{
		"number": r.Number, "slot": moment(r.Slot), "by_hand": r.ByHand, "outcome": r.Outcome, "skipped": r.Skipped, "task": r.Task, "state": state,
		"passed": r.Passed, "task_code": r.Code, "message": r.Message,
	}
}

// moment is a time in RFC 3339; the zero time is empty.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func (a *agent) preview(ctx context.Context, c *command) (any, error) {
	p, err := a.c.PreviewCron(ctx, c.Schedule, c.Zone, c.Count)
	if err != nil {
		return nil, err
	}
	changes := []any{}
	for _, one := range p.Changes {
		changes = append(changes, map[string]any{"at": moment(one.At), "by_ms": one.By.Milliseconds(), "words": one.Words, "slots": len(one.Slots)})
	}
	return map[string]any{"words": p.Words, "times": p.Times, "changes": changes}, nil
}

func version(v uint64, err error) (any, error) {
	return map[string]any{"version": strconv.FormatUint(v, 10)}, err
}

// pauses are the options of a pause.
func pauses(reason string, forMS int64) []millrace.PauseOption {
	opts := []millrace.PauseOption{millrace.PauseReason(reason)}
	if forMS != 0 {
		opts = append(opts, millrace.PauseUntil(time.Now().Add(millis(forMS))))
	}
	return opts
}

// change sets the fields of a configuration that settings name; null is the default.
func change(cfg *millrace.QueueConfig, settings json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(settings, &fields); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	for name, raw := range fields {
		var err error
		switch name {
		case "attempts":
			cfg.MaxAttempts, err = read[int](raw)
		case "lease_ms":
			var ms int64
			ms, err = read[int64](raw)
			cfg.Lease = millis(ms)
		case "concurrency":
			cfg.Concurrency, err = read[int64](raw)
		case "max_workers":
			cfg.MaxWorkers, err = read[int](raw)
		case "max_tasks":
			cfg.MaxTasks, err = read[int64](raw)
		case "order":
			cfg.Order, err = read[string](raw)
		case "fairness":
			cfg.Fairness, err = read[string](raw)
		case "dead_letter":
			cfg.DeadLetter, err = read[string](raw)
		case "limiters":
			cfg.Limiters, err = read[[]string](raw)
		case "rate":
			var r *limit
			r, err = read[*limit](raw)
			cfg.Rate = r.rate()
		case "per_key":
			var k struct {
				Concurrency int64  `json:"concurrency"`
				Rate        *limit `json:"rate"`
			}
			err = json.Unmarshal(raw, &k)
			cfg.PerKey = millrace.KeyLimits{Concurrency: k.Concurrency, Rate: k.Rate.rate()}
		default:
			return errUnsupported
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// read reads a value; null is its zero value.
func read[T any](raw json.RawMessage) (v T, err error) {
	err = json.Unmarshal(raw, &v)
	return v, err
}

func (a *agent) queueGet(ctx context.Context, q millrace.Queue) (any, error) {
	c, err := q.Get(ctx)
	if err != nil {
		return nil, err
	}
	order, fairness := c.Order, c.Fairness
	if order == "" {
		order = "fifo"
	}
	if fairness == "" {
		fairness = "lanes"
	}
	return map[string]any{
		"version": strconv.FormatUint(c.Version, 10), "attempts": c.MaxAttempts, "lease_ms": c.Lease.Milliseconds(), "concurrency": c.Concurrency,
		"max_workers": c.MaxWorkers, "max_tasks": c.MaxTasks, "order": order, "fairness": fairness, "dead_letter": c.DeadLetter, "rate": showRate(c.Rate),
		"per_key": map[string]any{"concurrency": c.PerKey.Concurrency, "rate": showRate(c.PerKey.Rate)}, "limiters": texts(c.Limiters),
	}, nil
}

// queueKeys lists all keys, page by page.
func (a *agent) queueKeys(ctx context.Context, q millrace.Queue, c *command) (any, error) {
	list := []any{}
	query := millrace.KeysQuery{Sort: c.Sort, Prefix: c.Prefix, Limit: 2}
	if c.Sort != "" { // one page
		query.Limit = 1000
	}
	for {
		keys, cursor, err := q.Keys(ctx, query)
		if err != nil {
			return nil, err
		}
		for i := range keys {
			list = append(list, showKey(&keys[i]))
		}
		if query.Cursor = cursor; cursor == "" {
			return map[string]any{"keys": list}, nil
		}
	}
}

func showKey(k *millrace.QueueKey) any {
	var paused any
	if k.Paused != nil {
		paused = map[string]any{"reason": k.Paused.Reason, "until": moment(k.Paused.Until)}
	}
	return map[string]any{
		"key": k.Key, "tasks": k.Tasks, "ready": k.Ready, "running": k.Running, "weight": max(k.Settings.Weight, 1), "concurrency": k.Settings.Concurrency,
		"rate": showRate(k.Settings.Rate), "paused": paused, "waits_for": k.WaitsFor,
	}
}
