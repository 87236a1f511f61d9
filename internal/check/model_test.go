package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

var testPart = core.Partition{Tenant: 1, Namespace: 1}

func taskID(n byte) core.TaskID { return core.NewTaskID(1, 0, [9]byte{n}) }

// pair of one commit and what was answered, at a stamp in seconds.
type said struct {
	at     int64
	commit core.Commit
	result core.Result
}

func ops(list ...core.Op) core.Commit { return core.Commit{Partition: testPart, Ops: list} }

func fenced(id core.TaskID, token core.Token, list ...core.Op) core.Commit {
	c := ops(list...)
	c.Fence = &core.Fence{Task: id, Token: token}
	return c
}

func did(list ...core.OpResult) core.Result { return core.Result{Ops: list} }

func refused(op int, f core.Fact) core.Result {
	return core.Result{Refusal: &core.Refusal{Op: op, Fact: f}}
}

func created(id core.TaskID) core.OpResult {
	return core.OpResult{Kind: core.OpTaskCreate, Task: id, State: core.Ready}
}

func settled(kind core.OpKind, s core.State) core.OpResult {
	return core.OpResult{Kind: kind, State: s}
}

func stored(rev uint64) core.OpResult { return core.OpResult{Kind: core.OpKVPut, Rev: rev} }

func makeTask(n byte) *core.TaskCreate {
	return &core.TaskCreate{ID: taskID(n), Queue: "q", Payload: []byte{n}, Lease: 5000}
}

func give(n uint32) *core.Grant {
	return &core.Grant{Queues: []core.GrantQueue{{Name: "q"}}, N: n}
}

// given is a first delivery at a stamp in seconds.
func given(n byte, token core.Token, at int64) core.Assigned {
	return core.Assigned{
		Task: taskID(n), Token: token, Attempt: 1, Queue: "q", Kind: "q", Payload: []byte{n},
		ContentType: "application/json", LeaseUntil: core.ShardTime(at*1000 + 5000), CreatedAt: 1000,
	}
}

func grants(list ...core.Assigned) core.Result {
	return did(core.OpResult{Kind: core.OpGrant, Assigned: list})
}

func replay(list []said) error { return replayIn(0, list) }

// replayIn replays entries of a format.
func replayIn(format uint16, list []said) error {
	m := NewModel()
	for i := range list {
		e := &core.Entry{Format: format, Stamp: core.ShardTime(list[i].at * 1000), Commits: []core.Commit{list[i].commit}}
		if err := m.Judge(uint64(i+1), e, []core.Result{list[i].result}); err != nil {
			return err
		}
	}
	return nil
}

// running is a history after which task 1 runs under token 7, from 2 s to 7 s, and task 2 is ready.
func running(more ...said) []said {
	return append([]said{
		{1, ops(makeTask(1)), did(created(taskID(1)))},
		{1, ops(makeTask(2)), did(created(taskID(2)))},
		{2, ops(give(1)), grants(given(1, 7, 2))},
	}, more...)
}

func complete(token core.Token) *core.TaskComplete {
	return &core.TaskComplete{Task: taskID(1), Token: token}
}

func put(key string) *core.KVPut {
	return &core.KVPut{Keyspace: "k", Key: []byte(key), Value: []byte("v")}
}

func tick(at int64, more bool) said {
	c := core.Commit{Ops: []core.Op{&core.Tick{Max: 100}}}
	return said{at, c, did(core.OpResult{Kind: core.OpTick, More: more})}
}

var (
	lost1 = core.LeaseLost{Task: taskID(1), Given: 7}
	done  = settled(core.OpTaskComplete, core.Completed)
)

func absent(key string) core.RevMismatch {
	return core.RevMismatch{Missing: true, Keyspace: "k", Key: []byte(key)}
}

func TestModelAllowsWhatIsDocumented(t *testing.T) {
	failing := &core.TaskFail{Task: taskID(1), Token: 7}
	second := given(1, 8, 9)
	second.Attempt, second.Crashes = 2, 1
	onRefused := fenced(taskID(1), 7, complete(7), &core.KVPut{Keyspace: "k", Key: []byte("a"), HasRev: true, IfRev: 4})
	onRefused.FailOnRefusal = true
	instead := refused(1, absent("a"))
	instead.FailedInstead = true
	for name, list := range map[string][]said{
		"complete with an effect": running(said{3, ops(complete(7), put("a")), did(done, stored(4))}),
		"complete twice": running(said{3, ops(complete(7)), did(done)},
			said{4, ops(complete(7), put("a")), core.Result{Replayed: true}}),
		"late settle before the expiry entry": running(said{99, ops(complete(7)), did(done)}),
		"expired, given again": running(tick(9, false),
			said{9, fenced(taskID(1), 7, put("a")), refused(core.FenceOp, lost1)},
			said{9, ops(give(2)), grants(given(2, 8, 9), func() core.Assigned { a := second; a.Token = 9; return a }())}),
		"a bounded tick may not have reached it": running(tick(9, true), said{9, ops(complete(7)), did(done)}),
		"failed, waits":                          running(said{3, ops(failing), did(settled(core.OpTaskFail, core.Scheduled))}),
		"effects refused, lease kept": running(
			said{3, ops(complete(7), &core.KVCheck{Keyspace: "k", Key: []byte("a"), Compare: core.CompareExists}), refused(1, absent("a"))},
			said{3, ops(complete(7)), did(done)}),
		"effects refused, attempt failed": running(said{3, onRefused, instead},
			said{3, ops(complete(7)), refused(0, lost1)}),
		"grant one less for a settle that kept its lease": running(
			said{3, ops(&core.Grant{Queues: []core.GrantQueue{{Name: "q"}}, N: 1, Settles: []core.TaskHold{{Task: taskID(1), Token: 7}}}), grants()}),
		"renewed": running(said{
			4, ops(&core.TaskRenew{Items: []core.TaskHold{{Task: taskID(1), Token: 7}, {Task: taskID(1), Token: 6}}}),
			did(core.OpResult{Kind: core.OpTaskRenew, Renewed: []core.Renewed{{Until: 9000}, {Lost: true}}}),
		}),
		"created again": running(said{5, ops(makeTask(1)), did(core.OpResult{
			Kind: core.OpTaskCreate, Task: taskID(1), Replayed: true, PayloadMatches: true, State: core.Running,
		})}),
	} {
		if err := replay(list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModelCatchesWrongAnswers(t *testing.T) {
	other := makeTask(1)
	other.Payload = []byte("other")
	wrongPayload := given(2, 8, 3)
	wrongPayload.Payload = []byte("x")
	for name, c := range map[string]struct {
		list []said
		says string
	}{
		"stale token completes": {running(tick(9, false), said{9, ops(complete(7)), did(done)}), "LeaseLost"},
		"effect of a stale token": {
			running(tick(9, false), said{9, fenced(taskID(1), 7, put("a")), did(stored(4))}), "not live",
		},
		"live token refused":           {running(said{3, ops(complete(7)), refused(0, lost1)}), "allowed"},
		"lease ends early":             {running(tick(6, false), said{6, ops(complete(7)), refused(0, lost1)}), "allowed"},
		"completed twice, other way":   {running(said{3, ops(complete(7)), did(done)}, said{4, ops(&core.TaskFail{Task: taskID(1), Token: 7}), core.Result{Replayed: true}}), "never did"},
		"replay of nothing":            {running(said{3, ops(complete(7)), core.Result{Replayed: true}}), "never did"},
		"token falls":                  {running(said{3, ops(give(1)), grants(given(2, 7, 3))}), "not above"},
		"task given while it runs":     {running(said{3, ops(give(1)), grants(given(1, 8, 3))}), "stands as"},
		"more tasks than slots":        {running(said{3, ops(give(0)), grants(given(2, 8, 3))}), "slots"},
		"ready task withheld":          {running(said{3, ops(give(1)), grants()}), "is ready"},
		"another payload":              {running(said{3, ops(give(1)), grants(wrongPayload)}), "payload"},
		"unknown task":                 {running(said{3, ops(give(1)), grants(given(9, 8, 3))}), "unknown"},
		"same id, other content":       {running(said{3, ops(other), did(core.OpResult{Kind: core.OpTaskCreate, Task: taskID(1), Replayed: true})}), "other content"},
		"created twice":                {running(said{3, ops(makeTask(1)), did(created(taskID(1)))}), "same content"},
		"wrong condition passes":       {[]said{{1, ops(&core.KVPut{Keyspace: "k", Key: []byte("a"), HasRev: true, IfRev: 3}), did(stored(4))}}, "expected"},
		"true condition refused":       {[]said{{1, ops(&core.KVPut{Keyspace: "k", Key: []byte("a"), IfAbsent: true}), refused(0, absent("a"))}}, "nothing stands against"},
		"revision does not rise":       {[]said{{1, ops(put("a")), did(stored(4))}, {1, ops(put("b")), did(stored(4))}}, "revision"},
		"refused op left a key":        {[]said{{1, ops(put("a"), &core.KVCheck{Keyspace: "k", Key: []byte("b"), Compare: core.CompareExists}), refused(1, absent("b"))}, {2, ops(&core.KVDelete{Keyspace: "k", Key: []byte("a")}), did(core.OpResult{Existed: true})}}, "existed"},
		"blames a later op":            {[]said{{1, ops(&core.KVCheck{Keyspace: "k", Key: []byte("b"), Compare: core.CompareExists}, &core.KVCheck{Keyspace: "k", Key: []byte("c"), Compare: core.CompareExists}), refused(1, absent("c"))}}, "instead of ops[0]"},
		"shard time falls":             {[]said{tick(5, false), tick(4, false)}, "falls"},
		"live task removed":            {running(said{3, ops(&core.TaskDelete{Task: taskID(2)}), did(core.OpResult{})}), "allowed"},
		"renewal shortens":             {running(said{3, ops(&core.TaskRenew{Items: []core.TaskHold{{Task: taskID(1), Token: 7}}, Extend: 10}), did(core.OpResult{Renewed: []core.Renewed{{Until: 3010}}})}), "renewals"},
		"queue version without change": {[]said{{1, ops(&core.QueueSet{Queue: "q", IfVersion: -1}), did(core.OpResult{Version: 1})}, {2, ops(&core.QueueSet{Queue: "q", IfVersion: -1}), did(core.OpResult{Version: 2})}}, "version"},
	} {
		err := replay(c.list)
		if _, ok := errors.AsType[*Mismatch](err); !ok || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: err = %v, want a mismatch that says %q", name, err, c.says)
		}
	}
}

func TestModelWantsTheOldestOfEqualTasksFirst(t *testing.T) {
	list := running()[:2:2]
	if err := replay(append(list, said{2, ops(give(1)), grants(given(2, 7, 2))})); err == nil || !strings.Contains(err.Error(), "older") {
		t.Errorf("err = %v", err)
	}
}

func TestModelAnswersTheNumberOfAFencedCommitAgainWhenTheLeaseIsGone(t *testing.T) {
	step := func(seq uint64) core.Commit {
		c := fenced(taskID(1), 7, put("a"))
		c.Session, c.Seq = core.SessionID{2}, seq
		return c
	}
	again := did(stored(4))
	again.Replayed = true
	gone := func(more ...said) []said {
		return running(append([]said{{3, step(1), did(stored(4))}, {4, ops(complete(7)), did(done)}}, more...)...)
	}
	lost := refused(core.FenceOp, lost1)
	for name, c := range map[string]struct {
		list []said
		bad  bool
	}{
		"answered again":               {gone(said{5, step(1), again}), false},
		"judged again":                 {gone(said{5, step(1), lost}), true},
		"applied again":                {gone(said{5, step(1), did(stored(5))}), true},
		"the next is refused":          {gone(said{5, step(2), lost}), false},
		"the next is applied":          {gone(said{5, step(2), did(stored(5))}), true},
		"a refusal is answered again":  {gone(said{5, step(2), lost}, said{6, step(2), lost}), false},
		"a refusal is judged as first": {gone(said{5, step(2), lost}, said{6, step(2), did(stored(5))}), true},
	} {
		if err := replay(c.list); (err != nil) != c.bad {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

func TestModelWantsWhatIsOutOfBoundsRefusedByItsField(t *testing.T) {
	long := strings.Repeat("n", 129)
	set := func(c core.QueueConfig) core.Op { return &core.QueueSet{Queue: "q", Config: c, IfVersion: -1} }
	task := func(change func(*core.TaskCreate)) core.Op {
		op := makeTask(1)
		change(op)
		return op
	}
	for field, op := range map[string]core.Op{
		"config.max_attempts":        set(core.QueueConfig{MaxAttempts: 1001}),
		"config.max_crashes":         set(core.QueueConfig{MaxCrashes: -1}),
		"config.max_deliveries":      set(core.QueueConfig{MaxDeliveries: -2}),
		"config.lease":               set(core.QueueConfig{Lease: 999}),
		"config.retry.factor":        set(core.QueueConfig{Retry: core.Retry{FactorPercent: 99}}),
		"config.max_payload":         set(core.QueueConfig{MaxPayload: 1<<20 + 1}),
		"config.aging":               set(core.QueueConfig{Aging: -2}),
		"config.retention.dead":      set(core.QueueConfig{RetainDead: -2}),
		"config.retain_bytes":        &core.NamespaceSet{Config: core.NamespaceConfig{RetainBytes: -1}, IfVersion: -1},
		"queue":                      task(func(op *core.TaskCreate) { op.Queue = long }),
		"kind":                       task(func(op *core.TaskCreate) { op.TaskKind = long }),
		"priority":                   task(func(op *core.TaskCreate) { op.Priority = 10 }),
		"key":                        &core.KVDelete{Keyspace: "k"},
		"keyspace":                   &core.KVCheck{Key: []byte("a"), Compare: core.CompareAbsent},
		"config.retry.backoff":       set(core.QueueConfig{Retry: core.Retry{Backoff: core.BackoffEqualJitter + 1}}),
		"config.max_run":             set(core.QueueConfig{MaxRun: -1}),
		"config.retry.base":          set(core.QueueConfig{Retry: core.Retry{Base: -1}}),
		"config.retry.max":           set(core.QueueConfig{Retry: core.Retry{Max: -1}}),
		"config.retention.completed": set(core.QueueConfig{RetainCompleted: -2}),
	} {
		applied := did(core.OpResult{Kind: op.Kind(), Version: 1, Task: taskID(1), State: core.Ready})
		if err := replay([]said{{1, ops(op), applied}}); err == nil || !strings.Contains(err.Error(), "out of bounds") {
			t.Errorf("%s: applied, and the model says %v", field, err)
		}
		if err := replay([]said{{1, ops(op), refused(0, core.Invalid{Field: field})}}); err != nil {
			t.Errorf("%s: refused by its name, and the model says %v", field, err)
		}
		if err := replay([]said{{1, ops(op), refused(0, core.Invalid{Field: "other"})}}); err == nil {
			t.Errorf("%s: refused by another name, and the model allows it", field)
		}
	}
	good := core.QueueConfig{MaxAttempts: 1000, MaxDeliveries: -1, Lease: 1000, Aging: -1, RetainDead: -1, MaxPayload: 1 << 20}
	if err := replay([]said{{1, ops(set(good)), refused(0, core.Invalid{Field: "config.max_attempts"})}}); err == nil {
		t.Error("a configuration within its bounds was refused, and the model allows it")
	}
	if err := replay([]said{{1, ops(set(good)), did(core.OpResult{Kind: core.OpQueueSet, Version: 1})}}); err != nil {
		t.Errorf("a configuration at its bounds: %v", err)
	}
}

// A session that was quiet for long may be forgotten, and then its first number is a new commit. Its answer tells nothing of
// the lease then, as it may be the answer that was kept.
func TestModelTakesNothingFromAnAnswerThatMayBeAnOldOne(t *testing.T) {
	c := fenced(taskID(1), 7, &core.KVPut{Keyspace: "k", Key: []byte("a"), HasRev: true, IfRev: 3})
	c.Session, c.Seq = core.SessionID{2}, 1
	no := refused(0, absent("a"))
	held, lost := fenced(taskID(1), 7, put("b")), refused(core.FenceOp, lost1)
	quiet := func(more ...said) []said {
		return running(append([]said{{3, c, no}, tick(700, true), {701, c, no}}, more...)...)
	}
	for name, list := range map[string][]said{
		"the lease was lost": quiet(said{702, held, lost}),
		"it was not":         quiet(said{702, held, did(stored(4))}),
	} {
		if err := replay(list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := replay(quiet(said{702, held, lost}, said{703, held, did(stored(4))})); err == nil {
		t.Error("a lease that was lost is live again")
	}
}

func TestModelHoldsRequestIdsAndSessionsToTheirFirstAnswer(t *testing.T) {
	request := ops(put("a"))
	request.RequestID = core.RequestID{1}
	again := did(stored(4))
	again.Replayed, again.Index = true, 1
	session := func(seq uint64) core.Commit {
		c := ops(put(fmt.Sprint("s", seq)))
		c.Session, c.Seq = core.SessionID{2}, seq
		return c
	}
	for name, c := range map[string]struct {
		list []said
		bad  bool
	}{
		"request answered again":   {[]said{{1, request, did(stored(4))}, {500, request, again}}, false},
		"request applied again":    {[]said{{1, request, did(stored(4))}, {500, request, did(stored(5))}}, true},
		"request forgotten late":   {[]said{{1, request, did(stored(4))}, {700, request, did(stored(5))}}, false},
		"session in order":         {[]said{{1, session(1), did(stored(4))}, {2, session(2), did(stored(5))}}, false},
		"session applied again":    {[]said{{1, session(1), did(stored(4))}, {2, session(1), did(stored(5))}}, true},
		"session answered again":   {[]said{{1, session(1), did(stored(4))}, {2, session(1), func() core.Result { r := did(stored(4)); r.Replayed = true; return r }()}}, false},
		"gap applied":              {[]said{{1, session(1), did(stored(4))}, {2, session(3), did(stored(5))}}, true},
		"gap refused":              {[]said{{1, session(1), did(stored(4))}, {2, session(3), refused(0, core.Invalid{Field: "commit_seq"})}}, false},
		"unknown session expired":  {[]said{{1, session(5), refused(0, core.SessionExpired{})}}, false},
		"known session refused":    {[]said{{1, session(1), did(stored(4))}, {2, session(2), refused(0, core.SessionExpired{})}}, true},
		"requests exhausted early": {[]said{{1, request, refused(0, core.Exhausted{Limit: "request_ids", Max: 1000})}}, true},
	} {
		if err := replay(c.list); (err != nil) != c.bad {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

func TestIndexReplayFindsAnAcknowledgedCallThatTheLogLacks(t *testing.T) {
	log := []Record{{
		Index: 1, Entry: &core.Entry{Stamp: 1000, Commits: []core.Commit{ops(makeTask(1))}},
		Results: []core.Result{did(created(taskID(1)))},
	}}
	call := Call{Op: OpCreate, ID: taskID(1).String(), Index: 1, Outcome: OK}
	if r, _ := IndexReplay(log, []Call{call}); !r.OK() {
		t.Errorf("good: %s", r)
	}
	call.ID = taskID(2).String()
	if r, _ := IndexReplay(log, []Call{call}); !r.Broke("not_in_log") {
		t.Errorf("not in the log: %s", r)
	}
	log[0].Results = []core.Result{refused(0, core.AlreadyExists{Kind: "task"})}
	if r, _ := IndexReplay(log, nil); !r.Broke("result") {
		t.Errorf("wrong result: %s", r)
	}
}

func TestAuditFindsStateThatTheLogDoesNotExplain(t *testing.T) {
	m := NewModel()
	for i, s := range running() {
		e := &core.Entry{Stamp: core.ShardTime(s.at * 1000), Commits: []core.Commit{s.commit}}
		if err := m.Judge(uint64(i+1), e, []core.Result{s.result}); err != nil {
			t.Fatal(err)
		}
	}
	good := core.Task{ID: taskID(1), Queue: "q", State: core.Running, Payload: []byte{1}, ContentType: "application/json", Attempt: 1, LeaseUntil: 7000}
	if err := m.AuditTask(testPart, taskID(1), good, true); err != nil {
		t.Error(err)
	}
	bad := good
	bad.State = core.Ready
	if m.AuditTask(testPart, taskID(1), bad, true) == nil || m.AuditTask(testPart, taskID(1), good, false) == nil ||
		m.AuditTask(testPart, taskID(9), good, true) == nil || m.AuditKey(testPart, "k", []byte("a"), core.KeyRead{Rev: 1}) == nil {
		t.Error("an audit passed what the log does not explain")
	}
	stats := core.QueueStats{Queue: "q", Created: 2}
	stats.States[core.Running], stats.States[core.Ready] = 1, 1
	if err := m.AuditStats(testPart, stats); err != nil {
		t.Error(err)
	}
	stats.States[core.Ready] = 2
	if m.AuditStats(testPart, stats) == nil {
		t.Error("a drifted counter passed")
	}
}

func TestModelKnowsThatNumbersOfRemovedRulesetsDoNotComeAgain(t *testing.T) {
	publish := func(rules string) core.Commit { return ops(&core.RulesetPut{Name: "r", Rules: []byte(rules)}) }
	version := func(n uint64) core.Result { return did(core.OpResult{Kind: core.OpRulesetPut, Version: n}) }
	remove, gone := ops(&core.RulesetDelete{Name: "r"}), did(core.OpResult{Existed: true})
	first := []said{{1, publish("a"), version(1)}, {1, publish("b"), version(2)}, {1, remove, gone}}
	for name, c := range map[string]struct {
		format uint16
		list   []said
		says   string // empty: it is allowed
	}{
		"published again":                      {core.FormatQueues, append(first[:3:3], said{1, remove, did(core.OpResult{})}, said{1, publish("b"), version(3)}), ""},
		"a number comes again":                 {core.FormatQueues, append(first[:3:3], said{1, publish("c"), version(1)}), "expected 3"},
		"rules of a removed one are a replay":  {core.FormatQueues, append(first[:3:3], said{1, publish("b"), did(core.OpResult{Version: 2, Replayed: true})}), "expected 3"},
		"removed twice":                        {core.FormatQueues, append(first[:3:3], said{1, remove, gone}), "existed=false"},
		"removed by an entry of the first one": {core.FormatFirst, first, "by an entry of format 1"},
		"refused in an entry of the first one": {core.FormatFirst, append(first[:2:2], said{1, remove, refused(0, core.Invalid{Field: "name", Reason: "not_supported"})}), ""},
		"refused without a ground":             {core.FormatQueues, append(first[:2:2], said{1, remove, refused(0, core.Invalid{Field: "name", Reason: "not_supported"})}), "which nothing explains"},
	} {
		err := replayIn(c.format, c.list)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: err = %v, want a mismatch that says %q", name, err, c.says)
		}
	}
}

func TestModelKnowsThatVersionsOfRemovedTenantConfigurationsDoNotComeAgain(t *testing.T) {
	set := func(rate, ifVersion int64) core.Commit {
		op := &core.TenantSet{Tenant: "acme", Config: core.TenantConfig{KeyRate: rate}, IfVersion: ifVersion}
		return core.Commit{Ops: []core.Op{op}}
	}
	version := func(n uint64) core.Result { return did(core.OpResult{Version: n}) }
	first := []said{{1, set(5, 0), version(1)}, {1, set(6, 1), version(2)}, {1, set(0, 2), version(0)}}
	for name, c := range map[string]struct {
		then said
		says string // empty: it is allowed
	}{
		"set again":                    {said{1, set(6, 0), version(3)}, ""},
		"a version comes again":        {said{1, set(6, 0), version(1)}, "expected 3"},
		"set as of a removed version":  {said{1, set(6, 2), version(3)}, "version is 0"},
		"without bounds once more":     {said{1, set(0, 0), version(0)}, ""},
		"without bounds, with version": {said{1, set(0, 0), version(3)}, "expected 0"},
	} {
		err := replayIn(core.FormatQueues, append(first[:3:3], c.then))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: err = %v, want a mismatch that says %q", name, err, c.says)
		}
	}
}
