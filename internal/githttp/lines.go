package githttp

import (
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Each line of a fetch's request costs git some time, and repeated lines deflate to almost nothing. A line of a client
// has an id in it, which takes at least 20 bytes however it is sent. So some lines are free, and each further one needs
// bytes on the wire.
const (
	linesFree = 64 << 10
	lineBytes = 16
)

// counted passes packet lines on, and counts them. It does not change what passes, and keeps no
// line.
type counted struct {
	r     io.Reader
	wire  func() int64 // bytes that have come, as they came
	lines int64
	left  int    // of the line's payload
	head  []byte // of the next one, as far as it has come
	raw   bool   // what follows is not in packet lines: git will say so
}

// Read reads on. Too many lines for what has come end with core.TooLarge.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	for rest := b[:n]; len(rest) > 0 && !c.raw; {
		if c.left > 0 {
			k := min(c.left, len(rest))
			rest, c.left = rest[k:], c.left-k
			continue
		}
		k := min(4-len(c.head), len(rest))
		c.head, rest = append(c.head, rest[:k]...), rest[k:]
		if len(c.head) < 4 {
			continue
		}
		size, ok := parseLength([4]byte(c.head))
		c.head, c.left, c.raw = c.head[:0], max(size-4, 0), !ok
		if c.lines++; c.lines > linesFree && c.lines > linesFree+c.wire()/lineBytes {
			return 0, core.TooLarge{Field: "body", Limit: "git_lines", Max: linesFree}
		}
	}
	return n, err
}
