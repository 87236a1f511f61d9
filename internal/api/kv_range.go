package api

import (
	"bytes"
	"container/heap"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// A chunk of a range ends at chunkKeys keys or chunkBytes bytes of keys and values.
	chunkKeys  = 1000
	chunkBytes = 64 * kib
	// rangePartitions bounds the partitions that one range is merged from: each is held open.
	rangePartitions = 256
	// rangeFor is how long a range may take: what it reads cannot be removed meanwhile.
	rangeFor = 5 * time.Minute
)

// Range streams the keys of a range.
func (ks *KVService) Range(in *pb.KVRangeRequest, ss grpc.ServerStreamingServer[pb.KVRangeResponse]) error {
	s, ctx := ks.s, ss.Context()
	t := Translator{l: &s.Limits}
	if fact := t.keyRange(in.GetKeyspace(), in.GetFrom(), in.GetTo(), in.GetPrefix()); fact != nil {
		return fact
	}
	if fact := rangeShape(in.GetDelimiter(), int64(in.GetHead())); fact != nil {
		return fact
	}
	o, fact := t.Freshness(0, in.GetStale(), in.GetMaxStaleness())
	if fact != nil {
		return fact
	}
	c, err := s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		// One empty chunk, as for a range without keys.
		return ss.Send(&pb.KVRangeResponse{})
	}
	if err != nil {
		return err
	}
	if fact := c.t.minsFact(in.GetMin()); fact != nil {
		return fact
	}
	// It ends with the server.
	ctx, cancel := s.waiting(ctx)
	defer cancel()
	r, err := c.openRange(ctx, rangeQuery{
		KeyRange: core.KeyRange{
			Keyspace: in.GetKeyspace(), From: in.GetFrom(), To: in.GetTo(), Prefix: in.GetPrefix(), Desc: in.GetDesc(),
			Delimiter: in.GetDelimiter(), Behind: len(in.GetPrefix()), Head: int(in.GetHead()),
		},
		min: in.GetMin(), o: o, values: !in.GetKeysOnly(),
	})
	if err != nil {
		return waited(ctx, err)
	}
	// Sending may wait for the client. The handler does not wait with it, so that the time below can
	// end it.
	ended := make(chan error, 1)
	s.Work.Add(1)
	go func() {
		defer s.Work.Done()
		// By the goroutine that reads, so that nothing is closed under it.
		defer r.close()
		ended <- s.Safely(func() error { return sendRange(ctx, r, in.GetLimit(), ss) })
	}()
	late := s.o.Clock.NewTimer(rangeFor)
	defer late.Stop()
	select {
	case err := <-ended:
		return waited(ctx, err)
	case <-late.C():
		return core.Unavailable{Reason: "slow_consumer", Limit: "range_ms"}
	case <-ctx.Done():
		return waited(ctx, ctx.Err())
	}
}

// sendRange sends chunks until the range ends. The first tells where the answer stands.
func sendRange(ctx context.Context, r *keyMerge, limit uint64, ss grpc.ServerStreamingServer[pb.KVRangeResponse]) error {
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return err
		}
		items, want := chunkKeys, uint64(chunkKeys)
		if limit > 0 {
			// A limit is of the whole range: the last chunk is shorter.
			want = min(want, limit)
			items = int(want)
		}
		pairs, err := r.next(items, chunkBytes)
		if err != nil {
			return err
		}
		if len(pairs) == 0 && !first {
			return nil
		}
		out := new(pb.KVRangeResponse)
		out.Items, out.Prefixes = showPairs(pairs, r.sized)
		if first {
			out.At = r.at
		}
		if err := ss.Send(out); err != nil {
			return err
		}
		// The range has no keys: the first chunk is its answer.
		if len(pairs) == 0 {
			return nil
		}
		if limit > 0 {
			if limit -= uint64(len(pairs)); limit == 0 {
				return nil
			}
		}
	}
}

const (
	// maxHead bounds the bytes of each value that a range shows the head of, and maxDelimiter those of a delimiter.
	maxHead      = 64 * kib
	maxDelimiter = 64
)

// rangeShape refuses a delimiter or a head that is too long.
func rangeShape(delimiter []byte, head int64) core.Fact {
	switch {
	case len(delimiter) > maxDelimiter:
		return edge.TooLarge("delimiter", "delimiter_bytes", maxDelimiter)
	case head > maxHead:
		return edge.TooLarge("head", "head_bytes", maxHead)
	}
	return nil
}

// showPairs shows keys with their values and revisions, and sizes where the values are not whole; and the prefixes that stand for many.
func showPairs(pairs []core.KeyPair, sized bool) (out []*pb.KVPair, prefixes []*pb.KVPrefix) {
	out = make([]*pb.KVPair, 0, len(pairs))
	for i := range pairs {
		if pairs[i].Many {
			prefixes = append(prefixes, &pb.KVPrefix{Prefix: pairs[i].Key})
			continue
		}
		one := &pb.KVPair{Key: pairs[i].Key, Value: pairs[i].Value, Rev: pairs[i].Rev, Writer: ShowWriter(pairs[i].Writer)}
		if sized {
			one.Size = uint64(pairs[i].Size)
		}
		out = append(out, one)
	}
	return out, prefixes
}

// rangeQuery is what a range is asked for.
type rangeQuery struct {
	core.KeyRange
	// min are the indexes that reads must have seen, by partition; o is how fresh each must be
	// otherwise.
	min    []*pb.At
	o      core.ReadOptions // of each
	values bool
}

// keyMerge reads a range of several partitions in the order of the keys. It is for one goroutine.
type keyMerge struct {
	// parts are those that have more, all are those of the range, in the order of at, which says where
	// the answer stands in each.
	parts  mergeHeap
	all    []*mergePart
	at     []*pb.At // of each partition
	values bool
	sized  bool // values are not whole: their sizes are shown
	began  bool
	last   []byte // the prefix that was given last: other partitions may have keys of it too
}

// mergePart is one partition of a range.
type mergePart struct {
	cursor core.KeyCursor
	// pairs were read and not given yet.
	pairs []core.KeyPair
	place int
}

// openRange opens a range in the partitions that may have keys of it, each as it is now.
func (c *call) openRange(ctx context.Context, q rangeQuery) (*keyMerge, error) {
	// Bounds that share a {tag} have all their keys in one partition.
	places := make([]int, 0, 1)
	if place, one := core.PlaceRange(q.From, q.To, q.Prefix, c.t.parts); one {
		places = append(places, int(place))
	} else {
		if c.t.parts > rangePartitions {
			return nil, edge.TooLarge("prefix", "range_partitions", rangePartitions)
		}
		// Any partition may have keys of it.
		for place := range c.t.parts {
			places = append(places, place)
		}
	}
	r := &keyMerge{
		values: q.values, sized: !q.values || q.Head > 0, all: make([]*mergePart, len(places)), at: make([]*pb.At, len(places)),
		parts: mergeHeap{desc: q.Desc},
	}
	var mu sync.Mutex // guards failed
	var failed error
	var wait sync.WaitGroup
	room := make(chan struct{}, eachAtOnce)
	for i, place := range places {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			err := c.s.Safely(func() error { return c.openPart(ctx, r, i, place, q) })
			if err != nil {
				mu.Lock()
				// Any of several errors will do.
				failed = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if failed != nil {
		r.close()
		return nil, failed
	}
	return r, nil
}

// openPart opens the i-th partition of a range.
func (c *call) openPart(ctx context.Context, r *keyMerge, i, place int, q rangeQuery) error {
	p := c.t.in(place)
	// A stream or a call may be of a partition that is not the first.
	if !c.t.several() {
		p = c.t.part
	}
	own := q.o
	own.MinIndex = max(own.MinIndex, minOf(q.min, p))
	cursor, at, err := c.s.node.keys.KeyRange(ctx, p, q.KeyRange, own)
	if err != nil {
		return unknownOf(q.min, p, err)
	}
	r.all[i], r.at[i] = &mergePart{cursor: cursor, place: place}, ShowAt(at)
	return nil
}

// incarnationAt is the number that the keyspace has in a partition of the range.
func (r *keyMerge) incarnationAt(place int) uint32 {
	for _, p := range r.all {
		// There are few partitions in most ranges.
		if p.place == place {
			return p.cursor.Incarnation()
		}
	}
	return 0
}

// close lets go of what the partitions keep for the range.
func (r *keyMerge) close() {
	for _, p := range r.all {
		if p != nil {
			_ = p.cursor.Close() // what was read is good
		}
	}
}

// fill reads ahead in one partition, as its share of a chunk.
func (r *keyMerge) fill(p *mergePart) (err error) {
	// A share of the chunk each, but no fewer keys than a read is worth.
	n := len(r.all)
	p.pairs, err = p.cursor.Next(max(chunkKeys/n, 16), max(chunkBytes/n, 4*kib), r.values)
	return err
}

// next returns the next pairs: at most items of them, and no more once they exceed size bytes. It returns none at the end.
func (r *keyMerge) next(items, size int) (out []core.KeyPair, err error) {
	if !r.began {
		r.began = true
		for _, p := range r.all {
			if err := r.fill(p); err != nil {
				return nil, err
			}
			if len(p.pairs) > 0 {
				r.parts.list = append(r.parts.list, p)
			}
		}
		heap.Init(&r.parts)
	}
	// One key may pass the bound of bytes: a page has at least one.
	for len(r.parts.list) > 0 && len(out) < items && size > 0 {
		p := r.parts.list[0]
		// The next key of all partitions is that of the first one in the heap.
		pair := p.pairs[0]
		if !pair.Many || !bytes.Equal(pair.Key, r.last) {
			out = append(out, pair)
			size -= len(pair.Key) + len(pair.Value)
		}
		if pair.Many {
			r.last = pair.Key
		}
		// Read on before the partition is put in its place, which its next key decides.
		if p.pairs = p.pairs[1:]; len(p.pairs) == 0 {
			if err := r.fill(p); err != nil {
				return nil, err
			}
		}
		if len(p.pairs) == 0 {
			heap.Pop(&r.parts)
		} else {
			heap.Fix(&r.parts, 0)
		}
	}
	return out, nil
}

// mergeHeap has the partition whose next key comes first in front. No key is of two partitions, but a prefix may be.
type mergeHeap struct {
	list []*mergePart
	desc bool
}

// The methods that package heap wants.
func (h *mergeHeap) Len() int { return len(h.list) }

func (h *mergeHeap) Less(i, j int) bool {
	order := bytes.Compare(h.list[i].pairs[0].Key, h.list[j].pairs[0].Key)
	return order < 0 && !h.desc || order > 0 && h.desc
}
func (h *mergeHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *mergeHeap) Push(x any)    { h.list = append(h.list, x.(*mergePart)) } // of heap alone, which puts what Pop gave
func (h *mergeHeap) Pop() any {
	old := h.list
	last := old[len(old)-1]
	old[len(old)-1] = nil
	h.list = old[:len(old)-1]
	return last
}
