package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/test/chaos/proc"
)

// serveGit starts the real binary for git clients.
func serveGit(t *testing.T, env []string, flags ...string) (s *proc.Server, host func() gitHost) {
	t.Helper()
	needGit(t)
	if testing.Short() {
		t.Skip("real processes")
	}
	ready := filepath.Join(t.TempDir(), "ready")
	flags = append([]string{"--ready-file", ready, "--admin", "off"}, flags...)
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Flags: flags, Env: env}, "default")
	noErr(t, err)
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	t.Cleanup(func() { s.Kill() })
	return s, func() gitHost {
		t.Helper()
		b, err := os.ReadFile(ready)
		noErr(t, err)
		var l listeners
		noErr(t, json.Unmarshal(b, &l))
		return gitHost{t, l.HTTP, l.GRPC, s.Tokens[0].Secret}
	}
}

func TestWithoutGitItsClientsAreRefusedAndAllElseWorks(t *testing.T) {
	t.Parallel()
	s, host := serveGit(t, nil)
	host().makeRepo("app", nil)
	w := newWork(t, "2")
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	w.git("push", "-q", host().url("app"), "main", "main~1:refs/heads/old")
	s.Kill()
	s.Plan(proc.Plan{Binary: program, Env: []string{"PATH="}})
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	h := host()
	for _, service := range []string{"upload", "receive"} {
		status, answer, headers := h.say("GET", "app.git/info/refs?service=git-"+service+"-pack", "", nil)
		if status != 503 || !strings.Contains(answer, "git_unavailable") || headers.Get("Retry-After") == "" {
			t.Errorf("%s: %d %q", service, status, answer)
		}
	}
	h.call("RefService/UpdateRefs", &pb.UpdateRefsRequest{Repo: "app", Changes: []*pb.RefChange{
		{Kind: pb.RefChange_UPDATE, Name: "refs/heads/old", Old: &first, New: second},
	}}, new(pb.UpdateRefsResponse))
	if !strings.Contains(logOf(s), "git clients are refused") {
		t.Error("the log does not say so")
	}
}

func TestADamagedPackEndsFetchesWithAnError(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	host.makeRepo("other", nil)
	w := newWork(t, "2")
	w.history(30)
	w.git("push", "-q", "--mirror", host.url("app"))
	w.git("push", "-q", host.url("other"), "main")
	l.stop()
	id := ""
	for _, f := range l.packFiles() {
		if content, err := os.ReadFile(f); err == nil && strings.HasSuffix(f, ".pack") && len(content) > 4000 {
			content[len(content)/2] ^= 4
			noErr(t, os.Chmod(f, 0o600))
			noErr(t, os.WriteFile(f, content, 0o600))
			id = f
			break
		}
	}
	l.start()
	h := l.git()
	broken := 0
	for _, repo := range []string{"app", "other"} {
		out, err := w.try("clone", "-q", h.url(repo), "clone-"+repo)
		if err != nil && strings.Contains(out, "stored data is damaged") {
			broken++
		} else if err != nil {
			t.Errorf("%s: %s", repo, out)
		}
	}
	if broken != 1 || id == "" {
		t.Errorf("%d clones were refused", broken)
	}
}

// TestPushersDoNotLoseEachOthersCommits has pushers push at once, as many as MILLRACE_PUSHERS says: each to a branch of its
// own, and all to one.
func TestPushersDoNotLoseEachOthersCommits(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	base := newWork(t, "2")
	base.commit("base", "0")
	base.git("push", "-q", url, "main")
	const rounds = 1
	pushers := howMany(t, "MILLRACE_PUSHERS", 7)
	works := make([]work, pushers)
	for i := range works {
		works[i] = newWork(t, gitVersions[i%3])
		works[i].git("pull", "-q", url, "main")
		works[i].commit(fmt.Sprintf("own%d", i), "x")
	}
	var all sync.WaitGroup
	failed := make(chan string, pushers)
	for i, w := range works {
		all.Go(func() {
			if out, err := w.try("push", "-q", url, fmt.Sprintf("HEAD:refs/heads/own/%d", i)); err != nil {
				failed <- out
				return
			}
			for range rounds { // all onto one branch
				for try := 0; ; try++ {
					if out, err := w.try("fetch", "-q", url, "main"); err != nil {
						failed <- out
						return
					}
					if out, err := w.try("rebase", "-q", "FETCH_HEAD"); err != nil {
						failed <- out
						return
					}
					out, err := w.try("push", "-q", url, "HEAD:main")
					if err == nil {
						break
					}
					if try == 60+10*pushers || !strings.Contains(out, "stale info") && !strings.Contains(out, "fetch first") {
						failed <- out
						return
					}
				}
				if out, err := w.try("commit", "-q", "--allow-empty", "-m", fmt.Sprintf("again %d", i)); err != nil {
					failed <- out
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	for out := range failed {
		t.Errorf("a pusher: %s", out)
	}
	base.git("clone", "-q", "--mirror", url, "final")
	f := base.in("final")
	f.whole()
	if n := f.git("rev-list", "--count", "main"); n != fmt.Sprint(1+pushers*rounds) {
		t.Errorf("main has %s commits", n)
	}
	if n := len(strings.Fields(f.git("for-each-ref", "--format=%(refname)", "refs/heads/own/"))); n != pushers {
		t.Errorf("%d own branches", n)
	}
}

func TestAClientThatGoesAwayLeavesNothingOrAllOfItsPush(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	first := w.commit("a", "1")
	w.git("push", "-q", url, "main")
	w.history(80)
	tip := w.git("rev-parse", "main")
	body := append(pkt(first+" "+tip+" refs/heads/main\x00report-status", ""), w.packOf("main", "^"+first)...)
	request := fmt.Appendf(nil, "POST /git/default/app.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/x-git-receive-pack-request\r\nContent-Length: %d\r\n\r\n", host.token, len(body))
	head := len(request)
	request = append(request, body...)
	for _, cut := range []int{head, head + 50, head + 150, head + 200, head + 1000, len(request) / 2, len(request) - 21, len(request) - 1} {
		c, err := net.Dial("tcp", host.http)
		noErr(t, err)
		_, err = c.Write(request[:cut])
		noErr(t, err)
		noErr(t, c.Close())
	}
	if refs := w.refsOf(url); refs["refs/heads/main"] != first {
		t.Errorf("a push that was cut moved main to %s", refs["refs/heads/main"])
	}
	// All of it sent, and gone before the answer: the entry decides, and the same push again succeeds.
	c, err := net.Dial("tcp", host.http)
	noErr(t, err)
	_, err = c.Write(request)
	noErr(t, err)
	noErr(t, c.Close())
	refs := w.refsOf(url)
	if at := refs["refs/heads/main"]; at != first && at != tip {
		t.Errorf("main is at %s", at)
	}
	w.git("push", "-q", "--force", url, "main")
	if refs := w.refsOf(url); refs["refs/heads/main"] != tip {
		t.Errorf("after the push again main is at %s", refs["refs/heads/main"])
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := slices.DeleteFunc(l.packFiles(), func(f string) bool { return strings.Contains(f, "/objects/pack/") })
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left are %q", left)
		}
	}
}

func TestNoCredentialIsInLogsOrInWhatGitIsGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spy := filepath.Join(dir, "git")
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\n{ echo \"$@\"; cat /proc/$$/environ; echo; } >>" + seen + "\nexec /usr/bin/env -i $(/usr/bin/env) git \"$@\"\n"
	real := ""
	for _, p := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(p, "git")); err == nil {
			real = filepath.Join(p, "git")
			break
		}
	}
	script = strings.ReplaceAll(script, "exec /usr/bin/env -i $(/usr/bin/env) git", "exec "+real)
	noErr(t, os.WriteFile(spy, []byte(script), 0o700))
	s, host := serveGit(t, []string{"MILLRACE_TEST_SECRET=hidden"}, "--git", spy)
	h := host()
	h.makeRepo("app", nil)
	w := newWork(t, "2")
	w.commit("a", "1")
	w.git("push", "-q", h.url("app"), "main")
	w.git("clone", "-q", h.url("app"), "clone")
	w.git("clone", "-q", "--depth=1", h.url("app"), "shallow")
	_, _ = h.pushRaw("app", []byte("nonsense"))
	_, _ = w.try("push", h.url("app"), "main:refs/heads/a..b")
	noErr(t, s.Stop())
	b, err := os.ReadFile(seen)
	noErr(t, err)
	for what, text := range map[string]string{"log": logOf(s), "children": string(b)} {
		for _, secret := range []string{h.token, "hidden", "Basic", "Bearer"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q is in it", what, secret)
			}
		}
	}
	if !bytes.Contains(b, []byte("index-pack")) || !bytes.Contains(b, []byte("upload-pack")) {
		t.Errorf("git was given %q", b)
	}
}

func TestWithoutRoomPushesThatBringObjectsAreRefusedByName(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	w.commit("a", "1")
	w.git("push", "-q", url, "main", "main:refs/heads/b")
	l.stop()
	l.reserve = 1 << 60
	l.start()
	h := l.git()
	w.commit("a", "2")
	w.refuses("! [remote rejected] main -> main (limit disk of ", "push", h.url("app"), "main")
	w.git("clone", "-q", h.url("app"), "clone")
	if status, answer := h.pushRaw("app", pkt(w.git("rev-parse", "main~1")+" "+noID+" refs/heads/b\x00report-status delete-refs", "")); status != 200 || !strings.Contains(answer, "ok refs/heads/b") {
		t.Errorf("a deletion: %d %q", status, answer)
	}
}
