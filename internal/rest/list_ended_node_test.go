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
