package apitest

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// The fake node has one repository of each name but "missing", with main at OID.

// OID is the object that refs point to.
const OID = "1111111111111111111111111111111111111111"

// fakeRepo is the repository of a name, or the refusal for one that is missing.
func (n *Node) fakeRepo(name string) (core.RepoInfo, error) {
	if name == "missing" {
		return core.RepoInfo{}, core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: core.RefRepoNotFound}}}
	}
	return core.RepoInfo{
		Repo:  core.Repo{ID: core.RepoID{1}, Name: name, Config: core.RepoConfig{Version: 1}},
		Stats: core.RepoStats{Rev: 5, Refs: 2}, Head: "refs/heads/main",
	}, nil
}

// Refs are the refs of a repository.
func Refs() []core.Ref {
	id, _ := core.ParseObjectID(OID)
	return []core.Ref{{Name: "HEAD", Target: "refs/heads/main"}, {Name: "refs/heads/main", ID: id, Type: core.ObjectCommit, Rev: 5}}
}

// Repo answers as a test has set.
func (n *Node) Repo(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.RepoInfo, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(name)
	return info, core.At{}, err
}

// Repos answers as a test has set.
func (n *Node) Repos(_ context.Context, p core.Partition, after string, limit int, _ bool, _ core.ReadOptions) (out []core.RepoInfo, _ core.At, _ error) {
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

// Refs answers as a node does.
func (n *Node) Refs(_ context.Context, p core.Partition, repo string, names []string, _ bool, _ core.ReadOptions) (core.RepoInfo, []core.Ref, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(repo)
	out := make([]core.Ref, len(names))
	for i, name := range names {
		for _, r := range Refs() {
			if r.Name == name {
				out[i] = r
			}
		}
	}
	return info, out, core.At{}, err
}

// EachRef answers as a test has set.
func (n *Node) EachRef(_ context.Context, p core.Partition, q core.RefQuery, _ core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(core.Ref) error) error {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(q.Repo)
	if err != nil {
		return err
	}
	if err := begin(info, core.At{}); err != nil {
		return err
	}
	for _, r := range Refs() {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// RefLog answers as a test has set.
func (n *Node) RefLog(_ context.Context, p core.Partition, repo, name string, _ uint64, _ int, _ core.ReadOptions) (core.RepoInfo, []core.RefLog, core.At, error) {
	n.step()
	n.reach(p)
	info, err := n.fakeRepo(repo)
	return info, []core.RefLog{{Name: name, Seq: 5, Cause: core.CauseRequest, Principal: "p", Rev: 5}}, core.At{}, err
}

// MovedRefs answers as a test has set.
func (n *Node) MovedRefs(_ context.Context, p core.Partition, q core.RefQuery, _ func(r *core.Ref) bool, _ core.ReadOptions) (info core.RepoInfo, list []core.Ref, partial bool, at core.At, err error) {
	n.step()
	n.reach(p)
	info, err = n.fakeRepo(q.Repo)
	return info, Refs(), false, at, err
}

// RefActivity answers as a test has set.
func (n *Node) RefActivity(_ context.Context, p core.Partition, repo string, _ core.ActivityQuery, _ core.ReadOptions) (list []core.RefLog, partial bool, at core.At, err error) {
	n.step()
	n.reach(p)
	_, err = n.fakeRepo(repo)
	return []core.RefLog{{Name: "refs/heads/a", Seq: 5, Cause: core.CauseRequest, Principal: "p", Rev: 5}}, false, at, err
}

// RefSeq answers as a test has set.
func (n *Node) RefSeq(_ context.Context, p core.Partition, _ core.SessionID) (uint64, core.At, error) {
	n.step()
	n.reach(p)
	return 0, core.At{}, nil
}

// RefHidden answers as a test has set.
func (n *Node) RefHidden(_ *core.RepoInfo, name string) bool {
	n.step()
	return name == "refs/hidden"
}

// Objects holds every object as a commit.
type Objects struct{ *Planter }

// Lookup reads who holds a token from its text.
func (o Objects) Lookup(context.Context, core.Partition, core.RepoID, core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	o.step()
	return core.ObjectCommit, core.ObjectID{}, nil
}

// Ancestry answers as a test has set.
func (o Objects) Ancestry(_ context.Context, _ core.Partition, _ core.RepoID, moves []core.Move) ([]core.Ancestry, error) {
	o.step()
	return slices.Repeat([]core.Ancestry{core.FastForward}, len(moves)), nil
}

// RefAnswer is the answer to a transaction.
func RefAnswer(op *core.RefTxn) *core.RefsAnswer {
	a := &core.RefsAnswer{Repo: core.RepoID{1}, Rev: 6}
	for _, c := range op.Changes {
		a.Changes = append(a.Changes, core.RefResult{Old: c.Old, New: c.New})
	}
	return a
}
