package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	millrace "github.com/millrace/millrace/sdk/go"
)

// Limits of an effects file: those of a commit, which has 1,024 ops, and the completion is one of
// them.
const (
	// maxEffects is the number of effects of one task.
	maxEffects = 1023
	// maxEffectsBytes is the size of the file in bytes.
	maxEffectsBytes = 4 << 20
)

// effectsFault is a mistake of the command in its effects file, which ends the task for good. Any
// other error of reading the file is trouble of this machine, and the task is given back.
type effectsFault struct{ error }

// Unwrap returns the mistake.
func (e effectsFault) Unwrap() error { return e.error }

// ErrorCode is the code of the failure that it is reported as.
func (effectsFault) ErrorCode() string { return "invalid_effects" }

// makeEffects makes an empty effects file and returns its path. The file has its own directory, so
// that the command may replace or remove the file. The caller removes the directory.
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

// readEffects adds the lines of an effects file to tx, and returns the line number of each effect,
// in the order of the ops in tx. A file that makes no sense is an effectsFault that names the line.
//
// The command may have put anything in the place of the file. So the file is opened without
// following a link and without waiting, as a pipe would make it, and must be a regular file within
// the limits. What is read is bounded even if the file grows meanwhile.
func readEffects(name string, tx *millrace.Tx) (lines []int, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, effectsFault{errors.New("the effects file was removed")}
	// A link, a pipe without a reader, a file that may not be read, or a path through a file: all
	// of them are the command's doing.
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOTDIR):
		return nil, effectsFault{fmt.Errorf("the effects file must be a regular file that can be read: %w", errnoOf(err))}
	case err != nil:
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	// The file that is open is checked, not the path, which the command could still change.
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

// effect is an op that a line may hold.
type effect struct {
	op      string
	example string // the other fields of a line, as help shows them
	read    func(o *strictObject, tx *millrace.Tx)
}

// effects are the ops of lines, in the order of help. Each has a function that reads its fields and
// adds it to tx; it notes what is wrong in o.
var effects = []effect{
	{"kv_put", `"keyspace":"thumbs","key":"7","value":"...","if_rev":12`, putEffect},
	{"kv_delete", `"keyspace":"thumbs","key":"6"`, deleteEffect},
	{"kv_add", `"keyspace":"counts","key":"thumbs","delta":1`, addEffect},
	{"kv_delete_range", `"keyspace":"parts","prefix":"7/"`, deleteRangeEffect},
	{"ref_update", `"repo":"app","ref":"refs/heads/main","old":"5ab7...","new":"9c1d..."`, refEffect},
	{"vector_upsert", `"collection":"people","id":"ada","payload":{"text":"..."}`, upsertEffect},
	{"vector_delete", `"collection":"people","id":"bob"`, removeEffect},
	{"task_create", `"queue":"mail","payload":{"to":"ada"}`, taskEffect},
	{"task_cancel", `"id":"01KZ...","reason":"replaced"`, cancelEffect},
	{"queue_pause", `"queue":"mail","until":"2030-01-02T03:04:05Z"`, pauseEffect},
	{"batch_open", `"id":"01KZ...","on_done":{"queue":"reports","payload":{"of":7}}`, openEffect},
	{"batch_seal", `"id":"01KZ..."`, sealEffect},
	{"batch_cancel", `"id":"01KZ...","reason":"replaced"`, cancelBatchEffect},
}

// effectExamples are a line of each op, indented.
func effectExamples() string {
	var out strings.Builder
	for _, e := range effects {
		fmt.Fprintf(&out, "  {\"op\":%q,%s}\n", e.op, e.example)
	}
	return out.String()
}

// readEffect adds one line to tx. A field that the op does not have is an error, as it is in REST
// requests.
func readEffect(line []byte, tx *millrace.Tx) error {
	o, err := readStrict(line)
	if err != nil {
		return err
	}
	op, ok := o.text("op")
	at := slices.IndexFunc(effects, func(e effect) bool { return e.op == op })
	switch {
	case o.err != nil:
		return o.err
	case !ok:
		return errors.New("op is required")
	case at < 0:
		return fmt.Errorf("unknown op %q", op)
	}
	effects[at].read(o, tx)
	if err := o.done(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// putEffect reads kv_put.
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

// deleteEffect reads kv_delete.
func deleteEffect(o *strictObject, tx *millrace.Tx) {
	keyspace, key := o.required("keyspace"), o.requiredBytes("key")
	var opts []millrace.DeleteOption
	if rev, ok := o.unsigned("if_rev"); ok {
		opts = append(opts, millrace.IfRev(rev))
	}
	tx.KV(keyspace).Delete(string(key), opts...)
}

// addEffect reads kv_add. The sum must be within floor and ceiling when it is applied, where they
// are given.
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

// deleteRangeEffect reads kv_delete_range: a prefix, a range, or all keys by an explicit "all". An
// empty prefix or bound is refused, because it is more often a variable that was not set than the
// wish to remove everything.
func deleteRangeEffect(o *strictObject, tx *millrace.Tx) {
	keyspace := o.required("keyspace")
	prefix, byPrefix := o.bytes("prefix")
	from, hasFrom := o.bytes("from")
	to, hasTo := o.bytes("to")
	all := o.boolean("all")
	keys := millrace.Between(string(from), string(to))
	switch bounds := hasFrom || hasTo; {
	// A range is named in one way only.
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

// refEffect reads ref_update. Without old the ref moves from wherever it is; an empty old or new
// means that it does not exist before or after.
func refEffect(o *strictObject, tx *millrace.Tx) {
	repo, ref, to := o.required("repo"), o.required("ref"), o.required("new")
	tag, _ := o.text("tag")
	change := millrace.SetRef(ref, to)
	if from, ok := o.text("old"); ok { // absent: whatever the ref is at
		change = millrace.MoveRef(ref, from, to)
	}
	tx.Repo(repo).Tagged(tag).Apply(change)
}

// upsertEffect reads vector_upsert. A null inside the vector would decode as 0, so it is refused
// here.
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

// removeEffect reads vector_delete.
func removeEffect(o *strictObject, tx *millrace.Tx) {
	collection, id := o.required("collection"), o.required("id")
	tx.Collection(collection).Remove(id)
}

// taskEffect reads task_create. A payload is any JSON value as it is written, or bytes in base64;
// without one the task has an empty payload.
func taskEffect(o *strictObject, tx *millrace.Tx) {
	job, args, opts := taskOf(o)
	job.AddTx(tx, args, opts...)
}

// taskOf reads what is said of a new task, or of one that a batch makes.
func taskOf(o *strictObject) (job *millrace.JobOf[any, []byte], args any, opts []millrace.AddOption) {
	queue := o.required("queue")
	kind, ok := o.text("kind")
	if !ok {
		kind = queue
	}
	job = taskLimits(o, millrace.Job[any, []byte](kind).Queue(queue))
	opts = taskOptions(o)
	raw, asJSON := o.raw("payload")
	coded, asBytes := o.base64("payload_base64")
	switch {
	case asJSON && asBytes:
		o.refuse("payload", "and payload_base64 are mutually exclusive")
	case asBytes:
		return job, coded, opts
	}
	return job, raw, opts
}

// openEffect reads batch_open. A command that adds tasks to the batch gives it an id.
func openEffect(o *strictObject, tx *millrace.Tx) {
	var opts []millrace.BatchOption
	if id, ok := o.text("id"); ok {
		opts = append(opts, millrace.BatchID(id))
	}
	if tag, ok := o.text("tag"); ok {
		if opts != nil {
			o.refuse("id", "and tag are mutually exclusive")
		}
		opts = append(opts, millrace.BatchTag(tag))
	}
	if labels := o.texts("labels"); len(labels) > 0 {
		opts = append(opts, millrace.BatchLabels(labels))
	}
	for name, option := range map[string]func(*millrace.JobOf[any, []byte], any, ...millrace.AddOption) millrace.BatchOption{
		"on_done": millrace.OnDone[any, []byte], "on_success": millrace.OnSuccess[any, []byte],
	} {
		if follow := o.object(name); follow != nil {
			job, args, task := taskOf(follow)
			o.within(name, follow.done())
			opts = append(opts, option(job, args, task...))
		}
	}
	tx.OpenBatch(opts...)
}

// sealEffect reads batch_seal.
func sealEffect(o *strictObject, tx *millrace.Tx) { tx.SealBatch(o.required("id")) }

// cancelBatchEffect reads batch_cancel.
func cancelBatchEffect(o *strictObject, tx *millrace.Tx) {
	how := millrace.BatchCancel{Force: o.boolean("force")}
	how.Reason, _ = o.text("reason")
	how.Rate = int(o.count("rate"))
	tx.CancelBatch(o.required("id"), how)
}

// cancelEffect reads task_cancel.
func cancelEffect(o *strictObject, tx *millrace.Tx) {
	id := o.required("id")
	reason, _ := o.text("reason")
	opts := []millrace.CancelOption{millrace.CancelReason(reason)}
	if o.boolean("force") {
		opts = append(opts, millrace.ForceCancel())
	}
	tx.CancelTask(id, opts...)
}

// pauseEffect reads queue_pause, which also lets a queue go on.
func pauseEffect(o *strictObject, tx *millrace.Tx) {
	queue, resume := o.required("queue"), o.boolean("resume")
	reason, hasReason := o.text("reason")
	until, hasUntil := o.time("until")
	opts := []millrace.PauseOption{millrace.PauseReason(reason)}
	if hasUntil {
		opts = append(opts, millrace.PauseUntil(until))
	}
	switch {
	case resume && (hasReason || hasUntil):
		o.refuse("resume", "and reason or until are mutually exclusive")
	case resume:
		tx.ResumeQueue(queue)
	default:
		tx.PauseQueue(queue, opts...)
	}
}

// taskOptions reads the fields of a new task that belong to the task alone: id, tag, key, cost, limiters, priority,
// times, headers, labels, batch and unique key.
func taskOptions(o *strictObject) (opts []millrace.AddOption) {
	if id, ok := o.text("id"); ok {
		opts = append(opts, millrace.ID(id))
	}
	if tag, ok := o.text("tag"); ok {
		opts = append(opts, millrace.Tag(tag))
	}
	if key, ok := o.text("key"); ok {
		opts = append(opts, millrace.Key(key))
	}
	if n, ok := o.integer("cost"); ok {
		if n < 1 || n > 1_000_000 {
			o.refuse("cost", "must be 1 to 1,000,000")
		}
		opts = append(opts, millrace.Cost(int(n)))
	}
	if names := o.list("limiters"); len(names) > 0 {
		opts = append(opts, millrace.Limiters(names...))
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
	if t, ok := o.time("expires_at"); ok {
		opts = append(opts, millrace.ExpiresAt(t))
	}
	if labels := o.texts("labels"); len(labels) > 0 {
		opts = append(opts, millrace.Labels(labels))
	}
	if name, ok := o.text("content_type"); ok {
		opts = append(opts, millrace.ContentType(name))
	}
	opts = append(opts, afterOptions(o)...)
	if id, ok := o.text("batch"); ok {
		opts = append(opts, millrace.InBatch(id))
	}
	// The errors of nested objects are noted under the name of the field that holds them.
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
		case ok && word == "replace":
			opts = append(opts, millrace.UniqueReplace())
		case ok && word != "return":
			u.refuse("on_conflict", "must be return, reject or replace")
		}
		switch word, ok := u.text("until"); {
		case ok && word == "start":
			opts = append(opts, millrace.UniqueUntil(millrace.UntilStart))
		case ok && word == "terminal":
			opts = append(opts, millrace.UniqueUntil(millrace.UntilTerminal))
		case ok && word != "ttl":
			u.refuse("until", "must be ttl, start or terminal")
		}
		o.within("unique", u.done())
	}
	return opts
}

// taskLimits reads the fields of a new task that are settings of its job, and returns the job with
// them. Absent ones are those of the queue.
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
