package api

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
	w.object("error", func() {
		w.str("code", e.GetCode())
		w.optStr("reason", e.GetReason())
		w.str("message", e.GetMessage())
		w.optStr("field", e.GetField())
		if e.Op != nil {
			w.int("op", int64(e.GetOp()))
		}
		if len(e.GetDetails()) > 0 {
			w.texts("details", e.GetDetails())
		}
		w.optStr("limit", e.GetLimit())
		w.optInt("max", e.GetMax())
		if d := e.GetRetryAfter(); d != nil {
			w.int("retry_after_ms", d.AsDuration().Milliseconds())
		}
		w.optStr("leader", e.GetLeader())
		writeFailures(w, e.GetFailures())
		if e.GetOutcome() == pb.Error_UNKNOWN {
			w.str("outcome", "unknown")
		} else {
			w.str("outcome", "refused")
		}
	})
}

// writeTask writes a task; with content, also its payload and result.
func writeTask(w *jsonWriter, t *pb.Task, content bool) {
	w.str("id", t.GetId())
	w.str("queue", t.GetQueue())
	w.str("kind", t.GetKind())
	w.str("state", wordOf(stateWords, int32(t.GetState())))
	w.optStr("reason", t.GetReason())
	if content {
		w.content("payload", t.GetPayload(), t.GetContentType())
	}
	w.str("content_type", t.GetContentType())
	w.headers(t.GetHeaders())
	w.int("priority", int64(t.GetPriority()))
	w.time("run_at", t.GetRunAt())
	w.optStr("unique_key", t.GetUniqueKey())
	w.optStr("tag", t.GetTag())
	w.int("max_attempts", int64(t.GetMaxAttempts()))
	w.int("max_crashes", int64(t.GetMaxCrashes()))
	w.int("max_deliveries", int64(t.GetMaxDeliveries()))
	w.duration("lease", t.GetLease())
	w.duration("max_run", t.GetMaxRun())
	w.int("attempt", int64(t.GetAttempt()))
	w.int("failures", int64(t.GetFailures()))
	w.int("crashes", int64(t.GetCrashes()))
	w.int("snoozes", int64(t.GetSnoozes()))
	w.int("redrives", int64(t.GetRedrives()))
	w.time("created_at", t.GetCreatedAt())
	w.time("ready_at", t.GetReadyAt())
	w.time("started_at", t.GetStartedAt())
	w.time("finished_at", t.GetFinishedAt())
	w.optStr("creator", t.GetCreator())
	w.optStr("worker", t.GetWorker())
	w.time("lease_until", t.GetLeaseUntil())
	w.bool("has_result", t.GetHasResult())
	if content && t.GetHasResult() {
		w.content("result", t.GetResult(), t.GetResultType())
	}
	w.optStr("result_type", t.GetResultType())
	writeTaskError(w, t.GetError())
}

func writeTaskError(w *jsonWriter, e *pb.TaskError) {
	if e == nil {
		return
	}
	w.object("error", func() {
		w.optStr("code", e.GetCode())
		w.optStr("message", e.GetMessage())
		w.optStr("stack", e.GetStack())
	})
}

// writeResult is what became of a task, for those who wait for its end.
func writeResult(w *jsonWriter, t *pb.Task) {
	w.str("state", wordOf(stateWords, int32(t.GetState())))
	w.bool("done", t.GetState() >= pb.State_COMPLETED)
	w.optStr("reason", t.GetReason())
	if t.GetHasResult() {
		w.content("result", t.GetResult(), t.GetResultType())
		w.optStr("result_type", t.GetResultType())
	}
	writeTaskError(w, t.GetError())
}

func writeAttempt(w *jsonWriter, a *pb.Attempt) {
	w.int("number", int64(a.GetNumber()))
	w.optStr("worker", a.GetWorker())
	w.time("start", a.GetStart())
	w.time("end", a.GetEnd())
	w.optStr("outcome", wordOf(outcomeWords, int32(a.GetOutcome())))
	writeTaskError(w, a.GetError())
	w.exact("index", a.GetIndex())
}

func writeAssignment(w *jsonWriter, a *pb.Assignment) {
	w.str("id", a.GetId())
	w.exact("token", a.GetToken())
	w.int("attempt", int64(a.GetAttempt()))
	w.str("queue", a.GetQueue())
	w.str("kind", a.GetKind())
	w.content("payload", a.GetPayload(), a.GetContentType())
	w.str("content_type", a.GetContentType())
	w.headers(a.GetHeaders())
	w.int("priority", int64(a.GetPriority()))
	w.key("lease")
	w.seconds(int64(a.GetLeaseMs()))
	w.key("lease_left")
	w.seconds(int64(a.GetLeaseLeftMs()))
	w.int("max_attempts", int64(a.GetMaxAttempts()))
	w.int("failures", int64(a.GetFailures()))
	w.int("crashes", int64(a.GetCrashes()))
	w.time("created_at", timestamppb.New(time.UnixMilli(a.GetCreatedMs())))
}

func writeCreated(w *jsonWriter, r *pb.CreateResult) {
	w.str("id", r.GetId())
	if r.GetError() != nil {
		writeError(w, r.GetError())
		return
	}
	w.bool("replayed", r.GetReplayed())
	if r.GetReplayed() {
		w.bool("payload_matches", r.GetPayloadMatches())
	}
}

func writeSettled(w *jsonWriter, r *pb.SettleResult) {
	if r.GetError() != nil {
		w.optBool("failed_instead", r.GetFailedInstead())
		writeError(w, r.GetError())
		return
	}
	w.str("state", wordOf(stateWords, int32(r.GetState())))
	w.bool("replayed", r.GetReplayed())
	w.optBool("failed_instead", r.GetFailedInstead())
	if len(r.GetEffects()) > 0 {
		writeOpResults(w, "effects", r.GetEffects())
	}
}

func writeHeartbeat(w *jsonWriter, h *pb.HeartbeatResult) {
	w.bool("lost", h.GetLost())
	w.time("lease_until", h.GetLeaseUntil())
}

func writeOpResults(w *jsonWriter, name string, results []*pb.OpResult) {
	w.list(name, len(results), func(i int) {
		r := results[i]
		w.open('{')
		w.optStr("task", r.GetTask())
		w.optBool("replayed", r.GetReplayed())
		w.optBool("payload_matches", r.GetPayloadMatches())
		w.optStr("state", wordOf(stateWords, int32(r.GetState())))
		if r.GetRev() != 0 {
			w.exact("rev", r.GetRev())
		}
		if r.GetPrev() != nil {
			w.anyBytes("prev", r.GetPrev())
		}
		w.optBool("existed", r.GetExisted())
		if r.GetSum() != 0 {
			w.str("sum", strconv.FormatInt(r.GetSum(), 10))
		}
		if r.GetCount() != 0 {
			w.count("count", r.GetCount())
		}
		writeMoved(w, r.GetRefs())
		w.optStr("point_version", r.GetPointVersion())
		w.close('}')
	})
}

func writeStats(w *jsonWriter, q *pb.QueueStats) {
	w.str("queue", q.GetQueue())
	w.count("blocked", q.GetBlocked())
	w.count("scheduled", q.GetScheduled())
	w.count("ready", q.GetReady())
	w.count("running", q.GetRunning())
	w.count("completed", q.GetCompleted())
	w.count("dead", q.GetDead())
	w.count("cancelled", q.GetCancelled())
	w.count("created", q.GetCreated())
	w.count("purged", q.GetPurged())
	w.count("completed_total", q.GetCompletedTotal())
	w.count("failed_total", q.GetFailedTotal())
	w.count("crashed_total", q.GetCrashedTotal())
	w.count("bytes", q.GetBytes())
	w.time("oldest_ready", q.GetOldestReady())
}

func writeQueueConfig(w *jsonWriter, c *pb.QueueConfig) {
	w.exact("version", c.GetVersion())
	w.optInt("max_attempts", int64(c.GetMaxAttempts()))
	w.optInt("max_crashes", int64(c.GetMaxCrashes()))
	if c.MaxDeliveries != nil {
		w.int("max_deliveries", int64(c.GetMaxDeliveries()))
	}
	w.duration("lease", c.GetLease())
	w.duration("max_run", c.GetMaxRun())
	if r := c.GetRetry(); r != nil {
		w.object("retry", func() {
			w.optStr("backoff", wordOf(backoffWords, int32(r.GetBackoff())))
			w.duration("base", r.GetBase())
			if r.GetFactor() != 0 {
				w.float("factor", r.GetFactor())
			}
			w.duration("max", r.GetMax())
		})
	}
	w.optInt("max_payload", c.GetMaxPayload())
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
	w.exact("version", c.GetVersion())
	w.bool("auto_create", c.GetAutoCreate())
	w.optInt("retain_bytes", c.GetRetainBytes())
	w.bool("create_on_push", c.GetCreateOnPush())
	w.optInt("key_bytes", c.GetKeyBytes())
	w.optInt("key_writes_per_second", c.GetKeyWritesPerSecond())
	w.optInt("key_bytes_per_second", c.GetKeyBytesPerSecond())
}

func writePartitions(w *jsonWriter, partitions []*pb.PartitionInfo) {
	w.list("partitions", len(partitions), func(i int) {
		p := partitions[i]
		w.open('{')
		w.int("partition", int64(p.GetPartition()))
		w.int("shard", int64(p.GetShard()))
		w.optStr("address", p.GetAddress())
		w.bool("led", p.GetLed())
		w.close('}')
	})
}

func writeStatus(w *jsonWriter, s *pb.StatusResponse, counters bool) {
	w.str("version", s.GetVersion())
	w.str("durability", s.GetDurability())
	w.str("node", s.GetNode())
	w.int("shards", int64(s.GetShards()))
	if counters {
		w.exact("applied_index", s.GetAppliedIndex())
		w.count("fsyncs", s.GetFsyncs())
		w.count("log_bytes", s.GetLogBytes())
		w.count("entries", s.GetEntries())
		w.count("store_mutations", s.GetStoreMutations())
	}
	w.time("started_at", s.GetStartedAt())
	w.bool("disk_full", s.GetDiskFull())
}
