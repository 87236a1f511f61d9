package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// probe is one call of the contract on a task, a queue and a key of somebody's.
type probe struct {
	method string
	roles  string // that may call it
	m      func(id, queue, key string) proto.Message
}

func completion(id string, token uint64) *millracev1.SettleRequest {
	return &millracev1.SettleRequest{Items: []*millracev1.SettleItem{{
		Id: id, Token: token, Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: []byte("1")}},
	}}}
}

func put(keyspace, key, value string) *millracev1.Op {
	return &millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: &millracev1.KVPut{Keyspace: keyspace, Key: []byte(key), Value: []byte(value)}}}
}

// probes has every method of the contract that is built.
var probes = []probe{
	{"TaskService/Create", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.CreateRequest{Task: &millracev1.TaskSpec{Id: newID(), Queue: queue}}
	}},
	{"TaskService/BatchCreate", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.BatchCreateRequest{Tasks: []*millracev1.TaskSpec{{Id: newID(), Queue: queue}}}
	}},
	{"TaskService/Get", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.GetRequest{Id: id} }},
	{"TaskService/ListAttempts", "producer worker admin", func(id, _, _ string) proto.Message {
		return &millracev1.ListAttemptsRequest{Id: id}
	}},
	{"TaskService/List", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.ListRequest{Queue: queue, State: millracev1.State_READY}
	}},
	{"TaskService/Claim", "worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.ClaimRequest{Queues: []*millracev1.QueueWeight{{Name: queue + ".none"}}}
	}},
	{"TaskService/EndClaim", "worker admin", func(_, _, _ string) proto.Message {
		return &millracev1.EndClaimRequest{Claim: []byte("0123456789abcdef")}
	}},
	{"TaskService/Heartbeat", "worker admin", func(id, _, _ string) proto.Message {
		return &millracev1.HeartbeatRequest{Items: []*millracev1.Hold{{Id: id, Token: 1}}}
	}},
	{"TaskService/Settle", "worker admin", func(id, _, _ string) proto.Message { return completion(id, 1<<40) }},
	{"TaskService/Wait", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.WaitRequest{Id: id} }},
	{"TaskService/Watch", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.WatchRequest{Id: id} }},
	{"TaskService/BatchGet", "producer worker admin", func(id, _, _ string) proto.Message {
		return &millracev1.BatchGetRequest{Ids: []string{id}}
	}},
	{"TaskService/Logs", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.LogsRequest{Id: id} }},
	{"TaskService/Report", "worker admin", func(id, _, _ string) proto.Message { return &millracev1.ReportRequest{Id: id, Token: 1} }},
	{"TaskService/Effects", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.EffectsRequest{Id: id} }},
	{"TaskService/Why", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.WhyRequest{Id: id} }},
	{"TaskService/RunNow", "admin", func(id, _, _ string) proto.Message { return &millracev1.RunNowRequest{Id: id} }},
	{"TaskService/Update", "producer worker admin", func(id, _, _ string) proto.Message {
		return &millracev1.UpdateRequest{Id: id, Priority: proto.Uint32(3)}
	}},
	{"TaskService/Cancel", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.CancelRequest{Id: id} }},
	{"TaskService/Retry", "admin", func(id, _, _ string) proto.Message { return &millracev1.RetryRequest{Id: id} }},
	{"TaskService/ForceRelease", "admin", func(id, _, _ string) proto.Message { return &millracev1.ForceReleaseRequest{Id: id} }},
	{"ErrorService/List", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.ListErrorsRequest{Queue: queue}
	}},
	{"OverviewService/Get", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.GetOverviewRequest{} }},
	{"OverviewService/History", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.HistoryRequest{Queue: queue}
	}},
	{"WorkerService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListWorkersRequest{} }},
	{"WorkerService/Quiet", "admin", func(_, _, _ string) proto.Message { return &millracev1.QuietWorkerRequest{Worker: "w", On: true} }},
	{"QueueService/Pause", "admin", func(_, queue, _ string) proto.Message { return &millracev1.PauseQueueRequest{Queue: queue} }},
	{"QueueService/Resume", "admin", func(_, queue, _ string) proto.Message { return &millracev1.ResumeQueueRequest{Queue: queue} }},
	{"QueueService/Keys", "producer worker admin", func(_, queue, _ string) proto.Message { return &millracev1.ListKeysRequest{Queue: queue} }},
	{"QueueService/SetKey", "admin", func(_, queue, _ string) proto.Message { return &millracev1.SetKeyRequest{Queue: queue, Key: "ann"} }},
	{"QueueService/PauseKey", "admin", func(_, queue, _ string) proto.Message { return &millracev1.PauseKeyRequest{Queue: queue, Key: "ann"} }},
	{"QueueService/ResumeKey", "admin", func(_, queue, _ string) proto.Message { return &millracev1.ResumeKeyRequest{Queue: queue, Key: "ann"} }},
	{"BulkService/Start", "admin", func(_, queue, _ string) proto.Message {
		return &millracev1.StartBulkRequest{Action: millracev1.BulkJob_CANCEL, Filter: &millracev1.TaskFilter{Queue: queue}, DryRun: true}
	}},
	{"BulkService/Redrive", "admin", func(_, queue, _ string) proto.Message {
		return &millracev1.RedriveRequest{Queue: queue, DryRun: true}
	}},
	{"BulkService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListBulkRequest{} }},
	{"BulkService/Get", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.GetBulkRequest{Id: id} }},
	{"BulkService/Cancel", "admin", func(id, _, _ string) proto.Message { return &millracev1.CancelBulkRequest{Id: id} }},
	{"LimiterService/Set", "admin", func(_, _, _ string) proto.Message { return &millracev1.SetLimiterRequest{Name: "probe"} }},
	{"LimiterService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListLimitersRequest{} }},
	{"LimiterService/Get", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.GetLimiterRequest{Name: "probe"} }},
	{"LimiterService/Delete", "admin", func(_, _, _ string) proto.Message { return &millracev1.DeleteLimiterRequest{Name: "probe"} }},
	{"CronService/Set", "admin", func(_, queue, _ string) proto.Message {
		return &millracev1.SetCronRequest{Name: "probe", Config: &millracev1.CronConfig{Schedule: "@yearly", Template: &millracev1.TaskTemplate{Queue: queue}}}
	}},
	{"CronService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListCronsRequest{} }},
	{"CronService/Get", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.GetCronRequest{Name: "probe"} }},
	{"CronService/Runs", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListCronRunsRequest{Name: "probe"} }},
	{"CronService/Preview", "producer worker admin", func(_, _, _ string) proto.Message {
		return &millracev1.PreviewCronRequest{Schedule: "@daily"}
	}},
	{"CronService/Pause", "admin", func(_, _, _ string) proto.Message { return &millracev1.PauseCronRequest{Name: "probe"} }},
	{"CronService/Resume", "admin", func(_, _, _ string) proto.Message { return &millracev1.ResumeCronRequest{Name: "probe"} }},
	{"CronService/Trigger", "admin", func(_, _, _ string) proto.Message { return &millracev1.TriggerCronRequest{Name: "probe"} }},
	{"CronService/Delete", "admin", func(_, _, _ string) proto.Message { return &millracev1.DeleteCronRequest{Name: "probe"} }},
	{"BatchService/Open", "producer worker admin", func(id, queue, _ string) proto.Message {
		return &millracev1.OpenBatchRequest{Id: id, OnDone: &millracev1.TaskTemplate{Queue: queue}}
	}},
	{"BatchService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListBatchesRequest{} }},
	{"BatchService/Get", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.GetBatchRequest{Id: id} }},
	{"BatchService/Seal", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.SealBatchRequest{Id: id} }},
	{"BatchService/Wait", "producer worker admin", func(id, _, _ string) proto.Message { return &millracev1.WaitBatchRequest{Id: id} }},
	{"BatchService/Cancel", "admin", func(id, _, _ string) proto.Message { return &millracev1.CancelBatchRequest{Id: id} }},
	{"TaskService/Delete", "admin", func(id, _, _ string) proto.Message { return &millracev1.DeleteRequest{Id: id} }},
	{"CommitService/Commit", "producer worker admin", func(_, _, key string) proto.Message {
		return &millracev1.CommitRequest{Ops: []*millracev1.Op{put("mine", key, "x")}}
	}},
	{"KVService/Get", "producer worker admin", func(_, _, key string) proto.Message {
		return &millracev1.KVGetRequest{Keyspace: "cfg", Key: []byte(key)}
	}},
	{"QueueService/List", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.ListQueuesRequest{} }},
	{"QueueService/Get", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.GetQueueRequest{Queue: queue}
	}},
	{"QueueService/Stats", "producer worker admin", func(_, queue, _ string) proto.Message {
		return &millracev1.QueueStatsRequest{Queue: queue}
	}},
	{"QueueService/Set", "admin", func(_, queue, _ string) proto.Message {
		return &millracev1.SetQueueRequest{Queue: queue, Config: &millracev1.QueueConfig{MaxAttempts: 3}}
	}},
	{"QueueService/GetNamespace", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.GetNamespaceRequest{} }},
	{"QueueService/SetNamespace", "admin", func(_, _, _ string) proto.Message {
		return &millracev1.SetNamespaceRequest{Config: &millracev1.NamespaceConfig{RetainBytes: 1 << 30}}
	}},
	{"ServerService/Status", "producer worker admin", func(_, _, _ string) proto.Message { return &millracev1.StatusRequest{} }},
}

func TestNoTokenAWrongOneAndAnExpiredOneOpenNothing(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"acme", "admin", "2020-01-01T00:00:00Z"})
	good := l.raw(0)
	none := newRaw(t, l.running.Address, "")
	callers := map[string]*raw{
		"none": none, "wrong": newRaw(t, l.running.Address, l.tokens[0]+"x"), "expired": l.raw(1),
		"huge": newRaw(t, l.running.Address, strings.Repeat("x", 8<<10)), "empty": none.with("Authorization", "Bearer "),
		"basic": none.with("Authorization", "Basic "+l.tokens[0]),
		"role":  none.with("X-Role", "ADMIN"), "grpc metadata": none.with("millrace-tenant", "acme"),
	}
	id := newID()
	must(t, good, "TaskService/Create", &millracev1.CreateRequest{Task: &millracev1.TaskSpec{Id: id, Queue: "q"}}, &millracev1.CreateResponse{})
	for name, caller := range callers {
		for _, p := range probes {
			if a := caller.call(t, p.method, p.m(id, "q", "k")); a.status != 16 || a.code() != "UNAUTHENTICATED" {
				t.Errorf("%s token: %s answers %d %s", name, p.method, a.status, a.code())
			}
		}
		s := caller.openStream(t)
		s.hello(1)
		if a := s.ended(); a.status != 16 {
			t.Errorf("%s token: the stream answers %d %s", name, a.status, a.message)
		}
	}
	must(t, good, "TaskService/Get", &millracev1.GetRequest{Id: id}, &millracev1.GetResponse{})
}

func TestARoleOpensWhatIsItsOwnAndAHeaderGrantsNothing(t *testing.T) {
	t.Parallel()
	roles := []string{"producer", "worker", "admin"}
	var holders []holder
	for _, role := range roles {
		holders = append(holders, holder{"acme", role, ""})
	}
	l := startLocal(t, holders...)
	admin := l.client(2)
	ctx := bounded(t, time.Minute)
	job := millrace.Job[string, string]("q")
	for i, role := range roles {
		caller := l.raw(i).with("X-Role", "ADMIN").with("millrace-role", "admin")
		for _, p := range probes {
			h := got[*millrace.Handle[string]](t)(job.Add(ctx, admin, role+p.method))
			if p.method == "TaskService/Wait" || p.method == "TaskService/Watch" || p.method == "TaskService/Delete" { // they want a task that has ended
				claimed := got[[]millrace.Claimed](t)(admin.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Max: 128}))
				for _, c := range claimed {
					_, err := admin.Complete(ctx, c.ID, c.Token, "done")
					noErr(t, err)
				}
			}
			a := caller.call(t, p.method, p.m(h.ID, "q", "k"))
			denied := a.status == 7 && a.code() == "PERMISSION_DENIED"
			if may := strings.Contains(p.roles, role); may == denied {
				t.Errorf("%s calls %s: %d %s", role, p.method, a.status, a.code())
			}
		}
	}
	s := l.raw(0).openStream(t) // a producer's
	s.hello(1)
	s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: &millracev1.Subscribe{
		Sub: 1, Slots: 1, Queues: []*millracev1.QueueWeight{{Name: "q"}},
	}}})
	if a := s.ended(); a.status != 7 {
		t.Errorf("a producer subscribes: %d %s", a.status, a.message)
	}
}

func TestAnotherTenantsIDsLookUnknown(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"rival", "admin", ""})
	ctx := bounded(t, time.Minute)
	owner, rival := l.client(0), l.raw(1)
	job := millrace.Job[string, string]("q")
	h := got[*millrace.Handle[string]](t)(job.Add(ctx, owner, "secret", millrace.UniqueKey("order", 0)))
	_, err := owner.KV("cfg").Put(ctx, "k", "secret")
	noErr(t, err)
	held := got[[]millrace.Claimed](t)(owner.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}}))
	token := held[0].Token
	must(t, rival, "CommitService/Commit", &millracev1.CommitRequest{Ops: []*millracev1.Op{put("warm", "up", "1")}}, &millracev1.CommitResponse{})

	missing := newID()
	plain := func(method string, m func(id string) proto.Message) {
		t.Helper()
		foreign, unknown := rival.call(t, method, m(h.ID)), rival.call(t, method, m(missing))
		sameBytes(t, method, foreign, unknown, h.ID, missing)
	}
	plain("TaskService/Get", func(id string) proto.Message { return &millracev1.GetRequest{Id: id} })
	plain("TaskService/ListAttempts", func(id string) proto.Message { return &millracev1.ListAttemptsRequest{Id: id} })
	plain("TaskService/Wait", func(id string) proto.Message { return &millracev1.WaitRequest{Id: id} })
	plain("TaskService/Watch", func(id string) proto.Message { return &millracev1.WatchRequest{Id: id} })
	plain("TaskService/RunNow", func(id string) proto.Message { return &millracev1.RunNowRequest{Id: id} })
	plain("TaskService/Update", func(id string) proto.Message {
		return &millracev1.UpdateRequest{Id: id, Priority: proto.Uint32(3)}
	})
	plain("TaskService/Cancel", func(id string) proto.Message { return &millracev1.CancelRequest{Id: id} })
	plain("TaskService/Retry", func(id string) proto.Message { return &millracev1.RetryRequest{Id: id} })
	plain("TaskService/ForceRelease", func(id string) proto.Message { return &millracev1.ForceReleaseRequest{Id: id} })
	plain("TaskService/Delete", func(id string) proto.Message { return &millracev1.DeleteRequest{Id: id} })
	plain("TaskService/Settle", func(id string) proto.Message { return completion(id, token) })
	plain("TaskService/Heartbeat", func(id string) proto.Message {
		return &millracev1.HeartbeatRequest{Items: []*millracev1.Hold{{Id: id, Token: token}}}
	})
	plain("CommitService/Commit", func(id string) proto.Message {
		return &millracev1.CommitRequest{Fence: &millracev1.Fence{Task: id, Token: token}, Ops: []*millracev1.Op{put("warm", "up", "2")}}
	})
	sameBytes(t, "KVService/Get",
		rival.call(t, "KVService/Get", &millracev1.KVGetRequest{Keyspace: "cfg", Key: []byte("k")}),
		rival.call(t, "KVService/Get", &millracev1.KVGetRequest{Keyspace: "nil", Key: []byte("n")}), "", "")
	for _, name := range []string{"QueueService/Get", "QueueService/Stats"} {
		ask := func(queue string) answer {
			if name == "QueueService/Get" {
				return rival.call(t, name, &millracev1.GetQueueRequest{Queue: queue})
			}
			return rival.call(t, name, &millracev1.QueueStatsRequest{Queue: queue})
		}
		sameBytes(t, name, ask("q"), ask("z"), `"q"`, `"z"`)
	}
	list := must(t, rival, "QueueService/List", &millracev1.ListQueuesRequest{}, &millracev1.ListQueuesResponse{})
	if len(list.Queues) != 0 {
		t.Errorf("the rival sees queues %v", list.Queues)
	}

	// The id and the unique key of another tenant are free to use, and lead nowhere.
	mine := must(t, rival, "TaskService/Create", &millracev1.CreateRequest{Task: &millracev1.TaskSpec{
		Id: h.ID, Queue: "q", Payload: []byte("mine"), Unique: &millracev1.Unique{Key: "order"},
	}}, &millracev1.CreateResponse{})
	if mine.Replayed {
		t.Error("the rival's create was answered with the owner's task")
	}
	if _, err := owner.Complete(ctx, h.ID, token, "done"); err != nil {
		t.Errorf("the owner cannot complete its task: %v", err)
	}
	if v, err := owner.KV("cfg").Get(ctx, "k"); err != nil || v.String() != "secret" {
		t.Errorf("the owner's key is %q, err %v", v, err)
	}
	l.audit()
}

// sameBytes wants two answers that differ in nothing but the ids that were asked for, times and places in the log.
func sameBytes(t *testing.T, method string, foreign, unknown answer, foreignID, unknownID string) {
	t.Helper()
	cleaned := func(a answer, id string) string {
		place := func(b []byte) []byte {
			if id == "" {
				return b
			}
			return bytes.ReplaceAll(b, []byte(id), []byte("ID"))
		}
		return fmt.Sprintf("http %d, status %d, %s, details %q", a.http, a.status, place([]byte(a.message)), place(a.details))
	}
	if f, u := cleaned(foreign, foreignID), cleaned(unknown, unknownID); f != u {
		t.Errorf("%s: a foreign id can be told from an unknown one:\n%s\n%s", method, f, u)
	}
	if foreign.status != 0 {
		if len(foreign.body)+len(unknown.body) != 0 {
			t.Errorf("%s: an error comes with a body", method)
		}
		return
	}
	f, u := withoutPlace(t, method, foreign.body), withoutPlace(t, method, unknown.body)
	f, u = bytes.ReplaceAll(f, []byte(foreignID), []byte("ID")), bytes.ReplaceAll(u, []byte(unknownID), []byte("ID"))
	if foreignID != "" && !bytes.Equal(f, u) || foreignID == "" && !bytes.Equal(f, u) {
		t.Errorf("%s: a foreign id can be told from an unknown one:\n%q\n%q", method, f, u)
	}
}

// withoutPlace takes the log's index and the time out of an answer: they move on from call to call.
func withoutPlace(t *testing.T, method string, b []byte) []byte {
	t.Helper()
	m, ok := map[string]proto.Message{
		"TaskService/Settle": &millracev1.SettleResponse{}, "TaskService/Heartbeat": &millracev1.HeartbeatResponse{},
		"TaskService/BatchGet": &millracev1.BatchGetResponse{},
		"KVService/Get":        &millracev1.KVGetResponse{},
	}[method]
	if !ok {
		t.Fatalf("%s succeeded on what is another tenant's", method)
	}
	noErr(t, proto.Unmarshal(b, m))
	at := m.ProtoReflect().Descriptor().Fields().ByName("at")
	m.ProtoReflect().Clear(at)
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	noErr(t, err)
	return out
}

func TestAStaleTokenChangesNothing(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""})
	ctx := bounded(t, time.Minute)
	c, r := l.client(0), l.raw(0)
	h := got[*millrace.Handle[string]](t)(millrace.Job[string, string]("q").Add(ctx, c, "x"))
	first := got[[]millrace.Claimed](t)(c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Worker: "w"}))[0]
	must(t, r, "TaskService/Settle", &millracev1.SettleRequest{Items: []*millracev1.SettleItem{{
		Id: h.ID, Token: first.Token, Outcome: &millracev1.SettleItem_Release{Release: &millracev1.Release{}},
	}}}, &millracev1.SettleResponse{})
	second := got[[]millrace.Claimed](t)(c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Worker: "w"}))[0]
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	effects := &millracev1.Effects{Ops: []*millracev1.Op{put("fx", "stale", "1")}}
	outcomes := map[string]*millracev1.SettleItem{
		"complete": {Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{}}, Effects: effects},
		"fail":     {Outcome: &millracev1.SettleItem_Fail{Fail: &millracev1.Fail{Fatal: true}}},
		"snooze":   {Outcome: &millracev1.SettleItem_Snooze{Snooze: &millracev1.Snooze{Delay: durationpb.New(time.Minute)}}},
	}
	for name, item := range outcomes {
		for _, token := range []uint64{first.Token, second.Token + 1, 1 << 62} {
			item.Id, item.Token = h.ID, token
			out := must(t, r, "TaskService/Settle", &millracev1.SettleRequest{Items: []*millracev1.SettleItem{item}}, &millracev1.SettleResponse{})
			if code := out.Results[0].GetError().GetCode(); code != "LEASE_LOST" {
				t.Errorf("%s under token %d: %q", name, token, code)
			}
		}
	}
	beat := must(t, r, "TaskService/Heartbeat", &millracev1.HeartbeatRequest{Items: []*millracev1.Hold{{Id: h.ID, Token: first.Token}}}, &millracev1.HeartbeatResponse{})
	if !beat.Results[0].Lost {
		t.Error("a stale heartbeat renewed the lease")
	}
	a := r.call(t, "CommitService/Commit", &millracev1.CommitRequest{
		Fence: &millracev1.Fence{Task: h.ID, Token: first.Token}, Ops: []*millracev1.Op{put("fx", "stale", "1")},
	})
	if a.code() != "LEASE_LOST" {
		t.Errorf("a commit fenced by a stale token: %s", a.code())
	}
	if _, err := c.KV("fx").Get(ctx, "stale"); millrace.OutcomeOf(err) != millrace.Refused {
		t.Errorf("the effect of a stale token is there: %v", err)
	}
	if state, err := c.Complete(ctx, h.ID, second.Token, "ok"); err != nil || state != millrace.Completed {
		t.Errorf("the holder completes: %v, err %v", state, err)
	}
	l.audit()
}
