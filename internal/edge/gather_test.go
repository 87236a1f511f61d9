package edge

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// writes are what was written to a connection, one by one.
type writes struct {
	net.Conn
	list []string
	err  error
}

func (w *writes) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.list = append(w.list, string(p))
	return len(p), nil
}

func TestAnAnswerThatIsGatheredLeavesInOneWriteAndTheNextAsItComes(t *testing.T) {
	w := new(writes)
	c := &Conn{Conn: w}
	write := func(parts ...string) {
		t.Helper()
		for _, p := range parts {
			if n, err := c.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
	}
	for _, parts := range [][]string{
		{"HTTP/1.1 200 OK\r\nA: b\r\n\r\nabc", "defgh", "ij"}, {"HTTP/1.1 200 OK\r", "\n\r", "\nabcdefghij"}, {"HTTP/1.1 200 OK\r\n\r\nabcdefghij"},
	} {
		w.list = nil
		c.Gather(10)
		write(parts...)
		if len(w.list) != 1 || w.list[0] != strings.Join(parts, "") {
			t.Errorf("%q became %q", parts, w.list)
		}
	}
	w.list = nil
	write("one", "two")
	if len(w.list) != 2 {
		t.Errorf("afterwards %q", w.list)
	}
	c.Gather(10)
	write(strings.Repeat("x", headMost)) // that is not a head
	if len(w.list) != 3 {
		t.Errorf("%d writes", len(w.list))
	}
	c.Gather(3)
	w.err = errors.New("gone")
	if _, err := c.Write([]byte("\r\n\r\nabc")); err == nil {
		t.Error("a write that failed looks as if it had not")
	}
	if w.err = nil; c.held != nil || c.body != 0 {
		t.Error("something is held after a write that failed")
	}
}
