package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

func TestABatchOfAllPartitionsIsAnsweredInItsOrder(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		in := &pb.BatchCreateRequest{}
		for i := range 64 {
			spec := &pb.TaskSpec{Queue: "q", Id: w.idIn(uint32(i*7%w.parts), byte(i+1))}
			if i%8 == 3 {
				spec = &pb.TaskSpec{Queue: "?"}
			}
			in.Tasks = append(in.Tasks, spec)
		}
		out, err := w.tasks().BatchCreate(w.ctx, in)
		if err != nil || len(out.GetResults()) != 64 || (w.parts > 1) != (out.GetAt().GetIndex() == 0) {
			t.Fatal(out.GetAt(), err)
		}
		var beat []*pb.Hold
		for i, r := range out.GetResults() {
			if bad := i%8 == 3; bad != (r.GetError() != nil) || !bad && r.GetId() != in.Tasks[i].GetId() {
				t.Errorf("item %d: %v", i, r)
			}
		}
		claimed := w.claimAll("q", 56)
		items := &pb.SettleRequest{}
		for i, r := range out.GetResults() {
			token := claimed[r.GetId()]
			if r.GetError() != nil {
				continue
			}
			beat = append(beat, &pb.Hold{Id: r.GetId(), Token: token + uint64(i%3)})
			items.Items = append(items.Items, &pb.SettleItem{
				Id: r.GetId(), Token: token + uint64(i%3), Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{Result: []byte(strconv.Itoa(i))}},
			})
		}
		beats, err := w.tasks().Heartbeat(w.ctx, &pb.HeartbeatRequest{Items: beat})
		if err != nil || len(beats.GetResults()) != len(beat) {
			t.Fatal(beats, err)
		}
		settled, err := w.tasks().Settle(w.ctx, items)
		if err != nil || len(settled.GetResults()) != len(beat) {
			t.Fatal(settled, err)
		}
		for i, h := range beat {
			good := h.GetToken() == claimed[h.GetId()]
			if beats.GetResults()[i].GetLost() == good || (settled.GetResults()[i].GetError() == nil) != good {
				t.Errorf("item %d, good %v: %v, %v", i, good, beats.GetResults()[i], settled.GetResults()[i])
			}
		}
	})
}

// claimAll claims n tasks and returns their tokens by id.
func (w *wide) claimAll(queue string, n int) map[string]uint64 {
	w.t.Helper()
	out := make(map[string]uint64)
	for len(out) < n {
		got, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{
			Queues: []*pb.QueueWeight{{Name: queue}}, Max: 5, Wait: durationpb.New(30 * time.Second),
		})
		if err != nil || len(got.GetTasks()) == 0 {
			w.t.Fatalf("after %d tasks: %v, %v", len(out), got, err)
		}
		part := parsed(w.t, got.GetTasks()[0].GetId()).Partition()
		for _, a := range got.GetTasks() {
			if out[a.GetId()] != 0 || parsed(w.t, a.GetId()).Partition() != part {
				w.t.Errorf("claimed %v together with %v", a, got.GetTasks()[0])
			}
			out[a.GetId()] = a.GetToken()
		}
	}
	return out
}

func TestAnAtomicBatchIsOfOnePartition(t *testing.T) {
	w := openWide(t, 4)
	batch := func(places ...uint32) *pb.BatchCreateRequest {
		in := &pb.BatchCreateRequest{Atomic: true}
		for i, p := range places {
			in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: "q", Id: w.idIn(p, byte(i+1))})
		}
		return in
	}
	_, err := w.tasks().BatchCreate(w.ctx, batch(1, 1, 3, 1, 0))
	if e := errorIn(t, err); e.GetCode() != "WRONG_PARTITION" || e.GetDetails()["ops"] != "2,4" {
		t.Errorf("of three: %v", e)
	}
	in := batch(1, 1)
	in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: "q"})
	out, err := w.tasks().BatchCreate(w.ctx, in)
	if err != nil || parsed(t, out.GetResults()[2].GetId()).Partition() != 1 || out.GetAt().GetPartition() != 1 || out.GetAt().GetIndex() == 0 {
		t.Errorf("of one: %v, %v", out, err)
	}
}

func TestAClaimTakesFromTheOnePartitionItNames(t *testing.T) {
	w := openWide(t, 4)
	for p := range uint32(4) {
		w.create(&pb.TaskSpec{Queue: "q", Id: w.idIn(p, 1)})
	}
	claim := func(p uint32) *pb.ClaimRequest {
		return &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Max: 9, Partition: &p, Wait: durationpb.New(30 * time.Second)}
	}
	for p := range uint32(3) {
		got, err := w.tasks().Claim(w.ctx, claim(p))
		if err != nil || len(got.GetTasks()) != 1 || got.GetTasks()[0].GetId() != w.idIn(p, 1) || got.GetAt().GetPartition() != p {
			t.Errorf("partition %d: %v, %v", p, got, err)
		}
	}
	r := w.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"partition":3,"wait":"30s"}`).want(t, 200)
	if r.text(t, "tasks", "[0]", "id") != w.idIn(3, 1) {
		t.Errorf("over REST: %s", r.body)
	}
	_, err := w.tasks().Claim(w.ctx, claim(4))
	if e := errorIn(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "partition" {
		t.Errorf("partition 4: %v", e)
	}
	w.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"partition":4}`).want(t, 400)
}

func TestAWaitingClaimFindsATaskInAnyPartition(t *testing.T) {
	w := openWide(t, 4)
	for p := range uint32(4) {
		type got struct {
			out *pb.ClaimResponse
			err error
		}
		claimed := make(chan got, 1)
		go func() {
			out, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Wait: durationpb.New(50 * time.Second)})
			claimed <- got{out, err}
		}()
		w.create(&pb.TaskSpec{Queue: "q", Id: w.idIn(p, 1)})
		if g := <-claimed; g.err != nil || len(g.out.GetTasks()) != 1 || g.out.GetTasks()[0].GetId() != w.idIn(p, 1) {
			t.Errorf("partition %d: %v, %v", p, g.out, g.err)
		}
	}
}

// TestPartitionsTogetherAnswerAsOne gives the same tasks to a namespace of one partition and to one of four: what is counted
// and listed must be the same.
func TestPartitionsTogetherAnswerAsOne(t *testing.T) {
	w := openWide(t, 1)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		one, four := w.space(fmt.Sprintf("one-%d", n), 1), w.space(fmt.Sprintf("four-%d", n), 4)
		specs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) *pb.TaskSpec {
			s := &pb.TaskSpec{Queue: rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "queue")}
			if rapid.Bool().Draw(rt, "later") {
				s.Delay = durationpb.New(time.Hour)
			}
			return s
		}), 1, 30).Draw(rt, "tasks")
		for _, ctx := range []context.Context{one, four} {
			if _, err := w.tasks().BatchCreate(ctx, &pb.BatchCreateRequest{Tasks: specs}); err != nil {
				rt.Fatal(err)
			}
		}
		limit := rapid.Uint32Range(1, 7).Draw(rt, "page")
		if a, b := w.listQueues(rt, one, limit), w.listQueues(rt, four, limit); !slices.EqualFunc(a, b, sameStats) {
			rt.Errorf("one lists %v, four %v", a, b)
		}
		for _, queue := range []string{"a", "b", "c", "d", "e"} {
			for _, state := range []pb.State{pb.State_READY, pb.State_SCHEDULED} {
				if a, b := w.listTasks(rt, one, queue, state, limit), w.listTasks(rt, four, queue, state, limit); a != b {
					rt.Errorf("%v %v: one lists %d tasks, four %d", queue, state, a, b)
				}
			}
			a, err := w.queues().Stats(one, &pb.QueueStatsRequest{Queue: queue})
			b, err2 := w.queues().Stats(four, &pb.QueueStatsRequest{Queue: queue})
			if status.Code(err) != status.Code(err2) || err == nil && (!sameStats(a.GetStats(), b.GetStats()) || b.GetAt().GetIndex() != 0) {
				rt.Errorf("%s: one counts %v, %v, four %v, %v", queue, a, err, b, err2)
			}
		}
	})
}

func sameStats(a, b *pb.QueueStats) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	if (a.GetOldestReady() == nil) != (b.GetOldestReady() == nil) {
		return false
	}
	a.OldestReady, b.OldestReady = nil, nil // they were not made at the same moment
	// A sample of counters may have come in between.
	a.Rates, b.Rates, a.Spark, b.Spark = nil, nil, nil, nil
	return proto.Equal(a, b)
}

func (w *wide) listQueues(t *rapid.T, ctx context.Context, limit uint32) (out []*pb.QueueStats) {
	for cursor := ""; ; {
		page, err := w.queues().List(ctx, &pb.ListQueuesRequest{Limit: limit, Cursor: cursor})
		if err != nil || len(page.GetQueues()) > int(limit) {
			t.Fatal(page, err)
		}
		out = append(out, page.GetQueues()...)
		if cursor = page.GetCursor(); cursor == "" {
			return out
		}
	}
}

// listTasks counts the tasks of all pages, none of which may come twice.
func (w *wide) listTasks(t *rapid.T, ctx context.Context, queue string, state pb.State, limit uint32) int {
	seen := make(map[string]bool)
	for cursor := ""; ; {
		page, err := w.tasks().List(ctx, &pb.ListRequest{Queue: queue, State: state, Limit: limit, Cursor: cursor})
		if err != nil || len(page.GetTasks()) > int(limit) {
			t.Fatal(page, err)
		}
		for _, task := range page.GetTasks() {
			if seen[task.GetId()] || task.GetQueue() != queue || task.GetState() != state {
				t.Errorf("%s %v lists %v", queue, state, task)
			}
			seen[task.GetId()] = true
		}
		if cursor = page.GetCursor(); cursor == "" {
			return len(seen)
		}
	}
}

func TestAConfigurationIsInAllPartitions(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		set := func(lease time.Duration, version *uint64) (*pb.SetQueueResponse, error) {
			return w.queues().Set(w.ctx, &pb.SetQueueRequest{
				Queue: "q", Config: &pb.QueueConfig{Lease: durationpb.New(lease)}, IfVersion: version,
			})
		}
		for i, lease := range []time.Duration{30 * time.Second, 30 * time.Second, 40 * time.Second} {
			out, err := set(lease, nil)
			if want := []uint64{1, 1, 2}[i]; err != nil || out.GetVersion() != want {
				t.Fatalf("turn %d: %v, %v", i, out, err)
			}
		}
		_, err := set(50*time.Second, proto.Uint64(1))
		if e := errorIn(t, err); e.GetCode() != "PRECONDITION_FAILED" {
			t.Errorf("at another version: %v", e)
		}
		for p := range uint32(w.parts) {
			id, _ := w.create(&pb.TaskSpec{Queue: "q", Id: w.idIn(p, 1)})
			got, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: id.String()})
			if err != nil || got.GetTask().GetLease().AsDuration() != 40*time.Second {
				t.Errorf("partition %d: %v, %v", p, got, err)
			}
		}
		if _, err := w.queues().SetNamespace(w.ctx, &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{AutoCreate: proto.Bool(false)}}); err != nil {
			t.Fatal(err)
		}
		for p := range uint32(w.parts) {
			_, err := w.tasks().Create(w.ctx, &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "never", Id: w.idIn(p, 2)}})
			if e := errorIn(t, err); e.GetCode() != "NOT_FOUND" {
				t.Errorf("partition %d makes queues by their use: %v", p, e)
			}
		}
	})
}

// The call that is last at the first partition is last at all of them.
func TestConfigurationsThatAreSetAtOnceEndEqualInAllPartitions(t *testing.T) {
	w := openWide(t, 4)
	for turn := range 10 {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := w.queues().Set(w.ctx, &pb.SetQueueRequest{
					Queue: "q", Config: &pb.QueueConfig{Lease: durationpb.New(time.Duration(10*turn+i+1) * time.Second)},
				})
				if err != nil {
					if e := errorIn(t, err); e.GetOutcome() != pb.Error_UNKNOWN {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		leases := make(map[time.Duration]bool)
		for p := range uint32(w.parts) {
			id, _ := w.create(&pb.TaskSpec{Queue: "q", Id: w.idIn(p, byte(turn+1))})
			got, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: id.String()})
			if err != nil {
				t.Fatal(err)
			}
			leases[got.GetTask().GetLease().AsDuration()] = true
		}
		if len(leases) != 1 {
			t.Fatalf("turn %d: partitions have leases of %v", turn, leases)
		}
	}
}

func TestANamespaceIsMadeOverREST(t *testing.T) {
	w := openWide(t, 1)
	made := w.do(mail, "POST", "/v1/namespace?ns=shop", `{"partitions":4}`).want(t, 201)
	again := w.do(mail, "POST", "/v1/namespace?ns=shop", `{"partitions":4}`).want(t, 200)
	if string(made.field(t, "replayed")) != "false" || string(again.field(t, "replayed")) != "true" {
		t.Errorf("made %s, again %s", made.body, again.body)
	}
	other := w.do(mail, "POST", "/v1/namespace?ns=shop", `{"partitions":5}`).want(t, 409)
	if other.text(t, "error", "code") != "ALREADY_EXISTS" {
		t.Errorf("with another number: %s", other.body)
	}
	for _, body := range []string{`{"partitions":4097}`, `{"partitions":-1}`, `{"partitions":"4"}`, `{"parts":4}`} {
		w.do(mail, "POST", "/v1/namespace?ns=bad", body).want(t, 400)
	}
	w.do(mail, "POST", "/v1/namespace?ns=plain", `{}`).want(t, 201)
	w.do(mail, "POST", "/v1/tasks?ns=used", `{"queue":"q"}`).want(t, 201)
	for name, parts := range map[string]int{"shop": 4, "plain": 1, "used": 1} {
		var shown struct {
			Version    string
			Partitions []struct {
				Partition, Shard int
				Address          string
				Led              bool
			}
		}
		r := w.do(mail, "GET", "/v1/namespace?ns="+name, "").want(t, 200)
		if err := json.Unmarshal(r.body, &shown); err != nil || len(shown.Partitions) != parts || shown.Version != "0" {
			t.Errorf("%s: %s, %v", name, r.body, err)
		}
		shards := make(map[int]bool)
		for i, p := range shown.Partitions {
			shards[p.Shard] = true
			if p.Partition != i || !p.Led || p.Address != "" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if len(shards) != parts {
			t.Errorf("%s: partitions lie on the shards %v", name, slices.Sorted(maps.Keys(shards)))
		}
	}
}

func TestAStreamIsOfOnePartition(t *testing.T) {
	w := openWide(t, 4)
	for p := range uint32(4) {
		ctx, cancel := context.WithCancel(w.ctx)
		st, err := pb.NewQueueStreamClient(w.conn).Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send := func(f *pb.ClientFrame) *pb.ServerFrame {
			if err := st.Send(f); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			out, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		welcome := send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{
			Version: 1, Session: []byte(fmt.Sprintf("session-%08d", p)), Partition: p,
		}}}).GetWelcome()
		if welcome.GetPartitions() != 4 || len(welcome.GetDirectory()) != 4 {
			t.Fatalf("welcome: %v", welcome)
		}
		for i, d := range welcome.GetDirectory() {
			if d.GetPartition() != uint32(i) || d.GetAddress() != "" {
				t.Errorf("directory: %v", welcome.GetDirectory())
			}
		}
		tag := fmt.Sprint(p)
		tasks := []*pb.TaskSpec{
			{Queue: "q"},
			{Queue: "q", Id: w.idIn(p, 5)},
			{Queue: "q", Id: w.idIn((p+1)%4, 6)},
			{Queue: "q", Tag: tag},
			{Queue: "q", Unique: &pb.Unique{Key: tag}},
		}
		ack := send(&pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: 1, Tasks: tasks}}}).GetAck()
		here := w.place(tag) == p
		for i, want := range []bool{true, true, false, here, here} {
			r := ack.GetCreated()[i]
			field := []string{"", "", "tasks[2].id", "tasks[3].tag", "tasks[4].unique.key"}[i]
			switch {
			case want && (r.GetError() != nil || uint32(parsed(t, r.GetId()).Partition()) != p):
				t.Errorf("partition %d, task %d: %v", p, i, r)
			case !want && (r.GetError().GetCode() != "WRONG_PARTITION" || r.GetError().GetField() != field):
				t.Errorf("partition %d, task %d: %v", p, i, r)
			}
		}
		cancel()
	}
}
