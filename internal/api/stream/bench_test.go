package stream

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
)

// BenchmarkStream is eight frames with their acks over a socket, by the size of what is received; the node does nothing.
func BenchmarkStream(b *testing.B) {
	node := apitest.NewNode(new(apitest.Clock))
	s, err := api.New(api.Options{Backend: node, Auth: &apitest.Auth{}})
	if err != nil {
		b.Fatal(err)
	}
	if err := Add(s, node); err != nil {
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
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			ctx, cancel := context.WithCancel(apitest.As("acme/all"))
			defer cancel()
			ws, err := pb.NewQueueStreamClient(conn).Open(ctx)
			if err == nil {
				err = ws.Send(helloOf(byte(size%251 + 1)))
			}
			if err == nil {
				_, err = ws.Recv()
			}
			if err != nil {
				b.Fatal(err)
			}
			<-node.Opened
			f := createFrame(1, 1)
			f.GetCreate().Tasks[0].Payload = make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				for range 8 {
					if err := ws.Send(f); err != nil {
						b.Fatal(err)
					}
				}
				for range 8 {
					if _, err := ws.Recv(); err != nil {
						b.Fatal(err)
					}
				}
				node.Mu.Lock()
				node.Commits = node.Commits[:0]
				node.Mu.Unlock()
			}
		})
	}
}
