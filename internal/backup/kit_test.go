package backup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shards = 3
	epoch  = core.ShardTime(1_700_000_000_000)
)

var head = backup.Head{Cluster: "00112233445566778899aabbccddeeff", Node: "n1", Version: "v1.2", Format: 1, Shards: shards, StartedMillis: 1_700_000_000_123}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func home(shard core.ShardID) core.Partition {
	return core.Partition{Tenant: 1, Namespace: 1, Index: uint16(shard)}
}

func taskID(shard core.ShardID, n byte) core.TaskID {
	return core.NewTaskID(int64(epoch), uint16(shard), [9]byte{n + 1})
}

// origin is a store with some state in each shard.
type origin struct {
	t    *testing.T
	disk *replogtest.Disk
	st   *store.Store
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := &origin{t: t, disk: replogtest.NewDisk()}
	var err error
	o.st, err = store.Open(store.Options{FS: o.disk.VFS(), Dir: "origin"})
	noErr(t, err)
	t.Cleanup(func() { noErr(t, o.st.Close()) })
	for i := range core.ShardID(shards) {
		fill(t, o.st, i, history(i))
	}
	return o
}

// history is what a shard has applied: ten tasks, of which two are handed out, and some keys.
func history(id core.ShardID) (out []*core.Entry) {
	var ops []core.Op
	for n := range byte(10) {
		ops = append(ops, &core.TaskCreate{ID: taskID(id, n), Queue: "mail", Payload: fmt.Appendf(nil, "%d", n)})
		ops = append(ops, &core.KVPut{Keyspace: "ks", Key: []byte{n}, Value: make([]byte, 100)})
	}
	entries := [][]core.Commit{
		{{Ops: []core.Op{&core.TermStart{Term: 5, Leader: 1}}}},
		{{Partition: home(id), Ops: ops}},
		{{Partition: home(id), Ops: []core.Op{&core.Grant{N: 2, Queues: []core.GrantQueue{{Name: "mail", Weight: 1}}}}}},
	}
	if id == 0 {
		create := &core.NamespaceCreate{Tenant: "acme", Name: "shop", Partitions: shards, Shards: shards}
		entries[0] = append(entries[0], core.Commit{Ops: []core.Op{create}})
	}
	for _, commits := range entries {
		out = append(out, &core.Entry{Format: 1, Stamp: epoch, Commits: commits})
	}
	return out
}

// fill applies the first of a shard's history.
func fill(t *testing.T, st *store.Store, id core.ShardID, entries []*core.Entry) {
	t.Helper()
	sh, err := st.Shard(id)
	noErr(t, err)
	m := commit.New(commit.Options{Shard: id})
	noErr(t, sh.View(m.Open))
	for i, e := range entries {
		index := uint64(i) + replog.FirstIndex + 1
		noErr(t, sh.Apply(index, func(tx *store.Txn) error {
			a, err := m.Apply(tx, index, e)
			for k := range a.Results {
				if r := a.Results[k].Refusal; r != nil {
					t.Fatalf("refused: %v", r.Fact)
				}
			}
			return err
		}))
	}
}

// send exports every shard and gives it to w, as a node does.
func (o *origin) send(w *backup.Writer) error {
	if err := w.Head(head); err != nil {
		return err
	}
	fsys := o.st.FS()
	for id := core.ShardID(shards); id > 0; id-- {
		sh, err := o.st.Shard(id - 1)
		noErr(o.t, err)
		dir := fmt.Sprintf("export-%d", id)
		noErr(o.t, store.RemoveTree(fsys, dir))
		snap, err := sh.Export(dir)
		noErr(o.t, err)
		if err := w.Shard(snap.Append(nil)); err != nil {
			return err
		}
		for _, f := range snap.Files {
			b, err := replogtest.ReadFile(fsys, filepath.Join(dir, f.Name))
			noErr(o.t, err)
			for len(b) > 0 {
				n := min(len(b), 700)
				if err := w.Data(b[:n]); err != nil {
					return err
				}
				b = b[n:]
			}
		}
	}
	return nil
}

// take makes a backup at a path of a disk.
func (o *origin) take(fsys env.FS, path string) backup.Manifest {
	o.t.Helper()
	w, err := backup.Create(fsys, path)
	noErr(o.t, err)
	noErr(o.t, o.send(w))
	m, err := w.Finish()
	noErr(o.t, err)
	w.Abort() // which changes nothing now
	return m
}

func openBackup(t *testing.T, fsys env.FS, path string) *backup.Backup {
	t.Helper()
	b, err := backup.Open(fsys, path)
	noErr(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func restoreOptions(disk *replogtest.Disk) backup.Options {
	return backup.Options{
		Store: store.Options{FS: disk.VFS()}, Clock: wallClock{}, Rand: env.NewSeededRand(7),
		Prepare: func(n int) error {
			if n != shards {
				return fmt.Errorf("%d shards", n)
			}
			return replogtest.WriteFile(disk, "data/MEMBER", []byte("member"))
		},
	}
}

// wallClock is the machine's clock with another date.
type wallClock struct{ env.SystemClock }

var restoredAt = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

func (wallClock) Wall() time.Time { return restoredAt }

// auditData holds a restored directory to what the origin held.
func auditData(t *testing.T, disk *replogtest.Disk, dir string) {
	t.Helper()
	_, err := store.ReadDir(disk, dir)
	noErr(t, err)
	log, err := replog.OpenLog(replog.LogOptions{FS: disk, Dir: filepath.Join(dir, "wal"), SegmentBytes: 1 << 20})
	noErr(t, err)
	defer func() { noErr(t, log.Close()) }()
	st, err := store.Open(store.Options{FS: disk.VFS(), Dir: filepath.Join(dir, "store")})
	noErr(t, err)
	defer func() { noErr(t, st.Close()) }()
	for id := range core.ShardID(shards) {
		sh, err := st.Shard(id)
		noErr(t, err)
		applied, _ := sh.Applied()
		state := log.State(id)
		if applied != 5 || state.CutIndex != applied || state.Last != applied || state.CutTerm != 6 {
			t.Errorf("shard %d has applied %d, its log goes on behind %d of term %d, up to %d", id, applied, state.CutIndex, state.CutTerm, state.Last)
		}
		noErr(t, sh.View(func(v core.View) error { auditShard(t, v, id); return nil }))
	}
}

func auditShard(t *testing.T, v core.View, id core.ShardID) {
	t.Helper()
	m := commit.New(commit.Options{Shard: id})
	noErr(t, m.Open(v))
	if want := uint64(restoredAt.UnixMicro()); m.Floor() != want {
		t.Errorf("the floor is %d, want %d", m.Floor(), want)
	}
	auditTasks(t, v, id)
}

func auditTasks(t *testing.T, v core.View, id core.ShardID) {
	t.Helper()
	running := 0
	for n := range byte(10) {
		task, ok, err := queue.Task(v, home(id), taskID(id, n))
		noErr(t, err)
		if !ok || string(task.Payload) != fmt.Sprint(n) {
			t.Errorf("shard %d: task %d is there: %v, with %q", id, n, ok, task.Payload)
		}
		if task.State == core.Running {
			running++
		}
		if _, _, ok, err := kv.Get(v, home(id), "ks", []byte{n}); err != nil || !ok {
			t.Errorf("shard %d: key %d is there: %v, %v", id, n, ok, err)
		}
	}
	if running != 2 {
		t.Errorf("shard %d: %d tasks are held", id, running)
	}
	if found, err := queue.Audit(v, home(id)); err != nil || len(found) > 0 {
		t.Errorf("shard %d: %v, %v", id, found, err)
	}
	if _, ok, err := commit.Namespace(v, "acme", "shop"); err != nil || ok != (id == 0) {
		t.Errorf("shard %d: the namespace is there: %v, %v", id, ok, err)
	}
}

// tree reads all files below a path.
func tree(t *testing.T, fsys env.FS, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fsys.List(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	if err != nil { // a file
		b, err := replogtest.ReadFile(fsys, path)
		noErr(t, err)
		out[path] = string(b)
		return out
	}
	for _, name := range names {
		for k, v := range tree(t, fsys, filepath.Join(path, name)) {
			out[k] = v
		}
	}
	return out
}

func same(a, b map[string]string) bool { return reflect.DeepEqual(a, b) }
