package session

import (
	"runtime"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// write sends frames until the stream ends or, when the session closes or the server stops, until it has closed its
// side.
//
// Gathering needs no timer. Before each frame the writer yields once: callers that can run add what they have, and it
// joins this frame. A caller that is alone does not wait for others.
func (s *session) write(stream grpc.BidiStreamingClient[millracev1.ClientFrame, millracev1.ServerFrame], quit <-chan struct{}) {
	for {
		runtime.Gosched()
		f, end := s.take()
		switch {
		case f != nil:
			if stream.Send(f) != nil {
				return // the reader learns why
			}
		case end:
			_ = stream.CloseSend() // never fails
			return
		default:
			select {
			case <-s.wake:
			case <-quit:
				return
			}
		}
	}
}

// take makes the next frame; end says that none will follow on this stream.
func (s *session) take() (f *millracev1.ClientFrame, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.goaway {
		return nil, true
	}
	// A new token goes before all work, which the old one may no longer cover.
	if s.auth != nil {
		f = &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Auth{Auth: &millracev1.AuthFrame{Token: *s.auth}}}
		s.auth = nil
		return f, false
	}
	f, out := s.role.next(s.seq + 1)
	if f == nil {
		return nil, s.closing && len(s.frames) == 0 && s.role.idle()
	}
	if out == nil {
		return f, false
	}
	s.seq++
	s.frames[s.seq] = out
	s.hub.Router.Owes(s.endpoint)
	// The frame counts against the window from here to its ack, or to the loss of the stream.
	n := out.size()
	s.used = window{s.used.items + n.items, s.used.bytes + n.bytes, s.used.commits + n.commits}
	if s.sweep == nil {
		s.sweep = time.AfterFunc(retry.ResendFor, s.giveUp)
	}
	return f, false
}
