package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/refs"
)

// Repo reads a repository.
func (n *Node) Repo(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (info core.RepoInfo, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		info, err = findRepo(v, p, name)
		show(shift, &info.CreatedAt, &info.DeletedAt)
		return err
	})
	return info, at, err
}

// findRepo reads a repository by name. One that is not there is a refusal of refs, as a transaction would have it.
func findRepo(v core.View, p core.Partition, name string) (core.RepoInfo, error) {
	info, ok, err := refs.Find(v, p, name)
	if err == nil && !ok {
		err = core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: core.RefRepoNotFound}}}
	}
	return info, err
}

// Repos reads a page of repositories by name, after the name given; or deleted ones, which have no pages.
func (n *Node) Repos(ctx context.Context, p core.Partition, after string, limit int, deleted bool, o core.ReadOptions) (list []core.RepoInfo, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		if deleted {
			list, err = refs.Deleted(v, p, limit)
		} else {
			list, err = refs.List(v, p, after, limit)
		}
		for i := range list {
			show(shift, &list[i].CreatedAt, &list[i].DeletedAt)
		}
		return err
	})
	return list, at, err
}

// Refs reads refs by name, all at one instant. One that is not there has no name. With peel, symbolic refs have the id
// of what they finally point to, if that is there.
func (n *Node) Refs(ctx context.Context, p core.Partition, repo string, names []string, peel bool, o core.ReadOptions) (info core.RepoInfo, list []core.Ref, at core.At, err error) {
	list = make([]core.Ref, len(names))
	at, err = n.read(ctx, p, o, func(v core.View) error {
		if info, err = findRepo(v, p, repo); err != nil {
			return err
		}
		for i, name := range names {
			if list[i], err = readRef(v, p, info.ID, name, peel); err != nil {
				return err
			}
		}
		return nil
	})
	return info, list, at, err
}

// readRef reads a ref; one that is not there has no name. With peel a symbolic one gets the id of what it finally
// points to.
func readRef(v core.View, p core.Partition, id core.RepoID, name string, peel bool) (core.Ref, error) {
	ref, ok, err := refs.Get(v, p, id, name)
	if err != nil || !ok || !peel || ref.Target == "" {
		return ref, err
	}
	to, ok, err := refs.Resolve(v, p, id, ref)
	if ok {
		ref.ID, ref.Type, ref.Peeled = to.ID, to.Type, to.Peeled
	}
	return ref, err
}

// shortScan is how many rows are read while Apply waits: a few milliseconds. Longer lists are read from a pinned state.
const shortScan = 10_000

// EachRef calls begin with the repository, then fn for each ref of a query, in byte order, until one returns an error,
// which it returns. All is of one instant. Both may block: nothing waits for them.
func (n *Node) EachRef(ctx context.Context, p core.Partition, q core.RefQuery, o core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	var info core.RepoInfo
	var list []core.Ref
	short := true
	at, err := n.read(ctx, p, o, func(v core.View) (err error) {
		if info, err = findRepo(v, p, q.Repo); err != nil {
			return err
		}
		if short = info.Stats.Refs <= shortScan || q.Limit > 0 && q.Limit <= shortScan && len(q.Globs) == 0; !short {
			return nil
		}
		list, err = n.shortList(v, p, &info, q)
		return err
	})
	if err != nil {
		return err
	}
	if !short {
		return n.eachPinned(p, q, at, begin, fn)
	}
	if err := begin(info, at); err != nil {
		return err
	}
	for _, ref := range list {
		if err := fn(ref); err != nil {
			return err
		}
	}
	return nil
}

// shortList reads the refs of a query at once, in the read of the caller: only where there are few.
func (n *Node) shortList(v core.View, p core.Partition, info *core.RepoInfo, q core.RefQuery) (list []core.Ref, err error) {
	shown := shows(info, q)
	err = refs.Scan(v, p, info.ID, q.Prefix, q.After, func(r core.Ref) bool {
		if shown(r.Name) {
			list = append(list, r)
		}
		return q.Limit == 0 || len(list) < q.Limit
	})
	return list, err
}

// eachPinned is EachRef for lists too long to be read at once.
func (n *Node) eachPinned(p core.Partition, q core.RefQuery, at core.At, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	s, err := n.shardOf(p)
	if err != nil {
		return err
	}
	return s.store.Pinned(func(v core.View) error {
		info, err := findRepo(v, p, q.Repo)
		if err != nil {
			return err
		}
		if err := begin(info, at); err != nil {
			return err
		}
		shown, left := shows(&info, q), q.Limit
		var failed error
		err = refs.Scan(v, p, info.ID, q.Prefix, q.After, func(r core.Ref) bool {
			if !shown(r.Name) {
				return true
			}
			failed = fn(r)
			left--
			return failed == nil && left != 0
		})
		if failed != nil {
			return failed
		}
		return err
	})
}

// shows returns which refs a query shows.
func shows(info *core.RepoInfo, q core.RefQuery) func(name string) bool {
	hide := info.Config.Hide
	if q.Admin {
		hide = nil
	}
	return func(name string) bool {
		return (len(q.Globs) == 0 || refs.Matches(q.Globs, name)) && (len(hide) == 0 || !refs.Matches(hide, name))
	}
}

// RefLog reads the log of a ref, newest first, from before the record of that number; 0 is all.
func (n *Node) RefLog(ctx context.Context, p core.Partition, repo, name string, before uint64, limit int, o core.ReadOptions) (info core.RepoInfo, list []core.RefLog, at core.At, err error) {
	now := n.Now(p)
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		if info, err = findRepo(v, p, repo); err != nil {
			return err
		}
		list, err = refs.Log(v, p, &info, name, before, limit, now)
		for i := range list {
			show(shift, &list[i].Stamp)
		}
		return err
	})
	return info, list, at, err
}

// MovedRefs reads the refs of a query that want reports, those first that were changed last. partial says that not all refs were looked at.
func (n *Node) MovedRefs(ctx context.Context, p core.Partition, q core.RefQuery, want func(r *core.Ref) bool, o core.ReadOptions) (info core.RepoInfo, list []core.Ref, partial bool, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		if info, err = findRepo(v, p, q.Repo); err != nil {
			return err
		}
		shown := shows(&info, q)
		list, partial, err = refs.Moved(v, p, &info, q, func(r *core.Ref) bool { return shown(r.Name) && want(r) })
		return err
	})
	return info, list, partial, at, err
}

// RefActivity reads a page of the logs of all refs of a repository together, newest first. partial says that not all refs were looked at.
func (n *Node) RefActivity(ctx context.Context, p core.Partition, repo string, q core.ActivityQuery, o core.ReadOptions) (list []core.RefLog, partial bool, at core.At, err error) {
	now := n.Now(p)
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		info, err := findRepo(v, p, repo)
		if err != nil {
			return err
		}
		list, partial, err = refs.Activity(v, p, &info, q, now)
		for i := range list {
			show(shift, &list[i].Stamp)
		}
		return err
	})
	return list, partial, at, err
}

// RefHidden reports whether a repository's settings hide a ref.
func (n *Node) RefHidden(info *core.RepoInfo, name string) bool {
	return refs.Matches(info.Config.Hide, name)
}

// RefSeq reads the last commit of a session that was applied.
func (n *Node) RefSeq(ctx context.Context, p core.Partition, session core.SessionID) (last uint64, at core.At, err error) {
	at, err = n.read(ctx, p, core.ReadOptions{}, func(v core.View) error {
		last, err = commit.AppliedSeq(v, p, session)
		return err
	})
	return last, at, err
}
