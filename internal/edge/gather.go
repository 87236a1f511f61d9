package edge

import (
	"bytes"
	"sync"
)

// headMost bounds what is held back in search of the end of a head.
const headMost = 16 * kib

// endOfHead is the empty line between the head of an answer and its body.
var endOfHead = []byte("\r\n\r\n")

// held are buffers of answers that are being gathered. A connection has one only while it writes: there are many of them.
var held = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Gather makes the next answer, head and body, leave in one write; body is the length of its body in bytes. A second write
// would wake the client twice and cost as much as a tenth of a search. The caller must be the goroutine that writes the answer,
// and must write all of the body.
func (c *Conn) Gather(body int) { c.body = body }

// Write writes, or holds back until the answer is whole. What it holds when the connection is closed is lost.
func (c *Conn) Write(p []byte) (int, error) {
	if c.body == 0 {
		return c.Conn.Write(p)
	}
	if c.held == nil {
		c.held, c.whole = held.Get().(*bytes.Buffer), 0
		c.held.Reset()
	}
	_, _ = c.held.Write(p) // a buffer takes all
	if c.whole == 0 {
		if i := bytes.Index(c.held.Bytes(), endOfHead); i >= 0 {
			c.whole = i + len(endOfHead) + c.body
		}
	}
	if c.held.Len() < c.whole || c.whole == 0 && c.held.Len() < headMost {
		return len(p), nil
	}
	_, err := c.Conn.Write(c.held.Bytes())
	held.Put(c.held)
	c.held, c.body = nil, 0
	if err != nil {
		return 0, err
	}
	return len(p), nil
}
