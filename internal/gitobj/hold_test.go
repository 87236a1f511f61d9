package gitobj

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// linesOf is the manifest of the repository.
func (r *rig) linesOf() []core.PackLine {
	r.t.Helper()
	lines, _, err := r.m.Packs(r.t.Context(), place)
	if err != nil {
		r.t.Fatal(err)
	}
	return lines
}

// gives wants a holding to give exactly the files of packs, each what its digest says.
func gives(t *testing.T, h *Holding, lines []core.PackLine) {
	t.Helper()
	want := map[core.BackupFile]bool{}
	for _, l := range lines {
		for _, f := range FilesOf(l.Pack) {
			want[f] = true
		}
	}
	last := core.Digest{}
	err := h.Each(func(f core.BackupFile, content io.ReaderAt) error {
		b := make([]byte, f.Size)
		if _, err := content.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !want[f] || core.Digest(sha256.Sum256(b)) != f.Digest || string(f.Digest[:]) <= string(last[:]) {
			t.Errorf("file %s of %d bytes after %s is wanted: %v", f.Digest, f.Size, last, want[f])
		}
		last = f.Digest
		delete(want, f)
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%d files were not given, %v", len(want), err)
	}
}

// ensured holds packs as a backup does.
func ensured(t *testing.T, h *Holding, at Place, lines []core.PackLine) {
	t.Helper()
	for _, l := range lines {
		if here, err := h.Add(at, l.Pack); err != nil || !here {
			t.Fatalf("pack %s is here: %v, %v", l.Digest, here, err)
		}
	}
	for _, l := range lines {
		if err := h.Ensure(t.Context(), at, l.Pack); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHeldPacksOutliveARollupAndTheirRepository(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
	ids := r.chain(newSource(t), 6)
	lines := r.linesOf()
	h := r.Hold()
	ensured(t, h, place, lines)
	r.o.RollFrom = 2
	r.rollUp()
	r.sweep()
	r.sweep() // the first one found that they are named no more
	r.left()
	r.find(ids)
	r.m.set(func() { r.m.gone[place] = true })
	r.sweep()
	if files := r.files(); len(files) > 0 {
		t.Errorf("%v is left of a repository that is gone", files)
	}
	gives(t, h, lines)
	h.Close()
	if names, err := os.ReadDir(filepath.Join(r.dir, heldDir)); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
}

// Between the instant of which a backup is and the one in which its packs are held, none goes.
func TestNoPackGoesWhileAreaIsFrozen(t *testing.T) {
	r := newRig(t, func(o *Options) { o.RollFrom, o.KeepSwapped = 1000, 1 })
	r.chain(newSource(t), 6)
	lines := r.linesOf()
	first, second := r.Freeze(), r.Freeze()
	r.o.RollFrom = 2
	r.rollUp()
	for _, thaw := range []func(){first, second} {
		r.sweep()
		r.sweep()
		h := r.Hold()
		ensured(t, h, place, lines)
		gives(t, h, lines)
		h.Close()
		thaw()
	}
	r.sweep()
	r.sweep()
	r.left()
}

func TestAPackOfSeveralRepositoriesIsHeldOnce(t *testing.T) {
	r := newRig(t)
	pack, id := rootPack(t, "m", core.ObjectID{})
	if err := r.push(pack, []core.ObjectID{id}); err != nil {
		t.Fatal(err)
	}
	lines := r.linesOf()
	other := place
	other.Repo, other.Shard = core.RepoID{8}, 4
	if err := os.MkdirAll(filepath.Join(r.dir, other.path(), objectsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(r.dir, other.path(), objectsDir, packDir), os.DirFS(filepath.Join(r.dir, place.path(), objectsDir, packDir))); err != nil {
		t.Fatal(err)
	}
	h := r.Hold()
	defer h.Close()
	ensured(t, h, place, lines)
	ensured(t, h, other, lines)
	gives(t, h, lines)
}

func TestAPackThatIsOnlyStagedIsHeld(t *testing.T) {
	r := newRig(t)
	pack, id := rootPack(t, "m", core.ObjectID{})
	h := r.Hold()
	defer h.Close()
	err := r.pushed(pack, []core.ObjectID{id}, func() {
		ensured(t, h, place, r.linesOf())
	})
	if err != nil {
		t.Fatal(err)
	}
	gives(t, h, r.linesOf())
}

// damage is done to a file of a pack where fetches look.
var packDamages = map[string]func(name string) error{
	"missing": os.Remove,
	"a flipped bit": func(name string) error {
		return changed(name, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	},
	"cut short": func(name string) error { return changed(name, func(b []byte) []byte { return b[:len(b)-1] }) },
	"empty":     func(name string) error { return changed(name, func(b []byte) []byte { return nil }) },
}

// changed puts another file in the place of one: its other names keep what they had.
func changed(name string, change func(b []byte) []byte) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(name), os.WriteFile(name, change(b), 0o600))
}

func TestADamagedPackIsNamedAndNotHeld(t *testing.T) {
	for what, damage := range packDamages {
		for _, suffix := range suffixes {
			r := newRig(t)
			pack, id := rootPack(t, "m", core.ObjectID{})
			if err := r.push(pack, []core.ObjectID{id}); err != nil {
				t.Fatal(err)
			}
			r.settled()
			line := r.linesOf()[0]
			file := filepath.Join(place.path(), objectsDir, packDir, packName(line.Digest)+suffix)
			if err := damage(filepath.Join(r.dir, file)); err != nil {
				t.Fatal(err)
			}
			h := r.Hold()
			if _, err := h.Add(place, line.Pack); err != nil {
				t.Errorf("%s %s: %v", suffix, what, err)
			}
			var d *DamagedError
			if err := h.Ensure(t.Context(), place, line.Pack); !errors.As(err, &d) || d.File != file {
				t.Errorf("%s %s: %v, want %s", suffix, what, err, file)
			}
			h.Close()
			missing, err := OfflineDir(r.disk, filepath.Dir(r.dir)).checkIn(r.dir, place, line.Pack)
			if what == "missing" && (!missing || err != nil) || what != "missing" && (!errors.As(err, &d) || d.File != file) {
				t.Errorf("%s %s: check: missing is %v, %v", suffix, what, missing, err)
			}
		}
	}
}

// checkIn is Check of a directory of any name.
func (d *Dir) checkIn(dir string, at Place, p core.Pack) (missing bool, err error) {
	d.a.o.Dir = dir
	return d.Check(at, p)
}

func TestAPackThatANodeLacksIsHeldFromAnother(t *testing.T) {
	for what, damage := range packDamages {
		c := newTrio(t)
		pack, id := rootPack(t, "m", core.ObjectID{})
		p, err := c.push(0, pack, id, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		c.finds(1, id)
		file := filepath.Join(c.dirs[1], place.path(), objectsDir, packDir, packName(p.Digest))
		for _, suffix := range suffixes {
			if err := damage(file + suffix); err != nil {
				t.Fatal(err)
			}
		}
		h := c.areas[1].Hold()
		if err := h.Ensure(t.Context(), place, p); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		gives(t, h, []core.PackLine{{Pack: p}})
		h.Close()
	}
}

// A holding that its process did not give up is given up by the next one.
func TestAStartGivesUpWhatWasHeld(t *testing.T) {
	r := newRig(t)
	r.chain(newSource(t), 2)
	ensured(t, r.Hold(), place, r.linesOf())
	r.restart()
	r.settled()
	if names, err := os.ReadDir(filepath.Join(r.dir, heldDir)); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
}

// What is put where no server runs is what a server finds, and nothing else is put.
func TestPacksThatArePutOfflineAreFound(t *testing.T) {
	r := newRig(t)
	ids := r.chain(newSource(t), 3)
	lines := r.linesOf()
	from := filepath.Join(r.dir, place.path(), objectsDir, packDir)
	read := func(p core.Pack) func(core.BackupFile) (io.ReadCloser, error) {
		return func(f core.BackupFile) (io.ReadCloser, error) {
			return os.Open(filepath.Join(from, packName(p.Digest)+suffixes[kindOf(f)]))
		}
	}
	to := t.TempDir()
	d := OfflineDir(r.disk, to)
	for _, l := range lines {
		if err := d.Put(place, l.Pack, read(l.Pack)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if missing, err := d.Check(place, l.Pack); err != nil || missing {
			t.Errorf("pack %s is missing: %v, %v", l.Digest, missing, err)
		}
	}
	var damaged *DamagedError
	if err := d.Put(place, lines[0].Pack, read(lines[1].Pack)); !errors.As(err, &damaged) {
		t.Errorf("the bytes of another pack: %v", err)
	}
	if err := d.Put(place, lines[0].Pack, read(lines[0].Pack)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.dir = filepath.Join(to, "git")
	r.start()
	r.find(ids)
	if s := r.Stats(); s.Damaged != 0 {
		t.Errorf("%d packs are damaged", s.Damaged)
	}
}
