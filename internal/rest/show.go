package rest

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// Bodies of answers. Numbers that are handed back or compared (token, index, rev, version) are strings, counts are
// numbers; a payload or result stands as it was stored when it is JSON.

// wordOf is the name of a number of an enumeration.
func wordOf(words []string, n int32) string {
	if n < 0 || int(n) >= len(words) {
		return ""
	}
	return words[n]
}

func writeError(w *jsonWriter, e *pb.Error) {
	w.Object("error", func() {
		w.Str("code", e.GetCode())
		w.OptStr("reason", e.GetReason())
		w.Str("message", e.GetMessage())
		w.OptStr("field", e.GetField())
		if e.Op != nil {
			w.Int("op", int64(e.GetOp()))
		}
		if len(e.GetDetails()) > 0 {
			w.Texts("details", e.GetDetails())
		}
		w.OptStr("limit", e.GetLimit())
		w.OptInt("max", e.GetMax())
		if d := e.GetRetryAfter(); d != nil {
			w.Int("retry_after_ms", d.AsDuration().Milliseconds())
		}
		w.OptStr("leader", e.GetLeader())
		writeFailures(w, e.GetFailures())
		if e.GetOutcome() == pb.Error_UNKNOWN {
			w.Str("outcome", "unknown")
		} else {
			w.Str("outcome", "refused")
		}
	})
}

// writeTask writes a task; with content, also its payload and result.
func writeTask(w *jsonWriter, t *pb.Task, content bool) {
	w.Str("id", t.GetId())
	w.Str("queue", t.GetQueue())
	w.Str("kind", t.GetKind())
	w.Str("state", wordOf(stateWords, int32(t.GetState())))
	w.OptStr("reason", t.GetReason())
	if content {
		w.content("payload", t.GetPayload(), t.GetContentType())
	}
	w.Str("content_type", t.GetContentType())
	w.headers(t.GetHeaders())
	w.Int("priority", int64(t.GetPriority()))
	w.time("run_at", t.GetRunAt())
	w.OptStr("unique_key", t.GetUniqueKey())
	w.OptStr("tag", t.GetTag())
	w.Int("max_attempts", int64(t.GetMaxAttempts()))
	w.Int("max_crashes", int64(t.GetMaxCrashes()))
	w.Int("max_deliveries", int64(t.GetMaxDeliveries()))
	w.duration("lease", t.GetLease())
	w.duration("max_run", t.GetMaxRun())
	w.Int("attempt", int64(t.GetAttempt()))
	w.Int("failures", int64(t.GetFailures()))
	w.Int("crashes", int64(t.GetCrashes()))
	w.Int("snoozes", int64(t.GetSnoozes()))
	w.Int("redrives", int64(t.GetRedrives()))
	w.time("created_at", t.GetCreatedAt())
	w.time("ready_at", t.GetReadyAt())
	w.time("started_at", t.GetStartedAt())
	w.time("finished_at", t.GetFinishedAt())
	w.OptStr("creator", t.GetCreator())
	w.OptStr("worker", t.GetWorker())
	w.time("lease_until", t.GetLeaseUntil())
	w.Bool("has_result", t.GetHasResult())
	if content && t.GetHasResult() {
		w.content("result", t.GetResult(), t.GetResultType())
	}
	w.OptStr("result_type", t.GetResultType())
	writeTaskError(w, t.GetError())
}

func writeTaskError(w *jsonWriter, e *pb.TaskError) {
	if e == nil {
		return
	}
	w.Object("error", func() {
		w.OptStr("code", e.GetCode())
		w.OptStr("message", e.GetMessage())
		w.OptStr("stack", e.GetStack())
	})
}

// writeResult is what became of a task, for those who wait for its end.
func writeResult(w *jsonWriter, t *pb.Task) {
	w.Str("state", wordOf(stateWords, int32(t.GetState())))
	w.Bool("done", t.GetState() >= pb.State_COMPLETED)
	w.OptStr("reason", t.GetReason())
	if t.GetHasResult() {
		w.content("result", t.GetResult(), t.GetResultType())
		w.OptStr("result_type", t.GetResultType())
	}
	writeTaskError(w, t.GetError())
}

func writeAttempt(w *jsonWriter, a *pb.Attempt) {
	w.Int("number", int64(a.GetNumber()))
	w.OptStr("worker", a.GetWorker())
	w.time("start", a.GetStart())
	w.time("end", a.GetEnd())
	w.OptStr("outcome", wordOf(outcomeWords, int32(a.GetOutcome())))
	writeTaskError(w, a.GetError())
	w.Exact("index", a.GetIndex())
}

func writeAssignment(w *jsonWriter, a *pb.Assignment) {
	w.Str("id", a.GetId())
	w.Exact("token", a.GetToken())
	w.Int("attempt", int64(a.GetAttempt()))
	w.Str("queue", a.GetQueue())
	w.Str("kind", a.GetKind())
	w.content("payload", a.GetPayload(), a.GetContentType())
	w.Str("content_type", a.GetContentType())
	w.headers(a.GetHeaders())
	w.Int("priority", int64(a.GetPriority()))
	w.Key("lease")
	w.Seconds(int64(a.GetLeaseMs()))
	w.Key("lease_left")
	w.Seconds(int64(a.GetLeaseLeftMs()))
	w.Int("max_attempts", int64(a.GetMaxAttempts()))
	w.Int("failures", int64(a.GetFailures()))
	w.Int("crashes", int64(a.GetCrashes()))
	w.time("created_at", timestamppb.New(time.UnixMilli(a.GetCreatedMs())))
}

func writeCreated(w *jsonWriter, r *pb.CreateResult) {
	w.Str("id", r.GetId())
	if r.GetError() != nil {
		writeError(w, r.GetError())
		return
	}
	w.Bool("replayed", r.GetReplayed())
	if r.GetReplayed() {
		w.Bool("payload_matches", r.GetPayloadMatches())
	}
}

func writeSettled(w *jsonWriter, r *pb.SettleResult) {
	if r.GetError() != nil {
		w.OptBool("failed_instead", r.GetFailedInstead())
		writeError(w, r.GetError())
		return
	}
	w.Str("state", wordOf(stateWords, int32(r.GetState())))
	w.Bool("replayed", r.GetReplayed())
	w.OptBool("failed_instead", r.GetFailedInstead())
	if len(r.GetEffects()) > 0 {
		writeOpResults(w, "effects", r.GetEffects())
	}
}

func writeHeartbeat(w *jsonWriter, h *pb.HeartbeatResult) {
	w.Bool("lost", h.GetLost())
	w.time("lease_until", h.GetLeaseUntil())
}

func writeOpResults(w *jsonWriter, name string, results []*pb.OpResult) {
	w.List(name, len(results), func(i int) {
		r := results[i]
		w.Open('{')
		w.OptStr("task", r.GetTask())
		w.OptBool("replayed", r.GetReplayed())
		w.OptBool("payload_matches", r.GetPayloadMatches())
		w.OptStr("state", wordOf(stateWords, int32(r.GetState())))
		if r.GetRev() != 0 {
			w.Exact("rev", r.GetRev())
		}
		if r.GetPrev() != nil {
			w.AnyBytes("prev", r.GetPrev())
		}
		w.OptBool("existed", r.GetExisted())
		if r.GetSum() != 0 {
			w.Str("sum", strconv.FormatInt(r.GetSum(), 10))
		}
		if r.GetCount() != 0 {
			w.Count("count", r.GetCount())
		}
		writeMoved(w, r.GetRefs())
		w.OptStr("point_version", r.GetPointVersion())
		w.Close('}')
	})
}

func writeStats(w *jsonWriter, q *pb.QueueStats) {
	w.Str("queue", q.GetQueue())
	w.Count("blocked", q.GetBlocked())
	w.Count("scheduled", q.GetScheduled())
	w.Count("ready", q.GetReady())
	w.Count("running", q.GetRunning())
	w.Count("completed", q.GetCompleted())
	w.Count("dead", q.GetDead())
	w.Count("cancelled", q.GetCancelled())
	w.Count("created", q.GetCreated())
	w.Count("purged", q.GetPurged())
	w.Count("completed_total", q.GetCompletedTotal())
	w.Count("failed_total", q.GetFailedTotal())
	w.Count("crashed_total", q.GetCrashedTotal())
	w.Count("bytes", q.GetBytes())
	w.time("oldest_ready", q.GetOldestReady())
}

func writeQueueConfig(w *jsonWriter, c *pb.QueueConfig) {
	w.Exact("version", c.GetVersion())
	w.OptInt("max_attempts", int64(c.GetMaxAttempts()))
	w.OptInt("max_crashes", int64(c.GetMaxCrashes()))
	if c.MaxDeliveries != nil {
		w.Int("max_deliveries", int64(c.GetMaxDeliveries()))
	}
	w.duration("lease", c.GetLease())
	w.duration("max_run", c.GetMaxRun())
	if r := c.GetRetry(); r != nil {
		w.Object("retry", func() {
			w.OptStr("backoff", wordOf(backoffWords, int32(r.GetBackoff())))
			w.duration("base", r.GetBase())
			if r.GetFactor() != 0 {
				w.Float("factor", r.GetFactor())
			}
			w.duration("max", r.GetMax())
		})
	}
	w.OptInt("max_payload", c.GetMaxPayload())
	for _, d := range []struct {
		name string
		d    *durationpb.Duration
	}{
		{"aging", c.GetAging()},
		{"retain_completed", c.GetRetainCompleted()},
		{"retain_cancelled", c.GetRetainCancelled()},
		{"retain_dead", c.GetRetainDead()},
	} {
		w.duration(d.name, d.d)
	}
}

func writeNamespaceConfig(w *jsonWriter, c *pb.NamespaceConfig) {
	w.Exact("version", c.GetVersion())
	w.Bool("auto_create", c.GetAutoCreate())
	w.OptInt("retain_bytes", c.GetRetainBytes())
	w.Bool("create_on_push", c.GetCreateOnPush())
	w.OptInt("key_bytes", c.GetKeyBytes())
	w.OptInt("key_writes_per_second", c.GetKeyWritesPerSecond())
	w.OptInt("key_bytes_per_second", c.GetKeyBytesPerSecond())
}

func writePartitions(w *jsonWriter, partitions []*pb.PartitionInfo) {
	w.List("partitions", len(partitions), func(i int) {
		p := partitions[i]
		w.Open('{')
		w.Int("partition", int64(p.GetPartition()))
		w.Int("shard", int64(p.GetShard()))
		w.OptStr("address", p.GetAddress())
		w.Bool("led", p.GetLed())
		w.Close('}')
	})
}

func writeStatus(w *jsonWriter, s *pb.StatusResponse, counters bool) {
	w.Str("version", s.GetVersion())
	w.Str("durability", s.GetDurability())
	w.Str("node", s.GetNode())
	w.Int("shards", int64(s.GetShards()))
	if counters {
		w.Exact("applied_index", s.GetAppliedIndex())
		w.Count("fsyncs", s.GetFsyncs())
		w.Count("log_bytes", s.GetLogBytes())
		w.Count("entries", s.GetEntries())
		w.Count("store_mutations", s.GetStoreMutations())
	}
	w.time("started_at", s.GetStartedAt())
	w.Bool("disk_full", s.GetDiskFull())
}
