package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// commitVector is a commit, and what becomes of it. Revisions are those of Keys, from 1.
type commitVector struct {
	Name    string
	Keys    []vectorOp // put before
	Tasks   []vectorOp // added before
	Checks  []vectorOp
	Ops     []vectorOp
	Refused *vectorRefusal // nil: it is applied
	Sums    []string       // of the additions
	After   map[string]*string
}

// vectorOp is a check or an op.
type vectorOp struct {
	Op, Keyspace, Key, Prefix, From, To, Compare string

	Value       *string
	ValueBytes  []byte  `json:"value_base64"`
	Rev         *uint64 // of a check
	IfRev       *uint64 `json:"if_rev"`
	IfAbsent    bool    `json:"if_absent"`
	Delta       int64
	Floor       *int64
	Ceiling     *int64
	Queue, Kind string
	ID          string
	Payload     int
	Priority    int
	Unique      *struct {
		Key        string
		OnConflict string `json:"on_conflict"`
	}
}

// vectorRefusal is an error.
type vectorRefusal struct {
	Code    millrace.Code
	Reason  string
	Op      *int
	Field   string
	Details struct {
		Rev   *uint64
		Value string
	}
}

// value is what a key is put to.
func (o *vectorOp) value() []byte {
	if o.Value != nil {
		return []byte(*o.Value)
	}
	return o.ValueBytes
}

// number is a revision of the vectors as it was given: those of keys begin with revs[0].
func number(revs []uint64, n uint64) uint64 {
	switch {
	case n == 0:
		return 0
	case n <= uint64(len(revs)):
		return revs[n-1]
	case len(revs) == 0:
		return n
	}
	return revs[len(revs)-1] + n - uint64(len(revs))
}

// condition is o as a check.
func (o *vectorOp) condition(revs []uint64) millrace.Condition {
	if o.Rev != nil {
		made := map[string]func(rev uint64) millrace.Condition{
			"equal": millrace.RevEqual, "not_equal": millrace.RevNotEqual, "less": millrace.RevLess, "greater": millrace.RevGreater,
		}
		return made[o.Compare](number(revs, *o.Rev))
	}
	switch o.Compare {
	case "exists":
		return millrace.Exists()
	case "absent":
		return millrace.Absent()
	case "equal":
		return millrace.ValueEqual(o.value())
	case "not_equal":
		return millrace.ValueNotEqual(o.value())
	case "less":
		return millrace.ValueLess(o.value())
	}
	return millrace.ValueGreater(o.value())
}

// add adds o to tx.
func (o *vectorOp) add(tx *millrace.Tx, revs []uint64) {
	kv := tx.KV(o.Keyspace)
	switch o.Op {
	case "kv_put":
		var opts []millrace.PutOption
		if o.IfRev != nil {
			opts = append(opts, millrace.IfRev(number(revs, *o.IfRev)))
		}
		if o.IfAbsent {
			opts = append(opts, millrace.IfAbsent())
		}
		kv.Put(o.Key, o.value(), opts...)
	case "kv_delete":
		var opts []millrace.DeleteOption
		if o.IfRev != nil {
			opts = append(opts, millrace.IfRev(number(revs, *o.IfRev)))
		}
		kv.Delete(o.Key, opts...)
	case "kv_add":
		var opts []millrace.AddNumberOption
		if o.IfRev != nil {
			opts = append(opts, millrace.IfRev(number(revs, *o.IfRev)))
		}
		if o.Floor != nil {
			opts = append(opts, millrace.Floor(*o.Floor))
		}
		if o.Ceiling != nil {
			opts = append(opts, millrace.Ceiling(*o.Ceiling))
		}
		kv.Add(o.Key, o.Delta, opts...)
	case "kv_delete_range":
		if o.From != "" || o.To != "" {
			kv.DeleteRange(millrace.Between(o.From, o.To))
		} else {
			kv.DeleteRange(millrace.Prefix(o.Prefix))
		}
	case "task_cancel":
		tx.CancelTask(o.ID)
	case "task_create":
		opts := []millrace.AddOption{millrace.ID(o.ID), millrace.Priority(o.Priority)}
		if o.Unique != nil {
			opts = append(opts, millrace.UniqueKey(o.Unique.Key, 0))
			if o.Unique.OnConflict == "reject" {
				opts = append(opts, millrace.UniqueReject())
			}
		}
		millrace.Job[int, int](o.Kind).Queue(o.Queue).AddTx(tx, o.Payload, opts...)
	}
}

// prepare makes the keys and tasks that v has before. It returns the revisions.
func (v *commitVector) prepare(ctx context.Context, t *testing.T, c *millrace.Client) (revs []uint64) {
	for _, o := range v.Keys {
		rev, err := c.KV("k").Put(ctx, o.Key, o.value())
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, rev)
	}
	for _, o := range v.Tasks {
		if err := c.Commit(ctx, func(tx *millrace.Tx) { o.add(tx, revs) }); err != nil {
			t.Fatal(err)
		}
	}
	return revs
}

// fill adds the checks and ops of v to tx.
func (v *commitVector) fill(tx *millrace.Tx, revs []uint64) {
	for _, o := range v.Checks {
		tx.KV(o.Keyspace).Check(o.Key, o.condition(revs))
	}
	for _, o := range v.Ops {
		o.add(tx, revs)
	}
}

// judge holds err, and the keys that are there now, to what v says.
func (v *commitVector) judge(ctx context.Context, t *testing.T, c *millrace.Client, revs []uint64, err error, effects bool) {
	var e *millrace.Error
	switch want := v.Refused; {
	case want == nil:
		if err != nil {
			t.Errorf("got %v, want it applied", err)
		}
	case !errors.As(err, &e):
		t.Errorf("got %v, want %s", err, want.Code)
	default:
		details := map[string]string{}
		if want.Details.Rev != nil {
			details["rev"] = strconv.FormatUint(number(revs, *want.Details.Rev), 10)
		}
		if want.Details.Value != "" {
			details["value"] = want.Details.Value
		}
		got := fmt.Sprint(e.Code, e.Reason, e.Op, e.Outcome, e.Details)
		op := millrace.OpNone
		if want.Op != nil {
			op = *want.Op
		}
		if w := fmt.Sprint(want.Code, want.Reason, op, millrace.Refused, details); got != w {
			t.Errorf("got %s, want %s", got, w)
		}
		if !effects && e.Field != want.Field {
			t.Errorf("got the field %q, want %q", e.Field, want.Field)
		}
	}
	for key, want := range v.After {
		got, err := c.KV("k").Get(ctx, key)
		switch {
		case want == nil && !errors.Is(err, millrace.ErrNotFound):
			t.Errorf("key %s is %q, %v, want none", key, got.String(), err)
		case want != nil && (err != nil || got.String() != *want):
			t.Errorf("key %s is %q, %v, want %q", key, got.String(), err, *want)
		}
	}
}

// commit commits v.
func (v *commitVector) commit(ctx context.Context, t *testing.T, c *millrace.Client) {
	revs := v.prepare(ctx, t, c)
	done, err := c.CommitResult(ctx, func(tx *millrace.Tx) { v.fill(tx, revs) })
	v.judge(ctx, t, c, revs, err, false)
	var sums []string
	for i, o := range v.Ops {
		if err == nil && o.Op == "kv_add" {
			sums = append(sums, strconv.FormatInt(done.Sums[i], 10))
		}
	}
	if v.Sums != nil && !slices.Equal(sums, v.Sums) {
		t.Errorf("got the sums %v, want %v", sums, v.Sums)
	}
}

// drain has a handler that has v as its effects run, and asks it where they are refused.
func (v *commitVector) drain(ctx context.Context, t *testing.T, r *millrace.Recorder) {
	c := r.Client()
	revs := v.prepare(ctx, t, c)
	var refusal error
	w := c.Worker()
	job := millrace.Job[bool, int]("effects").Attempts(1)
	job.Handle(w, func(_ context.Context, task *millrace.Task, asked bool) (int, error) {
		v.fill(task.Effects(), revs)
		if asked {
			task.OnRefused(func(_ context.Context, e *millrace.Error) error {
				refusal = e
				task.Effects().Reset()
				return nil
			})
		}
		return 7, nil
	})
	if v.Refused != nil {
		h := must(job.Add(ctx, c, false))
		runs := must(r.Drain(ctx, w))
		if len(runs) != 1 || runs[0].Settle != "fail" || len(runs[0].Effects) > 0 {
			t.Errorf("got %+v, want an attempt that failed", runs)
		}
		v.judge(ctx, t, c, revs, runs[0].Err, true)
		var ended *millrace.TaskError
		if _, err := h.Wait(ctx); !errors.As(err, &ended) || ended.Code != string(v.Refused.Code) {
			t.Errorf("got %v, want a task that is dead of %s", err, v.Refused.Code)
		}
	}
	h := must(job.Add(ctx, c, true))
	if runs := must(r.Drain(ctx, w)); len(runs) != 1 || runs[0].Settle != "complete" {
		t.Errorf("got %+v, want an attempt that completed", runs)
	}
	v.judge(ctx, t, c, revs, refusal, true)
	if n, err := h.Wait(ctx); err != nil || n != 7 {
		t.Errorf("got %d, %v, want 7", n, err)
	}
}

// TestCommitsAreJudgedAsTheVectorsSay holds servers and Recorders to the vectors that the Recorders of all languages read.
func TestCommitsAreJudgedAsTheVectorsSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "proto", "conformance", "commits.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Commits []commitVector }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Commits) == 0 || reflect.DeepEqual(file.Commits[0], commitVector{}) {
		t.Fatal("the file has no vectors")
	}
	for _, v := range file.Commits {
		t.Run(v.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v.commit(ctx, t, dial(t, millrace.Namespace("vectors-"+millrace.NewID())))
			v.commit(ctx, t, recorder(t).Client())
			v.drain(ctx, t, recorder(t))
		})
	}
}
