package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/errs"
)

// statusOfFacts has the status of every fact of core, by the name of its type.
var statusOfFacts = map[string]int{
	"Invalid": 400, "TooLarge": 413, "Unauthenticated": 401, "Denied": 403, "NotFound": 404, "AlreadyExists": 409,
	"LeaseLost": 409, "WrongState": 409, "NotEmpty": 409, "InUse": 409, "SessionExpired": 409, "WrongMembership": 409, "FormatHeld": 409, "NotMoved": 409, "WrongBatch": 409, "RevMismatch": 412, "WrongPartition": 422, "QueuePinned": 422, "RateLimited": 429,
	"Exhausted": 429, "NotLeader": 307, "Unavailable": 503, "DeadlineExceeded": 504,
}

func TestEveryFactHasItsStatusAndItsShape(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	facts := apitest.SampleFacts()
	facts["disk"] = core.Exhausted{Limit: "disk", Max: 5}
	statusOfFacts["disk"] = http.StatusInsufficientStorage
	for name, fact := range facts {
		r.n.Ended = func([]core.Commit) core.Fact { return fact }
		a := r.do("POST", "/v1/tasks", `{"queue":"q"}`).expect(t, name, statusOfFacts[name])
		e, want := failed(t, a), edge.Wire(fact, true)
		if e.Code != want.GetCode() || e.Message != want.GetMessage() || e.Reason != want.GetReason() || e.Field != want.GetField() ||
			e.Limit != want.GetLimit() || e.Max != want.GetMax() || e.Leader != want.GetLeader() || len(e.Details) != len(want.GetDetails()) ||
			(e.Outcome == "unknown") != (want.GetOutcome() != 0) {
			t.Errorf("%s: %s, want %v", name, a.body, want)
		}
		pause := ""
		switch name {
		case "RateLimited":
			pause = "2" // of 1.5 s
		case "Exhausted", "Unavailable":
			pause = "1"
		}
		if got := a.header.Get("Retry-After"); got != pause {
			t.Errorf("%s: Retry-After %q, want %q", name, got, pause)
		}
		if got := a.header.Get("Www-Authenticate"); (got != "") != (a.status == http.StatusUnauthorized) {
			t.Errorf("%s: Www-Authenticate %q", name, got)
		}
		if name == "RateLimited" && e.RetryMs != 1500 {
			t.Errorf("%s: retry_after_ms %d", name, e.RetryMs)
		}
	}
	r.n.Ended = nil
	r.do("POST", "/v1/tasks", `{"queue":"q"}`).expect(t, "the next good call", http.StatusCreated)
}

func TestRefusalsInApplyNameTheirOp(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{Refusal: &core.Refusal{Op: 1, Fact: core.RevMismatch{Keyspace: "ks", Key: []byte("k"), Rev: 1 << 60, Value: []byte("now")}}}
	}
	put := `{"kv_put":{"keyspace":"ks","key":"k","value":"v","if_rev":"1"}}`
	a := r.do("POST", "/v1/commit", `{"ops":[`+put+`,`+put+`]}`).expect(t, "commit", http.StatusPreconditionFailed)
	if e := failed(t, a); e.Op == nil || *e.Op != 1 || e.Details["rev"] != "1152921504606846976" || e.Details["value"] != "now" {
		t.Errorf("commit: %s", a.body)
	}
	a = r.do("POST", "/v1/tasks/"+apitest.ID(1)+"/complete", `{"token":"3","effects":{"ops":[`+put+`]}}`).expect(t, "complete", http.StatusPreconditionFailed)
	if e := failed(t, a); e.Op == nil || *e.Op != 0 {
		t.Errorf("the first effect: %s", a.body)
	}
	r.n.Judge = func(core.Commit) core.Result {
		return core.Result{
			FailedInstead: true, Refusal: &core.Refusal{Op: 1, Fact: core.RevMismatch{}}, Ops: []core.OpResult{{State: core.Scheduled}},
		}
	}
	a = r.do("POST", "/v1/tasks/"+apitest.ID(1)+"/complete", `{"token":"3","effects":{"ops":[`+put+`],"fail_on_refusal":true}}`)
	if e := failed(t, a); a.status != http.StatusPreconditionFailed || e.Details["failed_instead"] != "true" {
		t.Errorf("an attempt that failed instead: %d %s", a.status, a.body)
	}
}

func TestWhatIsNoFactIsAnErrorThatSaysNothing(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for want, err := range map[string]error{"INTERNAL": errors.New("open /data/secret"), "DATA_LOSS": errs.Corruptf("tenant rival")} {
		r.n.KeyErr = err
		a := r.do("GET", "/v1/kv/ks/keys/k", "").expect(t, want, http.StatusInternalServerError)
		if e := failed(t, a); e.Code != want || strings.Contains(a.body, "secret") || strings.Contains(a.body, "rival") {
			t.Errorf("%s: %s", want, a.body)
		}
		if !strings.Contains(r.logs.String(), "GET /v1/kv/{keyspace}/keys/{key}") {
			t.Errorf("%s: the log does not name the route: %s", want, r.logs)
		}
	}
}

func TestUnknownPathsAndMethodsAreRefusedInTheSameShape(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/tasks", "/v1/tasks/", "/v1/tasks//result", "/v1/tasks:nothing", "/v1/tasks/a/b", "/v1/kv/ks/keys/",
		"/v1/kv/ks/keys/a/b", "/v1/queues/a/b/c/d/e/f/g/h", "/v1/TASKS", "//v1/tasks", "/v1/./tasks", "/v1/x/../tasks",
		"/v1/tasks%2Fa", "/v1/tasks%3Aclaim", "/%761/status", "/v1/%73tatus", "/v1/%74asks/a", "/v1/kv/ks/key%73/k", "/v1/kv%2Fks/keys/k",
		"/%67it/default/app.git/info/refs", "/millrace.v1.TaskService/Create", "/metrics", "/debug/pprof/",
	} {
		if e := failed(t, r.do("GET", path, "").expect(t, path, http.StatusNotFound)); e.Code != "NOT_FOUND" {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for path, allow := range map[string]string{
		"/v1/tasks": "GET, POST", "/v1/tasks/x": "DELETE, GET, PATCH", "/v1/tasks:claim": "POST",
		"/v1/queues/q": "DELETE, GET, PUT", "/v1/kv/ks/keys/k": "DELETE, GET, PUT", "/v1/openapi.json": "GET",
	} {
		for _, method := range []string{"LINK", "HEAD", "OPTIONS", "TRACE", "FOO"} {
			a := r.do(method, path, "").expect(t, method+" "+path, http.StatusMethodNotAllowed)
			if got := a.header.Get("Allow"); got != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got, allow)
			}
			if method != "HEAD" && failed(t, a).Code != "INVALID_ARGUMENT" {
				t.Errorf("%s %s: %s", method, path, a.body)
			}
		}
	}
}

func TestQueriesAndHeadersAreReadStrictly(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	task := "/v1/tasks/" + apitest.ID(1)
	for path, field := range map[string]string{
		task + "?unknown=1":                        "unknown",
		task + "?Min_index=1":                      "Min_index",
		task + "?min_index=x":                      "min_index",
		task + "?min_index=-1":                     "min_index",
		task + "?min_index=1&min_index=2":          "min_index",
		task + "?min_index=18446744073709551616":   "min_index",
		task + "?consistency=strong":               "consistency",
		task + "?ns=a:b":                           "ns",
		task + "?ns=":                              "ns",
		task + "?ns=a&ns=b":                        "ns",
		task + "?%zz":                              "query",
		task + "?a;b":                              "query",
		task + "/result?wait=5":                    "wait",
		task + "/result?wait=-5s":                  "wait",
		"/v1/tasks/x":                              "id",
		"/v1/tasks?order=first":                    "order",
		"/v1/tasks?label=env":                      "label",
		"/v1/tasks?queue=q&state=READY":            "state",
		"/v1/tasks?queue=q&state=ready&limit=0":    "limit",
		"/v1/tasks?queue=q&state=ready&limit=ten":  "limit",
		"/v1/tasks?queue=q&state=ready&cursor=%21": "cursor",
		"/v1/queues?cursor=a":                      "cursor",
		"/v1/queues/a%20b":                         "queue",
		"/v1/kv/a:b/keys/k":                        "keyspace",
	} {
		if e := failed(t, r.do("GET", path, "").expect(t, path, http.StatusBadRequest)); e.Code != "INVALID_ARGUMENT" || e.Field != field {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		field              string
	}{
		"a key twice":               {"POST", "/v1/tasks", `{"queue":"q"}`, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, "Idempotency-Key"},
		"an empty key":              {"POST", "/v1/tasks", `{"queue":"q"}`, []string{"Idempotency-Key", ""}, "Idempotency-Key"},
		"a key that is not UTF-8":   {"POST", "/v1/tasks", `{"queue":"q"}`, []string{"Idempotency-Key", "\xff"}, "Idempotency-Key"},
		"a key and unique":          {"POST", "/v1/tasks", `{"queue":"q","unique":{"key":"k"}}`, []string{"Idempotency-Key", "a"}, "Idempotency-Key"},
		"a version that is invalid": {"PUT", "/v1/queues/q", `{}`, []string{"If-Match", "*"}, "If-Match"},
		"a weak version":            {"PUT", "/v1/queues/q", `{}`, []string{"If-Match", `W/"3"`}, "If-Match"},
		"a body that is compressed": {"POST", "/v1/tasks", `{"queue":"q"}`, []string{"Content-Encoding", "gzip"}, "Content-Encoding"},
		"a body where none belongs": {"DELETE", task, `{}`, nil, "body"},
		"no body":                   {"POST", "/v1/tasks", "", nil, "body"},
		"no token of a lease":       {"POST", task + "/complete", `{}`, nil, "token"},
		"a field of another route":  {"POST", task + "/release", `{"token":1,"result":1}`, nil, "result"},
		"a field of the outcome":    {"POST", task + "/fail", `{"token":1,"retry_after":"-1s"}`, nil, "retry_after"},
		"neither until nor delay":   {"POST", task + "/snooze", `{"token":1}`, nil, "body"},
		"a field of an effect":      {"POST", task + "/complete", `{"token":1,"effects":{"ops":[{"kv_put":{"keyspace":"a b","key":"k"}}]}}`, nil, "effects.ops[0].keyspace"},
		"a field of a settle":       {"PUT", "/v1/queues/q", `{"lease":"1ms"}`, nil, "lease"},
		"two ops in one":            {"POST", "/v1/commit", `{"ops":[{"kv_put":{"keyspace":"k","key":"k"},"kv_delete":{"keyspace":"k","key":"k"}}]}`, nil, "ops[0].kv_delete"},
		"an op without a name":      {"POST", "/v1/commit", `{"ops":[{}]}`, nil, "ops[0]"},
		"a key in two ways":         {"POST", "/v1/commit", `{"ops":[{"kv_put":{"keyspace":"k","key":"k","key_base64":"aw=="}}]}`, nil, "ops[0].kv_put.key_base64"},
		"two operands":              {"POST", "/v1/commit", `{"conditions":[{"keyspace":"k","key":"k","compare":"equal","rev":1,"value":"v"}]}`, nil, "conditions[0].value"},
		"a short request id":        {"POST", "/v1/commit", `{"request_id":"abcd","ops":[{"kv_delete":{"keyspace":"k","key":"k"}}]}`, nil, "request_id"},
	} {
		if e := failed(t, r.do(c.method, c.path, c.body, c.header...).expect(t, name, http.StatusBadRequest)); e.Code != "INVALID_ARGUMENT" || e.Field != c.field {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for op, want := range map[string]string{"kv_min": "not_supported", "kv_max": "not_supported", "kv_nothing": "unknown_field"} {
		e := failed(t, r.do("POST", "/v1/commit", `{"ops":[{"`+op+`":{}}]}`).expect(t, op, http.StatusBadRequest))
		if e.Reason != want || e.Field != "ops[0]."+op {
			t.Errorf("%s: %+v", op, e)
		}
	}
	if n := len(r.n.Proposed()); n != 0 {
		t.Errorf("%d commits were proposed", n)
	}
}

// TestWhatTellsOfAFailureIsCutAndNotRefused: a failure that cannot be told becomes a crash when its lease runs out.
func TestWhatTellsOfAFailureIsCutAndNotRefused(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for name, c := range map[string]struct{ body, message string }{
		"one byte more than is kept":   {`{"message":"` + strings.Repeat("x", shownMessageBytes+1) + `"}`, strings.Repeat("x", shownMessageBytes)},
		"half a letter at the end":     {`{"message":"` + strings.Repeat("x", shownMessageBytes-1) + `é"}`, strings.Repeat("x", shownMessageBytes-1)},
		"output of a program with NUL": {`{"message":"a\u0000b","code":"c\u0000","stack":"s\u0000"}`, "a\x00b"},
		"a long code and stack":        {`{"message":"m","code":"` + strings.Repeat("c", 1000) + `","stack":"` + strings.Repeat("s", 100_000) + `"}`, "m"},
		"control characters":           {`{"message":"\u001b[31mred\u0007"}`, "\x1b[31mred\a"},
	} {
		before := len(r.n.Proposed())
		r.do("POST", "/v1/tasks/"+apitest.ID(1)+"/fail", `{"token":1,"error":`+c.body+`}`).expect(t, name, http.StatusOK)
		made := r.n.Proposed()[before:]
		if len(made) != 1 {
			t.Fatalf("%s: %d commits were proposed", name, len(made))
		}
		op, ok := made[0].Ops[0].(*core.TaskFail)
		if !ok || op.Error.Message != c.message || len(op.Error.Code) > shownCodeBytes || len(op.Error.Stack) > shownStackBytes {
			t.Errorf("%s: got %+v", name, made[0].Ops[0])
		}
	}
}

// TestARefusalOfAnEffectNamesItsOp: without that it could be taken for one of the task.
func TestARefusalOfAnEffectNamesItsOp(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	for op, code := range map[string]string{
		`{"vector_upsert":{"collection":"gone","point":{"id":"a","payload":{}}}}`: "NOT_FOUND",
		`{"kv_put":{"keyspace":"bad name","key":"a","value":"1"}}`:                "INVALID_ARGUMENT",
		`{"kv_delete":{"keyspace":"k","key":""}}`:                                 "INVALID_ARGUMENT",
		`{"task_create":{"queue":"bad name"}}`:                                    "INVALID_ARGUMENT",
	} {
		fine := `{"kv_put":{"keyspace":"k","key":"a","value":"1"}}`
		answer := r.do("POST", "/v1/tasks/"+apitest.ID(1)+"/complete", `{"token":1,"effects":{"ops":[`+fine+`,`+op+`]}}`)
		if e := failed(t, answer); e.Code != code || e.Op == nil || *e.Op != 1 {
			t.Errorf("%s: %+v, want %s at op 1", op, e, code)
		}
		answer = r.do("POST", "/v1/commit", `{"ops":[`+fine+`,`+op+`]}`)
		if e := failed(t, answer); e.Code != code || e.Op == nil || *e.Op != 1 {
			t.Errorf("%s in a commit: %+v, want %s at op 1", op, e, code)
		}
	}
}
