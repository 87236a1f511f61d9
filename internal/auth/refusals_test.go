package auth

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// refusalLog is Refusals in a bubble of fake time, and the lines that they have logged.
type refusalLog struct {
	*Refusals
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// Write keeps a line.
func (l *refusalLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func newRefusalLog() *refusalLog {
	l := new(refusalLog)
	l.Refusals = NewRefusals(slog.New(slog.NewTextHandler(l, nil)), env.SystemClock{})
	return l
}

// lines returns what was logged since the last call, without times.
func (l *refusalLog) lines() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for line := range strings.Lines(l.out.String()) {
		_, rest, _ := strings.Cut(line, "msg=")
		lines = append(lines, strings.TrimSpace(rest))
	}
	l.out.Reset()
	return lines
}

func (l *refusalLog) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := l.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s, the log has\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestARefusedTokenIsLoggedAtOnceAndThenAsANumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRefusalLog()
		defer l.Close()
		gone := Principal{Name: "ci", Tenant: "acme"}
		late := Principal{Name: "old", Tenant: "acme", Expires: time.Now().Add(-time.Second)}
		for range 1000 {
			l.Note(Principal{}, "192.0.2.7:4711")
		}
		l.Note(Principal{}, "[2001:db8::1]:80")
		l.Note(gone, "192.0.2.7:4712")
		l.Note(late, "192.0.2.7:4713")
		l.want(
			t, "at once",
			`"auth: a token that is not known is refused" from=192.0.2.7 refusals=1`,
			`"auth: a token that is not known is refused" from=2001:db8::1 refusals=1`,
			`"auth: a token that is not valid any more is refused" reason=removed token_of="ci of tenant acme" from=192.0.2.7:4712 refusals=1`,
			`"auth: a token that is not valid any more is refused" reason=expired token_of="old of tenant acme" from=192.0.2.7:4713 refusals=1`,
		)
		time.Sleep(tellEvery)
		l.want(t, "after a minute", `"auth: a token that is not known is refused" from=192.0.2.7 refusals=999`)
		time.Sleep(10 * tellEvery)
		l.want(t, "without further ones")
		l.Note(gone, "192.0.2.7:4712")
		l.Note(gone, "192.0.2.8:1")
		l.want(t, "after a quiet time", `"auth: a token that is not valid any more is refused" reason=removed token_of="ci of tenant acme" from=192.0.2.7:4712 refusals=1`)
		l.Close()
		l.want(t, "at the end", `"auth: a token that is not valid any more is refused" reason=removed token_of="ci of tenant acme" from=192.0.2.8:1 refusals=1`)
		if u, r, e := l.Count(Unknown), l.Count(Removed), l.Count(Expired); u != 1001 || r != 3 || e != 1 {
			t.Errorf("counted %d unknown, %d removed, %d expired", u, r, e)
		}
	})
}

func TestManyOriginsOfRefusedTokensFloodNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRefusalLog()
		t.Cleanup(l.Close)
		for range 3 {
			for i := range 50_000 {
				l.Note(Principal{}, fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))
			}
		}
		if got := l.lines(); len(got) != maxOrigins+1 {
			t.Errorf("%d lines at once", len(got))
		}
		l.Note(Principal{Name: "ci", Tenant: "acme"}, "192.0.2.7:1")
		if got := l.lines(); len(got) != 1 || !strings.Contains(got[0], "removed") {
			t.Errorf("a removed token between them: %q", got)
		}
		time.Sleep(tellEvery)
		got := l.lines()
		if len(got) != maxOrigins+1 || !strings.Contains(strings.Join(got, "\n"), `from=others refusals=149699`) {
			t.Errorf("%d lines after a minute: %.2000q", len(got), got)
		}
		time.Sleep(2 * tellEvery)
		synctest.Wait()
		l.Refusals.mu.Lock()
		defer l.Refusals.mu.Unlock()
		if len(l.seen) != 0 {
			t.Errorf("%d origins are remembered", len(l.seen))
		}
	})
}
