package githttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// asked is one request, and what its answer's head must be. Source: gitprotocol-http of git, and what its http-backend does.
type asked struct {
	name         string
	method, path string // below the repository
	kind         string // Content-Type of the request
	protocol     string // Git-Protocol
	body         string
	status       int
	want         string // Content-Type of the answer
	begins       string // what the body begins with
	more         [2]string
}

const (
	postFetch, postPush = "application/x-git-upload-pack-request", "application/x-git-receive-pack-request"
	plainText           = "text/plain; charset=utf-8"
)

func answersOfGit() []asked {
	push := string(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status", flushPkt)) + "PACK"
	want := string(pushOf("want "+ones+" no-progress\n", flushPkt, "done\n"))
	ls := string(pushOf("command=ls-refs")) + delimPkt + string(pushOf("peel\n", flushPkt))
	fetch := string(pushOf("command=fetch")) + delimPkt + string(pushOf("want "+ones+"\n", "done\n", flushPkt))
	const (
		fetchRefs, pushRefs = "info/refs?service=git-upload-pack", "info/refs?service=git-receive-pack"
		fetchAd, pushAd     = "application/x-git-upload-pack-advertisement", "application/x-git-receive-pack-advertisement"
		fetched, pushed     = "application/x-git-upload-pack-result", "application/x-git-receive-pack-result"
	)
	return []asked{
		{"refs to fetch", "GET", fetchRefs, "", "", "", 200, fetchAd, "001e# service=git-upload-pack\n0000", [2]string{}},
		{"of version 1", "GET", fetchRefs, "", "version=1", "", 200, fetchAd, "001e# service=git-upload-pack\n0000000eversion 1\n", [2]string{}},
		{"of version 2", "GET", fetchRefs, "", "version=2", "", 200, fetchAd, "001e# service=git-upload-pack\n0000000eversion 2\n", [2]string{}},
		{"their head alone", "HEAD", fetchRefs, "", "", "", 200, fetchAd, "", [2]string{}},
		{"refs to push", "GET", pushRefs, "", "", "", 200, pushAd, "001f# service=git-receive-pack\n0000", [2]string{}},
		{"to push, in version 2, of which there is none", "GET", pushRefs, "", "version=2", "", 200, pushAd, "001f# service=git-receive-pack\n000000", [2]string{}},
		{"a list of refs in version 2", "POST", "git-upload-pack", postFetch, "version=2", ls, 200, fetched, "0000", [2]string{}},
		{"a fetch in version 2", "POST", "git-upload-pack", postFetch, "version=2", fetch, 200, fetched, "", [2]string{}},
		{"no command in version 2", "POST", "git-upload-pack", postFetch, "version=2", flushPkt, 200, fetched, "", [2]string{}},
		{"a fetch", "POST", "git-upload-pack", postFetch, "", want, 200, fetched, "", [2]string{}},
		{"a fetch in version 1", "POST", "git-upload-pack", postFetch, "version=1", want, 200, fetched, "", [2]string{}},
		{"the probe of a fetch", "POST", "git-upload-pack", postFetch, "", flushPkt, 200, fetched, "", [2]string{}},
		{"a media type with a parameter", "POST", "git-upload-pack", postFetch + "; charset=utf-8", "", flushPkt, 200, fetched, "", [2]string{}},
		{"a push", "POST", "git-receive-pack", postPush, "", push, 200, pushed, "000eunpack ok\n", [2]string{}},
		{"the probe of a push", "POST", "git-receive-pack", postPush, "", flushPkt, 200, pushed, "", [2]string{}},
		{"another media type", "POST", "git-receive-pack", postFetch, "", push, 415, plainText, "Content-Type must be " + postPush, [2]string{}},
		{"no media type", "POST", "git-upload-pack", "", "", want, 415, plainText, "Content-Type must be " + postFetch, [2]string{}},
		{"refs that are posted", "POST", pushRefs, postPush, "", push, 405, plainText, "the method", [2]string{"Allow", "GET, HEAD"}},
		{"a push that is not posted", "GET", "git-receive-pack", "", "", "", 405, plainText, "the method", [2]string{"Allow", "POST"}},
		{"dumb HTTP", "GET", "HEAD", "", "", "", 404, plainText, "dumb HTTP is not served: ", [2]string{}},
		{"its packs", "GET", "objects/info/packs", "", "", "", 404, plainText, "dumb HTTP is not served: ", [2]string{}},
		{"an object", "HEAD", "objects/00/11", "", "", "", 404, plainText, "", [2]string{}},
		{"its list of refs", "GET", "info/refs", "", "", "", 403, plainText, "dumb HTTP is not served: ", [2]string{}},
		{"LFS", "POST", "info/lfs/objects/batch", "application/vnd.git-lfs+json", "", "{}", 404, plainText, "LFS is not served", [2]string{}},
		{"locks of LFS", "GET", "info/lfs/locks", "", "", "", 404, plainText, "LFS is not served", [2]string{}},
		{"LFS alone", "GET", "info/lfs", "", "", "", 404, plainText, "LFS is not served", [2]string{}},
		{"the repository itself", "GET", "", "", "", "", 404, plainText, "there is nothing ", [2]string{}},
		{"a path with two slashes", "GET", "/" + fetchRefs, "", "", "", 404, plainText, "there is nothing ", [2]string{}},
		{"a path that goes on", "POST", "git-upload-pack/", postFetch, "", want, 404, plainText, "there is nothing ", [2]string{}},
		{"a service that is not served", "POST", "git-upload-archive", "application/x-git-upload-archive-request", "", "", 404, plainText, "there is nothing ", [2]string{}},
		{"a service in other letters", "GET", "info/refs?service=GIT-UPLOAD-PACK", "", "", "", 403, plainText, "service GIT-UPLOAD-PACK is not served\n", [2]string{}},
		{"another service", "GET", "info/refs?service=git-upload-archive", "", "", "", 403, plainText, "service git-upload-archive is not served\n", [2]string{}},
		{"no push", "POST", "git-receive-pack", postPush, "", "hello", 400, plainText, "", [2]string{}},
	}
}

func TestEveryAnswerHasTheHeadThatGitsProtocolWants(t *testing.T) {
	for _, c := range answersOfGit() {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/git/ns/app.git/"+c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer x")
		for name, value := range map[string]string{"Content-Type": c.kind, "Git-Protocol": c.protocol} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		h := w.Header()
		if kind := h.Values("Content-Type"); w.Code != c.status || len(kind) != 1 || kind[0] != c.want || !strings.HasPrefix(w.Body.String(), c.begins) {
			t.Errorf("%s: %d %q %.100q, not %d %q %q", c.name, w.Code, kind, w.Body, c.status, c.want, c.begins)
		}
		if h.Get("Cache-Control") != "no-cache, max-age=0, must-revalidate" || h.Get("Pragma") != "no-cache" || h.Get("Expires") != "Fri, 01 Jan 1980 00:00:00 GMT" {
			t.Errorf("%s: it may be kept by a cache: %v", c.name, h)
		}
		if c.more[0] != "" && h.Get(c.more[0]) != c.more[1] {
			t.Errorf("%s: %s is %q, not %q", c.name, c.more[0], h.Get(c.more[0]), c.more[1])
		}
	}
}

func TestARefusalForNowOrForWantOfATokenHasTheHeaderThatSaysWhatToDo(t *testing.T) {
	for status, header := range map[int][2]string{
		http.StatusUnauthorized:       {"WWW-Authenticate", `Basic realm="millrace"`},
		http.StatusServiceUnavailable: {"Retry-After", retryAfter},
		http.StatusTooManyRequests:    {"Retry-After", retryAfter},
	} {
		w := httptest.NewRecorder()
		q := &request{s: New(Options{}), w: w, r: httptest.NewRequestWithContext(t.Context(), "GET", "/git/ns/app.git/info/refs", http.NoBody)}
		q.fail(&refusal{status: status, text: "no"})
		if w.Code != status || w.Header().Get(header[0]) != header[1] || w.Header().Get("Content-Type") != plainText {
			t.Errorf("%d: %d %v", status, w.Code, w.Header())
		}
	}
}

func TestARepositoryIsFoundWithAndWithoutTheSuffix(t *testing.T) {
	for path, want := range map[string]string{
		"app.git/info/refs":     "app",
		"app/info/refs":         "app",
		"app.git.git/info/refs": "app.git",
		"a.b/info/refs":         "a.b",
		".git/info/refs":        "",
		"app":                   "",
		"app.git":               "",
		"app.git/":              "",
		"a/b.git/info/refs":     "",
		"app.GIT/info/refs":     "app.GIT", // a name of its own
		"app.GIT.git/info/refs": "app.GIT",
		"app/":                  "",
		"app.git//info/refs":    "",
		"app//info/refs":        "",
		"app.git/info/refs/":    "",
		"app%2Egit/info/refs":   "",
		"%61pp/info/refs":       "",
		"app.git%2Finfo/refs":   "",
		"app/info%2frefs":       "",
		"app.git%00/info/refs":  "",
		"/info/refs":            "",
	} {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/git/ns/"+path+"?service=git-upload-pack", http.NoBody)
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		if s.asked != want || w.Code == 200 != (want != "") || strings.Contains(path, "a/b") && w.Code != 404 {
			t.Errorf("%s: %d, of %q, not %q", path, w.Code, s.asked, want)
		}
	}
}

// guarded is a stage whose token reaches one repository.
type guarded struct{ *stage }

func (g guarded) Lookup(token string, now time.Time) (auth.Principal, bool) {
	who, ok := g.stage.Lookup(token, now)
	who.Repos = []string{"ns/app"}
	return who, ok && token == "x"
}

func TestATokensRepositoriesAreTheSameUnderEachAddress(t *testing.T) {
	for path, status := range map[string]int{
		"ns/app.git/info/refs": 200, "ns/app/info/refs": 200, "ns/app.git.git/info/refs": 404, "ns/lib.git/info/refs": 404, "ns/lib/info/refs": 404,
		"ns/app.GIT/info/refs": 404, "other/app/info/refs": 404, "other/app.git/info/refs": 404, "ns/lib/info/lfs/locks": 404, "ns/lib.git/HEAD": 404,
	} {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
		edge := New(Options{Backend: s, Objects: s, Auth: guarded{s}, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/git/"+path+"?service=git-upload-pack", http.NoBody)
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		if w.Code != status || status == 404 && s.asked != "" {
			t.Errorf("%s: %d, not %d; asked for %q", path, w.Code, status, s.asked)
		}
	}
}

// Clients of git and of LFS send no token until they are asked for one, and take a 404 before for the last word.
func TestWithoutATokenEveryPathAsksForOne(t *testing.T) {
	for _, c := range [][2]string{
		{"GET", "ns/app.git/info/refs?service=git-upload-pack"},
		{"GET", "ns/app/info/refs?service=git-receive-pack"},
		{"POST", "ns/app/git-receive-pack"},
		{"POST", "ns/app.git/info/lfs/objects/batch"},
		{"POST", "ns/app/info/lfs/locks/verify"},
		{"GET", "ns/app.git/HEAD"},
		{"GET", "ns/app.git/info/refs"},
		{"GET", "ns/app.git/objects/info/packs"},
		{"GET", "ns/app.git/info/refs?service=x"},
		{"GET", "ns/app.git/"},
		{"GET", "ns/app"},
		{"GET", ""},
		{"GET", "ns/app.git.git/info/refs?service=git-upload-pack"},
		{"GET", "ns/%61pp.git/info/refs"},
		{"PUT", "ns/a/b/c"},
		{"DELETE", "ns/app.git/git-upload-pack"},
	} {
		for _, authorization := range []string{"", "Bearer wrong", "Basic !", "Digest x"} {
			s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}}
			edge := New(Options{Backend: s, Objects: s, Auth: guarded{s}, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
			r := httptest.NewRequestWithContext(t.Context(), c[0], "/git/"+c[1], http.NoBody)
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			w := httptest.NewRecorder()
			edge.ServeHTTP(w, r)
			if w.Code != 401 || w.Header().Get("WWW-Authenticate") != `Basic realm="millrace"` || s.asked != "" {
				t.Errorf("%s %s with %q: %d %v", c[0], c[1], authorization, w.Code, w.Header())
			}
		}
	}
}

func TestAnArchivedRepositorySaysThatItIs(t *testing.T) {
	const says = "repository is archived: it is read-only"
	push := string(pushOf(zeros+" "+ones+" "+refMain+"\x00report-status", flushPkt)) + "PACK"
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		{"GET", "info/refs?service=git-receive-pack", "", "", 403, says + "\n"},
		{"POST", "git-receive-pack", postPush, push, 200, "ng " + refMain + " " + says + "\n"},
		{"GET", "info/refs?service=git-upload-pack", "", "", 200, "# service=git-upload-pack"},
	} {
		s := &stage{t: t, answers: map[core.RequestID]core.Proposed{}, state: core.RepoArchived}
		edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/git/ns/app.git/"+c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer x")
		if c.kind != "" {
			r.Header.Set("Content-Type", c.kind)
		}
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %q", c.method, c.path, w.Code, w.Body)
		}
	}
}

// A client whose connection was closed while it made a pack must not send the push on it.
func TestOnlyClientsThatOpenAnotherConnectionKeepTheirsForAPush(t *testing.T) {
	s := &stage{t: t}
	edge := New(Options{Backend: s, Objects: s, Auth: s, Clock: env.SystemClock{}, Rand: env.NewSeededRand(1)})
	for agent, keeps := range map[string]bool{
		"git/2.39.5": true, "git/2.51.0.windows.1": true, "git/2.50.1 (Apple Git-155)": true, "git/2.0 (libgit2 1.9.1)": false, "git/2.0 (cargo 1.90)": false,
		"git/dulwich/0.24.1": false, "JGit/7.3.0": false, "go-git/5.16.2": false, "": false,
	} {
		for service, keeps := range map[string]bool{"git-receive-pack": keeps, "git-upload-pack": true} {
			r := httptest.NewRequest(http.MethodGet, "/git/default/app.git/info/refs?service="+service, http.NoBody)
			r.Header.Set("Authorization", "Bearer x")
			r.Header.Set("User-Agent", agent)
			w := httptest.NewRecorder()
			edge.ServeHTTP(w, r)
			if w.Code != http.StatusOK || (w.Header().Get("Connection") == "") != keeps {
				t.Errorf("%s of %q: %d, Connection: %q", service, agent, w.Code, w.Header().Get("Connection"))
			}
		}
	}
}
