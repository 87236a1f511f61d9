package stream

import (
	"context"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func waitsFrame(seq uint64, ids ...string) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Waits{Waits: &pb.WaitsFrame{Seq: seq, Ids: ids}}}
}

func forgetFrame(seq uint64, ids ...string) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Waits{Waits: &pb.WaitsFrame{Seq: seq, Forget: ids}}}
}

// runTasks stores tasks that run.
func (r *rig) runTasks(ids ...string) {
	for _, id := range ids {
		r.n.AddTask(r.t, "acme", id)
		r.change(id, func(t *core.Task) { t.State, t.Result, t.HasResult = core.Running, nil, false })
	}
}

func (r *rig) change(id string, f func(t *core.Task)) {
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	for _, tasks := range r.n.Stored {
		if t, ok := tasks[apitest.MustID(r.t, id)]; ok {
			f(&t)
			tasks[t.ID] = t
		}
	}
}

// endTask stores a task as completed with a result.
func (r *rig) endTask(id, result string) {
	r.change(id, func(t *core.Task) {
		t.State, t.Payload, t.Result, t.HasResult = core.Completed, []byte("asked"), []byte(result), true
	})
}

// ended receives the next frame, which must tell of the end of a task.
func (ws *wireStream) ended() *pb.Ended {
	ws.r.t.Helper()
	e := ws.recv().GetEnded()
	if e == nil {
		ws.r.t.Fatal("the frame does not tell of an end")
	}
	return e
}

func TestAStreamTellsOfTheEndOfTasks(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Ends = make(chan struct{})
	r.runTasks(apitest.ID(1), apitest.ID(2))
	r.endTask(apitest.ID(1), "before")
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	ws.send(waitsFrame(7, apitest.ID(1), apitest.ID(2), apitest.ID(2), "no id"))
	a := ws.ack()
	if a.GetSeq() != 7 || len(a.GetWaits()) != 4 || a.GetError() != nil {
		t.Fatalf("ack %v", a)
	}
	for i, w := range a.GetWaits() {
		if (w.GetError() != nil) != (i == 3) {
			t.Errorf("task %d: %v", i, w)
		}
	}
	if e := a.GetWaits()[3].GetError(); e.GetField() != "ids[3]" {
		t.Errorf("a bad id is refused as %v", e)
	}
	// The one that ended before is told at once, the other one, which was asked for twice, once.
	if e := ws.ended(); e.GetId() != apitest.ID(1) || string(e.GetTask().GetResult()) != "before" || e.GetTask().GetPayload() != nil || e.GetAt() == nil {
		t.Errorf("told %v", e)
	}
	r.endTask(apitest.ID(2), "later")
	close(r.n.Ends)
	if e := ws.ended(); e.GetId() != apitest.ID(2) || string(e.GetTask().GetResult()) != "later" {
		t.Errorf("told %v", e)
	}
	// A client that was told may ask again.
	ws.send(waitsFrame(8, apitest.ID(2)))
	ws.ack()
	if e := ws.ended(); e.GetId() != apitest.ID(2) {
		t.Errorf("told %v", e)
	}
	// A task that is not there is told by an error.
	ws.send(waitsFrame(9, apitest.ID(3)))
	ws.ack()
	if e := ws.ended(); e.GetError().GetCode() != "NOT_FOUND" || e.GetTask() != nil {
		t.Errorf("told %v", e)
	}
}

func TestWaitsOfAStreamAreBoundedAndForgotten(t *testing.T) {
	r := newRig(t, edge.Limits{StreamWaits: 2, FrameItems: 3})
	r.n.Ends = make(chan struct{})
	r.runTasks(apitest.ID(1), apitest.ID(2), apitest.ID(3))
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	ws.send(waitsFrame(1, apitest.ID(1), apitest.ID(2), apitest.ID(3)))
	if e := ws.ack().GetWaits()[2].GetError(); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "stream_waits" || e.GetMax() != 2 {
		t.Errorf("beyond the bound: %v", e)
	}
	ws.send(forgetFrame(2, apitest.ID(1), apitest.ID(3)))
	if a := ws.ack(); a.GetError() != nil || len(a.GetWaits()) != 0 {
		t.Errorf("forget: %v", a)
	}
	ws.send(waitsFrame(3, apitest.ID(3)))
	if e := ws.ack().GetWaits()[0].GetError(); e != nil {
		t.Errorf("with room: %v", e)
	}
	for i := byte(1); i <= 3; i++ {
		r.endTask(apitest.ID(i), "x")
	}
	close(r.n.Ends)
	told := map[string]int{}
	for range 2 {
		told[ws.ended().GetId()]++
	}
	if told[apitest.ID(2)] != 1 || told[apitest.ID(3)] != 1 {
		t.Errorf("told of %v", told)
	}
	for name, f := range map[string]*pb.ClientFrame{
		"empty": waitsFrame(4), "too many": waitsFrame(4, "a", "b", "c", "d"), "too many forgotten": forgetFrame(4, "a", "b", "c", "d"),
		"a bad id": forgetFrame(4, "x"),
	} {
		ws.send(f)
		if e := ws.ack().GetError(); e == nil || e.GetOutcome() != pb.Error_REFUSED {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestWaitsEndWithTheirStream(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Ends = make(chan struct{})
	r.runTasks(apitest.ID(1))
	ctx, cancel := context.WithCancel(apitest.As("acme/all"))
	ws, _ := r.greet(ctx, 1)
	ws.send(waitsFrame(1, apitest.ID(1)))
	ws.ack()
	cancel() // the test fails at its end if the wait goes on
	ws, _ = r.greet(apitest.As("acme/all"), 2)
	ws.send(waitsFrame(1, apitest.ID(1)))
	ws.ack()
	if err := ws.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Recv(); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("a client that closes its side while it waits gets %v", err)
	}
}

func TestATaskOfAnotherQueueIsNotWaitedFor(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(t, "acme", apitest.ID(1))
	ws, _ := r.greet(apitest.As("acme/all/queues=web"), 1)
	ws.send(waitsFrame(1, apitest.ID(1)))
	if e := ws.ack().GetWaits()[0].GetError(); e.GetCode() != "NOT_FOUND" {
		t.Errorf("told %v", e)
	}
}
