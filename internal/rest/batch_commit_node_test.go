package rest_test

import (
	"strings"
	"testing"
)

func TestOpsOfBatchesOverREST(t *testing.T) {
	d := openDoor(t, mail)
	const batch, task = "01M8K9KGQ90040C82Y8BXPZG95", "01M8K9KGRS004Q8RWDC7R84WHG"
	got := string(d.do(mail, "POST", "/v1/commit", `{"ops":[
		{"batch_open":{"id":"`+batch+`","labels":{"env":"test"},"on_done":{"queue":"done","payload":{"of":7}}}},
		{"task_create":{"queue":"q","id":"`+task+`","payload":1,"batch":"`+batch+`"}},
		{"batch_seal":{"id":"`+batch+`"}}]}`).want(t, 200).body)
	if strings.Count(got, `"batch":"`+batch+`"`) != 2 || !strings.Contains(got, `"task":"`+task+`"`) {
		t.Errorf("the commit: %s", got)
	}
	got = string(d.do(mail, "GET", "/v1/batches/"+batch, "").want(t, 200).body)
	for _, part := range []string{`"state":"sealed"`, `"total":1`, `"labels":{"env":"test"}`, `"on_done":{"queue":"done"`, `"of":7`} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is not in %s", part, got)
		}
	}
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"]}`).want(t, 200)
	_, token, _ := strings.Cut(string(claimed.body), `"token":"`)
	token, _, ok := strings.Cut(token, `"`)
	if !ok {
		t.Fatalf("the claim: %s", claimed.body)
	}
	settled := string(d.do(mail, "POST", "/v1/tasks/"+task+"/complete", `{"token":"`+token+`","effects":{"ops":[{"batch_open":{}}]}}`).want(t, 200).body)
	_, made, _ := strings.Cut(settled, `"batch":"`)
	if made, _, ok = strings.Cut(made, `"`); !ok || len(made) != 26 {
		t.Fatalf("the completion: %s", settled)
	}
	d.do(mail, "POST", "/v1/commit", `{"ops":[{"batch_cancel":{"id":"`+made+`","reason":"wrong","rate":5,"force":true}}]}`).want(t, 200)
	if got = string(d.do(mail, "GET", "/v1/batches/"+made, "").want(t, 200).body); !strings.Contains(got, `"state":"finished"`) || !strings.Contains(got, `"reason":"wrong"`) {
		t.Errorf("the cancelled one: %s", got)
	}
	for body, status := range map[string]int{
		`{"batch_seal":{}}`:                                     400,
		`{"batch_seal":{"id":"` + task + `"}}`:                  404,
		`{"batch_open":{"id":"` + batch + `"}}`:                 409,
		`{"batch_open":{"on_done":{"queue":"q","delay":"1s"}}}`: 400,
		`{"batch_cancel":{"id":"` + batch + `","rate":-1}}`:     400,
		`{"batch_cancel":{"id":"` + batch + `"}}`:               409,
	} {
		d.do(mail, "POST", "/v1/commit", `{"ops":[`+body+`]}`).want(t, status)
	}
}
