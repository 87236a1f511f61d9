package rest_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// wide is a real node of four shards with both doors open, and a namespace of some partitions.
type wide struct {
	*door
	conn  *grpc.ClientConn
	ctx   context.Context
	parts int
}

func openWide(t *testing.T, parts int) *wide {
	t.Helper()
	d := openDoorOf(t, 4, mail)
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &wide{door: d, conn: conn, parts: parts}
	w.ctx = w.space("default", parts)
	return w
}

// space makes a namespace and returns the context of calls to it.
func (w *wide) space(name string, parts int) context.Context {
	w.t.Helper()
	ctx := metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+mail, "millrace-namespace", name)
	out, err := w.queues().CreateNamespace(ctx, &pb.CreateNamespaceRequest{Partitions: uint32(parts)})
	if err != nil || out.GetReplayed() || len(out.GetPartitions()) != parts {
		w.t.Fatalf("make the namespace %s: %v, %v", name, out, err)
	}
	return ctx
}

func (w *wide) tasks() pb.TaskServiceClient { return pb.NewTaskServiceClient(w.conn) }

func (w *wide) queues() pb.QueueServiceClient { return pb.NewQueueServiceClient(w.conn) }

// eachWidth runs a test in a namespace of one partition and in one of four.
func eachWidth(t *testing.T, test func(t *testing.T, w *wide)) {
	for _, parts := range []int{1, 4} {
		t.Run(fmt.Sprintf("of %d", parts), func(t *testing.T) { test(t, openWide(t, parts)) })
	}
}

func (w *wide) place(text string) uint32 { return uint32(core.PlaceText([]byte(text), w.parts)) }

// create makes a task and returns its id and where it was made.
func (w *wide) create(spec *pb.TaskSpec) (core.TaskID, *pb.At) {
	w.t.Helper()
	out, err := w.tasks().Create(w.ctx, &pb.CreateRequest{Task: spec})
	if err != nil {
		w.t.Fatal(err)
	}
	return parsed(w.t, out.GetId()), out.GetAt()
}

func parsed(t testing.TB, s string) core.TaskID {
	t.Helper()
	id, err := core.ParseTaskID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// idIn is the id of a task in a partition.
func (w *wide) idIn(place uint32, n byte) string {
	return core.PlacedID(1e12, uint16(place), w.parts, [9]byte{n, n, n}).String()
}

func errorIn(t testing.TB, err error) *pb.Error {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	t.Fatalf("no error that says why: %v", err)
	return nil
}

func TestATaskIsMadeWhereItSaysItBelongs(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		for i := range 40 {
			name := fmt.Sprintf("n%d", i)
			spec := &pb.TaskSpec{Queue: "q", Tag: "tag-" + name, Unique: &pb.Unique{Key: "other-" + name}}
			want := w.place("tag-" + name)
			switch i % 4 {
			case 1:
				spec.Tag, spec.Unique.Key = "", name
				want = w.place(name)
			case 2:
				want = uint32(i % w.parts)
				spec.Tag, spec.Unique, spec.Id = "", nil, w.idIn(want, byte(i))
			case 3:
				spec.Tag, spec.Unique = "", nil
			}
			id, at := w.create(spec)
			if i%4 == 3 {
				want = uint32(core.PlaceID(id, w.parts))
			}
			if at.GetPartition() != want || uint32(id.Partition()) != want {
				t.Errorf("%v: made in %d with the id of %d, want %d", spec, at.GetPartition(), id.Partition(), want)
			}
			got, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: id.String()})
			if err != nil || got.GetTask().GetTag() != spec.Tag || got.GetAt().GetPartition() != want {
				t.Errorf("%v: read %v, %v", spec, got, err)
			}
			shown := w.do(mail, "GET", "/v1/tasks/"+id.String(), "").want(t, 200)
			if tag := shown.field(t, "tag"); spec.Tag != "" && string(tag) != strconv.Quote(spec.Tag) || spec.Tag == "" && tag != nil {
				t.Errorf("%v over REST: %s", spec, shown.body)
			}
		}
	})
}

func TestATaskWithoutAPlaceOfItsOwnIsMadeAnywhere(t *testing.T) {
	w := openWide(t, 4)
	seen := make(map[uint32]int)
	for range 200 {
		_, at := w.create(&pb.TaskSpec{Queue: "q"})
		seen[at.GetPartition()]++
	}
	for p := range uint32(4) {
		if seen[p] < 10 {
			t.Errorf("of 200 tasks partition %d has %d", p, seen[p])
		}
	}
}

func TestAnIDOfAnotherPartitionThanTheTaskIsRefused(t *testing.T) {
	w := openWide(t, 4)
	right := w.place("order-7")
	wrong := (right + 1) % 4
	for _, c := range []struct {
		spec  *pb.TaskSpec
		field string
		place string
	}{
		{&pb.TaskSpec{Queue: "q", Tag: "order-7", Id: w.idIn(wrong, 1)}, "task.id", fmt.Sprint(right)},
		{&pb.TaskSpec{Queue: "q", Unique: &pb.Unique{Key: "order-7"}, Id: w.idIn(wrong, 1)}, "task.id", fmt.Sprint(right)},
		{&pb.TaskSpec{Queue: "q", Id: parsed(t, w.idIn(wrong, 1)).WithPartition(uint16(right)).String()}, "task.id", fmt.Sprint(wrong)},
		{&pb.TaskSpec{Queue: "q", Id: parsed(t, w.idIn(wrong, 1)).WithPartition(4000).String()}, "task.id", fmt.Sprint(wrong)},
	} {
		_, err := w.tasks().Create(w.ctx, &pb.CreateRequest{Task: c.spec})
		if e := errorIn(t, err); e.GetCode() != "WRONG_PARTITION" || e.GetField() != c.field || e.GetDetails()["partition"] != c.place {
			t.Errorf("%v: %v", c.spec, e)
		}
		body := fmt.Sprintf(`{"queue":"q","id":%q}`, c.spec.GetId())
		if c.spec.GetTag() != "" {
			body = fmt.Sprintf(`{"queue":"q","id":%q,"tag":%q}`, c.spec.GetId(), c.spec.GetTag())
		}
		if c.spec.GetUnique() == nil {
			if r := w.do(mail, "POST", "/v1/tasks", body).want(t, 422); r.text(t, "error", "field") != "id" {
				t.Errorf("over REST: %s", r.body)
			}
		}
	}
	if id, _ := w.create(&pb.TaskSpec{Queue: "q", Tag: "order-7", Id: w.idIn(right, 1)}); uint32(id.Partition()) != right {
		t.Errorf("the right id: %v", id)
	}
}

func TestAnIDOfNoPartitionIsOfNoTask(t *testing.T) {
	w := openWide(t, 4)
	id, _ := w.create(&pb.TaskSpec{Queue: "q"})
	no := id.WithPartition(4).String()
	calls := map[string]func() error{
		"Get":  func() error { _, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: no}); return err },
		"Wait": func() error { _, err := w.tasks().Wait(w.ctx, &pb.WaitRequest{Id: no}); return err },
		"ListAttempts": func() error {
			_, err := w.tasks().ListAttempts(w.ctx, &pb.ListAttemptsRequest{Id: no})
			return err
		},
		"RunNow": func() error { _, err := w.tasks().RunNow(w.ctx, &pb.RunNowRequest{Id: no}); return err },
		"Delete": func() error { _, err := w.tasks().Delete(w.ctx, &pb.DeleteRequest{Id: no}); return err },
	}
	for name, call := range calls {
		if e := errorIn(t, call()); e.GetCode() != "NOT_FOUND" {
			t.Errorf("%s: %v", name, e)
		}
	}
	for _, path := range []string{"", "/attempts", "/result", "/result?wait=5s"} {
		w.do(mail, "GET", "/v1/tasks/"+no+path, "").want(t, 404)
	}
	w.do(mail, "POST", "/v1/tasks/"+no+"/complete", `{"token":"3"}`).want(t, 404)
	w.do(mail, "POST", "/v1/tasks/"+no+"/heartbeat", `{"token":"3"}`).want(t, 409)
	settled, err := w.tasks().Settle(w.ctx, &pb.SettleRequest{Items: []*pb.SettleItem{
		{Id: no, Token: 3, Outcome: &pb.SettleItem_Complete{}}, {Id: id.String(), Token: 3, Outcome: &pb.SettleItem_Complete{}},
	}})
	if err != nil || settled.GetResults()[0].GetError().GetCode() != "NOT_FOUND" || settled.GetResults()[1].GetError() == nil {
		t.Errorf("Settle: %v, %v", settled, err)
	}
	commit := &pb.CommitRequest{Fence: &pb.Fence{Task: no, Token: 3}, Ops: []*pb.Op{putOp("k")}}
	_, err = pb.NewCommitServiceClient(w.conn).Commit(w.ctx, commit)
	if e := errorIn(t, err); e.GetCode() != "LEASE_LOST" {
		t.Errorf("a fence: %v", e)
	}
	complete := &pb.TaskComplete{Task: &pb.Hold{Id: no, Token: 3}, Complete: &pb.Complete{}}
	commit = &pb.CommitRequest{Ops: []*pb.Op{putOp("k"), {Op: &pb.Op_TaskComplete{TaskComplete: complete}}}}
	_, err = pb.NewCommitServiceClient(w.conn).Commit(w.ctx, commit)
	if e := errorIn(t, err); e.GetCode() != "NOT_FOUND" || e.Op == nil || e.GetOp() != 1 {
		t.Errorf("an op: %v", e)
	}
}

func putOp(key string) *pb.Op {
	return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte(key), Value: []byte(key)}}}
}

func TestKeysAreReadWhereTheyWereWritten(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		for i := range 30 {
			key := []string{"k%d", "{user%d}/a", "b/{user%d}", "{}%d", "{open%d"}[i%5]
			key = fmt.Sprintf(key, i)
			out, err := pb.NewCommitServiceClient(w.conn).Commit(w.ctx, &pb.CommitRequest{Ops: []*pb.Op{putOp(key)}})
			if err != nil {
				t.Fatal(err)
			}
			want := uint32(core.PlaceKey([]byte(key), w.parts))
			got, err := pb.NewKVServiceClient(w.conn).Get(w.ctx, &pb.KVGetRequest{Keyspace: "ks", Key: []byte(key)})
			if err != nil || string(got.GetValue()) != key || out.GetAt().GetPartition() != want || got.GetAt().GetPartition() != want {
				t.Errorf("%s: written %v, read %v, %v; want partition %d", key, out, got, err, want)
			}
			if r := w.do(mail, "GET", "/v1/kv/ks/keys/"+url.PathEscape(key), "").want(t, 200); string(r.body) != key {
				t.Errorf("%s over REST: %q", key, r.body)
			}
		}
	})
}

func TestACommitIsOfOnePartitionOrNothingOfItIsDone(t *testing.T) {
	w := openWide(t, 4)
	commits := pb.NewCommitServiceClient(w.conn)
	id := core.RequestID{1, 2, 3}
	free := &pb.CommitRequest{RequestId: id[:], Ops: []*pb.Op{{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "free"}}}}}
	made, err := commits.Commit(w.ctx, free)
	if err != nil || made.GetAt().GetPartition() != uint32(core.PlaceText(id[:], 4)) {
		t.Errorf("a commit that says no place: %v, %v", made, err)
	}
	for range 3 { // it comes to where it was, and so is known; its task gets the id that it has
		again, err := commits.Commit(w.ctx, free)
		if err != nil || !again.GetReplayed() || again.GetResults()[0].GetTask() != made.GetResults()[0].GetTask() {
			t.Errorf("its repetition: %v, %v", again, err)
		}
	}
	near, far := keysOf(w, "{a}"), keysOf(w, "")
	create := &pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "near"}}}
	out, err := commits.Commit(w.ctx, &pb.CommitRequest{Ops: []*pb.Op{create, putOp(near[0]), putOp(near[1])}})
	if err != nil || uint32(parsed(t, out.GetResults()[0].GetTask()).Partition()) != w.place("a") {
		t.Errorf("a task without a place goes with the rest: %v, %v", out, err)
	}
	_, err = commits.Commit(w.ctx, &pb.CommitRequest{Ops: []*pb.Op{create, putOp(far[2]), putOp(far[1]), putOp(far[2] + "{" + far[2] + "}"), putOp(far[0])}})
	if e := errorIn(t, err); e.GetCode() != "WRONG_PARTITION" || e.GetDetails()["ops"] != "2,4" {
		t.Errorf("ops elsewhere: %v", e)
	}
	if n := w.stats("near").GetStats().GetCreated(); n != 1 {
		t.Errorf("%d tasks were made, want the first one alone", n)
	}
	check := &pb.KVCheck{Keyspace: "ks", Key: []byte(far[1]), Compare: pb.KVCheck_ABSENT}
	_, err = commits.Commit(w.ctx, &pb.CommitRequest{Conditions: []*pb.KVCheck{check}, Ops: []*pb.Op{putOp(far[0])}})
	if e := errorIn(t, err); e.GetCode() != "WRONG_PARTITION" || e.GetField() != "conditions[0].key" {
		t.Errorf("a condition elsewhere: %v", e)
	}
	body := fmt.Sprintf(`{"ops":[{"kv_put":{"keyspace":"ks","key":%q,"value":"v"}},{"kv_delete":{"keyspace":"ks","key":%q}}]}`, far[0], far[3])
	if r := w.do(mail, "POST", "/v1/commit", body).want(t, 422); r.text(t, "error", "details", "ops") != "1" {
		t.Errorf("over REST: %s", r.body)
	}
}

// keysOf returns four keys: of one partition when they have a tag, else key i is of partition i.
func keysOf(w *wide, tag string) [4]string {
	var out [4]string
	for i, n := 0, 0; n < 4; i++ {
		key := tag + strconv.Itoa(i)
		if place := w.place(key); tag == "" && out[place] == "" {
			out[place] = key
			n++
		} else if tag != "" {
			out[n] = key
			n++
		}
	}
	return out
}

func (w *wide) stats(queue string) *pb.QueueStatsResponse {
	w.t.Helper()
	out, err := w.queues().Stats(w.ctx, &pb.QueueStatsRequest{Queue: queue})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func TestEffectsAreOfTheTasksPartition(t *testing.T) {
	w := openWide(t, 4)
	keys := keysOf(w, "")
	id, _ := w.create(&pb.TaskSpec{Queue: "q", Id: w.idIn(2, 9)})
	claimed, err := w.tasks().Claim(w.ctx, &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: "q"}}, Wait: durationpb.New(30 * time.Second)})
	if err != nil || len(claimed.GetTasks()) != 1 {
		t.Fatal(claimed, err)
	}
	item := func(ops ...*pb.Op) *pb.SettleRequest {
		return &pb.SettleRequest{Items: []*pb.SettleItem{{
			Id: id.String(), Token: claimed.GetTasks()[0].GetToken(), Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}},
			Effects: &pb.Effects{Ops: ops},
		}}}
	}
	out, err := w.tasks().Settle(w.ctx, item(putOp(keys[2]), putOp(keys[3]), putOp(keys[1])))
	if e := out.GetResults()[0].GetError(); err != nil || e.GetCode() != "WRONG_PARTITION" || e.GetDetails()["ops"] != "1,2" {
		t.Errorf("effects elsewhere: %v, %v", out, err)
	}
	follow := &pb.Op{Op: &pb.Op_TaskCreate{TaskCreate: &pb.TaskSpec{Queue: "next"}}}
	out, err = w.tasks().Settle(w.ctx, item(follow, putOp(keys[2])))
	if err != nil || out.GetResults()[0].GetError() != nil {
		t.Fatalf("effects: %v, %v", out, err)
	}
	if next := parsed(t, out.GetResults()[0].GetEffects()[0].GetTask()); next.Partition() != 2 || core.PlaceID(next, 4) != 2 {
		t.Errorf("the task of an effect is in %d", next.Partition())
	}
}
