package rest_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/server"
)

// door is the REST side of a whole server, with an admin's token for each tenant.
type door struct {
	t      *testing.T
	base   string
	grpc   string // address of the other door
	client *http.Client
}

func openDoor(t *testing.T, tenants ...string) *door { return openDoorOf(t, 1, tenants...) }

// openDoorOf is openDoor of a server with that number of shards.
func openDoorOf(t *testing.T, shards int, tenants ...string) *door {
	t.Helper()
	return openDoorWith(t, server.Options{Shards: shards}, tenants...)
}

// openDoorWith is openDoor of a server with options of its own.
func openDoorWith(t *testing.T, o server.Options, tenants ...string) *door {
	t.Helper()
	var tokens []auth.Token
	for _, tenant := range tenants {
		p := auth.Principal{Name: "someone", Tenant: tenant, Scopes: auth.All}
		tokens = append(tokens, auth.Token{Hash: auth.Hash(tenant), Principal: p})
	}
	table, err := auth.New(tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return openDoorTokens(t, o, table)
}

// openDoorTokens is openDoor of a server with options and tokens of its own.
func openDoorTokens(t *testing.T, o server.Options, table *auth.Static) *door {
	t.Helper()
	o.Dir, o.Listen, o.Admin, o.Tokens, o.Durability, o.Memory = t.TempDir(), "127.0.0.1:0", "off", table, server.None, 128<<20
	o.Reserve = cmp.Or(o.Reserve, 16<<20)
	s, err := server.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.Close(0); err != nil {
			t.Error(err)
		}
	})
	return &door{t, "http://" + s.HTTPAddress, s.Address, &http.Client{Transport: transport}}
}

// reply is what a request got.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (d *door) do(tenant, method, path, body string, more ...string) reply {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tenant)
	for i := 0; i < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		d.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, b}
}

// want ends the test unless the status is that.
func (r reply) want(t *testing.T, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %.500s", r.status, status, r.body)
	}
	return r
}

// field returns a field of the body as it was written.
func (r reply) field(t *testing.T, path ...string) json.RawMessage {
	t.Helper()
	b := json.RawMessage(r.body)
	for _, name := range path {
		if name == "[0]" {
			var list []json.RawMessage
			if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 {
				t.Fatalf("%s: no first element: %v", b, err)
			}
			b = list[0]
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		b = m[name]
	}
	return b
}

func (r reply) text(t *testing.T, path ...string) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(r.field(t, path...), &s); err != nil {
		t.Fatalf("%v is not text: %s", path, r.body)
	}
	return s
}

const mail = "acme"

// claimOne claims the one task that is ready and returns its id and token.
func (d *door) claimOne(queue string) (id, token string) {
	d.t.Helper()
	r := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["`+queue+`"],"wait":"30s","worker":"w"}`).want(d.t, 200)
	return r.text(d.t, "tasks", "[0]", "id"), r.text(d.t, "tasks", "[0]", "token")
}

func TestATaskGoesItsWayOverREST(t *testing.T) {
	d := openDoor(t, mail)
	made := d.do(mail, "POST", "/v1/tasks", `{"queue":"mail","payload":{"to":"a"},"headers":[{"name":"traceparent","value":"00-1"}]}`).want(t, 201)
	id := made.text(t, "id")
	if got := made.header.Get("Location"); got != "/v1/tasks/"+id {
		t.Errorf("Location %q", got)
	}
	index := made.text(t, "index")
	if got := made.header.Get("Millrace-Index"); got != "0/0/"+index {
		t.Errorf("Millrace-Index %q, index %s", got, index)
	}
	path := "/v1/tasks/" + id
	if got := d.do(mail, "GET", path+"?min_index="+index, "").want(t, 200).text(t, "state"); got != "ready" {
		t.Errorf("a new task is %s", got)
	}
	claimed, token := d.claimOne("mail")
	if claimed != id {
		t.Fatalf("claimed %s, made %s", claimed, id)
	}
	d.do(mail, "POST", path+"/heartbeat", `{"token":"`+token+`","extend":"2m"}`).want(t, 200).text(t, "lease_until")
	if got := d.do(mail, "POST", path+"/heartbeat", `{"token":"99"}`).want(t, 409).text(t, "error", "code"); got != "LEASE_LOST" {
		t.Errorf("a heartbeat of a stale token: %s", got)
	}
	if got := d.do(mail, "GET", path+"/result", "").want(t, 200); string(got.field(t, "done")) != "false" || got.text(t, "state") != "running" {
		t.Errorf("before the end: %s", got.body)
	}
	effects := `{"ops":[{"kv_put":{"keyspace":"sent","key":"` + id + `","value":"yes"}},{"task_create":{"queue":"audit","payload":[1]}}]}`
	done := d.do(mail, "POST", path+"/complete", `{"token":`+token+`,"result":{"sent":true},"effects":`+effects+`}`).want(t, 200)
	if done.text(t, "state") != "completed" || string(done.field(t, "replayed")) != "false" || done.text(t, "effects", "[0]", "rev") == "" {
		t.Errorf("complete: %s", done.body)
	}
	again := d.do(mail, "POST", path+"/complete", `{"token":`+token+`,"result":{"sent":true}}`).want(t, 200)
	if string(again.field(t, "replayed")) != "true" {
		t.Errorf("the same again: %s", again.body)
	}
	if got := d.do(mail, "POST", path+"/fail", `{"token":"99"}`).want(t, 409).text(t, "error", "code"); got != "LEASE_LOST" {
		t.Errorf("another end: %s", got)
	}
	ended := d.do(mail, "GET", path, "").want(t, 200)
	if string(ended.field(t, "result")) != `{"sent":true}` || string(ended.field(t, "payload")) != `{"to":"a"}` || ended.text(t, "headers", "[0]", "value") != "00-1" {
		t.Errorf("the task: %s", ended.body)
	}
	key := d.do(mail, "GET", "/v1/kv/sent/keys/"+id, "").want(t, 200)
	if string(key.body) != "yes" || key.header.Get("Millrace-Rev") == "" || key.header.Get("Content-Type") != "application/octet-stream" || key.header.Get("Content-Disposition") != "attachment" {
		t.Errorf("the key: %q %v", key.body, key.header)
	}
	if got := d.do(mail, "GET", path+"/attempts", "").want(t, 200).field(t, "attempts"); string(got) == "null" {
		t.Error("no list of attempts")
	}
	list := d.do(mail, "GET", "/v1/tasks?queue=mail&state=completed&limit=1", "").want(t, 200)
	if list.text(t, "tasks", "[0]", "id") != id || bytes.Contains(list.body, []byte("payload")) {
		t.Errorf("list: %s", list.body)
	}
	if got := string(d.do(mail, "GET", "/v1/queues/audit/stats", "").want(t, 200).field(t, "ready")); got != "1" {
		t.Errorf("%s tasks in the queue of the effect", got)
	}
	if got := d.do(mail, "GET", "/v1/queues?limit=1", "").want(t, 200); got.text(t, "queues", "[0]", "queue") != "audit" || got.text(t, "cursor") == "" {
		t.Errorf("queues: %s", got.body)
	}
	d.do(mail, "DELETE", path, "").want(t, 200)
	d.do(mail, "GET", path, "").want(t, 404)
}

func TestEveryEndOfAnAttemptOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q","max_attempts":2}`).want(t, 201)
	id, token := d.claimOne("q")
	path := "/v1/tasks/" + id
	if got := d.do(mail, "POST", path+"/release", `{"token":"`+token+`"}`).want(t, 200).text(t, "state"); got != "ready" {
		t.Errorf("released: %s", got)
	}
	_, token = d.claimOne("q")
	if got := d.do(mail, "POST", path+"/snooze", `{"token":"`+token+`","delay":"1h"}`).want(t, 200).text(t, "state"); got != "scheduled" {
		t.Errorf("snoozed: %s", got)
	}
	d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"]}`).want(t, 204)
	d.do(mail, "POST", path+"/run-now", "").want(t, 200)
	_, token = d.claimOne("q")
	if got := d.do(mail, "POST", path+"/fail", `{"token":"`+token+`","retry_after":"0s","error":{"code":"E1","message":"m"}}`).want(t, 200).text(t, "state"); got != "ready" && got != "scheduled" {
		t.Errorf("failed: %s", got)
	}
	_, token = d.claimOne("q")
	if got := d.do(mail, "POST", path+"/fail", `{"token":"`+token+`","fatal":true,"error":{"code":"E2","message":"m"}}`).want(t, 200).text(t, "state"); got != "dead" {
		t.Errorf("failed for good: %s", got)
	}
	r := d.do(mail, "GET", path+"/result?wait=60s", "").want(t, 200)
	if r.text(t, "state") != "dead" || string(r.field(t, "done")) != "true" || r.text(t, "error", "code") != "E2" {
		t.Errorf("result: %s", r.body)
	}
	batch := d.do(mail, "POST", "/v1/tasks:settle", `{"items":[{"id":"`+id+`","token":"`+token+`","release":{}},{"id":"x","token":"1","release":{}}]}`).want(t, 200)
	var results struct {
		Results []struct {
			Error struct{ Code, Field string }
		}
	}
	if err := json.Unmarshal(batch.body, &results); err != nil {
		t.Fatal(err)
	}
	if got := results.Results; len(got) != 2 || got[0].Error.Code != "LEASE_LOST" || got[1].Error.Field != "items[1].id" {
		t.Errorf("settles: %s", batch.body)
	}
	beats := d.do(mail, "POST", "/v1/tasks:heartbeat", `{"items":[{"id":"`+id+`","token":"`+token+`"}]}`).want(t, 200)
	if string(beats.field(t, "results", "[0]", "lost")) != "true" {
		t.Errorf("heartbeats: %s", beats.body)
	}
}

func TestPayloadsAndResultsOfAMebibyteAreByteExact(t *testing.T) {
	d := openDoor(t, mail)
	odd := `{"z":1,  "a":9007199254740993,"a":[1.10, -0, 1E5],"é":"\u00e9\ud83d\ude00\/"}`
	raw := `{"z":9007199254740993,"pad":"` + strings.Repeat("x", 1<<20-len(`{"z":9007199254740993,"pad":""}`)) + `"}`
	binary := make([]byte, 1<<20)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	as64 := base64.StdEncoding.EncodeToString(binary)
	for _, c := range []struct{ send, field, want string }{
		{`"%s":` + odd, "", odd},
		{`"%s":` + raw, "", raw},
		{`"%s_base64":"` + as64 + `","%s":"application/octet-stream"`, "_base64", `"` + as64 + `"`},
		{`"%s_base64":"` + as64 + `"`, "_base64", `"` + as64 + `"`}, // whatever its type says
		{`"%s_base64":"eyJhIjox"`, "_base64", `"eyJhIjox"`},
		{`"%s_base64":"eyJhIjoxfQ=="`, "", `{"a":1}`},
		{`"%s_base64":""`, "_base64", `""`},
	} {
		fields := func(name, typ string) string {
			s := strings.Replace(c.send, "%s", name, 1)
			return strings.Replace(s, `"%s":"app`, `"`+typ+`":"app`, 1)
		}
		d.do(mail, "POST", "/v1/tasks", `{"queue":"q",`+fields("payload", "content_type")+`}`).want(t, 201)
		got := d.do(mail, "POST", "/v1/tasks:claim", `{"queues":["q"],"wait":"30s"}`).want(t, 200)
		if b := got.field(t, "tasks", "[0]", "payload"+c.field); string(b) != c.want {
			t.Errorf("claimed %.60s..., sent %.60s...", b, c.want)
		}
		path := "/v1/tasks/" + got.text(t, "tasks", "[0]", "id")
		token := got.text(t, "tasks", "[0]", "token")
		d.do(mail, "POST", path+"/complete", `{"token":"`+token+`",`+fields("result", "result_type")+`}`).want(t, 200)
		if b := d.do(mail, "GET", path, "").want(t, 200).field(t, "payload"+c.field); string(b) != c.want {
			t.Errorf("read %.60s..., sent %.60s...", b, c.want)
		}
		if b := d.do(mail, "GET", path+"/result", "").want(t, 200).field(t, "result"+c.field); string(b) != c.want {
			t.Errorf("result %.60s..., sent %.60s...", b, c.want)
		}
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	id, token := d.claimOne("q")
	d.do(mail, "POST", "/v1/tasks/"+id+"/complete", `{"token":"`+token+`"}`).want(t, 200)
	if r := d.do(mail, "GET", "/v1/tasks/"+id+"/result", "").want(t, 200); r.text(t, "state") != "completed" {
		t.Errorf("an empty result: %s", r.body)
	}
}

func TestAnIdempotencyKeyMakesOneTask(t *testing.T) {
	d := openDoor(t, mail, "rival")
	create := func(tenant, key, payload string, status int) reply {
		return d.do(tenant, "POST", "/v1/tasks", `{"queue":"q","payload":`+payload+`}`, "Idempotency-Key", key).want(t, status)
	}
	first := create(mail, "order-1", `{"n":1}`, 201).text(t, "id")
	again := create(mail, "order-1", `{"n":1}`, 200)
	if again.text(t, "id") != first || string(again.field(t, "replayed")) != "true" || string(again.field(t, "payload_matches")) != "true" {
		t.Errorf("again: %s", again.body)
	}
	other := create(mail, "order-1", `{"n":2}`, 409)
	if other.text(t, "error", "code") != "ALREADY_EXISTS" || bytes.Contains(other.body, []byte(first)) {
		t.Errorf("another payload: %s", other.body)
	}
	if got := create("rival", "order-1", `{"n":2}`, 201).text(t, "id"); got == first {
		t.Error("two tenants share a key")
	}
	if got := create(mail, "order-2", `{"n":1}`, 201).text(t, "id"); got == first {
		t.Error("two keys made one task")
	}
	if got := string(d.do(mail, "GET", "/v1/queues/q/stats", "").want(t, 200).field(t, "created")); got != "2" {
		t.Errorf("%s tasks were made", got)
	}
}

func TestAWaitIsWokenByTheEndOfTheTask(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	id, token := d.claimOne("q")
	if r := d.do(mail, "GET", "/v1/tasks/"+id+"/result?wait=1ms", "").want(t, 200); string(r.field(t, "done")) != "false" {
		t.Errorf("before the end: %s", r.body)
	}
	waited := make(chan reply)
	for range 4 {
		go func() { waited <- d.do(mail, "GET", "/v1/tasks/"+id+"/result?wait=60s", "") }()
	}
	d.do(mail, "POST", "/v1/tasks/"+id+"/complete", `{"token":"`+token+`","result":"done"}`).want(t, 200)
	for range 4 {
		if r := <-waited; r.status != 200 || string(r.field(t, "result")) != `"done"` {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := d.do(mail, "GET", "/v1/tasks/"+strings.Repeat("0", 25)+"1/result?wait=60s", ""); r.status != 404 {
		t.Errorf("a wait for nothing: %d", r.status)
	}
}

func TestConfigurationOverREST(t *testing.T) {
	d := openDoor(t, mail)
	d.do(mail, "GET", "/v1/queues/q", "").want(t, 404)
	made := d.do(mail, "PUT", "/v1/queues/q", `{"lease":"30s","retry":{"backoff":"fixed","base":"1s"},"aging":"0s","max_payload":1024}`).want(t, 201)
	if made.header.Get("Etag") != `"1"` || made.text(t, "version") != "1" {
		t.Errorf("made: %s %v", made.body, made.header)
	}
	read := d.do(mail, "GET", "/v1/queues/q", "").want(t, 200)
	// What was read can be sent back, and changes nothing.
	same := d.do(mail, "PUT", "/v1/queues/q", string(read.body), "If-Match", read.header.Get("Etag")).want(t, 200)
	if same.text(t, "version") != "1" {
		t.Errorf("the same again: %s, of %s", same.body, read.body)
	}
	d.do(mail, "PUT", "/v1/queues/q", `{"lease":"31s"}`, "If-Match", `"1"`).want(t, 200)
	stale := d.do(mail, "PUT", "/v1/queues/q", `{"lease":"32s"}`, "If-Match", "1").want(t, 412)
	if stale.text(t, "error", "code") != "PRECONDITION_FAILED" || stale.text(t, "error", "details", "rev") != "2" {
		t.Errorf("stale: %s", stale.body)
	}
	d.do(mail, "PUT", "/v1/queues/new", `{}`, "If-Match", `"3"`).want(t, 412)
	d.do(mail, "POST", "/v1/tasks", `{"queue":"by-use"}`).want(t, 201)
	if r := d.do(mail, "PUT", "/v1/queues/by-use", `{"lease":"30s"}`, "If-Match", `"0"`).want(t, 201); r.text(t, "version") != "1" {
		t.Errorf("a queue made by its use: %s", r.body)
	}
	d.do(mail, "PUT", "/v1/namespace?ns=strict", `{"auto_create":false}`).want(t, 200)
	if got := string(d.do(mail, "GET", "/v1/namespace?ns=strict", "").want(t, 200).field(t, "auto_create")); got != "false" {
		t.Errorf("auto_create %s", got)
	}
	d.do(mail, "POST", "/v1/tasks?ns=strict", `{"queue":"q"}`).want(t, 404)
	if got := d.do(mail, "POST", "/v1/tasks?ns=other", `{"queue":"q"}`).want(t, 201).header.Get("Location"); !strings.HasSuffix(got, "?ns=other") {
		t.Errorf("Location %q", got)
	}
}

func TestCommitsOverREST(t *testing.T) {
	d := openDoor(t, mail)
	commit := func(body string, status int) reply { return d.do(mail, "POST", "/v1/commit", body).want(t, status) }
	every := make([]byte, 255)
	for i := range every {
		every[i] = byte(i + 1)
	}
	for _, key := range []string{"a", "a/b", "/", "..", ".", "%", "%2F", "a b", "é", "\x00", "a\x00b", "\xff", string(every)} {
		as64 := base64.StdEncoding.EncodeToString([]byte(key))
		r := commit(`{"ops":[{"kv_put":{"keyspace":"ks","key_base64":"`+as64+`","value_base64":"`+as64+`"}}]}`, 200)
		got := d.do(mail, "GET", "/v1/kv/ks/keys/"+escape(key)+"?min_index="+r.text(t, "index"), "").want(t, 200)
		if string(got.body) != key || got.header.Get("Millrace-Rev") != r.text(t, "results", "[0]", "rev") {
			t.Errorf("%q: read %q", key, got.body)
		}
	}
	once := `{"request_id":"6f1f3a3e-33aa-4f0e-9f4c-1a2b3c4d5e6f","ops":[{"task_create":{"queue":"q","id":"` + taskID("once", 1) + `"}}]}`
	if r := commit(once, 200); string(r.field(t, "replayed")) != "false" {
		t.Errorf("first: %s", r.body)
	}
	if r := commit(once, 200); string(r.field(t, "replayed")) != "true" {
		t.Errorf("again: %s", r.body)
	}
	commit(`{"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"old"}}]}`, 200)
	if r := commit(`{"conditions":[{"keyspace":"ks","key":"k","compare":"equal","value":"old"}],"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"new","want_prev":true}}]}`, 200); r.text(t, "results", "[0]", "prev") != "old" {
		t.Errorf("the old value: %s", r.body)
	}
	refused := commit(`{"conditions":[{"keyspace":"ks","key":"k","compare":"equal","value":"old"}],"ops":[{"task_create":{"queue":"q"}}]}`, 412)
	if refused.text(t, "error", "details", "value") != "new" || string(refused.field(t, "error", "op")) != "-2" {
		t.Errorf("a condition: %s", refused.body)
	}
	commit(`{"fence":{"task":"`+strings.Repeat("0", 25)+`1","token":"5"},"ops":[{"kv_delete":{"keyspace":"ks","key":"k"}}]}`, 409)
	if got := string(d.do(mail, "GET", "/v1/queues/q/stats", "").want(t, 200).field(t, "created")); got != "1" {
		t.Errorf("%s tasks were made", got)
	}
	d.do(mail, "GET", "/v1/kv/none/keys/k", "").want(t, 404)
}

// escape percent-encodes every byte, so that no client changes the path.
func escape(key string) string {
	var out strings.Builder
	for i := range len(key) {
		fmt.Fprintf(&out, "%%%02X", key[i])
	}
	return out.String()
}

// The two tenants of the property below do the same kind of things to the same names and ids.
func step(rt *rapid.T, ns, who string) (method, path, body string) {
	id := taskID(ns, rapid.IntRange(0, 3).Draw(rt, who+" task"))
	queue := rapid.SampledFrom([]string{"q", "r"}).Draw(rt, who+" queue")
	token := rapid.IntRange(1, 4).Draw(rt, who+" token")
	n := rapid.IntRange(0, 2).Draw(rt, who+" value")
	task := "/v1/tasks/" + id
	kind := rapid.IntRange(0, 14).Draw(rt, who+" step")
	if kind == 14 && rapid.IntRange(0, 9).Draw(rt, who+" heartbeat") == 0 {
		kind = -1 // seldom, because a shard gathers renewals for up to 200 ms
	}
	switch kind {
	case -1:
		return "POST", task + "/heartbeat", fmt.Sprintf(`{"token":"%d"}`, token)
	case 0, 1, 2:
		return "POST", "/v1/tasks", fmt.Sprintf(`{"id":"%s","queue":"%s","payload":{"n":%d},"unique":{"key":"u%d"}}`, id, queue, n, n)
	case 3:
		return "POST", "/v1/tasks:claim", `{"queues":["` + queue + `"],"max":2}`
	case 5:
		return "POST", task + "/complete", fmt.Sprintf(`{"token":"%d","result":%d,"effects":{"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"%d"}}]}}`, token, n, n)
	case 6:
		return "POST", task + "/fail", fmt.Sprintf(`{"token":"%d","retry_after":"1h"}`, token)
	case 7:
		return "POST", task + "/release", fmt.Sprintf(`{"token":"%d"}`, token)
	case 8, 9:
		return "POST", "/v1/commit", fmt.Sprintf(`{"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"%s%d","if_rev":%d}}]}`, who, n, token)
	case 10:
		return "GET", "/v1/kv/ks/keys/k", ""
	case 11:
		return "GET", task, ""
	case 12:
		return "GET", task + "/result", ""
	case 13:
		return "GET", "/v1/tasks?queue=" + queue + "&state=ready", ""
	case 4:
		return "GET", "/v1/queues/" + queue + "/stats", ""
	}
	return "PUT", "/v1/queues/" + queue, fmt.Sprintf(`{"max_attempts":%d}`, 1+n)
}

// TaskID makes an id that a producer might have made.
func taskID(ns string, n int) string {
	sum := sha256.Sum256([]byte(ns))
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	out := []byte("01")
	for i := range 23 {
		out = append(out, digits[sum[i]&31])
	}
	copy(out[10:], "000") // of partition 0
	return string(append(out, digits[n]))
}

// ownTime is what an answer says of the log's places and of time, which all tenants share, and which differ from run to
// run. Everything else must be equal.
var ownTime = regexp.MustCompile(`"index":"\d+"|"(\w+_at|\w+_until|oldest_ready|start|end)":"[^"]+"|"lease_left":"[^"]+"`)

func view(r reply) string {
	h := r.header.Clone()
	h.Del("Date")
	if h.Get("Millrace-Index") != "" {
		h.Set("Millrace-Index", "partition/epoch/index")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", r.status)
	body := ownTime.ReplaceAllString(string(r.body), `"time":0`)
	if len(body) != len(r.body) {
		h.Del("Content-Length")
	}
	if err := h.Write(&b); err != nil {
		panic(err)
	}
	return b.String() + body
}

// TestATenantSeesTheSameWithAndWithoutAnother runs tenant B's requests next to those of tenant A, which uses the same names, ids
// and keys, and again alone: every answer must be equal in every byte that is not a place in the log, or a time.
func TestATenantSeesTheSameWithAndWithoutAnother(t *testing.T) {
	shared, alone := openDoor(t, "a", "b"), openDoor(t, "b")
	space, sequences := 0, 5 // of each of the library's 100 checks
	if testing.Short() {
		sequences = 1
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range sequences {
			space++
			ns := fmt.Sprintf("s%d", space)
			for range rapid.IntRange(4, 12).Draw(rt, "steps") {
				if rapid.Bool().Draw(rt, "A first") {
					method, path, body := step(rt, ns, "A")
					shared.do("a", method, withSpace(path, ns), body)
				}
				method, path, body := step(rt, ns, "B")
				want := view(alone.do("b", method, withSpace(path, ns), body))
				if got := view(shared.do("b", method, withSpace(path, ns), body)); got != want {
					rt.Fatalf("%s %s %s\nwith another tenant %s\nalone %s", method, path, body, got, want)
				}
			}
		}
	})
}

func withSpace(path, ns string) string {
	if strings.Contains(path, "?") {
		return path + "&ns=" + url.QueryEscape(ns)
	}
	return path + "?ns=" + url.QueryEscape(ns)
}
