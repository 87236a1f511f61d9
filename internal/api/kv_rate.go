package api

import (
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Rates of keyspaces, and of all keyspaces of a namespace and of a tenant together, are held by the node. What comes too fast is
// refused here, or waits.

// rated refuses a commit whose puts come too fast. A carried commit goes on to the node that leads its partition.
func (s *Server) rated(c *core.Commit, carried bool) core.Fact {
	if wait, limit := s.o.Backend.TakeRate(c.Partition, c.Ops, carried); wait > 0 {
		return core.RateLimited{Limit: limit, RetryAfter: core.MillisOf(wait)}
	}
	return nil
}

// awaitRate holds a stream's reader while puts come too fast, and tells the client why. So frames with a number stay in order.
func (st *stream) awaitRate(ops []core.Op) {
	told := false
	for {
		wait, limit := st.s.o.Backend.TakeRate(st.part, ops, false)
		if wait == 0 {
			return
		}
		if !told {
			told = true
			st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Throttle{Throttle: &pb.Throttle{
				Limit: limit, RetryAfter: durationpb.New(wait),
			}}}, bytes: frameBytes})
		}
		timer := st.s.o.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-st.ended:
			timer.Stop()
			return
		}
	}
}
