package rest_test

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/server"
)

// startServer returns a connection to a whole server, and a context with its token.
func startServer(t *testing.T) (context.Context, *grpc.ClientConn) {
	t.Helper()
	s, err := server.StartDev(server.DevOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(0); err != nil {
			t.Error(err)
		}
	})
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.Token), conn
}

func TestKeysAndValuesAreAnyBytesAndAReadAtAnAcknowledgementReturnsThem(t *testing.T) {
	ctx, conn := startServer(t)
	commits, kv := pb.NewCommitServiceClient(conn), pb.NewKVServiceClient(conn)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	keys := [][]byte{
		{0},
		{0, 0},
		[]byte("a\x00b"), []byte("/"), []byte("a/b"), []byte("//"), []byte("../.."), []byte("%"), []byte("%00"),
		[]byte("%2F"),
		{0xff},
		{0xff, 0xff, 0},
		[]byte("a\xffb"),
		{0x7f, 0x80},
		[]byte(" "), []byte("\r\n"), every,
	}
	acked := make([]*pb.CommitResponse, len(keys))
	for i, key := range keys {
		value := append([]byte{0, 0xff}, key...)
		op := &pb.Op{Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "odd", Key: key, Value: value}}}
		var err error
		if acked[i], err = commits.Commit(ctx, &pb.CommitRequest{Ops: []*pb.Op{op}}); err != nil {
			t.Fatalf("put %q: %v", key, err)
		}
		read(ctx, t, kv, key, value, acked[i])
	}
	for i, key := range keys { // later writes have touched none of them
		read(ctx, t, kv, key, append([]byte{0, 0xff}, key...), acked[i])
	}
	for _, key := range keys {
		op := &pb.Op{Op: &pb.Op_KvDelete{KvDelete: &pb.KVDelete{Keyspace: "odd", Key: key}}}
		out, err := commits.Commit(ctx, &pb.CommitRequest{Ops: []*pb.Op{op}})
		if err != nil || !out.GetResults()[0].GetExisted() {
			t.Errorf("delete %q: %v, err %v", key, out, err)
			continue
		}
		got, err := kv.Get(ctx, &pb.KVGetRequest{Keyspace: "odd", Key: key, MinIndex: out.GetAt().GetIndex()})
		if err != nil || got.GetFound() {
			t.Errorf("get %q after its delete: %v, err %v", key, got, err)
		}
	}
}

// read wants a key to hold value at the place where its write was acknowledged, or later.
func read(ctx context.Context, t *testing.T, kv pb.KVServiceClient, key, value []byte, acked *pb.CommitResponse) {
	t.Helper()
	index := acked.GetAt().GetIndex()
	got, err := kv.Get(ctx, &pb.KVGetRequest{Keyspace: "odd", Key: key, MinIndex: index})
	if err != nil || !bytes.Equal(got.GetValue(), value) || !got.GetFound() || got.GetRev() != acked.GetResults()[0].GetRev() {
		t.Errorf("get %q at %d: %v, err %v", key, index, got, err)
	}
	if index == 0 || got.GetAt().GetIndex() < index {
		t.Errorf("get %q: acknowledged at %d, read at %d", key, index, got.GetAt().GetIndex())
	}
}
