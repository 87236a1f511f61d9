package rest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// restBound is a request at a limit and one just beyond it, and how that is refused.
type restBound struct {
	method, path string
	at, beyond   string // bodies; for GET what is added to the path
	status       int
	field        string
}

func quoted(n int) string { return `"` + strings.Repeat("x", n) + `"` }

func times(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

// restBounds has the bounds that a body or a query of REST can exceed.
func restBounds() map[string]restBound {
	const small, large = http.StatusBadRequest, http.StatusRequestEntityTooLarge
	id := apitest.ID(1)
	task := func(field string, at, beyond any, status int, path string) restBound {
		return restBound{
			method: "POST", path: "/v1/tasks", at: fmt.Sprintf(`{"queue":"q","%s":%v}`, field, at),
			beyond: fmt.Sprintf(`{"queue":"q","%s":%v}`, field, beyond), status: status, field: path,
		}
	}
	post := func(path, format string, at, beyond any, status int, field string) restBound {
		return restBound{
			method: "POST", path: path, at: fmt.Sprintf(format, at), beyond: fmt.Sprintf(format, beyond), status: status, field: field,
		}
	}
	put := `{"kv_delete":{"keyspace":"k","key":"k"}}`
	header := `{"name":"n","value":"v"}`
	msOf := func(n int64) string { return `"` + strconv.FormatInt(n, 10) + `ms"` }
	days := func(n int) string { return `"` + strconv.Itoa(24*n) + `h"` }
	return map[string]restBound{
		"rest_body":          {method: "POST", path: "/v1/tasks", at: body(8*mib, "q"), beyond: body(8*mib+1, "q"), status: large, field: "body"},
		"json_depth":         post("/v1/tasks", `{"queue":"q","payload":%s}`, strings.Repeat("[", 63)+strings.Repeat("]", 63), strings.Repeat("[", 64)+strings.Repeat("]", 64), small, "payload"),
		"frame_items":        post("/v1/tasks:batch", `{"tasks":[%s]}`, times(512, `{"queue":"q"}`), times(513, `{"queue":"q"}`), large, "tasks"),
		"claim_queues":       post("/v1/tasks:claim", `{"queues":[%s]}`, times(64, `"q"`), times(65, `"q"`), large, "queues"),
		"claim_tasks":        post("/v1/tasks:claim", `{"queues":["q"],"max":%d}`, 128, 129, small, "max"),
		"claim_wait_ms":      post("/v1/tasks:claim", `{"queues":["q"],"wait":"%dms"}`, 60_000, 60_001, small, "wait"),
		"worker_bytes":       post("/v1/tasks:claim", `{"queues":["q"],"worker":%s}`, quoted(128), quoted(129), large, "worker"),
		"partitions":         post("/v1/namespace?ns=wide", `{"partitions":%d}`, 4096, 4097, small, "partitions"),
		"tag_bytes":          task("tag", quoted(128), quoted(129), large, "tag"),
		"list_items":         {method: "GET", path: "/v1/queues?limit=", at: "1000", beyond: "1001", status: small, field: "limit"},
		"result_wait_ms":     {method: "GET", path: "/v1/tasks/" + id + "/result?wait=", at: "60s", beyond: "60001ms", status: small, field: "wait"},
		"result_bytes":       post("/v1/tasks/"+id+"/complete", `{"token":1,"result":%s}`, quoted(mib-2), quoted(mib-1), large, "result"),
		"retry_after_ms":     post("/v1/tasks/"+id+"/fail", `{"token":1,"retry_after":%s}`, msOf(day), msOf(day+1), small, "retry_after"),
		"key_bytes":          post("/v1/commit", `{"ops":[{"kv_delete":{"keyspace":"k","key":%s}}]}`, quoted(16*kib), quoted(16*kib+1), large, "ops[0].key"),
		"value_bytes":        post("/v1/commit", `{"ops":[{"kv_put":{"keyspace":"k","key":"k","value":%s}}]}`, quoted(3*mib/2), quoted(3*mib/2+1), large, "ops[0].value"),
		"commit_ops":         post("/v1/commit", `{"ops":[%s]}`, times(1024, put), times(1025, put), large, "ops"),
		"headers":            task("headers", "["+times(32, header)+"]", "["+times(33, header)+"]", large, "headers"),
		"header_bytes":       task("headers", `[{"name":"n","value":`+quoted(4095)+`}]`, `[{"name":"n","value":`+quoted(4096)+`}]`, large, "headers"),
		"payload_bytes":      task("payload", quoted(mib-2), quoted(mib-1), large, "payload"),
		"content_type_bytes": task("content_type", quoted(128), quoted(129), large, "content_type"),
		"priority":           task("priority", 9, 10, small, "priority"),
		"horizon_ms":         task("delay", days(3653), msOf(3653*day+1), small, "delay"),
		"max_attempts":       task("max_attempts", 1000, 1001, small, "max_attempts"),
		"max_crashes":        task("max_crashes", 1000, 1001, small, "max_crashes"),
		"max_deliveries":     task("max_deliveries", 1_000_000, 1_000_001, small, "max_deliveries"),
		"lease_ms":           task("lease", msOf(day), msOf(day+1), small, "lease"),
		"retry_factor":       task("retry", `{"factor":100}`, `{"factor":100.01}`, small, "retry.factor"),
		"unique_key_bytes":   task("unique", `{"key":`+quoted(256)+`}`, `{"key":`+quoted(257)+`}`, large, "unique.key"),
		"unique_ttl_ms":      task("unique", `{"key":"u","ttl":`+days(30)+`}`, `{"key":"u","ttl":`+msOf(30*day+1)+`}`, small, "unique.ttl"),
	}
}

// body is a task of n bytes, most of them white space.
func body(n int, queue string) string {
	head := `{"queue":"` + queue + `"`
	return head + strings.Repeat(" ", n-len(head)-1) + "}"
}

// restElsewhere are limits that no single body exceeds, with the test that exceeds them, and those that REST does not
// have.
var restElsewhere = map[string]string{
	"rest_bodies": "TestBodiesInHandAreBoundedForTheNode", "rest_call_ms": "TestACallThatTakesTooLongIsUnknown",
	"http_header": "TestHeadersAreBounded", "http_header_ms": "TestSlowClientsAreCut", "http_body_ms": "the same", "http_idle_ms": "the same", "connections_new": "the same of gRPC", "first_call_ms": "the same", "grpc_receive_ms": "of gRPC", "grpc_idle_ms": "of gRPC", "http2_frames": "TestAFloodOfEmptyFramesEndsItsConnection", "http_linger_ms": "TestRefusalsDoNotWaitForTheRestOfTheRequest",
	"namespaces":   "TestNamespacesAreBoundedBySetting",
	"queues":       "TestQueuesAreBoundedBySettingAndEmptyOnesMakeRoom",
	"calls_tenant": "TestRESTCallsInFlightAreBoundedByTenantAndNode", "calls_node": "the same",
	"connections_node": "TestConnectionsOfBothDoorsAreBoundedTogether", "connections_address": "the same",
	"commit_bytes": "TestARESTCommitLargerThanTheLogTakesIsRefused", "send_stall_ms": "TestSlowClientsAreCut",
	"grpc_message": "of gRPC", "streams_connection": "of gRPC", "streams_tenant": "of streams", "streams_node": "of streams",
	"event_streams_tenant": "TestStreamsOfEventsAndTheirTopicsAreBounded", "event_streams_node": "the same", "event_topics": "the same",
	"unacked_items": "of streams", "unacked_bytes": "of streams", "unacked_commits": "of streams", "send_buffer": "of streams",
	"subscriptions": "of streams", "slots": "of streams", "stream_waits": "of streams", "worker_kinds": "of streams",
	"searches_waiting": "behind both doors", "embed_numbers": "TestVectorsOfCallsAreBoundedWhileTheyAreMade",
}

func TestEveryLimitOfRESTAnswersItsNameAndTheNextCallWorks(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	cases := restBounds()
	maps.Copy(cases, restSearchBounds())
	send := func(c restBound, more string) answer {
		if c.method == "GET" {
			return r.do(c.method, c.path+more, "")
		}
		return r.do(c.method, c.path, more)
	}
	for _, row := range r.s.Limits.Rows() {
		c, ok := cases[row.Key]
		if !ok {
			if restElsewhere[row.Key] == "" {
				t.Errorf("limit %s is not tested", row.Key)
			}
			continue
		}
		delete(cases, row.Key)
		good := func(when string) {
			if a := send(c, c.at); a.status >= 300 {
				t.Errorf("%s: %s: %d %.300s", row.Key, when, a.status, a.body)
			}
		}
		good("at the limit")
		before := r.s.Stats().Refusals[row.Key]
		a := send(c, c.beyond)
		e := failed(t, a)
		if a.status != c.status || e.Limit != row.Key || e.Max != *row.Value || e.Field != c.field || e.Outcome != "refused" {
			t.Errorf("%s: beyond the limit: %d %.300s", row.Key, a.status, a.body)
		}
		if got := r.s.Stats().Refusals[row.Key]; got != before+1 {
			t.Errorf("%s: counted %d refusals, want %d", row.Key, got, before+1)
		}
		good("after a refusal")
	}
	for key := range cases {
		t.Errorf("%s is not a limit", key)
	}
}

func TestABodyWithoutALengthIsBoundedToo(t *testing.T) {
	r := newRESTRig(t, edge.Limits{RESTBodyBytes: 100 * kib})
	send := func(n int) answer {
		req := r.request("POST", "/v1/tasks", "acme/all", "")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body(n, "q"))), -1
		return r.send(req)
	}
	send(100*kib).expect(t, "at the limit", http.StatusCreated)
	if e := failed(t, send(100*kib+1).expect(t, "beyond it", http.StatusRequestEntityTooLarge)); e.Limit != "rest_body" {
		t.Errorf("%+v", e)
	}
	send(100*kib).expect(t, "afterwards", http.StatusCreated)
	if n := r.h.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still counted", n)
	}
}

func TestBodiesInHandAreBoundedForTheNode(t *testing.T) {
	r := newRESTRig(t, edge.Limits{RESTBodiesBytes: 150 * kib})
	r.n.Holding = true
	first := make(chan answer)
	go func() { first <- r.do("POST", "/v1/tasks", body(100*kib, "q")) }()
	apitest.Eventually(t, "the first body is in hand", func() bool { return r.n.Waiting() == 1 })
	a := r.do("POST", "/v1/tasks", body(100*kib, "q")).expect(t, "a second body", http.StatusServiceUnavailable)
	if e := failed(t, a); e.Code != "UNAVAILABLE" || e.Limit != "rest_bodies" || e.Outcome != "refused" || a.header.Get("Retry-After") == "" {
		t.Errorf("a second body: %s", a.body)
	}
	r.n.ReleaseHeld(0)
	if a := <-first; a.status != http.StatusCreated {
		t.Errorf("the first: %+v", a)
	}
	r.n.Holding = false
	r.do("POST", "/v1/tasks", body(100*kib, "q")).expect(t, "afterwards", http.StatusCreated)
	apitest.Eventually(t, "no byte is counted", func() bool { return r.h.bodies.Load() == 0 })
}

func TestHeadersAreBounded(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	with := func(n int) answer { return r.do("GET", "/v1/status", "", "X-Padding", strings.Repeat("h", n)) }
	with(15*kib).expect(t, "below the limit", http.StatusOK)
	if e := failed(t, with(16*kib).expect(t, "beyond it", http.StatusRequestHeaderFieldsTooLarge)); e.Code != "TOO_LARGE" || e.Limit != "http_header" || e.Max != 16*kib {
		t.Errorf("%+v", e)
	}
	if a := r.do("GET", "/v1/status?ns="+strings.Repeat("n", 17*kib), ""); a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long query: %d", a.status)
	}
	far := r.request("GET", "/v1/status", "acme/all", "", "X-Padding", strings.Repeat("h", 100*kib))
	if resp, err := r.client.Do(far); err == nil { // refused by the transport, perhaps before it was sent
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("far beyond it: %d", resp.StatusCode)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	with(15*kib).expect(t, "afterwards", http.StatusOK)
}

func TestRESTCallsInFlightAreBoundedByTenantAndNode(t *testing.T) {
	r := newRESTRig(t, edge.Limits{CallsTenant: 2, CallsNode: 3})
	r.n.Holding = true
	results := make(chan answer)
	start := func(tenant string) {
		before := r.s.Stats().Calls
		go func() { results <- r.send(r.request("POST", "/v1/tasks", tenant+"/all", `{"queue":"q"}`)) }()
		apitest.Eventually(t, "the call is in flight", func() bool { return r.s.Stats().Calls == before+1 })
	}
	read := func(tenant string) answer { return r.send(r.request("GET", "/v1/status", tenant+"/all", "")) }
	start("acme")
	start("acme")
	if e := failed(t, read("acme").expect(t, "a tenant's third", http.StatusTooManyRequests)); e.Code != "RESOURCE_EXHAUSTED" || e.Limit != "calls_tenant" || e.Max != 2 {
		t.Errorf("%+v", e)
	}
	start("rival")
	if e := failed(t, read("third").expect(t, "the node's fourth", http.StatusServiceUnavailable)); e.Code != "UNAVAILABLE" || e.Limit != "calls_node" {
		t.Errorf("%+v", e)
	}
	for range 3 {
		apitest.Eventually(t, "a proposal waits", func() bool { return r.n.Waiting() > 0 })
		r.n.ReleaseHeld(0)
		(<-results).expect(t, "a call that was admitted", http.StatusCreated)
	}
	apitest.Eventually(t, "no call is counted", func() bool { return r.s.Stats().Calls == 0 })
	read("acme").expect(t, "afterwards", http.StatusOK)
}

func TestConnectionsOfBothDoorsAreBoundedTogether(t *testing.T) {
	for key, l := range map[string]edge.Limits{"connections_node": {ConnectionsNode: 2}, "connections_address": {ConnectionsAddress: 1}} {
		r := newRESTRig(t, l)
		if _, err := pb.NewServerServiceClient(r.conn).Status(apitest.As("acme/all"), &pb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		r.do("GET", "/v1/status", "").expect(t, "the second connection, from another address", http.StatusOK)
		third := r.raw()
		if n, err := third.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: a third connection was served %d bytes", key, n)
		}
		if st := r.s.Stats(); st.Connections != 2 || st.Refusals[key] == 0 {
			t.Errorf("%s: %+v", key, st)
		}
		r.do("GET", "/v1/status", "").expect(t, "the second afterwards", http.StatusOK)
	}
}

func TestARESTCommitLargerThanTheLogTakesIsRefused(t *testing.T) {
	r := newRESTRig(t, edge.Limits{CommitBytes: 100 * kib})
	put := `{"kv_put":{"keyspace":"k","key":"k","value":` + quoted(60*kib) + `}}`
	r.do("POST", "/v1/commit", `{"ops":[`+put+`]}`).expect(t, "one op", http.StatusOK)
	if e := failed(t, r.do("POST", "/v1/commit", `{"ops":[`+times(2, put)+`]}`).expect(t, "two ops", http.StatusRequestEntityTooLarge)); e.Limit != "commit_bytes" {
		t.Errorf("%+v", e)
	}
	r.do("POST", "/v1/commit", `{"ops":[`+put+`]}`).expect(t, "afterwards", http.StatusOK)
}

func TestACallThatTakesTooLongIsUnknown(t *testing.T) {
	r := newRESTRig(t, edge.Limits{RESTCallMs: 1})
	r.n.Holding = true
	a := r.do("POST", "/v1/tasks", `{"queue":"q"}`).expect(t, "a proposal that hangs", http.StatusGatewayTimeout)
	if e := failed(t, a); e.Code != "DEADLINE_EXCEEDED" || e.Outcome != "unknown" && r.n.Waiting() > 0 {
		t.Errorf("%s", a.body)
	}
	for r.n.Waiting() > 0 {
		r.n.ReleaseHeld(0)
	}
}

// rawConn speaks HTTP by hand, so that a test can stop in the middle of it.
type rawConn struct {
	net.Conn
	t *testing.T
}

func (r *restRig) raw() rawConn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.web.String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() }) // closed already by most tests
	return rawConn{c, r.t}
}

func (c rawConn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// rest reads what comes until the server closes, in whichever way.
func (c rawConn) rest() string {
	b, _ := io.ReadAll(c)
	return string(b)
}

const rawHead = "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/all\r\n"

func TestSlowClientsAreCut(t *testing.T) {
	r := newRESTRig(t, edge.Limits{HTTPHeaderMs: 500, HTTPBodyMs: 500, HTTPIdleMs: 500, SendStallMs: 500})
	r.s.Clock = env.SystemClock{} // deadlines of connections are real times
	slow := r.raw()
	slow.send("GET /v1/status HTTP/1.1\r\nHost:")
	if got := slow.rest(); strings.Contains(got, "200") {
		t.Errorf("half a header was answered with %q", got)
	}
	slow = r.raw()
	slow.send(rawHead + "Content-Length: 10\r\n\r\n{\"q")
	if got := slow.rest(); !strings.Contains(got, " 504 ") || !strings.Contains(got, `"outcome":"refused"`) || !strings.Contains(got, "Connection: close") {
		t.Errorf("half a body was answered with %q", got)
	}
	idle := r.raw()
	idle.send("GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/all\r\n\r\n")
	if got := idle.rest(); strings.Count(got, " 200 ") != 1 {
		t.Errorf("an idle connection got %q", got)
	}
	// A reader that takes nothing: the answers are larger than what the connection holds.
	stalled := r.raw()
	stalled.send(strings.Repeat("GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 400))
	apitest.Eventually(t, "the connection of who takes nothing is closed", func() bool { return r.s.Stats().Connections == 0 })
	r.do("GET", "/v1/status", "").expect(t, "a good client", http.StatusOK)
}

func TestAnAbandonedCallLeavesNothingBehind(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	p := r.n.Spaces["acme/default"].Partitions[0].Partition
	r.n.Stored[p][apitest.MustID(t, apitest.ID(1))] = core.Task{ID: apitest.MustID(t, apitest.ID(1)), State: core.Ready}
	claims := make(chan context.Context, 1)
	r.n.OnClaim = func(ctx context.Context, _ core.ClaimSpec) ([]core.Assigned, error) {
		claims <- ctx
		<-ctx.Done()
		return []core.Assigned{{Task: apitest.MustID(t, apitest.ID(7)), Token: 9}}, nil // granted as its caller left
	}
	claim := `{"queues":["mail"],"wait":"60s"}`
	for what, text := range map[string]string{
		"a claim":      "POST /v1/tasks:claim HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/all\r\nContent-Length: " + strconv.Itoa(len(claim)) + "\r\n\r\n" + claim,
		"a wait":       "GET /v1/tasks/" + apitest.ID(1) + "/result?wait=60s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/all\r\n\r\n",
		"half a body":  rawHead + "Content-Length: 10\r\n\r\n{\"q",
		"half a chunk": rawHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"q",
	} {
		c := r.raw()
		c.send(text)
		apitest.Eventually(t, what+" is in flight", func() bool { return r.s.Stats().Calls == 1 })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		apitest.Eventually(t, what+" has ended", func() bool { return r.s.Stats().Calls == 0 && r.s.Stats().Connections == 0 })
		if n := r.h.bodies.Load(); n != 0 {
			t.Errorf("%s: %d bytes of bodies are still counted", what, n)
		}
	}
	<-claims
	back := slices.ContainsFunc(r.n.Proposed(), func(c core.Commit) bool {
		op, ok := c.Ops[0].(*core.TaskRelease)
		return ok && op.Undelivered && op.Token == 9
	})
	if !back {
		t.Errorf("the task that was granted to a caller that had gone was not given back: %v", r.n.Proposed())
	}
}

func TestShutdownEndsWhatWaitsAndServesTheRest(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	p := r.n.Spaces["acme/default"].Partitions[0].Partition
	r.n.Stored[p][apitest.MustID(t, apitest.ID(1))] = core.Task{ID: apitest.MustID(t, apitest.ID(1)), State: core.Ready}
	c := r.raw()
	c.send("GET /v1/tasks/" + apitest.ID(1) + "/result?wait=60s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/all\r\n\r\n")
	apitest.Eventually(t, "the wait is in flight", func() bool { return r.s.Stats().Calls == 1 })
	over := make(chan struct{})
	go func() {
		r.s.Shutdown(0)
		close(over)
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(b.String(), `"reason":"stopping"`) {
		t.Errorf("%d %s", resp.StatusCode, b.String())
	}
	<-over
}
