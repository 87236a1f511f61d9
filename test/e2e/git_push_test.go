package e2e

import (
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
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
	t.Parallel()
	l, admin := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"})
	narrow := l.addToken("narrow", "acme", "[ref:read, ref:write]\n    repos: [\"default/app-*\"]")
	plain := l.addToken("plain", "acme", "[ref:read, ref:write]")
	l.stop()
	l.start()
	admin = l.git()
	pushers := []pusher{{"admin", admin.token, true}, {"worker", l.tokens[1], true}, {"narrow", narrow, false}, {"plain", plain, false}}
	for i, c := range forceRules {
		repo := "app-" + string(rune('a'+i))
		admin.makeRepo(repo, &pb.RepoConfig{Rules: c.rules})
		w := newWork(t, "2")
		w.commit("a", "0")
		w.git("push", "-q", admin.url(repo), "main")
		for _, p := range pushers {
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
