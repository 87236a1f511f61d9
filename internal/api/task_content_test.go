package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

func TestATaskIsReadWithoutPayloadAndResult(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	client := pb.NewTaskServiceClient(r.conn)
	whole, err := client.Get(apitest.As("acme/all"), &pb.GetRequest{Id: apitest.ID(1)})
	if err != nil {
		t.Fatal(err)
	}
	if task := whole.GetTask(); string(task.GetPayload()) != `{"to":"ada"}` || string(task.GetResult()) != "true" || task.PayloadSize != nil || task.ResultSize != nil {
		t.Errorf("the whole task is %v", task)
	}
	meta, err := client.Get(apitest.As("acme/all"), &pb.GetRequest{Id: apitest.ID(1), Meta: true})
	if err != nil {
		t.Fatal(err)
	}
	if task := meta.GetTask(); task.Payload != nil || task.Result != nil || task.GetPayloadSize() != 12 || task.GetResultSize() != 4 || !task.GetHasResult() || task.GetContentType() != "application/json" {
		t.Errorf("without payload and result it is %v", task)
	}
}
