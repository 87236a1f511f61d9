// Package fake is a server whose streams are played frame by frame: it knows no task and answers nothing of its own accord. Tests use it for
// what a real server does seldom, or never: a frame at a certain moment, an answer that comes twice, a stream that ends in the middle.
package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// Server gives each stream that a client opens to who reads Streams.
type Server struct {
	pb.UnsafeQueueStreamServer
	pb.UnsafeKVStreamServer

	// Streams has the streams that were opened, in the order of their Hello.
	Streams chan *Stream

	srv    *grpc.Server
	served sync.WaitGroup
	stop   func()
}

// Stream is the server's side of one stream.
type Stream struct {
	// Hello is the first frame of the client.
	Hello *pb.Hello
	// In has the frames after it. It is closed when the client has closed its side, or the stream broke.
	In chan *pb.ClientFrame
	// Send sends a frame to the client. It is not safe for concurrent use.
	Send func(f *pb.ServerFrame) error

	ctx  context.Context
	done chan error
}

// Serve serves streams on lis until Stop, which closes lis. register adds the services that a test has besides them.
func Serve(lis net.Listener, register ...func(s grpc.ServiceRegistrar)) *Server {
	f := &Server{Streams: make(chan *Stream, 16), srv: grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)}
	pb.RegisterQueueStreamServer(f.srv, f)
	pb.RegisterKVStreamServer(f.srv, f)
	for _, add := range register {
		add(f.srv)
	}
	f.served.Go(func() { _ = f.srv.Serve(lis) })
	f.stop = sync.OnceFunc(func() {
		f.srv.Stop()
		_ = lis.Close()
		f.served.Wait()
	})
	return f
}

// Stop ends all streams and the server, as a lost connection does. It may be called twice.
func (f *Server) Stop() { f.stop() }

// Open is the method of both kinds of stream.
func (f *Server) Open(s grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	st := &Stream{
		Hello: first.GetHello(), In: make(chan *pb.ClientFrame, 4096), Send: s.Send, ctx: s.Context(), done: make(chan error, 1),
	}
	select {
	case f.Streams <- st:
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
	go st.read(s)
	select {
	case err := <-st.done:
		return err
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
}

// read hands over the frames of the client.
func (st *Stream) read(s grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) {
	defer close(st.In)
	for {
		frame, err := s.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) { // it closed its side: a real server ends the stream well
				st.End(nil)
			}
			return
		}
		select {
		case st.In <- frame:
		case <-st.ctx.Done():
			return
		}
	}
}

// End ends the stream with err; nil ends it well. The first end counts.
func (st *Stream) End(err error) {
	select {
	case st.done <- err:
	default:
	}
}

// Fault is the error of a stream that ends with a code of gRPC, such as UNAVAILABLE.
func Fault(code, message string) (fault, err error) {
	var c codes.Code
	if err := c.UnmarshalJSON(fmt.Appendf(nil, "%q", code)); err != nil {
		return nil, err
	}
	return status.Error(c, message), nil
}
