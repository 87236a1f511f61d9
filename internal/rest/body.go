package rest

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// The names of limits that are not of a message.
const (
	limitBody   = "rest_body"
	limitBodies = "rest_bodies"
)

// firstRead is how much of a body is made room for before any of it has come.
const firstRead = 16 * kib

// body reads the request's body, as far as limits of size and time let it.
func (c *restCall) body() ([]byte, error) {
	limit := c.s.Limits.RESTBodyBytes
	if c.route.most > 0 {
		limit = min(limit, c.route.most)
	}
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	if c.r.ContentLength > limit {
		return nil, core.TooLarge{Field: strictjson.Document, Limit: limitBody, Max: limit}
	}
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, edge.Invalid("Content-Encoding", "is not supported: send the body as it is")
	}
	// A client may announce a large body and send nothing: room is made as the bytes come.
	size := c.r.ContentLength
	if size < 0 || size > firstRead {
		size = firstRead
	}
	var b []byte
	// The buffer doubles, and each step is counted before it is made, so that memory that is held is
	// memory that is counted.
	for {
		if int64(len(b)) == int64(cap(b)) {
			grown, fact := c.grow(b, size)
			if fact != nil {
				return nil, fact
			}
			b = grown
		}
		n, err := c.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, core.TooLarge{Field: strictjson.Document, Limit: limitBody, Max: limit}
		case errors.Is(err, io.EOF) || int64(len(b)) == c.r.ContentLength:
			_ = c.control.SetReadDeadline(time.Time{}) // from here reading only tells whether the caller is there
			c.sent, c.ended = b, true
			c.unshare()
			return b, nil
		case err != nil:
			return nil, c.bodyFact(err)
		}
	}
}

// bodyFact is the fact of a body that could not be read to its end.
func (c *restCall) bodyFact(err error) core.Fact {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return edge.Invalid(strictjson.Document, "ends before its announced length")
	}
	switch edge.EndOfBody(c.r, err) {
	case edge.BodySlow:
		return core.DeadlineExceeded{}
	case edge.BodyLost:
		return core.Unavailable{Reason: "cancelled"}
	}
	return edge.Invalid(strictjson.Document, "is malformed: its chunks or its length differ from what was announced")
}

// bound sets how long the request's body may take, whether somebody reads it or not: package http reads what a handler has
// left, and sets no deadline for that. After a body in chunks the connection is closed: package http takes such a request also
// with a length, which two servers in a row could read as two different requests, and a headReader may have passed it over.
func (c *restCall) bound() {
	if c.r.ContentLength == 0 {
		return
	}
	c.setDeadline(c.control.SetReadDeadline, c.s.Limits.HTTPBodyMs)
	if c.r.ProtoMajor == 1 && (len(c.r.TransferEncoding) > 0 || c.r.ProtoMinor == 0) {
		c.w.Header()["Connection"] = connectionClose
	}
}

// ambiguous reports whether the body has two lengths: that of a connection's last request may.
func (c *restCall) ambiguous() bool {
	return c.conn != nil && c.r.ProtoMajor == 1 && (len(c.r.TransferEncoding) > 0 || c.r.ProtoMinor == 0) && c.conn.Ambiguous.Load()
}

// connectionClose ends a connection of HTTP/1 after an answer.
var connectionClose = []string{"close"}

// leaveBody prepares a refusal: it is written at once. What has come of the body is taken; if that is not all, the connection
// is closed after the answer, and read on for a short time only, so that the answer arrives.
func (c *restCall) leaveBody() {
	// Over HTTP/2 a stream ends by itself, and the connection goes on.
	if !edge.BodyLeft(c.r, c.ended) || c.bodyCame() {
		return
	}
	c.w.Header()["Connection"] = connectionClose
	c.setDeadline(c.control.SetReadDeadline, c.s.Limits.HTTPLingerMs)
}

// cameBytes is the buffer that package http reads a connection with: what came with the head of a request is in it.
const cameBytes = 4 * kib

// bodyCame reports whether the whole body has come already, and takes it. It does not wait.
func (c *restCall) bodyCame() bool {
	// A deadline in the past makes Read return what is buffered, and no more.
	if n := c.r.ContentLength; n < 0 || n > cameBytes || c.r.Header.Get("Expect") != "" || c.control.SetReadDeadline(edge.LongAgo) != nil {
		return false
	}
	// One byte more than fits, so that the end of the body shows.
	_, err := io.CopyN(io.Discard, c.r.Body, cameBytes+1)
	return errors.Is(err, io.EOF)
}

// grow makes room for more of a body, as long as the node has it.
func (c *restCall) grow(b []byte, first int64) ([]byte, core.Fact) {
	size := max(first, 512)
	if len(b) > 0 {
		size = 2 * int64(cap(b))
		if c.r.ContentLength > 0 {
			size = min(size, c.r.ContentLength)
		}
		size = min(size, c.s.Limits.RESTBodyBytes+1)
	}
	more := size - int64(cap(b))
	// Three counters bound it: bodies of this door, requests of all doors, and the tenant's share of
	// those on their way. What was taken is given back by ServeHTTP, refused or not.
	if c.h.bodies.Add(more) > c.s.Limits.RESTBodiesBytes {
		c.h.bodies.Add(-more)
		return nil, core.Unavailable{Reason: "overload", Limit: limitBodies}
	}
	if !c.s.Requests.Take(more) {
		c.h.bodies.Add(-more)
		return nil, edge.ErrRequests
	}
	c.held += more
	// The first piece is free of the share: it is small, and most bodies fit into it.
	if len(b) > 0 {
		if fact := c.s.RequestShares.Take(c.who.Tenant, more); fact != nil {
			return nil, fact
		}
		c.shared += more
	}
	return append(make([]byte, 0, size), b...), nil
}

// unshare gives the tenant's share back: nothing of the body is on its way any more.
func (c *restCall) unshare() {
	if c.shared > 0 {
		c.s.RequestShares.Give(c.who.Tenant, c.shared)
		c.shared = 0
	}
}

// setDeadline bounds what follows on the connection. Where that cannot be, other bounds must do.
func (c *restCall) setDeadline(set func(time.Time) error, ms int64) {
	_ = set(c.s.Clock.Wall().Add(time.Duration(ms) * time.Millisecond))
}

// Header names, as package http writes them.
const (
	// headerIndex says where an answer stands in the log of its partition; headerRev is the revision of
	// a key, or of a repository's refs; headerWriter is the task that wrote a key last, and its token.
	headerIndex  = "Millrace-Index"
	headerRev    = "Millrace-Rev"
	headerWriter = "Millrace-Writer"
)

// Values of headers that do not change. All answers share them: package http does not write to them.
var (
	contentJSON  = []string{"application/json"}
	contentBytes = []string{"application/octet-stream"}
	noSniff      = []string{"nosniff"}
	noStore      = []string{"no-store"}
	// dataPolicy keeps a browser that is led to an answer from showing it as a page of this origin, whose cookie it has.
	dataPolicy    = []string{"default-src 'none'; sandbox; frame-ancestors 'none'"}
	nobodyIsThere = []string{"Bearer"}
)

// head writes the status and the headers that every answer has.
func (c *restCall) head(status int, contentType []string, length int) {
	c.written = true
	h := c.w.Header()
	// Payloads are whatever clients have stored: a browser must not guess that one is a page, and no
	// cache may keep it.
	h["X-Content-Type-Options"] = noSniff
	h["Cache-Control"] = noStore
	h["Content-Security-Policy"] = dataPolicy
	if contentType != nil {
		h["Content-Type"] = contentType
		h["Content-Length"] = []string{strconv.Itoa(length)}
	}
	c.setDeadline(c.control.SetWriteDeadline, c.s.Limits.SendStallMs)
	c.w.WriteHeader(status)
}

// showIndex tells where an answer stands: partition/epoch/index, of which the epoch is reserved and 0.
func (c *restCall) showIndex(at *pb.At) {
	var b [48]byte
	out := strconv.AppendUint(b[:0], uint64(at.GetPartition()), 10)
	out = append(out, '/')
	out = strconv.AppendUint(out, uint64(at.GetEpoch()), 10)
	out = append(out, '/')
	out = strconv.AppendUint(out, at.GetIndex(), 10)
	c.w.Header()[headerIndex] = []string{string(out)}
}

// ok answers with an object, and with where it stands.
func (c *restCall) ok(status int, at *pb.At, fields func(w *jsonWriter)) error {
	c.showIndex(at)
	return c.object(status, fields)
}

// object answers with an object. An error is of a caller who is gone.
func (c *restCall) object(status int, fields func(w *jsonWriter)) error {
	// The whole answer is in memory before the status is written: its length stands in a header.
	w, _ := c.h.writers.Get().(*jsonWriter)
	w.Reset()
	w.lean = false
	w.Open('{')
	fields(w)
	w.Close('}')
	w.B = append(w.B, '\n')
	c.head(status, contentJSON, len(w.B))
	c.gather(len(w.B))
	_, err := c.w.Write(w.B)
	// One large answer must not keep its buffer for ever.
	if cap(w.B) <= pooledBytes {
		c.h.writers.Put(w)
	}
	if err != nil {
		return errGone
	}
	return nil
}

// errGone says that the client did not get the answer.
var errGone = core.Unavailable{Reason: "cancelled", Unknown: true}

// fail answers with an error, unless an answer was begun.
func (c *restCall) fail(err error) {
	if c.written {
		return
	}
	// A leader may be found first: it makes another answer of NotLeader, or answers itself.
	if err = c.elsewhere(edge.FactOf(err, false)); err == nil {
		return
	}
	err = edge.Revoked(c.call, err)
	row := edge.RowOf(err)
	name := "unknown route"
	if c.route != nil {
		name = c.route.name()
	}
	e := c.s.Wire(name, err, c.who.Scopes.Has(edge.ReadsValues))
	// The worker must learn that its attempt has ended all the same.
	if f, ok := errors.AsType[edge.SettleRefusal](err); ok && f.Failed {
		if e.Details == nil {
			e.Details = make(map[string]string)
		}
		e.Details["failed_instead"] = "true"
	}
	h := c.w.Header()
	switch row.HTTP {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = nobodyIsThere
	case http.StatusMethodNotAllowed:
		if f, ok := errors.AsType[edge.WrongMethod](err); ok {
			h["Allow"] = []string{f.Allow}
		}
	// HTTP's own words for when to try again; the pause is in the answer too.
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h["Retry-After"] = []string{retryAfter(e.GetRetryAfter())}
	}
	c.leaveBody()
	_ = c.object(row.HTTP, func(w *jsonWriter) { // an error is of a caller who is gone
		// Clients of OpenAI's API read their own form of errors.
		if c.route != nil && c.route.failure != nil {
			c.route.failure(w, row.HTTP, e)
			return
		}
		writeErrorAnswer(w, e)
	})
}

// retryAfter is a pause in whole seconds, one where none is known.
func retryAfter(d *durationpb.Duration) string {
	// Rounded up: a client that comes early is refused again.
	s := int64((d.AsDuration() + time.Second - 1) / time.Second)
	return strconv.FormatInt(max(s, 1), 10)
}

// gatherFrom is the length from which an answer is gathered: package http writes through a buffer of 4 KiB, head first, so
// that a shorter one leaves in one write anyway.
const gatherFrom = 3 * kib

// gather has an answer of HTTP/1 leave in one write. An answer to HEAD has no body to wait for.
func (c *restCall) gather(body int) {
	if body < gatherFrom || body > pooledBytes || c.r.ProtoMajor != 1 || c.r.Method == "HEAD" {
		return
	}
	if c.conn != nil && !c.conn.Secure { // beneath TLS other bytes are written
		c.conn.Gather(body)
	}
}
