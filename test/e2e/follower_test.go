package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// visitor is a client of one node's REST side. It goes where it is sent, and counts how often.
type visitor struct {
	web
	query   string          // on every request
	seen    map[string]bool // routes as the caller names them
	hops    int             // most times that one request was sent on
	hopping int             // of the request under way
}

func (c *nodes) visitor(i int, query string) *visitor {
	w := &visitor{web: web{t: c.t, address: c.peers[i].HTTP, token: c.token}, query: query, seen: map[string]bool{}}
	w.client = &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		w.hopping = len(via)
		req.Header.Set("Authorization", "Bearer "+w.token) // another port of one host is another host to some
		return nil
	}}
	return w
}

// do sends a request to the path, in which id stands for {id}, and expects a status of the list. Not for concurrent use.
func (w *visitor) do(method, route, id, body string, want ...int) (answer []byte) {
	w.t.Helper()
	w.seen[method+" "+strings.SplitN(route, "?", 2)[0]] = true
	path := strings.ReplaceAll(route, "{id}", id)
	for name, value := range map[string]string{
		"{queue}": "q", "{cron}": "nightly", "{limiter}": "api", "{worker}": "w", "{keyspace}": "ks", "{key}": "k", "{repo}": "app", "{name}": "heads/main", "{collection}": "ws", "{ruleset}": "r",
		"{search_id}": id, "{tenant}": "default", "{model}": "lexical-v2",
	} {
		path = strings.ReplaceAll(path, name, value)
	}
	if w.query != "" {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		path += sep + w.query
	}
	w.hopping = 0
	status, got := w.call(method, path, body)
	w.hops = max(w.hops, w.hopping)
	if !slices.Contains(want, status) {
		w.t.Errorf("%s %s: %d %s, want %v", method, path, status, got, want)
	}
	return []byte(got)
}

// claimed claims the one ready task; it returns the task's id and the lease's token.
func (w *visitor) claimed() (id, token string) {
	w.t.Helper()
	w.do("POST", "/v1/tasks:endclaim", "", `{"claim":"0123456789abcdef0123456789abcdef"}`, 200)
	a := w.do("POST", "/v1/tasks:claim", "", `{"queues":["q"],"wait":"10s","worker":"w"}`, 200)
	var given struct {
		Tasks []struct{ ID, Token string }
	}
	noErr(w.t, json.Unmarshal(a, &given))
	if len(given.Tasks) != 1 {
		w.t.Fatalf("a claim got %s", a)
	}
	return given.Tasks[0].ID, given.Tasks[0].Token
}

// everyRoute sends a good request to each route there is.
func (w *visitor) everyRoute() {
	w.t.Helper()
	makeTask := func() { w.do("POST", "/v1/tasks", "", `{"queue":"q","payload":1}`, 201) }
	w.do("PUT", "/v1/queues/{queue}", "", `{"max_attempts":3}`, 200, 201)
	w.do("GET", "/v1/queues/{queue}", "", "", 200)
	w.do("GET", "/v1/queues", "", "", 200)
	w.do("POST", "/v1/namespace", "", `{"partitions":1}`, 200, 201)
	w.do("PUT", "/v1/namespace", "", `{}`, 200)
	w.do("GET", "/v1/namespace", "", "", 200)
	w.do("GET", "/v1/namespaces", "", "", 200)
	w.do("GET", "/v1/status", "", "", 200)
	w.do("GET", "/v1/openapi.json", "", "", 200)
	w.firstEvent("overview,queue:q")

	makeTask()
	w.do("DELETE", "/v1/namespace", "", "", 409) // it has a task
	id, token := w.claimed()
	w.do("POST", "/v1/tasks:heartbeat", "", fmt.Sprintf(`{"items":[{"id":%q,"token":%q}]}`, id, token), 200)
	w.do("POST", "/v1/tasks/{id}/heartbeat", id, fmt.Sprintf(`{"token":%q}`, token), 200)
	w.do("POST", "/v1/tasks/{id}/complete", id, fmt.Sprintf(`{"token":%q,"result":2}`, token), 200)
	w.do("GET", "/v1/tasks/{id}", id, "", 200)
	w.do("GET", "/v1/tasks/{id}?view=meta", id, "", 200)
	w.do("GET", "/v1/tasks/{id}/payload", id, "", 200)
	w.do("GET", "/v1/tasks/{id}/output", id, "", 200)
	w.do("GET", "/v1/tasks/{id}/attempts", id, "", 200)
	w.do("POST", "/v1/tasks/{id}/report", id, `{"token":1}`, 409)
	w.do("GET", "/v1/tasks/{id}/logs", id, "", 200)
	w.do("GET", "/v1/tasks/{id}/effects", id, "", 200)
	w.do("GET", "/v1/tasks/{id}/why", id, "", 200)
	w.do("POST", "/v1/tasks:get", "", fmt.Sprintf(`{"ids":[%q]}`, id), 200)
	w.do("GET", "/v1/tasks/{id}/result?wait=5s", id, "", 200)
	w.do("GET", "/v1/tasks?queue=q&state=completed", "", "", 200)
	w.do("GET", "/v1/queues/{queue}/stats", "", "", 200)
	w.do("DELETE", "/v1/tasks/{id}", id, "", 200)

	makeTask()
	id, token = w.claimed()
	w.do("POST", "/v1/tasks/{id}/release", id, fmt.Sprintf(`{"token":%q}`, token), 200)
	id, token = w.claimed()
	w.do("POST", "/v1/tasks/{id}/snooze", id, fmt.Sprintf(`{"token":%q,"delay":"1h"}`, token), 200)
	w.do("POST", "/v1/tasks/{id}/run-now", id, "", 200)
	id, token = w.claimed()
	w.do("POST", "/v1/tasks/{id}/fail", id, fmt.Sprintf(`{"token":%q,"fatal":true,"error":{"message":"no"}}`, token), 200)

	makeTask()
	id, token = w.claimed()
	w.do("POST", "/v1/tasks:settle", "", fmt.Sprintf(`{"items":[{"id":%q,"token":%q,"complete":{}}]}`, id, token), 200)
	w.everyControl(makeTask)
	w.do("POST", "/v1/tasks:batch", "", `{"tasks":[{"queue":"other"},{"queue":"other"}]}`, 200)
	w.do("POST", "/v1/commit", "", `{"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"v"}}]}`, 200)
	w.do("DELETE", "/v1/queues/{queue}?purge=true", "", "", 204)
	w.everyKeyRoute()
	w.everyRefRoute()
	w.everySearchRoute()
	w.everyOperatorRoute()
	w.everySessionRoute()
}

// everyControl acts on tasks and on the queue.
func (w *visitor) everyControl(makeTask func()) {
	w.t.Helper()
	makeTask()
	// A node that has never led must know the time, or this lies too far ahead.
	w.do("POST", "/v1/queues/{queue}:pause", "", fmt.Sprintf(`{"reason":"test","until":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339)), 200)
	w.do("POST", "/v1/queues/{queue}:resume", "", "", 200)
	w.do("PUT", "/v1/queues/{queue}/keys/{key}", "", `{"weight":3}`, 200)
	w.do("POST", "/v1/queues/{queue}/keys/{key}:pause", "", `{"reason":"test"}`, 200)
	w.do("POST", "/v1/queues/{queue}/keys/{key}:resume", "", "", 200)
	w.do("GET", "/v1/queues/{queue}/keys", "", "", 200)
	id, _ := w.claimed()
	w.do("GET", "/v1/workers?queue=q", "", "", 200)
	for _, on := range []string{"true", "false"} {
		w.do("POST", "/v1/workers/{worker}:quiet", "", `{"on":`+on+`}`, 200)
	}
	w.do("POST", "/v1/tasks/{id}/force-release", id, "", 200)
	id, token := w.claimed()
	w.do("POST", "/v1/tasks/{id}/fail", id, fmt.Sprintf(`{"token":%q,"fatal":true}`, token), 200)
	w.do("GET", "/v1/errors?queue=q&span=1h", "", "", 200)
	w.do("GET", "/v1/overview", "", "", 200)
	w.do("GET", "/v1/history?queue=q&span=1h", "", "", 200)
	w.do("POST", "/v1/tasks/{id}/retry", id, "", 200)
	w.do("PATCH", "/v1/tasks/{id}", id, `{"priority":5}`, 200)
	id, token = w.claimed()
	w.do("POST", "/v1/tasks/{id}/cancel", id, `{"reason":"test"}`, 200)
	w.do("POST", "/v1/tasks/{id}/stop", id, fmt.Sprintf(`{"token":%q}`, token), 200)

	var begun struct{ Job struct{ ID string } }
	noErr(w.t, json.Unmarshal(w.do("POST", "/v1/bulk", "", `{"action":"prioritize","filter":{"queue":"q"}}`, 202), &begun))
	w.do("GET", "/v1/bulk/{id}", begun.Job.ID, "", 200)
	w.do("GET", "/v1/bulk", "", "", 200)
	w.do("POST", "/v1/bulk/{id}:cancel", begun.Job.ID, "", 200)
	w.do("POST", "/v1/queues/{queue}:redrive", "", `{"dry_run":true}`, 200)
	batch := begun.Job.ID // an id of the first partition
	w.do("POST", "/v1/batches", "", `{"id":"`+batch+`"}`, 201)
	w.do("GET", "/v1/batches", "", "", 200)
	w.do("GET", "/v1/batches/{id}", batch, "", 200)
	w.do("POST", "/v1/batches/{id}:seal", batch, "", 200)
	w.do("GET", "/v1/batches/{id}/result?wait=5s", batch, "", 200)
	w.do("POST", "/v1/batches/{id}:cancel", batch, "", 409)
	w.do("POST", "/v1/crons:preview", "", `{"schedule":"@daily"}`, 200)
	w.do("PUT", "/v1/limiters/{limiter}", "", `{"concurrency":2}`, 200)
	w.do("GET", "/v1/limiters", "", "", 200)
	w.do("GET", "/v1/limiters/{limiter}", "", "", 200)
	w.do("DELETE", "/v1/limiters/{limiter}", "", "", 204)
	w.do("PUT", "/v1/crons/{cron}", "", `{"schedule":"@yearly","template":{"queue":"q"}}`, 200)
	w.do("GET", "/v1/crons", "", "", 200)
	w.do("GET", "/v1/crons/{cron}", "", "", 200)
	w.do("POST", "/v1/crons/{cron}:pause", "", "", 200)
	w.do("POST", "/v1/crons/{cron}:resume", "", "", 200)
	w.do("POST", "/v1/crons/{cron}:trigger", "", "", 200)
	w.do("GET", "/v1/crons/{cron}/runs", "", "", 200)
	w.do("DELETE", "/v1/crons/{cron}", "", "", 204)
}

func (w *visitor) everyOperatorRoute() {
	w.t.Helper()
	w.do("GET", "/v1/tenant", "", "", 200)
	w.do("GET", "/v1/tenants/{tenant}", "", "", 200)
	w.do("PUT", "/v1/tenants/{tenant}", "", `{"key_bytes":1000000000}`, 200)
	var cluster struct {
		Shards []struct{ Leader uint64 }
	}
	noErr(w.t, json.Unmarshal(w.do("GET", "/v1/cluster", "", "", 200), &cluster))
	w.do("POST", "/v1/cluster/transfer", "", fmt.Sprintf(`{"shard":0,"to":%d}`, cluster.Shards[0].Leader), 200)
	w.do("POST", "/v1/cluster/members", "", `{"verb":"cancel"}`, 409)
	w.do("POST", "/v1/cluster/balance", "", "", 200)
	w.do("POST", "/v1/cluster/finalize", "", "", 200)
}

func (w *visitor) everySessionRoute() {
	w.t.Helper()
	w.do("POST", "/v1/session", "", `{"token":"`+w.token+`"}`, 200)
	w.do("GET", "/v1/session", "", "", 200)
	w.do("DELETE", "/v1/session", "", "", 204)
	w.do("POST", "/v1/session:code", "", "", 200)
	w.do("POST", "/v1/sessions:end", "", "", 204)
}

func (w *visitor) everyKeyRoute() {
	w.t.Helper()
	w.do("GET", "/v1/kv/{keyspace}/keys/{key}", "", "", 200)
	w.do("PUT", "/v1/kv/{keyspace}/keys/{key}", "", "v", 200)
	w.do("POST", "/v1/kv/{keyspace}/get", "", `{"keys":["k"]}`, 200)
	w.do("GET", "/v1/kv/{keyspace}", "", "", 200)
	w.do("DELETE", "/v1/kv/{keyspace}/keys/{key}", "", "", 200)
	w.do("DELETE", "/v1/kv/{keyspace}?prefix=k", "", "", 200)
	w.do("PUT", "/v1/keyspaces/{keyspace}", "", `{"quota":{"bytes":1000000}}`, 200)
	w.do("GET", "/v1/keyspaces/{keyspace}", "", "", 200)
	w.do("GET", "/v1/keyspaces", "", "", 200)
	w.do("DELETE", "/v1/keyspaces/{keyspace}", "", "", 200)
}

func (w *visitor) everyRefRoute() {
	w.t.Helper()
	w.do("POST", "/v1/repos", "", `{"name":"app"}`, 200, 201)
	w.do("GET", "/v1/repos", "", "", 200)
	w.do("GET", "/v1/repos/{repo}", "", "", 200)
	w.do("PUT", "/v1/repos/{repo}", "", `{"config":{"reflog_days":3}}`, 200)
	missing := strings.Repeat("1", 40) // no object of the repository
	w.do("POST", "/v1/repos/{repo}/refs", "", `{"changes":[{"kind":"create","name":"refs/heads/main","new":"`+missing+`"}]}`, 412)
	w.do("POST", "/v1/repos/{repo}/refs:get", "", `{"names":["HEAD"]}`, 200)
	w.do("GET", "/v1/repos/{repo}/refs", "", "", 200)
	w.do("GET", "/v1/repos/{repo}/refs/{name}", "", "", 404)
	w.do("GET", "/v1/repos/{repo}/reflog?name=HEAD", "", "", 200)
	w.do("GET", "/v1/repos/{repo}/activity", "", "", 200)
	w.do("DELETE", "/v1/repos/{repo}", "", "", 200)
	w.do("POST", "/v1/repos/{repo}/undelete", "", `{}`, 200)
	w.do("DELETE", "/v1/repos/{repo}", "", "", 200) // so that it can be made again
}

func (w *visitor) everySearchRoute() {
	w.t.Helper()
	w.do("PUT", "/v1/collections/{collection}", "", `{"schema":[{"name":"role","type":"keyword","gate":"role"},{"name":"about","type":"text"}],"text_fields":[{"name":"about"}]}`, 200, 201)
	w.do("GET", "/v1/collections/{collection}", "", "", 200)
	w.do("GET", "/v1/collections", "", "", 200)
	w.do("POST", "/v1/embed", "", `{"text":"hello"}`, 200)
	w.do("POST", "/v1/embeddings", "", `{"input":"hello"}`, 200)
	w.do("GET", "/v1/models", "", "", 200)
	w.do("GET", "/v1/models/{model}", "", "", 200)
	w.do("POST", "/v1/collections/{collection}/points:upsert", "", `{"points":[{"id":"w1","payload":{"role":"a","about":"a welder"}}]}`, 200)
	w.do("POST", "/v1/collections/{collection}/points:get", "", `{"ids":["w1"]}`, 200)
	w.do("POST", "/v1/collections/{collection}/points:count", "", `{"gate":{"roles":["a"]}}`, 200)
	w.do("GET", "/v1/collections/{collection}/stats", "", "", 200)
	w.do("PUT", "/v1/rulesets/{ruleset}", "", `{"collection":"ws","rules":[{"id":"a","when":"true","severity":"bonus","weight":0.5}]}`, 200, 201)
	w.do("GET", "/v1/rulesets/{ruleset}", "", "", 200)
	w.do("GET", "/v1/rulesets", "", "", 200)
	w.do("DELETE", "/v1/rulesets/{ruleset}", "", "", 200)
	var found struct {
		Results  []struct{ ID string }
		SearchID string `json:"search_id"`
	}
	noErr(w.t, json.Unmarshal(w.do("POST", "/v1/matrix/search", "", `{"collection":"ws","query_text":"welder","record":true}`, 200), &found))
	if len(found.Results) != 1 || found.Results[0].ID != "w1" {
		w.t.Errorf("a search finds %+v", found)
	}
	w.do("GET", "/v1/recordings/{search_id}", found.SearchID, "", 200)
	w.do("POST", "/v1/collections/{collection}/points:delete", "", `{"points":[{"id":"w1"}]}`, 200)
	w.do("DELETE", "/v1/collections/{collection}", "", "", 200)
}

func TestEveryRouteServesAtAFollowerByRedirectAndByForwarding(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	c.lead(0) // its home: nothing moves when leaders are balanced
	const follower = 1
	for query, hops := range map[string]int{"": 1, "forward=1": 0} {
		w := c.visitor(follower, query)
		w.everyRoute()
		if w.hops != hops {
			t.Errorf("with %q a request was sent on %d times, want %d", query, w.hops, hops)
		}
		var doc struct {
			Paths map[string]map[string]json.RawMessage
		}
		noErr(t, json.Unmarshal(w.do("GET", "/v1/openapi.json", "", "", 200), &doc))
		for path, methods := range doc.Paths {
			for method := range methods {
				if route := strings.ToUpper(method) + " " + path; !w.seen[route] {
					t.Errorf("nothing was sent to %s", route)
				}
			}
		}
		if len(doc.Paths) == 0 {
			t.Error("the document names no routes")
		}
	}
}

func TestWhatWasJustMadeIsFoundOnEveryNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	lead := c.leader()
	maker := c.visitor(lead, "")
	readers := []*visitor{c.visitor(0, ""), c.visitor(1, ""), c.visitor(2, "")}
	for range 100 {
		a := maker.do("POST", "/v1/tasks", "", `{"queue":"q"}`, 201)
		var made struct{ ID, Index string }
		noErr(t, json.Unmarshal(a, &made))
		for _, w := range readers {
			w.do("GET", "/v1/tasks/{id}", made.ID, "", 200)
			w.do("GET", "/v1/tasks/{id}?consistency=stale&min_index="+made.Index, made.ID, "", 200)
			if w.hops != 0 {
				t.Fatal("a read was sent to another node")
			}
		}
	}
}

// A claim of any partition waits at one node. Any other node ends it by its name.
func TestAClaimOfAnyPartitionIsEndedFromAnyNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3)
	c.leader()
	ctx := bounded(t, 90*time.Second)
	if _, err := c.client(0, millrace.Namespace("wide")).CreateNamespace(ctx, 6); err != nil {
		t.Fatal(err)
	}
	for at := range 3 {
		for asked := range 3 {
			name := fmt.Sprintf("%032d", 3*at+asked+1)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.visitor(at, "ns=wide&forward=1").do("POST", "/v1/tasks:claim", "", fmt.Sprintf(`{"queues":["q"],"wait":"60s","claim":%q}`, name), 204)
			}()
			end := c.visitor(asked, "ns=wide&hop=1") // which answers by itself
			for found := false; !found; {
				var out struct{ Found bool }
				noErr(t, json.Unmarshal(end.do("POST", "/v1/tasks:endclaim", "", fmt.Sprintf(`{"claim":%q}`, name), 200), &out))
				if found = out.Found; !found { // the claim is still on its way
					select {
					case <-ended:
						t.Fatalf("the claim at node %d ended before node %d was asked to end it", at, asked)
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
			select {
			case <-ended:
			case <-ctx.Done():
				t.Fatalf("node %d has ended the claim at node %d, which waits on", asked, at)
			}
		}
	}
}

// Claims that find nothing, wait, or are given up by their callers leave no lease behind, whichever node they asked.
func TestClaimsThatAreGivenUpLeaveNoLease(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3)
	c.leader()
	ctx := bounded(t, 90*time.Second)
	admin := c.client(0, millrace.Namespace("wide"))
	if _, err := admin.CreateNamespace(ctx, 4); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			w := c.visitor(i%3, "ns=wide")
			short, cancel := context.WithTimeout(ctx, time.Duration(20+10*i)*time.Millisecond)
			defer cancel()
			req, err := http.NewRequestWithContext(short, "POST", "http://"+w.address+"/v1/tasks:claim?ns=wide", strings.NewReader(`{"queues":["q"],"wait":"20s"}`))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+c.token)
			req.Header.Set("Content-Type", "application/json")
			if resp, err := w.client.Do(req); err == nil {
				t.Errorf("a claim of an empty queue got %d", resp.StatusCode)
				resp.Body.Close() //nolint:errcheck // the test has failed
			}
			w.do("POST", "/v1/tasks:claim", "", `{"queues":["q"]}`, 204)
		})
	}
	all.Wait()
	const tasks = 40
	job := millrace.Job[int, int]("q")
	for i := range tasks {
		if _, err := job.Add(ctx, admin, i); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := admin.Queue("q").Stats(ctx)
	if err != nil || stats.Ready != tasks || stats.Running != 0 {
		t.Errorf("after claims that no client waits for: %+v, %v", stats, err)
	}
}

func TestOneUniqueKeyIsOneTaskInAnyNumberOfPartitionsWhileLeadersGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 4)
	ctx := bounded(t, 120*time.Second)
	const keys, callers = 12, 4
	for _, partitions := range []int{1, 4, 16} {
		space := fmt.Sprint("of", partitions)
		if _, err := c.client(0, millrace.Namespace(space)).CreateNamespace(ctx, partitions); err != nil {
			t.Fatal(err)
		}
		job := millrace.Job[int, int]("once")
		ids := make([][callers]string, keys)
		var all sync.WaitGroup
		for caller := range callers {
			client := c.client(caller%3, millrace.Namespace(space))
			all.Go(func() {
				for key := range keys {
					h, err := job.Add(ctx, client, key, millrace.UniqueKey(fmt.Sprint("key", key), time.Hour))
					if err != nil {
						t.Errorf("key %d: %v", key, err)
						return
					}
					ids[key][caller] = h.ID
				}
			})
		}
		gone := c.leader()
		c.stop(gone)
		all.Wait()
		c.start(gone)
		for key, made := range ids {
			for _, id := range made {
				if id != made[0] {
					t.Errorf("key %d made several tasks in %d partitions: %v", key, partitions, made)
				}
			}
		}
		stats, err := c.client(0, millrace.Namespace(space)).Queue("once").Stats(ctx)
		if err != nil || stats.Ready != keys {
			t.Errorf("%d partitions: %+v, %v", partitions, stats, err)
		}
	}
}
