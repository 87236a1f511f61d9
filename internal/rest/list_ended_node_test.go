package rest_test

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

func TestEndedTasksOfAllPartitionsAreListedLastFirst(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		in := &pb.BatchCreateRequest{}
		for i := range 40 {
			in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: "q", Id: w.idIn(uint32(i*7%w.parts), byte(i+1))})
		}
		if _, err := w.tasks().BatchCreate(w.ctx, in); err != nil {
			t.Fatal(err)
		}
		for id, token := range w.claimAll("q", 40) {
			if _, err := w.tasks().Settle(w.ctx, &pb.SettleRequest{Items: []*pb.SettleItem{{
				Id: id, Token: token, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}},
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, limit := range []uint32{3, 100} {
			seen := map[string]bool{}
			var last time.Time
			for cursor, pages := "", 0; ; pages++ {
				page, err := w.tasks().List(w.ctx, &pb.ListRequest{Queue: "q", State: pb.State_COMPLETED, Desc: true, Limit: limit, Cursor: cursor})
				if err != nil || len(page.GetTasks()) > int(limit) || pages > 40 {
					t.Fatal(page, err)
				}
				for _, one := range page.GetTasks() {
					if end := one.GetFinishedAt().AsTime(); seen[one.GetId()] || !last.IsZero() && end.After(last) {
						t.Errorf("limit %d: task %s, seen %t, ended %v after %v", limit, one.GetId(), seen[one.GetId()], end, last)
					}
					seen[one.GetId()], last = true, one.GetFinishedAt().AsTime()
				}
				if cursor = page.GetCursor(); cursor == "" {
					break
				}
			}
			if len(seen) != 40 {
				t.Error(fmt.Sprint("limit ", limit, ": ", len(seen), " tasks"))
			}
		}
	})
}

// A list that asks more of each task than its queue and its state has pages too, whatever it asks.
func TestEndedTasksAreListedByWhatTheyHaveInCommonPageByPage(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		in := &pb.BatchCreateRequest{}
		for i := range 12 {
			in.Tasks = append(in.Tasks, &pb.TaskSpec{
				Queue: "q", Kind: "k", Id: w.idIn(uint32(i%w.parts), byte(i+1)), Labels: map[string]string{"env": "prod"},
			})
		}
		if _, err := w.tasks().BatchCreate(w.ctx, in); err != nil {
			t.Fatal(err)
		}
		var one string
		for id, token := range w.claimAll("q", 12) {
			one = id
			if _, err := w.tasks().Settle(w.ctx, &pb.SettleRequest{Items: []*pb.SettleItem{{
				Id: id, Token: token, Outcome: &pb.SettleItem_Fail{Fail: &pb.Fail{Fatal: true, Error: &pb.TaskError{Code: "E"}}},
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		read, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: one})
		if err != nil || read.GetTask().GetFingerprint() == "" {
			t.Fatal(read, err)
		}
		for what, ask := range map[string]*pb.ListRequest{
			"fingerprint": {Fingerprint: read.GetTask().GetFingerprint()}, "kind": {Kind: "k"}, "label": {Label: []string{"env=prod"}},
			"from": {From: read.GetTask().GetCreatedAt()},
		} {
			ask.Queue, ask.State, ask.Desc, ask.Limit = "q", pb.State_DEAD, true, 2
			seen := map[string]bool{}
			for pages := 0; ; pages++ {
				page, err := w.tasks().List(w.ctx, ask)
				if err != nil || pages > 40 {
					t.Fatalf("%s: %v, %v", what, page, err)
				}
				for _, one := range page.GetTasks() {
					seen[one.GetId()] = true
				}
				if ask.Cursor = page.GetCursor(); ask.Cursor == "" {
					break
				}
			}
			if len(seen) != 12 && what != "from" || len(seen) == 0 {
				t.Errorf("%s: %d tasks", what, len(seen))
			}
		}
	})
}
