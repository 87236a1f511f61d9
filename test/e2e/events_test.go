package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// firstEvent opens a stream of events, which has no end, and reads its first event.
func (w *visitor) firstEvent(topics string) string {
	w.t.Helper()
	w.seen["GET /v1/events"] = true
	ctx, cancel := context.WithCancel(bounded(w.t, time.Minute))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.address+"/v1/events?topics="+topics+"&"+w.query, http.NoBody)
	noErr(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.token)
	w.hopping = 0
	resp, err := w.client.Do(req)
	noErr(w.t, err)
	defer resp.Body.Close()
	w.hops = max(w.hops, w.hopping)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	w.t.Errorf("%s: %d, no event", topics, resp.StatusCode)
	return ""
}

// heldEvents opens a stream of events. How it ended comes after its end: UNAUTHENTICATED stands for an end in order, as the status was
// sent long before.
func heldEvents(t *testing.T, ctx context.Context, address, token string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/events?topics=overview", http.NoBody)
	noErr(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	noErr(t, err)
	end := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		switch all, err := io.ReadAll(resp.Body); {
		case err != nil:
			end <- err.Error()
		case !strings.Contains(string(all), "event: overview"):
			end <- "no event: " + string(all)
		default:
			end <- "UNAUTHENTICATED"
		}
	}()
	return end
}

// TestEventsTellTheSameAtEachNode: each node reads its own replica, and goes on while others are gone.
func TestEventsTellTheSameAtEachNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3)
	ctx := bounded(t, 90*time.Second)
	c.leader()
	wide := millrace.Namespace("wide")
	_, err := c.client(0, wide).CreateNamespace(ctx, 6)
	noErr(t, err)
	job := millrace.Job[int, int]("count").Queue("mail")
	for n := range 24 {
		_, err := job.Add(ctx, c.client(0, wide), n, millrace.Tag(fmt.Sprint(n)))
		noErr(t, err)
	}
	for node := range 3 {
		w := c.visitor(node, "ns=wide")
		for late := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) { // a replica may be behind
			var got struct {
				Whole bool
				At    []struct{ Partition int }
				Rows  []struct {
					Queue string
					Ready int
				}
			}
			noErr(t, json.Unmarshal([]byte(w.firstEvent("queues")), &got))
			if got.Whole && len(got.At) == 6 && len(got.Rows) == 1 && got.Rows[0].Queue == "mail" && got.Rows[0].Ready == 24 {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("node %d tells %+v", node+1, got)
			}
		}
		if w.hops > 0 {
			t.Errorf("node %d has sent a stream of events elsewhere", node+1)
		}
	}

	// A client goes on at another node, and begins there with all rows.
	var doors []string
	for i := range c.peers {
		doors = append(doors, c.peers[(i+1)%3].HTTP)
	}
	watched := c.client(1, wide, millrace.RESTAddress(strings.Join(doors, ",")))
	events := 0
	for e, err := range watched.Events(ctx, millrace.TopicQueue("mail")) {
		noErr(t, err)
		if events++; events == 1 {
			c.stop(1)
			go func() {
				for n := range 6 {
					if _, err := job.Add(ctx, c.client(2, wide), n, millrace.Tag(fmt.Sprint("later", n))); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		var row struct{ Ready int }
		noErr(t, json.Unmarshal(e.Rows[0], &row))
		if row.Ready == 30 {
			break
		}
	}
}
