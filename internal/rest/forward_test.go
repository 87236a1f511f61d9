package rest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// byNode answers what is forwarded.
type byNode func(*http.Request) (*http.Response, error)

// RoundTrip answers a request.
func (f byNode) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wrote tells the trace of a request that it left.
func wrote(r *http.Request) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
}

func answered(status int, body io.Reader, length int64) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "X-Other": {"1"}}, Body: io.NopCloser(body), ContentLength: length}
}

// forwardRig is a node whose leader is node 3, with answer for what is forwarded.
func forwardRig(t *testing.T, answer byNode) *restRig {
	t.Helper()
	r := newRESTRig(t, edge.Limits{})
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r.n.Parts, r.n.Leaders = 1, apitest.LeadersOf("n3.example:1")
	r.h.o.WebOf = func(string) string { return "http://stranger.example" }
	r.h.o.PeerOf = func(address string) string {
		if address != "n3.example:1" {
			return ""
		}
		return "http://n3.node.millrace"
	}
	r.h.o.Peers = &http.Client{Transport: answer}
	return r
}

const oneTask = `{"tasks":[{"queue":"q"}]}`

func TestARequestIsForwardedToTheNodeAndNotToAnAddress(t *testing.T) {
	var got *http.Request
	var body string
	r := forwardRig(t, func(q *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(q.Body)
		got, body = q, string(b)
		return answered(http.StatusCreated, strings.NewReader(`{"ok":true}`), 11), err
	})
	const one = `{"queue":"q"}`
	r.do("POST", "/v1/tasks?forward=1", one, headerClient, "192.0.2.1:1").expect(t, "an address of the client's choice", http.StatusBadRequest)
	a := r.do("POST", "/v1/tasks?forward=1&ns=default", one, "Idempotency-Key", "k", "Cookie", "c=1").expect(t, "forwarded", http.StatusCreated)
	if a.body != `{"ok":true}` || a.header.Get("Content-Length") != "11" || a.header.Get("X-Other") != "" {
		t.Errorf("answered %q, %v", a.body, a.header)
	}
	if got.URL.Host != "n3.node.millrace" || got.URL.Path != "/v1/tasks" || got.URL.Query().Get("hop") != "1" || body != one {
		t.Errorf("forwarded to %s: %s", got.URL, body)
	}
	if got.Header.Get("Authorization") != "Bearer acme/all" || got.Header.Get("Idempotency-Key") != "k" || got.Header.Get("Cookie") != "" {
		t.Errorf("forwarded with %v", got.Header)
	}
	if from := got.Header.Get(headerClient); from == "" {
		t.Errorf("the client is %q", from)
	}
	r.h.o.PeerOf = func(string) string { return "" } // no node of that address is known: nothing leaves
	got = nil
	if a := r.do("POST", "/v1/tasks:batch?forward=1", oneTask); a.status != http.StatusTemporaryRedirect || got != nil {
		t.Errorf("without a node: %d, asked %v", a.status, got)
	}
}

// What keeps a browser from showing content must come from any node.
func TestAForwardedAnswerKeepsItsHeaders(t *testing.T) {
	want := map[string]string{
		headerSize: "7", headerType: "text/html", headerDisposition: "attachment", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Type": "application/octet-stream", headerRev: "7", headerWriter: "01J 3",
	}
	r := forwardRig(t, func(*http.Request) (*http.Response, error) {
		a := answered(http.StatusOK, strings.NewReader("<script"), 7)
		for name, value := range want {
			a.Header.Set(name, value)
		}
		return a, nil
	})
	a := r.do("POST", "/v1/tasks:batch?forward=1", oneTask).expect(t, "forwarded", http.StatusOK)
	for name, value := range want {
		if got := a.header.Values(name); len(got) != 1 || got[0] != value {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestWhatIsForwardedInVainSaysWhetherAnythingWasDone(t *testing.T) {
	down := &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: errors.New("untrusted_certificate")}}
	for name, x := range map[string]struct {
		answer              byNode
		showOutcome, reason string
		limit               string
	}{
		"the node is not reached": {func(*http.Request) (*http.Response, error) { return nil, down }, "refused", "leader_unreached", ""},
		"the node is gone when it was asked": {func(q *http.Request) (*http.Response, error) {
			wrote(q)
			return nil, io.ErrUnexpectedEOF
		}, "unknown", "leader_unreached", ""},
		"it is asked again in vain": {func(q *http.Request) (*http.Response, error) {
			wrote(q)
			return nil, down
		}, "unknown", "leader_unreached", ""},
		"too many are on their way": {func(*http.Request) (*http.Response, error) { return nil, errors.Join(ErrForwards, down) }, "refused", "overload", edge.LimitForwards},
	} {
		r := forwardRig(t, x.answer)
		a := r.do("POST", "/v1/tasks:batch?forward=1", oneTask).expect(t, name, http.StatusServiceUnavailable)
		if e := failed(t, a); e.Outcome != x.showOutcome || e.Reason != x.reason || e.Limit != x.limit {
			t.Errorf("%s: %s, reason %s, limit %q; want %s, %s, %q", name, e.Outcome, e.Reason, e.Limit, x.showOutcome, x.reason, x.limit)
		}
	}
}

func TestHalfAnAnswerIsNotPassedOnAsAWholeOne(t *testing.T) {
	for name, length := range map[string]int64{"of a known length": 1 << 20, "of an unknown length": -1} {
		r := forwardRig(t, func(*http.Request) (*http.Response, error) {
			half := io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), broken{})
			return answered(http.StatusOK, half, length), nil
		})
		resp, err := r.client.Do(r.request("POST", "/v1/tasks:batch?forward=1", "acme/all", oneTask))
		if err != nil {
			continue // the connection was closed before the head left
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: half an answer came back as a whole one", name)
		}
		_ = resp.Body.Close()
	}
}

// broken is a connection that broke.
type broken struct{}

// Read fails.
func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestOneTenantLeavesRoomForWhatOthersForward(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, edge.ForwardsNode)
	r := forwardRig(t, func(q *http.Request) (*http.Response, error) {
		if q.Header.Get("Authorization") == "Bearer acme/all" {
			asked <- struct{}{}
			<-hold
		}
		return answered(http.StatusOK, bytes.NewReader(nil), 0), nil
	})
	var all sync.WaitGroup
	for range edge.ForwardsTenant {
		all.Go(func() { r.do("POST", "/v1/tasks:batch?forward=1", oneTask).expect(t, "held", http.StatusOK) })
	}
	for range edge.ForwardsTenant {
		<-asked
	}
	a := r.do("POST", "/v1/tasks:batch?forward=1", oneTask).expect(t, "one more", http.StatusTooManyRequests)
	if e := failed(t, a); e.Limit != "forwards_tenant" || e.Max != edge.ForwardsTenant {
		t.Errorf("limit %q of %d", e.Limit, e.Max)
	}
	r.send(r.request("POST", "/v1/tasks:batch?forward=1", "rival/all", oneTask)).expect(t, "of another tenant", http.StatusOK)
	close(hold)
	all.Wait()
}

// TestOnlyANodeSaysForWhomItAsks: the address of a client counts where limits and logs go by it.
func TestOnlyANodeSaysForWhomItAsks(t *testing.T) {
	for name, x := range map[string]struct {
		conn net.Conn
		says string
		want string
	}{
		"a node":                 {edge.ForwardedConn{}, "192.0.2.1:55", "192.0.2.1:55"},
		"a node, of IPv6":        {edge.ForwardedConn{}, "[2001:db8::1]:55", "[2001:db8::1]:55"},
		"a node that says none":  {edge.ForwardedConn{}, "", "192.0.2.9:1"},
		"a node, nonsense":       {edge.ForwardedConn{}, "nonsense\t", "192.0.2.9:1"},
		"a client":               {&edge.Conn{}, "192.0.2.1:55", "192.0.2.9:1"},
		"a client of TLS (none)": {nil, "192.0.2.1:55", "192.0.2.9:1"},
	} {
		q, err := http.NewRequestWithContext(edge.WithConn(t.Context(), x.conn), "GET", "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.RemoteAddr = "192.0.2.9:1"
		q.Header.Set(headerClient, x.says)
		if clientAddress(q); q.RemoteAddr != x.want {
			t.Errorf("%s: %s, want %s", name, q.RemoteAddr, x.want)
		}
	}
}
