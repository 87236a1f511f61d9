package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// pass lets rounds of the sweep pass until ok.
func (r *rig) pass(what string, ok func() bool) {
	r.t.Helper()
	apitest.Eventually(r.t, what, func() bool {
		r.clock.Advance(time.Second)
		return ok()
	})
}

const (
	putMethod     = "/millrace.v1.KVService/Put"
	sessionMethod = "/millrace.v1.RefService/Session"
	backupMethod  = "/millrace.v1.BackupService/Take"
)

// TestAMessageThatStopsHalfwayEndsItsCall wherever it stops, and the connection stays.
func TestAMessageThatStopsHalfwayEndsItsCall(t *testing.T) {
	r := newRig(t, edge.Limits{})
	put := apitest.Framed(t, &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: []byte("v")}})
	for what, c := range map[string]struct {
		method string
		sent   []byte
	}{
		"no byte":                  {putMethod, nil},
		"half a head":              {putMethod, put[:3]},
		"a head":                   {putMethod, put[:headBytes]},
		"half a message":           {putMethod, put[:len(put)-1]},
		"half of a large message":  {putMethod, apitest.Announced(mib, make([]byte, 100))},
		"a message without an end": {putMethod, put},
		"of a backup":              {backupMethod, nil},
		"no frame of refs":         {sessionMethod, nil},
		"half a frame of refs":     {sessionMethod, []byte{0, 0, 0, 0, 9, 1}},
	} {
		p := apitest.NewPeer(r.t, r.lis)
		ends := p.Statuses()
		p.Open(1, c.method, "acme/all")
		if len(c.sent) > 0 {
			p.Send(1, false, c.sent)
		}
		var got map[string]string
		r.pass(what+" ends", func() bool {
			select {
			case got = <-ends:
				return true
			default:
				return false
			}
		})
		if got["grpc-status"] != "4" { // DeadlineExceeded
			t.Errorf("%s: ended by %v", what, got)
		}
		p.Open(3, putMethod, "acme/all")
		p.Send(3, true, put)
		if got := <-ends; got["grpc-status"] != "0" {
			t.Errorf("%s: the next call of the connection: %v", what, got)
		}
		_ = p.Conn.Close()
	}
	apitest.Eventually(t, "nothing is held", func() bool {
		st := r.s.Stats()
		return st.Held == (edge.Held{}) && st.Calls == 0 && st.Streams == 0
	})
	if n := r.s.Stats().Refusals["grpc_receive_ms"]; n == 0 {
		t.Error("none was counted")
	}
}

// TestBytesAreReservedBeforeTheyCome counts what is held of half-sent messages: of one tenant no more than its share, so that
// another one is served.
func TestBytesAreReservedBeforeTheyCome(t *testing.T) {
	const requests, size = 40 * mib, 4 * mib
	r := newRigWith(t, edge.Limits{}, edge.Memory{Requests: requests, Frames: requests})
	p := apitest.NewPeer(r.t, r.lis)
	ends := p.Statuses()
	const calls = 60
	for i := range uint32(calls) {
		p.Open(2*i+1, putMethod, "acme/all")
		p.Send(2*i+1, false, apitest.Announced(size, make([]byte, 100)))
	}
	for range calls - requests/2/size {
		if got := <-ends; got["grpc-status"] != "8" && got["grpc-status"] != "14" { // ResourceExhausted, Unavailable
			t.Errorf("refused by %v", got)
		}
	}
	if held := r.s.Stats().Held.Requests; held != requests/2 {
		t.Errorf("%d bytes are held, want the tenant's share of %d", held, requests/2)
	}
	if r.s.Stats().Refusals["requests_tenant"]+r.s.Stats().Refusals["requests"] != calls-requests/2/size {
		t.Errorf("%v", r.s.Stats().Refusals)
	}
	big := &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: make([]byte, mib)}}
	if _, err := pb.NewKVServiceClient(r.conn).Put(apitest.As("rival/all"), big); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	_ = p.Conn.Close()
	apitest.Eventually(t, "nothing is held", func() bool { return r.s.Stats().Held.Requests == 0 })
	if _, err := pb.NewKVServiceClient(r.conn).Put(apitest.As("acme/all"), big); err != nil {
		t.Errorf("the tenant afterwards: %v", err)
	}
}

// What is sent after the one message of a call is refused, unread.
func TestACallHasOneMessage(t *testing.T) {
	r := newRig(t, edge.Limits{})
	put := apitest.Framed(t, &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: []byte("v")}})
	for what, sent := range map[string][]byte{
		"none": nil, "two": append(bytes.Clone(put), put...), "one and a half": append(bytes.Clone(put), put[:7]...), "half": put[:7],
		"a compressed one": append([]byte{1}, put[1:]...),
	} {
		p := apitest.NewPeer(r.t, r.lis)
		ends := p.Statuses()
		p.Open(1, putMethod, "acme/all")
		p.Send(1, true, sent)
		if got := <-ends; got["grpc-status"] != "3" && what != "a compressed one" || got["grpc-status"] == "0" { // InvalidArgument
			t.Errorf("%s: %v", what, got)
		}
		_ = p.Conn.Close()
	}
	if n := len(r.n.Proposed()); n > 0 {
		t.Errorf("%d were proposed", n)
	}
}

// Messages of all sizes come whole.
func TestMessagesOfAllSizesComeWhole(t *testing.T) {
	r := newRig(t, edge.Limits{})
	for i, size := range []int{0, 1, smallMessage - 100, smallMessage, partBytes, partBytes + 1, 300 * kib, mib} {
		payload := bytes.Repeat([]byte{byte(i)}, size)
		if err := createOf(func(s *pb.TaskSpec) { s.Payload = payload })(r); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
	}
	if held := r.s.Stats().Held; held.Requests != 0 {
		t.Errorf("%+v", held)
	}
}

// A client that ends while its message is on its way is not an error of the server.
func TestAClientThatGoesHalfwayLeavesNothing(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ctx, cancel := context.WithCancel(apitest.As("acme/all"))
	load, err := pb.NewRefServiceClient(r.conn).LoadRefs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := load.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	p := apitest.NewPeer(r.t, r.lis)
	p.Open(1, putMethod, "acme/all")
	p.Send(1, false, apitest.Announced(mib, make([]byte, 1000)))
	apitest.Eventually(t, "it is under way", func() bool { return r.s.Stats().Held.Requests == mib })
	_ = p.Conn.Close()
	apitest.Eventually(t, "nothing is held", func() bool {
		return r.s.Stats().Held.Requests == 0 && r.s.Stats().Calls == 0 && r.s.Stats().Streams == 0
	})
	if strings.Contains(r.logs.String(), "call failed") {
		t.Errorf("logged: %s", r.logs)
	}
}
