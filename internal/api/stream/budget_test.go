package stream

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// largeFrame creates one task with a payload of a kibibyte.
func largeFrame(seq uint64) *pb.ClientFrame {
	f := createFrame(seq, 1)
	f.GetCreate().Tasks[0].Payload = make([]byte, kib)
	return f
}

func TestFramesOfAllStreamsTogetherAreBounded(t *testing.T) {
	r := newRigWith(t, edge.Limits{}, edge.Memory{Frames: 2*kib + kib/2})
	r.n.Holding = true
	a, _ := r.greet(apitest.As("acme/all"), 1)
	b, _ := r.greet(apitest.As("rival/all"), 2)
	for seq := range uint64(3) {
		a.send(largeFrame(seq))
	}
	apitest.Eventually(t, "the share is full", func() bool { return r.n.Waiting() == 3 })
	b.send(largeFrame(0)) // it was awaited before the share was full
	b.send(largeFrame(1))
	a.send(largeFrame(3))
	apitest.Eventually(t, "a frame that was awaited already is taken", func() bool { return r.n.Waiting() == 4 })
	apitest.Eventually(t, "a stream waits for room", func() bool {
		r.s.Frames.Mu.Lock()
		defer r.s.Frames.Mu.Unlock()
		return r.s.Frames.Freed != nil
	})
	if n, held := r.n.Waiting(), r.s.Stats().Held.Frames; n != 4 || held < 4*kib {
		t.Fatalf("%d frames of %d bytes are held", n, held)
	}
	for range 3 { // with one that is left there is room for two
		r.n.ReleaseHeld(0)
	}
	apitest.Eventually(t, "both streams are read again", func() bool { return r.n.Waiting() == 3 })
	for range 3 {
		r.n.ReleaseHeld(0)
	}
	for seq := range uint64(4) {
		if ack := a.ack(); ack.GetSeq() != seq || ack.GetError() != nil {
			t.Errorf("%v", ack)
		}
	}
	for seq := range uint64(2) {
		if ack := b.ack(); ack.GetSeq() != seq || ack.GetError() != nil {
			t.Errorf("%v", ack)
		}
	}
	if held := r.s.Stats().Held; held.Frames != 0 {
		t.Errorf("%+v is held of nothing", held)
	}
}

// TestFramesThatAreDecidedAreNotHeldForASlowReader lets one client take no acks.
func TestFramesThatAreDecidedAreNotHeldForASlowReader(t *testing.T) {
	r := newRigWith(t, edge.Limits{}, edge.Memory{Frames: kib})
	slow, _ := r.greet(apitest.As("acme/all"), 1)
	for seq := range uint64(3) {
		slow.send(largeFrame(seq))
	}
	quick, _ := r.greet(apitest.As("rival/all"), 2)
	quick.send(largeFrame(0))
	if ack := quick.ack(); ack.GetError() != nil {
		t.Errorf("%v", ack)
	}
}

func TestStreamsWithTasksOnTheirWayGetNoMoreWhenTooManyAre(t *testing.T) {
	r := newRigWith(t, edge.Limits{}, edge.Memory{Sends: 5 * mib})
	r.stall(1) // by its own bound, which is less
	_, slow := r.greet(apitest.As("acme/all"), 2)
	_, idle := r.greet(apitest.As("acme/all"), 3)
	waiting := func() int64 {
		st := slow.Sink.(*stream)
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.outBytes
	}
	for { // a frame that the transport still takes makes room, so there is more than one step
		own := waiting() // which only falls between here and the question
		if !slow.Sink.Room() {
			break
		}
		if own >= r.s.Limits.SendBytes-mib {
			t.Fatalf("with %d bytes on their way a stream with %d of them may have more", r.s.Stats().Held.Sends, own)
		}
		if !slow.Sink.Assign(1, apitest.AssignedTasks(1, mib), core.At{}) {
			t.Fatal("no room for a task")
		}
	}
	if !idle.Sink.Room() {
		t.Error("one without any may not have some")
	}
	if !idle.Sink.Assign(1, apitest.AssignedTasks(1, 10), core.At{}) {
		t.Error("a task is not taken")
	}
}
