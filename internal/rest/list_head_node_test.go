package rest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

func TestTasksAreListedWithTheBeginningOfTheirPayloads(t *testing.T) {
	d := openDoor(t, mail)
	long := `{"to":"` + strings.Repeat("é", 200) + `"}` // its 256th byte is in a character
	var ids []string
	for i, payload := range []string{`{"to":"ada"}`, long} {
		// Lists are in the order of ids, and of two that servers make in one millisecond any may be the first.
		id := core.NewTaskID(1e12, 0, [9]byte{byte(i)}).String()
		d.do(mail, "POST", "/v1/tasks", `{"id":"`+id+`","queue":"q","payload":`+payload+`}`).want(t, 201)
		ids = append(ids, id)
	}
	var out struct {
		Tasks []struct {
			ID          string          `json:"id"`
			Payload     json.RawMessage `json:"payload"`
			Head        *string         `json:"head"`
			Head64      []byte          `json:"head_base64"`
			PayloadSize *int            `json:"payload_size"`
		} `json:"tasks"`
	}
	read := func(r reply) {
		t.Helper()
		out.Tasks = nil
		if err := json.Unmarshal(r.want(t, 200).body, &out); err != nil || len(out.Tasks) != 2 || out.Tasks[0].ID != ids[0] {
			t.Fatalf("%s, %v", r.body, err)
		}
	}
	list := `{"ids":["` + strings.Join(ids, `","`) + `"]`
	for what, r := range map[string]reply{
		"a list":            d.do(mail, "GET", "/v1/tasks?head=256", ""),
		"a list of a state": d.do(mail, "GET", "/v1/tasks?queue=q&state=ready&head=256", ""),
		"a batch":           d.do(mail, "POST", "/v1/tasks:get", list+`,"head":256}`),
	} {
		read(r)
		if one := out.Tasks[0]; one.Head == nil || *one.Head != `{"to":"ada"}` || *one.PayloadSize != 12 || one.Payload != nil {
			t.Errorf("%s: the short payload is %s", what, r.body)
		}
		if one := out.Tasks[1]; string(one.Head64) != long[:256] || *one.PayloadSize != len(long) {
			t.Errorf("%s: the long payload is %s", what, r.body)
		}
	}
	for what, r := range map[string]reply{"a list": d.do(mail, "GET", "/v1/tasks", ""), "a batch": d.do(mail, "POST", "/v1/tasks:get", list+`}`)} {
		read(r)
		if one := out.Tasks[0]; one.Head != nil || one.PayloadSize != nil {
			t.Errorf("%s that did not ask: %s", what, r.body)
		}
	}
	for _, head := range []string{"0", "257", "-1", "x", "", "99999999999999999999"} {
		if r := d.do(mail, "GET", "/v1/tasks?head="+head, "").want(t, 400); r.text(t, "error", "field") != "head" {
			t.Errorf("head=%s: %s", head, r.body)
		}
	}
	if r := d.do(mail, "GET", "/v1/tasks?head=257", "").want(t, 400); r.text(t, "error", "limit") != "head_bytes" {
		t.Errorf("head beyond its limit: %s", r.body)
	}
	if r := d.do(mail, "POST", "/v1/tasks:get", list+`,"head":257}`).want(t, 400); r.text(t, "error", "field") != "head" {
		t.Errorf("head of a batch beyond its limit: %s", r.body)
	}
}

func TestAListOfTasksTellsHowFarItCame(t *testing.T) {
	d := openDoor(t, mail)
	for range 3 {
		d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	}
	first := d.do(mail, "GET", "/v1/tasks?limit=2&order=desc", "").want(t, 200)
	var page struct {
		Tasks []struct {
			Created string `json:"created_at"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(first.body, &page); err != nil || len(page.Tasks) != 2 {
		t.Fatalf("%s, %v", first.body, err)
	}
	if got := first.text(t, "reached"); got != page.Tasks[1].Created {
		t.Errorf("a page reached %s, and its last task was created at %s", got, page.Tasks[1].Created)
	}
	rest := d.do(mail, "GET", "/v1/tasks?limit=2&order=desc&cursor="+first.text(t, "cursor"), "").want(t, 200)
	if strings.Contains(string(rest.body), `"reached":"`) {
		t.Errorf("the last page: %s", rest.body)
	}
}

// In a list that goes partition after partition no time says how far it came; in one over all of them the end of its last task does.
func TestAListOverPartitionsTellsHowFarItCameWhereItsOrderIsOne(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		in := &pb.BatchCreateRequest{}
		for i := range 4 * w.parts {
			in.Tasks = append(in.Tasks, &pb.TaskSpec{Queue: "q", Id: w.idIn(uint32(i%w.parts), byte(i+1))})
		}
		if _, err := w.tasks().BatchCreate(w.ctx, in); err != nil {
			t.Fatal(err)
		}
		page, err := w.tasks().List(w.ctx, &pb.ListRequest{Limit: 2})
		if err != nil || page.GetCursor() == "" || (page.GetReached() != nil) != (w.parts == 1) {
			t.Errorf("%d partitions: %v, %v", w.parts, page, err)
		}
		for id, token := range w.claimAll("q", 4*w.parts) {
			if _, err := w.tasks().Settle(w.ctx, &pb.SettleRequest{Items: []*pb.SettleItem{{
				Id: id, Token: token, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}},
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		page, err = w.tasks().List(w.ctx, &pb.ListRequest{Queue: "q", State: pb.State_COMPLETED, Desc: true, Limit: 2})
		if err != nil || len(page.GetTasks()) != 2 || !page.GetReached().AsTime().Equal(page.GetTasks()[1].GetFinishedAt().AsTime().Truncate(time.Millisecond)) {
			t.Errorf("%d partitions: %v, %v", w.parts, page, err)
		}
	})
}
