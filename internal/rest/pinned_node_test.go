package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// partitionOf is the partition that the id of a task in an answer names.
func partitionOf(t *testing.T, id string) uint16 {
	t.Helper()
	task, err := core.ParseTaskID(id)
	if err != nil {
		t.Fatal(err)
	}
	return task.Partition()
}

func TestTasksOfAQueueBoundedAsAWholeAreInOnePartition(t *testing.T) {
	d := openDoorOf(t, 3, mail)
	d.do(mail, "POST", "/v1/namespace", `{"partitions":4}`).want(t, 201)
	d.do(mail, "PUT", "/v1/queues/q", `{"concurrency":1}`).want(t, 201)
	if got := d.do(mail, "GET", "/v1/queues/q", "").want(t, 200); !strings.Contains(string(got.body), `"pinned":true`) {
		t.Errorf("the queue: %s", got.body)
	}
	// Of four tags, two keyed and two unkeyed tasks, some would be elsewhere.
	tag := map[uint16]string{}
	for i := 0; len(tag) < 4; i++ {
		text := fmt.Sprint("t", i)
		tag[core.PlaceText([]byte(text), 4)] = text
	}
	for i := range 12 {
		for _, body := range []string{`{"queue":"q"}`, fmt.Sprintf(`{"queue":"q","key":"k%d"}`, i), fmt.Sprintf(`{"queue":"q","unique":{"key":"u%d"}}`, i)} {
			made := d.do(mail, "POST", "/v1/tasks", body).want(t, 201)
			if p := partitionOf(t, made.text(t, "id")); p != core.PinnedPartition {
				t.Fatalf("%s is in partition %d", body, p)
			}
		}
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","tag":"`+tag[0]+`"}`).want(t, 201)
	away := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","tag":"`+tag[2]+`"}`).want(t, 422)
	if away.text(t, "error", "reason") != "queue_pinned" || away.text(t, "error", "details", "partition") != "0" || away.text(t, "error", "details", "queue") != "q" {
		t.Errorf("a tag of another partition: %s", away.body)
	}
	// A commit with a key of another partition, and then one of this.
	commit := `{"ops":[{"kv_put":{"keyspace":"s","key":"{%s}a","value":"MQ=="}},{"task_create":{"queue":"q"}}]}`
	d.do(mail, "POST", "/v1/commit", fmt.Sprintf(commit, tag[1])).want(t, 422)
	d.do(mail, "POST", "/v1/commit", fmt.Sprintf(commit, tag[0])).want(t, 200)

	// One task runs at a time, whichever partition a client asks.
	claim := `{"queues":["q"],"max":8}`
	if got := d.do(mail, "POST", "/v1/tasks:claim", claim).want(t, 200); strings.Count(string(got.body), `"token"`) != 1 {
		t.Errorf("claimed: %s", got.body)
	}
	d.do(mail, "POST", "/v1/tasks:claim", claim).want(t, 204)

	// Batches whose follow-ups are of the queue are opened there, and crons named so.
	for range 8 {
		open := d.do(mail, "POST", "/v1/batches", `{"on_done":{"queue":"q"}}`).want(t, 201)
		if p := partitionOf(t, open.text(t, "batch", "id")); p != core.PinnedPartition {
			t.Fatalf("a batch is in partition %d", p)
		}
	}
	name := ""
	for i := 0; name == ""; i++ {
		if one := fmt.Sprint("nightly", i); core.PlaceCron(one, 4) != core.PinnedPartition {
			name = one
		}
	}
	cron := `{"schedule":"@yearly","template":{"queue":"q","key":"k"}}`
	other := d.do(mail, "PUT", "/v1/crons/"+name, cron).want(t, 422)
	_, fits, _ := strings.Cut(other.text(t, "error", "message"), "such as ")
	if other.text(t, "error", "field") != "name" || !strings.HasPrefix(fits, name+"-") {
		t.Fatalf("a cron of another partition: %s", other.body)
	}
	d.do(mail, "PUT", "/v1/crons/"+fits, cron).want(t, 200)
}
