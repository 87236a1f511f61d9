package machinetest

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Guard is a core.Txn that notes each key and range outside the allowed ones: what belongs to another tenant.
type Guard struct {
	core.Txn
	// ranges are the allowed keys. What is not within one of them is a stray.
	ranges []keyRange
	// Strays are the accesses that were not allowed, one line each.
	Strays []string
}

// keyRange is the keys from from to below to.
type keyRange struct{ from, to []byte }

// NewGuard returns a Guard over tx that allows nothing.
func NewGuard(tx core.Txn) *Guard { return &Guard{Txn: tx} }

// AllowOnly allows all keys of the partitions, and the shard's own record, and nothing else.
func (g *Guard) AllowOnly(parts ...core.Partition) {
	shard := keys.ShardTime()
	g.ranges = append(g.ranges[:0], keyRange{shard, append(bytes.Clone(shard), 0)})
	for _, p := range parts {
		from, to := keys.PartitionRange(p)
		g.ranges = append(g.ranges, keyRange{from, to})
		removal := keys.PartitionRemoval(p)
		g.ranges = append(g.ranges, keyRange{removal, append(bytes.Clone(removal), 0)})
	}
}

// check notes an access that no single allowed range holds as a whole.
func (g *Guard) check(what string, from, to []byte) {
	for _, r := range g.ranges {
		if keys.Compare(from, r.from) >= 0 && to != nil && keys.Compare(to, r.to) <= 0 {
			return
		}
	}
	g.Strays = append(g.Strays, fmt.Sprintf("%s %x %x", what, from, to))
}

func (g *Guard) checkKey(what string, key []byte) { g.check(what, key, append(bytes.Clone(key), 0)) }

// Get notes a stray key and reads it.
func (g *Guard) Get(key []byte) ([]byte, bool, error) {
	g.checkKey("get", key)
	return g.Txn.Get(key)
}

// Scan notes a stray range and scans it.
func (g *Guard) Scan(from, to []byte, fn func(key, value []byte) bool) error {
	g.check("scan", from, to)
	return g.Txn.Scan(from, to, fn)
}

// ScanBack notes a stray range and scans it in descending order.
func (g *Guard) ScanBack(from, to []byte, fn func(key, value []byte) bool) error {
	g.check("scan", from, to)
	return g.Txn.ScanBack(from, to, fn)
}

// Set notes a stray key and stores it.
func (g *Guard) Set(key, value []byte) {
	g.checkKey("set", key)
	g.Txn.Set(key, value)
}

// Insert notes a stray key and stores it.
func (g *Guard) Insert(key, value []byte) {
	g.checkKey("insert", key)
	g.Txn.Insert(key, value)
}

// Delete notes a stray key and removes it.
func (g *Guard) Delete(key []byte) {
	g.checkKey("delete", key)
	g.Txn.Delete(key)
}

// DeleteRange notes a stray range and removes it.
func (g *Guard) DeleteRange(from, to []byte) {
	g.check("delete range", from, to)
	g.Txn.DeleteRange(from, to)
}
