package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// fakePacks hold packs for a backup, as a test wants.
type fakePacks struct {
	added, ensured []core.Digest
	places         map[heldPack]bool
	frozen         int
	here           func(core.Digest) bool  // of Add
	ensure         func(core.Digest) error // of Ensure
	each           error
}

type heldPack struct {
	at     PackPlace
	digest core.Digest
}

func (f *fakePacks) Freeze() func() { f.frozen++; return func() { f.frozen-- } }

func (f *fakePacks) Add(at PackPlace, p core.Pack) (bool, error) {
	if f.frozen != 1 {
		return false, errors.New("a pack is held while others may go")
	}
	if f.places == nil {
		f.places = map[heldPack]bool{}
	}
	f.places[heldPack{at, p.Digest}] = true
	f.added = append(f.added, p.Digest)
	return f.here == nil || f.here(p.Digest), nil
}

func (f *fakePacks) Ensure(_ context.Context, at PackPlace, p core.Pack) error {
	if f.frozen != 0 || !f.places[heldPack{at, p.Digest}] {
		return errors.New("a pack of another place, or others may not go")
	}
	if f.ensure != nil {
		if err := f.ensure(p.Digest); err != nil {
			return err
		}
	}
	f.ensured = append(f.ensured, p.Digest)
	return nil
}

func (f *fakePacks) Each(fn func(core.BackupFile, io.ReaderAt) error) error {
	list := slices.Clone(f.ensured)
	slices.SortFunc(list, func(a, b core.Digest) int { return bytes.Compare(a[:], b[:]) })
	for _, d := range slices.Compact(list) {
		if err := fn(core.BackupFile{Digest: d, Size: 300 << 10}, bytes.NewReader(make([]byte, 300<<10))); err != nil {
			return err
		}
	}
	return f.each
}

func packNo(n byte) core.Pack {
	return core.Pack{Digest: core.Digest{n}, Idx: core.Digest{n, 1}, Bytes: 300 << 10, IdxBytes: 10, Objects: 1, Kind: core.PackPush}
}

// pushed makes a repository, and pushes packs to it.
func (r *rig) pushed(name string, id core.RepoID, packs ...core.Pack) {
	r.t.Helper()
	r.must(&core.RepoCreate{Name: name, ID: id})
	for i, p := range packs {
		r.must(&core.RefTxn{Repo: name, Packs: []core.Pack{p}, StagedAt: 1 << 50, Changes: []core.RefChange{{
			Kind: core.OpRefUpdate, Name: "refs/heads/main", New: core.ObjectID{byte(i + 1)}, Type: core.ObjectCommit,
		}}})
	}
}

func TestABackupGivesThePacksThatItsStateNames(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.pushed("app", core.RepoID{1}, packNo(3), packNo(1))
	r.pushed("lib", core.RepoID{2}, packNo(1), packNo(2))
	packs, g := &fakePacks{here: func(d core.Digest) bool { return d[0] != 2 }}, &gatheredBackup{}
	if err := r.node.Backup(t.Context(), BackupOptions{Packs: packs}, g); err != nil {
		t.Fatal(err)
	}
	if want := []core.Digest{{1}, {3}, {1}, {2}}; !slices.Equal(packs.added, want) || !slices.Equal(packs.ensured, want) {
		t.Errorf("added %v, ensured %v", packs.added, packs.ensured)
	}
	if len(g.files) != 3 || !g.head.Objects || g.files[0].Digest != (core.Digest{1}) || g.bytes < 3*300<<10 {
		t.Errorf("files %+v of %d bytes", g.files, g.bytes)
	}
	if names, _ := r.disk.List("data/snapshots"); len(names) > 0 {
		t.Errorf("%v is left", names)
	}
}

// A pack that was rolled up before it came from another node is named no more by the state of a later entry.
func TestAStateThatNamesAPackWhichIsGoneIsWrittenAgain(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.pushed("app", core.RepoID{1}, packNo(1), packNo(2))
	gone := errors.Join(ErrPackGone, core.Unavailable{Reason: "pack_unavailable"})
	packs, g := &fakePacks{}, &gatheredBackup{}
	packs.ensure = func(d core.Digest) error {
		if d[0] != 2 {
			return nil
		}
		next := packNo(9)
		next.Kind = core.PackRollup
		r.must(&core.PackSwap{Repo: "app", ID: core.RepoID{1}, Old: []core.Digest{{1}, {2}}, New: next, StagedAt: 1 << 50})
		return gone
	}
	if err := r.node.Backup(t.Context(), BackupOptions{Packs: packs}, g); err != nil {
		t.Fatal(err)
	}
	if want := []core.Digest{{1}, {2}, {9}}; !slices.Equal(packs.added, want) || len(g.shards) != 1 {
		t.Errorf("added %v, %d shards were given", packs.added, len(g.shards))
	}
	// One that the state goes on naming ends the backup, before anything of the shard is given.
	packs, g = &fakePacks{ensure: func(core.Digest) error { return gone }}, &gatheredBackup{}
	err := r.node.Backup(t.Context(), BackupOptions{Packs: packs}, g)
	if u, ok := errors.AsType[core.Unavailable](err); !ok || u.Reason != "pack_unavailable" || len(packs.added) != 1 || len(g.shards) != 0 {
		t.Errorf("%v after %d looks, %d shards were given", err, len(packs.added), len(g.shards))
	}
	damaged := errors.Join(ErrPackGone, errs.Corruptf("damaged pack x"))
	packs = &fakePacks{ensure: func(core.Digest) error { return damaged }}
	if err := r.node.Backup(t.Context(), BackupOptions{Packs: packs}, g); !errors.As(err, new(*errs.Corruption)) {
		t.Errorf("a damaged one: %v", err)
	}
}

func TestANodeWithoutPacksGivesNoBackupThatNamesSome(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	if err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{}); err != nil {
		t.Errorf("without repositories: %v", err)
	}
	r.pushed("app", core.RepoID{1}, packNo(1))
	err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{})
	if i, ok := errors.AsType[core.Invalid](err); !ok || i.Reason != "not_supported" {
		t.Errorf("with one: %v", err)
	}
}
