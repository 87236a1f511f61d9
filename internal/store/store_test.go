package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
)

func TestKeyInsertedAndDeletedWithinALayerNeverReachesTheDatabase(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	for i := range uint64(100) {
		must(t, sh.Apply(2*i+1, func(tx *Txn) error {
			tx.Insert(key(fmt.Sprint("k", i)), []byte("v"))
			return nil
		}))
		must(t, sh.Apply(2*i+2, func(tx *Txn) error {
			tx.Set(key(fmt.Sprint("k", i)), []byte("w"))
			tx.Delete(key(fmt.Sprint("k", i)))
			return nil
		}))
	}
	must(t, sh.WriteLayer())
	if st := s.Stats(); st.Mutations != 0 || st.Elided != 300 || st.LayerWrites != 1 {
		t.Errorf("%d mutations written, %d elided, %d layers; want 0, 300, 1", st.Mutations, st.Elided, st.LayerWrites)
	}
	if n := sh.active.entries.len(); n != 0 {
		t.Errorf("the layer still holds %d entries", n)
	}
}

func TestRangeDeleteIsOneMutation(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	set(t, sh, 1, "a", "b", "c", "d")
	must(t, sh.WriteLayer())
	before := s.Stats().Mutations
	must(t, sh.Apply(2, func(tx *Txn) error {
		tx.Set(key("bb"), nil)
		tx.DeleteRange(key("b"), key("d"))
		tx.Set(key("c"), []byte("again"))
		return nil
	}))
	must(t, sh.WriteLayer())
	if got := s.Stats().Mutations - before; got != 2 {
		t.Errorf("%d mutations written, want the range and the key set after it", got)
	}
	if n := count(t, sh); n != 3 {
		t.Errorf("%d keys are left, want a, c, d", n)
	}
}

// replay applies the same entries to a fresh store, calling between after each, and returns the apply hash.
func replay(t *testing.T, between func(s *Store, sh *Shard, index uint64)) uint64 {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 3)
	for i := range uint64(50) {
		must(t, sh.Apply(i+1, func(tx *Txn) error {
			tx.Set(key(fmt.Sprint(i%7)), fmt.Append(nil, i))
			tx.Delete(key(fmt.Sprint((i + 3) % 7)))
			if i%10 == 0 {
				tx.DeleteRange(key("2"), key("4"))
			}
			tx.Fold([]byte("result"))
			return nil
		}))
		between(s, sh, i+1)
	}
	_, hash := sh.Applied()
	return hash
}

func TestReplayGivesOneHashWhereverLayersEnd(t *testing.T) {
	want := replay(t, func(*Store, *Shard, uint64) {})
	got := replay(t, func(s *Store, sh *Shard, index uint64) {
		switch index % 3 {
		case 0:
			must(t, sh.WriteLayer())
		case 1:
			must(t, s.Flush())
		}
	})
	if got != want {
		t.Errorf("apply hash %x, want %x", got, want)
	}
	if again := replay(t, func(*Store, *Shard, uint64) {}); again != want {
		t.Errorf("apply hash of a replay %x, want %x", again, want)
	}
}

func TestApplyHashTellsEntriesApart(t *testing.T) {
	a, b := []byte("a"), []byte("b")
	seen := map[uint64]string{}
	for name, fn := range map[string]func(tx *Txn){
		"nothing":         func(*Txn) {},
		"set":             func(tx *Txn) { tx.Set(key("k"), a) },
		"other value":     func(tx *Txn) { tx.Set(key("k"), b) },
		"other key":       func(tx *Txn) { tx.Set(key("l"), a) },
		"delete":          func(tx *Txn) { tx.Delete(key("k")) },
		"set and delete":  func(tx *Txn) { tx.Set(key("k"), a); tx.Delete(key("k")) },
		"delete and set":  func(tx *Txn) { tx.Delete(key("k")); tx.Set(key("k"), a) },
		"range":           func(tx *Txn) { tx.DeleteRange(key("k"), key("l")) },
		"range turned":    func(tx *Txn) { tx.DeleteRange(key("l"), key("k")) },
		"fold":            func(tx *Txn) { tx.Fold(a) },
		"fold other":      func(tx *Txn) { tx.Fold(b) },
		"fold twice":      func(tx *Txn) { tx.Fold(a); tx.Fold(a) },
		"fold both":       func(tx *Txn) { tx.Fold([]byte("ab")) },
		"fold one by one": func(tx *Txn) { tx.Fold(a); tx.Fold(b) },
		"set and fold":    func(tx *Txn) { tx.Mark(); tx.Set(key("k"), a); tx.Keep(); tx.Fold(b) },
	} {
		h := hashOf(t, fn)
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %q have one hash", name, other)
		}
		seen[h] = name
	}
}

// hashOf returns the apply hash after one entry.
func hashOf(t *testing.T, fn func(tx *Txn)) uint64 {
	t.Helper()
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	must(t, sh.Apply(1, func(tx *Txn) error { fn(tx); return nil }))
	_, h := sh.Applied()
	return h
}

func TestUndoLeavesNoTraceInTheHash(t *testing.T) {
	plain := hashOf(t, func(tx *Txn) { tx.Set(key("a"), []byte("1")); tx.Fold([]byte("r")) })
	undone := hashOf(t, func(tx *Txn) {
		tx.Set(key("a"), []byte("1"))
		tx.Mark()
		tx.Set(key("a"), []byte("2"))
		tx.Delete(key("b"))
		tx.DeleteRange(nil, nil)
		tx.Fold([]byte("x"))
		tx.Undo()
		tx.Fold([]byte("r"))
	})
	if undone != plain {
		t.Errorf("hash %x with undone changes, %x without", undone, plain)
	}
	if inserted := hashOf(t, func(tx *Txn) { tx.Insert(key("a"), []byte("1")); tx.Fold([]byte("r")) }); inserted != plain {
		t.Error("an insert and a set of one key hash differently")
	}
}

func TestShardsAreApart(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	shards := make([]*Shard, 3)
	for i := range shards {
		shards[i] = mustShard(t, s, core.ShardID(i))
		set(t, shards[i], uint64(i+5), "a", "b", fmt.Sprint(i))
	}
	if again := mustShard(t, s, 1); again != shards[1] {
		t.Error("a shard asked for twice is two")
	}
	must(t, s.Flush())
	must(t, shards[1].Apply(10, func(tx *Txn) error { tx.DeleteRange(nil, nil); return nil }))
	for i, want := range []int{3, 0, 3} {
		if got := count(t, shards[i]); got != want {
			t.Errorf("shard %d shows %d keys, want %d", i, got, want)
		}
	}
	mem := s.o.FS
	mustClose(t, s)
	s = mustOpen(t, Options{FS: mem, Manual: true})
	defer mustClose(t, s)
	for i, want := range []int{3, 0, 3} {
		sh := mustShard(t, s, core.ShardID(i))
		index, _ := sh.Applied()
		if got := count(t, sh); got != want || index != []uint64{5, 10, 7}[i] {
			t.Errorf("after a restart shard %d has %d keys at index %d, want %d", i, got, index, want)
		}
	}
}

func TestEntryBelowTheAppliedIndexIsRefused(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	set(t, sh, 7, "a")
	if err := sh.Apply(7, func(*Txn) error { t.Error("it ran"); return nil }); err == nil {
		t.Error("an entry was applied twice")
	}
	set(t, sh, 9, "b") // a gap is the log's own business
}

func TestPanicStopsTheShardAndLeavesNothing(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	set(t, sh, 1, "a")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = sh.Apply(2, func(tx *Txn) error { tx.Set(key("b"), nil); panic("planted") })
	}()
	if err := sh.Apply(2, func(*Txn) error { return nil }); !errors.Is(err, errPanic) {
		t.Errorf("the next entry got %v", err)
	}
	if n := count(t, sh); n != 1 {
		t.Errorf("%d keys are there, want 1", n)
	}
}

func TestDatabaseOfAnotherComparerIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	db, err := pebble.Open("db", &pebble.Options{FS: mem, Logger: logger{slog.New(slog.DiscardHandler), func(error) {}}})
	must(t, err)
	must(t, db.Close())
	_, err = Open(Options{FS: mem, Dir: "db"})
	if err == nil || !strings.Contains(err.Error(), "omparer") {
		t.Errorf("open of a database of another order: %v", err)
	}
}

func TestReadersSeeWholeEntriesWhileLayersGo(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem(), LayerBytes: 64 << 10, LayerAge: time.Millisecond})
	defer mustClose(t, s)
	sh := mustShard(t, s, 0)
	const width, entries = 10, 400
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := sh.ViewAt(wholeEntry(width)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range uint64(entries) {
		must(t, sh.Apply(i+1, func(tx *Txn) error {
			value := fmt.Append(nil, i+1, strings.Repeat("x", 100))
			if i%17 == 0 {
				tx.DeleteRange(nil, nil)
			}
			for k := range width {
				tx.Set(key(fmt.Sprint("k", k)), value)
				tx.Insert(key(fmt.Sprint("once", i, k)), nil)
				tx.Delete(key(fmt.Sprint("once", i, k)))
			}
			return nil
		}))
		if i%50 == 0 {
			must(t, s.Flush())
		}
	}
	close(stop)
	wg.Wait()
}

// wholeEntry checks that a view shows all keys as one entry left them, by scan and by lookup.
func wholeEntry(width int) func(v core.View, index uint64) error {
	return func(v core.View, index uint64) error {
		if index == 0 {
			return nil
		}
		want, n := fmt.Sprint(index, strings.Repeat("x", 100)), 0
		err := v.Scan(nil, nil, func(_, value []byte) bool {
			if string(value) == want {
				n++
			}
			return true
		})
		if err == nil && n != width {
			err = fmt.Errorf("a scan at %d shows %d keys of that entry, want %d", index, n, width)
		}
		for k := range width {
			value, ok, getErr := v.Get(key(fmt.Sprint("k", k)))
			if getErr != nil || !ok || string(value) != want {
				err = errors.Join(err, getErr, fmt.Errorf("a lookup at %d shows %q", index, value))
			}
		}
		return err
	}
}

func TestLayerIsWrittenWhenItIsOldAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Options{FS: vfs.NewMem(), Clock: newBubbleClock(), LayerAge: time.Second})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		set(t, sh, 1, "a")
		time.Sleep(999 * time.Millisecond) // of the bubble's time
		synctest.Wait()
		if n := s.Stats().LayerWrites; n != 0 {
			t.Errorf("%d layers were written before their time", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := s.Stats().LayerWrites; n != 1 {
			t.Errorf("%d layers were written, want 1", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := s.Stats().LayerWrites; n != 1 {
			t.Errorf("%d layers were written while nothing changed, want 1", n)
		}
		if d := sh.Durable(); d != 0 {
			t.Errorf("durable is %d without a flush", d)
		}
	})
}

func TestRequestedFlushMakesDurableCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Options{FS: vfs.NewMem(), Clock: newBubbleClock(), LayerAge: time.Hour})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		set(t, sh, 4, "a")
		s.RequestFlush()
		synctest.Wait()
		if d := sh.Durable(); d != 4 {
			t.Errorf("durable is %d, want 4", d)
		}
	})
}

func TestClosedStoreRefuses(t *testing.T) {
	s := mustOpen(t, Options{FS: vfs.NewMem()})
	sh := mustShard(t, s, 0)
	set(t, sh, 1, "a")
	mustClose(t, s)
	_, shardErr := s.Shard(1)
	_, _, _, scanErr := sh.ScanHash()
	for act, err := range map[string]error{
		"apply": sh.Apply(2, func(*Txn) error { return nil }), "view": sh.View(func(core.View) error { return nil }),
		"write": sh.WriteLayer(), "flush": s.Flush(), "shard": shardErr, "scan": scanErr, "close": s.Close(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after close: %v", act, err)
		}
	}
	if index, _ := sh.Applied(); index != 1 {
		t.Errorf("applied is %d after close", index)
	}
	_ = sh.Durable()
	_ = s.Stats()
	s.RequestFlush()
}
