package gitobj

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/internal/core"
)

// objects/pack also holds files of packs that a rollup took the place of, and each run of git opens all that it finds there.
// So git looks into a view: a directory with links to the packs of the manifest alone. Links to packs that come later are
// added; when a pack goes, or is replaced, the next run gets another view, and a reader of the old one keeps its files as long
// as it reads. A view is not synced, and nothing reads it back.
type view struct {
	// a is the area, and r the repository.
	a *Area
	r *repo
	// path is the directory, which git is given as one of objects.
	path string
	// packs are those that are linked. Like users and retired it is guarded by r.mu.
	packs map[core.Digest]bool
	// users is how many runs of git look into it.
	users int
	// retired says that it is removed after its last use.
	retired bool
}

// view returns the directory of objects in which git finds at least the packs that are known now.
// done ends its use. Where no view can be made, it is the one of all packs. It is made with links,
// so it costs a few names for each pack, and once.
func (a *Area) view(r *repo) (dir string, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.view
	if v == nil {
		v = &view{a: a, r: r, path: a.dir(r.at.path(), viewsDir, a.nextID()), packs: make(map[core.Digest]bool)}
		r.view = v
	}
	err := v.complete()
	if errors.Is(err, fs.ErrNotExist) { // somebody removed it
		clear(v.packs)
		err = v.complete()
	}
	if err != nil {
		a.o.Logger.Warn("git looks through all packs: no view of those in use", "repository", r.at.Repo.String(), "err", err)
		r.retire()
		return a.dir(r.at.path(), objectsDir), func() {}
	}
	v.users++
	return v.path, v.release
}

// complete links what is not linked yet. The caller holds r.mu.
func (v *view) complete() error {
	to := filepath.Join(v.path, packDir)
	if len(v.packs) == 0 {
		if err := v.a.o.FS.MkdirAll(to); err != nil {
			return err
		}
	} else if _, err := v.a.o.FS.Size(to); err != nil {
		return err
	}
	from := v.a.dir(v.r.at.path(), objectsDir, packDir)
	for _, d := range v.r.packs {
		if v.packs[d] {
			continue
		}
		for _, suffix := range suffixes {
			name := packName(d) + suffix
			if err := v.a.link(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				return err
			}
		}
		v.packs[d] = true
	}
	return nil
}

// release ends one use.
func (v *view) release() {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	if v.users--; v.retired && v.users == 0 {
		v.a.later(v.remove)
	}
}

// retire has the next run of git get another view. The caller holds r.mu.
func (r *repo) retire() {
	v := r.view
	if v == nil {
		return
	}
	r.view, v.retired = nil, true
	if v.users == 0 {
		v.a.later(v.remove)
	}
}

// remove removes the directory. No one looks into it.
func (v *view) remove() { v.a.discard(v.path) }

// discard removes a directory that this process made for a while, with directories of files in it.
func (a *Area) discard(dir string) {
	if err := a.removeAll(dir, 2); err != nil {
		a.o.Logger.Warn("what was made for a while could not be removed; a start will", "err", err)
	}
}
