package refs

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// swap puts one pack in the place of several. The proposer has seen that the new one holds every
// object of theirs. Apply makes sure that each of them is still in the manifest: of two rollups of
// the same packs the second changes nothing.
func (m *Machine) swap(tx core.Txn, c *core.ApplyContext, op *core.PackSwap, r *core.OpResult) (core.Fact, error) {
	if fact := checkSwap(op); fact != nil {
		return fact, nil
	}
	repo, err := m.find(tx, op.Repo)
	if err != nil {
		return nil, err
	}
	switch {
	case repo == nil || repo.ID != op.ID:
		return refused(op.Repo, core.RefRepoNotFound), nil
	// The proposer looked at the objects in an earlier epoch: some may be gone.
	case op.Epoch != repo.stats.Epoch:
		return refused(op.Repo, core.RefCheckStale), nil
	// Nodes may have removed the new pack by now.
	case op.StagedAt.Add(keepStaged) < c.Stamp:
		return refused(op.Repo, core.RefPackExpired), nil
	}
	// A pack may hold what all of them hold; then it stays, as the new one.
	_, there, err := tx.Get(keys.Pack(m.p, repo.ID, op.New.Digest))
	if err != nil {
		return nil, err
	}
	// By how many bytes the repository grows, which may be negative.
	bytes := op.New.Bytes + op.New.IdxBytes
	for _, d := range op.Old {
		row, ok, err := tx.Get(keys.Pack(m.p, repo.ID, d))
		if err != nil {
			return nil, err
		}
		if !ok {
			return refused(op.Repo, core.RefCheckStale), nil
		}
		line, err := core.DecodePackLine(row)
		if err != nil {
			return nil, errs.Corruptf("manifest of repository %s: %v", repo.ID, err)
		}
		bytes -= line.Bytes + line.IdxBytes
		there = there && d != op.New.Digest
	}
	// It is in the manifest and is not one of those that leave: the swap was applied before.
	if there {
		return refused(op.Repo, core.RefCheckStale), nil
	}
	m.note(op.Repo)
	for _, d := range op.Old {
		tx.Delete(keys.Pack(m.p, repo.ID, d))
	}
	line := core.PackLine{Pack: op.New, Stamp: c.Stamp, Index: c.Index}
	tx.Set(keys.Pack(m.p, repo.ID, op.New.Digest), core.AppendPackLine(nil, &line))
	s := &repo.stats
	s.Packs, s.Bytes, s.Manifest = s.Packs+1-int64(len(op.Old)), s.Bytes+bytes, s.Manifest+1
	tx.Set(keys.RepoStats(m.p, repo.ID), core.AppendRepoStats(nil, s))
	r.Refs = &core.RefsAnswer{Repo: repo.ID, Rev: s.Rev}
	return nil, nil
}

// checkSwap judges the shape of a swap. The old packs must differ.
func checkSwap(op *core.PackSwap) core.Fact {
	switch {
	case len(op.Old) == 0:
		return core.Invalid{Field: "old", Reason: "empty", Message: "a pack takes the place of others"}
	case len(op.Old) > core.MaxSwapPacks:
		return core.TooLarge{Field: "old", Limit: "swap_packs", Max: core.MaxSwapPacks}
	}
	seen := make(map[core.Digest]bool, len(op.Old))
	for _, d := range op.Old {
		if seen[d] {
			return core.Invalid{Field: "old", Reason: "duplicate", Message: "a pack is named twice"}
		}
		seen[d] = true
	}
	return checkPack("new", &op.New, core.PackRollup)
}
