package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A node without a majority shows what it has: each read with the parameter consistency is answered, and has what was made before.
func TestANodeWithoutAMajorityShowsWhatItHas(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	c.leader()
	const left = 1 // the node that stays
	for _, space := range []struct {
		name       string
		partitions int
	}{{"narrow", 1}, {"wide", 3}} {
		t.Run(space.name, func(t *testing.T) {
			w := c.visitor(left, "forward=1&ns="+space.name)
			w.t = t
			w.do("POST", "/v1/namespace", "", fmt.Sprintf(`{"partitions":%d}`, space.partitions), 201)
			ids := w.oneOfEach()
			if t.Failed() {
				return
			}
			for _, others := range []int{0, 2} {
				c.stop(others)
			}
			if space.partitions == 1 {
				w.do("GET", "/v1/tasks", "", "", 503, 504)
			}
			w.everyStaleRead(ids)
			for _, others := range []int{0, 2} {
				c.start(others)
			}
			c.leader()
		})
	}
}

// oneOfEach makes one thing of each kind, and reads it so that the node has it. It returns the ids of those that have no names.
func (w *visitor) oneOfEach() (ids map[string]string) {
	w.t.Helper()
	idOf := func(answer []byte) string {
		var made struct {
			Job, Batch struct{ ID string }
		}
		noErr(w.t, json.Unmarshal(answer, &made))
		return made.Job.ID + made.Batch.ID
	}
	w.do("PUT", "/v1/queues/{queue}", "", `{}`, 200, 201)
	w.do("PUT", "/v1/queues/{queue}/keys/{key}", "", `{"weight":3}`, 200)
	w.do("POST", "/v1/tasks", "", `{"queue":"q","payload":1,"tag":"ws"}`, 201)
	id, token := w.claimed()
	w.do("POST", "/v1/tasks/{id}/report", id, fmt.Sprintf(`{"token":%q,"lines":["begun"]}`, token), 200)
	w.do("POST", "/v1/tasks/{id}/complete", id, fmt.Sprintf(`{"token":%q,"result":2,"effects":{"ops":[{"kv_put":{"keyspace":"ks","key":"{ws}","value":"v"}}]}}`, token), 200)
	ids = map[string]string{
		"tasks":   id,
		"bulk":    idOf(w.do("POST", "/v1/bulk", "", `{"action":"prioritize","filter":{"queue":"q"}}`, 202)),
		"batches": idOf(w.do("POST", "/v1/batches", "", `{}`, 201)),
	}
	w.do("PUT", "/v1/limiters/{limiter}", "", `{"concurrency":2}`, 200)
	w.do("PUT", "/v1/crons/{cron}", "", `{"schedule":"@yearly","template":{"queue":"q"}}`, 200)
	w.do("POST", "/v1/crons/{cron}:trigger", "", "", 200)
	w.do("PUT", "/v1/kv/{keyspace}/keys/{key}", "", "v", 200)
	w.do("POST", "/v1/repos", "", `{"name":"app"}`, 201)
	w.do("PUT", "/v1/collections/{collection}", "", `{"schema":[{"name":"role","type":"keyword","gate":"role"}]}`, 201)
	w.do("PUT", "/v1/rulesets/{ruleset}", "", `{"collection":"ws","rules":[{"id":"a","when":"true","severity":"bonus","weight":0.5}]}`, 200, 201)
	return ids
}

// parameter is one of a route in the OpenAPI document, or names one that several routes have.
type parameter struct {
	Name string
	Ref  string `json:"$ref"`
}

func (p parameter) isConsistency() bool {
	return p.Name == "consistency" || strings.HasSuffix(p.Ref, "/consistency")
}

// everyStaleRead sends each read that has the parameter consistency, and looks for what oneOfEach made.
func (w *visitor) everyStaleRead(ids map[string]string) {
	w.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []parameter
		}
	}
	noErr(w.t, json.Unmarshal(w.do("GET", "/v1/openapi.json", "", "", 200), &doc))
	// What an answer must have, where it is not the name in its path.
	has := map[string]string{
		"/v1/tasks": ids["tasks"], "/v1/bulk": ids["bulk"], "/v1/batches": ids["batches"], "/v1/queues": `"q"`, "/v1/keyspaces": `"ks"`, "/v1/limiters": `"api"`,
		"/v1/crons": `"nightly"`, "/v1/repos": `"app"`, "/v1/collections": `"ws"`, "/v1/rulesets": `r@1`, "/v1/namespace": "partitions",
		"/v1/tasks/{id}/logs": "begun", "/v1/tasks/{id}/effects": "kv_put", "/v1/tasks/{id}/attempts": "completed", "/v1/queues/{queue}/keys": `"k"`,
		"/v1/crons/{cron}/runs": "by_hand",
	}
	reads := 0
	for path, methods := range doc.Paths {
		get, ok := methods["get"]
		if !ok || !slices.ContainsFunc(get.Parameters, parameter.isConsistency) {
			continue
		}
		reads++
		query := "?consistency=stale"
		switch {
		case strings.HasSuffix(path, "/reflog"):
			query += "&name=HEAD"
		case strings.HasSuffix(path, "/refs/{name}"): // there is no object that a ref could name
			w.do("GET", path+query, "", "", 404)
			continue
		}
		answer := string(w.do("GET", path+query, ids[strings.Split(path, "/")[2]], "", 200))
		if want := has[path]; want != "" && !strings.Contains(answer, want) {
			w.t.Errorf("%s shows %s, without %s", path, answer, want)
		}
	}
	if reads < 30 {
		w.t.Errorf("only %d reads have consistency", reads)
	}
}
