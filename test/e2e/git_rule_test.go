package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// ruled is one change that a rule of its own refuses, by the doors that it is tried at.
type ruled struct {
	rule      *pb.RefRule
	old, new  string // empty: the branch is not there before, or not after
	push, api bool   // refused by that door
}

func (r ruled) name() string { return r.rule.Refs }

// setRepo replaces a repository's settings.
func (h gitHost) setRepo(name string, config *pb.RepoConfig) {
	h.t.Helper()
	h.call("RefService/UpdateRepo", &pb.UpdateRepoRequest{Name: name, Config: config}, new(pb.UpdateRepoResponse))
}

// refsByAPI changes one ref and returns why not, and by which rule.
func refsByAPI(t *testing.T, repo millrace.Repo, name, old, new string) (reason, rule string) {
	t.Helper()
	change := millrace.MoveRef(name, old, new)
	if old == "" {
		change = millrace.CreateRef(name, new)
	} else if new == "" {
		change = millrace.DeleteRef(name, old)
	}
	_, err := repo.Update(bounded(t, 20*time.Second), change)
	if err == nil {
		return "", ""
	}
	e, ok := errors.AsType[*millrace.Error](err)
	if !ok {
		t.Fatal(err)
	}
	return e.Reason, e.Details["rule"]
}

// try tries the change by both doors. wanted is the rule that refuses it.
func (r ruled) try(t *testing.T, w work, wanted, url string, repo millrace.Repo) {
	t.Helper()
	spec := "+" + r.new + ":" + r.name()
	if r.new == "" {
		spec = ":" + r.name()
	}
	push := func() {
		out, err := w.try("push", url, spec)
		if refused := err != nil && strings.Contains(out, "protected by "+wanted); refused != r.push || !r.push && err != nil {
			t.Errorf("%s by git: %v\n%s", r.name(), err, out)
		}
	}
	ask := func() {
		reason, by := refsByAPI(t, repo, r.name(), r.old, r.new)
		if r.api && (reason != "ref_protected" || by != wanted) || !r.api && reason != "" {
			t.Errorf("%s by the API: %q, %q", r.name(), reason, by)
		}
	}
	if r.push { // what is let pass comes last, for it moves the ref
		push()
		ask()
	} else {
		ask()
		push()
	}
}

func TestRulesRefuseByGitAndByTheAPIAlike(t *testing.T) {
	t.Parallel()
	l, admin := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"})
	admin.makeRepo("app", nil)
	w := newWork(t, "2")
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	w.git("reset", "-q", "--hard", first)
	aside := w.commit("b", "3")
	w.git("push", "-q", admin.url("app"), first+":refs/heads/main", second+":refs/keep/second", aside+":refs/keep/aside")

	rule := func(name string, deny pb.RefRule_Deny, only pb.RefRule_Only) *pb.RefRule {
		r := &pb.RefRule{Refs: "refs/heads/" + name, Only: only}
		if deny != 0 {
			r.Deny = []pb.RefRule_Deny{deny}
		}
		return r
	}
	cases := []ruled{
		{rule("no/create", pb.RefRule_CREATE, 0), "", first, true, true},
		{rule("no/update", pb.RefRule_UPDATE, 0), first, second, true, true},
		{rule("no/delete", pb.RefRule_DELETE, 0), first, "", true, true},
		{rule("no/force", pb.RefRule_FORCE, 0), second, aside, true, true},
		{rule("only/api", 0, pb.RefRule_API), first, second, true, false},
		{rule("only/push", 0, pb.RefRule_PUSH), first, second, false, true},
		{rule("only/effects", 0, pb.RefRule_EFFECTS), first, second, true, true},
	}
	config := &pb.RepoConfig{Hide: []string{"refs/heads/hidden/**"}}
	for _, c := range cases {
		config.Rules = append(config.Rules, c.rule)
		if c.old != "" {
			w.git("push", "-q", admin.url("app"), c.old+":"+c.name())
		}
	}
	config.Rules = append(config.Rules, &pb.RefRule{Refs: "refs/heads/excepted", Deny: []pb.RefRule_Deny{pb.RefRule_CREATE}, Except: []string{"h1"}})
	w.git("push", "-q", admin.url("app"), first+":refs/heads/hidden/x")
	admin.setRepo("app", config)

	worker := admin
	worker.token = l.tokens[1]
	url, repo := worker.url("app"), l.client(1).Repo("app")
	for i, c := range cases {
		c.try(t, w, fmt.Sprintf("rule %d", i+1), url, repo)
	}
	w.refuses("deny updating a hidden ref", "push", url, "+"+second+":refs/heads/hidden/x")
	w.refuses("deny updating a hidden ref", "push", url, second+":refs/heads/hidden/new")
	if reason, _ := refsByAPI(t, repo, "refs/heads/hidden/x", first, second); reason != "ref_hidden" {
		t.Errorf("a hidden ref by the API: %q", reason)
	}
	if reason, _ := refsByAPI(t, repo, "refs/heads/hidden/new", "", second); reason != "ref_hidden" {
		t.Errorf("a new hidden ref by the API: %q", reason)
	}
	w.refuses("protected by rule 8", "push", admin.url("app"), first+":refs/heads/excepted") // an admin is not excepted
	w.git("push", "-q", url, first+":refs/heads/excepted")
	w.git("push", "-q", url, second+":refs/heads/hidde")

	after := w.refsOf(admin.url("app"))
	for _, c := range cases {
		want := c.old
		if !c.push || !c.api {
			want = c.new
		}
		if after[c.name()] != want {
			t.Errorf("%s is at %q, not %q", c.name(), after[c.name()], want)
		}
	}
	if after["refs/heads/hidden/x"] != first || after["refs/heads/hidden/new"] != "" {
		t.Errorf("hidden refs moved: %v", after)
	}
}

// slowPush is a push whose client stops in the middle of the pack.
type slowPush struct {
	t    *testing.T
	c    net.Conn
	rest []byte
}

// beginPush sends a push but for its last 25 bytes, and returns when the server has looked at its commands.
func beginPush(l *local, h gitHost, repo string, body []byte) *slowPush {
	l.t.Helper()
	c, err := net.Dial("tcp", h.http)
	noErr(l.t, err)
	l.t.Cleanup(func() { _ = c.Close() })
	noErr(l.t, c.SetDeadline(time.Now().Add(time.Minute)))
	request := fmt.Appendf(nil, "POST /git/default/%s.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/x-git-receive-pack-request\r\nContent-Length: %d\r\n\r\n", repo, h.token, len(body))
	request = append(request, body...)
	cut := len(request) - 25
	_, err = c.Write(request[:cut])
	noErr(l.t, err)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, f := range l.packFiles() {
			if strings.Contains(f, "/incoming/") {
				return &slowPush{l.t, c, request[cut:]}
			}
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the server does not begin to receive")
		}
	}
}

// end sends the rest and returns the answer.
func (p *slowPush) end() string {
	p.t.Helper()
	_, err := p.c.Write(p.rest)
	noErr(p.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(p.c), nil)
	noErr(p.t, err)
	defer resp.Body.Close()
	var b strings.Builder
	_, err = bufio.NewReader(resp.Body).WriteTo(&b)
	noErr(p.t, err)
	return fmt.Sprint(resp.StatusCode, " ", b.String())
}

func TestWhatChangesWhileAPackIsSentCountsForItsPush(t *testing.T) {
	t.Parallel()
	l, admin := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"})
	admin.makeRepo("app", nil)
	w := newWork(t, "2")
	first := w.commit("a", "1")
	second := w.commit("a", "2")
	w.git("push", "-q", admin.url("app"), first+":refs/heads/main", second+":refs/keep/second")
	third := w.commit("a", strings.Repeat("3 is longer\n", 50))
	worker := admin
	worker.token = l.tokens[1]
	repo := l.client(0).Repo("app")
	deny := func(d pb.RefRule_Deny, only pb.RefRule_Only) *pb.RepoConfig {
		r := &pb.RefRule{Refs: "refs/heads/b/**", Only: only}
		if d != 0 {
			r.Deny = []pb.RefRule_Deny{d}
		}
		return &pb.RepoConfig{Rules: []*pb.RefRule{r}}
	}
	for i, c := range []struct {
		name  string
		old   string // of the ref when the push begins
		meant string // as old value by the push
		then  func(name string)
		says  string
	}{
		{"moved", first, first, func(name string) { refsByAPI(t, repo, name, first, second) }, "stale info"},
		{"deleted", first, first, func(name string) { refsByAPI(t, repo, name, first, "") }, "stale info"},
		{"made", "", noID, func(name string) { refsByAPI(t, repo, name, "", second) }, "reference already exists"},
		{"in its way", "", noID, func(name string) { refsByAPI(t, repo, name+"/below", "", second) }, "cannot create"},
		{"hidden", first, first, func(string) { admin.setRepo("app", &pb.RepoConfig{Hide: []string{"refs/heads/b/**"}}) }, "deny updating a hidden ref"},
		{"no update", first, first, func(string) { admin.setRepo("app", deny(pb.RefRule_UPDATE, 0)) }, "protected by rule 1"},
		{"no create", "", noID, func(string) { admin.setRepo("app", deny(pb.RefRule_CREATE, 0)) }, "protected by rule 1"},
		{"no push", first, first, func(string) { admin.setRepo("app", deny(0, pb.RefRule_API)) }, "protected by rule 1"},
		{"no force, of which nothing was asked", first, first, func(string) { admin.setRepo("app", deny(pb.RefRule_FORCE, 0)) }, "protected by rule 1"},
		{"archived", first, first, func(string) { admin.setRepo("app", &pb.RepoConfig{State: pb.Repo_ARCHIVED}) }, "read-only"},
	} {
		admin.setRepo("app", &pb.RepoConfig{})
		name := fmt.Sprintf("refs/heads/b/%d", i)
		if c.old != "" {
			w.git("push", "-q", admin.url("app"), c.old+":"+name)
		}
		p := beginPush(l, worker, "app", append(updateOf(c.meant, third, name), w.packOf(third, "^"+first)...))
		c.then(name)
		before := w.refsOf(admin.url("app"))[name]
		if answer := p.end(); !strings.HasPrefix(answer, "200 ") || !strings.Contains(answer, "ng "+name+" ") || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %q, not %q", c.name, answer, c.says)
		}
		if after := w.refsOf(admin.url("app"))[name]; after != before || after == third {
			t.Errorf("%s: moved from %q to %q", c.name, before, after)
		}
	}
}
