package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// rig is a node over an in-memory disk that can lose what was not synced.
type rig struct {
	t     testing.TB
	disk  *replogtest.Disk
	store *store.Store
	log   *replog.Log
	node  *Node
	ns    core.Partition
}

type rigOptions struct {
	disk    *replogtest.Disk
	clock   env.Clock
	noSync  bool
	segment int64
	node    Options
}

func openRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r, err := tryRig(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryRig(t testing.TB, o rigOptions) (*rig, error) {
	t.Helper()
	r, err := startRig(t, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.node.WaitReady(ctx); err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	info, err := r.node.Namespace(ctx, "acme", "default", true)
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	r.ns = info.Partitions[0].Partition
	return r, nil
}

// jumpsOn is what a node of tests takes for standing still: they move the clock on by as much as they like.
const jumpsOn = 100_000 * time.Hour

// startRig opens a node and does not wait for it to serve.
func startRig(t testing.TB, o rigOptions) (*rig, error) {
	t.Helper()
	if o.disk == nil {
		o.disk = replogtest.NewDisk()
	}
	if o.clock == nil {
		o.clock = env.SystemClock{}
	}
	if o.segment == 0 {
		o.segment = 64 << 10
	}
	r := &rig{t: t, disk: o.disk}
	fs := o.disk.FS
	const dir = "data"
	for _, d := range []string{dir, filepath.Join(dir, "store"), filepath.Join(dir, "wal")} {
		if err := fs.MkdirAll(d); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{"", dir} { // as the directory's owner does when it makes them
		if err := env.SyncDir(fs, d); err != nil {
			return nil, err
		}
	}
	var err error
	if r.store, err = store.Open(store.Options{
		FS: o.disk.VFS(), Dir: filepath.Join(dir, "store"), Clock: o.clock, MemoryBytes: 32 << 20,
		LayerBytes: 256 << 10, LayerAge: 50 * time.Millisecond,
	}); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if r.log, err = replog.OpenLog(replog.LogOptions{
		FS: fs, Clock: o.clock, Dir: filepath.Join(dir, "wal"), SegmentBytes: o.segment, NoSync: o.noSync,
	}); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	n := o.node
	n.Dir, n.FS, n.Clock, n.Log, n.Store, n.Unsynced = dir, fs, o.clock, r.log, r.store, o.noSync
	if n.Rand == nil {
		n.Rand = env.NewSeededRand(rand.Uint64())
	}
	if n.PauseAfter == 0 {
		n.PauseAfter = jumpsOn
	}
	if r.node, err = Open(n); err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	return r, nil
}

// close ends the node as a clean stop does.
func (r *rig) close() {
	r.t.Helper()
	r.node.Close()
	if err := r.log.Close(); err != nil {
		r.t.Errorf("close log: %v", err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Errorf("close store: %v", err)
	}
}

// propose puts commits into the log and waits for their results.
func (r *rig) propose(commits ...core.Commit) core.Proposed {
	done := make(chan core.Proposed, 1)
	for i := range commits {
		commits[i].Partition, commits[i].Principal = r.ns, "test"
	}
	r.node.Propose(r.ns, commits, func(p core.Proposed) { done <- p })
	return <-done
}

// must is propose of one commit that has to be applied.
func (r *rig) must(ops ...core.Op) core.Result {
	r.t.Helper()
	p := r.propose(core.Commit{Ops: ops})
	if p.Err != nil {
		r.t.Fatalf("proposal: %v", p.Err)
	}
	if p.Results[0].Refusal != nil {
		r.t.Fatalf("refused: %v", p.Results[0].Refusal.Fact)
	}
	return p.Results[0]
}

// taskID returns the n-th of a row of ids.
func taskID(n int) core.TaskID {
	var random [9]byte
	for i := range 8 {
		random[i] = byte(n >> (8 * (7 - i)))
	}
	return core.NewTaskID(1_700_000_000_000, 0, random)
}

func (r *rig) claim(queue string, max uint32, lease core.Millis) []core.Assigned {
	r.t.Helper()
	tasks, _, err := r.node.Claim(r.t.Context(), r.ns, core.ClaimSpec{
		Queues: []core.GrantQueue{{Name: queue, Weight: 1}}, Max: max, Lease: lease, Worker: "w",
	})
	if err != nil {
		r.t.Fatalf("claim: %v", err)
	}
	return tasks
}

func (r *rig) key(keyspace, key string) (string, bool) {
	r.t.Helper()
	k, _, err := r.node.Key(r.t.Context(), r.ns, keyspace, []byte(key), core.ReadOptions{})
	if err != nil {
		r.t.Fatalf("get %s: %v", key, err)
	}
	return string(k.Value), k.Rev > 0
}
