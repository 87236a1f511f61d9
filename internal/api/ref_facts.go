package api

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// lookupWait bounds the look-ups of one transaction.
const lookupWait = 10 * time.Second

// refFacts writes into a transaction what Apply cannot find out: which repository is meant, the type of each new
// object and, if a rule or the caller's scopes ask for it, whether updates move forward. info, if given, is the
// repository as it was read a moment ago.
func (s *Server) refFacts(ctx context.Context, p core.Partition, op *core.RefTxn, info *core.RepoInfo) error {
	if s.o.Refs == nil {
		return edge.NotSupported("refs")
	}
	if info == nil {
		read, _, err := s.o.Refs.Repo(ctx, p, op.Repo, core.ReadOptions{Stale: true})
		if err != nil {
			if edge.Is[core.RefRefused](err) {
				return nil // Apply says so, perhaps of a repository that this node has not heard of yet
			}
			return err
		}
		info = &read
	}
	// Apply refuses the facts if the name belongs to another repository by then, or if its epoch has
	// changed.
	op.ID, op.Epoch = info.ID, info.Stats.Epoch
	// A server without git knows no objects.
	if s.o.Objects == nil {
		return nil
	}
	for i := range op.Changes {
		c := &op.Changes[i]
		// A deletion names no object.
		if c.New.IsZero() {
			continue
		}
		var err error
		if c.Type, c.Peeled, err = s.o.Objects.Lookup(ctx, p, info.ID, c.New); err != nil {
			return err
		}
		// Only a tag points on to something.
		if c.Type != core.ObjectTag {
			c.Peeled = core.ObjectID{}
		}
	}
	// Asking git for ancestry is costly: it is done where a rule or the token depends on it.
	if op.NoForce || slices.ContainsFunc(info.Config.Rules, func(r core.RefRule) bool { return r.Deny&core.DenyForce != 0 }) {
		return s.ancestry(ctx, p, op, info)
	}
	return nil
}

// ancestry finds out, for each update of a commit, whether it moves forward: from the old id that it names, or else from what
// the ref is at now. An update that names its old id has the same facts whenever it is repeated.
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
		if edge.Is[core.RefRefused](err) {
			return nil
		}
		return err
	}
	next := 0
	var asked []*core.RefChange
	for i := range op.Changes {
		c := &op.Changes[i]
		if c.Kind != core.OpRefUpdate || c.Type != core.ObjectCommit {
			continue
		}
		base, kind := refs[next].ID, refs[next].Type
		next++
		// The client says from where it moves the ref.
		if c.HasOld && c.Old != base {
			if base = c.Old; base.IsZero() {
				continue
			}
			if kind, _, err = s.o.Objects.Lookup(ctx, p, info.ID, base); err != nil {
				continue // the ref is not at it, which Apply says
			}
		}
		// A ref that is made moves from nothing, and other objects have no order.
		if base.IsZero() || kind != core.ObjectCommit {
			continue
		}
		c.Base = base
		asked = append(asked, c)
	}
	return s.askAncestry(ctx, p, info.ID, asked)
}

// askAncestry finds out which changes move forward from their bases, all at once.
func (s *Server) askAncestry(ctx context.Context, p core.Partition, repo core.RepoID, changes []*core.RefChange) error {
	if len(changes) == 0 {
		return nil
	}
	moves := make([]core.Move, len(changes))
	for i, c := range changes {
		moves[i] = core.Move{From: c.Base, To: c.New}
	}
	got, err := s.o.Objects.Ancestry(ctx, p, repo, moves)
	if err != nil {
		return err
	}
	for i, c := range changes {
		c.Ancestry = got[i]
	}
	return nil
}

// firstLogs is how many records of a ref's log are searched for that of a request, which is mostly among the last.
const firstLogs = 64

// proposeOnce is propose for a commit that may repeat another under its request id. Apply compares their contents, and what
// an update without an old id moves forward from is a fact of the moment. So a commit that is refused because its request id
// was used for other content is proposed once more with the facts that the refs' logs hold of that request, if any.
func (c *call) proposeOnce(ctx context.Context, commit core.Commit) (core.Proposed, error) {
	out, err := c.propose(ctx, commit)
	if err != nil || commit.RequestID == (core.RequestID{}) || out.Results[0].Refusal == nil {
		return out, err
	}
	if f, ok := out.Results[0].Refusal.Fact.(core.AlreadyExists); !ok || f.Kind != "request" {
		return out, nil
	}
	// The caller's commit stays as it is.
	ops, found := slices.Clone(commit.Ops), false
	for i, op := range ops {
		txn, ok := op.(*core.RefTxn)
		if !ok {
			continue
		}
		first, changed, err := c.s.firstFacts(ctx, commit.Partition, txn, commit.RequestID)
		if err != nil {
			return out, err
		}
		if changed {
			ops[i], found = first, true
		}
	}
	if !found {
		return out, nil
	}
	commit.Ops = ops
	return c.propose(ctx, commit)
}

// firstFacts returns a transaction with the facts that it had when a request applied it. It reports false where no log of its
// refs knows of the request, or no fact depends on when it is found out.
func (s *Server) firstFacts(ctx context.Context, p core.Partition, op *core.RefTxn, id core.RequestID) (*core.RefTxn, bool, error) {
	first := *op
	var asked []*core.RefChange
	first.Changes = slices.Clone(op.Changes)
	for i := range first.Changes {
		c := &first.Changes[i]
		if c.HasOld || c.Base.IsZero() {
			continue
		}
		_, list, _, err := s.o.Refs.RefLog(ctx, p, op.Repo, c.Name, 0, firstLogs, core.ReadOptions{})
		if err != nil {
			return nil, false, err
		}
		// What the request did stands in the log of the ref, with the id that it moved from.
		at := slices.IndexFunc(list, func(e core.RefLog) bool { return e.Request == id })
		if at < 0 || list[at].Old.IsZero() {
			continue
		}
		c.Base = list[at].Old
		asked = append(asked, c)
	}
	if err := s.askAncestry(ctx, p, op.ID, asked); err != nil {
		return nil, false, err
	}
	return &first, len(asked) > 0, nil
}
