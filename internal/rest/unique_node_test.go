package rest_test

import (
	"bytes"
	"testing"
)

// An Idempotency-Key names a request, and a unique key a task: one text may be both. Another kind, time or priority is
// another request.
func TestAnIdempotencyKeyNamesARequestAndIsNoUniqueKey(t *testing.T) {
	d := openDoor(t, mail)
	header := func(body string) reply {
		return d.do(mail, "POST", "/v1/tasks", body, "Idempotency-Key", "order-7")
	}
	first := header(`{"queue":"q","payload":1}`).want(t, 201).text(t, "id")
	unique := `{"queue":"q","payload":1,"unique":{"key":"order-7"}}`
	other := d.do(mail, "POST", "/v1/tasks", unique).want(t, 201).text(t, "id")
	if other == first {
		t.Error("a unique key is answered with the task of an Idempotency-Key")
	}
	if again := header(`{"queue":"q","payload":1}`).want(t, 200); again.text(t, "id") != first || string(again.field(t, "payload_matches")) != "true" {
		t.Errorf("the request again: %s", again.body)
	}
	if again := d.do(mail, "POST", "/v1/tasks", unique).want(t, 200); again.text(t, "id") != other || string(again.field(t, "payload_matches")) != "true" {
		t.Errorf("the unique key again: %s", again.body)
	}
	for name, fields := range map[string]string{
		"payload": `"payload":2`, "kind": `"payload":1,"kind":"other"`, "priority": `"payload":1,"priority":9`,
		"delay": `"payload":1,"delay":"1h"`, "run_at": `"payload":1,"run_at":"2030-01-01T00:00:00Z"`,
		"max_attempts": `"payload":1,"max_attempts":2`, "lease": `"payload":1,"lease":"30s"`, "max_run": `"payload":1,"max_run":"30s"`,
		"retry": `"payload":1,"retry":{"backoff":"fixed"}`, "headers": `"payload":1,"headers":[{"name":"a","value":"b"}]`,
		"content_type": `"payload_base64":"MQ==","content_type":"text/plain"`,
	} {
		r := header(`{"queue":"q",`+fields+`}`).want(t, 409)
		if r.text(t, "error", "code") != "ALREADY_EXISTS" {
			t.Errorf("another %s: %s", name, r.body)
		}
	}
	if r := header(`{"queue":"another","payload":1}`).want(t, 201); r.text(t, "id") == first {
		t.Errorf("the same key in another queue: %s", r.body)
	}
}

// A unique key answers with its task, and tells whether what was asked for is what the task was made with: by each way in.
func TestAUniqueKeyTellsWhetherAnotherTaskWasAskedFor(t *testing.T) {
	d := openDoor(t, mail)
	matches := func(r reply, path ...string) string { return string(r.field(t, path...)) }
	spec := func(fields string) string {
		return `{"queue":"q","payload":1,"unique":{"key":"k"}` + fields + `}`
	}
	d.do(mail, "POST", "/v1/tasks", spec("")).want(t, 201)
	for fields, want := range map[string]string{
		"": "true", `,"kind":"q"`: "true", `,"priority":0`: "true", `,"kind":"other"`: "false", `,"priority":3`: "false", `,"delay":"1s"`: "false", `,"max_attempts":9`: "false",
	} {
		if r := d.do(mail, "POST", "/v1/tasks", spec(fields)).want(t, 200); matches(r, "payload_matches") != want {
			t.Errorf("a create with %s: %s", fields, r.body)
		}
		if r := d.do(mail, "POST", "/v1/tasks:batch", `{"tasks":[`+spec(fields)+`]}`).want(t, 200); matches(r, "results", "[0]", "payload_matches") != want {
			t.Errorf("a batch with %s: %s", fields, r.body)
		}
		if r := d.do(mail, "POST", "/v1/commit", `{"ops":[{"task_create":`+spec(fields)+`}]}`).want(t, 200); (matches(r, "results", "[0]", "payload_matches") == "true") != (want == "true") {
			t.Errorf("a commit with %s: %s", fields, r.body)
		}
	}
	// How long the key is taken, and what a second create is told, is not what the task is.
	if r := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":1,"unique":{"key":"k","ttl":"1h"}}`).want(t, 200); matches(r, "payload_matches") != "true" {
		t.Errorf("another window: %s", r.body)
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":1,"unique":{"key":"k","on_conflict":"reject"}}`).want(t, 409)
}

// A unique key is free once its task has started or ended, where the create says so. A create that replaces says what it did, by each way
// in.
func TestAUniqueKeyIsFreedAndItsTaskReplaced(t *testing.T) {
	d := openDoor(t, mail)
	spec := func(payload, unique string) string {
		return `{"queue":"q","payload":` + payload + `,"delay":"1h","unique":{"key":"k",` + unique + `}}`
	}
	start, replace := `"until":"start"`, `"until":"start","on_conflict":"replace"`
	first := d.do(mail, "POST", "/v1/tasks", spec("1", start)).want(t, 201).text(t, "id")
	if r := d.do(mail, "POST", "/v1/tasks", spec("2", start)).want(t, 200); r.text(t, "id") != first || string(r.field(t, "replayed")) != "true" {
		t.Errorf("a second create: %s", r.body)
	}
	is := func(payload string) {
		t.Helper()
		if r := d.do(mail, "GET", "/v1/tasks/"+first, "").want(t, 200); string(r.field(t, "payload")) != payload {
			t.Errorf("the task: %s", r.body)
		}
	}
	if r := d.do(mail, "POST", "/v1/tasks", spec("2", replace)).want(t, 200); r.text(t, "id") != first || string(r.field(t, "replaced")) != "true" || string(r.field(t, "replayed")) != "false" {
		t.Errorf("a create that replaces: %s", r.body)
	}
	is("2")
	if r := d.do(mail, "POST", "/v1/tasks:batch", `{"tasks":[`+spec("3", replace)+`]}`).want(t, 200); string(r.field(t, "results", "[0]", "replaced")) != "true" {
		t.Errorf("a batch that replaces: %s", r.body)
	}
	is("3")
	if r := d.do(mail, "POST", "/v1/commit", `{"ops":[{"task_create":`+spec("4", replace)+`}]}`).want(t, 200); string(r.field(t, "results", "[0]", "replaced")) != "true" {
		t.Errorf("a commit that replaces: %s", r.body)
	}
	is("4")
	d.do(mail, "POST", "/v1/tasks/"+first+"/cancel", `{}`).want(t, 200)
	if r := d.do(mail, "POST", "/v1/tasks", spec("5", `"until":"terminal"`)).want(t, 201); r.text(t, "id") == first {
		t.Errorf("a create of a freed key: %s", r.body)
	}
	for unique, field := range map[string]string{`"until":"never"`: "unique.until", `"on_conflict":"merge"`: "unique.on_conflict"} {
		if r := d.do(mail, "POST", "/v1/tasks", spec("6", unique)).want(t, 400); r.text(t, "error", "field") != field {
			t.Errorf("%s: %s", unique, r.body)
		}
	}
}

// A queue of dead letters gets a copy of what dies, and a redrive can move and patch what died.
func TestDeadTasksAreCopiedMovedAndPatched(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "PUT", "/v1/queues/q", `{"max_attempts":1,"dead_letter":"grave"}`).want(t, 201)
	if r := d.do(mail, "GET", "/v1/queues/q", "").want(t, 200); r.text(t, "dead_letter") != "grave" {
		t.Errorf("the queue: %s", r.body)
	}
	if r := d.do(mail, "PUT", "/v1/queues/grave", `{"dead_letter":"q"}`).want(t, 400); r.text(t, "error", "field") != "dead_letter" {
		t.Errorf("letters that lead back: %s", r.body)
	}
	id := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":{"n":1.50,"to":"x"}}`).want(t, 201).text(t, "id")
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"]}`).want(t, 200)
	d.do(mail, "POST", "/v1/tasks/"+id+"/fail", `{"token":"`+claimed.text(t, "tasks", "[0]", "token")+`","error":{"code":"E","message":"bad"}}`).want(t, 200)
	letter := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["grave"]}`).want(t, 200)
	want := `[{"name":"millrace-dead-task","value":"` + id + `"},{"name":"millrace-dead-queue","value":"q"},{"name":"millrace-dead-reason","value":"max_attempts"},{"name":"millrace-dead-error","value":"E: bad"}]`
	if string(letter.field(t, "tasks", "[0]", "headers")) != want {
		t.Errorf("the copy: %s", letter.body)
	}
	redrive := `{"to_queue":"later","patch":{"to":null,"by":7}}`
	if r := d.do(mail, "POST", "/v1/queues/q:redrive", `{"dry_run":true,"to_queue":"later","patch":{"to":null}}`).want(t, 200); string(r.field(t, "found", "count")) != "1" {
		t.Errorf("a dry run: %s", r.body)
	}
	if r := d.do(mail, "POST", "/v1/queues/q:redrive", redrive).want(t, 202); r.text(t, "job", "to_queue") != "later" || string(r.field(t, "job", "patch")) != `{"to":null,"by":7}` {
		t.Errorf("the job: %s", r.body)
	}
	moved := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["later"],"wait":"30s"}`).want(t, 200)
	if moved.text(t, "tasks", "[0]", "id") != id || moved.text(t, "tasks", "[0]", "kind") != "q" || string(moved.field(t, "tasks", "[0]", "payload")) != `{"n":1.50,"by":7}` {
		t.Errorf("the task that moved: %s", moved.body)
	}
	for body, field := range map[string]string{
		`{"action":"cancel","to_queue":"a"}`: "to_queue", `{"action":"delete","patch":{}}`: "patch", `{"action":"retry","to_queue":"not a name"}`: "to_queue",
		`{"action":"retry","patch":[1]}`: "patch",
	} {
		if r := d.do(mail, "POST", "/v1/bulk", body).want(t, 400); r.text(t, "error", "field") != field {
			t.Errorf("%s: %s", body, r.body)
		}
	}
}

// What a claim says of its queues is held to its bounds, and honoured within them.
func TestWeightsAndOrderOfAClaim(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"a"}`).want(t, 201)
	for body, field := range map[string]string{
		`{"queues":["b",{"name":"a","weight":1001}]}`:            "queues[1].weight",
		`{"queues":["b",{"name":"b","weight":2}]}`:               "queues[1].name",
		`{"queues":["b","b"],"strict":true}`:                     "queues[1].name",
		`{"queues":["b",{"name":"a","weight":2}],"strict":true}`: "strict",
	} {
		if r := d.do(mail, "POST", "/v1/tasks:claim", body).want(t, 400); r.text(t, "error", "field") != field {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	for _, body := range []string{`{"queues":["b",{"name":"a","weight":1000}]}`, `{"queues":["b","a"],"strict":true}`} {
		d.do(mail, "POST", "/v1/tasks", `{"queue":"a"}`).want(t, 201)
		if r := d.do(mail, "POST", "/v1/tasks:claim", body).want(t, 200); !bytes.Contains(r.body, []byte(`"queue":"a"`)) {
			t.Errorf("%s: %s", body, r.body)
		}
	}
}
