package api

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// KeyPage is one page of a range.
type KeyPage struct {
	// Pairs are in byte order of their keys.
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
	return t.keyRange(r.Keyspace, r.From, r.To, r.Prefix)
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
	if after != nil {
		q.KeyRange = beyondKey(q.KeyRange, after)
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
		// Another keyspace of the name: its keys have nothing to do with the pages before.
		if r.incarnationAt(place) != incarnation {
			return out, core.NotFound{Kind: "keyspace", ID: q.Keyspace}
		}
	}
	out.At = r.at
	if out.Pairs, err = r.next(limit, AnswerBytes); err != nil {
		return out, err
	}
	// There is more: the next page begins after the last key.
	if n := len(out.Pairs); n > 0 && len(r.parts) > 0 {
		last := out.Pairs[n-1].Key
		place := r.all[0].place
		if len(r.all) > 1 {
			place = int(c.t.partOfKey(last).Index)
		}
		out.Cursor = keyCursorOf(r.incarnationAt(place), last)
	}
	return out, nil
}

// beyondKey is what is left of a range after a key.
func beyondKey(r core.KeyRange, after []byte) core.KeyRange {
	if len(r.Prefix) > 0 {
		// A prefix and a first key exclude one another, so the prefix becomes an end.
		r.To = successor(r.Prefix)
		r.Prefix = nil
	}
	// The next key after one is that with a zero byte behind it.
	r.From = append(append(make([]byte, 0, len(after)+1), after...), 0)
	return r
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
