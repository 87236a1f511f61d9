package api

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Reads and single writes of keys. What reads several partitions shows for each where it stands.

const (
	// BatchGetKeys bounds the keys of a BatchGet.
	BatchGetKeys = 1000
	// batchShareBytes is what a partition may answer of a BatchGet at least.
	batchShareBytes = 64 * kib
)

// readOptions are how fresh a read must be.
func readOptions(minIndex uint64, stale bool) core.ReadOptions {
	return core.ReadOptions{MinIndex: minIndex, Stale: stale}
}

// Freshness reads how fresh a read must be; min is of one partition.
func (t *Translator) Freshness(min uint64, stale bool, max *durationpb.Duration) (core.ReadOptions, core.Fact) {
	o := readOptions(min, stale)
	var fact core.Fact
	if o.MaxStale, fact = Millis("max_staleness", max, PositiveSpan(t.l)); fact != nil {
		return o, fact
	}
	// A linearizable read is never old.
	if o.MaxStale > 0 && !stale {
		return o, edge.Invalid("max_staleness", "is allowed only with stale reads")
	}
	return o, nil
}

// minOf is the index of a partition in a list of them.
func minOf(list []*pb.At, p core.Partition) (index uint64) {
	for _, at := range list {
		if at.GetPartition() == uint32(p.Index) {
			// A list may name a partition twice.
			index = max(index, at.GetIndex())
		}
	}
	return index
}

// unknownOf gives an index that was refused its place in the list of them.
func unknownOf(list []*pb.At, p core.Partition, err error) error {
	f, ok := errors.AsType[core.Invalid](err)
	if !ok || f.Reason != core.ReasonIndexUnknown {
		return err
	}
	for i, at := range list {
		if at.GetPartition() == uint32(p.Index) && at.GetIndex() == minOf(list, p) {
			f.Field = edge.Item("min", i) + ".index"
		}
	}
	return f
}

// minsFact refuses a list of indexes that names no partition of the namespace.
func (t *Translator) minsFact(list []*pb.At) core.Fact {
	for i, at := range list {
		if int(at.GetPartition()) >= max(t.parts, 1) {
			return edge.Invalid(edge.Item("min", i)+".partition", "must be a partition of the namespace")
		}
	}
	return nil
}

// BatchGet reads keys, those of each partition at one index.
func (ks *KVService) BatchGet(ctx context.Context, in *pb.KVBatchGetRequest) (*pb.KVBatchGetResponse, error) {
	t := Translator{l: &ks.s.Limits}
	if fact := edge.SpaceName("keyspace", in.GetKeyspace()); fact != nil {
		return nil, fact
	}
	switch n := len(in.GetKeys()); {
	case n == 0:
		return nil, edge.Invalid("keys", "must not be empty")
	case n > BatchGetKeys:
		return nil, edge.TooLarge("keys", "batch_keys", BatchGetKeys)
	}
	for i, key := range in.GetKeys() {
		if fact := KeyLength(t.l, edge.Item("keys", i), key); fact != nil {
			return nil, fact
		}
	}
	o, fact := t.Freshness(0, in.GetStale(), in.GetMaxStaleness())
	if fact != nil {
		return nil, fact
	}
	c, err := ks.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		// No key is there, in the order of the call.
		return &pb.KVBatchGetResponse{Results: ShowReads(make([]core.KeyRead, len(in.GetKeys())))}, nil
	}
	if err != nil {
		return nil, err
	}
	if fact := c.t.minsFact(in.GetMin()); fact != nil {
		return nil, fact
	}
	reads, at, err := c.batchGet(ctx, in, o)
	if err != nil {
		return nil, err
	}
	return &pb.KVBatchGetResponse{Results: ShowReads(reads), At: at}, nil
}

// keyShare is the part of a batch of keys that is one partition's.
type keyShare struct {
	part core.Partition
	keys [][]byte // in the order of the call
	// places are those of the keys in the batch. Partitions answer fewer keys than they were asked for,
	// where values are long.
	places []int
	reads  []core.KeyRead
	at     core.At // where the reads stand
}

// batchGet reads each partition's keys, and answers the first ones for which all came.
func (c *call) batchGet(ctx context.Context, in *pb.KVBatchGetRequest, o core.ReadOptions) ([]core.KeyRead, []*pb.At, error) {
	var all []*keyShare
	known := make(map[core.Partition]*keyShare)
	for i, key := range in.GetKeys() {
		p := c.t.partOfKey(key)
		// Keys of a partition are read together, in the order of the call.
		s := known[p]
		if s == nil {
			s = &keyShare{part: p}
			known[p] = s
			all = append(all, s)
		}
		s.keys, s.places = append(s.keys, key), append(s.places, i)
	}
	// Each partition has a share of the answer, so that one with long values does not leave none to
	// others.
	budget := max(AnswerBytes/len(all), batchShareBytes)
	var mu sync.Mutex // guards failed
	var failed error
	var wait sync.WaitGroup
	// A few partitions at a time.
	room := make(chan struct{}, eachAtOnce)
	for _, s := range all {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			own := o
			// Each partition has an index of its own.
			own.MinIndex = minOf(in.GetMin(), s.part)
			// On a goroutine of its own, so a panic is caught here.
			err := c.s.Safely(func() (err error) {
				s.reads, s.at, err = c.s.node.keys.Keys(ctx, s.part, in.GetKeyspace(), s.keys, budget, own)
				return unknownOf(in.GetMin(), s.part, err)
			})
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
		return nil, nil, failed
	}
	out, whole := make([]core.KeyRead, len(in.GetKeys())), len(in.GetKeys())
	var at []*pb.At
	for _, s := range all {
		for i, r := range s.reads {
			// Back in the order of the call.
			out[s.places[i]] = r
		}
		if len(s.reads) < len(s.keys) {
			// The answer ends before the first key that no partition has answered.
			whole = min(whole, s.places[len(s.reads)])
		}
		at = append(at, ShowAt(s.at))
	}
	bytes := 0
	for i := range out[:whole] {
		// Shares may add up to more than an answer: at least one value is given.
		if bytes += len(out[i].Value); bytes > AnswerBytes && i > 0 {
			whole = i
			break
		}
	}
	return out[:whole], at, nil
}

// single begins a call that commits one op on a key.
func (ks *KVService) single(ctx context.Context, requestID []byte, op *pb.Op) (*pb.OpResult, *pb.At, error) {
	// A put alone is a commit of one op, with all that commits are held to.
	out, err := ks.s.Commits().Commit(ctx, &pb.CommitRequest{Ops: []*pb.Op{op}, RequestId: requestID})
	if err != nil {
		return nil, nil, edge.Unprefixed(edge.Item("ops", 0), err)
	}
	return out.GetResults()[0], out.GetAt(), nil
}

// Put stores a value.
func (ks *KVService) Put(ctx context.Context, in *pb.KVPutRequest) (*pb.KVPutResponse, error) {
	put := in.GetPut()
	if put == nil {
		return nil, edge.Invalid("put", "is required")
	}
	r, at, err := ks.single(ctx, in.GetRequestId(), &pb.Op{Op: &pb.Op_KvPut{KvPut: put}})
	if err != nil {
		return nil, err
	}
	return &pb.KVPutResponse{Rev: r.GetRev(), Prev: r.GetPrev(), Existed: r.GetExisted(), At: at}, nil
}

// Delete removes a key.
func (ks *KVService) Delete(ctx context.Context, in *pb.KVDeleteRequest) (*pb.KVDeleteResponse, error) {
	if in.GetDelete() == nil {
		return nil, edge.Invalid("delete", "is required")
	}
	r, at, err := ks.single(ctx, in.GetRequestId(), &pb.Op{Op: &pb.Op_KvDelete{KvDelete: in.GetDelete()}})
	if err != nil {
		return nil, err
	}
	return &pb.KVDeleteResponse{Existed: r.GetExisted(), At: at}, nil
}

// DeleteRange removes a range of keys, in each partition that may have some. Where one fails the outcome is unknown until
// the call is repeated.
func (ks *KVService) DeleteRange(ctx context.Context, in *pb.KVDeleteRangeRequest) (*pb.KVDeleteRangeResponse, error) {
	if in.GetRange() == nil {
		return nil, edge.Invalid("range", "is required")
	}
	t := Translator{l: &ks.s.Limits}
	op, fact := t.kvDeleteRange(in.GetRange())
	if fact != nil {
		return nil, edge.Within("range", fact)
	}
	c, err := ks.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	// Bounds that share a {tag} have all their keys in one partition.
	place, one := core.PlaceRange(op.From, op.To, op.Prefix, c.t.parts)
	if one {
		// All keys of the range lie there.
		c.t.part = c.t.in(int(place))
		r, at, err := c.proposeOp(ctx, op)
		if err != nil {
			return nil, err
		}
		return &pb.KVDeleteRangeResponse{Count: countOf(r), At: []*pb.At{ShowAt(at)}}, nil
	}
	out := &pb.KVDeleteRangeResponse{At: make([]*pb.At, c.t.parts)}
	var mu sync.Mutex // guards out's count
	err = c.each(0, func(p core.Partition) error {
		// At each leader, since the caller can be sent to one of them at most.
		end := c.s.forward(ctx, p, []core.Commit{c.t.commitIn(p, []core.Op{op})})
		switch {
		case end.Err != nil:
			return halfway(end.Err)
		case end.Results[0].Refusal != nil:
			// It is of the range, so it is the same in each partition.
			if f, ok := end.Results[0].Refusal.Fact.(core.TooLarge); ok {
				return f
			}
			return halfway(end.Results[0].Refusal.Fact)
		}
		out.At[p.Index] = ShowAt(AtOf(end.Results[0], end.At))
		mu.Lock()
		out.Count += countOf(end.Results[0].Ops[0])
		mu.Unlock()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// countOf is how many keys an op has changed.
func countOf(r core.OpResult) uint64 {
	// An op that changed no key.
	if r.KV == nil {
		return 0
	}
	return r.KV.Count
}

// ShowReads shows what reads of keys found, in their order.
func ShowReads(reads []core.KeyRead) []*pb.KVRead {
	out := make([]*pb.KVRead, len(reads))
	for i := range reads {
		out[i] = &pb.KVRead{Value: reads[i].Value, Rev: reads[i].Rev, Found: reads[i].Rev != 0, Writer: ShowWriter(reads[i].Writer)}
	}
	return out
}

// ShowWriter shows the task that wrote a key last; nil where none was kept.
func ShowWriter(h *core.TaskHold) *pb.KeyWriter {
	if h == nil {
		return nil
	}
	return &pb.KeyWriter{Task: h.Task.String(), Token: uint64(h.Token)}
}
