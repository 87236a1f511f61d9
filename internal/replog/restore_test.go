package replog_test

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A snapshot that a log leads to by itself is not taken in, whether its entries are durable or on their way to the disk.
func TestASnapshotThatTheLogLeadsToIsNotNeeded(t *testing.T) {
	for _, durable := range []bool{false, true} {
		c := openTrio(t)
		lead, follower := c.all[1], c.all[2]
		if err := lead.core.Propose([]byte("a")); err != nil {
			t.Fatal(err)
		}
		lead.step()
		for _, m := range lead.out {
			if m.To == 2 {
				if err := follower.core.Step(m.Data); err != nil {
					t.Fatal(err)
				}
			}
		}
		follower.step()
		if durable {
			follower.settle()
		}
		st := lead.core.Status()
		offer, err := proto.Marshal(&pb.Message{
			Type: pb.MsgSnap.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(st.Term),
			Snapshot: &pb.Snapshot{Data: []byte("files"), Metadata: &pb.SnapshotMetadata{
				Index: new(st.Last), Term: new(st.Term), ConfState: &pb.ConfState{Voters: []uint64{1, 2, 3}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := follower.core.Step(offer); err != nil {
			t.Fatal(err)
		}
		o := follower.core.Offered()
		if o == nil {
			t.Fatalf("entries durable %v: nothing is offered", durable)
		}
		out, err := follower.core.Restore(o)
		if err != nil {
			t.Fatal(err)
		}
		if out.Append != nil {
			if index, restarts := out.Append.Snapshot(); restarts {
				t.Errorf("entries durable %v: the log restarts behind %d", durable, index)
			}
		}
		if got := follower.core.Status(); got.Commit != st.Last {
			t.Errorf("entries durable %v: commit %d, want %d", durable, got.Commit, st.Last)
		}
	}
}
