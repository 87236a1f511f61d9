package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/errs"
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("store is closed")

// errFull ends work that does not wait for room on the disk.
var errFull = errors.New("disk is full")

// describe says during what act the database failed. Damage becomes a Corruption that names the file when it is known.
func describe(act string, err error) error {
	if err == nil {
		return nil
	}
	if !pebble.IsCorruptionError(err) {
		return fmt.Errorf("%s: %w", act, err)
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return errs.Corruptf("%s: file %s: %v", act, info.Path, info.Details)
	}
	return errs.Corruptf("%s: %v", act, err)
}

// describeOpen is describe for the opening of a database: a file that it names and that is not there is damage.
func describeOpen(o Options, err error) error {
	if err == nil {
		return nil
	}
	act := "open database " + o.Dir
	if _, missing := o.FS.Stat(o.Dir); missing == nil && errors.Is(err, fs.ErrNotExist) && !errors.Is(err, pebble.ErrDBDoesNotExist) {
		return errs.Corruptf("%s: %v", act, err)
	}
	return describe(act, err)
}

// IsFull reports whether an error says that the disk, or what its user may use of it, is full.
func IsFull(err error) bool {
	return errors.Is(err, errFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// logger gives the database's messages to slog. What the database calls fatal ends the use of the store, not the
// process: the owner decides.
type logger struct {
	log *slog.Logger
	// fail gets what the database calls fatal.
	fail func(error)
}

// Infof writes what the database tells of its work. It is of use to developers only.
func (l logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf writes an error after which the database goes on.
func (l logger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf does not end the process, which the database expects of it: fail makes every later write
// of the database fail.
func (l logger) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf("database: "+format, args...))
}
