package millrace

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// GetMany reads keys. values is indexed like keys; one that is absent has Rev 0. In a namespace of one partition, and for
// no more than about 3 MiB of values, all are read at one index.
func (k KV) GetMany(ctx context.Context, keys []string, opts ...ReadOption) (values []Value, err error) {
	o := readOptionsOf(opts)
	values = make([]Value, 0, len(keys))
	for len(values) < len(keys) {
		// Each call may answer fewer keys than it was asked for, so that the answer stays within its bound.
		rest := keys[len(values):min(len(keys), len(values)+wire.BatchGet)]
		req := &millracev1.KVBatchGetRequest{
			Keyspace: k.keyspace, Keys: make([][]byte, len(rest)), Min: o.min(), Stale: o.stale, MaxStaleness: o.staleness(),
		}
		for i, key := range rest {
			req.Keys[i] = []byte(key)
		}
		var resp *millracev1.KVBatchGetResponse
		if err := k.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
			resp, err = k.c.kv.BatchGet(ctx, req)
			return err
		}); err != nil {
			return nil, err
		}
		if len(resp.Results) == 0 {
			return nil, &Error{Code: CodeInternal, Message: "the answer has no key", Op: OpNone, Outcome: Refused}
		}
		for _, r := range resp.Results {
			v := Value{codec: k.c.opts.codec}
			if r.Found {
				v.Bytes, v.Rev, v.Writer = r.Value, r.Rev, writerOf(r.Writer)
			}
			if len(resp.At) == 1 {
				v.At = placeOf(resp.At[0])
			}
			values = append(values, v)
		}
	}
	return values, nil
}

// Entry is a key of a range and what it holds.
type Entry struct {
	// Key is any bytes. Of Keys the value is nil.
	Key string
	Value
}

// Range reads the keys of r in byte order, as they stand when it begins: in each partition at one instant. An error ends
// it. A reader that takes longer than five minutes gets one. Over REST each page of 1,000 keys is of an instant of its own.
func (k KV) Range(ctx context.Context, r KeyRange, opts ...ReadOption) iter.Seq2[Entry, error] {
	o := readOptionsOf(opts)
	req := &millracev1.KVRangeRequest{
		Keyspace: k.keyspace, From: []byte(r.from), To: []byte(r.to), Prefix: []byte(r.prefix), Min: o.min(),
		Stale: o.stale, MaxStaleness: o.staleness(),
	}
	return k.entries(ctx, req)
}

// Keys is Range without the values.
func (k KV) Keys(ctx context.Context, r KeyRange, opts ...ReadOption) iter.Seq2[Entry, error] {
	o := readOptionsOf(opts)
	req := &millracev1.KVRangeRequest{
		Keyspace: k.keyspace, From: []byte(r.from), To: []byte(r.to), Prefix: []byte(r.prefix), KeysOnly: true, Min: o.min(),
		Stale: o.stale, MaxStaleness: o.staleness(),
	}
	return k.entries(ctx, req)
}

// entries reads a range. The first chunk may be asked for again after an error; later ones cannot, as the stream has moved on.
func (k KV) entries(ctx context.Context, req *millracev1.KVRangeRequest) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var chunks grpc.ServerStreamingClient[millracev1.KVRangeResponse]
		var chunk *millracev1.KVRangeResponse
		err := k.c.last(ctx, anywhere, func(ctx context.Context) (err error) {
			if chunks, err = k.c.kv.Range(ctx, req); err != nil {
				return err
			}
			chunk, err = chunks.Recv()
			return err
		})
		var at Place
		if err == nil && len(chunk.At) == 1 {
			at = placeOf(chunk.At[0])
		}
		for err == nil {
			for _, p := range chunk.Items {
				if !yield(Entry{string(p.Key), Value{Bytes: p.Value, Rev: p.Rev, At: at, Writer: writerOf(p.Writer), codec: k.c.opts.codec}}, nil) {
					return
				}
			}
			chunk, err = chunks.Recv()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if ctx.Err() != nil {
			err = errorOf(fault.Ended(ctx, false, "the range was not read to its end"))
		}
		yield(Entry{}, fromStatus(err))
	}
}

// DeleteRange removes the keys of r: in each partition as one change, and one partition after the other. It returns how many
// keys there were with CountKeys, else 0. An error may leave the keys of some partitions removed; the call may be repeated.
func (k KV) DeleteRange(ctx context.Context, r KeyRange, opts ...RangeDeleteOption) (n uint64, err error) {
	req := &millracev1.KVDeleteRangeRequest{Range: r.op(k.keyspace, opts)}
	var resp *millracev1.KVDeleteRangeResponse
	err = k.c.change(ctx, max(place.Range(req.Range, k.c.hub.Partitions()), anywhere), func(ctx context.Context) (err error) {
		resp, err = k.c.kv.DeleteRange(ctx, req)
		return err
	})
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}
