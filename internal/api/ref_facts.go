package api

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// lookupWait bounds the look-ups of one transaction.
const lookupWait = 10 * time.Second

// refFacts writes into a transaction what Apply cannot find out: which repository is meant, the type of each new
// object and, if a rule or the caller's scopes ask for it, whether updates move forward. info, if given, is the
// repository as it was read a moment ago.
func (s *Server) refFacts(ctx context.Context, p core.Partition, op *core.RefTxn, info *core.RepoInfo) error {
	if s.o.Refs == nil {
		return notSupported("refs")
	}
	if info == nil {
		read, _, err := s.o.Refs.Repo(ctx, p, op.Repo, core.ReadOptions{Stale: true})
		if err != nil {
			if is[core.RefRefused](err) {
				return nil // Apply says so, perhaps of a repository that this node has not heard of yet
			}
			return err
		}
		info = &read
	}
	op.ID, op.Epoch = info.ID, info.Stats.Epoch
	if s.o.Objects == nil {
		return nil
	}
	for i := range op.Changes {
		c := &op.Changes[i]
		if c.New.IsZero() {
			continue
		}
		var err error
		if c.Type, c.Peeled, err = s.o.Objects.Lookup(ctx, p, info.ID, c.New); err != nil {
			return err
		}
		if c.Type != core.ObjectTag {
			c.Peeled = core.ObjectID{}
		}
	}
	if op.NoForce || slices.ContainsFunc(info.Config.Rules, func(r core.RefRule) bool { return r.Deny&core.DenyForce != 0 }) {
		return s.ancestry(ctx, p, op, info)
	}
	return nil
}

// ancestry finds out, for each update of a commit, whether it moves forward from what the ref is at now.
func (s *Server) ancestry(ctx context.Context, p core.Partition, op *core.RefTxn, info *core.RepoInfo) error {
	var names []string
	for i := range op.Changes {
		if c := &op.Changes[i]; c.Kind == core.OpRefUpdate && c.Type == core.ObjectCommit {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, refs, _, err := s.o.Refs.Refs(ctx, p, op.Repo, names, true, core.ReadOptions{Stale: true})
	if err != nil {
		if is[core.RefRefused](err) {
			return nil
		}
		return err
	}
	next := 0
	for i := range op.Changes {
		c := &op.Changes[i]
		if c.Kind != core.OpRefUpdate || c.Type != core.ObjectCommit {
			continue
		}
		ref := refs[next]
		next++
		if ref.ID.IsZero() || ref.Type != core.ObjectCommit {
			continue
		}
		c.Base = ref.ID
		if c.Ancestry, err = s.o.Objects.Ancestry(ctx, p, info.ID, ref.ID, c.New); err != nil {
			return err
		}
	}
	return nil
}
