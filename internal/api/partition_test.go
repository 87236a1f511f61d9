package api

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// wideRig is a rig whose namespaces have four partitions, with leaders by partition: "" is this node, "?" no node.
func wideRig(t *testing.T, leaders ...string) *rig {
	t.Helper()
	r := newRig(t, edge.Limits{})
	r.n.Parts, r.n.Leaders = 4, apitest.LeadersOf(leaders...)
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	return r
}

// batchOver is a batch of one task in each of some partitions.
func batchOver(places ...uint16) *pb.BatchCreateRequest {
	in := new(pb.BatchCreateRequest)
	for i, p := range places {
		in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: "q", Id: apitest.IDIn(p, byte(i+1))})
	}
	return in
}

func TestABatchForOneOtherLeaderIsSentThereAndForSeveralIsCarried(t *testing.T) {
	for _, c := range []struct {
		leaders string
		places  []uint16
		sent    string   // to this leader
		carried []uint16 // by this node
	}{
		{", , , ", []uint16{1, 1}, "", nil},
		{", , , ", []uint16{0, 1, 0}, "", []uint16{0, 1}},
		{", b, , ", []uint16{1, 1}, "b", nil},
		{", b, b, ", []uint16{1, 2, 1}, "b", nil},
		{", b, c, ", []uint16{2, 1, 1}, "", []uint16{1, 2}},
		{", b, b, ", []uint16{1, 2, 0}, "", []uint16{0, 1, 2}},
		{", b, ?, ", []uint16{1, 2}, "", []uint16{1, 2}},
		{"?, ?, , ", []uint16{0, 1}, "", []uint16{0, 1}},
	} {
		r := wideRig(t, strings.Split(c.leaders, ", ")...)
		in := batchOver(c.places...)
		out, err := r.tasks().BatchCreate(apitest.As("acme/all"), in)
		r.n.Mu.Lock()
		slices.Sort(r.n.Forwarded)
		if !slices.Equal(r.n.Forwarded, c.carried) {
			t.Errorf("%s, tasks of %v: carried to %v, want %v", c.leaders, c.places, r.n.Forwarded, c.carried)
		}
		r.n.Mu.Unlock()
		if c.sent != "" {
			if e := apitest.ErrorOf(t, err); e.GetCode() != "NOT_LEADER" || e.GetLeader() != c.sent || len(r.n.Proposed()) != 0 {
				t.Errorf("%s, tasks of %v: %v", c.leaders, c.places, e)
			}
			continue
		}
		if err != nil || len(out.GetResults()) != len(c.places) || (out.GetAt().GetIndex() == 0) != (c.carried != nil) {
			t.Errorf("%s, tasks of %v: %v, %v", c.leaders, c.places, out, err)
			continue
		}
		for i, res := range out.GetResults() {
			if res.GetId() != in.Tasks[i].GetId() || res.GetError() != nil {
				t.Errorf("%s, task %d of %v: %v", c.leaders, i, c.places, res)
			}
		}
		for _, commit := range r.n.Proposed() {
			if id := commit.Ops[0].(*core.TaskCreate).ID; id.Partition() != commit.Partition.Index {
				t.Errorf("the task %v was proposed to %v", id, commit.Partition)
			}
		}
	}
}

func TestAPartitionThatDoesNotAnswerFailsItsItemsAlone(t *testing.T) {
	r := wideRig(t, "", "b", "c", "")
	gone := core.Unavailable{Reason: "no_leader", Unknown: true}
	r.n.Strays = map[uint16]core.Proposed{1: {Err: gone}}
	items := func(places ...uint16) (out []*pb.SettleItem, holds []*pb.Hold) {
		for i, p := range places {
			out = append(out, &pb.SettleItem{Id: apitest.IDIn(p, byte(i+1)), Token: 3, Outcome: &pb.SettleItem_Release{}})
			holds = append(holds, &pb.Hold{Id: apitest.IDIn(p, byte(i+1)), Token: 3})
		}
		return out, holds
	}
	made, err := r.tasks().BatchCreate(apitest.As("acme/all"), batchOver(2, 1, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	settle, holds := items(2, 1, 0, 1)
	settled, err := r.tasks().Settle(apitest.As("acme/all"), &pb.SettleRequest{Items: settle})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		for what, e := range map[string]*pb.Error{"create": made.GetResults()[i].GetError(), "settle": settled.GetResults()[i].GetError()} {
			if bad := i%2 == 1; bad != (e != nil) || bad && (e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_UNKNOWN) {
				t.Errorf("%s %d: %v", what, i, e)
			}
		}
	}
	_, err = r.tasks().Heartbeat(apitest.As("acme/all"), &pb.HeartbeatRequest{Items: holds})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_UNKNOWN {
		t.Errorf("a heartbeat: %v", e)
	}
	r.n.Strays = map[uint16]core.Proposed{
		1: {Err: core.NotLeader{Leader: "c"}}, 2: {Err: core.Unavailable{Reason: "no_leader"}},
	}
	_, err = r.tasks().BatchCreate(apitest.As("acme/all"), batchOver(2, 1))
	if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_REFUSED {
		t.Errorf("no node answers: %v", e)
	}
	r.n.Strays[2] = core.Proposed{Err: gone}
	_, err = r.tasks().BatchCreate(apitest.As("acme/all"), batchOver(2, 1))
	if e := apitest.ErrorOf(t, err); e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_UNKNOWN {
		t.Errorf("one may have taken it: %v", e)
	}
}

func TestHeartbeatsAreAnsweredInTheirOrder(t *testing.T) {
	r := wideRig(t, "", "b", "", "")
	r.n.Judge = func(c core.Commit) (out core.Result) {
		renew := c.Ops[0].(*core.TaskRenew)
		o := core.OpResult{Kind: renew.Kind()}
		for _, h := range renew.Items {
			if h.Task.Partition() != c.Partition.Index {
				t.Errorf("%v is renewed in %v", h.Task, c.Partition)
			}
			o.Renewed = append(o.Renewed, core.Renewed{Lost: h.Token != 5, Until: core.ShardTimeOf(apitest.Now)})
		}
		return core.Result{Ops: []core.OpResult{o}}
	}
	in := new(pb.HeartbeatRequest)
	for i := range 40 {
		in.Items = append(in.Items, &pb.Hold{Id: apitest.IDIn(uint16(i*3%4), byte(i)), Token: uint64(4 + i%3)})
	}
	in.Items[7].Id = apitest.MustID(t, in.Items[7].GetId()).WithPartition(8).String()
	out, err := r.tasks().Heartbeat(apitest.As("acme/all"), in)
	if err != nil || len(out.GetResults()) != 40 {
		t.Fatal(out, err)
	}
	for i, res := range out.GetResults() {
		if lost := in.Items[i].GetToken() != 5 || i == 7; res.GetLost() != lost || lost == (res.GetLeaseUntil() != nil) {
			t.Errorf("item %d: %v", i, res)
		}
	}
	if n := len(r.n.Proposed()); n != 4 {
		t.Errorf("%d commits for 4 partitions", n)
	}
}

func TestAConfigurationThatCameHalfWayIsMendedByRepeatingIt(t *testing.T) {
	for _, version := range []*uint64{nil, proto.Uint64(2)} {
		r := wideRig(t, "", "b", "", "")
		client := pb.NewQueueServiceClient(r.conn)
		set := func() error {
			_, err := client.Set(apitest.As("acme/all"), &pb.SetQueueRequest{
				Queue: "mail", Config: &pb.QueueConfig{Aging: spanOrOff(-1), MaxDeliveries: proto.Int32(0)}, IfVersion: version,
			})
			return err
		}
		r.n.Strays = map[uint16]core.Proposed{1: {Err: core.Unavailable{Reason: "no_leader"}}}
		if e := apitest.ErrorOf(t, set()); e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_UNKNOWN {
			t.Errorf("half way: %v", e)
		}
		first := r.n.Proposed()[0]
		if op := first.Ops[0].(*core.QueueSet); first.Partition.Index != 0 || (op.IfVersion == -1) != (version == nil) {
			t.Errorf("first: %+v", first)
		}
		r.n.Strays = nil
		before := len(r.n.Proposed())
		r.n.Judge = func(c core.Commit) core.Result {
			if op := c.Ops[0].(*core.QueueSet); op.IfVersion == 2 { // it is at 3, which is what the fake node shows
				return core.Result{Refusal: &core.Refusal{Fact: core.RevMismatch{Rev: 3}}}
			}
			return apitest.Applied(c)
		}
		r.n.Mail = core.QueueStats{Queue: "mail", Config: core.QueueConfig{Version: 3, Aging: -1, MaxDeliveries: -1}}
		if err := set(); err != nil {
			t.Errorf("repeated: %v", err)
		}
		var places []uint16
		for _, c := range r.n.Proposed()[before:] {
			places = append(places, c.Partition.Index)
			if op := c.Ops[0].(*core.QueueSet); c.Partition.Index > 0 && op.IfVersion != -1 {
				t.Errorf("the others judge the version: %+v", c)
			}
		}
		if slices.Sort(places[1:]); !slices.Equal(places, []uint16{0, 1, 2, 3}) {
			t.Errorf("put into %v", places)
		}
		if version == nil {
			continue
		}
		r.n.Mail.Config.Aging = 0 // somebody else's
		if e := apitest.ErrorOf(t, set()); e.GetCode() != "PRECONDITION_FAILED" {
			t.Errorf("another one is there: %v", e)
		}
		r.n.Mail.Config.Aging, r.n.Mail.Config.Version = -1, 4
		if e := apitest.ErrorOf(t, set()); e.GetCode() != "PRECONDITION_FAILED" {
			t.Errorf("there were changes since: %v", e)
		}
	}
}

func TestAConfigurationGoesToTheLeaderOfTheFirstPartition(t *testing.T) {
	r := wideRig(t, "b", "", "", "")
	_, err := pb.NewQueueServiceClient(r.conn).SetNamespace(apitest.As("acme/all"), &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{}})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "NOT_LEADER" || e.GetLeader() != "b" || len(r.n.Proposed()) != 0 {
		t.Errorf("got %v", e)
	}
}

func TestAPageOfTasksGoesOnFromPartitionToPartition(t *testing.T) {
	r := wideRig(t)
	r.n.Parts = 200
	if _, err := r.n.Namespace(context.Background(), "acme", "many", true); err != nil {
		t.Fatal(err)
	}
	tasks := func(p core.Partition) int { return []int{0, 0, 3, 0, 0, 1, 0}[p.Index%7] }
	r.n.OnPageAt = func(p core.Partition, q core.ListQuery) (out []core.Task, next []byte) {
		from := 0
		if len(q.Cursor) == 1 {
			from = int(q.Cursor[0])
		}
		for i := from; i < tasks(p); i++ {
			if len(out) == q.Limit {
				return out, []byte{byte(i)}
			}
			out = append(out, core.Task{ID: core.PlacedID(1e12, p.Index, 200, [9]byte{byte(i)})})
		}
		return out, nil
	}
	ctx := apitest.As("acme/all", edge.NamespaceKey, "many")
	for _, limit := range []uint32{1, 2, 5, 1000} {
		var got []core.TaskID
		pages := 0
		for cursor := ""; ; pages++ {
			page, err := r.tasks().List(ctx, &pb.ListRequest{Queue: "q", State: pb.State_READY, Limit: limit, Cursor: cursor})
			if err != nil || len(page.GetTasks()) > int(limit) || pages > 500 {
				t.Fatal(page, err)
			}
			for _, task := range page.GetTasks() {
				got = append(got, apitest.MustID(t, task.GetId()))
			}
			if cursor = page.GetCursor(); cursor == "" {
				break
			}
		}
		n := 0
		for p := range 200 {
			for i := range tasks(core.Partition{Index: uint16(p)}) {
				if want := core.PlacedID(1e12, uint16(p), 200, [9]byte{byte(i)}); n >= len(got) || got[n] != want {
					t.Fatalf("limit %d: task %d is not that of partition %d", limit, n, p)
				}
				n++
			}
		}
		if n != len(got) {
			t.Errorf("limit %d: %d tasks are listed, there are %d", limit, len(got), n)
		}
	}
	for _, bad := range [][]byte{{1}, {0, 200}, {255, 255, 1}} {
		_, err := r.tasks().List(ctx, &pb.ListRequest{Queue: "q", State: pb.State_READY, Cursor: showCursor(bad)})
		if e := apitest.ErrorOf(t, err); e.GetField() != "cursor" {
			t.Errorf("cursor %v: %v", bad, e)
		}
	}
}

func TestATaskThatSaysNoPlaceIsMadeWhereItWasSent(t *testing.T) {
	r := wideRig(t, "b", "", "c", "b")
	for range 20 {
		out, err := r.tasks().Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q"}})
		if err != nil || parsedID(t, out.GetId()).Partition() != 1 {
			t.Fatalf("a node that leads partition 1 made the task %s, %v", out.GetId(), err)
		}
	}
}

func parsedID(t *testing.T, s string) core.TaskID {
	t.Helper()
	id, err := core.ParseTaskID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestARemovalThatCameHalfWayIsFinishedByRepeatingIt(t *testing.T) {
	r := wideRig(t, "", "b", "", "")
	client := pb.NewQueueServiceClient(r.conn)
	remove := func(version *uint64) error {
		_, err := client.Delete(apitest.As("acme/all"), &pb.DeleteQueueRequest{Queue: "mail", Purge: true, IfVersion: version})
		return err
	}
	r.n.Strays = map[uint16]core.Proposed{1: {Err: core.Unavailable{Reason: "no_leader"}}}
	if e := apitest.ErrorOf(t, remove(proto.Uint64(3))); e.GetCode() != "UNAVAILABLE" || e.GetOutcome() != pb.Error_UNKNOWN {
		t.Errorf("half way: %v", e)
	}
	r.n.Strays = nil
	before := len(r.n.Proposed())
	r.n.Judge = func(c core.Commit) core.Result { // the first partition has lost it
		if op := c.Ops[0].(*core.QueueDelete); op.IfVersion >= 0 {
			return core.Result{Refusal: &core.Refusal{Fact: core.RevMismatch{Missing: true}}}
		}
		return apitest.Applied(c)
	}
	r.n.Mail = core.QueueStats{Queue: "mail", Config: core.QueueConfig{Version: 3}}
	if err := remove(proto.Uint64(3)); err != nil {
		t.Errorf("repeated: %v", err)
	}
	var places []uint16
	for _, c := range r.n.Proposed()[before:] {
		places = append(places, c.Partition.Index)
	}
	if slices.Sort(places); !slices.Equal(places, []uint16{0, 1, 2, 3}) {
		t.Errorf("removed from %v", places)
	}
	r.n.Mail.Config.Version = 4
	if e := apitest.ErrorOf(t, remove(proto.Uint64(3))); e.GetCode() != "PRECONDITION_FAILED" {
		t.Errorf("another version is there: %v", e)
	}
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Fact: core.WrongState{State: core.Ready}}}
	}
	if e := apitest.ErrorOf(t, remove(nil)); e.GetCode() != "WRONG_STATE" {
		t.Errorf("with ready tasks: %v", e)
	}
}

func TestQueuesAreRemovedOnlyWhereTheFormatOfTheClusterSaysSo(t *testing.T) {
	r := wideRig(t, "", "", "", "")
	r.n.EntryFormat = core.FormatFirst
	_, err := pb.NewQueueServiceClient(r.conn).Delete(apitest.As("acme/all"), &pb.DeleteQueueRequest{Queue: "mail"})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "not_supported" || len(r.n.Proposed()) != 0 {
		t.Errorf("got %v", e)
	}
}
