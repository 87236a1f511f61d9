package e2e

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// pusher is a kind of token, and what it may do that others may not.
type pusher struct {
	name   string
	token  string
	forces bool
}

// forceRules are settings of repositories, and whether they let a forced push of refs/heads/main pass.
var forceRules = []struct {
	name   string
	rules  []*pb.RefRule
	forces string // what a forced push is told; empty: it lands
}{
	{"no rule", nil, ""},
	{"a rule of another branch", []*pb.RefRule{{Refs: "refs/heads/zzz", Deny: []pb.RefRule_Deny{pb.RefRule_FORCE}}}, ""},
	{"force denied", []*pb.RefRule{{Refs: "refs/heads/main", Deny: []pb.RefRule_Deny{pb.RefRule_FORCE}}}, "protected by rule 1"},
	{"force and deletion denied, by the second rule", []*pb.RefRule{
		{Refs: "refs/tags/**", Deny: []pb.RefRule_Deny{pb.RefRule_UPDATE, pb.RefRule_CREATE}},
		{Refs: "refs/heads/**", Deny: []pb.RefRule_Deny{pb.RefRule_FORCE, pb.RefRule_DELETE}},
	}, "protected by rule 2"},
	{"creation denied elsewhere", []*pb.RefRule{{Refs: "refs/heads/release/*", Deny: []pb.RefRule_Deny{pb.RefRule_CREATE, pb.RefRule_FORCE}}}, ""},
}

// TestPushesOfNewCommitsLandWhereForceIsDenied pushes as people do: each push brings commits that the server does not have.
func TestPushesOfNewCommitsLandWhereForceIsDenied(t *testing.T) {
	onlyInCheck(t, "it makes many pushes by git")
	t.Parallel()
	l, _ := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"})
	narrow := l.addToken("narrow", "acme", "[ref:read, ref:write]\n    repos: [\"default/app-*\"]")
	plain := l.addToken("plain", "acme", "[ref:read, ref:write]")
	l.stop()
	l.start()
	admin := l.git()
	pushers := []pusher{{"admin", admin.token, true}, {"worker", l.tokens[1], true}, {"narrow", narrow, false}, {"plain", plain, false}}
	for i, c := range forceRules {
		repo := "app-" + string(rune('a'+i))
		admin.makeRepo(repo, &pb.RepoConfig{Rules: c.rules})
		w := newWork(t, "2")
		w.commit("a", "0")
		w.git("push", "-q", admin.url(repo), "main")
		of := pushers
		if i > 0 { // each kind of token once, then one that may force and one that may not
			of = []pusher{pushers[i%2], pushers[2+i%2]}
		}
		for _, p := range of {
			h := admin
			h.token = p.token
			says := c.forces
			if !p.forces {
				says = "ref:force"
			}
			w.pushesAhead(h.url(repo), p.name)
			w.forces(h.url(repo), p.name, says)
		}
		w.git("clone", "-q", "--mirror", admin.url(repo), "final")
		w.in("final").whole()
		if t.Failed() {
			t.Fatalf("with %s", c.name)
		}
	}
}

// pushesAhead pushes new commits: one onto main, several, a merge, and onto other branches at once, atomic and not.
func (w work) pushesAhead(url, who string) {
	w.t.Helper()
	lands := func(id string, args ...string) {
		w.t.Helper()
		if out, err := w.try(append([]string{"push", url}, args...)...); err != nil {
			w.t.Errorf("%s: push %q: %v\n%s", who, args, err, out)
		} else if got := w.refsOf(url)["refs/heads/main"]; got != id {
			w.t.Errorf("%s: push %q: main is at %s, not %s", who, args, got, id)
		}
	}
	lands(w.commit("a", who+" 1"), "main")
	w.commit("b", who+" 2")
	lands(w.commit("a", who+" 3"), "main", "main:refs/heads/of/"+who)
	w.git("checkout", "-q", "-b", "side-"+who, "main~1")
	w.commit("side", who+" 4")
	w.git("checkout", "-q", "main")
	w.commit("c", who+" 5")
	w.git("merge", "-q", "-m", "merge", "side-"+who)
	lands(w.git("rev-parse", "main"), "--atomic", "main", "main:refs/heads/of/"+who, "side-"+who)
}

// forces rewrites main and pushes that; says is why it must be refused, empty: it lands.
func (w work) forces(url, who, says string) {
	w.t.Helper()
	before := w.refsOf(url)["refs/heads/main"]
	w.git("reset", "-q", "--hard", "main~1")
	id := w.commit("forced", who)
	other := w.commit("other", who+" other")
	out, err := w.try("push", "--force", url, id+":refs/heads/main", other+":refs/heads/new/"+who)
	after := w.refsOf(url)
	switch {
	case says == "" && (err != nil || after["refs/heads/main"] != id):
		w.t.Errorf("%s: the forced push: %v\n%s", who, err, out)
	case says != "" && (err == nil || !strings.Contains(out, "! [remote rejected]") || !strings.Contains(out, says) || after["refs/heads/main"] != before):
		w.t.Errorf("%s: the forced push: %v, not %q\n%s", who, err, says, out)
	case after["refs/heads/new/"+who] != other:
		w.t.Errorf("%s: the other branch of the forced push is at %q\n%s", who, after["refs/heads/new/"+who], out)
	}
	w.git("fetch", "-q", url, "main")
	w.git("reset", "-q", "--hard", "FETCH_HEAD")
}

func TestPushesFromShallowClonesLand(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	host.makeRepo("empty", nil)
	url := host.url("app")
	w := newWork(t, "2")
	w.history(30)
	w.git("push", "-q", "--mirror", url)
	w.git("push", "-q", url, "main~3:refs/heads/old")
	for _, depth := range []string{"1", "5"} {
		name := "shallow" + depth
		w.git("clone", "-q", "--depth="+depth, "--no-single-branch", url, name)
		s := w.in(name)
		id := s.commit("ci", depth)
		s.git("push", "-q", url, "HEAD:refs/heads/ci"+depth)
		s.git("push", "-q", url, "HEAD")
		s.git("tag", "light"+depth, "origin/main")
		s.git("tag", "-a", "-m", "m", "heavy"+depth, "origin/main")
		s.git("tag", "-a", "-m", "m", "new"+depth)
		s.git("push", "-q", url, "light"+depth, "heavy"+depth, "new"+depth)
		s.git("commit", "-q", "--amend", "-m", "amended")
		amended := s.git("rev-parse", "HEAD")
		s.git("push", "-q", "--force", "--atomic", url, "HEAD:refs/heads/ci"+depth, "origin/topic/9:refs/heads/topic"+depth)
		s.git("push", "-q", "--force", url, id+":refs/heads/main")
		s.git("checkout", "-q", "origin/topic/29")
		s.git("merge", "-q", "--allow-unrelated-histories", "-s", "ours", "-m", "merge", "origin/main")
		s.git("push", "-q", url, "HEAD:refs/heads/merged"+depth)
		s.git("push", "-q", url, ":refs/heads/merged"+depth, ":light"+depth)
		refs := w.refsOf(url)
		if refs["refs/heads/main"] != id || refs["refs/heads/ci"+depth] != amended || refs["refs/heads/merged"+depth] != "" || refs["refs/tags/light"+depth] != "" ||
			refs["refs/tags/heavy"+depth] == "" || refs["refs/tags/new"+depth+"^{}"] != id || refs["refs/heads/topic"+depth] == "" {
			t.Errorf("depth %s: %v", depth, refs)
		}
	}
	w.in("shallow1").git("push", "-q", url, ":old")
	w.git("clone", "-q", "--mirror", url, "final")
	w.in("final").whole()

	// To a server that does not have the missing history. What it has, and what is whole, it takes.
	s := w.in("shallow1")
	whole := s.git("commit-tree", "-m", "root", "HEAD^{tree}")
	other := host.url("empty")
	s.refuses("! [remote rejected] main -> main (shallow update not allowed)", "push", other, "main")
	s.refuses("fetch --unshallow", "push", other, "main")
	s.git("push", "-q", other, whole+":refs/heads/base")
	s.refuses("(shallow update not allowed)", "push", "--atomic", other, "main", whole+":refs/heads/more")
	out, err := s.try("push", other, "main", whole+":refs/heads/more", ":base")
	refs := w.refsOf(other)
	if err == nil || !strings.Contains(out, "main -> main (shallow update not allowed)") || len(refs) != 2 || refs["refs/heads/more"] != whole || refs["HEAD"] != whole {
		t.Errorf("%v, refs %v\n%s", err, refs, out)
	}
}

func TestAPushThatIsRefusedAsAWholeSaysWhyToItsUser(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	w.commit("a", strings.Repeat("long enough not to be sent in one piece\n", 10))
	noise := make([]byte, 3<<20) // more than what git sends at once
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	w.commit("noise", string(noise))
	options := func(n int, size int) (args []string) {
		args = []string{"push"}
		for range n {
			args = append(args, "-o", strings.Repeat("o", size))
		}
		return append(args, url, "main")
	}
	for limit, args := range map[string][]string{
		"push_options is larger than limit push_options of 32": options(33, 1),
		"larger than limit push_option_bytes of 1024":          options(1, 2000),
		"is larger than limit push_options of 32":              options(40, 1000),
		"push_options: must be UTF-8":                          {"push", "-o", "\xff", url, "main"},
		"millrace.nonsense is not known":                       {"push", "-o", "millrace.nonsense", url, "main"},
	} {
		out, err := w.try(args...)
		if err == nil || !strings.Contains(out, "! [remote rejected] main -> main (") || strings.Count(out, limit) < 2 || strings.Contains(out, "RPC failed") {
			t.Errorf("%s: %v\n%s", limit, err, out)
		}
	}
	if refs := w.refsOf(url); len(refs) != 0 {
		t.Errorf("refs %v", refs)
	}
	w.git("push", "-q", "-o", strings.Repeat("o", 1024), url, "main")
}

// object writes an object of any content, as git itself would not make it, and returns its id.
func (w work) object(kind, content string) string {
	w.t.Helper()
	cmd := w.command(w.t.Context(), "hash-object", "--literally", "-t", kind, "-w", "--stdin")
	cmd.Stdin = strings.NewReader(content)
	out, err := cmd.Output()
	noErr(w.t, err)
	return strings.TrimSpace(string(out))
}

func TestAPackThatIsRefusedIsToldWithItsObjectAndWhy(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", &pb.RepoConfig{MaxPush: 1 << 20})
	url := host.url("app")
	w := newWork(t, "2")
	first := w.commit("a", "1")
	blob := w.git("rev-parse", first+":a")
	raw, err := hex.DecodeString(blob)
	noErr(t, err)
	const who = "a <a@a> 1313584730 +051800"
	old := w.object("commit", "tree "+w.object("tree", "0100644 a\x00"+string(raw))+"\nparent "+first+"\nauthor "+who+"\ncommitter "+who+"\n\nof 2011\n")
	w.git("push", "-q", url, old+":refs/heads/main")
	w.git("clone", "-q", url, "clone")
	if got := w.in("clone").git("rev-parse", "HEAD"); got != old {
		t.Errorf("the clone is at %s, not %s", got, old)
	}

	tree := w.object("tree", "100644 ..\x00"+string(raw))
	bad := w.object("commit", "tree "+tree+"\nauthor "+who+"\ncommitter "+who+"\n\nm\n")
	out, err := w.try("push", url, bad+":refs/heads/bad")
	for _, want := range []string{
		"remote: index-pack: object " + tree + ": hasDotdot: contains '..'; fsck error in packed object",
		"error: remote unpack failed: index-pack: object " + tree, "! [remote rejected] " + bad + " -> bad (unpacker error)",
	} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, not %q\n%s", err, want, out)
		}
	}
	noise := make([]byte, 8<<20) // far more than is taken, and than connections hold
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	w.commit("noise", string(noise))
	w.refuses("! [remote rejected] main -> more (pack is larger than limit max_push of 1048576)", "push", url, "main:refs/heads/more")
	if refs := w.refsOf(url); len(refs) != 2 || refs["refs/heads/main"] != old {
		t.Errorf("refs %v", refs)
	}
}

func TestAPushSaysAsMuchAsItsClientWants(t *testing.T) {
	t.Parallel()
	_, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	id := w.commit("a", "1")
	if out := w.git("push", "-q", url, "main"); out != "" {
		t.Errorf("a quiet push says %q", out)
	}
	if out := w.git("push", url, "main:b"); strings.Contains(out, "millrace") { // its error output is not a terminal
		t.Errorf("a push whose output goes to a file says %q", out)
	}
	if out := w.git("push", "-q", "-o", "millrace.index", url, "main:c"); !strings.HasPrefix(out, "remote: millrace: p=0 i=") {
		t.Errorf("a quiet push that asks for its index says %q", out)
	}
	w.refuses("millrace.index takes no value", "push", "-o", "millrace.index=1", url, "main:d")
	_, answer := host.pushRaw("app", append(pkt(noID+" "+id+" refs/heads/e\x00report-status side-band-64k", ""), emptyPack()...))
	if !strings.Contains(answer, "millrace: p=0 i=") {
		t.Errorf("a push that is not quiet: %q", answer)
	}

	// What is in the way of a ref is named, and why a name is not taken.
	w.git("push", "-q", url, "main:refs/heads/foo/a/b", "main:refs/heads/plain")
	for spec, why := range map[string]string{
		"main:refs/heads/foo/a":       "'refs/heads/foo/a/b' exists; cannot create 'refs/heads/foo/a'",
		"main:refs/heads/foo":         "'refs/heads/foo/a/b' exists; cannot create 'refs/heads/foo'",
		"main:refs/heads/plain/x":     "'refs/heads/plain' exists; cannot create 'refs/heads/plain/x'",
		"main:refs/heads/lat\xe9":     "(the name of a ref must be UTF-8)",
		"main:refs/tags/\xff\xfe/x":   "(the name of a ref must be UTF-8)",
		"main:refs/heads/dos\xa0\xe9": "(the name of a ref must be UTF-8)",
	} {
		out, err := w.try("push", url, spec, "main:refs/heads/lands")
		if err == nil || !strings.Contains(out, why) || w.refsOf(url)["refs/heads/lands"] != id {
			t.Errorf("%q: %v, not %q\n%s", spec, err, why, out)
		}
		w.git("push", "-q", url, ":refs/heads/lands")
		if out, err := w.try("push", "--atomic", url, spec, "main:refs/heads/not"); err == nil || !strings.Contains(out, why) || w.refsOf(url)["refs/heads/not"] != "" {
			t.Errorf("%q, atomic: %v, not %q\n%s", spec, err, why, out)
		}
	}
	w.git("push", "-q", url, "main:refs/heads/latin-é")
}

func TestWhatAClientAsksForInVainIsNoFaultOfTheServer(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("app", nil)
	url := host.url("app")
	w := newWork(t, "2")
	id := w.commit("a", "1")
	w.git("push", "-q", url, "main")
	for _, version := range gitVersions {
		c := newWork(t, version)
		for _, args := range [][]string{
			{"fetch", "--shallow-since=2099-01-01", url, "main"},
			{"clone", "--shallow-since=2099-01-01", url, "since"},
			{"fetch", url, strings.Repeat("ab", 20)},
			{"clone", "--shallow-exclude=main", url, "none"},
		} {
			if out, err := c.try(args...); err == nil || !strings.Contains(out, "remote error: ") || strings.Contains(out, "internal error") || strings.Contains(out, "RPC failed") {
				t.Errorf("version %s: git %q: %v\n%s", version, args, err, out)
			}
		}
	}
	const kind = "application/x-git-upload-pack-request"
	for _, body := range []string{"hello", "0032want " + strings.Repeat("x", 40) + "\n", "0009done\n", "ffff", "0005x"} {
		for _, version := range []string{"0", "1", "2"} {
			status, answer, _ := host.say("POST", "app.git/git-upload-pack", kind, strings.NewReader(body), "Git-Protocol", "version="+version)
			if status >= 500 || strings.Contains(answer, "internal error") {
				t.Errorf("%q in version %s: %d %q", body, version, status, answer)
			}
		}
	}
	broken := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	for _, path := range []string{"upload", "receive"} {
		status, answer, _ := host.say("POST", "app.git/git-"+path+"-pack", "application/x-git-"+path+"-pack-request", bytes.NewReader(broken), "Content-Encoding", "gzip")
		if status != 400 {
			t.Errorf("what is not gzip, to %s: %d %q", path, status, answer)
		}
	}

	// A large tag that git sends as a delta of another is refused by itself, and not told as damage by the API either.
	message := strings.Repeat("a line of a message\n", 2<<20/20)
	noErr(t, os.WriteFile(filepath.Join(w.dir, "message"), []byte(message), 0o600))
	w.git("tag", "-a", "-F", "message", "t0")
	noErr(t, os.WriteFile(filepath.Join(w.dir, "message"), []byte(message+"more"), 0o600))
	w.git("tag", "-a", "-F", "message", "t1")
	out, err := w.try("push", url, "t0", "t1", "main:refs/heads/good")
	if err == nil || strings.Count(out, "(tag is larger than limit git_tag_bytes of 1048576)") != 1 || w.refsOf(url)["refs/heads/good"] != id {
		t.Errorf("%v\n%s", err, out)
	}
	large := 0
	for _, tag := range []string{"t0", "t1"} {
		_, err := l.client(0).Repo("app").Update(bounded(t, 20*time.Second), millrace.CreateRef("refs/tags/api-"+tag, w.git("rev-parse", tag)))
		if e, ok := errors.AsType[*millrace.Error](err); ok && e.Limit == "git_tag_bytes" {
			large++
		} else if err != nil {
			t.Errorf("%s by the API: %v", tag, err)
		}
	}
	if large != 1 {
		t.Errorf("%d tags are too large for the API", large)
	}
}
