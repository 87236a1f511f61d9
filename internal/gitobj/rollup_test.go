package gitobj

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func TestARollupTakesTheSmallestPacksUntilSizesAreGeometric(t *testing.T) {
	times := func(n int, bytes int64) []int64 { return slices.Repeat([]int64{bytes}, n) }
	for _, c := range []struct {
		name  string
		sizes []int64
		want  int
	}{
		{"too few", times(31, 10), 0},
		{"enough", times(32, 10), 32},
		{"one that is larger stays", append(times(32, 10), 640), 32},
		{"one that is not so much larger goes too", append(times(32, 10), 639), 33},
		{"each at least twice all before it", []int64{1, 2, 6, 18, 54, 162, 486}, 0},
		{"no more than an entry may name", times(1500, 10), core.MaxSwapPacks},
	} {
		var lines []core.PackLine
		for i, n := range c.sizes {
			lines = append(lines, core.PackLine{Pack: core.Pack{Digest: core.Digest{byte(i), byte(i >> 8)}, Bytes: n}})
		}
		if got := picked(lines, rollFrom); len(got) != c.want {
			t.Errorf("%s: %d packs of %d, not %d", c.name, len(got), len(lines), c.want)
		}
	}
}

// chain pushes commits one by one, and returns them.
func (r *rig) chain(s source, n int) (ids []core.ObjectID) {
	r.t.Helper()
	for i := range n {
		revs := []string{"HEAD"}
		if i > 0 {
			revs = append(revs, "^HEAD~")
		}
		id := s.commit("file", "content "+strconv.Itoa(i))
		if err := r.push(s.pack(revs...), []core.ObjectID{id}); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// rollUp rolls up what the background has not.
func (r *rig) rollUp() {
	r.t.Helper()
	for {
		if err := r.RollUp(r.t.Context(), place); err == nil {
			return
		} else if !errors.Is(err, errStale) { // else the background was faster
			r.t.Fatal(err)
		}
	}
}

func (r *rig) sweep() {
	r.t.Helper()
	r.settled()
	if err := r.Sweep(r.t.Context(), true); err != nil {
		r.t.Fatal(err)
	}
}

// find wants commits, and all that they need, from what the manifest names.
func (r *rig) find(ids []core.ObjectID) {
	r.t.Helper()
	for _, id := range ids {
		if kind, _, err := r.Lookup(r.t.Context(), place, id); err != nil || kind != core.ObjectCommit {
			r.t.Errorf("%s is found as %s, %v", id, kind, err)
		}
	}
	walk := source{r.t, r.t.TempDir()}
	walk.git("init", "-q", "--bare", ".")
	if err := os.WriteFile(filepath.Join(walk.dir, "objects", "info", "alternates"), []byte(alternates(filepath.Join(r.dir, place.path(), objectsDir))), 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, id := range ids {
		walk.git("rev-list", "--objects", "--quiet", id.String())
	}
}

// left wants exactly the files of the manifest's packs.
func (r *rig) left() {
	r.t.Helper()
	var want []string
	lines, _, _ := r.m.Packs(r.t.Context(), place)
	for _, l := range lines {
		for _, suffix := range suffixes {
			want = append(want, "objects/pack/"+packName(l.Digest)+suffix)
		}
	}
	slices.Sort(want)
	var got []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		got = slices.DeleteFunc(r.files(), func(n string) bool { return strings.HasPrefix(n, gitdirsDir) })
		slices.Sort(got)
		if slices.Equal(got, want) { // a rollup in the background may have files for a while, until it finds that there is nothing left to do
			break
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("left\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestManyPacksBecomeOneAndTheirFilesGo(t *testing.T) {
	r := newRig(t, rollsUp(4))
	s := newSource(t)
	ids := r.chain(s, 11)
	r.rollUp()
	lines, _, _ := r.m.Packs(t.Context(), place)
	if len(lines) >= 8 || !slices.ContainsFunc(lines, func(l core.PackLine) bool { return l.Kind == core.PackRollup }) {
		t.Fatalf("%d packs are left of 11", len(lines))
	}
	r.find(ids)
	r.sweep()
	r.left()
	r.find(ids)
	r.restart()
	r.find(ids)
	if s := r.Stats(); s.Damaged != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFilesOfSwappedPacksThatAProcessLeftGo restarts between a swap and the removal of the packs that it replaced.
func TestFilesOfSwappedPacksThatAProcessLeftGo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom = 4 })
	ids := r.chain(newSource(t), 9)
	r.rollUp()
	r.sweep()
	if n, lines := len(r.files())/2, len(r.m.packs[place]); n <= lines {
		t.Fatalf("%d packs have files, the manifest names %d", n, lines)
	}
	r.tune = []func(*Options){rollsUp(1000)}
	r.restart()
	r.sweep() // sees them
	r.sweep()
	r.left()
	r.find(ids)
}

func TestARollupThatIsRefusedLeavesNothing(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom = 1000 })
	ids := r.chain(newSource(t), 5)
	r.o.RollFrom = 4
	r.m.set(func() { r.m.swapFails = errStale })
	if err := r.RollUp(t.Context(), place); !errors.Is(err, errStale) {
		t.Fatal(err)
	}
	r.settled()
	r.left()
	r.find(ids)
}

// TestARollupOfUnknownOutcomeIsFoundOut loses the answer of a swap that was applied, and of one that was not.
func TestARollupOfUnknownOutcomeIsFoundOut(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
			ids := r.chain(newSource(t), 5)
			r.o.RollFrom = 4
			r.m.set(func() { r.m.swapFails, r.m.swapLost = ErrOutcome, applied })
			if err := r.RollUp(t.Context(), place); !errors.Is(err, ErrOutcome) {
				t.Fatal(err)
			}
			r.find(ids)
			r.m.set(func() { r.m.now += core.ShardTime(stagedFor) + 1 })
			r.sweep()
			r.sweep()
			r.left()
			r.find(ids)
			if n := len(r.m.packs[place]); (n == 1) != applied {
				t.Errorf("%d packs", n)
			}
		})
	}
}

// TestAPackThatIsPushedAgainAfterARollupStays sends the very bytes of a pack whose files are about to go.
func TestAPackThatIsPushedAgainAfterARollupStays(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
	s := newSource(t)
	pack, id := rootPack(t, "again", core.ObjectID{})
	if err := r.push(pack, []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	ids := append(r.chain(s, 5), id)
	r.o.RollFrom = 4
	r.rollUp()
	before := len(r.m.packs[place])
	if err := r.push(pack, []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	if len(r.m.packs[place]) != before+1 {
		t.Fatalf("%d packs, not %d", len(r.m.packs[place]), before+1)
	}
	r.sweep()
	r.sweep()
	r.left()
	r.find(ids)
}

// TestAPackThatIsPushedAgainWhileItsFilesAreAboutToGoStays publishes it after the sweep was told that no line names it.
func TestAPackThatIsPushedAgainWhileItsFilesAreAboutToGoStays(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
	pack, id := rootPack(t, "again", core.ObjectID{})
	if err := r.push(pack, []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	ids := append(r.chain(newSource(t), 5), id)
	r.o.RollFrom = 4
	r.rollUp()
	r.settled()
	again := sync.OnceFunc(func() {
		if err := r.push(pack, []core.ObjectID{id}); err != nil {
			t.Error(err)
		}
		r.settled() // no staged name is left
	})
	r.m.set(func() { r.m.confirmed = again })
	r.sweep()
	r.find(ids)
	r.restart()
	r.find(ids)
}

// TestAPackWhoseEntryIsNotAppliedHereStays publishes at a node that is behind who leads.
func TestAPackWhoseEntryIsNotAppliedHereStays(t *testing.T) {
	r := newRig(t, rollsUp(1000))
	pack, id := rootPack(t, "new", core.ObjectID{})
	r.m.set(func() { r.m.behind = true })
	if err := r.push(pack, []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.sweep()
	}
	r.m.set(func() { r.m.behind = false })
	r.left()
	r.find([]core.ObjectID{id})
}

// TestACopyThatWasPromisedStaysAfterARollup offers a node a pack that it has and whose line a rollup took: what it promises to
// hold is there when the entry that names the pack again comes, whatever was swept until then.
func TestACopyThatWasPromisedStaysAfterARollup(t *testing.T) {
	c := newTrio(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
	pack, id := rootPack(t, "again", core.ObjectID{})
	first, err := c.push(0, pack, id, 0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	other, id2 := rootPack(t, "other", core.ObjectID{})
	if _, err := c.push(0, other, id2, 0, 1, 2); err != nil {
		t.Fatal(err)
	}
	for i := range c.areas {
		c.finds(i, id)
		c.lists[i].set(func() { c.lists[i].now += core.ShardTime(stagedFor) + 1 })
		if err := c.areas[i].Sweep(t.Context(), true); err != nil { // no staged name is left
			t.Fatal(err)
		}
		c.lists[i].set(func() { // as after a rollup whose pack is the other one
			c.lists[i].packs[place] = slices.DeleteFunc(c.lists[i].packs[place], func(l core.PackLine) bool { return l.Digest == first.Digest })
		})
	}
	p, err := c.areas[0].Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Receive(t.Context(), bytes.NewReader(pack)); err != nil {
		t.Fatal(err)
	}
	kept, _, _, err := p.Keep(t.Context())
	if err == nil {
		err = p.Spread(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.areas {
		for range 2 {
			if err := a.Sweep(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := c.copies(kept); n < 2 { // the third need not have been asked: what it has of before may go
		t.Fatalf("%d nodes hold a pack that most have promised to", n)
	}
	for i := range c.areas {
		c.lists[i].add(place, kept)
	}
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	for i := range c.areas {
		c.finds(i, id)
	}
}
