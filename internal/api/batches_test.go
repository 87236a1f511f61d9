package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func TestABatchThatIsNotAsItMustBeIsRefused(t *testing.T) {
	for field, c := range map[string]struct {
		in   *pb.OpenBatchRequest
		code string
	}{
		"id":               {&pb.OpenBatchRequest{Id: "nonsense"}, "INVALID_ARGUMENT"},
		"labels":           {&pb.OpenBatchRequest{Labels: map[string]string{"": "x"}}, "INVALID_ARGUMENT"},
		"on_done.queue":    {&pb.OpenBatchRequest{OnDone: &pb.TaskTemplate{Queue: "a b"}}, "INVALID_ARGUMENT"},
		"on_success.queue": {&pb.OpenBatchRequest{OnSuccess: &pb.TaskTemplate{}}, "INVALID_ARGUMENT"},
	} {
		r := newRig(t, edge.Limits{})
		_, err := pb.NewBatchServiceClient(r.conn).Open(apitest.As("acme/all"), c.in)
		if e := apitest.ErrorOf(t, err); e.GetCode() != c.code || e.GetField() == "" || e.GetField() != field && field != "labels" {
			t.Errorf("%s: %v", field, e)
		}
		if n := len(r.n.Proposed()); n != 0 {
			t.Errorf("%s: %d commits were proposed", field, n)
		}
	}
	r := newRig(t, edge.Limits{})
	both := &pb.OpenBatchRequest{Id: apitest.ID(1), Tag: "t"}
	_, err := pb.NewBatchServiceClient(r.conn).Open(apitest.As("acme/all"), both)
	if e := apitest.ErrorOf(t, err); e.GetField() != "id" {
		t.Errorf("%v", e)
	}
	_, err = pb.NewBatchServiceClient(r.conn).Cancel(apitest.As("acme/all"), &pb.CancelBatchRequest{Id: apitest.ID(1), Rate: core.MaxBulkRate + 1})
	if e := apitest.ErrorOf(t, err); e.GetField() != "rate" || e.GetLimit() != "bulk_rate" {
		t.Errorf("%v", e)
	}
}

func TestAnOlderClusterHasNoBatches(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.EntryFormat = core.FormatOperate
	r.n.AddTask(r.t, "acme", apitest.ID(1)) // its namespace is there
	_, opened := pb.NewBatchServiceClient(r.conn).Open(apitest.As("acme/all"), &pb.OpenBatchRequest{})
	_, sealed := pb.NewBatchServiceClient(r.conn).Seal(apitest.As("acme/all"), &pb.SealBatchRequest{Id: apitest.ID(1)})
	added := createOf(func(s *pb.TaskSpec) { s.Batch = apitest.ID(1) })(r)
	op := func(op *pb.Op) error { return commitOf(&pb.CommitRequest{Ops: []*pb.Op{op}})(r) }
	inCommit := op(&pb.Op{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{}}})
	sealOp := op(&pb.Op{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: apitest.ID(1)}}})
	for field, err := range map[string]error{"id": opened, "task.batch": added, "ops[0].batch_open": inCommit, "ops[0].id": sealOp} {
		if e := apitest.ErrorOf(t, err); e.GetReason() != "not_supported" || e.GetField() != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	if e := apitest.ErrorOf(t, sealed); e.GetReason() != "not_supported" {
		t.Errorf("%v", e)
	}
}

// A batch and its tasks are of the partition that its id names.
func TestABatchLivesInOnePartition(t *testing.T) {
	r := wideRig(t, "", "", "", "")
	batches := pb.NewBatchServiceClient(r.conn)
	id := core.NewTaskID(1, 2, [9]byte{7})
	if _, err := batches.Open(apitest.As("acme/all"), &pb.OpenBatchRequest{Id: id.String()}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		out, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q", Batch: id.String()}})
		if err != nil || parsedID(t, out.GetId()).Partition() != 2 {
			t.Errorf("a task of the batch is %s, %v", out.GetId(), err)
		}
	}
	for _, c := range r.n.Proposed() {
		if c.Partition.Index != 2 {
			t.Errorf("proposed in partition %d: %+v", c.Partition.Index, c.Ops)
		}
	}
	tag := ""
	for _, tag = range []string{"a", "b", "c", "d"} {
		if core.PlaceText([]byte(tag), 4) != 2 {
			break
		}
	}
	_, added := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q", Batch: id.String(), Tag: tag}})
	_, opened := batches.Open(apitest.As("acme/all"), &pb.OpenBatchRequest{Id: id.String(), OnDone: &pb.TaskTemplate{Queue: "q", Tag: tag}})
	for what, err := range map[string]error{"a task": added, "a follow-up": opened} {
		if e := apitest.ErrorOf(t, err); e.GetCode() != "WRONG_PARTITION" {
			t.Errorf("%s elsewhere: %v", what, e)
		}
	}
	beyond := core.NewTaskID(1, 9, [9]byte{7}).String()
	_, err := batches.Get(apitest.As("acme/all"), &pb.GetBatchRequest{Id: beyond})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "NOT_FOUND" {
		t.Errorf("a batch of a partition that is not there: %v", e)
	}
}

// Ops of batches place a commit as the ids of tasks do, and a batch without an id is opened wherever the other ops are.
func TestOpsOfBatchesAreOfOnePartition(t *testing.T) {
	id := core.NewTaskID(1, 2, [9]byte{7}).String()
	key, elsewhere := "", ""
	for _, text := range []string{"a", "b", "c", "d", "e", "f"} {
		if core.PlaceText([]byte(text), 4) == 1 {
			key = text
		} else {
			elsewhere = text
		}
	}
	put := &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte(key)}}}
	open := func(in *pb.BatchOpen) *pb.Op { return &pb.Op{Op: &pb.Op_BatchOpen{BatchOpen: in}} }
	seal := func(id string) *pb.Op { return &pb.Op{Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: id}}} }
	cancel := &pb.Op{Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{Id: id}}}
	for name, c := range map[string]struct {
		ops   []*pb.Op
		place uint16
		code  string // empty: it is proposed
	}{
		"opened with a key":                  {[]*pb.Op{put, open(&pb.BatchOpen{})}, 1, ""},
		"opened by a tag":                    {[]*pb.Op{open(&pb.BatchOpen{Tag: key}), put}, 1, ""},
		"opened by an id":                    {[]*pb.Op{open(&pb.BatchOpen{Id: id})}, 2, ""},
		"sealed":                             {[]*pb.Op{seal(id)}, 2, ""},
		"cancelled":                          {[]*pb.Op{cancel}, 2, ""},
		"a task is cancelled":                {[]*pb.Op{{Op: &pb.Op_TaskCancel{TaskCancel: &pb.TaskCancel{Id: id}}}}, 2, ""},
		"sealed elsewhere":                   {[]*pb.Op{put, seal(id)}, 0, "WRONG_PARTITION"},
		"opened elsewhere":                   {[]*pb.Op{put, open(&pb.BatchOpen{Id: id})}, 0, "WRONG_PARTITION"},
		"a follow-up elsewhere":              {[]*pb.Op{put, open(&pb.BatchOpen{OnDone: &pb.TaskTemplate{Queue: "q", Tag: elsewhere}})}, 0, "WRONG_PARTITION"},
		"a follow-up in its place":           {[]*pb.Op{put, open(&pb.BatchOpen{OnDone: &pb.TaskTemplate{Queue: "q", Tag: key}})}, 1, ""},
		"sealed where there is no partition": {[]*pb.Op{seal(core.NewTaskID(1, 9, [9]byte{7}).String())}, 0, "NOT_FOUND"},
		"opened where there is no partition": {[]*pb.Op{open(&pb.BatchOpen{Id: core.NewTaskID(1, 9, [9]byte{7}).String()})}, 0, "INVALID_ARGUMENT"},
	} {
		r := wideRig(t, "", "", "", "")
		_, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), &pb.CommitRequest{Ops: c.ops})
		if c.code != "" {
			if e := apitest.ErrorOf(t, err); e.GetCode() != c.code {
				t.Errorf("%s: %v, want %s", name, e, c.code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := r.n.Proposed()[0]
		if got.Partition.Index != c.place {
			t.Errorf("%s: in partition %d, want %d", name, got.Partition.Index, c.place)
		}
		for _, op := range got.Ops {
			if id, ok := core.BatchOf(op); ok && id.Partition() != c.place {
				t.Errorf("%s: a batch of partition %d has the id of %d", name, c.place, id.Partition())
			}
		}
	}
}
