package gitobj

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// trio are the areas of three nodes that reach each other.
type trio struct {
	t     *testing.T
	areas [3]*Area
	dirs  [3]string
	lists [3]*manifests
	disks [3]env.FS // nil: the machine's
	tune  []func(*Options)

	mu   sync.Mutex // guards the fields below
	down [3]bool
	cut  int64 // if not 0, connections end after this many bytes in one direction
	lead uint64
}

func newTrio(t *testing.T, tune ...func(*Options)) *trio {
	t.Helper()
	return newTrioOn(t, [3]env.FS{}, [3]string{t.TempDir(), t.TempDir(), t.TempDir()}, tune...)
}

func newTrioOn(t *testing.T, disks [3]env.FS, dirs [3]string, tune ...func(*Options)) *trio {
	t.Helper()
	needGit(t)
	c := &trio{t: t, lead: 1, disks: disks, tune: tune}
	for i := range c.areas {
		c.dirs[i] = filepath.Join(dirs[i], "git")
		c.lists[i] = &manifests{packs: map[Place][]core.PackLine{}, gone: map[Place]bool{}, now: 1_000_000}
		c.start(i)
	}
	t.Cleanup(func() {
		for _, a := range c.areas {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

func (c *trio) start(i int) {
	c.t.Helper()
	fs := c.disks[i]
	if fs == nil {
		fs = &disk{}
	}
	o := Options{
		FS: fs, Exec: env.SystemExec{}, Clock: env.SystemClock{}, Rand: env.SystemRand{}, Dir: c.dirs[i],
		Manifests: c.lists[i], Peers: trioPeers{c, i}, StageTime: 2 * time.Second,
	}
	for _, f := range c.tune {
		f(&o)
	}
	a, err := Open(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.areas[i] = a
}

func (c *trio) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// trioPeers are the other nodes as the i-th sees them.
type trioPeers struct {
	c *trio
	i int
}

func (p trioPeers) Self() uint64 { return uint64(p.i + 1) }

func (p trioPeers) Hosts(core.ShardID) Hosts {
	h := Hosts{Majorities: [][]uint64{{1, 2, 3}}}
	p.c.set(func() { h.Leader = p.c.lead })
	for i := range p.c.areas {
		if i != p.i {
			h.Others = append(h.Others, uint64(i+1))
		}
	}
	return h
}

func (p trioPeers) Open(_ context.Context, node uint64) (Conn, error) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.down[node-1] || p.c.down[p.i] {
		return nil, errors.New("it is not reached")
	}
	here, there := net.Pipe()
	a := p.c.areas[node-1]
	go func() {
		defer there.Close() //nolint:errcheck // it returns none
		a.Serve(there)
	}()
	left := p.c.cut
	if left == 0 {
		left = 1 << 40
	}
	return &cutConn{here, p.c, node, left}, nil
}

// cutConn ends after some bytes, and when its node is down.
type cutConn struct {
	net.Conn
	c    *trio
	node uint64
	left int64
}

func (c *cutConn) Write(b []byte) (int, error) {
	down := false
	c.c.set(func() { down = c.c.down[c.node-1] })
	if c.left -= int64(len(b)); c.left < 0 || down {
		_ = c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// push takes a pack all the way at node i, where the commit is applied at nodes applied.
func (c *trio) push(i int, pack []byte, id core.ObjectID, applied ...int) (core.Pack, error) {
	c.t.Helper()
	p, err := c.areas[i].Begin(c.t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 64 << 20})
	if err != nil {
		return core.Pack{}, err
	}
	defer p.Close()
	if err := p.Receive(c.t.Context(), bytes.NewReader(pack)); err != nil {
		return core.Pack{}, err
	}
	if err := p.hasAll(c.t.Context(), id); err != nil {
		return core.Pack{}, err
	}
	kept, _, _, err := p.Keep(c.t.Context())
	if err != nil {
		return kept, err
	}
	if err := p.Spread(c.t.Context()); err != nil {
		return kept, err
	}
	for _, k := range applied {
		c.lists[k].add(place, kept)
	}
	return kept, p.Publish()
}

func (c *trio) finds(i int, id core.ObjectID) {
	c.t.Helper()
	kind, _, err := c.areas[i].Lookup(c.t.Context(), place, id)
	if err != nil || kind != core.ObjectCommit {
		c.t.Errorf("node %d finds %s as %s, %v", i+1, id, kind, err)
	}
}

// copies counts the nodes that have a pack under any name.
func (c *trio) copies(p core.Pack) (n int) {
	for _, a := range c.areas {
		if files, err := a.openAny(place, p); err == nil {
			n++
			for _, f := range files {
				_ = f.Close()
			}
		}
	}
	return n
}

func TestAPackIsOnMostNodesBeforeItsCommit(t *testing.T) {
	c := newTrio(t)
	for round := range 3 { // any node takes a push
		pack, id := rootPack(t, string(rune('a'+round)), core.ObjectID{})
		p, err := c.areas[round].Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Receive(t.Context(), bytes.NewReader(pack)), p.hasAll(t.Context(), id)); err != nil {
			t.Fatal(err)
		}
		kept, at, _, err := p.Keep(t.Context())
		if err != nil || at != 1_000_000 || c.copies(kept) != 1 {
			t.Fatalf("kept at %d on %d nodes, %v", at, c.copies(kept), err)
		}
		if err := p.Spread(t.Context()); err != nil || c.copies(kept) < 2 {
			t.Fatalf("spread to %d nodes, %v", c.copies(kept), err)
		}
		for i := range c.areas {
			if kind, _, err := c.areas[i].Lookup(t.Context(), place, id); err != nil || kind != core.ObjectMissing {
				t.Errorf("node %d shows what no commit names: %s, %v", i+1, kind, err)
			}
			c.lists[i].add(place, kept)
		}
		if err := p.Publish(); err != nil {
			t.Fatal(err)
		}
		p.Close()
		for i := range c.areas {
			c.finds(i, id)
		}
	}
}

func TestANodeWithoutAPackGetsItFromAnyThatHasIt(t *testing.T) {
	c := newTrio(t)
	c.set(func() { c.down[2] = true })
	pack, id := rootPack(t, "m", core.ObjectID{})
	if _, err := c.push(0, pack, id, 0, 2); err != nil { // the second has the pack and not the entry, the third the entry only
		t.Fatal(err)
	}
	c.set(func() { c.down = [3]bool{true, false, false}; c.lead = 3 })
	c.finds(2, id)
	if s := c.areas[2].Stats(); s.PacksPulled != 1 || s.PulledBytes == 0 || s.Damaged != 0 {
		t.Errorf("%+v", s)
	}
	for end := time.Now().Add(10 * time.Second); c.areas[1].Stats().PacksGiven == 0 && time.Now().Before(end); {
		runtime.Gosched() // it is counted after the last byte has left, and the other may be done by then
	}
	if s := c.areas[1].Stats(); s.PacksTaken != 1 || s.PacksGiven != 1 {
		t.Errorf("%+v", s)
	}
}

func TestWithoutAMajorityForItsPackAPushIsRefused(t *testing.T) {
	c := newTrio(t)
	c.areas[1].broken.Store(true)
	c.areas[2].broken.Store(true)
	pack, id := rootPack(t, "m", core.ObjectID{})
	_, err := c.push(0, pack, id)
	if u, ok := errors.AsType[core.Unavailable](err); !ok || u.Reason != "pack_unavailable" || u.Unknown {
		t.Errorf("two take none: %v", err)
	}
	c.areas[1].broken.Store(false)
	c.set(func() { c.down[1], c.down[2] = true, true })
	if _, err := c.push(0, pack, id); !errors.As(err, new(core.Unavailable)) {
		t.Errorf("two are down: %v", err)
	}
	if s := c.areas[0].Stats(); s.StagesFailed != 2 {
		t.Errorf("%d failed", s.StagesFailed)
	}
	c.set(func() { c.down[1] = false })
	if _, err := c.push(0, pack, id, 0, 1); err != nil {
		t.Errorf("one is there again: %v", err)
	}
}

func TestADamagedPackComesFromAnotherNode(t *testing.T) {
	c := newTrio(t)
	pack, id := rootPack(t, "m", core.ObjectID{})
	kept, err := c.push(0, pack, id, 0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.finds(1, id)
	for _, suffix := range suffixes {
		if err := c.areas[1].Close(); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(c.dirs[1], place.path(), objectsDir, packDir, packName(kept.Digest)+suffix)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, flip(b, len(b)/2), 0o600); err != nil {
			t.Fatal(err)
		}
		c.start(1)
		c.finds(1, id)
		if again, err := os.ReadFile(name); err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s is still damaged: %v", suffix, err)
		}
		if s := c.areas[1].Stats(); s.PacksPulled != 1 {
			t.Errorf("%d came", s.PacksPulled)
		}
	}
}

func TestACopyThatWasCutOffGoesOnWhereItWas(t *testing.T) {
	c := newTrio(t)
	s := newSource(t)
	noise := make([]byte, 300<<10)
	env.NewSeededRand(1).Fill(noise)
	id := s.commit("a", string(noise))
	c.set(func() { c.down[2], c.cut = true, 200<<10 }) // twice is enough, from the beginning never is
	if _, err := c.push(0, s.pack("main"), id, 0, 1, 2); err != nil {
		t.Fatal(err)
	}
	c.finds(1, id)
}

func TestAManifestIsCompletedInTheBackground(t *testing.T) {
	c := newTrio(t)
	c.set(func() { c.down[2] = true })
	pack, id := rootPack(t, "m", core.ObjectID{})
	kept, err := c.push(0, pack, id, 0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.set(func() { c.down[2] = false })
	for i, a := range c.areas {
		if whole, err := a.complete(place); err != nil || !whole || !a.lies(place, kept) {
			t.Errorf("node %d: %v, %v", i+1, whole, err)
		}
		if names, err := os.ReadDir(filepath.Join(c.dirs[i], place.path(), stagedDir)); err != nil || i > 0 && len(names) > 0 {
			t.Errorf("node %d has still staged %v, %v", i+1, names, err)
		}
	}
}

func TestAStagedPackOfARepositoryThatIsNotKnownYetStays(t *testing.T) {
	c := newTrio(t)
	c.set(func() { c.down[2] = true })                       // so that the push needs the second node
	c.lists[1].set(func() { c.lists[1].gone[place] = true }) // its first entry is not applied there
	pack, id := rootPack(t, "m", core.ObjectID{})
	kept, err := c.push(0, pack, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	for c.areas[1].isTaken(place, kept.Digest) { // the node that took the copy lets go of it a little later than it answers
		<-time.After(time.Millisecond)
	}
	for applied, want := range map[core.ShardTime]bool{1_000_000: true, 4_600_000: true} {
		c.lists[1].set(func() { c.lists[1].now = applied })
		if err := c.areas[1].Sweep(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if files, err := c.areas[1].openAny(place, kept); (err == nil) != want {
			t.Errorf("at %d: %v", applied, err)
		} else if err == nil {
			_, _ = files[0].Close(), files[1].Close()
		}
	}
	c.lists[1].set(func() { c.lists[1].now = 4_600_001 }) // an hour: no entry may name it any more
	for began := time.Now(); ; {
		if err := c.areas[1].Sweep(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(c.dirs[1], place.path()))
		if os.IsNotExist(err) {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("it is still there: %v", err)
		}
	}
}

// TestAPowerCutTakesNoCopyThatCounted cuts the power of a node that takes copies, before and after each of its steps, and wants
// all for which it counted to be there.
func TestAPowerCutTakesNoCopyThatCounted(t *testing.T) {
	top := t.TempDir()
	d := newCutDisk(filepath.Join(top, "data"))
	defer d.close()
	c := newTrioOn(t, [3]env.FS{1: d}, [3]string{t.TempDir(), d.root, t.TempDir()})
	c.set(func() { c.down[2] = true }) // so that every push needs the second node
	random := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex // guards ids and cuts
	var ids []core.ObjectID
	var cuts []left
	cut := func() {
		mu.Lock()
		defer mu.Unlock()
		l := left{dir: filepath.Join(top, fmt.Sprint("cut", len(cuts))), ids: slices.Clone(ids)}
		l.packs, _, _ = c.lists[0].Packs(t.Context(), place)
		if err := d.cut(l.dir, random, []float64{0, 0.5, 1}[len(cuts)%3]); err != nil {
			t.Errorf("cut: %v", err)
		}
		cuts = append(cuts, l)
	}
	d.mu.Lock()
	d.before = cut
	d.mu.Unlock()
	for i := range 3 {
		pack, id := rootPack(t, fmt.Sprint("push ", i), core.ObjectID{})
		if _, err := c.push(0, pack, id, 0, 1); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		ids = append(ids, id)
		mu.Unlock()
		cut()
		if whole, err := c.areas[1].complete(place); err != nil || !whole {
			t.Fatalf("%v, %v", whole, err)
		}
	}
	cut()
	d.mu.Lock()
	d.before = nil
	d.mu.Unlock()
	for i, l := range cuts {
		if !l.opens(t) {
			t.Fatalf("cut %d of %d, after %d commits", i, len(cuts), len(l.ids))
		}
	}
	if len(cuts) < 20 {
		t.Errorf("%d cuts", len(cuts))
	}
}

func TestQuestionsThatMakeNoSenseEndTheConnection(t *testing.T) {
	c := newTrio(t)
	good := ask(askStage, place, core.Pack{Digest: core.Digest{1}, Idx: core.Digest{2}, Bytes: 3, IdxBytes: 4, Kind: core.PackPush})
	copy(good.Push[:], "0a")
	serve := func(q question, more string) (said []uint8) {
		here, there := net.Pipe()
		go func() {
			defer there.Close() //nolint:errcheck // it returns none
			c.areas[0].Serve(there)
		}()
		go func() {
			_ = say(here, &q)
			_, _ = io.WriteString(here, more)
		}()
		for {
			var a answer
			if err := hear(here, &a); err != nil {
				return said
			}
			if said = append(said, a.Say); a.Say != sayGo {
				_ = here.Close()
			}
		}
	}
	for what, change := range map[string]func(*question){
		"version":  func(q *question) { q.Version = 9 },
		"question": func(q *question) { q.Ask = 77 },
		"size":     func(q *question) { q.Bytes = -1 },
		"huge":     func(q *question) { q.IdxBytes = maxPackBytes + 1 },
		"part":     func(q *question) { q.From = 4 },
		"repo":     func(q *question) { q.Repo = core.RepoID{} },
		"push":     func(q *question) { copy(q.Push[:], "../../x") },
		"none":     func(q *question) { q.Push = [40]byte{} },
		"stamp":    func(q *question) { q.Stamp = -1 },
	} {
		q := good
		change(&q)
		if said := serve(q, ""); !bytes.Equal(said, []uint8{sayWrong}) {
			t.Errorf("%s: answered %v", what, said)
		}
	}
	if said := serve(good, "abcdefg"); !bytes.Equal(said, []uint8{sayGo, sayWrong}) {
		t.Errorf("other bytes than announced: %v", said)
	}
	fetch := good
	fetch.Ask = askFetch
	if said := serve(fetch, ""); !bytes.Equal(said, []uint8{sayMissing}) {
		t.Errorf("what is not there: %v", said)
	}
	var left []string
	_ = filepath.WalkDir(c.dirs[0], func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, emptyGitdir) && e.Name() != ownerFile {
			left = append(left, path)
		}
		return nil
	})
	if len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if n := binary.Size(question{}); n != 184 {
		t.Errorf("a question has %d bytes", n)
	}
}
