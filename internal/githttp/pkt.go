package githttp

import (
	"bufio"
	"errors"
	"io"
	"strconv"
)

// Kinds of packet lines.
type pktKind uint8

const (
	// pktData is a line with a payload. The others have none, and follow in the order of their
	// numbers, which next relies on.
	pktData  pktKind = iota
	pktFlush         // 0000
	pktDelim         // 0001
	pktEnd           // 0002
)

// maxPkt is the length of the longest packet line, its own four digits included; maxPayload is what fits into it.
const (
	maxPkt     = 65520
	maxPayload = maxPkt - 4
)

// errPkt says that bytes are not a packet line.
var errPkt = errors.New("not a packet line")

// pktReader reads packet lines. What follows the last one that was read is left in r.
type pktReader struct {
	r *bufio.Reader
	// buf holds the payload of the last line.
	buf []byte
}

// next returns the next line; the payload is valid until the next call. A body that ends between lines is io.EOF.
func (p *pktReader) next() (kind pktKind, payload []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	n, ok := parseLength(head)
	switch {
	case !ok || n == 3 || n > maxPkt:
		return 0, nil, errPkt
	case n < 3:
		return pktFlush + pktKind(n), nil, nil
	}
	n -= 4
	if cap(p.buf) < n {
		p.buf = make([]byte, n, max(n, 1024))
	}
	p.buf = p.buf[:n]
	if _, err := io.ReadFull(p.r, p.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return pktData, p.buf, nil
}

// parseLength reads four hexadecimal digits, of either case as git does.
func parseLength(b [4]byte) (n int, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int(c)
	}
	return n, true
}

// hexDigits are the digits of a line's length.
const hexDigits = "0123456789abcdef"

// appendHead appends the length of a line with that payload.
func appendHead(b []byte, payload int) []byte {
	n := payload + 4
	return append(b, hexDigits[n>>12&15], hexDigits[n>>8&15], hexDigits[n>>4&15], hexDigits[n&15])
}

// appendPkt appends a line of at most maxPayload bytes, made of parts.
func appendPkt(b []byte, parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b = appendHead(b, n)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// The lines without a payload.
const (
	flushPkt = "0000"
	delimPkt = "0001"
)

// Bands of an answer that is multiplexed.
const (
	bandData  = 1
	bandText  = 2 // people see it
	bandError = 3 // and the answer ends
)

// bandWriter writes into one band, in lines of at most most bytes of payload, the band's number included.
type bandWriter struct {
	w    io.Writer
	band byte
	most int
	buf  []byte
}

// Write cuts p into lines. It writes each line on its own.
func (b *bandWriter) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		n := min(len(p), b.most-1)
		b.buf = append(append(appendHead(b.buf[:0], n+1), b.band), p[:n]...)
		if _, err := b.w.Write(b.buf); err != nil {
			return done, err
		}
		done, p = done+n, p[n:]
	}
	return done, nil
}

// decimal is strconv.FormatInt in base 10.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }
