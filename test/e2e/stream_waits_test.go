package e2e

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAStreamWaitsForTasksByFrames opens a stream as a client in any language does, and waits on it for more tasks than a connection may have
// calls. One of them fails, and one is cancelled.
func TestAStreamWaitsForTasksByFrames(t *testing.T) {
	s, k := serve(t)
	ctx := bounded(t, time.Minute)
	const n = 1200
	job := millrace.Job[int, int]("double").Queue("double").Attempts(1).MaxRun(time.Hour)
	args := make([]int, n)
	for i := range args {
		args[i] = i
	}
	handles, err := job.AddMany(ctx, k, args, millrace.Tag("user/7"))
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := job.Queue("dropped").Add(ctx, k, 1)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := pb.NewQueueStreamClient(k.Conn()).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	session := make([]byte, 16)
	_, _ = rand.Read(session)
	send := func(f *pb.ClientFrame) {
		t.Helper()
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: session}}})
	first, err := stream.Recv()
	if err != nil || !slices.Contains(first.GetWelcome().GetFeatures(), "waits") || first.GetWelcome().GetLimits().GetWaits() < n {
		t.Fatalf("welcome %v, %v", first, err)
	}
	ids := []string{dropped.ID}
	for _, h := range handles {
		ids = append(ids, h.ID)
	}
	seq := uint64(0)
	for part := range slices.Chunk(ids, 512) {
		seq++
		send(&pb.ClientFrame{Frame: &pb.ClientFrame_Waits{Waits: &pb.WaitsFrame{Seq: seq, Ids: part}}})
	}
	if _, err := k.Cancel(ctx, dropped.ID); err != nil {
		t.Fatal(err)
	}
	w := k.Worker(millrace.Slots(64))
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		if n == 7 {
			return 0, millrace.Fatal(context.DeadlineExceeded)
		}
		return 2 * n, nil
	})
	defer working(t, w)()
	ended := map[string]*pb.Ended{}
	for len(ended) < len(ids) {
		f, err := stream.Recv()
		if err != nil {
			t.Fatalf("%v after %d of %d\n%s", err, len(ended), len(ids), logOf(s))
		}
		if e := f.GetEnded(); e != nil {
			if ended[e.GetId()] != nil {
				t.Errorf("task %s was told twice", e.GetId())
			}
			ended[e.GetId()] = e
		}
	}
	if e := ended[dropped.ID]; e.GetTask().GetState() != pb.State_CANCELLED {
		t.Errorf("a task that was cancelled is told as %v", e)
	}
	if e := ended[handles[7].ID]; e.GetTask().GetState() != pb.State_DEAD || e.GetTask().GetReason() != "fatal" {
		t.Errorf("a task that failed is told as %v", e)
	}
	if e := ended[handles[1000].ID]; string(e.GetTask().GetResult()) != "2000" || e.GetTask().GetPayload() != nil {
		t.Errorf("a task that completed is told as %v", e)
	}
}

// TestAnAssignedTaskTellsItsTagAndItsTimes claims a task that was tried before.
func TestAnAssignedTaskTellsItsTagAndItsTimes(t *testing.T) {
	_, k := serve(t)
	ctx := bounded(t, time.Minute)
	job := millrace.Job[int, int]("one").Queue("one").MaxRun(90 * time.Second)
	if _, err := job.Add(ctx, k, 1, millrace.Tag("user/7")); err != nil {
		t.Fatal(err)
	}
	tasks := pb.NewTaskServiceClient(k.Conn())
	claim := func() *pb.Assignment {
		t.Helper()
		out, err := tasks.Claim(ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "one"}}, Wait: durationpb.New(10 * time.Second)})
		if err != nil || len(out.GetTasks()) != 1 {
			t.Fatal(out, err)
		}
		return out.GetTasks()[0]
	}
	a := claim()
	if a.GetTag() != "user/7" || a.GetMaxRunMs() != 90_000 || a.GetReadyMs() != 0 {
		t.Errorf("assigned as %v", a)
	}
	fail := &pb.SettleItem{Id: a.GetId(), Token: a.GetToken(), Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{Error: &pb.TaskError{Message: "x"}, RetryAfter: durationpb.New(2 * time.Millisecond)}}}
	if _, err := tasks.Settle(ctx, &pb.SettleRequest{Items: []*pb.SettleItem{fail}}); err != nil {
		t.Fatal(err)
	}
	if again := claim(); again.GetReadyMs() <= a.GetCreatedMs() || again.GetAttempt() != 2 {
		t.Errorf("assigned again as %v", again)
	}
}
