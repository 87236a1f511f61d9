package rest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Answers of the routes, as Go sees their JSON, each with what it becomes in the contract. A payload or result is a JSON
// value, which is taken byte for byte, or base64 under another name.

// restSpan is a duration such as 90s.
type restSpan struct{ *durationpb.Duration }

// UnmarshalJSON reads the text of a duration.
func (s *restSpan) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	s.Duration = durationpb.New(d)
	return nil
}

func (s restSpan) millis() uint64 { return uint64(max(s.AsDuration().Milliseconds(), 0)) }

func restTime(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// restContent is what came under two names, as JSON or as base64.
func restContent(raw json.RawMessage, b []byte) []byte {
	if raw != nil {
		return raw
	}
	return b
}

// restNumber is the place of a word among those of an enumeration; 0 for one that is not known.
func restNumber(words []string, word string) int32 { return int32(max(slices.Index(words, word), 0)) }

func restState(word string) millracev1.State {
	return millracev1.State(restNumber(wire.States, word))
}

type restHeader struct{ Name, Value string }

func restHeaders(in []restHeader) []*millracev1.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]*millracev1.Header, len(in))
	for i, h := range in {
		out[i] = &millracev1.Header{Name: h.Name, Value: h.Value}
	}
	return out
}

type restTaskError struct{ Code, Message, Stack string }

func (e *restTaskError) wire() *millracev1.TaskError {
	if e == nil {
		return nil
	}
	return &millracev1.TaskError{Code: e.Code, Message: e.Message, Stack: e.Stack}
}

type restTask struct {
	ID            string          `json:"id"`
	Queue         string          `json:"queue"`
	Kind          string          `json:"kind"`
	State         string          `json:"state"`
	Done          bool            `json:"done"` // of a result alone
	Reason        string          `json:"reason"`
	Payload       json.RawMessage `json:"payload"`
	PayloadBytes  []byte          `json:"payload_base64"`
	ContentType   string          `json:"content_type"`
	Headers       []restHeader    `json:"headers"`
	Priority      uint32          `json:"priority"`
	RunAt         *time.Time      `json:"run_at"`
	UniqueKey     string          `json:"unique_key"`
	Tag           string          `json:"tag"`
	MaxAttempts   int32           `json:"max_attempts"`
	MaxCrashes    int32           `json:"max_crashes"`
	MaxDeliveries int32           `json:"max_deliveries"`
	Lease         restSpan        `json:"lease"`
	MaxRun        restSpan        `json:"max_run"`
	Attempt       uint32          `json:"attempt"`
	Failures      uint32          `json:"failures"`
	Crashes       uint32          `json:"crashes"`
	Snoozes       uint32          `json:"snoozes"`
	Redrives      uint32          `json:"redrives"`
	CreatedAt     *time.Time      `json:"created_at"`
	ReadyAt       *time.Time      `json:"ready_at"`
	StartedAt     *time.Time      `json:"started_at"`
	FinishedAt    *time.Time      `json:"finished_at"`
	Creator       string          `json:"creator"`
	Worker        string          `json:"worker"`
	LeaseUntil    *time.Time      `json:"lease_until"`
	HasResult     bool            `json:"has_result"`
	Result        json.RawMessage `json:"result"`
	ResultBytes   []byte          `json:"result_base64"`
	ResultType    string          `json:"result_type"`
	Error         *restTaskError  `json:"error"`
}

func (t *restTask) wire() *millracev1.Task {
	return &millracev1.Task{
		Id: t.ID, Queue: t.Queue, Kind: t.Kind, State: restState(t.State), Reason: t.Reason,
		Payload: restContent(t.Payload, t.PayloadBytes), ContentType: t.ContentType, Headers: restHeaders(t.Headers),
		Priority: t.Priority, RunAt: restTime(t.RunAt), UniqueKey: t.UniqueKey, Tag: t.Tag,
		MaxAttempts: t.MaxAttempts, MaxCrashes: t.MaxCrashes, MaxDeliveries: t.MaxDeliveries,
		Lease: t.Lease.Duration, MaxRun: t.MaxRun.Duration, Attempt: t.Attempt, Failures: t.Failures, Crashes: t.Crashes,
		Snoozes: t.Snoozes, Redrives: t.Redrives, CreatedAt: restTime(t.CreatedAt), ReadyAt: restTime(t.ReadyAt),
		StartedAt: restTime(t.StartedAt), FinishedAt: restTime(t.FinishedAt), Creator: t.Creator, Worker: t.Worker,
		LeaseUntil: restTime(t.LeaseUntil), HasResult: t.HasResult, Result: restContent(t.Result, t.ResultBytes),
		ResultType: t.ResultType, Error: t.Error.wire(),
	}
}

type restAssignment struct {
	ID           string          `json:"id"`
	Token        uint64          `json:"token,string"`
	Attempt      uint32          `json:"attempt"`
	Queue        string          `json:"queue"`
	Kind         string          `json:"kind"`
	Payload      json.RawMessage `json:"payload"`
	PayloadBytes []byte          `json:"payload_base64"`
	ContentType  string          `json:"content_type"`
	Headers      []restHeader    `json:"headers"`
	Priority     uint32          `json:"priority"`
	Lease        restSpan        `json:"lease"`
	LeaseLeft    restSpan        `json:"lease_left"`
	MaxAttempts  int32           `json:"max_attempts"`
	Failures     uint32          `json:"failures"`
	Crashes      uint32          `json:"crashes"`
	CreatedAt    time.Time       `json:"created_at"`
}

func (a *restAssignment) wire() *millracev1.Assignment {
	return &millracev1.Assignment{
		Id: a.ID, Token: a.Token, Attempt: a.Attempt, Queue: a.Queue, Kind: a.Kind,
		Payload: restContent(a.Payload, a.PayloadBytes), ContentType: a.ContentType, Headers: restHeaders(a.Headers),
		Priority: a.Priority, LeaseMs: a.Lease.millis(), LeaseLeftMs: a.LeaseLeft.millis(), MaxAttempts: a.MaxAttempts,
		Failures: a.Failures, Crashes: a.Crashes, CreatedMs: a.CreatedAt.UnixMilli(),
	}
}

type restCreated struct {
	ID             string     `json:"id"`
	Replayed       bool       `json:"replayed"`
	PayloadMatches bool       `json:"payload_matches"`
	Error          *restError `json:"error"`
}

func (r *restCreated) wire() *millracev1.CreateResult {
	return &millracev1.CreateResult{Id: r.ID, Replayed: r.Replayed, PayloadMatches: r.PayloadMatches, Error: r.Error.wire()}
}

type restOpResult struct {
	Task           string  `json:"task"`
	Replayed       bool    `json:"replayed"`
	PayloadMatches bool    `json:"payload_matches"`
	State          string  `json:"state"`
	Rev            uint64  `json:"rev,string"`
	Prev           *string `json:"prev"`
	PrevBytes      []byte  `json:"prev_base64"`
	Existed        bool    `json:"existed"`
	Sum            int64   `json:"sum,string"`
	Count          uint64  `json:"count"`
	PointVersion   string  `json:"point_version"`

	Refs *restMoved `json:"refs"`
}

func (r *restOpResult) wire() *millracev1.OpResult {
	out := &millracev1.OpResult{
		Task: r.Task, Replayed: r.Replayed, PayloadMatches: r.PayloadMatches, State: restState(r.State), Rev: r.Rev,
		Prev: r.PrevBytes, Existed: r.Existed, Sum: r.Sum, Count: r.Count, PointVersion: r.PointVersion,
		Refs: r.Refs.wire(),
	}
	if r.Prev != nil {
		out.Prev = []byte(*r.Prev)
	}
	return out
}

type restSettled struct {
	State         string         `json:"state"`
	Replayed      bool           `json:"replayed"`
	FailedInstead bool           `json:"failed_instead"`
	Effects       []restOpResult `json:"effects"`
	Error         *restError     `json:"error"`
}

func (r *restSettled) wire() *millracev1.SettleResult {
	return &millracev1.SettleResult{
		State: restState(r.State), Replayed: r.Replayed, FailedInstead: r.FailedInstead,
		Effects: restWire(r.Effects, (*restOpResult).wire), Error: r.Error.wire(),
	}
}

type restBeat struct {
	Lost       bool       `json:"lost"`
	LeaseUntil *time.Time `json:"lease_until"`
}

func (r *restBeat) wire() *millracev1.HeartbeatResult {
	return &millracev1.HeartbeatResult{Lost: r.Lost, LeaseUntil: restTime(r.LeaseUntil)}
}

type restAttempt struct {
	Number  uint32         `json:"number"`
	Worker  string         `json:"worker"`
	Start   *time.Time     `json:"start"`
	End     *time.Time     `json:"end"`
	Outcome string         `json:"outcome"`
	Error   *restTaskError `json:"error"`
	Index   uint64         `json:"index,string"`
}

func (a *restAttempt) wire() *millracev1.Attempt {
	return &millracev1.Attempt{
		Number: a.Number, Worker: a.Worker, Start: restTime(a.Start), End: restTime(a.End),
		Outcome: millracev1.Outcome(restNumber(wire.AttemptOutcomes, a.Outcome)), Error: a.Error.wire(), Index: a.Index,
	}
}

type restStats struct {
	Queue          string     `json:"queue"`
	Blocked        uint64     `json:"blocked"`
	Scheduled      uint64     `json:"scheduled"`
	Ready          uint64     `json:"ready"`
	Running        uint64     `json:"running"`
	Completed      uint64     `json:"completed"`
	Dead           uint64     `json:"dead"`
	Cancelled      uint64     `json:"cancelled"`
	Created        uint64     `json:"created"`
	Purged         uint64     `json:"purged"`
	CompletedTotal uint64     `json:"completed_total"`
	FailedTotal    uint64     `json:"failed_total"`
	CrashedTotal   uint64     `json:"crashed_total"`
	Bytes          uint64     `json:"bytes"`
	OldestReady    *time.Time `json:"oldest_ready"`
}

func (s *restStats) wire() *millracev1.QueueStats {
	return &millracev1.QueueStats{
		Queue: s.Queue, Blocked: s.Blocked, Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running,
		Completed: s.Completed, Dead: s.Dead, Cancelled: s.Cancelled, Created: s.Created, Purged: s.Purged,
		CompletedTotal: s.CompletedTotal, FailedTotal: s.FailedTotal, CrashedTotal: s.CrashedTotal, Bytes: s.Bytes,
		OldestReady: restTime(s.OldestReady),
	}
}

type restQueueConfig struct {
	Version       uint64 `json:"version,string"`
	MaxAttempts   int32  `json:"max_attempts"`
	MaxCrashes    int32  `json:"max_crashes"`
	MaxDeliveries *int32 `json:"max_deliveries"`
	Lease         restSpan
	MaxRun        restSpan `json:"max_run"`
	Retry         *struct {
		Backoff string
		Base    restSpan
		Factor  float64
		Max     restSpan
	}
	MaxPayload      int64 `json:"max_payload"`
	Aging           restSpan
	RetainCompleted restSpan `json:"retain_completed"`
	RetainCancelled restSpan `json:"retain_cancelled"`
	RetainDead      restSpan `json:"retain_dead"`
}

func (c *restQueueConfig) wire() *millracev1.QueueConfig {
	out := &millracev1.QueueConfig{
		Version: c.Version, MaxAttempts: c.MaxAttempts, MaxCrashes: c.MaxCrashes, MaxDeliveries: c.MaxDeliveries,
		Lease: c.Lease.Duration, MaxRun: c.MaxRun.Duration, MaxPayload: c.MaxPayload, Aging: c.Aging.Duration,
		RetainCompleted: c.RetainCompleted.Duration, RetainCancelled: c.RetainCancelled.Duration,
		RetainDead: c.RetainDead.Duration,
	}
	if r := c.Retry; r != nil {
		out.Retry = &millracev1.Retry{
			Backoff: millracev1.Backoff(restNumber(restBackoffs, r.Backoff)), Base: r.Base.Duration, Factor: r.Factor,
			Max: r.Max.Duration,
		}
	}
	return out
}

type restPartition struct {
	Partition uint32
	Shard     uint32
	Address   string
	Led       bool
}

func (p *restPartition) wire() *millracev1.PartitionInfo {
	return &millracev1.PartitionInfo{Partition: p.Partition, Shard: p.Shard, Address: p.Address, Led: p.Led}
}

type restStatus struct {
	Version        string
	Durability     string
	Node           string
	Shards         uint32
	AppliedIndex   uint64 `json:"applied_index,string"`
	Fsyncs         uint64
	LogBytes       uint64 `json:"log_bytes"`
	Entries        uint64
	StoreMutations uint64     `json:"store_mutations"`
	StartedAt      *time.Time `json:"started_at"`
	DiskFull       bool       `json:"disk_full"`
}

func (s *restStatus) into(out *millracev1.StatusResponse) {
	out.Version, out.Durability, out.Node, out.Shards = s.Version, s.Durability, s.Node, s.Shards
	out.AppliedIndex, out.Fsyncs, out.LogBytes, out.Entries = s.AppliedIndex, s.Fsyncs, s.LogBytes, s.Entries
	out.StoreMutations, out.StartedAt, out.DiskFull = s.StoreMutations, restTime(s.StartedAt), s.DiskFull
}

// restWire turns the elements of a list.
func restWire[T, W any](list []T, wire func(*T) W) []W {
	if len(list) == 0 {
		return nil
	}
	out := make([]W, len(list))
	for i := range list {
		out[i] = wire(&list[i])
	}
	return out
}

// restAt reads where an answer stands: partition/epoch/index. What is missing is zero.
func restAt(text string) *millracev1.At {
	at := new(millracev1.At)
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return at
	}
	partition, _ := strconv.ParseUint(parts[0], 10, 32)
	epoch, _ := strconv.ParseUint(parts[1], 10, 32)
	at.Partition, at.Epoch = uint32(partition), uint32(epoch)
	at.Index, _ = strconv.ParseUint(parts[2], 10, 64)
	return at
}
