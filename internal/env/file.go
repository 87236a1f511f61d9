package env

import (
	"errors"
	"io"
)

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
