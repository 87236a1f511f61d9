package stream

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func createIn(seq uint64, queues ...string) *pb.ClientFrame {
	var tasks []*pb.TaskSpec
	for _, q := range queues {
		tasks = append(tasks, &pb.TaskSpec{Queue: q})
	}
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: seq, Tasks: tasks}}}
}

func subscribeTo(queues ...string) *pb.ClientFrame {
	f := subscribeFrame(1, 1)
	f.GetSubscribe().Queues = nil
	for _, q := range queues {
		f.GetSubscribe().Queues = append(f.GetSubscribe().Queues, &pb.QueueWeight{Name: q})
	}
	return f
}

// TestFramesAreHeldToTheQueuesOfTheToken tries every frame that may be about a queue. The task is of the queue mail.
func TestFramesAreHeldToTheQueuesOfTheToken(t *testing.T) {
	hold := &pb.Hold{Id: apitest.ID(1), Token: 2}
	create := &pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "mail"}}}
	r := newRig(t, edge.Limits{})
	r.n.AddTask(t, "acme", apitest.ID(1))
	ws, _ := r.greet(apitest.As("acme/all/queues=web+ci.*"), 1)

	ws.send(createIn(1, "mail"))
	if a := ws.ack(); len(a.GetCreated()) != 1 || a.GetCreated()[0].GetError().GetCode() != "PERMISSION_DENIED" {
		t.Errorf("create: %v", a)
	}
	ws.send(createIn(2, "web", "mail", "ci.build"))
	if a := ws.ack(); len(a.GetCreated()) != 3 || a.GetCreated()[0].GetError() != nil || a.GetCreated()[1].GetError() == nil || a.GetCreated()[2].GetError() != nil {
		t.Errorf("creates: %v", a)
	}
	atomic := createIn(3, "web", "mail")
	atomic.GetCreate().Atomic = true
	ws.send(atomic)
	if a := ws.ack(); a.GetError().GetCode() != "PERMISSION_DENIED" {
		t.Errorf("creates, atomic: %v", a)
	}
	ws.send(createIn(4, "web"))
	if a := ws.ack(); len(a.GetCreated()) != 1 || a.GetCreated()[0].GetError() != nil {
		t.Errorf("create in its own queue: %v", a)
	}
	proposed := len(r.n.Proposed())
	ws.send(settleFrame(5, apitest.DoneItem(1, 2)))
	if a := ws.ack(); len(a.GetSettled()) != 1 || a.GetSettled()[0].GetError().GetCode() != "NOT_FOUND" {
		t.Errorf("settle: %v", a)
	}
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 6, Items: []*pb.Hold{hold}}}})
	if a := ws.ack(); len(a.GetRenewed()) != 1 || !a.GetRenewed()[0].GetLost() {
		t.Errorf("renew: %v", a)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 7, Commit: &pb.CommitRequest{Ops: []*pb.Op{create}}}))
	if a := ws.ack(); a.GetError().GetCode() != "PERMISSION_DENIED" {
		t.Errorf("commit: %v", a)
	}
	fenced := proto.CloneOf(apitest.PutCommit())
	fenced.Fence = &pb.Fence{Task: apitest.ID(1), Token: 2}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 8, Commit: fenced}))
	if a := ws.ack(); a.GetError().GetCode() != "NOT_FOUND" {
		t.Errorf("commit with a fence: %v", a)
	}
	if n := len(r.n.Proposed()) - proposed; n != 0 {
		t.Errorf("%d commits are proposed", n)
	}
	ws.send(subscribeTo("web", "mail"))
	apitest.ExpectCode(t, "subscribe", ws.end(), codes.PermissionDenied)

	// The same frames from a token of that queue.
	ws, ses := r.greet(apitest.As("acme/all/queues=m*"), 2)
	ws.send(subscribeTo("mail"))
	ws.send(createIn(1, "mail"))
	if a := ws.ack(); len(a.GetCreated()) != 1 || a.GetCreated()[0].GetError() != nil {
		t.Errorf("create by its own: %v", a)
	}
	ws.send(settleFrame(2, apitest.DoneItem(1, 2)))
	if a := ws.ack(); len(a.GetSettled()) != 1 || a.GetSettled()[0].GetError() != nil {
		t.Errorf("settle by its own: %v", a)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: fenced}))
	if a := ws.ack(); a.GetError() != nil {
		t.Errorf("commit by its own: %v", a)
	}
	ses.Mu.Lock()
	defer ses.Mu.Unlock()
	if len(ses.Subs) != 1 || ses.Spec.Reaches == nil || ses.Spec.Reaches("web") || !ses.Spec.Reaches("mail") {
		t.Errorf("subscriptions %v, reach of the session %v", ses.Subs, ses.Spec.Reaches != nil)
	}
}

// TestAStreamEndsWithTheQueuesThatItMayBeOf: subscriptions go on only while the token reaches their queues.
func TestAStreamEndsWithTheQueuesThatItMayBeOf(t *testing.T) {
	for token, goes := range map[string]bool{
		"acme/all": true, "acme/all/queues=*": true, "acme/task:create/queues=mail+web": true, "acme/all/queues=mail*": true,
		"acme/all/queues=web": false, "acme/all/queues=mai": false,
	} {
		r := newRig(t, edge.Limits{})
		ws, _ := r.greet(apitest.As("acme/all/queues=mail"), 1)
		ws.send(authFrame(token))
		if !goes {
			apitest.ExpectCode(t, token, ws.end(), codes.Unauthenticated)
			continue
		}
		ws.send(createIn(1, "mail"))
		if a := ws.ack(); a.GetError() != nil {
			t.Errorf("%s: %v", token, a)
		}
	}
}

// TestAFrameThatIsReadTheShortWayIsHeldToTheQueues: a settle tells its queue only by its tasks, and goes the long way.
func TestAFrameThatIsReadTheShortWayIsHeldToTheQueues(t *testing.T) {
	who := func(queues ...string) *edge.Caller {
		c := new(edge.Caller)
		c.Queues = queues
		return c
	}
	create := func(queue string) core.Commit { return core.Commit{Ops: []core.Op{&core.TaskCreate{Queue: queue}}} }
	creates := &wireFrame{kind: frameCreate, commits: []core.Commit{create("mail"), create("web")}}
	settles := &wireFrame{kind: frameSettle, commits: []core.Commit{{Ops: []core.Op{&core.TaskComplete{}}}}}
	puts := &wireFrame{kind: framePuts, commits: []core.Commit{{Ops: []core.Op{&core.KVPuts{}}}}}
	for _, c := range []struct {
		f    *wireFrame
		who  *edge.Caller
		want bool
	}{
		{creates, who(), true},
		{creates, who("mail"), false},
		{creates, who("mail", "w*"), true},
		{creates, who("*"), true},
		{settles, who(), true},
		{settles, who("mail"), false},
		{settles, who("*"), true},
		{puts, who("mail"), true},
	} {
		if got := c.f.reaches(c.who); got != c.want {
			t.Errorf("kind %d of %q: %v", c.f.kind, c.who.Queues, got)
		}
	}
}
