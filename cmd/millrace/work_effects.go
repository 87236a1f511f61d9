package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Limits of an effects file: those of a commit, of which the completion is an op too.
const (
	maxEffects      = 1023
	maxEffectsBytes = 4 << 20
)

// effectsFault is what the command did wrong in its effects file; other errors are this machine's.
type effectsFault struct{ error }

func (e effectsFault) Unwrap() error { return e.error }

// makeEffects makes an empty effects file in a directory of its own, which the command may do with as it likes.
func makeEffects() (file string, err error) {
	dir, err := os.MkdirTemp("", "millrace-task-")
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "effects")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return file, nil
}

// readEffects adds the lines of an effects file to tx, and returns the number of the line that each came from. A file that makes
// no sense is an effectsFault that names the line. It never waits: the command may have put anything in the place of the file.
func readEffects(name string, tx *millrace.Tx) (lines []int, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, effectsFault{errors.New("the effects file was removed")}
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOTDIR):
		return nil, effectsFault{fmt.Errorf("the effects file must be a regular file that can be read: %w", errnoOf(err))}
	case err != nil:
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, effectsFault{errors.New("the effects file must be a regular file")}
	case info.Size() > maxEffectsBytes:
		return nil, effectsFault{fmt.Errorf("the effects file must be at most %d bytes (commit_bytes); it has %d", maxEffectsBytes, info.Size())}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxEffectsBytes))
	if err != nil {
		return nil, err
	}
	for n, line := range bytes.Split(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(lines) == maxEffects {
			return nil, effectsFault{fmt.Errorf("the effects file must have at most %d lines (commit_ops)", maxEffects)}
		}
		if err := readEffect(line, tx); err != nil {
			return nil, effectsFault{fmt.Errorf("effects line %d: %w", n+1, err)}
		}
		lines = append(lines, n+1)
	}
	if err := tx.Err(); err != nil {
		return nil, effectsFault{fmt.Errorf("effects: %w", err)}
	}
	return lines, nil
}

// effects are what a line may ask for, by its op.
var effects = map[string]func(o *strictObject, tx *millrace.Tx){
	"kv_put":          putEffect,
	"kv_delete":       deleteEffect,
	"kv_add":          addEffect,
	"kv_delete_range": deleteRangeEffect,
	"ref_update":      refEffect,
	"vector_upsert":   upsertEffect,
	"vector_delete":   removeEffect,
	"task_create":     taskEffect,
}

// readEffect adds one line to tx. A field that its op does not have is an error, as it is over REST.
func readEffect(line []byte, tx *millrace.Tx) error {
	o, err := readStrict(line)
	if err != nil {
		return err
	}
	op, ok := o.text("op")
	switch {
	case o.err != nil:
		return o.err
	case !ok:
		return errors.New("op is required")
	case effects[op] == nil:
		return fmt.Errorf("unknown op %q", op)
	}
	effects[op](o, tx)
	if err := o.done(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func putEffect(o *strictObject, tx *millrace.Tx) {
	keyspace, key := o.required("keyspace"), o.requiredBytes("key")
	value := o.requiredBytes("value")
	var opts []millrace.PutOption
	if rev, ok := o.unsigned("if_rev"); ok {
		opts = append(opts, millrace.IfRev(rev))
	}
	if o.boolean("if_absent") {
		opts = append(opts, millrace.IfAbsent())
	}
	tx.KV(keyspace).Put(string(key), value, opts...)
}

func deleteEffect(o *strictObject, tx *millrace.Tx) {
	keyspace, key := o.required("keyspace"), o.requiredBytes("key")
	var opts []millrace.DeleteOption
	if rev, ok := o.unsigned("if_rev"); ok {
		opts = append(opts, millrace.IfRev(rev))
	}
	tx.KV(keyspace).Delete(string(key), opts...)
}

func addEffect(o *strictObject, tx *millrace.Tx) {
	keyspace, key := o.required("keyspace"), o.requiredBytes("key")
	delta, ok := o.integer("delta")
	if !ok {
		o.refuse("delta", "is required")
	}
	var opts []millrace.AddNumberOption
	if n, ok := o.integer("floor"); ok {
		opts = append(opts, millrace.Floor(n))
	}
	if n, ok := o.integer("ceiling"); ok {
		opts = append(opts, millrace.Ceiling(n))
	}
	if rev, ok := o.unsigned("if_rev"); ok {
		opts = append(opts, millrace.IfRev(rev))
	}
	tx.KV(keyspace).Add(string(key), delta, opts...)
}

func deleteRangeEffect(o *strictObject, tx *millrace.Tx) {
	keyspace := o.required("keyspace")
	prefix, byPrefix := o.bytes("prefix")
	from, hasFrom := o.bytes("from")
	to, hasTo := o.bytes("to")
	all := o.boolean("all")
	keys := millrace.Between(string(from), string(to))
	switch bounds := hasFrom || hasTo; {
	case byPrefix && bounds, all && (byPrefix || bounds):
		o.refuse("prefix", "and from or to, and all are mutually exclusive")
	case all:
		keys = millrace.Prefix("")
	case byPrefix && len(prefix) == 0, hasFrom && len(from) == 0, hasTo && len(to) == 0:
		o.refuse("prefix, from and to", `must not be empty; "all":true removes all keys`)
	case byPrefix:
		keys = millrace.Prefix(string(prefix))
	case !bounds:
		o.refuse("prefix", "is required, or from or to, or all")
	}
	tx.KV(keyspace).DeleteRange(keys)
}

func refEffect(o *strictObject, tx *millrace.Tx) {
	repo, ref, to := o.required("repo"), o.required("ref"), o.required("new")
	tag, _ := o.text("tag")
	change := millrace.SetRef(ref, to)
	if from, ok := o.text("old"); ok { // absent: whatever the ref is at
		change = millrace.MoveRef(ref, from, to)
	}
	tx.Repo(repo).Tagged(tag).Apply(change)
}

func upsertEffect(o *strictObject, tx *millrace.Tx) {
	collection := o.required("collection")
	p := millrace.Point{ID: o.required("id"), IfAbsent: o.boolean("if_absent")}
	p.Model, _ = o.text("model")
	p.IfVersion, _ = o.text("if_version")
	if raw, ok := o.raw("payload"); ok {
		p.Payload = raw
	}
	if raw, ok := o.raw("vector"); ok {
		if err := json.Unmarshal(raw, &p.Vector); err != nil || bytes.Contains(raw, []byte("null")) {
			o.refuse("vector", "must be an array of 32-bit floating point numbers")
		}
	}
	tx.Collection(collection).Upsert(p)
}

func removeEffect(o *strictObject, tx *millrace.Tx) {
	collection, id := o.required("collection"), o.required("id")
	tx.Collection(collection).Remove(id)
}

func taskEffect(o *strictObject, tx *millrace.Tx) {
	queue := o.required("queue")
	kind, ok := o.text("kind")
	if !ok {
		kind = queue
	}
	job := taskLimits(o, millrace.Job[any, []byte](kind).Queue(queue))
	opts := taskOptions(o)
	raw, asJSON := o.raw("payload")
	coded, asBytes := o.base64("payload_base64")
	switch {
	case asJSON && asBytes:
		o.refuse("payload", "and payload_base64 are mutually exclusive")
	case asBytes:
		job.AddTx(tx, coded, opts...)
	default:
		job.AddTx(tx, raw, opts...)
	}
}

// taskOptions reads the fields of a new task that are not its content.
func taskOptions(o *strictObject) (opts []millrace.AddOption) {
	if id, ok := o.text("id"); ok {
		opts = append(opts, millrace.ID(id))
	}
	if tag, ok := o.text("tag"); ok {
		opts = append(opts, millrace.Tag(tag))
	}
	if n, ok := o.integer("priority"); ok {
		if n < 0 || n > 9 {
			o.refuse("priority", "must be 0 to 9")
		}
		opts = append(opts, millrace.Priority(int(n)))
	}
	delay, delayed := o.duration("delay")
	at, timed := o.time("run_at")
	switch {
	case delayed && timed:
		o.refuse("delay", "and run_at are mutually exclusive")
	case delayed:
		opts = append(opts, millrace.In(delay))
	case timed:
		opts = append(opts, millrace.At(at))
	}
	if name, ok := o.text("content_type"); ok {
		opts = append(opts, millrace.ContentType(name))
	}
	for _, h := range o.objects("headers") {
		opts = append(opts, millrace.Header(h.required("name"), h.required("value")))
		o.within("headers", h.done())
	}
	if u := o.object("unique"); u != nil {
		key := u.required("key")
		ttl, _ := u.duration("ttl")
		opts = append(opts, millrace.UniqueKey(key, ttl))
		switch word, ok := u.text("on_conflict"); {
		case ok && word == "reject":
			opts = append(opts, millrace.UniqueReject())
		case ok && word != "return":
			u.refuse("on_conflict", "must be return or reject")
		}
		o.within("unique", u.done())
	}
	return opts
}

// taskLimits reads the fields of a new task that are settings of its job, and returns the job with them.
func taskLimits(o *strictObject, job *millrace.JobOf[any, []byte]) *millrace.JobOf[any, []byte] {
	job = job.Attempts(int(o.count("max_attempts"))).Crashes(int(o.count("max_crashes"))) // 0 is the queue's
	if lease, ok := o.duration("lease"); ok {
		job = job.Lease(lease)
	}
	if bound, ok := o.duration("max_run"); ok {
		job = job.MaxRun(bound)
	}
	return job
}
