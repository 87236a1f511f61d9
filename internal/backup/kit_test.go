package backup_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/gitobj"
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

var head = backup.Head{Cluster: "00112233445566778899aabbccddeeff", Node: "n1", Version: "v1.2", Format: 1, Shards: shards, StartedMillis: 1_700_000_000_123, Objects: true}

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
	repos := []core.Commit{}
	for n := range byte(2) {
		name := fmt.Sprint("r", n)
		txn := &core.RefTxn{Repo: name, StagedAt: epoch, Packs: packsOf(id, n), Changes: []core.RefChange{{
			Kind: core.OpRefUpdate, Name: "refs/heads/main", New: core.ObjectID{1}, Type: core.ObjectCommit,
		}}}
		repos = append(repos,
			core.Commit{Partition: home(id), Principal: "t", Ops: []core.Op{&core.RepoCreate{Name: name, ID: repoID(id, n)}}},
			core.Commit{Partition: home(id), Principal: "t", Ops: []core.Op{txn}})
	}
	if id == 0 { // its objects are there as long as the deletion can be undone
		repos = append(repos, core.Commit{Partition: home(id), Principal: "t", Ops: []core.Op{&core.RepoDelete{Name: "r1", IfVersion: -1}}})
	}
	entries := [][]core.Commit{
		{{Ops: []core.Op{&core.TermStart{Term: 5, Leader: 1}}}},
		append(repos, core.Commit{Partition: home(id), Ops: ops}),
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

func repoID(shard core.ShardID, n byte) core.RepoID { return core.RepoID{byte(shard) + 1, n} }

// packsOf are the packs of a repository: one of its own, and one that all repositories have.
func packsOf(shard core.ShardID, n byte) []core.Pack {
	return []core.Pack{packOf(fmt.Sprintf("%d-%d", shard, n)), packOf("shared")}
}

// contents are the bytes of the files of a pack.
func contents(name string) [2][]byte {
	times := 300
	if name == "shared" {
		times = 4000
	}
	return [2][]byte{bytes.Repeat([]byte("pack "+name), times), []byte("idx " + name)}
}

func packOf(name string) core.Pack {
	b := contents(name)
	return core.Pack{
		Digest: sha256.Sum256(b[0]), Idx: sha256.Sum256(b[1]), Bytes: int64(len(b[0])), IdxBytes: int64(len(b[1])), Objects: 1, Kind: core.PackPush,
	}
}

// repoFiles are all files that the repositories need, by digest, in ascending order.
func repoFiles() (files []core.BackupFile, content map[core.Digest][]byte) {
	content = map[core.Digest][]byte{}
	names := []string{"shared"}
	for id := range core.ShardID(shards) {
		for n := range 2 {
			names = append(names, fmt.Sprintf("%d-%d", id, n))
		}
	}
	for _, name := range names {
		for i, f := range gitobj.FilesOf(packOf(name)) {
			files = append(files, f)
			content[f.Digest] = contents(name)[i]
		}
	}
	slices.SortFunc(files, func(a, b core.BackupFile) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	return files, content
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
func (o *origin) send(w *backup.Writer) error { return o.sendAs(head, w) }

func (o *origin) sendAs(h backup.Head, w *backup.Writer) error {
	if err := o.sendShards(h, w); err != nil || !h.Objects {
		return err
	}
	files, content := repoFiles()
	for _, f := range files {
		if err := w.File(f); err != nil {
			return err
		}
		for b := content[f.Digest]; len(b) > 0; {
			n := min(len(b), 700)
			if err := w.Data(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
	}
	return nil
}

func (o *origin) sendShards(h backup.Head, w *backup.Writer) error {
	if err := w.Head(h); err != nil {
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

// verifies wants a backup to be whole, with the objects of all repositories.
func verifies(t *testing.T, b *backup.Backup) {
	t.Helper()
	c, err := b.Verify()
	noErr(t, err)
	if want := (backup.Content{Repositories: 2 * shards}); c != want {
		t.Errorf("content %+v, want %+v", c, want)
	}
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

// auditRestored is auditData of a directory that a restore made.
func auditRestored(t *testing.T, disk *replogtest.Disk, dir string) {
	t.Helper()
	auditData(t, disk, dir)
	auditObjects(t, disk, dir)
}

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

// auditObjects wants every repository to have its packs where a server looks for them, and nothing else to be there.
func auditObjects(t *testing.T, disk *replogtest.Disk, dir string) {
	t.Helper()
	want := map[string]string{}
	for id := range core.ShardID(shards) {
		for n := range byte(2) {
			at := filepath.Join(dir, "git", fmt.Sprint(id), repoID(id, n).String())
			want[filepath.Join(at, "OWNER")] = fmt.Sprintf("1 1 %d\n", id)
			for i, name := range []string{fmt.Sprintf("%d-%d", id, n), "shared"} {
				base := filepath.Join(at, "objects", "pack", "pack-"+packsOf(id, n)[i].Digest.String())
				want[base+".pack"], want[base+".idx"] = string(contents(name)[0]), string(contents(name)[1])
			}
		}
	}
	if got := tree(t, disk, filepath.Join(dir, "git")); !same(got, want) {
		t.Errorf("the objects are %d files %v, want %d", len(got), slices.Sorted(maps.Keys(got)), len(want))
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
