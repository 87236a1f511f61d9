package api

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
)

// goodRequests has a request for every unary method that is accepted from a caller with every scope.
func goodRequests() map[string]proto.Message {
	spec := &pb.TaskSpec{Queue: "mail", Payload: []byte("{}")}
	put := &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}}
	settle := &pb.SettleItem{Id: apitest.ID(1), Token: 4, Outcome: &pb.SettleItem_Release{Release: &pb.Release{}}}
	out := map[string]proto.Message{
		"/millrace.v1.TaskService/Create":             &pb.CreateRequest{Task: spec},
		"/millrace.v1.TaskService/BatchCreate":        &pb.BatchCreateRequest{Tasks: []*pb.TaskSpec{spec}},
		"/millrace.v1.TaskService/Get":                &pb.GetRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/ListAttempts":       &pb.ListAttemptsRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/List":               &pb.ListRequest{Queue: "mail", State: pb.State_READY},
		"/millrace.v1.TaskService/Wait":               &pb.WaitRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/Watch":              &pb.WatchRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/Claim":              &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "mail"}}},
		"/millrace.v1.TaskService/Heartbeat":          &pb.HeartbeatRequest{Items: []*pb.Hold{{Id: apitest.ID(1), Token: 4}}},
		"/millrace.v1.TaskService/Settle":             &pb.SettleRequest{Items: []*pb.SettleItem{settle}},
		"/millrace.v1.TaskService/BatchGet":           &pb.BatchGetRequest{Ids: []string{apitest.ID(1)}},
		"/millrace.v1.TaskService/Delete":             &pb.DeleteRequest{Id: apitest.ID(1)},
		"/millrace.v1.CommitService/Commit":           &pb.CommitRequest{Ops: []*pb.Op{put}},
		"/millrace.v1.KVService/Get":                  &pb.KVGetRequest{Keyspace: "ks", Key: []byte("k")},
		"/millrace.v1.QueueService/List":              &pb.ListQueuesRequest{},
		"/millrace.v1.QueueService/Get":               &pb.GetQueueRequest{Queue: "mail"},
		"/millrace.v1.QueueService/Set":               &pb.SetQueueRequest{Queue: "mail", Config: &pb.QueueConfig{}},
		"/millrace.v1.QueueService/Delete":            &pb.DeleteQueueRequest{Queue: "mail", Purge: true},
		"/millrace.v1.QueueService/Stats":             &pb.QueueStatsRequest{Queue: "mail"},
		"/millrace.v1.QueueService/CreateNamespace":   &pb.CreateNamespaceRequest{},
		"/millrace.v1.QueueService/DeleteNamespace":   &pb.DeleteNamespaceRequest{},
		"/millrace.v1.QueueService/GetNamespace":      &pb.GetNamespaceRequest{},
		"/millrace.v1.QueueService/SetNamespace":      &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{}},
		"/millrace.v1.RefService/CreateRepo":          &pb.CreateRepoRequest{Name: "app"},
		"/millrace.v1.RefService/GetRepo":             &pb.GetRepoRequest{Name: "app"},
		"/millrace.v1.RefService/ListRepos":           &pb.ListReposRequest{},
		"/millrace.v1.RefService/UpdateRepo":          &pb.UpdateRepoRequest{Name: "app"},
		"/millrace.v1.RefService/DeleteRepo":          &pb.DeleteRepoRequest{Name: "app"},
		"/millrace.v1.RefService/UndeleteRepo":        &pb.UndeleteRepoRequest{Name: "app"},
		"/millrace.v1.RefService/GetRef":              &pb.GetRefRequest{Repo: "app", Name: "HEAD"},
		"/millrace.v1.RefService/BatchGetRefs":        &pb.BatchGetRefsRequest{Repo: "app", Names: []string{"HEAD"}},
		"/millrace.v1.RefService/ListRefs":            &pb.ListRefsRequest{Repo: "app"},
		"/millrace.v1.RefService/ReadReflog":          &pb.ReadReflogRequest{Repo: "app", Name: "HEAD"},
		"/millrace.v1.RefService/ListActivity":        &pb.ListActivityRequest{Repo: "app"},
		"/millrace.v1.RefService/UpdateRefs":          &pb.UpdateRefsRequest{Repo: "app", Changes: []*pb.RefChange{{Kind: pb.RefChange_DELETE, Name: "refs/heads/a"}}},
		"/millrace.v1.ServerService/Status":           &pb.StatusRequest{},
		"/grpc.health.v1.Health/Check":                &healthpb.HealthCheckRequest{},
		"/millrace.v1.SearchService/SetCollection":    &pb.SetCollectionRequest{Collection: &pb.Collection{Name: "ws"}},
		"/millrace.v1.SearchService/GetCollection":    &pb.GetCollectionRequest{Collection: "ws"},
		"/millrace.v1.SearchService/ListCollections":  &pb.ListCollectionsRequest{},
		"/millrace.v1.SearchService/DeleteCollection": &pb.DeleteCollectionRequest{Collection: "ws"},
		"/millrace.v1.SearchService/CollectionStats":  &pb.CollectionStatsRequest{Collection: "ws"},
		"/millrace.v1.SearchService/UpsertPoints":     &pb.UpsertPointsRequest{Collection: "ws", Points: []*pb.Point{{Id: "w1", Vector: []float32{1, 0}, Model: "m"}}},
		"/millrace.v1.SearchService/DeletePoints":     &pb.DeletePointsRequest{Collection: "ws", Points: []*pb.PointVersion{{Id: "w1"}}},
		"/millrace.v1.SearchService/GetPoints":        &pb.GetPointsRequest{Collection: "ws", Ids: []string{"w1"}},
		"/millrace.v1.SearchService/CountPoints":      &pb.CountPointsRequest{Collection: "ws"},
		"/millrace.v1.SearchService/PutRuleset":       &pb.PutRulesetRequest{Ruleset: "r", Collection: "ws", Rules: []*pb.Rule{{Id: "a", When: "true", Severity: "block"}}},
		"/millrace.v1.SearchService/GetRuleset":       &pb.GetRulesetRequest{Ruleset: "r"},
		"/millrace.v1.SearchService/ListRulesets":     &pb.ListRulesetsRequest{},
		"/millrace.v1.SearchService/DeleteRuleset":    &pb.DeleteRulesetRequest{Ruleset: "r"},
		"/millrace.v1.SearchService/Embed":            &pb.EmbedRequest{Text: "hello"},
		"/millrace.v1.SearchService/Search":           &pb.SearchRequest{Collection: "ws", QueryText: "x"},
		"/millrace.v1.SearchService/GetRecording":     &pb.GetRecordingRequest{SearchId: "00000000000000070000000000000009"},
		"/millrace.v1.KVService/BatchGet":             &pb.KVBatchGetRequest{Keyspace: "ks", Keys: [][]byte{[]byte("k")}},
		"/millrace.v1.KVService/Range":                &pb.KVRangeRequest{Keyspace: "ks"},
		"/millrace.v1.KVService/Put":                  &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}},
		"/millrace.v1.KVService/Delete":               &pb.KVDeleteRequest{Delete: &pb.KVDelete{Keyspace: "ks", Key: []byte("k")}},
		"/millrace.v1.KVService/DeleteRange":          &pb.KVDeleteRangeRequest{Range: &pb.KVDeleteRange{Keyspace: "ks"}},
		"/millrace.v1.KeyspaceService/Set":            &pb.SetKeyspaceRequest{Keyspace: "ks"},
		"/millrace.v1.KeyspaceService/Get":            &pb.GetKeyspaceRequest{Keyspace: "ks"},
		"/millrace.v1.KeyspaceService/List":           &pb.ListKeyspacesRequest{},
		"/millrace.v1.ErrorService/List":              &pb.ListErrorsRequest{Queue: "mail"}, "/millrace.v1.OverviewService/Get": &pb.GetOverviewRequest{}, "/millrace.v1.OverviewService/History": &pb.HistoryRequest{Queue: "mail"},
		"/millrace.v1.WorkerService/List":            &pb.ListWorkersRequest{},
		"/millrace.v1.WorkerService/Quiet":           &pb.QuietWorkerRequest{Worker: "w", On: true},
		"/millrace.v1.TenantService/Set":             &pb.SetTenantRequest{Tenant: "acme"},
		"/millrace.v1.KeyspaceService/Delete":        &pb.DeleteKeyspaceRequest{Keyspace: "ks"},
		"/millrace.v1.ClusterService/Status":         &pb.ClusterStatusRequest{},
		"/millrace.v1.ClusterService/ChangeMembers":  &pb.ChangeMembersRequest{Verb: pb.MemberVerb_MEMBER_VERB_REMOVE, Node: 2},
		"/millrace.v1.ClusterService/TransferShard":  &pb.TransferShardRequest{Shard: 1, To: 2},
		"/millrace.v1.ClusterService/BalanceShards":  &pb.BalanceShardsRequest{},
		"/millrace.v1.ClusterService/FinalizeFormat": &pb.FinalizeFormatRequest{},
	}
	maps.Copy(out, operateRequests())
	return out
}

// operateRequests are those of goodRequests by which tasks and queues are operated.
func operateRequests() map[string]proto.Message {
	return map[string]proto.Message{
		"/millrace.v1.TaskService/RunNow":       &pb.RunNowRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/EndClaim":     &pb.EndClaimRequest{Claim: []byte("0123456789abcdef")},
		"/millrace.v1.TaskService/Update":       &pb.UpdateRequest{Id: apitest.ID(1), Priority: new(uint32)},
		"/millrace.v1.TaskService/Cancel":       &pb.CancelRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/Retry":        &pb.RetryRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/ForceRelease": &pb.ForceReleaseRequest{Id: apitest.ID(1)},
		"/millrace.v1.QueueService/Pause":       &pb.PauseQueueRequest{Queue: "mail"},
		"/millrace.v1.QueueService/Resume":      &pb.ResumeQueueRequest{Queue: "mail"},
		"/millrace.v1.QueueService/Keys":        &pb.ListKeysRequest{Queue: "mail"},
		"/millrace.v1.QueueService/SetKey":      &pb.SetKeyRequest{Queue: "mail", Key: "ann"},
		"/millrace.v1.QueueService/PauseKey":    &pb.PauseKeyRequest{Queue: "mail", Key: "ann"},
		"/millrace.v1.QueueService/ResumeKey":   &pb.ResumeKeyRequest{Queue: "mail", Key: "ann"},
		"/millrace.v1.TaskService/Report":       &pb.ReportRequest{Id: apitest.ID(1), Token: 4},
		"/millrace.v1.TaskService/Logs":         &pb.LogsRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/Effects":      &pb.EffectsRequest{Id: apitest.ID(1)},
		"/millrace.v1.TaskService/Why":          &pb.WhyRequest{Id: apitest.ID(1)},
		"/millrace.v1.CronService/Set": &pb.SetCronRequest{
			Name: "nightly", Config: &pb.CronConfig{Schedule: "@daily", Template: &pb.TaskTemplate{Queue: "mail"}},
		},
		"/millrace.v1.CronService/Get":       &pb.GetCronRequest{Name: "nightly"},
		"/millrace.v1.CronService/Runs":      &pb.ListCronRunsRequest{Name: "nightly"},
		"/millrace.v1.CronService/Delete":    &pb.DeleteCronRequest{Name: "nightly"},
		"/millrace.v1.CronService/Trigger":   &pb.TriggerCronRequest{Name: "nightly"},
		"/millrace.v1.CronService/Pause":     &pb.PauseCronRequest{Name: "nightly"},
		"/millrace.v1.CronService/Resume":    &pb.ResumeCronRequest{Name: "nightly"},
		"/millrace.v1.CronService/Preview":   &pb.PreviewCronRequest{Schedule: "@daily"},
		"/millrace.v1.BatchService/Open":     &pb.OpenBatchRequest{OnDone: &pb.TaskTemplate{Queue: "mail"}},
		"/millrace.v1.BatchService/List":     &pb.ListBatchesRequest{},
		"/millrace.v1.BatchService/Get":      &pb.GetBatchRequest{Id: apitest.ID(1)},
		"/millrace.v1.BatchService/Wait":     &pb.WaitBatchRequest{Id: apitest.ID(1)},
		"/millrace.v1.BatchService/Seal":     &pb.SealBatchRequest{Id: apitest.ID(1)},
		"/millrace.v1.BatchService/Cancel":   &pb.CancelBatchRequest{Id: apitest.ID(1)},
		"/millrace.v1.BulkService/Start":     &pb.StartBulkRequest{Action: pb.BulkJob_CANCEL},
		"/millrace.v1.BulkService/Redrive":   &pb.RedriveRequest{Queue: "mail"},
		"/millrace.v1.BulkService/List":      &pb.ListBulkRequest{},
		"/millrace.v1.BulkService/Get":       &pb.GetBulkRequest{Id: apitest.ID(1)},
		"/millrace.v1.BulkService/Cancel":    &pb.CancelBulkRequest{Id: apitest.ID(1)},
		"/millrace.v1.LimiterService/Set":    &pb.SetLimiterRequest{Name: "api", Config: &pb.LimiterConfig{Concurrency: 2}},
		"/millrace.v1.LimiterService/Get":    &pb.GetLimiterRequest{Name: "api"},
		"/millrace.v1.LimiterService/Delete": &pb.DeleteLimiterRequest{Name: "api"},
	}
}

// eachMethod calls fn for every method that the server has, with its descriptor.
func eachMethod(t *testing.T, s *Server, fn func(full string, m protoreflect.MethodDescriptor)) {
	t.Helper()
	for name := range s.grpc.GetServiceInfo() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			fn("/"+name+"/"+string(m.Name()), m)
		}
	}
}

// invoke calls a unary method with a good request, or an empty one.
func (r *rig) invoke(ctx context.Context, full string, m protoreflect.MethodDescriptor) error {
	in, ok := goodRequests()[full]
	if !ok {
		in = apitest.NewMessage(r.t, m.Input())
	}
	out := apitest.NewMessage(r.t, m.Output())
	if !m.IsStreamingServer() {
		return r.conn.Invoke(ctx, full, in, out)
	}
	ss, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return err
	}
	if err := ss.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := ss.CloseSend(); err != nil {
		return err
	}
	return ss.RecvMsg(out)
}

func TestEveryMethodIsClosedToWhoHasNoRight(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	eachMethod(t, r.s, func(full string, m protoreflect.MethodDescriptor) {
		if m.IsStreamingClient() {
			return // its frames have a matrix of their own
		}
		rule := methods[full]
		open := codes.OK
		if code, ok := apitest.NotBuilt[full]; ok {
			open = code
		}
		if rule.Public {
			apitest.ExpectCode(t, full+" without a token", r.invoke(context.Background(), full, m), open)
			return
		}
		for name, ctx := range map[string]context.Context{
			"no token":          context.Background(),
			"a header of roles": metadataOnly("x-role", "ADMIN", "x-tenant", "acme"),
			"an unknown token":  apitest.As("unknown"),
			"an empty token":    apitest.As(""),
			"an expired token":  apitest.As("acme/all/-1s"),
			"another scheme":    metadataOnly("authorization", "Basic acme/all"),
			"two tokens":        metadataOnly("authorization", "Bearer acme/all", "authorization", "Bearer acme/all"),
			"an endless token":  apitest.As("acme/all" + strings.Repeat(" ", 1) + strings.Repeat("x", auth.MaxText)),
		} {
			r.tells(full+" with "+name, apitest.KnownToBeRefused[name], func() {
				apitest.ExpectCode(t, full+" with "+name, r.invoke(ctx, full, m), codes.Unauthenticated)
			})
		}
		apitest.ExpectCode(t, full+" with every scope", r.invoke(apitest.As("acme/all"), full, m), open)
		if rule.Any {
			return
		}
		var others []string
		for _, name := range auth.All.Names() {
			scope, _ := auth.ParseScope(name)
			if !rule.Scope.Has(scope) && !rule.Or.Has(scope) {
				others = append(others, name)
			}
		}
		for _, name := range rule.Or.Names() {
			apitest.ExpectCode(t, full+" with "+name+" alone", r.invoke(apitest.As("acme/"+name), full, m), open)
		}
		apitest.ExpectCode(t, full+" with all scopes but its own", r.invoke(apitest.As("acme/"+strings.Join(others, ","), "x-role", "ADMIN"), full, m), codes.PermissionDenied)
		apitest.ExpectCode(t, full+" with its own scope alone", r.invoke(apitest.As("acme/"+rule.Scope.String()), full, m), open)
	})
}

func metadataOnly(kv ...string) context.Context {
	return apitest.AsMetadata(context.Background(), kv...)
}

func TestACommitNeedsTheScopeOfEachOfItsParts(t *testing.T) {
	hold := &pb.Hold{Id: apitest.ID(1), Token: 4}
	bodies := map[string]*pb.Op{
		"task_create":   {Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q"}}},
		"task_complete": {Op: &pb.Op_TaskComplete{TaskComplete: &pb.TaskComplete{Task: hold}}},
		"task_fail":     {Op: &pb.Op_TaskFail{TaskFail: &pb.TaskFail{Task: hold}}},
		"task_snooze": {Op: &pb.Op_TaskSnooze{TaskSnooze: &pb.TaskSnooze{
			Task: hold, Snooze: &pb.Snooze{Delay: spanOf(5)},
		}}},
		"task_cancel":     {Op: &pb.Op_TaskCancel{TaskCancel: &pb.TaskCancel{Id: apitest.ID(1)}}},
		"queue_pause":     {Op: &pb.Op_QueuePause{QueuePause: &pb.QueuePause{Queue: "mail"}}},
		"batch_open":      {Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: apitest.ID(7), OnDone: &pb.TaskTemplate{Queue: "mail"}}}},
		"batch_seal":      {Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: apitest.ID(7)}}},
		"batch_cancel":    {Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{Id: apitest.ID(7)}}},
		"kv_put":          {Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}},
		"kv_delete":       {Op: &pb.Op_KvDelete{KvDelete: &pb.KVDelete{Keyspace: "ks", Key: []byte("k")}}},
		"kv_check":        {Op: &pb.Op_KvCheck{KvCheck: apitest.ExistsCheck()}},
		"kv_add":          {Op: &pb.Op_KvAdd{KvAdd: &pb.KVAdd{Keyspace: "ks", Key: []byte("k"), Delta: 1}}},
		"kv_delete_range": {Op: &pb.Op_KvDeleteRange{KvDeleteRange: &pb.KVDeleteRange{Keyspace: "ks"}}},
		"ref_transaction": {Op: &pb.Op_RefTransaction{RefTransaction: &pb.RefTransaction{
			Repo: "app", Changes: []*pb.RefChange{{Kind: pb.RefChange_DELETE, Name: "refs/heads/a"}},
		}}},
		"vector_upsert": {Op: &pb.Op_VectorUpsert{VectorUpsert: &pb.VectorUpsert{Collection: "ws", Point: &pb.Point{Id: "w1", Vector: []float32{1, 0}, Model: "m"}}}},
		"vector_delete": {Op: &pb.Op_VectorDelete{VectorDelete: &pb.VectorDelete{Collection: "ws", Id: "w1"}}},
		"reserved":      {Op: &pb.Op_Reserved{Reserved: &pb.Reserved{Op: "ref_update"}}},
	}
	r := newRig(t, edge.Limits{})
	client := pb.NewCommitServiceClient(r.conn)
	for name, rule := range opRules() {
		op, ok := bodies[name]
		if !ok {
			t.Fatalf("op %s has no sample", name)
		}
		commit := &pb.CommitRequest{Ops: []*pb.Op{op}}
		if rule.Any {
			_, err := client.Commit(apitest.As("acme/all"), commit)
			if e := apitest.ErrorOf(t, err); e.GetReason() != "not_supported" || e.GetField() != "ops[0]" {
				t.Errorf("%s: %v", name, e)
			}
			continue
		}
		if rule.Or != 0 { // one of several scopes is enough: the matrix of methods tries that
			continue
		}
		checkScope(t, name, rule.Scope, func(ctx context.Context) error {
			_, err := client.Commit(ctx, commit)
			return err
		})
	}
	put := bodies["kv_put"]
	checkScope(t, "fence", auth.TaskWork|auth.KVWrite, func(ctx context.Context) error {
		_, err := client.Commit(ctx, &pb.CommitRequest{Fence: &pb.Fence{Task: apitest.ID(1), Token: 4}, Ops: []*pb.Op{put}})
		return err
	})
	checkScope(t, "condition", auth.TaskCreate|auth.KVWrite, func(ctx context.Context) error {
		_, err := client.Commit(ctx, &pb.CommitRequest{
			Conditions: []*pb.KVCheck{apitest.ExistsCheck()}, Ops: []*pb.Op{bodies["task_create"]},
		})
		return err
	})
	wantPrev := proto.CloneOf(put)
	wantPrev.GetKvPut().WantPrev = true
	checkScope(t, "old value", auth.KVRead|auth.KVWrite, func(ctx context.Context) error {
		_, err := client.Commit(ctx, &pb.CommitRequest{Ops: []*pb.Op{wantPrev}})
		return err
	})
}

// checkScope holds a call to exactly the scopes it needs: any one missing denies it.
func checkScope(t *testing.T, name string, need auth.Scopes, call func(context.Context) error) {
	t.Helper()
	apitest.ExpectCode(t, name+" with its scopes", call(apitest.As("acme/"+need.String())), codes.OK)
	for _, scope := range need.Names() {
		lacking, _ := auth.ParseScope(scope)
		err := call(apitest.As("acme/" + (auth.All &^ lacking).String()))
		apitest.ExpectCode(t, name+" without "+scope, err, codes.PermissionDenied)
	}
}

func TestEffectsNeedTheScopesOfTheirOps(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // so that the namespace exists
	item := &pb.SettleItem{
		Id: apitest.ID(1), Token: 4, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}},
		Effects: &pb.Effects{Ops: []*pb.Op{{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte("k")}}}}},
	}
	out, err := pb.NewTaskServiceClient(r.conn).Settle(apitest.As("acme/task:work"), &pb.SettleRequest{Items: []*pb.SettleItem{item}})
	if err != nil {
		t.Fatal(err)
	}
	if got := out.GetResults()[0].GetError().GetCode(); got != "PERMISSION_DENIED" {
		t.Errorf("got %q", got)
	}
	if n := len(r.n.Proposed()); n != 0 {
		t.Errorf("%d commits were proposed", n)
	}
}

func TestAForeignTaskAnswersLikeAMissingOneByteForByte(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.AddTask(r.t, "rival", apitest.ID(2))
	client := pb.NewTaskServiceClient(r.conn)
	calls := map[string]func(ctx context.Context, id string) error{
		"Get": func(ctx context.Context, id string) error {
			_, err := client.Get(ctx, &pb.GetRequest{Id: id})
			return err
		},
		"Wait": func(ctx context.Context, id string) error {
			_, err := client.Wait(ctx, &pb.WaitRequest{Id: id})
			return err
		},
		"ListAttempts": func(ctx context.Context, id string) error {
			_, err := client.ListAttempts(ctx, &pb.ListAttemptsRequest{Id: id})
			return err
		},
	}
	for name, call := range calls {
		// Of one id, so that the answers can be equal: it is the rival's, then unknown, then in no namespace at all.
		foreign := statusBytes(t, call(apitest.As("acme/all"), apitest.ID(2)))
		r.n.Mu.Lock()
		kept := r.n.Stored
		r.n.Stored = nil
		r.n.Mu.Unlock()
		missing := statusBytes(t, call(apitest.As("acme/all"), apitest.ID(2)))
		nowhere := statusBytes(t, call(apitest.As("acme/all", edge.NamespaceKey, "never-made"), apitest.ID(2)))
		r.n.Mu.Lock()
		r.n.Stored = kept
		r.n.Mu.Unlock()
		if foreign != missing || missing != nowhere {
			t.Errorf("%s:\nforeign %q\nmissing %q\nnowhere %q", name, foreign, missing, nowhere)
		}
		if _, err := client.Get(apitest.As("rival/all"), &pb.GetRequest{Id: apitest.ID(2)}); err != nil {
			t.Errorf("its owner: %v", err)
		}
	}
	r.n.Mu.Lock()
	defer r.n.Mu.Unlock()
	if len(r.n.Spaces) != 2 {
		t.Errorf("reads made a namespace: %v", r.n.Spaces)
	}
}

func statusBytes(t *testing.T, err error) string {
	t.Helper()
	if status.Code(err) != codes.NotFound {
		t.Fatalf("want NOT_FOUND, got %v", err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(status.Convert(err).Proto())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAMethodWithoutARuleKeepsTheServerFromBeingMade(t *testing.T) {
	r := newRig(t, edge.Limits{})
	known := make(map[string]bool)
	for service, info := range r.s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			known["/"+service+"/"+m.Name] = true
		}
	}
	for _, desc := range added {
		addMethods(known, desc)
	}
	if err := checkRules(known); err != nil {
		t.Fatal(err)
	}
	known["/millrace.v1.TaskService/Steal"] = true
	if err := checkRules(known); err == nil || !strings.Contains(err.Error(), "TaskService/Steal") {
		t.Errorf("got %v", err)
	}
	delete(known, "/millrace.v1.TaskService/Steal")
	delete(known, "/millrace.v1.TaskService/Create")
	if err := checkRules(known); err == nil {
		t.Error("rules of methods that do not exist were accepted")
	}
	if err := sameNames("op", map[string]bool{"a": true}, map[string]edge.Rule{"a": {}}); err == nil {
		t.Error("an empty rule was accepted")
	}
	if f := (edge.Rule{}).Missing(auth.All); f == nil {
		t.Error("an empty rule allowed something")
	}
	if _, _, f := r.s.admit(apitest.As("acme/all"), "/millrace.v1.TaskService/Steal"); f == nil {
		t.Error("a method without a rule was admitted")
	}
}

func TestWhoCreatesReadsOrClaimsTasksMayReadTheNamespace(t *testing.T) {
	const method = "/millrace.v1.QueueService/GetNamespace"
	for scope, open := range map[auth.Scopes]bool{
		auth.TaskCreate: true, auth.TaskRead: true, auth.TaskWork: true, auth.KVRead: false, auth.KVWrite: false, auth.Admin: false,
	} {
		if f := methods[method].Missing(scope); (f == nil) != open {
			t.Errorf("%s alone: got %v, want open %v", scope, f, open)
		}
	}
}
