package rest_test

import (
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

// Queues of a claim are served in turn. A weight that would say otherwise is refused, by each way in.
func TestAWeightThatIsNotHonouredIsRefused(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"a"}`).want(t, 201)
	for weight, status := range map[string]int{"1": 200, "2": 400, "1000": 400, "1001": 400} {
		r := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["b",{"name":"a","weight":`+weight+`}]}`).want(t, status)
		if status == 400 && (r.text(t, "error", "reason") != "not_supported" || r.text(t, "error", "field") != "queues[1].weight") {
			t.Errorf("weight %s: %s", weight, r.body)
		}
	}
}
