package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAClonesWorkTreeIsThatOfTheFirstBranch pushes to repositories that were made with the branch main, as people do whose
// histories have another one.
func TestAClonesWorkTreeIsThatOfTheFirstBranch(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	repo := l.client(0).Repo("api")
	w := newWork(t, "2")
	w.commit("first", "1")
	for name, push := range map[string]func(url string){
		"master": func(url string) { w.git("push", "-q", url, "main:master") },
		"trunk": func(url string) {
			w.git("push", "-q", url, "main:trunk")
			w.git("push", "-q", url, "main:master", "main:a")
		},
		"topic/one": func(url string) {
			w.git("push", "-q", "--atomic", url, "main:refs/heads/topic/one", "main:refs/tags/v1")
		},
		"api": func(url string) {
			w.git("push", "-q", url, "main:refs/keep/main")
			if reason, _ := refsByAPI(t, repo, "refs/heads/api", "", w.git("rev-parse", "main")); reason != "" {
				t.Errorf("create by the API: %s", reason)
			}
		},
	} {
		app := strings.ReplaceAll(name, "/", "-")
		host.makeRepo(app, nil)
		url := host.url(app)
		for _, version := range gitVersions {
			c := newWork(t, version)
			c.git("clone", url, "empty")
			if head := c.in("empty").git("symbolic-ref", "HEAD"); version == "2" && head != "refs/heads/main" {
				t.Errorf("%s, version %s: the clone of nothing is on %s", name, version, head)
			}
		}
		push(url)
		for _, version := range gitVersions {
			c := newWork(t, version)
			out := c.git("clone", url, "clone")
			if head := c.in("clone").git("symbolic-ref", "HEAD"); head != "refs/heads/"+name || strings.Contains(out, "warning") {
				t.Errorf("%s, version %s: the clone is on %s\n%s", name, version, head, out)
			}
			if _, err := os.Stat(filepath.Join(c.dir, "clone", "first")); err != nil {
				t.Errorf("%s, version %s: the clone has no work tree: %v", name, version, err)
			}
			if out := c.git("ls-remote", "--symref", url, "HEAD"); !strings.HasPrefix(out, "ref: refs/heads/"+name+"\tHEAD\n") {
				t.Errorf("%s, version %s: HEAD is %q", name, version, out)
			}
		}
	}
	url := host.url("master")
	w.git("push", "-q", url, "main") // from here on what HEAD points to is there
	if out := w.git("ls-remote", "--symref", url, "HEAD"); !strings.HasPrefix(out, "ref: refs/heads/main\t") {
		t.Errorf("HEAD is %q when there is a main", out)
	}
}

// leadsTo wants HEAD of a repository to be shown at a branch, in each version of the protocol, and a clone to be on it.
func (w work) leadsTo(url, branch string) {
	w.t.Helper()
	for _, version := range gitVersions {
		c := newWork(w.t, version)
		if out := c.git("ls-remote", "--symref", url, "HEAD"); !strings.HasPrefix(out, "ref: "+branch+"\tHEAD\n") {
			w.t.Errorf("version %s: HEAD is %q, not at %s", version, out, branch)
		}
		c.git("clone", "-q", url, "clone")
		if head := c.in("clone").git("symbolic-ref", "HEAD"); head != branch {
			w.t.Errorf("version %s: the clone is on %s, not %s", version, head, branch)
		}
		if _, err := os.Stat(filepath.Join(c.dir, "clone", "first")); err != nil {
			w.t.Errorf("version %s: the clone has no work tree: %v", version, err)
		}
	}
}

// TestHeadLeadsToTheFirstBranchWhicheverDoorMadeIt fills repositories whose objects are there by loads, transactions, sessions and
// effects of commits.
func TestHeadLeadsToTheFirstBranchWhicheverDoorMadeIt(t *testing.T) {
	t.Parallel()
	l, host := startGit(t)
	w := newWork(t, "2")
	id := w.commit("first", "1")
	c := l.client(0)
	two := []millrace.RefChange{millrace.CreateRef("refs/heads/trunk", id), millrace.CreateRef("refs/heads/a", id)}
	for name, fill := range map[string]func(repo millrace.Repo) error{
		"load": func(repo millrace.Repo) error {
			_, err := repo.Load(bounded(t, 20*time.Second), slices.Values(two))
			return err
		},
		"transaction": func(repo millrace.Repo) error {
			_, err := repo.Update(bounded(t, 20*time.Second), two...)
			return err
		},
		"rest": func(millrace.Repo) error {
			body := `{"changes":[{"kind":"create","name":"refs/heads/trunk","new":"` + id + `"},{"kind":"create","name":"refs/heads/a","new":"` + id + `"}]}`
			r, err := http.NewRequestWithContext(bounded(t, 20*time.Second), http.MethodPost, "http://"+host.http+"/v1/repos/rest/refs", strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+host.token)
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		},
		"effects": func(millrace.Repo) error {
			job := millrace.Job[string, string]("branch")
			k := c.Worker(millrace.Slots(1))
			job.Handle(k, func(_ context.Context, task *millrace.Task, _ string) (string, error) {
				task.Effects().Repo("effects").Apply(two...)
				return "", nil
			})
			defer working(t, k)()
			h, err := job.Add(bounded(t, 20*time.Second), c, "")
			if err == nil {
				_, err = h.Wait(bounded(t, 20*time.Second))
			}
			return err
		},
	} {
		host.makeRepo(name, nil)
		url := host.url(name)
		w.git("push", "-q", url, id+":refs/keep/first")
		noErr(t, fill(c.Repo(name)))
		w.leadsTo(url, "refs/heads/trunk")
	}
}

// TestEachNodeShowsHeadAtTheFirstBranch asks followers too.
func TestEachNodeShowsHeadAtTheFirstBranch(t *testing.T) {
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 1)
	c.makeRepo("app")
	w := newWork(t, "2")
	id := w.commit("first", "1")
	w.git("push", "-q", c.git(0).url("app"), id+":refs/keep/first")
	_, err := c.client(1).Repo("app").Update(bounded(t, 20*time.Second), millrace.CreateRef("refs/heads/topic", id))
	noErr(t, err)
	_, err = c.client(2).Repo("app").Update(bounded(t, 20*time.Second), millrace.CreateRef("refs/heads/other", id))
	noErr(t, err)
	for i := range 3 {
		w.leadsTo(c.git(i).url("app"), "refs/heads/topic")
	}
}
