package node

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func requestID(n int) (id core.RequestID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
	return id
}

// order is a row and the task that works on it, in one repeatable commit.
func order(n int) core.Commit {
	return core.Commit{RequestID: requestID(n), Ops: []core.Op{
		&core.KVPut{Keyspace: "orders", Key: fmt.Appendf(nil, "%d", n), Value: []byte("new")},
		&core.TaskCreate{ID: taskID(n), Queue: "q", Payload: []byte("order")},
	}}
}

func (l *long) one(c core.Commit) core.Result {
	l.t.Helper()
	p := l.propose(c)
	if p.Err != nil {
		l.t.Fatalf("proposal: %v", p.Err)
	}
	return p.Results[0]
}

func TestATransactionalEnqueueRepeatedAfterMinutesIsAppliedOnce(t *testing.T) {
	l := openLong(t, longOptions{layer: 256 << 10})
	defer func() { l.close() }()
	first := l.one(order(0))
	if first.Refusal != nil || first.Replayed {
		t.Fatalf("the first time: %+v", first)
	}
	rev := first.Ops[0].Rev
	others := shorter(20_000)
	next := 1
	pass := func(minutes int) { // under load of other orders
		for range minutes * 6 {
			l.pass(10 * time.Second)
			l.batches(others/54, 50, func(i int) core.Commit { return order(next + i) }, l.applied)
			next += others / 54
		}
	}
	again := func() {
		t.Helper()
		r := l.one(order(0))
		if r.Refusal != nil || !r.Replayed || r.Ops[0].Rev != rev || r.Ops[1].Task != taskID(0) || r.Index == 0 {
			t.Fatalf("repeated: %+v", r)
		}
		if got, _, err := l.node.Key(t.Context(), l.ns, "orders", []byte("0"), core.ReadOptions{}); err != nil || got.Rev != rev {
			t.Fatalf("the row is at revision %d, was written at %d; %v", got.Rev, rev, err)
		}
	}
	pass(5)
	again()
	l.restart()
	pass(4)
	again()
	other := order(0)
	other.Ops = other.Ops[:1]
	if _, ok := l.one(other).Refusal.Fact.(core.AlreadyExists); !ok {
		t.Error("a request id was taken for other content")
	}
	if st := l.stats("q"); st.Created != uint64(next) {
		t.Errorf("%d tasks were created for %d orders", st.Created, next)
	}
	l.pass(2 * time.Minute) // after ten minutes no client repeats it any more
	r := l.one(order(0))
	if r.Refusal != nil || r.Replayed || r.Ops[0].Rev <= rev || !r.Ops[1].Replayed {
		t.Errorf("after the request id is forgotten: %+v", r)
	}
	l.pass(11 * time.Minute)
	keys := l.keyCount()
	l.must(&core.KVPut{Keyspace: "orders", Key: []byte("0"), Value: []byte("old")})
	if got := l.keyCount(); got != keys {
		t.Fatalf("%d keys, then %d", keys, got)
	}
	l.one(core.Commit{RequestID: requestID(next), Ops: []core.Op{
		&core.KVPut{Keyspace: "orders", Key: []byte("0"), Value: []byte("older")},
	}})
	if got := l.keyCount(); got != keys+2 {
		t.Errorf("a request id takes %d keys, want 2", got-keys)
	}
	l.pass(11 * time.Minute)
	if got := l.keyCount(); got != keys {
		t.Errorf("%d keys are left of request ids that are forgotten", got-keys)
	}
	l.audit()
}

// TestNoRequestIDIsForgottenEarly fills the partition's request ids up, which takes a million commits.
func TestNoRequestIDIsForgottenEarly(t *testing.T) {
	largeCount(t)
	const limit = 1_000_000
	l := openLong(t, longOptions{})
	defer l.close()
	put := func(n int) core.Commit {
		return core.Commit{RequestID: requestID(n), Ops: []core.Op{
			&core.KVPut{Keyspace: "k", Key: []byte("x"), Value: []byte("y")},
		}}
	}
	first := l.one(put(0))
	l.batches(limit-1, 500, func(i int) core.Commit { return put(1 + i) }, l.applied)
	refused := l.one(put(limit))
	if refused.Refusal == nil {
		t.Fatalf("one more than %d request ids: %+v", limit, refused)
	}
	if f, ok := refused.Refusal.Fact.(core.Exhausted); !ok || f.Limit != "request_ids" || f.Max != limit {
		t.Errorf("refused with %+v", refused.Refusal.Fact)
	}
	if r := l.one(put(0)); !r.Replayed || r.Ops[0].Rev != first.Ops[0].Rev {
		t.Errorf("the oldest request repeated: %+v", r)
	}
	l.pass(11 * time.Minute)
	if r := l.one(put(limit)); r.Refusal != nil {
		t.Errorf("after the others are forgotten: %v", r.Refusal.Fact)
	}
}

// TestWithoutRetentionAnIDOutlivesItsTask repeats what a client may repeat after its task is gone, until it may no more.
func TestWithoutRetentionAnIDOutlivesItsTask(t *testing.T) {
	l := openLong(t, longOptions{layer: 64 << 10})
	defer func() { l.close() }()
	l.configure("q", core.QueueConfig{RetainCompleted: -1, RetainDead: -1})
	create := func(i int) *core.TaskCreate {
		return &core.TaskCreate{ID: taskID(i), Queue: "q", Payload: fmt.Appendf(nil, "%d", i), Headers: []core.Header{{Name: "h", Value: "v"}}}
	}
	run := func(from, n int) []core.Assigned {
		l.createAll(n, func(i int) *core.TaskCreate { return create(from + i) })
		tasks := l.claimUpTo("q", n)
		l.batches(n, 100, func(i int) core.Commit { return core.Commit{Ops: []core.Op{ending(tasks[i], i)}} }, l.applied)
		return tasks
	}
	const warm, total = 30, 3000
	run(0, warm)
	l.pass(16 * time.Minute)
	baseline := l.keyCount()

	tasks := run(warm, total)
	for _, wait := range []time.Duration{0, 13*time.Minute + 50*time.Second} {
		l.pass(wait)
		l.restart()
		l.batches(total, 100, func(i int) core.Commit { return core.Commit{Ops: []core.Op{create(warm + i)}} }, func(i int, r core.Result) {
			if r.Refusal != nil || !r.Ops[0].Replayed || r.Ops[0].State != endState(i) {
				t.Errorf("create %d repeated %v after the end: %+v", i, wait, r)
			}
		})
		l.batches(total, 100, func(i int) core.Commit { return core.Commit{Ops: []core.Op{ending(tasks[i], i)}} }, func(i int, r core.Result) {
			if r.Refusal != nil || !r.Ops[0].Replayed {
				t.Errorf("settle %d repeated %v after the end: %+v", i, wait, r)
			}
		})
		other := create(warm)
		other.Payload = []byte("other")
		if _, ok := l.one(core.Commit{Ops: []core.Op{other}}).Refusal.Fact.(core.AlreadyExists); !ok {
			t.Error("an id was taken for other content")
		}
		if got := l.claim("q", 1, 0); len(got) != 0 {
			t.Fatalf("a repeated create made a task: %+v", got)
		}
	}
	l.pass(2 * time.Minute)
	if got := l.keyCount(); got != baseline {
		t.Errorf("%d keys are left of tasks that are gone", got-baseline)
	}
	if st := l.stats("q"); st.Created != warm+total || st.Purged != warm+total || st.Bytes != 0 {
		t.Errorf("at the end: %+v", st)
	}
	l.audit()
}

// ending settles the i-th task so that it ends: every third one dies.
func ending(a core.Assigned, i int) core.Op {
	if endState(i) == core.Dead {
		return &core.TaskFail{Task: a.Task, Token: a.Token, Fatal: true, Error: core.TaskError{Code: "x"}}
	}
	return &core.TaskComplete{Task: a.Task, Token: a.Token, Result: []byte("done")}
}

func endState(i int) core.State {
	if i%3 == 0 {
		return core.Dead
	}
	return core.Completed
}
