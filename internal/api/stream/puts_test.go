package stream

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// putsFrame is a frame of puts of keys, each with its own name as the value.
func putsFrame(seq, commitSeq uint64, keys ...string) *pb.ClientFrame {
	f := &pb.PutsFrame{Seq: seq, Keyspace: "ks", CommitSeq: commitSeq}
	for _, key := range keys {
		f.Items = append(f.Items, &pb.PutItem{Key: []byte(key), Value: []byte(key)})
	}
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Puts{Puts: f}}
}

func (r *rig) greetKeys(token string) *wireStream {
	r.t.Helper()
	ss, err := pb.NewKVStreamClient(r.conn).Open(apitest.As(token))
	if err != nil {
		r.t.Fatal(err)
	}
	ws := &wireStream{ss, r, func() {}}
	ws.send(helloOf(1))
	if ws.recv().GetWelcome() == nil {
		r.t.Fatal("the first frame is not a welcome")
	}
	<-r.n.Opened
	return ws
}

func TestAFrameOfPutsIsOneProposalUnderItsNumber(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Index: 44, Replayed: true, Ops: []core.OpResult{{Kind: core.OpKVPuts, Rev: 12}}}
	}
	ws := r.greetKeys("acme/all")
	ws.send(putsFrame(5, 3, "a", "b"))
	a := ws.ack()
	if a.GetSeq() != 5 || a.GetPuts().GetFirstRev() != 12 || !a.GetPuts().GetReplayed() || a.GetAt().GetIndex() != 44 || a.GetError() != nil {
		t.Errorf("%v", a)
	}
	c := r.n.Proposed()
	want := &core.KVPuts{Keyspace: "ks", Items: []core.KVItem{{Key: []byte("a"), Value: []byte("a")}, {Key: []byte("b"), Value: []byte("b")}}}
	if len(c) != 1 || c[0].Seq != 3 || c[0].Session != core.SessionID(apitest.Repeat(16, byte(1))) || !reflect.DeepEqual(c[0].Ops, []core.Op{want}) {
		t.Errorf("proposed %+v", c)
	}
}

// Whatever is wrong with a frame, its number goes through the log: the frames behind it are in flight already.
func TestARefusedFrameOfPutsUsesItsNumberUp(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		frame *pb.ClientFrame
		code  string
		field string
	}{
		"no right":    {"acme/kv:read", putsFrame(9, 1, "a"), "PERMISSION_DENIED", ""},
		"no items":    {"acme/all", putsFrame(9, 1), "INVALID_ARGUMENT", "items"},
		"many items":  {"acme/all", putsFrame(9, 1, apitest.Repeat(513, "k")...), "TOO_LARGE", "items"},
		"no keyspace": {"acme/all", &pb.ClientFrame{Frame: &pb.ClientFrame_Puts{Puts: &pb.PutsFrame{Seq: 9, CommitSeq: 1}}}, "INVALID_ARGUMENT", "keyspace"},
	} {
		r := newRig(t, edge.Limits{})
		ws := r.greetKeys(c.token)
		ws.send(c.frame)
		if a := ws.ack(); a.GetSeq() != 9 || a.GetError().GetCode() != c.code || a.GetError().GetField() != c.field {
			t.Errorf("%s: %v", name, a)
		}
		if p := r.n.Proposed(); len(p) != 1 || p[0].Seq != 1 || len(p[0].Ops) != 0 {
			t.Errorf("%s: proposed %+v", name, p)
		}
		ws.send(putsFrame(10, 0, "fine"))
		if a := ws.ack(); c.code != "PERMISSION_DENIED" && a.GetError() != nil {
			t.Errorf("%s: then %v", name, a)
		}
	}
}

func TestItemsThatCannotBeUsedAreRefusedAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Ops: []core.OpResult{{Kind: core.OpKVPuts, Rev: 7, KV: &core.KVResult{Refused: []core.RefusedItem{
			{Item: 1, Fact: core.RevMismatch{Rev: 3}},
		}}}}}
	}
	ws := r.greetKeys("acme/all")
	f := putsFrame(1, 1, "a", "", "b", string(bytes.Repeat([]byte("k"), 16*kib+1)), "c")
	f.GetPuts().Items = append(f.GetPuts().Items, &pb.PutItem{Key: []byte("d"), IfAbsent: true, IfRev: proto.Uint64(4)})
	ws.send(f)
	a := ws.ack()
	var got []string
	for _, item := range a.GetPuts().GetRefused() {
		got = append(got, fmt.Sprint(item.GetItem(), " ", item.GetError().GetCode(), " ", item.GetError().GetField()))
	}
	want := []string{"1 INVALID_ARGUMENT items[1].key", "2 PRECONDITION_FAILED ", "3 TOO_LARGE items[3].key", "5 INVALID_ARGUMENT items[5].if_rev"}
	if !reflect.DeepEqual(got, want) || a.GetPuts().GetFirstRev() != 7 {
		t.Errorf("refused %q, want %q; first revision %d", got, want, a.GetPuts().GetFirstRev())
	}
	if op := r.n.Proposed()[0].Ops[0].(*core.KVPuts); len(op.Items) != 3 {
		t.Errorf("%d items were proposed", len(op.Items))
	}
}

func TestAStreamOfKeysTakesNoTasks(t *testing.T) {
	for name, f := range map[string]*pb.ClientFrame{"create": createFrame(1, 1), "settle": settleFrame(1, apitest.DoneItem(1, 2)), "subscribe": subscribeFrame(1, 1)} {
		r := newRig(t, edge.Limits{})
		ws := r.greetKeys("acme/all")
		ws.send(f)
		if e := apitest.ErrorOf(t, ws.end()); e.GetField() != "frame" {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestKeysAreReadOnAStream(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws := r.greetKeys("acme/all")
	for seq := range uint64(100) { // more than the window holds
		ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Gets{Gets: &pb.GetsFrame{Seq: seq + 1, Keyspace: "ks", Keys: [][]byte{[]byte("a"), []byte("b")}}}})
	}
	for seq := range uint64(100) {
		a := ws.ack()
		if got := a.GetGets().GetResults(); a.GetSeq() != seq+1 || len(got) != 2 || string(got[1].GetValue()) != "b" || a.GetAt().GetIndex() != 9 {
			t.Fatalf("%v", a)
		}
	}
}

func TestPutsOfAnotherPartitionAreRefusedAlone(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Make("acme", "default", 4)
	ws := r.greetKeys("acme/all")
	var here, there string
	for i := 0; here == "" || there == ""; i++ {
		if key := fmt.Sprint("k", i); core.PlaceKey([]byte(key), 4) == 0 {
			here = key
		} else {
			there = key
		}
	}
	ws.send(putsFrame(1, 1, here, there))
	a := ws.ack()
	if refused := a.GetPuts().GetRefused(); len(refused) != 1 || refused[0].GetItem() != 1 || refused[0].GetError().GetCode() != "WRONG_PARTITION" {
		t.Errorf("%v", a)
	}
}

func drawPuts(t *rapid.T) *pb.PutsFrame {
	f := &pb.PutsFrame{Seq: rapid.Uint64().Draw(t, "seq"), CommitSeq: rapid.Uint64Range(0, 9).Draw(t, "number"), Keyspace: "ks"}
	if rapid.IntRange(0, 20).Draw(t, "odd") == 0 {
		f.Keyspace = rapid.SampledFrom([]string{"", "a:b", "ä"}).Draw(t, "keyspace")
	}
	for range rapid.IntRange(0, 5).Draw(t, "items") {
		it := &pb.PutItem{Key: []byte(rapid.SampledFrom([]string{"a", "{x}b", "\x00\xff"}).Draw(t, "key")), Value: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "value")}
		switch rapid.IntRange(0, 20).Draw(t, "condition") {
		case 0:
			it.Key = nil
		case 1:
			it.IfRev = proto.Uint64(rapid.Uint64Range(0, 3).Draw(t, "rev"))
		case 2:
			it.IfAbsent = true
		case 3:
			it.IfAbsent, it.IfRev = true, proto.Uint64(rapid.Uint64Range(0, 1).Draw(t, "rev"))
		}
		f.Items = append(f.Items, it)
	}
	return f
}

// sameAsLong holds what the short way took of a frame to what the long way makes of it.
func sameAsLong(t interface {
	Fatalf(format string, args ...any)
}, l *edge.Limits, raw []byte,
) (taken bool) {
	part := core.Partition{Tenant: 3, Namespace: 2}
	who := edge.Caller{Principal: auth.Principal{Name: "p"}}
	short := wireReader{l: l, shares: func() bool { return true }, home: homeOf(part, 1), principal: who.Name}
	f := short.read(append([]byte{}, raw...))
	if f.kind != framePuts {
		return false
	}
	want := new(pb.ClientFrame)
	if err := proto.Unmarshal(raw, want); err != nil {
		t.Fatalf("taken, but the generated code says %v", err)
	}
	s := &api.Server{Edge: &edge.Edge{Limits: *l}}
	st := &stream{d: &door{Server: s}, home: homeOf(part, 1)}
	in := want.GetPuts()
	b := st.puts(&pending{who: who, answers: s.Answers("puts", false)}, in)
	if b.fact != nil || len(b.refused) > 0 {
		t.Fatalf("taken, but %v, %v", b.fact, b.refused)
	}
	if f.seq != in.GetSeq() || f.commitSeq != in.GetCommitSeq() || !reflect.DeepEqual(f.commits, b.commits) {
		t.Fatalf("got %d %d %+v, want %d %d %+v", f.seq, f.commitSeq, f.commits, in.GetSeq(), in.GetCommitSeq(), b.commits)
	}
	return true
}

func TestTheShortWayReadsPutsAsTheLongWayDoes(t *testing.T) {
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	plain, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		raw, err := proto.Marshal(&pb.ClientFrame{Frame: &pb.ClientFrame_Puts{Puts: drawPuts(t)}})
		if err != nil {
			t.Skip("the text is not UTF-8")
		}
		if rapid.Bool().Draw(t, "damaged") {
			raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		} else {
			plain++
		}
		if sameAsLong(t, &l, raw) {
			taken++
		}
	})
	if plain >= 30 && 10*taken < plain {
		t.Errorf("of %d frames only %d were read the short way", plain, taken)
	}
}

func FuzzPutsFrames(f *testing.F) {
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		f.Fatal(err)
	}
	for _, frame := range []*pb.ClientFrame{putsFrame(1, 2, "a", "b"), putsFrame(0, 0), createFrame(1, 2)} {
		raw, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) { sameAsLong(t, &l, raw) })
}

func TestTheShortAckOfPutsIsThatOfTheLongWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &putting{}
		p := &pending{seq: rapid.Uint64().Draw(t, "seq"), answers: (&api.Server{}).Answers("puts", false), wire: framePuts, commits: 1}
		p.answer = func(ack *pb.Ack, d core.Proposed) { b.answer(p, ack, d) }
		r := core.Result{Replayed: rapid.Bool().Draw(t, "replayed"), Ops: []core.OpResult{{Kind: core.OpKVPuts, Rev: rapid.Uint64().Draw(t, "rev")}}}
		if r.Replayed {
			r.Index = rapid.Uint64().Draw(t, "index")
		}
		d := core.Proposed{Results: []core.Result{r}, At: drawAt(t)}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: p.ack(d)}})
		if err != nil || !p.plain(d) {
			t.Fatalf("plain %v, %v", p.plain(d), err)
		}
		if got := p.wireAck(d); !bytes.Equal(got.B, want) {
			t.Fatalf("wrote %x, want %x", got.B, want)
		}
	})
}
