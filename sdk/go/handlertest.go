package millrace

import (
	"context"
	"fmt"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// TestRun is what one attempt of a handler came to, without a server.
type TestRun[R any] struct {
	Result R      // of an attempt that completed
	Err    error  // of the handler, or of encoding its result or effects
	Settle string // complete, fail, stop, snooze or release
	Fatal  bool   // with fail: no further attempt
	// Delay is what RetryIn or Snooze asked for.
	Delay   time.Duration
	Effects TestEffects // empty unless Settle is complete
}

// TestEffects are the changes that would have been committed with the completion, in order.
type TestEffects struct {
	Checks []string // keyspace/key of each condition
	// Puts and Adds are in the order in which they were asked for.
	Puts    []TestPut
	Deletes []string // keyspace/key
	Adds    []TestAdd
}

// TestPut is one key that would have been written.
type TestPut struct {
	// Value is as the codec encoded it.
	Keyspace string
	Key      string
	Value    []byte
}

// TestAdd is one task that would have been created.
type TestAdd struct {
	// ID is the one that the handler's handle has.
	ID      string
	Queue   string
	Kind    string
	Payload []byte
	// Delay is what the option In asked for; 0 without it.
	Delay time.Duration
}

// RunHandler runs fn once, as a worker would, on a task of job j with args, and returns what came of it: a panic is a
// failure, and arguments and result go through the job's codec. prepare, which may be nil, changes the task before. A ctx that was
// cancelled with the cause ErrCancelled is a cancel of the task.
func RunHandler[A, R any](ctx context.Context, j *JobOf[A, R], fn func(ctx context.Context, t *Task, args A) (R, error), args A, prepare func(t *Task)) TestRun[R] {
	var out TestRun[R]
	payload, contentType, err := encode(j.codecOr(JSON), args)
	if err != nil {
		out.Err, out.Settle = fmt.Errorf("encode arguments: %w", err), "fail"
		return out
	}
	t := &Task{
		ID: place.NewID(), Queue: j.settings.queue, Kind: j.settings.kind, Attempt: 1, MaxAttempts: 5, Payload: payload,
		ContentType: contentType, CreatedAt: time.Now(),
	}
	t.at.Lease = wire.Lease{ID: t.ID, Token: 1}
	if prepare != nil {
		prepare(t)
	}
	t.at.Bare(ctx)
	defer t.at.End(nil)
	result, contentType, err := invoke(j.handler(JSON, fn), t)
	t.settle(result, contentType, err)
	out.Err, out.Settle = err, t.at.Op()
	switch x := t.at.Item().Outcome.(type) {
	case *millracev1.SettleItem_Complete:
		out.Err = decode(j.codecOr(JSON), result, &out.Result)
		out.Effects = testEffects(t.fx)
	case *millracev1.SettleItem_Fail:
		if err == nil {
			out.Err = t.fx.check() // the effects were what failed
		}
		out.Fatal, out.Delay = x.Fail.Fatal, x.Fail.RetryAfter.AsDuration()
	case *millracev1.SettleItem_Snooze:
		out.Delay = x.Snooze.Delay.AsDuration()
	}
	return out
}

// testEffects lists what a Tx holds, in plain types.
func testEffects(tx *Tx) (e TestEffects) {
	if tx == nil {
		return e
	}
	for _, c := range tx.conds {
		e.Checks = append(e.Checks, c.Keyspace+"/"+string(c.Key))
	}
	for _, op := range tx.ops {
		switch x := op.Op.(type) {
		case *millracev1.Op_KvPut:
			e.Puts = append(e.Puts, TestPut{x.KvPut.Keyspace, string(x.KvPut.Key), x.KvPut.Value})
		case *millracev1.Op_KvDelete:
			e.Deletes = append(e.Deletes, x.KvDelete.Keyspace+"/"+string(x.KvDelete.Key))
		case *millracev1.Op_TaskCreate:
			s := x.TaskCreate
			e.Adds = append(e.Adds, TestAdd{s.Id, s.Queue, s.Kind, s.Payload, s.Delay.AsDuration()})
		}
	}
	return e
}
