package rest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// restRig is a rig that serves REST too, on a real socket: package http relies on deadlines that those in memory lack.
type restRig struct {
	*rig
	h      *Server
	web    net.Addr
	scheme string      // http, unless it speaks TLS
	trust  *tls.Config // of its clients then
	client *http.Client
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

func newRESTRig(t *testing.T, l edge.Limits) *restRig {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &restRig{rig: newRig(t, l), web: lis.Addr(), scheme: "http"}
	r.h = frontOf(t, r.rig)
	served := make(chan error, 1)
	go func() { served <- r.h.Serve(lis, nil) }()
	r.client = newClient(t)
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.s.Shutdown(0)
		if err := <-served; err != nil {
			t.Errorf("serve REST: %v", err)
		}
	})
	return r
}

// frontOf is the REST side of a rig.
func frontOf(t *testing.T, r *rig) *Server {
	t.Helper()
	h, err := New(r.s, Options{Sessions: sessionsOf(r)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// sessionsOf are the sessions of a rig's tokens.
func sessionsOf(r *rig) *Sessions {
	return &Sessions{
		Table:  auth.NewSessions(auth.SessionOptions{Tokens: r.auth, Clock: r.clock, Rand: env.NewSeededRand(7), Node: 1}),
		Cookie: "millrace_test", End: func(context.Context) error { return nil },
		About: About{Node: "n1", Cluster: "c", Version: "v1", Durability: "fsync", Label: "TEST", Colour: "red", Services: []string{"queue", "ui"}},
	}
}

// newClient returns a client with connections of its own.
func newClient(t *testing.T) *http.Client {
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request makes a request with a token; more are names and values of headers.
func (r *restRig) request(method, path, token, body string, more ...string) *http.Request {
	r.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.scheme+"://"+r.web.String()+path, content)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if path == "/v1/session" && body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(more); i += 2 {
		req.Header.Add(more[i], more[i+1])
	}
	return req
}

// send sends a request and reads its answer to the end.
func (r *restRig) send(req *http.Request) answer {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	// A stream of events goes on: its first event is the answer.
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		event, err := bufio.NewReader(resp.Body).ReadString('}')
		if err != nil {
			r.t.Error(err)
		}
		_ = resp.Body.Close() // it has not ended
		return answer{resp.StatusCode, resp.Header, event}
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// do is request and send, as a caller with every scope.
func (r *restRig) do(method, path, body string, more ...string) answer {
	r.t.Helper()
	return r.send(r.request(method, path, "acme/all", body, more...))
}

// failure is the error of an answer.
type failure struct {
	Code    string            `json:"code"`
	Reason  string            `json:"reason"`
	Message string            `json:"message"`
	Field   string            `json:"field"`
	Op      *int              `json:"op"`
	Details map[string]string `json:"details"`
	Limit   string            `json:"limit"`
	Max     int64             `json:"max"`
	RetryMs int64             `json:"retry_after_ms"`
	Leader  string            `json:"leader"`
	Outcome string            `json:"outcome"`
}

// failed reads the one shape of an error, which has no other fields.
func failed(t *testing.T, a answer) failure {
	t.Helper()
	var body struct {
		Error *failure `json:"error"`
	}
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || body.Error == nil || a.status < 300 {
		t.Fatalf("status %d with the body %q is not an error (%v)", a.status, a.body, err)
	}
	if body.Error.Code == "" || body.Error.Message == "" || body.Error.Outcome == "" {
		t.Errorf("an error lacks a field that every error has: %s", a.body)
	}
	return *body.Error
}

// expect wants a status and returns the answer.
func (a answer) expect(t *testing.T, what string, status int) answer {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: status %d, want %d: %s", what, a.status, status, a.body)
	}
	return a
}
