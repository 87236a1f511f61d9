package rest_test

import (
	"strings"
	"testing"
)

// The limits of a queue and of its keys are set, obeyed, shown and explained over REST.
func TestLimitsOfAQueueAndOfItsKeysOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "PUT", "/v1/queues/q", `{"concurrency":3,"per_key":{"concurrency":1,"rate":{"limit":100,"per":"1m"}},"rate":{"limit":1000,"per":"1s","burst":50},"max_workers":1}`).want(t, 201)
	got := d.do(mail, "GET", "/v1/queues/q", "").want(t, 200)
	if got.text(t, "per_key", "rate", "per") != "60s" || !strings.Contains(string(got.body), `"max_workers":1`) {
		t.Errorf("the configuration: %s", got.body)
	}
	var ids []string
	for _, key := range []string{`"key":"ann",`, `"key":"ann",`, `"key":"bob",`, ""} {
		ids = append(ids, d.do(mail, "POST", "/v1/tasks", `{"queue":"q",`+key+`"cost":2}`).want(t, 201).text(t, "id"))
	}
	if got := d.do(mail, "GET", "/v1/tasks/"+ids[0], "").want(t, 200); got.text(t, "key") != "ann" || !strings.Contains(string(got.body), `"cost":2`) {
		t.Errorf("the task: %s", got.body)
	}
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"max":10,"worker":"one"}`).want(t, 200)
	if n := strings.Count(string(claimed.body), `"token"`); n != 3 {
		t.Errorf("%d tasks are given out: %s", n, claimed.body)
	}
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"max":10,"worker":"one"}`).want(t, 204)
	why := d.do(mail, "GET", "/v1/tasks/"+ids[1]+"/why", "").want(t, 200)
	for _, want := range []string{`"lane_limit"`, `"queue_limit"`, ids[0], ids[3]} { // the last one holds up the queue alone
		if !strings.Contains(string(why.body), want) {
			t.Errorf("why has no %s: %s", want, why.body)
		}
	}
	list := d.do(mail, "GET", "/v1/queues/q/keys?sort=backlog", "").want(t, 200)
	for _, want := range []string{`"key":"ann"`, `"waits_for":"concurrency"`, `"held_by":["` + ids[0], `"key":"bob"`} {
		if !strings.Contains(string(list.body), want) {
			t.Errorf("keys have no %s: %s", want, list.body)
		}
	}
	// Three run: one of ann, one of bob and one without a key. What waits is of ann alone, so that all that is given out next is due to it.
	for _, want := range []string{
		`"limit":1,"weight":1,"share":0.333`, `"due":1`, `"due":0`,
		`"unkeyed":{"key":"","tasks":1,"ready":0,"running":1`, `"use":{"running":3,`, `"workers":1,"waiting_keys":1,"held_keys":1}`,
	} {
		if !strings.Contains(string(list.body), want) {
			t.Errorf("keys have no %s: %s", want, list.body)
		}
	}
	if first := d.do(mail, "GET", "/v1/queues/q/keys?sort=oldest", "").want(t, 200); first.text(t, "keys", "[0]", "key") != "ann" {
		t.Errorf("the longest ready first: %s", first.body)
	}
	if byName := d.do(mail, "GET", "/v1/queues/q/keys?prefix=a", "").want(t, 200); strings.Contains(string(byName.body), `"due"`) || strings.Contains(string(byName.body), `"unkeyed"`) || strings.Contains(string(byName.body), `"waiting_keys"`) {
		t.Errorf("a list that did not look at all keys tells of all: %s", byName.body)
	}
	if got := d.do(mail, "GET", "/v1/queues/q/keys?sort=newest", "").want(t, 400); got.text(t, "error", "field") != "sort" {
		t.Errorf("another order: %s", got.body)
	}
	d.do(mail, "PUT", "/v1/queues/q/keys/ann", `{"weight":3,"concurrency":2}`).want(t, 200)
	d.do(mail, "POST", "/v1/queues/q/keys/a%2Fb:pause", `{"reason":"holiday"}`).want(t, 200)
	list = d.do(mail, "GET", "/v1/queues/q/keys?limit=2", "").want(t, 200)
	if !strings.Contains(string(list.body), `"key":"a/b"`) || !strings.Contains(string(list.body), "holiday") || list.text(t, "cursor") == "" {
		t.Errorf("keys: %s", list.body)
	}
	list = d.do(mail, "GET", "/v1/queues/q/keys?limit=2&cursor="+list.text(t, "cursor"), "").want(t, 200)
	if !strings.Contains(string(list.body), `"key":"bob"`) || strings.Contains(string(list.body), `"key":"ann"`) {
		t.Errorf("the second page: %s", list.body)
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","key":"a/b"}`).want(t, 201)
	d.do(mail, "POST", "/v1/queues/q/keys/a%2Fb:resume", "").want(t, 200)
	for body, field := range map[string]string{
		`{"queue":"q","key":"` + strings.Repeat("k", 129) + `"}`: "key", `{"queue":"q","cost":1000001}`: "cost",
	} {
		if got := d.do(mail, "POST", "/v1/tasks", body); got.status != 400 && got.status != 413 || got.text(t, "error", "field") != field {
			t.Errorf("%.40s: %d %s", body, got.status, got.body)
		}
	}
	if got := d.do(mail, "PUT", "/v1/queues/q", `{"rate":{"limit":5,"per":"0s"}}`).want(t, 400); got.text(t, "error", "field") != "rate.per" {
		t.Errorf("a rate in no time: %s", got.body)
	}
	d.do(mail, "PUT", "/v1/queues/unknown/keys/ann", `{"weight":3}`).want(t, 404)
}
