package githttp

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Place says where a repository is. Shard and partition are those whose log has the repository's
// refs.
type Place struct {
	Shard     core.ShardID
	Partition core.Partition
	Repo      core.RepoID
}

// Repo is a repository as it was found: settings, counters and place.
type Repo struct {
	core.RepoInfo
	Place Place
}

// Backend is the node as this edge needs it. Reads are linearizable. An error that satisfies core.Fact is for the client.
type Backend interface {
	edge.Directory
	// Repo finds a repository of a namespace by name. core.NotFound, or a core.RefRefused that says so, when there is none.
	Repo(ctx context.Context, ns core.NamespaceInfo, name string) (Repo, error)
	// Plan returns a repository that is not there as a push would make it, with its id and place; ok is false where the
	// namespace does not have pushes make any.
	Plan(ctx context.Context, ns core.NamespaceInfo, name string) (planned Repo, ok bool, err error)
	// Create makes what was planned. A core.RefRefused says that somebody else made one of that name.
	Create(ctx context.Context, planned Repo, principal string) (Repo, error)
	// Refs calls begin with the repository, then fn for each of its refs whose name starts with prefix: HEAD first, then in
	// byte order, but symbolic refs last; these have the id of what they finally point to, if that is there. All is of one
	// instant. Both may block. An error of theirs ends it and is returned.
	Refs(ctx context.Context, at Repo, q RefQuery, begin func(core.RepoInfo) error, fn func(core.Ref) error) error
	// Ref reads refs by name, all at one instant; one that is not there has no name.
	Ref(ctx context.Context, at Repo, names []string) (core.RepoInfo, []core.Ref, error)
	// Hidden reports whether a repository's settings hide a ref.
	Hidden(at *core.RepoInfo, name string) bool
	// Commit puts one commit into the log and waits for its end, or for that of ctx, after which it is unknown.
	Commit(ctx context.Context, c core.Commit) core.Proposed
}

// RefQuery asks for refs.
type RefQuery struct {
	Prefix string
	Limit  int  // 0: none
	Admin  bool // hidden ones too
}

// Auth tells who holds a token. now is the wall clock.
type Auth interface {
	// Lookup returns the principal of a token, and whether the token is valid at now.
	Lookup(token string, now time.Time) (auth.Principal, bool)
}

// Refs calls yield for each ref of one revision. An error of yield ends it and is returned.
type Refs func(yield func(core.Ref) error) error

// Objects are the packs of all repositories on this node.
type Objects interface {
	// Ready fails with core.Unavailable when there is no git on this machine.
	Ready() error
	// Prepare makes sure that every pack of the manifest, as this node has applied it, is there and whole.
	Prepare(ctx context.Context, at Place) error
	// Fetch answers one request of git's fetch.
	Fetch(ctx context.Context, f Fetch, in func(io.Writer) error, out func(io.Reader) error) error
	// Begin begins a push. It refuses when packs cannot be taken: there is too little room, or a sync has failed. A fresh
	// repository is only planned: nothing of it is left when the push publishes nothing. The principal is whose share of programs
	// it takes.
	Begin(ctx context.Context, at Place, principal string, maxBytes int64, fresh bool) (Push, error)
}

// Fetch is one request of git's fetch.
type Fetch struct {
	At        Place
	Principal string // whose share of programs it takes
	Protocol  string // 0, 1 or 2
	Names     bool   // the request names refs: git must find them
	Rev       uint64 // of the repository, when it was found
	Refs      Refs   // as of Rev or later, without hidden ones
}

// Push is one push on its way. Close ends it in any case.
//
// The calls come in this order: Receive once; Lookup and Ancestry for what was received or is held;
// Keep once; Spread; then the commit is proposed, and Publish or Abandon follows when its outcome
// is known. Until Keep nothing of the push outlives Close. What was kept and is named by no commit
// is removed later.
type Push interface {
	// Receive takes in a pack, to the end of body. A RefusedPack says what is wrong with it: also that an object in it links
	// to what is neither in it nor held already.
	Receive(ctx context.Context, body io.Reader) error
	// Lookup returns an object's type, ObjectMissing when it is not there, and what a tag finally points to.
	Lookup(ctx context.Context, id core.ObjectID) (core.ObjectType, core.ObjectID, error)
	// Ancestry tells for each move whether its new object descends from its old one.
	Ancestry(ctx context.Context, moves []core.Move) ([]core.Ancestry, error)
	// Keep makes what was received durable. ok is false when nothing was. at is the shard time it is kept from.
	Keep(ctx context.Context) (pack core.Pack, at core.ShardTime, ok bool, err error)
	// Spread makes what was kept durable at enough nodes for a commit to name it. core.Unavailable: too few nodes took it.
	Spread(ctx context.Context) error
	// Publish shows the pack to fetches and pushes: its commit was applied.
	Publish() error
	// Abandon leaves what was kept where it is: whether its commit was applied is not known.
	Abandon()
	Close()
}

// RefusedPack says what is wrong with what a client sent, in a line for people.
type RefusedPack struct {
	Line     string
	NotWhole bool // an object in it links to what is neither in it nor held already
}

// Error says what is wrong.
func (e *RefusedPack) Error() string { return e.Line }
