package rest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// A request whose body has two lengths is refused, and its connection closed: another server may have read it as two requests.
func TestABodyOfTwoLengthsIsRefused(t *testing.T) {
	body := `{"queue":"q"}`
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	plain, secure := newRESTRig(t, edge.Limits{}), newTLSRig(t, edge.Limits{})
	for _, r := range []*restRig{plain, secure} {
		r.s.Clock = env.SystemClock{}
		get := "GET /v1/status HTTP/1.1\r\nHost: x\r\n" + tokenLine + "\r\n"
		for what, first := range map[string]string{
			"length first":      fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(body)) + chunked,
			"chunks first":      "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked,
			"a length of 0":     "transfer-encoding: Chunked\r\ncontent-length: 0\r\n\r\n" + chunked,
			"the length of all": fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(chunked)) + chunked,
			"two lengths":       "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
			"a list of lengths": "Content-Length: 2, 3\r\n\r\n{}",
			"two codings":       "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked,
			"another coding":    "Content-Length: 3\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + chunked,
		} {
			for before, answers := range map[string]int{"": 1, get: 2} {
				c := r.rawAbove()
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				c.send(before + "POST /v1/tasks HTTP/1.1\r\nHost: x\r\n" + tokenLine + first + get)
				got := c.rest()
				last := got[strings.LastIndex(got, "HTTP/1.1 "):]
				if strings.Count(got, "HTTP/1.1 ") != answers || !strings.HasPrefix(last, "HTTP/1.1 400 ") && !strings.HasPrefix(last, "HTTP/1.1 501 ") ||
					!strings.Contains(last, "Connection: close\r\n") {
					t.Errorf("%s, %s behind %d: %q", r.scheme, what, answers-1, got)
				}
				if strings.Contains(first, "Transfer-Encoding: chunked\r\n\r\n") && strings.Contains(first, "Content-Length") && !strings.Contains(last, `"INVALID_ARGUMENT"`) {
					t.Errorf("%s, %s: %q", r.scheme, what, last)
				}
			}
		}
		if n := len(r.n.Proposed()); n > 0 {
			t.Errorf("%d were proposed", n)
		}
	}
}
