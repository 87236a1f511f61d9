package rest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// stalls are requests that say there is a body, and stop before its end.
var stalls = map[string]string{
	"no byte of it":      "Content-Length: 9\r\n\r\n",
	"half of it":         "Content-Length: 9\r\n\r\n{\"a",
	"a large one":        "Content-Length: 4000000\r\n\r\n{",
	"no chunk":           "Transfer-Encoding: chunked\r\n\r\n",
	"half a chunk":       "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"q",
	"no last chunk":      "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
	"half a trailer":     "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A:",
	"it waits to be let": "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
}

const tokenLine = "Authorization: Bearer acme/all\r\n"

// TestRefusalsDoNotWaitForTheRestOfTheRequest has a client stall below every kind of refusal: the answer comes, and the
// connection ends, long before the time that a body may take.
func TestRefusalsDoNotWaitForTheRestOfTheRequest(t *testing.T) {
	const hour = 3_600_000
	r := newRESTRig(t, edge.Limits{HTTPLingerMs: 50, HTTPBodyMs: hour, HTTPIdleMs: hour})
	r.s.Clock = env.SystemClock{} // deadlines of connections are real times
	var wg sync.WaitGroup
	for refusal, head := range map[string]string{
		"401 without a token": "POST /v1/tasks HTTP/1.1\r\n",
		"401 a bad token":     "POST /v1/tasks HTTP/1.1\r\nAuthorization: Bearer unknown\r\n",
		"403 no scope":        "POST /v1/tasks HTTP/1.1\r\nAuthorization: Bearer acme/kv:read\r\n",
		"404 at the root":     "POST / HTTP/1.1\r\n",
		"404 no route":        "PUT /v1/nothing HTTP/1.1\r\n" + tokenLine,
		"405 no method":       "PATCH /v1/tasks HTTP/1.1\r\n",
		"400 a bad query":     "POST /v1/tasks?x=1 HTTP/1.1\r\n" + tokenLine,
		"400 no body here":    "GET /v1/tasks HTTP/1.1\r\n" + tokenLine,
		"400 it is encoded":   "POST /v1/tasks HTTP/1.1\r\nContent-Encoding: gzip\r\n" + tokenLine,
		"431 large headers":   "POST /v1/tasks HTTP/1.1\r\nX-A: " + strings.Repeat("a", 17*kib) + "\r\n" + tokenLine,
	} {
		for stall, rest := range stalls {
			c := r.raw()
			wg.Go(func() {
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				_, _ = io.WriteString(c, head+"Host: x\r\n"+rest) // some are refused before they are through
				got := c.rest()
				if !strings.HasPrefix(got, "HTTP/1.1 "+refusal[:3]+" ") || !strings.Contains(got, "Connection: close\r\n") || strings.Contains(got, "100 Continue") {
					t.Errorf("%s, %s: got %q", refusal, stall, got)
				}
			})
		}
	}
	wg.Wait()
	apitest.Eventually(t, "all connections have ended", func() bool { return r.s.Stats().Connections == 0 })
}

// The body has a deadline from the end of the head, whatever reads it.
func TestAStalledBodyEndsWhereItIsWaitedFor(t *testing.T) {
	r := newRESTRig(t, edge.Limits{HTTPBodyMs: 100, HTTPLingerMs: 50})
	r.s.Clock = env.SystemClock{}
	for stall, rest := range stalls {
		c := r.raw()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + rest)
		if got := c.rest(); !strings.Contains(got, "HTTP/1.1 504 ") && stall != "half a trailer" || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%s: %q", stall, got)
		}
	}
}

// A client that stalls within nothing keeps its connection: what has come is not waited for.
func TestARefusedRequestThatIsWholeKeepsItsConnection(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Clock = env.SystemClock{}
	c := r.raw()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" + "GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if got := c.rest(); !strings.Contains(got, " 401 ") || !strings.Contains(got, " 404 ") {
		t.Errorf("%q", got)
	}
}

// A malformed body is the client's fault, and is told so at once.
func TestAMalformedBodyIsRefused(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Clock = env.SystemClock{}
	for what, rest := range map[string]string{
		"no number":            "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"a negative number":    "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
		"a huge number":        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"a chunk too long":     "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
		"no end of line":       "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("a", 5000) + "\r\n{}\r\n0\r\n\r\n",
		"a trailer of nothing": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n: \r\n\r\n",
	} {
		c := r.raw()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + rest)
		if got := c.rest(); !strings.Contains(got, "HTTP/1.1 400 ") || !strings.Contains(got, `"outcome":"refused"`) || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if n := len(r.n.Proposed()); n > 0 {
		t.Errorf("%d were proposed", n)
	}
}

// A body that ends with the client's half of the connection, before its end, is malformed too.
func TestABodyThatIsCutShortIsRefused(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Clock = env.SystemClock{}
	for what, rest := range map[string]string{
		"a length":        "Content-Length: 100\r\n\r\n{\"queue\":",
		"no byte of it":   "Content-Length: 100\r\n\r\n",
		"no chunk":        "Transfer-Encoding: chunked\r\n\r\n",
		"half a number":   "Transfer-Encoding: chunked\r\n\r\n1",
		"half a chunk":    "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"queue",
		"no last chunk":   "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"queue\":\"q\"}\r\n",
		"half a trailer":  "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"queue\":\"q\"}\r\n0\r\nX-A: b",
		"no end of chunk": "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"queue\":\"q\"}XX0\r\n\r\n",
	} {
		c := r.raw()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + rest)
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := c.rest(); !strings.Contains(got, "HTTP/1.1 400 ") || !strings.Contains(got, `"outcome":"refused"`) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if n := len(r.n.Proposed()); n > 0 {
		t.Errorf("%d were proposed", n)
	}
}

// A request with a length and with chunks is answered, if at all, on a connection that ends: what follows on it is not read.
func TestABodyOfTwoLengthsEndsTheConnection(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.s.Clock = env.SystemClock{}
	second := "GET /v1/status HTTP/1.1\r\nHost: x\r\n" + tokenLine + "\r\n"
	body := `{"queue":"q"}`
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for what, first := range map[string]string{
		"length first":    fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(body)) + chunked,
		"chunks first":    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked,
		"the second is 0": "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + chunked,
		"two lengths":     "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"two codings":     "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked,
	} {
		c := r.raw()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		c.send("POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + first + second)
		if got := c.rest(); strings.Count(got, "HTTP/1.1 ") != 1 || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// A refusal leaves HTTP/1 and its connection; over HTTP/2 only the stream ends.
func TestARefusalOverHTTP2EndsOnlyItsStream(t *testing.T) {
	r := newTLSRig(t, edge.Limits{})
	r.s.Clock = env.SystemClock{}
	for range 3 {
		body, w := io.Pipe()
		req := r.request("POST", "/v1/tasks", "", "")
		req.Body, req.ContentLength = body, 100
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if resp.StatusCode != http.StatusUnauthorized || resp.ProtoMajor != 2 {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
	}
	if n := r.s.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}
