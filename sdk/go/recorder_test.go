package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// recorder makes a recorder that ends with the test.
func recorder(t *testing.T, opts ...millrace.Option) *millrace.Recorder {
	t.Helper()
	r := millrace.NewRecorder(opts...)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// shownError is an error but for the number of a revision, which is a server's own.
func shownError(err error) string {
	var many *millrace.BatchError
	if errors.As(err, &many) {
		var each []string
		for _, e := range many.Errors {
			each = append(each, shownError(e))
		}
		return "batch[" + strings.Join(each, "; ") + "]"
	}
	var ended *millrace.TaskError
	if errors.As(err, &ended) {
		return fmt.Sprintf("%s %s %s %q", ended.State, ended.Reason, ended.Code, ended.Message)
	}
	var e *millrace.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	details := maps.Clone(e.Details)
	if rev := details["rev"]; rev != "" && rev != "0" {
		details["rev"] = "some"
	}
	return fmt.Sprint(e.Code, " reason=", e.Reason, " field=", e.Field, " op=", e.Op, " ", e.Outcome, " ", details)
}

// transcript is what a client answered, in order. Ids are shown by the order in which they came.
type transcript struct {
	lines []string
	ids   map[string]string
}

func (l *transcript) add(what string, answer any, err error) {
	line := fmt.Sprintf("%s: %v, %s", what, answer, shownError(err))
	for id, name := range l.ids {
		line = strings.ReplaceAll(line, id, name)
	}
	l.lines = append(l.lines, line)
}

func (l *transcript) name(id, name string) {
	if l.ids == nil {
		l.ids = map[string]string{}
	}
	l.ids[id] = name
}

// shownTask is a task but for times, revisions and who added it.
func shownTask(i *millrace.TaskInfo) string {
	if i == nil {
		return "none"
	}
	c := *i
	scheduled := !c.RunAt.IsZero()
	c.CreatedAt, c.ReadyAt, c.RunAt, c.StartedAt, c.FinishedAt, c.At = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}, millrace.Place{}
	c.Creator, c.Worker, c.Fingerprint, c.LeaseUntil = "", "", "", time.Time{}
	if c.Cancel != nil {
		c.Cancel = &millrace.CancelAsked{Reason: c.Cancel.Reason, Force: c.Cancel.Force}
	}
	b, err := json.Marshal(c)
	return fmt.Sprint(scheduled, string(b), err)
}

// taskScript adds tasks in all ways, and reads them.
func taskScript(ctx context.Context, c *millrace.Client) *transcript {
	l := &transcript{}
	job := millrace.Job[map[string]int, int]("rec.job").Queue("rec.q").Attempts(3).Crashes(4).Priority(2).Lease(2 * time.Minute).MaxRun(time.Hour)
	plain := millrace.Job[string, string]("rec.plain")
	args := map[string]int{"n": 1}

	id := must(c.NewID(ctx))
	l.name(id, "ID")
	for _, a := range []map[string]int{args, args, {"n": 2}} {
		h, err := job.Add(ctx, c, a, millrace.ID(id), millrace.Header("a", "b"), millrace.Tag("t"))
		l.add("the same id", h != nil && h.Replayed && h.Matches, err)
	}
	i, err := c.Task(ctx, id)
	l.add("get", shownTask(i), err)

	first, err := plain.Add(ctx, c, "x", millrace.UniqueKey("u", time.Hour), millrace.In(time.Hour), millrace.Labels(map[string]string{"k": "v"}))
	l.add("unique", first.Replayed, err)
	l.name(first.ID, "UNIQUE")
	for _, text := range []string{"x", "y"} {
		h, err := plain.Add(ctx, c, text, millrace.UniqueKey("u", time.Hour), millrace.In(time.Hour), millrace.Labels(map[string]string{"k": "v"}))
		l.add("unique again", fmt.Sprint(h.ID, h.Replayed, h.Matches), err)
	}
	_, err = plain.Add(ctx, c, "x", millrace.UniqueKey("u", 0), millrace.UniqueReject())
	l.add("unique reject", nil, err)
	h, err := plain.Queue("rec.other").Add(ctx, c, "x", millrace.UniqueKey("u", 0))
	l.add("unique in another queue", h.Replayed, err)
	i, err = c.Task(ctx, first.ID)
	l.add("get delayed", shownTask(i), err)

	_, err = plain.Add(ctx, c, "x", millrace.ID("short"))
	l.add("bad id", nil, err)
	_, err = plain.Queue("a b").Add(ctx, c, "x")
	l.add("bad queue", nil, err)
	_, err = millrace.Job[string, string]("-a").Queue("rec.q").Add(ctx, c, "x")
	l.add("bad kind", nil, err)
	_, err = plain.Add(ctx, c, "x", millrace.Priority(10))
	l.add("bad priority", nil, err)
	hs, err := plain.Queue("").AddMany(ctx, c, []string{"a", "b"})
	l.add("bad many", len(hs), err)
	hs, err = plain.AddAll(ctx, c, []string{"a", "b"}, millrace.ID(id))
	l.add("all of one taken id", len(hs), err)
	other := must(c.NewID(ctx))
	hs, err = plain.AddAll(ctx, c, []string{"a", "b"}, millrace.ID(other))
	l.add("all of one id", len(hs), err)
	_, err = c.Task(ctx, other)
	l.add("none of them", nil, err)
	hs, err = plain.AddAll(ctx, c, []string{"a", "b", "c"})
	l.add("all", len(hs), err)

	var in *millrace.Handle[string]
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		in = plain.AddTx(tx, "z", millrace.UniqueKey("u", 0))
		tx.CancelTask(first.ID, millrace.CancelReason("late"))
	})
	l.add("commit", in.ID, err)
	i, err = c.Task(ctx, first.ID)
	l.add("cancelled", shownTask(i), err)
	_, err = first.Wait(ctx)
	l.add("wait for a cancelled one", nil, err)
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		tx.CancelTask(id)
		tx.CancelTask(other)
	})
	l.add("half a commit", nil, err)
	i, err = c.Task(ctx, id)
	l.add("untouched", shownTask(i), err)
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		tx.Fence(&millrace.Task{ID: id})
		tx.KV("rec").Put("a", "b")
	})
	l.add("fence", nil, err)
	err = c.Commit(ctx, func(tx *millrace.Tx) { plain.AddTx(tx, "x", millrace.Priority(10)) })
	l.add("commit of a bad task", nil, err)
	_, err = plain.Of(c, other).Wait(ctx)
	l.add("wait for none", nil, err)
	return l
}

// values reads keys.
func (l *transcript) values(ctx context.Context, c *millrace.Client, keys ...string) {
	vs, err := c.KV("rec").GetMany(ctx, keys)
	var out []string
	for i, v := range vs {
		out = append(out, fmt.Sprint(keys[i], "=", v, v.Rev > 0))
	}
	l.add("read", out, err)
}

// keyScript changes keys in all ways, and reads them.
func keyScript(ctx context.Context, c *millrace.Client) *transcript {
	l := &transcript{}
	kv := c.KV("rec")
	_, err := kv.Get(ctx, "a")
	l.add("absent", nil, err)
	rev, err := kv.Put(ctx, "a", "1", millrace.IfAbsent())
	l.add("put", rev > 0, err)
	_, err = kv.Put(ctx, "a", "2", millrace.IfAbsent())
	l.add("if absent", nil, err)
	_, err = kv.Put(ctx, "a", "2", millrace.IfRev(rev+1))
	l.add("if rev", nil, err)
	_, err = kv.Put(ctx, "b", "2", millrace.IfRev(1))
	l.add("if rev of none", nil, err)
	again, err := kv.Put(ctx, "a", "2", millrace.IfRev(rev))
	l.add("if that rev", again > rev, err)
	_, err = kv.Put(ctx, "c", "2", millrace.IfRev(0))
	l.add("if rev 0", nil, err)
	_, err = kv.Put(ctx, "", "2")
	l.add("no key", nil, err)
	_, err = c.KV("a b").Put(ctx, "a", "2")
	l.add("no keyspace", nil, err)
	l.values(ctx, c, "a", "b", "c")

	bounds := []millrace.AddNumberOption{millrace.Floor(-2), millrace.Ceiling(7)}
	for _, n := range []int64{5, 2, 1, -9, -10, math.MaxInt64} {
		sum, err := kv.Add(ctx, "n", n, bounds...)
		l.add(fmt.Sprint("add ", n), sum, err)
	}
	_, err = kv.Add(ctx, "n", math.MinInt64)
	l.add("overflow", nil, err)
	must(kv.Put(ctx, "text", "x"))
	_, err = kv.Add(ctx, "text", 1)
	l.add("not a number", nil, err)
	_, err = kv.Add(ctx, "n", 1, millrace.IfRev(0))
	l.add("add if rev", nil, err)
	l.conditions(ctx, c, rev, again)
	l.commits(ctx, c)
	existed, err := kv.Delete(ctx, "a", millrace.IfRev(1))
	l.add("delete if rev", existed, err)
	existed, err = kv.Delete(ctx, "a")
	l.add("delete", existed, err)
	return l
}

// conditions judges all conditions on a key at the revision now, which was at old before, and on one that is absent.
func (l *transcript) conditions(ctx context.Context, c *millrace.Client, old, now uint64) {
	for _, key := range []string{"a", "b"} {
		for name, cond := range map[string]millrace.Condition{
			"exists": millrace.Exists(), "absent": millrace.Absent(), "=": millrace.ValueEqual("2"), "!=": millrace.ValueNotEqual("2"),
			"<": millrace.ValueLess("3"), ">": millrace.ValueGreater("2"), "rev=": millrace.RevEqual(now), "rev!=": millrace.RevNotEqual(now),
			"rev<": millrace.RevLess(now), "rev>": millrace.RevGreater(old),
		} {
			err := c.Commit(ctx, func(tx *millrace.Tx) {
				tx.KV("rec").Check(key, cond)
				tx.KV("rec").Put("checked."+key+"."+name, "yes")
			})
			l.add("check "+key+name, nil, err)
		}
	}
	slices.Sort(l.lines[len(l.lines)-20:]) // a map has no order
}

// commits makes commits of several ops, and reads ranges.
func (l *transcript) commits(ctx context.Context, c *millrace.Client) {
	kv := c.KV("rec")
	got, err := c.CommitResult(ctx, func(tx *millrace.Tx) {
		k := tx.KV("rec")
		k.Put("d", "1", millrace.WantPrev())
		k.Put("a", "2", millrace.WantPrev())
		k.Add("e", 3)
		k.Delete("text")
		k.Delete("none")
		k.DeleteRange(millrace.Prefix("checked.a"), millrace.CountKeys())
		k.DeleteRange(millrace.Between("checked.b.!", "checked.b.>"))
	})
	if err == nil {
		l.add("commit", fmt.Sprintf("%v %q %v %v %v", got.Existed, got.Prev, got.Sums, got.Counts, got.Replayed), err)
	} else {
		l.add("commit", nil, err)
	}
	for name, build := range map[string]func(k millrace.TxKV){
		"twice":     func(k millrace.TxKV) { k.Put("d", "1"); k.Add("d", 1) },
		"condition": func(k millrace.TxKV) { k.Put("d", "1"); k.Check("", millrace.Exists()) },
		"both":      func(k millrace.TxKV) { k.Put("d", "1", millrace.IfRev(5), millrace.IfAbsent()) },
		"range":     func(k millrace.TxKV) { k.Put("z", "1"); k.DeleteRange(millrace.Prefix("z"), millrace.CountKeys()) },
	} {
		got, err := c.CommitResult(ctx, func(tx *millrace.Tx) { build(tx.KV("rec")) })
		l.add("shape "+name, got != nil && got.Counts[len(got.Counts)-1] == 1, err)
	}
	slices.Sort(l.lines[len(l.lines)-4:])
	_, err = c.KV("a b").DeleteRange(ctx, millrace.Prefix("a"))
	l.add("delete range of no keyspace", nil, err)
	_, err = kv.GetMany(ctx, []string{"a", ""})
	l.add("get no key", nil, err)
	_, err = kv.Get(ctx, "")
	l.add("get no key", nil, err)
	var ids []string
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		tx.KV("rec").Put("a", "lost")
		tx.KV("rec").Delete("c")
		tx.KV("rec").Add("n", 1)
		ids = append(ids, millrace.Job[int, int]("rec.lost").AddTx(tx, 1).ID)
		tx.KV("rec").Put("taken", "lost", millrace.IfRev(7))
	})
	l.add("half a commit", nil, err)
	_, err = c.Task(ctx, ids[0])
	l.name(ids[0], "LOST")
	l.add("its task", nil, err)
	l.values(ctx, c, "a", "c", "n")
	for e, err := range kv.Range(ctx, millrace.Between("a", "n")) {
		l.add("range", e.Key+"="+e.String(), err)
	}
	for e, err := range kv.Keys(ctx, millrace.Prefix("checked")) {
		l.add("keys", e.Key+"="+e.String(), err)
	}
	n, err := kv.DeleteRange(ctx, millrace.Prefix("checked"), millrace.CountKeys())
	l.add("delete range", n, err)
}

// handlers registers handlers of a worker that end their attempts in all ways but those that wait.
func handlers(c *millrace.Client, w *millrace.Worker) {
	retry := millrace.RetryPolicy{Backoff: millrace.Fixed, Base: time.Millisecond}
	job := func(name string) *millrace.JobOf[int, int] {
		return millrace.Job[int, int](name).Queue("rec.work").Attempts(3).Retry(retry)
	}
	next := job("next")
	next.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) {
		t.Effects().KV("rec.done").Add("next", int64(n))
		return n, nil
	})
	job("good").Handle(w, func(ctx context.Context, t *millrace.Task, n int) (int, error) {
		t.Effects().KV("rec.done").Put(t.Kind, n)
		next.AddTx(t.Effects(), n+1)
		if _, err := next.Add(ctx, c, n+2); err != nil {
			return 0, err
		}
		return 2 * n, c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(t)
			tx.KV("rec.done").Put("during", "held")
		})
	})
	var stale *millrace.Task
	job("fenced").Handle(w, func(ctx context.Context, t *millrace.Task, _ int) (int, error) {
		if t.Attempt == 1 {
			stale = t
			return 0, errors.New("once more")
		}
		err := c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(stale)
			tx.KV("rec.done").Put("stale", "written")
		})
		return 0, millrace.Fatal(errors.New(shownError(err))) // whose text has no token, which is a server's own
	})
	job("third").Handle(w, func(ctx context.Context, t *millrace.Task, n int) (int, error) {
		if t.Failures < 2 {
			t.Effects().KV("rec.done").Put(t.Kind, "lost")
			return 0, errors.Join(errors.New("not yet"), t.SaveCheckpoint(ctx, append(t.Checkpoint(), 'x')))
		}
		t.Progress(50, "half")
		t.Log("line")
		t.Effects().KV("rec.done").Put(t.Kind, t.Checkpoint())
		return t.Attempt, nil
	})
	job("never").Handle(w, func(context.Context, *millrace.Task, int) (int, error) { return 0, &net.AddrError{Err: "never"} })
	job("soon").Handle(w, func(_ context.Context, t *millrace.Task, _ int) (int, error) {
		if t.Attempt == 1 {
			return 0, millrace.RetryIn(0, errors.New("again"))
		}
		return t.Failures, nil
	})
	job("fatal").Handle(w, func(context.Context, *millrace.Task, int) (int, error) {
		return 0, millrace.Fatal(errors.New("no use"))
	})
	job("panic").Handle(w, func(context.Context, *millrace.Task, int) (int, error) { panic("oh") })
	job("refused").Handle(w, func(_ context.Context, t *millrace.Task, _ int) (int, error) {
		t.Effects().KV("rec.done").Check("missing", millrace.Exists())
		return 0, nil
	})
	job("no-key").Handle(w, func(_ context.Context, t *millrace.Task, _ int) (int, error) {
		t.Effects().KV("rec.done").Put("", "a")
		return 0, nil
	})
	job("rebuilt").Handle(w, func(_ context.Context, t *millrace.Task, _ int) (int, error) {
		t.Effects().KV("rec.done").Put("taken", "b", millrace.IfAbsent())
		t.OnRefused(func(_ context.Context, refused *millrace.Error) error {
			t.Effects().Reset()
			t.Effects().KV("rec.done").Put("refused", fmt.Sprint(refused.Code, refused.Op, refused.Details["value"]))
			return nil
		})
		return t.Attempt, nil
	})
	job("gives-up").Handle(w, func(_ context.Context, t *millrace.Task, _ int) (int, error) {
		t.Effects().KV("rec.done").Put("taken", "b", millrace.IfAbsent())
		t.OnRefused(func(_ context.Context, refused *millrace.Error) error { return millrace.Fatal(refused) })
		return 0, nil
	})
}

// workScript adds a task of each kind that handlers knows, has all of them run, and reads what became of them.
func workScript(ctx context.Context, c *millrace.Client, work func(w *millrace.Worker)) *transcript {
	l := &transcript{}
	follow := make(chan struct{}, 2) // the tasks that a handler adds
	w := c.Worker(millrace.Slots(1), millrace.Queues("rec.work", "rec.args", "rec.batch"), millrace.OnSettled(func(s millrace.Settlement) {
		if s.Task.Kind == "next" && s.Op == "complete" {
			follow <- struct{}{}
		}
	}))
	handlers(c, w)
	millrace.Job[int, int]("args").Queue("rec.args").Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
	millrace.Job[int, string]("batch").Queue("rec.batch").HandleBatch(w, 2, func(_ context.Context, ts []*millrace.Task, ns []int) ([]string, []error) {
		return make([]string, len(ts)), []error{millrace.Fatal(fmt.Errorf("%d", ns[0]))}
	})
	must(c.KV("rec.done").Put(ctx, "taken", "a"))
	var hs []*millrace.Handle[int]
	for i, kind := range []string{"good", "fenced", "third", "never", "soon", "fatal", "panic", "refused", "no-key", "rebuilt", "gives-up"} {
		h := must(millrace.Job[int, int](kind).Queue("rec.work").Attempts(3).Retry(millrace.RetryPolicy{Backoff: millrace.Fixed, Base: time.Millisecond}).Add(ctx, c, i))
		hs = append(hs, h)
	}
	hs = append(hs, must(millrace.Job[string, int]("args").Queue("rec.args").Add(ctx, c, "no number")))
	hs = append(hs, must(millrace.Job[int, int]("batch").Queue("rec.batch").Add(ctx, c, 7)))
	work(w)
	for i, h := range hs {
		l.name(h.ID, fmt.Sprint("TASK", i))
		out, err := h.Wait(ctx)
		l.add("wait", out, err)
		info, err := h.Get(ctx)
		if info.ErrorStack != "" {
			info.ErrorStack = "some"
		}
		if info.Progress != nil {
			info.Progress.At = time.Time{}
		}
		l.add("get", shownTask(info), err)
		log, err := c.Logs(ctx, h.ID, millrace.LogQuery{})
		for i := range log.Lines {
			log.Lines[i].At = time.Time{}
		}
		l.add("log", fmt.Sprintf("%+v", log), err)
	}
	for range cap(follow) {
		select {
		case <-follow:
		case <-ctx.Done():
			l.add("follow", nil, ctx.Err())
		}
	}
	for e, err := range c.KV("rec.done").Range(ctx, millrace.Prefix("")) {
		l.add("done", e.Key+"="+e.String(), err)
	}
	return l
}

func TestARecorderAnswersAsAServerDoes(t *testing.T) {
	for name, script := range map[string]func(ctx context.Context, c *millrace.Client, r *millrace.Recorder) *transcript{
		"tasks": func(ctx context.Context, c *millrace.Client, _ *millrace.Recorder) *transcript {
			return taskScript(ctx, c)
		},
		"keys": func(ctx context.Context, c *millrace.Client, _ *millrace.Recorder) *transcript {
			return keyScript(ctx, c)
		},
		"work": func(ctx context.Context, c *millrace.Client, r *millrace.Recorder) *transcript {
			stop := func() {}
			defer func() { stop() }()
			return workScript(ctx, c, func(w *millrace.Worker) {
				if r == nil {
					stop = start(w)
				} else if _, err := r.Drain(ctx, w); err != nil {
					t.Error(err)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorder(t, millrace.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
			got := script(t.Context(), r.Client(), r)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			want := script(ctx, dial(t, millrace.Namespace("recorded-"+millrace.NewID())), nil)
			if len(got.lines) != len(want.lines) {
				t.Errorf("got %d lines, want %d", len(got.lines), len(want.lines))
			}
			for i := range min(len(got.lines), len(want.lines)) {
				if got.lines[i] != want.lines[i] {
					t.Errorf("got  %s\nwant %s", got.lines[i], want.lines[i])
				}
			}
		})
	}
}

func TestDrainTellsWhatEachAttemptCameTo(t *testing.T) {
	r := recorder(t)
	c, ctx := r.Client(), t.Context()
	w := c.Worker()
	next := millrace.Job[string, string]("next")
	job := millrace.Job[string, string]("first").Attempts(2)
	snoozed := false
	job.Handle(w, func(_ context.Context, t *millrace.Task, how string) (string, error) {
		t.Effects().KV("k").Put(how, t.Attempt)
		next.AddTx(t.Effects(), "after "+how)
		switch {
		case how == "fails" || how == "mends" && t.Attempt == 1:
			return "", millrace.RetryIn(time.Minute, errors.New("no luck"))
		case how == "snoozes" && !snoozed:
			snoozed = true
			return "", millrace.Snooze(time.Hour)
		case how == "refused":
			t.Effects().KV("k").Check("none", millrace.Exists())
		}
		return how + "!", nil
	})
	next.Handle(w, func(_ context.Context, _ *millrace.Task, s string) (string, error) { return s, nil })
	hs := must(job.AddMany(ctx, c, []string{"fails", "mends", "snoozes", "refused", "works"}, millrace.In(time.Hour)))
	must(millrace.Job[int, int]("unknown").Queue("first").Add(ctx, c, 1))
	must(job.Queue("elsewhere").Add(ctx, c, "never taken"))

	show := func(runs []millrace.RecordedRun) (out []string) {
		for _, run := range runs {
			out = append(out, fmt.Sprint(run.Kind, run.Attempt, " ", run.Settle, " ", run.Delay, " ", string(run.Result), " ", len(run.Effects), " ", shownError(run.Err)))
		}
		return out
	}
	want := []string{
		"first1 fail 1m0s  0 no luck", "first2 fail 1m0s  0 no luck",
		"first1 fail 1m0s  0 no luck", "first2 complete 0s mends! 2 <nil>",
		"first1 snooze 1h0m0s  0 snoozed for 1h0m0s",
		"first1 fail 0s  0 PRECONDITION_FAILED reason= field= op=-2 refused map[rev:0]",
		"first2 fail 0s  0 PRECONDITION_FAILED reason= field= op=-2 refused map[rev:0]",
		"first1 complete 0s works! 2 <nil>",
		"next1 complete 0s after mends 0 <nil>", "next1 complete 0s after works 0 <nil>",
	}
	if got := show(must(r.Drain(ctx, w))); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{"first2 complete 0s snoozes! 2 <nil>", "next1 complete 0s after snoozes 0 <nil>"}
	if got := show(must(r.Drain(ctx, w))); !slices.Equal(got, want) {
		t.Errorf("then got %q, want %q", got, want)
	}
	if runs := must(r.Drain(ctx, w)); len(runs) > 0 {
		t.Errorf("got %+v from tasks that have ended", runs)
	}

	if got := millrace.Added(r, next); !slices.Equal(got, []string{"after mends", "after works", "after snoozes"}) {
		t.Errorf("added %q", got)
	}
	var puts []string
	for _, line := range r.Effects() {
		var e struct{ Op, Key, Value, Kind string }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		puts = append(puts, e.Op+e.Key+e.Value+e.Kind)
	}
	if want := []string{"kv_putmends2", "task_createnext", "kv_putworks1", "task_createnext", "kv_putsnoozes2", "task_createnext"}; !slices.Equal(puts, want) {
		t.Errorf("got effects %q, want %q", puts, want)
	}
	if _, err := hs[0].Wait(ctx); !strings.HasPrefix(shownError(err), "dead max_attempts") {
		t.Errorf("got %v, want a dead task", err)
	}
	if out, err := hs[2].Wait(ctx); err != nil || out != "snoozes!" {
		t.Errorf("got %q, %v, want the result", out, err)
	}
	var states []string
	for _, info := range r.Tasks() {
		states = append(states, info.State.String())
	}
	if got := strings.Join(states, " "); got != "dead completed completed dead completed ready ready completed completed completed" {
		t.Errorf("got states %s", got)
	}
}

func TestDrainRunsBatchesAndAnyKind(t *testing.T) {
	r := recorder(t, millrace.DefaultCodec(millrace.JSON))
	c, ctx := r.Client(), t.Context()
	var settled []string
	w := c.Worker(millrace.Queues("b", "other"), millrace.OnSettled(func(s millrace.Settlement) {
		settled = append(settled, s.Task.Kind+" "+s.Op)
	}))
	b := millrace.Job[int, int]("b")
	var sizes []int
	b.HandleBatch(w, 2, func(_ context.Context, tasks []*millrace.Task, args []int) ([]int, []error) {
		sizes = append(sizes, len(tasks))
		tasks[0].Effects().KV("sum").Add("of", int64(args[0]))
		return args, nil
	})
	w.HandleAny(func(_ context.Context, t *millrace.Task) ([]byte, error) { return []byte(t.Kind), nil })
	hs := must(b.AddMany(ctx, c, []int{1, 2, 4}))
	h := must(millrace.Job[int, []byte]("whatever").Queue("other").Add(ctx, c, 1))
	if runs := must(r.Drain(ctx, w)); len(runs) != 4 || !slices.Equal(sizes, []int{2, 1}) || len(settled) != 4 || settled[0] != "b complete" {
		t.Errorf("got %+v of batches %v, settled %v", runs, sizes, settled)
	}
	if n := must(hs[2].Wait(ctx)); n != 4 {
		t.Errorf("got %d, want 4", n)
	}
	if kind := must(h.Wait(ctx)); string(kind) != "whatever" {
		t.Errorf("got %s", kind)
	}
	if v := must(c.KV("sum").Get(ctx, "of")); v.String() != "5" {
		t.Errorf("got the sum %s, want 5", v)
	}
}

func TestEachLineOfALogIsKeptOrCounted(t *testing.T) {
	r := recorder(t)
	c, ctx := r.Client(), t.Context()
	w := c.Worker()
	job := millrace.Job[int, int]("j")
	job.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) {
		for i := range n {
			t.Log(fmt.Sprint(i))
		}
		return n, nil
	})
	h := must(job.Add(ctx, c, 5000))
	must(r.Drain(ctx, w))
	kept, last := 0, ""
	for q := (millrace.LogQuery{Limit: 300}); ; {
		log := must(c.Logs(ctx, h.ID, q))
		for _, l := range log.Lines {
			kept, last = kept+1, l.Text
		}
		if q.After = log.Last; log.More {
			continue
		}
		if kept+int(log.Dropped) != 5000 || last != "4999" {
			t.Errorf("%d lines were kept and %d dropped of 5000, the last one is %q", kept, log.Dropped, last)
		}
		return
	}
}

func TestDrainEndsWithItsContextAndGivesBackWhatRan(t *testing.T) {
	r := recorder(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	w := r.Client().Worker()
	job := millrace.Job[int, int]("j")
	job.Handle(w, func(ctx context.Context, _ *millrace.Task, n int) (int, error) {
		if n == 2 {
			cancel(why)
			return 0, ctx.Err()
		}
		return n, nil
	})
	must(job.AddMany(t.Context(), r.Client(), []int{1, 2, 3}))
	runs, err := r.Drain(ctx, w)
	if !errors.Is(err, why) || len(runs) != 2 || runs[1].Settle != "release" {
		t.Errorf("got %+v, %v", runs, err)
	}
	if got := r.Tasks(); got[1].State != millrace.Ready || got[1].Failures != 0 || got[2].Attempt != 0 {
		t.Errorf("got %+v and %+v, want both ready", got[1], got[2])
	}
}

func TestDrainRefusesAWorkerThatCannotRun(t *testing.T) {
	r, other := recorder(t), recorder(t)
	if _, err := r.Drain(t.Context(), r.Client().Worker()); err == nil {
		t.Error("a worker without handlers was drained")
	}
	w := other.Client().Worker()
	millrace.Job[int, int]("j").Handle(w, func(context.Context, *millrace.Task, int) (int, error) { return 0, nil })
	if _, err := r.Drain(t.Context(), w); err == nil {
		t.Error("a worker of another client was drained")
	}
	r.DrainOnWait(w)
	_, err := must(millrace.Job[int, int]("j").Add(t.Context(), r.Client(), 1)).Wait(t.Context())
	if wantLacking(t, "wait", err, millrace.CodeInvalidArgument); !strings.Contains(fmt.Sprint(err), "another client") {
		t.Errorf("got %v of a worker of another client", err)
	}
}

// A handler that waits for the task that it adds is served by a drain within the drain, and so is code that many goroutines run.
func TestWaitsAreAnsweredByDraining(t *testing.T) {
	r := recorder(t)
	c := r.Client()
	w := c.Worker()
	inner, outer, idle := millrace.Job[int, int]("inner"), millrace.Job[int, int]("outer"), millrace.Job[int, int]("idle")
	var runs atomic.Int32
	inner.Handle(w, func(_ context.Context, t *millrace.Task, n int) (int, error) {
		runs.Add(1)
		if t.Attempt < 4 {
			return 0, errors.New("again")
		}
		return n * n, nil
	})
	outer.Handle(w, func(ctx context.Context, _ *millrace.Task, n int) (int, error) {
		h, err := inner.Add(ctx, c, n)
		if err != nil {
			return 0, err
		}
		return h.Wait(ctx)
	})
	r.DrainOnWait(w)
	out := make(chan error)
	for i := range 20 {
		go func() {
			n, err := must(outer.Add(t.Context(), c, i)).Wait(t.Context())
			if err == nil && n != i*i {
				err = fmt.Errorf("got %d, want %d", n, i*i)
			}
			out <- err
		}()
	}
	for range 20 {
		if err := <-out; err != nil {
			t.Error(err)
		}
	}
	if n := runs.Load(); n != 80 {
		t.Errorf("%d runs of 20 tasks that fail three times", n)
	}
	_, err := must(idle.Add(t.Context(), c, 1)).Wait(t.Context())
	wantLacking(t, "wait", err, millrace.CodeWrongState)
}

func wantLacking(t *testing.T, what string, err error, code millrace.Code) {
	t.Helper()
	var e *millrace.Error
	if !errors.As(err, &e) || e.Code != code || e.Reason != "recorder" || e.Outcome != millrace.Refused || e.Message == "" {
		t.Errorf("%s: got %v, want %s with the reason recorder, refused", what, err, code)
	}
}

func TestWhatARecorderLacksIsRefused(t *testing.T) {
	r := recorder(t)
	c, ctx := r.Client(), t.Context()
	job := millrace.Job[int, int]("j")
	w := c.Worker()
	job.Handle(w, func(ctx context.Context, task *millrace.Task, _ int) (int, error) {
		_, err := c.Cancel(ctx, task.ID)
		return 0, err
	})
	for what, call := range map[string]func() error{
		"list":   func() error { _, _, err := c.List(ctx, millrace.ListQuery{}); return err },
		"claim":  func() error { _, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"j"}, Max: 1}); return err },
		"status": func() error { _, err := c.Status(ctx); return err },
		"stats":  func() error { _, err := c.Queue("j").Stats(ctx); return err },
		"refs":   func() error { _, err := c.Repo("r").Get(ctx, "refs/heads/main"); return err },
		"worker": func() error { return w.Run(ctx) },
		"stream": func() error {
			s := c.KV("k").Stream()
			defer func() { _ = s.Close() }()
			put, err := s.Put(ctx, "a", []byte("b"))
			if err == nil {
				_, err = put.Wait(ctx)
			}
			return err
		},
		"events": func() error {
			for _, err := range c.Events(ctx, millrace.TopicQueues) {
				return err
			}
			return nil
		},
		"cancel of a running task": func() error {
			must(job.Add(ctx, c, 1))
			return must(r.Drain(ctx, w))[0].Err
		},
	} {
		wantLacking(t, what, call(), millrace.CodeInvalidArgument)
	}
	wantLacking(t, "wait", func() error { _, err := must(job.Add(ctx, c, 1)).Wait(ctx); return err }(), millrace.CodeWrongState)
}

// TestARecorderDialsNothing has every variable that names a server point at a listener that counts who comes.
func TestARecorderDialsNothing(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int32
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = conn.Close()
		}
	}()
	for _, name := range []string{"MILLRACE_URL", "MILLRACE_REST_URL"} {
		t.Setenv(name, lis.Addr().String())
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, "http://"+lis.Addr().String())
	}
	t.Setenv("MILLRACE_TOKEN", "not one word")
	t.Setenv("MILLRACE_TRANSPORT", "neither")
	r := recorder(t, millrace.Address(lis.Addr().String()), millrace.RESTAddress("nowhere"), millrace.Transport(millrace.TransportREST), millrace.TLS(nil))
	for what, script := range map[string]func(context.Context, *millrace.Client) *transcript{"tasks": taskScript, "keys": keyScript} {
		if l := script(t.Context(), r.Client()); len(l.lines) == 0 {
			t.Errorf("%s: nothing was done", what)
		}
	}
	for range r.Client().Events(t.Context(), millrace.TopicQueues) {
		break
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_ = lis.Close()
	<-ended
	if n := came.Load(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
	if n := len(r.Tasks()); n == 0 {
		t.Error("a closed recorder shows nothing")
	}
	if _, err := r.Client().KV("k").Put(t.Context(), "a", "b"); !errors.Is(err, millrace.ErrClosed) {
		t.Errorf("got %v of a closed recorder, want ErrClosed", err)
	}
}

func TestAddedPanicsOnArgumentsOfAnotherJob(t *testing.T) {
	r := recorder(t)
	must(millrace.Job[string, int]("j").Add(t.Context(), r.Client(), "x"))
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "arguments of j") {
			t.Errorf("recovered %v", v)
		}
	}()
	millrace.Added(r, millrace.Job[map[string]int, int]("j"))
}

// TestARecorderShowsEffectsAsATestOfTheHandlerDoes: what is committed has the lines of the attempt that made it.
func TestARecorderShowsEffectsAsATestOfTheHandlerDoes(t *testing.T) {
	r := recorder(t)
	job := millrace.Job[int, int]("j")
	id, follow := millrace.NewID(), millrace.Job[int, int]("follow")
	fill := func(tx *millrace.Tx) {
		tx.KV("k").Put("a", []byte{0xff})
		tx.KV("k").Add("n", 2, millrace.Ceiling(3))
		tx.KV("k").DeleteRange(millrace.Prefix("b"))
		follow.AddTx(tx, 1, millrace.ID(id), millrace.In(time.Minute))
		tx.Repo("r").Update("refs/heads/a", "", strings.Repeat("5", 40))
		tx.Repo("r").Update("refs/heads/b", "", strings.Repeat("5", 40))
		tx.Collection("c").Remove("a")
		tx.PauseQueue("q")
	}
	handle := func(_ context.Context, t *millrace.Task, _ int) (int, error) { fill(t.Effects()); return 0, nil }
	w := r.Client().Worker()
	job.Handle(w, handle)
	must(job.Add(t.Context(), r.Client(), 1))
	runs := must(r.Drain(t.Context(), w))
	alone := millrace.RunHandler(t.Context(), job, handle, 1, nil)
	if len(alone.Effects) != 8 || !reflect.DeepEqual(r.Effects(), alone.Effects) || !reflect.DeepEqual(runs[0].Effects, alone.Effects) {
		t.Errorf("got  %s\nwant %s, %v", r.Effects(), alone.Effects, runs[0].Err)
	}
	if err := r.Client().Commit(t.Context(), func(tx *millrace.Tx) { tx.KV("k").Put("a", "b") }); err != nil {
		t.Fatal(err)
	}
	if got := r.Effects(); len(got) != 9 || string(got[8]) != `{"op":"kv_put","keyspace":"k","key":"a","value":"b"}` {
		t.Errorf("got %s after one more commit", got[8:])
	}
}
