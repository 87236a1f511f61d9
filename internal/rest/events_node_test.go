package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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
