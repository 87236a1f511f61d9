package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// exact is JSON whose text is the value: nothing reads its numbers.
type exact struct{}

func (exact) ContentType() string { return "application/json" }

func (exact) Marshal(v any) ([]byte, error) { return v.(json.RawMessage), nil }

func (exact) Unmarshal(data []byte, v any) error {
	if !json.Valid(data) {
		return errors.New("must be JSON")
	}
	*v.(*json.RawMessage) = append(json.RawMessage{}, data...)
	return nil
}

// configured is a job with the settings of a command.
func configured[A, R any](j *millrace.JobOf[A, R], s *adding) *millrace.JobOf[A, R] {
	if s.Queue != "" {
		j = j.Queue(s.Queue)
	}
	if s.Attempts != 0 {
		j = j.Attempts(s.Attempts)
	}
	if s.LeaseMS != 0 {
		j = j.Lease(millis(s.LeaseMS))
	}
	if s.MaxRunMS != 0 {
		j = j.MaxRun(millis(s.MaxRunMS))
	}
	if s.Retry != nil {
		j = j.Retry(millrace.RetryPolicy{Base: millis(s.Retry.BaseMS), Max: millis(s.Retry.MaxMS)})
	}
	return j
}

func jsonJob(s *adding) *millrace.JobOf[json.RawMessage, json.RawMessage] {
	return configured(millrace.Job[json.RawMessage, json.RawMessage](s.Job).Codec(exact{}), s)
}

func textJob(s *adding) *millrace.JobOf[string, string] {
	return configured(millrace.Job[string, string](s.Job), s)
}

func bytesJob(s *adding) *millrace.JobOf[[]byte, []byte] {
	return configured(millrace.Job[[]byte, []byte](s.Job), s)
}

// options are those of one task.
func (s *adding) options() (opts []millrace.AddOption) {
	if s.ID != "" {
		opts = append(opts, millrace.ID(s.ID))
	}
	if s.TaskKey != "" {
		opts = append(opts, millrace.Key(s.TaskKey))
	}
	if s.Cost != 0 {
		opts = append(opts, millrace.Cost(s.Cost))
	}
	if len(s.Limiters) > 0 {
		opts = append(opts, millrace.Limiters(s.Limiters...))
	}
	if s.Batch != "" {
		opts = append(opts, millrace.InBatch(s.Batch))
	}
	if s.Tag != "" {
		opts = append(opts, millrace.Tag(s.Tag))
	}
	if s.DelayMS != 0 {
		opts = append(opts, millrace.In(millis(s.DelayMS)))
	}
	if s.Priority != 0 {
		opts = append(opts, millrace.Priority(s.Priority))
	}
	if s.Unique != "" {
		opts = append(opts, millrace.UniqueKey(s.Unique, 0))
		untils := map[string]millrace.Until{"start": millrace.UntilStart, "terminal": millrace.UntilTerminal}
		opts = append(opts, millrace.UniqueUntil(untils[s.Until]))
		if s.Conflict == "replace" {
			opts = append(opts, millrace.UniqueReplace())
		}
	}
	for name, v := range s.Headers {
		opts = append(opts, millrace.Header(name, v))
	}
	if len(s.Labels) > 0 {
		opts = append(opts, millrace.Labels(s.Labels))
	}
	for _, a := range s.After {
		if a.On == "terminal" {
			opts = append(opts, millrace.AfterEnd(a.ID))
		} else {
			opts = append(opts, millrace.After(a.ID))
		}
	}
	if s.OnDep != "" {
		opts = append(opts, millrace.OnDepFailure(map[string]millrace.DepFailure{"cancel": millrace.DepCancel, "run": millrace.DepRun}[s.OnDep]))
	}
	return opts
}

// after is a task to wait for; on is completed, or terminal where any end is enough.
type after struct {
	ID string `json:"id"`
	On string `json:"on"`
}

// fromText reads a value of a job out of the protocol's text.
func fromText(codec, text string) ([]byte, error) {
	if codec == "bytes" {
		return base64.StdEncoding.DecodeString(text)
	}
	return []byte(text), nil
}

// toText is the reverse of fromText.
func toText(codec string, b []byte) string {
	if codec == "bytes" {
		return base64.StdEncoding.EncodeToString(b)
	}
	return string(b)
}

func (a *agent) add(ctx context.Context, s *adding) (any, error) {
	var text string
	if err := json.Unmarshal(s.Args, &text); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	value, err := fromText(s.Codec, text)
	if err != nil {
		return nil, err
	}
	switch s.Codec {
	case "text":
		return added(textJob(s).Add(ctx, a.c, string(value), s.options()...))
	case "bytes":
		return added(bytesJob(s).Add(ctx, a.c, value, s.options()...))
	}
	return added(jsonJob(s).Add(ctx, a.c, value, s.options()...))
}

func added[R any](h *millrace.Handle[R], err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": h.ID, "replayed": h.Replayed, "replaced": h.Replaced}, nil
}

func (a *agent) addMany(ctx context.Context, c *command) (any, error) {
	var texts []string
	if err := json.Unmarshal(c.Args, &texts); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if c.Codec != "" && c.Codec != "json" || len(c.IDs) > 0 {
		return nil, errUnsupported
	}
	args := make([]json.RawMessage, len(texts))
	for i, t := range texts {
		args[i] = json.RawMessage(t)
	}
	job := jsonJob(&c.adding)
	add := job.AddMany
	if c.Do == "add_all" {
		add = job.AddAll
	}
	handles, err := add(ctx, a.c, args, c.options()...)
	ids, faults := make([]any, len(args)), make([]any, len(args))
	many, ok := errors.AsType[*millrace.BatchError](err)
	if err != nil && !ok {
		return nil, err
	}
	for i := range args {
		if i < len(handles) && handles[i] != nil {
			ids[i] = handles[i].ID
		}
		if ok && many.Errors[i] != nil {
			faults[i] = showError(many.Errors[i])
		}
	}
	return map[string]any{"ids": ids, "errors": faults}, nil
}

func (a *agent) wait(ctx context.Context, c *command) (any, error) {
	var result []byte
	var err error
	switch c.Codec {
	case "text":
		var s string
		s, err = millrace.Job[string, string]("any").Of(a.c, c.ID).Wait(ctx)
		result = []byte(s)
	case "bytes":
		result, err = millrace.Job[[]byte, []byte]("any").Of(a.c, c.ID).Wait(ctx)
	default:
		result, err = millrace.Job[json.RawMessage, json.RawMessage]("any").Codec(exact{}).Of(a.c, c.ID).Wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"result": toText(c.Codec, result)}, nil
}

// check is a condition of a commit.
type check struct {
	Keyspace string  `json:"keyspace"`
	Key      string  `json:"key"`
	Compare  string  `json:"compare"`
	Rev      *string `json:"rev"`
	Value    *string `json:"value"`
}

func (c check) condition() (millrace.Condition, error) {
	if c.Rev != nil {
		rev, err := strconv.ParseUint(*c.Rev, 10, 64)
		of := map[string]func(uint64) millrace.Condition{
			"equal": millrace.RevEqual, "not_equal": millrace.RevNotEqual, "less": millrace.RevLess, "greater": millrace.RevGreater,
		}[c.Compare]
		if err != nil || of == nil {
			return millrace.Condition{}, errUnsupported
		}
		return of(rev), nil
	}
	switch {
	case c.Compare == "exists":
		return millrace.Exists(), nil
	case c.Compare == "absent":
		return millrace.Absent(), nil
	case c.Value != nil && c.Compare == "equal":
		return millrace.ValueEqual(*c.Value), nil
	case c.Value != nil && c.Compare == "not_equal":
		return millrace.ValueNotEqual(*c.Value), nil
	}
	return millrace.Condition{}, errUnsupported
}

// op is one effect, in the form that commands of millrace work write.
type op struct {
	Op          string            `json:"op"`
	Keyspace    string            `json:"keyspace"`
	Key         string            `json:"key"`
	KeyBase64   string            `json:"key_base64"`
	Value       string            `json:"value"`
	ValueBase64 string            `json:"value_base64"`
	IfRev       *uint64           `json:"if_rev"`
	IfAbsent    bool              `json:"if_absent"`
	Delta       int64             `json:"delta"`
	Floor       *int64            `json:"floor"`
	Ceiling     *int64            `json:"ceiling"`
	Prefix      string            `json:"prefix"`
	Repo        string            `json:"repo"`
	Ref         string            `json:"ref"`
	Old         *string           `json:"old"`
	New         string            `json:"new"`
	Collection  string            `json:"collection"`
	ID          string            `json:"id"`
	Vector      []float32         `json:"vector"`
	Payload     json.RawMessage   `json:"payload"`
	Kind        string            `json:"kind"`
	Queue       string            `json:"queue"`
	Tag         string            `json:"tag"`
	Labels      map[string]string `json:"labels"`
	After       []after           `json:"after"`
	OnDep       string            `json:"on_dep_failure"`
	Limiters    []string          `json:"limiters"`
	Batch       string            `json:"batch"`
	Reason      string            `json:"reason"`
	Resume      bool              `json:"resume"`
	ForMS       int64             `json:"for_ms"`
	OnDone      *op               `json:"on_done"`
	OnSuccess   *op               `json:"on_success"`
	Rate        int               `json:"rate"`
	Force       bool              `json:"force"`
}

// job is the job of a task that the effect makes.
func (o *op) job() *millrace.JobOf[json.RawMessage, json.RawMessage] {
	return jsonJob(&adding{Job: cmp.Or(o.Kind, o.Queue), Queue: o.Queue})
}

// opened adds a batch that is opened.
func (o *op) opened(tx *millrace.Tx) {
	opts := []millrace.BatchOption{millrace.BatchID(o.ID), millrace.BatchTag(o.Tag), millrace.BatchLabels(o.Labels)}
	if f := o.OnDone; f != nil {
		opts = append(opts, millrace.OnDone(f.job(), f.Payload))
	}
	if f := o.OnSuccess; f != nil {
		opts = append(opts, millrace.OnSuccess(f.job(), f.Payload))
	}
	tx.OpenBatch(opts...)
}

// apply adds the effect to tx.
func (o *op) apply(tx *millrace.Tx) error {
	key, value := o.Key, []byte(o.Value)
	if o.KeyBase64 != "" {
		b, err := base64.StdEncoding.DecodeString(o.KeyBase64)
		if err != nil {
			return err
		}
		key = string(b)
	}
	if o.ValueBase64 != "" {
		var err error
		if value, err = base64.StdEncoding.DecodeString(o.ValueBase64); err != nil {
			return err
		}
	}
	switch o.Op {
	case "kv_put":
		var opts []millrace.PutOption
		if o.IfRev != nil {
			opts = append(opts, millrace.IfRev(*o.IfRev))
		}
		if o.IfAbsent {
			opts = append(opts, millrace.IfAbsent())
		}
		tx.KV(o.Keyspace).Put(key, value, opts...)
	case "kv_delete":
		tx.KV(o.Keyspace).Delete(key)
	case "kv_add":
		var opts []millrace.AddNumberOption
		if o.Floor != nil {
			opts = append(opts, millrace.Floor(*o.Floor))
		}
		if o.Ceiling != nil {
			opts = append(opts, millrace.Ceiling(*o.Ceiling))
		}
		tx.KV(o.Keyspace).Add(key, o.Delta, opts...)
	case "kv_delete_range":
		tx.KV(o.Keyspace).DeleteRange(millrace.Prefix(o.Prefix))
	case "ref_update":
		change := millrace.SetRef(o.Ref, o.New)
		if o.Old != nil {
			change = millrace.MoveRef(o.Ref, *o.Old, o.New)
		}
		tx.Repo(o.Repo).Apply(change)
	case "vector_upsert":
		tx.Collection(o.Collection).Upsert(millrace.Point{ID: o.ID, Vector: o.Vector, Payload: o.Payload})
	case "vector_delete":
		tx.Collection(o.Collection).Remove(o.ID)
	case "task_create":
		s := &adding{Job: o.Kind, Queue: o.Queue, ID: o.ID, Tag: o.Tag, Labels: o.Labels, After: o.After, OnDep: o.OnDep, Limiters: o.Limiters, Batch: o.Batch}
		if s.Job == "" {
			s.Job = o.Queue
		}
		jsonJob(s).AddTx(tx, o.Payload, s.options()...)
	case "task_cancel":
		tx.CancelTask(o.ID, millrace.CancelReason(o.Reason))
	case "batch_open":
		o.opened(tx)
	case "batch_seal":
		tx.SealBatch(o.ID)
	case "batch_cancel":
		tx.CancelBatch(o.ID, millrace.BatchCancel{Reason: o.Reason, Rate: o.Rate, Force: o.Force})
	case "queue_pause":
		if o.Resume {
			tx.ResumeQueue(o.Queue)
		} else {
			tx.PauseQueue(o.Queue, pauses(o.Reason, o.ForMS)...)
		}
	default:
		return errUnsupported
	}
	return nil
}

// commit commits checks and ops, under the lease of a task where one is given.
func (a *agent) commit(ctx context.Context, c *command, t *millrace.Task) (any, error) {
	var failed error
	done, err := a.c.CommitResult(ctx, func(tx *millrace.Tx) {
		if t != nil {
			tx.Fence(t)
		}
		for _, k := range c.Checks {
			cond, err := k.condition()
			if err != nil {
				failed = err
				return
			}
			tx.KV(k.Keyspace).Check(k.Key, cond)
		}
		for i := range c.Ops {
			if err := c.Ops[i].apply(tx); err != nil {
				failed = err
				return
			}
		}
	})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	out := map[string]any{"replayed": done.Replayed}
	revs, sums := make([]string, len(c.Ops)), make([]string, len(c.Ops))
	for i, o := range c.Ops {
		if rev := done.Revs[i]; rev != 0 {
			revs[i] = strconv.FormatUint(rev, 10)
		}
		if o.Op == "kv_add" {
			sums[i] = strconv.FormatInt(done.Sums[i], 10)
		}
	}
	out["revs"], out["sums"] = revs, sums
	return out, nil
}
