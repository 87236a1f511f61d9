package rest_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/server"
)

// The bound is of each tenant, whichever door a namespace would be made through.
func TestNamespacesAreBoundedBySetting(t *testing.T) {
	const second = "globex"
	d := openDoorWith(t, server.Options{Limits: edge.Limits{Namespaces: 2}}, mail, second)
	for tenant, paths := range map[string][]string{mail: {"/v1/tasks?ns=one", "/v1/tasks?ns=two"}, second: {"/v1/tasks?ns=one"}} {
		for _, path := range paths {
			d.do(tenant, "POST", path, `{"queue":"q","payload":1}`).want(t, 201)
		}
	}
	for name, r := range map[string]reply{
		"a create":    d.do(mail, "POST", "/v1/tasks?ns=three", `{"queue":"q","payload":1}`),
		"a key":       d.do(mail, "PUT", "/v1/kv/s/keys/a?ns=three", `{"value":"MQ=="}`),
		"a namespace": d.do(mail, "POST", "/v1/namespace?ns=three", `{"partitions":1}`),
	} {
		r.want(t, 429)
		if r.text(t, "error", "limit") != "namespaces" || string(r.field(t, "error", "max")) != "2" {
			t.Errorf("%s: %s", name, r.body)
		}
	}

	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test has all that it wants
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+mail, "millrace-namespace", "three")
	_, err = pb.NewQueueServiceClient(conn).CreateNamespace(ctx, &pb.CreateNamespaceRequest{Partitions: 2})
	if e := errorIn(t, err); e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != "namespaces" || e.GetMax() != 2 {
		t.Errorf("over gRPC: %v", err)
	}
	_, err = pb.NewTaskServiceClient(conn).Create(ctx, &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
	if e := errorIn(t, err); e.GetLimit() != "namespaces" {
		t.Errorf("the first write to another namespace over gRPC: %v", err)
	}

	d.do(mail, "POST", "/v1/tasks?ns=two", `{"queue":"q","payload":1}`).want(t, 201) // what is there goes on
	d.do(second, "POST", "/v1/tasks?ns=two", `{"queue":"q","payload":1}`).want(t, 201)
}
