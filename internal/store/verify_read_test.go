package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/errs"
)

// failing is a file of a snapshot whose reads fail once a given number of its bytes were read.
type failing struct {
	*bytes.Reader
	left int
	err  error
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.left < len(p) {
		return 0, f.err
	}
	f.left -= len(p)
	return f.Reader.ReadAt(p, off)
}

func (f *failing) Close() error { return nil }

// A read that fails, for want of descriptors say, says nothing about what is stored: it is not told as damage, wherever in
// a table it happens.
func TestAFileThatCannotBeReadIsNotCalledDamaged(t *testing.T) {
	mem := vfs.NewMem()
	snap := makeSnapshot(t, mem, "good", program(2000), 4, 100)
	whole := make(map[string][]byte)
	for _, f := range snap.Files {
		whole[f.Name] = bytesOf(t, mem, "good/"+f.Name)
	}
	verify := func(left int, err error) error {
		return VerifyFiles(snap, func(f SnapshotFile) (SourceFile, error) {
			b := whole[f.Name]
			return &failing{bytes.NewReader(b), left, err}, nil
		}, func(_, _ []byte) error { return nil })
	}
	if err := verify(1<<30, nil); err != nil {
		t.Fatal(err)
	}
	first := len(whole[snap.Files[0].Name])
	for name, fail := range map[string]error{
		"too many open files": syscall.EMFILE, "input or output": syscall.EIO, "no memory": syscall.ENOMEM,
		"a closed file": &fs.PathError{Op: "read", Path: "x", Err: fs.ErrClosed}, "a caller who is gone": context.Canceled,
	} {
		for _, left := range []int{0, first, first + 100, first + 4000, 2*first - 10} {
			err := verify(left, fail)
			if !errors.Is(err, fail) {
				t.Errorf("%s after %d bytes: %v", name, left, err)
			}
			if damage, ok := errors.AsType[*errs.Corruption](err); ok {
				t.Errorf("%s after %d bytes is told as damage: %v", name, left, damage)
			}
		}
	}
}
