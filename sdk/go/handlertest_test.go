package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRunHandlerShowsResultAndEffects(t *testing.T) {
	count := Job[thumbArgs, int]("count")
	got := RunHandler(t.Context(), count, func(_ context.Context, t *Task, a thumbArgs) (int, error) {
		t.Effects().KV("words").Check("open", Exists())
		t.Effects().KV("words").Put(a.URL, "6")
		t.Effects().KV("words").Delete("old")
		thumb.AddTx(t.Effects(), a, In(time.Minute))
		return 6 * t.Attempt, nil
	}, thumbArgs{"u"}, func(t *Task) { t.Attempt = 2 })
	if got.Err != nil || got.Settle != "complete" || got.Result != 12 {
		t.Errorf("got %+v, want 12, complete", got)
	}
	if len(got.Checks) != 1 || string(got.Checks[0]) != `{"keyspace":"words","key":"open","compare":"exists"}` {
		t.Errorf("got checks %s", got.Checks)
	}
	want := []string{
		`{"op":"kv_put","keyspace":"words","key":"u","value":"6"}`,
		`{"op":"kv_delete","keyspace":"words","key":"old"}`,
		`{"op":"task_create","queue":"img","kind":"thumb","id":"","payload":{"URL":"u"},"priority":3,"delay":"60s","max_attempts":8}`,
	}
	for i, line := range got.Effects {
		var task struct{ ID string }
		if err := json.Unmarshal(line, &task); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if text := strings.Replace(string(line), task.ID, "", 1); i >= len(want) || text != want[i] {
			t.Errorf("got effect %s", line)
		}
	}
	if len(got.Effects) != len(want) {
		t.Errorf("got %d effects, want %d", len(got.Effects), len(want))
	}
}

func TestRunHandlerShowsHowAnAttemptEnds(t *testing.T) {
	job := Job[string, string]("j")
	run := func(err error) TestRun[string] {
		return RunHandler(t.Context(), job, func(_ context.Context, t *Task, _ string) (string, error) {
			t.Effects().KV("k").Put("a", "b")
			return "", err
		}, "x", nil)
	}
	boom := errors.New("boom")
	if got := run(Fatal(boom)); got.Settle != "fail" || !got.Fatal || !errors.Is(got.Err, boom) || len(got.Effects) != 0 {
		t.Errorf("got %+v, want fatal and no effects", got)
	}
	if got := run(RetryIn(time.Second, boom)); got.Settle != "fail" || got.Delay != time.Second {
		t.Errorf("got %+v, want a failure with a wait of 1s", got)
	}
	if got := run(Snooze(time.Hour)); got.Settle != "snooze" || got.Delay != time.Hour {
		t.Errorf("got %+v, want a snooze of 1h", got)
	}
	if got := run(Release()); got.Settle != "release" {
		t.Errorf("got %+v, want a release", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCancelled)
	for _, err := range []error{boom, Snooze(time.Hour), Release(), ErrCancelled} {
		if got := RunHandler(ctx, job, func(context.Context, *Task, string) (string, error) { return "", err }, "x", nil); got.Settle != "stop" {
			t.Errorf("got %+v for %v after a cancel, want a stop", got, err)
		}
	}
	if got := RunHandler(ctx, job, func(context.Context, *Task, string) (string, error) { return "done", nil }, "x", nil); got.Settle != "complete" {
		t.Errorf("got %+v after a cancel, want the completion", got)
	}
	bad := RunHandler(t.Context(), job, func(_ context.Context, t *Task, _ string) (string, error) {
		t.Effects().KV("k").Put("a", func() {})
		return "", nil
	}, "x", nil)
	if bad.Settle != "fail" || bad.Err == nil {
		t.Errorf("got %+v, want a failure of the effects", bad)
	}
	panics := RunHandler(t.Context(), job, func(context.Context, *Task, string) (string, error) { panic("oh") }, "x", nil)
	large := RunHandler(t.Context(), job, func(context.Context, *Task, string) (string, error) { return strings.Repeat("x", 5<<20), nil }, "x", nil)
	if large.Settle != "fail" || !errors.Is(large.Err, ErrTooLarge) {
		t.Errorf("got %s, %v, want a failure of the result", large.Settle, large.Err)
	}
	if panics.Settle != "fail" || !strings.Contains(panics.Err.Error(), "oh") {
		t.Errorf("got %+v, want a failure by panic", panics)
	}
}

func TestTaskIDsAreOrderedAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		id := NewID()
		if len(id) != 26 || strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" || id[0] > '7' {
			t.Fatalf("got id %q, want 26 characters of base32 below 2^128", id)
		}
		if seen[id] {
			t.Fatalf("id %s came twice", id)
		}
		seen[id] = true
	}
	if a := NewID(); a[:8] > NewID()[:8] {
		t.Error("an id sorts before an earlier one")
	}
}

func TestCodecsPassBytesAndTextAsTheyAre(t *testing.T) {
	b, ct, err := encode(JSON, []byte{0xff})
	if err != nil || string(b) != "\xff" || ct != typeBytes {
		t.Errorf("bytes: got %q as %s, %v", b, ct, err)
	}
	var s string
	if b, ct, err := encode(JSON, "plain"); err != nil || string(b) != "plain" || ct != typeText || decode(JSON, b, ct, &s) != nil || s != "plain" {
		t.Errorf("text: got %q as %s, %v", b, ct, err)
	}
	var v struct{ N int64 }
	if err := decode(JSON, nil, "", &v); err != nil {
		t.Errorf("no bytes: %v, want the zero value", err)
	}
	if err := decode(JSON, []byte("{"), "", &v); err == nil {
		t.Error("half an object was decoded")
	}
	payload := []byte("mutable")
	if b, _, _ := encode(JSON, payload); &b[0] == &payload[0] {
		t.Error("the caller's bytes are not copied")
	}
}

func TestErrorsMatchTheirSentinelsAndSayTheirOutcome(t *testing.T) {
	e := &Error{Code: CodeLeaseLost, Op: OpNone, Outcome: Refused}
	if !errors.Is(e, ErrLeaseLost) || errors.Is(e, ErrNotFound) {
		t.Error("a lost lease matches the wrong sentinels")
	}
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, OK}, {e, Refused}, {&Error{Outcome: Unknown}, Unknown}, {context.DeadlineExceeded, Unknown}, {errors.New("encode"), Refused},
	} {
		if got := OutcomeOf(tc.err); got != tc.want {
			t.Errorf("%v: got %v, want %v", tc.err, got, tc.want)
		}
	}
}

func TestOptionsFallBackToTheEnvironment(t *testing.T) {
	t.Setenv("MILLRACE_URL", "example.test:7081")
	t.Setenv("MILLRACE_TOKEN", "secret")
	t.Setenv("MILLRACE_NAMESPACE", "shop")
	o, err := newOptions(nil)
	if err != nil || o.address != "example.test:7081" || o.token != "secret" || o.namespace != "shop" || o.tls == nil {
		t.Errorf("got %+v and error %v, want the environment's values and TLS beyond loopback", o, err)
	}
	o, err = newOptions([]Option{Address("127.0.0.1:0"), Token("t")})
	if err != nil || o.address != "127.0.0.1:0" || o.token != "t" || o.tls != nil {
		t.Errorf("got %+v and error %v, want the options' values and no TLS on loopback", o, err)
	}
	if _, err := newOptions([]Option{Address("nowhere")}); err == nil {
		t.Error("an address without a port was taken")
	}
}
