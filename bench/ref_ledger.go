package bench

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// RefLedger holds what one system acknowledged of the refs of one repository in a run, warm-up included. Refs
// have numbers, and the number alone says the name, so that a million of them take a few bytes each. Changes
// of one ref must not be under way at once: the last one would not be known.
type RefLedger struct {
	Repo string
	// Prefix begins the name of every numbered ref.
	Prefix string

	mu sync.Mutex // guards the fields below
	// ids gives each object id a number, from 1.
	ids map[string]uint32
	// at is the number of the object at which each ref was last acknowledged; 0: it is not there.
	at []uint32
	// unsure lists, by ref, the objects at which changes of unknown outcome may have put it since then.
	unsure map[int][]uint32
	// other holds refs outside the prefix by name, which nothing changes.
	other map[string]string
	acked uint64
	// lost counts changes whose end is not known.
	lost uint64
}

// refDigits is the length of a ref's number in its name, with zeros before it.
const refDigits = 7

// NewRefLedger makes an empty ledger. Names are the prefix and seven digits.
func NewRefLedger(repo, prefix string) *RefLedger {
	return &RefLedger{Repo: repo, Prefix: prefix, ids: map[string]uint32{}, unsure: map[int][]uint32{}, other: map[string]string{}}
}

// Name returns the name of a ref.
func (l *RefLedger) Name(n int) string { return l.Prefix + fmt.Sprintf("%0*d", refDigits, n) }

// number is the inverse of Name; ok is false for another name.
func (l *RefLedger) number(name string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(name, l.Prefix)
	if !ok || len(digits) != refDigits {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}

// id gives an object its number. The empty id, of a ref that is not there, has 0. The caller holds the lock.
func (l *RefLedger) id(object string) uint32 {
	if object == "" {
		return 0
	}
	n, ok := l.ids[object]
	if !ok {
		n = uint32(len(l.ids) + 1)
		l.ids[object] = n
	}
	return n
}

// Acked notes that ref n was acknowledged at an object; an empty one means that it was deleted.
func (l *RefLedger) Acked(n int, object string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.at) <= n {
		l.at = append(l.at, 0)
	}
	l.at[n] = l.id(object)
	l.acked++
	delete(l.unsure, n)
}

// Unknown notes that ref n may be at an object: the outcome of the change is not known.
func (l *RefLedger) Unknown(n int, object string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.at) <= n {
		l.at = append(l.at, 0)
	}
	l.unsure[n] = append(l.unsure[n], l.id(object))
	l.lost++
}

// Keep notes a ref with a name of its own that nothing changes.
func (l *RefLedger) Keep(name, object string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other[name] = object
}

// Acknowledged returns how many changes were.
func (l *RefLedger) Acknowledged() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}
