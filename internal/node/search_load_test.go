package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// loadGate holds the reader of indexes before each part, and notes whose parts it reads.
type loadGate struct {
	pass chan struct{} // takes one per part; closed: all pass
	mu   sync.Mutex    // guards read
	read []string
}

func newLoadGate() *loadGate { return &loadGate{pass: make(chan struct{})} }

func (g *loadGate) before(collection string) {
	<-g.pass
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = append(g.read, collection)
}

// order is whose parts were read, each name once.
func (g *loadGate) order() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Compact(slices.Clone(g.read))
}

func namedCollection(name string, uid uint64) *core.CollectionSet {
	set := pointsDefinition()
	set.Collection.Name, set.Collection.UID = name, uid
	return set
}

func queryOn(name string) *core.SearchQuery {
	q := pointQuery(0, false)
	q.Collection = name
	return q
}

// searchEach searches collections in that order.
func (r *rig) searchEach(names ...string) {
	r.t.Helper()
	for _, name := range names {
		if _, _, err := r.found(r.t.Context(), queryOn(name)); err != nil {
			r.t.Fatalf("search %s: %v", name, err)
		}
	}
}

// loadOrder opens a node on a disk and tells in which order it reads the indexes.
func loadOrder(t *testing.T, o rigOptions) (*rig, []string) {
	t.Helper()
	g := newLoadGate()
	close(g.pass)
	o.node.beforeLoad = g.before
	r := openRig(t, o)
	until(func() bool { return r.node.SearchTotals().Loading == 0 })
	return r, g.order()
}

func TestTheIndexThatWasSearchedLastIsReadFirstAlsoAfterARestart(t *testing.T) {
	clock := envtest.NewClock(time.Unix(1_700_000_000, 0))
	disk := replogtest.NewDisk()
	r := openRig(t, rigOptions{disk: disk})
	for i := range 5 {
		r.must(namedCollection(fmt.Sprint("c", i), uint64(i)+1))
	}
	r.searchEach("c3", "c1", "c4", "c1")
	r.close()
	r, got := loadOrder(t, rigOptions{disk: disk})
	if want := []string{"c1", "c4", "c3", "c0", "c2"}; !slices.Equal(got, want) {
		t.Errorf("read in the order %v, want %v", got, want)
	}
	r.searchEach("c2")
	killed := disk.Crash(100, 1) // c2 was not written down yet
	r.close()
	if r, got = loadOrder(t, rigOptions{disk: killed}); got[0] != "c1" {
		t.Errorf("after a kill read in the order %v", got)
	}
	r.close()
	r, got = loadOrder(t, rigOptions{disk: disk, clock: clock})
	if want := []string{"c2", "c1", "c4", "c3", "c0"}; !slices.Equal(got, want) {
		t.Errorf("later read in the order %v, want %v", got, want)
	}

	r.searchEach("c0")
	name := filepath.Join("data", usesName)
	before := diskFile(t, disk, name)
	until(func() bool {
		clock.Advance(usesEvery)
		return !slices.Equal(diskFile(t, disk, name), before)
	})
	killed = disk.Crash(100, 1)
	r.close()
	if r, got = loadOrder(t, rigOptions{disk: killed}); got[0] != "c0" {
		t.Errorf("after a kill, a while later, read in the order %v", got)
	}
	r.close()

	whole := diskFile(t, disk, name)
	for _, bad := range [][]byte{nil, whole[:len(whole)-1], append(slices.Clone(whole), 0), append([]byte{'x'}, whole[1:]...), append(slices.Clone(whole[:20]), make([]byte, len(whole)-20)...)} {
		if err := replogtest.WriteFile(disk.FS, name, bad); err != nil {
			t.Fatal(err)
		}
		if r, got = loadOrder(t, rigOptions{disk: disk}); !slices.Equal(got, []string{"c0", "c1", "c2", "c3", "c4"}) {
			t.Errorf("with a file of %d bytes that makes no sense: %v", len(bad), got)
		}
		r.close()
	}
}

func diskFile(t *testing.T, disk *replogtest.Disk, name string) []byte {
	t.Helper()
	size, err := disk.FS.Size(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := disk.FS.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// A search waits for its index within its deadline; all else is served meanwhile, and what changes while the index is read is
// in the first answer.
func TestASearchWaitsForItsIndexWhichMissesNothingThatChangesMeanwhile(t *testing.T) {
	disk := replogtest.NewDisk()
	r := openRig(t, rigOptions{disk: disk})
	r.must(pointsDefinition())
	const points = 3*loadPart - 10
	id := func(i int) string { return fmt.Sprintf("w%04d", i) }
	for i := range points {
		r.must(pointUpsert(id(i), i))
	}
	r.close()

	g := newLoadGate()
	r = openRig(t, rigOptions{disk: disk, node: Options{beforeLoad: g.before, SearchBytes: 1 << 20}})
	defer r.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := r.found(ctx, pointQuery(0, false)); !errors.Is(err, core.Unavailable{Reason: "loading"}) {
		t.Fatalf("while nothing is read: %v", err)
	}
	if _, _, err := r.node.Count(ctx, r.ns, pointQuery(0, false)); err == nil || !r.node.Loading(r.ns, "ws") {
		t.Fatalf("a count while nothing is read: %v", err)
	}
	def, ok := r.node.Definition(r.ns, "ws")
	if !ok {
		t.Fatal("the collection is not known")
	}
	sh, _ := r.node.shardOf(r.ns)
	if least, got := points*sh.points.byName(r.ns, "ws").index.PointBytes(0), r.node.SearchTotals(); got.Bytes < least || got.Loading != 1 {
		t.Errorf("while it is read: %+v, want at least %d bytes", got, least)
	}
	if fact := r.node.RoomFor(r.ns, &def, 10_000); fact == nil {
		t.Error("points have room that the rest of the index will take")
	}
	change := func(round int) {
		for _, i := range []int{0, 5, loadPart - 1, loadPart, loadPart + 3, 2 * loadPart, points - 1} {
			switch (i + round) % 3 {
			case 0:
				r.must(&core.VectorDelete{Collection: "ws", ID: id(i)})
			default:
				r.must(pointUpsert(id(i), 1000*round+i))
			}
		}
		r.must(pointUpsert(fmt.Sprint("new", round), round), pointUpsert(fmt.Sprint("a", round), round))
	}
	answer := make(chan map[string]uint64, 1)
	go func() {
		got, a, err := r.found(t.Context(), pointQuery(0, false))
		if err != nil || a.Gate.Considered != uint64(len(got)) {
			t.Errorf("the first answer: %d rows, %v, %+v", len(got), err, a)
		}
		answer <- got
	}()
	for round := range 3 {
		change(round)
		if round < 2 {
			g.pass <- struct{}{}
		}
	}
	want, err := r.stored() // all of it is applied now, which the search, being older, need not have waited for
	close(g.pass)
	got := <-answer
	if err != nil || !maps.Equal(got, want) {
		for id, v := range want {
			if got[id] != v {
				t.Errorf("%s: version %d, want %d", id, got[id], v)
			}
		}
		t.Errorf("the first answer has %d rows, want %d, %v", len(got), len(want), err)
	}
	change(9)
	want, _ = r.stored()
	if got, _, err := r.found(t.Context(), pointQuery(0, false)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("afterwards: %d rows, want %d, %v", len(got), len(want), err)
	}
}

// A search in a collection whose index is not read yet has it read next, before the rest of another index. No search waits
// for a collection that is deleted meanwhile.
func TestAnIndexThatIsWaitedForIsReadNext(t *testing.T) {
	disk := replogtest.NewDisk()
	r := openRig(t, rigOptions{disk: disk})
	for i, name := range []string{"large", "small", "gone"} {
		r.must(namedCollection(name, uint64(i)+1))
	}
	for i := range 2 * loadPart {
		op := pointUpsert(fmt.Sprint("w", i), i)
		op.Collection = "large"
		r.must(op)
	}
	r.searchEach("large")
	r.close()

	g := newLoadGate()
	r = openRig(t, rigOptions{disk: disk, node: Options{beforeLoad: g.before}})
	defer r.close()
	ended := make(chan error, 2)
	wait := func(name string) {
		go func() {
			_, _, err := r.found(t.Context(), queryOn(name))
			ended <- err
		}()
		sh, _ := r.node.shardOf(r.ns)
		c := sh.points.byName(r.ns, name)
		until(func() bool { return c.used.Load() > 1 })
	}
	g.pass <- struct{}{} // the first part of large
	wait("gone")
	r.must(&core.CollectionDelete{Name: "gone"})
	if err := <-ended; !errors.Is(err, core.NotFound{Kind: "collection", ID: "gone"}) {
		t.Errorf("a collection that was deleted: %v", err)
	}
	wait("small")
	close(g.pass)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	until(func() bool { return r.node.SearchTotals().Loading == 0 })
	g.mu.Lock()
	got := slices.Compact(slices.DeleteFunc(g.read, func(name string) bool { return name == "gone" }))
	g.mu.Unlock()
	if !slices.Equal(got, []string{"large", "small", "large"}) {
		t.Errorf("read in the order %v", got)
	}
}
