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
	r      *bufio.Reader
	limit  int64 // of memory, in bytes
	left   []byte
	buf    []byte
	raw    bool   // what follows is not in packet lines any more
	why    error  // the limit that was reached
	reason string // what was said last of why git ends
}

// Bands of a fetch's answer, see Documentation/gitprotocol-pack.txt of git.
const (
	bandProgress = 2
	bandFatal    = 3
	packetHead   = 4
)

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

// next takes in the next packet line.
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

// look notes why git ends, and tells it where git tells something else.
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
