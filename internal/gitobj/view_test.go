package gitobj

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// seen lists the packs that a run of git finds now.
func (r *rig) seen() (packs []string) {
	r.t.Helper()
	dir, done := r.view(r.repoAt(place))
	defer done()
	names, err := os.ReadDir(filepath.Join(dir, packDir))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range names {
		if base, ok := strings.CutSuffix(n.Name(), ".pack"); ok {
			if _, err := os.Stat(filepath.Join(dir, packDir, base+".idx")); err != nil {
				r.t.Error(err)
			}
			packs = append(packs, base)
		}
	}
	return packs
}

// views lists the directories that were made for runs of git and are still there.
func (r *rig) views() (dirs []string) {
	r.t.Helper()
	r.settled()
	root := filepath.Join(r.dir, place.path(), viewsDir)
	names, err := os.ReadDir(root)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range names {
		dirs = append(dirs, filepath.Join(root, n.Name()))
	}
	return dirs
}

func TestGitSeesThePacksOfTheManifestAndNoWornOnes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom = 1000 })
	s := newSource(t)
	named := func() (out []string) {
		lines, _, _ := r.m.Packs(t.Context(), place)
		for _, l := range lines {
			out = append(out, packName(l.Digest))
		}
		slices.Sort(out)
		return out
	}
	r.chain(s, 5)
	if got := r.seen(); !slices.Equal(got, named()) {
		t.Errorf("git sees %v of %v", got, named())
	}
	old, done := r.view(r.repoAt(place)) // a reader while packs are swapped
	r.o.RollFrom = 4
	r.rollUp()
	r.chain(s, 2)
	if got := r.seen(); !slices.Equal(got, named()) {
		t.Errorf("after a rollup git sees %v of %v", got, named())
	}
	if n := len(r.files()); n <= 2*len(named()) {
		t.Fatalf("%d files are left: none of worn packs", n)
	}
	if names, err := os.ReadDir(filepath.Join(old, packDir)); err != nil || len(names) < 10 {
		t.Errorf("who read before the rollup finds %d files, %v", len(names), err)
	}
	done()
	if dirs := r.views(); len(dirs) != 1 {
		t.Errorf("after its last use a view is left: %v", dirs)
	}
	r.restart()
	if dirs := r.views(); len(dirs) != 0 {
		t.Errorf("after a restart views are left: %v", dirs)
	}
}

func TestAViewThatIsRemovedIsMadeAnew(t *testing.T) {
	r := newRig(t)
	s := newSource(t)
	ids := r.chain(s, 3)
	before := r.seen()
	dirs := r.views()
	if len(dirs) != 1 {
		t.Fatalf("views: %v", dirs)
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.seen(); len(got) != 3 || !slices.Equal(got, before) {
		t.Errorf("git sees %v, not %v", got, before)
	}
	id := s.commit("file", "one more")
	if err := r.push(s.pack("HEAD", "^HEAD~"), []core.ObjectID{id}); err != nil { // leans on what a view shows
		t.Fatal(err)
	}
	r.find(append(ids, id))
}

// TestPushesShareADirectoryInTurn, but for one in which something is left.
func TestPushesShareADirectoryInTurn(t *testing.T) {
	r := newRig(t)
	s := newSource(t)
	r.chain(s, 3)
	incoming := filepath.Join(r.dir, place.path(), incomingDir)
	dirs, err := os.ReadDir(incoming)
	if err != nil || len(dirs) != 1 {
		t.Fatalf("three pushes leave %v, %v", dirs, err)
	}
	if err := os.RemoveAll(filepath.Join(incoming, dirs[0].Name())); err != nil {
		t.Fatal(err)
	}
	r.chain(s, 1)
	r.settled()
	r.repoAt(place).mu.Lock()
	spare := slices.Clone(r.repoAt(place).spare)
	r.repoAt(place).mu.Unlock()
	if len(spare) != 1 || filepath.Base(spare[0]) == dirs[0].Name() {
		t.Errorf("directories for pushes to come: %v, after %s was removed", spare, dirs[0].Name())
	}
}
