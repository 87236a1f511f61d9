package gitobj

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Options of an area. A zero field means its default where one is named.
type Options struct {
	FS env.FS // must be the real one: git programs read and write the same files
	// Exec runs git.
	Exec env.Exec
	// Clock times retries and the age of files; Rand draws names.
	Clock env.Clock
	Rand  env.Rand
	Dir   string // made if missing; required
	// Git is the program, by its name or a path of it; default git.
	Git       string
	Manifests Manifests
	Peers     Peers // the other nodes; nil: there are none
	// Logger gets what an operator should know.
	Logger  *slog.Logger
	Reserve uint64 // free bytes kept on the disk
	// CacheBytes bounds what is held of types that were looked up; default 64 MiB.
	CacheBytes int64
	// OpenPacks bounds the packs that are kept open, of two files each; default 512.
	OpenPacks int
	Children  ChildLimits
	MaxObject int64 // bytes of one object of a push; default 100 MiB
	// PullRate bounds, in bytes a second, the packs that come in because they are missing here; default 64 MiB.
	PullRate int64
	// RollFrom is from how many small packs on they are written together; default 32.
	RollFrom int
	// KeepSwapped is for how long files stay whose packs another has taken the place of; default 10 minutes.
	KeepSwapped time.Duration
	// StageTime is the least time for copying a pack to other nodes before its commit; default 30 s. Large ones get more.
	StageTime time.Duration
}

// Place says where a repository is.
type Place struct {
	// Shard and Partition are where the repository's refs are.
	Shard     core.ShardID
	Partition core.Partition
	// Repo is its id.
	Repo core.RepoID
}

// Manifests is where it is said which packs a repository has: state behind the log, as this node has applied it.
type Manifests interface {
	// Packs lists a repository's packs. found is false when it is gone for good, not while its deletion can be undone.
	Packs(ctx context.Context, at Place) (packs []core.PackLine, found bool, err error)
	// Now is the shard time, where this node leads the shard.
	Now(shard core.ShardID) core.ShardTime
	// Applied is the stamp of the newest entry of a shard that this node has applied.
	Applied(shard core.ShardID) core.ShardTime
	// Confirmed is Packs of a state no older than the call, wherever that is decided.
	Confirmed(ctx context.Context, at Place) (packs []core.PackLine, found bool, err error)
	// Swap puts one pack in the place of several in a repository's list, if all of them are in it. ErrOutcome: it is not
	// known whether that was done.
	Swap(ctx context.Context, at Place, old []core.Digest, next core.Pack, staged core.ShardTime) error
	// Each calls fn for each repository with the version of its list and how long that is, until fn fails.
	Each(ctx context.Context, fn func(at Place, version uint64, packs int64) error) error
}

// Area is the directory of all repositories' objects on this node. It is safe for concurrent use.
type Area struct {
	// o has its defaults filled in, and git is what Open has found.
	o   Options
	git gitProgram
	// boot begins the names of what this process receives, so that the next start can tell them
	// from its own.
	boot string
	// serial counts what this process has named; see nextID.
	serial atomic.Uint64
	// types remembers types of objects, and open keeps packs open.
	types *typeCache
	open  *packCache
	// children bounds the programs that run.
	children *children
	// broken says that a sync failed: no more packs are taken until a restart.
	broken atomic.Bool
	stats  counters
	// lines are the connections to other nodes; nil: there are none.
	lines *lines
	// pulls are the packs that come from other nodes because they are missing here.
	pulls *pulls
	// served is how many connections of other nodes are served.
	served atomic.Int32
	// frozen is how many backups read lists of packs now: no pack is removed meanwhile.
	frozen atomic.Int32
	// life ends with the area, by end. Work that outlives its caller runs under it.
	life context.Context
	// end ends life.
	end context.CancelFunc

	// mu guards the maps below. It may be taken while a repo's mu is held; the other way round a
	// repo's mu is only tried.
	mu sync.Mutex
	// repos are the repositories that were used lately, at most heldRepos.
	repos map[Place]*repo
	// dirty are those that may have staged files, for the sweep.
	dirty map[Place]staging
	// planned are those that a push under way makes: no state has them yet, and no sweep removes
	// them.
	planned map[Place]bool
	// crowd are those that may have packs to roll up.
	crowd map[Place]bool
	// wornOut are those that may have files of packs that were swapped, which dropWorn looks at.
	wornOut map[Place]bool
	// unnamed are packs with files that no manifest names, and since when, in boot time, that is
	// known.
	unnamed map[packRef]time.Duration
	// taking are the packs that come from other nodes now.
	taking map[packRef]bool
	// partial are directories with what came of a pack before it was cut off, and since when each
	// lies.
	partial map[string]time.Duration
	// done is closed when the area is.
	done chan struct{}
	// roll wakes the goroutine that rolls up.
	roll chan struct{}
	// work is what the one background goroutine is to do; see later.
	work chan func()
	// wait is for the goroutines that the area has started.
	wait sync.WaitGroup
}

// staging is set for a repository with staged files.
type staging struct{}

// heldRepos bounds the repositories that are held in memory. One takes about 200 B, and 100 B for each of its packs.
const heldRepos = 4096

// Open makes the directory if it is missing; what a process before left half received is removed in the background. git
// need not be there: what needs it then fails with ErrNoGit.
func Open(ctx context.Context, o Options) (*Area, error) {
	o.Git = cmp.Or(o.Git, "git")
	o.CacheBytes = cmp.Or(o.CacheBytes, 64<<20)
	o.MaxObject = cmp.Or(o.MaxObject, 100<<20)
	o.StageTime = cmp.Or(o.StageTime, stageLeast)
	o.RollFrom = cmp.Or(o.RollFrom, rollFrom)
	o.KeepSwapped = cmp.Or(o.KeepSwapped, keepSwapped)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var boot [8]byte
	o.Rand.Fill(boot[:])
	a := &Area{
		o: o, boot: fmt.Sprintf("%x", boot), types: newTypeCache(o.CacheBytes), children: newChildren(o.Children.withDefaults(), o.Clock),
		repos: make(map[Place]*repo), dirty: make(map[Place]staging), planned: make(map[Place]bool),
		crowd: make(map[Place]bool), wornOut: make(map[Place]bool), unnamed: make(map[packRef]time.Duration), roll: make(chan struct{}, 1),
		taking: make(map[packRef]bool), partial: make(map[string]time.Duration), pulls: newPulls(o.PullRate), done: make(chan struct{}), work: make(chan func(), 64),
	}
	a.life, a.end = context.WithCancel(context.WithoutCancel(ctx))
	if o.Peers != nil {
		a.lines = newLines(o.Peers)
	}
	a.open = newPackCache(o.FS, o.Dir, o.OpenPacks)
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("make directory of repositories: %w", err)
	}
	if err := a.findGit(ctx); err != nil {
		return nil, err
	}
	a.wait.Go(a.background)
	a.wait.Go(a.rollups)
	if a.lines != nil {
		a.wait.Go(a.catchUp)
	}
	return a, nil
}

// Close ends the background work and closes files. Nothing may be in use any more. In this order:
// work under way is told to end, idle connections go, the background goroutine does what it was
// given, and the open packs are closed when no goroutine is left.
func (a *Area) Close() error {
	a.end()
	if a.lines != nil {
		a.lines.close()
	}
	close(a.done)
	a.wait.Wait()
	return a.open.close()
}

// dir is a path below the area's directory.
func (a *Area) dir(parts ...string) string {
	return filepath.Join(append([]string{a.o.Dir}, parts...)...)
}

// path is where a repository is, below the area's directory.
func (at Place) path() string {
	return filepath.Join(fmt.Sprintf("%d", at.Shard), at.Repo.String())
}

// Directories of a repository.
const (
	// incomingDir has what is being received, each push and transfer in a directory of its own.
	incomingDir = "incoming"
	// stagedDir has packs that are durable, and that no entry is known to name.
	stagedDir = "staged"
	// gitdirsDir and viewsDir have what is made for git to read.
	gitdirsDir = "gitdirs"
	viewsDir   = "views"
	// objectsDir has packDir, with the packs that lookups and git find.
	objectsDir = "objects"
	packDir    = "pack"
)

// repo is a repository that is in use: the packs that are known to be in its objects/pack.
type repo struct {
	// at is where the repository is.
	at Place

	mu sync.Mutex // guards the fields below
	// packs are the digests of the packs, in the order in which they came. The slice is replaced,
	// never changed: readers hold on to it without the lock.
	packs []core.Digest
	// known are the same packs. True says that the manifest was seen to name the pack; false that
	// it was published here, and that the manifest will name it.
	known map[core.Digest]bool
	// made says that its directories are there, durably.
	made bool
	// gitdirs are those that are kept for the next use, the oldest first.
	gitdirs []*gitdir
	// view is the one that the next run of git looks into; nil: none is made yet.
	view *view
	// objects is how many the packs of the manifest have together, when that was last read.
	objects int64
	// spare are empty directories for pushes to come, at most spareDirs.
	spare []string
}

// spareDirs bounds the directories of one repository that are kept for pushes to come.
const spareDirs = 4

// repoAt returns what is held of a repository.
func (a *Area) repoAt(at Place) *repo {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.repos[at]
	if r == nil {
		if len(a.repos) >= heldRepos {
			for old, idle := range a.repos { // any other is as good: what is held can be read again
				if a.idle(idle) {
					delete(a.repos, old)
					break
				}
			}
		}
		r = &repo{at: at, known: make(map[core.Digest]bool)}
		a.repos[at] = r
	}
	return r
}

// repoKnown is repoAt of a repository whose packs are known: it may have been forgotten since it was last synced.
func (a *Area) repoKnown(ctx context.Context, at Place) (*repo, error) {
	r := a.repoAt(at)
	if r.current() != nil {
		return r, nil
	}
	_, err := a.sync(ctx, r)
	return r, err
}

// idle reports whether nothing of r is in use that another copy of it could not share; then its view and its directories
// for pushes go.
func (a *Area) idle(r *repo) bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if len(r.gitdirs) > 0 || r.view != nil && r.view.users > 0 {
		return false
	}
	r.retire()
	for _, dir := range r.spare {
		a.later(func() { a.discard(dir) })
	}
	return true
}

// Lookup returns the type of an object of a repository, and what a tag finally points to; another object's peeled is
// zero. The type is ObjectMissing when no pack of the manifest holds the object.
func (a *Area) Lookup(ctx context.Context, at Place, id core.ObjectID) (t core.ObjectType, peeled core.ObjectID, err error) {
	return a.lookup(ctx, at, id, nil)
}

// lookup is Lookup that looks into one more pack too, of which nothing is remembered. A tag is
// followed until something else is found. A tag whose target is missing counts as missing itself.
func (a *Area) lookup(ctx context.Context, at Place, id core.ObjectID, more *pack) (core.ObjectType, core.ObjectID, error) {
	t, next, err := a.lookupOne(ctx, at, id, more)
	var peeled core.ObjectID
	for depth := 0; err == nil && next != (core.ObjectID{}); depth++ {
		if depth == peelDepth {
			return core.ObjectMissing, peeled, core.Exhausted{Limit: "tag_depth", Max: peelDepth}
		}
		peeled = next
		var inner core.ObjectType
		inner, next, err = a.lookupOne(ctx, at, peeled, more)
		if err == nil && inner == core.ObjectMissing {
			return core.ObjectMissing, core.ObjectID{}, nil // a tag of nothing is not whole
		}
	}
	if err != nil {
		return core.ObjectMissing, core.ObjectID{}, err
	}
	return t, peeled, nil
}

// lookupOne returns an object's type and, of a tag, what it points to directly. What is not in the
// packs that are known is looked for again after a sync: the list may be older than the object, or
// name a pack that a rollup has taken the place of.
func (a *Area) lookupOne(ctx context.Context, at Place, id core.ObjectID, more *pack) (core.ObjectType, core.ObjectID, error) {
	if more != nil {
		found, t, target, err := more.lookup(id)
		if err != nil || found {
			return t, target, err
		}
	}
	if t, target, ok := a.types.get(at.Repo, id); ok {
		return t, target, nil
	}
	r := a.repoAt(at)
	for _, fresh := range []bool{false, true} {
		packs := r.current()
		if fresh || packs == nil {
			var err error
			if packs, err = a.sync(ctx, r); err != nil {
				return core.ObjectMissing, core.ObjectID{}, err
			}
		}
		found, t, target, err := a.search(r, packs, id)
		if errors.As(err, new(*DamagedError)) && !fresh {
			continue // the list may be of before a rollup
		}
		if err != nil {
			return core.ObjectMissing, core.ObjectID{}, err
		}
		if found {
			a.types.put(at.Repo, id, t, target)
			return t, target, nil
		}
	}
	return core.ObjectMissing, core.ObjectID{}, nil
}

// search looks into packs, the newest first. What was pushed last is looked up most.
func (a *Area) search(r *repo, packs []core.Digest, id core.ObjectID) (bool, core.ObjectType, core.ObjectID, error) {
	for i := len(packs) - 1; i >= 0; i-- {
		found, t, target, err := a.searchPack(packRef{at: r.at, digest: packs[i]}, id)
		if err != nil || found {
			return found, t, target, err
		}
	}
	return false, core.ObjectMissing, core.ObjectID{}, nil
}

// searchPack looks into one pack, which it keeps open for later calls.
func (a *Area) searchPack(at packRef, id core.ObjectID) (bool, core.ObjectType, core.ObjectID, error) {
	p, err := a.open.acquire(at)
	if err != nil {
		return false, core.ObjectMissing, core.ObjectID{}, err
	}
	defer a.open.release(p)
	return p.lookup(id)
}

// current returns the packs that are known; nil when none are.
func (r *repo) current() []core.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packs
}

// sync makes what is known of r's packs what its manifest says: each is in objects/pack, whole.
// What is missing or damaged comes from other nodes, for which it waits a while. Each pack that was
// not known is read to its end once and compared with the manifest, so that what lookups and git
// find is what was pushed.
func (a *Area) sync(ctx context.Context, r *repo) ([]core.Digest, error) {
	lacking, err := a.settleAll(ctx, r)
	if len(lacking) > 0 {
		if _, several := a.hosts(r.at.Shard); several {
			a.o.Logger.Info("packs come from other nodes", "repository", r.at.Repo.String(), "packs", len(lacking), "why", err)
			err = a.pullAll(ctx, r.at, lacking)
		}
		if err != nil && ctx.Err() == nil {
			a.stats.damaged.Add(uint64(len(lacking)))
			a.o.Logger.Error("packs are not whole", "repository", r.at.Repo.String(), "packs", len(lacking), "first", lacking[0].Digest.String(), "err", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return r.current(), nil
}

// settleAll settles the packs of a manifest, forgets those that it names no more, and returns those that are missing or
// damaged, with the first reason. The manifest is read under the lock: one that was read later is gone by later.
func (a *Area) settleAll(ctx context.Context, r *repo) (lacking []core.Pack, first error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, found, err := a.o.Manifests.Packs(ctx, r.at)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, core.NotFound{Kind: "repository", ID: r.at.Repo.String()}
	}
	named := make(map[core.Digest]bool, len(lines))
	r.objects = 0
	for _, line := range lines {
		named[line.Digest] = true
		r.objects += line.Objects
		if _, ok := r.known[line.Digest]; ok {
			r.known[line.Digest] = true
			continue
		}
		err := a.settle(r.at, line.Pack)
		if err == nil {
			r.add(line.Digest, true)
			continue
		}
		if !errors.As(err, new(*DamagedError)) {
			return nil, err
		}
		if lacking = append(lacking, line.Pack); first == nil {
			first = err
		}
	}
	a.forget(r, named)
	return lacking, first
}

// forget forgets packs that the manifest named and names no more. Their files stay for a while. The
// caller holds r.mu. A pack that was published here, and that the manifest as applied here does not
// name yet, is not forgotten.
func (a *Area) forget(r *repo, named map[core.Digest]bool) {
	for d, seen := range r.known {
		if named[d] || !seen {
			continue
		}
		r.drop(d)
		r.retire()
		a.mu.Lock()
		a.wornOut[r.at] = true
		a.unnamed[packRef{at: r.at, digest: d}] = a.o.Clock.Boot()
		a.mu.Unlock()
	}
}

// add notes that a pack is in objects/pack; named says that the manifest was seen to name it. The caller holds r.mu.
func (r *repo) add(d core.Digest, named bool) {
	if seen, ok := r.known[d]; ok {
		r.known[d] = seen || named
		return
	}
	r.known[d] = named
	// A copy: holders of the old list go on with it.
	r.packs = append(r.packs[:len(r.packs):len(r.packs)], d)
}

// drop forgets a pack. The caller holds r.mu.
func (r *repo) drop(d core.Digest) {
	delete(r.known, d)
	r.packs = slices.DeleteFunc(slices.Clone(r.packs), func(have core.Digest) bool { return have == d })
}

// has reports whether a pack is known to be in objects/pack. The caller holds r.mu.
func (r *repo) has(d core.Digest) bool {
	_, ok := r.known[d]
	return ok
}

// ErrNoGit says that there is no git, or too old a one.
var ErrNoGit = errors.New("git 2.39 or later is not there")
