package node

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

// uses is the order in which collections were searched last. It says which index is read first after a restart, and nothing
// else depends on it: it is this node's own, counts searches and counts of points, not times, so that no step of a clock
// disturbs it, and is written down now and then and at a stop, without a sync. What a kill takes of it is the last half minute.
type uses struct {
	// Number of the last use. It only grows: each search of another collection than the one before gets the next
	// number.
	count atomic.Uint64
	// The order as it was found at the start; only read afterwards.
	kept map[useKey]uint64
	// What count was when it was written last; keepPoints owns this and the fields below.
	asOf uint64
	// The bytes that were written last.
	saved []byte
	// The last attempt to write failed, which was logged.
	failed bool
}

// useKey names a collection for longer than a life of the node.
type useKey struct {
	p core.Partition
	// The uid of its definition, which a later collection of the same name does not have.
	uid uint64
}

const (
	usesName = "SEARCHED" // in the data directory
	// usesEvery is how often the order is written down.
	usesEvery = 30 * time.Second
	// maxUses bounds the collections that it names. What is beyond is read last.
	maxUses = 4096
	// usesFormat begins the file: a name and a version.
	usesFormat = "mruses1\n"
	// useLen is the bytes of one collection: tenant, namespace, partition and uid.
	useLen = 4 + 4 + 2 + 8
)

// note says that a collection is searched.
func (u *uses) note(c *indexed) {
	if now := u.count.Load(); now == 0 || c.used.Load() != now {
		c.used.Store(u.count.Add(1))
	}
}

// rank is the number that a collection had when the order was written down.
func (u *uses) rank(p core.Partition, uid uint64) uint64 { return u.kept[useKey{p, uid}] }

// encodeUses writes the order: format, number of collections, those that were searched last first, and a CRC-32C, all
// big-endian.
func encodeUses(list []useKey) []byte {
	b := append(make([]byte, 0, len(usesFormat)+4+len(list)*useLen+4), usesFormat...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, k := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(k.p.Tenant))
		b = binary.BigEndian.AppendUint32(b, uint32(k.p.Namespace))
		b = binary.BigEndian.AppendUint16(b, k.p.Index)
		b = binary.BigEndian.AppendUint64(b, k.uid)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeUses reads what encodeUses wrote. Any fault, also a wrong checksum, makes all of it useless.
func decodeUses(b []byte) ([]useKey, error) {
	const head = len(usesFormat) + 4
	if len(b) < head+4 || string(b[:len(usesFormat)]) != usesFormat {
		return nil, errs.Corruptf("%s is none, or of another build", usesName)
	}
	body, sum := b[:len(b)-4], b[len(b)-4:]
	n := binary.BigEndian.Uint32(b[len(usesFormat):])
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(sum) || n > maxUses || len(body) != head+int(n)*useLen {
		return nil, errs.Corruptf("%s has a wrong checksum or length", usesName)
	}
	list := make([]useKey, n)
	for i := range list {
		at := body[head+i*useLen:]
		list[i] = useKey{core.Partition{
			Tenant: core.TenantID(binary.BigEndian.Uint32(at)), Namespace: core.NamespaceID(binary.BigEndian.Uint32(at[4:])),
			Index: binary.BigEndian.Uint16(at[8:]),
		}, binary.BigEndian.Uint64(at[10:])}
	}
	return list, nil
}

// readUses reads the order of an earlier life. Without one, or with one that makes no sense, any order is as good.
func (n *Node) readUses() {
	if n.o.NoSearch || n.o.Manual {
		return
	}
	const most = int64(len(usesFormat) + 4 + maxUses*useLen + 4)
	b, err := env.ReadFile(n.o.FS, filepath.Join(n.o.Dir, usesName), most+1)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var list []useKey
	if err == nil {
		list, err = decodeUses(b)
	}
	if err != nil {
		n.o.Logger.Warn("the order of the last searches is not known: indexes are read in any", "error", err)
		return
	}
	n.uses.saved, n.uses.kept = b, make(map[useKey]uint64, len(list))
	for i, k := range list {
		n.uses.kept[k] = uint64(len(list) - i)
	}
	n.uses.count.Store(uint64(len(list)))
	n.uses.asOf = uint64(len(list))
}

// keepUses writes the order down if it has changed. It is told of no failure but by the log: the order is a convenience.
func (n *Node) keepUses() {
	u := &n.uses
	now := u.count.Load()
	if n.o.NoSearch || now == u.asOf {
		return
	}
	u.asOf = now
	b := encodeUses(n.searchedLast())
	if bytes.Equal(b, u.saved) {
		return
	}
	if err := n.writeUses(b); err != nil {
		if !u.failed {
			n.o.Logger.Warn("the order of the last searches was not written down", "error", err)
		}
		u.failed = true
		return
	}
	u.saved, u.failed = b, false
}

// searchedLast lists the collections that were searched, the last first.
func (n *Node) searchedLast() []useKey {
	// use is a collection, and the number of its last search.
	type use struct {
		useKey
		at uint64
	}
	var list []use
	for _, s := range n.shards {
		s.points.each(func(p core.Partition, c *indexed) {
			if at := c.used.Load(); at > 0 {
				list = append(list, use{useKey{p, c.def.UID}, at})
			}
		})
	}
	slices.SortFunc(list, func(a, b use) int { return cmp.Compare(b.at, a.at) })
	out := make([]useKey, min(len(list), maxUses))
	for i := range out {
		out[i] = list[i].useKey
	}
	return out
}

// writeUses writes the file under its name when it is whole. After a power cut it may be empty all the same; then it is
// not known.
func (n *Node) writeUses(b []byte) error {
	name := filepath.Join(n.o.Dir, usesName)
	f, err := n.o.FS.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Clone(b)) // it may spoil what it is given
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return n.o.FS.Rename(name+".tmp", name)
}
