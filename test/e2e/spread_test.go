package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask sends a request to a node and reads the answer, wherever the nodes send it. It asks again what was refused because no node
// led: leaders may change at any time.
func (c *nodes) ask(node int, method, path, body string, out any) {
	c.t.Helper()
	for ctx := bounded(c.t, time.Minute); ; {
		status, b := c.askOnce(ctx, node, method, path, body)
		if status == http.StatusServiceUnavailable && ctx.Err() == nil {
			var refused struct {
				Error struct{ Reason, Outcome string }
			}
			noErr(c.t, json.Unmarshal(b, &refused))
			if refused.Error.Reason == "no_leader" && refused.Error.Outcome == "refused" {
				time.Sleep(50 * time.Millisecond)
				continue
			}
		}
		if status >= 300 {
			c.t.Fatalf("%s %s at node %d: %d: %s", method, path, node+1, status, b)
		}
		if len(b) > 0 {
			noErr(c.t, json.Unmarshal(b, out))
		}
		return
	}
}

// askOnce sends a request to a node, and returns the status and the body of the answer.
func (c *nodes) askOnce(ctx context.Context, node int, method, path, body string) (int, []byte) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.peers[node].HTTP+path, strings.NewReader(body))
	noErr(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	noErr(c.t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	noErr(c.t, err)
	return resp.StatusCode, b
}

// spread waits until the partitions of a namespace are led by that many nodes, as one of them sees it.
func (c *nodes) spread(ns string, nodes int) {
	c.t.Helper()
	for ctx := bounded(c.t, time.Minute); ; {
		var shown struct {
			Partitions []struct {
				Address string
				Led     bool
			}
		}
		c.ask(0, "GET", "/v1/namespace?ns="+ns, "", &shown)
		leaders := make(map[string]bool)
		for _, p := range shown.Partitions {
			if p.Led {
				leaders[p.Address] = true
			}
		}
		if len(leaders) >= nodes {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("the leaders are %v", leaders)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestPartitionsLedByAllNodesAreServedByAnyOfThem(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 6)
	var ignored map[string]any
	c.ask(1, "POST", "/v1/namespace?ns=wide", `{"partitions":6}`, &ignored)
	c.spread("wide", 3)
	c.ask(2, "PUT", "/v1/queues/q?ns=wide", `{"lease":"77s"}`, &ignored)
	type item struct {
		ID, Token, State, Lease string
		Error                   any
	}
	made := make(map[string]bool)
	for node := range 3 {
		var out struct{ Results []item }
		c.ask(node, "POST", "/v1/tasks:batch?ns=wide", `{"tasks":[`+strings.Repeat(`{"queue":"q"},`, 59)+`{"queue":"q"}]}`, &out)
		for _, r := range out.Results {
			if r.Error != nil || made[r.ID] {
				t.Fatalf("made at node %d: %+v", node+1, r)
			}
			made[r.ID] = true
		}
	}
	for node := range 3 {
		var stats struct{ Created, Ready int }
		c.ask(node, "GET", "/v1/queues/q/stats?ns=wide", "", &stats)
		if len(made) != 180 || stats.Created != 180 || stats.Ready != 180 {
			t.Errorf("node %d counts %+v of %d", node+1, stats, len(made))
		}
	}
	var settle []string
	var beats []string
	for turn := 0; len(settle) < 180; turn++ {
		var out struct{ Tasks []item }
		c.ask(turn%3, "POST", "/v1/tasks:claim?ns=wide", `{"queues":["q"],"max":20,"wait":"20s"}`, &out)
		for _, r := range out.Tasks {
			if !made[r.ID] || r.Lease != "77s" {
				t.Fatalf("claimed at node %d: %+v", turn%3+1, r)
			}
			delete(made, r.ID)
			beats = append(beats, fmt.Sprintf(`{"id":%q,"token":%q}`, r.ID, r.Token))
			settle = append(settle, fmt.Sprintf(`{"id":%q,"token":%q,"complete":{}}`, r.ID, r.Token))
		}
	}
	var beat struct{ Results []struct{ Lost bool } }
	c.ask(0, "POST", "/v1/tasks:heartbeat?ns=wide", `{"items":[`+strings.Join(beats, ",")+`]}`, &beat)
	var done struct{ Results []item }
	c.ask(1, "POST", "/v1/tasks:settle?ns=wide", `{"items":[`+strings.Join(settle, ",")+`]}`, &done)
	for i, r := range done.Results {
		if r.Error != nil || r.State != "completed" || beat.Results[i].Lost {
			t.Errorf("settle %d: %+v, lost %v", i, r, beat.Results[i].Lost)
		}
	}
	var stats struct{ Completed, Ready, Running int }
	if c.ask(2, "GET", "/v1/queues/q/stats?ns=wide", "", &stats); stats.Completed != 180 || stats.Ready+stats.Running != 0 {
		t.Errorf("at the end: %+v", stats)
	}
}
