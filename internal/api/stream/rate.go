package stream

import (
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// awaitRate holds a stream's reader while puts come too fast, until the rates have taken them, and tells the client why by one
// Throttle. So frames with a number stay in order: none is refused for its rate while the next is let through.
func (st *stream) awaitRate(ops []core.Op) {
	told := false // the client has its Throttle
	for {
		wait, by := st.d.backend.TakeRate(st.home.Partition, ops, false)
		if wait == 0 { // taken
			return
		}
		if !told {
			told = true
			st.d.backend.CountRefusal(by.Bound)
			st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Throttle{Throttle: &pb.Throttle{
				Limit: by.Limit, RetryAfter: durationpb.New(wait),
			}}}, bytes: frameBytes})
		}
		timer := st.d.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-st.ended:
			timer.Stop()
			return
		}
	}
}
