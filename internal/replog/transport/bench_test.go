package transport_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// BenchmarkMessages sends messages from one node to another over loopback as fast as the queue takes them. messages/write
// tells how many left together.
func BenchmarkMessages(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, size := range []int{128, 4 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("tls=%v/size=%d", secure, size), func(b *testing.B) {
				r := newRig(b)
				if secure {
					r.ca = newAuthority(b)
				}
				r.net = nil
				var got atomic.Int64
				wake := make(chan struct{}, 1)
				x := r.start(r.options(1), nil)
				y := r.start(r.options(2), func(transport.NodeID, core.ShardID, []byte) {
					if got.Add(1)%64 == 0 {
						select {
						case wake <- struct{}{}:
						default:
						}
					}
				})
				r.join(x, y)
				eventually(b, "connection", func() bool { return x.connected(b, 2) })
				msg := make([]byte, size)
				b.SetBytes(int64(size))
				sent := int64(0)
				for b.Loop() {
					for !x.Send(2, transport.Bulk, 1, msg) {
						<-wake
					}
					sent++
				}
				eventually(b, "all messages", func() bool { return got.Load() == sent })
				s := x.Stats().Bulk
				b.ReportMetric(float64(s.SentMessages)/float64(s.Writes), "messages/write")
				b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkRoundTrip sends a control message and waits for the answer to it.
func BenchmarkRoundTrip(b *testing.B) {
	for _, secure := range []bool{false, true} {
		b.Run(fmt.Sprintf("tls=%v", secure), func(b *testing.B) {
			r := newRig(b)
			if secure {
				r.ca = newAuthority(b)
			}
			r.net = nil
			back := make(chan struct{}, 1)
			x := r.start(r.options(1), func(transport.NodeID, core.ShardID, []byte) { back <- struct{}{} })
			var y atomic.Pointer[node]
			n := r.start(r.options(2), func(_ transport.NodeID, shard core.ShardID, msg []byte) {
				y.Load().Send(1, transport.Control, shard, msg)
			})
			y.Store(n)
			r.join(x, n)
			eventually(b, "connection", func() bool { return x.connected(b, 2) && n.connected(b, 1) })
			msg := make([]byte, 100)
			for b.Loop() {
				x.Send(2, transport.Control, 1, msg)
				<-back
			}
		})
	}
}
