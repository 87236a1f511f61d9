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
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/githttp"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// gitOpenWait is how long a git request waits while too many files are open. Then it is refused
// under the limit descriptors: its client can come again, while a request that waits holds
// descriptors itself.
const gitOpenWait = 2 * time.Second

// openGit opens the directory of packs and makes the edge for git clients. Which packs repositories
// have is asked of the node later, as it is needed.
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
		Limits: githttp.Limits{HeldBytes: memory.GitCommands}, Authenticated: edge.Authenticated,
	})
	return nil
}

// gitHandler returns the handler for git clients; nil if the service refs is disabled.
func (r *Running) gitHandler() http.Handler {
	if r.git == nil {
		return nil
	}
	return r.git
}

// objectsOf returns what looks up objects of repositories; nil if the service refs is disabled.
func (r *Running) objectsOf() api.Objects {
	if r.objects == nil {
		return nil
	}
	return objectsOf{r.objects, r.node}
}

// manifests tells the objects' area what the node knows: which packs a repository has, and the time
// of a shard.
type manifests struct{ n *node.Node }

// Packs lists the packs of a repository as this node has applied them.
func (m manifests) Packs(_ context.Context, at gitobj.Place) ([]core.PackLine, bool, error) {
	return m.n.Packs(at.Shard, at.Partition, at.Repo)
}

// Now is the time that the shard's leader gives entries, as far as this node knows.
func (m manifests) Now(shard core.ShardID) core.ShardTime { return m.n.ShardNow(shard) }

// Applied is the time of the last entry of the shard that this node has applied.
func (m manifests) Applied(shard core.ShardID) core.ShardTime { return m.n.Applied(shard) }

// Confirmed is Packs as of a moment that a majority confirms, for decisions that an old answer
// would spoil, such as removing a file.
func (m manifests) Confirmed(ctx context.Context, at gitobj.Place) ([]core.PackLine, bool, error) {
	return m.n.ConfirmedPacks(ctx, at.Partition, at.Repo)
}

// swapTime bounds the commit of a rollup. If it takes longer, the area finds out later whether it
// was made.
const swapTime = 30 * time.Second

// Swap replaces packs of a repository by one with the same objects. The error wraps
// gitobj.ErrOutcome if it is not known whether the commit was made.
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

// Each calls fn for every repository of this node.
func (m manifests) Each(ctx context.Context, fn func(at gitobj.Place, version uint64, packs int64) error) error {
	return m.n.EachRepo(ctx, func(shard core.ShardID, p core.Partition, info *core.RepoInfo) error {
		return fn(gitobj.Place{Shard: shard, Partition: p, Repo: info.ID}, info.Stats.Manifest, info.Stats.Packs)
	})
}

// objectsOf looks up objects for commits that come over the API instead of git.
type objectsOf struct {
	// a has the objects of this node, and n knows where repositories are.
	a *gitobj.Area
	n *node.Node
}

// place returns where the packs of a repository are; NotFound if the partition is not known here.
func (o objectsOf) place(p core.Partition, repo core.RepoID) (gitobj.Place, error) {
	shard, ok := o.n.ShardOf(p)
	if !ok {
		return gitobj.Place{}, core.NotFound{Kind: "namespace"}
	}
	return gitobj.Place{Shard: shard, Partition: p, Repo: repo}, nil
}

// Lookup returns the type of an object and, for a tag, the object that it finally points to.
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

// gitError turns an error of the objects' area into one that the edges know.
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

// gitBackend is the node in the form that the git edge needs. rand draws the ids of repositories
// that a push creates.
type gitBackend struct {
	n    *node.Node
	rand env.Rand
}

// Namespace finds a namespace of a tenant; see edge.Directory.
func (b gitBackend) Namespace(ctx context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	return b.n.Namespace(ctx, tenant, name, create)
}

// Repo finds a repository by name. Its name decides the partition, unless it was created with a
// tag; so it looks into the partition of the name first and then into the others.
func (b gitBackend) Repo(ctx context.Context, ns core.NamespaceInfo, name string) (githttp.Repo, error) {
	first := int(core.PlaceRepo(name, "", len(ns.Partitions)))
	for i := range ns.Partitions {
		at := ns.Partitions[(first+i)%len(ns.Partitions)]
		info, _, err := b.n.Repo(ctx, at.Partition, name, core.ReadOptions{})
		// No repository of that name is in this partition; the next one may have it.
		if _, refused := errors.AsType[core.RefRefused](err); refused {
			continue
		}
		return githttp.Repo{RepoInfo: info, Place: githttp.Place{Shard: at.Shard, Partition: at.Partition, Repo: info.ID}}, err
	}
	return githttp.Repo{}, core.NotFound{Kind: "repository", ID: name}
}

// Plan returns the repository that a push to a new name would create, with a fresh id; false if the
// namespace does not allow that. Nothing is created yet.
func (b gitBackend) Plan(ctx context.Context, ns core.NamespaceInfo, name string) (githttp.Repo, bool, error) {
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

// Create creates what Plan returned. If another client has created a repository of that name in
// between, it fails with NotFound.
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

// Refs streams refs, symbolic ones resolved. begin gets the repository first. If the name belongs
// to another repository by now, it fails.
func (b gitBackend) Refs(ctx context.Context, at githttp.Repo, q githttp.RefQuery, begin func(core.RepoInfo) error, fn func(core.Ref) error) error {
	query := core.RefQuery{Repo: at.Name, Prefix: q.Prefix, Limit: q.Limit, Admin: q.Admin}
	return b.n.ResolvedRefs(ctx, at.Place.Partition, query, core.ReadOptions{}, func(info core.RepoInfo, _ core.At) error {
		if info.ID != at.ID {
			return core.NotFound{Kind: "repository", ID: at.Name}
		}
		return begin(info)
	}, fn)
}

// Ref reads the named refs, resolved.
func (b gitBackend) Ref(ctx context.Context, at githttp.Repo, names []string) (core.RepoInfo, []core.Ref, error) {
	info, refs, _, err := b.n.Refs(ctx, at.Place.Partition, at.Name, names, true, core.ReadOptions{})
	return info, refs, err
}

// Hidden reports whether settings hide a ref.
func (b gitBackend) Hidden(info *core.RepoInfo, name string) bool { return b.n.RefHidden(info, name) }

// Commit proposes a commit to the node that leads the partition.
func (b gitBackend) Commit(ctx context.Context, c core.Commit) core.Proposed {
	return b.n.Forward(ctx, c.Partition, []core.Commit{c})
}

// gitObjects is the objects' area in the form that the git edge needs.
type gitObjects struct {
	a *gitobj.Area
}

// Ready fails if the git program is not installed on this machine.
func (g gitObjects) Ready() error {
	if g.a.Git() == "" {
		return core.Unavailable{Reason: "git_unavailable"}
	}
	return nil
}

// Prepare makes sure that every pack of the repository is there for a fetch.
func (g gitObjects) Prepare(ctx context.Context, at githttp.Place) error {
	return gitError(g.a.Prepare(ctx, gitobj.Place(at)))
}

// Fetch runs git's upload-pack. If the request names refs, git gets a directory with the refs of
// one revision, which is released at the end.
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

// Begin begins a push, whose pack may have at most maxBytes. fresh says that the repository does
// not exist yet.
func (g gitObjects) Begin(ctx context.Context, at githttp.Place, principal string, maxBytes int64, fresh bool) (githttp.Push, error) {
	p, err := g.a.Begin(ctx, gitobj.PushSpec{At: gitobj.Place(at), Tenant: at.Partition.Tenant, Principal: principal, MaxBytes: maxBytes, Fresh: fresh})
	if err != nil {
		return nil, gitError(err)
	}
	return gitPush{g.a, gitobj.Place(at), p}, nil
}

// gitPush is a push in the form that the git edge needs. at is the place of its repository.
type gitPush struct {
	a  *gitobj.Area
	at gitobj.Place
	p  *gitobj.Push
}

// Receive reads the pack of the push. An error of the client's body is passed on as it came.
func (p gitPush) Receive(ctx context.Context, body io.Reader) error {
	return gitError(p.p.Receive(ctx, body))
}

// Lookup finds an object in the push or in what the repository has.
func (p gitPush) Lookup(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	t, peeled, err := p.p.Lookup(ctx, id)
	return t, peeled, gitError(err)
}

// Ancestry says for each move whether the old commit is an ancestor of the new one.
func (p gitPush) Ancestry(ctx context.Context, moves []core.Move) ([]core.Ancestry, error) {
	a, err := p.p.Ancestry(ctx, moves)
	return a, gitError(err)
}

// Keep makes the pack durable on this node. Then Spread copies it to enough other nodes, the commit
// is made, and Publish shows the pack to fetches. If the commit's outcome is not known, Abandon
// leaves the pack where it is, and a later sweep decides.
func (p gitPush) Keep(ctx context.Context) (core.Pack, core.ShardTime, bool, error) {
	pack, at, ok, err := p.p.Keep(ctx)
	return pack, at, ok, gitError(err)
}

// Spread copies the pack to other nodes.
func (p gitPush) Spread(ctx context.Context) error { return gitError(p.p.Spread(ctx)) }

// Publish shows the pack to fetches. Abandon leaves it to a sweep. Close gives back what the push holds.
func (p gitPush) Publish() error { return p.p.Publish() }
func (p gitPush) Abandon()       { p.p.Abandon() }
func (p gitPush) Close()         { p.p.Close() }
