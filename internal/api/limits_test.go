package api

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// doer calls a server in one way; the tests of limits need only the error.
type doer func(r *rig) error

func createOf(change func(*pb.TaskSpec)) doer {
	return func(r *rig) error {
		spec := &pb.TaskSpec{Queue: "mail"}
		change(spec)
		_, err := pb.NewTaskServiceClient(r.conn).Create(apitest.As("acme/all"), &pb.CreateRequest{Task: spec})
		return err
	}
}

func commitOf(in *pb.CommitRequest) doer {
	return func(r *rig) error {
		_, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), in)
		return err
	}
}

func putOf(key, value []byte) doer {
	put := &pb.KVPut{Keyspace: "ks", Key: key, Value: value}
	return commitOf(&pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_KvPut{KvPut: put}}}})
}

func claimOf(in *pb.ClaimRequest) doer {
	return func(r *rig) error {
		_, err := pb.NewTaskServiceClient(r.conn).Claim(apitest.As("acme/all"), in)
		return err
	}
}

// settleOf is a settle of one item, whose error stands in the answer.
func settleOf(in *pb.SettleItem) doer {
	return func(r *rig) error {
		out, err := pb.NewTaskServiceClient(r.conn).Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{in}})
		if err != nil {
			return err
		}
		if e := out.GetResults()[0].GetError(); e != nil {
			st, err := status.New(codes.InvalidArgument, e.GetMessage()).WithDetails(e)
			if err != nil {
				return err
			}
			return st.Err()
		}
		return nil
	}
}

func completeOf(result []byte) doer {
	return settleOf(&pb.SettleItem{
		Id: apitest.ID(1), Token: 3, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{Result: result}},
	})
}

func headersOf(n, bytes int) func(*pb.TaskSpec) {
	return func(s *pb.TaskSpec) {
		s.Headers = apitest.Repeat(n, &pb.Header{Name: "n", Value: strings.Repeat("v", bytes/n-1)})
	}
}

func ms(n int64) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Millisecond) }

// bound is a request at a limit and one just beyond it, and how that is refused.
type bound struct {
	at, beyond  doer
	code, field string
}

const tooMuch, outside = "TOO_LARGE", "INVALID_ARGUMENT"

// requestBounds has the bounds of requests without tasks.
func requestBounds() map[string]bound {
	put := func(n int) *pb.Op {
		return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k"), Value: make([]byte, n)}}}
	}
	batch := func(n int) doer {
		return func(r *rig) error {
			in := &pb.BatchCreateRequest{Tasks: apitest.Repeat(n, &pb.TaskSpec{Queue: "q"})}
			_, err := pb.NewTaskServiceClient(r.conn).BatchCreate(apitest.As("acme/all"), in)
			return err
		}
	}
	queues := func(n int) doer {
		return claimOf(&pb.ClaimRequest{Queues: apitest.Repeat(n, &pb.QueueWeight{Name: "q"})})
	}
	q := []*pb.QueueWeight{{Name: "q"}}
	list := func(n uint32) doer {
		return func(r *rig) error {
			_, err := pb.NewQueueServiceClient(r.conn).List(apitest.As("acme/all"), &pb.ListQueuesRequest{Limit: n})
			return err
		}
	}
	space := func(n uint32) doer {
		return func(r *rig) error {
			ctx := apitest.As("acme/all", edge.NamespaceKey, fmt.Sprintf("of-%d", n))
			_, err := pb.NewQueueServiceClient(r.conn).CreateNamespace(ctx, &pb.CreateNamespaceRequest{Partitions: n})
			return err
		}
	}
	return map[string]bound{
		"grpc_message": {
			commitOf(&pb.CommitRequest{Ops: apitest.Repeat(3, put(mib))}),
			commitOf(&pb.CommitRequest{Ops: apitest.Repeat(3, put(4*mib/3))}), tooMuch, "",
		},
		"frame_items":  {batch(512), batch(513), tooMuch, "tasks"},
		"claim_queues": {queues(64), queues(65), tooMuch, "queues"},
		"claim_tasks":  {claimOf(&pb.ClaimRequest{Queues: q, Max: 128}), claimOf(&pb.ClaimRequest{Queues: q, Max: 129}), outside, "max"},
		"claim_wait_ms": {
			claimOf(&pb.ClaimRequest{Queues: q, Wait: ms(60_000)}), claimOf(&pb.ClaimRequest{Queues: q, Wait: ms(60_001)}), outside, "wait",
		},
		"worker_bytes": {
			claimOf(&pb.ClaimRequest{Queues: q, Worker: strings.Repeat("w", 128)}),
			claimOf(&pb.ClaimRequest{Queues: q, Worker: strings.Repeat("w", 129)}), tooMuch, "worker",
		},
		"list_items":   {list(1000), list(1001), outside, "limit"},
		"partitions":   {space(4096), space(4097), outside, "partitions"},
		"result_bytes": {completeOf(make([]byte, mib)), completeOf(make([]byte, mib+1)), tooMuch, "items[0].complete.result"},
		"retry_after_ms": {
			settleOf(&pb.SettleItem{Id: apitest.ID(1), Token: 3, Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{RetryAfter: ms(day)}}}),
			settleOf(&pb.SettleItem{Id: apitest.ID(1), Token: 3, Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{RetryAfter: ms(day + 1)}}}),
			outside, "items[0].fail.retry_after",
		},
		"key_bytes":   {putOf(make([]byte, 16*kib), nil), putOf(make([]byte, 16*kib+1), nil), tooMuch, "ops[0].key"},
		"value_bytes": {putOf([]byte("k"), make([]byte, 3*mib/2)), putOf([]byte("k"), make([]byte, 3*mib/2+1)), tooMuch, "ops[0].value"},
		"commit_ops":  {commitOf(&pb.CommitRequest{Ops: apitest.Repeat(1024, put(1))}), commitOf(&pb.CommitRequest{Ops: apitest.Repeat(1025, put(1))}), tooMuch, "ops"},
	}
}

// taskBounds has the bounds of the fields of a task.
func taskBounds() map[string]bound {
	out := map[string]bound{
		"headers":      {createOf(headersOf(32, 64)), createOf(headersOf(33, 66)), tooMuch, "task.headers"},
		"header_bytes": {createOf(headersOf(32, 4096)), createOf(headersOf(1, 4097)), tooMuch, "task.headers"},
	}
	add := func(key, code, field string, change func(*pb.TaskSpec, int64), at, beyond int64) {
		do := func(n int64) doer { return createOf(func(s *pb.TaskSpec) { change(s, n) }) }
		out[key] = bound{do(at), do(beyond), code, field}
	}
	add("payload_bytes", tooMuch, "task.payload", func(s *pb.TaskSpec, n int64) { s.Payload = make([]byte, n) }, mib, mib+1)
	add("content_type_bytes", tooMuch, "task.content_type", func(s *pb.TaskSpec, n int64) { s.ContentType = strings.Repeat("t", int(n)) }, 128, 129)
	add("priority", outside, "task.priority", func(s *pb.TaskSpec, n int64) { s.Priority = uint32(n) }, 9, 10)
	add("horizon_ms", outside, "task.delay", func(s *pb.TaskSpec, n int64) { s.Delay = ms(n) }, 3653*day, 3653*day+1)
	add("max_attempts", outside, "task.max_attempts", func(s *pb.TaskSpec, n int64) { s.MaxAttempts = int32(n) }, 1000, 1001)
	add("max_crashes", outside, "task.max_crashes", func(s *pb.TaskSpec, n int64) { s.MaxCrashes = int32(n) }, 1000, 1001)
	add("max_deliveries", outside, "task.max_deliveries", func(s *pb.TaskSpec, n int64) { s.MaxDeliveries = new(int32(n)) }, 1_000_000, 1_000_001)
	add("lease_ms", outside, "task.lease", func(s *pb.TaskSpec, n int64) { s.Lease = ms(n) }, day, day+1)
	add("retry_factor", outside, "task.retry.factor", func(s *pb.TaskSpec, n int64) { s.Retry = &pb.Retry{Factor: float64(n) / 100} }, 10_000, 10_001)
	add("unique_key_bytes", tooMuch, "task.unique.key", func(s *pb.TaskSpec, n int64) { s.Unique = &pb.Unique{Key: strings.Repeat("u", int(n))} }, 256, 257)
	add("tag_bytes", tooMuch, "task.tag", func(s *pb.TaskSpec, n int64) { s.Tag = strings.Repeat("t", int(n)) }, 128, 129)
	add("unique_ttl_ms", outside, "task.unique.ttl", func(s *pb.TaskSpec, n int64) { s.Unique = &pb.Unique{Key: "u", Ttl: ms(n)} }, 30*day, 30*day+1)
	return out
}

// elsewhere are limits of more than one request, with the test that exceeds them.
var elsewhere = map[string]string{
	"streams_connection": "the transport holds it: TestAConnectionHoldsItsCallsBack",
	"streams_tenant":     "TestStreamsAreBoundedByTenantAndNode", "streams_node": "the same",
	"event_streams_tenant": "of REST", "event_streams_node": "of REST", "event_topics": "of REST",
	"calls_tenant": "TestCallsInFlightAreBoundedByTenantAndNode", "calls_node": "the same",
	"connections_new": "TestTheOldestNewConnectionMakesRoom", "first_call_ms": "TestAConnectionWithoutAnAuthenticatedCallEnds",
	"grpc_receive_ms": "TestAMessageThatStopsHalfwayEndsItsCall", "grpc_idle_ms": "TestAnIdleConnectionIsToldToGo", "http2_frames": "TestAFloodOfEmptyFramesEndsItsConnection", "connections_node": "TestConnectionsAreBounded", "connections_address": "the same",
	"stream_waits":  "TestWaitsOfAStreamAreBoundedAndForgotten",
	"unacked_items": "TestTheReaderStopsAtTheWindow", "unacked_bytes": "the same", "unacked_commits": "the same",
	"send_buffer": "TestTasksAreGrantedOnlyWithRoomToSend", "send_stall_ms": "TestAReaderThatTakesNothingIsCut",
	"subscriptions": "TestStreamFramesBeyondALimitEndTheStream", "slots": "the same", "worker_kinds": "the same",
	"commit_bytes": "TestACommitLargerThanTheLogTakesIsRefused", "queues": "TestQueuesAreBoundedBySettingAndEmptyOnesMakeRoom",
	"namespaces": "TestNamespacesAreBoundedBySetting",
	"rest_body":  "of REST: TestEveryLimitOfRESTAnswersItsNameAndTheNextCallWorks", "json_depth": "the same", "result_wait_ms": "the same",
	"rest_bodies": "of REST", "rest_call_ms": "of REST", "http_header": "of REST", "http_header_ms": "of REST", "http_body_ms": "of REST",
	"http_idle_ms": "of REST", "http_linger_ms": "of REST", "searches_waiting": "TestSearchesWaitForTheirTurnAndTenantsTakeTurns", "embed_numbers": "TestVectorsOfCallsAreBoundedWhileTheyAreMade",
}

func TestEveryLimitAnswersItsNameAndTheNextCallWorks(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	cases := requestBounds()
	maps.Copy(cases, taskBounds())
	maps.Copy(cases, searchBounds())
	for _, row := range r.s.Limits.Rows() {
		c, ok := cases[row.Key]
		if !ok {
			if elsewhere[row.Key] == "" {
				t.Errorf("limit %s is not tested", row.Key)
			}
			continue
		}
		if err := c.at(r); err != nil {
			t.Errorf("%s: at the limit: %v", row.Key, err)
		}
		before := r.s.Stats().Refusals[row.Key]
		err := c.beyond(r)
		if err == nil {
			t.Errorf("%s: beyond the limit: the call succeeded", row.Key)
			continue
		}
		e := apitest.ErrorOf(t, err)
		if e.GetCode() != c.code || e.GetLimit() != row.Key || e.GetMax() != *row.Value || e.GetField() != c.field {
			t.Errorf("%s: beyond the limit: %v", row.Key, e)
		}
		if got := r.s.Stats().Refusals[row.Key]; got != before+1 {
			t.Errorf("%s: counted %d refusals, want %d", row.Key, got, before+1)
		}
		if err := c.at(r); err != nil {
			t.Errorf("%s: after a refusal: %v", row.Key, err)
		}
	}
}

func TestBadValuesAreRefusedWithTheirPath(t *testing.T) {
	duration := func(d *durationpb.Duration) doer { return createOf(func(s *pb.TaskSpec) { s.Delay = d }) }
	badCreates := map[string]struct {
		change func(*pb.TaskSpec)
		field  string
	}{
		"no queue":            {func(s *pb.TaskSpec) { s.Queue = "" }, "task.queue"},
		"queue of spaces":     {func(s *pb.TaskSpec) { s.Queue = "a b" }, "task.queue"},
		"queue from a dot":    {func(s *pb.TaskSpec) { s.Queue = ".a" }, "task.queue"},
		"queue with NUL":      {func(s *pb.TaskSpec) { s.Queue = "a\x00" }, "task.queue"},
		"queue of 129":        {func(s *pb.TaskSpec) { s.Queue = strings.Repeat("q", 129) }, "task.queue"},
		"kind":                {func(s *pb.TaskSpec) { s.Kind = "a/b" }, "task.kind"},
		"short id":            {func(s *pb.TaskSpec) { s.Id = "0" }, "task.id"},
		"zero id":             {func(s *pb.TaskSpec) { s.Id = strings.Repeat("0", 26) }, "task.id"},
		"content type":        {func(s *pb.TaskSpec) { s.ContentType = "a\nb" }, "task.content_type"},
		"header without name": {func(s *pb.TaskSpec) { s.Headers = []*pb.Header{{Value: "v"}} }, "task.headers[0].name"},
		"header with NUL":     {func(s *pb.TaskSpec) { s.Headers = []*pb.Header{{Name: "a", Value: "\x00"}} }, "task.headers[0].value"},
		"run_at and delay":    {func(s *pb.TaskSpec) { s.RunAt, s.Delay = timestamppb.New(apitest.Now), ms(1) }, "task.delay"},
		"run_at in 11 years":  {func(s *pb.TaskSpec) { s.RunAt = timestamppb.New(apitest.Now.AddDate(11, 0, 0)) }, "task.run_at"},
		"run_at is not valid": {func(s *pb.TaskSpec) { s.RunAt = &timestamppb.Timestamp{Nanos: -1} }, "task.run_at"},
		"short lease":         {func(s *pb.TaskSpec) { s.Lease = ms(999) }, "task.lease"},
		"zero lease":          {func(s *pb.TaskSpec) { s.Lease = ms(0) }, "task.lease"},
		"zero max_run":        {func(s *pb.TaskSpec) { s.MaxRun = ms(0) }, "task.max_run"},
		"negative attempts":   {func(s *pb.TaskSpec) { s.MaxAttempts = -1 }, "task.max_attempts"},
		"negative deliveries": {func(s *pb.TaskSpec) { s.MaxDeliveries = new(int32(-1)) }, "task.max_deliveries"},
		"factor below 1":      {func(s *pb.TaskSpec) { s.Retry = &pb.Retry{Factor: 0.5} }, "task.retry.factor"},
		"factor of 3 places":  {func(s *pb.TaskSpec) { s.Retry = &pb.Retry{Factor: 1.125} }, "task.retry.factor"},
		"negative base":       {func(s *pb.TaskSpec) { s.Retry = &pb.Retry{Base: ms(-1)} }, "task.retry.base"},
		"unique without key":  {func(s *pb.TaskSpec) { s.Unique = &pb.Unique{} }, "task.unique.key"},
		"unique key with NUL": {func(s *pb.TaskSpec) { s.Unique = &pb.Unique{Key: "\x00"} }, "task.unique.key"},
		"negative ttl":        {func(s *pb.TaskSpec) { s.Unique = &pb.Unique{Key: "k", Ttl: ms(-1)} }, "task.unique.ttl"},
	}
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for name, c := range badCreates {
		if e := apitest.ErrorOf(t, createOf(c.change)(r)); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != c.field {
			t.Errorf("%s: %v", name, e)
		}
	}
	for name, d := range map[string]*durationpb.Duration{
		"negative": ms(-5), "longest": {Seconds: 315_576_000_000}, "mixed signs": {Seconds: 1, Nanos: -1}, "no duration": {Seconds: 1 << 62},
	} {
		if e := apitest.ErrorOf(t, duration(d)(r)); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "task.delay" {
			t.Errorf("%s duration: %v", name, e)
		}
	}
	if n := len(r.n.Proposed()); n != 0 {
		t.Errorf("%d commits were proposed", n)
	}
}

func TestWhatIsReservedIsNotSupported(t *testing.T) {
	for field, change := range map[string]func(*pb.TaskSpec){
		"task.on_dep_failure": func(s *pb.TaskSpec) {
			s.After, s.OnDepFailure = []*pb.After{{Id: apitest.ID(1)}}, 77
		},
		"task.after[0].on":   func(s *pb.TaskSpec) { s.After = []*pb.After{{Id: apitest.ID(1), On: 77}} },
		"task.webhook":       func(s *pb.TaskSpec) { s.Webhook = "w" },
		"task.retry.backoff": func(s *pb.TaskSpec) { s.Retry = &pb.Retry{Backoff: 77} },
	} {
		r := newRig(t, edge.Limits{})
		e := apitest.ErrorOf(t, createOf(change)(r))
		if e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "not_supported" || e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
	}
}

// What came with core.FormatShare is refused as long as the cluster writes entries of an older format.
func TestWhatIsSharedWaitsForTheFormat(t *testing.T) {
	for field, change := range map[string]func(*pb.TaskSpec){
		"task.unique.until":       func(s *pb.TaskSpec) { s.Unique = &pb.Unique{Key: "k", Until: pb.Unique_START} },
		"task.unique.on_conflict": func(s *pb.TaskSpec) { s.Unique = &pb.Unique{Key: "k", OnConflict: pb.Unique_REPLACE} },
	} {
		r := newRig(t, edge.Limits{})
		r.n.EntryFormat = core.FormatShare - 1
		e := apitest.ErrorOf(t, createOf(change)(r))
		if e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "not_supported" || e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	r := newRig(t, edge.Limits{})
	r.n.EntryFormat = core.FormatShare - 1
	_, err := pb.NewQueueServiceClient(r.conn).Set(apitest.As("acme/all"), &pb.SetQueueRequest{Queue: "q", Config: &pb.QueueConfig{DeadLetter: "grave"}})
	if e := apitest.ErrorOf(t, err); e.GetReason() != "not_supported" || e.GetField() != "config" {
		t.Errorf("a queue of dead letters: %v", e)
	}
	keyspaces := pb.NewKeyspaceServiceClient(r.conn)
	_, err = keyspaces.Set(apitest.As("acme/all"), &pb.SetKeyspaceRequest{Keyspace: "ks", Config: &pb.KeyspaceConfig{Writers: true}})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "not_supported" || e.GetField() != "config.writers" ||
		!strings.Contains(e.GetMessage(), "is supported once the upgrade of the cluster is finalized") {
		t.Errorf("a keyspace that keeps writers: %v", e)
	}
	if _, err = keyspaces.Set(apitest.As("acme/all"), &pb.SetKeyspaceRequest{Keyspace: "ks", Config: &pb.KeyspaceConfig{}}); err != nil {
		t.Errorf("a keyspace that keeps none: %v", err)
	}
	_, err = pb.NewBulkServiceClient(r.conn).Redrive(apitest.As("acme/all"), &pb.RedriveRequest{Queue: "q", ToQueue: "other"})
	if e := apitest.ErrorOf(t, err); e.GetReason() != "not_supported" || e.GetField() != "to_queue" {
		t.Errorf("a redrive to another queue: %v", e)
	}
	r.n.New = true // a node that has applied nothing cannot say so
	_, err = pb.NewBulkServiceClient(r.conn).Redrive(apitest.As("acme/all"), &pb.RedriveRequest{Queue: "q", ToQueue: "other"})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetReason() != "no_leader" {
		t.Errorf("at a node that is new: %v", e)
	}
}

func TestUnknownFieldsAreRefusedWithTheirPath(t *testing.T) {
	unknown := []byte{0xf8, 0x3f, 0x01} // field 1023, varint 1
	for field, spoil := range map[string]func(*pb.CreateRequest){
		"CreateRequest":   func(in *pb.CreateRequest) { in.ProtoReflect().SetUnknown(unknown) },
		"task":            func(in *pb.CreateRequest) { in.Task.ProtoReflect().SetUnknown(unknown) },
		"task.unique":     func(in *pb.CreateRequest) { in.Task.Unique.ProtoReflect().SetUnknown(unknown) },
		"task.unique.ttl": func(in *pb.CreateRequest) { in.Task.Unique.Ttl.ProtoReflect().SetUnknown(unknown) },
		"task.headers[1]": func(in *pb.CreateRequest) { in.Task.Headers[1].ProtoReflect().SetUnknown(unknown) },
	} {
		r := newRig(t, edge.Limits{})
		in := &pb.CreateRequest{Task: &pb.TaskSpec{
			Queue: "q", Unique: &pb.Unique{Key: "k", Ttl: ms(5)}, Headers: []*pb.Header{{Name: "a"}, {Name: "b"}},
		}}
		spoil(in)
		_, err := pb.NewTaskServiceClient(r.conn).Create(apitest.As("acme/all"), in)
		if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "unknown_field" || e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
	}
}

func TestAMessageThatCannotBeDecodedIsInvalid(t *testing.T) {
	r := newRig(t, edge.Limits{})
	for name, body := range map[string][]byte{
		"cut short": {0x0a, 0x7f}, "text that is not UTF-8": {0x0a, 0x04, 0x12, 0x02, 0xff, 0xfe},
	} {
		err := r.conn.Invoke(apitest.As("acme/all"), "/millrace.v1.TaskService/Create", &rawMessage{body}, new(pb.CreateResponse), rawCodec())
		if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "CreateRequest" {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestAMessageFarBeyondItsLimitIsRefusedUnread(t *testing.T) {
	r := newRig(t, edge.Limits{MessageBytes: 64 * kib})
	err := createOf(func(s *pb.TaskSpec) { s.Payload = make([]byte, 300*kib) })(r)
	if e := apitest.ErrorOf(t, err); e.GetCode() != "TOO_LARGE" || e.GetLimit() != "grpc_message" || e.GetMax() != 64*kib {
		t.Errorf("got %v", err)
	}
	if err := createOf(func(*pb.TaskSpec) {})(r); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestACommitLargerThanTheLogTakesIsRefused(t *testing.T) {
	r := newRig(t, edge.Limits{CommitBytes: 100 * kib})
	op := func(n int) *pb.Op {
		return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k"), Value: make([]byte, n)}}}
	}
	if err := commitOf(&pb.CommitRequest{Ops: []*pb.Op{op(90 * kib)}})(r); err != nil {
		t.Error(err)
	}
	big := &pb.CommitRequest{Ops: apitest.Repeat(2, op(60*kib))}
	if e := apitest.ErrorOf(t, commitOf(big)(r)); e.GetCode() != "TOO_LARGE" || e.GetLimit() != "commit_bytes" {
		t.Errorf("commit: %v", e)
	}
	e := apitest.ErrorOf(t, settleOf(&pb.SettleItem{
		Id: apitest.ID(1), Token: 3, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}, Effects: &pb.Effects{Ops: big.GetOps()},
	})(r))
	if e.GetLimit() != "commit_bytes" || e.GetField() != "items[0].effects.ops" {
		t.Errorf("effects: %v", e)
	}
}

func TestCallsInFlightAreBoundedByTenantAndNode(t *testing.T) {
	r := newRig(t, edge.Limits{CallsTenant: 2, CallsNode: 3})
	r.n.Holding = true
	results := make(chan error)
	start := func(tenant string) {
		before := r.s.Stats().Calls
		go func() {
			_, err := pb.NewTaskServiceClient(r.conn).Create(apitest.As(tenant+"/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
			results <- err
		}()
		apitest.Eventually(t, "the call is in flight", func() bool { return r.s.Stats().Calls == before+1 })
	}
	start("acme")
	start("acme")
	_, err := pb.NewKVServiceClient(r.conn).Get(apitest.As("acme/all"), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "calls_tenant" || e.GetMax() != 2 {
		t.Errorf("tenant: %v", e)
	}
	start("rival")
	_, err = pb.NewKVServiceClient(r.conn).Get(apitest.As("third/all"), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetLimit() != "calls_node" || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("node: %v", e)
	}
	for range 3 {
		apitest.Eventually(t, "a proposal waits", func() bool { return r.n.Waiting() > 0 })
		r.n.ReleaseHeld(0)
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := pb.NewKVServiceClient(r.conn).Get(apitest.As("acme/all"), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	apitest.Eventually(t, "no call is counted", func() bool { return r.s.Stats().Calls == 0 })
}

func TestConnectionsAreBounded(t *testing.T) {
	for key, l := range map[string]edge.Limits{"connections_node": {ConnectionsNode: 1}, "connections_address": {ConnectionsAddress: 1}} {
		r := newRig(t, l)
		get := func(ctx context.Context, c pb.KVServiceClient) error {
			_, err := c.Get(ctx, &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
			return err
		}
		if err := get(apitest.As("acme/all"), pb.NewKVServiceClient(r.conn)); err != nil {
			t.Fatal(err)
		}
		second := apitest.Dial(r.t, r.lis)
		if err := get(apitest.As("acme/all"), pb.NewKVServiceClient(second)); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: a second connection: %v", key, err)
		}
		if st := r.s.Stats(); st.Connections != 1 || st.Refusals[key] == 0 {
			t.Errorf("%s: %+v", key, st)
		}
		if err := get(apitest.As("acme/all"), pb.NewKVServiceClient(r.conn)); err != nil {
			t.Errorf("%s: the first connection afterwards: %v", key, err)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLimitsHaveDefaultsAndHardMaxima(t *testing.T) {
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, row := range l.Rows() {
		if seen[row.Key] || *row.Value != row.Default || row.Default > row.Max || row.Default < 1 {
			t.Errorf("%s: value %d, default %d, maximum %d", row.Key, *row.Value, row.Default, row.Max)
		}
		seen[row.Key] = true
		*row.Value = row.Max + 1
		if _, err := l.WithDefaults(); err == nil || !strings.Contains(err.Error(), row.Key) {
			t.Errorf("%s beyond its maximum: %v", row.Key, err)
		}
		*row.Value = row.Default
	}
	if core.MaxCommitOps < l.CommitOps || core.MaxCommitBytes < l.CommitBytes {
		t.Error("the edge admits commits that Apply does not")
	}
	if proto.Size(&pb.TaskSpec{}) != 0 {
		t.Error("an empty message has a size")
	}
}
