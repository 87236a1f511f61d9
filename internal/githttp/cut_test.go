package githttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// stage is a node and its objects, of one repository with one ref, whose steps a test can stop at.
type stage struct {
	t         *testing.T
	at        func(step string)
	ref       core.ObjectID
	answers   map[core.RequestID]core.Proposed
	commits   int
	published int
	dropped   int  // pushes that ended without a published pack
	many      bool // every ref is new, and moves
	mu        sync.Mutex
	asked     string // the name of the repository; guarded by mu
	state     core.RepoState
}

const refMain = "refs/heads/main"

func (s *stage) step(name string) {
	if s.at != nil {
		s.at(name)
	}
}

func (s *stage) Lookup(string, time.Time) (auth.Principal, bool) {
	return auth.Principal{Name: "a", Tenant: "t", Scopes: auth.RefRead | auth.RefWrite | auth.RefForce}, true
}

func (s *stage) Namespace(context.Context, string, string, bool) (core.NamespaceInfo, error) {
	return core.NamespaceInfo{Partitions: make([]core.PartitionInfo, 1)}, nil
}

func (s *stage) Repo(ctx context.Context, _ core.NamespaceInfo, name string) (Repo, error) {
	s.mu.Lock()
	s.asked = name
	s.mu.Unlock()
	s.step("admit")
	return Repo{RepoInfo: core.RepoInfo{Repo: core.Repo{Name: "app", ID: core.RepoID{1}, Config: core.RepoConfig{State: s.state}}}}, ctx.Err()
}

func (s *stage) Plan(context.Context, core.NamespaceInfo, string) (Repo, bool, error) {
	return Repo{}, false, nil
}

func (s *stage) Create(context.Context, Repo, string) (Repo, error) {
	return Repo{}, errors.ErrUnsupported
}
func (s *stage) Hidden(*core.RepoInfo, string) bool { return false }
func (s *stage) Refs(_ context.Context, at Repo, _ RefQuery, begin func(core.RepoInfo) error, _ func(core.Ref) error) error {
	return begin(at.RepoInfo)
}

func (s *stage) Ref(ctx context.Context, at Repo, names []string) (core.RepoInfo, []core.Ref, error) {
	s.step("commands")
	out := make([]core.Ref, len(names))
	if !s.ref.IsZero() && !s.many {
		out[0] = core.Ref{Name: refMain, ID: s.ref}
	}
	return at.RepoInfo, out, ctx.Err()
}

func (s *stage) Commit(ctx context.Context, c core.Commit) core.Proposed {
	if ctx.Err() != nil {
		s.t.Error("a commit that the client's end ended")
	}
	done, again := s.answers[c.RequestID]
	if !again {
		s.commits++
		s.ref = c.Ops[0].(*core.RefTxn).Changes[0].New
		done = core.Proposed{Results: []core.Result{{Ops: []core.OpResult{{Refs: &core.RefsAnswer{Changes: make([]core.RefResult, len(c.Ops[0].(*core.RefTxn).Changes))}}}}}}
		s.answers[c.RequestID] = done
	}
	s.step("commit")
	return done
}

func (s *stage) Ready() error                         { return nil }
func (s *stage) Prepare(context.Context, Place) error { return nil }
func (s *stage) Fetch(context.Context, Fetch, func(io.Writer) error, func(io.Reader) error) error {
	return nil
}

func (s *stage) Begin(context.Context, Place, string, int64, bool) (Push, error) {
	s.step("begin")
	return &stagePush{stage: s}, nil
}

// stagePush is one push.
type stagePush struct {
	*stage
	stays bool
}

func (p *stagePush) Receive(ctx context.Context, body io.Reader) error {
	p.step("receive")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

func (p *stagePush) Lookup(ctx context.Context, _ core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	p.step("connect")
	if ctx.Err() != nil {
		return core.ObjectMissing, core.ObjectID{}, ctx.Err()
	}
	return core.ObjectCommit, core.ObjectID{}, nil
}

func (p *stagePush) Ancestry(_ context.Context, moves []core.Move) ([]core.Ancestry, error) {
	return slices.Repeat([]core.Ancestry{core.FastForward}, len(moves)), nil
}

func (p *stagePush) Keep(context.Context) (core.Pack, core.ShardTime, bool, error) {
	p.step("keep") // what is kept stays kept, even if the client is gone
	return core.Pack{Bytes: 1, IdxBytes: 1}, 1, true, nil
}

func (p *stagePush) Spread(ctx context.Context) error { p.step("spread"); return ctx.Err() }

func (p *stagePush) Publish() error {
	p.step("publish")
	p.published++
	p.stays = true
	return nil
}

func (p *stagePush) Abandon() { p.stays = true }

func (p *stagePush) Close() {
	if !p.stays {
		p.dropped++
	}
}

// push sends the same push, and returns what its client was told.
func (s *stage) push(ctx context.Context, at func(string)) (told string) {
	s.at = at
	edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
	body := append(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status push-options", flushPkt,
		"millrace.request-id=0123456789abcdef0123456789abcdef", flushPkt), "PACK"...)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/git/ns/app.git/git-receive-pack", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	r.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != nil && got != http.ErrAbortHandler { //nolint:errorlint // it is recovered as it is
			panic(got) // not ours
		}
		told = w.Body.String()
	}()
	edge.ServeHTTP(w, r)
	return ""
}

func TestAPushWhoseClientGoesInAnyStepHappensAsAWholeOrNotAtAll(t *testing.T) {
	steps := []string{"admit", "commands", "begin", "receive", "connect", "keep", "spread", "commit", "publish"}
	for i, cut := range steps {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		ctx, gone := context.WithCancel(t.Context())
		defer gone()
		var seen []string
		told := s.push(ctx, func(step string) {
			if seen = append(seen, step); step == cut {
				gone()
			}
		})
		stands := i >= 7 // the entry was proposed
		if moved := !s.ref.IsZero(); moved != stands || s.commits == 1 != stands || s.published == 1 != stands {
			t.Errorf("gone at %s: moved %v, %d commits, %d published, after %v", cut, moved, s.commits, s.published, seen)
		}
		if begun := i >= 2; !stands && s.dropped == 1 != begun {
			t.Errorf("gone at %s: %d packs dropped", cut, s.dropped)
		}
		if told != "" {
			t.Errorf("gone at %s: it is told %q", cut, told)
		}
		if again := s.push(t.Context(), nil); !strings.Contains(again, "ok "+refMain) || s.commits != 1 {
			t.Errorf("gone at %s: the push again gets %q, with %d commits", cut, again, s.commits)
		}
	}
}

func TestAPushOfAsManyRefsAsAllowedIsTakenAndOneMoreIsRefusedByName(t *testing.T) {
	send := func(limits Limits, refs int, caps string) (int, string) {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		s.many = true
		edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1), Limits: limits})
		var body []byte
		for i := range refs {
			body = appendPkt(body, zeros+" "+ones+" refs/heads/"+decimal(int64(i))+caps)
			caps = ""
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/git/ns/app.git/git-receive-pack", bytes.NewReader(append(body, "0000PACK"...)))
		r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const atomic, plain = "\x00report-status atomic", "\x00report-status"
	for _, l := range []struct {
		what   string
		limits Limits
		refs   int
		caps   string
		want   string // in what the client is told; empty: all refs landed
	}{
		{"atomic", Limits{}, 10_000, atomic, ""},
		{"atomic and one", Limits{}, 10_001, atomic, "atomic_push_refs of 10000"},
		{"not atomic", Limits{}, 10_001, plain, ""},
		{"at the limit of all", Limits{PushRefs: 1500}, 1500, plain, ""},
		{"and one", Limits{PushRefs: 1500}, 1501, plain, "push_refs of 1500"},
		{"bytes of commands", Limits{CommandBytes: 4000}, 100, plain, "push_command_bytes of 4000"},
		{"memory of commands", Limits{HeldBytes: 4000}, 100, plain, "git_command_bytes"},
	} {
		status, told := send(l.limits, l.refs, l.caps)
		landed := strings.Count(told, "ok refs/heads/")
		if l.want == "" && (status != http.StatusOK || landed != l.refs) || l.want != "" && (landed > 0 || !strings.Contains(told, l.want)) {
			t.Errorf("%s: %d, %d landed, %q", l.what, status, landed, told[:min(len(told), 200)])
		}
	}
}
