package rest

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
)

// Commits.

var effectsFields = []jsonField[pb.Effects]{
	{"conditions", func(d *jsonReader, m *pb.Effects) { m.Conditions = readConditions(d) }},
	{"ops", func(d *jsonReader, m *pb.Effects) { m.Ops = readOps(d) }},
	{"fail_on_refusal", func(d *jsonReader, m *pb.Effects) { m.FailOnRefusal = d.Boolean() }},
}

var commitFields = []jsonField[pb.CommitRequest]{
	{"fence", func(d *jsonReader, m *pb.CommitRequest) { m.Fence = readNew(d, fenceFields) }},
	{"conditions", func(d *jsonReader, m *pb.CommitRequest) { m.Conditions = readConditions(d) }},
	{"ops", func(d *jsonReader, m *pb.CommitRequest) { m.Ops = readOps(d) }},
	{"request_id", func(d *jsonReader, m *pb.CommitRequest) { m.RequestId = d.requestID() }},
}

var fenceFields = []jsonField[pb.Fence]{
	{"task", func(d *jsonReader, m *pb.Fence) { m.Task = d.Text() }},
	{"token", func(d *jsonReader, m *pb.Fence) { m.Token = d.Unsigned() }},
}

// requestID reads 16 bytes as 32 hexadecimal digits, with the hyphens of a UUID or without.
func (d *jsonReader) requestID() []byte {
	s := strings.ReplaceAll(d.Text(), "-", "")
	if d.Fact() != nil {
		return nil
	}
	id, err := hex.DecodeString(s)
	if err != nil || len(id) != api.RequestIDBytes || !slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) {
		d.Refuse("must be 32 hexadecimal digits and not all 0; hyphens are allowed")
	}
	return id
}

func readConditions(d *jsonReader) (out []*pb.KVCheck) {
	d.Array("commit_ops", d.l.CommitOps, func() { out = append(out, readNew(d, kvCheckFields)) })
	return out
}

func readOps(d *jsonReader) (out []*pb.Op) {
	d.Array("commit_ops", d.l.CommitOps, func() {
		op := readNew(d, opFields)
		if op.Op == nil {
			d.Refuse("must name an op")
		}
		out = append(out, op)
	})
	return out
}

var opFields = append([]jsonField[pb.Op]{
	{"task_create", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_TaskCreate{TaskCreate: readTask(d)}
	}},
	{"task_complete", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_TaskComplete{TaskComplete: readNew(d, taskCompleteFields)}
	}},
	{"task_fail", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_TaskFail{TaskFail: readNew(d, taskFailFields)}
	}},
	{"task_snooze", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_TaskSnooze{TaskSnooze: readNew(d, taskSnoozeFields)}
	}},
	{"kv_put", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_KvPut{KvPut: readNew(d, kvPutFields)}
	}},
	{"kv_delete", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_KvDelete{KvDelete: readNew(d, kvDeleteFields)}
	}},
	{"kv_check", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_KvCheck{KvCheck: readNew(d, kvCheckFields)}
	}},
	{"kv_add", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_KvAdd{KvAdd: readNew(d, kvAddFields)}
	}},
	{"kv_delete_range", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_KvDeleteRange{KvDeleteRange: readNew(d, kvDeleteRangeFields)}
	}},
	{"ref_transaction", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_RefTransaction{RefTransaction: readNew(d, refTransactionFields)}
	}},
	{"vector_upsert", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_VectorUpsert{VectorUpsert: readNew(d, vectorUpsertFields)}
	}},
	{"vector_delete", func(d *jsonReader, m *pb.Op) {
		oneOp(d, m)
		m.Op = &pb.Op_VectorDelete{VectorDelete: readNew(d, vectorDeleteFields)}
	}},
}, reservedFields[pb.Op](
	"task_cancel", "queue_pause", "kv_min", "kv_max", "kv_append", "kv_get", "kv_branch",
)...)

func oneOp(d *jsonReader, m *pb.Op) {
	if m.Op != nil {
		d.Refuse("must be the only op of its element")
	}
}

var taskCompleteFields = []jsonField[pb.TaskComplete]{
	{"task", func(d *jsonReader, m *pb.TaskComplete) { m.Task = readNew(d, holdFields) }},
	{"complete", func(d *jsonReader, m *pb.TaskComplete) { m.Complete = readComplete(d) }},
}

var taskFailFields = []jsonField[pb.TaskFail]{
	{"task", func(d *jsonReader, m *pb.TaskFail) { m.Task = readNew(d, holdFields) }},
	{"fail", func(d *jsonReader, m *pb.TaskFail) { m.Fail = readNew(d, failFields) }},
}

var taskSnoozeFields = []jsonField[pb.TaskSnooze]{
	{"task", func(d *jsonReader, m *pb.TaskSnooze) { m.Task = readNew(d, holdFields) }},
	{"snooze", func(d *jsonReader, m *pb.TaskSnooze) { m.Snooze = readNew(d, snoozeFields) }},
}

var kvPutFields = []jsonField[pb.KVPut]{
	{"keyspace", func(d *jsonReader, m *pb.KVPut) { m.Keyspace = d.Text() }},
	{"key", func(d *jsonReader, m *pb.KVPut) { d.anyBytes(&m.Key, false) }},
	{"key_base64", func(d *jsonReader, m *pb.KVPut) { d.anyBytes(&m.Key, true) }},
	{"value", func(d *jsonReader, m *pb.KVPut) { d.anyBytes(&m.Value, false) }},
	{"value_base64", func(d *jsonReader, m *pb.KVPut) { d.anyBytes(&m.Value, true) }},
	{"if_rev", func(d *jsonReader, m *pb.KVPut) { m.IfRev = new(d.Unsigned()) }},
	{"if_absent", func(d *jsonReader, m *pb.KVPut) { m.IfAbsent = d.Boolean() }},
	{"want_prev", func(d *jsonReader, m *pb.KVPut) { m.WantPrev = d.Boolean() }},
}

var kvDeleteFields = []jsonField[pb.KVDelete]{
	{"keyspace", func(d *jsonReader, m *pb.KVDelete) { m.Keyspace = d.Text() }},
	{"key", func(d *jsonReader, m *pb.KVDelete) { d.anyBytes(&m.Key, false) }},
	{"key_base64", func(d *jsonReader, m *pb.KVDelete) { d.anyBytes(&m.Key, true) }},
	{"if_rev", func(d *jsonReader, m *pb.KVDelete) { m.IfRev = new(d.Unsigned()) }},
}

var kvCheckFields = []jsonField[pb.KVCheck]{
	{"keyspace", func(d *jsonReader, m *pb.KVCheck) { m.Keyspace = d.Text() }},
	{"key", func(d *jsonReader, m *pb.KVCheck) { d.anyBytes(&m.Key, false) }},
	{"key_base64", func(d *jsonReader, m *pb.KVCheck) { d.anyBytes(&m.Key, true) }},
	{"compare", func(d *jsonReader, m *pb.KVCheck) { m.Compare = pb.KVCheck_Compare(d.OneOf(compareWords)) }},
	{"rev", func(d *jsonReader, m *pb.KVCheck) {
		oneOperand(d, m)
		m.Operand = &pb.KVCheck_Rev{Rev: d.Unsigned()}
	}},
	{"value", func(d *jsonReader, m *pb.KVCheck) {
		oneOperand(d, m)
		m.Operand = &pb.KVCheck_Value{Value: []byte(d.Text())}
	}},
	{"value_base64", func(d *jsonReader, m *pb.KVCheck) {
		oneOperand(d, m)
		m.Operand = &pb.KVCheck_Value{Value: d.Base64()}
	}},
}

func oneOperand(d *jsonReader, m *pb.KVCheck) {
	if m.Operand != nil {
		d.Refuse("must be the only operand")
	}
}

// Configuration. A version is read-only: one that is given must be an integer and is not looked at, so that what was
// read can be changed and sent back.

var queueConfigFields = []jsonField[pb.QueueConfig]{
	{"version", func(d *jsonReader, m *pb.QueueConfig) { m.Version = d.Unsigned() }},
	{"max_attempts", func(d *jsonReader, m *pb.QueueConfig) { m.MaxAttempts = d.Int32() }},
	{"max_crashes", func(d *jsonReader, m *pb.QueueConfig) { m.MaxCrashes = d.Int32() }},
	{"max_deliveries", func(d *jsonReader, m *pb.QueueConfig) { m.MaxDeliveries = new(d.Int32()) }},
	{"lease", func(d *jsonReader, m *pb.QueueConfig) { m.Lease = d.duration() }},
	{"max_run", func(d *jsonReader, m *pb.QueueConfig) { m.MaxRun = d.duration() }},
	{"retry", func(d *jsonReader, m *pb.QueueConfig) { m.Retry = readNew(d, retryFields) }},
	{"max_payload", func(d *jsonReader, m *pb.QueueConfig) { m.MaxPayload = d.Integer(math.MinInt64, math.MaxInt64) }},
	{"aging", func(d *jsonReader, m *pb.QueueConfig) { m.Aging = d.duration() }},
	{"retain_completed", func(d *jsonReader, m *pb.QueueConfig) { m.RetainCompleted = d.duration() }},
	{"retain_cancelled", func(d *jsonReader, m *pb.QueueConfig) { m.RetainCancelled = d.duration() }},
	{"retain_dead", func(d *jsonReader, m *pb.QueueConfig) { m.RetainDead = d.duration() }},
}

var namespaceConfigFields = []jsonField[pb.NamespaceConfig]{
	{"version", func(d *jsonReader, m *pb.NamespaceConfig) { m.Version = d.Unsigned() }},
	{"auto_create", func(d *jsonReader, m *pb.NamespaceConfig) { m.AutoCreate = new(d.Boolean()) }},
	{"retain_bytes", func(d *jsonReader, m *pb.NamespaceConfig) { m.RetainBytes = d.Integer(math.MinInt64, math.MaxInt64) }},
	{"create_on_push", func(d *jsonReader, m *pb.NamespaceConfig) { m.CreateOnPush = d.Boolean() }},
	{"key_bytes", func(d *jsonReader, m *pb.NamespaceConfig) { m.KeyBytes = d.Integer(0, api.MaxQuota) }},
	{"key_writes_per_second", func(d *jsonReader, m *pb.NamespaceConfig) { m.KeyWritesPerSecond = d.Integer(0, api.MaxQuota) }},
	{"key_bytes_per_second", func(d *jsonReader, m *pb.NamespaceConfig) { m.KeyBytesPerSecond = d.Integer(0, api.MaxQuota) }},
}

var createNamespaceFields = []jsonField[pb.CreateNamespaceRequest]{
	{"partitions", func(d *jsonReader, m *pb.CreateNamespaceRequest) { m.Partitions = d.Uint32() }},
}

// fieldNames lists the fields of a body that are not reserved, for the test that holds the document to them.
func fieldNames[T any](fields []jsonField[T]) []string {
	var out []string
	for _, f := range fields {
		if f.read != nil {
			out = append(out, f.name)
		}
	}
	return out
}
