package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/core"
)

// filler is a value that does not compress.
func filler(seed, n int) []byte {
	b := make([]byte, n)
	x := uint64(seed)*2 + 1
	for i := range b {
		x = round(x, uint64(i))
		b[i] = byte(x)
	}
	return b
}

func TestFullDiskHoldsWritesBackServesReadsAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newQuotaFS(300 << 10)
		s := mustOpen(t, Options{
			FS: disk, Clock: newBubbleClock(), LayerBytes: 256 << 10, LayerAge: time.Second, MemoryBytes: 16 << 20,
		})
		sh := mustShard(t, s, 0)
		var applied uint64
		done := make(chan error)
		go func() {
			for i := range uint64(60) { // 60 x 64 KiB do not fit on the disk, nor in two layers
				if err := sh.Apply(i+1, func(tx *Txn) error {
					tx.Set(key(fmt.Sprint("k", i)), filler(int(i), 64<<10))
					return nil
				}); err != nil {
					done <- err
					return
				}
				s.RequestFlush()
			}
			done <- nil
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("everything was applied on a full disk: %v", err)
		default:
		}
		if !s.Full() || !s.Stats().Full {
			t.Error("the store does not say that the disk is full")
		}
		applied, _ = sh.Applied()
		if err := s.err(); err != nil {
			t.Fatalf("the store stopped: %v", err)
		}
		must(t, sh.View(func(v core.View) error {
			for i := range applied {
				value, ok, err := v.Get(key(fmt.Sprint("k", i)))
				if err != nil || !ok || !bytes.Equal(value, filler(int(i), 64<<10)) {
					t.Errorf("key %d is lost on a full disk: %v %v", i, ok, err)
				}
			}
			return nil
		}))
		disk.left.Store(64 << 20) // someone makes room
		must(t, <-done)
		must(t, s.Flush())
		if s.Full() {
			t.Error("the store says that the disk is full when there is room")
		}
		if n, d := count(t, sh), sh.Durable(); n != 60 || d != 60 {
			t.Errorf("%d keys, durable %d; want 60 each", n, d)
		}
		mustClose(t, s)
		if r, err := Check(Options{FS: disk, Dir: "db"}); err != nil || len(r.Shards) != 1 || r.Shards[0].Keys != 60 {
			t.Errorf("what is on disk: %+v %v", r, err)
		}
	})
}

func TestStoreClosesOnAFullDiskAndKeepsWhatWasDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newQuotaFS(200 << 10)
		s := mustOpen(t, Options{FS: disk, Clock: newBubbleClock(), LayerBytes: 256 << 10, MemoryBytes: 16 << 20})
		sh := mustShard(t, s, 0)
		set(t, sh, 1, "a")
		must(t, s.Flush())
		waiting := make(chan error)
		go func() {
			var err error
			for i := uint64(2); err == nil; i++ {
				err = sh.Apply(i, func(tx *Txn) error {
					tx.Set(key(fmt.Sprint("k", i)), filler(int(i), 64<<10))
					return nil
				})
				s.RequestFlush()
			}
			waiting <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !s.Full() {
			t.Fatal("the disk is not full")
		}
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("the waiting apply got %v", err)
		}
		<-closed // an error may say that the database could not tidy up
		disk.left.Store(64 << 20)
		s = mustOpen(t, Options{FS: disk, Clock: newBubbleClock()})
		defer mustClose(t, s)
		sh = mustShard(t, s, 0)
		index, _ := sh.Applied()
		if n := count(t, sh); index < 1 || n != int(index) {
			t.Errorf("found %d keys at index %d", n, index)
		}
	})
}

func TestTableThatCannotBeSyncedForWantOfRoomIsWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &brokenFS{FS: vfs.NewMem(), with: &errno{syscall.ENOSPC}}
		s := mustOpen(t, Options{FS: disk, Clock: newBubbleClock()})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		set(t, sh, 1, "a")
		left := 3
		disk.arm(func(op, name string) bool {
			if op != "sync" || !strings.Contains(name, ".sst") || left == 0 {
				return false
			}
			left--
			return true
		})
		must(t, s.Flush())
		if d := sh.Durable(); d != 1 || left != 0 || s.err() != nil {
			t.Errorf("durable is %d with %d failures left, error %v", d, left, s.err())
		}
	})
}

func TestFailedWriteEndsTheUseOfTheStore(t *testing.T) {
	for _, c := range []struct{ name, op, file string }{
		{"table cannot be made", "create", ".sst"},
		{"table cannot be written", "write", ".sst"},
		{"table cannot be synced", "sync", ".sst"},
		{"manifest cannot be written", "write", "MANIFEST"},
		{"manifest cannot be synced", "sync", "MANIFEST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				disk := &brokenFS{FS: mem}
				s := mustOpen(t, Options{FS: disk, Clock: newBubbleClock()})
				sh := mustShard(t, s, 0)
				set(t, sh, 1, "a")
				must(t, s.Flush())
				set(t, sh, 2, "b")
				disk.arm(func(op, name string) bool { return op == c.op && strings.Contains(name, c.file) })
				if err := s.Flush(); !errors.Is(err, errBroken) && err == nil {
					t.Error("a flush to a broken disk succeeded")
				}
				if err := <-s.Err(); err == nil {
					t.Error("no reason was delivered")
				}
				disk.arm(nil)
				before := disk.changed()
				if err := sh.Apply(3, func(*Txn) error { return nil }); err == nil {
					t.Error("an entry was applied after the failure")
				}
				if n := count(t, sh); n != 2 {
					t.Errorf("readers see %d keys, want 2", n)
				}
				if d := sh.Durable(); d != 1 {
					t.Errorf("durable is %d, want 1", d)
				}
				time.Sleep(time.Minute)
				mustClose(t, s)
				if after := disk.changed(); after != before {
					t.Errorf("the disk was changed %d times after the failure: %v", after-before, disk.changes[before:])
				}
				s = mustOpen(t, Options{FS: mem, Clock: newBubbleClock()})
				defer mustClose(t, s)
				sh = mustShard(t, s, 0)
				index, _ := sh.Applied()
				if n := count(t, sh); index < 1 || n != int(index) {
					t.Errorf("after a restart there are %d keys at index %d", n, index)
				}
			})
		})
	}
}
