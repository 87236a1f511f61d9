package rest_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// said is what a door answered to a commit.
type said struct {
	sum      string
	task     string // that the commit made
	replayed bool
	code     string // of its refusal; empty: applied
	field    string
	message  string
}

func saidBy(out *pb.CommitResponse, e *pb.Error) said {
	if e != nil {
		return said{code: e.GetCode(), field: e.GetField(), message: e.GetMessage()}
	}
	s := said{replayed: out.GetReplayed()}
	for _, r := range out.GetResults() {
		if r.GetSum() != 0 {
			s.sum = fmt.Sprint(r.GetSum())
		}
		if r.GetTask() != "" {
			s.task = r.GetTask()
		}
	}
	return s
}

// fenced is a commit in mid-task that adds one to a number and makes a task, under a request id.
func fenced(hold *pb.Hold, request byte, key string) *pb.CommitRequest {
	return &pb.CommitRequest{
		Fence:     &pb.Fence{Task: hold.GetId(), Token: hold.GetToken()},
		RequestId: []byte{15: request},
		Ops: []*pb.Op{
			{Op: &pb.Op_KvAdd{KvAdd: &pb.KVAdd{Keyspace: "sums", Key: []byte(key), Delta: 1}}},
			{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "followed", Tag: key}}},
		},
	}
}

// asJSON is a commit of those as REST takes it.
func asJSON(in *pb.CommitRequest) string {
	var ops []string
	for _, op := range in.GetOps() {
		switch op := op.GetOp().(type) {
		case *pb.Op_KvAdd:
			ops = append(ops, fmt.Sprintf(`{"kv_add":{"keyspace":%q,"key":%q,"delta":%d}}`, op.KvAdd.GetKeyspace(), op.KvAdd.GetKey(), op.KvAdd.GetDelta()))
		case *pb.Op_TaskCreate:
			ops = append(ops, fmt.Sprintf(`{"task_create":{"queue":%q,"tag":%q}}`, op.TaskCreate.GetQueue(), op.TaskCreate.GetTag()))
		case *pb.Op_TaskComplete:
			h := op.TaskComplete.GetTask()
			ops = append(ops, fmt.Sprintf(`{"task_complete":{"task":{"id":%q,"token":"%d"}}}`, h.GetId(), h.GetToken()))
		}
	}
	return fmt.Sprintf(`{"fence":{"task":%q,"token":"%d"},"request_id":%q,"ops":[%s]}`,
		in.GetFence().GetTask(), in.GetFence().GetToken(), hex.EncodeToString(in.GetRequestId()), strings.Join(ops, ","))
}

// lost sends a commit over a door and goes away without its answer.
type lost func(in *pb.CommitRequest)

// heard sends a commit over a door and returns its answer.
type heard func(in *pb.CommitRequest) said

func (w *wide) unary() (heard, lost) {
	client := pb.NewCommitServiceClient(w.conn)
	return func(in *pb.CommitRequest) said {
			out, err := client.Commit(w.ctx, in)
			if err != nil {
				return saidBy(nil, errorIn(w.t, err))
			}
			return saidBy(out, nil)
		}, func(in *pb.CommitRequest) {
			ctx, cancel := context.WithCancel(w.ctx)
			go cancel()
			_, _ = client.Commit(ctx, in) // it may have come through
		}
}

func (w *wide) overREST() (heard, lost) {
	return func(in *pb.CommitRequest) said {
			r := w.do(mail, "POST", "/v1/commit", asJSON(in))
			var body struct {
				Results  []struct{ Sum, Task string }
				Replayed bool
				Error    struct{ Code, Field, Message string }
			}
			if err := json.Unmarshal(r.body, &body); err != nil {
				w.t.Fatalf("%s: %v", r.body, err)
			}
			if body.Error.Code != "" {
				return said{code: body.Error.Code, field: body.Error.Field, message: body.Error.Message}
			}
			s := said{replayed: body.Replayed}
			for _, one := range body.Results {
				s.sum, s.task = s.sum+one.Sum, s.task+one.Task
			}
			return s
		}, func(in *pb.CommitRequest) {
			conn, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.base, "http://"))
			if err != nil {
				w.t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.base+"/v1/commit", strings.NewReader(asJSON(in)))
			if err != nil {
				w.t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+mail)
			if err := req.Write(conn); err != nil {
				w.t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				w.t.Fatal(err)
			}
		}
}

// overStream opens a stream for each commit.
func (w *wide) overStream(place uint32) (heard, lost) {
	n := byte(0)
	open := func(ctx context.Context, in *pb.CommitRequest) pb.QueueStream_OpenClient {
		stream, err := pb.NewQueueStreamClient(w.conn).Open(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		n++
		frames := []*pb.ClientFrame{
			{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: []byte{0: n, 15: 9}, Partition: place}}},
			{Frame: &pb.ClientFrame_Commit{Commit: &pb.CommitFrame{Seq: 1, Commit: in}}},
		}
		for _, f := range frames {
			if err := stream.Send(f); err != nil && !errors.Is(err, io.EOF) {
				w.t.Fatal(err)
			}
		}
		return stream
	}
	return func(in *pb.CommitRequest) said {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			stream := open(ctx, in)
			for {
				f, err := stream.Recv()
				if err != nil {
					w.t.Fatal(err)
				}
				if ack := f.GetAck(); ack != nil {
					return saidBy(ack.GetCommit(), ack.GetError())
				}
			}
		}, func(in *pb.CommitRequest) {
			ctx, cancel := context.WithCancel(w.ctx)
			open(ctx, in)
			cancel()
		}
}

// hold makes a task with a tag and claims it.
func (w *wide) hold(queue, tag string, lease time.Duration) *pb.Hold {
	w.t.Helper()
	w.create(&pb.TaskSpec{Queue: queue, Tag: tag})
	out, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{
		Queues: []*pb.QueueWeight{{Name: queue}}, Max: 1, Lease: durationpb.New(lease), Worker: "w", Wait: durationpb.New(20 * time.Second),
	})
	if err != nil || len(out.GetTasks()) != 1 {
		w.t.Fatalf("claimed %v, %v", out, err)
	}
	return &pb.Hold{Id: out.GetTasks()[0].GetId(), Token: out.GetTasks()[0].GetToken()}
}

func (w *wide) sum(key string) string {
	w.t.Helper()
	return string(w.do(mail, "GET", "/v1/kv/sums/keys/"+key, "").want(w.t, 200).body)
}

// A worker that writes in mid-task hears nothing of its commits and sends them a thousand times, over every door. Each is
// applied once, and every answer is the first one: also after the worker has lost the lease.
func TestAFencedCommitIsAppliedOnceHoweverOftenItIsSent(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		const commits, tries = 10, 100
		const key = "total"
		hold := w.hold("long", key, time.Hour)
		heardOf := make([]map[said]int, commits)
		doors := make([]struct {
			hear heard
			lose lost
		}, 3)
		doors[0].hear, doors[0].lose = w.unary()
		doors[1].hear, doors[1].lose = w.overREST()
		doors[2].hear, doors[2].lose = w.overStream(w.place(key))
		for i := range commits {
			heardOf[i] = make(map[said]int)
			for try := range tries {
				door, in := doors[(i+try)%len(doors)], fenced(hold, byte(i+1), key)
				if try%4 > 0 && try < tries-len(doors) {
					door.lose(in)
					continue
				}
				one := door.hear(in)
				one.replayed = false
				heardOf[i][one]++
			}
		}
		if got, want := w.sum(key), fmt.Sprint(commits); got != want {
			t.Errorf("%d commits, each sent %d times, have added up to %s", commits, tries, got)
		}
		for i, all := range heardOf {
			if len(all) != 1 {
				t.Errorf("commit %d was answered in %d ways: %v", i, len(all), all)
			}
		}
		stats := w.do(mail, "GET", "/v1/queues/followed/stats", "").want(t, 200)
		if got := string(stats.field(t, "created")); got != fmt.Sprint(commits) {
			t.Errorf("%d commits made %s tasks", commits, got)
		}
		w.afterwards(t, hold, key, doors[0].hear, doors[1].hear, doors[2].hear)
	})
}

// afterwards ends the task, and sees what the doors say to its worker then.
func (w *wide) afterwards(t *testing.T, hold *pb.Hold, key string, doors ...heard) {
	end := fenced(hold, 99, key)
	end.Ops = append(end.Ops, &pb.Op{Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{Task: hold, Complete: &pb.Complete{}}}})
	first := doors[0](end)
	if first.code != "" || first.replayed || first.sum != "11" {
		t.Fatalf("a commit that ends its task: %+v", first)
	}
	made, madeErr := core.ParseTaskID(first.task)
	held, heldErr := core.ParseTaskID(hold.GetId())
	if madeErr != nil || heldErr != nil || made.Millis() != held.Millis() {
		t.Errorf("the task that it made, %s, is not sorted with its own, %s", first.task, hold.GetId())
	}
	first.replayed = true
	unnamed := fenced(hold, 99, key)
	unnamed.RequestId, unnamed.Ops = nil, end.Ops
	other := fenced(hold, 1, key)
	other.Ops[0].GetKvAdd().Delta = 2
	for i, door := range doors {
		if got := door(end); got != first {
			t.Errorf("door %d: the end, repeated: %+v, want %+v", i, got, first)
		}
		if got := door(fenced(hold, 1, key)); got.code != "" || !got.replayed || got.sum != "1" {
			t.Errorf("door %d: a repetition after the lease: %+v", i, got)
		}
		if got := door(fenced(hold, 50, key)); got.code != "LEASE_LOST" {
			t.Errorf("door %d: a first try after the lease: %+v", i, got)
		}
		if got := door(other); got.code != "ALREADY_EXISTS" || !strings.Contains(got.message, "request") {
			t.Errorf("door %d: other content under a request id: %+v", i, got)
		}
		if i != 1 { // REST is asked with a request id
			if got := door(unnamed); got.code != "" || !got.replayed || got.task != first.task {
				t.Errorf("door %d: the end, repeated under its token alone: %+v, want the task %s", i, got, first.task)
			}
		}
	}
	if got := w.sum(key); got != "11" {
		t.Errorf("the sum is %s in the end", got)
	}
}
