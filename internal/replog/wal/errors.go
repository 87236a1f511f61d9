package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// ErrQueueFull refuses an Append while more than Options.QueueBytes wait for the writer. Nothing was queued.
var ErrQueueFull = errors.New("log queue is full")

// ErrClosed refuses what comes after Close, and ends what Close could not write for want of disk space.
var ErrClosed = errors.New("log is closed")

// ErrCompacted says that an entry lies below the shard's cut.
var ErrCompacted = errors.New("log entry is cut off")

// ErrUnavailable says that an entry is not in the log, or not yet.
var ErrUnavailable = errors.New("log entry is unavailable")

// ErrTooLarge refuses an entry with more than MaxEntryBytes of data.
var ErrTooLarge = errors.New("log entry is too large")

// ErrOrder refuses entries that do not continue their shard's log.
var ErrOrder = errors.New("log entries are out of order")

// ErrFatal marks the error that every batch gets once a write or a sync has failed. errors.Is finds it and the cause.
var ErrFatal = errors.New("log stopped")

// fatalError is ErrFatal with its cause.
type fatalError struct{ cause error }

// Error names the cause.
func (e *fatalError) Error() string        { return fmt.Sprintf("log stopped: %v", e.cause) }
func (e *fatalError) Is(target error) bool { return target == ErrFatal }
func (e *fatalError) Unwrap() error        { return e.cause }

// CorruptionError says that bytes which were once durable are damaged. They are not repaired here: other copies of them
// are elsewhere.
type CorruptionError struct {
	// File is the name of the file, and Offset where in it the damage begins.
	File   string
	Offset int64
	What   string
}

// Error names file and offset.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("corrupt log: %s at offset %d: %s", e.File, e.Offset, e.What)
}

// noRoom says whether an error means that the disk, or the quota on it, is full.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// errNoRoom stands for the error that the file system would give, without filling the disk to get it.
var errNoRoom = fmt.Errorf("make a segment: %w", syscall.ENOSPC)

// isMissing reports whether an error says that a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
