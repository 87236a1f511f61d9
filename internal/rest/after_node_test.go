package rest_test

import (
	"strings"
	"testing"
)

func TestTasksWaitForTasksOverREST(t *testing.T) {
	d := openDoor(t, mail)
	const a, b, c = "01M8K9KGQ90040C82Y8BXPZG95", "01M8K9KGRS004Q8RWDC7R84WHG", "01M8K9KGV5007NJ4ZKSRNYVYQZ"
	// Tasks of a batch, and of a commit, name those before them.
	d.do(mail, "POST", "/v1/tasks:batch", `{"tasks":[{"queue":"q","id":"`+a+`","payload":1},{"queue":"q","id":"`+b+`","payload":2,"after":[{"id":"`+a+`"}]}]}`).want(t, 200)
	d.do(mail, "POST", "/v1/commit", `{"ops":[{"task_create":{"queue":"q","id":"`+c+`","payload":3,"after":[{"id":"`+b+`","on":"terminal"},{"id":"`+a+`"}],"on_dep_failure":"run"}}]}`).want(t, 200)
	got := string(d.do(mail, "GET", "/v1/tasks/"+c, "").want(t, 200).body)
	for _, part := range []string{
		`"state":"blocked"`, `"on_dep_failure":"run"`, `"pending":2`,
		`"after":[{"id":"` + a + `","on":"completed","state":"ready","waits":true},{"id":"` + b + `","on":"terminal","state":"blocked","waits":true}]`,
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is not in %s", part, got)
		}
	}
	list := string(d.do(mail, "GET", "/v1/tasks?state=blocked&queue=q", "").want(t, 200).body)
	if strings.Count(list, `"state":"blocked"`) != 2 || strings.Contains(list, `"waits"`) || !strings.Contains(list, `"dependents":1`) {
		t.Errorf("the blocked ones: %s", list)
	}
	if stats := string(d.do(mail, "GET", "/v1/queues/q/stats", "").want(t, 200).body); !strings.Contains(stats, `"blocked":2`) {
		t.Errorf("the queue: %s", stats)
	}
	for body, field := range map[string]string{
		`"after":[{"id":"` + a + `","on":"started"}]`:       "after[0].on",
		`"after":[{"on":"terminal"}]`:                       "after[0].id",
		`"after":["` + a + `"]`:                             "after[0]",
		`"after":[{"id":"` + a + `"}],"on_dep_failure":"x"`: "on_dep_failure",
	} {
		if r := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":1,`+body+`}`).want(t, 400); r.text(t, "error", "field") != field {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	const unknown = "01M8K9KGXW00102KW3AS5XAMFK"
	if r := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":1,"after":[{"id":"`+unknown+`"}]}`).want(t, 404); !strings.Contains(string(r.body), unknown) {
		t.Errorf("an unknown one: %s", r.body)
	}
}
