package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
)

// maxCounted bounds the keyspaces that are counted each by itself; what happens in others is added up.
const maxCounted = 10_000

// keyCounts is a backend that counts what passes through it to keyspaces, whichever door it came by: what was read, and what
// was committed. Only names of keyspaces that exist are kept.
type keyCounts struct {
	Backend

	// Reads of maps are frequent, changes rare.
	mu sync.RWMutex // guards the fields below
	// spaces are the counters of keyspaces, at most maxCounted.
	spaces map[spaceKey]*spaceCount
	// names are those of namespaces that were asked for, by which counts are shown.
	names map[nameKey]nameOf
	// rest is of keyspaces beyond maxCounted.
	rest spaceCount
}

// spaceKey names a keyspace of a namespace.
type spaceKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	keyspace  string
}

// nameKey names a namespace.
type nameKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
}

// nameOf is what clients call a namespace and its tenant.
type nameOf struct{ tenant, namespace string }

// spaceCount is what was done in one keyspace.
type spaceCount struct {
	reads, readBytes, writes, writtenBytes atomic.Uint64
}

// KeyspaceCount is what this edge has done in a keyspace since the start.
type KeyspaceCount struct {
	// Tenant, Namespace and Keyspace are empty for all that are not counted by themselves.
	Tenant, Namespace, Keyspace string
	// Reads are keys that were found, ReadBytes keys and values of these.
	Reads     uint64
	ReadBytes uint64 // of keys and values
	// Writes are puts, adds and deletes that were committed. A range that was deleted is one.
	Writes uint64
	// WrittenBytes are keys and values.
	WrittenBytes uint64
}

// newKeyCounts returns a backend that passes everything on to b.
func newKeyCounts(b Backend) *keyCounts {
	return &keyCounts{Backend: b, spaces: make(map[spaceKey]*spaceCount), names: make(map[nameKey]nameOf)}
}

// Namespace remembers the names of what it finds.
func (k *keyCounts) Namespace(ctx context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	info, err := k.Backend.Namespace(ctx, tenant, name, create)
	if err != nil {
		return info, err
	}
	key := nameKey{info.Tenant, info.Namespace}
	k.mu.RLock()
	// Mostly it is known: the lock for writing is not taken.
	_, known := k.names[key]
	k.mu.RUnlock()
	if !known {
		k.mu.Lock()
		k.names[key] = nameOf{info.TenantName, info.Name}
		k.mu.Unlock()
	}
	return info, nil
}

// of returns the counters of a keyspace that exists.
func (k *keyCounts) of(p core.Partition, keyspace string) *spaceCount {
	key := spaceKey{p.Tenant, p.Namespace, keyspace}
	k.mu.RLock()
	c := k.spaces[key]
	k.mu.RUnlock()
	if c != nil {
		return c
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// Another call may have made it between the two locks.
	if c := k.spaces[key]; c != nil {
		return c
	}
	if len(k.spaces) >= maxCounted {
		return &k.rest
	}
	c = new(spaceCount)
	key.keyspace = strings.Clone(keyspace) // the caller's may lie in a frame
	k.spaces[key] = c
	return c
}

// written is what a commit writes to one keyspace.
type written struct {
	core.KeysWritten
	commit int // index of the commit among those proposed together
}

// writesOf adds up the ops of commits by keyspace; nil when they write no keys.
func writesOf(commits []core.Commit) (out []written) {
	for i := range commits {
		// Sums of one commit: a refusal takes all of them back.
		first := len(out)
		for _, op := range commits[i].Ops {
			w, ok := core.KeysOf(op)
			if !ok || w.Writes == 0 {
				continue
			}
			place := slices.IndexFunc(out[first:], func(have written) bool { return have.Keyspace == w.Keyspace })
			if place < 0 {
				out = append(out, written{w, i})
				continue
			}
			out[first+place].Writes += w.Writes
			out[first+place].Bytes += w.Bytes
		}
	}
	return out
}

// Propose counts the commits that are not refused.
func (k *keyCounts) Propose(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
	sums := writesOf(commits)
	// Most commits write no keys, and are passed on as they are.
	if sums == nil {
		k.Backend.Propose(p, commits, done)
		return
	}
	k.Backend.Propose(p, commits, func(d core.Proposed) {
		k.committed(p, sums, d)
		done(d)
	})
}

// Forward counts the commits that are not refused, at the node that forwards.
func (k *keyCounts) Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	sums := writesOf(commits)
	d := k.Backend.Forward(ctx, p, commits)
	k.committed(p, sums, d)
	return d
}

// committed counts what was written by commits that were not refused; single puts of a frame that were refused count.
func (k *keyCounts) committed(p core.Partition, sums []written, d core.Proposed) {
	if d.Err != nil {
		return
	}
	for _, w := range sums {
		// A repetition was counted when it came first.
		if r := &d.Results[w.commit]; r.Refusal != nil || r.Replayed {
			continue
		}
		c := k.of(p, w.Keyspace)
		c.writes.Add(w.Writes)
		c.writtenBytes.Add(w.Bytes)
	}
}

// read counts keys that were found.
func (k *keyCounts) read(p core.Partition, keyspace string, keys, bytes int) {
	if keys == 0 {
		return
	}
	c := k.of(p, keyspace)
	c.reads.Add(uint64(keys))
	c.readBytes.Add(uint64(bytes))
}

// Key counts a key that is found.
func (k *keyCounts) Key(ctx context.Context, p core.Partition, keyspace string, key []byte, o core.ReadOptions) (core.KeyRead, core.At, error) {
	read, at, err := k.Backend.Key(ctx, p, keyspace, key, o)
	if read.Rev != 0 {
		k.read(p, keyspace, 1, len(key)+len(read.Value))
	}
	return read, at, err
}

// Keys counts those that are found.
func (k *keyCounts) Keys(ctx context.Context, p core.Partition, keyspace string, keys [][]byte, bytes int, o core.ReadOptions) ([]core.KeyRead, core.At, error) {
	out, at, err := k.Backend.Keys(ctx, p, keyspace, keys, bytes, o)
	found, size := 0, 0
	for i := range out {
		if out[i].Rev != 0 {
			found++
			size += len(keys[i]) + len(out[i].Value)
		}
	}
	k.read(p, keyspace, found, size)
	return out, at, err
}

// KeyRange counts what is read of the range.
func (k *keyCounts) KeyRange(ctx context.Context, p core.Partition, r core.KeyRange, o core.ReadOptions) (core.KeyCursor, core.At, error) {
	cursor, at, err := k.Backend.KeyRange(ctx, p, r, o)
	if err != nil {
		return nil, at, err
	}
	return &countedCursor{cursor, k, p, r.Keyspace}, at, nil
}

// countedCursor counts what is read of a range.
type countedCursor struct {
	core.KeyCursor
	k        *keyCounts     // counts
	p        core.Partition // whose keys they are
	keyspace string
}

// Next counts the pairs that it returns.
func (c *countedCursor) Next(items, bytes int, values bool) ([]core.KeyPair, error) {
	pairs, err := c.KeyCursor.Next(items, bytes, values)
	size := 0
	for i := range pairs {
		size += len(pairs[i].Key) + len(pairs[i].Value)
	}
	c.k.read(c.p, c.keyspace, len(pairs), size)
	return pairs, err
}

// list returns the counts, those of the most used keyspaces first.
func (k *keyCounts) list() []KeyspaceCount {
	k.mu.RLock()
	out := make([]KeyspaceCount, 0, len(k.spaces)+1)
	for key, c := range k.spaces {
		name := k.names[nameKey{key.tenant, key.namespace}]
		out = append(out, c.as(name.tenant, name.namespace, key.keyspace))
	}
	rest := k.rest.as("", "", "")
	k.mu.RUnlock()
	slices.SortFunc(out, func(a, b KeyspaceCount) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Keyspace, b.Keyspace))
	})
	if rest.Reads+rest.Writes > 0 {
		out = append(out, rest)
	}
	return out
}

// as shows the counts under names.
func (c *spaceCount) as(tenant, namespace, keyspace string) KeyspaceCount {
	return KeyspaceCount{
		Tenant: tenant, Namespace: namespace, Keyspace: keyspace,
		Reads: c.reads.Load(), ReadBytes: c.readBytes.Load(), Writes: c.writes.Load(), WrittenBytes: c.writtenBytes.Load(),
	}
}
