package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// httpLine is one connection that posts bodies and reads answers, one after the other. It knows
// just enough of HTTP/1.1 for a server that states lengths, because what the client costs is taken
// from the server's cores. It is for one goroutine at a time.
type httpLine struct {
	// host is the server's host and port.
	host string
	// head has the beginning of each request, up to the length, by path.
	head map[string][]byte
	// auth is the token; empty: none is sent.
	auth string
	// conn is nil before the first request and after an error.
	conn net.Conn
	// in reads from conn.
	in *bufio.Reader
	// out is the buffer of a request, reused.
	out []byte
	// body is that of the last answer, good until the next one.
	body []byte
	// wait says that the last answer says when to come again.
	wait bool
}

// newHTTPLine is a connection to a base URL, opened by its first request.
func newHTTPLine(base, token string) (*httpLine, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return nil, fmt.Errorf("%q must be an http:// address", base)
	}
	return &httpLine{host: u.Host, auth: token, head: make(map[string][]byte)}, nil
}

// errHTTPAnswer says that an answer is not one of this kind of server.
var errHTTPAnswer = errors.New("the answer is no HTTP/1.1 with a length")

// post posts a body and returns the status. It connects when it must; after an error the next call
// does so again. A request that failed is never repeated here.
func (l *httpLine) post(ctx context.Context, path string, body []byte) (status int, err error) {
	// The connection is opened late, so that one that is never used costs nothing.
	if l.conn == nil {
		var d net.Dialer
		if l.conn, err = d.DialContext(ctx, "tcp", l.host); err != nil {
			return 0, err
		}
		l.in = bufio.NewReaderSize(l.conn, 32<<10)
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err = l.conn.SetDeadline(time.Now().Add(restTimeout)); err != nil {
		return 0, err
	}
	// The beginning of a request to a path never changes, so it is made once.
	head := l.head[path]
	if head == nil {
		auth := ""
		if l.auth != "" {
			auth = "Authorization: Bearer " + l.auth + "\r\n"
		}
		head = []byte("POST " + path + " HTTP/1.1\r\nHost: " + l.host + "\r\n" + auth + "Content-Type: application/json\r\nContent-Length: ")
		l.head[path] = head
	}
	l.out = append(l.out[:0], head...)
	l.out = strconv.AppendInt(l.out, int64(len(body)), 10)
	l.out = append(append(l.out, "\r\n\r\n"...), body...)
	if _, err = l.conn.Write(l.out); err != nil {
		return 0, err
	}
	return l.answer()
}

// answer reads one answer: its status, the three fields that matter, and its body.
func (l *httpLine) answer() (status int, err error) {
	line, err := l.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	// The shortest status line has a version of eight bytes, a space and three digits.
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, errHTTPAnswer
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, errHTTPAnswer
	}
	// length is -1 until the answer says it; last says that the server closes the connection.
	length, last := -1, false
	l.wait = false
	for {
		if line, err = l.in.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("Content-Length") && strings.EqualFold(string(name), "content-length"):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, errHTTPAnswer
			}
		case len(name) == len("Retry-After") && strings.EqualFold(string(name), "retry-after"):
			l.wait = len(bytes.TrimSpace(value)) > 0
		case len(name) == len("Connection") && strings.EqualFold(string(name), "connection"):
			last = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
		}
	}
	if length < 0 {
		return 0, errHTTPAnswer
	}
	// The buffer grows to the longest answer and stays.
	if cap(l.body) < length {
		l.body = make([]byte, length)
	}
	l.body = l.body[:length]
	if _, err = io.ReadFull(l.in, l.body); err != nil {
		return 0, err
	}
	if last {
		l.close()
	}
	return status, nil
}

// overloaded reports whether an answer refuses because too many searches wait, and says when to come again.
func (l *httpLine) overloaded(status int) bool {
	return status == http.StatusServiceUnavailable && l.wait && bytes.Contains(l.body, []byte(`"reason":"overloaded"`))
}

// close gives the connection up; the next request opens another one.
func (l *httpLine) close() {
	if l.conn != nil {
		_ = l.conn.Close() // it is given up
		l.conn = nil
	}
}

// SearchLine searches over one connection, one search after the other. One goroutine at a time uses it.
type SearchLine struct {
	// line is the connection, and path the route with the namespace.
	line *httpLine
	path string
}

// NewSearchLine is a connection to a server's REST door, opened by its first search. An empty namespace is the token's.
func NewSearchLine(base, token, namespace string) (*SearchLine, error) {
	l, err := newHTTPLine(base, token)
	if err != nil {
		return nil, err
	}
	return &SearchLine{l, SearchRoute + newSearchDoor(base, token, namespace).query}, nil
}

// Search posts a body and returns the answer's, which is good until the next search.
func (l *SearchLine) Search(ctx context.Context, body []byte) ([]byte, error) {
	status, err := l.line.post(ctx, l.path, body)
	if err == nil && status != http.StatusOK {
		err = &refusedError{status, string(l.line.body[:min(len(l.line.body), 500)])}
	}
	return l.line.body, err
}

// Close gives the connection up.
func (l *SearchLine) Close() { l.line.close() }
