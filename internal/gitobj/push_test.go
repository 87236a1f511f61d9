package gitobj

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// type of an object, which must be found without an error.
func (r *rig) typeOf(id core.ObjectID) core.ObjectType {
	r.t.Helper()
	kind, _, err := r.Lookup(r.t.Context(), place, id)
	if err != nil {
		r.t.Errorf("look %s up: %v", id, err)
	}
	return kind
}

// settled waits for what is done in the background.
func (r *rig) settled() {
	done := make(chan struct{})
	r.work <- func() { close(done) }
	<-done
}

func TestAPushThatLeansOnAnEarlierOneIsTaken(t *testing.T) {
	r, s := newRig(t), newSource(t)
	first := s.commit("a", strings.Repeat("some text that is long enough\n", 100))
	if err := r.push(s.pack("main"), []core.ObjectID{first}); err != nil {
		t.Fatal(err)
	}
	second := s.commit("a", strings.Repeat("some text that is long enough\n", 99)+"end\n")
	if err := r.push(s.pack("main", "^main~1"), []core.ObjectID{second}); err != nil {
		t.Fatal(err)
	}
	if r.typeOf(second) != core.ObjectCommit || r.typeOf(s.id("main:a")) != core.ObjectBlob || r.typeOf(s.id("main~1^{tree}")) != core.ObjectTree {
		t.Error("not all is there")
	}
	r.settled()
	if files := r.files(); len(files) != 4 || slices.ContainsFunc(files, func(f string) bool { return !strings.HasPrefix(f, "objects/pack/pack-") }) {
		t.Errorf("left are %q", files)
	}
}

func TestAPackThatIsNotWholeIsRefusedAndLeavesNothing(t *testing.T) {
	r, s := newRig(t), newSource(t)
	s.commit("a", strings.Repeat("some text that is long enough\n", 100))
	id := s.commit("a", strings.Repeat("some text that is long enough\n", 99)+"end\n")
	good := s.pack("main")
	bad := map[string][]byte{
		"nothing":        {},
		"no pack":        []byte("0123456789012345678901234567890123456789"),
		"half a header":  good[:7],
		"cut":            good[:len(good)/2],
		"cut by a byte":  good[:len(good)-1],
		"trailing bytes": append(bytes.Clone(good), "garbage"...),
		"many of them":   append(bytes.Clone(good), make([]byte, 1<<20)...),
		"another pack":   append(bytes.Clone(good), good...),
		"flipped":        flip(good, len(good)/2),
		"count too high": count(good, 1<<31),
		"version 3":      flip(good, 7),
		"missing base":   s.pack("main", "^main~1"),
	}
	for name, pack := range bad {
		if err := r.push(pack, []core.ObjectID{id}); !errors.As(err, new(*FailedError)) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), r.dir) {
			t.Errorf("%s: the error shows a path: %v", name, err)
		}
	}
	if files := r.files(); len(files) != 0 {
		t.Errorf("left are %q", files)
	}
	if err := r.push(good, []core.ObjectID{id}); err != nil {
		t.Errorf("a good one after them: %v", err)
	}
}

func flip(b []byte, at int) []byte {
	out := bytes.Clone(b)
	out[at] ^= 1
	return out
}

func count(b []byte, n uint32) []byte {
	out := bytes.Clone(b)
	binary.BigEndian.PutUint32(out[8:], n)
	return out
}

func TestAPackLargerThanAllowedIsRefused(t *testing.T) {
	r, s := newRig(t), newSource(t)
	var noise strings.Builder
	for i := range 2000 {
		sum := sha1.Sum([]byte{byte(i), byte(i >> 8)})
		noise.Write(sum[:])
	}
	s.commit("a", noise.String())
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Receive(t.Context(), bytes.NewReader(s.pack("main"))); err != (core.TooLarge{Field: "pack", Limit: "max_push", Max: 20_000}) { //nolint:errorlint // it is the fact itself
		t.Errorf("%v", err)
	}
}

func TestAPackWithoutObjectsIsNone(t *testing.T) {
	r := newRig(t)
	head := append([]byte("PACK"), 0, 0, 0, 2, 0, 0, 0, 0)
	sum := sha1.Sum(head)
	if err := r.push(append(head, sum[:]...), nil); err != nil {
		t.Errorf("%v", err)
	}
	if err := r.push(append(head, make([]byte, 20)...), nil); !errors.As(err, new(*FailedError)) {
		t.Errorf("with a wrong sum: %v", err)
	}
	if files := r.files(); len(files) != 0 {
		t.Errorf("left are %q", files)
	}
}

func TestObjectsThatNeedWhatIsNotThereAreRefused(t *testing.T) {
	r, s := newRig(t), newSource(t)
	s.commit("a", "1")
	second := s.commit("b", "2")
	// All objects of the second commit, and its parent's id, but not the parent.
	err := r.push([]byte(must(s.try(second.String()+"\n"+s.git("rev-parse", "HEAD^{tree}")+"\n", "pack-objects", "--stdout", "-q"))), []core.ObjectID{second})
	if !errors.As(err, new(*FailedError)) {
		t.Errorf("%v", err)
	}
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.hasAll(t.Context(), second); !errors.Is(err, errMissing) {
		t.Errorf("without a pack: %v", err)
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(s)
	}
	return s
}

func TestWhatIsKeptIsSeenByNobodyBeforeItIsPublished(t *testing.T) {
	r, s := newRig(t), newSource(t)
	id := s.commit("a", "1")
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Receive(t.Context(), bytes.NewReader(s.pack("main"))); err != nil {
		t.Fatal(err)
	}
	kept, at, ok, err := p.Keep(t.Context())
	if err != nil || !ok || at != 1_000_000 || kept.Objects != 3 {
		t.Fatalf("%+v %d %v %v", kept, at, ok, err)
	}
	if kind, _, err := p.Lookup(t.Context(), id); kind != core.ObjectCommit || err != nil {
		t.Errorf("the push finds a %s, %v", kind, err)
	}
	if kind := r.typeOf(id); kind != core.ObjectMissing {
		t.Errorf("another finds a %s", kind)
	}
	p2, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := p2.hasAll(t.Context(), id); !errors.Is(err, errMissing) {
		t.Errorf("another push may lean on it: %v", err)
	}
	p2.Close()
	r.m.add(place, kept)
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if kind := r.typeOf(id); kind != core.ObjectCommit {
		t.Errorf("published, it is a %s", kind)
	}
}

// staged leaves a pack kept and the area as a killed process would.
func (r *rig) staged(s source, revs ...string) core.Pack {
	r.t.Helper()
	p, err := r.Begin(r.t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Receive(r.t.Context(), bytes.NewReader(s.pack(revs...))); err != nil {
		r.t.Fatal(err)
	}
	kept, _, _, err := p.Keep(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	_ = p.pack.close()
	return kept
}

func TestAfterARestartTheManifestSaysWhichStagedPacksAreTaken(t *testing.T) {
	r, s := newRig(t), newSource(t)
	named := s.commit("a", "1")
	r.m.add(place, r.staged(s, "main"))
	orphan := s.commit("b", "2")
	r.staged(s, "main", "^main~1")
	r.restart()
	r.settled()
	if r.typeOf(named) != core.ObjectCommit || r.typeOf(orphan) != core.ObjectMissing {
		t.Errorf("named %s, orphan %s", r.typeOf(named), r.typeOf(orphan))
	}
	if i := slices.IndexFunc(r.files(), func(f string) bool { return strings.HasPrefix(f, incomingDir) }); i >= 0 {
		t.Errorf("left is %s", r.files()[i])
	}
	sweep := func(after core.ShardTime) (staged int) {
		r.m.set(func() { r.m.now = 1_000_000 + after })
		if err := r.Sweep(t.Context(), true); err != nil {
			t.Error(err)
		}
		for _, f := range r.files() {
			if strings.HasPrefix(f, stagedDir) {
				staged++
			}
		}
		return staged
	}
	if n := sweep(3_600_000); n != 4 {
		t.Errorf("%d staged files within the hour", n)
	}
	if n := sweep(3_600_001); n != 0 {
		t.Errorf("%d staged files after it", n)
	}
	if r.typeOf(named) != core.ObjectCommit {
		t.Error("what the manifest names is gone")
	}
}

func TestARepositoryThatIsGoneIsRemovedAndNoOther(t *testing.T) {
	r, s := newRig(t), newSource(t)
	id := s.commit("a", "1")
	if err := r.push(s.pack("main"), []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	if err := r.Sweep(t.Context(), true); err != nil || r.typeOf(id) != core.ObjectCommit {
		t.Fatalf("%v, it is a %s", err, r.typeOf(id))
	}
	r.settled()
	r.m.set(func() { r.m.gone[place] = true })
	if err := r.Sweep(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, place.path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

func TestADamagedPackIsNeverReadFrom(t *testing.T) {
	r, s := newRig(t), newSource(t)
	id := s.commit("a", "1")
	if err := r.push(s.pack("main"), []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	r.settled()
	files := r.files()
	for _, f := range files {
		name := filepath.Join(r.dir, place.path(), f)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for what, bad := range map[string][]byte{"flipped": flip(content, len(content)/2), "cut": content[:len(content)-1], "missing": nil} {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
			if bad != nil {
				if err := os.WriteFile(name, bad, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r.restart()
			if _, _, err := r.Lookup(t.Context(), place, id); !errors.As(err, new(*DamagedError)) {
				t.Errorf("%s %s: look-up says %v", f, what, err)
			}
			if err := r.Prepare(t.Context(), place); !errors.As(err, new(*DamagedError)) {
				t.Errorf("%s %s: fetch says %v", f, what, err)
			}
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.restart()
	if r.typeOf(id) != core.ObjectCommit {
		t.Error("whole again, it is not read")
	}
}

func TestWithoutRoomNoPackIsTaken(t *testing.T) {
	r := newRig(t)
	r.disk.mu.Lock()
	r.disk.free = packReserve - 1
	r.disk.mu.Unlock()
	_, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if f, ok := errors.AsType[core.Exhausted](err); !ok || f.Limit != "disk" {
		t.Errorf("%v", err)
	}
}

func TestAfterAFailedSyncNoMorePacksAreTaken(t *testing.T) {
	r, s := newRig(t), newSource(t)
	first := s.commit("a", "1")
	if err := r.push(s.pack("main"), []core.ObjectID{first}); err != nil {
		t.Fatal(err)
	}
	r.settled()
	second := s.commit("a", "2")
	r.disk.failing.Store(true)
	if err := r.push(s.pack("main", "^main~1"), []core.ObjectID{second}); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	r.disk.failing.Store(false)
	err := r.push(s.pack("main", "^main~1"), []core.ObjectID{second})
	if f, ok := errors.AsType[core.Unavailable](err); !ok || f.Reason != "pack_unavailable" || !r.Stats().Broken {
		t.Errorf("the next push: %v", err)
	}
	if r.typeOf(first) != core.ObjectCommit || r.typeOf(second) != core.ObjectMissing || len(r.files()) != 2 {
		t.Errorf("first %s, second %s, files %q", r.typeOf(first), r.typeOf(second), r.files())
	}
	if err := r.Prepare(t.Context(), place); err != nil {
		t.Errorf("a fetch: %v", err)
	}
	r.restart()
	if err := r.push(s.pack("main", "^main~1"), []core.ObjectID{second}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestAncestry asks at each stage of a push, of what it brought and of what was there before it.
// onlyOf is the answer of one move.
func onlyOf(all []core.Ancestry, err error) (core.Ancestry, error) {
	if err != nil || len(all) != 1 {
		return core.AncestryUnknown, err
	}
	return all[0], nil
}

func TestAncestry(t *testing.T) {
	r, s := newRig(t), newSource(t)
	old := s.commit("a", "0")
	if err := r.push(s.pack("main"), []core.ObjectID{old}); err != nil {
		t.Fatal(err)
	}
	first := s.commit("a", "1")
	second := s.commit("a", "2")
	s.git("checkout", "-q", "-b", "side", "HEAD~1")
	side := s.commit("a", "3")
	s.git("tag", "-a", "-m", "m", "t", "main")
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Receive(t.Context(), bytes.NewReader(s.pack("--all", "^"+old.String()))); err != nil {
		t.Fatal(err)
	}
	ask := func(when string, ancestry func(from, to core.ObjectID) (core.Ancestry, error)) {
		t.Helper()
		for _, c := range []struct {
			from, to core.ObjectID
			want     core.Ancestry
		}{
			{first, second, core.FastForward},
			{old, second, core.FastForward},
			{first, first, core.FastForward},
			{second, first, core.Forced},
			{second, old, core.Forced},
			{second, side, core.Forced},
			{first, s.id("t"), core.Forced},
		} {
			if got, err := ancestry(c.from, c.to); got != c.want || err != nil {
				t.Errorf("%s: %s to %s: %d, %v; want %d", when, c.from, c.to, got, err, c.want)
			}
		}
	}
	ofPush := func(from, to core.ObjectID) (core.Ancestry, error) {
		return onlyOf(p.Ancestry(t.Context(), []core.Move{{From: from, To: to}}))
	}
	ofRepo := func(from, to core.ObjectID) (core.Ancestry, error) {
		return onlyOf(r.Ancestry(t.Context(), place, 1, []core.Move{{From: from, To: to}}))
	}
	ask("received", ofPush)
	kept, _, _, err := p.Keep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask("kept", ofPush)
	if got, err := ofRepo(old, second); err != nil || got != core.Forced {
		t.Errorf("what is not published yet, asked of the repository: %d, %v", got, err)
	}
	r.m.add(place, kept)
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	ask("published", ofPush)
	ask("of the repository", ofRepo)
	r.forgetRepos()
	ask("of a repository that is not held any more", ofRepo)
	p.Close()
	r.settled()
	if files := r.files(); len(files) != 4 {
		t.Errorf("left are %q", files)
	}
	r.restart()
	ask("after a restart", ofRepo)
}

// TestAncestryOfAPackThatCameJustNow asks about a commit whose pack the manifest has named since the repository was last used.
func TestAncestryOfAPackThatCameJustNow(t *testing.T) {
	r, s := newRig(t), newSource(t)
	old := s.commit("a", "0")
	if err := r.push(s.pack("main"), []core.ObjectID{old}); err != nil {
		t.Fatal(err)
	}
	next := s.commit("a", "1")
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Receive(t.Context(), bytes.NewReader(s.pack("main", "^"+old.String()))); err != nil {
		t.Fatal(err)
	}
	kept, _, _, err := p.Keep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.m.add(place, kept) // applied, and not published: as at another node, or after a failure
	p.Abandon()
	if got, err := onlyOf(r.Ancestry(t.Context(), place, 1, []core.Move{{From: next, To: old}})); got != core.Forced || err != nil {
		t.Errorf("back to the old commit: %d, %v", got, err)
	}
	if got, err := onlyOf(r.Ancestry(t.Context(), place, 1, []core.Move{{From: old, To: next}})); got != core.FastForward || err != nil {
		t.Errorf("ahead to the new one: %d, %v", got, err)
	}
}

// forgetRepos has the area hold no repository in memory, as when many others were used since. What was looked up is remembered.
func (r *rig) forgetRepos() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.repos)
}

// TestNoObjectIsTakenWithoutAllItLinksTo leaves one object out of a pack, each in turn. The pack must be refused, whatever
// links to the object, and whether or not the pushed id does. So stored objects are complete, and no later walk must check.
func TestNoObjectIsTakenWithoutAllItLinksTo(t *testing.T) {
	s := newSource(t)
	s.commit("a", "1")
	s.commit("b", "2")
	s.git("tag", "-a", "-m", "m", "t", "HEAD")
	tag := s.id("t")
	whole, id := rootPack(t, "whole by itself", core.ObjectID{})
	objects := strings.Fields(s.git("rev-list", "--objects", "--no-object-names", "t"))
	objects = append(objects, tag.String())
	packOf := func(ids []string) []byte {
		return []byte(must(s.try(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", "-q")))
	}
	for i, left := range objects {
		if left == tag.String() {
			continue // nothing links to it
		}
		r := newRig(t)
		if err := r.push(whole, []core.ObjectID{id}); err != nil {
			t.Fatal(err)
		}
		rest := slices.Delete(slices.Clone(objects), i, i+1)
		if err := r.push(packOf(rest), []core.ObjectID{id}); !errors.As(err, new(*FailedError)) {
			t.Errorf("without %s %s: %v", s.git("cat-file", "-t", left), left, err)
		}
		if err := r.push(packOf([]string{left}), nil); s.git("cat-file", "-t", left) == "blob" && err != nil {
			t.Errorf("a blob by itself: %v", err)
		}
	}
	if err := newRig(t).push(packOf(objects), []core.ObjectID{tag}); err != nil {
		t.Errorf("all of them: %v", err)
	}
}

func refsOf(refs ...core.Ref) Refs {
	return func(yield func(core.Ref) error) error {
		for _, ref := range refs {
			if err := yield(ref); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestAGitdirShowsTheRefsOfItsRevision(t *testing.T) {
	r, s := newRig(t), newSource(t)
	id := s.commit("a", "1")
	s.git("tag", "-a", "-m", "m", "t")
	if err := r.push(s.pack("--all"), []core.ObjectID{id, s.id("t")}); err != nil {
		t.Fatal(err)
	}
	refs := refsOf(
		core.Ref{Name: "HEAD", Target: "refs/heads/main"}, core.Ref{Name: "refs/heads/main", ID: id},
		core.Ref{Name: "refs/remotes/o/HEAD", Target: "refs/heads/main"}, core.Ref{Name: "refs/tags/t", ID: s.id("t"), Peeled: id},
	)
	var held []*Gitdir
	for rev := range uint64(6) {
		g, err := r.Gitdir(t.Context(), place, rev, refs)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Gitdir(t.Context(), place, rev, func(func(core.Ref) error) error { return errors.New("asked again") })
		if err != nil || again.gitdir != g.gitdir {
			t.Errorf("a second use: %v", err)
		}
		again.Release()
		held = append(held, g)
	}
	cmd := exec.Command("git", "for-each-ref", "--format=%(refname) %(objectname) %(symref)")
	cmd.Env = r.environment(held[0].path, "GIT_OBJECT_DIRECTORY="+filepath.Join(r.dir, place.path(), objectsDir))
	out, err := cmd.Output()
	want := "refs/heads/main " + id.String() + " \nrefs/remotes/o/HEAD " + id.String() + " refs/heads/main\nrefs/tags/t " + s.id("t").String() + " \n"
	if string(out) != want || err != nil {
		t.Errorf("git sees %q, %v", out, err)
	}
	if err := os.RemoveAll(held[5].path); err != nil {
		t.Fatal(err)
	}
	g, err := r.Gitdir(t.Context(), place, 5, refs)
	if err != nil || g.path == held[5].path {
		t.Errorf("one that somebody removed: %v", err)
	}
	g.Release()
	for _, g := range held {
		g.Release()
	}
	dirs, err := os.ReadDir(filepath.Join(r.dir, place.path(), gitdirsDir))
	if err != nil || len(dirs) != heldGitdirs {
		t.Errorf("%d gitdirs are left, %v", len(dirs), err)
	}
	broken := errors.New("broken")
	if _, err := r.Gitdir(t.Context(), place, 9, func(func(core.Ref) error) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("refs that cannot be read: %v", err)
	}
}

func TestAFetchIsAnsweredFromWhatIsPublished(t *testing.T) {
	r, s := newRig(t), newSource(t)
	id := s.commit("a", "1")
	if err := r.push(s.pack("main"), []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	if err := r.Prepare(t.Context(), place); err != nil {
		t.Fatal(err)
	}
	r.forgetRepos() // as when thousands of others were used between the two calls
	var out bytes.Buffer
	err := r.Fetch(t.Context(), FetchSpec{At: place, Tenant: 1, Protocol: "2"},
		func(w io.Writer) error {
			_, err := io.WriteString(w, "0011command=fetch0001000fno-progress0032want "+id.String()+"\n0009done\n0000")
			return err
		},
		func(r io.Reader) error { _, err := io.Copy(&out, r); return err })
	if err != nil || !strings.Contains(out.String(), "packfile\n") || !strings.Contains(out.String(), "PACK") {
		t.Errorf("%v: %q", err, out.String())
	}
}
