package rest

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// starvedListener accepts nothing at first, as while too many files are open.
type starvedListener struct {
	net.Listener
	left  atomic.Int64 // failures to come
	cause syscall.Errno
}

func (l *starvedListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: os.NewSyscallError("accept4", l.cause)}
	}
	return l.Listener.Accept()
}

func newStarvedListener(t *testing.T, cause syscall.Errno) *starvedListener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &starvedListener{Listener: lis, cause: cause}
	l.left.Store(4) // each is followed by a pause that doubles, from 5 ms
	return l
}

// Both edges go on accepting after they could not for a while: a process with too many open files gets rid of some.
func TestListenersGoOnAfterTooManyOpenFiles(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		r := newRig(t, edge.Limits{})
		web, native := newStarvedListener(t, cause), newStarvedListener(t, cause)
		served := make(chan error, 2)
		go func() { served <- frontOf(t, r).Serve(web, nil) }()
		go func() { served <- r.s.Serve(native) }()
		resp, err := http.Get("http://" + web.Addr().String() + "/v1/openapi.json")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v: REST: %v, %v", cause, resp, err)
		}
		_ = resp.Body.Close()
		conn, err := grpc.NewClient(native.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pb.NewServerServiceClient(conn).Status(apitest.As("acme/all"), &pb.StatusRequest{}); err != nil {
			t.Errorf("%v: gRPC: %v", cause, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		r.s.Shutdown(0)
		for range 2 {
			if err := <-served; err != nil {
				t.Errorf("%v: %v", cause, err)
			}
		}
	}
}
