package rest

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// gone waits until the server has closed a connection.
func gone(t *testing.T, what string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	for buf := make([]byte, 1024); ; {
		if _, err := c.Read(buf); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as the connection returns it
				t.Fatalf("%s: it is open", what)
			}
			return
		}
	}
}

func (r *rig) status(token string) error {
	_, err := pb.NewServerServiceClient(r.conn).Status(apitest.As(token), &pb.StatusRequest{})
	return err
}

// TestTheOldestNewConnectionMakesRoom: who opens connections and authenticates on none keeps no honest client of the same address
// out, and those who are in stay.
func TestTheOldestNewConnectionMakesRoom(t *testing.T) {
	for key, l := range map[string]edge.Limits{
		"connections_new": {ConnectionsNew: 4}, "connections_address": {ConnectionsAddress: 5}, "connections_node": {ConnectionsNode: 6},
	} {
		r := newRESTRig(t, l)
		if err := r.status("acme/all"); err != nil { // over another address
			t.Fatal(err)
		}
		r.do("GET", "/v1/status", "").expect(t, "a good client", 200)
		var strangers []rawConn
		for i := range 20 {
			c := r.raw()
			if i%2 == 0 {
				c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
			}
			strangers = append(strangers, c)
			apitest.Eventually(t, "it was accepted, or closed", func() bool { return r.s.Stats().Connections == int64(min(i+3, 6)) || r.s.Stats().Refusals[key] > 0 })
		}
		gone(t, key, strangers[0])
		second := &restRig{rig: r.rig, web: r.web, scheme: "http", client: newClient(t)}
		second.do("GET", "/v1/status", "").expect(t, key+": another good client of the address", 200)
		r.do("GET", "/v1/status", "").expect(t, key+": the first one", 200)
		if err := r.status("acme/all"); err != nil {
			t.Errorf("%s: over gRPC: %v", key, err)
		}
		if st := r.s.Stats(); st.Refusals[key] == 0 || st.Connections > 6 {
			t.Errorf("%s: %+v", key, st)
		}
	}
}

// TestAConnectionWithoutAnAuthenticatedCallEnds, whatever else is done on it; one with such a call stays.
func TestAConnectionWithoutAnAuthenticatedCallEnds(t *testing.T) {
	r := newRESTRig(t, edge.Limits{HTTPHeaderMs: minute, HTTPIdleMs: hour})
	if err := r.status("acme/all"); err != nil {
		t.Fatal(err)
	}
	r.do("GET", "/v1/status", "").expect(t, "a good client", 200)
	bare := apitest.NewPeer(r.t, r.lis)
	pings := bare.Statuses() // it answers pings
	refused := apitest.NewPeer(r.t, r.lis)
	ends := refused.Statuses()
	refused.Open(1, putMethod, "unknown")
	if got := <-ends; got["grpc-status"] != "16" { // Unauthenticated
		t.Errorf("%v", got)
	}
	silent, half, told := r.raw(), r.raw(), r.raw()
	half.send("GET /v1/status HTTP/1.1\r\nHost:")
	told.send("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
	apitest.Eventually(t, "all are open", func() bool { return r.s.Stats().Connections == 7 })
	r.pass("those without are closed", func() bool { return r.s.Stats().Connections == 2 })
	for what, c := range map[string]net.Conn{"bare": bare.Conn, "refused": refused.Conn, "silent": silent, "half": half, "told": told} {
		if strings.Contains("silent half told", what) {
			gone(t, what, c)
		}
	}
	for range pings { //nolint:revive // until it ends
	}
	for range ends { //nolint:revive // the same
	}
	if err := r.status("acme/all"); err != nil {
		t.Error(err)
	}
	r.do("GET", "/v1/status", "").expect(t, "the good client", 200)
	if st := r.s.Stats(); st.Connections != 2 || st.Refusals["first_call_ms"] != 5 {
		t.Errorf("%+v", st)
	}
}

// Checks of health take no token, and keep their connection as long as they are made.
func TestChecksOfHealthKeepTheirConnection(t *testing.T) {
	r := newRig(t, edge.Limits{})
	for range 100 {
		if _, err := healthpb.NewHealthClient(r.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(3 * time.Second)
	}
	if st := r.s.Stats(); st.Refusals["first_call_ms"] > 0 || st.Connections != 1 {
		t.Errorf("%+v", st)
	}
}

// The same holds beneath TLS, where the server's connection is another than the listener's.
func TestAConnectionOverTLSIsKnownByItsCalls(t *testing.T) {
	r := newTLSRig(t, edge.Limits{})
	r.do("GET", "/v1/status", "").expect(t, "a good client", 200)
	r.conn.Close() //nolint:errcheck // it is not used
	c, err := net.Dial("tcp", r.web.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the server has closed it
	apitest.Eventually(t, "both are open", func() bool { return r.s.Stats().Connections == 2 })
	r.pass("the silent one is closed", func() bool { return r.s.Stats().Connections == 1 })
	r.do("GET", "/v1/status", "").expect(t, "the good client", 200)
	if n := r.s.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestShutdownDoesNotWaitForStrangers: neither for half requests, nor for connections on which nothing is under way.
func TestShutdownDoesNotWaitForStrangers(t *testing.T) {
	r := newRESTRig(t, edge.Limits{HTTPHeaderMs: minute, HTTPBodyMs: hour, HTTPLingerMs: minute})
	c := r.raw()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
	half := r.raw()
	half.send("GET /v1/status HTTP/1.1\r\nHost:")
	r.raw()
	bare := apitest.NewPeer(r.t, r.lis)
	if f, err := bare.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatalf("%v %v", f, err)
	}
	known := r.raw()
	known.send("GET /v1/status HTTP/1.1\r\nHost: x\r\n" + tokenLine + "\r\nGET /v1/sta")
	apitest.Eventually(t, "all are open, one is known", func() bool {
		r.s.Conns.Mu.Lock()
		defer r.s.Conns.Mu.Unlock()
		return r.s.Conns.N == 5 && r.s.Conns.Fresh.Len() == 4
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.s.Shutdown(time.Hour)
	}()
	apitest.Eventually(t, "those of strangers are closed", func() bool { return r.s.Stats().Connections <= 1 })
	apitest.Eventually(t, "it has ended", func() bool {
		r.clock.Advance(time.Second)
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
}

// A request that another handler authenticates makes its connection known too, for as long as it takes.
func TestAConnectionIsKnownByGitToo(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	let := make(chan struct{})
	r.h.o.Git = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		edge.Authenticated(req.Context())
		<-let
	})
	c := r.raw()
	c.send("POST /git/ns/app.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	inHand := func() (n int64) {
		r.s.Conns.Mu.Lock()
		defer r.s.Conns.Mu.Unlock()
		for c := range r.s.Conns.All {
			n += c.Calls.Load()
		}
		return n
	}
	apitest.Eventually(t, "it is in hand", func() bool { return inHand() == 1 })
	for range 50 {
		r.clock.Advance(time.Second)
	}
	if st := r.s.Stats(); st.Connections != 1 {
		t.Errorf("%+v", st)
	}
	close(let)
	apitest.Eventually(t, "it is not any more", func() bool { return inHand() == 0 })
}
