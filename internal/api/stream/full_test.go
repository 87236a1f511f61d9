package stream

import (
	"fmt"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// A put that is refused for a limit names it by its ack, is counted, and is not the end of the stream.
func TestLimitsOfKeysAreNamedByAcksAndCounted(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws := r.greetKeys("acme/all")
	number := uint64(0)
	frame := func() *pb.Ack {
		number++
		ws.send(putsFrame(number, number, "k"))
		return ws.ack()
	}
	for _, full := range apitest.FullLimits() {
		r.n.Judge = func(core.Commit) core.Result { return core.Result{Refusal: &core.Refusal{Fact: full}} }
		before := r.s.Stats().Refusals[full.Limit]
		e := frame().GetError()
		message := fmt.Sprintf("limit %s of %d reached", full.Limit, full.Max)
		if e.GetCode() != "RESOURCE_EXHAUSTED" || e.GetLimit() != full.Limit || e.GetMax() != full.Max || e.GetMessage() != message || e.GetOutcome() != pb.Error_REFUSED {
			t.Errorf("%s: %v", full.Limit, e)
		}
		if got := r.s.Stats().Refusals[full.Limit]; got != before+1 {
			t.Errorf("%s: %d refusals are counted, want 1", full.Limit, got-before)
		}
		r.n.Judge = func(core.Commit) core.Result { return core.Result{Ops: []core.OpResult{{Kind: core.OpKVPuts, Rev: 1}}} }
		if e := frame().GetError(); e != nil {
			t.Errorf("after %s: %v", full.Limit, e)
		}
	}
}
