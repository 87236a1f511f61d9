package gitobj

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// Holding keeps files of packs on the disk for a backup, however long that takes: each gets one more name, which is its
// digest, in a directory of the holding. Rollups, and the removal of a repository, take away the other names only. A file that
// several repositories have is held once. Nothing of a holding is held in memory.
//
// A file first comes into new, when it is known to be there, and then into whole, when its bytes were compared with its
// digest. It is for one goroutine.
type Holding struct {
	a *Area
	// dir is the directory of this holding, below held.
	dir  string
	made map[string]bool // directories that are there
}

const (
	// heldDir is below the area's directory.
	heldDir = "held"
	// heldNewDir has files that are known to be there, and heldWholeDir those that were read and
	// are what their names say.
	heldNewDir   = "new"
	heldWholeDir = "whole"
)

// Hold begins to keep files.
func (a *Area) Hold() *Holding {
	return &Holding{a: a, dir: a.dir(heldDir, a.nextID()), made: make(map[string]bool)}
}

// Freeze keeps packs that no manifest names any more from being removed until thaw is called: a list of packs that was read
// meanwhile stays good until then.
func (a *Area) Freeze() (thaw func()) {
	a.frozen.Add(1)
	return func() { a.frozen.Add(-1) }
}

// Close gives the files up.
func (h *Holding) Close() {
	if err := h.a.removeAll(h.dir, 4); err != nil {
		h.a.o.Logger.Warn("files held for a backup were not removed; a start will", "err", err)
	}
}

// file is where a file of a holding lies in one of its directories. Files lie in 256 directories, so that none is too
// long to list.
func (h *Holding) file(in string, f core.BackupFile) string {
	name := f.Digest.String()
	return filepath.Join(h.dir, in, name[:2], name+suffixes[kindOf(f)])
}

// kindOf returns which of a pack's files f is, as in suffixes.
func kindOf(f core.BackupFile) int {
	if f.Index {
		return 1
	}
	return 0
}

// FilesOf are the files of a pack.
func FilesOf(p core.Pack) [2]core.BackupFile {
	return [2]core.BackupFile{{Digest: p.Digest, Size: p.Bytes}, {Digest: p.Idx, Size: p.IdxBytes, Index: true}}
}

// Add holds a pack if its files are on this node, of the right sizes; their bytes are not read.
func (h *Holding) Add(at Place, p core.Pack) (here bool, err error) {
	for i, f := range FilesOf(p) {
		if h.has(heldWholeDir, f) || h.has(heldNewDir, f) {
			continue
		}
		if here, err := h.link(at, p, i); err != nil || !here {
			return false, err
		}
	}
	return true, nil
}

// has reports whether a file is held, with the right size.
func (h *Holding) has(in string, f core.BackupFile) bool {
	size, err := h.a.o.FS.Size(h.file(in, f))
	return err == nil && size == f.Size
}

// link holds one file of a pack, by any of its names here. It is a hard link, so it costs no room
// while the other names are there.
func (h *Holding) link(at Place, p core.Pack, kind int) (here bool, err error) {
	f := FilesOf(p)[kind]
	to := h.file(heldNewDir, f)
	if err := h.prepare(to); err != nil {
		return false, err
	}
	dir := h.a.dir(at.path())
	// A staged name goes when the pack has got its other one: that is looked for again.
	staged, err := h.a.stagedAs(at, p.Digest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	published := filepath.Join(dir, objectsDir, packDir, packName(p.Digest))
	for _, base := range append([]string{published}, append(staged, published)...) {
		name := base + suffixes[kind]
		if size, err := h.a.o.FS.Size(name); err != nil || size != f.Size {
			continue
		}
		if err := h.a.link(name, to); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// prepare makes room for a name: the directory, and nothing of that name, which was not what it
// should be. What stood there under the name was cut off while it was made, or had another size.
func (h *Holding) prepare(name string) error {
	if dir := filepath.Dir(name); !h.made[dir] {
		if err := h.a.o.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("hold a pack: %w", err)
		}
		h.made[dir] = true
	}
	return h.a.gone(name)
}

// Ensure holds a pack whose bytes are what the manifest says. What is missing here, or damaged, comes from other nodes. Errors:
// a *DamagedError, core.Unavailable of reason pack_unavailable.
func (h *Holding) Ensure(ctx context.Context, at Place, p core.Pack) error {
	first := h.whole(ctx, at, p)
	damaged := errors.As(first, new(*DamagedError))
	if first == nil || !damaged {
		return first
	}
	if _, several := h.a.hosts(at.Shard); !several {
		return first
	}
	h.a.stats.damaged.Add(1)
	h.a.o.Logger.Info("a pack for a backup comes from another node", "repository", at.Repo.String(), "why", first)
	switch err := h.a.pull(ctx, at, p); { // it bounds itself by the size of the pack
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return core.Unavailable{Reason: "pack_unavailable"}
	case err != nil:
		return err
	}
	return h.whole(ctx, at, p)
}

// whole holds a pack that is on this node, and compares its bytes.
func (h *Holding) whole(ctx context.Context, at Place, p core.Pack) error {
	for i, f := range FilesOf(p) {
		if h.has(heldWholeDir, f) {
			continue
		}
		name := filepath.Join(at.path(), objectsDir, packDir, packName(p.Digest)+suffixes[i])
		if !h.has(heldNewDir, f) {
			if here, err := h.link(at, p, i); err != nil {
				return err
			} else if !here {
				return damagedf(name, "it is missing")
			}
		}
		from, to := h.file(heldNewDir, f), h.file(heldWholeDir, f)
		got, size, err := h.a.digest(from)
		if err != nil {
			return damagedf(name, "read: %v", err)
		}
		if got != f.Digest || size != f.Size {
			return errors.Join(damagedf(name, "its content is not what the manifest says"), h.a.gone(from))
		}
		if err := h.prepare(to); err != nil {
			return err
		}
		if err := h.a.o.FS.Rename(from, to); err != nil {
			return fmt.Errorf("hold a pack: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Each calls fn for each file that is whole, in the order of digests, until that fails, and gives
// each up that fn has taken. A backup that ends early leaves the others, which Close removes.
func (h *Holding) Each(fn func(f core.BackupFile, content io.ReaderAt) error) error {
	for b := range 256 {
		dir := filepath.Join(h.dir, heldWholeDir, fmt.Sprintf("%02x", b))
		if !h.made[dir] {
			continue
		}
		names, err := h.a.o.FS.List(dir)
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, name := range names {
			if err := h.each(filepath.Join(dir, name), fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls fn for one file, whose name says what it is, and removes the file if fn has taken it.
func (h *Holding) each(name string, fn func(f core.BackupFile, content io.ReaderAt) error) (err error) {
	var f core.BackupFile
	base, index := strings.CutSuffix(filepath.Base(name), suffixes[1])
	if f.Index = index; !index {
		base = strings.TrimSuffix(base, suffixes[0])
	}
	if len(base) != hex.EncodedLen(len(f.Digest)) {
		return fmt.Errorf("a file held for a backup is called %s", name)
	}
	if _, err := hex.Decode(f.Digest[:], []byte(base)); err != nil {
		return fmt.Errorf("a file held for a backup is called %s", name)
	}
	if f.Size, err = h.a.o.FS.Size(name); err != nil {
		return err
	}
	file, err := h.a.o.FS.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(fn(f, file), file.Close()); err != nil {
		return err
	}
	return h.a.gone(name)
}
