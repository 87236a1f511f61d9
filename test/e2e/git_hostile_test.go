package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/server"
)

const noID = "0000000000000000000000000000000000000000"

// pkt makes packet lines; an empty one is the flush.
func pkt(lines ...string) []byte {
	var b []byte
	for _, l := range lines {
		if l == "" {
			b = append(b, "0000"...)
		} else {
			b = fmt.Appendf(b, "%04x%s", len(l)+4, l)
		}
	}
	return b
}

// say makes one request below a repository, with the token as a user's password.
func (h gitHost) say(method, path, contentType string, body io.Reader, header ...string) (status int, answer string, headers http.Header) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(bounded(h.t, time.Minute), method, "http://"+h.http+"/git/default/"+path, body)
	noErr(h.t, err)
	if h.token != "" {
		req.SetBasicAuth("me", h.token)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	noErr(h.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	noErr(h.t, err)
	return resp.StatusCode, string(b), resp.Header
}

// pushRaw sends the bytes of a push.
func (h gitHost) pushRaw(repo string, body []byte, header ...string) (int, string) {
	h.t.Helper()
	status, answer, _ := h.say("POST", repo+".git/git-receive-pack", "application/x-git-receive-pack-request", bytes.NewReader(body), header...)
	return status, answer
}

// packOf makes a pack of what revs name and its ^not have.
func (w work) packOf(revs ...string) []byte {
	w.t.Helper()
	cmd := w.command(w.t.Context(), "pack-objects", "--revs", "--stdout", "--thin", "-q")
	cmd.Stdin = strings.NewReader(strings.Join(revs, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("pack-objects: %v", err)
	}
	return out
}

// emptyPack has no objects.
func emptyPack() []byte {
	b := append([]byte("PACK"), 0, 0, 0, 2, 0, 0, 0, 0)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// packFiles lists files of packs, staged ones and those half received, but not their second names for runs of git.
func (l *local) packFiles() []string {
	l.t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(l.dir, "data", "git"), func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // the server has removed it meanwhile
			return nil
		}
		if err == nil && e.IsDir() && e.Name() == "views" {
			return filepath.SkipDir
		}
		if err == nil && !e.IsDir() && (strings.Contains(path, "/incoming/") || strings.Contains(path, "/staged/") || strings.Contains(path, "/pack/")) {
			out = append(out, path)
		}
		return err
	})
	noErr(l.t, err)
	return out
}

// hostile is a push that no client would send, and what it is told.
type hostile struct {
	name   string
	body   []byte
	status int
	says   string
}

const pushCaps = "\x00report-status delete-refs atomic"

// updateOf is the command of a push.
func updateOf(older, newer, name string) []byte { return pkt(older+" "+newer+" "+name+pushCaps, "") }

// hostilePushes are of a repository whose main is at first; w has two commits more.
func hostilePushes(w work, first, second, third string) []hostile {
	pack := w.packOf("main", "^main~2")
	long := make([]string, 0, 10_003)
	for i := range 10_001 {
		c := ""
		if i == 0 {
			c = pushCaps
		}
		long = append(long, fmt.Sprintf("%s %s refs/heads/l%d%s", noID, third, i, c))
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	flip := func(b []byte, at int) []byte { c := bytes.Clone(b); c[at] ^= 1; return c }
	return []hostile{
		{"wrong old value", join(updateOf(second, third, "refs/heads/main"), pack), 200, "ng refs/heads/main stale info"},
		{"created, but there", join(updateOf(noID, third, "refs/heads/main"), pack), 200, "ng refs/heads/main reference already exists"},
		{"deleted, at a wrong value", updateOf(second, noID, "refs/heads/main"), 200, "ng refs/heads/main stale info"},
		{"missing object", join(updateOf(noID, strings.Repeat("ab", 20), "refs/heads/n"), emptyPack()), 200, "ng refs/heads/n missing necessary objects"},
		{"missing parent", join(updateOf(noID, third, "refs/heads/n"), w.packOf("main", "^main~1")), 200, "unpack index-pack: did not receive expected object"},
		{"bad name", join(updateOf(noID, third, "refs/heads/a..b"), pack), 200, "ng refs/heads/a..b funny refname"},
		{"one level", join(updateOf(noID, third, "refs/x"), pack), 200, "ng refs/x funny refname"},
		{"no ref", join(updateOf(noID, third, "../../etc/passwd"), pack), 200, "funny refname"},
		{"HEAD", join(updateOf(noID, third, "HEAD"), pack), 200, "ng HEAD funny refname"},
		{"duplicate", join(pkt(noID+" "+third+" refs/heads/d"+pushCaps, noID+" "+first+" refs/heads/d", ""), pack), 200, "ng refs/heads/d"},
		{"blob as branch", join(updateOf(noID, w.git("rev-parse", "main:b"), "refs/heads/blob"), pack), 200, "ng refs/heads/blob cannot update to non-commit"},
		{"truncated pack", join(updateOf(noID, third, "refs/heads/t"), pack[:len(pack)-30]), 200, "unpack index-pack"},
		{"no pack", updateOf(noID, third, "refs/heads/t"), 200, "unpack index-pack"},
		{"missing base", join(updateOf(noID, second, "refs/heads/t"), w.packOf("main~1", "^main~2")[:40]), 200, "unpack index-pack"},
		{"trailing garbage", join(updateOf(noID, third, "refs/heads/t"), pack, []byte("garbage")), 200, "unpack index-pack"},
		{"flipped pack", join(updateOf(noID, third, "refs/heads/t"), flip(pack, len(pack)/2)), 200, "unpack index-pack"},
		{"too many for atomic", join(pkt(append(long, "")...), pack), 200, "atomic_push_refs of 10000"},
		{"shallow", join(pkt("shallow "+second, noID+" "+third+" refs/heads/s"+pushCaps, ""), w.packOf("main", "^main~1")), 200, "ng refs/heads/s shallow update not allowed"},
		{"shallow at nothing", join(pkt("shallow main", noID+" "+third+" refs/heads/s"+pushCaps, ""), pack), 400, "must be a push"},
		{"no pkt", []byte("hello"), 400, "must be a push"},
		{"cut in commands", []byte("00a0" + noID), 400, "must be a push"},
		{"capability not offered", join(pkt(noID+" "+third+" refs/heads/c\x00report-status push-cert=x", ""), pack), 200, "ng refs/heads/c capability: push-cert=x was not offered"},
		{"capability not offered, by a client that reads no report", join(pkt(noID+" "+third+" refs/heads/c\x00push-cert=x", ""), pack), 400, "not offered"},
	}
}

func TestAPushThatNoClientWouldSendMovesNothing(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", &pb.RepoConfig{Hide: []string{"refs/hidden/**"}})
	host.makeRepo("small", &pb.RepoConfig{MaxPush: 2000})
	url := host.url("app")
	w := newWork(t, "2")
	first := w.commit("a", strings.Repeat("some text that is long enough\n", 100))
	w.git("push", "-q", url, "main")
	second := w.commit("a", strings.Repeat("some text that is long enough\n", 99)+"end\n")
	third := w.commit("b", "3")
	before, files := w.refsOf(url), l.packFiles()
	pack := w.packOf("main", "^main~2")
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(updateOf(noID, third, "refs/heads/z"))
	for range 300 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	for _, c := range hostilePushes(w, first, second, third) {
		status, answer := host.pushRaw("app", c.body)
		if status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %d %q, not %d %q", c.name, status, answer, c.status, c.says)
		}
		if strings.Contains(answer, l.dir) {
			t.Errorf("%s: a path is told: %q", c.name, answer)
		}
	}
	if status, answer := host.pushRaw("small", bomb.Bytes(), "Content-Encoding", "gzip"); status != 200 || !strings.Contains(answer, "unpack") || strings.Contains(answer, "unpack ok") {
		t.Errorf("gzip bomb: %d %q", status, answer)
	}
	if status, answer := host.pushRaw("app", []byte("no gzip"), "Content-Encoding", "gzip"); status != 400 {
		t.Errorf("no gzip: %d %q", status, answer)
	}
	if after := w.refsOf(url); !maps.Equal(before, after) {
		t.Errorf("refs moved: %v to %v", before, after)
	}
	if after := l.packFiles(); len(after) != len(files) {
		t.Errorf("files are left: %q", after)
	}
	// A reader who may not see hidden refs, and a good push in the end.
	if status, answer := host.pushRaw("app", append(updateOf(noID, third, "refs/heads/good"), pack...)); status != 200 || !strings.Contains(answer, "ok refs/heads/good") {
		t.Errorf("a good push: %d %q", status, answer)
	}
	if status, answer := host.pushRaw("app", pkt("")); status != 200 || answer != "" {
		t.Errorf("a probe: %d %q", status, answer)
	}
	var deflated bytes.Buffer
	z = gzip.NewWriter(&deflated)
	_, _ = z.Write(updateOf(third, noID, "refs/heads/good"))
	_ = z.Close()
	if status, answer := host.pushRaw("app", deflated.Bytes(), "Content-Encoding", "gzip"); status != 200 || !strings.Contains(answer, "ok refs/heads/good") {
		t.Errorf("a deflated one: %d %q", status, answer)
	}
}

func TestAPackOfAHugeClaimIsRefusedWithinLimits(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	// One blob that says it is 1 TiB long, and a count that no pack of this size has.
	claim := append([]byte("PACK"), 0, 0, 0, 2, 0, 0, 0, 1)
	claim = append(claim, 0x80|3<<4, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40)
	claim = append(claim, 0x78, 0x9c, 0x03, 0, 0, 0, 0, 1)
	sum := sha1.Sum(claim)
	count := append([]byte("PACK"), 0, 0, 0, 2)
	count = binary.BigEndian.AppendUint32(count, 1<<31)
	sum2 := sha1.Sum(count)
	for name, pack := range map[string][]byte{"size": append(claim, sum[:]...), "count": append(count, sum2[:]...)} {
		status, answer := host.pushRaw("app", append(pkt(noID+" "+strings.Repeat("ab", 20)+" refs/heads/x\x00report-status", ""), pack...))
		want := "unpack index-pack"
		if name == "size" {
			want = "limit git_object of 104857600"
		}
		if status != 200 || !strings.Contains(answer, want) || !strings.Contains(answer, "ng refs/heads/x ") {
			t.Errorf("%s: %d %q", name, status, answer)
		}
	}
}

func TestManyRefusedRefsDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	w := newWork(t, "2")
	id := w.commit("a", "1")
	lines := make([]string, 0, 3001)
	for i := range 3000 {
		older := noID
		if i < 1000 {
			older = id // but there is none
		}
		lines = append(lines, fmt.Sprintf("%s %s refs/heads/b/%04d", older, id, i))
	}
	lines[0] += "\x00report-status"
	body := append(pkt(append(lines, "")...), w.packOf("main")...)
	status, answer := host.pushRaw("app", body)
	if refused, landed := strings.Count(answer, "ng refs/heads/b/"), strings.Count(answer, "ok refs/heads/b/"); status != 200 || refused != 1000 || landed != 2000 {
		t.Errorf("%d: %d refused, %d landed", status, refused, landed)
	}
	if refs := w.refsOf(host.url("app")); len(refs) != 2001 || refs["refs/heads/b/1000"] != id || refs["HEAD"] != id {
		t.Errorf("%d refs", len(refs))
	}
	if files := l.packFiles(); len(files) != 2 && len(files) != 4 { // the staged names go a moment later
		t.Errorf("files %q", files)
	}
}

func TestAPushUnderARequestIDMayBeSentAgain(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	w := newWork(t, "2")
	first := w.commit("a", "1")
	w.git("push", "-q", host.url("app"), "main", "main:refs/heads/old")
	second := w.commit("a", "2")
	for _, id := range []string{"millrace.request-id=0123456789abcdef0123456789abcdef", "other"} {
		body := append(pkt(first+" "+second+" refs/heads/main\x00report-status atomic push-options delete-refs", first+" "+noID+" refs/heads/old", "", id, ""), w.packOf("main", "^main~1")...)
		for range 2 {
			status, answer := host.pushRaw("app", body)
			want := "ok refs/heads/main"
			if id == "other" {
				want = "ng refs/heads/main stale info"
			}
			if status != 200 || !strings.Contains(answer, want) {
				t.Errorf("%s: %d %q", id, status, answer)
			}
		}
	}
	w.refuses("32 hexadecimal", "push", "-o", "millrace.request-id=1", host.url("app"), "main:refs/heads/x")
}

func TestHiddenRefsAreNeitherShownNorPushed(t *testing.T) {
	t.Parallel()
	l, admin := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"})
	admin.makeRepo("app", &pb.RepoConfig{Hide: []string{"refs/hidden/**"}})
	w := newWork(t, "2")
	w.commit("a", "1")
	w.git("push", "-q", admin.url("app"), "main", "main:refs/hidden/x")
	worker := admin
	worker.token = l.tokens[1]
	if refs := w.refsOf(worker.url("app")); len(refs) != 2 || refs["refs/hidden/x"] != "" {
		t.Errorf("shown are %v", refs)
	}
	if refs := w.refsOf(admin.url("app")); len(refs) != 3 {
		t.Errorf("an admin is shown %v", refs)
	}
	w.refuses("hidden ref", "push", worker.url("app"), "main:refs/hidden/y")
	w.refuses("hidden ref", "push", worker.url("app"), ":refs/hidden/x")
}

func TestEveryDoorAsksWhoItIs(t *testing.T) {
	t.Parallel()
	l, _ := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "other", role: "admin"})
	narrowToken, readToken := l.addToken("narrow", "acme", "[task:read]"), l.addToken("reader", "acme", "[ref:read]")
	l.stop()
	l.start()
	admin := l.git()
	admin.makeRepo("app", nil)
	other, nobody, wrong, narrow, reader := admin, admin, admin, admin, admin
	other.token, nobody.token, wrong.token, narrow.token, reader.token = l.tokens[1], "", "mr_wrong", narrowToken, readToken
	for _, door := range []struct{ method, path, kind string }{
		{"GET", "info/refs?service=git-upload-pack", ""},
		{"GET", "info/refs?service=git-receive-pack", ""},
		{"POST", "git-upload-pack", "application/x-git-upload-pack-request"},
		{"POST", "git-receive-pack", "application/x-git-receive-pack-request"},
	} {
		ask := func(h gitHost, repo string) (int, string, string) {
			status, answer, headers := h.say(door.method, repo+".git/"+door.path, door.kind, strings.NewReader("0000"))
			return status, answer, headers.Get("WWW-Authenticate")
		}
		for _, h := range []gitHost{nobody, wrong} {
			for _, repo := range []string{"app", "none"} {
				if status, _, asks := ask(h, repo); status != 401 || !strings.HasPrefix(asks, "Basic ") {
					t.Errorf("%s of %s with %q: %d, asks %q", door.path, repo, h.token, status, asks)
				}
			}
		}
		missing, text, _ := ask(admin, "none")
		for _, repo := range []string{"app", "none"} {
			if status, answer, _ := ask(other, repo); status != 404 || missing != 404 || strings.ReplaceAll(answer, "app", "none") != text {
				t.Errorf("%s of %s by another tenant: %d %q; of nothing %d %q", door.path, repo, status, answer, missing, text)
			}
			if status, _, _ := ask(narrow, repo); status != 403 {
				t.Errorf("%s of %s without a scope: %d", door.path, repo, status)
			}
		}
		want := 200
		if strings.Contains(door.path, "receive") {
			want = 403
		}
		if status, _, _ := ask(reader, "app"); status != want {
			t.Errorf("%s by a reader: %d, not %d", door.path, status, want)
		}
		if status, _, _ := ask(reader, "none"); status != 404 {
			t.Errorf("%s of nothing by a reader: %d", door.path, status)
		}
		if status, _, _ := ask(admin, "app"); status != 200 {
			t.Errorf("%s: %d", door.path, status)
		}
	}
	for path, want := range map[string]int{
		"app.git/info/refs": 403, "app.git/info/refs?service=git-upload-archive": 403, "app.git/HEAD": 404, "app.git/objects/info/packs": 404,
		"app/info/lfs/locks": 404, "app.git/info/lfs/locks": 404, "app.git/": 404, "app": 404, "app.git.git/info/refs?service=git-upload-pack": 404,
	} {
		if status, _, _ := admin.say("GET", path, "", nil); status != want {
			t.Errorf("%s: %d, not %d", path, status, want)
		}
		if status, _, headers := nobody.say("GET", path, "", nil); status != 401 || headers.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a token: %d", path, status)
		}
	}
	for _, path := range []string{"a/b.git/info/refs?service=git-upload-pack", "..%2f..%2fapp.git/info/refs?service=git-upload-pack"} {
		if status, _, _ := admin.say("GET", path, "", nil); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	bearer := nobody
	if status, _, _ := bearer.say("GET", "app.git/info/refs?service=git-upload-pack", "", nil, "Authorization", "Bearer "+admin.token); status != 200 {
		t.Errorf("a token as Bearer: %d", status)
	}
	if status, _, _ := bearer.say("GET", "app.git/info/refs?service=git-upload-pack", "", nil, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(admin.token+":"))); status != 401 {
		t.Errorf("a token as user: %d", status)
	}
}

// addToken adds a token with scopes to the server's file, which it reads when it starts.
func (l *local) addToken(name, tenant, scopes string) string {
	l.t.Helper()
	token := server.NewToken()
	f, err := os.OpenFile(filepath.Join(l.dir, "tokens.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	noErr(l.t, err)
	_, err = fmt.Fprintf(f, "  - name: %s\n    tenant: %s\n    hash: %s\n    scopes: %s\n", name, tenant, server.HashToken(token), scopes)
	noErr(l.t, err)
	noErr(l.t, f.Close())
	return token
}
