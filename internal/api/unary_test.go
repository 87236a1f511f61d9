package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/errs"
)

func (r *rig) tasks() pb.TaskServiceClient { return pb.NewTaskServiceClient(r.conn) }

func (r *rig) queues() pb.QueueServiceClient { return pb.NewQueueServiceClient(r.conn) }

func TestCreateCarriesEveryField(t *testing.T) {
	r := newRig(t, edge.Limits{})
	out, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{
		Id: strings.ToLower(apitest.ID(1)), Queue: "mail", Kind: "send:now", Payload: []byte("p"), ContentType: "text/plain",
		Headers: []*pb.Header{{Name: "traceparent", Value: "x"}}, Priority: 9, RunAt: timestamppb.New(apitest.Now.Add(time.Hour)),
		MaxAttempts: 2, MaxCrashes: 3, MaxDeliveries: new(int32(0)), Lease: ms(5000), MaxRun: ms(1),
		Retry:  &pb.Retry{Backoff: pb.Backoff_LINEAR, Base: ms(7), Factor: 1.25, Max: durationpb.New(9 * time.Microsecond)},
		Unique: &pb.Unique{Key: "u", Ttl: ms(8), OnConflict: pb.Unique_REJECT},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if out.GetId() != apitest.ID(1) || out.GetAt().GetIndex() != 1 {
		t.Errorf("answer: %v", out)
	}
	got := *r.n.Proposed()[0].Ops[0].(*core.TaskCreate)
	if got.ID.String() != apitest.ID(1) || got.Queue != "mail" || got.TaskKind != "send:now" || string(got.Payload) != "p" ||
		got.ContentType != "text/plain" || got.Headers[0] != (core.Header{Name: "traceparent", Value: "x"}) || got.Priority != 9 {
		t.Errorf("content: %+v", got)
	}
	if got.RunAt != core.ShardTimeOf(apitest.Now.Add(time.Hour)) || got.MaxAttempts != 2 || got.MaxCrashes != 3 ||
		got.MaxDeliveries != -1 || got.Lease != 5000 || got.MaxRun != 1 {
		t.Errorf("policy: %+v", got)
	}
	if want := (core.Retry{Backoff: core.BackoffLinear, Base: 7, FactorPercent: 125, Max: 1}); got.Retry != want {
		t.Errorf("retry: %+v", got.Retry)
	}
	if want := (core.Unique{Key: "u", TTL: 8, Reject: true}); got.Unique != want {
		t.Errorf("unique: %+v", got.Unique)
	}
}

// TestNamedTimesAreBoundByTheWallClocks: shard time may be far from what they show.
func TestNamedTimesAreBoundByTheWallClocks(t *testing.T) {
	const year = core.Millis(365 * 24 * 3_600_000)
	for _, tc := range []struct {
		shift core.Millis
		years int
		ok    bool
	}{{0, 9, true}, {0, 11, false}, {2 * year, 11, true}, {2 * year, 13, false}, {-2 * year, 9, false}, {-2 * year, 7, true}} {
		r := newRig(t, edge.Limits{})
		r.n.WallShift = tc.shift
		at := timestamppb.New(apitest.Now.AddDate(tc.years, 0, 0))
		_, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q", RunAt: at}})
		if (err == nil) != tc.ok {
			t.Errorf("wall clocks %d ms beyond shard time, a task for %d years from that: %v, want it taken: %v", tc.shift, tc.years, err, tc.ok)
		}
		settled, err := r.tasks().Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{{
			Id: apitest.ID(1), Token: 2, Outcome: &pb.SettleItem_Snooze{Snooze: &pb.Snooze{Until: at}},
		}}})
		if err != nil || (settled.GetResults()[0].GetError() == nil) != tc.ok {
			t.Errorf("a snooze until then: %v, %v", settled, err)
		}
		beat, err := r.tasks().Heartbeat(apitest.As("acme/all"), &pb.HeartbeatRequest{Items: []*pb.Hold{{Id: apitest.ID(1), Token: 2}}})
		if want := apitest.Now.Add(tc.shift.Duration()); err != nil || !beat.GetResults()[0].GetLeaseUntil().AsTime().Equal(want) {
			t.Errorf("heartbeat %v, %v; want %v", beat, err, want)
		}
	}
}

func TestATaskWithoutAnIDGetsOneOfItsTimeAndPartition(t *testing.T) {
	r := newRig(t, edge.Limits{})
	seen := make(map[string]bool)
	for range 3 {
		out, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := core.ParseTaskID(out.GetId())
		if err != nil || id.Millis() != apitest.Now.UnixMilli() || id.Partition() != 0 || seen[out.GetId()] {
			t.Errorf("id %s: %v", out.GetId(), err)
		}
		seen[out.GetId()] = true
	}
}

func TestAReplayStandsWhereItWasFirstApplied(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Judge = func(c core.Commit) core.Result {
		res := apitest.Applied(c)
		res.Replayed, res.Index = true, 77
		res.Ops[0].Replayed, res.Ops[0].PayloadMatches = true, true
		return res
	}
	out, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
	if err != nil || !out.GetReplayed() || !out.GetPayloadMatches() || out.GetAt().GetIndex() != 77 {
		t.Errorf("got %v, %v", out, err)
	}
}

func TestADeadlineAfterTheProposalIsUnknown(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Holding = true
	c := &call{s: r.s, t: Translator{l: &r.s.Limits}}
	past, cancel := context.WithDeadline(context.Background(), apitest.Now.AddDate(-20, 0, 0))
	defer cancel()
	_, err := c.propose(past, core.Commit{})
	if f, ok := errors.AsType[core.DeadlineExceeded](err); !ok || f.Unknown || len(r.n.Proposed()) != 0 {
		t.Errorf("before: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := c.propose(ctx, core.Commit{})
		ended <- err
	}()
	apitest.Eventually(t, "it is proposed", func() bool { return r.n.Waiting() == 1 })
	stop()
	if f, ok := errors.AsType[core.Unavailable](<-ended); !ok || !f.Unknown {
		t.Errorf("after: %v", err)
	}
	r.n.ReleaseHeld(0) // no call waits any more, and nothing blocks
}

func TestBatchCreateAnswersEachItem(t *testing.T) {
	r := newRig(t, edge.Limits{})
	in := &pb.BatchCreateRequest{Tasks: []*pb.TaskSpec{{Queue: "q"}, {Queue: "?"}, {Queue: "q"}}}
	out, err := r.tasks().BatchCreate(apitest.As("acme/all"), in)
	if err != nil || len(out.GetResults()) != 3 || out.GetResults()[1].GetError().GetField() != "tasks[1].queue" || out.GetResults()[2].GetId() == "" {
		t.Errorf("got %v, %v", out, err)
	}
	in.Tasks = in.Tasks[1:2]
	if out, err = r.tasks().BatchCreate(apitest.As("acme/all"), in); err != nil || out.GetResults()[0].GetError() == nil {
		t.Errorf("all bad: %v, %v", out, err)
	}
	in.Atomic = true
	_, err = r.tasks().BatchCreate(apitest.As("acme/all"), in)
	if e := apitest.ErrorOf(t, err); e.GetField() != "tasks[0].queue" {
		t.Errorf("atomic: %v", e)
	}
}

func TestClaimGivesBackWhatDoesNotFitItsAnswer(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	var spec core.ClaimSpec
	r.n.OnClaim = func(_ context.Context, s core.ClaimSpec) ([]core.Assigned, error) {
		spec = s
		return apitest.AssignedTasks(5, mib), nil
	}
	out, err := r.tasks().Claim(apitest.As("acme/all"), &pb.ClaimRequest{
		Queues: []*pb.QueueWeight{{Name: "a"}, {Name: "b", Weight: 1}}, Max: 5, Lease: ms(2000), Wait: ms(30),
	})
	if err != nil || len(out.GetTasks()) != 2 {
		t.Fatalf("%d tasks, %v", len(out.GetTasks()), err)
	}
	if spec.Max != 5 || spec.Lease != 2000 || spec.Wait != 30 || spec.Worker != "someone" || spec.Queues[0].Weight != 1 || spec.Queues[1].Weight != 1 {
		t.Errorf("claim: %+v", spec)
	}
	released := r.n.Proposed()
	if len(released) != 3 || released[0].Ops[0].(*core.TaskRelease).Token != 3 {
		t.Errorf("released: %+v", released)
	}
}

func TestAClaimInAnUnknownNamespaceWaitsForItAndMakesNone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	in := &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}}
	out, err := r.tasks().Claim(apitest.As("acme/all"), in)
	if err != nil || len(out.GetTasks()) != 0 || r.n.Made != 0 {
		t.Errorf("without waiting: %v, %v", out, err)
	}
	r.n.OnClaim = func(_ context.Context, s core.ClaimSpec) ([]core.Assigned, error) {
		if s.Wait != 28_000 {
			return nil, errors.New("the wait so far was not taken off")
		}
		return apitest.AssignedTasks(1, 1), nil
	}
	in.Wait = ms(30_000)
	ended := make(chan error)
	go func() {
		out, err := r.tasks().Claim(apitest.As("acme/all"), in)
		if err == nil && len(out.GetTasks()) != 1 {
			err = errors.New("no task")
		}
		ended <- err
	}()
	for i := range 2 {
		apitest.Eventually(t, "the claim waits", func() bool { return r.clock.Armed() == 2 }) // one of the claim, one of what sweeps
		if i == 1 {
			r.n.AddTask(r.t, "acme", apitest.ID(1))
		}
		r.clock.Advance(time.Second)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNothingIsHeldInAnUnknownNamespace(t *testing.T) {
	r := newRig(t, edge.Limits{})
	beat, err := r.tasks().Heartbeat(apitest.As("acme/all"), &pb.HeartbeatRequest{Items: []*pb.Hold{{Id: apitest.ID(1), Token: 2}}})
	if err != nil || !beat.GetResults()[0].GetLost() {
		t.Errorf("heartbeat: %v, %v", beat, err)
	}
	out, err := r.tasks().Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: []*pb.SettleItem{apitest.DoneItem(1, 2), {}}})
	if err != nil || out.GetResults()[0].GetError().GetCode() != "NOT_FOUND" || out.GetResults()[1].GetError().GetField() != "items[1].id" {
		t.Errorf("settle: %v, %v", out, err)
	}
	get, err := pb.NewKVServiceClient(r.conn).Get(apitest.As("acme/all"), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
	if err != nil || get.GetFound() {
		t.Errorf("key: %v, %v", get, err)
	}
	list, err := r.tasks().List(apitest.As("acme/all"), &pb.ListRequest{Queue: "q", State: pb.State_READY})
	if err != nil || len(list.GetTasks()) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
	_, err = r.queues().Stats(apitest.As("acme/all"), &pb.QueueStatsRequest{Queue: "q"})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "NOT_FOUND" || !strings.Contains(e.GetMessage(), "queue") {
		t.Errorf("stats: %v", e)
	}
	_, err = r.queues().GetNamespace(apitest.As("acme/all"), &pb.GetNamespaceRequest{})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "NOT_FOUND" {
		t.Errorf("namespace: %v", e)
	}
	for _, err := range []error{
		func() error {
			_, err := r.tasks().RunNow(apitest.As("acme/all"), &pb.RunNowRequest{Id: apitest.ID(1)})
			return err
		}(),
		func() error {
			_, err := r.tasks().Delete(apitest.As("acme/all"), &pb.DeleteRequest{Id: apitest.ID(1)})
			return err
		}(),
	} {
		apitest.ExpectCode(t, "change", err, codes.NotFound)
	}
	if r.n.Made != 0 || len(r.n.Proposed()) != 0 {
		t.Errorf("%d namespaces, %d commits", r.n.Made, len(r.n.Proposed()))
	}
}

func TestTheNamespaceIsNamedOnceAndWell(t *testing.T) {
	r := newRig(t, edge.Limits{})
	for name, ctx := range map[string]context.Context{
		"colon": apitest.As("acme/all", edge.NamespaceKey, "a:b"), "empty": apitest.As("acme/all", edge.NamespaceKey, ""),
		"twice": apitest.As("acme/all", edge.NamespaceKey, "a", edge.NamespaceKey, "b"),
	} {
		_, err := r.tasks().Create(ctx, &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
		if e := apitest.ErrorOf(t, err); e.GetField() != "namespace" {
			t.Errorf("%s: %v", name, e)
		}
	}
	if _, err := r.tasks().Create(apitest.As("acme/all", edge.NamespaceKey, "prod"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.n.Spaces["acme/prod"]; !ok || r.n.Made != 1 {
		t.Errorf("namespaces: %v", r.n.Spaces)
	}
}

func TestAListIsPagedByAnOpaqueCursor(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.OnPage = func(q core.ListQuery) ([]core.Task, []byte, error) {
		if q.State != core.Dead || q.Queue != "q" {
			return nil, nil, errors.New("another query")
		}
		if q.Cursor == nil {
			return []core.Task{{ID: core.TaskID{1}, State: core.Dead}}, []byte{0, 0xff}, nil
		}
		if string(q.Cursor) != "\x00\xff" {
			return nil, nil, core.Invalid{Field: "cursor"}
		}
		return nil, nil, nil
	}
	in := &pb.ListRequest{Queue: "q", State: pb.State_DEAD}
	out, err := r.tasks().List(apitest.As("acme/all"), in)
	if err != nil || len(out.GetTasks()) != 1 || out.GetCursor() == "" {
		t.Fatalf("first page: %v, %v", out, err)
	}
	in.Cursor = out.GetCursor()
	if out, err = r.tasks().List(apitest.As("acme/all"), in); err != nil || out.GetCursor() != "" {
		t.Errorf("last page: %v, %v", out, err)
	}
	for _, bad := range []string{"%", "A", "AAA=", strings.Repeat("A", 2000), "AAAA"} {
		in.Cursor = bad
		_, err := r.tasks().List(apitest.As("acme/all"), in)
		if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "cursor" {
			t.Errorf("cursor %.10q: %v", bad, e)
		}
	}
	for state, reason := range map[pb.State]string{-1: "not_supported", 99: "not_supported"} {
		_, err := r.tasks().List(apitest.As("acme/all"), &pb.ListRequest{Queue: "q", State: state})
		if e := apitest.ErrorOf(t, err); e.GetField() != "state" || e.GetReason() != reason {
			t.Errorf("state %d: %v", state, e)
		}
	}
}

func TestALongListIsCutToOneMessage(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.OnPage = func(q core.ListQuery) ([]core.Task, []byte, error) {
		return apitest.Repeat(q.Limit, core.Task{Error: core.TaskError{Stack: strings.Repeat("s", 16*kib)}}), []byte{byte(q.Limit)}, nil
	}
	out, err := r.tasks().List(apitest.As("acme/all"), &pb.ListRequest{Queue: "q", State: pb.State_DEAD, Limit: 1000})
	if err != nil || len(out.GetTasks()) != 125 || proto.Size(out) > 4*mib {
		t.Errorf("%d tasks, %v", len(out.GetTasks()), err)
	}
}

func TestAnInternalErrorIsLoggedAndNotTold(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for want, err := range map[string]error{"INTERNAL": errors.New("secret path"), "DATA_LOSS": errs.Corruptf("secret path")} {
		r.n.KeyErr = err
		_, err := pb.NewKVServiceClient(r.conn).Get(apitest.As("acme/all"), &pb.KVGetRequest{Keyspace: "k", Key: []byte("k")})
		if e := apitest.ErrorOf(t, err); e.GetCode() != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
		if !strings.Contains(r.logs.String(), "secret path") {
			t.Error("the log does not say why")
		}
	}
}

func TestAPanicIsOneFailedCall(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.s.Recovers = true
	r.n.Judge = func(core.Commit) core.Result { panic("planted") }
	_, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "INTERNAL" {
		t.Errorf("got %v", e)
	}
}

func TestCallsThatWaitEndWhenTheServerStops(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	id, err := core.ParseTaskID(apitest.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, tasks := range r.n.Stored {
		tasks[id] = core.Task{ID: id, State: core.Running}
	}
	r.n.OnClaim = func(ctx context.Context, _ core.ClaimSpec) ([]core.Assigned, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	health := healthpb.NewHealthClient(r.conn)
	if h, err := health.Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	_, err = health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: "x"})
	apitest.ExpectCode(t, "health of another service", err, codes.NotFound)
	ended := make(chan error)
	go func() {
		_, err := r.tasks().Wait(apitest.As("acme/all"), &pb.WaitRequest{Id: apitest.ID(1)})
		ended <- err
	}()
	go func() {
		_, err := r.tasks().Claim(apitest.As("acme/all"), &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Wait: ms(60_000)})
		ended <- err
	}()
	apitest.Eventually(t, "both wait", func() bool { return r.s.Stats().Calls == 2 })
	r.s.Shutdown(time.Hour)
	for range 2 {
		err := <-ended
		if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetReason() != "stopping" {
			t.Errorf("got %v", err)
		}
	}
	if _, err := r.s.begin(context.Background(), false); !edge.Is[core.Unavailable](err) {
		t.Errorf("a call afterwards: %v", err)
	}
}

func TestWhatIsNotOverAfterTheGraceIsCut(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Holding = true
	ended := make(chan error)
	go func() {
		_, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
		ended <- err
	}()
	apitest.Eventually(t, "the call is proposed", func() bool { return r.n.Waiting() == 1 })
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.s.Shutdown(time.Second)
	}()
	apitest.Eventually(t, "the grace runs", func() bool { return r.clock.Armed() == 2 }) // and the pause before it
	r.clock.Advance(time.Second)
	<-over
	if got := status.Code(<-ended); got != codes.Unavailable {
		t.Errorf("got %v", got)
	}
}

func TestATaskIsShownWhole(t *testing.T) {
	id, err := core.ParseTaskID(apitest.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	got := ShowTask(&core.Task{
		ID: id, State: core.Running, MaxDeliveries: -1, Lease: 1500, CreatedAt: core.ShardTimeOf(apitest.Now), LeaseUntil: core.Never,
		Result: []byte{}, HasResult: true, Error: core.TaskError{Code: "c"},
	})
	if got.GetId() != apitest.ID(1) || got.GetState() != pb.State_RUNNING || got.GetMaxDeliveries() != 0 || got.GetLeaseUntil() != nil ||
		!got.GetCreatedAt().AsTime().Equal(apitest.Now) || got.GetLease().AsDuration() != 1500*time.Millisecond || !got.GetHasResult() || got.GetError().GetCode() != "c" {
		t.Errorf("got %v", got)
	}
	for s := range pb.State_name {
		if s != 0 && core.State(s).String() != strings.ToLower(pb.State(s).String()) {
			t.Errorf("state %d is %s here and %s on the wire", s, core.State(s), pb.State(s))
		}
	}
	for o := range pb.Outcome_name {
		if o != 0 && "OUTCOME_"+strings.ToUpper(core.Outcome(o).String()) != pb.Outcome(o).String() {
			t.Errorf("outcome %d is %s here and %s on the wire", o, core.Outcome(o), pb.Outcome(o))
		}
	}
	for c, want := range map[pb.KVCheck_Compare]core.Compare{
		pb.KVCheck_EXISTS: core.CompareExists, pb.KVCheck_ABSENT: core.CompareAbsent, pb.KVCheck_EQUAL: core.CompareEqual,
		pb.KVCheck_NOT_EQUAL: core.CompareNotEqual, pb.KVCheck_LESS: core.CompareLess, pb.KVCheck_GREATER: core.CompareGreater,
	} {
		if core.Compare(c) != want {
			t.Errorf("comparison %v is %d", c, want)
		}
	}
}
