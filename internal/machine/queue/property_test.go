package queue

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

// twins are two worlds that are given the same entries; one of them forgets its derived state at random and keeps
// hardly any of the ready tasks in memory.
type twins struct {
	steady, forgetful *world
	tokens            map[core.TaskID][]core.Token // issued, in order
	last              core.Token
}

// TestRandomHistories holds random histories to the invariants after every entry, and replicas to each other: answers,
// events and every change of the stored state are the same whatever a replica had in memory.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		told := rapid.SampledFrom([]int{0, 1, 2}).Draw(rt, "rows of tasks that wait for one entry")
		tw := &twins{
			steady:    newWorld(t, Options{Queues: 3, Keys: 5, Told: told, Batches: 2, BatchesKept: 1, BatchTasks: 3}),
			forgetful: newWorld(t, Options{Queues: 3, Keys: 5, Heads: 2, Told: told, Batches: 2, BatchesKept: 1, BatchTasks: 3}),
			tokens:    map[core.TaskID][]core.Token{},
		}
		tw.each(func(w *world) { w.tape.on = true })
		steps := rapid.IntRange(1, 60).Draw(rt, "steps")
		raised := rapid.IntRange(0, steps).Draw(rt, "entries of the first format")
		for i := range steps {
			format := core.FormatCurrent
			if i < raised {
				format = core.FormatFirst
			}
			tw.each(func(w *world) { w.c.Format = format })
			tw.step(rt)
		}
		tw.each(func(w *world) { w.advance(400 * 24 * 3_600_000) })
		tw.compare(rt, "end", nil, nil)
		for name, l := range tw.steady.m.names {
			if tw.steady.c.Format >= core.FormatQueues && l.isVacant() {
				rt.Fatalf("queue %s has nothing left and stays", name)
			}
		}
	})
}

func (tw *twins) each(fn func(w *world)) {
	fn(tw.steady)
	fn(tw.forgetful)
}

func (tw *twins) step(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
		tw.forgetful.restart()
	}
	tw.each(func(w *world) { w.tape.lines = nil })
	switch what := rapid.IntRange(0, 19).Draw(rt, "what"); {
	case what < 3:
		d := rapid.SampledFrom([]core.Millis{1, 500, 1000, 5000, 20_000, 60_000, 900_000, 3_600_000, 86_400_000}).Draw(rt, "pass")
		tw.each(func(w *world) { w.c.Stamp = w.c.Stamp.Add(d) })
	case what == 3:
		tw.each(func(w *world) { w.c.TermStart = w.c.Stamp })
	case what == 4 && rapid.Bool().Draw(rt, "a wall clock is set"):
		shift := rapid.SampledFrom([]core.Millis{0, 5000, -5000, 86_400_000, -86_400_000}).Draw(rt, "shift")
		tw.each(func(w *world) { w.c.Shift = shift })
	case what == 4:
		n := rapid.SampledFrom([]int64{0, 1, 600, 2000}).Draw(rt, "retain")
		none := rapid.Bool().Draw(rt, "no auto create")
		tw.each(func(w *world) { w.c.Namespace = core.NamespaceConfig{RetainBytes: n, NoAutoCreate: none} })
	case what < 8:
		steps := rapid.Uint32Range(0, 9).Draw(rt, "steps of tick")
		a, b := tw.steady.tick(steps), tw.forgetful.tick(steps)
		tw.forgetWoken(&a, &b)
		tw.compare(rt, "tick", a, b)
	default:
		n := rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5}).Draw(rt, "ops")
		ops := make([]core.Op, n)
		for i := range ops {
			ops[i] = tw.op(rt)
			tw.nameTime(rt, ops[i])
			for _, alone := ops[i].(*core.QueueDelete); alone && n > 1; _, alone = ops[i].(*core.QueueDelete) {
				ops[i] = tw.op(rt)
			}
		}
		aOuts, aFailed, aFact := tw.steady.commit(ops...)
		bOuts, bFailed, bFact := tw.forgetful.commit(ops...)
		tw.forgetWoken(&aOuts[0], &bOuts[0])
		tw.compare(rt, fmt.Sprintf("%+v", ops), fmt.Sprintf("%+v %d %v", aOuts, aFailed, aFact), fmt.Sprintf("%+v %d %v", bOuts, bFailed, bFact))
		if aFailed < 0 {
			tw.note(rt, aOuts)
		}
	}
}

// forgetWoken leaves out that queues with limits woke: when a rate lets tasks go again is found out at the next look, and a replica
// that was opened since looks later.
func (tw *twins) forgetWoken(outs ...*outcome) {
	for _, o := range outs {
		o.woken = slices.DeleteFunc(o.woken, func(name string) bool { l := tw.steady.m.names[name]; return l != nil && l.share != nil })
		if len(o.woken) == 0 {
			o.woken = nil
		}
	}
}

// note holds tokens to rising.
func (tw *twins) note(rt *rapid.T, outs []outcome) {
	for _, o := range outs {
		for _, a := range o.res.Assigned {
			if a.Token <= tw.last {
				rt.Fatalf("token %d after %d", a.Token, tw.last)
			}
			tw.last = a.Token
			tw.tokens[a.Task] = append(tw.tokens[a.Task], a.Token)
		}
	}
}

func (tw *twins) compare(rt *rapid.T, what string, a, b any) {
	if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y {
		rt.Fatalf("%s: steady answers\n%s\nforgetful\n%s", what, x, y)
	}
	if !slices.Equal(tw.steady.tape.lines, tw.forgetful.tape.lines) {
		rt.Fatalf("%s: steady changes\n%v\nforgetful\n%v", what, tw.steady.tape.lines, tw.forgetful.tape.lines)
	}
	if x, y := tw.steady.tx.Dump(), tw.forgetful.tx.Dump(); x != y {
		rt.Fatalf("%s: stored states differ\n%s", what, diff(x, y))
	}
}

// nameTime has a create, or a snooze, name a time at random.
func (tw *twins) nameTime(rt *rapid.T, op core.Op) {
	at := func() core.ShardTime {
		if rapid.IntRange(0, 3).Draw(rt, "names a time") > 0 {
			return 0
		}
		return tw.steady.c.Stamp.Add(rapid.SampledFrom([]core.Millis{-86_400_000, -1000, 1, 5000, 86_400_000, 90_000_000}).Draw(rt, "time"))
	}
	switch op := op.(type) {
	case *core.TaskCreate:
		op.RunAt = at()
		if tw.steady.c.Format >= core.FormatShare && rapid.IntRange(0, 1).Draw(rt, "shared") == 0 {
			op.Key, op.Cost = rapid.SampledFrom(randomKeys).Draw(rt, "key"), rapid.SampledFrom([]uint32{0, 1, 3}).Draw(rt, "cost")
		}
		if tw.steady.c.Format >= core.FormatShare && rapid.IntRange(0, 1).Draw(rt, "of a batch") == 0 {
			op.Batch = rapid.SampledFrom(randomIDs[:4]).Draw(rt, "batch") // the last one is never opened
		}
		if tw.steady.c.Format >= core.FormatShare && rapid.IntRange(0, 1).Draw(rt, "limited") == 0 {
			op.Limiters = randomLimiters(rt)
		}
		if tw.steady.c.Format >= core.FormatShare && op.Unique.Key != "" {
			op.Unique.Until = core.UniqueUntil(rapid.Uint8Range(0, 2).Draw(rt, "until"))
			op.Unique.Replace = !op.Unique.Reject && rapid.Bool().Draw(rt, "replace")
		}
		if tw.steady.c.Format >= core.FormatOperate && rapid.IntRange(0, 2).Draw(rt, "more") == 0 {
			op.ExpiresAt, op.Labels = tw.later(rt), randomLabels(rt)
		}
	case *core.TaskSnooze:
		op.Until = at()
	}
}

var randomIDs = []core.TaskID{idOf("a"), idOf("b"), idOf("c"), idOf("d"), idOf("e"), idOf("f"), idOf("g"), idOf("h"), idOf("a+0"), idOf("b+0")}

// randomSessionLost loses leases of a session, as they are or as they may have been before.
func (tw *twins) randomSessionLost(rt *rapid.T, id core.TaskID, token core.Token) core.Op {
	op := &core.SessionLost{Session: core.SessionID{byte(rapid.IntRange(0, 3).Draw(rt, "session"))}}
	for _, a := range tw.steady.m.Held(op.Session) {
		op.Leases = append(op.Leases, core.SeenLease{Task: a.Task, Token: a.Token, Until: a.LeaseUntil.Add(-core.Millis(rapid.IntRange(0, 1).Draw(rt, "renewed")))})
	}
	op.Leases = append(op.Leases, core.SeenLease{Task: id, Token: token, Until: tw.later(rt)})
	return op
}

func (tw *twins) op(rt *rapid.T) core.Op {
	id := rapid.SampledFrom(randomIDs).Draw(rt, "task")
	token := core.Token(rapid.Uint64Range(0, 3).Draw(rt, "any token"))
	if ts := tw.tokens[id]; len(ts) > 0 {
		token = ts[len(ts)-1]
		if rapid.IntRange(0, 4).Draw(rt, "older") == 0 {
			token = rapid.SampledFrom(ts).Draw(rt, "token")
		}
	}
	pause := func(name string) core.Millis {
		return rapid.SampledFrom([]core.Millis{0, 1000, 20_000}).Draw(rt, name)
	}
	switch rapid.IntRange(0, 64).Draw(rt, "op") {
	case 55, 56, 57, 58, 59, 60:
		return randomBatch(rt)
	case 61, 62, 63, 64:
		return randomLimiter(rt)
	case 49, 50, 51, 52, 53, 54:
		return tw.randomCron(rt, id)
	case 44, 45, 46:
		return tw.randomKeySet(rt)
	case 47, 48:
		return randomQuota(rt)
	case 36, 37:
		return tw.randomBulk(rt)
	case 38:
		return &core.BulkStop{ID: rapid.SampledFrom(randomIDs).Draw(rt, "job")}
	case 27, 28:
		return &core.TaskCancel{Task: id, Reason: "r", Force: rapid.IntRange(0, 3).Draw(rt, "force") == 0}
	case 29:
		return &core.TaskStop{Task: id, Token: token, Error: core.TaskError{Code: "S"}}
	case 30, 31:
		return &core.TaskRedrive{Task: id}
	case 32:
		return &core.TaskForceRelease{Task: id, Attempt: rapid.Uint32Range(0, 2).Draw(rt, "attempt")}
	case 33, 34:
		return tw.randomUpdate(rt, id)
	case 35:
		return &core.QueuePause{
			Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Resume: rapid.Bool().Draw(rt, "resume"),
			Until: tw.later(rt), Reason: "why",
		}
	case 41, 42, 43:
		return randomReport(rt, id, token)
	case 39, 40:
		return tw.randomSessionLost(rt, id, token)
	case 0, 1, 2, 3, 4, 5:
		return randomCreate(rt, id)
	case 6, 7, 8, 9, 10, 11:
		return tw.randomGrant(rt)
	case 12, 13, 14:
		return &core.TaskComplete{Task: id, Token: token, Result: bytes.Repeat([]byte("result"), 1+int(token)%9)}
	case 15, 16:
		return &core.TaskFail{
			Task: id, Token: token, Fatal: rapid.IntRange(0, 3).Draw(rt, "fatal") == 0,
			HasRetry: rapid.Bool().Draw(rt, "has retry"), RetryAfter: pause("retry after"), Error: randomError(rt),
		}
	case 17:
		return &core.TaskSnooze{Task: id, Token: token, Delay: pause("snooze")}
	case 18, 19:
		return &core.TaskRelease{Task: id, Token: token, Undelivered: rapid.Bool().Draw(rt, "undelivered")}
	case 20:
		return &core.TaskRenew{Items: []core.TaskHold{{Task: id, Token: token}, {Task: randomIDs[0], Token: 1}}, Extend: pause("extend")}
	case 21:
		return &core.TaskDelete{Task: id}
	case 22:
		return &core.TaskRunNow{Task: id}
	case 23, 24:
		return &core.QueueDelete{
			Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Purge: rapid.Bool().Draw(rt, "purge"),
			IfVersion: rapid.Int64Range(-1, 1).Draw(rt, "version"),
		}
	default:
		return randomQueueSet(rt)
	}
}

var randomKeys = []string{"", "a", "b", "c"}

func randomRate(rt *rapid.T) core.Rate {
	return rapid.SampledFrom([]core.Rate{{}, {}, {Limit: 1, Per: 1000}, {Limit: 2, Per: 60_000, Burst: 1}}).Draw(rt, "rate")
}

// randomKeySet sets up a key, or pauses it.
func (tw *twins) randomKeySet(rt *rapid.T) core.Op {
	return &core.KeySet{
		Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Key: rapid.SampledFrom(randomKeys).Draw(rt, "key"),
		Settings: core.KeySettings{
			Weight: rapid.Uint32Range(0, 3).Draw(rt, "weight"), Concurrency: rapid.Int64Range(0, 2).Draw(rt, "concurrency"), Rate: randomRate(rt),
		},
		KeepSettings: rapid.Bool().Draw(rt, "keeps"), Pause: core.KeyPause(rapid.IntRange(0, 2).Draw(rt, "pause")), Until: tw.later(rt), Reason: "r",
	}
}

var randomLimiterNames = []string{"x", "y", "z"}

// randomLimiters names some limiters, which may not be there.
func randomLimiters(rt *rapid.T) (out []string) {
	for _, name := range randomLimiterNames {
		if rapid.IntRange(0, 2).Draw(rt, "limiter") == 0 {
			out = append(out, name)
		}
	}
	return out
}

// randomLimiter sets a limiter, or removes one.
func randomLimiter(rt *rapid.T) core.Op {
	name, version := rapid.SampledFrom(randomLimiterNames).Draw(rt, "name"), rapid.Int64Range(-1, 1).Draw(rt, "version")
	if rapid.IntRange(0, 4).Draw(rt, "delete") == 0 {
		return &core.LimiterDelete{Name: name, IfVersion: version}
	}
	return &core.LimiterSet{
		Name: name, Config: core.LimiterConfig{Concurrency: rapid.Int64Range(0, 3).Draw(rt, "concurrency"), Rate: randomRate(rt)}, IfVersion: version,
	}
}

// randomShare is mostly nothing.
func randomShare(rt *rapid.T) (s core.QueueShare) {
	s.DeadLetter = rapid.SampledFrom([]string{"", "", "p", "q", "t"}).Draw(rt, "dead letter")
	if rapid.IntRange(0, 3).Draw(rt, "limited") == 0 {
		copy(s.Limiters[:], randomLimiters(rt))
	}
	if rapid.IntRange(0, 2).Draw(rt, "shares") > 0 {
		return s
	}
	return core.QueueShare{
		Limiters:   s.Limiters,
		NoFairness: rapid.Bool().Draw(rt, "no fairness"), Strict: rapid.IntRange(0, 2).Draw(rt, "strict") == 0,
		Concurrency: rapid.Int64Range(0, 3).Draw(rt, "concurrency"), KeyConcurrency: rapid.Int64Range(0, 2).Draw(rt, "of a key"),
		Rate: randomRate(rt), KeyRate: randomRate(rt), MaxWorkers: rapid.Int32Range(0, 1).Draw(rt, "workers"), DeadLetter: s.DeadLetter,
	}
}

// randomQuota is a quota that leaves room for a few tasks, or none that was told.
func randomQuota(rt *rapid.T) core.Op {
	few := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(rt, name) }
	return &core.TenantQuota{
		Bounds: core.TaskBounds{Tasks: few("tasks", 6), Bytes: few("bytes", 100), Running: few("running", 3)},
		Others: core.TaskUse{Tasks: uint64(few("other tasks", 2)), Bytes: uint64(few("other bytes", 20)), Running: uint64(few("others running", 1))},
	}
}

// randomBulk is a job about a random part of the tasks.
func (tw *twins) randomBulk(rt *rapid.T) core.Op {
	op := &core.BulkStart{
		ID: rapid.SampledFrom(randomIDs).Draw(rt, "job"), Action: core.BulkAction(rapid.IntRange(1, 4).Draw(rt, "action")),
		Priority: rapid.Uint8Range(0, 9).Draw(rt, "priority"), Force: rapid.Bool().Draw(rt, "force"),
		Rate: rapid.SampledFrom([]uint32{0, 1, 20}).Draw(rt, "rate"),
	}
	if op.Action == core.BulkRetry && tw.steady.c.Format >= core.FormatShare {
		op.ToQueue = rapid.SampledFrom([]string{"", "p", "q", "t"}).Draw(rt, "to queue")
		op.Patch = rapid.SampledFrom([][]byte{nil, []byte(`{"a":null,"b":12}`), []byte(`7`)}).Draw(rt, "patch")
	}
	op.Tasks.Queue = rapid.SampledFrom(append([]string{""}, randomQueues...)).Draw(rt, "queue")
	if tw.steady.c.Format >= core.FormatShare && rapid.IntRange(0, 3).Draw(rt, "about a batch") == 0 {
		op.Tasks.Batch = rapid.SampledFrom(randomIDs[:4]).Draw(rt, "batch")
	}
	op.Tasks.State = rapid.SampledFrom(append([]core.State{0}, op.Action.States()...)).Draw(rt, "state")
	if rapid.IntRange(0, 3).Draw(rt, "has labels") == 0 {
		op.Tasks.Labels = randomLabels(rt)
	}
	if rapid.IntRange(0, 3).Draw(rt, "has fingerprint") == 0 {
		e := randomError(rt)
		op.Tasks.Fingerprint = fingerprintOf(rapid.SampledFrom(randomQueues).Draw(rt, "kind"), &e)
	}
	return op
}

// later is a wall time at random, or none.
func (tw *twins) later(rt *rapid.T) core.ShardTime {
	if rapid.Bool().Draw(rt, "no time") {
		return 0
	}
	return tw.steady.c.Stamp.Add(rapid.SampledFrom([]core.Millis{-1000, 1, 5000, 70_000}).Draw(rt, "later"))
}

func randomLabels(rt *rapid.T) (out []core.Label) {
	for _, name := range []string{"env", "order"} {
		if rapid.Bool().Draw(rt, "has label") {
			out = append(out, core.Label{Name: name, Value: rapid.SampledFrom([]string{"", "7"}).Draw(rt, "value")})
		}
	}
	return out
}

func (tw *twins) randomUpdate(rt *rapid.T, id core.TaskID) core.Op {
	op := &core.TaskUpdate{
		Task: id, HasPriority: rapid.Bool().Draw(rt, "has priority"), HasRunAt: rapid.IntRange(0, 3).Draw(rt, "has run_at") == 0,
		HasPayload: rapid.Bool().Draw(rt, "has payload"), HasLabels: rapid.IntRange(0, 2).Draw(rt, "has labels") == 0,
		HasExpiry: rapid.IntRange(0, 3).Draw(rt, "has expiry") == 0,
	}
	if op.HasPriority {
		op.Priority = rapid.Uint8Range(0, 9).Draw(rt, "priority")
	}
	if op.HasRunAt {
		op.RunAt, op.Delay = tw.later(rt), rapid.SampledFrom([]core.Millis{0, 5000}).Draw(rt, "delay")
	}
	if op.HasPayload {
		op.Payload, op.ContentType = make([]byte, rapid.SampledFrom([]int{0, 1, 40}).Draw(rt, "size")), rapid.SampledFrom([]string{"", "text/plain"}).Draw(rt, "type")
	}
	if op.HasLabels {
		op.Labels = randomLabels(rt)
	}
	if op.HasExpiry {
		op.ExpiresAt = tw.later(rt)
	}
	return op
}

// randomError has one of some codes, or none and one of some messages.
func randomError(rt *rapid.T) core.TaskError {
	return core.TaskError{
		Code:    rapid.SampledFrom([]string{"E", "F", "", ""}).Draw(rt, "code"),
		Message: rapid.SampledFrom([]string{"", "order 7", "order 81", "order"}).Draw(rt, "message"),
	}
}

var randomQueues = []string{"p", "q", "r", "s"}

func randomCreate(rt *rapid.T, id core.TaskID) core.Op {
	op := &core.TaskCreate{
		ID: id, Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), Priority: rapid.Uint8Range(0, 9).Draw(rt, "priority"),
		Delay:   rapid.SampledFrom([]core.Millis{0, 0, 0, 5000, 90_000_000}).Draw(rt, "delay"),
		Payload: make([]byte, rapid.SampledFrom([]int{0, 1, 30}).Draw(rt, "payload")),
	}
	if rapid.IntRange(0, 2).Draw(rt, "is JSON") == 0 {
		op.Payload = []byte(`{"a":1}`)
	}
	if rapid.IntRange(0, 3).Draw(rt, "is unique") == 0 {
		op.Unique = core.Unique{
			Key: rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key"), TTL: rapid.SampledFrom([]core.Millis{0, 1000, 60_000}).Draw(rt, "ttl"),
			Reject: rapid.Bool().Draw(rt, "reject"), Request: rapid.Bool().Draw(rt, "request"),
		}
	}
	if rapid.IntRange(0, 2).Draw(rt, "waits") == 0 {
		op.After, op.OnDepFailure = randomAfter(rt), core.DepFailure(rapid.IntRange(0, 2).Draw(rt, "on dep"))
	}
	if rapid.IntRange(0, 3).Draw(rt, "has settings") == 0 {
		op.MaxAttempts, op.MaxCrashes, op.MaxDeliveries = 2, 2, 4
		op.MaxRun = rapid.SampledFrom([]core.Millis{0, 8000}).Draw(rt, "max run")
	}
	return op
}

// randomAfter names some of the tasks, in order of their ids. It may name a task that is unknown, or the new one.
func randomAfter(rt *rapid.T) (out []core.After) {
	for _, id := range randomIDs {
		if rapid.IntRange(0, 3).Draw(rt, "waits for") == 0 {
			out = append(out, core.After{Task: id, Terminal: rapid.IntRange(0, 3).Draw(rt, "terminal") == 0})
		}
	}
	return out
}

func (tw *twins) randomGrant(rt *rapid.T) core.Op {
	op := &core.Grant{
		N: rapid.Uint32Range(0, 4).Draw(rt, "n"), Lease: rapid.SampledFrom([]core.Millis{0, 0, 1000, 5000}).Draw(rt, "lease"),
		Worker: rapid.SampledFrom([]string{"w", "a worker with a name that is too long to stand in the record"}).Draw(rt, "worker"),
	}
	op.Session[0] = rapid.Uint8Range(0, 2).Draw(rt, "session")
	for _, q := range rapid.SliceOfN(rapid.SampledFrom(randomQueues), 1, 3).Draw(rt, "queues") {
		op.Queues = append(op.Queues, core.GrantQueue{
			Name: q, Weight: rapid.Uint32Range(0, 4).Draw(rt, "weight"), Pass: rapid.Uint64Range(0, core.GrantStride).Draw(rt, "pass"),
		})
	}
	op.Weighted = rapid.IntRange(0, 3).Draw(rt, "weighted") == 0
	if rapid.IntRange(0, 3).Draw(rt, "settles") == 0 {
		op.Settles = []core.TaskHold{{Task: randomIDs[1], Token: tw.last}}
	}
	return op
}

func randomQueueSet(rt *rapid.T) core.Op {
	keep := []core.Millis{0, -1, 60_000, 3_600_000}
	return &core.QueueSet{
		Queue: rapid.SampledFrom(randomQueues).Draw(rt, "queue"), IfVersion: rapid.Int64Range(-1, 1).Draw(rt, "version"),
		Config: core.QueueConfig{
			Aging:           rapid.SampledFrom([]core.Millis{0, -1, 1000}).Draw(rt, "aging"),
			RetainCompleted: rapid.SampledFrom(keep).Draw(rt, "completed"),
			RetainDead:      rapid.SampledFrom(keep).Draw(rt, "dead"),
			Retry:           core.Retry{Backoff: core.Backoff(rapid.IntRange(0, 5).Draw(rt, "backoff"))},
			Share:           randomShare(rt),
			MaxPayload:      rapid.SampledFrom([]int64{0, 10}).Draw(rt, "max payload"),
			RetainCancelled: rapid.SampledFrom(keep).Draw(rt, "cancelled"),
			Limits: core.QueueLimits{
				CancelGrace: rapid.SampledFrom([]core.Millis{0, -1, 1, 5000}).Draw(rt, "grace"),
				DefaultTTL:  rapid.SampledFrom([]core.Millis{0, 0, 8000}).Draw(rt, "ttl"),
				MaxTasks:    rapid.SampledFrom([]int64{0, 0, 2}).Draw(rt, "max tasks"),
				MaxBytes:    rapid.SampledFrom([]int64{0, 0, 60}).Draw(rt, "max bytes"),
			},
		},
	}
}
