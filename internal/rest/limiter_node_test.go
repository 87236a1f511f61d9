package rest_test

import (
	"strings"
	"testing"
)

// A limiter is set, obeyed by two queues, shown, explained and removed over REST.
func TestALimiterFromItsSettingToItsEnd(t *testing.T) {
	d := openDoor(t, mail)
	if list := d.do(mail, "GET", "/v1/limiters", "").want(t, 200); string(list.field(t, "limiters")) != "[]" {
		t.Errorf("there is none yet: %s", list.body)
	}
	d.do(mail, "GET", "/v1/limiters/api", "").want(t, 404)
	d.do(mail, "DELETE", "/v1/limiters/api", "").want(t, 404)
	if got := d.do(mail, "POST", "/v1/tasks", `{"queue":"a","limiters":["api"]}`).want(t, 404); !strings.Contains(string(got.body), `limiter \"api\" not found`) {
		t.Errorf("a task of an unknown limiter: %s", got.body)
	}
	d.do(mail, "PUT", "/v1/limiters/api", `{"concurrency":1}`, "If-Match", `"3"`).want(t, 412)
	set := d.do(mail, "PUT", "/v1/limiters/api", `{"concurrency":2,"rate":{"limit":100,"per":"1s"}}`, "If-Match", `"0"`).want(t, 200)
	if set.text(t, "version") != "1" || set.text(t, "rate", "per") != "1s" {
		t.Errorf("set: %s", set.body)
	}
	first := d.do(mail, "POST", "/v1/tasks", `{"queue":"a","limiters":["api","api"]}`).want(t, 201).text(t, "id")
	second := d.do(mail, "POST", "/v1/tasks", `{"queue":"b","cost":2,"limiters":["api"]}`).want(t, 201).text(t, "id")
	if got := d.do(mail, "GET", "/v1/tasks/"+first, "").want(t, 200); string(got.field(t, "limiters")) != `["api"]` {
		t.Errorf("the task: %s", got.body)
	}
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["a"],"worker":"one"}`).want(t, 200)
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["b"],"worker":"one"}`).want(t, 204)
	why := d.do(mail, "GET", "/v1/tasks/"+second+"/why", "").want(t, 200)
	for _, want := range []string{`"code":"limiter"`, `"object":"api"`, `"held_by":["` + first} {
		if !strings.Contains(string(why.body), want) {
			t.Errorf("why has no %s: %s", want, why.body)
		}
	}
	d.do(mail, "PUT", "/v1/queues/c", `{"limiters":["api"]}`).want(t, 201)
	if got := d.do(mail, "GET", "/v1/queues/c", "").want(t, 200); string(got.field(t, "limiters")) != `["api"]` {
		t.Errorf("the configuration: %s", got.body)
	}
	got := d.do(mail, "GET", "/v1/limiters/api", "").want(t, 200)
	for _, want := range []string{`"used":1`, `"tasks":2`, `"held_by":[{"task":"` + first + `","queue":"a"}]`, `"queues":["c"]`} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("the limiter has no %s: %s", want, got.body)
		}
	}
	if got := d.do(mail, "DELETE", "/v1/limiters/api", "").want(t, 409); !strings.Contains(string(got.body), "limiter_in_use") || !strings.Contains(string(got.body), "queue c") {
		t.Errorf("removed while a queue names it: %s", got.body)
	}
	d.do(mail, "PUT", "/v1/queues/c", `{}`).want(t, 200)
	d.do(mail, "DELETE", "/v1/limiters/api", "").want(t, 409)
	d.do(mail, "PUT", "/v1/limiters/api", `{"concurrency":3}`).want(t, 200)
	again := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["b"],"worker":"one"}`).want(t, 200)
	for _, a := range [...]reply{claimed, again} {
		d.do(mail, "POST", "/v1/tasks:settle", `{"items":[{"id":"`+a.text(t, "tasks", "[0]", "id")+`","token":"`+a.text(t, "tasks", "[0]", "token")+`","complete":{}}]}`).want(t, 200)
	}
	d.do(mail, "PUT", "/v1/limiters/other", `{}`).want(t, 200)
	page := d.do(mail, "GET", "/v1/limiters?limit=1", "").want(t, 200)
	if page.text(t, "limiters", "[0]", "name") != "api" || page.text(t, "cursor") == "" {
		t.Errorf("the first page: %s", page.body)
	}
	page = d.do(mail, "GET", "/v1/limiters?limit=1&cursor="+page.text(t, "cursor"), "").want(t, 200)
	if page.text(t, "limiters", "[0]", "name") != "other" {
		t.Errorf("the second page: %s", page.body)
	}
	if page = d.do(mail, "GET", "/v1/limiters?prefix=o", "").want(t, 200); strings.Contains(string(page.body), `"api"`) {
		t.Errorf("those with a prefix: %s", page.body)
	}
	d.do(mail, "DELETE", "/v1/limiters/api", "", "If-Match", `"1"`).want(t, 412)
	d.do(mail, "DELETE", "/v1/limiters/api", "", "If-Match", `"2"`).want(t, 204)
	d.do(mail, "GET", "/v1/limiters/api", "").want(t, 404)
}

// What no limiter can be, and what no task and no queue can name, is refused by field and limit.
func TestALimiterThatCannotBeIsRefusedByFieldAndLimit(t *testing.T) {
	d := openDoor(t, mail)
	for body, want := range map[string]string{
		`{"concurrency":-1}`:                     `"field":"concurrency"`,
		`{"concurrency":1000000001}`:             `"field":"concurrency","limit":"concurrency"`,
		`{"rate":{"limit":0,"per":"1s"}}`:        `"field":"rate.limit"`,
		`{"rate":{"limit":1,"per":"25h"}}`:       `"field":"rate.per","limit":"rate_per_ms"`,
		`{"rate":{"limit":1}}`:                   `"field":"rate.per"`,
		`{"rate":{"limit":1000000,"per":"0ms"}}`: `"field":"rate.per"`,
	} {
		if a := d.do(mail, "PUT", "/v1/limiters/n", body).want(t, 400); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s, want %s", body, a.body, want)
		}
	}
	if a := d.do(mail, "PUT", "/v1/limiters/bad%20name", `{}`).want(t, 400); !strings.Contains(string(a.body), `"field":"name"`) {
		t.Errorf("a bad name: %s", a.body)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		d.do(mail, "PUT", "/v1/limiters/"+name, `{}`).want(t, 200)
	}
	for body, want := range map[string]string{
		`{"queue":"q","limiters":["a","b","c","d","e"]}`: `"field":"limiters","limit":"limiters","max":4`,
		`{"queue":"q","limiters":["a",""]}`:              `"field":"limiters[1]"`,
	} {
		if a := d.do(mail, "POST", "/v1/tasks", body); a.status != 400 && a.status != 413 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	d.do(mail, "PUT", "/v1/queues/q", `{"limiters":["nope"]}`).want(t, 404)
	d.do(mail, "PUT", "/v1/queues/q", `{"limiters":["a","b"]}`).want(t, 201)
	if a := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","limiters":["c","d","e"]}`).want(t, 413); !strings.Contains(string(a.body), `"limit":"limiters","max":4`) {
		t.Errorf("too many with those of the queue: %s", a.body)
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","limiters":["b","c","d"]}`).want(t, 201)
}

// Who waits for tasks of one queue is given one when a task of another queue lets go of the limiter that both need.
func TestAClaimThatWaitsGetsWhatAnotherQueueLetsGo(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "PUT", "/v1/limiters/api", `{"concurrency":1}`).want(t, 200)
	for _, queue := range []string{"a", "b"} {
		d.do(mail, "POST", "/v1/tasks", `{"queue":"`+queue+`","limiters":["api"]}`).want(t, 201)
	}
	id, token := d.claimOne("a")
	got := make(chan reply)
	go func() { got <- d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["b"],"wait":"30s","worker":"w"}`) }()
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["b"],"worker":"w"}`).want(t, 204)
	d.do(mail, "POST", "/v1/tasks/"+id+"/complete", `{"token":"`+token+`"}`).want(t, 200)
	if one := (<-got).want(t, 200); one.text(t, "tasks", "[0]", "queue") != "b" {
		t.Errorf("the claim that waited got %s", one.body)
	}
}
