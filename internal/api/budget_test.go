package api

import (
	"strings"
	"sync"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// TestFramesThatLoadRefsCountAmongThoseOfAllStreams has a load and a session of refs wait for the room that frames of others take.
func TestFramesThatLoadRefsCountAmongThoseOfAllStreams(t *testing.T) {
	r := newRigWith(t, edge.Limits{}, edge.Memory{Frames: kib})
	r.n.AddTask(t, "acme", apitest.ID(1)) // makes the namespace
	r.n.Holding = true
	refs := pb.NewRefServiceClient(r.conn)
	text := strings.Repeat("m", core.MaxRefMessage)
	changes := []*pb.RefChange{{Kind: pb.RefChange_CREATE, Name: "refs/heads/a", New: apitest.OID, Message: text}}
	load, err := refs.LoadRefs(apitest.As("acme/all"))
	if err == nil {
		err = load.Send(&pb.LoadRefsRequest{Repo: "a", Session: apitest.Repeat(16, byte(1)), Number: 1, Changes: changes})
	}
	if err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the load's frame is under way", func() bool { return r.n.Waiting() == 1 && r.s.Stats().Held.Frames > kib })
	session, err := refs.Session(apitest.As("acme/all"))
	for _, f := range []*pb.RefSessionRequest{
		{Frame: &pb.RefSessionRequest_Open{Open: &pb.RefSessionOpen{Repo: "a", Session: apitest.Repeat(16, byte(2))}}},
		{Frame: &pb.RefSessionRequest_Start{Start: &pb.RefSessionStart{}}},
		{Frame: &pb.RefSessionRequest_Ops{Ops: &pb.RefSessionOps{Changes: changes}}},
		{Frame: &pb.RefSessionRequest_Commit{Commit: &pb.RefSessionCommit{Number: 1}}},
	} {
		if err == nil {
			err = session.Send(f)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the session waits for room", func() bool {
		r.s.Frames.Mu.Lock()
		defer r.s.Frames.Mu.Unlock()
		return r.s.Frames.Freed != nil
	})
	if n := r.n.Waiting(); n != 1 {
		t.Fatalf("%d frames are under way", n)
	}
	r.n.ReleaseHeld(0)
	apitest.Eventually(t, "the session goes on", func() bool { return r.n.Waiting() == 1 })
	if held := r.s.Stats().Held.Frames; held < kib {
		t.Errorf("%d bytes are held of a transaction of more", held)
	}
	r.n.ReleaseHeld(0)
	apitest.Eventually(t, "nothing is held", func() bool { return r.s.Stats().Held.Frames == 0 })
}

func TestRequestsOfAllCallersTogetherAreBounded(t *testing.T) {
	r := newRigWith(t, edge.Limits{}, edge.Memory{Requests: kib})
	tasks := pb.NewTaskServiceClient(r.conn)
	create := func(bytes int) error {
		_, err := tasks.Create(apitest.As("acme/all"), &pb.CreateRequest{Task: &pb.TaskSpec{Queue: "q", Payload: make([]byte, bytes)}})
		return err
	}
	if e := apitest.ErrorOf(t, create(kib)); e.GetCode() != "UNAVAILABLE" || e.GetReason() != "overload" || e.GetLimit() != "requests" {
		t.Errorf("a call beyond the share: %v", e)
	}
	r.n.Mu.Lock()
	r.n.Holding = true
	r.n.Mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() {
		if err := create(600); err != nil {
			t.Errorf("a call within the share: %v", err)
		}
	})
	apitest.Eventually(t, "one is under way", func() bool { return r.n.Waiting() == 1 })
	if e := apitest.ErrorOf(t, create(600)); e.GetLimit() != "requests" {
		t.Errorf("a second one at the same time: %v", e)
	}
	r.n.ReleaseHeld(0)
	all.Wait()
	if held := r.s.Stats().Held; held.Requests != 0 {
		t.Errorf("%+v is held of nothing", held)
	}
}
