package api

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// TimeOf shows a shard time; 0 and never are unset.
// Milliseconds are all that a shard time has.
func TimeOf(t core.ShardTime) *timestamppb.Timestamp {
	if t <= 0 || t == core.Never {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: int64(t) / second, Nanos: int32(int64(t)%second) * int32(time.Millisecond)}
}

// spanOf shows a duration; 0 is unset.
func spanOf(d core.Millis) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return &durationpb.Duration{Seconds: int64(d) / second, Nanos: int32(int64(d)%second) * int32(time.Millisecond)}
}

// spanOrOff shows a duration of which -1 means none at all, which is 0 on the wire.
func spanOrOff(d core.Millis) *durationpb.Duration {
	if d < 0 {
		return &durationpb.Duration{}
	}
	return spanOf(d)
}

// ShowAt shows where an answer stands.
func ShowAt(a core.At) *pb.At {
	return &pb.At{Partition: uint32(a.Partition), Index: a.Index, Epoch: a.Epoch, Stamp: TimeOf(a.Stamp)}
}

// AtOf is where one commit stands: a replayed one where it was applied first, when that is known.
// A repetition changes nothing: what it stands for is in an older entry.
func AtOf(r core.Result, a core.At) core.At {
	if r.Index != 0 {
		a.Index = r.Index
	}
	return a
}

// ShowTask shows a task as it is stored.
// Whether payload and result are there depends on how it was read. Bounds that are off show as 0.
func ShowTask(t *core.Task) *pb.Task {
	return &pb.Task{
		Id: t.ID.String(), Queue: t.Queue, Kind: t.Kind, State: pb.State(t.State), Reason: t.Reason,
		Payload: t.Payload, ContentType: t.ContentType, Headers: showHeaders(t.Headers), Priority: uint32(t.Priority),
		RunAt: TimeOf(t.RunAt), UniqueKey: t.Unique,
		MaxAttempts: t.MaxAttempts, MaxCrashes: t.MaxCrashes, MaxDeliveries: max(t.MaxDeliveries, 0),
		Lease: spanOf(t.Lease), MaxRun: spanOf(t.MaxRun),
		Attempt: t.Attempt, Failures: t.Failures, Crashes: t.Crashes, Snoozes: t.Snoozes, Redrives: t.Redrives,
		CreatedAt: TimeOf(t.CreatedAt), ReadyAt: TimeOf(t.ReadyAt), StartedAt: TimeOf(t.StartedAt),
		FinishedAt: TimeOf(t.FinishedAt), Creator: t.Creator, Worker: t.Worker, LeaseUntil: TimeOf(t.LeaseUntil),
		Result: t.Result, ResultType: t.ResultType, HasResult: t.HasResult, Error: showError(t.Error), Tag: t.Tag, Key: t.Key, Cost: t.Cost, Limiters: t.Limiters,
		Labels: showLabels(t.Labels), ExpiresAt: TimeOf(t.ExpiresAt), Cancel: showCancel(t.Cancel),
		Progress:    showProgress(t.Progress),
		Fingerprint: t.Fingerprint.String(),
		After:       showAfter(t.After), OnDepFailure: showOnDepFailure(t), Pending: t.Pending, Dependents: t.Dependents, Batch: showTaskID(t.Batch),
	}
}

// showTaskID shows the id of a task or a batch; none is empty.
func showTaskID(id core.TaskID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// showLabels shows the labels of a task; none are unset.
func showLabels(in []core.Label) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for _, l := range in {
		out[l.Name] = l.Value
	}
	return out
}

// showProgress shows how far a task is; unset where its worker told nothing.
func showProgress(p core.Progress) *pb.Progress {
	if p.At == 0 {
		return nil
	}
	return &pb.Progress{Percent: uint32(p.Percent), Message: p.Message, At: TimeOf(p.At)}
}

// showCancel shows who asked for a cancel; unset where it was not asked for.
func showCancel(c core.CancelAsked) *pb.CancelAsked {
	if c.At == 0 {
		return nil
	}
	return &pb.CancelAsked{At: TimeOf(c.At), By: c.By, Reason: c.Reason, Force: c.Force, Until: TimeOf(c.Until)}
}

// showHeaders shows a task's headers.
func showHeaders(in []core.Header) []*pb.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]*pb.Header, len(in))
	for i, h := range in {
		out[i] = &pb.Header{Name: h.Name, Value: h.Value}
	}
	return out
}

// showError shows how an attempt failed; nil: it did not.
func showError(e core.TaskError) *pb.TaskError {
	if e == (core.TaskError{}) {
		return nil
	}
	return &pb.TaskError{Code: e.Code, Message: e.Message, Stack: e.Stack}
}

// showAttempt shows one attempt of a task.
// An attempt that runs has no end.
func showAttempt(a core.Attempt) *pb.Attempt {
	out := &pb.Attempt{
		Number: a.Number, Worker: a.Worker, Start: TimeOf(a.Start), End: TimeOf(a.End), Outcome: pb.Outcome(a.Outcome),
		Error: showError(a.Error), Index: a.Index, Fingerprint: a.Fingerprint.String(),
		ReadyAt: TimeOf(a.ReadyAt), LeaseUntil: TimeOf(a.LeaseUntil), RetryAt: TimeOf(a.RetryAt),
	}
	if a.End != 0 { // the token of one that runs is its worker's alone
		out.Token = uint64(a.Token)
	}
	if a.Session != (core.SessionID{}) {
		out.Session = sessionName(a.Session)
	}
	return out
}

// ShowAssigned shows tasks that a worker was given; now tells how much of each lease is left.
// Times are in milliseconds, which cost less than messages: this is what workers wait for.
func ShowAssigned(tasks []core.Assigned, now core.ShardTime) []*pb.Assignment {
	out := make([]*pb.Assignment, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		out[i] = &pb.Assignment{
			Id: t.Task.String(), Token: uint64(t.Token), Attempt: t.Attempt, Queue: t.Queue, Kind: t.Kind,
			Payload: t.Payload, ContentType: t.ContentType, Headers: showHeaders(t.Headers), Priority: uint32(t.Priority),
			LeaseMs: uint64(max(t.Lease, 0)), LeaseLeftMs: uint64(max(t.LeaseUntil-now, 0)),
			MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes, CreatedMs: int64(t.CreatedAt), Checkpoint: t.Checkpoint,
			MaxRunMs: uint64(max(t.MaxRun, 0)), Tag: t.Tag, ReadyMs: int64(t.ReadyAt),
		}
	}
	return out
}

// AssignedBytes bounds what one assigned task takes on the wire.
// 180 is more than its numbers, times and tags take.
func AssignedBytes(t *core.Assigned) int {
	n := 180 + len(t.Payload) + len(t.Checkpoint) + len(t.Tag) + len(t.Queue) + len(t.Kind) + len(t.ContentType)
	for _, h := range t.Headers {
		n += 12 + len(h.Name) + len(h.Value)
	}
	return n
}

// TaskBytes bounds what a task takes on the wire in a list.
// 512 is more than all else takes.
func TaskBytes(t *core.Task) int {
	n := 512 + len(t.Queue) + len(t.Kind) + len(t.ContentType) + len(t.Unique) + len(t.Tag) + len(t.Creator) + len(t.Worker) +
		len(t.Payload) + len(t.Result) + len(t.ResultType) + len(t.Error.Code) + len(t.Error.Message) + len(t.Error.Stack)
	for _, h := range t.Headers {
		n += 12 + len(h.Name) + len(h.Value)
	}
	for _, l := range t.Labels {
		n += 12 + len(l.Name) + len(l.Value)
	}
	n += 48*len(t.After) + 28
	return n + len(t.Cancel.By) + len(t.Cancel.Reason) + len(t.Progress.Message)
}

// showStats shows a queue's counters.
// Totals count from the first task on, the others are of now.
func showStats(q *core.QueueStats) *pb.QueueStats {
	return &pb.QueueStats{
		Queue: q.Queue, Blocked: q.States[core.Blocked], Scheduled: q.States[core.Scheduled], Ready: q.States[core.Ready],
		Running: q.States[core.Running], Completed: q.States[core.Completed], Dead: q.States[core.Dead],
		Cancelled: q.States[core.Cancelled], Created: q.Created, Purged: q.Purged, CompletedTotal: q.Completed,
		FailedTotal: q.Failed, CrashedTotal: q.Crashed, Bytes: q.Bytes, OldestReady: TimeOf(q.OldestReady),
		Paused: showPaused(q.Paused), DeadLettersLost: q.LettersLost,
	}
}

// showPaused shows why a queue gives out no tasks; unset where it does.
func showPaused(p core.QueuePaused) *pb.QueuePaused {
	if p.Since == 0 {
		return nil
	}
	return &pb.QueuePaused{Since: TimeOf(p.Since), Until: TimeOf(p.Until), By: p.By, Reason: p.Reason}
}

// showQueueConfig shows a queue's configuration. What was never set is unset, so that a client may
// send back what it read.
func showQueueConfig(c core.QueueConfig) *pb.QueueConfig {
	out := &pb.QueueConfig{
		Version: c.Version, MaxAttempts: c.MaxAttempts, MaxCrashes: c.MaxCrashes, Lease: spanOf(c.Lease),
		MaxRun: spanOf(c.MaxRun), MaxPayload: c.MaxPayload, Aging: spanOrOff(c.Aging),
		RetainCompleted: spanOrOff(c.RetainCompleted), RetainCancelled: spanOrOff(c.RetainCancelled),
		RetainDead: spanOrOff(c.RetainDead),
	}
	if c.MaxDeliveries != 0 {
		n := max(c.MaxDeliveries, 0)
		out.MaxDeliveries = &n
	}
	if !c.Retry.IsZero() {
		out.Retry = showRetry(c.Retry)
	}
	l := &c.Limits
	out.CancelGrace, out.DefaultTtl, out.MaxTasks, out.MaxBytes = spanOrOff(l.CancelGrace), spanOf(l.DefaultTTL), l.MaxTasks, l.MaxBytes
	out.Ceilings = showCeilings(l)
	showShare(out, &c.Share)
	out.DeadLetter, out.Pinned = c.Share.DeadLetter, c.Share.Pins()
	return out
}

// showRetry shows the pauses between attempts.
func showRetry(r core.Retry) *pb.Retry {
	return &pb.Retry{Backoff: pb.Backoff(r.Backoff), Base: spanOf(r.Base), Max: spanOf(r.Max), Factor: float64(r.FactorPercent) / 100}
}

// showCeilings shows what tasks may ask for; unset: there are no bounds.
func showCeilings(l *core.QueueLimits) *pb.QueueCeilings {
	out := &pb.QueueCeilings{
		MaxAttempts: l.CeilingAttempts, MaxCrashes: l.CeilingCrashes, MaxDeliveries: l.CeilingDeliveries, Lease: spanOf(l.CeilingLease),
		MaxRun: spanOf(l.CeilingMaxRun), Priority: l.CeilingPriority,
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// showNamespaceConfig shows a namespace's configuration.
// auto_create is always shown, since its default is true.
func showNamespaceConfig(c core.NamespaceConfig) *pb.NamespaceConfig {
	auto := !c.NoAutoCreate
	return &pb.NamespaceConfig{
		Version: c.Version, AutoCreate: &auto, RetainBytes: c.RetainBytes, CreateOnPush: c.CreateOnPush,
		KeyBytes: c.KeyBytes, KeyWritesPerSecond: c.KeyRate, KeyBytesPerSecond: c.KeyByteRate,
	}
}

// sessionName names the session of a stream to readers. It is a part of a hash: who knows the id itself can resume the session.
func sessionName(id core.SessionID) string {
	sum := sha256.Sum256(id[:])
	return hex.EncodeToString(sum[:8])
}
