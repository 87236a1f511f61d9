package replog_test

import (
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// The only voter starts again with an older commit index than what it has acknowledged. Neither its own reads nor those of a
// learner may be told of that.
func TestTheOnlyVoterConfirmsNoReadBeforeAnEntryOfItsTerm(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	if err := r.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if err := r.core.Reconfigure(replog.RoleChange{Replica: 2, Role: replog.Learner}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	for i := range 3 {
		if err := r.core.Propose(fmt.Appendf(nil, "e%d", i)); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	acknowledged := r.index

	after := openReplica(t, 1, []uint64{1}, r.disk.Crash(0, 1), nil, 0)
	if commit := after.core.Status().Commit; commit >= acknowledged {
		t.Fatalf("it starts with commit index %d, of %d: this test shows nothing", commit, acknowledged)
	}
	after.settle() // it applies what it knows to be committed
	if err := after.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	asked, err := proto.Marshal(&pb.Message{
		Type: pb.MsgReadIndex.Enum(), From: new(uint64(2)), To: new(uint64(1)), Entries: []*pb.Entry{{Data: []byte("learner's")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		if err := after.core.Step(asked); err != nil {
			t.Fatal(err)
		}
		after.core.ReadIndex("own")
	}
	for range 10 {
		if ask(); after.core.Status().Leading {
			break
		}
		after.sync()
	}
	if !after.core.Status().Leading || after.core.MayRead() {
		t.Fatalf("it is to lead, and to know nothing yet: %+v", after.core.Status())
	}
	after.step()
	if len(after.reads) > 0 || slices.ContainsFunc(after.out, func(m replog.Message) bool { return m.To == 2 && !m.Bulk }) {
		t.Fatalf("a read is answered at commit index %d, of %d: %+v", after.core.Status().Commit, acknowledged, after.reads)
	}
	after.settle()
	ask()
	after.settle()
	if len(after.reads) != 1 || after.reads[0].Context != "own" || after.reads[0].Index < acknowledged {
		t.Errorf("reads %+v, acknowledged up to %d", after.reads, acknowledged)
	}
}
