package e2e

import (
	"strings"
	"testing"
)

// A repository has one name, and each address that users write for it leads there.
func TestARepositoryIsReachedByEachAddressThatUsersWrite(t *testing.T) {
	t.Parallel()
	l, _ := startGit(t, holder{tenant: "acme", role: "admin"})
	narrowToken := l.addToken("narrow", "acme", "[ref:read, ref:write]\n    repos: [default/app]")
	l.stop()
	l.start()
	admin := l.git()
	narrow := admin
	narrow.token = narrowToken
	admin.makeRepo("app", nil)
	admin.makeRepo("lib", nil)
	w := newWork(t, "2")
	w.commit("a", "1")
	base := func(h gitHost, repo string) string { return strings.TrimSuffix(h.url(repo), ".git") }
	for i, h := range []gitHost{admin, narrow} {
		for j, end := range []string{"", "/", ".git", ".git/"} {
			branch := "refs/heads/b" + string(rune('0'+4*i+j))
			w.git("push", "-q", base(h, "app")+end, "main:"+branch)
			dir := "clone" + string(rune('0'+4*i+j))
			w.git("clone", "-q", "-b", strings.TrimPrefix(branch, "refs/heads/"), base(h, "app")+end, dir)
			w.in(dir).git("fetch", "-q", "origin")
			w.in(dir).commit("b", branch)
			w.in(dir).git("push", "-q", "origin", "HEAD")
		}
	}
	if refs := w.refsOf(admin.url("app")); len(refs) != 9 { // eight branches, and HEAD
		t.Errorf("%v", refs)
	}
	for _, end := range []string{".git.git", ".git.git/", ".GIT", ".git/info", "%2Egit", "%2egit/"} {
		w.refuses("not found", "ls-remote", base(admin, "app")+end)
	}
	for _, end := range []string{"", "/", ".git", ".git/"} {
		w.refuses("not found", "ls-remote", base(narrow, "lib")+end)
		w.refuses("not found", "push", base(narrow, "lib")+end, "main")
	}
	// The steps of git-lfs before a push: it asks for a token when it gets 401, and takes 404 for "locking is not served".
	for _, repo := range []string{"app", "app.git"} {
		stranger := admin
		stranger.token = ""
		for path, method := range map[string]string{"/info/lfs/locks/verify": "POST", "/info/lfs/objects/batch": "POST", "/info/lfs/locks": "GET"} {
			const kind = "application/vnd.git-lfs+json"
			status, _, headers := stranger.say(method, repo+path, kind, strings.NewReader("{}"))
			if status != 401 || !strings.HasPrefix(headers.Get("WWW-Authenticate"), "Basic ") {
				t.Errorf("%s without a token: %d %v", path, status, headers)
			}
			if status, answer, _ := admin.say(method, repo+path, kind, strings.NewReader("{}")); status != 404 || answer != "LFS is not served\n" {
				t.Errorf("%s: %d %q", path, status, answer)
			}
		}
	}
}
