package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// heldCall begins a call that does not end by itself. What is told of its end is the code.
func heldCall(t *testing.T, ctx context.Context, r *raw, method string, messages ...proto.Message) <-chan string {
	t.Helper()
	var sent bytes.Buffer
	for _, m := range messages {
		b, err := proto.Marshal(m)
		noErr(t, err)
		sent.Write(frame(b))
	}
	var body io.ReadCloser = io.NopCloser(&sent)
	if strings.HasSuffix(method, "/Open") || strings.HasSuffix(method, "/Session") || strings.HasSuffix(method, "/LoadRefs") { // the client may say more
		body = &unfinishedBody{io.MultiReader(&sent, newUnfinished(0)), io.NopCloser(nil)}
	}
	end := make(chan string, 1)
	go func() {
		resp, err := r.open(ctx, method, body)
		if err != nil {
			end <- err.Error()
			return
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			end <- err.Error()
			return
		}
		end <- answerOf(t, resp, nil).code()
	}()
	return end
}

// tokens is a tokens file: its rows in order.
type tokens struct {
	t    *testing.T
	file string
	rows []string
}

// add adds an admin's token and returns it.
func (f *tokens) add(name string) string {
	token := server.NewToken()
	f.rows = append(f.rows, fmt.Sprintf("  - {name: %s, tenant: default, hash: %q, roles: [admin, operator]}\n", name, server.HashToken(token)))
	return token
}

// write puts the file in place.
func (f *tokens) write() {
	f.t.Helper()
	noErr(f.t, os.WriteFile(f.file+".next", []byte("tokens:\n"+strings.Join(f.rows, "")), 0o600))
	noErr(f.t, os.Rename(f.file+".next", f.file))
}

// remove takes a row out.
func (f *tokens) remove(name string) {
	f.t.Helper()
	left := f.rows[:0]
	for _, row := range f.rows {
		if !strings.Contains(row, "name: "+name+",") {
			left = append(left, row)
		}
	}
	f.rows = left
	f.write()
}

// expire gives a row an end.
func (f *tokens) expire(name string, at time.Time) {
	f.t.Helper()
	for i, row := range f.rows {
		if strings.Contains(row, "name: "+name+",") {
			f.rows[i] = strings.TrimSuffix(row, "}\n") + fmt.Sprintf(", expires: %q}\n", at.UTC().Format(time.RFC3339))
		}
	}
	f.write()
}

// TestWhatATokenBeganEndsWithIt has calls of all doors under way when their token is removed, or expires.
func TestWhatATokenBeganEndsWithIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	needGit(t)
	dir := t.TempDir()
	f := &tokens{t: t, file: filepath.Join(dir, "tokens.yaml")}
	kept := f.add("kept")
	ways := []struct {
		name   string
		ends   func(s *proc.Server, name string)
		secret string
	}{
		{name: "removed", ends: func(_ *proc.Server, name string) { f.remove(name) }},
		{name: "expired", ends: func(_ *proc.Server, name string) { f.expire(name, time.Now().Add(2*time.Second)) }},
		{name: "told", ends: func(s *proc.Server, name string) {
			f.remove(name)
			noErr(t, syscall.Kill(s.PID(), syscall.SIGHUP))
		}},
	}
	for i, w := range ways {
		ways[i].secret = f.add(w.name)
	}
	f.write()
	ready := filepath.Join(dir, "ready")
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: dir, Tokens: f.file, Flags: []string{
		"--admin", "127.0.0.1:0", "--ready-file", ready,
	}})
	noErr(t, err)
	begin(t, s)
	u := newUnderWay(t, s, kept)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { u.endsWith(t, w.secret, func() { w.ends(s, w.name) }) })
	}
	if s.Ended() {
		t.Errorf("the server ended\n%s", logOf(s))
	}
	select {
	case code := <-u.keptCall:
		t.Errorf("the stream of the token that is left ended with %s", code)
	default:
	}
	noErr(t, s.Stop())
}

// underWay is a server with what calls need that go on for long.
type underWay struct {
	s        *proc.Server
	kept     string
	task     string // that waits
	work     work   // of git, with a large history
	keptCall <-chan string
	sessions byte // of streams, begun
}

func newUnderWay(t *testing.T, s *proc.Server, kept string) *underWay {
	t.Helper()
	u := &underWay{s: s, kept: kept, work: newWork(t, "2")}
	host := gitHost{t, s.HTTP(), s.Address(), kept}
	host.makeRepo("app", nil)
	host.makeRepo("to", nil)
	noErr(t, os.WriteFile(filepath.Join(u.work.dir, "noise"), noise(12<<20), 0o600))
	u.work.git("add", "noise")
	u.work.commit("a", "1")
	u.work.git("push", "-q", host.url("app"), "main")
	created := must(t, newRaw(t, s.Address(), kept), "TaskService/Create", task(func(*pb.TaskSpec) {}), &pb.CreateResponse{})
	u.task = created.GetId()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	u.keptCall = heldCall(t, ctx, newRaw(t, s.Address(), kept), "QueueStream/Open", helloOf(200))
	return u
}

func helloOf(session byte) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: &pb.Hello{Version: 1, Session: bytes.Repeat([]byte{session}, 16)}}}
}

// gitRun is a git under way, through a proxy that lets only a little through.
type gitRun struct {
	what  string
	proxy *proc.Proxy
	out   bytes.Buffer
	end   chan error
}

// runGit starts git.
func (u *underWay) runGit(t *testing.T, what, token string, args func(url string) []string) *gitRun {
	t.Helper()
	proxy, err := proc.NewProxy(u.s.HTTP())
	noErr(t, err)
	t.Cleanup(func() { noErr(t, proxy.Close()) })
	slow := proc.Way{Rate: 50 << 10} // the pack takes minutes, also on a machine on which all else is slow
	proxy.Set(proc.Rule{Forward: slow, Back: slow})
	g := &gitRun{what: what, proxy: proxy, end: make(chan error, 1)}
	host := gitHost{t, proxy.Address(), "", token}
	cmd := u.work.command(t.Context(), args(host.url("app"))...)
	cmd.Stdout, cmd.Stderr = &g.out, &g.out
	noErr(t, cmd.Start())
	go func() { g.end <- cmd.Wait() }()
	return g
}

// hold begins a call of each kind that goes on for long.
func (u *underWay) hold(t *testing.T, ctx context.Context, token string) map[string]<-chan string {
	t.Helper()
	r := newRaw(t, u.s.Address(), token)
	u.sessions += 3
	held := map[string]<-chan string{}
	for method, m := range map[string]proto.Message{
		"QueueStream/Open":   helloOf(u.sessions),
		"KVStream/Open":      helloOf(u.sessions + 1),
		"RefService/Session": &pb.RefSessionRequest{Frame: &pb.RefSessionRequest_Open{Open: &pb.RefSessionOpen{Repo: "app", Session: bytes.Repeat([]byte{u.sessions + 2}, 16)}}},
		"BackupService/Take": &pb.TakeBackupRequest{Rate: 64 << 10, Objects: true},
		"TaskService/Wait":   &pb.WaitRequest{Id: u.task},
		"TaskService/Watch":  &pb.WatchRequest{Id: u.task},
	} {
		held[method] = heldCall(t, ctx, r, method, m)
	}
	held["GET /v1/events"] = heldEvents(t, ctx, u.s.HTTP(), token)
	return held
}

// allEnd awaits the ends of calls and of gits whose token has ended.
func (u *underWay) allEnd(t *testing.T, held map[string]<-chan string, gits ...*gitRun) {
	t.Helper()
	late := time.After(time.Minute)
	for method, c := range held {
		select {
		case code := <-c:
			if code != "UNAUTHENTICATED" {
				t.Errorf("%s ended with %s", method, code)
			}
		case <-late:
			t.Fatalf("%s goes on", method)
		}
	}
	until(t, "the programs of git end", func() bool {
		m, err := u.s.Metrics(t.Context())
		return err == nil && m["millrace_gitobj_running_calls"] == 0
	})
	for _, g := range gits {
		g.proxy.Set(proc.Rule{}) // what was sent by then may come
		select {
		case err := <-g.end:
			if _, failed := errors.AsType[*exec.ExitError](err); !failed {
				t.Errorf("git %s ended with %v\n%s", g.what, err, g.out.String())
			}
		case <-late:
			t.Fatalf("git %s goes on", g.what)
		}
	}
}

// endsWith begins calls, ends their token, and awaits their ends.
func (u *underWay) endsWith(t *testing.T, token string, end func()) {
	ctx := bounded(t, 2*time.Minute)
	metricsOf := func(name string) float64 {
		m, err := u.s.Metrics(ctx)
		noErr(t, err)
		return m[name]
	}
	streams, calls := metricsOf("millrace_api_open_streams"), metricsOf("millrace_api_open_calls")
	clone := filepath.Join(t.TempDir(), "clone")
	fetch := u.runGit(t, "clone", token, func(url string) []string { return []string{"clone", "-q", url, clone} })
	push := u.runGit(t, "push", token, func(url string) []string {
		return []string{"push", "-q", strings.Replace(url, "/app.git", "/to.git", 1), "main:refs/heads/" + filepath.Base(t.Name())}
	})
	held := u.hold(t, ctx, token)
	page := &pb.ListRefsRequest{Repo: "app", Limit: 1}
	if code := newRaw(t, u.s.Address(), token).call(t, "RefService/ListRefs", page).code(); code != "0" {
		t.Errorf("the first page of refs: %s", code)
	}
	until(t, "all calls are under way", func() bool {
		return metricsOf("millrace_api_open_streams") >= streams+4 && metricsOf("millrace_api_open_calls") >= calls+1
	})
	until(t, "a clone and a push are under way", func() bool { // one program each
		return metricsOf("millrace_gitobj_running_calls") >= 2
	})
	for method, c := range held {
		select {
		case code := <-c:
			t.Fatalf("%s ended with %s while its token was good", method, code)
		default:
		}
	}

	end()
	w := web{t: t, address: u.s.HTTP(), token: token}
	until(t, "requests are refused", func() bool {
		code, _ := w.call(http.MethodGet, "/v1/queues", "")
		return code == http.StatusUnauthorized
	})
	page.After = "HEAD"
	for method, m := range map[string]proto.Message{"RefService/ListRefs": page, "QueueService/List": &pb.ListQueuesRequest{}, "BackupService/Take": &pb.TakeBackupRequest{}} {
		if code := newRaw(t, u.s.Address(), token).call(t, method, m).code(); code != "UNAUTHENTICATED" {
			t.Errorf("%s with a token that is gone: %s", method, code)
		}
	}
	u.allEnd(t, held, fetch, push)
	keptHost := gitHost{t, u.s.HTTP(), u.s.Address(), u.kept}
	if refs := u.work.refsOf(keptHost.url("to")); refs["refs/heads/"+filepath.Base(t.Name())] != "" {
		t.Errorf("the push landed: %v", refs)
	}
	c, err := millrace.Dial(ctx, millrace.Address(u.s.Address()), millrace.Insecure(), millrace.Token(u.kept))
	noErr(t, err)
	defer c.Close()
	_, err = c.KV("k").Put(ctx, "a", "1")
	noErr(t, err)
}
