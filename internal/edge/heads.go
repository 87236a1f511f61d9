package edge

import (
	"bytes"
	"strconv"
)

// headReader looks in the bytes of a connection of HTTP/1 for a request that has a Content-Length and a Transfer-Encoding, which two
// servers in a row may read as two different requests: package http takes the first away before a handler sees it. It only finds:
// package http alone says what a request is. So where the two read differently, such a request may be passed over, and is then the
// last of its connection, as every request with a body in chunks is.
type headReader struct {
	line    [lineBytes]byte // the beginning of the line that comes
	have    int             // bytes of line
	body    int64           // bytes of the body that have not come
	started bool            // the request line has come
	next    int64           // bytes of the body that follows this head
	length  bool            // of this head: it has a Content-Length,
	coding  bool            // and a Transfer-Encoding
	off     bool            // nothing more is looked at
	preface bool            // it is HTTP/2 that came
}

// lineBytes is how much of a line is kept: the two names, and any length, have room.
const lineBytes = 64

// take reads the next bytes. It reports whether a head came whose body has two lengths, or one that it cannot read; then nothing
// more is looked at.
func (h *headReader) take(p []byte) (ambiguous bool) {
	for len(p) > 0 && !h.off {
		if h.body > 0 {
			n := min(h.body, int64(len(p)))
			h.body -= n
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		h.have += copy(h.line[h.have:], part)
		if end < 0 {
			return false
		}
		p = p[end+1:]
		line := bytes.TrimSuffix(h.line[:h.have], []byte{'\r'})
		h.have = 0
		if h.ended(line) {
			return true
		}
	}
	return false
}

// The names of the headers whose lines are looked at.
var (
	nameLength = []byte("Content-Length")
	nameCoding = []byte("Transfer-Encoding")
)

// ended takes in a line that has ended, of which the beginning is known.
func (h *headReader) ended(line []byte) (ambiguous bool) {
	switch {
	case !h.started:
		h.started, h.preface = true, bytes.HasPrefix(line, []byte("PRI "))
		h.off = len(line) == 0 || h.preface
		return false
	case len(line) == 0: // the end of the head
		ambiguous = h.length && h.coding
		h.off = h.coding // the last request of its connection
		h.body = h.next
		h.started, h.length, h.coding, h.next = false, false, false, 0
		return ambiguous
	case line[0] == ' ' || line[0] == '\t': // of the line before
		return false
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	switch {
	case len(name) == len(nameCoding) && bytes.EqualFold(name, nameCoding):
		h.coding = true
	case len(name) == len(nameLength) && bytes.EqualFold(name, nameLength):
		n, err := strconv.ParseInt(string(bytes.Trim(value, " \t")), 10, 64)
		h.length, h.next = true, n
		h.off = err != nil || n < 0
		return h.off
	}
	return false
}
