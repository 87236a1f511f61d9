package fake

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// TestStreamsArePlayed opens streams over a socket: frames go both ways, and each side can end a stream.
func TestStreamsArePlayed(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := Serve(lis)
	defer f.Stop()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	c, st := open(t, f, conn)
	if st.Hello.GetNamespace() != "shop" {
		t.Errorf("the stream said hello by %v", st.Hello)
	}
	if err := st.Send(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: &pb.Welcome{Tenant: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Recv(); err != nil || got.GetWelcome().GetTenant() != "a" {
		t.Errorf("the client got %v, %v", got, err)
	}
	if err := c.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Drain{Drain: &pb.Drain{}}}); err != nil {
		t.Fatal(err)
	}
	if got := <-st.In; got.GetDrain() == nil {
		t.Errorf("the server got %v", got)
	}
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that the client closed ended with %v", err)
	}
	if _, ok := <-st.In; ok {
		t.Error("a frame came after the end")
	}

	c, st = open(t, f, conn)
	fault, err := Fault("PERMISSION_DENIED", "no")
	if err != nil {
		t.Fatal(err)
	}
	st.End(fault)
	st.End(nil) // the first end counts
	if _, err := c.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
	if _, err := Fault("NO_SUCH_CODE", ""); err == nil {
		t.Error("a code that is not known is taken")
	}
}

// open opens a stream and returns both sides of it.
func open(t *testing.T, f *Server, conn grpc.ClientConnInterface) (grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame], *Stream) {
	t.Helper()
	c, err := pb.NewQueueStreamClient(conn).Open(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Namespace: "shop"}}}); err != nil {
		t.Fatal(err)
	}
	return c, <-f.Streams
}
