package rest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/server"
)

func TestAQueueIsRemovedOverREST(t *testing.T) {
	d := openDoor(t, mail)
	code := func(r reply) string { return r.text(t, "error", "code") }
	if got := code(d.do(mail, "DELETE", "/v1/queues/q", "").want(t, 404)); got != "NOT_FOUND" {
		t.Errorf("an unknown queue: %s", got)
	}
	d.do(mail, "DELETE", "/v1/queues/q?ns=unknown", "").want(t, 404)
	d.do(mail, "DELETE", "/v1/queues/q?purge=yes", "").want(t, 400)
	d.do(mail, "PUT", "/v1/queues/q", `{"lease":"30s"}`).want(t, 201)
	d.do(mail, "DELETE", "/v1/queues/q", "", "If-Match", `"2"`).want(t, 412)
	d.do(mail, "DELETE", "/v1/queues/q", "", "If-Match", `"1"`).want(t, 204)
	d.do(mail, "GET", "/v1/queues/q", "").want(t, 404)

	ready := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":1}`).want(t, 201).text(t, "id")
	later := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":2,"delay":"1h"}`).want(t, 201).text(t, "id")
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"]}`).want(t, 200)
	token := claimed.text(t, "tasks", "[0]", "token")
	held := d.do(mail, "DELETE", "/v1/queues/q", "").want(t, 409)
	if code(held) != "WRONG_STATE" || held.text(t, "error", "details", "state") != "running" {
		t.Errorf("with a running task: %s", held.body)
	}
	d.do(mail, "DELETE", "/v1/queues/q?purge=true", "").want(t, 204)
	for _, path := range []string{"/v1/tasks/" + ready, "/v1/tasks/" + later, "/v1/tasks/" + ready + "/attempts", "/v1/queues/q/stats"} {
		d.do(mail, "GET", path, "").want(t, 404)
	}
	if got := code(d.do(mail, "POST", "/v1/tasks/"+ready+"/complete", `{"token":`+token+`}`).want(t, 409)); got != "LEASE_LOST" {
		t.Errorf("the worker's completion: %s", got)
	}
	d.do(mail, "DELETE", "/v1/queues/q?purge=true", "").want(t, 404)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":3}`).want(t, 201)
	if got := d.do(mail, "GET", "/v1/queues/q/stats", "").want(t, 200); string(got.field(t, "created")) != "1" {
		t.Errorf("the next queue of that name: %s", got.body)
	}
}

func TestARemovedQueueIsGoneFromAllPartitions(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		for i := range 12 {
			w.create(&pb.TaskSpec{Queue: "q", Tag: fmt.Sprint(i)})
		}
		_, err := w.queues().Delete(w.ctx, &pb.DeleteQueueRequest{Queue: "q"})
		if e := errorIn(t, err); e.GetCode() != "WRONG_STATE" {
			t.Errorf("with ready tasks: %v", e)
		}
		stats, err := w.queues().Stats(w.ctx, &pb.QueueStatsRequest{Queue: "q"})
		if err != nil || stats.GetStats().GetReady() != 12 {
			t.Fatalf("after the refusal: %v, %v", stats, err)
		}
		if _, err := w.queues().Delete(w.ctx, &pb.DeleteQueueRequest{Queue: "q", Purge: true, IfVersion: proto.Uint64(0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.queues().Stats(w.ctx, &pb.QueueStatsRequest{Queue: "q"}); errorIn(t, err).GetCode() != "NOT_FOUND" {
			t.Errorf("after the removal: %v", err)
		}
		claimed, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Max: 20})
		if err != nil || len(claimed.GetTasks()) != 0 {
			t.Errorf("claimed %v, %v", claimed, err)
		}
		_, err = w.queues().Delete(w.ctx, &pb.DeleteQueueRequest{Queue: "q", Purge: true})
		if e := errorIn(t, err); e.GetCode() != "NOT_FOUND" {
			t.Errorf("a second time: %v", e)
		}
	})
}

// A claim that waits for a name gets the next task of that name, whatever became of the queue meanwhile.
func TestAClaimThatWaitsOutlivesItsQueue(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		w.create(&pb.TaskSpec{Queue: "q", Tag: "a", Payload: []byte("1"), RunAt: nil})
		first, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Wait: durationpb.New(20 * time.Second)})
		if err != nil || len(first.GetTasks()) != 1 {
			t.Fatalf("claimed %v, %v", first, err)
		}
		got := make(chan int, 1)
		go func() {
			out, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Wait: durationpb.New(30 * time.Second)})
			if err != nil {
				t.Error(err)
			}
			got <- len(out.GetTasks())
		}()
		if _, err := w.queues().Delete(w.ctx, &pb.DeleteQueueRequest{Queue: "q", Purge: true}); err != nil {
			t.Fatal(err)
		}
		w.create(&pb.TaskSpec{Queue: "q", Tag: "a", Payload: []byte("2")})
		if n := <-got; n != 1 {
			t.Errorf("the claim got %d tasks", n)
		}
	})
}

func TestQueuesAreBoundedBySettingAndEmptyOnesMakeRoom(t *testing.T) {
	d := openDoorWith(t, server.Options{Limits: edge.Limits{Queues: 3}}, mail)
	create := func(queue string) string {
		return d.do(mail, "POST", "/v1/tasks", `{"queue":"`+queue+`","payload":1}`).want(t, 201).text(t, "id")
	}
	first := create("a")
	create("b")
	d.do(mail, "PUT", "/v1/queues/set", `{}`).want(t, 201)
	for name, r := range map[string]reply{
		"a create":   d.do(mail, "POST", "/v1/tasks", `{"queue":"new"}`),
		"a commit":   d.do(mail, "POST", "/v1/commit", `{"ops":[{"task_create":{"queue":"new"}}]}`),
		"a queue":    d.do(mail, "PUT", "/v1/queues/new", `{}`),
		"atomically": d.do(mail, "POST", "/v1/tasks:batch", `{"atomic":true,"tasks":[{"queue":"a"},{"queue":"new"}]}`),
	} {
		r.want(t, 429)
		if r.text(t, "error", "limit") != "queues" || string(r.field(t, "error", "max")) != "3" {
			t.Errorf("%s: %s", name, r.body)
		}
	}
	create("a") // there is room in a queue that is there
	if n := strings.Count(string(d.do(mail, "GET", "/v1/queues", "").want(t, 200).body), `"queue":`); n != 3 {
		t.Errorf("%d queues after what was refused", n)
	}
	// The last task of a queue ends and is deleted: its name makes room.
	d.do(mail, "DELETE", "/v1/queues/b?purge=true", "").want(t, 204)
	create("c")
	for range 2 {
		got := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["a"]}`).want(t, 200)
		id := got.text(t, "tasks", "[0]", "id")
		d.do(mail, "POST", "/v1/tasks/"+id+"/complete", `{"token":`+got.text(t, "tasks", "[0]", "token")+`}`).want(t, 200)
		d.do(mail, "DELETE", "/v1/tasks/"+id, "").want(t, 200)
	}
	d.do(mail, "GET", "/v1/queues/a", "").want(t, 404)
	create("d")
	// What a create of a task of the first queue would have been told, it is told again.
	if r := d.do(mail, "POST", "/v1/tasks", `{"id":"`+first+`","queue":"a","payload":1}`).want(t, 200); string(r.field(t, "replayed")) != "true" {
		t.Errorf("the first create again: %s", r.body)
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"e"}`).want(t, 429)
}

// Batches of tasks, each in a queue of its own, go through a namespace: as many names as it may have, and then some.
func TestNamesOfQueuesThatWereUsedUpDoNotCloseANamespace(t *testing.T) {
	w := openWide(t, 1)
	const batches, size = 20, 500
	for b := range batches {
		in := &pb.BatchCreateRequest{}
		for i := range size {
			in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: fmt.Sprintf("run-%d-%d", b, i), Payload: []byte("1")})
		}
		made, err := w.tasks().BatchCreate(w.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < size; at += 50 {
			claim := &pb.ClaimRequest{Max: 50}
			for i := range 50 {
				claim.Queues = append(claim.Queues, &pb.QueueWeight{Name: fmt.Sprintf("run-%d-%d", b, at+i)})
			}
			got, err := w.tasks().Claim(w.ctx, claim)
			if err != nil || len(got.GetTasks()) != 50 {
				t.Fatalf("claimed %d, %v", len(got.GetTasks()), err)
			}
			done := &pb.SettleRequest{}
			for _, task := range got.GetTasks() {
				done.Items = append(done.Items, &pb.SettleItem{Id: task.GetId(), Token: task.GetToken(), Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}})
			}
			if _, err := w.tasks().Settle(w.ctx, done); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for part := range 8 {
			all.Go(func() {
				for i := part; i < size; i += 8 {
					if _, err := w.tasks().Delete(w.ctx, &pb.DeleteRequest{Id: made.GetResults()[i].GetId()}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	w.create(&pb.TaskSpec{Queue: "brand-new"})
	left, err := w.queues().List(w.ctx, &pb.ListQueuesRequest{})
	if err != nil || len(left.GetQueues()) != 1 {
		t.Errorf("%d queues are left, %v", len(left.GetQueues()), err)
	}
}
