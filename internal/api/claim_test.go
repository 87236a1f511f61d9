package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func claimAny(queue string, wait int64) *pb.ClaimRequest {
	return &pb.ClaimRequest{Queues: []*pb.QueueWeight{{Name: queue}}, Wait: ms(wait)}
}

// claims makes the node's claims answer with one task of their partition where there is a backlog, else when the clock has
// moved; it returns where they were.
func (r *rig) claims() func() []uint16 {
	var seen []uint16
	r.n.OnClaimAt = func(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, error) {
		r.n.Mu.Lock()
		seen = append(seen, p.Index)
		ready := r.n.Ready[p.Index]
		r.n.Mu.Unlock()
		if ready {
			return []core.Assigned{{Task: core.PlacedID(1e12, p.Index, 4, [9]byte{1}), Token: 2}}, nil
		}
		if s.Wait == 0 {
			return nil, nil
		}
		timer := r.clock.NewTimer(s.Wait.Duration())
		defer timer.Stop()
		select {
		case <-timer.C():
			return nil, nil
		case <-ctx.Done():
			return nil, core.DeadlineExceeded{}
		}
	}
	return func() []uint16 {
		r.n.Mu.Lock()
		defer r.n.Mu.Unlock()
		out := seen
		seen = nil
		return out
	}
}

func TestAClaimTakesWhereTasksAreReadyInTurn(t *testing.T) {
	r := wideRig(t, "", "b", "", "")
	seen := r.claims()
	r.n.Ready = map[uint16]bool{0: true, 1: true, 3: true}
	for range 8 {
		if out, err := r.tasks().Claim(apitest.As("acme/all"), claimAny("q", 0)); err != nil || len(out.GetTasks()) != 1 {
			t.Fatal(out, err)
		}
	}
	got := seen()
	if n := len(got); n != 8 || slices.Contains(got, 1) || slices.Contains(got, 2) || !slices.Contains(got, 0) || !slices.Contains(got, 3) {
		t.Errorf("claimed at %v", got)
	}
}

func TestAClaimIsSentToWhereTasksAreReadyWhenNoneAreHere(t *testing.T) {
	for _, c := range []struct {
		leaders string
		backlog uint16 // the partition with tasks; 9: none
		want    string // leader, or a code
	}{
		{", b, c, ", 2, "c"},
		{", b, c, ", 1, "b"},
		{", b, c, ", 9, "OK"},
		{"b, b, b, b", 9, "b"},
		{"?, ?, c, ?", 9, "c"},
		{"?, ?, ?, ?", 9, "UNAVAILABLE"},
		{"?, ?, ?, ", 0, "OK"},
	} {
		r := wideRig(t, strings.Split(c.leaders, ", ")...)
		r.claims()
		r.n.Ready = map[uint16]bool{c.backlog: true}
		out, err := r.tasks().Claim(apitest.As("acme/all"), claimAny("q", 0))
		got := "OK"
		if err != nil {
			e := apitest.ErrorOf(t, err)
			if got = e.GetCode(); got == "NOT_LEADER" {
				got = e.GetLeader()
			}
		} else if len(out.GetTasks()) != 0 {
			t.Errorf("%s: %v", c.leaders, out)
		}
		if got != c.want {
			t.Errorf("%s, tasks in %d: %s, want %s", c.leaders, c.backlog, got, c.want)
		}
	}
}

func TestAWaitingClaimLooksAtAllPartitionsAgainAndAgain(t *testing.T) {
	r := wideRig(t, "", "", "", "b")
	seen := r.claims()
	type end struct {
		out *pb.ClaimResponse
		err error
	}
	claim := func(wait int64) chan end {
		ended := make(chan end, 1)
		before := r.clock.Armed()
		go func() {
			out, err := r.tasks().Claim(apitest.As("acme/all"), claimAny("q", wait))
			ended <- end{out, err}
		}()
		apitest.Eventually(t, "it waits", func() bool { return r.clock.Armed() == before+1 })
		return ended
	}
	slice := func() {
		n := r.clock.Armed()
		r.clock.Advance(claimSlice)
		apitest.Eventually(t, "it waits again", func() bool { return r.clock.Armed() == n })
	}
	ended := claim(60_000)
	for range 5 {
		slice()
	}
	if got := seen(); len(got) != 6 || slices.Contains(got, 3) {
		t.Errorf("waited at %v", got)
	}
	r.n.Mu.Lock()
	r.n.Ready = map[uint16]bool{3: true}
	r.n.Mu.Unlock()
	r.clock.Advance(claimSlice)
	if e := apitest.ErrorOf(t, (<-ended).err); e.GetCode() != "NOT_LEADER" || e.GetLeader() != "b" {
		t.Errorf("a task came elsewhere: %v", e)
	}
	r.n.Mu.Lock()
	r.n.Ready = nil
	r.n.Mu.Unlock()
	ended = claim(300)
	slice()
	r.clock.Advance(100 * time.Millisecond)
	if e := <-ended; e.err != nil || len(e.out.GetTasks()) != 0 {
		t.Errorf("its time is over: %v, %v", e.out, e.err)
	}
}

func TestAWaitingClaimLooksForALeader(t *testing.T) {
	partition := uint32(0)
	type end struct {
		out *pb.ClaimResponse
		err error
	}
	for _, c := range []struct {
		name      string
		leaders   string
		partition *uint32
		stay      bool
		patience  time.Duration
	}{
		{"any partition", "?, ?, ?, ?", nil, false, leaderPatience},
		{"any partition, sent here", "?, ?, ?, ?", nil, true, leaderPatience},
		{"any partition, sent here while another node leads", "b, b, ?, b", nil, true, claimSlice},
		{"one partition", "?, , , ", &partition, false, leaderPatience},
		{"one partition, sent here while another node leads", "b, , , ", &partition, true, claimSlice},
	} {
		r := wideRig(t, strings.Split(c.leaders, ", ")...)
		r.claims()
		claim := func(wait int64) chan end {
			in := claimAny("q", wait)
			in.Partition = c.partition
			in.Claim = []byte(claimName)
			ended := make(chan end, 1)
			before := r.clock.Armed()
			go func() {
				out, err := r.s.Tasks().ClaimFor(edge.WithCaller(t.Context(), auth.Holder{Principal: auth.Principal{Tenant: "acme"}}), in, c.stay)
				ended <- end{out, err}
			}()
			if wait > 0 {
				apitest.Eventually(t, "it waits: "+c.name, func() bool { return r.clock.Armed() == before+1 })
			}
			return ended
		}
		look := func() {
			n := r.clock.Armed()
			r.clock.Advance(claimSlice)
			apitest.Eventually(t, "it looks again: "+c.name, func() bool { return r.clock.Armed() == n })
		}
		refused := func(e end) bool {
			return edge.Is[core.NotLeader](e.err) || edge.Is[core.Unavailable](e.err)
		}
		if e := <-claim(0); !refused(e) {
			t.Errorf("%s: a claim that does not wait: %v, %v", c.name, e.out, e.err)
		}
		leaders := apitest.LeadersOf(strings.Split(c.leaders, ", ")...)
		goesOn := func() {
			for range int(c.patience/claimSlice) - 1 {
				look()
			}
		}
		ended := claim(60_000)
		goesOn()
		r.n.Lead(nil)
		r.n.Mu.Lock()
		r.n.Ready = map[uint16]bool{0: true}
		r.n.Mu.Unlock()
		r.clock.Advance(claimSlice)
		if e := <-ended; e.err != nil || len(e.out.GetTasks()) != 1 {
			t.Errorf("%s: this node leads now: %v, %v", c.name, e.out, e.err)
		}
		r.n.Lead(leaders)
		ended = claim(60_000)
		goesOn()
		r.clock.Advance(claimSlice)
		if e := <-ended; !refused(e) {
			t.Errorf("%s: no leader came: %v, %v", c.name, e.out, e.err)
		}
		ended = claim(60_000)
		if found, err := r.endClaim("acme/all", claimName); !found || err != nil {
			t.Errorf("%s: its end: %v, %v", c.name, found, err)
		}
		if e := <-ended; e.err != nil || len(e.out.GetTasks()) != 0 {
			t.Errorf("%s: it was ended: %v, %v", c.name, e.out, e.err)
		}
	}
}

func TestAClaimThatHasWaitedLongLooksForTheNextLeaderToo(t *testing.T) {
	partition := uint32(0)
	for name, at := range map[string]*uint32{"any partition": nil, "one partition": &partition} {
		r := wideRig(t, "", "", "", "")
		r.n.OnClaimAt = func(_ context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, error) {
			for left := s.Wait.Duration(); ; left -= claimSlice {
				switch _, _, known := r.n.Leader(p); {
				case !known:
					return nil, core.Unavailable{Reason: "no_leader"}
				case r.n.Backlog(p, nil):
					return []core.Assigned{{Task: core.PlacedID(1e12, p.Index, 4, [9]byte{1}), Token: 2}}, nil
				case left <= 0:
					return nil, nil
				}
				<-r.clock.NewTimer(claimSlice).C()
			}
		}
		armed := r.clock.Armed() + 1
		waits := func() {
			apitest.Eventually(t, "it waits: "+name, func() bool { return r.clock.Armed() == armed })
		}
		ended := make(chan error, 1)
		go func() {
			in := claimAny("q", 60_000)
			in.Partition = at
			out, err := r.tasks().Claim(apitest.As("acme/all"), in)
			if err == nil && len(out.GetTasks()) != 1 {
				err = errors.New("no task")
			}
			ended <- err
		}()
		pass := func(d time.Duration) {
			for range int(d / claimSlice) {
				waits()
				r.clock.Advance(claimSlice)
			}
		}
		pass(2 * leaderPatience)
		r.n.Lead(apitest.LeadersOf("?", "?", "?", "?"))
		pass(leaderPatience - 2*claimSlice)
		waits()
		r.n.Mu.Lock()
		r.n.Ready = map[uint16]bool{0: true}
		r.n.Mu.Unlock()
		r.n.Lead(nil)
		r.clock.Advance(claimSlice)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
