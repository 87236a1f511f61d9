package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/edge"
)

// open begins a call; its id is odd.
func (p *peer) open(id uint32, method, token string) {
	p.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"authorization", "Bearer " + token},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		p.t.Fatal(err)
	}
}

// send sends bytes of a call.
func (p *peer) send(id uint32, end bool, b []byte) {
	p.t.Helper()
	if err := p.WriteData(id, end, b); err != nil {
		p.t.Fatal(err)
	}
}

// statuses reads on and passes on the end of each call, until the connection ends. It answers pings.
func (p *peer) statuses() <-chan map[string]string {
	ends := make(chan map[string]string, 1000)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go func() {
		defer close(ends)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				fields := make(map[string]string)
				for _, h := range f.Fields {
					fields[h.Name] = h.Value
				}
				if f.StreamEnded() {
					ends <- fields
				}
			case *http2.PingFrame:
				if !f.IsAck() {
					_ = p.WritePing(true, f.Data) // what is wrong shows in the next frame
				}
			}
		}
	}()
	return ends
}

// announced is the head of a message, and what comes of its content.
func announced(length int, content []byte) []byte {
	head := make([]byte, headBytes, headBytes+len(content))
	binary.BigEndian.PutUint32(head[1:], uint32(length))
	return append(head, content...)
}

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return announced(len(b), b)
}

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
	openMethod    = "/millrace.v1.QueueStream/Open"
	sessionMethod = "/millrace.v1.RefService/Session"
	backupMethod  = "/millrace.v1.BackupService/Take"
)

// TestAMessageThatStopsHalfwayEndsItsCall wherever it stops, and the connection stays.
func TestAMessageThatStopsHalfwayEndsItsCall(t *testing.T) {
	r := newRig(t, edge.Limits{})
	hello := encoded(t, helloFrame(1))
	put := encoded(t, &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: []byte("v")}})
	for what, c := range map[string]struct {
		method string
		sent   []byte
	}{
		"no byte":                        {putMethod, nil},
		"half a head":                    {putMethod, put[:3]},
		"a head":                         {putMethod, put[:headBytes]},
		"half a message":                 {putMethod, put[:len(put)-1]},
		"half of a large message":        {putMethod, announced(mib, make([]byte, 100))},
		"a message without an end":       {putMethod, put},
		"of a backup":                    {backupMethod, nil},
		"no hello":                       {openMethod, nil},
		"half a hello":                   {openMethod, hello[:len(hello)-2]},
		"a hello and a byte":             {openMethod, append(bytes.Clone(hello), 0)},
		"a hello and half a large frame": {openMethod, append(bytes.Clone(hello), announced(mib, make([]byte, 100))...)},
		"no frame of refs":               {sessionMethod, nil},
		"half a frame of refs":           {sessionMethod, []byte{0, 0, 0, 0, 9, 1}},
	} {
		p := r.peer()
		ends := p.statuses()
		p.open(1, c.method, "acme/all")
		if len(c.sent) > 0 {
			p.send(1, false, c.sent)
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
		p.open(3, putMethod, "acme/all")
		p.send(3, true, put)
		if got := <-ends; got["grpc-status"] != "0" {
			t.Errorf("%s: the next call of the connection: %v", what, got)
		}
		_ = p.conn.Close()
	}
	apitest.Eventually(t, "nothing is held", func() bool {
		st := r.s.Stats()
		return st.Held == (edge.Held{}) && st.Calls == 0 && st.Streams == 0
	})
	if n := r.s.Stats().Refusals["grpc_receive_ms"]; n == 0 {
		t.Error("none was counted")
	}
}

func helloFrame(id byte) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: make16(id)}}}
}

// A stream that is silent between its frames stays, however long.
func TestAStreamMayBeSilentBetweenFrames(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for range 200 {
		r.clock.Advance(2 * time.Second)
		if _, err := pb.NewServerServiceClient(r.conn).Status(apitest.As("acme/all"), &pb.StatusRequest{}); err != nil { // lets the sweep run
			t.Fatal(err)
		}
	}
	ws.send(createFrame(1, 1))
	if ack := ws.ack(); ack.GetError() != nil {
		t.Errorf("%v", ack)
	}
}

// TestBytesAreReservedBeforeTheyCome counts what is held of half-sent messages: of one tenant no more than its share, so that
// another one is served.
func TestBytesAreReservedBeforeTheyCome(t *testing.T) {
	const requests, size = 40 * mib, 4 * mib
	r := newRigWith(t, edge.Limits{}, edge.Memory{Requests: requests, Frames: requests})
	p := r.peer()
	ends := p.statuses()
	const calls = 60
	for i := range uint32(calls) {
		p.open(2*i+1, putMethod, "acme/all")
		p.send(2*i+1, false, announced(size, make([]byte, 100)))
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
	_ = p.conn.Close()
	apitest.Eventually(t, "nothing is held", func() bool { return r.s.Stats().Held.Requests == 0 })
	if _, err := pb.NewKVServiceClient(r.conn).Put(apitest.As("acme/all"), big); err != nil {
		t.Errorf("the tenant afterwards: %v", err)
	}
}

// Streams wait for room instead, each with no more than a window.
func TestFramesAreReservedBeforeTheyCome(t *testing.T) {
	const frames, size = 32 * mib, 4 * mib
	r := newRigWith(t, edge.Limits{}, edge.Memory{Frames: frames})
	p := r.peer()
	ends := p.statuses()
	for i := range uint32(20) {
		p.open(2*i+1, openMethod, "acme/all")
		p.send(2*i+1, false, encoded(t, helloFrame(byte(i+1))))
		p.send(2*i+1, false, announced(size, make([]byte, 100)))
	}
	apitest.Eventually(t, "the share is taken", func() bool { return r.s.Stats().Held.Frames == frames/2 })
	other, _ := r.greet(apitest.As("rival/all"), 1)
	f := createFrame(1, 1)
	f.GetCreate().Tasks[0].Payload = make([]byte, 100*kib)
	other.send(f)
	if ack := other.ack(); ack.GetError() != nil {
		t.Errorf("another tenant: %v", ack)
	}
	if held := r.s.Stats().Held.Frames; held != frames/2 {
		t.Errorf("%d bytes are held", held)
	}
	for range 20 { // each takes its turn and is given up
		var got map[string]string
		r.pass("a stream ends", func() bool {
			select {
			case got = <-ends:
				return true
			default:
				return false
			}
		})
		if got["grpc-status"] != "4" {
			t.Errorf("%v", got)
		}
		if held := r.s.Stats().Held.Frames; held > frames/2 {
			t.Errorf("%d bytes are held", held)
		}
	}
	apitest.Eventually(t, "nothing is held", func() bool { return r.s.Stats().Held.Frames == 0 })
}

// What is sent after the one message of a call is refused, unread.
func TestACallHasOneMessage(t *testing.T) {
	r := newRig(t, edge.Limits{})
	put := encoded(t, &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: []byte("v")}})
	for what, sent := range map[string][]byte{
		"none": nil, "two": append(bytes.Clone(put), put...), "one and a half": append(bytes.Clone(put), put[:7]...), "half": put[:7],
		"a compressed one": append([]byte{1}, put[1:]...),
	} {
		p := r.peer()
		ends := p.statuses()
		p.open(1, putMethod, "acme/all")
		p.send(1, true, sent)
		if got := <-ends; got["grpc-status"] != "3" && what != "a compressed one" || got["grpc-status"] == "0" { // InvalidArgument
			t.Errorf("%s: %v", what, got)
		}
		_ = p.conn.Close()
	}
	if n := len(r.n.Proposed()); n > 0 {
		t.Errorf("%d were proposed", n)
	}
}

// Messages of all sizes come whole, by calls and by streams.
func TestMessagesOfAllSizesComeWhole(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for i, size := range []int{0, 1, smallMessage - 100, smallMessage, partBytes, partBytes + 1, 300 * kib, mib} {
		payload := bytes.Repeat([]byte{byte(i)}, size)
		if err := createOf(func(s *pb.TaskSpec) { s.Payload = payload })(r); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		f := createFrame(uint64(i), 1)
		f.GetCreate().Tasks[0].Payload = payload
		ws.send(f)
		if ack := ws.ack(); ack.GetError() != nil {
			t.Errorf("%d: %v", size, ack)
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
	p := r.peer()
	p.open(1, putMethod, "acme/all")
	p.send(1, false, announced(mib, make([]byte, 1000)))
	apitest.Eventually(t, "it is under way", func() bool { return r.s.Stats().Held.Requests == mib })
	_ = p.conn.Close()
	apitest.Eventually(t, "nothing is held", func() bool {
		return r.s.Stats().Held.Requests == 0 && r.s.Stats().Calls == 0 && r.s.Stats().Streams == 0
	})
	if strings.Contains(r.logs.String(), "call failed") {
		t.Errorf("logged: %s", r.logs)
	}
}
