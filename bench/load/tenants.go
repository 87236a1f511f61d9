package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// timingCalls is how many calls of each kind are timed, if the window allows it.
const timingCalls = 10_000

// TenantTiming asks, as one tenant, for tasks that do not exist and for tasks of another tenant, in
// turn. Both are answered with "not found", and the time of the answer must not tell which it was.
func TenantTiming(ctx context.Context, rig *bench.Rig) error {
	if len(rig.Others) == 0 {
		return &bench.SkipError{Lacks: "a token of a second tenant"}
	}
	mine, err := rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer mine.Close() //nolint:errcheck // every call was answered, or an error tells
	theirs, err := rig.Dial(ctx, 0, millrace.Token(rig.Others[0]))
	if err != nil {
		return err
	}
	defer theirs.Close() //nolint:errcheck // every call was answered, or an error tells
	args := make([][]byte, fillBatch)
	for i := range args {
		args[i] = rig.Payload
	}
	handles, err := millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue).AddMany(ctx, theirs, args)
	if err != nil {
		return fmt.Errorf("make tasks of the other tenant: %w", err)
	}
	t := &timing{rig: rig, client: mine}
	for _, h := range handles {
		t.others = append(t.others, h.ID)
		t.missing = append(t.missing, neverGiven(h.ID))
	}
	return t.run(ctx)
}

// base32 has the digits of a task id.
const base32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// neverGiven is an id of the same time and partition with another random part, which no server has given.
func neverGiven(id string) string {
	const random = 8 // of its characters
	return id[:len(id)-random] + strings.Map(func(r rune) rune {
		return rune(base32[(strings.IndexRune(base32, r)+1)%len(base32)])
	}, id[len(id)-random:])
}

// timing is the calls of a run, on one goroutine. took has the times of both kinds, within the
// window: of missing tasks, then of others' tasks.
type timing struct {
	rig *bench.Rig
	// client is that of the tenant that asks.
	client *millrace.Client
	// missing are ids that were never given, others those of the other tenant's tasks.
	missing, others []string
	// took has the times of missing tasks first, then those of others' tasks.
	took [2][]time.Duration
}

// run asks for both kinds in turn until each was timed often enough, or the window ends. The
// headline is the difference of the medians as a share of the smaller one.
func (t *timing) run(ctx context.Context) error {
	ops := [2]*bench.Op{t.rig.Op("missing"), t.rig.Op("others")}
	// ask times the i-th call of a kind: 0 is missing, 1 others.
	ask := func(i, kind int) error {
		id := t.missing[i%len(t.missing)]
		if kind == 1 {
			id = t.others[i%len(t.others)]
		}
		began := time.Now()
		_, err := t.client.Task(ctx, id)
		took := time.Since(began)
		var e *millrace.Error
		if !errors.As(err, &e) || e.Code != "NOT_FOUND" {
			return fmt.Errorf("task %s of another tenant, or of none, was answered with %v", id, err) //nolint:errorlint // nil is told too
		}
		ops[kind].Record(kind, began, 1, nil)
		if t.rig.Measuring() {
			t.took[kind] = append(t.took[kind], took)
		}
		return nil
	}
	var failed error
	err := t.rig.Work(ctx, func(over func() bool) {
		for i := 0; failed == nil && !over() && ctx.Err() == nil && len(t.took[1]) < timingCalls; i++ {
			// Which of the two comes first alternates, so that neither always follows the other's work.
			failed = errors.Join(ask(i, i%2), ask(i, 1-i%2))
		}
		for failed == nil && !over() && ctx.Err() == nil {
			_ = bench.Pause(ctx, time.Millisecond) // the window is the row's, though all was asked
		}
	})
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	if len(t.took[0]) == 0 || len(t.took[1]) == 0 {
		return errors.New("nothing was answered within the window")
	}
	// The medians are compared, because a few slow calls would decide a mean.
	missing, others := median(t.took[0]), median(t.took[1])
	t.rig.Metric("missing_p50_us", float64(missing.Nanoseconds())/1e3, "µs")
	t.rig.Metric("others_p50_us", float64(others.Nanoseconds())/1e3, "µs")
	t.rig.Metric("calls_of_each", float64(min(len(t.took[0]), len(t.took[1]))), "calls")
	t.rig.Metric("median_difference", math.Abs(float64(others-missing))/float64(min(missing, others)), "×")
	return nil
}

// median sorts all and returns the middle value, of which there is at least one.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
