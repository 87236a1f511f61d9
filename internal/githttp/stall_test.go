package githttp

import (
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// talk sends text on a connection of its own, and returns what comes until the server closes it.
func talk(t *testing.T, server *httptest.Server, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close() //nolint:errcheck // the server has closed it
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, text) // some are refused before they are through
	got, _ := io.ReadAll(c)        // however it ends
	return string(got)
}

func served(t *testing.T, l Limits) *httptest.Server {
	t.Helper()
	s := &stage{t: t, answers: make(map[core.RequestID]core.Proposed)}
	server := httptest.NewServer(New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1), Limits: l}))
	t.Cleanup(server.Close)
	return server
}

const pushHead = "POST /git/ns/app.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-receive-pack-request\r\n"

// TestRefusalsOfGitDoNotWaitForTheRestOfTheRequest has a client stall below every kind of refusal.
func TestRefusalsOfGitDoNotWaitForTheRestOfTheRequest(t *testing.T) {
	server := served(t, Limits{Idle: time.Hour})
	var wg sync.WaitGroup
	for refusal, head := range map[string]string{
		"401 no token":         pushHead,
		"401 a bad scheme":     pushHead + "Authorization: Digest x\r\n",
		"404 no repository":    "POST /git/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"404 an escaped name":  "POST /git/ns%2Fapp.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"404 an escaped slash": "POST /git/default%2fapp.git/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"404 escaped letters":  "POST /git/ns/%61pp.git/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"404 escaped action":   "POST /git/ns/app.git/git-uplo%61d-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"404 an old client":    "PUT /git/ns/app.git/objects/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"403 another service":  "GET /git/ns/app.git/info/refs?service=x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"401 an odd path":      "PUT /git/ns%2Fapp.git/objects/x HTTP/1.1\r\nHost: x\r\n",
		"415 a wrong type":     "POST /git/ns/app.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n",
		"400 it is encoded":    pushHead + "Authorization: Bearer x\r\nContent-Encoding: br\r\n",
	} {
		for _, stall := range []string{
			"Content-Length: 9\r\n\r\n", "Content-Length: 9\r\n\r\n0000", "Content-Length: 9000000000\r\n\r\n0000", "Transfer-Encoding: chunked\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n5\r\n00", "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
		} {
			wg.Go(func() {
				got := talk(t, server, head+stall)
				if refusal[:3] == "400" && strings.Contains(stall, "9000000000") {
					return // too large before that
				}
				if !strings.HasPrefix(got, "HTTP/1.1 "+refusal[:3]+" ") || !strings.Contains(got, "Connection: close\r\n") {
					t.Errorf("%s, %q: got %q", refusal, stall, got)
				}
			})
		}
	}
	wg.Wait()
}

// A body that stalls, or is malformed, is the client's fault, and no error of the server.
func TestABodyOfGitThatIsBrokenIsTheClientsFault(t *testing.T) {
	server := served(t, Limits{Idle: 100 * time.Millisecond})
	var zipped strings.Builder
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "ffdc"+strings.Repeat("a", 0xffd8)) // into memory
	_ = z.Close()
	head := pushHead + "Connection: close\r\nAuthorization: Bearer x\r\n"
	gzipped := head + "Content-Encoding: gzip\r\n"
	cut := zipped.String()[:zipped.Len()-12]
	for what, c := range map[string]struct{ status, text string }{
		"a stalled body":     {"408", head + "Content-Length: 9\r\n\r\n00"},
		"a stalled chunk":    {"408", head + "Transfer-Encoding: chunked\r\n\r\n5\r\n00"},
		"bad chunks":         {"400", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n0000"},
		"a bad second chunk": {"400", head + "Transfer-Encoding: chunked\r\n\r\n2\r\n00\r\n-1\r\n"},
		"no gzip":            {"400", gzipped + "Content-Length: 20\r\n\r\n00000000000000000000"},
		"damaged gzip":       {"400", gzipped + fmt.Sprintf("Content-Length: %d\r\n\r\n", zipped.Len()) + zipped.String()[:10] + "\xff\xff\xff" + zipped.String()[13:]},
		"short gzip":         {"400", gzipped + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(cut)) + cut},
	} {
		if got := talk(t, server, c.text); !strings.HasPrefix(got, "HTTP/1.1 "+c.status+" ") {
			t.Errorf("%s: %q", what, got)
		}
	}
}
