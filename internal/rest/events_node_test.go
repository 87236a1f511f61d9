package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/server"
)

// event is one server-sent event.
type event struct {
	id, topic string
	Topic     string           `json:"topic"`
	Whole     bool             `json:"whole"`
	Rows      []map[string]any `json:"rows"`
	Gone      []string         `json:"gone"`
	Error     struct{ Code string }
	At        []map[string]any `json:"at"`
}

// events is an open stream of events.
type events struct {
	t      *testing.T
	header http.Header
	lines  *bufio.Scanner
	stop   func()
}

// listen opens a stream of events; status is that of a refusal, and 0 for an open stream.
func (d *door) listen(tenant, query, last string) (e *events, status int, body string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"/v1/events?"+query, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tenant)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		defer resp.Body.Close() //nolint:errcheck // it was read
		for lines.Scan() {
			body += lines.Text()
		}
		return nil, resp.StatusCode, body
	}
	e = &events{d.t, resp.Header, lines, func() { cancel(); _ = resp.Body.Close() }}
	d.t.Cleanup(e.stop)
	return e, 0, ""
}

// next reads the next event.
func (e *events) next() (out event) {
	e.t.Helper()
	for e.lines.Scan() {
		name, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch name {
		case "id":
			out.id = value
		case "event":
			out.topic = value
		case "data":
			if err := json.Unmarshal([]byte(value), &out); err != nil {
				e.t.Fatal(err)
			}
			if out.Topic != out.topic {
				e.t.Errorf("event %s has data of %s", out.topic, out.Topic)
			}
			return out
		}
	}
	e.t.Fatalf("the stream has ended: %v", e.lines.Err())
	return out
}

// until reads events of a topic until one satisfies ok.
func (e *events) until(topic string, ok func(event) bool) event {
	e.t.Helper()
	for {
		if got := e.next(); got.topic == topic && ok(got) {
			return got
		}
	}
}

func TestEventsTellWhatChangesInANamespaceOfTheTenantAlone(t *testing.T) {
	d := openDoorOf(t, 2, "one", "two")
	d.do("one", http.MethodPost, "/v1/namespace?ns=wide", `{"partitions": 3}`).want(t, 201)
	var id string
	for _, tenant := range []string{"one", "two"} {
		for _, ns := range []string{"default", "wide"} {
			if tenant == "two" && ns == "wide" {
				continue
			}
			for range 6 {
				id = d.do(tenant, http.MethodPost, "/v1/tasks?ns="+ns, `{"queue": "mail", "kind": "send", "payload": {}}`).want(t, 201).text(t, "id")
			}
		}
	}
	e, status, body := d.listen("one", "ns=wide&topics=overview,queues,queue:mail", "")
	if e == nil {
		t.Fatal(status, body)
	}
	if got := e.header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	if e.header.Get("X-Accel-Buffering") != "no" || e.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", e.header)
	}
	seen := map[string]bool{}
	var last string
	for len(seen) < 3 {
		got := e.next()
		seen[got.topic], last = true, got.id
		if !got.Whole || len(got.Rows) == 0 || len(got.At) != 3 {
			t.Errorf("first event of %s: whole %t, %d rows, at %v", got.topic, got.Whole, len(got.Rows), got.At)
		}
		counts := got.Rows[0]
		if got.topic == "overview" {
			counts, _ = counts["states"].(map[string]any)
		}
		if counts["ready"] != 6.0 {
			t.Errorf("%s: %v", got.topic, got.Rows[0])
		}
	}
	made := d.do("one", http.MethodPost, "/v1/tasks?ns=wide", `{"queue": "later", "kind": "send", "payload": {}}`).want(t, 201).text(t, "id")
	// The rates of the other queue may change at the same time: they are those of the last ten seconds.
	isNew := func(v event) bool {
		return slices.ContainsFunc(v.Rows, func(row map[string]any) bool { return row["queue"] == "later" })
	}
	if got := e.until("queues", isNew); got.Whole {
		t.Errorf("a new queue: %+v", got)
	}
	e.stop()
	// It goes on after the last event that came.
	e, _, _ = d.listen("one", "ns=wide&topics=overview,queues,queue:mail", last)
	if got := e.until("queues", isNew); got.Whole {
		t.Errorf("after it came back: %+v", got)
	}
	e.stop()

	e, _, _ = d.listen("one", "ns=wide&topics=task:"+made, "")
	first := e.next()
	if first.Rows[0]["state"] != "ready" || first.Rows[0]["payload"] != nil {
		t.Errorf("a task: %v", first.Rows)
	}
	d.do("one", http.MethodPost, "/v1/tasks/"+made+"/cancel?ns=wide", ``).want(t, 200)
	e.until("task:"+made, func(v event) bool { return len(v.Rows) == 1 && v.Rows[0]["state"] == "cancelled" })
	d.do("one", http.MethodDelete, "/v1/tasks/"+made+"?ns=wide", ``).want(t, 200)
	e.until("task:"+made, func(v event) bool { return len(v.Rows) == 0 && len(v.Gone) == 1 && v.Gone[0] == made })

	// What is another tenant's, or in another namespace, is not there.
	for _, query := range []string{"topics=queue:later", "topics=task:" + id + "&ns=wide", "topics=queue:mail&ns=none"} {
		if _, status, body := d.listen("two", query, ""); status != 404 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	e, _, _ = d.listen("two", "topics=queues&ns=none", "")
	if got := e.next(); !got.Whole || len(got.Rows) != 0 {
		t.Errorf("a namespace that is not there: %+v", got)
	}
}

// The other topics are told of all the same, and what is not there comes without rows and without an id.
func TestEventsTellOfTheOtherTopicsWhereOneIsNotThere(t *testing.T) {
	d := openDoor(t, "two")
	made := d.do("two", http.MethodPost, "/v1/tasks", `{"queue": "mail", "kind": "send", "payload": {}}`).want(t, 201).text(t, "id")
	d.do("two", http.MethodPost, "/v1/tasks/"+made+"/cancel", ``).want(t, 200)
	d.do("two", http.MethodDelete, "/v1/tasks/"+made, ``).want(t, 200)
	d.do("two", http.MethodPost, "/v1/tasks", `{"queue": "mail", "kind": "send", "payload": {}}`).want(t, 201)
	e, status, body := d.listen("two", "topics=task:"+made+",queues,queue:later", "")
	if e == nil {
		t.Fatal(status, body)
	}
	absent := map[string]bool{}
	for {
		got := e.next()
		if got.topic == "queues" {
			if !got.Whole || len(got.Rows) != 1 || got.Rows[0]["queue"] != "mail" || got.Error.Code != "" || got.id == "" {
				t.Errorf("the topic that is there: %+v", got)
			}
			break
		}
		absent[got.topic] = true
		if !got.Whole || got.Rows == nil || len(got.Rows) != 0 || got.Error.Code != "NOT_FOUND" || got.id != "" {
			t.Errorf("a topic of what is not there: %+v", got)
		}
	}
	if len(absent) != 2 {
		t.Errorf("not there are %v", absent)
	}
}

func TestEventsTellOfWorkersAndOfJobsAboutManyTasks(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	d.do(mail, http.MethodPost, "/v1/namespace", `{"partitions": 3}`).want(t, 201)
	for range 9 {
		d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "mail", "kind": "send", "payload": {}}`).want(t, 201)
	}
	e, status, body := d.listen(mail, "topics=workers", "")
	if e == nil {
		t.Fatal(status, body)
	}
	if got := e.next(); !got.Whole || len(got.Rows) != 0 {
		t.Errorf("before any worker: %+v", got)
	}
	d.do(mail, http.MethodPost, "/v1/tasks:claim", `{"queues": ["mail"], "worker": "w-1", "max": 1}`).want(t, 200)
	got := e.until("workers", func(v event) bool { return len(v.Rows) == 1 && v.Rows[0]["running"] == 1.0 })
	if got.Rows[0]["id"] != "w-1" {
		t.Errorf("a worker: %+v", got)
	}
	e.stop()

	id := d.do(mail, http.MethodPost, "/v1/bulk", `{"action": "cancel", "filter": {"queue": "mail"}, "rate": 4}`).want(t, 202).text(t, "job", "id")
	if e, status, body = d.listen(mail, "topics=bulk:"+id, ""); e == nil {
		t.Fatal(status, body)
	}
	if got := e.next(); !got.Whole || len(got.Rows) != 1 || got.Rows[0]["id"] != id || len(got.At) != 3 {
		t.Errorf("a job: %+v", got)
	}
	e.until("bulk:"+id, func(v event) bool { return len(v.Rows) == 1 && v.Rows[0]["state"] == "done" })
	if _, status, body := d.listen(mail, "ns=other&topics=bulk:"+id, ""); status != 404 {
		t.Errorf("a job of another namespace: %d %s", status, body)
	}
}

// What is set changes the rows of its topic, what runs does too, and of what tasks are made of no payload is told.
func TestEventsTellOfCronsLimitersAndBatches(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	d.do(mail, http.MethodPost, "/v1/namespace", `{"partitions": 3}`).want(t, 201)
	e, status, body := d.listen(mail, "topics=crons,limiters", "")
	if e == nil {
		t.Fatal(status, body)
	}
	for range 2 {
		if got := e.next(); !got.Whole || len(got.Rows) != 0 || len(got.At) != 3 {
			t.Errorf("before there is any: %+v", got)
		}
	}
	one := func(field string, want any) func(event) bool {
		return func(v event) bool { return len(v.Rows) == 1 && v.Rows[0][field] == want }
	}
	d.do(mail, http.MethodPut, "/v1/limiters/api", `{"concurrency": 2}`).want(t, 200)
	e.until("limiters", one("name", "api"))
	d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "calls", "limiters": ["api"]}`).want(t, 201)
	e.until("limiters", one("tasks", 1.0))
	d.do(mail, http.MethodPost, "/v1/tasks:claim", `{"queues": ["calls"], "worker": "w-1"}`).want(t, 200)
	if got := e.until("limiters", one("used", 1.0)); got.Rows[0]["held_by"] != nil {
		t.Errorf("a list does not tell who holds a limiter: %v", got.Rows[0])
	}

	for _, name := range []string{"b", "a"} {
		d.do(mail, http.MethodPut, "/v1/crons/"+name, `{"schedule": "@yearly", "template": {"queue": "reports", "payload": {"secret": 1}}}`).want(t, 200)
	}
	d.do(mail, http.MethodPost, "/v1/crons/a:trigger", ``).want(t, 200)
	got := e.until("crons", func(v event) bool {
		return slices.ContainsFunc(v.Rows, func(row map[string]any) bool { return row["name"] == "a" && row["runs"] == 1.0 })
	})
	at := slices.IndexFunc(got.Rows, func(row map[string]any) bool { return row["name"] == "a" })
	run, _ := got.Rows[at]["last_run"].(map[string]any)
	template, _ := got.Rows[at]["template"].(map[string]any)
	if run["by_hand"] != true || template["queue"] != "reports" || template["payload"] != nil {
		t.Errorf("a cron: %v", got.Rows[at])
	}
	d.do(mail, http.MethodDelete, "/v1/crons/b", ``).want(t, 204)
	e.until("crons", func(v event) bool { return len(v.Gone) == 1 && v.Gone[0] == "b" })
	e.stop()

	id := d.do(mail, http.MethodPost, "/v1/batches", `{"on_done": {"queue": "reports", "payload": {"secret": 1}}}`).want(t, 201).text(t, "batch", "id")
	if e, status, body = d.listen(mail, "topics=batch:"+id, ""); e == nil {
		t.Fatal(status, body)
	}
	first := e.next()
	follow, _ := first.Rows[0]["on_done"].(map[string]any)
	if first.Rows[0]["state"] != "open" || follow["queue"] != "reports" || follow["payload"] != nil || len(first.At) != 1 {
		t.Errorf("a batch: %+v", first)
	}
	d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "import", "batch": "`+id+`"}`).want(t, 201)
	e.until("batch:"+id, func(v event) bool {
		counts, _ := v.Rows[0]["counts"].(map[string]any)
		return counts["waiting"] == 1.0
	})
	d.do(mail, http.MethodPost, "/v1/batches/"+id+":seal", ``).want(t, 200)
	e.until("batch:"+id, one("state", "sealed"))
	if _, status, body := d.listen(mail, "ns=other&topics=batch:"+id, ""); status != 404 {
		t.Errorf("a batch of another namespace: %d %s", status, body)
	}
}

func TestEventsRefuseWhatIsNoTopic(t *testing.T) {
	d := openDoor(t, "one")
	for query, want := range map[string]string{
		"":                   "topics",
		"topics=nothing":     "topics",
		"topics=queue:":      "topics",
		"topics=queue:a%20":  "topics",
		"topics=queue:a%0Ab": "topics",
		"topics=task:x":      "topics",
		"topics=queues,":     "topics",
		"topics=workers:a":   "topics",
		"topics=cluster:a":   "topics",
		"topics=bulk:b1":     "topics",
		"topics=batch:b1":    "topics",
		"topics=batch":       "topics",
		"topics=crons:a":     "topics",
		"topics=limiters:a":  "topics",
		"topics=queues&x=1":  "unknown_field",
	} {
		if _, status, body := d.listen("one", query, ""); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", query, status, body)
		}
	}
}

func TestStreamsOfEventsAndTheirTopicsAreBounded(t *testing.T) {
	d := openDoorWith(t, server.Options{Shards: 1, Limits: edge.Limits{EventStreamsTenant: 1, EventStreamsNode: 2, EventTopics: 2}}, "one", "two", "three")
	refused := func(tenant, query, limit string, want int) {
		t.Helper()
		if _, status, body := d.listen(tenant, query, ""); status != want || !strings.Contains(body, `"`+limit+`"`) {
			t.Errorf("%s %s: %d %s", tenant, query, status, body)
		}
	}
	refused("one", "topics=queues,overview,queue:mail", "event_topics", 413)
	first, _, _ := d.listen("one", "topics=queues,overview", "")
	first.next()
	refused("one", "topics=queues", "event_streams_tenant", 429)
	second, _, _ := d.listen("two", "topics=queues", "")
	second.next()
	refused("three", "topics=queues", "event_streams_node", 503)
	first.stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		if e, _, _ := d.listen("three", "topics=queues", ""); e != nil {
			e.next()
			return
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the place of a stream that has ended is still taken")
		}
	}
}

// A page shows what is of all queues next to what is of one: a token of some queues is told of theirs.
func TestEventsTellATokenOfSomeQueuesWhatIsOfThese(t *testing.T) {
	table, err := auth.New(
		auth.Token{Hash: auth.Hash("all"), Principal: auth.Principal{Name: "all", Tenant: mail, Scopes: auth.All}},
		auth.Token{Hash: auth.Hash("web"), Principal: auth.Principal{Name: "web", Tenant: mail, Scopes: auth.All, Queues: []string{"web*"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	d := openDoorTokens(t, server.Options{}, table)
	ids := make(map[string]string)
	for _, queue := range []string{"web", "bank"} {
		ids[queue] = d.do("all", http.MethodPost, "/v1/tasks", `{"queue": "`+queue+`"}`).want(t, 201).text(t, "id")
	}
	mine := d.do("web", http.MethodPost, "/v1/batches", `{"on_done": {"queue": "web"}}`).want(t, 201).text(t, "batch", "id")
	other := d.do("all", http.MethodPost, "/v1/batches", `{"on_done": {"queue": "bank"}}`).want(t, 201).text(t, "batch", "id")

	refused := map[string]string{
		"overview": "PERMISSION_DENIED", "queues": "PERMISSION_DENIED", "queue:bank": "PERMISSION_DENIED",
		"task:" + ids["bank"]: "NOT_FOUND", "batch:" + other: "NOT_FOUND",
	}
	told := []string{"queue:web", "task:" + ids["web"], "batch:" + mine}
	topics := slices.Concat(told, slices.Sorted(maps.Keys(refused)))
	e, status, body := d.listen("web", "topics="+strings.Join(topics, ","), "")
	if status != 0 {
		t.Fatalf("%d %s", status, body)
	}
	for seen := make(map[string]bool); len(seen) < len(topics); {
		got := e.next()
		seen[got.topic] = true
		code := refused[got.topic]
		if got.Error.Code != code || (code == "") != (len(got.Rows) == 1) || code == "" && !slices.Contains(told, got.topic) {
			t.Errorf("%s: %+v, want the error %q", got.topic, got, code)
		}
	}
	d.do("all", http.MethodPost, "/v1/tasks", `{"queue": "web"}`).want(t, 201)
	e.until("queue:web", func(v event) bool { return len(v.Rows) == 1 })

	for topic, want := range map[string]string{"queues,crons": "PERMISSION_DENIED", "queue:bank": "PERMISSION_DENIED", "task:" + ids["bank"]: "NOT_FOUND"} {
		if _, status, body := d.listen("web", "topics="+topic, ""); status/100 != 4 || !strings.Contains(body, want) {
			t.Errorf("%s alone: %d %s", topic, status, body)
		}
	}
}
