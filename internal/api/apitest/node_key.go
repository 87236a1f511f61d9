package apitest

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Key answers as a test has set.
func (n *Node) Key(_ context.Context, p core.Partition, _ string, key []byte, _ core.ReadOptions) (core.KeyRead, core.At, error) {
	n.step()
	n.reach(p)
	return core.KeyRead{Value: key, Rev: 5}, core.At{}, n.KeyErr
}

// Keys answers as a test has set.
func (n *Node) Keys(_ context.Context, p core.Partition, _ string, keys [][]byte, _ int, _ core.ReadOptions) ([]core.KeyRead, core.At, error) {
	n.step()
	n.reach(p)
	out := make([]core.KeyRead, len(keys))
	for i, key := range keys {
		out[i] = core.KeyRead{Value: key, Rev: 7}
	}
	return out, core.At{Partition: p.Index, Index: 9}, nil
}

// KeyRange answers as a test has set.
func (n *Node) KeyRange(_ context.Context, p core.Partition, r core.KeyRange, _ core.ReadOptions) (core.KeyCursor, core.At, error) {
	n.step()
	n.reach(p)
	pairs := []core.KeyPair{{Key: []byte("a"), Value: []byte("1"), Rev: 7}, {Key: []byte("b"), Value: []byte("2"), Rev: 8}}
	if len(r.From) > 0 {
		pairs = nil
	}
	if n.Endless.Load() {
		return endlessCursor{}, core.At{Partition: p.Index, Index: 9}, nil
	}
	return &cursor{pairs}, core.At{Partition: p.Index, Index: 9}, nil
}

// endlessCursor has as many keys as are asked for.
type endlessCursor struct{}

// Incarnation answers as a test has set.
func (endlessCursor) Incarnation() uint32 { return 3 }

// Close answers as a test has set.
func (endlessCursor) Close() error { return nil }

// Next answers as a test has set.
func (endlessCursor) Next(int, int, bool) ([]core.KeyPair, error) {
	return []core.KeyPair{{Key: []byte("a"), Value: make([]byte, 64<<10), Rev: 7}}, nil
}

type cursor struct{ pairs []core.KeyPair }

// Incarnation answers as a test has set.
func (c *cursor) Incarnation() uint32 { return 3 }

// Close answers as a test has set.
func (c *cursor) Close() error { return nil }

// Next answers as a test has set.
func (c *cursor) Next(items, _ int, _ bool) ([]core.KeyPair, error) {
	n := min(items, len(c.pairs))
	out := c.pairs[:n]
	c.pairs = c.pairs[n:]
	return out, nil
}

// Keyspace answers as a test has set.
func (n *Node) Keyspace(_ context.Context, p core.Partition, name string, _ uint64, _ core.ReadOptions) (core.KeyspaceInfo, core.At, error) {
	n.step()
	n.reach(p)
	config := core.KeyspaceConfig{Version: 2, Bytes: 100, WriteRate: 5, ByteRate: 6}
	return core.KeyspaceInfo{Name: name, Incarnation: 3, Config: config, Keys: 2, Bytes: 50, Measured: 40}, core.At{Index: 9}, nil
}

// Keyspaces answers as a test has set.
func (n *Node) Keyspaces(ctx context.Context, p core.Partition, _ string, _ int, o core.ReadOptions) ([]core.KeyspaceInfo, core.At, error) {
	n.step()
	k, at, err := n.Keyspace(ctx, p, "ks", 0, o)
	return []core.KeyspaceInfo{k}, at, err
}

// KeyBytes answers as a test has set.
func (n *Node) KeyBytes(_ context.Context, p core.Partition, _ core.ReadOptions) (uint64, core.At, error) {
	n.step()
	n.reach(p)
	return 60, core.At{Index: 9}, nil
}

// TakeRate holds all puts together to rates, from buckets of a second's worth.
func (n *Node) TakeRate(p core.Partition, ops []core.Op, _ bool) (wait time.Duration, by core.RateHeld) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	var what [2]int64
	for _, op := range ops {
		if w, ok := core.KeysOf(op); ok && op.Kind().Has(core.OpPutsKeys) {
			what[0] += int64(w.Writes)
			what[1] += int64(w.Bytes)
		}
	}
	if what[0] == 0 {
		return 0, by
	}
	for i, limit := range []string{"writes_per_second", "bytes_per_second"} {
		rate := n.Rates[i].Load()
		if rate == 0 {
			continue
		}
		now := n.Clock.Boot()
		if n.filled[i] == 0 || now-n.filled[i] >= time.Second {
			n.left[i], n.filled[i] = rate, now
		}
		if n.left[i] <= 0 {
			return time.Second, core.RateHeld{Limit: limit, Bound: core.Bound{Tenant: p.Tenant, Namespace: p.Namespace, Name: "key_" + limit}}
		}
		n.left[i] -= what[i]
	}
	return 0, by
}

// TakeCreates holds creates to a rate, from a bucket of a second's worth.
func (n *Node) TakeCreates(p core.Partition, tasks int, _ bool) (wait time.Duration, by core.RateHeld) {
	n.step()
	if most := n.CreateRate.Load(); most > 0 && n.Creates.Add(int64(tasks)) > most {
		const limit = "task_creates_per_second"
		return time.Second, core.RateHeld{Limit: limit, Bound: core.Bound{Tenant: p.Tenant, Name: limit}}
	}
	return 0, by
}

// OpenStream counts a stream, up to a bound that a test has set.
func (n *Node) OpenStream(core.Partition) core.Fact {
	n.step()
	if most := n.StreamsMost.Load(); n.Streams.Add(1) > most && most > 0 {
		n.Streams.Add(-1)
		return core.Exhausted{Limit: "tenant_streams", Max: most}
	}
	return nil
}

// CloseStream counts a stream out.
func (n *Node) CloseStream(core.Partition) {
	n.step()
	n.Streams.Add(-1)
}

// KeyPace answers as a test has set.
func (n *Node) KeyPace(core.Partition, bool) core.KeyPace {
	n.step()
	return core.KeyPace{Puts: 3, Bytes: 30, OverPuts: 1, OverBytes: 10}
}
