package queue

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

var writeGolden = flag.Bool("golden", false, "write the golden bytes instead of comparing; old data must stay readable")

// sampleRetry is a policy with every field set.
var sampleRetry = core.Retry{Backoff: core.BackoffEqualJitter, Base: 1, FactorPercent: 300, Max: 4000}

// endedSamples are rows of the index of ended tasks, and windows of unique keys.
func endedSamples() []sample {
	return []sample{
		of("unique", appendWindow(nil, formUnique, window{idOf("t"), epoch, 5, core.UniqueTTL}), window{idOf("t"), epoch, 5, core.UniqueTTL}, windowOf(formUnique)),
		of("unique, by name", appendWindow(nil, formWindow, window{idOf("t"), epoch, 5, core.UniqueTTL}), window{idOf("t"), epoch, 5, core.UniqueTTL}, windowOf(formWindow)),
		of("unique, freed at the end", appendWindow(nil, formWindow, window{idOf("t"), epoch, 5, core.UniqueTerminal}), window{idOf("t"), epoch, 5, core.UniqueTerminal}, windowOf(formWindow)),
		of("create that replaced another", appendReplaced(nil, replaced{idOf("t"), 5, epoch}), replaced{idOf("t"), 5, epoch}, decodeReplaced),
		of("terminal row", appendEnded(nil, ended{3, 9, true, true, false, false, false, false, false}), ended{3, 9, true, true, false, false, false, false, false}, decodeEnded),
		of("terminal row, labels, cancelled", appendEnded(nil, ended{3, 9, false, false, true, true, false, false, false}), ended{3, 9, false, false, true, true, false, false, false}, decodeEnded),
		of("terminal row, reported", appendEnded(nil, ended{3, 9, false, false, false, false, false, true, false}), ended{3, 9, false, false, false, false, false, true, false}, decodeEnded),
	}
}

// letterSamples are of unique keys that are freed, of dead letters, and of jobs that move tasks.
func letterSamples() []sample {
	frees := record{state: core.Ready, queue: 300, readyAt: epoch, sort: 1 << 40, seq: 12345, frees: true}
	lost := counters{states: [8]uint64{0, 1}, created: 1, lettersLost: 3}
	moves := bulk{BulkJob: core.BulkJob{
		BulkStart: core.BulkStart{ID: idOf("j"), Action: core.BulkRetry, Rate: 9, ToQueue: "other", Patch: []byte(`{"a":null}`)},
		By:        "alice", State: core.BulkRunning, Started: epoch,
	}, next: epoch}
	return []sample{
		of("ready, frees its unique key", appendRecord(nil, &frees), frees, decodeRecord),
		of("counters, copies left out", appendCounters(nil, &lost), lost, decodeCounters),
		of("bulk job that moves tasks", appendBulk(nil, &moves), moves, decodeBulk),
	}
}

// samples are one value of each stored form, with every field set.
func samples() []sample {
	retry := sampleRetry
	full := settings{maxAttempts: 1, maxCrashes: 2, maxDeliveries: -1, lease: 4000, maxRun: 5000, retry: retry}
	rec := record{
		outcome: core.OutcomeFailed, reason: reasonRetry, priority: 9, hasResult: true, queue: 300, token: 70_000,
		attempt: 3, failures: 2, crashes: 1, snoozes: 4, redrives: 5, base: 2, readyAt: epoch, startedAt: epoch + 10,
	}
	scheduled, ready, running, completed, dead := rec, rec, rec, rec, rec
	scheduled.state, scheduled.runAt = core.Scheduled, epoch+5000
	ready.state, ready.sort, ready.seq = core.Ready, 1<<40, 12345
	running.state, running.sort, running.seq = core.Running, 1<<40, 12345
	running.session, running.worker, running.lease = core.SessionID{1, 2, 3}, "worker-1", 60_000
	running.leaseUntil, running.runEnd = epoch+60_010, epoch+90_000
	completed.state, completed.worker, completed.endedAt, completed.endedIdx = core.Completed, "worker-1", epoch+20, 99
	dead.state, dead.longHolder, dead.endedAt, dead.endedIdx = core.Dead, true, epoch+20, 99
	wall := scheduled
	wall.wall = true
	expires, asked, cancelled := ready, running, dead
	expires.expiresAt = epoch + 70_000
	asked.cancelUntil = epoch + 30_000
	cancelled.state, cancelled.hasCancel = core.Cancelled, true
	reported := ready
	reported.reported = true
	inline := completed
	inline.content, inline.result = 12345, appendResult(nil, "", []byte("ok"))
	op := &core.TaskCreate{
		Queue: "mail", TaskKind: "send", Priority: 3, RunAt: epoch + 1, Delay: 2, MaxAttempts: 1, MaxCrashes: 2, MaxDeliveries: -1,
		Lease: 4000, MaxRun: 5000, Retry: retry, Unique: core.Unique{Key: "k", TTL: 6, Reject: true}, ContentType: "text/plain",
		Headers: []core.Header{{Name: "a", Value: "b"}}, Payload: []byte("payload"),
	}
	c := &core.ApplyContext{Stamp: epoch, Index: 77, Principal: "alice"}
	fullSpec, hashed := appendSpec(nil, c, op)
	content := hashed.content
	moreSpec, more := appendSpec(nil, c, &core.TaskCreate{
		Queue: "mail", Payload: []byte("{}"), ExpiresAt: epoch + 5, Labels: []core.Label{{Name: "env", Value: "prod"}, {Name: "order", Value: "7"}},
	})
	smallSpec, _ := appendSpec(nil, c, &core.TaskCreate{Queue: "mail", Payload: []byte("{}")})
	count := counters{states: [8]uint64{0, 1, 2, 3, 4, 5, 6, 7}, created: 100, purged: 72, completed: 50, failed: 9, crashed: 8, bytes: 1 << 20, ended: 1 << 10}
	swept := count
	swept.sweeps[0], swept.sweeps[2] = sweep{epoch, idOf("t")}, sweep{epoch + 1, idOf("u")}
	state := func(name string, s record) sample {
		return of(name, appendRecord(nil, &s), s, decodeRecord)
	}
	return slices.Concat(letterSamples(), shareSamples(), controlSamples(), cronSamples(), reportSamples(), endedSamples(), errorSamples(), afterSamples(), batchSamples(), []sample{
		state("scheduled", scheduled),
		state("scheduled by the wall clocks", wall),
		state("ready", ready),
		state("running", running),
		state("completed", completed),
		state("completed, small result", inline),
		state("dead", dead),
		state("ready, expires", expires),
		state("running, to be cancelled", asked),
		state("cancelled", cancelled),
		state("ready, reported", reported),
		state("ready, in a lane", record{state: core.Ready, queue: 3, lane: 300, cost: 7, readyAt: epoch, sort: placeKey(epoch, 3), seq: 9}),
		of("tombstone", appendTombstone(nil, tombstone{core.Dead, core.OutcomeFailed, 70_000, content, epoch}), tombstone{core.Dead, core.OutcomeFailed, 70_000, content, epoch}, decodeTombstone),
		of("payload", fullSpec, spec{
			content: content, createdAt: epoch, createdIdx: 77, creator: []byte("alice"), queue: []byte("mail"), kind: []byte("send"),
			priority: 3, settings: full, unique: []byte("k"), contentType: []byte("text/plain"),
			headers: []core.Header{{Name: "a", Value: "b"}}, payload: []byte("payload"),
		}, specAlone),
		of("payload, labels, expires", moreSpec, spec{
			content: more.content, createdAt: epoch, createdIdx: 77, creator: []byte("alice"), queue: []byte("mail"),
			labels: []core.Label{{Name: "env", Value: "prod"}, {Name: "order", Value: "7"}}, payload: []byte("{}"),
		}, specAlone),
		{name: "payload, plain", stored: smallSpec},
		of("counters", appendCounters(nil, &count), count, decodeCounters),
		of("counters, swept", appendCounters(nil, &swept), swept, decodeCounters),
		of("meta", appendMeta(nil, meta{1, 2, 3, 4, gone{}}), meta{1, 2, 3, 4, gone{}}, decodeMeta),
		of("meta, queues gone", appendMeta(nil, meta{1, 2, 3, 4, gone{5, 6, 7, 8}}), meta{1, 2, 3, 4, gone{5, 6, 7, 8}}, decodeMeta),
		of("running row", appendCarried(nil, &carried{idOf("t"), 3, content, 7, full, false}), carried{idOf("t"), 3, content, 7, full, false}, decodeCarried),
		of("running row, labels", appendCarried(nil, &carried{idOf("t"), 3, content, 7, full, true}), carried{idOf("t"), 3, content, 7, full, true}, decodeCarried),
		of("removed queue", appendRemoved(nil, &removed{"mail", []byte{1, 2}}), removed{"mail", []byte{1, 2}}, decodeRemoved),
		of("result", appendResult(nil, "text/plain", []byte("r")), "text/plain r", func(b []byte) (string, error) {
			kind, result, err := decodeResult(b)
			return string(kind) + " " + string(result), err
		}),
	})
}

// shareSamples are those of how queues are shared.
func shareSamples() []sample {
	shared := queueRow{number: 3, config: core.QueueConfig{Version: 7, Share: core.QueueShare{
		NoFairness: true, Strict: true, Concurrency: 1, KeyConcurrency: 2, Rate: core.Rate{Limit: 3, Per: 4, Burst: 5},
		KeyRate: core.Rate{Limit: 6, Per: 7}, MaxWorkers: 8, DeadLetter: "graves",
	}}}
	limited := shared
	limited.config.Share.Limiters = [core.MaxLimiters]string{"api", "gpu"}
	limiter := limiterState{
		LimiterConfig: core.LimiterConfig{Concurrency: 300, Rate: core.Rate{Limit: 4, Per: 5, Burst: 6}}, version: 7, used: 8, tasks: 70_000,
		rate: rateState(nanos(epoch)),
	}
	plain := laneState{tasks: 3, ready: 2, running: 1, pass: 9}
	full := laneState{
		number: 300, tasks: 3, ready: 2, running: 1, pass: 1 << 40, rate: rateState(nanos(epoch)), hold: &laneHold{task: idOf("t"), ready: true, cost: 7},
		set: &laneSet{
			KeySettings: core.KeySettings{Weight: 2, Concurrency: 3, Rate: core.Rate{Limit: 4, Per: 5, Burst: 6}},
			paused:      core.QueuePaused{Since: epoch, Until: epoch + 1, By: "ann", Reason: "holiday"},
		},
	}
	both := func(b []byte) (out [2]any, err error) {
		out[0], out[1], err = decodeShareRecord(b)
		return out, err
	}
	share := shareState{pass: 1 << 41, rate: 8, made: 300}
	spec, _ := appendSpec(nil, &core.ApplyContext{Stamp: epoch, Index: 77}, &core.TaskCreate{
		Queue: "mail", Key: "customer/7", Cost: 3, Limiters: []string{"api", "gpu"}, After: []core.After{{Task: idOf("a"), Terminal: true}},
		OnDepFailure: core.DepRun, Payload: []byte("{}"),
		Unique: core.Unique{Key: "k", TTL: 6, Reject: true, Until: core.UniqueTerminal, Replace: true},
	})
	return []sample{
		of("config, shared", appendConfig(nil, &shared), shared, decodeConfig),
		of("config, limiters", appendConfig(nil, &limited), limited, decodeConfig),
		of("limiter", appendLimiter(nil, &limiter), limiter, decodeLimiter),
		of("lane, limiters", appendLaneRecord(nil, &laneState{number: 1, tasks: 1, ready: 1, named: true}), laneState{number: 1, tasks: 1, ready: 1, named: true}, decodeLaneRecord),
		of("lane", appendLaneRecord(nil, &plain), plain, decodeLaneRecord),
		of("lane, all set", appendLaneRecord(nil, &full), full, decodeLaneRecord),
		of("share", appendShareRecord(nil, &share, &plain), [2]any{share, plain}, both),
		{name: "payload, shared", stored: spec},
	}
}

// afterSamples are those of tasks that wait for others.
func afterSamples() []sample {
	blocked := record{state: core.Blocked, priority: 3, queue: 300, pending: 2, dependents: 70_000, since: 12345, runAt: epoch + 5, wall: true, expiresAt: epoch + 9}
	ended := record{state: core.Dead, queue: 300, dependents: 1, since: 7, readyAt: epoch, endedAt: epoch + 20, endedIdx: 99}
	row := afterRow{terminal: true, onDep: core.DepRun, place: 12345}
	return []sample{
		of("blocked", appendRecord(nil, &blocked), blocked, decodeRecord),
		of("dead, holds others", appendRecord(nil, &ended), ended, decodeRecord),
		of("waits for another one", appendAfterRow(nil, &row), row, decodeAfterRow),
		of("timer of an end", appendAfterTimer(nil, &ending{state: core.Dead, since: 12345}), ending{state: core.Dead, since: 12345}, decodeAfterTimer),
	}
}

// specAlone is decodeSpec without where the parts of the record are.
func specAlone(b []byte) (spec, error) {
	s, err := decodeSpec(b)
	s.flags, s.flagsAt, s.flagsEnd, s.typeAt, s.kindEnd = 0, 0, 0, 0, 0
	return s, err
}

// controlSamples are those of configurations and of cancels.
func controlSamples() []sample {
	retry := sampleRetry
	config := core.QueueConfig{
		Version: 7, MaxAttempts: 1, MaxCrashes: 2, MaxDeliveries: -1, Lease: 4000, MaxRun: 5000, Retry: retry,
		MaxPayload: 8, Aging: -1, RetainCompleted: 9, RetainCancelled: 10, RetainDead: -1,
	}
	bounded := queueRow{
		number: 3, config: config, paused: core.QueuePaused{Since: epoch, Until: epoch + 1, By: "ann", Reason: "deploy"},
	}
	bounded.config.Limits = core.QueueLimits{
		CancelGrace: -1, DefaultTTL: 2, MaxTasks: 3, MaxBytes: 4, CeilingAttempts: 5, CeilingCrashes: 6, CeilingDeliveries: 7,
		CeilingLease: 8, CeilingMaxRun: 9, CeilingPriority: 1,
	}
	cancel := core.CancelAsked{At: epoch, By: "ann", Reason: "wrong order", Force: true}
	attempt := core.Attempt{
		Worker: "w", Session: core.SessionID{9}, Start: epoch, End: epoch + 5, Outcome: core.OutcomeFailed,
		Error: core.TaskError{Code: "E", Message: "m", Stack: "s"}, Index: 88, Token: 5,
	}
	timed := attempt
	timed.ReadyAt, timed.LeaseUntil, timed.RetryAt = epoch-7, epoch+30_000, epoch+1005
	older := outcomes{core.OutcomeNone: 1, core.OutcomeFailed: 300, core.OutcomeCancelled: 2}
	return []sample{
		of("attempt", appendAttempt(nil, &attempt), attempt, decodeAttempt),
		of("attempt, times", appendAttempt(nil, &timed), timed, decodeAttempt),
		of("older attempts", appendOlder(nil, &older), older, decodeOlder),
		of("config", appendConfig(nil, &queueRow{number: 3, config: config}), queueRow{number: 3, config: config}, decodeConfig),
		of("config, limits, paused", appendConfig(nil, &bounded), bounded, decodeConfig),
		of("cancel", appendCancel(nil, &cancel), cancel, decodeCancel),
	}
}

func windowOf(form byte) func(b []byte) (window, error) {
	return func(b []byte) (window, error) { return decodeWindow(b, form) }
}

type sample struct {
	name   string
	stored []byte
	value  any
	decode func(b []byte) (any, error)
}

func of[V any](name string, stored []byte, value V, decode func(b []byte) (V, error)) sample {
	return sample{name, stored, value, func(b []byte) (any, error) { return decode(b) }}
}

func TestStoredValuesKeepTheirBytes(t *testing.T) {
	var b strings.Builder
	for _, s := range samples() {
		fmt.Fprintf(&b, "%s: %s\n", s.name, hex.EncodeToString(s.stored))
		if s.decode == nil {
			continue
		}
		got, err := s.decode(s.stored)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if !reflect.DeepEqual(got, s.value) {
			t.Errorf("%s: reads as %+v, was %+v", s.name, got, s.value)
		}
	}
	path := filepath.Join("testdata", "values.golden")
	if *writeGolden {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("stored bytes changed:\n%s", diff(string(want), b.String()))
	}
}

// runsToTheEnd says whether what a sample ends with has no length of its own, so that it can be cut.
func runsToTheEnd(sample string) bool { return strings.HasSuffix(sample, "result") }

func TestDamagedValuesAreErrors(t *testing.T) {
	for _, s := range samples() {
		if s.decode == nil {
			continue
		}
		if _, err := s.decode(append([]byte{0xee}, s.stored[1:]...)); err == nil {
			t.Errorf("%s: another form is accepted", s.name)
		}
		for n := range len(s.stored) {
			_, err := s.decode(s.stored[:n]) // payloads and results run to the end: cut ones can be whole
			if err == nil && n < len(s.stored)-len("payload") && !runsToTheEnd(s.name) {
				t.Errorf("%s: %d of %d bytes are accepted", s.name, n, len(s.stored))
			}
		}
		if _, err := s.decode(append(s.stored, 0)); err == nil && !strings.HasPrefix(s.name, "payload") && !runsToTheEnd(s.name) {
			t.Errorf("%s: a byte too many is accepted", s.name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.stored)
	}
	decoders := samples()
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, s := range decoders {
			if s.decode != nil {
				_, _ = s.decode(b) // must not panic, whatever it says
			}
		}
	})
}

func TestContentSeesEveryField(t *testing.T) {
	c := &core.ApplyContext{Stamp: epoch}
	base := core.TaskCreate{ID: idOf("a"), Queue: "mail", Payload: []byte("p")}
	of := func(change func(op *core.TaskCreate)) uint64 {
		op := base
		change(&op)
		_, h := appendSpec(nil, c, &op)
		return h.content
	}
	seen := map[uint64]string{of(func(*core.TaskCreate) {}): "nothing"}
	for name, change := range map[string]func(op *core.TaskCreate){
		"queue":           func(op *core.TaskCreate) { op.Queue = "mai" },
		"kind":            func(op *core.TaskCreate) { op.TaskKind = "k" },
		"priority":        func(op *core.TaskCreate) { op.Priority = 1 },
		"run at":          func(op *core.TaskCreate) { op.RunAt = 1 },
		"delay":           func(op *core.TaskCreate) { op.Delay = 1 },
		"max attempts":    func(op *core.TaskCreate) { op.MaxAttempts = 1 },
		"max crashes":     func(op *core.TaskCreate) { op.MaxCrashes = 1 },
		"max deliveries":  func(op *core.TaskCreate) { op.MaxDeliveries = 1 },
		"lease":           func(op *core.TaskCreate) { op.Lease = 1 },
		"max run":         func(op *core.TaskCreate) { op.MaxRun = 1 },
		"retry":           func(op *core.TaskCreate) { op.Retry.Max = 1 },
		"unique":          func(op *core.TaskCreate) { op.Unique.Key = "p" },
		"unique ttl":      func(op *core.TaskCreate) { op.Unique = core.Unique{Key: "p", TTL: 1} },
		"unique conflict": func(op *core.TaskCreate) { op.Unique = core.Unique{Key: "p", Reject: true} },
		"unique space":    func(op *core.TaskCreate) { op.Unique = core.Unique{Key: "p", Request: true} },
		"content type":    func(op *core.TaskCreate) { op.ContentType = "x" },
		"headers":         func(op *core.TaskCreate) { op.Headers = []core.Header{{Name: "p"}} },
		"header value":    func(op *core.TaskCreate) { op.Headers = []core.Header{{Name: "p", Value: "v"}} },
		"payload":         func(op *core.TaskCreate) { op.Payload = []byte("q") },
		"batch":           func(op *core.TaskCreate) { op.Batch = idOf("z") },
		"after":           func(op *core.TaskCreate) { op.After = []core.After{{Task: idOf("z")}} },
		"after, terminal": func(op *core.TaskCreate) { op.After = []core.After{{Task: idOf("z"), Terminal: true}} },
		"on dep failure": func(op *core.TaskCreate) {
			op.After, op.OnDepFailure = []core.After{{Task: idOf("z")}}, core.DepCancel
		},
		"key":        func(op *core.TaskCreate) { op.Key = "k" },
		"limiters":   func(op *core.TaskCreate) { op.Limiters = []string{"k"} },
		"no payload": func(op *core.TaskCreate) { op.Payload = nil },
	} {
		content := of(change)
		if other, ok := seen[content]; ok {
			t.Errorf("a change of %s cannot be told from a change of %s", name, other)
		}
		seen[content] = name
	}
	if of(func(op *core.TaskCreate) { op.ID = idOf("b"); op.TaskKind = "mail"; op.ContentType = jsonType }) != of(func(*core.TaskCreate) {}) {
		t.Error("another id, or saying a default, is other content")
	}
}
