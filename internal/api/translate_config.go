package api

import (
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// queueConfig reads a queue's configuration; its version, which is read-only, is not looked at.
// 0 and unset mean the default of the server, but where 0 is a word for off. Errors name the field
// within the configuration.
func (t *Translator) queueConfig(in *pb.QueueConfig) (c core.QueueConfig, fact core.Fact) {
	if in == nil {
		return c, edge.Invalid("", "is required")
	}
	if fact = count("max_attempts", in.GetMaxAttempts(), "max_attempts", t.l.Attempts); fact != nil {
		return c, fact
	}
	if fact = count("max_crashes", in.GetMaxCrashes(), "max_crashes", t.l.Crashes); fact != nil {
		return c, fact
	}
	c.MaxAttempts, c.MaxCrashes = in.GetMaxAttempts(), in.GetMaxCrashes()
	// 0 is off, unset the default, so the field is optional.
	if c.MaxDeliveries, fact = t.deliveries(in.MaxDeliveries); fact != nil {
		return c, fact
	}
	if c.Lease, fact = Millis("lease", in.GetLease(), LeaseSpan(t.l)); fact != nil {
		return c, fact
	}
	if c.MaxRun, fact = Millis("max_run", in.GetMaxRun(), PositiveSpan(t.l)); fact != nil {
		return c, fact
	}
	if c.Retry, fact = t.retry(in.GetRetry()); fact != nil {
		return c, fact
	}
	// A queue may allow less than the server, not more.
	if in.GetMaxPayload() < 0 || in.GetMaxPayload() > t.l.PayloadBytes {
		return c, edge.Beyond("max_payload", "payload_bytes", t.l.PayloadBytes, "is out of range")
	}
	c.MaxPayload = in.GetMaxPayload()
	if c.Limits, fact = t.queueLimits(in); fact != nil {
		return c, fact
	}
	if c.Share, fact = t.queueShare(in); fact != nil {
		return c, fact
	}
	return c, t.spans(&c, in)
}

// queueLimits reads the bounds of a queue.
// They are newer than other settings: a cluster that has not finished its upgrade refuses them.
func (t *Translator) queueLimits(in *pb.QueueConfig) (q core.QueueLimits, fact core.Fact) {
	if q.CancelGrace, fact = Millis("cancel_grace", in.GetCancelGrace(), Span{Max: core.MaxCancelGrace, Limit: "cancel_grace_ms"}); fact != nil {
		return q, fact
	}
	// Given as 0 it means none, which is stored as -1: 0 is the default.
	if in.GetCancelGrace() != nil && q.CancelGrace == 0 {
		q.CancelGrace = -1
	}
	if q.DefaultTTL, fact = Millis("default_ttl", in.GetDefaultTtl(), PositiveSpan(t.l)); fact != nil {
		return q, fact
	}
	switch {
	// 0 stands for unbounded.
	case in.GetMaxTasks() < 0:
		return q, edge.Invalid("max_tasks", "must not be negative")
	case in.GetMaxBytes() < 0:
		return q, edge.Invalid("max_bytes", "must not be negative")
	}
	q.MaxTasks, q.MaxBytes = in.GetMaxTasks(), in.GetMaxBytes()
	if fact = t.ceilings(&q, in.GetCeilings()); fact != nil {
		return q, edge.Within("ceilings", fact)
	}
	return q, nil
}

// ceilings reads what a task of a queue may ask for itself at most.
// 0: only that of the server.
func (t *Translator) ceilings(q *core.QueueLimits, in *pb.QueueCeilings) (fact core.Fact) {
	// Each ceiling has the bounds of the field of a task that it is a ceiling of.
	for _, c := range [...]struct {
		field string
		n     int32
		limit string
		top   int64
		to    *int32
	}{
		{"max_attempts", in.GetMaxAttempts(), "max_attempts", t.l.Attempts, &q.CeilingAttempts},
		{"max_crashes", in.GetMaxCrashes(), "max_crashes", t.l.Crashes, &q.CeilingCrashes},
		{"max_deliveries", in.GetMaxDeliveries(), "max_deliveries", t.l.Deliveries, &q.CeilingDeliveries},
		{"priority", in.GetPriority(), "priority", t.l.Priority, &q.CeilingPriority},
	} {
		if fact = count(c.field, c.n, c.limit, c.top); fact != nil {
			return fact
		}
		*c.to = c.n
	}
	if q.CeilingLease, fact = Millis("lease", in.GetLease(), LeaseSpan(t.l)); fact != nil {
		return fact
	}
	q.CeilingMaxRun, fact = Millis("max_run", in.GetMaxRun(), PositiveSpan(t.l))
	return fact
}

// spans reads how long tasks wait and are kept.
func (t *Translator) spans(c *core.QueueConfig, in *pb.QueueConfig) (fact core.Fact) {
	if c.Aging, fact = t.orOff("aging", in.GetAging()); fact != nil {
		return fact
	}
	if c.RetainCompleted, fact = t.orOff("retain_completed", in.GetRetainCompleted()); fact != nil {
		return fact
	}
	if c.RetainCancelled, fact = t.orOff("retain_cancelled", in.GetRetainCancelled()); fact != nil {
		return fact
	}
	c.RetainDead, fact = t.orOff("retain_dead", in.GetRetainDead())
	return fact
}

// orOff reads a duration of which 0 means none at all, and unset the default.
// Off is stored as -1.
func (t *Translator) orOff(field string, d *durationpb.Duration) (core.Millis, core.Fact) {
	ms, fact := Millis(field, d, HorizonSpan(t.l))
	if fact == nil && d != nil && ms == 0 {
		return -1, nil
	}
	return ms, fact
}

// namespaceConfig reads the configuration of a namespace; its version, which is read-only, is not
// looked at.
func (t *Translator) namespaceConfig(in *pb.NamespaceConfig) (c core.NamespaceConfig, fact core.Fact) {
	if in == nil {
		return c, edge.Invalid("", "is required")
	}
	if in.GetRetainBytes() < 0 {
		return c, edge.Invalid("retain_bytes", "must not be negative")
	}
	for _, bound := range []struct {
		field string
		value int64
		to    *int64
	}{
		{"key_bytes", in.GetKeyBytes(), &c.KeyBytes},
		{"key_writes_per_second", in.GetKeyWritesPerSecond(), &c.KeyRate},
		{"key_bytes_per_second", in.GetKeyBytesPerSecond(), &c.KeyByteRate},
	} {
		if bound.value < 0 {
			return c, edge.Invalid(bound.field, "must not be negative")
		}
		*bound.to = bound.value
	}
	// Stored the other way round: a namespace without a configuration has it on.
	c.NoAutoCreate = in.AutoCreate != nil && !in.GetAutoCreate()
	c.RetainBytes = in.GetRetainBytes()
	c.CreateOnPush = in.GetCreateOnPush()
	return c, nil
}

// ifVersion reads the version that a change expects; -1 is any.
// 0 is that of a thing without a configuration of its own.
func ifVersion(v *uint64) (int64, core.Fact) {
	switch {
	case v == nil:
		return -1, nil
	case *v > math.MaxInt64:
		return 0, edge.Invalid("if_version", "is out of range")
	}
	return int64(*v), nil
}
