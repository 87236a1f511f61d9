package millrace_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// side is one of two namespaces in which the same is done, by another transport each.
type side struct {
	tasks   pb.TaskServiceClient
	commits pb.CommitServiceClient
	kv      pb.KVServiceClient
	queues  pb.QueueServiceClient
	bulk    pb.BulkServiceClient
	present pb.WorkerServiceClient
	errors  pb.ErrorServiceClient
	held    []*pb.Hold // what was claimed, in order
}

func newSide(c *millrace.Client) *side {
	conn := c.Conn()
	return &side{
		tasks: pb.NewTaskServiceClient(conn), commits: pb.NewCommitServiceClient(conn),
		kv: pb.NewKVServiceClient(conn), queues: pb.NewQueueServiceClient(conn), bulk: pb.NewBulkServiceClient(conn),
		present: pb.NewWorkerServiceClient(conn), errors: pb.NewErrorServiceClient(conn),
	}
}

var sameRuns atomic.Int32

// Whatever is asked by REST leaves the same state, and gets the same answer or error, as by gRPC. Payloads, keys, names,
// numbers and refusals are drawn; what differs by nature (times, places in the log, revisions) is left out.
func TestTheSameIsDoneAndAnsweredByEachTransport(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sides [2]*side
		for i, m := range []millrace.TransportMode{millrace.TransportStream, millrace.TransportREST} {
			c, err := millrace.Dial(t.Context(), millrace.Transport(m), millrace.RESTAddress(restAddress()),
				millrace.Namespace(fmt.Sprintf("same-%d-%s", sameRuns.Add(1), m)))
			if err != nil {
				rt.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // it never fails
			sides[i] = newSide(c)
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			step := drawStep(rt)
			got := [2]string{}
			for i, s := range sides {
				got[i] = s.do(t.Context(), proto.Clone(step))
			}
			if got[0] != got[1] {
				rt.Fatalf("%T %s\nby gRPC %s\nby REST %s", step, prototext.Format(step), got[0], got[1])
			}
		}
	})
}

// do carries out a step and shows its answer.
func (s *side) do(ctx context.Context, step proto.Message) string {
	var out proto.Message
	var err error
	switch in := step.(type) {
	case *pb.CreateRequest:
		out, err = s.tasks.Create(ctx, in)
	case *pb.BatchCreateRequest:
		out, err = s.tasks.BatchCreate(ctx, in)
	case *pb.GetRequest:
		out, err = s.tasks.Get(ctx, in)
	case *pb.ListRequest:
		out, err = s.tasks.List(ctx, in)
	case *pb.ListAttemptsRequest:
		out, err = s.tasks.ListAttempts(ctx, in)
	case *pb.ClaimRequest:
		var claimed *pb.ClaimResponse
		claimed, err = s.tasks.Claim(ctx, in)
		for _, a := range claimed.GetTasks() {
			s.held = append(s.held, &pb.Hold{Id: a.Id, Token: a.Token})
		}
		out = claimed
	case *pb.SettleRequest:
		for _, it := range in.Items {
			it.Id, it.Token = s.aim(it.Id, it.Token)
		}
		out, err = s.tasks.Settle(ctx, in)
	case *pb.HeartbeatRequest:
		for _, h := range in.Items {
			h.Id, h.Token = s.aim(h.Id, h.Token)
		}
		out, err = s.tasks.Heartbeat(ctx, in)
	case *pb.CommitRequest:
		if f := in.Fence; f != nil {
			f.Task, f.Token = s.aim(f.Task, f.Token)
		}
		out, err = s.commits.Commit(ctx, in)
	case *pb.KVGetRequest:
		out, err = s.kv.Get(ctx, in)
	case *pb.SetQueueRequest:
		out, err = s.queues.Set(ctx, in)
	case *pb.GetQueueRequest:
		out, err = s.queues.Get(ctx, in)
	case *pb.QueueStatsRequest:
		out, err = s.queues.Stats(ctx, in)
	case *pb.ListQueuesRequest:
		out, err = s.queues.List(ctx, in)
	default:
		out, err = s.operate(ctx, step)
	}
	if err != nil {
		return shown(err)
	}
	out = proto.Clone(out)
	plain(out.ProtoReflect())
	return prototext.Format(out)
}

// operate carries out a step of who looks after tasks and queues.
func (s *side) operate(ctx context.Context, step proto.Message) (out proto.Message, err error) {
	switch in := step.(type) {
	case *pb.DeleteRequest:
		out, err = s.tasks.Delete(ctx, in)
	case *pb.RunNowRequest:
		out, err = s.tasks.RunNow(ctx, in)
	case *pb.CancelRequest:
		out, err = s.tasks.Cancel(ctx, in)
	case *pb.RetryRequest:
		out, err = s.tasks.Retry(ctx, in)
	case *pb.ForceReleaseRequest:
		out, err = s.tasks.ForceRelease(ctx, in)
	case *pb.UpdateRequest:
		out, err = s.tasks.Update(ctx, in)
	case *pb.PauseQueueRequest:
		out, err = s.queues.Pause(ctx, in)
	case *pb.ResumeQueueRequest:
		out, err = s.queues.Resume(ctx, in)
	case *pb.ReportRequest:
		in.Id, in.Token = s.aim(in.Id, in.Token)
		out, err = s.tasks.Report(ctx, in)
	case *pb.LogsRequest:
		out, err = s.tasks.Logs(ctx, in)
	case *pb.EffectsRequest:
		out, err = s.tasks.Effects(ctx, in)
	case *pb.WhyRequest:
		out, err = s.tasks.Why(ctx, in)
	case *pb.StartBulkRequest:
		out, err = s.bulk.Start(ctx, in)
	case *pb.RedriveRequest:
		out, err = s.bulk.Redrive(ctx, in)
	case *pb.GetBulkRequest:
		out, err = s.bulk.Get(ctx, in)
	case *pb.CancelBulkRequest:
		out, err = s.bulk.Cancel(ctx, in)
	case *pb.ListWorkersRequest:
		out, err = s.present.List(ctx, in)
	case *pb.ListErrorsRequest:
		out, err = s.errors.List(ctx, in)
	case *pb.QuietWorkerRequest:
		out, err = s.present.Quiet(ctx, in)
	}
	return out, err
}

// aim turns the place of a claimed task, given as its token without an id, into that task.
func (s *side) aim(id string, token uint64) (string, uint64) {
	if id == "" && token > 0 && token <= uint64(len(s.held)) {
		h := s.held[token-1]
		return h.Id, h.Token
	}
	return id, token
}

// shown is an error with all that a caller can act on.
func shown(err error) string {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if e, ok := d.(*pb.Error); ok {
			plain(e.ProtoReflect())
			return fmt.Sprintf("%v: %s", st.Code(), prototext.Format(e))
		}
	}
	return st.String()
}

// plain leaves out what differs by nature, and how long to wait, which REST always adds to some refusals. Times that a test drew
// are whole thousands of seconds, and stay.
func plain(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "at" || f.Name() == "index" || f.Name() == "lease_left_ms" || f.Name() == "created_ms" ||
			f.Name() == "message" || f.Name() == "cursor" || f.Name() == "retry_after" && m.Descriptor().Name() == "Error":
			m.Clear(f)
		case f.Name() == "rev":
			m.Set(f, protoreflect.ValueOfUint64(1))
		case f.Name() == "details":
			v.Map().Clear(protoreflect.ValueOfString("rev").MapKey())
		case f.IsMap():
		case f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp":
			if x, ok := v.Message().Interface().(*timestamppb.Timestamp); ok && (x.Nanos != 0 || x.Seconds%1000 != 0) {
				m.Clear(f)
			}
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				plain(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			plain(v.Message())
		}
		return true
	})
}

var (
	drawQueue = rapid.SampledFrom([]string{"q", "q", "q", "q", "r", "r", "", "no name"})
	drawKey   = rapid.SampledFrom(append(oddKeys, "k", "l", "", strings.Repeat("k", 4000)))
	drawNum   = rapid.SampledFrom([]uint64{0, 1, 2, 3, 1<<53 + 1, math.MaxUint64})
	drawText  = rapid.SampledFrom([]string{"", "plain", "é\u2028\U0001f600", "\"\\\n\t", "</script>", strings.Repeat("x", 300)})
	drawSpan  = rapid.SampledFrom([]*durationpb.Duration{
		nil, nil, nil,
		{},
		{Seconds: 1},
		{Seconds: 90, Nanos: 5e8},
		{Seconds: 600, Nanos: 1e6}, // none that may end between the steps of one side and those of the other
		{Seconds: 600, Nanos: 1},
		{Seconds: -3},
		{Seconds: 86400},
		{Seconds: 1 << 33},
	})
	drawBytes = rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.SampledFrom([][]byte{
			nil, []byte(`null`), []byte(` {"a": 9007199254740993} `), []byte(`{"b":1,"a":[1.0,-0]}`), []byte(`"\u0000"`), []byte(`{`),
		}),
	)
)

func drawID(rt *rapid.T) string {
	return rapid.SampledFrom([]string{
		"01JC0000000000000000000001", "01JC0000000000000000000002", "01JC0000000000000000000003", "01JC0000000000000000000004", "01JC0000000000000000000005", "01JC0000000000000000000006", "x", "",
	}).Draw(rt, "id")
}

func drawTime(rt *rapid.T) *timestamppb.Timestamp {
	return rapid.SampledFrom([]*timestamppb.Timestamp{
		nil, nil, {Seconds: -1000}, {Seconds: 1_900_000_000}, {Seconds: 2_000_000_000}, {Seconds: 9_000_000_000},
	}).Draw(rt, "time")
}

func drawSpec(rt *rapid.T) *pb.TaskSpec {
	id := drawID(rt)
	if id == "" {
		id = "01JC0000000000000000000009" // ids that a server makes differ
	}
	s := &pb.TaskSpec{
		Id: id, Queue: drawQueue.Draw(rt, "queue"), Kind: drawQueue.Draw(rt, "kind"), Payload: drawBytes.Draw(rt, "payload"),
		ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain", "application/x+json; a=b", "é"}).Draw(rt, "type"),
		Priority:    uint32(rapid.SampledFrom([]int{0, 0, 3, 9, 9, 10}).Draw(rt, "priority")),
	}
	if rapid.Bool().Draw(rt, "more") {
		return s
	}
	for range rapid.IntRange(0, 2).Draw(rt, "headers") {
		s.Headers = append(s.Headers, &pb.Header{Name: drawText.Draw(rt, "name"), Value: drawText.Draw(rt, "value")})
	}
	s.RunAt, s.Delay = drawTime(rt), nil
	if s.RunAt == nil {
		s.Delay = drawSpan.Draw(rt, "delay")
	}
	s.MaxAttempts = int32(rapid.SampledFrom([]int{0, 1, 7, -1, 1001}).Draw(rt, "attempts"))
	s.MaxCrashes = int32(rapid.SampledFrom([]int{0, 2}).Draw(rt, "crashes"))
	if rapid.Bool().Draw(rt, "bounded") {
		s.MaxDeliveries = proto.Int32(int32(rapid.SampledFrom([]int{0, 5, -4}).Draw(rt, "deliveries")))
	}
	s.Lease, s.MaxRun = drawSpan.Draw(rt, "lease"), drawSpan.Draw(rt, "run")
	s.Retry = drawRetry(rt)
	if rapid.Bool().Draw(rt, "unique") {
		s.Unique = &pb.Unique{
			Key: drawText.Draw(rt, "key"), Ttl: drawSpan.Draw(rt, "ttl"),
			OnConflict: pb.Unique_OnConflict(rapid.IntRange(0, 2).Draw(rt, "conflict")),
		}
	}
	return s
}

func drawRetry(rt *rapid.T) *pb.Retry {
	if rapid.Bool().Draw(rt, "no retry") {
		return nil
	}
	return &pb.Retry{
		Backoff: pb.Backoff(rapid.IntRange(0, 5).Draw(rt, "backoff")), Base: drawSpan.Draw(rt, "base"),
		Factor: rapid.SampledFrom([]float64{0, 1, 2.25, 100, 101, 1.005}).Draw(rt, "factor"), Max: drawSpan.Draw(rt, "max"),
	}
}

func drawCheck(rt *rapid.T) *pb.KVCheck {
	c := &pb.KVCheck{
		Keyspace: rapid.SampledFrom([]string{"ks", "other", ""}).Draw(rt, "keyspace"), Key: []byte(drawKey.Draw(rt, "key")),
		Compare: pb.KVCheck_Compare(rapid.IntRange(0, 6).Draw(rt, "compare")),
	}
	switch rapid.IntRange(0, 2).Draw(rt, "operand") {
	case 1:
		c.Operand = &pb.KVCheck_Rev{Rev: drawNum.Draw(rt, "rev")}
	case 2:
		c.Operand = &pb.KVCheck_Value{Value: drawBytes.Draw(rt, "value")}
	}
	return c
}

func drawOp(rt *rapid.T) *pb.Op {
	switch rapid.IntRange(0, 9).Draw(rt, "op") {
	case 8:
		return &pb.Op{Op: &pb.Op_KvAdd{KvAdd: drawAdd(rt)}}
	case 9:
		return &pb.Op{Op: &pb.Op_KvDeleteRange{KvDeleteRange: &pb.KVDeleteRange{
			Keyspace: "ks", From: drawBytes.Draw(rt, "from"), To: drawBytes.Draw(rt, "to"), Prefix: drawBytes.Draw(rt, "prefix"),
			Count: rapid.Bool().Draw(rt, "count"),
		}}}
	case 0:
		return &pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: drawSpec(rt)}}
	case 1:
		return &pb.Op{Op: &pb.Op_KvDelete{KvDelete: &pb.KVDelete{Keyspace: "ks", Key: []byte(drawKey.Draw(rt, "key"))}}}
	case 2:
		return &pb.Op{Op: &pb.Op_KvCheck{KvCheck: drawCheck(rt)}}
	case 3:
		return &pb.Op{Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{
			Task: &pb.Hold{Id: drawID(rt), Token: drawNum.Draw(rt, "token")}, Complete: drawComplete(rt),
		}}}
	case 4:
		return &pb.Op{Op: &pb.Op_TaskSnooze{TaskSnooze: &pb.TaskSnooze{
			Task: &pb.Hold{Id: drawID(rt), Token: 1}, Snooze: &pb.Snooze{Until: drawTime(rt), Delay: drawSpan.Draw(rt, "delay")},
		}}}
	}
	put := &pb.KVPut{
		Keyspace: "ks", Key: []byte(drawKey.Draw(rt, "key")), Value: drawBytes.Draw(rt, "value"),
		IfAbsent: rapid.Bool().Draw(rt, "absent"), WantPrev: rapid.Bool().Draw(rt, "prev"),
	}
	if rapid.Bool().Draw(rt, "rev") {
		put.IfRev = proto.Uint64(drawNum.Draw(rt, "if_rev"))
	}
	return &pb.Op{Op: &pb.Op_KvPut{KvPut: put}}
}

func drawAdd(rt *rapid.T) *pb.KVAdd {
	add := &pb.KVAdd{Keyspace: "ks", Key: []byte(drawKey.Draw(rt, "key")), Delta: rapid.Int64().Draw(rt, "delta")}
	for _, field := range []**int64{&add.Floor, &add.Ceiling} {
		if rapid.Bool().Draw(rt, "bound?") {
			*field = proto.Int64(rapid.Int64().Draw(rt, "bound"))
		}
	}
	if rapid.Bool().Draw(rt, "rev") {
		add.IfRev = proto.Uint64(drawNum.Draw(rt, "if_rev"))
	}
	return add
}

func drawComplete(rt *rapid.T) *pb.Complete {
	return &pb.Complete{
		Result: drawBytes.Draw(rt, "result"), ResultType: rapid.SampledFrom([]string{"", "text/plain", "a\x01"}).Draw(rt, "type"),
	}
}

func drawSettle(rt *rapid.T) *pb.SettleItem {
	it := &pb.SettleItem{Token: uint64(rapid.IntRange(0, 4).Draw(rt, "claimed"))}
	if it.Token == 0 {
		it.Id, it.Token = drawID(rt), drawNum.Draw(rt, "token")
	}
	switch rapid.IntRange(0, 5).Draw(rt, "outcome") {
	case 0:
		it.Outcome = &pb.SettleItem_Fail{Fail: &pb.Fail{
			Error: &pb.TaskError{Code: drawText.Draw(rt, "code"), Message: drawText.Draw(rt, "message"), Stack: drawText.Draw(rt, "stack")},
			Fatal: rapid.Bool().Draw(rt, "fatal"), RetryAfter: drawSpan.Draw(rt, "after"),
		}}
	case 1:
		it.Outcome = &pb.SettleItem_Snooze{Snooze: &pb.Snooze{Until: drawTime(rt), Delay: drawSpan.Draw(rt, "delay")}}
	case 2:
		it.Outcome = &pb.SettleItem_Release{Release: &pb.Release{}}
	case 3: // none
	default:
		it.Outcome = &pb.SettleItem_Complete{Complete: drawComplete(rt)}
	}
	if rapid.IntRange(0, 2).Draw(rt, "effects") == 0 {
		it.Effects = &pb.Effects{FailOnRefusal: rapid.Bool().Draw(rt, "fail")}
		for range rapid.IntRange(0, 2).Draw(rt, "conditions") {
			it.Effects.Conditions = append(it.Effects.Conditions, drawCheck(rt))
		}
		for range rapid.IntRange(0, 3).Draw(rt, "ops") {
			it.Effects.Ops = append(it.Effects.Ops, drawOp(rt))
		}
	}
	return it
}

func drawStep(rt *rapid.T) proto.Message {
	queue := drawQueue.Draw(rt, "queue")
	switch rapid.IntRange(0, 16).Draw(rt, "step") {
	case 0:
		return &pb.CreateRequest{Task: drawSpec(rt)}
	case 1, 2:
		in := &pb.BatchCreateRequest{Atomic: rapid.Bool().Draw(rt, "atomic")}
		for range rapid.IntRange(0, 3).Draw(rt, "tasks") {
			in.Tasks = append(in.Tasks, drawSpec(rt))
		}
		return in
	case 3:
		return &pb.GetRequest{Id: drawID(rt), Stale: rapid.Bool().Draw(rt, "stale")}
	case 4:
		in := &pb.ListRequest{
			Queue: queue, State: pb.State(rapid.IntRange(0, 7).Draw(rt, "state")),
			Limit: uint32(rapid.SampledFrom([]int{0, 1, 1000, 1001}).Draw(rt, "limit")),
		}
		if in.Limit > 1000 { // of two mistakes each transport may name another
			in.Queue, in.State = "q", pb.State_READY
		}
		return in
	case 5:
		return &pb.ListAttemptsRequest{Id: drawID(rt)}
	case 6, 7:
		return &pb.ClaimRequest{
			Queues: []*pb.QueueWeight{{Name: "q"}, {Name: "r", Weight: 1}}, Max: uint32(rapid.SampledFrom([]int{0, 1, 4, 129}).Draw(rt, "max")),
			Lease: drawSpan.Draw(rt, "lease"), Worker: drawText.Draw(rt, "worker"),
		}
	case 8, 9, 10:
		in := &pb.SettleRequest{}
		for range rapid.IntRange(0, 3).Draw(rt, "items") {
			in.Items = append(in.Items, drawSettle(rt))
		}
		return in
	case 11, 12:
		in := &pb.CommitRequest{}
		if rapid.IntRange(0, 4).Draw(rt, "fenced") == 0 {
			in.Fence = &pb.Fence{Task: "", Token: uint64(rapid.IntRange(0, 4).Draw(rt, "fence"))}
		}
		if rapid.Bool().Draw(rt, "named") {
			in.RequestId = rapid.SampledFrom([][]byte{[]byte("0123456789abcdef"), []byte("\x00\xff23456789abcde\x80")}).Draw(rt, "request")
		}
		for range rapid.IntRange(0, 1).Draw(rt, "conditions") {
			in.Conditions = append(in.Conditions, drawCheck(rt))
		}
		for range rapid.IntRange(0, 3).Draw(rt, "ops") {
			in.Ops = append(in.Ops, drawOp(rt))
		}
		return in
	case 13:
		return &pb.KVGetRequest{Keyspace: "ks", Key: []byte(drawKey.Draw(rt, "key"))}
	case 14:
		return drawQueueStep(rt, queue)
	case 15:
		in := &pb.HeartbeatRequest{Extend: drawSpan.Draw(rt, "extend")}
		for range rapid.IntRange(0, 2).Draw(rt, "items") {
			in.Items = append(in.Items, &pb.Hold{Token: uint64(rapid.IntRange(0, 4).Draw(rt, "claimed"))})
		}
		return in
	default:
		return drawControl(rt, queue)
	}
}

// drawControl is a request of who looks after tasks and queues.
func drawControl(rt *rapid.T, queue string) proto.Message {
	reason := rapid.SampledFrom([]string{"", "why", strings.Repeat("r", 257)})
	switch rapid.IntRange(0, 18).Draw(rt, "control") {
	case 18:
		return &pb.ListErrorsRequest{
			Queue: rapid.SampledFrom([]string{"none", "-"}).Draw(rt, "of"), Kind: rapid.SampledFrom([]string{"", "send", "a b"}).Draw(rt, "kind"),
			Span: drawSpan.Draw(rt, "span"),
		}
	case 12:
		return &pb.EffectsRequest{Id: drawID(rt)}
	case 13:
		return &pb.WhyRequest{Id: drawID(rt)}
	case 8:
		return &pb.StartBulkRequest{
			Id: drawID(rt), Action: pb.BulkJob_Action(rapid.Int32Range(0, 5).Draw(rt, "action")), Reason: reason.Draw(rt, "reason"),
			Priority: rapid.Uint32Range(0, 10).Draw(rt, "priority"), Force: rapid.Bool().Draw(rt, "force"), DryRun: true, // how far a job is depends on the moment
			Rate:   rapid.SampledFrom([]uint32{0, 1, 1_000_001}).Draw(rt, "rate"),
			Filter: &pb.TaskFilter{Queue: queue, State: pb.State(rapid.Int32Range(0, 7).Draw(rt, "state"))},
		}
	case 9:
		return &pb.RedriveRequest{Queue: queue, Id: drawID(rt), DryRun: true}
	case 10:
		return &pb.GetBulkRequest{Id: drawID(rt)}
	case 11:
		return &pb.CancelBulkRequest{Id: drawID(rt)}
	case 16:
		return &pb.ReportRequest{
			Id: drawID(rt), Token: rapid.Uint64Range(0, 3).Draw(rt, "token"), Progress: &pb.Progress{Percent: rapid.Uint32Range(99, 101).Draw(rt, "percent")},
			Lines:      rapid.SliceOfN(rapid.SampledFrom([]string{"", "line", strings.Repeat("l", 5000)}), 0, 3).Draw(rt, "lines"),
			Checkpoint: rapid.SampledFrom([][]byte{nil, {}, []byte("c"), {0xff}}).Draw(rt, "checkpoint"),
		}
	case 17:
		return &pb.LogsRequest{Id: drawID(rt), Limit: rapid.SampledFrom([]uint32{0, 1, 1001}).Draw(rt, "limit"), After: rapid.Uint64Range(0, 2).Draw(rt, "after")}
	case 14:
		return &pb.ListWorkersRequest{Queue: rapid.SampledFrom([]string{"none", "-"}).Draw(rt, "of")}
	case 15:
		return &pb.QuietWorkerRequest{Worker: rapid.SampledFrom([]string{"", "unknown", strings.Repeat("w", 129)}).Draw(rt, "worker"), On: rapid.Bool().Draw(rt, "on")}
	case 0:
		return &pb.DeleteRequest{Id: drawID(rt)}
	case 1:
		return &pb.RunNowRequest{Id: drawID(rt)}
	case 2:
		return &pb.CancelRequest{Id: drawID(rt), Reason: reason.Draw(rt, "reason"), Force: rapid.Bool().Draw(rt, "force")}
	case 3:
		return &pb.RetryRequest{Id: drawID(rt)}
	case 4:
		return &pb.ForceReleaseRequest{Id: drawID(rt), Attempt: rapid.Uint32Range(0, 2).Draw(rt, "attempt")}
	case 5:
		return &pb.PauseQueueRequest{Queue: queue, Reason: reason.Draw(rt, "reason")}
	case 6:
		return &pb.ResumeQueueRequest{Queue: queue}
	}
	in := &pb.UpdateRequest{Id: drawID(rt), Delay: drawSpan.Draw(rt, "delay"), ClearLabels: rapid.Bool().Draw(rt, "clear")}
	if rapid.Bool().Draw(rt, "has priority") {
		in.Priority = proto.Uint32(rapid.Uint32Range(0, 10).Draw(rt, "priority"))
	}
	if rapid.Bool().Draw(rt, "has payload") {
		in.Payload = []byte(rapid.SampledFrom([]string{"", `{"a":1}`, "\x00\xff"}).Draw(rt, "payload"))
	}
	if rapid.Bool().Draw(rt, "has labels") {
		in.Labels = map[string]string{"env": "prod", rapid.SampledFrom([]string{"order", "", "-"}).Draw(rt, "name"): "7"}
	}
	return in
}

func drawQueueStep(rt *rapid.T, queue string) proto.Message {
	switch rapid.IntRange(0, 4).Draw(rt, "queue step") {
	case 0:
		return &pb.GetQueueRequest{Queue: queue}
	case 1:
		return &pb.QueueStatsRequest{Queue: queue}
	case 2:
		return &pb.ListQueuesRequest{Limit: uint32(rapid.SampledFrom([]int{0, 1, 1001}).Draw(rt, "limit"))}
	}
	config := &pb.QueueConfig{
		MaxAttempts: int32(rapid.SampledFrom([]int{0, 3, -1}).Draw(rt, "attempts")), Lease: drawSpan.Draw(rt, "lease"),
		Retry: drawRetry(rt), MaxPayload: rapid.SampledFrom([]int64{0, 512, 1 << 40}).Draw(rt, "payload"),
		Aging: drawSpan.Draw(rt, "aging"), RetainDead: drawSpan.Draw(rt, "dead"),
	}
	if rapid.Bool().Draw(rt, "off") {
		config.MaxDeliveries = proto.Int32(0)
	}
	in := &pb.SetQueueRequest{Queue: queue, Config: config}
	if rapid.Bool().Draw(rt, "if") {
		in.IfVersion = proto.Uint64(drawNum.Draw(rt, "version"))
	}
	return in
}
