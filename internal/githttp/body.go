package githttp

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// body reads a request's body: inflated if it is deflated, and bounded.
type body struct {
	q     *request
	r     io.Reader
	left  int64 // inflated bytes that may still come
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
		if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) {
			err = core.Invalid{Field: "body", Message: "is not gzip"}
		}
	}
	return n, err
}

// allow lets max bytes come from here on, under another limit.
func (b *body) allow(limit core.TooLarge, read int64) {
	b.limit, b.left = limit, limit.Max+read
}

// timed reads the body as it comes, and gives the client some time for each part.
type timed struct{ q *request }

func (t *timed) Read(p []byte) (int, error) {
	q := t.q
	_ = q.control.SetReadDeadline(q.s.o.Clock.Wall().Add(q.s.l.Idle)) // one that cannot be timed is not served over a socket
	n, err := q.r.Body.Read(p)
	if err != nil {
		_ = q.control.SetReadDeadline(time.Time{}) // from here reading only tells whether the client is there
	}
	return n, err
}

// untime ends the deadlines of a connection that others will use.
func (q *request) untime() {
	_ = q.control.SetReadDeadline(time.Time{})
	_ = q.control.SetWriteDeadline(time.Time{})
}

// Write writes to the client, and gives it some time to take it.
func (q *request) Write(p []byte) (int, error) {
	_ = q.control.SetWriteDeadline(q.s.o.Clock.Wall().Add(q.s.l.Idle))
	return q.w.Write(p)
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
