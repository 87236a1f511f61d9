package load

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// nullKeys acknowledges puts, by streams and by single calls, and keeps none.
type nullKeys struct {
	pb.UnimplementedKVStreamServer
	pb.UnimplementedKVServiceServer

	// rev is the newest revision that was given.
	rev atomic.Uint64

	// keep sees each put with the revision that it gets, before it is acknowledged; it may be nil.
	// It returns the revision that the acknowledgement names: of a frame that of its first put, so
	// that a test can make a server that lies.
	keep func(key, value []byte, rev uint64) uint64
}

// register offers both services at a server.
func (n *nullKeys) register(s *grpc.Server) {
	pb.RegisterKVStreamServer(s, n)
	pb.RegisterKVServiceServer(s, n)
}

// Open serves one stream.
func (n *nullKeys) Open(s grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	st := &nullStream{s: s}
	return st.serve(func(st *nullStream, f *pb.ClientFrame) error {
		puts := f.GetPuts()
		if puts == nil {
			return nil
		}
		// k revisions are taken at once, so that those of a frame follow each other.
		k := uint64(len(puts.Items))
		first := n.rev.Add(k) - k + 1
		// told is the revision of the acknowledgement.
		told := first
		if n.keep != nil {
			for i, item := range puts.Items {
				if rev := n.keep(item.Key, item.Value, first+uint64(i)); i == 0 {
					told = rev
				}
			}
		}
		return st.ack(&pb.Ack{Seq: puts.Seq, At: &pb.At{Index: first}, Puts: &pb.PutsResult{FirstRev: told}})
	})
}

// Put takes one put.
func (n *nullKeys) Put(_ context.Context, r *pb.KVPutRequest) (*pb.KVPutResponse, error) {
	put := r.GetPut()
	if put == nil {
		return nil, status.Error(codes.InvalidArgument, "the put is missing")
	}
	rev := n.rev.Add(1)
	if n.keep != nil {
		rev = n.keep(put.Key, put.Value, rev)
	}
	return &pb.KVPutResponse{Rev: rev, At: &pb.At{Index: rev}}, nil
}
