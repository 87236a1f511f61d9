package checktest

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/refs"
)

var (
	refNames = []string{
		"refs/heads/main", "refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/tags/a", "refs/safe/a", "refs/hidden/a", "HEAD", "refs/l/x",
		"refs/l/y", "refs/one", "refs/bad..name", "nothing",
	}
	refTargets = []string{"refs/heads/main", "refs/heads/a", "refs/l/x", "refs/l/y"}
	repoNames  = []string{"app", "lib"}
)

// refsCommit makes a commit of repositories and refs alone, at times repeatable.
func (w *world) refsCommit() core.Commit {
	if len(w.old) > 0 && w.rand.IntN(8) == 0 {
		return recent(w.rand, w.old)
	}
	c := core.Commit{Partition: pick(w.rand, w.parts), Principal: pick(w.rand, []string{"tester", "other"}), Ops: []core.Op{w.refsOp(true)}}
	if w.rand.IntN(6) == 0 {
		c.Ops = append(c.Ops, w.refsOp(false))
	}
	if w.rand.IntN(4) == 0 {
		c.RequestID = core.RequestID{byte(w.rand.IntN(250)), 9}
		w.old = append(w.old, c)
	}
	return c
}

// auditRefs reads all repositories back.
func (r *run) auditRefs(p core.Partition) error {
	for _, name := range repoNames {
		info, ok, err := refs.Find(r.tx, p, name)
		if err != nil {
			return err
		}
		got := map[string]string{}
		if ok {
			err = refs.Scan(r.tx, p, info.ID, "", "", func(ref core.Ref) bool {
				if got[ref.Name] = ref.Target; ref.Target == "" {
					got[ref.Name] = ref.ID.String()
				}
				return true
			})
		}
		if err == nil {
			err = r.model.AuditRefs(p, name, got, info.Stats.Rev, ok)
		}
		if err == nil && ok {
			err = r.auditPacks(p, name, &info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refsOp makes an op on a repository or its refs. alone says that it may be one that has to be without company.
func (w *world) refsOp(alone bool) core.Op {
	name := pick(w.rand, repoNames)
	switch w.rand.IntN(20) {
	case 0, 1:
		return &core.RepoCreate{Name: name, ID: w.repoID(name), Config: w.repoConfig()}
	case 2:
		op := &core.RepoSet{Name: name, Config: w.repoConfig(), IfVersion: int64(w.rand.IntN(5) - 1)}
		if w.rand.IntN(3) == 0 {
			op.Branch = pick(w.rand, []string{"main", "a", "bad..name"})
		}
		return op
	case 3:
		return &core.RepoDelete{Name: name, IfVersion: int64(w.rand.IntN(4) - 1)}
	case 4, 5:
		return &core.RepoUndelete{Name: name}
	case 6, 7:
		return w.packSwap(name)
	}
	op := &core.RefTxn{
		Repo: name, Partial: alone && w.rand.IntN(3) == 0, Via: core.Via(w.rand.IntN(3)), Admin: w.rand.IntN(2) == 0, NoForce: w.rand.IntN(5) == 0,
	}
	if w.rand.IntN(8) == 0 {
		op.ID = core.RepoID{byte(1 + w.rand.IntN(4))}
	}
	for range 1 + w.rand.IntN(4) {
		op.Changes = append(op.Changes, w.refChange())
	}
	if w.rand.IntN(2) == 0 {
		op.Packs, op.StagedAt = []core.Pack{w.somePack(core.PackPush)}, w.stagedAt()
	}
	return op
}

// repoID is mostly the same for a name.
func (w *world) repoID(name string) core.RepoID {
	if w.rand.IntN(4) == 0 {
		return core.RepoID{byte(1 + w.rand.IntN(12))}
	}
	return core.RepoID{name[0]}
}

// packSwap makes an op that may find what it names or not, and that may be out of bounds.
func (w *world) packSwap(name string) core.Op {
	op := &core.PackSwap{Repo: name, ID: w.repoID(name), New: w.somePack(core.PackRollup), StagedAt: w.stagedAt()}
	for range w.rand.IntN(4) {
		op.Old = append(op.Old, w.somePack(core.PackPush).Digest)
	}
	if w.rand.IntN(16) == 0 {
		op.Epoch = 1
	}
	return op
}

// somePack is one of few, so that they meet.
func (w *world) somePack(kind core.PackKind) core.Pack {
	n := 1 + w.rand.IntN(4)
	return core.Pack{Digest: core.Digest{byte(n)}, Idx: core.Digest{9, byte(n)}, Bytes: int64(100 * n), IdxBytes: 10, Objects: int64(n), Kind: kind}
}

// stagedAt is mostly late enough.
func (w *world) stagedAt() core.ShardTime {
	if w.rand.IntN(10) == 0 {
		return 0
	}
	return core.Never
}

func (w *world) repoConfig() (c core.RepoConfig) {
	if w.rand.IntN(3) == 0 {
		c.Hide = []string{"refs/hidden/**"}
	}
	if w.rand.IntN(3) == 0 {
		rule := core.RefRule{Refs: pick(w.rand, []string{"refs/safe/*", "refs/heads/**", "refs/*/a"}), Deny: core.Deny(w.rand.IntN(16)), Only: core.Via(w.rand.IntN(4))}
		if rule.Only == core.ViaEffects && w.rand.IntN(2) == 0 {
			rule.Queue = pick(w.rand, w.queues)
		}
		if w.rand.IntN(4) == 0 {
			rule.Except = []string{"tester"}
		}
		if rule.Deny != 0 || rule.Only != core.ViaAny {
			c.Rules = []core.RefRule{rule}
		}
	}
	if w.rand.IntN(12) == 0 {
		c.State = core.RepoState(w.rand.IntN(3))
	}
	if w.rand.IntN(12) == 0 {
		c.ReflogMax = 10_000 + int32(w.rand.IntN(2))
	}
	return c
}

// refChange makes a change, which the state allows about as often as not.
func (w *world) refChange() core.RefChange {
	c := core.RefChange{Kind: core.OpRefCreate + core.OpKind(w.rand.IntN(8)), Name: pick(w.rand, refNames)}
	id := func() core.ObjectID { return core.ObjectID{byte(1 + w.rand.IntN(3)), 19: 1} }
	old := func(zero bool) {
		if c.HasOld = w.rand.IntN(3) == 0; c.HasOld && !(zero && w.rand.IntN(3) == 0) {
			c.Old = id()
		}
	}
	oldTarget := func(none bool) {
		if c.HasOldTarget = w.rand.IntN(2) == 0; c.HasOldTarget && !(none && w.rand.IntN(3) == 0) {
			c.OldTarget = pick(w.rand, refTargets)
		}
	}
	if c.Kind < core.OpSymrefUpdate {
		c.NoDeref = w.rand.IntN(4) == 0
	}
	switch c.Kind {
	case core.OpRefCreate:
		c.New = id()
	case core.OpRefUpdate:
		if old(true); w.rand.IntN(6) > 0 {
			c.New = id()
		}
	case core.OpRefDelete:
		old(false)
		c.MissingOK = w.rand.IntN(2) == 0
	case core.OpRefVerify:
		old(true)
	case core.OpSymrefUpdate:
		c.Target = pick(w.rand, refTargets)
		oldTarget(true)
	case core.OpSymrefCreate:
		c.Target = pick(w.rand, refTargets)
	case core.OpSymrefDelete:
		oldTarget(false)
	default:
		oldTarget(true)
	}
	if !c.New.IsZero() {
		c.Type = core.ObjectCommit
		if n := w.rand.IntN(12); n < 2 {
			c.Type = []core.ObjectType{core.ObjectMissing, core.ObjectTag}[n]
		}
		if w.rand.IntN(2) == 0 {
			c.Base, c.Ancestry = id(), core.Ancestry(w.rand.IntN(3))
		}
	}
	return c
}

// auditPacks reads a repository's manifest back, with its counts.
func (r *run) auditPacks(p core.Partition, name string, info *core.RepoInfo) error {
	lines, err := refs.Packs(r.tx, p, info.ID)
	if err != nil {
		return err
	}
	got, bytes := map[core.Digest]int64{}, int64(0)
	for _, l := range lines {
		got[l.Digest] = l.Bytes
		bytes += l.Bytes + l.IdxBytes
	}
	if info.Stats.Packs != int64(len(lines)) || info.Stats.Bytes != bytes {
		return fmt.Errorf("repository %q counts %d packs of %d bytes, its manifest has %d of %d", name, info.Stats.Packs, info.Stats.Bytes, len(lines), bytes)
	}
	return r.model.AuditPacks(p, name, got)
}
