package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func helloTo(session byte, partition uint32) *pb.ClientFrame {
	f := helloOf(session)
	f.GetHello().Partition = partition
	return f
}

func TestAStreamRefusesWhatIsOfAnotherPartition(t *testing.T) {
	r := wideRig(t)
	ws := r.open(apitest.As("acme/all"))
	ws.send(helloTo(1, 2))
	if w := ws.recv().GetWelcome(); w.GetPartitions() != 4 || len(w.GetDirectory()) != 4 {
		t.Fatalf("welcome: %v", w)
	}
	if s := <-r.n.Opened; s.Part.Index != 2 {
		t.Errorf("the session is of %v", s.Part)
	}
	refused := func(what string, e *pb.Error, field string) {
		t.Helper()
		if e.GetCode() != "WRONG_PARTITION" || e.GetField() != field {
			t.Errorf("%s: %v", what, e)
		}
	}
	done := func(p uint16) *pb.SettleItem {
		return &pb.SettleItem{Id: apitest.IDIn(p, 1), Token: 3, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}}
	}
	ws.send(settleFrame(1, done(2), done(1), done(2)))
	settled := ws.ack().GetSettled()
	refused("a settle", settled[1].GetError(), "items[1].id")
	if settled[0].GetError() != nil || settled[2].GetError() != nil {
		t.Errorf("settled %v", settled)
	}
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Renew{Renew: &pb.RenewFrame{
		Seq: 2, Items: []*pb.Hold{{Id: apitest.IDIn(2, 1), Token: 3}, {Id: apitest.IDIn(0, 1), Token: 3}},
	}}})
	refused("a renewal", ws.ack().GetError(), "items[1].id")
	put := func(key string) *pb.Op {
		return &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "ks", Key: []byte(key)}}}
	}
	var here, there string
	for i := 0; here == "" || there == ""; i++ {
		if key := fmt.Sprint(i); core.PlaceKey([]byte(key), 4) == 2 {
			here = key
		} else {
			there = key
		}
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 3, Commit: &pb.CommitRequest{Ops: []*pb.Op{put(there), put(here)}}}))
	if e := ws.ack().GetError(); e.GetCode() != "WRONG_PARTITION" || e.GetDetails()["ops"] != "0" {
		t.Errorf("a commit: %v", e)
	}
	ws.send(commitFrame(&pb.CommitFrame{Seq: 4, Commit: &pb.CommitRequest{Ops: []*pb.Op{put(here)}}}))
	if a := ws.ack(); a.GetError() != nil || a.GetAt().GetPartition() != 2 {
		t.Errorf("a commit of its own: %v", a)
	}
	tasks := []*pb.TaskSpec{{Queue: "q", Id: apitest.IDIn(2, 1)}, {Queue: "q", Id: apitest.IDIn(3, 2)}}
	ws.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Create{Create: &pb.CreateFrame{Seq: 5, Tasks: tasks, Atomic: true}}})
	if e := ws.ack().GetError(); e.GetCode() != "WRONG_PARTITION" || e.GetDetails()["ops"] != "1" {
		t.Errorf("an atomic create: %v", e)
	}
	for _, c := range r.n.Proposed() {
		if c.Partition.Index != 2 {
			t.Errorf("proposed to %v", c.Partition)
		}
	}
}

func TestOpenStreamsAreToldWhoLeadsWhenThatChanges(t *testing.T) {
	r := wideRig(t, "", "b", "?", "b")
	var all []*wireStream
	for i := range 3 {
		ws := r.open(apitest.As("acme/all"))
		ws.send(helloTo(byte(i+1), 0))
		if got := shownLeaders(ws.recv().GetWelcome().GetDirectory()); got != "0= 1=b 3=b" {
			t.Fatalf("welcome: %s", got)
		}
		<-r.n.Opened
		all = append(all, ws)
	}
	for _, c := range []struct{ leaders, want string }{
		{", b, c, b", "0= 1=b 2=c 3=b"},
		{", b, c, b", ""}, // of another namespace
		{", , c, ?", "0= 1= 2=c"},
		{"?, ?, ?, ?", ""},
		{", , c, d", "0= 1= 2=c 3=d"},
	} {
		apitest.Eventually(t, "all streams follow the leaders", func() bool { return r.n.Followers() == len(all) })
		r.n.Lead(apitest.LeadersOf(strings.Split(c.leaders, ", ")...))
		for i, ws := range all {
			if c.want == "" {
				if c.leaders == "?, ?, ?, ?" {
					if got := ws.recv().GetDirectory(); got == nil || len(got.GetPartitions()) != 0 {
						t.Errorf("stream %d: no node leads: %v", i, got)
					}
				}
				continue // the next frame is the next change's
			}
			if got := shownLeaders(ws.recv().GetDirectory().GetPartitions()); got != c.want {
				t.Errorf("stream %d: %s, want %s", i, got, c.want)
			}
		}
	}
}

func shownLeaders(in []*pb.PartitionAddress) string {
	var out []string
	for _, p := range in {
		out = append(out, fmt.Sprintf("%d=%s", p.GetPartition(), p.GetAddress()))
	}
	return strings.Join(out, " ")
}

func TestAStreamOfOnePartitionIsToldOfMembersAndNotOfLeaders(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Members = []string{"a", "b"}
	ws := r.open(apitest.As("acme/all"))
	ws.send(helloTo(1, 0))
	if got := ws.recv().GetWelcome().GetNodes(); !slices.Equal(got, r.n.Members) {
		t.Errorf("the welcome names members %v", got)
	}
	<-r.n.Opened
	apitest.Eventually(t, "the stream follows", func() bool { return r.n.Followers() == 1 })
	r.n.Lead(apitest.LeadersOf("b"))
	apitest.Eventually(t, "the stream follows on", func() bool { return r.n.Followers() == 1 })
	r.n.Mu.Lock()
	r.n.Members = []string{"b", "c"}
	r.n.Mu.Unlock()
	r.n.Lead(apitest.LeadersOf("b"))
	if d := ws.recv().GetDirectory(); !slices.Equal(d.GetNodes(), []string{"b", "c"}) || len(d.GetPartitions()) != 0 {
		t.Errorf("after the members changed: %v", d)
	}
}
