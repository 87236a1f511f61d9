package gitobj

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Dir is the directory of repositories' objects of a server that does not run. It is for one goroutine.
type Dir struct {
	// a is an area that no one has opened: files are read and written, and no git runs.
	a    *Area
	open *repo // the one that files are put into
}

// OfflineDir returns the directory of the server whose data directory is given; it need not be there.
func OfflineDir(fsys env.FS, data string) *Dir {
	return &Dir{a: &Area{o: Options{FS: fsys, Dir: filepath.Join(data, "git"), Logger: slog.New(slog.DiscardHandler)}}}
}

// Put writes a pack of a repository: content gives one of its files at a time. It is durable when another repository's pack
// is put, or Sync is called. What content gives must be what p says: else the error is a *DamagedError, and nothing is to be
// made of the directory.
func (d *Dir) Put(at Place, p core.Pack, content func(f core.BackupFile) (io.ReadCloser, error)) error {
	if d.open == nil || d.open.at != at {
		if err := d.Sync(); err != nil {
			return err
		}
		r := &repo{at: at}
		if err := d.a.make(r); err != nil {
			return err
		}
		d.open = r
	}
	for i, f := range FilesOf(p) {
		in, err := content(f)
		if err == nil {
			err = errors.Join(d.write(filepath.Join(at.path(), objectsDir, packDir, packName(p.Digest)+suffixes[i]), f, in), in.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of a pack, compares it with its digest, and makes its content durable.
func (d *Dir) write(name string, f core.BackupFile, in io.Reader) (err error) {
	out, err := d.a.o.FS.Create(d.a.dir(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{io.TeeReader(in, h)}, make([]byte, copyChunk))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if got := core.Digest(h.Sum(nil)); got != f.Digest || n != f.Size {
		return damagedf(name, "its content is not what the manifest says")
	}
	return out.Sync()
}

// Sync makes what was put durable.
func (d *Dir) Sync() error {
	if d.open == nil {
		return nil
	}
	at := d.open.at
	d.open = nil
	return d.a.syncDir(d.a.dir(at.path(), objectsDir, packDir))
}

// Check reads a pack of a manifest to its end, where fetches or the next start find it. missing says that there is none, which
// another node may have; a pack that is not what the manifest says is a *DamagedError.
func (d *Dir) Check(at Place, p core.Pack) (missing bool, err error) {
	published := filepath.Join(at.path(), objectsDir, packDir, packName(p.Digest))
	for i, suffix := range suffixes {
		_, err := d.a.o.FS.Size(d.a.dir(published + suffix))
		switch {
		case err == nil:
			err = d.a.fits(published+suffix, p, i)
		case errors.Is(err, fs.ErrNotExist):
			missing, err = d.staged(at, p, i)
		}
		if err != nil || missing {
			return missing, err
		}
	}
	return false, nil
}

// staged reports whether a file of a pack has no staged name that fits.
func (d *Dir) staged(at Place, p core.Pack, kind int) (missing bool, err error) {
	dir := filepath.Join(at.path(), stagedDir)
	names, err := d.a.o.FS.List(d.a.dir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, n := range names {
		if strings.HasSuffix(n, suffixes[kind]) && strings.HasPrefix(n, p.Digest.String()+"-") && d.a.fits(filepath.Join(dir, n), p, kind) == nil {
			return false, nil
		}
	}
	return true, nil
}
