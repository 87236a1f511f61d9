package api

import (
	"bytes"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// KeyPage is one page of a range.
type KeyPage struct {
	// Pairs are in byte order of their keys, or against it.
	Pairs []core.KeyPair
	// Cursor leads to the next page; empty: the range has ended.
	Cursor string
	// At says where the answer stands, in each partition that was read.
	At []*pb.At
}

// KeyPageRequest asks for a page of a range of keys.
type KeyPageRequest struct {
	Range core.KeyRange
	// Limit is the length of the page; 0: the default.
	Limit uint32
	// Cursor is that of the page before; empty for the first page.
	Cursor string
	// MinIndex, Stale and MaxStaleness say how fresh the answer must be.
	MinIndex     uint64
	Stale        bool
	MaxStaleness *durationpb.Duration
	// Values asks for the values too.
	Values bool
}

// CheckRange refuses a range that cannot be read.
func (ks *KVService) CheckRange(r core.KeyRange) core.Fact {
	t := Translator{l: &ks.s.Limits}
	if fact := t.keyRange(r.Keyspace, r.From, r.To, r.Prefix); fact != nil {
		return fact
	}
	return rangeShape(r.Delimiter, int64(r.Head))
}

// ReadPage reads a page of a range, which checkRange has let pass.
func (ks *KVService) ReadPage(ctx context.Context, in KeyPageRequest) (out KeyPage, err error) {
	t := Translator{l: &ks.s.Limits}
	limit, fact := ks.s.page(in.Limit)
	if fact != nil {
		return out, fact
	}
	q := rangeQuery{KeyRange: in.Range, values: in.Values}
	if q.o, fact = t.Freshness(in.MinIndex, in.Stale, in.MaxStaleness); fact != nil {
		return out, fact
	}
	incarnation, after, fact := t.readKeyCursor(in.Cursor)
	if fact != nil {
		return out, fact
	}
	return ks.s.keyPage(ctx, q, limit, incarnation, after)
}

// KeyPage reads a page of a range, after a key of the keyspace of that incarnation; nil is from the front.
func (s *Server) keyPage(ctx context.Context, q rangeQuery, limit int, incarnation uint32, after []byte) (out KeyPage, err error) {
	c, err := s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		// A page goes on in a keyspace that is not there any more.
		if after != nil {
			err = core.NotFound{Kind: "keyspace", ID: q.Keyspace}
		} else {
			err = nil
		}
		return out, err
	}
	if err != nil {
		return out, err
	}
	// A page has one index for all its partitions.
	if err := c.ofSome(ctx, &q.o); err != nil {
		return out, err
	}
	whole := q.KeyRange
	// The page before may have ended with a prefix: such a page stands for all keys that begin with it.
	many := after != nil && isPrefix(q.KeyRange, after)
	if after != nil {
		var ok bool
		if q.KeyRange, ok = beyondKey(q.KeyRange, after, many); !ok {
			return out, nil
		}
	}
	if place, one := core.PlaceRange(whole.From, whole.To, whole.Prefix, c.t.parts); one && after != nil && c.t.several() {
		// The bounds of what is left need not show the tag any more.
		part := *c
		part.t.part, part.t.parts = c.t.in(int(place)), 1
		c = &part
	}
	r, err := c.openRange(ctx, q)
	if err != nil {
		return out, err
	}
	defer r.close()
	if after != nil {
		place := 0
		if len(r.all) > 1 {
			place = int(c.t.partOfKey(after).Index)
		} else {
			place = r.all[0].place
		}
		// Another keyspace of the name: its keys have nothing to do with the pages before. A prefix is of no one partition.
		if many && !r.hasIncarnation(incarnation) || !many && r.incarnationAt(place) != incarnation {
			return out, core.NotFound{Kind: "keyspace", ID: q.Keyspace}
		}
	}
	out.At = r.at
	if out.Pairs, err = r.next(limit, AnswerBytes); err != nil {
		return out, err
	}
	// There is more: the next page begins after the last key.
	if n := len(out.Pairs); n > 0 && len(r.parts.list) > 0 {
		last := &out.Pairs[n-1]
		place := r.all[0].place
		switch {
		case last.Many:
			place = r.parts.list[0].place // any that has the keyspace will do
		case len(r.all) > 1:
			place = int(c.t.partOfKey(last.Key).Index)
		}
		out.Cursor = keyCursorOf(r.incarnationAt(place), last.Key)
	}
	return out, nil
}

// hasIncarnation reports whether the keyspace has a number in any partition of the range.
func (r *keyMerge) hasIncarnation(n uint32) bool {
	return slices.ContainsFunc(r.all, func(p *mergePart) bool { return p.cursor.Incarnation() == n })
}

// isPrefix reports whether a key with which a page ended stands for many: it ends with the only delimiter behind the prefix.
func isPrefix(r core.KeyRange, key []byte) bool {
	if len(r.Delimiter) == 0 || len(key) < r.Behind {
		return false
	}
	at := bytes.Index(key[r.Behind:], r.Delimiter)
	return at >= 0 && r.Behind+at+len(r.Delimiter) == len(key)
}

// beyondKey is what is left of a range after a key, or after all keys that begin with it; false: nothing.
func beyondKey(r core.KeyRange, after []byte, many bool) (core.KeyRange, bool) {
	if len(r.Prefix) > 0 {
		// A prefix and a first key exclude one another, so the prefix becomes both bounds.
		r.From, r.To = r.Prefix, successor(r.Prefix)
		r.Prefix = nil
	}
	switch {
	case r.Desc:
		r.To = after
		return r, len(after) > 0 && bytes.Compare(r.From, r.To) < 0
	case many:
		r.From = successor(after)
		return r, r.From != nil
	}
	// The next key after one is that with a zero byte behind it.
	r.From = append(append(make([]byte, 0, len(after)+1), after...), 0)
	return r, true
}

// successor is the first key after all that begin with prefix; nil when there is none.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		// Bytes of 0xff at the end have no successor: the one before them is counted up.
		if prefix[i] != 0xff {
			return append(append([]byte{}, prefix[:i]...), prefix[i]+1)
		}
	}
	return nil
}
