package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

func TestAPushMakesARepositoryWhereTheNamespaceSaysSo(t *testing.T) {
	t.Parallel()
	l, _ := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "worker"}, holder{tenant: "other", role: "admin"})
	readerToken, makerToken := l.addToken("reader", "acme", "[ref:read, ref:create]"), l.addToken("maker", "acme", "[ref:read, ref:write, ref:create]")
	l.stop()
	l.start()
	admin := l.git()
	as := func(token string) gitHost { h := admin; h.token = token; return h }
	worker, other, reader, maker := as(l.tokens[1]), as(l.tokens[2]), as(readerToken), as(makerToken)
	w := newWork(t, "2")
	id := w.commit("a", "1")

	w.refuses("not found", "push", maker.url("app"), "main") // no namespace yet
	admin.makeRepo("first", nil)
	w.refuses("not found", "push", maker.url("app"), "main") // it does not say so
	admin.call("QueueService/SetNamespace", &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{CreateOnPush: true}}, new(pb.SetNamespaceResponse))
	var ns pb.GetNamespaceResponse
	admin.call("QueueService/GetNamespace", &pb.GetNamespaceRequest{}, &ns)
	if !ns.Config.GetCreateOnPush() {
		t.Errorf("settings read back: %v", ns.Config)
	}

	w.refuses("not found", "push", worker.url("app"), "main") // may not make one
	w.refuses("not found", "clone", maker.url("app"), "clone")
	if status, _, _ := reader.say("GET", "app.git/info/refs?service=git-receive-pack", "", nil); status != http.StatusNotFound {
		t.Errorf("who may not push is told %d", status)
	}
	w.refuses("not found", "push", other.url("app"), "main") // another tenant's namespace does not say so
	for _, bad := range []string{"a..b", "a.lock", "-a", strings.Repeat("a", 129)} {
		if status, answer, _ := maker.say("GET", bad+".git/info/refs?service=git-receive-pack", "", nil); status != http.StatusBadRequest {
			t.Errorf("%q: %d %q", bad, status, answer)
		}
	}
	// Nothing is made by asking, nor by a probe.
	if status, answer, _ := maker.say("GET", "app.git/info/refs?service=git-receive-pack", "", nil); status != 200 || !strings.Contains(answer, "capabilities^{}") {
		t.Errorf("asked: %d %q", status, answer)
	}
	if status, _ := maker.pushRaw("app", pkt("")); status != 200 {
		t.Errorf("a probe: %d", status)
	}
	if repos, err := l.client(0).Repos(t.Context()); err != nil || len(repos) != 1 {
		t.Errorf("%v, %v", repos, err)
	}
	out := w.git("push", maker.url("app"), "main", "main:refs/heads/b")
	if !strings.Contains(out, "[new branch]") {
		t.Errorf("push says %q", out)
	}
	if refs := w.refsOf(admin.url("app")); refs["HEAD"] != id || refs["refs/heads/b"] != id {
		t.Errorf("refs are %v", refs)
	}
	info, err := l.client(0).Repo("app").Info(t.Context())
	if err != nil || info.CreatedBy != "maker" || info.DefaultBranch != "main" {
		t.Errorf("%+v, %v", info, err)
	}
	w.commit("a", "2")
	w.git("push", "-q", worker.url("app"), "main") // it is there now
	for _, version := range gitVersions {
		w.version = version
		w.git("push", "-q", maker.url("v"+version), "main")
	}
}

func TestARefusedFirstPushLeavesNothing(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	host.makeRepo("first", nil)
	host.call("QueueService/SetNamespace", &pb.SetNamespaceRequest{Config: &pb.NamespaceConfig{CreateOnPush: true}}, new(pb.SetNamespaceResponse))
	w := newWork(t, "2")
	parent := w.commit("a", "1")
	id := w.commit("a", "2")
	w.git("tag", "-a", "-m", "t", "v1")
	tag := w.git("rev-parse", "v1")
	atomic := func(names ...string) []byte {
		caps, lines := "\x00report-status atomic", []string{}
		for _, name := range names {
			lines = append(lines, noID+" "+id+" "+name+caps)
			caps = ""
		}
		return append(pkt(append(lines, "")...), w.packOf(id)...)
	}
	whole := w.packOf(id)
	for says, body := range map[string][]byte{
		"unpack index-pack":                     append(updateOf(noID, id, "refs/heads/main"), whole[:len(whole)-15]...),
		"did not receive expected object":       append(updateOf(noID, id, "refs/heads/main"), w.packOf(id, "^"+parent)...),
		"refs/heads/x missing necessary":        append(updateOf(noID, strings.Repeat("1", 40), "refs/heads/x"), whole...),
		"ng refs/heads/main ":                   append(updateOf(noID, tag, "refs/heads/main"), w.packOf(tag)...),
		"ng refs/heads/main stale info":         append(updateOf(id, id, "refs/heads/main"), whole...),
		"ng refs/heads/a..b funny refname":      append(updateOf(noID, id, "refs/heads/a..b"), whole...),
		"ng refs/heads/none reference does not": pkt(id+" "+noID+" refs/heads/none\x00report-status delete-refs", ""),
		"ng refs/heads/a atomic push failure":   atomic("refs/heads/a", "refs/heads/a/b"),
	} {
		if status, answer := host.pushRaw("app", body); status != 200 || !strings.Contains(answer, says) || strings.Contains(answer, "ok refs/") {
			t.Errorf("%d %q, not %q", status, answer, says)
		}
		if repos, err := l.client(0).Repos(t.Context()); err != nil || len(repos) != 1 {
			t.Errorf("after %q there is %v, %v", says, repos, err)
		}
		if repos, err := l.client(0).Repos(t.Context(), millrace.OnlyDeleted()); err != nil || len(repos) != 0 {
			t.Errorf("after %q there is %v deleted, %v", says, repos, err)
		}
	}
	l.stop()
	if dirs, err := filepath.Glob(filepath.Join(l.dir, "data", "git", "*", "*", "OWNER")); err != nil || len(dirs) > 0 {
		t.Errorf("left are %v, %v", dirs, err)
	}
	l.start()
	w.git("push", "-q", l.git().url("app"), "main", "v1")
	w.git("clone", "-q", "--mirror", l.git().url("app"), "clone")
	w.in("clone").whole()
}

func TestATokenForSomeRepositoriesFindsNoOther(t *testing.T) {
	t.Parallel()
	l, _ := startGit(t, holder{tenant: "acme", role: "admin"})
	narrowToken := l.addToken("narrow", "acme", "[ref:read, ref:write, ref:create, ref:admin, ref:force, task:create]\n    repos: [\"default/app-*\"]")
	l.stop()
	l.start()
	admin := l.git()
	narrow := admin
	narrow.token = narrowToken
	w := newWork(t, "2")
	id := w.commit("a", "1")
	for _, repo := range []string{"app-1", "lib"} {
		admin.makeRepo(repo, nil)
		w.git("push", "-q", admin.url(repo), "main")
	}
	w.git("push", "-q", narrow.url("app-1"), "main:refs/heads/b")
	w.git("clone", "-q", narrow.url("app-1"), "clone")
	for _, repo := range []string{"lib", "none"} {
		w.refuses("not found", "push", narrow.url(repo), "main:refs/heads/b")
		w.refuses("not found", "clone", narrow.url(repo), "clone-"+repo)
	}
	l.tokens = append(l.tokens, narrowToken)
	for _, c := range []*millrace.Client{l.client(1), l.client(1, millrace.Transport(millrace.TransportREST))} {
		ctx := bounded(t, 20*time.Second)
		if list, err := c.Repos(ctx); err != nil || len(list) != 1 || list[0].Name != "app-1" {
			t.Errorf("%v, %v", list, err)
		}
		ref := got[millrace.Ref](t)(c.Repo("app-1").Get(ctx, "refs/heads/b"))
		if ref.ID != id {
			t.Errorf("b is at %s", ref.ID)
		}
		var texts []string
		for _, name := range []string{"lib", "none"} {
			repo := c.Repo(name)
			_, info := repo.Info(ctx)
			_, get := repo.Get(ctx, "HEAD")
			_, list := repo.List(ctx, millrace.RefQuery{})
			_, update := repo.Update(ctx, millrace.CreateRef("refs/heads/x", id))
			_, session := repo.Session(ctx)
			_, remove := repo.Delete(ctx)
			commit := c.Commit(ctx, func(tx *millrace.Tx) { tx.Repo(name).Update("refs/heads/x", "", id) })
			texts = append(texts, strings.ReplaceAll(fmt.Sprint(info, get, list, update, session, remove, commit), name, "NAME"))
		}
		if texts[0] != texts[1] || strings.Count(texts[0], "repo_not_found") != 7 {
			t.Errorf("what is not the token's answers %s\nwhat is not there %s", texts[0], texts[1])
		}
		if _, err := c.Repo("other").Create(ctx, millrace.RepoSettings{}); !errors.Is(err, millrace.ErrNotFound) {
			t.Errorf("one that it would not reach is made: %v", err)
		}
	}
}

func TestSettingsOfARepositoryAreRefusedByName(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	c := l.client(0)
	ctx := t.Context()
	app := c.Repo("app")
	reason := func(what string, err error, code millrace.Code, field string) {
		t.Helper()
		e, ok := errors.AsType[*millrace.Error](err)
		if !ok || e.Code != code || e.Field != field && e.Reason != field && e.Limit != field {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []string{"", "a..b", "a:b", "a/b", ".a", "a.git", "a.lock", strings.Repeat("a", 129)} {
		_, err := c.Repo(bad).Create(ctx, millrace.RepoSettings{})
		if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Code != millrace.CodeInvalidArgument && e.Code != millrace.CodeTooLarge {
			t.Errorf("%q: %v", bad, err)
		}
	}
	got[millrace.RepoInfo](t)(app.Create(ctx, millrace.RepoSettings{}))
	_, err := app.Create(ctx, millrace.RepoSettings{})
	reason("made twice", err, millrace.CodeAlreadyExists, "repo_exists")
	_, err = c.Repo("none").Info(ctx)
	reason("none", err, millrace.CodeNotFound, "repo_not_found")
	first := got[millrace.RepoInfo](t)(app.Info(ctx)).Config.Version
	version := got[uint64](t)(app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{ReflogMax: 7}, IfVersion: &first}))
	_, err = app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{}, IfVersion: &first})
	e, ok := errors.AsType[*millrace.Error](err)
	if !ok || e.Code != millrace.CodePreconditionFailed || e.Details["rev"] != fmt.Sprint(version) || version != first+1 {
		t.Errorf("an old version: %v, of %d", err, version)
	}
	many := make([]millrace.RefRule, 65)
	for i := range many {
		many[i] = millrace.RefRule{Refs: "refs/**", Deny: []millrace.RefDeny{millrace.DenyForce}}
	}
	for field, config := range map[string]*millrace.RepoConfig{
		"config.reflog_days":        {ReflogDays: -1},
		"config.reflog_max":         {ReflogMax: 10_001},
		"config.max_bytes":          {MaxBytes: -1},
		"config.max_push":           {MaxPush: -1},
		"config.hide[0]":            {Hide: []string{""}},
		"config.rules[0].refs":      {Rules: []millrace.RefRule{{Deny: []millrace.RefDeny{millrace.DenyCreate}}}},
		"config.rules[0]":           {Rules: []millrace.RefRule{{Refs: "a"}}},
		"config.rules[0].queue":     {Rules: []millrace.RefRule{{Refs: "a", Only: millrace.OnlyAPI, Queue: "q"}}},
		"config.rules[0].except[0]": {Rules: []millrace.RefRule{{Refs: "a", Only: millrace.OnlyAPI, Except: []string{""}}}},
	} {
		_, err := app.Set(ctx, millrace.RepoSettings{Config: config})
		reason(field, err, millrace.CodeInvalidArgument, field)
	}
	_, err = app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{Rules: many}})
	reason("65 rules", err, millrace.CodeTooLarge, "rules")
	_, err = app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{Rules: many[:64]}})
	noErr(t, err)
	_, err = app.Set(ctx, millrace.RepoSettings{DefaultBranch: "a..b"})
	reason("branch", err, millrace.CodeInvalidArgument, "default_branch")

	// Archived: read-only, by both doors.
	w := newWork(t, "2")
	id := w.commit("a", "1")
	_, err = app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{}})
	noErr(t, err)
	w.git("push", "-q", host.url("app"), "main")
	_, err = app.Set(ctx, millrace.RepoSettings{Config: &millrace.RepoConfig{State: millrace.RepoArchived}})
	noErr(t, err)
	w.refuses("403", "push", host.url("app"), "main:refs/heads/b")
	_, err = app.Update(ctx, millrace.CreateRef("refs/heads/b", id))
	reason("archived", err, millrace.CodePreconditionFailed, "repo_read_only")
	w.git("clone", "-q", host.url("app"), "clone")
}

func TestWhereRefsAreNotServedNoDoorOfThemIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spy := filepath.Join(dir, "git")
	noErr(t, os.WriteFile(spy, []byte("#!/bin/sh\ntouch "+filepath.Join(dir, "started")+"\nexec false\n"), 0o700))
	l, host := startGit(t, holder{tenant: "acme", role: "admin"})
	host.makeRepo("app", nil)
	l.stop()
	l.services, l.program = []string{"queue"}, spy
	l.start()
	h := l.git()
	for _, door := range []struct{ method, path string }{
		{"GET", "/git/default/app.git/info/refs?service=git-upload-pack"},
		{"POST", "/git/default/app.git/git-upload-pack"},
		{"POST", "/git/default/app.git/git-receive-pack"},
		{"POST", "/v1/repos"},
		{"GET", "/v1/repos"},
		{"GET", "/v1/repos/app"},
		{"PUT", "/v1/repos/app"},
		{"DELETE", "/v1/repos/app"},
		{"POST", "/v1/repos/app/undelete"},
		{"GET", "/v1/repos/app/refs"},
		{"POST", "/v1/repos/app/refs"},
		{"POST", "/v1/repos/app/refs:get"},
		{"GET", "/v1/repos/app/refs/HEAD"},
		{"GET", "/v1/repos/app/reflog?name=HEAD"},
		{"GET", "/v1/repos/app/activity"},
		{"GET", "/v1/keyspaces"},
		{"GET", "/v1/kv/a/keys/b"},
		{"GET", "/v1/collections"},
		{"POST", "/v1/matrix/search"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), door.method, "http://"+h.http+door.path, strings.NewReader("{}"))
		noErr(t, err)
		req.Header.Set("Authorization", "Bearer "+h.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		noErr(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s %s: %d", door.method, door.path, resp.StatusCode)
		}
	}
	r := newRaw(t, h.grpc, h.token)
	for _, method := range []string{"RefService/GetRepo", "RefService/UpdateRefs", "KVService/Get", "SearchService/Search"} {
		if a := r.send(t, method, frame(nil)); a.status != 12 {
			t.Errorf("%s: status %d", method, a.status)
		}
	}
	for name, op := range map[string]*pb.Op{
		"refs":   {Op: &pb.Op_RefTransaction{RefTransaction: &pb.RefTransaction{Repo: "app"}}},
		"kv":     {Op: &pb.Op_KvPut{KvPut: &pb.KVPut{Keyspace: "a", Key: []byte("b")}}},
		"search": {Op: &pb.Op_VectorDelete{VectorDelete: &pb.VectorDelete{Collection: "c", Id: "i"}}},
	} {
		if a := r.call(t, "CommitService/Commit", &pb.CommitRequest{Ops: []*pb.Op{op}}); a.code() != "NOT_FOUND" {
			t.Errorf("an op of %s: %v", name, a.err())
		}
	}
	got[*millrace.Handle[string]](t)(upper.Add(t.Context(), l.client(0), "x"))
	if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
		t.Error("a program was started")
	}
	l.stop()
	l.services, l.program = nil, ""
	l.start()
	if repos, err := l.client(0).Repos(t.Context()); err != nil || len(repos) != 1 {
		t.Errorf("with refs again: %v, %v", repos, err)
	}
}
