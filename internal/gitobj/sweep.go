package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

const (
	// sweepEvery is how often staged packs that were not published are looked at; walkEvery how often all repositories are.
	sweepEvery = 10 * time.Minute
	walkEvery  = 6
	// keepSwapped is how long files of packs stay that a rollup replaced: readers have them open.
	keepSwapped = 10 * time.Minute
	// stagedFor is how long a staged pack is kept that no manifest names, in shard time. A commit may name it for half of
	// that, so that there is no race.
	stagedFor = core.Millis(time.Hour / time.Millisecond)
)

// link gives a file a second name; that it has it already is as good. So what a crash cut off can
// be done again.
func (a *Area) link(from, to string) error {
	if err := a.o.FS.Link(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link a pack: %w", err)
	}
	return nil
}

// mark notes that a repository has staged files. It is called before the files get their names, so
// that a sweep cannot miss them.
func (a *Area) mark(at Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty[at] = staging{}
}

// later has the background goroutine do something, or does it at once when that has enough to do.
func (a *Area) later(f func()) {
	select {
	case a.work <- f:
	default:
		f()
	}
}

// unstage removes the staged names of a pack once those in objects/pack are durable. If the sync
// fails, the staged names stay.
func (a *Area) unstage(at Place, as string) {
	if err := a.syncDir(a.dir(at.path(), objectsDir, packDir)); err != nil {
		return
	}
	for _, suffix := range suffixes {
		if err := a.gone(as + suffix); err != nil {
			a.o.Logger.Warn("staged pack not removed", "err", err)
		}
	}
}

// background does the work that no caller waits for. It is one goroutine, so pieces of that work
// never meet each other. It first removes what an earlier process left; when the area is closed, it
// does what was asked for until then, and ends.
func (a *Area) background() {
	if err := a.clearLeft(); err != nil {
		a.o.Logger.Warn("what an earlier process left was not all removed", "err", err)
	}
	t := a.o.Clock.NewTimer(sweepEvery)
	defer t.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the area
		<-a.done
		cancel()
	}()
	for turn := 1; ; {
		select {
		case f := <-a.work:
			f()
		case <-t.C():
			if err := a.Sweep(ctx, turn%walkEvery == 0); err != nil {
				a.o.Logger.Warn("sweep of packs", "err", err)
			}
			turn++
			t.Reset(sweepEvery)
		case <-a.done:
			for {
				select {
				case f := <-a.work:
					f()
				default:
					return
				}
			}
		}
	}
}

// Sweep publishes staged packs that a manifest names, and removes those that no entry can name any more, and those that were
// swapped for another. With all, it looks at all repositories, and removes those that are gone for good.
//
// Nothing is removed while its removal could be wrong. A staged pack goes when the shard's time, as
// far as this node has applied it, is so late that any entry which names the pack would be refused;
// a repository goes when the state says that it is gone for good, no push makes it, and nothing
// staged for it could still be named.
func (a *Area) Sweep(ctx context.Context, all bool) error {
	a.dropPartial()
	a.mu.Lock()
	places := make([]Place, 0, len(a.dirty))
	for at := range a.dirty {
		places = append(places, at)
	}
	a.mu.Unlock()
	var failed []error
	for _, at := range places {
		failed = append(failed, a.sweepStaged(ctx, at))
	}
	if all {
		failed = append(failed, a.each(func(dir string, at Place) error {
			a.mu.Lock()
			a.wornOut[at] = true
			a.mu.Unlock()
			if a.frozen.Load() > 0 || a.isPlanned(at) || a.staysFor(at) {
				return nil
			}
			_, found, err := a.o.Manifests.Packs(ctx, at)
			if err != nil || found {
				return err
			}
			return a.purge(at)
		}))
	}
	a.mu.Lock()
	places = slices.AppendSeq(places[:0], maps.Keys(a.wornOut))
	a.mu.Unlock()
	for _, at := range places {
		failed = append(failed, a.dropWorn(ctx, at))
	}
	return errors.Join(failed...)
}

// staysFor reports whether a repository gets, or has staged, files that an entry to come may yet name: one that makes the
// repository, perhaps, and is not applied here.
func (a *Area) staysFor(at Place) bool {
	a.mu.Lock()
	for ref := range a.taking {
		if ref.at == at {
			a.mu.Unlock()
			return true
		}
	}
	a.mu.Unlock()
	now := a.o.Manifests.Applied(at.Shard)
	names, err := a.o.FS.List(a.dir(at.path(), stagedDir))
	return err == nil && slices.ContainsFunc(names, func(n string) bool {
		_, stamp, ok := parseStaged(n)
		return ok && now <= stamp.Add(stagedFor)
	})
}

// purge removes a repository that is gone.
func (a *Area) purge(at Place) error {
	a.mu.Lock()
	delete(a.repos, at)
	delete(a.dirty, at)
	delete(a.wornOut, at)
	maps.DeleteFunc(a.unnamed, func(ref packRef, _ time.Duration) bool { return ref.at == at })
	a.mu.Unlock()
	a.open.forget(at)
	// OWNER goes last, with the directory: what is left of a removal that was cut off is found again.
	for _, d := range []string{incomingDir, stagedDir, gitdirsDir, viewsDir, objectsDir} {
		if err := a.removeAll(a.dir(at.path(), d), treeDepth); err != nil {
			return err
		}
	}
	return a.removeAll(a.dir(at.path()), 1)
}

// sweepStaged looks at one repository's staged packs. A pack that is old and named was published by
// an entry that this node has applied, or learnt with a snapshot: it is linked first.
func (a *Area) sweepStaged(ctx context.Context, at Place) error {
	staged := a.dir(at.path(), stagedDir)
	names, err := a.o.FS.List(staged)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) == 0 {
		a.mu.Lock()
		delete(a.dirty, at)
		a.mu.Unlock()
		return nil
	}
	now := a.o.Manifests.Applied(at.Shard) // before the manifest: what is added after it is younger
	lines, found, err := a.o.Manifests.Packs(ctx, at)
	if err != nil || !found {
		return err
	}
	manifest := make(map[string]core.Pack, len(lines))
	for _, l := range lines {
		manifest[l.Digest.String()] = l.Pack
	}
	var failed []error
	for _, n := range names {
		digest, stamp, ok := parseStaged(n)
		if !ok {
			continue // not ours
		}
		old := now > stamp.Add(stagedFor)
		if p, named := manifest[digest]; named && old {
			if err := a.settle(at, p); err != nil {
				failed = append(failed, err)
				continue
			}
			a.unstage(at, filepath.Join(staged, strings.TrimSuffix(strings.TrimSuffix(n, ".pack"), ".idx")))
		} else if old {
			if err := a.gone(filepath.Join(staged, n)); err != nil {
				failed = append(failed, err)
			}
			a.stats.swept.Add(1)
		}
	}
	return errors.Join(failed...)
}

// each calls f for each repository's directory, which is below the area's. A directory without an
// owner is passed over.
func (a *Area) each(f func(dir string, at Place) error) error {
	shards, err := a.o.FS.List(a.o.Dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range shards {
		shard, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			continue
		}
		ids, err := a.o.FS.List(a.dir(s))
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, text := range ids {
			select {
			case <-a.done:
				return errors.Join(failed...)
			default:
			}
			id, err := core.ParseRepoID(text)
			if err != nil {
				continue
			}
			dir := filepath.Join(s, text)
			p, err := a.owner(a.dir(dir))
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was about to be made, and will be
			}
			if err == nil {
				err = f(dir, Place{core.ShardID(shard), p, id})
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// clearLeft removes what an earlier process had under way. What this process has made has names of
// its own, and stays. Repositories with staged packs are marked for the sweep.
func (a *Area) clearLeft() error {
	held, err := a.o.FS.List(a.dir(heldDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	left := []error{err}
	for _, n := range held {
		if !strings.HasPrefix(n, a.boot) {
			left = append(left, a.removeAll(a.dir(heldDir, n), 4))
		}
	}
	return errors.Join(errors.Join(left...), a.each(func(dir string, at Place) error {
		var failed []error
		for _, d := range []string{incomingDir, gitdirsDir, viewsDir} {
			names, err := a.o.FS.List(a.dir(dir, d))
			failed = append(failed, err)
			for _, n := range names {
				if !strings.HasPrefix(n, a.boot) {
					failed = append(failed, a.removeAll(a.dir(dir, d, n), treeDepth))
				}
			}
		}
		if staged, err := a.o.FS.List(a.dir(dir, stagedDir)); err != nil {
			failed = append(failed, err)
		} else if len(staged) > 0 {
			a.mark(at)
		}
		return errors.Join(failed...)
	}))
}

// counters count what an area does. Stats says what each of them is.
type counters struct {
	children, failed, kept, keptBytes, swept, damaged, gitdirs, gitdirHits atomic.Uint64
	taken, stageFailed, pulled, pulledBytes, given                         atomic.Uint64
	rollups, rolled, wornPacks                                             atomic.Uint64
}

// Stats are the counters of an area.
type Stats struct {
	Children, ChildrenFailed         uint64 // programs run, and those that refused or were ended
	Running, Waiting                 int    // programs now, and calls that wait for one
	PacksKept, PackBytes, PacksSwept uint64 // bytes with indexes
	Damaged                          uint64 // packs found missing or damaged, each time
	Gitdirs, GitdirHits              uint64 // gitdirs made, and uses of one that was there
	Broken                           bool   // a sync failed

	PacksTaken, PacksGiven   uint64 // copies of other nodes' pushes taken, packs given to nodes that lacked them
	PacksPulled, PulledBytes uint64 // packs that were missing here or damaged, and came from other nodes
	Rollups, PacksRolled     uint64 // rollups that were applied, and packs that they took the place of
	PacksWorn                uint64 // packs whose files were removed since a rollup took their place
	StagesFailed             uint64 // pushes refused because too few nodes took their packs
}

// Stats returns what the area has done.
func (a *Area) Stats() Stats {
	s := &a.stats
	out := Stats{
		Children: s.children.Load(), ChildrenFailed: s.failed.Load(), PacksKept: s.kept.Load(), PackBytes: s.keptBytes.Load(),
		PacksSwept: s.swept.Load(), Damaged: s.damaged.Load(), Gitdirs: s.gitdirs.Load(), GitdirHits: s.gitdirHits.Load(),
		Broken: a.broken.Load(), PacksTaken: s.taken.Load(), PacksGiven: s.given.Load(), PacksPulled: s.pulled.Load(),
		Rollups: s.rollups.Load(), PacksRolled: s.rolled.Load(), PacksWorn: s.wornPacks.Load(), PulledBytes: s.pulledBytes.Load(), StagesFailed: s.stageFailed.Load(),
	}
	out.Running, out.Waiting = a.children.counts()
	return out
}
