package githttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// steps is a clock that a test moves.
type steps struct {
	env.SystemClock
	now time.Duration
}

func (s *steps) Boot() time.Duration { return s.now }

// trickle gives, or takes, some bytes at a time, for each of which the clock moves.
type trickle struct {
	clock *steps
	bytes int
	takes time.Duration
	left  int
	err   error // after the last
	moved int
}

func (t *trickle) Read(p []byte) (int, error) {
	t.clock.now += t.takes
	n := min(t.bytes, t.left, len(p))
	if t.left -= n; n == 0 {
		return 0, errors.Join(t.err, io.EOF)
	}
	t.moved += n
	return n, nil
}

func (t *trickle) Write(p []byte) (int, error) {
	for done := 0; done < len(p); done += t.bytes {
		t.clock.now += t.takes
	}
	t.moved += len(p)
	return len(p), nil
}

func TestATransferThatIsTooSlowEnds(t *testing.T) {
	for _, c := range []struct {
		name     string
		bytes    int
		takes    time.Duration
		most     int // bytes that may pass before it ends
		whole    bool
		computes time.Duration // for which this side works between two steps
	}{
		{name: "fast", bytes: 32 << 10, takes: time.Millisecond, whole: true},
		{name: "just fast enough", bytes: 32 << 10, takes: 60 * time.Second / 32, whole: true},
		{name: "this side takes its time", bytes: 32 << 10, takes: time.Millisecond, computes: time.Hour, whole: true},
		{name: "nothing comes", bytes: 1, takes: 2 * time.Minute, most: 1},
		{name: "a byte now and then", bytes: 1, takes: 10 * time.Second, most: 6},
		{name: "a kilobyte each second", bytes: 1 << 10, takes: time.Second, most: 60 << 10},
		{name: "almost fast enough", bytes: 32 << 10, takes: 2 * time.Second, most: 1 << 20},
	} {
		clock := new(steps)
		s := New(Options{Clock: clock})
		p := pace{s: s}
		from := &trickle{clock: clock, bytes: c.bytes, takes: c.takes, left: 4 << 20}
		buf := make([]byte, 64<<10)
		var err error
		for err == nil {
			_, err = p.pass(func(time.Time) {}, func() (int, error) { return from.Read(buf) })
			clock.now += c.computes
		}
		slow, ended := errors.AsType[core.Exhausted](err)
		if ended == c.whole || ended && slow.Limit != "git_rate" || !c.whole && from.moved > c.most {
			t.Errorf("%s: %d bytes, %v", c.name, from.moved, err)
		}
		if ended {
			before := from.moved
			if n, err := p.pass(func(time.Time) {}, func() (int, error) { return from.Read(buf) }); n != 0 || err == nil || from.moved != before {
				t.Errorf("%s: after its end %d more, %v", c.name, n, err)
			}
		}
	}
}

func TestTheDeadlineOfAConnectionIsWhatIsLeftOfTheTime(t *testing.T) {
	clock := new(steps)
	p := pace{s: New(Options{Clock: clock})}
	for _, left := range []time.Duration{60, 50, 40} {
		var at time.Time
		_, err := p.pass(func(d time.Time) { at = d }, func() (int, error) { clock.now += 10 * time.Second; return 1, nil })
		if d := time.Until(at).Round(10 * time.Second); err != nil || d != left*time.Second {
			t.Errorf("%v is left, not %v s; %v", d, int(left), err)
		}
	}
}

// slowStage is a stage whose fetches answer without end, and whose pushes are read through.
type slowStage struct {
	*stage
	fetched error
	fetches Fetch
}

func (s *slowStage) Fetch(_ context.Context, f Fetch, _ func(io.Writer) error, out func(io.Reader) error) error {
	s.fetches = f
	s.fetched = out(endless{})
	return s.fetched
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// slowWriter is a client that takes its answer slowly.
type slowWriter struct {
	*httptest.ResponseRecorder
	*trickle
}

func (w slowWriter) Write(p []byte) (int, error) { return w.trickle.Write(p) }

func TestAFetchThatNobodyTakesEnds(t *testing.T) {
	clock := new(steps)
	s := &slowStage{stage: &stage{t: t}}
	server := New(Options{Backend: s, Objects: s, Auth: s, Clock: clock, Rand: env.SystemRand{}})
	r := httptest.NewRequest(http.MethodPost, "/git/default/app.git/git-upload-pack", strings.NewReader("0011command=fetch0000"))
	r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	r.Header.Set("Authorization", "Bearer x")
	r.Header.Set("Git-Protocol", "version=2")
	to := &trickle{clock: clock, bytes: 1 << 10, takes: time.Second}
	func() {
		defer func() {
			if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // what net/http wants
				t.Errorf("the connection is not cut: %v", got)
			}
		}()
		server.ServeHTTP(slowWriter{httptest.NewRecorder(), to}, r)
	}()
	if slow, ok := errors.AsType[core.Exhausted](s.fetched); !ok || slow.Limit != "git_rate" || to.moved > 1<<20 {
		t.Errorf("after %d bytes: %v", to.moved, s.fetched)
	}
	if s.fetches.Principal != "a" {
		t.Errorf("it takes the share of %q", s.fetches.Principal)
	}
}

func TestAPushThatComesTooSlowlyIsRefusedInWords(t *testing.T) {
	clock := new(steps)
	s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
	server := New(Options{Backend: s, Objects: s, Auth: s, Clock: clock, Rand: env.SystemRand{}})
	id := strings.Repeat("1", 40)
	head := appendPkt(nil, strings.Repeat("0", 40), " ", id, " ", refMain, "\x00report-status")
	head = append(head, flushPkt...)
	body := &trickle{clock: clock, bytes: 100, takes: time.Second, left: 1 << 20}
	r := httptest.NewRequest(http.MethodPost, "/git/default/app.git/git-receive-pack", io.MultiReader(bytes.NewReader(head), body))
	r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	r.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "unpack limit git_rate of 1048576 reached") || body.moved > 10_000 || s.commits != 0 {
		t.Errorf("after %d bytes %d: %q", body.moved, w.Code, w.Body)
	}
}
