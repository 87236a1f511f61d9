package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// misfit is a field of an op that no state could make right; limit is set where its size is to blame.
type misfit struct{ field, limit string }

// misfits lists what an op may not say whatever the state: it is refused by one of these fields.
func misfits(op core.Op) []misfit {
	switch op := op.(type) {
	case *core.TaskCreate:
		return misfitsOfTask(op)
	case *core.KeySet:
		return misfitsOfKeySet(op)
	case *core.QueuePause:
		return misfitsOfName("queue", op.Queue)
	case *core.BulkStart:
		return misfitsOfBulk(op)
	case *core.CronSet:
		return misfitsOfCron(op)
	case *core.BatchOpen:
		return misfitsOfBatch(op)
	case *core.BatchCancel:
		if op.Rate > core.MaxBulkRate {
			return []misfit{{"rate", "bulk_rate"}}
		}
	case *core.LimiterSet:
		return misfitsOfLimiter(op.Name, &op.Config)
	case *core.LimiterDelete:
		return misfitsOfLimiter(op.Name, &core.LimiterConfig{})
	case *core.QueueDelete:
		return misfitsOfName("queue", op.Queue)
	case *core.QueueSet:
		return append(misfitsOfName("queue", op.Queue), misfitsOfConfig(&op.Config)...)
	case *core.NamespaceSet:
		if op.Config.RetainBytes < 0 {
			return []misfit{{field: "config.retain_bytes"}}
		}
		for field, bound := range map[string]int64{
			"config.key_bytes": op.Config.KeyBytes, "config.key_writes_per_second": op.Config.KeyRate, "config.key_bytes_per_second": op.Config.KeyByteRate,
		} {
			if bound < 0 {
				return []misfit{{field: field}}
			}
		}
	case *core.TenantSet:
		return misfitsOfTenant(op)
	case *core.TenantQuota:
		return misfitsOfQuota(op)
	case *core.SessionKeyAdd:
		if len(op.Secret) != 32 {
			return []misfit{{field: "secret"}}
		}
	case *core.KVPut:
		out := misfitsOfKey(op.Keyspace, op.Key)
		if len(op.Value) > 3<<19 {
			out = append(out, misfit{"value", "value_bytes"})
		}
		if op.IfAbsent && op.HasRev && op.IfRev != 0 {
			out = append(out, misfit{field: "if_absent"})
		}
		return out
	case *core.KVDelete:
		return misfitsOfKey(op.Keyspace, op.Key)
	case *core.KVCheck:
		return misfitsOfKey(op.Keyspace, op.Key)
	}
	return nil
}

func misfitsOfTask(op *core.TaskCreate) []misfit {
	out := misfitsOfName("queue", op.Queue)
	if op.TaskKind != "" {
		out = append(out, misfitsOfName("kind", op.TaskKind)...)
	}
	if op.ID == (core.TaskID{}) {
		out = append(out, misfit{field: "id"})
	}
	if op.Priority > 9 {
		out = append(out, misfit{field: "priority"})
	}
	if (op.Unique.Until != core.UniqueTTL || op.Unique.Replace) && op.Unique.Key == "" {
		out = append(out, misfit{field: "unique.key"})
	}
	if op.Unique.Until > core.UniqueTerminal {
		out = append(out, misfit{field: "unique.until"})
	}
	if op.Unique.Replace && op.Unique.Reject {
		out = append(out, misfit{field: "unique.on_conflict"})
	}
	if len(op.Unique.Key) > 256 {
		out = append(out, misfit{"unique.key", "unique_key"})
	}
	if len(op.Tag) > 128 {
		out = append(out, misfit{"tag", "tag_bytes"})
	}
	return slices.Concat(out, misfitsOfLabels(op.Labels), misfitsOfShare(op), misfitsOfAfter(op))
}

// misfitsOfUpdate lists what an edit may not say. It is not a misfit of the op alone, as the state of the task is judged first.
func misfitsOfUpdate(op *core.TaskUpdate) []misfit {
	out := misfitsOfLabels(op.Labels)
	if op.HasPriority && op.Priority > 9 {
		out = append(out, misfit{field: "priority"})
	}
	return out
}

// misfitsOfLabels: few and short, each name once, in order.
func misfitsOfLabels(labels []core.Label) []misfit {
	var out []misfit
	if len(labels) > core.MaxLabels {
		out = append(out, misfit{"labels", "labels"})
	}
	for i, l := range labels {
		switch {
		case len(l.Name) > core.MaxLabelName:
			out = append(out, misfit{"labels", "label_name"})
		case len(l.Value) > core.MaxLabelValue:
			out = append(out, misfit{"labels", "label_value"})
		case l.Name == "" || strings.ContainsRune(l.Name+l.Value, 0) || i > 0 && labels[i-1].Name >= l.Name:
			out = append(out, misfit{field: "labels"})
		}
	}
	return out
}

// misfitsOfName judges only the length of a name: its alphabet is the edge's matter.
func misfitsOfName(field, name string) []misfit {
	if name == "" || len(name) > 128 {
		return []misfit{{field: field}}
	}
	return nil
}

func misfitsOfKey(space string, key []byte) []misfit {
	out := misfitsOfName("keyspace", space)
	switch {
	case len(key) == 0:
		out = append(out, misfit{field: "key"})
	case len(key) > 16<<10:
		out = append(out, misfit{"key", "key_bytes"})
	}
	return out
}

// misfitsOfConfig holds a queue's configuration to its documented ranges. Zero leaves a field to its default.
func misfitsOfConfig(c *core.QueueConfig) []misfit {
	const (
		hour    = 3_600_000
		horizon = 10 * 366 * 24 * hour // of every delay
		off     = -1                   // allowed where a field can be switched off
	)
	var out []misfit
	within := func(field string, value, least, most int64, extra ...int64) {
		for _, ok := range append(extra, 0) {
			if value == ok {
				return
			}
		}
		if value < least || value > most {
			out = append(out, misfit{field: "config." + field})
		}
	}
	within("max_attempts", int64(c.MaxAttempts), 1, 1000)
	within("max_crashes", int64(c.MaxCrashes), 1, 1000)
	within("max_deliveries", int64(c.MaxDeliveries), 1, 1_000_000, off)
	within("lease", int64(c.Lease), 1000, 24*hour)
	within("max_run", int64(c.MaxRun), 1, horizon)
	within("retry.backoff", int64(c.Retry.Backoff), 1, int64(core.BackoffEqualJitter))
	within("retry.base", int64(c.Retry.Base), 1, horizon)
	within("retry.factor", int64(c.Retry.FactorPercent), 100, 10_000)
	within("retry.max", int64(c.Retry.Max), 1, horizon)
	within("max_payload", c.MaxPayload, 1, 1<<20)
	within("aging", int64(c.Aging), 1, horizon, off)
	within("retention.completed", int64(c.RetainCompleted), 1, horizon, off)
	within("retention.cancelled", int64(c.RetainCancelled), 1, horizon, off)
	within("retention.dead", int64(c.RetainDead), 1, horizon, off)
	l := &c.Limits
	within("cancel_grace", int64(l.CancelGrace), 1, 24*hour, off)
	within("default_ttl", int64(l.DefaultTTL), 1, horizon)
	within("max_tasks", l.MaxTasks, 1, math.MaxInt64)
	within("max_bytes", l.MaxBytes, 1, math.MaxInt64)
	within("ceilings.max_attempts", int64(l.CeilingAttempts), 1, 1000)
	within("ceilings.max_crashes", int64(l.CeilingCrashes), 1, 1000)
	within("ceilings.max_deliveries", int64(l.CeilingDeliveries), 1, 1_000_000)
	within("ceilings.lease", int64(l.CeilingLease), 1000, 24*hour)
	within("ceilings.max_run", int64(l.CeilingMaxRun), 1, horizon)
	within("ceilings.priority", int64(l.CeilingPriority), 1, 9)
	return append(out, misfitsOfQueueShare(&c.Share)...)
}

// judgeMisfit wants a refusal that names one of the fields.
func judgeMisfit(op core.Op, bad []misfit, a answer) error {
	for _, b := range bad {
		switch f := a.fact.(type) {
		case core.Invalid:
			if b.limit == "" && f.Field == b.field {
				return nil
			}
		case core.TooLarge:
			if b.limit != "" && f.Limit == b.limit {
				return nil
			}
		}
	}
	return fmt.Errorf("%T is out of bounds in %v: answered %s", op, bad, a)
}
