package edge

import (
	"strings"
	"testing"
)

// A head with two lengths is found in whatever pieces it comes, also behind other requests; one with a single length is not.
func TestHeadsWithTwoLengthsAreFound(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\nTransfer-Encoding: x\r\nContent-Length: 3\r\n"
	for text, want := range map[string]bool{
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":                          true,
		"transfer-ENCODING:chunked\r\ncontent-length:0\r\n\r\n":                            true,
		"X: " + strings.Repeat("y", 500) + "\r\nContent-Length: 5\nTransfer-Encoding:\n\n": true,
		"Content-Length:" + strings.Repeat(" ", 100) + "5\r\n\r\n":                         true, // it is not read on
		"Content-Length: 0\r\nX-Transfer-Encoding: chunked\r\n\r\n":                        false,
		"Transfer-Encoding: chunked\r\n\r\n5\r\nConte\r\nContent-Length: 3\r\n\r\n":        false,
		"X: a\r\n Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":                 false,
	} {
		for _, before := range []string{"", get, post, get + post + get} {
			all := before + "POST / HTTP/1.1\r\nHost: x\r\n" + text
			for _, size := range []int{1, 3, 64, len(all)} {
				var h headReader
				found := false
				for rest := all; rest != ""; {
					n := min(size, len(rest))
					found = h.take([]byte(rest[:n])) || found
					rest = rest[n:]
				}
				if found != want {
					t.Errorf("%q in pieces of %d: %v", all, size, found)
				}
			}
		}
	}
}
