package stream

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func benchReader(l *edge.Limits) wireReader {
	return wireReader{l: l, shares: func() bool { return true }, home: homeOf(core.Partition{Tenant: 3, Namespace: 2}, 1), principal: "p"}
}

// free gives a frame's buffer back, as gRPC does when it is sent.
func free(o *api.Encoded) { mem.DefaultBufferPool().Put(&o.B) }

// BenchmarkWireRead reads plain frames of eight items the short way.
func BenchmarkWireRead(b *testing.B) {
	creates, settles, puts := new(pb.CreateFrame), new(pb.SettleFrame), &pb.PutsFrame{Keyspace: "ks", CommitSeq: 1}
	for i := range byte(8) {
		creates.Tasks = append(creates.Tasks, &pb.TaskSpec{Id: apitest.ID(i + 1), Queue: "mail", Kind: "send", Payload: []byte(`{"bench":true}`), ContentType: "application/json"})
		settles.Items = append(settles.Items, &pb.SettleItem{Id: apitest.ID(i + 1), Token: 9, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{Result: []byte("ok")}}})
		puts.Items = append(puts.Items, &pb.PutItem{Key: []byte{'k', i}, Value: []byte("value")})
	}
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]*pb.ClientFrame{
		"creates": {Frame: &pb.ClientFrame_Create{Create: creates}}, "settles": {Frame: &pb.ClientFrame_Settle{Settle: settles}},
		"puts": {Frame: &pb.ClientFrame_Puts{Puts: puts}},
	} {
		raw, err := proto.Marshal(f)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			r := benchReader(&l)
			b.ReportAllocs()
			for b.Loop() {
				if f := r.read(raw); f.kind == 0 {
					b.Fatal("not plain")
				}
			}
		})
	}
}

// BenchmarkWireWrite writes plain acks of eight items, and eight assigned tasks, the short way.
func BenchmarkWireWrite(b *testing.B) {
	d := core.Proposed{At: core.At{Partition: 1, Index: 1 << 30, Stamp: core.ShardTimeOf(apitest.Now)}}
	for range 8 {
		d.Results = append(d.Results, core.Result{Ops: []core.OpResult{{Kind: core.OpTaskCreate, Task: core.TaskID{1, 2}, State: core.Completed}}})
	}
	puts := core.Proposed{At: d.At, Results: []core.Result{{Ops: []core.OpResult{{Kind: core.OpKVPuts, Rev: 1 << 30}}}}}
	tasks := apitest.AssignedTasks(8, 100)
	for name, c := range map[string]struct {
		p *pending
		d core.Proposed
	}{
		"creates": {&pending{seq: 9, wire: frameCreate, commits: 8}, d}, "settles": {&pending{seq: 9, wire: frameSettle, commits: 8}, d},
		"puts": {&pending{seq: 9, wire: framePuts, commits: 1}, puts},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !c.p.plain(c.d) {
					b.Fatal("not plain")
				}
				free(c.p.wireAck(c.d))
			}
		})
	}
	b.Run("assign", func(b *testing.B) {
		now := core.ShardTimeOf(apitest.Now)
		b.ReportAllocs()
		for b.Loop() {
			free(wireAssign(1, tasks, now))
		}
	})
}
