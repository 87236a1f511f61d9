package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// webDoor is a standard HTTP client of a cluster. Both of its kinds ask another node when one
// refuses because it does not lead; one kind also follows redirects.
type webDoor struct {
	rig *bench.Rig
	// http counts what it sends, and follows redirects unless the kind forbids it.
	http *http.Client
	// bodies has the requests that are sent over and over.
	bodies restRun

	// picks numbers the nodes that are drawn, by clients that ask any node.
	picks atomic.Uint64
	// turns is where each caller is that asks nodes in turn.
	turns [256]atomic.Uint64

	// sent counts requests by operation; redirected and refused count answers.
	sent                [opKinds]atomic.Uint64
	redirected, refused atomic.Uint64
}

// opKey is the key of a request's context for the kind of its operation. Requests that a redirect
// causes have the same context, and so count for it.
type opKey struct{}

// A caller that every node has refused a few times rests for turnRest, and gives up after turnMost rounds.
const (
	// turnRest is the rest after four rounds over all nodes.
	turnRest = 5 * time.Millisecond
	// turnMost is the number of rounds after which the error is returned.
	turnMost = 400
)

// newWebDoor makes the client, with a connection for each caller and node.
func newWebDoor(rig *bench.Rig) (*webDoor, error) {
	d := &webDoor{rig: rig, bodies: restRun{rig: rig}}
	for _, s := range rig.Servers {
		if s.HTTP == "" {
			return nil, fmt.Errorf("%s has no REST door", s.Name)
		}
	}
	if err := d.bodies.bodies(); err != nil {
		return nil, err
	}
	conns := max(rig.Shape.Loops(), rig.Concurrency) + 8
	d.http = &http.Client{
		Timeout: restTimeout, Transport: counted{d, &http.Transport{
			MaxIdleConns: conns * len(rig.Servers), MaxIdleConnsPerHost: conns, DisableCompression: true,
		}},
	}
	if rig.Shape.Kind == kindRotation {
		d.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return d, nil
}

// counted is a transport that counts every request that leaves, including those that a redirect causes.
type counted struct {
	// d has the counters.
	d *webDoor
	// next sends the requests.
	next *http.Transport
}

// RoundTrip sends one request.
func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	// Requests without a kind are not of a caller.
	if op, ok := req.Context().Value(opKey{}).(int); ok {
		c.d.sent[op].Add(1)
	}
	resp, err := c.next.RoundTrip(req)
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusTemporaryRedirect && resp.Header.Get("Location") != "":
		c.d.redirected.Add(1)
	case resp.StatusCode >= http.StatusBadRequest:
		c.d.refused.Add(1)
	}
	return resp, err
}

// CloseIdleConnections ends the connections that are kept.
func (c counted) CloseIdleConnections() { c.next.CloseIdleConnections() }

// traffic is what counted has counted.
func (d *webDoor) traffic(context.Context) (t traffic, known bool, err error) {
	for op := range d.sent {
		t.of[op] = d.sent[op].Load()
		t.sent += t.of[op]
	}
	t.redirected, t.refused = d.redirected.Load(), d.refused.Load()
	return t, true, nil
}

// node is the base address of the node that a caller asks next.
func (d *webDoor) node(caller int) string {
	// The rounds of nodes begin with another node for each caller.
	n := uint64(len(d.rig.Servers))
	if d.rig.Shape.Kind == kindRotation {
		turn := &d.turns[caller%len(d.turns)]
		if turn.Load() == 0 {
			turn.CompareAndSwap(0, uint64(caller)) // they do not all begin with the same one
		}
		return d.rig.Servers[turn.Add(1)%n].HTTP
	}
	return d.rig.Servers[mix(d.rig.Seed+d.picks.Add(1))%n].HTTP
}

// mix spreads a number over 64 bits: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). It
// makes consecutive draws look random, and the same in each run.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// elsewhere reports whether an answer says that another node must be asked, and that nothing was
// done. An answer of unknown outcome says the contrary: to ask again could do it twice.
func (e *refusedError) elsewhere() bool {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Outcome string `json:"outcome"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(e.body), &body) != nil || body.Error.Outcome == "unknown" {
		return e.status == http.StatusTemporaryRedirect
	}
	return e.status == http.StatusTemporaryRedirect || body.Error.Code == "NOT_LEADER" || body.Error.Code == "UNAVAILABLE"
}

// post sends a request to one node after the other until one serves it, or refuses it for good.
func (d *webDoor) post(ctx context.Context, caller, op int, path string, body []byte, out any) (none bool, err error) {
	ctx = context.WithValue(ctx, opKey{}, op)
	// try counts the requests of one operation, from 1.
	for try := 1; ; try++ {
		none, err = postJSON(ctx, d.http, d.rig, d.node(caller)+path, body, out)
		answer, ok := errors.AsType[*refusedError](err)
		if !ok || !answer.elsewhere() || try >= turnMost*len(d.rig.Servers) {
			return none, err
		}
		if try%(4*len(d.rig.Servers)) == 0 {
			if err := bench.Pause(ctx, turnRest); err != nil {
				return false, err
			}
		}
	}
}

// create makes one task. An answer without an id is an error of unknown outcome.
func (d *webDoor) create(ctx context.Context, caller int) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	_, err := d.post(ctx, caller, opCreate, "/v1/tasks", d.bodies.body, &made)
	if err == nil && made.ID == "" {
		err = errNoID
	}
	return made.ID, err
}

// claim asks for one task, and returns an empty id when none came.
func (d *webDoor) claim(ctx context.Context, caller int) (string, uint64, error) {
	var got claimedTasks
	none, err := d.post(ctx, caller, opClaim, "/v1/tasks:claim", d.bodies.claims, &got)
	if err != nil || none || len(got.Tasks) == 0 {
		return "", 0, err
	}
	return got.Tasks[0].ID, got.Tasks[0].Token, nil
}

// complete ends a task, and tells whether an earlier try had.
func (d *webDoor) complete(ctx context.Context, caller int, id string, token uint64) (bool, error) {
	var done struct {
		Replayed bool `json:"replayed"`
	}
	_, err := d.post(ctx, caller, opComplete, "/v1/tasks/"+id+"/complete", completion(token, d.rig.Result), &done)
	return done.Replayed, err
}
