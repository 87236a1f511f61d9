package env

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// NoDescriptors reports whether an error of an open says that too many files are open, in this process or on the machine, or
// that the system has no memory for one more. It passes, so it says nothing of the file.
func NoDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// ReadFile returns the content of a file, of a longer one its first most bytes.
func ReadFile(fs FS, name string, most int64) (b []byte, err error) {
	size, err := fs.Size(name)
	if err != nil {
		return nil, err
	}
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b = make([]byte, min(size, most))
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil // it became shorter meanwhile
	}
	return b[:n], err
}

// SyncDir makes the entries of a directory durable.
func SyncDir(fs FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDirs makes a directory where there is none, and those above it, one after the other. Each name is durable before the
// next is made. So of the directories that exist only the lowest may have a name that is not durable, because its maker ended
// before that. Its name is made durable too, unless the directory above may not be read: then its maker did it.
func MakeDirs(fsys FS, path string) error {
	path = filepath.Clean(path)
	var missing []string // from the lowest
	for ; ; path = filepath.Dir(path) {
		_, err := fsys.List(path)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, path)
		if path == filepath.Dir(path) {
			break
		}
	}
	if err := SyncDir(fsys, filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, dir := range slices.Backward(missing) {
		if err := fsys.MkdirAll(dir); err != nil {
			return err
		}
		if err := SyncDir(fsys, filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}
