package rest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTasksAreCancelledOverREST(t *testing.T) {
	d := openDoor(t, mail)
	waiting := "/v1/tasks/" + d.do(mail, "POST", "/v1/tasks", `{"queue":"q","labels":{"env":"prod","order":"7"},"expires_at":"2035-01-01T00:00:00Z"}`).want(t, 201).text(t, "id")
	if got := d.do(mail, "GET", waiting, "").want(t, 200); got.text(t, "labels", "order") != "7" || got.text(t, "expires_at") != "2035-01-01T00:00:00Z" {
		t.Errorf("the task: %s", got.body)
	}
	if got := d.do(mail, "POST", waiting+"/cancel", `{"reason":"twice"}`).want(t, 200); got.text(t, "state") != "cancelled" || string(got.field(t, "replayed")) != "false" {
		t.Errorf("cancel of a task that waits: %s", got.body)
	}
	if got := d.do(mail, "POST", waiting+"/cancel", "").want(t, 200); string(got.field(t, "replayed")) != "true" {
		t.Errorf("the same again: %s", got.body)
	}
	got := d.do(mail, "GET", waiting, "").want(t, 200)
	if got.text(t, "state") != "cancelled" || got.text(t, "cancel", "reason") != "twice" || got.text(t, "cancel", "by") != "someone" {
		t.Errorf("the cancelled task: %s", got.body)
	}

	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	id, token := d.claimOne("q")
	path := "/v1/tasks/" + id
	if got := d.do(mail, "POST", path+"/stop", `{"token":"`+token+`"}`).want(t, 409); got.text(t, "error", "code") != "WRONG_STATE" {
		t.Errorf("a stop without a cancel: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/heartbeat", `{"token":"`+token+`"}`).want(t, 200); strings.Contains(string(got.body), "cancel") {
		t.Errorf("a heartbeat before the cancel: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/cancel", `{"reason":"stop it"}`).want(t, 200); got.text(t, "state") != "running" {
		t.Errorf("cancel of a running task: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/heartbeat", `{"token":"`+token+`"}`).want(t, 200); string(got.field(t, "cancel")) != "true" {
		t.Errorf("a heartbeat after the cancel: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/stop", `{"token":"`+token+`","error":{"code":"stopped"}}`).want(t, 200); got.text(t, "state") != "cancelled" {
		t.Errorf("stop: %s", got.body)
	}
	d.do(mail, "POST", path+"/complete", `{"token":"`+token+`"}`).want(t, 409)
	if got := d.do(mail, "GET", path+"/result?wait=30s", "").want(t, 200); got.text(t, "state") != "cancelled" {
		t.Errorf("result: %s", got.body)
	}

	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	id, token = d.claimOne("q")
	if got := d.do(mail, "POST", "/v1/tasks/"+id+"/cancel", `{"force":true}`).want(t, 200); got.text(t, "state") != "cancelled" {
		t.Errorf("cancel by force: %s", got.body)
	}
	if got := d.do(mail, "POST", "/v1/tasks/"+id+"/complete", `{"token":"`+token+`"}`).want(t, 409); got.text(t, "error", "code") != "LEASE_LOST" {
		t.Errorf("a completion after it: %s", got.body)
	}
	d.do(mail, "POST", "/v1/tasks/"+strings.Repeat("0", 25)+"1/cancel", "").want(t, 404)
}

func TestTasksAreRetriedAndReleasedByForceOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","max_attempts":1}`).want(t, 201)
	id, token := d.claimOne("q")
	path := "/v1/tasks/" + id
	if got := d.do(mail, "POST", path+"/force-release", `{"attempt":2}`).want(t, 409); got.text(t, "error", "code") != "WRONG_STATE" {
		t.Errorf("another attempt: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/force-release", "").want(t, 200); got.text(t, "state") != "ready" {
		t.Errorf("force release: %s", got.body)
	}
	d.do(mail, "POST", path+"/complete", `{"token":"`+token+`"}`).want(t, 409)
	_, token = d.claimOne("q")
	d.do(mail, "POST", path+"/fail", `{"token":"`+token+`"}`).want(t, 200)
	once := []string{"Idempotency-Key", "again-1"}
	if got := d.do(mail, "POST", path+"/retry", "", once...).want(t, 200); got.text(t, "state") != "ready" {
		t.Errorf("retry: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/retry", "", once...).want(t, 200); got.text(t, "state") != "ready" {
		t.Errorf("the same retry again: %s", got.body)
	}
	if got := d.do(mail, "POST", path+"/retry", "").want(t, 409); got.text(t, "error", "code") != "WRONG_STATE" {
		t.Errorf("another retry: %s", got.body)
	}
	got := d.do(mail, "GET", path, "").want(t, 200)
	if string(got.field(t, "redrives")) != "1" || string(got.field(t, "failures")) != "0" || string(got.field(t, "attempt")) != "2" {
		t.Errorf("the task: %s", got.body)
	}
	if _, token = d.claimOne("q"); token == "" {
		t.Error("it is not given out again")
	}
}

func TestTasksAreEditedOverREST(t *testing.T) {
	d := openDoor(t, mail)
	path := "/v1/tasks/" + d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":{"n":1},"labels":{"a":"1"}}`).want(t, 201).text(t, "id")
	edit := func(body string, status int) reply { return d.do(mail, "PATCH", path, body).want(t, status) }
	edit(`{"priority":7,"payload":{"n":9007199254740993},"labels":{"b":"2"}}`, 200)
	got := d.do(mail, "GET", path, "").want(t, 200)
	if string(got.field(t, "payload")) != `{"n":9007199254740993}` || string(got.field(t, "labels")) != `{"b":"2"}` || string(got.field(t, "priority")) != "7" {
		t.Errorf("edited: %s", got.body)
	}
	if got := edit(`{"delay":"1h"}`, 200); got.text(t, "state") != "scheduled" {
		t.Errorf("later: %s", got.body)
	}
	if got := edit(`{"delay":"0s","clear_labels":true,"expires_at":"2035-01-01T00:00:00Z"}`, 200); got.text(t, "state") != "ready" {
		t.Errorf("now: %s", got.body)
	}
	if got := d.do(mail, "GET", path, "").want(t, 200); strings.Contains(string(got.body), "labels") || got.text(t, "expires_at") == "" {
		t.Errorf("after the edits: %s", got.body)
	}
	edit(`{"never_expires":true}`, 200)
	for body, field := range map[string]string{
		`{}`: "", `{"priority":10}`: "priority", `{"run_at":"2030-01-01T00:00:00Z","delay":"1s"}`: "delay", `{"labels":{"":"x"}}`: "labels.",
		`{"labels":{"a":"b"},"clear_labels":true}`: "clear_labels", `{"state":"dead"}`: "state", `{"labels":{"a":1}}`: "labels.a",
		`{"expires_at":"2030-01-01T00:00:00Z","never_expires":true}`: "never_expires",
	} {
		if got := edit(body, 400); field != "" && got.text(t, "error", "field") != field {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	if got := edit(`{"labels":{"a":"`+strings.Repeat("x", 129)+`"}}`, 413); got.text(t, "error", "field") != "labels.a" {
		t.Errorf("a long label: %s", got.body)
	}
	d.claimOne("q")
	if got := edit(`{"priority":1}`, 409); got.text(t, "error", "code") != "WRONG_STATE" {
		t.Errorf("an edit of a running task: %s", got.body)
	}
}

func TestAQueueIsPausedOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/queues/q:pause", "").want(t, 404)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	if got := d.do(mail, "POST", "/v1/queues/q:pause", `{"reason":"deploy"}`).want(t, 200); string(got.field(t, "replayed")) != "false" {
		t.Errorf("pause: %s", got.body)
	}
	if got := d.do(mail, "POST", "/v1/queues/q:pause", `{"reason":"deploy"}`).want(t, 200); string(got.field(t, "replayed")) != "true" {
		t.Errorf("the same again: %s", got.body)
	}
	got := d.do(mail, "GET", "/v1/queues/q/stats", "").want(t, 200)
	if got.text(t, "paused", "reason") != "deploy" || got.text(t, "paused", "by") != "someone" || string(got.field(t, "ready")) != "1" {
		t.Errorf("stats: %s", got.body)
	}
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"]}`).want(t, 204)

	// A claim that waits is served when the queue goes on.
	waits := make(chan reply, 1)
	go func() { waits <- d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"wait":"30s"}`) }()
	d.do(mail, "POST", "/v1/queues/q:resume", "").want(t, 200)
	if got := <-waits; got.status != 200 {
		t.Errorf("the claim that waited: %d %s", got.status, got.body)
	}

	// A time ends a pause.
	d.do(mail, "POST", "/v1/queues/q:pause", `{"until":"`+time.Now().Add(300*time.Millisecond).UTC().Format(time.RFC3339Nano)+`"}`).want(t, 200)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"wait":"30s"}`).want(t, 200)

	// A queue may have a name that ends like the action.
	d.do(mail, "PUT", "/v1/queues/q:pause", `{}`).want(t, 201)
	d.do(mail, "POST", "/v1/queues/q:pause:pause", "").want(t, 200)
	if got := d.do(mail, "GET", "/v1/queues/q:pause/stats", "").want(t, 200); !strings.Contains(string(got.body), "since") {
		t.Errorf("stats: %s", got.body)
	}
	d.do(mail, "POST", "/v1/queues/q:unknown", "").want(t, 405)
}

func TestALimitOfAQueueIsJudgedOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "PUT", "/v1/queues/q", `{"max_tasks":1,"max_bytes":10,"cancel_grace":"0s","default_ttl":"1h","ceilings":{"lease":"10s","priority":5}}`).want(t, 201)
	got := d.do(mail, "GET", "/v1/queues/q", "").want(t, 200)
	if got.text(t, "cancel_grace") != "0s" || got.text(t, "default_ttl") != "3600s" || got.text(t, "ceilings", "lease") != "10s" {
		t.Errorf("the configuration: %s", got.body)
	}
	for body, limit := range map[string]string{
		`{"queue":"q","priority":6}`: "priority", `{"queue":"q","lease":"11s"}`: "lease",
	} {
		if got := d.do(mail, "POST", "/v1/tasks", body).want(t, 400); got.text(t, "error", "field") != limit || got.text(t, "error", "reason") != "ceiling" {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	if got := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":"more than ten"}`).want(t, 429); got.text(t, "error", "limit") != "max_bytes" {
		t.Errorf("too many bytes: %s", got.body)
	}
	made := d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	if got := d.do(mail, "GET", "/v1/tasks/"+made.text(t, "id"), "").want(t, 200); got.text(t, "expires_at") == "" {
		t.Errorf("the default of its queue: %s", got.body)
	}
	if got := d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 429); got.text(t, "error", "limit") != "max_tasks" {
		t.Errorf("too many tasks: %s", got.body)
	}
}

func TestTasksAreFoundOverREST(t *testing.T) {
	d := openDoor(t, mail)
	made := func(body string) string { return d.do(mail, "POST", "/v1/tasks", body).want(t, 201).text(t, "id") }
	id := func(n string) string { return `{"id":"01M0000000` + strings.Repeat("0", 15) + n + `",` }
	first := made(id("1") + `"queue":"q","kind":"send","payload":"secret","labels":{"env":"prod","order":"7"}}`)
	second := made(id("2") + `"queue":"q","kind":"scan","labels":{"env":"prod"},"delay":"1h"}`)
	third := made(id("3") + `"queue":"other","unique":{"key":"k"}}`)
	ids := func(query string) (out []string) {
		t.Helper()
		var page struct {
			Tasks     []struct{ ID string }
			Inspected int
		}
		r := d.do(mail, "GET", "/v1/tasks?"+query, "").want(t, 200)
		if err := json.Unmarshal(r.body, &page); err != nil || strings.Contains(string(r.body), "secret") || page.Inspected == 0 && len(page.Tasks) > 0 {
			t.Fatalf("%s: %s %v", query, r.body, err)
		}
		for _, task := range page.Tasks {
			out = append(out, task.ID)
		}
		return out
	}
	hour := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for query, want := range map[string][]string{
		"order=desc": {third, second, first}, "queue=q&order=desc": {second, first}, "state=scheduled": {second}, "kind=send": {first},
		"label=env%3Dprod": {first, second}, "label=env%3Dprod&label=order%3D7": {first}, "label=env%3Dprod&order=desc&limit=1": {second},
		"unique=k&queue=other": {third}, "from=" + hour: nil, "to=" + hour + "&state=ready": {first, third}, "worker=w": nil, "queue=none": nil,
	} {
		if got := ids(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for query, field := range map[string]string{
		"label=env": "label", "label=%3Dx": "label", "from=today": "from", "order=up": "order", "kind=%2F": "kind", "state=lost": "state", "worker=": "worker",
	} {
		if got := d.do(mail, "GET", "/v1/tasks?"+query, "").want(t, 400); got.text(t, "error", "field") != field {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	some := d.do(mail, "POST", "/v1/tasks:get", `{"ids":["`+third+`","`+strings.Repeat("0", 25)+`1","`+first+`"]}`).want(t, 200)
	if some.text(t, "tasks", "[0]", "id") != third || strings.Count(string(some.body), `"queue"`) != 2 || strings.Contains(string(some.body), "secret") {
		t.Errorf("several tasks: %s", some.body)
	}
	d.do(mail, "POST", "/v1/tasks:get", `{"ids":[]}`).want(t, 400)
	d.do(mail, "POST", "/v1/tasks:get", `{"ids":["`+strings.Repeat(first+`","`, 100)+first+`"]}`).want(t, 413)
}
