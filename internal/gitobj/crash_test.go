package gitobj

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// cutDisk is the machine's file system, of which it is known what a power cut would leave: what a file held when it was
// last synced, and what was in a directory when that was. Of the rest a cut leaves some, all or nothing.
type cutDisk struct {
	disk
	root string

	mu     sync.Mutex        // guards the fields below
	synced map[uint64][]byte // content by inode
	held   []*os.File        // keep the inodes from being given to others
	dirs   map[string]map[string]uint64
	before func() // is called before each step that a cut may come before
}

func newCutDisk(root string) *cutDisk {
	return &cutDisk{root: root, synced: map[uint64][]byte{}, dirs: map[string]map[string]uint64{}}
}

func (d *cutDisk) close() {
	for _, f := range d.held {
		_ = f.Close()
	}
}

// step is one that changes the disk.
func (d *cutDisk) step() {
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before != nil {
		before()
	}
}

func (d *cutDisk) Create(name string) (env.File, error) {
	d.step()
	f, err := d.disk.Create(name)
	return cutFile{f, d, name}, err
}

func (d *cutDisk) OpenReadWrite(name string) (env.File, error) {
	f, err := d.disk.OpenReadWrite(name)
	return cutFile{f, d, name}, err
}

func (d *cutDisk) OpenDir(name string) (env.File, error) {
	f, err := d.disk.OpenDir(name)
	return cutFile{f, d, name}, err
}

func (d *cutDisk) Remove(name string) error     { d.step(); return d.disk.Remove(name) }
func (d *cutDisk) Rename(from, to string) error { d.step(); return d.disk.Rename(from, to) }
func (d *cutDisk) Link(from, to string) error   { d.step(); return d.disk.Link(from, to) }
func (d *cutDisk) MkdirAll(dir string) error    { d.step(); return d.disk.MkdirAll(dir) }

// cutFile is a file or directory of a cutDisk.
type cutFile struct {
	env.File
	d    *cutDisk
	name string
}

func (f cutFile) Sync() error {
	f.d.step()
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.d.note(f.name)
}

// note remembers what is durable from now on.
func (d *cutDisk) note(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		d.held = append(d.held, f)
		d.synced[inode(info)], err = os.ReadFile(name)
		return err
	}
	now, err := listing(name)
	d.dirs[name] = now
	return err
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// listing is what is in a directory now, with the inodes.
func listing(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went just now
		} else if err != nil {
			return nil, err
		}
		out[e.Name()] = inode(info)
	}
	return out, nil
}

// cut writes into to what a power cut now leaves. keep is the share of what was not synced that is there nevertheless.
func (d *cutDisk) cut(to string, random *rand.Rand, keep float64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cutDir(d.root, to, random, keep)
}

func (d *cutDisk) cutDir(from, to string, random *rand.Rand, keep float64) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	now, err := listing(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	durable := d.dirs[from]
	names := make(map[string]uint64)
	for name, ino := range durable {
		if now[name] == ino || random.Float64() >= keep { // what was removed since may be there again
			names[name] = ino
		}
	}
	for name, ino := range now {
		if durable[name] != ino && random.Float64() < keep {
			names[name] = ino
		}
	}
	for name, ino := range names {
		path := filepath.Join(from, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if err := d.cutDir(path, filepath.Join(to, name), random, keep); err != nil {
				return err
			}
			continue
		}
		content, synced := d.synced[ino]
		if !synced {
			if content, err = os.ReadFile(path); err != nil {
				continue
			}
			content = content[:int(keep*float64(len(content)))]
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// left is what one power cut left, and what was committed before it.
type left struct {
	dir   string
	packs []core.PackLine
	ids   []core.ObjectID
}

// TestAPowerCutTakesNoPackThatACommitNames makes pushes and rolls their packs up, cuts the power before and after each step,
// and wants all that a commit named until then to be there, in an area that opens what the cut left.
func TestAPowerCutTakesNoPackThatACommitNames(t *testing.T) {
	pushes := 3
	if n, err := strconv.Atoi(os.Getenv("GIT_PUSHES")); err == nil {
		pushes = n
	}
	s := newSource(t)
	top := t.TempDir()
	d := newCutDisk(filepath.Join(top, "data"))
	defer d.close()
	m := &manifests{packs: map[Place][]core.PackLine{}, gone: map[Place]bool{}, now: 1_000_000}
	a := openArea(t, d, filepath.Join(d.root, "git"), m, rollsUp(3))
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // guards ids and cuts
	var ids []core.ObjectID
	var cuts []left
	cut := func() {
		mu.Lock()
		defer mu.Unlock()
		l := left{dir: filepath.Join(top, "cut"+strconv.Itoa(len(cuts))), ids: slices.Clone(ids)}
		l.packs, _, _ = m.Packs(t.Context(), place)
		if err := d.cut(l.dir, random, []float64{0, 0.5, 1}[len(cuts)%3]); err != nil {
			t.Errorf("cut: %v", err)
		}
		cuts = append(cuts, l)
	}
	d.mu.Lock()
	d.before = cut
	d.mu.Unlock()
	r := &rig{Area: a, t: t, m: m}
	for i := range pushes {
		revs := []string{"HEAD"}
		if i > 0 {
			revs = append(revs, "^HEAD~")
		}
		id := s.commit("file", "content "+strconv.Itoa(i))
		err := r.pushed(s.pack(revs...), []core.ObjectID{id}, func() {
			mu.Lock()
			ids = append(ids, id)
			mu.Unlock()
			cut()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.rollUp()
	for range 2 { // the second finds files that no line names for long enough
		if err := a.Sweep(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	r.settled()
	cut()
	d.mu.Lock()
	d.before = nil
	d.mu.Unlock()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for i, l := range cuts {
		if !l.opens(t) {
			t.Fatalf("cut %d of %d, after %d commits", i, len(cuts), len(l.ids))
		}
	}
	if s := a.Stats(); s.Rollups == 0 || s.PacksWorn == 0 {
		t.Errorf("no pack was rolled up, or none went: %+v", s)
	}
	if len(cuts) < 10*pushes {
		t.Errorf("%d cuts in %d pushes", len(cuts), pushes)
	}
}

// TestDirectoriesOfARepositoryWhoseMakerWasKilled are durable once a push there is committed, also those that
// another process made.
func TestDirectoriesOfARepositoryWhoseMakerWasKilled(t *testing.T) {
	s := newSource(t)
	top := t.TempDir()
	d := newCutDisk(filepath.Join(top, "data"))
	defer d.close()
	m := &manifests{packs: map[Place][]core.PackLine{}, gone: map[Place]bool{}, now: 1_000_000}
	killed := openArea(t, &disk{}, filepath.Join(d.root, "git"), m) // of whose syncs nothing is known
	r := killed.repoAt(place)
	r.mu.Lock()
	err := killed.make(r)
	r.mu.Unlock()
	if err := errors.Join(err, killed.Close()); err != nil {
		t.Fatal(err)
	}
	a := openArea(t, d, filepath.Join(d.root, "git"), m)
	id := s.commit("file", "content")
	if err := (&rig{Area: a, t: t, m: m}).push(s.pack("HEAD"), []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	l := left{dir: filepath.Join(top, "cut"), ids: []core.ObjectID{id}}
	l.packs, _, _ = m.Packs(t.Context(), place)
	if err := errors.Join(d.cut(l.dir, rand.New(rand.NewPCG(1, 2)), 0), a.Close()); err != nil {
		t.Fatal(err)
	}
	if !l.opens(t) {
		t.Fatal("the power cut took what was committed")
	}
}

// opens opens what a cut left, and wants every object that was committed.
func (l left) opens(t *testing.T) bool {
	t.Helper()
	m := &manifests{packs: map[Place][]core.PackLine{place: l.packs}, gone: map[Place]bool{}, now: 1_000_000}
	a := openArea(t, &disk{}, filepath.Join(l.dir, "git"), m)
	defer func() { _ = a.Close() }()
	for _, id := range l.ids {
		kind, _, err := a.Lookup(t.Context(), place, id)
		if err != nil || kind != core.ObjectCommit {
			t.Errorf("commit %s is there as %s, %v", id, kind, err)
			return false
		}
	}
	return true
}

// openArea opens an area.
func openArea(t *testing.T, disk env.FS, dir string, m Manifests, tune ...func(*Options)) *Area {
	t.Helper()
	o := Options{FS: disk, Exec: env.SystemExec{}, Clock: env.SystemClock{}, Rand: env.SystemRand{}, Dir: dir, Manifests: m}
	for _, f := range tune {
		f(&o)
	}
	a, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if a.Git() == "" {
		t.Skip("git is too old")
	}
	return a
}
