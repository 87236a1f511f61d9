package githttp

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// body reads a request's body: inflated if it is deflated, and bounded. The limit counts inflated
// bytes, so that a small request cannot become a large one in memory.
type body struct {
	q *request
	// r reads the inflated bytes; below it is timed.
	r    io.Reader
	left int64 // inflated bytes that may still come
	// limit is what the error says when more come.
	limit core.TooLarge
}

// open returns the request's body. limit names what bounds it.
func (q *request) open(limit core.TooLarge) (*body, error) {
	b := &body{q: q, left: limit.Max, limit: limit}
	raw := &timed{q: q}
	switch strings.ToLower(q.r.Header.Get("Content-Encoding")) {
	case "", "identity":
		b.r = raw
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(bufio.NewReaderSize(raw, 32<<10))
		if err != nil {
			return nil, core.Invalid{Field: "body", Message: "is not gzip"}
		}
		b.r = z
	default:
		return nil, core.Invalid{Field: "Content-Encoding", Message: "must be gzip, if it is there"}
	}
	return b, nil
}

// Read reads on. A body that is too large ends with core.TooLarge.
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.limit
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.limit
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if _, corrupt := errors.AsType[flate.CorruptInputError](err); corrupt || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = core.Invalid{Field: "body", Message: "is not gzip"}
		}
	}
	return n, err
}

// allow lets max bytes come from here on, under another limit. read is how many bytes came before
// but belong to what is allowed now.
func (b *body) allow(limit core.TooLarge, read int64) {
	b.limit, b.left = limit, limit.Max+read
}

// timed reads the body as it comes, and holds the client to the least rate.
type timed struct{ q *request }

// Read reads what the client sends. What ends it is told apart: the token was revoked, the client
// is too slow, the connection is lost, or the body is not as announced.
func (t *timed) Read(p []byte) (int, error) {
	q := t.q
	if q.revoked() {
		return 0, auth.ErrEnded
	}
	n, err := q.in.pass(func(at time.Time) { _ = q.control.SetReadDeadline(at) }, func() (int, error) { return q.r.Body.Read(p) })
	if err != nil && !errors.Is(err, io.EOF) && q.revoked() {
		return n, auth.ErrEnded
	}
	if errors.Is(err, io.EOF) {
		q.ended = true
		_ = q.control.SetReadDeadline(time.Time{}) // from here reading only tells whether the client is there
	} else if err != nil && !edge.Is[core.Exhausted](err) { // it is not too slow
		err = q.broken(err)
	}
	return n, err
}

// broken is the error of a body that could not be read to its end.
func (q *request) broken(err error) error {
	switch edge.EndOfBody(q.r, err) {
	case edge.BodySlow:
		return core.DeadlineExceeded{}
	case edge.BodyLost:
		return err
	}
	return core.Invalid{Field: "body", Message: "ends early, or its chunks are not as announced"}
}

// linger is how long a connection is read on after an answer which left some of the request unread, so that the answer arrives.
const linger = time.Second

// leave bounds what package http still does for the request: it writes what is left of the answer, and reads what is left of the
// body. It sets no deadlines of its own for that, and ends these when the connection goes on to another request.
func (q *request) leave() {
	now := q.s.o.Clock.Wall()
	_ = q.control.SetWriteDeadline(now.Add(q.s.l.Idle))
	if q.unread() {
		_ = q.control.SetReadDeadline(now.Add(linger))
	}
}

// unread reports whether the client may still be sending the body.
func (q *request) unread() bool { return edge.BodyLeft(q.r, q.ended) }

// Write writes to the client, and holds it to the least rate.
func (q *request) Write(p []byte) (int, error) {
	return q.out.pass(func(at time.Time) { _ = q.control.SetWriteDeadline(at) }, func() (int, error) { return q.w.Write(p) })
}

// Kinds of answers, as the ends of their media types. JGit, dulwich and proxies hold a server to them.
const (
	advertisement = "-advertisement" // of info/refs
	result        = "-result"        // of all that is posted
)

// answer begins a good answer of a service.
func (q *request) answer(kind string) {
	q.w.Header().Set("Content-Type", "application/x-"+kind)
	q.w.WriteHeader(http.StatusOK)
}
