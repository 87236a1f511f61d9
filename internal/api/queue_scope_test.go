package api

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// What a method answers to a token that reaches another queue than the one that it is asked about.
const (
	denied    = "denied"   // the queue, or all of them
	unknown   = "unknown"  // as if the task, the job or the worker were not there
	tellsNone = "nothing"  // an answer without anything of the queue, which queueScopeNothing knows
	leaseLost = "lost"     // as if another had the task
	elsewise  = "elsewise" // it is of no queue
)

// queueScopes has every unary method whose rule has a scope of queues, or is for any token.
var queueScopes = map[string]string{
	"/millrace.v1.TaskService/Create":           denied,
	"/millrace.v1.TaskService/BatchCreate":      tellsNone,
	"/millrace.v1.TaskService/Get":              unknown,
	"/millrace.v1.TaskService/BatchGet":         tellsNone,
	"/millrace.v1.TaskService/ListAttempts":     unknown,
	"/millrace.v1.TaskService/List":             denied,
	"/millrace.v1.TaskService/Effects":          unknown,
	"/millrace.v1.TaskService/Why":              unknown,
	"/millrace.v1.TaskService/Logs":             unknown,
	"/millrace.v1.TaskService/Report":           leaseLost,
	"/millrace.v1.ErrorService/List":            denied,
	"/millrace.v1.OverviewService/Get":          tellsNone,
	"/millrace.v1.OverviewService/History":      denied,
	"/millrace.v1.TaskService/Wait":             unknown,
	"/millrace.v1.TaskService/Watch":            unknown,
	"/millrace.v1.TaskService/Claim":            denied,
	"/millrace.v1.TaskService/EndClaim":         tellsNone,
	"/millrace.v1.TaskService/Heartbeat":        tellsNone,
	"/millrace.v1.TaskService/Settle":           tellsNone,
	"/millrace.v1.TaskService/RunNow":           unknown,
	"/millrace.v1.TaskService/Delete":           unknown,
	"/millrace.v1.TaskService/Update":           unknown,
	"/millrace.v1.TaskService/Cancel":           unknown,
	"/millrace.v1.TaskService/Retry":            unknown,
	"/millrace.v1.TaskService/ForceRelease":     unknown,
	"/millrace.v1.QueueService/List":            tellsNone,
	"/millrace.v1.QueueService/Get":             denied,
	"/millrace.v1.QueueService/Set":             denied,
	"/millrace.v1.QueueService/Delete":          denied,
	"/millrace.v1.QueueService/Stats":           denied,
	"/millrace.v1.QueueService/Pause":           denied,
	"/millrace.v1.QueueService/Resume":          denied,
	"/millrace.v1.QueueService/Keys":            denied,
	"/millrace.v1.QueueService/SetKey":          denied,
	"/millrace.v1.QueueService/PauseKey":        denied,
	"/millrace.v1.QueueService/ResumeKey":       denied,
	"/millrace.v1.QueueService/DeleteNamespace": denied,
	"/millrace.v1.QueueService/SetNamespace":    denied,
	"/millrace.v1.QueueService/CreateNamespace": elsewise,
	"/millrace.v1.QueueService/GetNamespace":    elsewise,
	"/millrace.v1.BulkService/Start":            denied,
	"/millrace.v1.BulkService/Redrive":          denied,
	"/millrace.v1.BulkService/List":             tellsNone,
	"/millrace.v1.BulkService/Get":              unknown,
	"/millrace.v1.BulkService/Cancel":           unknown,
	"/millrace.v1.CronService/List":             tellsNone,
	"/millrace.v1.CronService/Get":              unknown,
	"/millrace.v1.CronService/Runs":             unknown,
	"/millrace.v1.CronService/Preview":          elsewise,
	"/millrace.v1.CronService/Set":              denied,
	"/millrace.v1.CronService/Delete":           unknown,
	"/millrace.v1.CronService/Trigger":          unknown,
	"/millrace.v1.CronService/Pause":            unknown,
	"/millrace.v1.CronService/Resume":           unknown,
	"/millrace.v1.BatchService/Open":            denied,
	"/millrace.v1.BatchService/List":            tellsNone,
	"/millrace.v1.BatchService/Get":             unknown,
	"/millrace.v1.BatchService/Wait":            unknown,
	"/millrace.v1.BatchService/Seal":            unknown,
	"/millrace.v1.BatchService/Cancel":          unknown,
	"/millrace.v1.LimiterService/List":          elsewise, // without tasks and queues that the token does not reach
	"/millrace.v1.LimiterService/Get":           elsewise,
	"/millrace.v1.LimiterService/Set":           denied,
	"/millrace.v1.LimiterService/Delete":        denied,
	"/millrace.v1.WorkerService/List":           tellsNone,
	"/millrace.v1.WorkerService/Quiet":          unknown,
	"/millrace.v1.CommitService/Commit":         elsewise, // its ops have a test of their own
	"/millrace.v1.KeyspaceService/Set":          elsewise,
	"/millrace.v1.KeyspaceService/Delete":       elsewise,
	"/millrace.v1.TenantService/Get":            elsewise,
	"/millrace.v1.ServerService/Status":         elsewise,
}

// queueScopeNothing reports whether an answer tells nothing of the queue.
func queueScopeNothing(out proto.Message) bool {
	switch out := out.(type) {
	case *pb.BatchCreateResponse:
		return out.GetResults()[0].GetError().GetCode() == "PERMISSION_DENIED"
	case *pb.BatchGetResponse:
		return len(out.GetTasks()) == 0
	case *pb.HeartbeatResponse:
		return out.GetResults()[0].GetLost()
	case *pb.SettleResponse:
		return out.GetResults()[0].GetError().GetCode() == "NOT_FOUND"
	case *pb.EndClaimResponse:
		return !out.GetFound()
	case *pb.ListQueuesResponse:
		return len(out.GetQueues()) == 0 && out.GetCursor() == ""
	case *pb.Overview:
		return out.GetQueueCount() == 0 && len(out.GetQueues()) == 0
	case *pb.ListBulkResponse:
		return len(out.GetJobs()) == 0
	case *pb.ListBatchesResponse:
		return len(out.GetBatches()) == 0
	case *pb.ListCronsResponse:
		return len(out.GetCrons()) == 0
	case *pb.ListWorkersResponse:
		return len(out.GetWorkers()) == 0
	}
	return false
}

func TestEveryMethodIsClosedToATokenOfAnotherQueue(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.Mu.Lock()
	r.n.Known = []core.Worker{{ID: "w", Queues: []string{"mail"}}, {ID: "w", Host: "other", Queues: []string{"mail", "web"}}, {ID: "leases"}}
	r.n.Mu.Unlock()
	known := make(map[string]bool)
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		rule := methods[full]
		if m.IsStreamingClient() || !edge.RightsOf(rule, false).Queues {
			return
		}
		known[full] = true
		before := len(queueOps(r.n))
		out := apitest.NewMessage(t, m.Output())
		in, ok := goodRequests()[full]
		if !ok {
			in = apitest.NewMessage(t, m.Input())
		}
		err := r.conn.Invoke(apitest.As("acme/all/queues=web+ci.*"), full, in, out)
		switch queueScopes[full] {
		case denied:
			apitest.ExpectCode(t, full, err, codes.PermissionDenied)
		case unknown:
			apitest.ExpectCode(t, full, err, codes.NotFound)
		case leaseLost:
			apitest.ExpectCode(t, full, err, codes.FailedPrecondition)
		case tellsNone:
			if err != nil || !queueScopeNothing(out) {
				t.Errorf("%s answers %v, %v", full, out, err)
			}
		case elsewise:
			apitest.ExpectCode(t, full, err, codes.OK)
		default:
			t.Errorf("%s is not told what it answers to a token of another queue", full)
		}
		if ops := queueOps(r.n); len(ops) != before {
			t.Errorf("%s proposes %v", full, ops[before:])
		}
	})
	for full := range queueScopes {
		if !known[full] {
			t.Errorf("%s is told of, and has no rule of queues", full)
		}
	}
}

func TestEveryMethodIsOpenToATokenOfItsQueue(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.Mu.Lock()
	r.n.Known = []core.Worker{{ID: "w", Queues: []string{"mail"}}}
	r.n.Mu.Unlock()
	all := map[string]bool{ // of all queues, which this token does not reach
		"/millrace.v1.QueueService/DeleteNamespace": true, "/millrace.v1.QueueService/SetNamespace": true, "/millrace.v1.LimiterService/Set": true, "/millrace.v1.LimiterService/Delete": true, "/millrace.v1.BulkService/Start": true,
		"/millrace.v1.BulkService/Get": true, "/millrace.v1.BulkService/Cancel": true, // the job of the fixture is
	}
	for full, answer := range queueScopes {
		if all[full] {
			continue
		}
		d := r.descriptor(full)
		for _, patterns := range []string{"mail", "ma*", "web+*", "web+mail"} {
			if err := r.invoke(apitest.As("acme/all/queues="+patterns), full, d); err != nil {
				t.Errorf("%s (%s) with %s: %v", full, answer, patterns, err)
			}
		}
	}
}

// descriptor finds a method.
func (r *rig) descriptor(full string) (d protoreflect.MethodDescriptor) {
	r.t.Helper()
	eachMethod(r.t, r.s, func(name string, m protoreflect.MethodDescriptor) {
		if name == full {
			d = m
		}
	})
	return d
}

// queueOps are the ops of queues and tasks that were proposed so far.
func queueOps(n *apitest.Node) (out []core.Op) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for i := range n.Commits {
		for _, op := range n.Commits[i].Ops {
			if op.Kind().Service() == core.ServiceQueue {
				out = append(out, op)
			}
		}
	}
	return out
}

// TestEveryOpOfACommitIsHeldToTheQueues tries each op that the contract has, as an op of a commit and as an effect.
func TestEveryOpOfACommitIsHeldToTheQueues(t *testing.T) {
	hold := &pb.Hold{Id: apitest.ID(1), Token: 4}
	tried := make(map[string]bool)
	for name, c := range map[string]struct {
		op   *pb.Op
		want codes.Code
	}{
		"task_create":   {&pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "mail"}}}, codes.PermissionDenied},
		"task_complete": {&pb.Op{Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{Task: hold}}}, codes.NotFound},
		"task_fail":     {&pb.Op{Op: &pb.Op_TaskFail{TaskFail: &pb.TaskFail{Task: hold}}}, codes.NotFound},
		"task_snooze": {&pb.Op{Op: &pb.Op_TaskSnooze{TaskSnooze: &pb.TaskSnooze{
			Task: hold, Snooze: &pb.Snooze{Delay: spanOf(5)},
		}}}, codes.NotFound},
		"task_cancel":  {&pb.Op{Op: &pb.Op_TaskCancel{TaskCancel: &pb.TaskCancel{Id: apitest.ID(1)}}}, codes.NotFound},
		"queue_pause":  {&pb.Op{Op: &pb.Op_QueuePause{QueuePause: &pb.QueuePause{Queue: "mail"}}}, codes.PermissionDenied},
		"batch_open":   {&pb.Op{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: apitest.ID(7), OnDone: &pb.TaskTemplate{Queue: "mail"}}}}, codes.PermissionDenied},
		"batch_seal":   {&pb.Op{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: apitest.ID(7)}}}, codes.NotFound},
		"batch_cancel": {&pb.Op{Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{Id: apitest.ID(7)}}}, codes.NotFound},
	} {
		tried[name] = true
		r := newRig(t, edge.Limits{})
		r.n.AddTask(r.t, "acme", apitest.ID(1))
		client := pb.NewCommitServiceClient(r.conn)
		_, err := client.Commit(apitest.As("acme/all/queues=web"), &pb.CommitRequest{Ops: []*pb.Op{c.op}})
		apitest.ExpectCode(t, name, err, c.want)
		if ops := queueOps(r.n); len(ops) != 0 {
			t.Errorf("%s is proposed: %v", name, ops)
		}
		for _, token := range []string{"acme/all/queues=mail", "acme/all/queues=*"} {
			_, err = client.Commit(apitest.As(token), &pb.CommitRequest{Ops: []*pb.Op{c.op}})
			apitest.ExpectCode(t, name+" with "+token, err, codes.OK)
		}
		r.n.Mu.Lock()
		for p := range r.n.Stored { // a task of the caller's queue, whose effects are of another
			task := r.n.Stored[p][apitest.MustID(t, apitest.ID(1))]
			task.Queue, task.ID = "web", apitest.MustID(t, apitest.ID(2))
			r.n.Stored[p][task.ID] = task
		}
		r.n.Mu.Unlock()
		out, err := pb.NewTaskServiceClient(r.conn).Settle(apitest.As("acme/all/queues=web"), &pb.SettleRequest{Items: []*pb.SettleItem{{
			Id: apitest.ID(2), Token: 5, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}, Effects: &pb.Effects{Ops: []*pb.Op{c.op}},
		}}})
		if err != nil || out.GetResults()[0].GetError() == nil {
			t.Errorf("%s as an effect: %v, %v", name, out, err)
		}
	}
	for _, row := range ops { // so that an op that comes is tried here
		if row.kind.Service() == core.ServiceQueue && !tried[row.kind.Name()] {
			t.Errorf("op %s is not tried", row.kind.Name())
		}
	}
}

// noBatches knows no batch.
type noBatches struct{ BatchBackend }

func (noBatches) Batch(_ context.Context, _ core.Partition, id core.TaskID, _ core.ReadOptions) (core.Batch, core.At, error) {
	return core.Batch{}, core.At{}, core.NotFound{Kind: "batch", ID: id.String()}
}

// TestABatchThatACommitOpensIsReachedByItsLaterOps: it is not there before, so that a look-up finds nothing.
func TestABatchThatACommitOpensIsReachedByItsLaterOps(t *testing.T) {
	open := &pb.Op{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: apitest.ID(7), OnDone: &pb.TaskTemplate{Queue: "mail"}}}}
	add := &pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "mail", Batch: apitest.ID(7)}}}
	seal := &pb.Op{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: apitest.ID(7)}}}
	other := &pb.Op{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: apitest.ID(8)}}}
	of := func(ops ...*pb.Op) *pb.CommitRequest { return &pb.CommitRequest{Ops: ops} }
	for name, c := range map[string]struct {
		in    *pb.CommitRequest
		there bool // before the commit, as another one's
		as    string
		want  codes.Code
	}{
		"opened, filled, sealed":          {of(open, add, seal), false, "mail", codes.OK},
		"filled before it is opened":      {of(add, open), false, "mail", codes.NotFound},
		"sealed without being opened":     {of(seal), false, "mail", codes.NotFound},
		"another one is sealed":           {of(open, other), false, "mail", codes.NotFound},
		"opened again, and reached":       {of(open, add, seal), true, "mail", codes.OK},
		"opened by one that is not of it": {of(&pb.Op{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: apitest.ID(7)}}}, seal), true, "web", codes.NotFound},
	} {
		r := newRig(t, edge.Limits{})
		r.n.AddTask(r.t, "acme", apitest.ID(1)) // its namespace is there
		if !c.there {
			r.s.node.batches = noBatches{r.s.node.batches}
		}
		_, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all/queues="+c.as), c.in)
		apitest.ExpectCode(t, name, err, c.want)
	}
}

func TestAFenceIsHeldToTheQueues(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	client := pb.NewCommitServiceClient(r.conn)
	commit := &pb.CommitRequest{
		Fence: &pb.Fence{Task: apitest.ID(1), Token: 4},
		Ops:   []*pb.Op{{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}}},
	}
	_, err := client.Commit(apitest.As("acme/all/queues=web"), commit)
	apitest.ExpectCode(t, "of another queue", err, codes.NotFound)
	_, err = client.Commit(apitest.As("acme/all/queues=mail"), commit)
	apitest.ExpectCode(t, "of its queue", err, codes.OK)
}

// TestAnOpThatNamesNoQueueIsClosed: what the edge cannot tell the queue of is refused to a token that does not reach all.
func TestAnOpThatNamesNoQueueIsClosed(t *testing.T) {
	op := &core.BulkStart{Tasks: core.TaskFilter{Queue: "mail"}}
	for patterns, want := range map[string]bool{"mail": false, "mail *": true, "": true} {
		tr := Translator{who: auth.Principal{Queues: strings.Fields(patterns)}}
		if fact := tr.reachesOp(op); (fact == nil) != want {
			t.Errorf("%q: %v", patterns, fact)
		}
	}
}

func TestAListOfQueuesPassesOverThoseOfOthers(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	client := pb.NewQueueServiceClient(r.conn)
	for _, c := range []struct {
		patterns string
		limit    uint32
		pages    []string // the last one ends without a cursor
	}{
		{"q1+q3", 0, []string{"q1 q3"}},
		{"q1+q3", 1, []string{"q1", "q3", ""}},
		{"q*", 2, []string{"q0 q1", "q2 q3", "q4"}},
		{"q4", 3, []string{"q4"}},
		{"web", 1, []string{""}},
	} {
		cursor := ""
		for i, want := range c.pages {
			out, err := client.List(apitest.As("acme/task:read/queues="+c.patterns), &pb.ListQueuesRequest{Limit: c.limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, q := range out.GetQueues() {
				got = append(got, q.GetQueue())
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s by %d, page %d: %q, want %q", c.patterns, c.limit, i, got, want)
			}
			if cursor = out.GetCursor(); (cursor == "") != (i == len(c.pages)-1) {
				t.Errorf("%s by %d, page %d: cursor %q", c.patterns, c.limit, i, cursor)
			}
		}
	}
}

func TestAnEffectOfAnotherQueueIsNotNamed(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	ns, err := r.n.Namespace(context.Background(), "acme", "default", false)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string][2]bool{"queues=web": {true, false}, "queues=mail": {false, true}, "queues=*": {true, true}} {
		who, ok := r.auth.Lookup("acme/all/"+token, apitest.Now)
		if !ok {
			t.Fatal(token)
		}
		caller := edge.Caller{Principal: who}
		c := &call{s: r.s, who: caller, t: r.s.translator(caller, ns.Partitions[0].Partition, 1)}
		c.t.space = "default"
		create := core.Effect{Op: core.OpTaskCreate, Space: "web", Key: []byte(apitest.ID(3))}
		cancel := core.Effect{Op: core.OpTaskCancel, Key: []byte(apitest.ID(1))} // a task of mail
		put := core.Effect{Op: core.OpKVPut, Space: "ks", Key: []byte("k")}
		seal := core.Effect{Op: core.OpBatchSeal, Key: []byte(apitest.ID(7))} // a batch whose follow-up is of mail
		if c.reachesEffect(t.Context(), &seal) != want[1] {
			t.Errorf("%s: the seal of a batch, want %v", token, want[1])
		}
		got := [2]bool{c.reachesEffect(t.Context(), &create), c.reachesEffect(t.Context(), &cancel)}
		if got != want || !c.reachesEffect(t.Context(), &put) {
			t.Errorf("%s: create, cancel %v, want %v", token, got, want)
		}
	}
}

func TestLostLeasesComeBackInTheirPlaces(t *testing.T) {
	other := func(n int) (out []*pb.HeartbeatResult) {
		for range n {
			out = append(out, &pb.HeartbeatResult{})
		}
		return out
	}
	for _, c := range []struct {
		others int
		lost   []int
		want   string
	}{{2, nil, ".."}, {0, []int{0, 1}, "xx"}, {2, []int{0, 2}, "x.x."}, {1, []int{1, 2}, ".xx"}, {2, []int{1}, ".x."}} {
		got := ""
		for _, h := range WithLost(other(c.others), c.lost) {
			got += map[bool]string{true: "x", false: "."}[h.GetLost()]
		}
		if got != c.want {
			t.Errorf("%d and %v: %s, want %s", c.others, c.lost, got, c.want)
		}
	}
}

// TestTheNewestStateIsAskedForOnceInARequest: however many tasks a request names that are not there.
func TestTheNewestStateIsAskedForOnceInARequest(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	ns, err := r.n.Namespace(context.Background(), "acme", "default", false)
	if err != nil {
		t.Fatal(err)
	}
	asked := &countedTasks{TaskBackend: r.s.node.tasks}
	r.s.node.tasks = asked
	who, _ := r.auth.Lookup("acme/all/queues=mail", apitest.Now)
	tr := r.s.translator(edge.Caller{Principal: who}, ns.Partitions[0].Partition, 1)
	tr.space = "default"
	holds := []core.TaskHold{{Task: apitest.MustID(t, apitest.ID(7))}, {Task: apitest.MustID(t, apitest.ID(1))}, {Task: apitest.MustID(t, apitest.ID(8))}}
	reached, lost, fact := tr.Reached(holds)
	if fact != nil || len(reached) != 1 || reached[0] != holds[1] || len(lost) != 2 || lost[0] != 0 || lost[1] != 2 {
		t.Errorf("reached %v, lost %v, %v", reached, lost, fact)
	}
	if asked.stale != 3 || asked.newest != 1 {
		t.Errorf("%d stale reads, %d of the newest state", asked.stale, asked.newest)
	}
	asked.fails = core.Unavailable{Reason: "no_leader"}
	for range 2 { // the second one is not tried
		if _, _, fact := tr.Reached(holds); fact != core.Fact(core.Unavailable{Reason: "no_leader"}) {
			t.Errorf("without a leader: %v", fact)
		}
	}
	if asked.stale != 4 {
		t.Errorf("%d stale reads", asked.stale)
	}
}

// countedTasks counts reads of tasks.
type countedTasks struct {
	TaskBackend
	stale, newest int
	fails         core.Fact
}

func (c *countedTasks) TaskUpTo(ctx context.Context, p core.Partition, id core.TaskID, most core.ContentSize, o core.ReadOptions) (core.Task, core.ContentSize, core.At, error) {
	if o.Stale {
		c.stale++
	} else {
		c.newest++
	}
	if c.fails != nil {
		return core.Task{}, core.ContentSize{}, core.At{}, c.fails
	}
	return c.TaskBackend.TaskUpTo(ctx, p, id, most, o)
}
