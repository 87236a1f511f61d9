package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Parameters of the query that any route takes, for clusters.
const (
	// hopParam is on an address that a node sends a caller to. Its node answers by itself, or not at all, so that nobody is
	// sent round in circles while leaders change.
	hopParam = "hop"
	// forwardParam asks the node to fetch the leader's answer instead of naming it.
	forwardParam = "forward"
)

// clusterParam says whether a parameter is one that any route takes.
func clusterParam(name string) bool { return name == hopParam || name == forwardParam }

// checkClusterParams refuses values of the cluster's parameters that mean nothing.
func (c *restCall) checkClusterParams() core.Fact {
	for _, name := range []string{hopParam, forwardParam} {
		if v, ok := c.query.get(name); ok && v != "1" && v != "0" {
			return invalid(name, "is 0 or 1")
		}
	}
	return nil
}

func (c *restCall) asks(name string) bool {
	v, _ := c.query.get(name)
	return v == "1"
}

// forwards says whether the node fetches the leader's answer for this request.
func (c *restCall) forwards() bool {
	if v, ok := c.query.get(forwardParam); ok {
		return v == "1"
	}
	return c.s.o.Forward
}

// leaderAddress is where this request goes at the leader: the same path and query, and the hop.
func (c *restCall) leaderAddress(f core.NotLeader) (*url.URL, bool) {
	if c.s.o.WebOf == nil {
		return nil, false
	}
	base := c.s.o.WebOf(f.Leader)
	to, err := url.Parse(base)
	if err != nil || base == "" {
		return nil, false
	}
	q := c.r.URL.Query()
	q.Del(forwardParam)
	q.Set(hopParam, "1")
	to.Path, to.RawPath, to.RawQuery = c.r.URL.Path, c.r.URL.RawPath, q.Encode()
	return to, true
}

// passed are the headers that go with a request which is forwarded, and those that come back.
var (
	passedOn   = []string{"Authorization", "Content-Type", "Idempotency-Key", "If-Match", "Accept"}
	passedBack = []string{"Content-Type", "Location", "Etag", "Retry-After", "Www-Authenticate", headerIndex, headerRev}
)

// forward answers with what the leader answers. It reports false when the leader was not asked: nothing was done then. An
// answer that did not come leaves the outcome unknown.
func (c *restCall) forward(to *url.URL) (bool, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), time.Duration(c.s.l.RESTCallMs+max(c.s.l.ClaimWaitMs, c.s.l.ResultWaitMs))*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.r.Method, to.String(), bytes.NewReader(c.sent))
	if err != nil {
		return false, err
	}
	for _, name := range passedOn {
		if v := c.r.Header.Values(name); len(v) > 0 {
			req.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	resp, err := c.s.o.Peers.Do(req)
	if err != nil {
		return true, core.Unavailable{Reason: "leader_unreached", Unknown: c.r.Method != http.MethodGet && !errors.Is(err, syscall.ECONNREFUSED)}
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or the caller is gone
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxForwarded+1))
	if err != nil || len(body) > maxForwarded {
		return true, core.Unavailable{Reason: "leader_unreached", Unknown: c.r.Method != http.MethodGet}
	}
	h := c.w.Header()
	for _, name := range passedBack {
		if v := resp.Header.Values(name); len(v) > 0 {
			h[http.CanonicalHeaderKey(name)] = v
		}
	}
	c.written = true
	c.w.WriteHeader(resp.StatusCode)
	_, _ = c.w.Write(body) // of a caller who is gone
	return true, nil
}

// maxForwarded bounds an answer that is forwarded: the largest there is, tasks of a claim.
const maxForwarded = 64 << 20

// elsewhere deals with a request that another node must serve. It returns the error to answer with, and nil when it has
// answered.
func (c *restCall) elsewhere(err error) error {
	f, ok := errors.AsType[core.NotLeader](err)
	if !ok {
		return err
	}
	if c.asks(hopParam) {
		return core.Unavailable{Reason: "no_leader"}
	}
	to, ok := c.leaderAddress(f)
	if !ok {
		return err // it names the leader, to those who know where its REST side is
	}
	if c.forwards() && c.s.o.Peers != nil {
		if done, ferr := c.forward(to); done {
			return ferr
		}
	}
	c.w.Header()["Location"] = []string{to.String()}
	return err
}
