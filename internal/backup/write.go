package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/store"
)

// ErrExists says that there is something where a backup was to be made.
var ErrExists = errors.New("there is something already")

// Writer makes a backup of what a server sends. It is a core.BackupSink; then comes Finish, or Abort.
type Writer struct {
	// out is where the files go. One file is open in it at a time.
	out output
	// head says what the server sends; it comes first, once, which begun notes.
	head   Head
	begun  bool
	shards []store.Snapshot // in the order in which they came

	// file is the number of the file of the last shard that is being written, or comes next.
	file int

	// name is that of the file that is being written.
	name string
	// left is how many bytes of it are to come.
	left int64
	// sum is the sum of those that came.
	sum hash.Hash
	// want compares sum with what it should be; it is called once, when all bytes have come.
	want func() error

	// objects has the lists that were written. The fields below it are of the next list, and of the
	// files that came since.
	objects Objects
	perList int         // files of one list
	list    []byte      // records of the list to come
	listed  int64       // bytes of its files
	last    core.Digest // of the file that came last
}

// output is where the files of a backup go, one after the other.
type output interface {
	// begin opens a file of the given size. The bytes follow by Write, and end closes it; nothing
	// else is open meanwhile.
	begin(name string, size int64) error
	io.Writer
	end() error
	// finish makes all durable, and the manifest with it; nothing is a backup before.
	finish(manifest []byte) error
	// abort removes what was written, unless finish has made it a backup.
	abort()
}

// Create begins a backup at path: a directory, or one file if its name ends in .tar. What an attempt left there that did not
// end is removed. Anything else that is there is ErrExists, and stays.
func Create(fsys env.FS, path string) (*Writer, error) {
	open := createDir
	if strings.HasSuffix(path, ".tar") {
		open = createTar
	}
	out, err := open(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("begin a backup in %s: %w", path, err)
	}
	return &Writer{out: out, perList: listFiles}, nil
}

// Head says what a backup is of, and File what a file of a repository is.
type (
	Head = core.BackupHead
	File = core.BackupFile
)

// Head takes in what the backup is of.
func (w *Writer) Head(h Head) error {
	if w.begun || h.Shards < 1 || h.Shards > maxShards {
		return errs.Corruptf("the server's answer begins with a head of %d shards", h.Shards)
	}
	w.head, w.begun = h, true
	return nil
}

// Shard begins a shard.
func (w *Writer) Shard(description []byte) error {
	snap, err := store.ParseSnapshot(description)
	switch {
	case err != nil:
		return err
	case !w.begun || w.pending():
		return errs.Corruptf("the server's answer has shard %d too early", snap.Shard)
	case int(snap.Shard) >= w.head.Shards:
		return errs.Corruptf("the server's answer has shard %d of %d", snap.Shard, w.head.Shards)
	}
	for i := range w.shards {
		if w.shards[i].Shard == snap.Shard {
			return errs.Corruptf("the server's answer has shard %d twice", snap.Shard)
		}
	}
	w.shards, w.file = append(w.shards, snap), 0
	return nil
}

// pending reports whether bytes of the last shard, or of a file, are to come.
func (w *Writer) pending() bool {
	return w.left > 0 || len(w.shards) > 0 && w.file < len(w.shards[len(w.shards)-1].Files)
}

// File begins a file of a repository's objects. All shards have come by then.
func (w *Writer) File(f core.BackupFile) error {
	switch {
	case !w.begun || w.pending() || len(w.shards) != w.head.Shards:
		return errs.Corruptf("the server's answer has %s too early", objectName(f))
	case !w.head.Objects:
		return errs.Corruptf("the server's answer has %s, and was to have none", objectName(f))
	case f.Size < 1 || f.Size > maxObject:
		return errs.Corruptf("the server's answer has %s of %d bytes", objectName(f), f.Size)
	case bytes.Compare(f.Digest[:], w.last[:]) <= 0:
		return errs.Corruptf("the server's answer has %s after %s", objectName(f), w.last)
	case len(w.objects.Lists) == maxLists:
		return core.Exhausted{Limit: "backup_files", Max: maxLists * listFiles}
	}
	w.last = f.Digest
	return w.begin(objectName(f), f.Size, sha256.New(), func() error {
		if got := core.Digest(w.sum.Sum(nil)); got != f.Digest {
			return errs.Corruptf("%s came with content whose SHA-256 is %s", w.name, got)
		}
		w.list = appendObject(w.list, f)
		w.listed += f.Size
		return nil
	})
}

// begin opens a file, of which Data will get the bytes. want is called when all of them have come.
func (w *Writer) begin(name string, size int64, sum hash.Hash, want func() error) error {
	w.name, w.left, w.sum, w.want = name, size, sum, want
	return w.out.begin(name, size)
}

// endList writes the list of the files that came. A list is written when it is full and when all
// files have come, so that memory holds one list.
func (w *Writer) endList() error {
	if len(w.list) == 0 {
		return nil
	}
	name := listName(len(w.objects.Lists))
	w.objects.Lists = append(w.objects.Lists, ObjectList{
		Files: uint32(len(w.list) / objectRecord), Bytes: w.listed, Sum: xxhash.Sum64(w.list), Last: w.last,
	})
	err := w.out.begin(name, int64(len(w.list)))
	if err == nil {
		_, err = w.out.Write(w.list)
	}
	if err == nil {
		err = w.out.end()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	w.list, w.listed = w.list[:0], 0
	return nil
}

// Data takes in the next bytes of a file. A part holds bytes of one file only. The file's sum is
// compared when its last byte has come.
func (w *Writer) Data(part []byte) error {
	if !w.pending() {
		return errs.Corruptf("the server's answer has bytes of no file")
	}
	if w.left == 0 {
		snap := &w.shards[len(w.shards)-1]
		f := snap.Files[w.file]
		sum := xxhash.New()
		err := w.begin(fileName(snap.Shard, f), f.Size, sum, func() error {
			if got := sum.Sum64(); got != f.Sum {
				return errs.Corruptf("%s came with sum %016x, want %016x", w.name, got, f.Sum)
			}
			return nil
		})
		if err != nil {
			return err
		}
		w.file++
	}
	if int64(len(part)) > w.left {
		return errs.Corruptf("%s is longer than it should be", w.name)
	}
	_, _ = w.sum.Write(part) // it never fails
	if _, err := w.out.Write(part); err != nil {
		return fmt.Errorf("write %s: %w", w.name, err)
	}
	if w.left -= int64(len(part)); w.left > 0 {
		return nil
	}
	if err := w.want(); err != nil {
		return err
	}
	if err := w.out.end(); err != nil {
		return fmt.Errorf("write %s: %w", w.name, err)
	}
	if len(w.list) >= w.perList*objectRecord {
		return w.endList()
	}
	return nil
}

// Finish makes the backup whole and durable, and returns its manifest.
func (w *Writer) Finish() (m Manifest, err error) {
	if !w.begun || w.pending() || len(w.shards) != w.head.Shards {
		return m, errs.Corruptf("the server's answer has %d shards of %d", len(w.shards), w.head.Shards)
	}
	if err := w.endList(); err != nil {
		return m, err
	}
	w.objects.Held = w.head.Objects
	m = Manifest{
		Objects: w.objects,
		Cluster: w.head.Cluster, Node: w.head.Node, Version: w.head.Version, Entries: w.head.Format,
		Started: time.UnixMilli(w.head.StartedMillis).UTC(), Shards: make([]store.Snapshot, len(w.shards)),
	}
	for _, s := range w.shards {
		m.Shards[s.Shard] = s
	}
	text := m.Append(nil)
	if m, err = ParseManifest(manifestName, text); err != nil { // a backup must be readable by this build
		return Manifest{}, err
	}
	return m, w.out.finish(text)
}

// Abort removes what was written. It may be called after Finish, and does nothing then unless that failed.
func (w *Writer) Abort() { w.out.abort() }

// dirOutput is a backup in a directory.
type dirOutput struct {
	fs env.FS
	// path is the backup's directory.
	path string
	made bool            // the directory is ours to remove
	dirs map[string]bool // those that were made in it
	file env.File
	done bool
}

// createDir makes the directory, or takes one that is empty or that an attempt left. The mark is
// durable before anything else is written, so that a backup without a manifest is known for what it
// is.
func createDir(fsys env.FS, path string) (output, error) {
	names, err := fsys.List(path)
	made := errors.Is(err, fs.ErrNotExist)
	switch {
	case made:
		if err := env.MakeDirs(fsys, path); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case len(names) > 0 && !isIncomplete(names):
		return nil, fmt.Errorf("%w: %d files", ErrExists, len(names))
	}
	out := &dirOutput{fs: fsys, path: path, made: made, dirs: map[string]bool{}}
	if err := writeFile(fsys, filepath.Join(path, incompleteName), []byte("This backup is not whole: it has no MANIFEST.\n")); err != nil {
		return nil, err
	}
	if err := out.clear(); err != nil {
		return nil, err
	}
	return out, env.SyncDir(fsys, path)
}

// isIncomplete reports whether the names are those of a backup that did not end.
func isIncomplete(names []string) bool {
	marked := false
	for _, name := range names {
		switch {
		case name == incompleteName:
			marked = true
		case name == manifestName:
			return false
		}
	}
	return marked
}

// clear removes all but the mark.
func (o *dirOutput) clear() error {
	names, err := o.fs.List(o.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == incompleteName {
			continue
		}
		if err := store.RemoveTree(o.fs, filepath.Join(o.path, name)); err != nil {
			return err
		}
	}
	return nil
}

// begin creates a file, and the directories above it; finish makes their names durable.
func (o *dirOutput) begin(name string, _ int64) (err error) {
	to := filepath.Join(o.path, filepath.FromSlash(name))
	for dir := filepath.Dir(to); dir != o.path && !o.dirs[dir]; dir = filepath.Dir(dir) {
		if err := o.fs.MkdirAll(dir); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		o.dirs[dir] = true
	}
	if o.file, err = o.fs.Create(to); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (o *dirOutput) Write(b []byte) (int, error) { return o.file.Write(b) }

// end makes the file's content durable.
func (o *dirOutput) end() error {
	err := errors.Join(o.file.Sync(), o.file.Close())
	o.file = nil
	return err
}

// finish makes every name durable, then puts the manifest in place by a rename. From that rename on
// the backup is whole; the mark that is removed after it means nothing.
func (o *dirOutput) finish(manifest []byte) error {
	for dir := range o.dirs {
		if err := env.SyncDir(o.fs, dir); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	to := filepath.Join(o.path, manifestName)
	if err := writeFile(o.fs, to+".tmp", manifest); err != nil {
		return fmt.Errorf("write %s: %w", manifestName, err)
	}
	if err := o.fs.Rename(to+".tmp", to); err != nil {
		return fmt.Errorf("write %s: %w", manifestName, err)
	}
	if err := env.SyncDir(o.fs, o.path); err != nil {
		return fmt.Errorf("sync %s: %w", o.path, err)
	}
	o.done = true // whole from here; the mark means nothing where a manifest is
	if err := o.fs.Remove(filepath.Join(o.path, incompleteName)); err != nil {
		return fmt.Errorf("write %s: %w", manifestName, err)
	}
	return env.SyncDir(o.fs, o.path)
}

// abort takes the mark away last.
func (o *dirOutput) abort() {
	if o.done {
		return
	}
	if o.file != nil {
		_ = o.file.Close() // it goes
	}
	if o.clear() == nil {
		_ = o.fs.Remove(filepath.Join(o.path, incompleteName))
		if o.made {
			_ = o.fs.Remove(o.path)
		}
	}
}

// tarOutput is a backup in one file.
type tarOutput struct {
	fs   env.FS
	path string // of the whole one
	// file is the tar file under its name with incompleteSuffix; nil once it is closed.
	file env.File
	// size is how many bytes were written, which the file must have in the end.
	size int64
	// buf gathers what tar writes, before it is counted and written to the file.
	buf  *bufio.Writer
	tar  *tar.Writer
	done bool
}

// tarBuffer gathers headers and parts into large writes.
const tarBuffer = 1 << 20

// createTar begins the file under a name that says that it is not whole.
func createTar(fsys env.FS, path string) (output, error) {
	if _, err := fsys.Size(path); err == nil {
		return nil, ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// An empty file that is already there is used: its maker may have set its permissions.
	if size, err := fsys.Size(path + incompleteSuffix); err == nil && size > 0 {
		if err := fsys.Remove(path + incompleteSuffix); err != nil {
			return nil, err
		}
	}
	file, err := fsys.OpenReadWrite(path + incompleteSuffix)
	if err != nil {
		return nil, err
	}
	o := &tarOutput{fs: fsys, path: path, file: file}
	o.buf = bufio.NewWriterSize(counted{o}, tarBuffer)
	o.tar = tar.NewWriter(o.buf)
	return o, nil
}

// counted counts the bytes of the file.
type counted struct{ o *tarOutput }

// Write writes to the file and counts.
func (c counted) Write(b []byte) (int, error) {
	n, err := c.o.file.Write(b)
	c.o.size += int64(n)
	return n, err
}

// begin writes the header of a file, which has its size.
func (o *tarOutput) begin(name string, size int64) error {
	return o.tar.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Typeflag: tar.TypeReg})
}

func (o *tarOutput) Write(b []byte) (int, error) { return o.tar.Write(b) }

// end fills the last block of a file.
func (o *tarOutput) end() error { return o.tar.Flush() }

// finish writes the manifest as the last file, makes the whole durable, and renames it to its own
// name. A file whose size is not what was written has another writer, and does not become a backup.
func (o *tarOutput) finish(manifest []byte) error {
	err := o.begin(manifestName, int64(len(manifest)))
	if err == nil {
		_, err = o.tar.Write(manifest)
	}
	if err == nil {
		err = o.tar.Close()
	}
	if err == nil {
		err = o.buf.Flush()
	}
	if err == nil {
		err = o.file.Sync()
	}
	if err = errors.Join(err, o.file.Close()); err != nil {
		o.file = nil
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	o.file = nil
	if size, err := o.fs.Size(o.path + incompleteSuffix); err != nil || size != o.size {
		return fmt.Errorf("write %s: another command writes the same file", o.path)
	}
	if err := o.fs.Rename(o.path+incompleteSuffix, o.path); err != nil {
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	o.done = true
	return env.SyncDir(o.fs, filepath.Dir(o.path))
}

// abort removes the file.
func (o *tarOutput) abort() {
	if o.done {
		return
	}
	if o.file != nil {
		_ = o.file.Close() // it goes
	}
	_ = o.fs.Remove(o.path + incompleteSuffix)
}

// writeFile makes a file durable; its name is its caller's to sync.
func writeFile(fsys env.FS, name string, b []byte) (err error) {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
