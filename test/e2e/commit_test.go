package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestOneFalseOpAnywhereRefusesTheWholeCommit puts each op's false form at each place of a commit of five.
func TestOneFalseOpAnywhereRefusesTheWholeCommit(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c, r := l.client(0), l.raw(0)
	rev, err := c.KV("k").Put(ctx, "there", "v")
	noErr(t, err)
	h, err := millrace.Job[string, string]("q").Add(ctx, c, "x")
	noErr(t, err)
	check := func(m *millracev1.KVCheck) *millracev1.Op {
		m.Keyspace = "k"
		return &millracev1.Op{Op: &millracev1.Op_KvCheck{KvCheck: m}}
	}
	there, absent := []byte("there"), []byte("absent")
	stale := &millracev1.Hold{Id: h.ID, Token: 999}
	for name, c5 := range map[string]struct {
		op   *millracev1.Op
		code string
	}{
		"put if rev":       {&millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: &millracev1.KVPut{Keyspace: "k", Key: there, IfRev: proto.Uint64(rev + 1)}}}, "PRECONDITION_FAILED"},
		"put if absent":    {&millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: &millracev1.KVPut{Keyspace: "k", Key: there, IfAbsent: true}}}, "PRECONDITION_FAILED"},
		"delete if rev":    {&millracev1.Op{Op: &millracev1.Op_KvDelete{KvDelete: &millracev1.KVDelete{Keyspace: "k", Key: there, IfRev: proto.Uint64(rev + 1)}}}, "PRECONDITION_FAILED"},
		"exists":           {check(&millracev1.KVCheck{Key: absent, Compare: millracev1.KVCheck_EXISTS}), "PRECONDITION_FAILED"},
		"absent":           {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_ABSENT}), "PRECONDITION_FAILED"},
		"revision":         {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_EQUAL, Operand: &millracev1.KVCheck_Rev{Rev: rev + 1}}), "PRECONDITION_FAILED"},
		"lesser revision":  {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_LESS, Operand: &millracev1.KVCheck_Rev{Rev: rev}}), "PRECONDITION_FAILED"},
		"greater revision": {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_GREATER, Operand: &millracev1.KVCheck_Rev{Rev: rev}}), "PRECONDITION_FAILED"},
		"value":            {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_EQUAL, Operand: &millracev1.KVCheck_Value{Value: []byte("w")}}), "PRECONDITION_FAILED"},
		"other value":      {check(&millracev1.KVCheck{Key: there, Compare: millracev1.KVCheck_NOT_EQUAL, Operand: &millracev1.KVCheck_Value{Value: []byte("v")}}), "PRECONDITION_FAILED"},
		"complete":         {&millracev1.Op{Op: &millracev1.Op_TaskComplete{TaskComplete: &millracev1.TaskComplete{Task: stale, Complete: &millracev1.Complete{}}}}, "LEASE_LOST"},
		"fail":             {&millracev1.Op{Op: &millracev1.Op_TaskFail{TaskFail: &millracev1.TaskFail{Task: stale, Fail: &millracev1.Fail{}}}}, "LEASE_LOST"},
		"create":           {&millracev1.Op{Op: &millracev1.Op_TaskCreate{TaskCreate: &millracev1.TaskSpec{Id: h.ID, Queue: "q", Payload: []byte("other")}}}, "ALREADY_EXISTS"},
	} {
		for place := range 5 {
			ops := make([]*millracev1.Op, 5)
			for i := range ops {
				ops[i] = put("k", fmt.Sprint("filler", i), name)
				if i == 3 {
					ops[i] = &millracev1.Op{Op: &millracev1.Op_TaskCreate{TaskCreate: &millracev1.TaskSpec{Queue: "never"}}}
				}
			}
			ops[place] = c5.op
			a := r.call(t, "CommitService/Commit", commit(ops...))
			e := a.err()
			if e.GetCode() != c5.code || e.Op == nil || int(e.GetOp()) != place {
				t.Errorf("%s at %d: %v", name, place, e)
			}
			if c5.code == "PRECONDITION_FAILED" && strings.Contains(string(c5.op.String()), "there") && e.GetDetails()["rev"] != fmt.Sprint(rev) {
				t.Errorf("%s at %d: the error does not tell revision %d: %v", name, place, rev, e.GetDetails())
			}
		}
	}
	for i := range 5 {
		if _, err := c.KV("k").Get(ctx, fmt.Sprint("filler", i)); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("filler%d of a refused commit: %v", i, err)
		}
	}
	if _, err := c.Queue("never").Stats(ctx); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("the queue of refused commits: %v", err)
	}
	l.audit()
}

func TestLimitsMetExactlyPass(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c, r := l.client(0), l.raw(0)
	key, value := strings.Repeat("k", 16<<10), strings.Repeat("v", 3<<19)
	_, err := c.KV("k").Put(ctx, key, value)
	noErr(t, err)
	v, err := c.KV("k").Get(ctx, key)
	noErr(t, err)
	if v.String() != value {
		t.Errorf("the value has %d bytes", len(v.Bytes))
	}
	if a := r.call(t, "CommitService/Commit", commit(many(1024)...)); a.status != 0 {
		t.Errorf("1,024 ops: %d %v", a.status, a.err())
	}
	if a := r.call(t, "TaskService/BatchCreate", batch(512)); a.status != 0 {
		t.Errorf("a batch of 512: %d %v", a.status, a.err())
	}
	out := must(t, r, "QueueService/SetNamespace", &millracev1.SetNamespaceRequest{
		Config: &millracev1.NamespaceConfig{AutoCreate: proto.Bool(false)},
	}, &millracev1.SetNamespaceResponse{})
	if out.Version == 0 {
		t.Error("no version")
	}
	if a := r.call(t, "CommitService/Commit", commit(put("unheard", "k", "v"))); a.code() != "NOT_FOUND" {
		t.Errorf("a keyspace that is not to be made: %v", a.err())
	}
	if a := r.call(t, "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Queue = "unheard" })); a.code() != "NOT_FOUND" {
		t.Errorf("a queue that is not to be made: %v", a.err())
	}
	if _, err := c.KV("k").Put(ctx, "known", "v"); err != nil {
		t.Errorf("a keyspace that is there: %v", err)
	}
	l.audit()
}

// TestATaskAndARowAreMadeTogetherOrNotAtAll is the transactional enqueue.
func TestATaskAndARowAreMadeTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	job := millrace.Job[string, string]("mail")
	made := 0
	for i := range 200 {
		err := c.Commit(ctx, func(tx *millrace.Tx) {
			if i%3 == 0 {
				tx.KV("orders").Check("nobody", millrace.Exists())
			}
			tx.KV("orders").Put(fmt.Sprint(i), "new")
			job.AddTx(tx, fmt.Sprint(i))
		})
		if refused := errors.Is(err, millrace.ErrPrecondition); refused != (i%3 == 0) || err != nil && !refused {
			t.Fatalf("commit %d: %v", i, err)
		}
		if err == nil {
			made++
		}
	}
	seen := 0
	for {
		got, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"mail"}, Max: 128})
		noErr(t, err)
		if len(got) == 0 {
			break
		}
		for _, task := range got {
			if _, err := c.KV("orders").Get(ctx, string(task.Payload)); err != nil {
				t.Errorf("task %s has no row: %v", task.Payload, err)
			}
			seen++
		}
	}
	if seen != made {
		t.Errorf("%d tasks of %d commits", seen, made)
	}
	for i := 0; i < 200; i += 3 {
		if _, err := c.KV("orders").Get(ctx, fmt.Sprint(i)); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("the row of refused commit %d: %v", i, err)
		}
	}
	l.audit()
}

func TestAnUnfencedCommitRepeatedUnderItsRequestIDIsAppliedOnce(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	request := &millracev1.CommitRequest{RequestId: []byte("0123456789abcdef"), Ops: []*millracev1.Op{
		put("k", "a", "1"), {Op: &millracev1.Op_TaskCreate{TaskCreate: &millracev1.TaskSpec{Id: newID(), Queue: "once"}}},
	}}
	var first *millracev1.CommitResponse
	for i := range 6 {
		if i == 3 {
			l.stop()
			l.start()
		}
		out := must(t, l.raw(0), "CommitService/Commit", request, &millracev1.CommitResponse{})
		if out.Replayed != (i > 0) {
			t.Errorf("try %d: replayed %v", i, out.Replayed)
		}
		if first == nil {
			first = out
		} else if out.Results[1].Task != first.Results[1].Task || out.Results[0].Rev != first.Results[0].Rev {
			t.Errorf("try %d answers %v after %v", i, out.Results, first.Results)
		}
	}
	if s, err := l.client(0).Queue("once").Stats(t.Context()); err != nil || s.Created != 1 {
		t.Errorf("counters %+v, err %v", s, err)
	}
	l.audit()
}

// TestACounterCountsEveryAcknowledgedIncrement has 64 clients add 1 to one key by its revision.
func TestACounterCountsEveryAcknowledgedIncrement(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	var acknowledged atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		c := l.client(0)
		all.Go(func() {
			for range 10 {
				v, err := c.KV("k").Get(ctx, "n")
				n, rev := 0, uint64(0)
				if err == nil {
					n, _ = strconv.Atoi(v.String())
					rev = v.Rev
				}
				_, err = c.KV("k").Put(ctx, "n", strconv.Itoa(n+1), millrace.IfRev(rev))
				switch {
				case err == nil:
					acknowledged.Add(1)
				case !errors.Is(err, millrace.ErrPrecondition):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	v, err := l.client(0).KV("k").Get(ctx, "n")
	noErr(t, err)
	if v.String() != fmt.Sprint(acknowledged.Load()) {
		t.Errorf("the counter is %s after %d acknowledged increments", v, acknowledged.Load())
	}
}

// TestMoneyMovedByEffectsIsNeverSeenTwiceOrNowhere moves amounts between accounts as effects of tasks, each of which
// leaves a follow-up, while readers look at all accounts at once.
func TestMoneyMovedByEffectsIsNeverSeenTwiceOrNowhere(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	const accounts, each, moves = 8, 100, 400
	name := func(i int) string { return fmt.Sprint("account", i) }
	for i := range accounts {
		_, err := c.KV("bank").Put(ctx, name(i), strconv.Itoa(each))
		noErr(t, err)
	}
	move := millrace.Job[[2]int, string]("move").Attempts(1000)
	receipt := millrace.Job[string, string]("receipt")
	w := l.client(0).Worker(millrace.Slots(16))
	move.Handle(w, func(hctx context.Context, task *millrace.Task, pair [2]int) (string, error) {
		var values [2]int
		var revs [2]uint64
		for i, a := range pair {
			v, err := c.KV("bank").Get(hctx, name(a))
			if err != nil {
				return "", err
			}
			values[i], _ = strconv.Atoi(v.String())
			revs[i] = v.Rev
		}
		fx := task.Effects()
		fx.KV("bank").Put(name(pair[0]), strconv.Itoa(values[0]-1), millrace.IfRev(revs[0]))
		fx.KV("bank").Put(name(pair[1]), strconv.Itoa(values[1]+1), millrace.IfRev(revs[1]))
		receipt.AddTx(fx, task.ID)
		task.OnRefused(func(context.Context, *millrace.Error) error {
			return millrace.RetryIn(0, errors.New("another move came first"))
		})
		return "", nil
	})
	stop := working(t, w)
	var pairs [][2]int
	for range moves {
		a := rand.IntN(accounts)
		pairs = append(pairs, [2]int{a, (a + 1 + rand.IntN(accounts-1)) % accounts})
	}
	_, err := move.AddMany(ctx, c, pairs)
	noErr(t, err)

	looks := 0
	eventually(t, "the end of all moves", func() bool {
		if sum, ok := sumAtOnce(t, ctx, c, accounts, name); ok {
			if looks++; sum != accounts*each {
				t.Errorf("the accounts hold %d", sum)
			}
		}
		s, err := c.Queue("move").Stats(ctx)
		noErr(t, err)
		return s.Completed == moves
	})
	stop()
	if sum, ok := sumAtOnce(t, ctx, c, accounts, name); !ok || sum != accounts*each {
		t.Errorf("at the end the accounts hold %d (%v)", sum, ok)
	}
	s, err := c.Queue("receipt").Stats(ctx)
	noErr(t, err)
	if s.Created != moves {
		t.Errorf("%d receipts of %d moves", s.Created, moves)
	}
	t.Logf("%d looks in between", looks)
	l.audit()
}

// sumAtOnce reads all accounts and then has a commit say that none has changed meanwhile; false when one has.
func sumAtOnce(t *testing.T, ctx context.Context, c *millrace.Client, accounts int, name func(i int) string) (sum int, ok bool) {
	t.Helper()
	revs := make([]uint64, accounts)
	for i := range accounts {
		v, err := c.KV("bank").Get(ctx, name(i))
		noErr(t, err)
		n, err := strconv.Atoi(v.String())
		noErr(t, err)
		sum, revs[i] = sum+n, v.Rev
	}
	err := c.Commit(ctx, func(tx *millrace.Tx) {
		for i, rev := range revs {
			tx.KV("bank").Check(name(i), millrace.RevEqual(rev))
		}
	})
	if err != nil && !errors.Is(err, millrace.ErrPrecondition) {
		t.Fatal(err)
	}
	return sum, err == nil
}

// TestRefusedEffectsLeaveNothingAndTheLeaseStays has a handler see what it met, and try again.
func TestRefusedEffectsLeaveNothingAndTheLeaseStays(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	_, err := c.KV("k").Put(ctx, "taken", "before")
	noErr(t, err)
	job := millrace.Job[string, string]("fx")
	var met atomic.Value
	w := c.Worker()
	job.Handle(w, func(_ context.Context, task *millrace.Task, _ string) (string, error) {
		task.Effects().KV("k").Put("first", "1")
		task.Effects().KV("k").Put("taken", "mine", millrace.IfAbsent())
		task.OnRefused(func(_ context.Context, refused *millrace.Error) error {
			_, err := c.KV("k").Get(ctx, "first")
			met.Store(fmt.Sprint(refused.Code, " ", refused.Op, " ", refused.Details["rev"] != "", " ", errors.Is(err, millrace.ErrNotFound)))
			task.Effects().Reset()
			task.Effects().KV("k").Put("second", task.ID)
			return nil
		})
		return "done", nil
	})
	stop := working(t, w)
	h, err := job.Add(ctx, c, "x")
	noErr(t, err)
	if v, err := h.Wait(ctx); err != nil || v != "done" {
		t.Errorf("result %q, err %v", v, err)
	}
	stop()
	if got := met.Load(); got != "PRECONDITION_FAILED 1 true true" {
		t.Errorf("the handler met %v", got)
	}
	var values []string
	for _, key := range []string{"first", "second", "taken"} {
		v, _ := c.KV("k").Get(ctx, key)
		values = append(values, v.String())
	}
	if want := []string{"", h.ID, "before"}; !slices.Equal(values, want) {
		t.Errorf("keys are %q, want %q", values, want)
	}
	if info, err := h.Get(ctx); err != nil || info.Attempt != 1 || info.Failures != 0 {
		t.Errorf("the task is %+v, err %v", info, err)
	}
	l.audit()
}
