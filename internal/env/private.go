package env

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// othersAll are the permissions of users other than the owner, the group among them; othersWrite
// are those to write. everyRead is the permission of all users to read.
const (
	othersAll   fs.FileMode = 0o077
	othersWrite fs.FileMode = 0o022
	everyRead   fs.FileMode = 0o004
)

// OpenDirectoryError says that a directory which holds data may be used by other users of the machine, and that this
// process may not change that.
type OpenDirectoryError struct {
	Dir  string
	Mode fs.FileMode // its permissions
	Err  error       // why they were not changed
}

// Error names the directory and says what to do.
func (e *OpenDirectoryError) Error() string {
	return fmt.Sprintf("directory %s has mode %04o, so other users may use it, and the mode cannot be changed (%v); "+
		"run as its owner, set its mode to 0700, or use a directory below it", e.Dir, e.Mode, e.Err)
}

// Unwrap returns why the mode was not changed.
func (e *OpenDirectoryError) Unwrap() error { return e.Err }

// KeepPrivate takes the permissions of all users but the owner from a directory, and from all that is below it. It returns
// how many files and directories it changed: 0 when the directory was private, because then nothing below it can be
// reached, and when there is no directory. Symbolic links are left as they are. Error: *OpenDirectoryError.
func KeepPrivate(dir string) (changed int, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case info.Mode().Perm()&othersAll == 0:
		return 0, nil
	}
	// The directory first: from here on other users reach nothing below it, so nothing is exchanged during the walk.
	if err := os.Chmod(dir, info.Mode().Perm()&^othersAll); err != nil {
		return 0, &OpenDirectoryError{Dir: dir, Mode: info.Mode().Perm(), Err: errors.Unwrap(err)}
	}
	changed = 1
	root, err := os.OpenRoot(dir) // a link that leads out of the directory is not followed
	if err != nil {
		return changed, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil // a directory of root's, such as lost+found of a file system
		}
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&othersAll == 0 {
			return nil
		}
		switch err := root.Chmod(name, info.Mode().Perm()&^othersAll); {
		case errors.Is(err, fs.ErrPermission): // likewise
		case err != nil:
			return err
		default:
			changed++
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("take the permissions of other users from what is in %s: %w", dir, err)
	}
	return changed, err
}

// WritableError says that other users may write a file on which the safety of a server rests, or may replace it.
type WritableError struct {
	File string
	Mode fs.FileMode // permissions of the file, or of the directory that it is in
	Dir  bool        // it is the directory that others may write
	UID  int         // the owner, if that is why: neither root nor this process's user; else -1
}

// Error names the file and says what to do.
func (e *WritableError) Error() string {
	switch {
	case e.UID >= 0:
		return fmt.Sprintf("%s belongs to user %d, who may change it; it must belong to root or to the user of this process", e.File, e.UID)
	case e.Dir:
		return fmt.Sprintf("%s is in a directory of mode %04o, so other users may replace it; use a directory that only its owner may write", e.File, e.Mode)
	}
	return fmt.Sprintf("%s has mode %04o, so other users may change it; run chmod go-w on it", e.File, e.Mode)
}

// CheckTrusted refuses a file of tokens, keys, certificates or settings that users other than root and this process's may
// write, or replace because of the directory that it is in. Symbolic links are followed: what counts is the file that is
// read, and the directories of the file and of the link. readable reports whether every user of the machine may read it.
// Errors: *WritableError, and those of reading the file's mode.
func CheckTrusted(name string) (readable bool, err error) {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return false, err
	}
	if info.Mode().Perm()&othersWrite != 0 {
		return false, &WritableError{File: name, Mode: info.Mode().Perm(), UID: -1}
	}
	if uid, ok := foreignOwner(info); ok {
		return false, &WritableError{File: name, Mode: info.Mode().Perm(), UID: uid}
	}
	for _, dir := range []string{filepath.Dir(target), filepath.Dir(name)} {
		in, err := os.Stat(dir)
		if err != nil {
			return false, err
		}
		// In a directory with the sticky bit only the owner of a file may rename or remove it.
		if in.Mode().Perm()&0o002 != 0 && in.Mode()&fs.ModeSticky == 0 {
			return false, &WritableError{File: name, Mode: in.Mode().Perm(), Dir: true, UID: -1}
		}
	}
	return info.Mode().Perm()&everyRead != 0, nil
}
