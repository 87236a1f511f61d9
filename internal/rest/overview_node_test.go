package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/server"
)

// overview is what GET /v1/overview answers, as far as tests look at it.
type overview struct {
	Stamp  string
	At     []map[string]any
	States map[string]uint64
	Slots  struct{ Used, All uint64 }

	QueueCount uint64 `json:"queue_count"`
	Queues     []struct{ Queue string }
	Attention  []struct {
		Kind, Object, Since, Text string
		Count                     uint64
	}
}

func TestAnOverviewIsReadAndFollowed(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	d.do(mail, http.MethodPost, "/v1/namespace", `{"partitions": 3}`).want(t, 201)
	for _, queue := range []string{"mail", "thumb", "thumb"} {
		d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "`+queue+`", "kind": "send", "payload": {}}`).want(t, 201)
	}
	e, status, body := d.listen(mail, "topics=overview", "")
	if e == nil {
		t.Fatal(status, body)
	}
	if got := e.next(); !got.Whole || got.Rows[0]["queue_count"] != 2.0 || len(got.Rows[0]["attention"].([]any)) != 0 {
		t.Errorf("at first: %+v", got)
	}
	d.do(mail, http.MethodPost, "/v1/queues/thumb:pause", `{"reason": "disk"}`).want(t, 200)
	e.until("overview", func(v event) bool { return len(v.Rows) == 1 && len(v.Rows[0]["attention"].([]any)) == 1 })
	var o overview
	if err := json.Unmarshal(d.do(mail, http.MethodGet, "/v1/overview", "").want(t, 200).body, &o); err != nil {
		t.Fatal(err)
	}
	if o.Stamp == "" || len(o.At) != 3 || o.States["ready"] != 3 || o.QueueCount != 2 || len(o.Queues) != 2 || o.Queues[0].Queue != "thumb" {
		t.Errorf("the overview is %+v", o)
	}
	if len(o.Attention) != 1 || o.Attention[0].Kind != "paused_backlog" || o.Attention[0].Object != "thumb" || o.Attention[0].Count != 2 ||
		o.Attention[0].Since == "" || !strings.Contains(o.Attention[0].Text, "someone") {
		t.Errorf("it tells of %+v", o.Attention)
	}
	d.do(mail, http.MethodPost, "/v1/queues/thumb:resume", ``).want(t, 200)
	e.until("overview", func(v event) bool { return len(v.Rows) == 1 && len(v.Rows[0]["attention"].([]any)) == 0 })
	// A namespace that is not there has nothing.
	d.do(mail, http.MethodGet, "/v1/overview?ns=none", "").want(t, 200)
}

func TestAHistoryIsReadFromTheNode(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, http.MethodPost, "/v1/tasks", `{"queue": "mail", "kind": "send", "payload": {}}`).want(t, 201)
	type answer struct {
		Step, From, Node string
		Series           []struct {
			Name   string
			Values []uint32
		}
		Gaps []struct{ First, Steps int }
	}
	read := func(query string) (out answer) {
		t.Helper()
		if err := json.Unmarshal(d.do(mail, http.MethodGet, "/v1/history?"+query, "").want(t, 200).body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	// A sample comes every ten seconds, of all queues and of the node.
	for _, query := range []string{"queue=mail&series=ready", "series=ready", "node=1&series=disk_free_mib", "queue=mail&series=ready&span=24h"} {
		tick := time.NewTicker(50 * time.Millisecond)
		for begun := time.Now(); ; <-tick.C {
			out := read(query)
			s := out.Series[0]
			if last := s.Values[len(s.Values)-1]; last > 0 {
				if out.Node != "n1" || len(out.Gaps) != 1 || out.Gaps[0].First != 0 || out.Gaps[0].Steps < len(s.Values)/2 || out.From == "" {
					t.Errorf("%s: %+v", query, out)
				}
				break
			}
			if time.Since(begun) > 3*time.Minute {
				t.Fatalf("%s: no sample came", query)
			}
		}
		tick.Stop()
	}
	for query, field := range map[string]string{
		"series=none": "series", "series=ready,ready": "series", "series=entries": "series", "span=2h": "span", "queue=a%20b": "queue", "node=x": "node",
		"node=1&queue=mail": "node", "node=1&series=ready": "series",
	} {
		if r := d.do(mail, http.MethodGet, "/v1/history?"+query, "").want(t, 400); !strings.Contains(string(r.body), `"`+field) {
			t.Errorf("%s: %s", query, r.body)
		}
	}
	d.do(mail, http.MethodGet, "/v1/history?node=9", "").want(t, 404)
}

func TestTheClusterIsToldOfToItsOperatorsAlone(t *testing.T) {
	table, err := auth.New(
		auth.Token{Hash: auth.Hash("viewer"), Principal: auth.Principal{Name: "v", Tenant: "acme", Scopes: auth.TaskRead}},
		auth.Token{Hash: auth.Hash("operator"), Principal: auth.Principal{Name: "o", Tenant: "acme", Scopes: auth.TaskRead | auth.TaskCreate | auth.Admin | auth.Cluster}},
		auth.Token{Hash: auth.Hash("soon"), Principal: auth.Principal{Name: "soon", Tenant: "acme", Scopes: auth.TaskRead, Expires: time.Now().Add(time.Hour)}},
		auth.Token{Hash: auth.Hash("others"), Principal: auth.Principal{Name: "others", Tenant: "rival", Scopes: auth.TaskRead, Expires: time.Now().Add(time.Hour)}},
	)
	if err != nil {
		t.Fatal(err)
	}
	d := openDoorTokens(t, server.Options{Shards: 2, Reserve: 1 << 62}, table)
	if _, status, body := d.listen("viewer", "topics=cluster", ""); status != 403 || !strings.Contains(body, `"PERMISSION_DENIED"`) {
		t.Errorf("to a viewer: %d %s", status, body)
	}
	e, status, body := d.listen("viewer", "topics=overview,cluster", "")
	if e == nil {
		t.Fatal(status, body)
	}
	for range 2 {
		if got := e.next(); got.topic == "cluster" && (got.Error.Code != "PERMISSION_DENIED" || len(got.Rows) != 0) || got.topic == "overview" && len(got.Rows) != 1 {
			t.Errorf("next to what a viewer may be told: %+v", got)
		}
	}
	e.stop()
	e, status, body = d.listen("operator", "topics=cluster", "")
	if e == nil {
		t.Fatal(status, body)
	}
	kinds := make(map[string]int)
	for _, row := range e.next().Rows {
		for kind := range row {
			kinds[kind]++
		}
	}
	if kinds["node"] != 1 || kinds["shard"] != 2 || kinds["loss"] != 1 || kinds["cluster"] != 1 {
		t.Errorf("the rows are %v", kinds)
	}
	e.stop()

	// What a viewer is told in the overview is of the tenant; the disk of the node, which is below its reserve, is not.
	attention := func(token string) (out []string) {
		t.Helper()
		var o overview
		if err := json.Unmarshal(d.do(token, http.MethodGet, "/v1/overview", "").want(t, 200).body, &o); err != nil {
			t.Fatal(err)
		}
		for _, a := range o.Attention {
			out = append(out, a.Kind+" "+a.Object)
		}
		return out
	}
	if got := attention("viewer"); len(got) != 0 {
		t.Errorf("a viewer is told of %q", got)
	}
	if got := strings.Join(attention("operator"), ","); got != "disk_low n1,token_ends soon" && got != "token_ends soon,disk_low n1" {
		t.Errorf("an operator is told of %q", got)
	}
}
