package stream

import (
	"bytes"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	putMethod  = "/millrace.v1.KVService/Put"
	openMethod = "/millrace.v1.QueueStream/Open"
)

// TestAFrameThatStopsHalfwayEndsItsStream wherever it stops, and the connection stays.
func TestAFrameThatStopsHalfwayEndsItsStream(t *testing.T) {
	r := newRig(t, edge.Limits{})
	hello := apitest.Framed(t, helloOf(1))
	put := apitest.Framed(t, &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: "k", Key: []byte("k"), Value: []byte("v")}})
	for what, c := range map[string]struct {
		method string
		sent   []byte
	}{
		"no hello":                       {openMethod, nil},
		"half a hello":                   {openMethod, hello[:len(hello)-2]},
		"a hello and a byte":             {openMethod, append(bytes.Clone(hello), 0)},
		"a hello and half a large frame": {openMethod, append(bytes.Clone(hello), apitest.Announced(mib, make([]byte, 100))...)},
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

// A stream that is silent between its frames stays, however long.
func TestAStreamMayBeSilentBetweenFrames(t *testing.T) {
	r := newRig(t, edge.Limits{SendStallMs: 3_600_000}) // the clock may go on while the welcome is on its way
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

// Streams wait for room instead, each with no more than a window.
func TestFramesAreReservedBeforeTheyCome(t *testing.T) {
	const frames, size = 32 * mib, 4 * mib
	r := newRigWith(t, edge.Limits{}, edge.Memory{Frames: frames})
	p := apitest.NewPeer(r.t, r.lis)
	ends := p.Statuses()
	for i := range uint32(20) {
		p.Open(2*i+1, openMethod, "acme/all")
		p.Send(2*i+1, false, apitest.Framed(t, helloOf(byte(i+1))))
		p.Send(2*i+1, false, apitest.Announced(size, make([]byte, 100)))
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

// Frames of all sizes come whole, by whichever of the receiver's ways.
func TestFramesOfAllSizesComeWhole(t *testing.T) {
	r := newRig(t, edge.Limits{})
	ws, _ := r.greet(apitest.As("acme/all"), 1)
	for i, size := range []int{0, 1, 16*kib - 100, 16 * kib, 64 * kib, 64*kib + 1, 300 * kib, mib} {
		payload := bytes.Repeat([]byte{byte(i)}, size)
		f := createFrame(uint64(i), 1)
		f.GetCreate().Tasks[0].Payload = payload
		ws.send(f)
		if ack := ws.ack(); ack.GetError() != nil {
			t.Errorf("%d: %v", size, ack)
		}
		if got := r.n.Proposed()[i].Ops[0].(*core.TaskCreate).Payload; !bytes.Equal(got, payload) {
			t.Errorf("%d: %d bytes came, or others", size, len(got))
		}
	}
}
