package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// way is how a client reaches the server.
type way struct {
	name string
	opts []millrace.Option
}

// byEachWay runs a test over gRPC and over REST.
func byEachWay(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range []way{{"grpc", nil}, {"rest", []millrace.Option{millrace.Transport(millrace.TransportREST)}}} {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

// refRepo makes a repository that holds a chain of commits, pushed by git. Its name ends in that of the way.
func refRepo(t *testing.T, w way, name string, commits int) (*millrace.Client, millrace.Repo, []string) {
	t.Helper()
	name += "-" + w.name
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	c := dial(t, w.opts...)
	repo := c.Repo(name)
	if _, err := repo.Create(t.Context(), millrace.RepoSettings{}); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	dir := filepath.Join(home, "src.git")
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"--git-dir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Fatalf("git %v: %s", args, exit.Stderr)
			}
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "--bare")
	tree := git("mktree")
	var ids, parent []string
	for i := range commits {
		id := git(append([]string{"commit-tree", "-m", fmt.Sprint(i), tree}, parent...)...)
		ids, parent = append(ids, id), []string{"-p", id}
	}
	git("update-ref", "refs/keep/tip", ids[len(ids)-1])
	git("push", "-q", "http://x:"+os.Getenv("MILLRACE_TOKEN")+"@"+os.Getenv("MILLRACE_REST_URL")+"/git/default/"+name+".git", "refs/keep/tip:refs/keep/tip")
	return c, repo, ids
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var e *millrace.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e.Reason
}

func TestTransactionsOfRefsAreAllOrNothing(t *testing.T) { byEachWay(t, transactionsOfRefs) }

func transactionsOfRefs(t *testing.T, by way) {
	t.Helper()
	_, repo, ids := refRepo(t, by, "txn", 3)
	out, err := repo.Update(t.Context(), millrace.CreateRef("refs/heads/main", ids[0]), millrace.CreateRef("refs/tags/v1", ids[1]))
	if err != nil || out.Results[0].New != ids[0] || out.Rev == 0 {
		t.Fatalf("got %+v, %v", out, err)
	}
	_, err = repo.Update(t.Context(), millrace.MoveRef("refs/heads/main", ids[0], ids[1]), millrace.MoveRef("refs/tags/v1", ids[0], ids[2]))
	var e *millrace.Error
	if !errors.As(err, &e) || e.Reason != "ref_mismatch" || !errors.Is(err, millrace.ErrPrecondition) || e.Details["actual"] != ids[1] {
		t.Fatalf("a stale old value: %v", err)
	}
	if ref, err := repo.Get(t.Context(), "refs/heads/main"); err != nil || ref.ID != ids[0] || ref.Type != "commit" {
		t.Errorf("main is %+v, %v", ref, err)
	}
	for want, change := range map[string]millrace.RefChange{
		"ref_exists":     millrace.CreateRef("refs/heads/main", ids[1]),
		"ref_not_found":  millrace.DeleteRef("refs/heads/none", ""),
		"ref_name":       millrace.CreateRef("refs/heads/a..b", ids[1]),
		"ref_conflict":   millrace.CreateRef("refs/heads/main/x", ids[1]),
		"object_missing": millrace.CreateRef("refs/heads/x", strings.Repeat("1", 40)),
	} {
		if _, err := repo.Update(t.Context(), change); reasonOf(t, err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	both := []millrace.RefChange{millrace.SetRef("refs/heads/main", ids[1]), millrace.SetRef("HEAD", ids[2])}
	if _, err := repo.Update(t.Context(), both...); reasonOf(t, err) != "ref_duplicate" {
		t.Errorf("a name twice through HEAD: %v", err)
	}
	part, err := repo.Apply(t.Context(), millrace.RefUpdate{AllowPartial: true, Changes: []millrace.RefChange{
		millrace.MoveRef("refs/heads/main", ids[0], ids[2]), millrace.CreateRef("refs/tags/v1", ids[2]),
	}})
	if err != nil || part.Results[0].New != ids[2] || part.Results[1].Err == nil || part.Results[1].Err.Reason != "ref_exists" {
		t.Errorf("partial: %+v, %v", part, err)
	}
	entry, err := repo.ReflogAt(t.Context(), "refs/heads/main", 0)
	if err != nil || entry.Old != ids[0] || entry.New != ids[2] || entry.Cause != "request" {
		t.Errorf("the newest record is %+v, %v", entry, err)
	}
}

func TestSessionsOfRefsCarryManyTransactions(t *testing.T) { byEachWay(t, sessionsOfRefs) }

func sessionsOfRefs(t *testing.T, by way) {
	t.Helper()
	_, repo, ids := refRepo(t, by, "session", 2)
	s, err := repo.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it never fails
	const clients, each = 16, 20
	var wait sync.WaitGroup
	for n := range clients {
		wait.Go(func() {
			name := fmt.Sprintf("refs/heads/c%d", n)
			old := ""
			for i := range each {
				tx := s.Begin()
				tx.Update(name, old, ids[i%2])
				if _, err := tx.Commit(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				old = ids[i%2]
			}
		})
	}
	// Meanwhile every list and every batch shows one instant: all its refs have at most its rev.
	for range 20 {
		set, err := repo.List(t.Context(), millrace.RefQuery{Prefix: "refs/heads/"})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(set.Refs, func(r millrace.Ref) bool { return r.Rev > set.Rev }) {
			t.Fatalf("a list of rev %d shows a later ref: %+v", set.Rev, set.Refs)
		}
	}
	wait.Wait()
	info, err := repo.Info(t.Context())
	if err != nil || info.Rev < clients*each {
		t.Errorf("got %+v, %v", info, err)
	}
	tx := s.Begin()
	tx.Create("refs/heads/c0", ids[0])
	tx.Create("refs/heads/c1", ids[0])
	_, err = tx.Commit(t.Context())
	var e *millrace.Error
	if !errors.As(err, &e) || e.Reason != "ref_exists" || len(e.Failures) != 2 || e.Failures[1].Change != 1 {
		t.Errorf("got %v, %+v, want both failures", err, e)
	}
}

func TestLoadsOfRefsTellWhatFailed(t *testing.T) { byEachWay(t, loadsOfRefs) }

func loadsOfRefs(t *testing.T, by way) {
	t.Helper()
	_, repo, ids := refRepo(t, by, "load", 2)
	const n = 3500
	out, err := repo.Load(t.Context(), func(yield func(millrace.RefChange) bool) {
		for i := range n {
			id := ids[i%2]
			if i == 2001 {
				id = strings.Repeat("1", 40)
			}
			if !yield(millrace.CreateRef(fmt.Sprintf("refs/tags/t%05d", i), id)) {
				return
			}
		}
	})
	if err != nil || out.Changed != n-1 || len(out.Failures) != 1 || out.Failures[0].Change != 2001 || out.Failures[0].Reason != "object_missing" {
		t.Fatalf("got %+v, %v", out, err)
	}
	set, err := repo.List(t.Context(), millrace.RefQuery{Prefix: "refs/tags/"})
	if err != nil || len(set.Refs) != n-1 || !slices.IsSortedFunc(set.Refs, func(a, b millrace.Ref) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatalf("%d refs, %v", len(set.Refs), err)
	}
	page, err := repo.List(t.Context(), millrace.RefQuery{Globs: []string{"refs/tags/t0000*"}, PointsAt: ids[1], Limit: 3})
	if err != nil || len(page.Refs) != 3 || page.Refs[2].Name != "refs/tags/t00005" {
		t.Errorf("got %+v, %v", page.Refs, err)
	}
}

func TestRulesAndStatesOfRepositoriesRefuse(t *testing.T) { byEachWay(t, rulesOfRepositories) }

func rulesOfRepositories(t *testing.T, by way) {
	t.Helper()
	c, repo, ids := refRepo(t, by, "rules", 3)
	if _, err := repo.Update(t.Context(), millrace.CreateRef("refs/heads/main", ids[1]), millrace.CreateRef("refs/secret/a", ids[0])); err != nil {
		t.Fatal(err)
	}
	config := &millrace.RepoConfig{Rules: nil, Hide: []string{"refs/secret/**"}}
	version, err := repo.Set(t.Context(), millrace.RepoSettings{Config: config, DefaultBranch: "trunk"})
	if err != nil || version != 2 {
		t.Fatalf("version %d, %v", version, err)
	}
	stale := uint64(1)
	if _, err := repo.Set(t.Context(), millrace.RepoSettings{Config: config, IfVersion: &stale}); !errors.Is(err, millrace.ErrPrecondition) {
		t.Errorf("an old version: %v", err)
	}
	info, err := repo.Info(t.Context())
	if err != nil || info.DefaultBranch != "trunk" {
		t.Errorf("got %+v, %v", info, err)
	}
	config.State = millrace.RepoArchived
	if _, err := repo.Set(t.Context(), millrace.RepoSettings{Config: config}); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Update(t.Context(), millrace.SetRef("refs/heads/main", ids[2])); reasonOf(t, err) != "repo_read_only" {
		t.Errorf("archived: %v", err)
	}
	id, err := repo.Delete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Info(t.Context()); reasonOf(t, err) != "repo_not_found" {
		t.Errorf("deleted: %v", err)
	}
	if _, err := repo.Create(t.Context(), millrace.RepoSettings{}); err != nil {
		t.Fatal(err)
	}
	if set, err := repo.List(t.Context(), millrace.RefQuery{}); err != nil || len(set.Refs) != 1 {
		t.Errorf("the new one has %+v, %v", set.Refs, err)
	}
	if _, err := repo.Update(t.Context(), millrace.CreateRef("refs/heads/main", ids[1])); reasonOf(t, err) != "object_missing" {
		t.Errorf("an object of the old one: %v", err)
	}
	if _, err := repo.Undelete(t.Context(), id); reasonOf(t, err) != "repo_exists" {
		t.Errorf("the name is taken: %v", err)
	}
	if _, err := repo.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Undelete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if ref, err := repo.Get(t.Context(), "refs/heads/main"); err != nil || ref.ID != ids[1] {
		t.Errorf("main is %+v, %v", ref, err)
	}
	if _, err := c.Repo("a.git").Create(t.Context(), millrace.RepoSettings{}); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a bad name: %v", err)
	}
}

func TestACompletionMovesRefsUnderItsLease(t *testing.T) { byEachWay(t, completionsOfRefs) }

func completionsOfRefs(t *testing.T, by way) {
	t.Helper()
	c, repo, ids := refRepo(t, by, "effects", 2)
	job := millrace.Job[int, int]("move-refs-" + by.name)
	w := c.Worker()
	job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		task.Effects().Repo("effects-"+by.name).Update("refs/heads/main", "", ids[n])
		return n, nil
	})
	run(t, w)
	h, err := job.Add(t.Context(), c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := repo.Reflog(t.Context(), "refs/heads/main", 10)
	if err != nil || len(entries) != 1 || entries[0].New != ids[1] || entries[0].Cause != "task" || entries[0].Task != h.ID {
		t.Errorf("got %+v, %v", entries, err)
	}
}
