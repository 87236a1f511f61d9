package api

import (
	"context"
	"errors"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const claimName = "0123456789abcdef"

// endClaim ends a claim, and reports whether it waited.
func (r *rig) endClaim(as, name string) (bool, error) {
	out, err := r.tasks().EndClaim(apitest.As(as), &pb.EndClaimRequest{Claim: []byte(name)})
	return out.GetFound(), err
}

// TestANamedClaimIsEnded has claims of the only partition, and of any of several, wait until they are ended by name. Those of another name
// or of another tenant are not.
func TestANamedClaimIsEnded(t *testing.T) {
	for what, make := range map[string]func(t *testing.T) *rig{
		"one partition":      oneSpace,
		"several partitions": func(t *testing.T) *rig { return wideRig(t, "", "", "", "") },
	} {
		t.Run(what, func(t *testing.T) {
			r := make(t)
			waits := false
			r.n.OnClaimAt = func(ctx context.Context, _ core.Partition, _ core.ClaimSpec) ([]core.Assigned, error) {
				r.n.Mu.Lock()
				waits = true
				r.n.Mu.Unlock()
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), core.ErrClaimEnded) {
					return nil, nil
				}
				return nil, core.DeadlineExceeded{}
			}
			ended := goClaim(r, claimName)
			apitest.Eventually(t, "it waits", func() bool {
				r.n.Mu.Lock()
				defer r.n.Mu.Unlock()
				return waits
			})
			for as, name := range map[string]string{"acme/all": "another claim ..", "beta/all": claimName} {
				if found, err := r.endClaim(as, name); found || err != nil {
					t.Errorf("%s ended %q: %v, %v", as, name, found, err)
				}
			}
			if found, err := r.endClaim("acme/all", claimName); !found || err != nil {
				t.Fatalf("ended: %v, %v", found, err)
			}
			if err := <-ended; err != nil {
				t.Fatalf("the claim ended with %v", err)
			}
			if found, err := r.endClaim("acme/all", claimName); found || err != nil {
				t.Errorf("a claim that was answered ended: %v, %v", found, err)
			}
		})
	}
}

// oneSpace is a rig whose tenant has a namespace of one partition.
func oneSpace(t *testing.T) *rig {
	r := newRig(t, edge.Limits{})
	r.n.AddTask(t, "acme", apitest.ID(1))
	return r
}

// goClaim makes a claim that waits for long, and returns how it ends. It takes no task.
func goClaim(r *rig, name string) chan error {
	ended := make(chan error, 1)
	go func() {
		in := claimAny("q", 60_000)
		in.Claim = []byte(name)
		out, err := r.tasks().Claim(apitest.As("acme/all"), in)
		if err == nil && len(out.GetTasks()) > 0 {
			r.t.Errorf("the claim took %v", out)
		}
		ended <- err
	}()
	return ended
}

// TestTheEndOfAClaimIsAskedForWhereItWaits sends a caller to the leader of the claim's partition, and refuses what names no claim.
func TestTheEndOfAClaimIsAskedForWhereItWaits(t *testing.T) {
	r := wideRig(t, "", "", "", "b")
	end := func(name string, partition uint32) error {
		_, err := r.tasks().EndClaim(apitest.As("acme/all"), &pb.EndClaimRequest{Claim: []byte(name), Partition: &partition})
		return err
	}
	if err := end(claimName, 0); err != nil {
		t.Errorf("at a partition that is led here: %v", err)
	}
	if e := apitest.ErrorOf(t, end(claimName, 3)); e.GetCode() != "NOT_LEADER" || e.GetLeader() != "b" {
		t.Errorf("at a partition that is led elsewhere: %v", e)
	}
	for name, partition := range map[string]uint32{"": 0, "short": 0, claimName: 4, string(make([]byte, 16)): 0} {
		want := "claim"
		if name == claimName {
			want = "partition"
		}
		if e := apitest.ErrorOf(t, end(name, partition)); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != want {
			t.Errorf("%q at %d: %v", name, partition, e)
		}
	}
	in := claimAny("q", 0)
	in.Claim = []byte("short")
	if _, err := r.tasks().Claim(apitest.As("acme/all"), in); apitest.ErrorOf(t, err).GetField() != "claim" {
		t.Errorf("a claim of a short name: %v", err)
	}
}
