package gitobj

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// Each push brings a pack, and each run of git looks through all of them. So from rollFrom on, packs are written together
// into one that holds the same objects, and the lines of the manifest are swapped by one entry. Which ones: the smallest, as
// many as it takes until each pack that is left holds at least twice as much as all smaller ones. So an object is
// rewritten about once for each doubling of its repository.
const rollFrom = 32

// ErrOutcome says that it is not known whether a swap was applied.
var ErrOutcome = errors.New("it is not known whether the packs were swapped")

// picked are the packs that a rollup takes, nil when there are too few. They are the smallest, up
// to the last one that is smaller than twice all before it.
func picked(lines []core.PackLine, from int) []core.PackLine {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b core.PackLine) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), strings.Compare(string(a.Digest[:]), string(b.Digest[:])))
	})
	n, below := 0, int64(0) // below: bytes of all before i
	for i, l := range lines {
		if i > 0 && l.Bytes < 2*below { // what is before it, rolled up, would be more than half of it
			n = i + 1
		}
		below += l.Bytes
	}
	if n < from {
		return nil
	}
	return lines[:min(n, core.MaxSwapPacks)]
}

// crowded notes that a repository may have packs to roll up. The caller may hold r.mu. A rollup
// looks by itself whether there are enough.
func (a *Area) crowded(at Place) {
	a.mu.Lock()
	a.crowd[at] = true
	a.mu.Unlock()
	select {
	case a.roll <- struct{}{}:
	default: // it is awake, or will be
	}
}

// rollups rolls up what is crowded, one repository after another. A repository that becomes crowded
// meanwhile is in the next round.
func (a *Area) rollups() {
	for {
		select {
		case <-a.roll:
		case <-a.life.Done():
			return
		}
		a.mu.Lock()
		todo := a.crowd
		a.crowd = make(map[Place]bool)
		a.mu.Unlock()
		for at := range todo {
			if a.life.Err() != nil {
				return
			}
			if err := a.RollUp(a.life, at); err != nil && a.life.Err() == nil {
				a.o.Logger.Warn("packs not rolled up", "repository", at.Repo.String(), "err", err)
			}
		}
	}
}

// leads reports whether this node leads a shard: one node is to roll up. What another node does at
// the same time, around a change of leader, is settled by the entry: it swaps only packs that are
// still there.
func (a *Area) leads(shard core.ShardID) bool {
	return a.o.Peers == nil || a.o.Peers.Hosts(shard).Leader == a.o.Peers.Self()
}

// RollUp writes many packs of a repository into one, if there are enough of them, and swaps them. It does nothing where another
// node leads.
//
// The new pack is made, kept and spread like that of a push. Then one entry swaps the lines of the
// manifest, if all the old packs are still in it. Until that entry nothing has changed; after it
// the files of the old packs are removed later, once no reader can need them. If the outcome is not
// known, the new pack stays staged and the sweep finds out.
func (a *Area) RollUp(ctx context.Context, at Place) error {
	if a.git.path == "" || !a.leads(at.Shard) {
		return nil
	}
	lines, found, err := a.o.Manifests.Packs(ctx, at)
	if err != nil || !found {
		return err
	}
	lines = picked(lines, a.o.RollFrom)
	if lines == nil {
		return nil
	}
	bytes, objects := int64(0), int64(0)
	old := make([]core.Digest, len(lines))
	for i := range lines {
		bytes += lines[i].Bytes + lines[i].IdxBytes
		objects += lines[i].Objects
		old[i] = lines[i].Digest
	}
	if err := a.room(bytes); err != nil {
		return err
	}
	r := a.repoAt(at)
	if _, err := a.sync(ctx, r); err != nil { // each of them is here, and whole
		return err
	}
	p := &Push{a: a, r: r, spec: PushSpec{At: at, Tenant: at.Partition.Tenant}, id: a.nextID(), kind: core.PackRollup}
	defer p.Close()
	if err := p.together(ctx, old, bytes, objects); err != nil {
		return err
	}
	next, staged, _, err := p.Keep(ctx)
	if err != nil {
		return err
	}
	if err := p.Spread(ctx); err != nil {
		return err
	}
	if err := a.o.Manifests.Swap(ctx, at, old, next, staged); err != nil {
		if errors.Is(err, ErrOutcome) {
			p.Abandon()
		}
		return err
	}
	if err := p.Publish(); err != nil {
		return err
	}
	a.stats.rollups.Add(1)
	a.stats.rolled.Add(uint64(len(old)))
	_, err = a.sync(ctx, r)
	return err
}

// together has git write what packs hold into one, and checks that it has. The result is in a
// directory of its own, as a push's is.
func (p *Push) together(ctx context.Context, old []core.Digest, bytes, objects int64) error {
	held, done, err := p.environment() // before there is a directory of its own: git reads, and writes by name
	if err != nil {
		return err
	}
	defer done()
	if err := p.quarantine(); err != nil {
		return err
	}
	to := filepath.Join(p.dir, packDir)
	err = p.a.run(ctx, call{
		tenant: p.spec.Tenant, most: FetchTime, files: 2*uint64(bytes) + 64<<20, env: held, write: to, patient: true,
		bytes: p.a.children.usual() + objectCost*objects,
		args:  []string{"pack-objects", "--stdin-packs", "--delta-base-offset", "--threads=1", "-q", filepath.Join(to, "pack")},
		feed: func(w io.Writer) error {
			var names strings.Builder
			for _, d := range old {
				fmt.Fprintf(&names, "%s.pack\n", packName(d))
			}
			_, err := io.WriteString(w, names.String())
			return err
		},
		drain: func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
	})
	if err != nil {
		return err
	}
	if err := p.openReceived(); err != nil {
		return err
	}
	for _, d := range old {
		if err := p.holds(d); err != nil {
			return err
		}
	}
	return nil
}

// holds checks that every object of a pack is in the new one too. git is trusted with the objects,
// but a pack that lacks one would lose it for good, so this is looked up.
func (p *Push) holds(d core.Digest) error {
	one, err := p.a.open.acquire(packRef{at: p.spec.At, digest: d})
	if err != nil {
		return err
	}
	defer p.a.open.release(one)
	return one.each(func(id core.ObjectID) error {
		_, found, err := p.pack.find(id)
		if err == nil && !found {
			err = &FailedError{Act: "pack-objects", Line: fmt.Sprintf("object %s of pack %s is not in the new one", id, d)}
		}
		return err
	})
}

// dropWorn removes files of packs that no line of the manifest names any more: a rollup took their place. They stay for a
// while, for readers. What is not known to be out of the manifest stays: the state that decides is asked for as the
// leader has it, since a pack may be published here whose entry is not applied here.
//
// A pack goes only if all of this holds: its time has passed; the list that the leader has does not
// name it; no push has published it again since before that list was asked for; and it is not
// staged. The index goes first, since git takes a pack for there when its index is.
func (a *Area) dropWorn(ctx context.Context, at Place) error {
	if a.frozen.Load() > 0 {
		return nil // the next sweep does
	}
	dir := a.dir(at.path(), objectsDir, packDir)
	old, left, err := a.worn(ctx, at, dir)
	if err != nil || len(old) == 0 {
		if err == nil && !left {
			a.mu.Lock()
			delete(a.wornOut, at)
			a.mu.Unlock()
		}
		return err
	}
	r := a.repoAt(at)
	r.mu.Lock()
	before := maps.Clone(r.known)
	r.mu.Unlock()
	lines, found, err := a.o.Manifests.Confirmed(ctx, at)
	if err != nil || !found {
		return err
	}
	named := make(map[core.Digest]bool, len(lines))
	for _, l := range lines {
		named[l.Digest] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range old {
		ref := packRef{at: at, digest: d}
		_, was := before[d]
		staged, err := a.stagedAs(at, d)
		switch {
		case err != nil:
			return err
		case named[d], r.has(d) && !was: // pushed again
			a.mu.Lock()
			delete(a.unnamed, ref)
			a.mu.Unlock()
			continue
		case len(staged) > 0: // an entry may yet name it
			continue
		}
		r.drop(d)
		a.open.drop(ref)
		for _, suffix := range []string{".idx", ".pack"} { // git takes a pack for there when its index is
			if err := a.gone(filepath.Join(dir, packName(d)+suffix)); err != nil {
				return err
			}
		}
		a.mu.Lock()
		delete(a.unnamed, ref)
		a.mu.Unlock()
		a.stats.wornPacks.Add(1)
	}
	return nil
}

// worn lists the packs whose files no line of the manifest has named for long enough; left says that there are others, whose
// time is still to come.
func (a *Area) worn(ctx context.Context, at Place, dir string) (old []core.Digest, left bool, err error) {
	names, err := a.o.FS.List(dir)
	if err != nil {
		return nil, false, err
	}
	lines, found, err := a.o.Manifests.Packs(ctx, at)
	if err != nil || !found {
		return nil, false, err
	}
	named := make(map[string]bool, len(lines))
	for _, l := range lines {
		named[packName(l.Digest)] = true
	}
	now := a.o.Clock.Boot()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		base, ok := strings.CutSuffix(n, ".pack")
		if !ok || named[base] {
			continue
		}
		d, ok := parsePackName(base)
		if !ok {
			continue // not ours
		}
		ref := packRef{at: at, digest: d}
		since, seen := a.unnamed[ref]
		switch {
		case !seen:
			a.unnamed[ref] = now
			left = true
		case now-since < a.o.KeepSwapped:
			left = true
		default:
			old = append(old, d)
		}
	}
	return old, left, nil
}
