package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// gatheredBackup notes what a backup is made of.
type gatheredBackup struct {
	head   core.BackupHead
	shards []store.Snapshot
	files  []core.BackupFile
	bytes  int64
	data   func() error // is called for each part; may be nil
}

func (g *gatheredBackup) Head(h core.BackupHead) error { g.head = h; return nil }

func (g *gatheredBackup) Shard(description []byte) error {
	s, err := store.ParseSnapshot(description)
	g.shards = append(g.shards, s)
	return err
}

func (g *gatheredBackup) File(f core.BackupFile) error {
	g.files = append(g.files, f)
	return nil
}

func (g *gatheredBackup) Data(part []byte) error {
	g.bytes += int64(len(part))
	if g.data != nil {
		return g.data()
	}
	return nil
}

func TestABackupAtAnyNodeHasWhatAnyNodeAcknowledged(t *testing.T) {
	o := patient
	o.Shards = 2
	c := openCluster(t, 3, o)
	ctx := within(t, 30*time.Second)
	for i := range 5 {
		var acknowledged [2]uint64
		for shard := range acknowledged {
			c.until(ctx, "no leader takes a proposal", func() bool {
				lead := c.leader(ctx, shard, 0)
				done := make(chan core.Proposed, 1)
				lead.node.shards[shard].enqueue(&proposal{commits: []core.Commit{{
					Principal: "test", Ops: []core.Op{&core.KVPut{Keyspace: "s", Key: fmt.Append(nil, i), Value: []byte("v")}},
				}}, done: func(p core.Proposed) { done <- p }}, false)
				p := <-done
				acknowledged[shard] = p.At.Index
				return p.Err == nil
			})
		}
		for id, r := range c.rigs {
			g := &gatheredBackup{}
			if err := r.node.Backup(ctx, BackupOptions{Cluster: "c1", Version: "v1"}, g); err != nil {
				t.Fatalf("node %d: %v", id, err)
			}
			if g.head.Cluster != "c1" || g.head.Version != "v1" || g.head.Shards != 2 || len(g.shards) != 2 {
				t.Fatalf("node %d: %+v with %d shards", id, g.head, len(g.shards))
			}
			var size int64
			for k, s := range g.shards {
				if want := core.ShardID(1 - k); s.Shard != want {
					t.Errorf("node %d: shard %d comes as number %d: the directory is to be last", id, s.Shard, k)
				}
				if s.Index < acknowledged[s.Shard] {
					t.Errorf("node %d: shard %d is of entry %d, and %d was acknowledged", id, s.Shard, s.Index, acknowledged[s.Shard])
				}
				for _, f := range s.Files {
					size += f.Size
				}
			}
			if g.bytes != size {
				t.Errorf("node %d: %d bytes of %d", id, g.bytes, size)
			}
			if names, _ := r.disk.List("data/snapshots"); len(names) > 0 {
				t.Errorf("node %d: %v is left", id, names)
			}
		}
	}
}

func TestANodeThatHearsOfNoMajorityTakesNoBackup(t *testing.T) {
	o := patient
	o.ReadWait = 300 * time.Millisecond
	c := openCluster(t, 3, o)
	c.wires.alone(1, true)
	err := c.rigs[1].node.Backup(within(t, 20*time.Second), BackupOptions{}, &gatheredBackup{})
	fact, ok := errors.AsType[core.Fact](err)
	switch fact.(type) {
	case core.DeadlineExceeded, core.Unavailable:
	default:
		t.Errorf("a node that is cut off: %v (%v)", err, ok)
	}
}

// TestABackupWaitsForOneWhoseCallerHasLeft: one after the other, from one command line, must not meet the limit.
func TestABackupWaitsForOneWhoseCallerHasLeft(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	next := make(chan error, 1)
	first := &gatheredBackup{}
	first.data = func() error {
		if cap(next) == 1 && ctx.Err() == nil {
			go func() { next <- r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{}) }()
			cancel()
		}
		return nil
	}
	if err := r.node.Backup(ctx, BackupOptions{}, first); !errors.Is(err, context.Canceled) {
		t.Errorf("without its caller it ends with %v", err)
	}
	if err := <-next; err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestANodeTakesOneBackupAtATimeAndEndsItWithItsCaller(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	g := &gatheredBackup{}
	g.data = func() error {
		err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{})
		if f, ok := errors.AsType[core.Exhausted](err); !ok || f.Limit != "backups" {
			t.Errorf("a second one: %v", err)
		}
		cancel()
		return nil
	}
	if err := r.node.Backup(ctx, BackupOptions{}, g); !errors.Is(err, context.Canceled) {
		t.Errorf("without its caller it ends with %v", err)
	}
	if names, _ := r.disk.List("data/snapshots"); len(names) > 0 {
		t.Errorf("%v is left", names)
	}
	if err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestABackupLeavesTheReserveOfTheDisk(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{DiskReserve: 1 << 20}})
	defer r.close()
	r.disk.SetFree(1<<20, 1<<30)
	err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{})
	if f, ok := errors.AsType[core.Exhausted](err); !ok || f.Limit != "disk" {
		t.Errorf("on a disk that is nearly full: %v", err)
	}
	r.disk.SetFree(1<<29, 1<<30)
	if err := r.node.Backup(t.Context(), BackupOptions{}, &gatheredBackup{}); err != nil {
		t.Errorf("with room: %v", err)
	}
}

func TestABackupKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := replogtest.NewClock()
		n := &Node{o: Options{Clock: clock}, stopping: make(chan struct{})}
		b := &backup{n: n, ctx: t.Context(), rate: 1000, began: clock.Boot()}
		begin := time.Now()
		for range 10 {
			if err := b.wait(250); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 2500*time.Millisecond {
			t.Errorf("2500 bytes at 1000 a second took %v", took)
		}
		close(n.stopping)
		if err := b.wait(1 << 30); err == nil {
			t.Error("a node that stops goes on with a backup")
		}
	})
}

// unreadableFS opens files whose reads fail.
type unreadableFS struct {
	env.FS
	err error
}

type unreadableFile struct {
	env.File
	err error
}

func (f unreadableFS) Open(string) (env.File, error) { return unreadableFile{err: f.err}, nil }

func (f unreadableFile) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func (f unreadableFile) Close() error { return nil }

// Only a file that is too short is damaged; that one could not be read is an error of another kind, which keeps its cause.
func TestAFileOfABackupThatCannotBeReadIsNotCalledDamaged(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.EIO, syscall.ENOMEM, io.EOF} {
		b := &backup{n: &Node{snapFS: unreadableFS{err: err}}, part: make([]byte, 16), sink: &gatheredBackup{}}
		got := b.file("000001.sst", 100)
		if _, damaged := errors.AsType[*errs.Corruption](got); damaged != errors.Is(err, io.EOF) || !damaged && !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
