package api

import (
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/env"
)

// BenchmarkReceive is a call over a socket, by the size of what is received; the node does nothing.
func BenchmarkReceive(b *testing.B) {
	node := apitest.NewNode(new(apitest.Clock))
	s, err := New(Options{Backend: node, Auth: &apitest.Auth{}, Clock: env.SystemClock{}})
	if err != nil {
		b.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = conn.Close()
		s.Shutdown(0)
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	for _, size := range []int{100, 100 * kib, mib} {
		b.Run(fmt.Sprintf("call/%d", size), func(b *testing.B) {
			in := &pb.CreateRequest{Task: &pb.TaskSpec{Id: apitest.ID(1), Queue: "q", Payload: make([]byte, size)}}
			ctx := apitest.As("acme/all")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pb.NewTaskServiceClient(conn).Create(ctx, in); err != nil {
					b.Fatal(err)
				}
				node.Mu.Lock()
				node.Commits = node.Commits[:0]
				node.Mu.Unlock()
			}
		})
	}
}
