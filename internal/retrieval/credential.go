package retrieval

import (
	"cmp"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
)

// expiry is when rows lose one credential. Rows that are no longer live stay in it until the index
// is rebuilt; they are in no set that strike is given.
type expiry struct {
	// sorted is in ascending order of the end, then of the row. It is replaced when the tail is
	// merged into it, never changed, so that its first element identifies it.
	sorted []expiring
	// tail is what came since, in no order: fewer than 64 and an eighth of sorted.
	tail []expiring
	// cached is the set of the last instant that was asked for. Searches of about one instant share
	// it.
	cached atomic.Pointer[expired]
}

// expiring says that a row loses the credential at an instant, in nanoseconds since 1970.
type expiring struct {
	at  int64
	row uint32
}

// expired is the set of rows of the first n of sorted.
type expired struct {
	of *expiring // the first of sorted, which tells one slice from another
	// n is how many of sorted have ended, and rows are the rows of these.
	n    int
	rows *roaring.Bitmap
}

// add notes that a row's credential ends. The caller holds the index for writing.
func (e *expiry) add(row uint32, at int64) {
	e.tail = append(e.tail, expiring{at, row})
	if len(e.tail) < 64+len(e.sorted)/8 {
		return
	}
	all := slices.Concat(e.sorted, e.tail)
	slices.SortFunc(all, func(a, b expiring) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.row, b.row)) })
	e.sorted, e.tail = all, nil
}

// strike removes the rows whose credential has ended at an instant. The caller holds the index for reading.
func (e *expiry) strike(from *roaring.Bitmap, at int64) {
	n := sort.Search(len(e.sorted), func(i int) bool { return e.sorted[i].at > at })
	if n > 0 {
		x := e.cached.Load()
		if x == nil || x.n != n || x.of != &e.sorted[0] {
			rows := make([]uint32, n)
			for i := range rows {
				rows[i] = e.sorted[i].row
			}
			slices.Sort(rows)
			x = &expired{of: &e.sorted[0], n: n, rows: roaring.New()}
			x.rows.AddMany(rows)
			e.cached.Store(x)
		}
		from.AndNot(x.rows)
	}
	for _, t := range e.tail {
		if t.at <= at {
			from.Remove(t.row)
		}
	}
}
