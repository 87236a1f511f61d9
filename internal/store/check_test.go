package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// fill makes a store of two shards and returns where their reports should stand.
func fill(t *testing.T, mem vfs.FS) []ShardReport {
	t.Helper()
	s := mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	var want []ShardReport
	for _, id := range []core.ShardID{0, 0xffff} {
		sh := mustShard(t, s, id)
		must(t, sh.Apply(5, func(tx *Txn) error {
			for i := range 2000 {
				tx.Set(key(fmt.Sprintf("k%04d", i)), filler(i, 100))
			}
			tx.Set(keys.PartitionState(core.Partition{Tenant: 1}), []byte("state"))
			return nil
		}))
		index, hash, n, err := sh.ScanHash()
		must(t, err)
		if index != 5 || n != 2001 {
			t.Fatalf("scan of shard %d found %d keys at index %d", id, n, index)
		}
		_, applyHash := sh.Applied()
		want = append(want, ShardReport{Shard: id, Index: 5, ApplyHash: applyHash, ContentHash: hash, Keys: n})
	}
	return want
}

func TestCheckReportsWhatIsStored(t *testing.T) {
	mem := vfs.NewMem()
	want := fill(t, mem)
	r, err := Check(Options{FS: mem, Dir: "db"})
	must(t, err)
	if len(r.Shards) != len(want) || r.DiskBytes == 0 {
		t.Fatalf("report is %+v", r)
	}
	for i, got := range r.Shards {
		if got.Bytes < 2000*100 || got.Services[keys.ServiceKV] != 2000 || got.Services[keys.ServiceMeta] != 1 || got.Foreign != 0 {
			t.Errorf("shard %d: %+v", got.Shard, got)
		}
		got.Bytes, got.Services = 0, nil
		if fmt.Sprint(got) != fmt.Sprint(want[i]) {
			t.Errorf("got %+v, want %+v", got, want[i])
		}
	}
	if r.Shards[0].ContentHash != r.Shards[1].ContentHash {
		t.Error("equal content has two hashes")
	}
}

func TestInspectShowsEachShardAsItWasWritten(t *testing.T) {
	mem := vfs.NewMem()
	fill(t, mem)
	var shards []core.ShardID
	_, err := Inspect(Options{FS: mem, Dir: "db"}, func(id core.ShardID, v core.View) error {
		shards = append(shards, id)
		value, ok, err := v.Get(key("k0007"))
		if !ok || string(value) != string(filler(7, 100)) {
			t.Errorf("shard %d: key 7 is %x, %v, %v", id, value, ok, err)
		}
		n := 0
		return errors.Join(err, v.Scan(key("k0010"), key("k0020"), func(_, _ []byte) bool { n++; return n < 5 }))
	})
	if want := []core.ShardID{0, 0xffff}; err != nil || !slices.Equal(shards, want) {
		t.Errorf("shown were %v, %v; want %v", shards, err, want)
	}
	planned := errors.New("planned")
	if _, err := Inspect(Options{FS: mem, Dir: "db"}, func(core.ShardID, core.View) error { return planned }); !errors.Is(err, planned) {
		t.Errorf("a visit that fails gives %v", err)
	}
}

func TestCheckOfAMissingStoreFails(t *testing.T) {
	if _, err := Check(Options{FS: vfs.NewMem(), Dir: "db"}); err == nil {
		t.Error("there is nothing, and it is fine")
	}
}

func TestScanHashIsOfContentOnly(t *testing.T) {
	scan := func(program func(tx *Txn)) uint64 {
		s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		must(t, sh.Apply(1, func(tx *Txn) error { program(tx); return nil }))
		_, hash, _, err := sh.ScanHash()
		must(t, err)
		return hash
	}
	a := scan(func(tx *Txn) { tx.Set(key("a"), nil); tx.Set(key("b"), []byte("x")) })
	b := scan(func(tx *Txn) {
		tx.Set(key("b"), []byte("x"))
		tx.Set(key("c"), nil)
		tx.Delete(key("c"))
		tx.Set(key("a"), nil)
	})
	c := scan(func(tx *Txn) { tx.Set(key("a"), []byte("x")); tx.Set(key("b"), nil) })
	if a != b || a == c {
		t.Errorf("hashes are %x, %x, %x; want the first two equal, the third not", a, b, c)
	}
}

// damage flips a byte in the middle of the largest table, and returns its name.
func damage(t *testing.T, fs vfs.FS) string {
	t.Helper()
	list, err := fs.List("db")
	must(t, err)
	var name string
	var size int64
	for _, n := range list {
		info, err := fs.Stat("db/" + n)
		must(t, err)
		if strings.HasSuffix(n, ".sst") && info.Size() > size {
			name, size = n, info.Size()
		}
	}
	f, err := fs.OpenReadWrite("db/"+name, vfs.WriteCategoryUnspecified)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], size/2)
	must(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b[:], size/2)
	must(t, err)
	must(t, f.Close())
	return name
}

func TestDamageIsFoundAndItsFileNamed(t *testing.T) {
	mem := vfs.NewMem()
	fill(t, mem)
	name := damage(t, mem)
	_, err := Check(Options{FS: mem, Dir: "db"})
	var c *errs.Corruption
	if !errors.As(err, &c) || !strings.Contains(err.Error(), name) {
		t.Errorf("check: %v, want a corruption of %s", err, name)
	}
	s := mustOpen(t, Options{FS: mem, Manual: true})
	if err := readAll(s); !errors.As(err, &c) {
		t.Errorf("read: %v, want a corruption", err)
	}
	if err := <-s.Err(); !errors.As(err, &c) || !strings.Contains(c.What, name) {
		t.Errorf("delivered: %v, want a corruption of %s", err, name)
	}
	mustClose(t, s)
}

func readAll(s *Store) error {
	for _, id := range []core.ShardID{0, 0xffff} {
		sh, err := s.Shard(id)
		if err == nil {
			err = sh.View(func(v core.View) error {
				return v.Scan(nil, nil, func(_, _ []byte) bool { return true })
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestMissingTableIsFoundAtOpen(t *testing.T) {
	mem := vfs.NewMem()
	fill(t, mem)
	list, err := mem.List("db")
	must(t, err)
	for _, n := range list {
		if strings.HasSuffix(n, ".sst") {
			must(t, mem.Remove("db/"+n))
		}
	}
	_, err = Open(Options{FS: mem, Dir: "db"})
	var c *errs.Corruption
	if !errors.As(err, &c) {
		t.Errorf("open: %v, want a corruption", err)
	}
}
