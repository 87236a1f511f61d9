package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/githttp"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// gitOpenWait is how long a request of git waits while too many files are open. Then it is refused under the limit descriptors,
// for its client can come again, and it holds descriptors of its own.
const gitOpenWait = 2 * time.Second

// openGit opens the directory of repositories. It asks the node what they hold only later.
func (r *Running) openGit(ctx context.Context, fs env.FS) error {
	dir, err := filepath.Abs(filepath.Join(r.o.Dir, "git")) // git itself runs in other directories
	if err != nil {
		return err
	}
	memory := r.o.memory()
	r.objects, err = gitobj.Open(ctx, gitobj.Options{
		FS: fs, Exec: env.SystemExec{}, Clock: r.o.Clock, Rand: r.o.Rand, Dir: dir, Git: r.o.Git,
		Manifests: manifests{r.node}, Logger: r.o.Logger, Reserve: uint64(r.o.Reserve),
		CacheBytes: memory.GitTypes, Peers: r.packPeers(), PullRate: r.o.SnapshotRate,
		OpenPacks: int(r.o.descriptors.Packs / 2),
		Children:  gitobj.ChildLimits{Bytes: memory.GitPrograms}, MaxObject: r.o.MaxObject,
	})
	if err != nil {
		return err
	}
	if r.peers != nil {
		r.peers.HandleStream(packsKind, func(_ transport.NodeID, s transport.Stream) { r.objects.Serve(s) })
	}
	r.git = githttp.New(githttp.Options{
		Backend: gitBackend{r.node, r.o.Rand}, Objects: gitObjects{r.objects}, Auth: r.o.Tokens, Calls: r.calls, Refused: r.refusals.Note,
		Clock: r.o.Clock, Rand: r.o.Rand, Logger: r.o.Logger, Version: r.o.Version,
		Limits: githttp.Limits{HeldBytes: memory.GitCommands}, Authenticated: api.Authenticated,
	})
	return nil
}

// gitHandler serves git clients; nil when refs are not among the services.
func (r *Running) gitHandler() http.Handler {
	if r.git == nil {
		return nil
	}
	return r.git
}

// objectsOf finds objects of repositories; nil when refs are not among the services.
func (r *Running) objectsOf() api.Objects {
	if r.objects == nil {
		return nil
	}
	return objectsOf{r.objects, r.node}
}

// manifests reads from the node which packs repositories have.
type manifests struct{ n *node.Node }

func (m manifests) Packs(_ context.Context, at gitobj.Place) ([]core.PackLine, bool, error) {
	return m.n.Packs(at.Shard, at.Partition, at.Repo)
}

func (m manifests) Now(shard core.ShardID) core.ShardTime { return m.n.ShardNow(shard) }

func (m manifests) Applied(shard core.ShardID) core.ShardTime { return m.n.Applied(shard) }

func (m manifests) Confirmed(ctx context.Context, at gitobj.Place) ([]core.PackLine, bool, error) {
	return m.n.ConfirmedPacks(ctx, at.Partition, at.Repo)
}

// swapTime bounds the commit of a rollup: beyond it, what became of it shows later.
const swapTime = 30 * time.Second

func (m manifests) Swap(ctx context.Context, at gitobj.Place, old []core.Digest, next core.Pack, staged core.ShardTime) error {
	ctx, cancel := context.WithTimeout(ctx, swapTime)
	defer cancel()
	f := m.n.SwapPacks(ctx, at.Partition, &core.PackSwap{ID: at.Repo, Old: old, New: next, StagedAt: staged})
	switch {
	case f == nil:
		return nil
	case core.OutcomeUnknown(f):
		return errors.Join(gitobj.ErrOutcome, f)
	}
	return f
}

func (m manifests) Each(ctx context.Context, fn func(at gitobj.Place, version uint64, packs int64) error) error {
	return m.n.EachRepo(ctx, func(shard core.ShardID, p core.Partition, info *core.RepoInfo) error {
		return fn(gitobj.Place{Shard: shard, Partition: p, Repo: info.ID}, info.Stats.Manifest, info.Stats.Packs)
	})
}

// objectsOf looks objects up for commits that do not come by git.
type objectsOf struct {
	a *gitobj.Area
	n *node.Node
}

func (o objectsOf) place(p core.Partition, repo core.RepoID) (gitobj.Place, error) {
	shard, ok := o.n.ShardOf(p)
	if !ok {
		return gitobj.Place{}, core.NotFound{Kind: "namespace"}
	}
	return gitobj.Place{Shard: shard, Partition: p, Repo: repo}, nil
}

// Lookup returns the type of an object and what a tag finally points to.
func (o objectsOf) Lookup(ctx context.Context, p core.Partition, repo core.RepoID, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	at, err := o.place(p, repo)
	if err != nil {
		return core.ObjectMissing, core.ObjectID{}, err
	}
	t, peeled, err := o.a.Lookup(ctx, at, id)
	return t, peeled, gitError(err)
}

// Ancestry tells for each move whether its new commit descends from its old one.
func (o objectsOf) Ancestry(ctx context.Context, p core.Partition, repo core.RepoID, moves []core.Move) ([]core.Ancestry, error) {
	at, err := o.place(p, repo)
	if err != nil {
		return nil, err
	}
	a, err := o.a.Ancestry(ctx, at, p.Tenant, moves)
	return a, gitError(err)
}

// gitError turns an error of the objects into one that edges know.
func gitError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gitobj.ErrNoGit) {
		return core.Unavailable{Reason: "git_unavailable"}
	}
	if d, ok := errors.AsType[*gitobj.DamagedError](err); ok {
		return errs.Corruptf("%v", d)
	}
	if f, ok := errors.AsType[*gitobj.FailedError](err); ok {
		return &githttp.RefusedPack{Line: f.Error(), NotWhole: f.NotWhole}
	}
	if b, ok := errors.AsType[*gitobj.BodyError](err); ok {
		return b.Err
	}
	return err
}

// gitBackend is the node as git's edge needs it.
type gitBackend struct {
	n    *node.Node
	rand env.Rand
}

// Repo finds a repository: in the partition of its name or, if it was placed by a tag, in another.
func (b gitBackend) Repo(ctx context.Context, tenant, namespace, name string) (githttp.Repo, error) {
	ns, err := b.n.Namespace(ctx, tenant, namespace, false)
	if err != nil {
		return githttp.Repo{}, err
	}
	first := int(core.PlaceRepo(name, "", len(ns.Partitions)))
	for i := range ns.Partitions {
		at := ns.Partitions[(first+i)%len(ns.Partitions)]
		info, _, err := b.n.Repo(ctx, at.Partition, name, core.ReadOptions{})
		if _, refused := errors.AsType[core.RefRefused](err); refused {
			continue
		}
		return githttp.Repo{RepoInfo: info, Place: githttp.Place{Shard: at.Shard, Partition: at.Partition, Repo: info.ID}}, err
	}
	return githttp.Repo{}, core.NotFound{Kind: "repository", ID: name}
}

// Plan returns a repository as a push would make it, placed by its name.
func (b gitBackend) Plan(ctx context.Context, tenant, namespace, name string) (githttp.Repo, bool, error) {
	ns, err := b.n.Namespace(ctx, tenant, namespace, false)
	if err != nil {
		return githttp.Repo{}, false, err
	}
	config, _, err := b.n.NamespaceConfig(ctx, ns.Partitions[0].Partition, core.ReadOptions{})
	if err != nil || !config.CreateOnPush {
		return githttp.Repo{}, false, err
	}
	at := ns.Partitions[core.PlaceRepo(name, "", len(ns.Partitions))]
	var out githttp.Repo
	b.rand.Fill(out.ID[:])
	out.Name, out.Place = name, githttp.Place{Shard: at.Shard, Partition: at.Partition, Repo: out.ID}
	return out, true, nil
}

// Create makes what was planned.
func (b gitBackend) Create(ctx context.Context, planned githttp.Repo, principal string) (githttp.Repo, error) {
	p := planned.Place.Partition
	done := b.n.Forward(ctx, p, []core.Commit{{
		Partition: p, Principal: principal, Ops: []core.Op{&core.RepoCreate{Name: planned.Name, ID: planned.ID}},
	}})
	switch {
	case done.Err != nil:
		return githttp.Repo{}, done.Err
	case done.Results[0].Refusal != nil:
		return githttp.Repo{}, done.Results[0].Refusal.Fact
	}
	info, _, err := b.n.Repo(ctx, p, planned.Name, core.ReadOptions{})
	if err == nil && info.ID != planned.ID {
		err = core.NotFound{Kind: "repository", ID: planned.Name}
	}
	return githttp.Repo{RepoInfo: info, Place: planned.Place}, err
}

// Refs reads refs, resolved.
func (b gitBackend) Refs(ctx context.Context, at githttp.Repo, q githttp.RefQuery, begin func(core.RepoInfo) error, fn func(core.Ref) error) error {
	query := core.RefQuery{Repo: at.Name, Prefix: q.Prefix, Limit: q.Limit, Admin: q.Admin}
	return b.n.ResolvedRefs(ctx, at.Place.Partition, query, core.ReadOptions{}, func(info core.RepoInfo, _ core.At) error {
		if info.ID != at.ID {
			return core.NotFound{Kind: "repository", ID: at.Name}
		}
		return begin(info)
	}, fn)
}

// Ref reads some refs.
func (b gitBackend) Ref(ctx context.Context, at githttp.Repo, names []string) (core.RepoInfo, []core.Ref, error) {
	info, refs, _, err := b.n.Refs(ctx, at.Place.Partition, at.Name, names, true, core.ReadOptions{})
	return info, refs, err
}

// Hidden reports whether settings hide a ref.
func (b gitBackend) Hidden(info *core.RepoInfo, name string) bool { return b.n.RefHidden(info, name) }

// Commit proposes a commit, at whichever node leads.
func (b gitBackend) Commit(ctx context.Context, c core.Commit) core.Proposed {
	return b.n.Forward(ctx, c.Partition, []core.Commit{c})
}

// gitObjects are the packs as git's edge needs them.
type gitObjects struct {
	a *gitobj.Area
}

// Ready fails when git cannot be served here.
func (g gitObjects) Ready() error {
	if g.a.Git() == "" {
		return core.Unavailable{Reason: "git_unavailable"}
	}
	return nil
}

func (g gitObjects) Prepare(ctx context.Context, at githttp.Place) error {
	return gitError(g.a.Prepare(ctx, gitobj.Place(at)))
}

func (g gitObjects) Fetch(ctx context.Context, f githttp.Fetch, in func(io.Writer) error, out func(io.Reader) error) error {
	spec := gitobj.FetchSpec{At: gitobj.Place(f.At), Tenant: f.At.Partition.Tenant, Principal: f.Principal, Protocol: f.Protocol}
	if f.Names {
		dir, err := g.a.Gitdir(ctx, spec.At, f.Rev, gitobj.Refs(f.Refs))
		if err != nil {
			return gitError(err)
		}
		defer dir.Release()
		spec.Gitdir = dir
	}
	return gitError(g.a.Fetch(ctx, spec, in, out))
}

func (g gitObjects) Begin(ctx context.Context, at githttp.Place, principal string, maxBytes int64, fresh bool) (githttp.Push, error) {
	p, err := g.a.Begin(ctx, gitobj.PushSpec{At: gitobj.Place(at), Tenant: at.Partition.Tenant, Principal: principal, MaxBytes: maxBytes, Fresh: fresh})
	if err != nil {
		return nil, gitError(err)
	}
	return gitPush{g.a, gitobj.Place(at), p}, nil
}

// gitPush is a push as git's edge needs it.
type gitPush struct {
	a  *gitobj.Area
	at gitobj.Place
	p  *gitobj.Push
}

func (p gitPush) Receive(ctx context.Context, body io.Reader) error {
	return gitError(p.p.Receive(ctx, body))
}

func (p gitPush) Lookup(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	t, peeled, err := p.p.Lookup(ctx, id)
	return t, peeled, gitError(err)
}

func (p gitPush) Ancestry(ctx context.Context, moves []core.Move) ([]core.Ancestry, error) {
	a, err := p.p.Ancestry(ctx, moves)
	return a, gitError(err)
}

func (p gitPush) Keep(ctx context.Context) (core.Pack, core.ShardTime, bool, error) {
	pack, at, ok, err := p.p.Keep(ctx)
	return pack, at, ok, gitError(err)
}

func (p gitPush) Spread(ctx context.Context) error { return gitError(p.p.Spread(ctx)) }

func (p gitPush) Publish() error { return p.p.Publish() }
func (p gitPush) Abandon()       { p.p.Abandon() }
func (p gitPush) Close()         { p.p.Close() }
