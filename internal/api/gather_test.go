package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
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
	c := &limitedConn{Conn: w}
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
		c.gather(10)
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
	c.gather(10)
	write(strings.Repeat("x", headMost)) // that is not a head
	if len(w.list) != 3 {
		t.Errorf("%d writes", len(w.list))
	}
	c.gather(3)
	w.err = errors.New("gone")
	if _, err := c.Write([]byte("\r\n\r\nabc")); err == nil {
		t.Error("a write that failed looks as if it had not")
	}
	if w.err = nil; c.held != nil || c.body != 0 {
		t.Error("something is held after a write that failed")
	}
}

// Answers of all sizes come whole, one after the other over one connection.
func TestAnswersOfAllSizesComeWholeOverOneConnection(t *testing.T) {
	r := newRESTRig(t, Limits{})
	r.addTask("acme", testID(1)) // makes the namespace
	size := 0
	r.n.search = func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error) {
		return &core.SearchAnswer{Plan: "scan", Hits: []core.SearchHit{{ID: "w1", Payload: []byte(`{"role":"` + strings.Repeat("r", size) + `"}`)}}}, nil
	}
	for _, size = range []int{0, 2000, 3000, 3500, 3900, 4000, 4096, 5000, 8192, 60_000, 70_000, 10, 4500} {
		a := r.do("POST", "/v1/matrix/search?ns=default", `{"collection":"ws","query_text":"x"}`).expect(t, "search", http.StatusOK)
		if !strings.Contains(a.body, `"`+strings.Repeat("r", size)+`"`) || !strings.HasSuffix(a.body, "}\n") {
			t.Errorf("%d bytes: %d came", size, len(a.body))
		}
	}
	if n := r.s.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAQueryOfOneParameterIsReadAsAnyOther(t *testing.T) {
	r := newRESTRig(t, Limits{})
	r.addTask("acme", testID(1))
	for raw, want := range map[string]int{
		"ns=default": 200, "ns=defaul%74": 200, "ns=other": 404, "ns=": 400, "ns": 400, "=x": 400, "what=1": 400, "ns=default&ns=default": 400, "limit=5": 400, "ns=a=b": 400,
	} {
		r.do("GET", "/v1/tasks/"+testID(1)+"?"+raw, "").expect(t, raw, want)
	}
}
