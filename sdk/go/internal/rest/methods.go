package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// restMethods is the table from a method of the contract to what does the same over REST.
var restMethods = map[string]restMethod{
	millracev1.TaskService_Create_FullMethodName:             restOf((*Conn).create),
	millracev1.TaskService_BatchCreate_FullMethodName:        restOf((*Conn).batchCreate),
	millracev1.TaskService_Get_FullMethodName:                restOf((*Conn).getTask),
	millracev1.TaskService_ListAttempts_FullMethodName:       restOf((*Conn).listAttempts),
	millracev1.TaskService_List_FullMethodName:               restOf((*Conn).listTasks),
	millracev1.TaskService_Claim_FullMethodName:              restOf((*Conn).claim),
	millracev1.TaskService_Heartbeat_FullMethodName:          restOf((*Conn).heartbeat),
	millracev1.TaskService_Settle_FullMethodName:             restOf((*Conn).settle),
	millracev1.TaskService_Wait_FullMethodName:               restOf((*Conn).wait),
	millracev1.TaskService_RunNow_FullMethodName:             restOf((*Conn).runNow),
	millracev1.TaskService_Delete_FullMethodName:             restOf((*Conn).deleteTask),
	millracev1.CommitService_Commit_FullMethodName:           restOf((*Conn).commit),
	millracev1.KVService_Get_FullMethodName:                  restOf((*Conn).getKey),
	millracev1.QueueService_List_FullMethodName:              restOf((*Conn).listQueues),
	millracev1.QueueService_Get_FullMethodName:               restOf((*Conn).getQueue),
	millracev1.QueueService_Set_FullMethodName:               restOf((*Conn).setQueue),
	millracev1.QueueService_Delete_FullMethodName:            restOf((*Conn).deleteQueue),
	millracev1.QueueService_Stats_FullMethodName:             restOf((*Conn).queueStats),
	millracev1.QueueService_CreateNamespace_FullMethodName:   restOf((*Conn).createNamespace),
	millracev1.QueueService_DeleteNamespace_FullMethodName:   restOf((*Conn).deleteNamespace),
	millracev1.QueueService_GetNamespace_FullMethodName:      restOf((*Conn).getNamespace),
	millracev1.QueueService_SetNamespace_FullMethodName:      restOf((*Conn).setNamespace),
	millracev1.ServerService_Status_FullMethodName:           restOf((*Conn).status),
	millracev1.SearchService_SetCollection_FullMethodName:    restOf((*Conn).setCollection),
	millracev1.SearchService_GetCollection_FullMethodName:    restOf((*Conn).getCollection),
	millracev1.SearchService_ListCollections_FullMethodName:  restOf((*Conn).listCollections),
	millracev1.SearchService_DeleteCollection_FullMethodName: restOf((*Conn).deleteCollection),
	millracev1.SearchService_CollectionStats_FullMethodName:  restOf((*Conn).collectionStats),
	millracev1.SearchService_UpsertPoints_FullMethodName:     restOf((*Conn).upsertPoints),
	millracev1.SearchService_DeletePoints_FullMethodName:     restOf((*Conn).deletePoints),
	millracev1.SearchService_GetPoints_FullMethodName:        restOf((*Conn).getPoints),
	millracev1.SearchService_CountPoints_FullMethodName:      restOf((*Conn).countPoints),
	millracev1.SearchService_PutRuleset_FullMethodName:       restOf((*Conn).putRuleset),
	millracev1.SearchService_GetRuleset_FullMethodName:       restOf((*Conn).getRuleset),
	millracev1.SearchService_ListRulesets_FullMethodName:     restOf((*Conn).listRulesets),
	millracev1.SearchService_DeleteRuleset_FullMethodName:    restOf((*Conn).deleteRuleset),
	millracev1.SearchService_Embed_FullMethodName:            restOf((*Conn).embed),
	millracev1.SearchService_Search_FullMethodName:           restOf((*Conn).search),
	millracev1.SearchService_GetRecording_FullMethodName:     restOf((*Conn).getRecording),
	millracev1.RefService_CreateRepo_FullMethodName:          restOf((*Conn).createRepo),
	millracev1.RefService_GetRepo_FullMethodName:             restOf((*Conn).getRepo),
	millracev1.RefService_ListRepos_FullMethodName:           restOf((*Conn).listRepos),
	millracev1.RefService_UpdateRepo_FullMethodName:          restOf((*Conn).updateRepo),
	millracev1.RefService_DeleteRepo_FullMethodName:          restOf((*Conn).deleteRepo),
	millracev1.RefService_UndeleteRepo_FullMethodName:        restOf((*Conn).undeleteRepo),
	millracev1.RefService_GetRef_FullMethodName:              restOf((*Conn).getRef),
	millracev1.RefService_BatchGetRefs_FullMethodName:        restOf((*Conn).batchGetRefs),
	millracev1.RefService_UpdateRefs_FullMethodName:          restOf((*Conn).updateRefs),
	millracev1.RefService_ReadReflog_FullMethodName:          restOf((*Conn).readReflog),
	millracev1.TaskService_Update_FullMethodName:             restReserved("Update"),
	millracev1.TaskService_Cancel_FullMethodName:             restReserved("Cancel"),
	millracev1.TaskService_Retry_FullMethodName:              restReserved("Retry"),
	millracev1.KVService_BatchGet_FullMethodName:             restOf((*Conn).batchGet),
	millracev1.KVService_Put_FullMethodName:                  restOf((*Conn).putKey),
	millracev1.KVService_Delete_FullMethodName:               restOf((*Conn).deleteKey),
	millracev1.KVService_DeleteRange_FullMethodName:          restOf((*Conn).deleteKeys),
	millracev1.KeyspaceService_Set_FullMethodName:            restOf((*Conn).setKeyspace),
	millracev1.KeyspaceService_Get_FullMethodName:            restOf((*Conn).getKeyspace),
	millracev1.KeyspaceService_List_FullMethodName:           restOf((*Conn).listKeyspaces),
	millracev1.KeyspaceService_Delete_FullMethodName:         restOf((*Conn).deleteKeyspace),
	millracev1.ClusterService_Status_FullMethodName:          restOf((*Conn).clusterStatus),
	millracev1.ClusterService_ChangeMembers_FullMethodName:   restOf((*Conn).changeMembers),
	millracev1.ClusterService_TransferShard_FullMethodName:   restOf((*Conn).transferShard),
	millracev1.ClusterService_BalanceShards_FullMethodName:   restOf((*Conn).balanceShards),
	millracev1.ClusterService_FinalizeFormat_FullMethodName:  restOf((*Conn).finalizeFormat),
	millracev1.TenantService_Get_FullMethodName:              restOf((*Conn).getTenant),
	millracev1.TenantService_Set_FullMethodName:              restOf((*Conn).setTenant),
}

type restMethod func(r *Conn, ctx context.Context, in, out any) error

func restOf[In, Out any](do func(r *Conn, ctx context.Context, in *In, out *Out) error) restMethod {
	return func(r *Conn, ctx context.Context, in, out any) error {
		req, ok := in.(*In)
		resp, also := out.(*Out)
		if !ok || !also {
			return status.Errorf(codes.Internal, "messages %T and %T are not of this method", in, out)
		}
		return do(r, ctx, req, resp)
	}
}

func restReserved(name string) restMethod {
	return func(*Conn, context.Context, any, any) error {
		return &Fault{wire: &millracev1.Error{
			Code: wire.InvalidArgument, Reason: "not_supported", Field: name, Message: "is reserved and not supported yet",
		}}
	}
}

// Invoke carries out a unary call of the contract. gRPC's own options mean nothing here.
func (r *Conn) Invoke(ctx context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	do, ok := restMethods[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "%s has no route", method)
	}
	return do(r, ctx, in, out)
}

const (
	routeTasks  = "/v1/tasks"
	routeQueues = "/v1/queues"
)

func get(path string, query url.Values) restRequest {
	return restRequest{method: http.MethodGet, path: path, query: query}
}

func post(path string, room int, fields func(w *restBody)) restRequest {
	return restRequest{method: http.MethodPost, path: path, body: restDocument(room, fields)}
}

func (a *restAnswer) at() *millracev1.At { return restAt(a.header.Get("Millrace-Index")) }

// taskPath is the route of one task. An id that makes no segment of a path is refused as the server would.
func taskPath(id, tail string) (string, error) {
	if id == "" {
		return "", refusedHere("id", "is required")
	}
	return routeTasks + "/" + restSegment(id) + tail, nil
}

func queuePath(name, tail string) (string, error) {
	if name == "" {
		return "", refusedHere("queue", "is required")
	}
	return routeQueues + "/" + restSegment(name) + tail, nil
}

func (r *Conn) create(ctx context.Context, in *millracev1.CreateRequest, out *millracev1.CreateResponse) error {
	var made restCreated
	a, err := r.call(ctx, post(routeTasks, 512, func(w *restBody) { w.spec(in.GetTask()) }), &made)
	if err != nil {
		return enclosed(err, "task")
	}
	out.Id, out.Replayed, out.PayloadMatches, out.At = made.ID, made.Replayed, made.PayloadMatches, a.at()
	return nil
}

// createsRequest writes a batch of creates. It reads tasks before it returns.
func createsRequest(tasks []*millracev1.TaskSpec, atomic bool) restRequest {
	room := 64
	for _, t := range tasks {
		room += 4*wire.Size(t)/3 + 128
	}
	return post(routeTasks+":batch", room, func(w *restBody) {
		restList(w, "tasks", tasks, w.spec)
		w.flag("atomic", atomic)
	})
}

func (r *Conn) creates(ctx context.Context, q restRequest, out *millracev1.BatchCreateResponse) error {
	var body struct{ Results []restCreated }
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Results, out.At = restWire(body.Results, (*restCreated).wire), a.at()
	return nil
}

func (r *Conn) batchCreate(ctx context.Context, in *millracev1.BatchCreateRequest, out *millracev1.BatchCreateResponse) error {
	return r.creates(ctx, createsRequest(in.GetTasks(), in.GetAtomic()), out)
}

func (r *Conn) getTask(ctx context.Context, in *millracev1.GetRequest, out *millracev1.GetResponse) error {
	path, err := taskPath(in.GetId(), "")
	if err != nil {
		return err
	}
	var task restTask
	a, err := r.call(ctx, get(path, freshness(in.GetMinIndex(), in.GetStale())), &task)
	if err != nil {
		return err
	}
	out.Task, out.At = task.wire(), a.at()
	return nil
}

// freshness are the parameters of a read.
func freshness(minIndex uint64, stale bool) url.Values {
	query := url.Values{}
	if minIndex != 0 {
		query.Set("min_index", strconv.FormatUint(minIndex, 10))
	}
	if stale {
		query.Set("consistency", "stale")
	}
	return query
}

func (r *Conn) listAttempts(ctx context.Context, in *millracev1.ListAttemptsRequest, out *millracev1.ListAttemptsResponse) error {
	path, err := taskPath(in.GetId(), "/attempts")
	if err != nil {
		return err
	}
	var body struct{ Attempts []restAttempt }
	a, err := r.call(ctx, get(path, nil), &body)
	if err != nil {
		return err
	}
	out.Attempts, out.At = restWire(body.Attempts, (*restAttempt).wire), a.at()
	return nil
}

// pageOf are the parameters of a page.
func pageOf(limit uint32, cursor string) url.Values {
	query := url.Values{}
	if limit != 0 {
		query.Set("limit", strconv.FormatUint(uint64(limit), 10))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}

func (r *Conn) listTasks(ctx context.Context, in *millracev1.ListRequest, out *millracev1.ListResponse) error {
	query := pageOf(in.GetLimit(), in.GetCursor())
	query.Set("queue", in.GetQueue())
	if in.GetState() != 0 {
		query.Set("state", wire.State(int32(in.GetState())))
	}
	var body struct {
		Tasks  []restTask
		Cursor string
	}
	a, err := r.call(ctx, get(routeTasks, query), &body)
	if err != nil {
		return err
	}
	out.Tasks, out.Cursor, out.At = restWire(body.Tasks, (*restTask).wire), body.Cursor, a.at()
	return nil
}

func claimRequest(in *millracev1.ClaimRequest) restRequest {
	q := post(routeTasks+":claim", 256, func(w *restBody) {
		restList(w, "queues", in.GetQueues(), func(queue *millracev1.QueueWeight) {
			w.text("name", queue.GetName())
			w.int("weight", int64(queue.GetWeight()))
		})
		w.int("max", int64(in.GetMax()))
		w.duration("lease", in.GetLease())
		w.duration("wait", in.GetWait())
		w.text("worker", in.GetWorker())
		if in.Partition != nil {
			w.anyInt("partition", int64(in.GetPartition()))
		}
	})
	q.wait = max(in.GetWait().AsDuration(), 0)
	return q
}

func (r *Conn) claim(ctx context.Context, in *millracev1.ClaimRequest, out *millracev1.ClaimResponse) error {
	a, err := r.do(ctx, claimRequest(in))
	if err != nil {
		return err
	}
	out.At = a.at()
	if a.status == http.StatusNoContent {
		return nil
	}
	var body struct{ Tasks []restAssignment }
	if err := a.read(&body); err != nil {
		return err
	}
	out.Tasks = restWire(body.Tasks, (*restAssignment).wire)
	return nil
}

func beatsRequest(in *millracev1.HeartbeatRequest) restRequest {
	return post(routeTasks+":heartbeat", 64+64*len(in.GetItems()), func(w *restBody) {
		restList(w, "items", in.GetItems(), w.hold)
		w.duration("extend", in.GetExtend())
	})
}

func (r *Conn) beats(ctx context.Context, q restRequest, out *millracev1.HeartbeatResponse) error {
	var body struct{ Results []restBeat }
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Results, out.At = restWire(body.Results, (*restBeat).wire), a.at()
	return nil
}

func (r *Conn) heartbeat(ctx context.Context, in *millracev1.HeartbeatRequest, out *millracev1.HeartbeatResponse) error {
	return r.beats(ctx, beatsRequest(in), out)
}

// settlesRequest writes a batch of settles. It reads items before it returns.
func settlesRequest(items []*millracev1.SettleItem) restRequest {
	room := 64
	for _, it := range items {
		room += 4*len(it.GetComplete().GetResult())/3 + 192
	}
	return post(routeTasks+":settle", room, func(w *restBody) { restList(w, "items", items, w.settleItem) })
}

func (r *Conn) settles(ctx context.Context, q restRequest, out *millracev1.SettleResponse) error {
	var body struct{ Results []restSettled }
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Results, out.At = restWire(body.Results, (*restSettled).wire), a.at()
	return nil
}

func (r *Conn) settle(ctx context.Context, in *millracev1.SettleRequest, out *millracev1.SettleResponse) error {
	return r.settles(ctx, settlesRequest(in.GetItems()), out)
}

// wait asks for the end of a task again and again, each time waiting there, and then reads the task.
func (r *Conn) wait(ctx context.Context, in *millracev1.WaitRequest, out *millracev1.WaitResponse) error {
	path, err := taskPath(in.GetId(), "/result")
	if err != nil {
		return err
	}
	poll := newRESTPoll()
	for try := 0; ; {
		var ended restTask
		began := time.Now()
		q := get(path, url.Values{"wait": {poll.wait.String()}})
		q.wait = poll.wait
		a, err := r.call(ctx, q, &ended)
		took := time.Since(began)
		switch {
		case err != nil && poll.missed(err, took), err == nil && !ended.Done && took >= pollLeast:
			continue
		case err != nil:
			return err
		case !ended.Done: // answered by something that does not wait
			retry.Sleep(ctx, max(retry.Backoff(try), retry.Base))
			try++
			continue
		}
		at := a.at()
		var full millracev1.GetResponse
		err = r.getTask(ctx, &millracev1.GetRequest{Id: in.GetId(), MinIndex: at.GetIndex()}, &full)
		if f, ok := errors.AsType[*Fault](err); ok && f.origin == byServer && f.wire.GetCode() == wire.NotFound {
			ended.ID, ended.HasResult = in.GetId(), ended.Result != nil || ended.ResultBytes != nil
			full.Task, err = ended.wire(), nil // it was removed at its end, which this still knows
		}
		out.Task, out.At = full.GetTask(), at
		return err
	}
}

func (r *Conn) runNow(ctx context.Context, in *millracev1.RunNowRequest, out *millracev1.RunNowResponse) error {
	path, err := taskPath(in.GetId(), "/run-now")
	if err != nil {
		return err
	}
	a, err := r.do(ctx, restRequest{method: http.MethodPost, path: path})
	if err != nil {
		return err
	}
	out.At = a.at()
	return nil
}

func (r *Conn) deleteTask(ctx context.Context, in *millracev1.DeleteRequest, out *millracev1.DeleteResponse) error {
	path, err := taskPath(in.GetId(), "")
	if err != nil {
		return err
	}
	a, err := r.do(ctx, restRequest{method: http.MethodDelete, path: path})
	if err != nil {
		return err
	}
	out.At = a.at()
	return nil
}
