package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// startScoped starts a server with an admin's token for each list of queues; an empty one is of all.
func startScoped(t *testing.T, queues ...string) *local {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole server")
	}
	l := &local{t: t, dir: t.TempDir()}
	for range queues {
		l.tokens = append(l.tokens, server.NewToken())
	}
	l.writeScopes(queues...)
	l.start()
	t.Cleanup(l.stop)
	return l
}

// writeScopes gives the tokens other queues. All rows have one name, so that a token can take the place of another on a stream.
func (l *local) writeScopes(queues ...string) {
	l.t.Helper()
	var rows strings.Builder
	rows.WriteString("tokens:\n")
	for i, q := range queues {
		fmt.Fprintf(&rows, "  - {name: h, tenant: acme, hash: %q, roles: [admin], queues: [%s]}\n", server.HashToken(l.tokens[i]), q)
	}
	file := filepath.Join(l.dir, "tokens.yaml")
	noErr(l.t, os.WriteFile(file+".next", []byte(rows.String()), 0o600))
	noErr(l.t, os.Rename(file+".next", file))
}

// What the probes of a queue answer to a token of another; of all others a task of that queue cannot be told from one that is not there.
var (
	scopeDenied = []string{
		"TaskService/Create", "TaskService/List", "TaskService/Claim", "QueueService/Pause", "QueueService/Resume", "QueueService/Get",
		"QueueService/Keys", "QueueService/SetKey", "QueueService/PauseKey", "QueueService/ResumeKey", "QueueService/Stats", "QueueService/Set", "QueueService/SetNamespace", "BulkService/Start", "BulkService/Redrive", "CronService/Set",
		"LimiterService/Set", "LimiterService/Delete",
	}
	scopeOther = []string{
		"TaskService/BatchCreate", "TaskService/EndClaim", "WorkerService/List", "WorkerService/Quiet", "BulkService/List", "CommitService/Commit", "KVService/Get",
		"QueueService/List", "QueueService/GetNamespace", "CronService/List", "CronService/Preview", "BatchService/List", "LimiterService/List", "OverviewService/Get", "ServerService/Status",
	}
)

// TestATokenOfAnotherQueueChangesAndSeesNothing tries every probe on a task of the queue q that waits, runs and has ended.
func TestATokenOfAnotherQueueChangesAndSeesNothing(t *testing.T) {
	t.Parallel()
	l := startScoped(t, "", `mine, "ci.*"`)
	ctx := bounded(t, 90*time.Second)
	owner, admin, other := l.raw(0), l.client(0), l.raw(1)
	job := millrace.Job[string, string]("q")
	must(t, other, "TaskService/Create", &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "mine"}}, &pb.CreateResponse{})
	for _, state := range []string{"ready", "running", "completed"} {
		h := got[*millrace.Handle[string]](t)(job.Add(ctx, admin, state))
		var token uint64 = 1
		if state != "ready" {
			claimed := got[[]millrace.Claimed](t)(admin.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Max: 1, Lease: time.Minute}))
			if len(claimed) != 1 || claimed[0].ID != h.ID {
				t.Fatalf("claimed %v", claimed)
			}
			token = claimed[0].Token
		}
		if state == "completed" {
			_, err := admin.Complete(ctx, h.ID, token, "secret")
			noErr(t, err)
		}
		read := func() *pb.Task {
			return must(t, owner, "TaskService/Get", &pb.GetRequest{Id: h.ID}, &pb.GetResponse{}).GetTask()
		}
		before, missing := read(), newID()
		for _, p := range probes {
			switch a := other.call(t, p.method, p.m(h.ID, "q", "k")); {
			case slices.Contains(scopeDenied, p.method):
				if a.status != 7 || a.code() != "PERMISSION_DENIED" {
					t.Errorf("%s, %s: %d %s", state, p.method, a.status, a.message)
				}
			case !slices.Contains(scopeOther, p.method):
				sameBytes(t, p.method, a, other.call(t, p.method, p.m(missing, "q", "k")), h.ID, missing)
			}
		}
		byHold := func(method string, m func(id string) proto.Message) {
			t.Helper()
			sameBytes(t, method, other.call(t, method, m(h.ID)), other.call(t, method, m(missing)), h.ID, missing)
		}
		byHold("TaskService/Settle", func(id string) proto.Message { return completion(id, token) })
		byHold("TaskService/Heartbeat", func(id string) proto.Message {
			return &pb.HeartbeatRequest{Items: []*pb.Hold{{Id: id, Token: token}}}
		})
		byHold("CommitService/Commit", func(id string) proto.Message {
			return &pb.CommitRequest{Fence: &pb.Fence{Task: id, Token: token}, Ops: []*pb.Op{put("mine", "k", "1")}}
		})
		byHold("CommitService/Commit", func(id string) proto.Message {
			return &pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_TaskCancel{TaskCancel: &pb.TaskCancel{Id: id, Force: true}}}}}
		})
		byHold("CommitService/Commit", func(id string) proto.Message {
			return &pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{Task: &pb.Hold{Id: id, Token: token}}}}}}
		})
		if after := read(); !proto.Equal(before, after) {
			t.Errorf("%s: the task was %v and is %v", state, before, after)
		}
		if state == "ready" { // out of the way of the next one
			_, err := admin.Cancel(ctx, h.ID)
			noErr(t, err)
		}
	}
	seesOnly(t, other, "mine")
	stats := must(t, owner, "QueueService/Stats", &pb.QueueStatsRequest{Queue: "q"}, &pb.QueueStatsResponse{}).GetStats()
	if stats.GetCreated() != 3 {
		t.Errorf("the queue is %v", stats)
	}
	l.audit()
}

// seesOnly wants a token to see one queue, and nothing that is about all.
func seesOnly(t *testing.T, other *raw, queue string) {
	t.Helper()
	list := must(t, other, "QueueService/List", &pb.ListQueuesRequest{}, &pb.ListQueuesResponse{})
	if len(list.GetQueues()) != 1 || list.GetQueues()[0].GetQueue() != queue {
		t.Errorf("it sees the queues %v", list)
	}
	if a := other.call(t, "TaskService/List", &pb.ListRequest{}); a.status != 7 {
		t.Errorf("it lists the tasks of all queues: %d", a.status)
	}
	if a := other.call(t, "QueueService/DeleteNamespace", &pb.DeleteNamespaceRequest{}); a.status != 7 {
		t.Errorf("it removes the namespace: %d", a.status)
	}
}

// TestATokenWorksOnItsQueues: a producer and worker of queues of its own.
func TestATokenWorksOnItsQueues(t *testing.T) {
	t.Parallel()
	l := startScoped(t, `mine, "ci.*"`)
	ctx := bounded(t, time.Minute)
	c := l.client(0)
	for _, queue := range []string{"mine", "ci.build"} {
		job := millrace.Job[string, string](queue)
		h := got[*millrace.Handle[string]](t)(job.Add(ctx, c, "a"))
		w := c.Worker(millrace.Slots(1))
		job.Handle(w, func(_ context.Context, _ *millrace.Task, s string) (string, error) { return s + "!", nil })
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(run) }()
		if out, err := h.Wait(ctx); err != nil || out != "a!" {
			t.Errorf("%s: %q, %v", queue, out, err)
		}
		stop()
		<-ended
		waits := got[*millrace.Handle[string]](t)(job.Add(ctx, c, "b"))
		_, err := c.Cancel(ctx, waits.ID)
		noErr(t, err)
		_, err = c.Task(ctx, waits.ID)
		noErr(t, err)
	}
	l.audit()
}

// TestASessionGivesNoTaskOfAnotherQueue: a stream goes on with the session of a token that reaches more. What that one held is neither
// kept nor given again.
func TestASessionGivesNoTaskOfAnotherQueue(t *testing.T) {
	t.Parallel()
	l := startScoped(t, "", "mine")
	ctx := bounded(t, time.Minute)
	admin := l.client(0)
	h := got[*millrace.Handle[string]](t)(millrace.Job[string, string]("q").Add(ctx, admin, "secret"))
	subscribe := func(queue string) *pb.ClientFrame {
		return &pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: &pb.Subscribe{Sub: 1, Slots: 4, Queues: []*pb.QueueWeight{{Name: queue}}}}}
	}
	wide := l.raw(0).openStream(t)
	wide.hello(7)
	wide.send(subscribe("q"))
	var hold *pb.Hold
	for hold == nil {
		f, a := wide.next()
		if f == nil {
			t.Fatalf("the stream ended: %d %s", a.status, a.message)
		}
		for _, task := range f.GetAssign().GetTasks() {
			hold = &pb.Hold{Id: task.GetId(), Token: task.GetToken()}
		}
	}
	if hold.GetId() != h.ID {
		t.Fatalf("assigned %v", hold)
	}
	for _, held := range [][]*pb.Hold{{hold}, nil} { // named, and not named, which would have it sent again
		s := l.raw(1).openStream(t)
		s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: bytes.Repeat([]byte{7}, 16), Held: held}}})
		f, a := s.next()
		if f.GetWelcome() == nil || len(f.GetWelcome().GetKept()) != 0 || len(f.GetWelcome().GetLost()) != len(held) {
			t.Fatalf("welcome %v, %d %s", f, a.status, a.message)
		}
		s.send(subscribe("mine"))
		must(t, l.raw(1), "TaskService/Create", &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "mine"}}, &pb.CreateResponse{})
		f, a = s.next()
		if tasks := f.GetAssign().GetTasks(); len(tasks) != 1 || tasks[0].GetId() == h.ID {
			t.Fatalf("the first frame is %v, %d %s", f, a.status, a.message)
		}
		s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{Seq: 1, Items: []*pb.Hold{hold}}}})
		if k := s.ack(1); len(k.GetRenewed()) != 1 || !k.GetRenewed()[0].GetLost() {
			t.Errorf("renewed: %v", k)
		}
		s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Settle{Settle: &pb.SettleFrame{Seq: 2, Items: completion(hold.GetId(), hold.GetToken()).GetItems()}}})
		if k := s.ack(2); k.GetSettled()[0].GetError().GetCode() != "NOT_FOUND" {
			t.Errorf("settled: %v", k)
		}
	}
}

// TestAStreamEndsWhenItsRowReachesFewerQueues: the file is written while a worker is subscribed.
func TestAStreamEndsWhenItsRowReachesFewerQueues(t *testing.T) {
	t.Parallel()
	l := startScoped(t, "q, mine")
	subscribe := &pb.ClientFrame{Frame: &pb.ClientFrame_Subscribe{Subscribe: &pb.Subscribe{Sub: 1, Slots: 4, Queues: []*pb.QueueWeight{{Name: "q"}}}}}
	s := l.raw(0).openStream(t)
	s.hello(1)
	s.send(subscribe)
	if f, _ := s.next(); f.GetWelcome() == nil {
		t.Fatalf("%v", f)
	}
	l.writeScopes("q, mine, more") // that takes nothing away
	l.awaitScope(0, "more", true)
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: 1, Tasks: []*pb.TaskSpec{{Queue: "mine"}}}}})
	s.ack(1)
	l.writeScopes("mine")
	if a := s.ended(); a.status != 16 {
		t.Errorf("it ends with %d %s", a.status, a.message)
	}
	s = l.raw(0).openStream(t)
	s.hello(1)
	s.send(subscribe)
	if a := s.ended(); a.status != 7 {
		t.Errorf("it subscribes again: %d %s", a.status, a.message)
	}
}

// awaitScope waits until a token reaches a queue, or does not.
func (l *local) awaitScope(holder int, queue string, reaches bool) {
	l.t.Helper()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		a := l.raw(holder).call(l.t, "QueueService/Stats", &pb.QueueStatsRequest{Queue: queue})
		if (a.status != 7) == reaches {
			return
		}
		if time.Now().After(late) {
			l.t.Fatalf("%s: %d %s", queue, a.status, a.message)
		}
	}
}

// TestQueuesOfATokenOnAllNodes: a namespace of six partitions over three nodes. A node that does not lead a task's partition judges its
// queue too.
func TestQueuesOfATokenOnAllNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, nil)
	scoped := server.NewToken()
	f, err := os.OpenFile(filepath.Join(c.dir, "tokens.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	noErr(t, err)
	_, err = fmt.Fprintf(f, "  - {name: b, tenant: default, hash: %q, roles: [admin], queues: [\"ci.*\"]}\n", server.HashToken(scoped))
	noErr(t, err)
	noErr(t, f.Close())
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() { c.start(i) })
	}
	all.Wait()
	ctx := bounded(t, 90*time.Second)
	c.leader()
	wide := millrace.Namespace("wide")
	admin := c.client(0, wide)
	_, err = admin.CreateNamespace(ctx, 6)
	noErr(t, err)
	foreign, own := millrace.Job[int, int]("q"), millrace.Job[int, int]("ci.build")
	for node := range 3 {
		k := got[*millrace.Client](t)(millrace.Dial(ctx, wide, millrace.Address(c.peers[node].API), millrace.Token(scoped)))
		t.Cleanup(func() { k.Close() })
		var theirs, mine []string
		for n := range 6 {
			tag := millrace.Tag(fmt.Sprint(n))
			theirs = append(theirs, got[*millrace.Handle[int]](t)(foreign.Add(ctx, admin, n, tag)).ID)
			mine = append(mine, got[*millrace.Handle[int]](t)(own.Add(ctx, k, n, tag)).ID)
		}
		for i := range theirs {
			if _, err := k.Task(ctx, theirs[i]); !errors.Is(err, millrace.ErrNotFound) {
				t.Errorf("node %d reads a task of another queue: %v", node+1, err)
			}
			if _, err := k.Cancel(ctx, theirs[i]); !errors.Is(err, millrace.ErrNotFound) {
				t.Errorf("node %d cancels a task of another queue: %v", node+1, err)
			}
			_, err := k.Cancel(ctx, mine[i])
			noErr(t, err)
			_, err = k.Task(ctx, mine[i])
			noErr(t, err)
		}
		var denied *millrace.Error
		if _, err := foreign.Add(ctx, k, 1); !errors.As(err, &denied) || denied.Code != millrace.CodePermissionDenied {
			t.Errorf("node %d creates a task in another queue: %v", node+1, err)
		}
		queues, _, err := k.Queues(ctx, 0, "")
		if err != nil || len(queues) != 1 || queues[0].Queue != "ci.build" {
			t.Errorf("node %d lists %v, %v", node+1, queues, err)
		}
	}
}
