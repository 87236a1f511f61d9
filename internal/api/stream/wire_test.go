package stream

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func drawTaskID(t *rapid.T) core.TaskID {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")
	if rapid.IntRange(0, 40).Draw(t, "placed") > 0 { // in partition 2 of 4
		return core.PlacedID(1e12, 2, 4, [9]byte(b))
	}
	id := core.TaskID(b)
	id[0] &= 0x7f
	return id
}

// drawSpec makes mostly plain tasks, and now and then one of every kind that is not.
func drawSpec(t *rapid.T) *pb.TaskSpec {
	s := &pb.TaskSpec{
		Id: drawTaskID(t).String(), Queue: rapid.SampledFrom([]string{"q", "a.b:c", "Q2"}).Draw(t, "queue"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "payload"),
	}
	if rapid.IntRange(0, 7).Draw(t, "tagged") == 0 {
		s.Tag = rapid.SampledFrom([]string{"c", "g", "k", "o", "other"}).Draw(t, "tag") // all but the last in partition 2 of 4
	}
	if rapid.Bool().Draw(t, "more") {
		s.Kind, s.ContentType, s.Priority = "k", "text/plain", rapid.Uint32Range(0, 9).Draw(t, "priority")
		s.Lease = durationpb.New(5e9 + 7e6)
	}
	if rapid.IntRange(0, 3).Draw(t, "unique") == 0 {
		s.Unique = &pb.Unique{
			Key:   rapid.SampledFrom([]string{"u", "", strings.Repeat("u", 256), strings.Repeat("u", 257), "ü", "a\nb"}).Draw(t, "unique key"),
			Until: pb.Unique_Until(rapid.Int32Range(-1, 3).Draw(t, "until")), OnConflict: pb.Unique_OnConflict(rapid.IntRange(0, 9).Draw(t, "conflict") / 8),
		}
		if rapid.Bool().Draw(t, "ttl") {
			s.Unique.Ttl = rapid.SampledFrom([]*durationpb.Duration{{Seconds: 60}, {}, {Nanos: 1}, {Seconds: 1e9}}).Draw(t, "time to live")
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
		s.Key = rapid.SampledFrom([]string{"c", "customer-7", strings.Repeat("k", 129), "a\x00b", "ü"}).Draw(t, "key")
		s.Cost = rapid.SampledFrom([]uint32{0, 1, 1_000_000, 1_000_001}).Draw(t, "cost")
	}
	if rapid.IntRange(0, 3).Draw(t, "waits") == 0 {
		for range rapid.IntRange(1, 3).Draw(t, "after") {
			s.After = append(s.After, &pb.After{Id: drawTaskID(t).String(), On: pb.After_On(rapid.Int32Range(0, 2).Draw(t, "on"))})
		}
		s.OnDepFailure = pb.OnDepFailure(rapid.IntRange(0, 12).Draw(t, "on failure") / 10)
	}
	switch rapid.IntRange(0, 40).Draw(t, "odd") {
	case 0:
		s.Id = rapid.SampledFrom([]string{"", strings.ToLower(s.Id), s.Id[1:], "U" + s.Id[1:], "ZZZZZZZZZZZZZZZZZZZZZZZZZZ", "00000000000000000000000000"}).Draw(t, "bad id")
	case 1:
		s.Queue = rapid.SampledFrom([]string{"", ".", strings.Repeat("q", 129), "ä"}).Draw(t, "bad queue")
	case 2:
		s.Kind = "not a name"
	case 3:
		s.ContentType = rapid.SampledFrom([]string{"a\nb", strings.Repeat("c", 300), "ä/ü"}).Draw(t, "type")
	case 4:
		s.Priority = 10
	case 5:
		s.Lease = rapid.SampledFrom([]*durationpb.Duration{{}, {Seconds: -1}, {Seconds: 1, Nanos: -1}, {Seconds: 1e9}, {Nanos: 1e9}}).Draw(t, "lease")
	case 6:
		s.Headers = []*pb.Header{{Name: "n", Value: "v"}}
	case 7:
		s.Delay = durationpb.New(1e9)
	case 8:
		s.MaxAttempts = 3
	case 9:
		s.Webhook = "w"
	case 10:
		s.Labels = map[string]string{"a": "b"}
	case 11:
		s.MaxDeliveries = proto.Int32(0)
	case 12:
		s.Tag = rapid.SampledFrom([]string{"", "a\nb", strings.Repeat("t", 129), "ä/ü"}).Draw(t, "bad tag")
	}
	return s
}

func drawSettle(t *rapid.T) *pb.SettleItem {
	s := &pb.SettleItem{Id: drawTaskID(t).String(), Token: rapid.Uint64Range(1, 1<<62).Draw(t, "token")}
	done := &pb.Complete{Result: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "result")}
	if rapid.Bool().Draw(t, "typed") {
		done.ResultType = "text/plain"
	}
	s.Outcome = &pb.SettleItem_Complete{Complete: done}
	switch rapid.IntRange(0, 40).Draw(t, "odd") {
	case 0:
		s.Outcome = &pb.SettleItem_Release{Release: &pb.Release{}}
	case 1:
		s.Outcome = nil
	case 2:
		s.Effects = &pb.Effects{}
	case 3:
		s.Token = rapid.SampledFrom([]uint64{0, 1 << 63, 1<<64 - 1}).Draw(t, "bad token")
	case 4:
		s.Id = ""
	case 5:
		done.ResultType = "a\nb"
	}
	return s
}

func drawClientFrame(t *rapid.T) *pb.ClientFrame {
	seq := rapid.Uint64().Draw(t, "seq")
	if rapid.Bool().Draw(t, "create") {
		f := &pb.CreateFrame{Seq: seq, Tasks: rapid.SliceOfN(rapid.Custom(drawSpec), 0, 4).Draw(t, "tasks")}
		f.Atomic = rapid.IntRange(0, 20).Draw(t, "atomic") == 0
		return &pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: f}}
	}
	f := &pb.SettleFrame{Seq: seq, Items: rapid.SliceOfN(rapid.Custom(drawSettle), 0, 4).Draw(t, "items")}
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Settle{Settle: f}}
}

// TestTheShortWayReadsWhatTheLongWayReads holds the hand-written reader to the generated one and the translator: what it
// takes, they take, and make the same commits of. Bytes are damaged in half of the runs.
func TestTheShortWayReadsWhatTheLongWayReads(t *testing.T) {
	limits, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, limits)
	who := edge.Caller{Principal: auth.Principal{Name: "p"}}
	part := core.Partition{Tenant: 3, Namespace: 2}
	plain, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		raw, err := proto.Marshal(drawClientFrame(t))
		if err != nil {
			t.Skip("the text is not UTF-8")
		}
		damaged := rapid.Bool().Draw(t, "damaged") && len(raw) > 0
		if damaged {
			for range rapid.IntRange(1, 3).Draw(t, "bytes") {
				raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
		} else {
			plain++
		}
		here := homeOf(part, 1)
		if rapid.IntRange(0, 2).Draw(t, "several") == 0 {
			here.Of, here.Partition.Index = 4, 2
		}
		long := r.s.Bound(who, here.Home)
		short := wireReader{l: &limits, shares: func() bool { return true }, home: here, principal: who.Name}
		f := short.read(append([]byte{}, raw...))
		if f.kind == 0 {
			return
		}
		taken++
		want := new(pb.ClientFrame)
		if err := proto.Unmarshal(raw, want); err != nil {
			t.Fatalf("taken, but the generated code says %v", err)
		}
		if fact := r.s.Known(want); fact != nil {
			t.Fatalf("taken, but %v", fact)
		}
		var commits []core.Commit
		var holds []core.TaskHold
		var fact core.Fact
		var seq uint64
		switch w := want.Frame.(type) {
		case *pb.ClientFrame_Create:
			var b *api.Creating
			if b, fact = long.Creates(r.s.Answers("create", false), w.Create.Tasks, w.Create.Atomic); fact == nil {
				commits = b.Commits
			}
			seq = w.Create.Seq
		case *pb.ClientFrame_Settle:
			var b *api.Settling
			if b, fact = long.Settles(r.s.Answers("settle", false), w.Settle.Items); fact == nil {
				commits, holds = b.Commits, b.Holds
			}
			seq = w.Settle.Seq
		default:
			t.Fatalf("taken: %v", want)
		}
		if fact != nil {
			t.Fatalf("taken, but %v", fact)
		}
		if f.seq != seq || !reflect.DeepEqual(f.commits, commits) || !reflect.DeepEqual(f.holds, holds) {
			t.Fatalf("got seq %d %+v %+v, want %d %+v %+v", f.seq, f.commits, f.holds, seq, commits, holds)
		}
	})
	if plain >= 50 && 30*taken < plain {
		t.Errorf("of %d frames only %d were read the short way", plain, taken)
	}
}

func drawAt(t *rapid.T) core.At {
	return core.At{
		Partition: rapid.Uint16().Draw(t, "partition"), Index: rapid.Uint64().Draw(t, "index"),
		Stamp: core.ShardTime(rapid.Int64Range(0, 1<<45).Draw(t, "stamp")),
	}
}

// TestTheShortWayWritesWhatTheLongWayWrites holds the hand-written frames to the messages that build makes.
func TestTheShortWayWritesWhatTheLongWayWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got *api.Encoded
		var want *pb.ServerFrame
		if rapid.Bool().Draw(t, "ack") {
			p := &pending{seq: rapid.Uint64().Draw(t, "seq"), answers: (&api.Server{}).Answers("create", false), wire: frameCreate}
			settles := rapid.Bool().Draw(t, "settles")
			var d core.Proposed
			d.At = drawAt(t)
			for range rapid.IntRange(0, 4).Draw(t, "results") {
				d.Results = append(d.Results, core.Result{Replayed: rapid.Bool().Draw(t, "replayed"), Ops: []core.OpResult{{
					Kind: core.OpTaskCreate, Task: drawTaskID(t), Replayed: rapid.Bool().Draw(t, "op replayed"),
					PayloadMatches: rapid.Bool().Draw(t, "matches"), State: core.State(rapid.IntRange(0, 7).Draw(t, "state")),
				}}})
			}
			p.commits = len(d.Results)
			if settles {
				p.wire = frameSettle
			}
			p.answer = func(ack *pb.Ack, d core.Proposed) {
				if settles {
					ack.Settled = (&api.Settling{Commits: make([]core.Commit, p.commits)}).Answer(p.answers, d.Results)
				} else {
					ack.Created, _ = (&api.Creating{Commits: make([]core.Commit, p.commits)}).Answer(p.answers, d.Results)
				}
			}
			if !p.plain(d) {
				t.Fatal("not plain")
			}
			got, want = p.wireAck(d), &pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: p.ack(d)}}
		} else {
			now := core.ShardTime(rapid.Int64Range(0, 100).Draw(t, "now"))
			sub := rapid.Uint32().Draw(t, "sub")
			tasks := rapid.SliceOfN(rapid.Custom(drawAssigned), 0, 4).Draw(t, "tasks")
			got = wireAssign(sub, tasks, now)
			want = &pb.ServerFrame{Frame: &pb.ServerFrame_Assign{Assign: &pb.Assign{Sub: sub, Tasks: api.ShowAssigned(tasks, now)}}}
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.B) != string(b) {
			t.Fatalf("wrote %x, want %x", got.B, b)
		}
	})
}

func drawAssigned(t *rapid.T) core.Assigned {
	small := rapid.Uint32Range(0, 300)
	a := core.Assigned{
		Task: drawTaskID(t), Token: core.Token(rapid.Uint64().Draw(t, "token")), Attempt: small.Draw(t, "attempt"),
		Queue: rapid.SampledFrom([]string{"", "q", strings.Repeat("q", 128)}).Draw(t, "queue"), Kind: "k",
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"), ContentType: "application/json",
		Priority: uint8(rapid.IntRange(0, 9).Draw(t, "priority")), Lease: core.Millis(rapid.Int64Range(-1, 1<<40).Draw(t, "lease")),
		LeaseUntil:  core.ShardTime(rapid.Int64Range(0, 200).Draw(t, "until")),
		MaxAttempts: rapid.Int32().Draw(t, "max"), Failures: small.Draw(t, "failures"), Crashes: small.Draw(t, "crashes"),
		CreatedAt: core.ShardTime(rapid.Int64().Draw(t, "created")),
	}
	for range rapid.IntRange(0, 2).Draw(t, "headers") {
		a.Headers = append(a.Headers, core.Header{Name: "n", Value: strings.Repeat("v", rapid.IntRange(0, 200).Draw(t, "value"))})
	}
	return a
}
