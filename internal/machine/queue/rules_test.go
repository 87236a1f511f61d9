package queue

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

func TestBackoffGrowsAndSaturates(t *testing.T) {
	huge := core.Millis(math.MaxInt64 / 2)
	for _, c := range []struct {
		what string
		p    retry
		n    uint32
		want core.Millis
	}{
		{"fixed", retry{Backoff: core.BackoffFixed, Base: 5, Max: 100}, 9, 5},
		{"fixed beyond max", retry{Backoff: core.BackoffFixed, Base: 500, Max: 100}, 1, 100},
		{"linear", retry{Backoff: core.BackoffLinear, Base: 5, Max: 100}, 3, 15},
		{"linear beyond max", retry{Backoff: core.BackoffLinear, Base: 5, Max: 100}, 21, 100},
		{"linear overflow", retry{Backoff: core.BackoffLinear, Base: huge, Max: 100}, 1000, 100},
		{"exponential first", retry{Backoff: core.BackoffExponential, Base: 5, FactorPercent: 200, Max: 100}, 1, 5},
		{"exponential third", retry{Backoff: core.BackoffExponential, Base: 5, FactorPercent: 200, Max: 100}, 3, 20},
		{"exponential 1.5", retry{Backoff: core.BackoffExponential, Base: 100, FactorPercent: 150, Max: 1000}, 3, 225},
		{"exponential beyond max", retry{Backoff: core.BackoffExponential, Base: 5, FactorPercent: 200, Max: 100}, 4_000_000_000, 100},
		{"exponential overflow", retry{Backoff: core.BackoffExponential, Base: huge, FactorPercent: 10_000, Max: huge + 1}, 1000, huge + 1},
		{"factor 1", retry{Backoff: core.BackoffExponential, Base: 5, FactorPercent: 100, Max: 100}, 4_000_000_000, 5},
		{"growth lost in rounding", retry{Backoff: core.BackoffExponential, Base: 5, FactorPercent: 110, Max: 100}, 4_000_000_000, 5},
		{"no base", retry{Backoff: core.BackoffExponential, FactorPercent: 200, Max: 100}, 4_000_000_000, 0},
	} {
		if got := c.p.delay(c.n); got != c.want {
			t.Errorf("%s: the wait is %d, want %d", c.what, got, c.want)
		}
	}
}

func TestJitterStaysInBounds(t *testing.T) {
	l := newLine(1, "q")
	for _, c := range []struct {
		shape    core.Backoff
		from, to core.Millis
	}{
		{core.BackoffFullJitter, 0, 1000},
		{core.BackoffEqualJitter, 500, 1000},
	} {
		l.config.Retry = core.Retry{Backoff: c.shape, Base: 1000}
		least, most := core.Millis(math.MaxInt64), core.Millis(0)
		for i := range 2_000 {
			r := &run{id: numbered(i), queue: l, rec: record{attempt: uint32(i % 3)}}
			d := r.backoff(1)
			least, most = min(least, d), max(most, d)
			if again := r.backoff(1); again != d {
				t.Fatalf("the wait is %d, then %d", d, again)
			}
		}
		if least < c.from || most > c.to || least > c.from+10 || most < c.to-10 {
			t.Errorf("shape %d draws from %d to %d, want %d to %d", c.shape, least, most, c.from, c.to)
		}
	}
}

func TestDefaultsAreFullJitterUpToFifteenMinutes(t *testing.T) {
	r := &run{id: idOf("t"), queue: newLine(1, "q")}
	want := retry{Backoff: core.BackoffFullJitter, Base: 5_000, FactorPercent: 200, Max: 900_000}
	if got := r.retry(); got != want {
		t.Errorf("the policy is %+v, want %+v", got, want)
	}
	r.queue.config.Retry = core.Retry{Backoff: core.BackoffLinear, Max: 7}
	r.settings.retry = core.Retry{Base: 3}
	want = retry{Backoff: core.BackoffLinear, Base: 3, FactorPercent: 200, Max: 7}
	if got := r.retry(); got != want {
		t.Errorf("the policy is %+v, want the task's, then the queue's, then the default: %+v", got, want)
	}
}

func TestSortKeysFollowPriorityAndAge(t *testing.T) {
	const minute = 60_000
	if a, b := sortKey(epoch, 9, minute), sortKey(epoch, 0, minute); a >= b {
		t.Error("priority 9 does not go before 0")
	}
	if a, b := sortKey(epoch, 0, minute), sortKey(epoch+9*minute, 9, minute); a != b {
		t.Error("nine minutes do not make up for nine priorities")
	}
	if a, b := sortKey(epoch, 0, strictAging), sortKey(epoch+1<<40, 1, strictAging); a <= b {
		t.Error("age makes up for priority although order is strict")
	}
	if a, b := sortKey(epoch, 5, strictAging), sortKey(epoch+1, 5, strictAging); a >= b {
		t.Error("of one priority the older does not go first")
	}
	if got := sortKey(5, 9, core.Millis(math.MaxInt64)); got != 0 {
		t.Errorf("the most ahead of all is %d", got)
	}
}

func TestErrorsAreCutAtARune(t *testing.T) {
	got := cutError(core.TaskError{Code: strings.Repeat("é", 40), Message: strings.Repeat("語", 5000), Stack: strings.Repeat("x", 20_000)})
	if len(got.Code) != 64 || len(got.Message) != 4095 || len(got.Stack) != 16<<10 || !utf8.ValidString(got.Code+got.Message) {
		t.Errorf("cut to %d, %d and %d bytes", len(got.Code), len(got.Message), len(got.Stack))
	}
}

// TestCursorsOfScheduledTasksGoThroughBothIndexes: also those that an older program made, which went through one.
func TestCursorsOfScheduledTasksGoThroughBothIndexes(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Shift = 1500
	for i := range 6 {
		op := &core.TaskCreate{ID: numbered(i), Queue: "a", Delay: core.Millis(1000 * (i + 1))}
		if i%2 == 1 {
			op.Delay, op.RunAt = 0, w.c.Stamp.Add(op.Delay+w.c.Shift)
		}
		w.do(op)
	}
	read := func(cursor []byte, limit int) (got []core.TaskID, next []byte) {
		t.Helper()
		page, err := List(w.tx, testPartition, core.ListQuery{Queue: "a", State: core.Scheduled, Limit: limit, Cursor: cursor}, w.c.Shift)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		return got, page.Next
	}
	for limit := 1; limit <= 7; limit++ {
		var got []core.TaskID
		for cursor, more := []byte(nil), true; more; more = cursor != nil {
			var page []core.TaskID
			page, cursor = read(cursor, limit)
			got = append(got, page...)
		}
		if want := []core.TaskID{numbered(0), numbered(1), numbered(2), numbered(3), numbered(4), numbered(5)}; !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, want)
		}
	}
	q := core.ListQuery{Queue: "a", State: core.Scheduled}
	old := appendCursor(q, w.m.names["a"].number, keys.AppendTaskTimer(nil, testPartition, w.c.Stamp.Add(3000), keys.TimerScheduled, numbered(2)))
	if got, _ := read(old, 9); !slices.Equal(got, []core.TaskID{numbered(1), numbered(3), numbered(4), numbered(5)}) {
		t.Errorf("after a cursor of an older program: %v", got)
	}
	_, next := read(nil, 3)
	for i := range next {
		q := core.ListQuery{Queue: "a", State: core.Scheduled, Limit: 9, Cursor: next[:i]}
		if _, err := List(w.tx, testPartition, q, 0); i > 0 && !errors.Is(err, badCursor) {
			t.Errorf("a cursor cut to %d bytes of %d answers %v", i, len(next), err)
		}
	}
	for _, c := range [][]byte{append(slices.Clone(next), 0), append([]byte{9}, next[1:]...), append(slices.Clone(next[:6]), 1, byte(keys.RecordTaskPayload), 0), append(slices.Clone(next[:6]), 0, 1, 0xff)} {
		q := core.ListQuery{Queue: "a", State: core.Scheduled, Limit: 9, Cursor: c}
		if _, err := List(w.tx, testPartition, q, 0); !errors.Is(err, badCursor) {
			t.Errorf("cursor %x answers %v", c, err)
		}
	}
}

func TestCursorsOfAnotherListAreRefused(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 3 {
		w.do(&core.TaskCreate{ID: numbered(i), Queue: "a"})
		w.do(&core.TaskCreate{ID: numbered(10 + i), Queue: "b"})
	}
	q := core.ListQuery{Queue: "a", State: core.Ready, Limit: 1}
	page, err := List(w.tx, testPartition, q, 0)
	next := page.Next
	if err != nil || next == nil {
		t.Fatal(next, err)
	}
	other := testPartition
	other.Tenant++
	for _, c := range []struct {
		what string
		q    core.ListQuery
	}{
		{"another queue", core.ListQuery{Queue: "b", State: core.Ready, Limit: 1, Cursor: next}},
		{"another state", core.ListQuery{Queue: "a", State: core.Scheduled, Limit: 1, Cursor: next}},
		{"cut", core.ListQuery{Queue: "a", State: core.Ready, Limit: 1, Cursor: next[:5]}},
		{"of another form", core.ListQuery{Queue: "a", State: core.Ready, Limit: 1, Cursor: append([]byte{9}, next[1:]...)}},
		{"pointing elsewhere", core.ListQuery{Queue: "a", State: core.Ready, Limit: 1, Cursor: append(append([]byte{}, next[:6]...), 0xff)}},
		{"pointing at payloads", core.ListQuery{Queue: "a", State: core.Ready, Limit: 1, Cursor: append(append([]byte{}, next[:6]...), byte(keys.RecordTaskPayload))}},
	} {
		_, err := List(w.tx, testPartition, c.q, 0)
		if _, ok := errors.AsType[core.Invalid](err); !ok {
			t.Errorf("a cursor %s answers %v", c.what, err)
		}
	}
	if page, err := List(w.tx, other, q, 0); err != nil || len(page.Tasks) != 0 {
		t.Errorf("another tenant lists %v, %v", page.Tasks, err)
	}
}

// TestForeignTasksAreUnknown asks one tenant for another's task: every answer is that of an id without a task.
func TestForeignTasksAreUnknown(t *testing.T) {
	w := newWorld(t, Options{})
	id := idOf("t")
	w.do(&core.TaskCreate{ID: id, Queue: "mail"})
	token := w.do(claimOp(1, "mail")).res.Assigned[0].Token
	other := testPartition
	other.Tenant++
	foreign := New(other, Options{})
	if err := foreign.Open(w.tx); err != nil {
		t.Fatal(err)
	}
	for _, op := range []core.Op{
		&core.TaskComplete{Task: id, Token: token}, &core.TaskFail{Task: id, Token: token}, &core.TaskSnooze{Task: id, Token: token},
		&core.TaskRelease{Task: id, Token: token}, &core.TaskDelete{Task: id}, &core.TaskRunNow{Task: id},
	} {
		_, fact, err := foreign.Apply(w.tx, &w.c, op)
		if want := (core.NotFound{Kind: "task", ID: id.String()}); fact != core.Fact(want) || err != nil {
			t.Errorf("%T of a foreign task answers %v, %v", op, fact, err)
		}
	}
	if foreign.Live(id, token) == nil {
		t.Error("a foreign token is live")
	}
	if _, ok, err := Task(w.tx, other, id); ok || err != nil {
		t.Error("a foreign task is read", err)
	}
}

func TestOpOfAnotherMachineIsCorruption(t *testing.T) {
	w := newWorld(t, Options{})
	_, fact, err := w.m.Apply(w.tx, &w.c, &core.KVPut{})
	if _, ok := errors.AsType[*errs.Corruption](err); !ok || fact != nil {
		t.Errorf("a put answers %v, %v", fact, err)
	}
}

// TestDamageStopsTheMachine takes rows away one at a time: whatever an op or an audit meets then is corruption, and
// never a refusal or a panic.
func TestDamageStopsTheMachine(t *testing.T) {
	build := func() *world {
		w := newWorld(t, Options{})
		w.do(&core.TaskCreate{ID: idOf("ready"), Queue: "mail", Unique: core.Unique{Key: "k"}})
		w.do(&core.TaskCreate{ID: idOf("later"), Queue: "mail", Delay: 5000})
		w.do(&core.TaskCreate{ID: idOf("done"), Queue: "other"})
		w.do(&core.TaskCreate{ID: idOf("run"), Queue: "other"})
		w.do(&core.TaskCreate{ID: idOf("gone"), Queue: "third"})
		for range 3 {
			for _, a := range w.do(&core.Grant{N: 3, Worker: strings.Repeat("w", 40), Queues: []core.GrantQueue{{Name: "other"}, {Name: "third"}}}).res.Assigned {
				if a.Task == idOf("run") {
					w.do(&core.TaskRelease{Task: a.Task, Token: a.Token})
					w.do(claimOp(1, "other"))
				} else {
					w.do(&core.TaskComplete{Task: a.Task, Token: a.Token, Result: []byte("r")})
				}
			}
		}
		w.do(&core.TaskDelete{Task: idOf("gone")})
		return w
	}
	all := rows(build())
	for i, key := range all {
		w := build()
		w.loose = true
		w.tx.Delete(key)
		row, _ := keys.DecodeQueue(key)
		findings, err := Audit(w.tx, testPartition)
		if len(findings) == 0 && err == nil {
			t.Errorf("row %d (%+v) is missing and the audit is clean", i, row)
		}
		w.m = New(testPartition, Options{})
		if corrupt(t, w.m.Open(w.tx)) {
			continue
		}
		w.c.Stamp = w.c.Stamp.Add(30 * 24 * 3_600_000)
		for range 20 {
			_, _, err := w.m.Tick(w.tx, &w.c, 100)
			if corrupt(t, err) {
				break
			}
			if _, _, err = w.m.Apply(w.tx, &w.c, claimOp(5, "mail", "other", "third")); corrupt(t, err) {
				break
			}
		}
	}
}

func corrupt(t *testing.T, err error) bool {
	if _, ok := errors.AsType[*errs.Corruption](err); err != nil && !ok {
		t.Errorf("damage is reported as %v", err)
	}
	return err != nil
}

func rows(w *world) (out [][]byte) {
	from, to := keys.QueueRange(testPartition)
	_ = w.tx.Scan(from, to, func(key, _ []byte) bool {
		out = append(out, append([]byte{}, key...))
		return true
	})
	return out
}
