package refs

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A directory is a name that refs lie below. Its row counts its children, refs and directories, so
// that whether there is anything below a name is one read, however many refs were deleted there. A
// directory that exists proves that each name above it is a directory too, and not a ref.

// parent returns the directory that a name lies in; empty when it lies in none.
func parent(name string) string {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return ""
	}
	return name[:i]
}

// children returns how many children a directory has, as the transaction sees it: counts that it
// changed are not stored before its end. A row is never stored for 0.
func (t *transaction) children(dir string) (int64, error) {
	if n, ok := t.dirs[dir]; ok {
		return n, nil
	}
	row, ok, err := t.tx.Get(keys.RefDir(t.m.p, t.repo.ID, dir))
	if err != nil || !ok {
		return 0, err
	}
	n, k := binary.Uvarint(row)
	// A count of 0 is never written, so one that is stored is not append's.
	if k != len(row) || n == 0 {
		return 0, errs.Corruptf("directory %q of repository %s: %x", dir, t.repo.ID, row)
	}
	return int64(n), nil
}

// grow counts one child more, or with -1 one less, in the directory of a name. A directory that
// comes or goes by that is itself a child of the one above, so the walk goes on until a count was
// not 0 and is not 0. The counts are kept in t.dirs and written once, by writeDirs.
func (t *transaction) grow(name string, by int64) error {
	for dir := parent(name); dir != ""; dir = parent(dir) {
		n, err := t.children(dir)
		if err != nil {
			return err
		}
		// Fewer than none: a ref was written without its directory.
		if n+by < 0 {
			return errs.Corruptf("directory %q of repository %s has %d children", dir, t.repo.ID, n+by)
		}
		if t.dirs == nil {
			t.dirs = map[string]int64{}
		}
		t.dirs[dir] = n + by
		if n != 0 && n+by != 0 {
			return nil
		}
	}
	return nil
}

// writeDirs writes the counts that changed, in order of name, so that all replicas write in the same order.
func (t *transaction) writeDirs() {
	for _, dir := range slices.Sorted(maps.Keys(t.dirs)) {
		key := keys.RefDir(t.m.p, t.repo.ID, dir)
		if n := t.dirs[dir]; n == 0 {
			t.tx.Delete(key)
		} else {
			t.tx.Set(key, binary.AppendUvarint(nil, uint64(n)))
		}
	}
}

// conflict returns the ref, or the directory with a slash at its end, that keeps name from being a
// ref; empty when there is none. It reads the count below the name, then looks upwards until a
// directory exists: above that there is no ref.
func (t *transaction) conflict(name string) (string, error) {
	n, err := t.children(name)
	if err != nil {
		return "", err
	}
	// A name with children is a directory, and no ref can have that name too.
	if n > 0 {
		return name + "/", nil
	}
	for dir := parent(name); dir != ""; dir = parent(dir) {
		n, err := t.children(dir)
		if err != nil {
			return "", err
		}
		// This directory exists, so each name above it is one as well.
		if n > 0 {
			return "", nil
		}
		if _, ok, err := t.get(dir); err != nil || ok {
			return dir, err
		}
	}
	return "", nil
}

// conflicts fails each edit of a ref that does not exist when another name of the transaction lies
// above or below it. named is in order of name, so that what lies below begins at one place.
func (t *transaction) conflicts(named []named) {
	for i := range t.edits {
		e := &t.edits[i]
		if e.exists || e.failed {
			continue
		}
		for dir := parent(e.name); dir != ""; dir = parent(dir) {
			if _, ok := slices.BinarySearchFunc(named, dir, compareNamed); ok {
				t.fail(e, core.RefFailure{Reason: core.RefTxnConflict, Name: e.name, Other: dir})
				break
			}
		}
		// With the slash, names that only begin alike are left out.
		below := e.name + "/"
		at, _ := slices.BinarySearchFunc(named, below, compareNamed)
		if !e.failed && at < len(named) && strings.HasPrefix(named[at].name, below) {
			t.fail(e, core.RefFailure{Reason: core.RefTxnConflict, Name: e.name, Other: named[at].name})
		}
	}
}

// compareNamed finds a name in the list that names returns.
func compareNamed(a named, name string) int { return strings.Compare(a.name, name) }
