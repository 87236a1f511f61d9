package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// unfinishedName is in a data directory while a command makes it, or makes it over. It names the command.
const unfinishedName = "UNFINISHED"

// maxUnfinished bounds the mark.
const maxUnfinished = 64

// UnfinishedError says that a command which makes a data directory, or makes it over, did not end: no server may start on it.
// The command can be run again.
type UnfinishedError struct{ Dir, Command string }

// Error names the directory and the command.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("data directory %s is not whole: millrace %s did not end; run it again", e.Dir, e.Command)
}

// readUnfinished tells which command did not end in a directory with these names.
func readUnfinished(fsys env.FS, path string, names []string) error {
	for _, name := range names {
		if name != unfinishedName {
			continue
		}
		b, err := env.ReadFile(fsys, filepath.Join(path, name), maxUnfinished)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		return &UnfinishedError{Dir: path, Command: strings.TrimSpace(string(b))}
	}
	return nil
}

// Making is a data directory that a command makes, or makes over. Until Finish no server starts on
// it. It holds the directory's lock.
type Making struct {
	fs   env.FS
	path string
	lock io.Closer
}

// ErrNotEmpty says that a data directory cannot be made because something is there.
var ErrNotEmpty = errors.New("directory is not empty")

// MakeDir begins to make a data directory where there is none, or an empty one, or one in which the
// same command did not end: what that left is removed. Errors: ErrNotEmpty, ErrLocked; an
// *UnfinishedError of another command. The mark is durable before anything is removed or made.
func MakeDir(fsys env.FS, path, command string) (*Making, error) {
	names, err := fsys.List(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	unfinished, _ := errors.AsType[*UnfinishedError](readUnfinished(fsys, path, names))
	for _, name := range names {
		switch {
		case name == lockName || name == "lost+found":
		case unfinished == nil:
			return nil, fmt.Errorf("%w: %s", ErrNotEmpty, path)
		case unfinished.Command != command:
			return nil, unfinished
		}
	}
	if err := env.MakeDirs(fsys, path); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	m := &Making{fs: fsys, path: path}
	if m.lock, err = fsys.Lock(filepath.Join(path, lockName)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
	}
	err = m.mark(command)
	for _, name := range names {
		if err == nil && name != lockName && name != unfinishedName && name != "lost+found" {
			err = RemoveTree(fsys, filepath.Join(path, name))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make data directory: %w", err), m.lock.Close())
	}
	return m, nil
}

// Remake begins to make a data directory over, or goes on where the same command did not end. Errors: those of OpenDir, and
// ErrNoData.
func Remake(fsys env.FS, path, command string) (*Making, error) {
	_, err := ReadDir(fsys, path)
	if unfinished, ok := errors.AsType[*UnfinishedError](err); ok && unfinished.Command == command {
		_, err = readIdentity(fsys, filepath.Join(path, identityName))
	}
	if err != nil {
		return nil, err
	}
	m := &Making{fs: fsys, path: path}
	if m.lock, err = fsys.Lock(filepath.Join(path, lockName)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
	}
	if err := m.mark(command); err != nil {
		return nil, errors.Join(err, m.lock.Close())
	}
	return m, nil
}

// mark writes the mark and makes it durable.
func (m *Making) mark(command string) error {
	if err := writeFile(m.fs, filepath.Join(m.path, unfinishedName), []byte(command+"\n")); err != nil {
		return fmt.Errorf("write %s: %w", unfinishedName, err)
	}
	return env.SyncDir(m.fs, m.path)
}

// Identify gives the directory an identity, which no other directory has. Everything else in it is durable by then.
func (m *Making) Identify(rnd env.Rand, created time.Time) (Identity, error) {
	return writeIdentity(m.fs, m.path, rnd, created)
}

// Finish lets servers start on the directory, and gives it up. Everything in it is durable by then.
func (m *Making) Finish() error {
	if err := env.SyncDir(m.fs, m.path); err != nil {
		return errors.Join(fmt.Errorf("sync %s: %w", m.path, err), m.lock.Close())
	}
	err := m.fs.Remove(filepath.Join(m.path, unfinishedName))
	if err == nil {
		err = env.SyncDir(m.fs, m.path)
	}
	if err != nil {
		err = fmt.Errorf("remove %s: %w", unfinishedName, err)
	}
	return errors.Join(err, m.lock.Close())
}

// Abandon gives an empty directory up as it was before MakeDir.
func (m *Making) Abandon() error {
	if err := m.fs.Remove(filepath.Join(m.path, unfinishedName)); err != nil {
		return errors.Join(fmt.Errorf("remove %s: %w", unfinishedName, err), m.lock.Close())
	}
	return m.lock.Close()
}

// Leave gives the directory up as it is, with its mark.
func (m *Making) Leave() error { return m.lock.Close() }

// RemoveTree removes a file, or a directory with all that is in it. What is not there is removed.
func RemoveTree(fsys env.FS, path string) error {
	if names, err := fsys.List(path); err == nil {
		for _, name := range names {
			if err := RemoveTree(fsys, filepath.Join(path, name)); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
