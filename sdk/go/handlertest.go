package millrace

import (
	"context"
	"encoding/json"
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
	Delay time.Duration
	// Effects are the changes that would have been committed with the completion, in order, each as commands of millrace work write
	// them: {"op":"kv_put","keyspace":"words","key":"p","value":"3"}. Bytes that are not UTF-8 are in key_base64, value_base64 and
	// payload_base64. Checks are the conditions: {"keyspace":"words","key":"p","compare":"exists"}. Empty unless Settle is complete.
	Effects, Checks []json.RawMessage
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
	got := t.outcome(t.settle(result, contentType, err))
	out = TestRun[R]{Err: got.Err, Settle: got.Settle, Fatal: got.Fatal, Delay: got.Delay, Effects: got.Effects, Checks: got.Checks}
	if got.Settle == "complete" {
		out.Err = decode(j.codecOr(JSON), got.Result, contentType, &out.Result)
	}
	return out
}

// outcome is what an attempt came to that settle has ended. err is what settle returned.
func (t *Task) outcome(err error) TestRun[[]byte] {
	out := TestRun[[]byte]{Err: err, Settle: t.at.Op()}
	switch x := t.at.Item().Outcome.(type) {
	case *millracev1.SettleItem_Complete:
		out.Result = x.Complete.Result
		if t.fx != nil {
			out.Effects, out.Checks = effectLines(t.fx.ops), checkLines(t.fx.conds)
		}
	case *millracev1.SettleItem_Fail:
		out.Fatal, out.Delay = x.Fail.Fatal, x.Fail.RetryAfter.AsDuration()
	case *millracev1.SettleItem_Snooze:
		out.Delay = x.Snooze.Delay.AsDuration()
	}
	return out
}
