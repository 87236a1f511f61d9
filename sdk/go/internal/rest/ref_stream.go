package rest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/restjson"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// restCallStream is what the streams of refs share: nothing to tell besides the messages.
type restCallStream struct {
	// r sends the requests of the stream.
	r   *Conn
	ctx context.Context // of the caller; its end ends the stream
}

// Header, Trailer and Context are gRPC's.
func (*restCallStream) Header() (metadata.MD, error) { return nil, nil }
func (*restCallStream) Trailer() metadata.MD         { return nil }
func (s *restCallStream) Context() context.Context   { return s.ctx }

// wrongMessage is the error of a message that is not of a stream.
func wrongMessage(m any) error {
	return status.Errorf(codes.Internal, "message %T is not of this stream", m)
}

// restRefList lists refs of one instant: one answer of the server, read as it comes.
type restRefList struct {
	restCallStream
	// in is what was asked for.
	in *millracev1.ListRefsRequest
	// resp is the answer; nil before the first message was asked for.
	resp *http.Response
	// lines are the lines of the answer; nil once it was read to its end.
	lines *bufio.Reader
	// rev is the repository's change counter at the instant of the list.
	rev uint64
}

// refLines is how many refs one message has.
const refLines = 1000

// CloseSend does nothing: the request goes with the first message.
func (s *restRefList) CloseSend() error { return nil }

// SendMsg takes the one request that there is.
func (s *restRefList) SendMsg(m any) error {
	in, ok := m.(*millracev1.ListRefsRequest)
	if !ok {
		return wrongMessage(m)
	}
	s.in = in
	return nil
}

// begin sends the request.
func (s *restRefList) begin() error {
	c, err := prepare(millracev1.RefService_ListRefs_FullMethodName, s.in, room)
	if err != nil {
		return err
	}
	// One ref in each line, so that no end of the list needs to be read before its beginning is used. A list in the order of changes is
	// one page.
	if !s.in.GetMoved() {
		c.q.query.Set("format", "ndjson")
	}
	if s.resp, err = s.r.open(s.ctx, c.q); err != nil {
		return err
	}
	if s.in.GetMoved() {
		return nil
	}
	if s.rev, err = strconv.ParseUint(s.resp.Header.Get("Millrace-Rev"), 10, 64); err != nil {
		_ = s.resp.Body.Close()
		return restBetween(&restAnswer{status: s.resp.StatusCode, header: s.resp.Header})
	}
	s.lines = bufio.NewReaderSize(s.resp.Body, 64<<10)
	return nil
}

// RecvMsg gives the next refs; the first message comes even when there are none.
func (s *restRefList) RecvMsg(m any) error {
	out, ok := m.(*millracev1.ListRefsResponse)
	if !ok {
		return wrongMessage(m)
	}
	first := s.resp == nil
	if first {
		if err := s.begin(); err != nil {
			return err
		}
		out.At = restAt(s.resp.Header.Get("Millrace-Index"))
		if s.in.GetMoved() {
			return s.page(out)
		}
	}
	if s.lines == nil {
		return io.EOF
	}
	out.Rev = s.rev
	for len(out.Refs) < refLines {
		// An answer that is cut shows by its last line, which then has no end.
		line, err := s.lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			_ = s.resp.Body.Close() // it was read to its end
			if s.lines = nil; first || len(out.Refs) > 0 {
				return nil
			}
			return io.EOF
		}
		ref := new(millracev1.Ref)
		if err == nil {
			err = restjson.Decode(line, ref.ProtoReflect())
		}
		if err != nil { // or it was cut within a line
			_ = s.resp.Body.Close()
			return restUnanswered(s.ctx, s.resp.Request.URL.Host, false, err)
		}
		out.Refs = append(out.Refs, ref)
	}
	return nil
}

// page reads an answer that is one page.
func (s *restRefList) page(out *millracev1.ListRefsResponse) error {
	defer func() { _ = s.resp.Body.Close() }() // it was read
	b, err := io.ReadAll(s.resp.Body)
	if err == nil {
		err = restjson.Decode(b, out.ProtoReflect())
	}
	if err != nil {
		return restUnanswered(s.ctx, s.resp.Request.URL.Host, false, err)
	}
	return nil
}

// restRefTxns is a session or a load: its transactions are requests, one after another, because their order counts. Each
// has a request id that its number makes, so that a repetition on another stream gets the first answer. A request without
// an answer ends the stream, as a lost connection would.
type restRefTxns struct {
	restCallStream

	mu sync.Mutex // guards the fields below
	// repo, tag and session are what the first message named; session is nil before it came.
	repo, tag string
	session   []byte
	// queue holds the transactions that wait for their turn. running says that a goroutine carries them out.
	queue   []*refRequest
	running bool
	// closed says that the client sends nothing more.
	closed bool
	// answers are messages of the stream, each of the type that its method has.
	answers inbox[any]
	// cause is what ended the stream.
	cause error
}

// refRequest is one transaction that waits for its turn.
type refRequest struct {
	// number is the client's, under which the answer comes; in is the request that the transaction becomes.
	number uint64
	in     *millracev1.UpdateRefsRequest
	// partial has each change stand alone, as in a load.
	partial bool
}

// newRESTRefTxns makes a stream that has sent nothing.
func newRESTRefTxns(ctx context.Context, r *Conn) *restRefTxns {
	return &restRefTxns{restCallStream: restCallStream{r, ctx}, answers: newInbox[any]()}
}

// CloseSend says that nothing more is sent. The stream ends when all that was sent is answered.
func (s *restRefTxns) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.answers.arrive.Poke()
	return nil
}

// SendMsg takes a message of a session or of a load. Its first one opens the stream.
func (s *restRefTxns) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.closed {
		return io.EOF // the receiver learns why
	}
	switch m := m.(type) {
	case *millracev1.RefSessionRequest:
		return s.sendSession(m)
	case *millracev1.LoadRefsRequest:
		if s.session == nil {
			return s.open(m.GetRepo(), m.GetTag(), m.GetSession(), func(info *millracev1.GetRepoResponse) any {
				return &millracev1.LoadRefsResponse{Rev: info.GetRepo().GetRev(), At: info.GetAt()}
			})
		}
		s.enqueue(&refRequest{m.GetNumber(), &millracev1.UpdateRefsRequest{Changes: m.GetChanges(), Message: m.GetMessage()}, true})
		return nil
	}
	return wrongMessage(m)
}

// sendSession takes what the SDK sends: an open, then whole transactions. It needs mu.
func (s *restRefTxns) sendSession(m *millracev1.RefSessionRequest) error {
	if o := m.GetOpen(); o != nil && s.session == nil {
		return s.open(o.GetRepo(), o.GetTag(), o.GetSession(), func(info *millracev1.GetRepoResponse) any {
			return &millracev1.RefSessionResponse{Rev: info.GetRepo().GetRev(), At: info.GetAt()}
		})
	}
	txn := m.GetTxn()
	if txn == nil || s.session == nil {
		return status.Error(codes.Unimplemented, "transactions come whole over REST")
	}
	s.enqueue(&refRequest{txn.GetNumber(), &millracev1.UpdateRefsRequest{Changes: txn.GetChanges(), Message: txn.GetMessage()}, false})
	return nil
}

// open answers the first message, once the repository is there. It needs mu.
func (s *restRefTxns) open(repo, tag string, session []byte, answer func(*millracev1.GetRepoResponse) any) error {
	// The repository is looked up, so that a stream of one that does not exist ends at once, as over gRPC.
	s.repo, s.tag, s.session = repo, tag, session
	s.running = true
	go func() {
		info := new(millracev1.GetRepoResponse)
		err := s.r.invoke(s.ctx, millracev1.RefService_GetRepo_FullMethodName, &millracev1.GetRepoRequest{Name: repo, Tag: tag}, info)
		s.mu.Lock()
		if err != nil {
			s.cause = err
		} else {
			s.answers.add(answer(info))
		}
		s.answers.arrive.Poke()
		s.mu.Unlock()
		s.run()
	}()
	return nil
}

// enqueue appends a transaction. It needs mu.
func (s *restRefTxns) enqueue(q *refRequest) {
	q.in.Repo, q.in.Tag, q.in.AllowPartial = s.repo, s.tag, q.partial
	// The session's id and the number make the request id, so the same transaction has the same id on another stream.
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte(nil), s.session...), q.number))
	q.in.RequestId = sum[:16]
	s.queue = append(s.queue, q)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// run carries out what waits, until nothing does.
func (s *restRefTxns) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 || s.cause != nil {
			s.running = false
			s.answers.arrive.Poke()
			s.mu.Unlock()
			return
		}
		q := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		out := new(millracev1.UpdateRefsResponse)
		err := s.r.invoke(s.ctx, millracev1.RefService_UpdateRefs_FullMethodName, q.in, out)
		s.mu.Lock()
		// A refusal that is final is an answer like another. All else ends the stream, and what has no answer is repeated on the
		// next one.
		if f, ok := errors.AsType[*Fault](err); err != nil && (!ok || f.origin != byServer || !f.final()) {
			s.cause = err
		} else if q.partial {
			s.answers.add(loadAnswer(q.number, out, f))
		} else {
			s.answers.add(sessionAnswer(q.number, out, f))
		}
		s.answers.arrive.Poke()
		s.mu.Unlock()
	}
}

// final reports whether the same request would be refused again: by what it asks for, not by how the server is.
func (f *Fault) final() bool {
	if f.wire == nil {
		return false
	}
	// These may go by: the stream ends, and the next one repeats what has no answer.
	switch f.wire.GetCode() {
	case wire.Unavailable, wire.NotLeader, wire.DeadlineExceeded, wire.Internal:
		return false
	}
	return f.wire.GetOutcome() != millracev1.Error_UNKNOWN
}

// sessionAnswer makes the answer of a session to a transaction that was applied, or with f refused.
func sessionAnswer(number uint64, out *millracev1.UpdateRefsResponse, f *Fault) *millracev1.RefSessionResponse {
	a := &millracev1.RefSessionResponse{Number: number, Results: out.GetResults(), Rev: out.GetRev(), Replayed: out.GetReplayed(), At: out.GetAt()}
	if f != nil {
		a.Error, a.Failures = f.wire, f.wire.GetFailures()
	}
	return a
}

// loadAnswer makes the answer of a load to a frame: how many refs moved, and which changes failed.
func loadAnswer(number uint64, out *millracev1.UpdateRefsResponse, f *Fault) *millracev1.LoadRefsResponse {
	a := &millracev1.LoadRefsResponse{Number: number, Rev: out.GetRev(), At: out.GetAt()}
	if f != nil {
		a.Error = f.wire
		return a
	}
	for i, r := range out.GetResults() {
		switch e := r.GetError(); {
		case e != nil:
			a.Failures = append(a.Failures, &millracev1.Failure{
				Change: int32(i), Code: e.GetCode(), Reason: e.GetReason(), Message: e.GetMessage(), Details: e.GetDetails(),
			})
		// A change that leaves a ref where it is moves nothing.
		case r.GetOld() != r.GetNew():
			a.Changed++
		}
	}
	return a
}

// RecvMsg waits for the next answer.
func (s *restRefTxns) RecvMsg(m any) error {
	a, err := s.answers.take(s.ctx, &s.mu, func() (bool, error) {
		return !s.running && (s.closed && len(s.queue) == 0 || s.cause != nil), s.cause
	})
	if err != nil {
		return err
	}
	return assignAnswer(m, a)
}

// assignAnswer copies a into m, which gRPC's generated code made. Both must be of the same type.
func assignAnswer(m, a any) error {
	switch to := m.(type) {
	case *millracev1.RefSessionResponse:
		if from, ok := a.(*millracev1.RefSessionResponse); ok {
			to.Number, to.Applied, to.Results, to.Rev, to.Replayed = from.Number, from.Applied, from.Results, from.Rev, from.Replayed
			to.Error, to.Failures, to.At = from.Error, from.Failures, from.At
			return nil
		}
	case *millracev1.LoadRefsResponse:
		if from, ok := a.(*millracev1.LoadRefsResponse); ok {
			to.Number, to.Applied, to.Changed, to.Failures, to.Rev = from.Number, from.Applied, from.Changed, from.Failures, from.Rev
			to.Error, to.At = from.Error, from.At
			return nil
		}
	}
	return wrongMessage(m)
}

// refStream returns the stream of refs that a method names, nil for another method.
func (r *Conn) refStream(ctx context.Context, method string) grpc.ClientStream {
	switch method {
	case millracev1.RefService_ListRefs_FullMethodName:
		return &restRefList{restCallStream: restCallStream{r, ctx}}
	case millracev1.RefService_Session_FullMethodName, millracev1.RefService_LoadRefs_FullMethodName:
		return newRESTRefTxns(ctx, r)
	}
	return nil
}
