package millrace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// Puts that come one by one while a frame is under way: how many frames of one leave before the others gather.
func TestPutsGatherBehindFramesThatAreUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		answers time.Duration // after which the first frame is answered; 0: there is none
		want    string        // puts in each frame
	}{
		"where answers come fast": {slowAck - 1, "[1 5]"},
		"where they do not":       {slowAck, "[1 1 1 1 2]"},
		"where none came yet":     {0, "[1 1 1 1 2]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				cl := f.client()
				defer f.end(cl)
				cl.learned(1)
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

func TestTheFastestAnswerOfLateTellsWhetherAnswersComeFast(t *testing.T) {
	var p ackPace
	now := time.Now()
	answer := func(took time.Duration) bool {
		now = now.Add(took)
		p.answered(now.Add(-took), now)
		return p.fast()
	}
	if p.fast() {
		t.Error("answers come fast before there is one")
	}
	if answer(slowAck) {
		t.Error("a slow answer was taken for a fast one")
	}
	if !answer(slowAck - 1) {
		t.Error("a fast answer was not seen")
	}
	for range 3 {
		if !answer(time.Second) {
			t.Error("one slow answer hides a recent fast one")
		}
	}
	for since := now; now.Sub(since) < 2*ackWindow; {
		answer(time.Second)
	}
	if p.fast() {
		t.Error("a fast answer counts for good")
	}
}
