package rest

import (
	"math"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

func TestARequestIsWrittenAsTheContractSays(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		in     proto.Message
		want   string // verb, path and query
		match  string
		body   string
	}{
		"segments and flags": {
			pb.KVService_Get_FullMethodName,
			&pb.KVGetRequest{Keyspace: "k", Key: []byte("a/b ."), MinIndex: 7, Stale: true, MaxStaleness: durationpb.New(1500 * time.Millisecond)},
			"GET /v1/kv/k/keys/a%2Fb%20.?consistency=stale&max_staleness=1.5s&min_index=7", "", "",
		},
		"a field of a message in the path": {pb.KVService_Delete_FullMethodName, &pb.KVDeleteRequest{Delete: &pb.KVDelete{Keyspace: "k", Key: []byte(".."), IfRev: new(uint64(0))}}, "DELETE /v1/kv/k/keys/%2E%2E?if_rev=0", "", ""},
		"a word of an enumeration":         {pb.TaskService_List_FullMethodName, &pb.ListRequest{Queue: "q", State: pb.State_DEAD, Limit: 5}, "GET /v1/tasks?limit=5&queue=q&state=dead", "", ""},
		"a route without the segment":      {pb.TenantService_Get_FullMethodName, &pb.GetTenantRequest{}, "GET /v1/tenant", "", ""},
		"the route with it":                {pb.TenantService_Get_FullMethodName, &pb.GetTenantRequest{Tenant: "acme"}, "GET /v1/tenants/acme", "", ""},
		"a version, and a field as the body": {
			pb.QueueService_Set_FullMethodName,
			&pb.SetQueueRequest{Queue: "q", IfVersion: new(uint64(3)), Config: &pb.QueueConfig{MaxDeliveries: new(int32(0)), Lease: durationpb.New(time.Minute), Retry: &pb.Retry{Factor: math.NaN()}}},
			"PUT /v1/queues/q", `"3"`, `{"max_deliveries":0,"lease":"1m0s","retry":{"factor":"NaN"}}`,
		},
		"the rest of the message as the body": {
			pb.RefService_UpdateRefs_FullMethodName,
			&pb.UpdateRefsRequest{Repo: "r", Tag: "t", RequestId: make([]byte, 16), Message: "a\x00b", Changes: []*pb.RefChange{{Kind: pb.RefChange_DELETE, Name: "refs/x", Old: new("")}}},
			"POST /v1/repos/r/refs?tag=t", "", `{"changes":[{"kind":"delete","name":"refs/x","old":""}],"request_id":"00000000000000000000000000000000","message":"a` + "\ufffd" + `b"}`,
		},
		"bytes, members of a oneof, what is not built": {
			pb.CommitService_Commit_FullMethodName,
			&pb.CommitRequest{Ops: []*pb.Op{
				{Op: &pb.Op_KvCheck{KvCheck: &pb.KVCheck{Keyspace: "k", Key: []byte{0}, Compare: pb.KVCheck_EQUAL, Operand: &pb.KVCheck_Value{}}}},
				{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q", Webhook: "x"}}},
				{Op: &pb.Op_Reserved{Reserved: &pb.Reserved{}}},
			}},
			"POST /v1/commit", "", `{"ops":[{"kv_check":{"keyspace":"k","key_base64":"AA==","compare":"equal","value_base64":""}},{"task_create":{"queue":"q","webhook":true}},{"kv_get":true}]}`,
		},
		"a flag that is false": {
			pb.SearchService_SetCollection_FullMethodName,
			&pb.SetCollectionRequest{Collection: &pb.Collection{Name: "c", Schema: []*pb.SchemaField{{Name: "f", Type: pb.FieldType_FIELD_TYPE_KEYWORD, Index: new(false)}}}},
			"PUT /v1/collections/c", "", `{"name":"c","schema":[{"name":"f","type":"keyword","index":false}]}`,
		},
		"numbers of 32 bits": {
			pb.SearchService_Search_FullMethodName, &pb.SearchRequest{Collection: "c", Vector: []float32{1}, MinIndex: 1 << 60, Gate: &pb.Gate{Params: []byte(`{"a":1}`)}},
			"POST /v1/matrix/search", "", `{"collection":"c","vector":"AACAPw==","gate":{"params":{"a":1}},"min_index":"1152921504606846976"}`,
		},
	} {
		c, err := prepare(tc.method, tc.in, 64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := c.q.method + " " + c.q.path
		if q := c.q.query.Encode(); q != "" {
			got += "?" + q
		}
		if got != tc.want || c.q.ifMatch != tc.match || string(c.q.body) != tc.body {
			t.Errorf("%s: %s, If-Match %s, %s\nwant %s, If-Match %s, %s", name, got, c.q.ifMatch, c.q.body, tc.want, tc.match, tc.body)
		}
	}
}

func TestARequestWithoutASegmentIsRefused(t *testing.T) {
	for want, in := range map[string]struct {
		method string
		in     proto.Message
	}{
		"queue: is required":          {pb.QueueService_Get_FullMethodName, &pb.GetQueueRequest{}},
		"keyspace: must not be empty": {pb.KeyspaceService_Get_FullMethodName, &pb.GetKeyspaceRequest{}},
		"repo: is required":           {pb.RefService_GetRepo_FullMethodName, &pb.GetRepoRequest{}},
	} {
		_, err := prepare(in.method, in.in, 0)
		if f, ok := err.(*Fault); !ok || f.wire.GetField()+": "+f.wire.GetMessage() != want { //nolint:errorlint // it is returned as it is
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestEveryUnaryMethodHasARoute(t *testing.T) {
	protoregistry.GlobalFiles.RangeFilesByPackage("millrace.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				if special[name] == nil && len(routes[name]) == 0 && !m.IsStreamingServer() && !m.IsStreamingClient() {
					t.Errorf("%s has no route", name)
				}
			}
		}
		return true
	})
}

func TestAnAnswerWithoutABodyIsOneOnlyWhereThatIsAllowed(t *testing.T) {
	none := &restAnswer{status: http.StatusNoContent, header: http.Header{"Millrace-Index": {"2/0/9"}}}
	out := new(pb.ClaimResponse)
	if err := none.into(&routes[pb.TaskService_Claim_FullMethodName][0], out.ProtoReflect()); err != nil || out.GetAt().GetIndex() != 9 || out.GetAt().GetPartition() != 2 {
		t.Errorf("a claim that found nothing: %v %v", err, out)
	}
	if err := none.into(&routes[pb.TaskService_Create_FullMethodName][0], new(pb.CreateResponse).ProtoReflect()); err == nil {
		t.Error("a create without an answer is taken for made")
	}
}
