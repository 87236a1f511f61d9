package api

import (
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// BenchmarkCreateFrame is the way of a frame of eight tasks from the decoded message to commits.
func BenchmarkCreateFrame(b *testing.B) {
	s := &Server{shapes: make(shapes)}
	s.shapes.add((&pb.ClientFrame{}).ProtoReflect().Descriptor())
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		b.Fatal(err)
	}
	f := &pb.CreateFrame{}
	for i := range byte(8) {
		f.Tasks = append(f.Tasks, &pb.TaskSpec{Id: apitest.ID(i), Queue: "mail", Payload: []byte(`{"bench":true}`)})
	}
	tr := Translator{l: &l, now: core.ShardTimeOf(apitest.Now)}
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if fact := s.shapes.checkMessage(f); fact != nil {
				b.Fatal(fact)
			}
		}
	})
	b.Run("translate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fact := tr.Creates(s.Answers("", false), f.GetTasks(), false); fact != nil {
				b.Fatal(fact)
			}
		}
	})
}
