package githttp

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// ending is a table whose one token can end.
type ending struct {
	stage *stage
	over  atomic.Bool
}

func (e *ending) Lookup(token string, now time.Time) (auth.Principal, bool) {
	who, _ := e.stage.Lookup(token, now)
	return who, !e.over.Load()
}

func TestAPushWhoseTokenEndsInAnyStepIsRefusedOrHasHappened(t *testing.T) {
	for _, cut := range []string{"commands", "begin", "receive", "connect", "keep", "spread", "commit", "publish"} {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		tokens := &ending{stage: s}
		calls := auth.NewCalls(tokens, env.SystemClock{})
		reached := false
		s.at = func(step string) {
			if step == cut && !reached {
				reached = true
				tokens.over.Store(true)
				calls.Sweep()
			}
		}
		edge := New(Options{Backend: s, Objects: s, Auth: tokens, Calls: calls, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		body := append(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status", flushPkt), "PACK"...)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/git/ns/app.git/git-receive-pack", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		calls.Close()
		if !reached {
			t.Errorf("no step %s", cut)
		}
		if proposed := cut == "commit" || cut == "publish"; proposed {
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "ok "+refMain) || s.ref.IsZero() {
				t.Errorf("its token ended at %s: it is told %d %q", cut, w.Code, w.Body)
			}
			continue
		}
		if w.Code != http.StatusUnauthorized || !s.ref.IsZero() || s.commits != 0 {
			t.Errorf("its token ended at %s: it is told %d %q, with %d commits", cut, w.Code, w.Body, s.commits)
		}
	}
}

func TestAPushThatIsBeingReadEndsWithItsToken(t *testing.T) {
	s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
	tokens := &ending{stage: s}
	calls := auth.NewCalls(tokens, env.SystemClock{})
	defer calls.Close()
	receiving := make(chan struct{})
	s.at = func(step string) {
		if step == "receive" {
			close(receiving)
		}
	}
	web := httptest.NewServer(New(Options{Backend: s, Objects: s, Auth: tokens, Calls: calls, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)}))
	defer web.Close()
	body, send := io.Pipe() // whose end never comes
	defer send.Close()
	go func() {
		_, _ = send.Write(append(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status", flushPkt), "PACK"...)) // until the server has enough
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/git/ns/app.git/git-receive-pack", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	r.Header.Set("Authorization", "Bearer x")
	go func() {
		<-receiving
		tokens.over.Store(true)
		calls.Sweep()
	}()
	resp, err := web.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || s.commits != 0 {
		t.Errorf("it is told %s, with %d commits", resp.Status, s.commits)
	}
}
