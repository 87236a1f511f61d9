package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// namesTasks has a create name tasks.
func namesTasks(ids ...string) func(*pb.TaskSpec) {
	return func(s *pb.TaskSpec) {
		for _, id := range ids {
			s.After = append(s.After, &pb.After{Id: id})
		}
	}
}

func TestATaskThatWaitsNamesOthersAsItMust(t *testing.T) {
	many := make([]string, core.MaxAfter+1)
	for i := range many {
		many[i] = apitest.ID(byte(i))
	}
	for field, c := range map[string]struct {
		change func(*pb.TaskSpec)
		code   string
	}{
		"task.after":            {namesTasks(many...), "TOO_LARGE"},
		"task.after[0].id":      {namesTasks("nonsense"), "INVALID_ARGUMENT"},
		"task.after[1].id":      {namesTasks(apitest.ID(1), apitest.ID(1)), "INVALID_ARGUMENT"},
		"task.on_dep_failure":   {func(s *pb.TaskSpec) { s.OnDepFailure = 9 }, "INVALID_ARGUMENT"},
		"task.after[0].id none": {namesTasks(""), "INVALID_ARGUMENT"},
		"task.after[0].id self": {func(s *pb.TaskSpec) { s.Id = apitest.ID(3); namesTasks(apitest.ID(3))(s) }, "INVALID_ARGUMENT"},
	} {
		r := newRig(t, edge.Limits{})
		e := apitest.ErrorOf(t, createOf(c.change)(r))
		if e.GetCode() != c.code || e.GetField() != field[:len(e.GetField())] || e.GetField() == "" {
			t.Errorf("%s: %v", field, e)
		}
		if n := len(r.n.Proposed()); n != 0 {
			t.Errorf("%s: %d commits were proposed", field, n)
		}
	}
	r := newRig(t, edge.Limits{})
	if err := createOf(func(s *pb.TaskSpec) { s.OnDepFailure = pb.OnDepFailure_RUN })(r); err != nil {
		t.Fatal(err)
	}
	if op := r.n.Proposed()[0].Ops[0].(*core.TaskCreate); op.HasShare() {
		t.Errorf("proposed %+v", op)
	}
	err := createOf(func(s *pb.TaskSpec) {
		namesTasks(apitest.ID(9), apitest.ID(2))(s)
		s.After[0].On, s.OnDepFailure = pb.After_TERMINAL, pb.OnDepFailure_CANCEL
	})(r)
	if err != nil {
		t.Fatal(err)
	}
	op := r.n.Proposed()[1].Ops[0].(*core.TaskCreate)
	first, last := apitest.MustID(t, apitest.ID(2)), apitest.MustID(t, apitest.ID(9))
	if len(op.After) != 2 || op.After[0] != (core.After{Task: first}) || op.After[1] != (core.After{Task: last, Terminal: true}) || op.OnDepFailure != core.DepCancel {
		t.Errorf("proposed %+v %d", op.After, op.OnDepFailure)
	}
}

func TestAnOlderClusterLetsNoTaskWait(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.EntryFormat = core.FormatOperate
	e := apitest.ErrorOf(t, createOf(namesTasks(apitest.ID(1)))(r))
	if e.GetReason() != "not_supported" || e.GetField() != "task.after" {
		t.Errorf("%v", e)
	}
}

// A task without a place of its own goes where the first of those is that it waits for.
func TestTasksThatWaitAreOfThePartitionOfTheOthers(t *testing.T) {
	r := wideRig(t)
	create := func(s *pb.TaskSpec, ids ...string) error {
		namesTasks(ids...)(s)
		_, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: s})
		return err
	}
	if err := create(&pb.TaskSpec{Queue: "q"}, apitest.IDIn(2, 1), apitest.IDIn(2, 2)); err != nil {
		t.Fatal(err)
	}
	c := r.n.Proposed()[0]
	if id := c.Ops[0].(*core.TaskCreate).ID; c.Partition.Index != 2 || id.Partition() != 2 {
		t.Errorf("proposed to partition %d as %s", c.Partition.Index, id)
	}
	for name, err := range map[string]error{
		"of two partitions":   create(&pb.TaskSpec{Queue: "q"}, apitest.IDIn(2, 1), apitest.IDIn(1, 2)),
		"with an id of one":   create(&pb.TaskSpec{Queue: "q", Id: apitest.IDIn(1, 9)}, apitest.IDIn(2, 1)),
		"with a tag of other": create(&pb.TaskSpec{Queue: "q", Tag: tagIn(1)}, apitest.IDIn(2, 1)),
	} {
		if e := apitest.ErrorOf(t, err); e.GetCode() != "WRONG_PARTITION" || e.GetField() != "task.after" {
			t.Errorf("%s: %v", name, e)
		}
	}
	if e := apitest.ErrorOf(t, create(&pb.TaskSpec{Queue: "q"}, apitest.IDIn(7, 1))); e.GetCode() != "NOT_FOUND" {
		t.Errorf("in a partition that is not there: %v", e)
	}
	_, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), &pb.CommitRequest{Ops: []*pb.Op{
		{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q", Id: apitest.IDIn(2, 5)}}},
		{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "q", After: []*pb.After{{Id: apitest.IDIn(1, 5)}}}}},
	}})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "WRONG_PARTITION" {
		t.Errorf("a commit over two partitions: %v", e)
	}
}

// tagIn is a tag that is placed in one of four partitions.
func tagIn(place uint16) string {
	for tag := "t"; ; tag += "t" {
		if core.PlaceText([]byte(tag), 4) == place {
			return tag
		}
	}
}
