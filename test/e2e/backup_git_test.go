package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/test/chaos/proc"
)

// objectsOf lists all objects of a repository.
func (w work) objectsOf(dir string) string {
	w.t.Helper()
	return w.in(dir).git("cat-file", "--batch-check", "--batch-all-objects", "--unordered", "--buffer")
}

// sorted sorts lines.
func sorted(text string) string {
	cmd := exec.Command("sort")
	cmd.Stdin = strings.NewReader(text)
	out, _ := cmd.Output()
	return string(out)
}

// restoredGit restores a backup, wants what it makes to be whole, and serves it.
func restoredGit(t *testing.T, from, tokens, secret string, shards int) gitHost {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if e := run(t, "restore", "--from", from, "--data", data); e.code != 0 {
		t.Fatalf("restore of %s ended with %d\n%s", from, e.code, e.out)
	}
	if e := run(t, "doctor", "--data", data); e.code != 0 || !strings.Contains(e.out, "repositories have objects") || !strings.Contains(e.out, "whole") {
		t.Errorf("doctor ended with %d\n%s", e.code, e.out)
	}
	r, err := startAt(bounded(t, 30*time.Second), server.Options{
		Dir: data, Listen: "127.0.0.1:0", Admin: "off", TokensFile: tokens, Memory: 128 << 20, Shards: shards,
	})
	noErr(t, err)
	t.Cleanup(func() { _ = r.Close(0) })
	return gitHost{t, r.HTTPAddress, r.Address, secret}
}

// clonesEqual wants a repository of two servers to have the same refs and the same objects, whole.
func (w work) clonesEqual(repo string, from, to gitHost) {
	w.t.Helper()
	w.clonesAlike(from.url(repo), repo+"-from", w.refsOf(from.url(repo)))
	w.clonesAlike(to.url(repo), repo+"-to", w.refsOf(from.url(repo)))
	if a, b := sorted(w.objectsOf(repo+"-from")), sorted(w.objectsOf(repo+"-to")); a != b || a == "" {
		w.t.Errorf("%s: the objects differ: %d and %d bytes of list", repo, len(a), len(b))
	}
}

// pushesOn pushes commits one by one, each to a branch of its own and to one that goes on, until stop is called or most have
// landed.
func pushesOn(t *testing.T, url string, most int) (stop func()) {
	t.Helper()
	w := newWork(t, "2")
	w.commit("f", "first")
	w.git("push", "-q", url, "main")
	done := make(chan struct{})
	var pusher sync.WaitGroup
	pusher.Go(func() {
		for i := range most {
			select {
			case <-done:
				return
			default:
			}
			w.commit(fmt.Sprint("f", i%5), fmt.Sprint(i))
			if out, err := w.try("push", "-q", url, "main", fmt.Sprint("main:refs/heads/b", i%9)); err != nil {
				t.Errorf("push %d: %s", i, out)
				return
			}
		}
	})
	return func() { close(done); pusher.Wait() }
}

func TestABackupHoldsTheObjectsOfRepositories(t *testing.T) {
	t.Parallel()
	s, host := serveGit(t, nil, "--admin", "127.0.0.1:0")
	h := host()
	makeThree(t, h)
	before := pushMany(t, h.url("busy"), 34) // from 32 on they are rolled up
	stop := pushesOn(t, h.url("busy"), 400)
	dir := t.TempDir()
	tokens := filepath.Join(filepath.Dir(s.DataDir()), "tokens.yaml")
	names := []string{"b", "b.tar"}
	backupWhilePacksAreRolledUp(t, s, h, filepath.Join(dir, names[0]))
	if e := millraceAs(t, h.grpc, h.token, "backup", "--to", filepath.Join(dir, names[1])); e.code != 0 {
		t.Fatalf("backup ended with %d\n%s\n%s", e.code, e.out, logOf(s))
	}
	for _, name := range names {
		to := filepath.Join(dir, name)
		if e := run(t, "backup", "verify", to); e.code != 0 || !strings.Contains(e.out, "3 repositories have objects") {
			t.Errorf("verify ended with %d\n%s", e.code, e.out)
		}
	}
	stop()
	last := newWork(t, "2").refsOf(h.url("busy"))
	for _, name := range names {
		to := restoredGit(t, filepath.Join(dir, name), tokens, h.token, 1)
		at := newWork(t, "2")
		at.clonesEqual("app", h, to)
		at.clonesEqual("lib", h, to)
		// As of some push: every ref has all its objects, and nothing that was pushed before is missing.
		refs := at.refsOf(to.url("busy"))
		at.clonesAlike(to.url("busy"), "busy", refs)
		if len(refs) < len(before) || len(refs) > len(last) {
			t.Errorf("%s: %d refs, between %d and %d were there", name, len(refs), len(before), len(last))
		}
		for ref, id := range before {
			if refs[ref] != id {
				t.Errorf("%s: %s is at %s, it was at %s before the backup", name, ref, refs[ref], id)
			}
		}
		at.commit("more", "1")
		at.git("push", "-q", to.url("lib"), "main:refs/heads/more") // it takes pushes as any server does
	}
}

// makeThree makes the repositories app, lib and busy, and fills the first two.
func makeThree(t *testing.T, h gitHost) work {
	t.Helper()
	for _, name := range []string{"app", "lib", "busy"} {
		h.makeRepo(name, nil)
	}
	w := newWork(t, "2")
	w.history(60)
	w.git("push", "-q", "--mirror", h.url("app"))
	w.git("push", "-q", h.url("lib"), "main~20:refs/heads/main", "v9")
	return w
}

// heldPacks waits until a server holds packs for a backup.
func heldPacks(t *testing.T, s *proc.Server) {
	t.Helper()
	eventually(t, "packs are held", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.DataDir(), "git", "held", "*", "whole", "*", "*"))
		return len(files) > 0
	})
}

// backupWhilePacksAreRolledUp takes a backup that has begun to read packs before a rollup, and ends after it.
func backupWhilePacksAreRolledUp(t *testing.T, s *proc.Server, h gitHost, to string) {
	t.Helper()
	rollups := func() float64 {
		m, err := s.Metrics(t.Context())
		noErr(t, err)
		return m["millrace_gitobj_rollups_total"]
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(bounded(t, 2*time.Minute), program, "backup", "--to", to, "--rate", "32KiB", "--server", h.grpc, "--token", h.token)
	cmd.Stdout, cmd.Stderr = &out, &out
	noErr(t, cmd.Start())
	heldPacks(t, s)
	noErr(t, cmd.Process.Signal(syscall.SIGSTOP)) // it goes on once packs were rolled up under it
	begun := rollups()
	eventually(t, "packs are rolled up", func() bool { return rollups() > begun })
	noErr(t, cmd.Process.Signal(syscall.SIGCONT))
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "files of git repositories") {
		t.Fatalf("backup: %v\n%s\n%s", err, out.String(), logOf(s))
	}
}

// pushMany pushes commits to branches of their own, some at a time, and returns where they are.
func pushMany(t *testing.T, url string, n int) map[string]string {
	t.Helper()
	var all sync.WaitGroup
	for k := range 2 {
		w := newWork(t, "2")
		all.Go(func() {
			for i := range n / 2 {
				w.commit("f", fmt.Sprint(k, "-", i))
				if out, err := w.try("push", "-q", url, fmt.Sprintf("main:refs/heads/kept/%d-%d", k, i)); err != nil {
					t.Errorf("push: %s", out)
					return
				}
			}
		})
	}
	all.Wait()
	refs := newWork(t, "2").refsOf(url)
	delete(refs, "HEAD") // it is shown at the first branch until main is there
	return refs
}

// A server that is killed while it is backed up: the command ends with an error and leaves no backup. The next one is whole,
// and the server holds nothing of the first.
func TestABackupOfAServerThatIsKilledIsTakenAgain(t *testing.T) {
	t.Parallel()
	s, host := serveGit(t, nil)
	h := host()
	w := makeThree(t, h)
	pushMany(t, h.url("busy"), 34)
	names := []string{"app", "lib", "busy"}
	dir := t.TempDir()
	held := filepath.Join(s.DataDir(), "git", "held")
	for _, name := range []string{"b", "b.tar"} {
		to := filepath.Join(dir, name)
		cmd := exec.CommandContext(bounded(t, time.Minute), program, "backup", "--to", to, "--rate", "4KiB", "--server", h.grpc, "--token", h.token)
		noErr(t, cmd.Start())
		heldPacks(t, s)
		s.Kill()
		if err := cmd.Wait(); err == nil {
			t.Error("the backup of a server that was killed ended well")
		}
		if e := run(t, "backup", "verify", to); e.code != 1 {
			t.Errorf("verify ended with %d\n%s", e.code, e.out)
		}
		if _, err := s.Start(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, logOf(s))
		}
		h = host()
		eventually(t, "the server has given up what it held", func() bool {
			names, err := os.ReadDir(held)
			return err == nil && len(names) == 0
		})
		if e := millraceAs(t, h.grpc, h.token, "backup", "--to", to); e.code != 0 {
			t.Fatalf("backup ended with %d\n%s", e.code, e.out)
		}
		if e := run(t, "backup", "verify", to); e.code != 0 {
			t.Errorf("verify ended with %d\n%s", e.code, e.out)
		}
	}
	to := restoredGit(t, filepath.Join(dir, "b.tar"), filepath.Join(filepath.Dir(s.DataDir()), "tokens.yaml"), h.token, 1)
	for _, name := range names {
		w.clonesEqual(name, h, to)
	}
}

// A node that lacks packs gives a backup that holds them: they come from the others.
func TestABackupOfANodeThatLacksPacksHoldsThem(t *testing.T) {
	t.Parallel()
	needGit(t)
	c := startCluster(t, 3, 2)
	w := newWork(t, "2")
	w.history(40)
	names := []string{"app", "lib", "more"}
	for i, name := range names {
		c.makeRepo(name)
		w.git("push", "-q", "--mirror", c.git(i).url(name))
		w.commit("own", name)
		w.git("push", "-q", c.git((i+1)%3).url(name), "main")
	}
	lost := (c.leader() + 1) % 3
	c.stop(lost)
	noErr(t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprint("n", lost+1), "git")))
	c.start(lost)
	to := filepath.Join(t.TempDir(), "b.tar")
	if e := millraceAs(t, c.peers[lost].API, c.token, "backup", "--to", to); e.code != 0 {
		t.Fatalf("backup ended with %d\n%s", e.code, e.out)
	}
	if e := run(t, "backup", "verify", to); e.code != 0 || !strings.Contains(e.out, "3 repositories have objects") {
		t.Errorf("verify ended with %d\n%s", e.code, e.out)
	}
	r := restoredGit(t, to, filepath.Join(c.dir, "tokens.yaml"), c.token, 2)
	for _, name := range names {
		w.clonesEqual(name, c.git(lost), r)
	}
}

// Backups of older programs hold no objects. Verifying or restoring one says so, and doctor does not call it whole.
func TestABackupOfAnOlderProgramIsNotCalledWhole(t *testing.T) {
	t.Parallel()
	l, h := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "operator"})
	for _, name := range []string{"app", "lib"} {
		h.makeRepo(name, nil)
		w := newWork(t, "2")
		w.commit("f", name)
		w.git("push", "-q", h.url(name), "main")
	}
	h.makeRepo("empty", nil)
	dir := t.TempDir()
	to, data := filepath.Join(dir, "b"), filepath.Join(dir, "data")
	if e := millraceAs(t, h.grpc, l.tokens[1], "backup", "--to", to); e.code != 0 {
		t.Fatalf("backup ended with %d\n%s", e.code, e.out)
	}
	b, err := server.OpenBackup(to)
	noErr(t, err)
	old := b.Manifest
	noErr(t, b.Close())
	old.Format, old.Objects = 1, backup.Objects{}
	noErr(t, os.RemoveAll(filepath.Join(to, "objects")))
	noErr(t, os.WriteFile(filepath.Join(to, "MANIFEST"), old.Append(nil), 0o600))

	const says = "2 repositories have no objects in this backup"
	if e := run(t, "backup", "verify", to); e.code != 24 || !strings.Contains(e.out, says) || strings.Contains(e.out, "whole") {
		t.Errorf("verify ended with %d\n%s", e.code, e.out)
	}
	if e := run(t, "restore", "--from", to, "--data", data); e.code != 24 || !strings.Contains(e.out, says) {
		t.Errorf("restore ended with %d\n%s", e.code, e.out)
	}
	if e := run(t, "doctor", "--data", data); e.code != 21 || strings.Count(e.out, "is missing") < 2 || strings.Contains(e.out, "\nwhole\n") {
		t.Errorf("doctor ended with %d\n%s", e.code, e.out)
	}
}

// A pack that is damaged on the only node that has it ends a backup, which names it, and doctor finds it.
func TestADamagedPackEndsABackup(t *testing.T) {
	t.Parallel()
	l, h := startGit(t, holder{tenant: "acme", role: "admin"}, holder{tenant: "acme", role: "operator"})
	h.makeRepo("app", nil)
	w := newWork(t, "2")
	w.commit("f", strings.Repeat("text\n", 100))
	w.git("push", "-q", h.url("app"), "main")
	l.stop()
	name := ""
	for _, f := range l.packFiles() {
		if strings.HasSuffix(f, ".pack") && strings.Contains(f, "objects") {
			name = f
		}
	}
	content, err := os.ReadFile(name)
	noErr(t, err)
	content[len(content)/2] ^= 4
	noErr(t, os.Remove(name))
	noErr(t, os.WriteFile(name, content, 0o600))
	if e := run(t, "doctor", "--data", filepath.Join(l.dir, "data")); e.code != 21 || !strings.Contains(e.out, filepath.Base(name)) {
		t.Errorf("doctor ended with %d\n%s", e.code, e.out)
	}
	l.start()
	to := filepath.Join(t.TempDir(), "b")
	if e := millraceAs(t, l.git().grpc, l.tokens[1], "backup", "--to", to); e.code != 1 || !strings.Contains(e.out, filepath.Base(name)) {
		t.Errorf("backup ended with %d\n%s", e.code, e.out)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}
