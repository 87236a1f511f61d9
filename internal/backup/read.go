package backup

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/store"
)

// ErrNone says that there is no backup at a path.
var ErrNone = errors.New("no backup")

// ErrIncomplete says that a backup did not end: it is to be taken anew.
var ErrIncomplete = errors.New("the backup is not whole: it was cut while it was taken")

// Backup is a backup that is read. Its files are read when they are asked for.
type Backup struct {
	Manifest Manifest

	path  string
	files files
}

// files finds the files of a backup by their names.
type files interface {
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

// Verify reads everything: sizes and sums of all files, the order and the form of all keys, the content of each shard. The
// error names the file.
func (b *Backup) Verify() error {
	for i := range b.Manifest.Shards {
		snap := b.Manifest.Shards[i]
		err := store.VerifyFiles(snap, func(f store.SnapshotFile) (store.SourceFile, error) { return b.open(snap.Shard, f) }, knownKey)
		if err != nil {
			return b.located(snap.Shard, err)
		}
	}
	return nil
}

// knownKey refuses keys that are none of this build's.
func knownKey(key, _ []byte) error {
	if _, _, ok := keys.PartitionOf(key); !ok {
		return errs.Corruptf("key %x has no known form", key)
	}
	return nil
}

// dirFiles are the files of a directory.
type dirFiles struct {
	fs   env.FS
	path string
}

func (d *dirFiles) open(name string) (store.SourceFile, int64, error) {
	path := filepath.Join(d.path, filepath.FromSlash(name))
	size, err := d.fs.Size(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := d.fs.Open(path)
	return f, size, err
}

func (d *dirFiles) close() error { return nil }

// tarFiles are the files in one file.
type tarFiles struct {
	file env.File
	at   map[string]extent
}

type extent struct{ offset, size int64 }

// maxTarFiles bounds the files in one file: as many as one shard of the largest size has, sixteen times over.
const maxTarFiles = 1 << 20

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
	if err := t.index(io.NewSectionReader(file, 0, size)); err != nil {
		return nil, errors.Join(errs.Corruptf("%s is no backup in one file, or damaged: %v", path, err), file.Close())
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
			return nil
		}
		if err != nil {
			return err
		}
		offset, err := section.Seek(0, io.SeekCurrent)
		switch {
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg || h.Size < 0 || offset+h.Size > section.Size():
			return fmt.Errorf("%q is no file that is whole", h.Name)
		case len(t.at) == maxTarFiles:
			return fmt.Errorf("it has more than %d files", maxTarFiles)
		}
		if _, twice := t.at[h.Name]; twice {
			return fmt.Errorf("%q is there twice", h.Name)
		}
		t.at[h.Name] = extent{offset, h.Size}
	}
}

func (t *tarFiles) open(name string) (store.SourceFile, int64, error) {
	e, ok := t.at[name]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return part{io.NewSectionReader(t.file, e.offset, e.size)}, e.size, nil
}

func (t *tarFiles) close() error { return t.file.Close() }

// part is one file in another.
type part struct{ *io.SectionReader }

func (part) Close() error { return nil }
