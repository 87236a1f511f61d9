package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// raw speaks gRPC by hand, so that a test can send bytes that no client library would, and compare what comes back byte
// for byte.
type raw struct {
	address string
	header  http.Header
	client  *http.Client
}

// answer is all that a server said: the transport hides nothing of it.
type answer struct {
	http    int
	status  int // of gRPC
	message string
	details []byte // of the status, as sent
	body    []byte // the first message, without its prefix
}

func newRaw(t *testing.T, address, token string) *raw {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	r := &raw{address: address, header: http.Header{}, client: &http.Client{Transport: transport}}
	if token != "" {
		r.header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// with returns a caller that sends another header too.
func (r *raw) with(name, value string) *raw {
	out := &raw{address: r.address, header: r.header.Clone(), client: r.client}
	out.header.Set(name, value)
	return out
}

// frame puts gRPC's prefix before a message.
func frame(b []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b)))
	return append(out, b...)
}

// open begins a call and returns its response once the server has sent headers.
func (r *raw) open(ctx context.Context, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+"/millrace.v1."+method, body)
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	req.Header.Set("Content-Type", "application/grpc+proto")
	req.Header.Set("Te", "trailers")
	return r.client.Do(req)
}

// send makes one call with bytes as they are, prefix included.
func (r *raw) send(t *testing.T, method string, bytesSent []byte) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := r.open(ctx, method, bytes.NewReader(bytesSent))
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: read: %v", method, err)
	}
	return answerOf(t, resp, b)
}

func answerOf(t *testing.T, resp *http.Response, b []byte) answer {
	t.Helper()
	a := answer{http: resp.StatusCode, status: -1}
	field := func(name string) string {
		if v := resp.Trailer.Get(name); v != "" {
			return v
		}
		return resp.Header.Get(name) // an answer of headers alone
	}
	if v := field("Grpc-Status"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("status %q", v)
		}
		a.status = n
	}
	a.message = field("Grpc-Message")
	if v := field("Grpc-Status-Details-Bin"); v != "" {
		d, err := base64.RawStdEncoding.DecodeString(v)
		if err != nil {
			t.Fatalf("details %q: %v", v, err)
		}
		a.details = d
	}
	if len(b) >= 5 {
		a.body = b[5:]
	}
	return a
}

// call sends a message of the contract.
func (r *raw) call(t *testing.T, method string, m proto.Message) answer {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return r.send(t, method, frame(b))
}

// must is call of what has to succeed.
func must[M proto.Message](t *testing.T, r *raw, method string, m proto.Message, out M) M {
	t.Helper()
	a := r.call(t, method, m)
	if a.status != 0 {
		t.Fatalf("%s: status %d, %s, %v", method, a.status, a.message, a.err())
	}
	if err := proto.Unmarshal(a.body, out); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return out
}

// err decodes the contract's error out of the details; nil when there is none.
func (a answer) err() *millracev1.Error {
	e, err := errorIn(a.details)
	if err != nil {
		return nil
	}
	return e
}

// errorIn reads a google.rpc.Status: its third field holds packed messages, whose second field is the value.
func errorIn(status []byte) (*millracev1.Error, error) {
	for len(status) > 0 {
		num, kind, n := protowire.ConsumeTag(status)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		status = status[n:]
		if num != 3 || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, kind, status); n < 0 {
				return nil, protowire.ParseError(n)
			}
			status = status[n:]
			continue
		}
		packed, n := protowire.ConsumeBytes(status)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		return errorPacked(packed)
	}
	return nil, errors.New("no details")
}

func errorPacked(packed []byte) (*millracev1.Error, error) {
	for len(packed) > 0 {
		num, kind, n := protowire.ConsumeTag(packed)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		packed = packed[n:]
		value, n := protowire.ConsumeBytes(packed)
		if kind != protowire.BytesType || n < 0 {
			return nil, errors.New("details are not packed as they should be")
		}
		packed = packed[n:]
		if num == 2 {
			e := &millracev1.Error{}
			return e, proto.Unmarshal(value, e)
		}
	}
	return nil, errors.New("details are empty")
}

// code is the contract's code; the gRPC status as a number when there is no error of the contract.
func (a answer) code() string {
	if e := a.err(); e != nil {
		return e.Code
	}
	return strconv.Itoa(a.status)
}

// stream is one bidirectional stream.
type stream struct {
	t    *testing.T
	in   *io.PipeWriter
	resp chan *http.Response
	got  *http.Response
	stop context.CancelFunc
}

// openStream begins a stream; nothing is sent yet.
func (r *raw) openStream(t *testing.T) *stream { return r.openStreamOf(t, "QueueStream") }

// openStreamOf begins a stream of a service.
func (r *raw) openStreamOf(t *testing.T, service string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	out, in := io.Pipe()
	s := &stream{t: t, in: in, resp: make(chan *http.Response, 1), stop: cancel}
	t.Cleanup(s.close)
	go func() {
		resp, err := r.open(ctx, service+"/Open", out)
		if err != nil {
			_ = out.CloseWithError(err)
			resp = nil
		}
		s.resp <- resp
	}()
	return s
}

func (s *stream) close() {
	s.stop()
	_ = s.in.Close()
	if s.got != nil {
		s.got.Body.Close()
	}
}

// write sends bytes as they are.
func (s *stream) write(b []byte) {
	s.t.Helper()
	if _, err := s.in.Write(b); err != nil {
		s.t.Logf("write: %v", err) // the server may have ended the stream already: its answer tells
	}
}

func (s *stream) send(f *millracev1.ClientFrame) {
	s.t.Helper()
	b, err := proto.Marshal(f)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(frame(b))
}

func (s *stream) hello(session byte) {
	s.t.Helper()
	s.send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Hello{Hello: &millracev1.Hello{
		Version: 1, Session: bytes.Repeat([]byte{session}, 16),
	}}})
}

// next reads a frame; nil and the final answer when the stream has ended.
func (s *stream) next() (*millracev1.ServerFrame, answer) {
	s.t.Helper()
	if s.got == nil {
		if s.got = <-s.resp; s.got == nil {
			s.t.Fatal("the stream did not begin")
		}
	}
	var prefix [5]byte
	if _, err := io.ReadFull(s.got.Body, prefix[:]); err != nil {
		if !errors.Is(err, io.EOF) {
			s.t.Fatalf("stream: %v", err)
		}
		return nil, answerOf(s.t, s.got, nil)
	}
	b := make([]byte, binary.BigEndian.Uint32(prefix[1:]))
	if _, err := io.ReadFull(s.got.Body, b); err != nil {
		s.t.Fatalf("stream: %v", err)
	}
	f := &millracev1.ServerFrame{}
	if err := proto.Unmarshal(b, f); err != nil {
		s.t.Fatal(err)
	}
	return f, answer{}
}

// lastWords is next for a stream whose connection may be cut: it does not want an orderly end.
func (s *stream) lastWords() (*millracev1.ServerFrame, error) {
	var prefix [5]byte
	if _, err := io.ReadFull(s.got.Body, prefix[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(prefix[1:]))
	if _, err := io.ReadFull(s.got.Body, b); err != nil {
		return nil, err
	}
	f := &millracev1.ServerFrame{}
	return f, proto.Unmarshal(b, f)
}

// ended reads until the stream ends and returns how.
func (s *stream) ended() answer {
	s.t.Helper()
	for {
		if f, a := s.next(); f == nil {
			return a
		}
	}
}

// ack reads until the answer to a frame comes.
func (s *stream) ack(seq uint64) *millracev1.Ack {
	s.t.Helper()
	for {
		f, a := s.next()
		if f == nil {
			s.t.Fatalf("stream ended: %d %s %v", a.status, a.message, a.err())
		}
		if k := f.GetAck(); k != nil && k.Seq == seq {
			return k
		}
	}
}
