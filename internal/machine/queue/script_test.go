package queue

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// TestScripts runs the scripts of testdata. A command's words are key=value; a task is named by up to nine letters.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".golden") {
			return
		}
		s := &script{world: newWorld(t, Options{Heads: 4})}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	*world
	tokens map[string]core.Token // last of each task
	brief  bool                  // what is given out is printed by name alone
}

// words are the arguments of a command.
type words struct {
	t *testing.T
	d *datadriven.TestData
}

func (w words) has(key string) bool { return w.d.HasArg(key) }

func (w words) all(key string) []string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (w words) str(key, byDefault string) string {
	if v := w.all(key); len(v) > 0 {
		return v[0]
	}
	return byDefault
}

func (w words) num(key string) int64 {
	n, err := strconv.ParseInt(w.str(key, "0"), 10, 64)
	if err != nil {
		w.d.Fatalf(w.t, "%s: %v", key, err)
	}
	return n
}

// span reads a duration such as 5s or 10d; -1 stays.
func (w words) span(key string) core.Millis {
	v := w.str(key, "0s")
	if v == "-1" {
		return -1
	}
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil {
			w.d.Fatalf(w.t, "%s: %v", key, err)
		}
		return core.Millis(n) * 24 * 3_600_000
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		w.d.Fatalf(w.t, "%s: %v", key, err)
	}
	return core.MillisOf(d)
}

// at reads a moment as what passes from the epoch to it; none is zero.
func (w words) at(key string) core.ShardTime {
	if !w.has(key) {
		return 0
	}
	return epoch.Add(w.span(key))
}

var backoffs = map[string]core.Backoff{
	"": 0, "fixed": core.BackoffFixed, "linear": core.BackoffLinear, "exponential": core.BackoffExponential,
	"full": core.BackoffFullJitter, "equal": core.BackoffEqualJitter,
}

func (w words) retry() core.Retry {
	return core.Retry{
		Backoff: backoffs[w.str("retry", "")], Base: w.span("base"), FactorPercent: uint32(w.num("factor")), Max: w.span("max"),
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.world.t = t
	if s.tokens == nil {
		s.tokens = map[string]core.Token{}
	}
	w := words{t, d}
	switch d.Cmd {
	case "commit":
		return s.runCommit(w)
	case "entry":
		return s.runEntry(w)
	case "advance":
		return s.effects(s.advance(w.spanAt(0)))
	case "tick":
		o := s.tick(uint32(w.num("steps")))
		return fmt.Sprintf("more=%v\n", o.more) + s.effects(o)
	case "pass": // time alone: what is due was not looked at
		s.c.Stamp = s.c.Stamp.Add(w.spanAt(0))
		return "ok\n"
	case "churn":
		return s.runChurn(w)
	case "matrix":
		return matrix(t)
	case "restart":
		s.restart()
		s.check()
		return "ok\n"
	case "term":
		s.c.TermStart = s.c.Stamp
		return "ok\n"
	case "shift": // what the wall clocks show beyond shard time, from here on
		s.c.Shift = w.spanAt(0)
		s.check()
		return "ok\n"
	case "namespace":
		s.c.Namespace = core.NamespaceConfig{NoAutoCreate: w.has("no_auto_create"), RetainBytes: w.num("retain_bytes")}
		return "ok\n"
	case "format":
		s.c.Format = uint16(w.num("of"))
		return "ok\n"
	case "limits":
		s.o.Queues = int(w.num("queues"))
		s.restart()
		return "ok\n"
	}
	if out, ok := s.look(w, d.Cmd); ok {
		return out
	}
	s.brief = d.Cmd == "take"
	op := s.op(w, d.Cmd)
	if op == nil {
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	o := s.do(op)
	return s.answer(op, o.res, o.fact) + s.effects(o)
}

// look prints what is stored. ok is false of a command that does something else.
func (s *script) look(w words, cmd string) (out string, ok bool) {
	switch cmd {
	case "rows":
		return s.rows(), true
	case "totals":
		t := s.totals()
		return fmt.Sprintf("%d queues, %d made, created %d purged %d completed %d, there %d\n",
			t.Queues, s.m.meta.queues, t.Created, t.Purged, t.Completed, sum(t.States)), true
	case "can":
		return fmt.Sprintf("%d\n", s.m.ReadyCount(w.name())), true
	case "lanes":
		return s.lanes(w.name()), true
	case "limiters":
		return s.limiters(w), true
	case "due":
		return since(s.m.Due()) + "\n", true
	case "show":
		return s.show(w), true
	case "stats":
		return s.stats(w.name()), true
	case "queues":
		return s.queues(w), true
	case "list":
		return s.list(w), true
	case "live":
		if fact := s.m.Live(idOf(w.name()), s.token(w)); fact != nil {
			return refused(fact), true
		}
		return "live\n", true
	case "held":
		return s.held(w), true
	case "why":
		return s.why(w), true
	case "effects":
		return s.effectsOf(w), true
	case "errors":
		return s.errorGroups(w), true
	case "jobs":
		return s.jobs(), true
	case "log":
		return s.log(w), true
	case "crons":
		return s.crons(), true
	case "runs":
		return s.runs(w), true
	case "count":
		return s.count(w), true
	}
	return "", false
}

func (w words) name() string {
	if len(w.d.CmdArgs) == 0 || len(w.d.CmdArgs[0].Vals) > 0 {
		return ""
	}
	return w.d.CmdArgs[0].Key
}

func (w words) spanAt(i int) core.Millis {
	return words{w.t, &datadriven.TestData{CmdArgs: []datadriven.CmdArg{{Key: "x", Vals: []string{w.d.CmdArgs[i].Key}}}}}.span("x")
}

func (s *script) token(w words) core.Token {
	if w.has("token") {
		return core.Token(w.num("token"))
	}
	return s.tokens[w.name()]
}

func sum(states [8]uint64) (n uint64) {
	for _, tasks := range states {
		n += tasks
	}
	return n
}

// lanes prints the lanes of a queue.
func (s *script) lanes(queue string) string {
	l := s.m.names[queue]
	if l == nil || l.share == nil {
		return "not shared\n"
	}
	var b strings.Builder
	for _, ln := range l.share.byName() {
		fmt.Fprintf(&b, "%s: tasks=%d ready=%d running=%d", strings.ReplaceAll(ln.key, "\x00", "/"), ln.tasks, ln.ready, ln.running)
		if ln.set != nil {
			fmt.Fprintf(&b, " set=%+v", ln.set.KeySettings)
			if ln.isPaused() {
				fmt.Fprintf(&b, " paused since %s until %s", since(ln.set.paused.Since), since(ln.set.paused.Until))
			}
		}
		if ln.hold != nil {
			fmt.Fprintf(&b, " held by %s", nameOf(ln.hold.task))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "without a key: tasks=%d ready=%d running=%d\n", l.plain.tasks, l.plain.ready, l.plain.running)
	return b.String()
}

// rows counts what is stored, by kind of record.
func (s *script) rows() string {
	counts := map[keys.QueueRecord]int{}
	from, to := keys.QueueRange(testPartition)
	if err := s.tx.Scan(from, to, func(key, _ []byte) bool {
		row, _ := keys.DecodeQueue(key)
		counts[row.Record]++
		return true
	}); err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for r := keys.RecordQueueMeta; int(r) < len(recordNames); r++ {
		if counts[r] > 0 {
			fmt.Fprintf(&b, "%s=%d ", recordNames[r], counts[r])
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

var recordNames = [...]string{
	keys.RecordQueueMeta: "meta", keys.RecordQueueConfig: "config", keys.RecordQueueCounters: "counters",
	keys.RecordTaskPayload: "payload", keys.RecordTaskState: "state", keys.RecordTaskResult: "result",
	keys.RecordTaskAttempt: "attempt", keys.RecordTaskHolder: "holder", keys.RecordReady: "ready", keys.RecordTimer: "timer",
	keys.RecordRunning: "running", keys.RecordTerminal: "terminal", keys.RecordUnique: "unique", keys.RecordWindow: "window",
	keys.RecordRemoved: "removed", keys.RecordWallTimer: "wall", keys.RecordTaskCancel: "cancel", keys.RecordExpiry: "expiry",
	keys.RecordLabel: "label", keys.RecordBulk: "bulk", keys.RecordTaskEffects: "effects",
	keys.RecordTaskReport: "report", keys.RecordTaskLog: "log", keys.RecordCheckpoint: "checkpoint",
	keys.RecordShare: "share", keys.RecordLane: "lane",
	keys.RecordAfter: "after", keys.RecordBlocked: "blocked",
	keys.RecordErrorGroup: "errors", keys.RecordErrors: "error_state",
	keys.RecordTenantQuota: "tenant_quota",
	keys.RecordLimiter:     "limiter",
	keys.RecordCron:        "cron", keys.RecordCronTemplate: "template", keys.RecordCronRun: "run",
	keys.RecordBatch: "batch", keys.RecordBatchCounts: "batch_counts", keys.RecordBatchTask: "batch_task", keys.RecordBatchEnd: "batch_end", keys.RecordBatches: "batches",
}

// op reads the op that a command stands for.
func (s *script) op(w words, cmd string) core.Op {
	id, token := idOf(w.name()), core.Token(0)
	if w.name() != "" {
		token = s.token(w)
	}
	switch cmd {
	case "create":
		return s.createOp(w)
	case "complete":
		return &core.TaskComplete{Task: id, Token: token, Result: []byte(w.str("result", "")), ResultType: w.str("type", "")}
	case "fail":
		return &core.TaskFail{
			Task: id, Token: token, Fatal: w.has("fatal"), HasRetry: w.has("retry_after"), RetryAfter: w.span("retry_after"),
			Error: core.TaskError{Code: w.str("code", ""), Message: strings.Repeat(w.str("message", ""), max(1, int(w.num("times"))))},
		}
	case "snooze":
		return &core.TaskSnooze{Task: id, Token: token, Until: w.at("until"), Delay: w.span("delay")}
	case "release":
		return &core.TaskRelease{Task: id, Token: token, Undelivered: w.has("undelivered")}
	case "renew":
		op := &core.TaskRenew{Extend: w.span("extend")}
		for _, a := range w.d.CmdArgs {
			if a.Key == "extend" {
				continue
			}
			hold := core.TaskHold{Task: idOf(a.Key), Token: s.tokens[a.Key]}
			if len(a.Vals) > 0 {
				n, _ := strconv.ParseUint(a.Vals[0], 10, 64)
				hold.Token = core.Token(n)
			}
			op.Items = append(op.Items, hold)
		}
		return op
	case "delete":
		return &core.TaskDelete{Task: id}
	case "run_now":
		return &core.TaskRunNow{Task: id}
	case "cancel":
		return &core.TaskCancel{Task: id, Reason: w.str("reason", ""), Force: w.has("force")}
	case "stop":
		return &core.TaskStop{Task: id, Token: token, Error: core.TaskError{Code: w.str("code", "")}}
	case "redrive":
		return &core.TaskRedrive{Task: id}
	case "force_release":
		return &core.TaskForceRelease{Task: id, Attempt: uint32(w.num("attempt"))}
	case "report":
		return s.reportOp(w)
	case "session_lost":
		return s.sessionLostOp(w)
	case "update":
		return s.updateOp(w)
	case "pause", "resume":
		return &core.QueuePause{Queue: w.name(), Resume: cmd == "resume", Until: w.at("until"), Reason: w.str("reason", "")}
	case "quota":
		return &core.TenantQuota{
			Bounds: core.TaskBounds{Tasks: w.num("tasks"), Bytes: w.num("bytes"), Running: w.num("running")},
			Others: core.TaskUse{Tasks: uint64(w.num("others_tasks")), Bytes: uint64(w.num("others_bytes")), Running: uint64(w.num("others_running"))},
		}
	case "bulk":
		return s.bulkOp(w)
	case "cron_set", "cron_pause", "cron_resume", "cron_delete", "plan", "fire", "begin", "trigger":
		return s.cronOp(w, cmd)
	case "unbulk":
		return &core.BulkStop{ID: id}
	case "queue_set":
		return s.queueSetOp(w)
	case "queue_delete":
		return &core.QueueDelete{Queue: w.name(), Purge: w.has("purge"), IfVersion: w.ifVersion()}
	case "claim", "take":
		return s.claimOp(w)
	case "key_set":
		return s.keySetOp(w)
	case "limiter_set", "limiter_delete":
		return s.limiterOp(w, cmd)
	}
	return nil
}

func (s *script) limiterOp(w words, cmd string) core.Op {
	if cmd == "limiter_delete" {
		return &core.LimiterDelete{Name: w.name(), IfVersion: w.ifVersion()}
	}
	return &core.LimiterSet{
		Name: w.name(), Config: core.LimiterConfig{Concurrency: w.num("concurrency"), Rate: w.rate("rate")}, IfVersion: w.ifVersion(),
	}
}

// ifVersion is the version that an op wants to find; -1: any.
func (w words) ifVersion() int64 {
	if w.has("if_version") {
		return w.num("if_version")
	}
	return -1
}

// limiters prints all limiters, or one with those who hold it.
func (s *script) limiters(w words) string {
	list, err := Limiters(s.tx, testPartition, w.str("prefix", ""), w.str("after", ""), 10, s.c.Stamp)
	if name := w.name(); name != "" && err == nil {
		one, ok, found := Limiter(s.tx, testPartition, name, s.c.Stamp)
		if err, list = found, []core.Limiter{one}; !ok {
			return "none\n"
		}
	}
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, x := range list {
		fmt.Fprintf(&b, "%s v%d concurrency=%d rate=%v used=%d tasks=%d", x.Name, x.Version, x.Concurrency, x.Rate, x.Used, x.Tasks)
		if x.Until != 0 {
			fmt.Fprintf(&b, " until %s", since(x.Until))
		}
		for _, h := range x.HeldBy {
			fmt.Fprintf(&b, " held by %s of %s", nameOf(h.Task), h.Queue)
		}
		for _, name := range x.Queues {
			fmt.Fprintf(&b, " named by %s", name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// rate reads a rate such as 5/1s or 5/1s/2, of which the last is the burst.
func (w words) rate(key string) (r core.Rate) {
	if !w.has(key) {
		return r
	}
	parts := strings.Split(w.str(key, ""), "/")
	r.Limit, _ = strconv.ParseInt(parts[0], 10, 64)
	if len(parts) > 1 {
		d, err := time.ParseDuration(parts[1])
		if err != nil {
			w.d.Fatalf(w.t, "%s: %v", key, err)
		}
		r.Per = core.MillisOf(d)
	}
	if len(parts) > 2 {
		r.Burst, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	return r
}

func (s *script) keySetOp(w words) core.Op {
	op := &core.KeySet{
		Queue: w.str("queue", "mail"), Key: w.name(), KeepSettings: w.has("keep"),
		Settings: core.KeySettings{Weight: uint32(w.num("weight")), Concurrency: w.num("concurrency"), Rate: w.rate("rate")},
		Until:    w.at("until"), Reason: w.str("reason", ""),
	}
	switch {
	case w.has("pause"):
		op.Pause = core.KeyPauseStop
	case w.has("resume"):
		op.Pause = core.KeyPauseGoOn
	}
	return op
}

func (s *script) createOp(w words) core.Op {
	op := &core.TaskCreate{
		Tag: w.str("tag", ""), Key: w.str("key", ""), Cost: uint32(w.num("cost")), Limiters: w.all("limiters"),
		ID: idOf(w.name()), Queue: w.str("queue", "mail"), TaskKind: w.str("kind", ""), Priority: uint8(w.num("priority")),
		RunAt: w.at("run_at"), Delay: w.span("delay"), MaxAttempts: int32(w.num("max_attempts")),
		MaxCrashes: int32(w.num("max_crashes")), MaxDeliveries: int32(w.num("max_deliveries")), Lease: w.span("lease"),
		MaxRun: w.span("max_run"), Retry: w.retry(), ContentType: w.str("type", ""), Payload: []byte(w.str("payload", "")),
	}
	if w.d.Input != "" && w.has("input") {
		op.Payload = []byte(w.d.Input)
	}
	if w.has("size") {
		op.Payload = make([]byte, w.num("size"))
	}
	if w.has("unique") {
		op.Unique = core.Unique{Key: w.str("unique", ""), TTL: w.span("ttl"), Reject: w.has("reject"), Request: w.has("request"), Replace: w.has("replace")}
		op.Unique.Until = map[string]core.UniqueUntil{"start": core.UniqueStart, "terminal": core.UniqueTerminal}[w.str("until", "")]
	}
	op.Key = w.str("key", "")
	op.ExpiresAt, op.Labels = w.at("expires"), w.labels()
	op.After, op.OnDepFailure = w.after(), onDeps[w.str("on_dep", "hold")]
	for _, h := range w.all("header") {
		name, value, _ := strings.Cut(h, ":")
		op.Headers = append(op.Headers, core.Header{Name: name, Value: value})
	}
	return op
}

var onDeps = map[string]core.DepFailure{"hold": core.DepHold, "cancel": core.DepCancel, "run": core.DepRun, "other": 3}

// after reads tasks to wait for, such as (a,b:terminal), in order of their ids.
func (w words) after() (out []core.After) {
	for _, a := range w.all("after") {
		name, on, _ := strings.Cut(a, ":")
		out = append(out, core.After{Task: idOf(name), Terminal: on == "terminal"})
	}
	slices.SortFunc(out, func(a, b core.After) int { return bytes.Compare(a.Task[:], b.Task[:]) })
	return out
}

// sessionLostOp reads the leases that were seen of a session, such as a=60s: that of task a, which ended at 60s.
func (s *script) sessionLostOp(w words) core.Op {
	op := new(core.SessionLost)
	copy(op.Session[:], w.str("session", ""))
	for _, a := range w.d.CmdArgs {
		if a.Key == "session" {
			continue
		}
		op.Leases = append(op.Leases, core.SeenLease{Task: idOf(a.Key), Token: s.tokens[a.Key], Until: w.at(a.Key)})
	}
	return op
}

// labels reads labels such as (env:prod,order:7).
func (w words) labels() (out []core.Label) {
	for _, l := range w.all("labels") {
		name, value, _ := strings.Cut(l, ":")
		out = append(out, core.Label{Name: name, Value: value})
	}
	return out
}

func (s *script) updateOp(w words) core.Op {
	return &core.TaskUpdate{
		Task: idOf(w.name()), HasPriority: w.has("priority"), Priority: uint8(w.num("priority")),
		HasRunAt: w.has("run_at") || w.has("delay"), RunAt: w.at("run_at"), Delay: w.span("delay"),
		HasPayload: w.has("payload"), Payload: []byte(w.str("payload", "")), ContentType: w.str("type", ""),
		HasLabels: w.has("labels"), Labels: w.labels(), HasExpiry: w.has("expires"), ExpiresAt: w.at("expires"),
	}
}

func (s *script) queueSetOp(w words) core.Op {
	op := &core.QueueSet{
		Queue: w.name(), IfVersion: -1,
		Config: core.QueueConfig{
			MaxAttempts: int32(w.num("max_attempts")), MaxCrashes: int32(w.num("max_crashes")),
			MaxDeliveries: int32(w.num("max_deliveries")), Lease: w.span("lease"), MaxRun: w.span("max_run"),
			Retry: w.retry(), MaxPayload: w.num("max_payload"), Aging: w.span("aging"),
			RetainCompleted: w.span("completed"), RetainCancelled: w.span("cancelled"), RetainDead: w.span("dead"),
			Limits: core.QueueLimits{
				CancelGrace: w.span("cancel_grace"), DefaultTTL: w.span("default_ttl"), MaxTasks: w.num("max_tasks"), MaxBytes: w.num("max_bytes"),
				CeilingAttempts: int32(w.num("most_attempts")), CeilingCrashes: int32(w.num("most_crashes")),
				CeilingDeliveries: int32(w.num("most_deliveries")), CeilingLease: w.span("most_lease"), CeilingMaxRun: w.span("most_run"),
				CeilingPriority: int32(w.num("most_priority")),
			},
			Share: core.QueueShare{
				NoFairness: w.has("no_fairness"), Strict: w.has("ordered"), Concurrency: w.num("concurrency"), KeyConcurrency: w.num("per_key"),
				Rate: w.rate("rate"), KeyRate: w.rate("key_rate"), MaxWorkers: int32(w.num("max_workers")),
				DeadLetter: w.str("dead_letter", ""),
			},
		},
	}
	copy(op.Config.Share.Limiters[:], w.all("limiters"))
	if w.has("if_version") {
		op.IfVersion = w.num("if_version")
	}
	return op
}

func (s *script) claimOp(w words) core.Op {
	op := &core.Grant{Worker: w.str("worker", "w"), N: 1, Lease: w.span("lease")}
	copy(op.Session[:], w.str("session", ""))
	if w.has("n") {
		op.N = uint32(w.num("n"))
	}
	queues := w.all("queue")
	if queues == nil {
		queues = []string{"mail"}
	}
	op.Weighted = w.has("weight")
	for i, q := range queues {
		g := core.GrantQueue{Name: q, Weight: 1}
		if op.Weighted {
			weight, err := strconv.ParseUint(w.all("weight")[i], 10, 32)
			if err != nil {
				w.d.Fatalf(w.t, "%v", err)
			}
			g.Weight = uint32(weight)
		}
		if w.has("pass") {
			pass, err := strconv.ParseUint(w.all("pass")[i], 10, 32)
			if err != nil {
				w.d.Fatalf(w.t, "%v", err)
			}
			g.Pass = pass * core.GrantStride / 12
		}
		op.Queues = append(op.Queues, g)
	}
	for _, name := range w.all("settles") {
		op.Settles = append(op.Settles, core.TaskHold{Task: idOf(name), Token: s.tokens[name]})
	}
	return op
}

// runCommit applies the ops of its input as one commit.
func (s *script) runCommit(w words) string {
	var ops []core.Op
	for line := range strings.Lines(w.d.Input) {
		cmd, args, err := datadriven.ParseLine(strings.TrimSpace(line))
		if err != nil {
			w.d.Fatalf(w.t, "%v", err)
		}
		ops = append(ops, s.op(words{w.t, &datadriven.TestData{Cmd: cmd, CmdArgs: args}}, cmd))
	}
	outs, failed, fact := s.commit(ops...)
	if failed >= 0 {
		return fmt.Sprintf("ops[%d] %s", failed, refused(fact))
	}
	var b strings.Builder
	for i, op := range ops {
		b.WriteString(s.answer(op, outs[i].res, nil))
	}
	return b.String() + s.effects(outs[0])
}

// runChurn claims a task and gives it back, n times.
func (s *script) runChurn(w words) string {
	for range w.num("n") {
		s.do(s.claimOp(w))
		if o := s.do(&core.TaskRelease{Task: idOf(w.name()), Token: core.Token(s.m.meta.token)}); o.fact != nil {
			return refused(o.fact)
		}
	}
	s.tokens[w.name()] = core.Token(s.m.meta.token)
	return "ok\n"
}

// runEntry applies each line as a commit of its own, all in one entry. A tick is one of them.
func (s *script) runEntry(w words) string {
	s.c.Index++
	var b strings.Builder
	for line := range strings.Lines(w.d.Input) {
		cmd, args, err := datadriven.ParseLine(strings.TrimSpace(line))
		if err != nil {
			w.d.Fatalf(w.t, "%v", err)
		}
		if cmd == "tick" {
			_, more, err := s.m.Tick(s.tape, &s.c, 1000)
			if err != nil {
				w.t.Fatal(err)
			}
			fmt.Fprintf(&b, "more=%v\n", more)
			continue
		}
		op := s.op(words{w.t, &datadriven.TestData{Cmd: cmd, CmdArgs: args}}, cmd)
		res, fact, err := s.m.Apply(s.tape, &s.c, op)
		if err != nil {
			w.t.Fatal(err)
		}
		b.WriteString(s.answer(op, res, fact))
	}
	var o outcome
	s.end(&o)
	return b.String() + s.effects(o)
}

func refused(fact core.Fact) string {
	text := fact.Error()
	for _, id := range knownIDs(text) {
		text = strings.ReplaceAll(text, id, nameOfText(id))
	}
	return fmt.Sprintf("refused: %s: %s\n", strings.TrimPrefix(fmt.Sprintf("%T", fact), "core."), text)
}

// knownIDs finds the task ids in a text.
func knownIDs(text string) (ids []string) {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ':' || r == '"' }) {
		if _, err := core.ParseTaskID(f); err == nil {
			ids = append(ids, f)
		}
	}
	return ids
}

func nameOfText(id string) string {
	parsed, _ := core.ParseTaskID(id)
	return nameOf(parsed)
}

// assigned prints a task that was given out.
func (s *script) assigned(b *strings.Builder, a core.Assigned) {
	s.tokens[nameOf(a.Task)] = a.Token
	if s.brief {
		fmt.Fprintf(b, "%s ", nameOf(a.Task))
		return
	}
	fmt.Fprintf(b, "%s token=%d attempt=%d queue=%s kind=%s priority=%d lease=%s until=%s max_attempts=%d failures=%d crashes=%d payload=%q type=%s headers=%v",
		nameOf(a.Task), a.Token, a.Attempt, a.Queue, a.Kind, a.Priority, a.Lease.Duration(), since(a.LeaseUntil),
		a.MaxAttempts, a.Failures, a.Crashes, a.Payload, a.ContentType, a.Headers)
	if a.Checkpoint != nil {
		fmt.Fprintf(b, " checkpoint=%q", a.Checkpoint)
	}
	if a.Tag != "" {
		fmt.Fprintf(b, " tag=%s", a.Tag)
	}
	if a.MaxRun != 0 {
		fmt.Fprintf(b, " max_run=%s", a.MaxRun.Duration())
	}
	if a.ReadyAt != 0 {
		fmt.Fprintf(b, " ready=%s", since(a.ReadyAt))
	}
	b.WriteByte('\n')
	again, ok, err := Assigned(s.tx, testPartition, a.Task)
	if s.c.Format < core.FormatOperate {
		again.Tag, again.MaxRun, again.ReadyAt = "", 0, 0
	}
	if err != nil || !ok || fmt.Sprint(again) != fmt.Sprint(a) {
		s.world.t.Errorf("assigned again as %+v %v %v, first as %+v", again, ok, err, a)
	}
}

// answer prints what an op answered.
func (s *script) answer(op core.Op, r core.OpResult, fact core.Fact) string {
	if fact != nil {
		return refused(fact)
	}
	var b strings.Builder
	switch op := op.(type) {
	case *core.Grant:
		if len(r.Assigned) == 0 {
			return "none\n"
		}
		for _, a := range r.Assigned {
			s.assigned(&b, a)
		}
		if s.brief {
			return strings.TrimSpace(b.String()) + "\n"
		}
		return b.String()
	case *core.SessionLost:
		return "done\n"
	case *core.CronSet, *core.CronDelete, *core.CronFire:
		return cronAnswer(op, r)
	case *core.TaskReport:
		if r.Replayed {
			return "replayed\n"
		}
		return "kept\n"
	case *core.TaskRenew:
		for i, n := range r.Renewed {
			if n.Lost {
				fmt.Fprintf(&b, "%s lost\n", nameOf(op.Items[i].Task))
			} else {
				cancel := ""
				if n.Cancel {
					cancel = " cancel"
				}
				fmt.Fprintf(&b, "%s until=%s%s\n", nameOf(op.Items[i].Task), since(n.Until), cancel)
			}
		}
		return b.String()
	case *core.QueueSet, *core.LimiterSet:
		return fmt.Sprintf("version=%d\n", r.Version)
	case *core.QueueDelete, *core.LimiterDelete:
		return fmt.Sprintf("existed=%v\n", r.Existed)
	case *core.TenantQuota:
		return fmt.Sprintf("use=%+v\n", s.m.Use())
	case *core.QueuePause, *core.KeySet, *core.BulkStart, *core.BulkStop:
		return fmt.Sprintf("replayed=%v\n", r.Replayed)
	}
	fmt.Fprintf(&b, "%s %s", nameOf(r.Task), r.State)
	if r.Replayed {
		b.WriteString(" replayed")
		if _, ok := op.(*core.TaskCreate); ok && r.PayloadMatches {
			b.WriteString(" same payload")
		}
	}
	if _, ok := op.(*core.TaskCreate); ok && r.Existed {
		b.WriteString(" replaced")
	}
	b.WriteByte('\n')
	return b.String()
}

// effects prints what others are told of an entry.
func (s *script) effects(o outcome) string {
	var b strings.Builder
	for _, id := range o.ended {
		fmt.Fprintf(&b, "  ended %s\n", nameOf(id))
	}
	for _, q := range o.woken {
		fmt.Fprintf(&b, "  woken %s\n", q)
	}
	for _, l := range o.lost {
		fmt.Fprintf(&b, "  lost %s token=%d %s\n", nameOf(l.Task), l.Token, l.Reason)
	}
	for _, c := range o.wanted {
		fmt.Fprintf(&b, "  wanted %s token=%d until=%s %s\n", nameOf(c.Task), c.Token, since(c.Until), c.Reason)
	}
	if b.Len() == 0 && o.res.Kind == 0 && o.fact == nil {
		return "nothing\n"
	}
	return b.String()
}

func (s *script) show(w words) string {
	t, ok, err := Task(s.tx, testPartition, idOf(w.name()))
	if err != nil {
		return err.Error() + "\n"
	}
	if !ok {
		return "unknown\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s queue=%s kind=%s state=%s", w.name(), t.Queue, t.Kind, t.State)
	put := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" && text != "0" && text != "0s" && text != "[]" {
			fmt.Fprintf(&b, " %s=%s", name, text)
		}
	}
	moment := func(name string, at core.ShardTime) {
		if at != 0 {
			put(name, since(at)+" ")
		}
	}
	put("reason", t.Reason)
	put("attempt", t.Attempt)
	put("failures", t.Failures)
	put("crashes", t.Crashes)
	put("snoozes", t.Snoozes)
	put("redrives", t.Redrives)
	put("worker", t.Worker)
	moment("created", t.CreatedAt)
	moment("ready", t.ReadyAt)
	moment("run_at", t.RunAt)
	moment("started", t.StartedAt)
	moment("lease_until", t.LeaseUntil)
	moment("finished", t.FinishedAt)
	put("by", t.Creator)
	if t.HasResult {
		fmt.Fprintf(&b, " result=%q %s", t.Result, t.ResultType)
	}
	moment("expires", t.ExpiresAt)
	put("labels", t.Labels)
	for _, a := range t.After {
		put("after", afterText(&a))
	}
	put("on_dep", onDepNames[t.OnDepFailure])
	put("pending", t.Pending)
	put("dependents", t.Dependents)
	if p := t.Progress; p.At != 0 {
		fmt.Fprintf(&b, " progress=(%d%% %q at %s)", p.Percent, p.Message, since(p.At))
	}
	if c := t.Cancel; c.At != 0 {
		fmt.Fprintf(&b, " cancel=(%s by %s %q force=%v until %s)", since(c.At), c.By, c.Reason, c.Force, since(c.Until))
	}
	put("error", strings.TrimSpace(t.Error.Code+" "+t.Error.Message))
	b.WriteByte('\n')
	if w.has("settings") {
		fmt.Fprintf(&b, "  max_attempts=%d max_crashes=%d max_deliveries=%d lease=%s max_run=%s priority=%d unique=%q\n",
			t.MaxAttempts, t.MaxCrashes, t.MaxDeliveries, t.Lease.Duration(), t.MaxRun.Duration(), t.Priority, t.Unique)
	}
	list, _, err := Attempts(s.tx, testPartition, t.ID)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, a := range list.Attempts {
		fmt.Fprintf(&b, "  attempt %d token=%d by %s %s", a.Number, a.Token, a.Worker, since(a.Start))
		if a.End != 0 {
			fmt.Fprintf(&b, " to %s: %s", since(a.End), a.Outcome)
		}
		b.WriteString(strings.TrimRight(" "+a.Error.Code+" "+a.Error.Message, " "))
		b.WriteByte('\n')
	}
	return b.String()
}

var onDepNames = map[core.DepFailure]string{core.DepCancel: "cancel", core.DepRun: "run"}

func afterText(a *core.AfterState) string {
	text := nameOf(a.Task)
	if a.Terminal {
		text += ":terminal"
	}
	if text += " gone"; a.State != 0 {
		text = strings.TrimSuffix(text, "gone") + a.State.String()
	}
	if a.Waits {
		text += " waits"
	}
	return "(" + text + ")"
}

func (s *script) stats(name string) string {
	q, ok, err := Stats(s.tx, testPartition, name)
	if err != nil {
		return err.Error() + "\n"
	}
	if !ok {
		return "unknown\n"
	}
	var b strings.Builder
	for _, state := range core.States() {
		if n := q.States[state]; n > 0 {
			fmt.Fprintf(&b, "%s=%d ", state, n)
		}
	}
	fmt.Fprintf(&b, "created=%d purged=%d completed=%d failed=%d crashed=%d bytes=%d version=%d", q.Created, q.Purged, q.Completed, q.Failed, q.Crashed, q.Bytes, q.Config.Version)
	if q.OldestReady != 0 {
		fmt.Fprintf(&b, " oldest=%s", since(q.OldestReady))
	}
	if q.LettersLost > 0 {
		fmt.Fprintf(&b, " letters_lost=%d", q.LettersLost)
	}
	if p := q.Paused; p.Since != 0 {
		fmt.Fprintf(&b, " paused=(%s until %s by %s %q)", since(p.Since), since(p.Until), p.By, p.Reason)
	}
	return b.String() + "\n"
}

func (s *script) queues(w words) string {
	limit := 100
	if w.has("limit") {
		limit = int(w.num("limit"))
	}
	qs, err := Queues(s.tx, testPartition, w.str("after", ""), limit)
	if err != nil {
		return err.Error() + "\n"
	}
	if len(qs) == 0 {
		return "none\n"
	}
	var b strings.Builder
	for _, q := range qs {
		fmt.Fprintf(&b, "%s: %s", q.Queue, s.stats(q.Queue))
	}
	return b.String()
}

func (s *script) list(w words) string {
	q := core.ListQuery{
		Queue: w.str("queue", "mail"), Limit: 100, Desc: w.has("desc"), Kind: w.str("kind", ""), Worker: w.str("worker", ""),
		Unique: w.str("unique", ""), Labels: w.labels(), From: w.at("from"), To: w.at("to"),
	}
	if w.has("like") { // the last error of that task
		t, _, _ := Task(s.tx, testPartition, idOf(w.str("like", "")))
		q.Fingerprint = t.Fingerprint
	}
	if w.has("any") {
		q.Queue = ""
	}
	if w.has("state") {
		state, ok := core.ParseState(w.str("state", ""))
		if !ok {
			w.d.Fatalf(w.t, "no such state")
		}
		q.State = state
	}
	if w.has("limit") {
		q.Limit = int(w.num("limit"))
	}
	inspect := MaxInspected
	if w.has("inspect") {
		inspect = int(w.num("inspect"))
	}
	var b strings.Builder
	for range 100 {
		page, err := list(s.tx, testPartition, q, s.c.Shift, inspect)
		if fact := core.Fact(nil); errors.As(err, &fact) {
			return refused(fact)
		}
		if err != nil {
			return err.Error() + "\n"
		}
		names := make([]string, len(page.Tasks))
		for i, t := range page.Tasks {
			if names[i] = nameOf(t.ID); t.Payload != nil || t.Result != nil || q.State != 0 && t.State != q.State || q.Queue != "" && t.Queue != q.Queue {
				s.world.t.Errorf("listed %+v", t)
			}
		}
		fmt.Fprintf(&b, "page: %s\n", strings.Join(names, " "))
		if page.Next == nil {
			return b.String()
		}
		q.Cursor = page.Next
	}
	return "pages never end\n"
}

func (s *script) held(w words) string {
	var id core.SessionID
	copy(id[:], w.name())
	var b strings.Builder
	for _, a := range s.m.Held(id) {
		fmt.Fprintf(&b, "%s token=%d attempt=%d queue=%s until=%s\n", nameOf(a.Task), a.Token, a.Attempt, a.Queue, since(a.LeaseUntil))
	}
	return cmp.Or(b.String(), "none\n")
}
