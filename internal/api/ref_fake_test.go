package api

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// The fake node has one repository of each name but "missing", with main at testOID.

const testOID = "1111111111111111111111111111111111111111"

func (n *fakeNode) fakeRepo(name string) (core.RepoInfo, error) {
	if name == "missing" {
		return core.RepoInfo{}, noRepo(name)
	}
	return core.RepoInfo{
		Repo:  core.Repo{ID: core.RepoID{1}, Name: name, Config: core.RepoConfig{Version: 1}},
		Stats: core.RepoStats{Rev: 5, Refs: 2}, Head: "refs/heads/main",
	}, nil
}

func fakeRefs() []core.Ref {
	id, _ := core.ParseObjectID(testOID)
	return []core.Ref{{Name: "HEAD", Target: "refs/heads/main"}, {Name: "refs/heads/main", ID: id, Type: core.ObjectCommit, Rev: 5}}
}

func (n *fakeNode) Repo(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.RepoInfo, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(name)
	return info, core.At{}, err
}

func (n *fakeNode) Repos(_ context.Context, p core.Partition, after string, limit int, _ bool, _ core.ReadOptions) (out []core.RepoInfo, _ core.At, _ error) {
	n.step()
	n.reach(p)
	for _, name := range []string{"a", "b", "c"} {
		if name > after && len(out) < limit {
			info, _ := n.fakeRepo(name)
			out = append(out, info)
		}
	}
	return out, core.At{}, nil
}

func (n *fakeNode) Refs(_ context.Context, p core.Partition, repo string, names []string, _ bool, _ core.ReadOptions) (core.RepoInfo, []core.Ref, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(repo)
	out := make([]core.Ref, len(names))
	for i, name := range names {
		for _, r := range fakeRefs() {
			if r.Name == name {
				out[i] = r
			}
		}
	}
	return info, out, core.At{}, err
}

func (n *fakeNode) EachRef(_ context.Context, p core.Partition, q core.RefQuery, _ core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(q.Repo)
	if err != nil {
		return err
	}
	if err := begin(info, core.At{}); err != nil {
		return err
	}
	for _, r := range fakeRefs() {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (n *fakeNode) RefLog(_ context.Context, p core.Partition, repo, name string, _ uint64, _ int, _ core.ReadOptions) (core.RepoInfo, []core.RefLog, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(repo)
	return info, []core.RefLog{{Name: name, Seq: 5, Cause: core.CauseRequest, Principal: "p", Rev: 5}}, core.At{}, err
}

func (n *fakeNode) RefSeq(_ context.Context, p core.Partition, _ core.SessionID) (uint64, core.At, error) {
	n.step()
	n.reach(p)
	return 0, core.At{}, nil
}

func (n *fakeNode) RefHidden(_ *core.RepoInfo, name string) bool {
	n.step()
	return name == "refs/hidden"
}

// fakeObjects holds every object as a commit.
type fakeObjects struct{ *planter }

func (o fakeObjects) Lookup(context.Context, core.Partition, core.RepoID, core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	o.step()
	return core.ObjectCommit, core.ObjectID{}, nil
}

func (o fakeObjects) Ancestry(_ context.Context, _ core.Partition, _ core.RepoID, moves []core.Move) ([]core.Ancestry, error) {
	o.step()
	return slices.Repeat([]core.Ancestry{core.FastForward}, len(moves)), nil
}

func fakeAnswer(op *core.RefTxn) *core.RefsAnswer {
	a := &core.RefsAnswer{Repo: core.RepoID{1}, Rev: 6}
	for _, c := range op.Changes {
		a.Changes = append(a.Changes, core.RefResult{Old: c.Old, New: c.New})
	}
	return a
}
