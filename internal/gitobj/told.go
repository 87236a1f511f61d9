package gitobj

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/millrace/millrace/internal/core"
)

// told is what git answers to a fetch, as it goes to the client. When the program that makes the pack ends early, git says
// that the repository may be corrupt, whatever the reason was: here clients get the reason.
type told struct {
	r *bufio.Reader
	// limit is how much memory git had, in bytes.
	limit int64
	// left is what the client has not got yet of the line that buf holds, or of the one that takes
	// its place.
	left []byte
	buf  []byte
	// raw says that what follows is not in packet lines any more; it passes as it is.
	raw bool
	// why is the limit that was reached, once git has said so.
	why error
	// reason is what was said last of why git ends.
	reason string
}

// Bands of a fetch's answer, see Documentation/gitprotocol-pack.txt of git.
const (
	bandProgress = 2
	bandFatal    = 3
	packetHead   = 4
)

// newTold returns a reader of what r gives. limit is the memory that git had.
func newTold(r io.Reader, limit int64) *told {
	return &told{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// Read reads on, one packet line after another.
func (a *told) Read(b []byte) (int, error) {
	if a.raw && len(a.left) == 0 {
		return a.r.Read(b)
	}
	if len(a.left) == 0 {
		if err := a.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, a.left)
	a.left = a.left[n:]
	return n, nil
}

// next takes in the next packet line. What is not a packet line makes all that follows pass
// unchanged.
func (a *told) next() error {
	head, err := a.r.Peek(packetHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	n, bad := strconv.ParseUint(string(head), 16, 16)
	if bad != nil {
		a.raw = true
		a.buf = append(a.buf[:0], head...)
		_, _ = a.r.Discard(len(head)) // it is in the buffer
		a.left = a.buf
		if len(head) == 0 {
			return io.EOF
		}
		return nil
	}
	size := max(int(n), packetHead)
	if cap(a.buf) < size {
		a.buf = make([]byte, size, max(size, 4096))
	}
	a.buf = a.buf[:size]
	got, err := io.ReadFull(a.r, a.buf)
	if a.left = a.buf[:got]; err != nil {
		a.raw = true // it ends here, or fails again
		return nil
	}
	if size > packetHead+1 {
		a.look(a.buf[packetHead], a.buf[packetHead+1:])
	}
	return nil
}

// look notes why git ends, and tells it where git tells something else. What comes on the band of
// fatal errors ends the answer, so it is the last chance to say the reason.
func (a *told) look(band byte, said []byte) {
	switch band {
	case bandProgress:
		for line := range bytes.Lines(said) {
			if bytes.HasPrefix(line, []byte("fatal: ")) || bytes.HasPrefix(line, []byte("error: ")) {
				a.reason = string(bytes.TrimSpace(line))
			}
		}
		if lackOfMemory.Match(said) {
			a.why = core.Exhausted{Limit: "git_memory", Max: a.limit}
		}
	case bandFatal:
		text := ""
		switch {
		case a.why != nil:
			text = a.why.Error()
		case a.reason == "":
			text = "git was ended while it made the pack"
		default:
			return // it is what git found
		}
		text = "millrace: " + text
		size := strconv.FormatInt(int64(len(text)+packetHead+1)|1<<16, 16)
		a.left = append(append([]byte(size[1:]), bandFatal), text...)
	}
}
