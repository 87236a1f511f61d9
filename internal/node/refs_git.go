package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/refs"
)

// maxSymbolic bounds the symbolic refs of a long list, which are held until its end. Others than HEAD are rare.
const maxSymbolic = 10_000

// ResolvedRefs is EachRef as git clients see it: symbolic refs have the id of what they finally point to, if that is there, and
// HEAD points where refs.Head says. HEAD is first; other symbolic refs may be last.
func (n *Node) ResolvedRefs(ctx context.Context, p core.Partition, q core.RefQuery, o core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	var info core.RepoInfo
	var list []core.Ref
	short := true
	at, err := n.read(ctx, p, o, func(v core.View) (err error) {
		if info, err = findRepo(v, p, q.Repo); err != nil {
			return err
		}
		if short = info.Stats.Refs <= shortScan || q.Limit > 0 && q.Limit <= shortScan; !short {
			return nil
		}
		if list, err = n.shortList(v, p, &info, q); err != nil {
			return err
		}
		return resolveAll(v, p, &info, list)
	})
	if err != nil {
		return err
	}
	if !short {
		return n.resolvedPinned(p, q, at, begin, fn)
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

// resolveAll gives symbolic refs of a list the ids of what they point to. HEAD, and info, get the branch to which HEAD leads.
func resolveAll(v core.View, p core.Partition, info *core.RepoInfo, list []core.Ref) (err error) {
	if info.Head, err = refs.Head(v, p, info); err != nil {
		return err
	}
	for i := range list {
		ref := &list[i]
		if ref.Target == "" {
			continue
		}
		if ref.Name == "HEAD" {
			ref.Target = info.Head
		}
		to, ok, err := refs.Resolve(v, p, info.ID, *ref)
		if err != nil {
			return err
		}
		if ok {
			ref.ID, ref.Type, ref.Peeled = to.ID, to.Type, to.Peeled
		}
	}
	return nil
}

// resolvedPinned is ResolvedRefs for lists too long to be read at once.
func (n *Node) resolvedPinned(p core.Partition, q core.RefQuery, at core.At, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	s, err := n.shardOf(p)
	if err != nil {
		return err
	}
	return s.store.Pinned(func(v core.View) error {
		info, err := findRepo(v, p, q.Repo)
		if err != nil {
			return err
		}
		shown := shows(&info, q)
		symbolic, err := oneRef(v, p, info.ID, q.Prefix, shown)
		if err != nil {
			return err
		}
		if err := resolveAll(v, p, &info, symbolic); err != nil {
			return err
		}
		if err := begin(info, at); err != nil {
			return err
		}
		end := func() error {
			if err := resolveAll(v, p, &info, symbolic); err != nil {
				return err
			}
			for _, ref := range symbolic {
				if err := fn(ref); err != nil {
					return err
				}
			}
			symbolic = nil
			return nil
		}
		if err := end(); err != nil {
			return err
		}
		var failed error
		err = refs.Scan(v, p, info.ID, q.Prefix, "", func(r core.Ref) bool {
			switch {
			case r.Name == "HEAD" || !shown(r.Name):
			case r.Target == "":
				failed = fn(r)
			case len(symbolic) == maxSymbolic:
				failed = core.Exhausted{Limit: "symbolic_refs", Max: maxSymbolic}
			default:
				symbolic = append(symbolic, r)
			}
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return end()
	})
}

// oneRef reads HEAD, if a list with that prefix shows it.
func oneRef(v core.View, p core.Partition, id core.RepoID, prefix string, shown func(string) bool) ([]core.Ref, error) {
	if prefix != "" && prefix != "HEAD"[:min(len(prefix), 4)] || !shown("HEAD") {
		return nil, nil
	}
	ref, ok, err := refs.Get(v, p, id, "HEAD")
	if err != nil || !ok {
		return nil, err
	}
	return []core.Ref{ref}, nil
}

// ShardOf returns the shard that holds a partition; ok is false when this node knows none.
func (n *Node) ShardOf(p core.Partition) (id core.ShardID, ok bool) {
	s, err := n.shardOf(p)
	if err != nil {
		return 0, false
	}
	return s.id, true
}
