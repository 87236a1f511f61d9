package api

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A limiter is in each partition of a namespace: it is set and removed in all, and read as the sum of what is used.
func TestALimiterIsInAllPartitions(t *testing.T) {
	r := wideRig(t, "", "", "", "")
	client := pb.NewLimiterServiceClient(r.conn)
	set, err := client.Set(apitest.As("acme/all"), &pb.SetLimiterRequest{Name: "api", Config: &pb.LimiterConfig{Concurrency: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if got := set.GetLimiter(); got.GetUsed() != 4 || len(got.GetHeldBy()) != 4 {
		t.Errorf("one is used in each of four partitions: %v", got)
	}
	list, err := client.List(apitest.As("acme/all"), &pb.ListLimitersRequest{})
	if err != nil || len(list.GetLimiters()) != 1 {
		t.Errorf("the list: %v, %v", list, err)
	}
	if _, err := client.Delete(apitest.As("acme/all"), &pb.DeleteLimiterRequest{Name: "api"}); err != nil {
		t.Error(err)
	}
	sets, deletes := map[uint16]bool{}, map[uint16]bool{}
	for _, c := range r.n.Proposed() {
		switch op := c.Ops[0].(type) {
		case *core.LimiterSet:
			sets[c.Partition.Index] = op.Config == core.LimiterConfig{Concurrency: 2}
		case *core.LimiterDelete:
			deletes[c.Partition.Index] = op.Name == "api"
		}
	}
	for i := range uint16(4) {
		if !sets[i] || !deletes[i] {
			t.Errorf("partition %d: set %v, removed %v", i, sets[i], deletes[i])
		}
	}
}

// Who reaches some queues alone is told of no others that hold a limiter, and sets none.
func TestHoldersOfALimiterAreShownToWhoReachesTheirQueues(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	client := pb.NewLimiterServiceClient(r.conn)
	for principal, holders := range map[string]int{"acme/all": 1, "acme/all/queues=ma*": 1, "acme/all/queues=web": 0} {
		got, err := client.Get(apitest.As(principal), &pb.GetLimiterRequest{Name: "api"})
		if err != nil || len(got.GetLimiter().GetHeldBy()) != holders || got.GetLimiter().GetUsed() != 1 {
			t.Errorf("%s is shown %v, %v", principal, got, err)
		}
	}
	_, err := client.Set(apitest.As("acme/all/queues=web"), &pb.SetLimiterRequest{Name: "api"})
	apitest.ExpectCode(t, "a token of one queue", err, codes.PermissionDenied)
}

// The names of limiters are put in order, and each once.
func TestNamesOfLimitersAreSortedAndKeptOnce(t *testing.T) {
	r := newRig(t, edge.Limits{})
	if _, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "mail", Limiters: []string{"b", "a", "b"}}}); err != nil {
		t.Fatal(err)
	}
	commits := r.n.Proposed()
	op, ok := commits[len(commits)-1].Ops[0].(*core.TaskCreate)
	if !ok || len(op.Limiters) != 2 || op.Limiters[0] != "a" || op.Limiters[1] != "b" {
		t.Errorf("proposed %+v", commits[len(commits)-1].Ops[0])
	}
}
