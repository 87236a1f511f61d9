package api

import (
	"context"

	"github.com/millrace/millrace/internal/core"
)

// RefBackend is the node as the refs service needs it, in addition to what all services share. An absent repository is a core.RefRefused.
type RefBackend interface {
	// Repo reads a repository.
	Repo(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (core.RepoInfo, core.At, error)
	// Repos reads a page of repositories by name, after the name given; or deleted ones, which have no pages.
	Repos(ctx context.Context, p core.Partition, after string, limit int, deleted bool, o core.ReadOptions) ([]core.RepoInfo, core.At, error)
	// Refs reads refs by name, all at one instant; one that is not there has no name. With peel, symbolic refs have the
	// id of what they finally point to.
	Refs(ctx context.Context, p core.Partition, repo string, names []string, peel bool, o core.ReadOptions) (core.RepoInfo, []core.Ref, core.At, error)
	// EachRef calls begin, then fn for each ref of a query, in byte order and all of one instant, until one fails.
	EachRef(ctx context.Context, p core.Partition, q core.RefQuery, o core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error
	// RefLog reads the log of a ref, newest first, from before the record of that number; 0 is all.
	RefLog(ctx context.Context, p core.Partition, repo, name string, before uint64, limit int, o core.ReadOptions) (core.RepoInfo, []core.RefLog, core.At, error)
	// MovedRefs reads a page of the refs that want reports, those first that were changed last. partial says that not all refs were
	// looked at.
	MovedRefs(ctx context.Context, p core.Partition, q core.RefQuery, want func(r *core.Ref) bool, o core.ReadOptions) (info core.RepoInfo, list []core.Ref, partial bool, at core.At, err error)
	// RefActivity reads a page of the logs of all refs together, newest first. partial says that not all refs were looked at.
	RefActivity(ctx context.Context, p core.Partition, repo string, q core.ActivityQuery, o core.ReadOptions) (list []core.RefLog, partial bool, at core.At, err error)
	// RefSeq reads the last commit of a session that was applied.
	RefSeq(ctx context.Context, p core.Partition, session core.SessionID) (uint64, core.At, error)
	// RefHidden reports whether a repository's settings hide a ref.
	RefHidden(info *core.RepoInfo, name string) bool
}

// Objects looks objects up, as of the state that this node has applied: what a commit says of them is judged in Apply.
type Objects interface {
	// Lookup returns the type of an object, and what a tag finally points to. core.ObjectMissing is a type, not an error.
	Lookup(ctx context.Context, p core.Partition, repo core.RepoID, id core.ObjectID) (t core.ObjectType, peeled core.ObjectID, err error)
	// Ancestry tells for each move whether its new commit descends from its old one; unknown when it cannot tell.
	Ancestry(ctx context.Context, p core.Partition, repo core.RepoID, moves []core.Move) ([]core.Ancestry, error)
}
