package millrace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

// Puts that come one by one while a frame is under way: how many frames of one leave before the others gather.
func TestPutsGatherBehindFramesThatAreUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		answers time.Duration // after which the first frame is answered; 0: there is none
		want    string        // puts in each frame
	}{
		"where answers come fast": {transport.SlowAck - 1, "[1 5]"},
		"where they do not":       {transport.SlowAck, "[1 1 1 1 2]"},
		"where none came yet":     {0, "[1 1 1 1 2]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				cl := f.client()
				defer f.end(cl)
				cl.hub.Learned(1)
				s := cl.KV("ks").Stream()
				put := func(i int) Written { return must(s.Put(t.Context(), fmt.Sprint("k", i), nil)) }
				var st *fakeStream
				frame := func() int {
					p := st.puts()
					time.Sleep(c.answers)
					st.ack(&pb.Ack{Seq: p.Seq, At: &pb.At{Index: 1}, Puts: &pb.PutsResult{FirstRev: 1}})
					return len(p.Items)
				}
				if c.answers > 0 {
					w := put(0)
					st = f.welcome(nil)
					frame()
					must(w.Wait(t.Context()))
				}
				var last Written
				for i := range 6 {
					last = put(1 + i)
					if st == nil {
						st = f.welcome(nil)
					}
					synctest.Wait()
				}
				var got []int
				for sum := 0; sum < 6; {
					got = append(got, frame())
					sum += got[len(got)-1]
				}
				must(last.Wait(t.Context()))
				if fmt.Sprint(got) != c.want {
					t.Errorf("got frames of %v puts, want %s", got, c.want)
				}
			})
		})
	}
}
