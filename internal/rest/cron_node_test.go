package rest_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestACronFromItsSettingToItsEnd(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "GET", "/v1/crons", "").want(t, 200)
	d.do(mail, "GET", "/v1/crons/nightly", "").want(t, 404)
	d.do(mail, "DELETE", "/v1/crons/nightly", "").want(t, 404)
	d.do(mail, "POST", "/v1/crons/nightly:trigger", "").want(t, 404)
	body := `{"schedule":"0 2 * * *","zone":"Europe/Berlin","jitter":"10m","overlap":"queue_one","template":{"queue":"reports","payload":{"of":1},"labels":{"a":"b"},"key":"ann","cost":3}}`
	if a := d.do(mail, "PUT", "/v1/crons/nightly", body, "If-Match", `"1"`).want(t, 412); a.text(t, "error", "message") != `"nightly" is not there` {
		t.Errorf("a version of one that is not there: %s", a.body)
	}
	set := d.do(mail, "PUT", "/v1/crons/nightly", body, "If-Match", `"0"`).want(t, 200)
	if next := set.text(t, "next_at"); !strings.HasSuffix(next, ":00:00Z") || set.text(t, "words") != "at 02:00 every day" {
		t.Errorf("set: %s", set.body)
	}
	if local := set.text(t, "next_local"); !strings.Contains(local, "T02:00:00+") { // as the clocks in Berlin show it
		t.Errorf("the next slot there: %s", local)
	}
	got := d.do(mail, "GET", "/v1/crons/nightly", "").want(t, 200)
	if got.text(t, "next_at") != set.text(t, "next_at") || string(got.field(t, "template", "payload")) != `{"of":1}` || got.text(t, "overlap") != "queue_one" {
		t.Errorf("read: %s", got.body)
	}
	if again := d.do(mail, "PUT", "/v1/crons/nightly", body).want(t, 200); again.text(t, "version") != "1" {
		t.Errorf("set again: %s", again.body)
	}
	run := d.do(mail, "POST", "/v1/crons/nightly:trigger", `{"id":"01M8KAWDAZ0004XE500RX81RKH"}`).want(t, 200)
	if run.text(t, "outcome") != "started" || run.text(t, "state") != "ready" || run.text(t, "task") != "01M8KAWDAZ0004XE500RX81RKH" {
		t.Errorf("run by hand: %s", run.body)
	}
	if again := d.do(mail, "POST", "/v1/crons/nightly:trigger", `{"id":"01M8KAWDAZ0004XE500RX81RKH"}`).want(t, 200); again.text(t, "task") != run.text(t, "task") {
		t.Errorf("run by hand again: %s", again.body)
	}
	if second := d.do(mail, "POST", "/v1/crons/nightly:trigger", "").want(t, 200); second.text(t, "outcome") != "waiting" {
		t.Errorf("a second run: %s", second.body)
	}
	d.do(mail, "POST", "/v1/tasks/"+run.text(t, "task")+"/cancel", `{"force":true}`).want(t, 200)
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["reports"],"wait":"30s"}`).want(t, 200)
	if !strings.Contains(string(claimed.body), `"millrace-slot"`) {
		t.Errorf("the run that waited: %s", claimed.body)
	}
	// Its tasks wait in the line of the key that the template names, and weigh what it says.
	if task := d.do(mail, "GET", "/v1/tasks/"+run.text(t, "task"), "").want(t, 200); task.text(t, "key") != "ann" || !strings.Contains(string(task.body), `"cost":3`) {
		t.Errorf("the task of a run: %s", task.body)
	}
	runs := d.do(mail, "GET", "/v1/crons/nightly/runs", "").want(t, 200)
	if got := string(runs.body); runs.text(t, "runs", "[0]", "state") != "running" || !strings.Contains(got, `"state":"cancelled"`) {
		t.Errorf("runs: %s", runs.body)
	}
	d.do(mail, "POST", "/v1/crons/nightly:pause", "").want(t, 200)
	if list := d.do(mail, "GET", "/v1/crons?prefix=night", "").want(t, 200); string(list.field(t, "crons", "[0]", "paused")) != "true" {
		t.Errorf("list: %s", list.body)
	}
	if list := d.do(mail, "GET", "/v1/crons?prefix=x", "").want(t, 200); string(list.field(t, "crons")) != "[]" {
		t.Errorf("list of another prefix: %s", list.body)
	}
	// A list shows as many of the last runs as it is asked for.
	list := d.do(mail, "GET", "/v1/crons?runs=20", "").want(t, 200)
	if got := string(list.field(t, "crons", "[0]", "recent")); strings.Count(got, `"number"`) != 2 || list.text(t, "crons", "[0]", "recent", "[0]", "state") != "running" {
		t.Errorf("the last runs: %s", list.body)
	}
	if began := list.text(t, "crons", "[0]", "recent", "[0]", "began_at"); began == "" || strings.Count(string(list.body), `"ended_at"`) != 1 {
		t.Errorf("the task of the last run began at %q, and that of the one before has ended: %s", began, list.body)
	}
	if one := d.do(mail, "GET", "/v1/crons", "").want(t, 200); strings.Contains(string(one.body), `"recent"`) || one.text(t, "crons", "[0]", "last_run", "state") != "running" {
		t.Errorf("a list that was not asked for runs: %s", one.body)
	}
	for _, many := range []string{"21", "-1", "all"} {
		if a := d.do(mail, "GET", "/v1/crons?runs="+many, "").want(t, 400); a.text(t, "error", "field") != "runs" {
			t.Errorf("%s runs: %s", many, a.body)
		}
	}
	d.do(mail, "POST", "/v1/crons/nightly:resume", "").want(t, 200)
	if a := d.do(mail, "DELETE", "/v1/crons/nightly", "", "If-Match", `"2"`).want(t, 412); a.text(t, "error", "message") != `"nightly" is at version 3` {
		t.Errorf("another version: %s", a.body)
	}
	d.do(mail, "DELETE", "/v1/crons/nightly", "", "If-Match", `"3"`).want(t, 204)
	d.do(mail, "GET", "/v1/crons/nightly/runs", "").want(t, 404)
}

func TestACronThatCannotBeIsRefusedByFieldAndLimit(t *testing.T) {
	d := openDoor(t, mail)
	for body, want := range map[string]string{
		`{"schedule":"@every 1ns","template":{"queue":"q"}}`:                                                         `"field":"schedule","limit":"cron_period"`,
		`{"schedule":"0 0 31 2 *","template":{"queue":"q"}}`:                                                         `"field":"schedule"`,
		`{"schedule":"* * * * * * *","template":{"queue":"q"}}`:                                                      `"field":"schedule"`,
		`{"schedule":"@daily","zone":"Mars/Olympus","template":{"queue":"q"}}`:                                       `"field":"zone"`,
		`{"schedule":"@daily","jitter":"-1s","template":{"queue":"q"}}`:                                              `"field":"jitter"`,
		`{"schedule":"@hourly","jitter":"1h","template":{"queue":"q"}}`:                                              `"field":"jitter","limit":"cron_period"`,
		`{"schedule":"@yearly","jitter":"25h","template":{"queue":"q"}}`:                                             `"field":"jitter","limit":"cron_jitter"`,
		`{"schedule":"@daily","start":"2030-01-02T00:00:00Z","end":"2030-01-01T00:00:00Z","template":{"queue":"q"}}`: `"field":"end"`,
		`{"schedule":"@daily","overlap":"maybe","template":{"queue":"q"}}`:                                           `"field":"overlap"`,
		`{"schedule":"@daily","template":{"queue":"q","id":"x"}}`:                                                    `"field":"template.id"`,
		`{"schedule":"@daily","template":{"queue":"q","priority":10}}`:                                               `"field":"template.priority"`,
		`{"schedule":"@daily","template":{"queue":"q","cost":1000001}}`:                                              `"field":"template.cost","limit":"cost"`,
		`{"schedule":"@daily"}`:      `"field":"template"`,
		`{"template":{"queue":"q"}}`: `"field":"schedule"`,
	} {
		if a := d.do(mail, "PUT", "/v1/crons/n", body).want(t, 400); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s, want %s", body, a.body, want)
		}
	}
	if a := d.do(mail, "GET", "/v1/crons", "").want(t, 200); string(a.field(t, "crons")) != "[]" {
		t.Errorf("crons: %s", a.body)
	}
	if a := d.do(mail, "POST", "/v1/crons:preview", `{"schedule":"@daily","count":101}`).want(t, 400); !strings.Contains(string(a.body), `"field":"count"`) {
		t.Errorf("%s", a.body)
	}
}

func TestTasksOfACronHaveTheKeyAndTheCostOfItsTemplate(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "PUT", "/v1/queues/builds", `{"per_key":{"concurrency":1}}`).want(t, 201)
	body := `{"schedule":"@yearly","overlap":"allow","template":{"queue":"builds","key":"ann","cost":5}}`
	set := d.do(mail, "PUT", "/v1/crons/n", body).want(t, 200)
	if set.text(t, "template", "key") != "ann" || string(set.field(t, "template", "cost")) != "5" {
		t.Errorf("set: %s", set.body)
	}
	run := d.do(mail, "POST", "/v1/crons/n:trigger", "").want(t, 200)
	d.do(mail, "POST", "/v1/crons/n:trigger", "").want(t, 200)
	task := d.do(mail, "GET", "/v1/tasks/"+run.text(t, "task"), "").want(t, 200)
	if task.text(t, "key") != "ann" || string(task.field(t, "cost")) != "5" {
		t.Errorf("task: %s", task.body)
	}
	// Its tasks wait in the line of their key.
	claimed := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["builds"],"max":10}`).want(t, 200)
	if n := strings.Count(string(claimed.body), `"token"`); n != 1 {
		t.Errorf("%d tasks of a key run at once: %s", n, claimed.body)
	}
	// A cost of 1 is that of a template without one.
	d.do(mail, "PUT", "/v1/crons/n", `{"schedule":"@yearly","template":{"queue":"builds","cost":1}}`).want(t, 200)
	if again := d.do(mail, "PUT", "/v1/crons/n", `{"schedule":"@yearly","template":{"queue":"builds"}}`).want(t, 200); again.text(t, "version") != "2" {
		t.Errorf("set again: %s", again.body)
	}
	for template, want := range map[string]string{
		`"key":""`: `"field":"template.key"`,
		`"key":"` + strings.Repeat("k", core.MaxKey+1) + `"`: `"field":"template.key","limit":"key_bytes"`,
		`"key":"a\u0000b"`: `"field":"template.key"`,
		`"cost":1000001`:   `"field":"template.cost","limit":"cost"`,
	} {
		if a := d.do(mail, "PUT", "/v1/crons/n", `{"schedule":"@daily","template":{"queue":"q",`+template+`}}`); a.status < 400 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s, want %s", template, a.body, want)
		}
	}
}

func TestTheKeyOfACronNamesItsPartitionUnlessATagDoes(t *testing.T) {
	d := openDoorOf(t, 3, mail)
	d.do(mail, "POST", "/v1/namespace", `{"partitions":3}`).want(t, 201)
	set := func(template string) string {
		return `{"schedule":"@yearly","template":{"queue":"q",` + template + `}}`
	}
	key := ""
	for i := 0; key == ""; i++ {
		if one := strings.Repeat("x", i+1); core.PlaceText([]byte(one), 3) != core.PlaceCron("n", 3) {
			key = one
		}
	}
	if a := d.do(mail, "PUT", "/v1/crons/n", set(`"key":"`+key+`"`)).want(t, 422); !strings.Contains(string(a.body), `template.key`) {
		t.Errorf("a key of another partition: %s", a.body)
	}
	d.do(mail, "PUT", "/v1/crons/n", set(`"key":"n"`)).want(t, 200)
	d.do(mail, "PUT", "/v1/crons/n", set(`"key":"`+key+`","tag":"n"`)).want(t, 200)
	run := d.do(mail, "POST", "/v1/crons/n:trigger", "").want(t, 200)
	if task := d.do(mail, "GET", "/v1/tasks/"+run.text(t, "task"), "").want(t, 200); task.text(t, "key") != key {
		t.Errorf("task: %s", task.body)
	}
}
