package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// endWait is how long the handler of a stream may take to end by itself after its token has ended: it may give tasks back. One
// that waits for a client to send, or to take, something is not waited for longer.
const endWait = 5 * time.Second

// held looks after the caller of a method while it runs: once the caller's token has ended, was removed or does not allow the
// method any more, the method's context ends, and the call with it, as Unauthenticated. Every method is served through it.
func (s *Server) held(method string, stream bool, h grpc.StreamHandler) grpc.StreamHandler {
	r := methods[method]
	rights := edge.RightsOf(r, stream)
	return func(impl any, ss grpc.ServerStream) error {
		who, ok := edge.CallerOf(ss.Context())
		if !ok {
			return h(impl, ss) // of a method that takes no token
		}
		call := s.Live.Begin(ss.Context(), who, rights)
		defer call.End()
		if stream {
			over := make(chan struct{})
			defer close(over)
			// Only streams: they may wait for a client for as long as it likes.
			defer context.AfterFunc(call, func() { s.cutOff(call, over) })()
		} // what a unary call waits for is bounded, and its request too
		return edge.Revoked(call, h(impl, &heldStream{ss, call}))
	}
}

// cutOff ends the stream of a call whose token has ended, if its handler does not in time: then the handler is stuck in what it
// sends or receives.
func (s *Server) cutOff(call *auth.Call, over <-chan struct{}) {
	// The context ends with every call; only a token that ended needs anything done.
	raw, ok := grpc.ServerTransportStreamFromContext(call).(transportStream)
	if !call.Revoked() || !ok {
		return
	}
	late := s.o.Clock.NewTimer(endWait)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C():
		_ = raw.WriteStatus(status.Convert(s.Status(call, "", core.Unauthenticated{}))) // a client who is gone needs none
	}
}

// heldStream is a stream under the context of its call.
type heldStream struct {
	grpc.ServerStream
	call *auth.Call
}

// Context returns the call.
func (h *heldStream) Context() context.Context { return h.call }
