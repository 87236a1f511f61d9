package core

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/errs"
)

// Fact is the reason for a refusal. Facts are matched by type, never by text. Each has one code, which Apply writes and
// edges send; an edge gives each code a status of its protocol. The facts are the types of this package with a Code, and
// types of edges that embed one of these.
type Fact interface {
	error
	Code() errs.Code
}

// OutcomeUnknown reports whether a refusal leaves open whether what was asked for was done.
func OutcomeUnknown(f Fact) bool {
	switch f := f.(type) {
	case Unavailable:
		return f.Unknown
	case DeadlineExceeded:
		return f.Unknown
	}
	return false
}

// NotFound says that a thing is unknown, or another tenant's: the caller cannot tell which.
type NotFound struct {
	Kind string // task, queue, batch, limiter, key, keyspace, namespace
	ID   string // as the caller gave it
}

// AlreadyExists says that an id or unique key is taken with other content.
type AlreadyExists struct {
	Kind string // task, unique, request, namespace
	// What is taken: the id, the unique key or the name, as the caller gave it.
	ID string
}

// LeaseLost refuses a settle, heartbeat or effect whose token no longer owns its task. It never carries the live
// token: a worker that lost a lease must not learn the one that would let it act.
type LeaseLost struct {
	Task TaskID
	// The token that the caller showed.
	Given Token
}

// WrongState says that an op does not apply to the state a task is in, and names that state. Without a task it is about a
// queue that has tasks in that state.
type WrongState struct {
	Task  TaskID
	State State
}

// RevMismatch says that a key's condition is false, or that of the configuration of a queue or a cron, and what was found.
type RevMismatch struct {
	Rev   uint64 // the key's revision, or the version of the configuration; 0 when absent
	Value []byte // the key's value, when the caller may read it; nil when absent
	// The key is absent.
	Missing  bool
	Keyspace string
	Key      []byte // without a keyspace it is the name of the queue or the cron
}

// WrongPartition lists the ops of a commit that do not belong to its partition.
type WrongPartition struct{ Ops []int }

// QueuePinned refuses a task of a pinned queue outside its partition.
type QueuePinned struct{ Queue string }

// Exhausted says that a quota or bound is used up: the limit's name and its value.
type Exhausted struct {
	// Name of the limit, as clients know it.
	Limit string
	Max   int64
}

// TooLarge says that one thing is larger than its limit.
type TooLarge struct {
	Field string // path, such as tasks[3].payload; may be empty
	Limit string
	Max   int64
}

// Invalid says that a field holds what it may not.
type Invalid struct {
	Field   string // path, such as ops[1].key
	Reason  string // snake_case, may be empty; not_supported for what is reserved and not built
	Message string // one clause a person understands
}

// OutOfRange is an Invalid that breaks a limit, which it names.
type OutOfRange struct {
	Invalid
	Limit string
	// Its value.
	Max int64
}

// NotEmpty refuses the removal of a namespace that holds something.
type NotEmpty struct {
	Held []string // kinds of what a partition holds: tasks, crons, batches, keys, repositories, collections, rulesets
}

// InUse refuses the removal of a thing that others name.
type InUse struct {
	Kind string // limiter
	ID   string // its name
	By   string // who names it: "queue mail", "tasks: 12"
}

// SessionExpired says that a session's commit sequence was forgotten, or is older than what is kept: whether the
// commit was applied is unknown.
type SessionExpired struct{}

func (NotFound) Code() errs.Code        { return errs.NotFound }
func (AlreadyExists) Code() errs.Code   { return errs.AlreadyExists }
func (LeaseLost) Code() errs.Code       { return errs.LeaseLost }
func (WrongState) Code() errs.Code      { return errs.WrongState }
func (WrongBatch) Code() errs.Code      { return errs.WrongState }
func (RevMismatch) Code() errs.Code     { return errs.PreconditionFailed }
func (WrongPartition) Code() errs.Code  { return errs.WrongPartition }
func (QueuePinned) Code() errs.Code     { return errs.WrongPartition }
func (Exhausted) Code() errs.Code       { return errs.ResourceExhausted }
func (TooLarge) Code() errs.Code        { return errs.TooLarge }
func (Invalid) Code() errs.Code         { return errs.InvalidArgument }
func (NotEmpty) Code() errs.Code        { return errs.WrongState }
func (InUse) Code() errs.Code           { return errs.WrongState }
func (SessionExpired) Code() errs.Code  { return errs.WrongState }
func (WrongMembership) Code() errs.Code { return errs.WrongState }

func (e NotFound) Error() string { return fmt.Sprintf("%s %q not found", e.Kind, e.ID) }
func (e AlreadyExists) Error() string {
	return fmt.Sprintf("%s %q exists with other content", e.Kind, e.ID)
}

func (e LeaseLost) Error() string {
	return fmt.Sprintf("task %s: token %d lost its lease", e.Task, e.Given)
}

func (e WrongState) Error() string {
	if e.Task.IsZero() {
		return fmt.Sprintf("the queue has tasks that are %s", e.State)
	}
	return fmt.Sprintf("task %s is %s", e.Task, e.State)
}

func (e WrongBatch) Error() string { return fmt.Sprintf("batch %s is %s", e.Batch, e.State) }

func (e RevMismatch) Error() string {
	switch ofConfig := e.Keyspace == "" && len(e.Key) > 0; {
	case ofConfig && e.Missing:
		return fmt.Sprintf("%q is not there", e.Key)
	case ofConfig:
		return fmt.Sprintf("%q is at version %d", e.Key, e.Rev)
	case e.Missing:
		return fmt.Sprintf("key %q of keyspace %q is absent", e.Key, e.Keyspace)
	}
	return fmt.Sprintf("key %q of keyspace %q is at revision %d", e.Key, e.Keyspace, e.Rev)
}

func (e WrongPartition) Error() string {
	parts := make([]string, len(e.Ops))
	for i, op := range e.Ops {
		parts[i] = fmt.Sprintf("ops[%d]", op)
	}
	return "outside the commit's partition: " + strings.Join(parts, ", ")
}

func (e QueuePinned) Error() string {
	return fmt.Sprintf("queue %q is bounded or ordered as a whole: its tasks are made in partition %d", e.Queue, PinnedPartition)
}

func (e Exhausted) Error() string { return fmt.Sprintf("limit %s of %d reached", e.Limit, e.Max) }
func (e TooLarge) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("larger than limit %s of %d", e.Limit, e.Max)
	}
	return fmt.Sprintf("%s is larger than limit %s of %d", e.Field, e.Limit, e.Max)
}

func (e Invalid) Error() string {
	if e.Message == "" {
		return e.Field + " is invalid"
	}
	return e.Field + ": " + e.Message
}

func (e NotEmpty) Error() string {
	return "the namespace is not empty: it has " + strings.Join(e.Held, ", ")
}

func (e InUse) Error() string          { return fmt.Sprintf("%s %q is in use by %s", e.Kind, e.ID, e.By) }
func (e SessionExpired) Error() string { return "session expired" }

// The rest are facts of a node or an edge, not of Apply.

// Unavailable says that a node cannot serve now; Limit names the full queue, if one was. Unknown says that the
// proposal had left: whether it was applied is not known, and repeating it under the same id or token is safe.
type Unavailable struct {
	Reason  string // snake_case: no_leader, overload, stopping, starting
	Limit   string
	Unknown bool
}

// DeadlineExceeded says that a caller's deadline passed. Unknown as in Unavailable. Stage is that of a search, for its caller
// alone: it is not encoded.
type DeadlineExceeded struct {
	Unknown bool
	Stage   string
}

// Unauthenticated says that no valid token came, or that it ended before the call did.
type Unauthenticated struct{}

// Denied says that a token lacks a scope.
type Denied struct{ Scope string }

// RateLimited says that a caller is too fast.
type RateLimited struct {
	// Name of the rate, as clients know it.
	Limit string
	// After this time a call may succeed.
	RetryAfter Millis
}

// NotLeader says that another node leads the shard. Leader is its address, empty if unknown.
type NotLeader struct{ Leader string }

func (Unavailable) Code() errs.Code      { return errs.Unavailable }
func (DeadlineExceeded) Code() errs.Code { return errs.DeadlineExceeded }
func (Unauthenticated) Code() errs.Code  { return errs.Unauthenticated }
func (Denied) Code() errs.Code           { return errs.PermissionDenied }
func (RateLimited) Code() errs.Code      { return errs.RateLimited }
func (NotLeader) Code() errs.Code        { return errs.NotLeader }
func (FormatHeld) Code() errs.Code       { return errs.WrongState }
func (NotMoved) Code() errs.Code         { return errs.WrongState }

func (e Unavailable) Error() string      { return "unavailable: " + e.Reason }
func (e DeadlineExceeded) Error() string { return "deadline exceeded" }
func (e Unauthenticated) Error() string  { return "no valid token" }
func (e Denied) Error() string           { return "scope " + e.Scope + " is missing" }
func (e RateLimited) Error() string      { return "rate limit " + e.Limit }
func (e NotLeader) Error() string        { return "not the leader of the shard" }
