package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/store"
)

// ErrNone says that there is no backup at a path.
var ErrNone = errors.New("no backup")

// ErrIncomplete says that a backup did not end: it must be taken again.
var ErrIncomplete = errors.New("the backup is not whole: it was cut while it was taken")

// Backup is a backup that is read. Its files are read when they are asked for.
type Backup struct {
	Manifest Manifest

	// path is where the backup is, as it was given to Open.
	path  string
	files files
}

// files finds the files of a backup by their names. Names have slashes. A name that is not there is
// fs.ErrNotExist.
type files interface {
	// open opens a file and returns its size. It may be called again while other files are open.
	open(name string) (f store.SourceFile, size int64, err error)
	close() error
}

// Open reads what is at a path, a directory or a file, and its manifest. Errors: ErrNone, ErrIncomplete, *NewerFormatError,
// *errs.Corruption, which name what they are about.
func Open(fsys env.FS, path string) (_ *Backup, err error) {
	names, err := fsys.List(path)
	b := &Backup{path: path}
	switch {
	case err == nil && len(names) == 0:
		return nil, fmt.Errorf("%w: %s is empty", ErrNone, path)
	case err == nil && isIncomplete(names):
		return nil, fmt.Errorf("%w: %s", ErrIncomplete, path)
	case err == nil:
		b.files = &dirFiles{fsys, path}
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(fsys, path)
	default:
		if b.files, err = openTar(fsys, path); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.Manifest, err = b.manifest(); err != nil {
		return nil, err
	}
	return b, nil
}

// missing says what is wrong with a path where nothing is.
func missing(fsys env.FS, path string) error {
	if _, err := fsys.Size(path + incompleteSuffix); err == nil {
		return fmt.Errorf("%w: %s", ErrIncomplete, path+incompleteSuffix)
	}
	return fmt.Errorf("%w: %s does not exist", ErrNone, path)
}

// Close ends the use of the backup.
func (b *Backup) Close() error { return b.files.close() }

// name is a file's name for people.
func (b *Backup) name(name string) string { return filepath.Join(b.path, filepath.FromSlash(name)) }

// manifest reads and checks the manifest. Without one there is no backup, whatever else is there.
func (b *Backup) manifest() (m Manifest, err error) {
	f, size, err := b.files.open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %s has no %s", ErrNone, b.path, manifestName)
	}
	if err != nil {
		return m, fmt.Errorf("read %s: %w", b.name(manifestName), err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size > maxManifest {
		return m, errs.Corruptf("%s has %d bytes", b.name(manifestName), size)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && !(errors.Is(err, io.EOF) && size == 0) {
		return m, errs.Corruptf("%s: %v", b.name(manifestName), err)
	}
	return ParseManifest(b.name(manifestName), text)
}

// open opens a file of a shard, which must be as long as the manifest says.
func (b *Backup) open(id core.ShardID, want store.SnapshotFile) (store.SourceFile, error) {
	f, size, err := b.files.open(fileName(id, want))
	if err != nil {
		return nil, err
	}
	if size != want.Size {
		return nil, errors.Join(errs.Corruptf("it has %d bytes, want %d", size, want.Size), f.Close())
	}
	return f, nil
}

// located is an error about a file of a backup, under the name that the file has outside of it.
func (b *Backup) located(id core.ShardID, err error) error {
	file, ok := errors.AsType[*store.SnapshotFileError](err)
	if !ok {
		return fmt.Errorf("%s: shard %d: %w", b.path, id, err)
	}
	return fmt.Errorf("%s: %w", b.name(fileName(id, store.SnapshotFile{Name: file.Name})), file.Err)
}

// Content says what of git repositories a backup holds.
type Content struct {
	Repositories uint64 // that have objects
	Bare         uint64 // of these, those whose objects the backup does not hold
}

// Verify reads everything: sizes and sums of all files, the order and the form of all keys, the content of each shard; the
// files of repositories, and whether each one that a repository needs is there. The error names the file. A backup that
// holds no files of repositories may be as it was made: how many repositories lack theirs is in Content.
//
// The lists are compared with their sums first, because the check of a shard looks files up in
// them. The files themselves are read last, each once, however many repositories need it.
func (b *Backup) Verify() (c Content, err error) {
	l := &listing{b: b}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.each(nil); err != nil { // before anything is looked up
		return c, err
	}
	for i := range b.Manifest.Shards {
		v := verifier{b: b, list: l, content: &c}
		snap := b.Manifest.Shards[i]
		err := store.VerifyFiles(snap, func(f store.SnapshotFile) (store.SourceFile, error) { return b.open(snap.Shard, f) }, v.key)
		if err != nil {
			return c, b.located(snap.Shard, err)
		}
	}
	return c, l.each(b.verifyObject)
}

// verifier looks at the keys of a shard.
type verifier struct {
	b *Backup
	// list finds the files that a repository names.
	list    *listing
	content *Content
	// p and repo are of the repository that was looked at last. Keys of one repository follow each
	// other, so each is counted once.
	p    core.Partition
	repo core.RepoID
}

// key refuses keys that this build does not know, and those that name files which are not there.
func (v *verifier) key(key, value []byte) error {
	if _, _, ok := keys.PartitionOf(key); !ok {
		return errs.Corruptf("key %x has no known form", key)
	}
	p, repo, _, ok := keys.PackOf(key)
	if !ok {
		return nil
	}
	line, err := core.DecodePackLine(value)
	if err != nil {
		return errs.Corruptf("manifest of repository %s: %v", repo, err)
	}
	if p != v.p || repo != v.repo {
		v.p, v.repo = p, repo
		v.content.Repositories++
		if !v.b.Manifest.Objects.Held {
			v.content.Bare++
		}
	}
	if !v.b.Manifest.Objects.Held {
		return nil
	}
	for _, f := range gitobj.FilesOf(line.Pack) {
		if listed, err := v.list.has(f); err != nil {
			return err
		} else if !listed {
			return errs.Corruptf("%s, which repository %s needs, is not in the backup", v.b.name(objectName(f)), repo)
		}
	}
	return nil
}

// dirFiles are the files of a directory.
type dirFiles struct {
	fs   env.FS
	path string
}

// open opens a file below the directory.
func (d *dirFiles) open(name string) (store.SourceFile, int64, error) {
	path := filepath.Join(d.path, filepath.FromSlash(name))
	size, err := d.fs.Size(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := d.fs.Open(path)
	return f, size, err
}

// close does nothing: the files are closed by those who opened them.
func (d *dirFiles) close() error { return nil }

// tarFiles are the files in one file.
type tarFiles struct {
	// file is the tar file. Reads at offsets do not disturb each other.
	file env.File
	// at has the files other than those of repositories, by name.
	at      map[string]extent
	objects []objectAt // by digest
}

// extent is where a file begins in the tar file, and its size, both in bytes.
type extent struct{ offset, size int64 }

// objectAt is where a file of a repository lies.
type objectAt struct {
	file core.BackupFile // without its size
	extent
}

// compare orders by digest alone. A pack and its index are different files with different digests.
func (o objectAt) compare(to objectAt) int { return bytes.Compare(o.file.Digest[:], to.file.Digest[:]) }

// Bounds of what is held in memory of one file: as many files as one shard of the largest size has, sixteen times over; and of
// repositories' files, of which each takes 64 bytes.
const (
	maxTarFiles   = 1 << 20
	maxTarObjects = 16 << 20
)

// openTar finds the files in one file.
func openTar(fsys env.FS, path string) (files, error) {
	size, err := fsys.Size(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if strings.HasSuffix(path, incompleteSuffix) {
		return nil, fmt.Errorf("%w: %s", ErrIncomplete, path)
	}
	file, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	t := &tarFiles{file: file, at: map[string]extent{}}
	err = t.index(io.NewSectionReader(file, 0, size))
	if _, limit := errors.AsType[core.Exhausted](err); limit {
		err = fmt.Errorf("%s: %w", path, err)
	} else if err != nil {
		err = errs.Corruptf("%s is not a single-file backup, or is damaged: %v", path, err)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

// index notes where each file begins. The reader of tar reads blocks as it needs them and seeks over the rest, so that
// where it stands after a header is where the content begins.
func (t *tarFiles) index(section *io.SectionReader) error {
	r := tar.NewReader(section)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		offset, err := section.Seek(0, io.SeekCurrent)
		switch {
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg || h.Size < 0 || offset+h.Size > section.Size():
			return fmt.Errorf("%q must be a regular file that is whole", h.Name)
		case !fs.ValidPath(h.Name):
			return fmt.Errorf("it has a file of the name %q", h.Name)
		}
		if err := t.note(h.Name, extent{offset, h.Size}); err != nil {
			return err
		}
	}
	slices.SortFunc(t.objects, objectAt.compare)
	for i := 1; i < len(t.objects); i++ {
		if t.objects[i].compare(t.objects[i-1]) == 0 {
			return fmt.Errorf("%q is there twice", objectName(t.objects[i].file))
		}
	}
	return nil
}

// note keeps where a file begins. A second file of a name is refused: which of the two is meant
// cannot be known.
func (t *tarFiles) note(name string, at extent) error {
	if f, ok := parseObjectName(name); ok {
		if len(t.objects) == maxTarObjects {
			return core.Exhausted{Limit: "tar_objects", Max: maxTarObjects}
		}
		t.objects = append(t.objects, objectAt{f, at})
		return nil
	}
	if len(t.at) == maxTarFiles {
		return core.Exhausted{Limit: "tar_files", Max: maxTarFiles}
	}
	if _, twice := t.at[name]; twice {
		return fmt.Errorf("%q is there twice", name)
	}
	t.at[name] = at
	return nil
}

// open returns a reader of one part of the tar file.
func (t *tarFiles) open(name string) (store.SourceFile, int64, error) {
	e, found := t.at[name]
	if f, ok := parseObjectName(name); ok {
		i, here := slices.BinarySearchFunc(t.objects, objectAt{file: f}, objectAt.compare)
		if found = here && t.objects[i].file == f; found {
			e = t.objects[i].extent
		}
	}
	if !found {
		return nil, 0, fs.ErrNotExist
	}
	return part{io.NewSectionReader(t.file, e.offset, e.size)}, e.size, nil
}

func (t *tarFiles) close() error { return t.file.Close() }

// part is one file in another.
type part struct{ *io.SectionReader }

// Close does nothing: the tar file stays open for other parts.
func (part) Close() error { return nil }
