package githttp

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Every call of a stage below the edge is a step, with these too.
type panicStage struct{ *stage }

func (s panicStage) Lookup(token string, now time.Time) (auth.Principal, bool) {
	s.step("lookup")
	return s.stage.Lookup(token, now)
}

func (s panicStage) Refs(ctx context.Context, at Repo, q RefQuery, begin func(core.RepoInfo) error, fn func(core.Ref) error) error {
	s.step("refs")
	if err := begin(at.RepoInfo); err != nil {
		return err
	}
	return fn(core.Ref{Name: refMain, ID: core.ObjectID{1}})
}

func (s panicStage) Ready() error { s.step("ready"); return nil }

func (s panicStage) Prepare(context.Context, Place) error { s.step("prepare"); return nil }

func (s panicStage) Fetch(_ context.Context, _ Fetch, in func(io.Writer) error, out func(io.Reader) error) error {
	s.step("fetch")
	if err := in(io.Discard); err != nil {
		return err
	}
	return out(bytes.NewReader([]byte(flushPkt)))
}

// panicRow is a request whose every step panics once.
type panicRow struct {
	method, path, service, protocol string
	body                            []byte
}

// panicRows has each route of this edge, and each command of protocol 2.
func panicRows() []panicRow {
	push := append(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status", flushPkt), "PACK"...)
	want := append(pushOf("want "+ones+" ofs-delta\n", flushPkt, "done\n"), flushPkt...)
	return []panicRow{
		{http.MethodGet, "info/refs?service=git-upload-pack", "", "", nil},
		{http.MethodGet, "info/refs?service=git-upload-pack", "", "version=2", nil},
		{http.MethodGet, "info/refs?service=git-receive-pack", "", "", nil},
		{http.MethodPost, uploadPack, uploadPack, "", want},
		{http.MethodPost, uploadPack, uploadPack, "version=2", pushOf("command=ls-refs\n", "0001", "peel\n", flushPkt)},
		{http.MethodPost, uploadPack, uploadPack, "version=2", pushOf("command=fetch\n", "0001", "want "+ones+"\n", "done\n", flushPkt)},
		{http.MethodPost, receivePack, receivePack, "", push},
	}
}

// A panic below any route of this edge, at any step, leaves the next request working: no bytes of commands are held, and what
// a push began is closed.
func TestAPanicBelowAnyGitRouteLeavesTheNextRequestWorking(t *testing.T) {
	for _, c := range panicRows() {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		below := panicStage{s}
		edge := New(Options{Backend: below, Objects: below, Auth: below, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		begun := 0
		send := func(panicAt int) (steps []string, status int, panicked bool) {
			s.ref, s.answers = core.ObjectID{}, map[core.RequestID]core.Proposed{} // nothing was pushed
			s.at = func(step string) {
				if steps = append(steps, step); step == "begin" && len(steps) != panicAt {
					begun++
				}
				if len(steps) == panicAt {
					panic("planted")
				}
			}
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/git/ns/app.git/"+c.path, bytes.NewReader(c.body))
			if c.service != "" {
				r.Header.Set("Content-Type", "application/x-"+c.service+"-request")
			}
			r.Header.Set("Git-Protocol", c.protocol)
			r.Header.Set("Authorization", "Bearer x")
			w := httptest.NewRecorder()
			defer func() {
				p := recover() // as package http does
				if panicked = p != nil; panicked && p != "planted" {
					panic(p)
				}
				status = w.Code
			}()
			edge.ServeHTTP(w, r)
			return steps, w.Code, false
		}
		whole, status, _ := send(0)
		if status != http.StatusOK || len(whole) == 0 {
			t.Fatalf("%s %s: status %d after %v", c.method, c.path, status, whole)
		}
		for at := 1; at <= len(whole); at++ {
			if _, _, panicked := send(at); !panicked {
				t.Errorf("%s %s: no panic at step %d", c.method, c.path, at)
			}
			if held := edge.held.Held.Load(); held != 0 {
				t.Errorf("%s %s: %d bytes are held after a panic at %s", c.method, c.path, held, whole[at-1])
			}
			if ended := s.dropped + s.published; ended != begun {
				t.Errorf("%s %s: %d pushes began and %d ended, after a panic at %s", c.method, c.path, begun, ended, whole[at-1])
			}
			if steps, status, _ := send(0); status != http.StatusOK || !slices.Equal(steps, whole) {
				t.Errorf("%s %s: after a panic at %s: status %d, steps %v", c.method, c.path, whole[at-1], status, steps)
			}
		}
	}
}

// TestEveryGitRouteHasARowWithPanics compares what route may return with what the rows reach.
func TestEveryGitRouteHasARowWithPanics(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "server.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Name.Name != "route" {
			return true
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok {
				switch handle := r.Results[0].(type) {
				case *ast.SelectorExpr:
					want[handle.Sel.Name] = true
				case *ast.Ident:
					if handle.Name != "nil" {
						t.Errorf("route returns %s: return a method of request, so that this test knows it", handle.Name)
					}
				default:
					t.Errorf("route returns a %T: return a method of request, so that this test knows it", handle)
				}
			}
			return true
		})
		return false
	})
	got := map[string]bool{}
	for _, c := range panicRows() {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/git/ns/app.git/"+c.path, nil)
		if c.service != "" {
			r.Header.Set("Content-Type", "application/x-"+c.service+"-request")
		}
		action, _, _ := strings.Cut(c.path, "?")
		handle, _, _, err := (&request{r: r, w: httptest.NewRecorder()}).route(action)
		if err != nil {
			t.Fatalf("%s: %v", c.path, err)
		}
		name := runtime.FuncForPC(reflect.ValueOf(handle).Pointer()).Name()
		got[strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")] = true
	}
	if len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("the rows reach %v, the routes are %v: add a row to panicRows", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
