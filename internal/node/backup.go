package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/store"
)

// BackupOptions describe a backup, in addition to what the node knows.
type BackupOptions struct {
	// The cluster's name, as in core.BackupHead.
	Cluster string
	// The version of the binary.
	Version string
	// Bytes per second at most; 0 = Options.SnapshotRate.
	Rate int64
	// Packs holds the packs of git repositories for a backup; nil: this node has none, and a state that names some is refused.
	Packs HeldPacks
}

// Backup gives sink the state of every shard as files of sorted keys, each as of one entry: everything that was
// acknowledged before the call is in it, whichever node acknowledged it. The shards go on meanwhile, and stand at different
// instants. It writes one shard at a time as files below the data directory, and removes them. At the end it gives the packs
// that these states name. One runs at a time.
//
// Errors: core.Exhausted of limit backups or disk; core.Unavailable, core.DeadlineExceeded; those of sink and of the packs.
func (n *Node) Backup(ctx context.Context, o BackupOptions, sink core.BackupSink) error {
	err := n.backup(ctx, o, sink)
	if _, refused := errors.AsType[core.Fact](err); !refused && store.IsFull(err) {
		return core.Exhausted{Limit: "disk", Max: int64(n.diskReserve())}
	}
	return err
}

// backupWait is how long a backup waits for the one before it: a caller that went away is noticed a moment later.
const backupWait = 5 * time.Second

// backup is Backup, whose errors may be those of a full disk.
func (n *Node) backup(ctx context.Context, o BackupOptions, sink core.BackupSink) error {
	late := n.o.Clock.NewTimer(backupWait)
	defer late.Stop()
	select {
	case n.backing <- struct{}{}:
		defer func() { <-n.backing }()
	case <-late.C():
		return core.Exhausted{Limit: "backups", Max: 1}
	case <-ctx.Done():
		return core.DeadlineExceeded{}
	}
	if o.Rate <= 0 {
		o.Rate = n.o.SnapshotRate
	}
	b := &backup{n: n, ctx: ctx, sink: sink, packs: o.Packs, rate: o.Rate, part: make([]byte, n.o.SnapshotPart)}
	for _, s := range n.shards { // so that what cannot be had is known before anything is sent
		if err := s.barrier(ctx, core.ReadOptions{}); err != nil {
			return err
		}
		if err := b.checkRoom(s); err != nil {
			return err
		}
	}
	if err := sink.Head(core.BackupHead{
		Cluster: o.Cluster, Node: n.o.Name, Version: o.Version, Format: uint32(n.Format()), Shards: len(n.shards),
		StartedMillis: n.o.Clock.Wall().UnixMilli(), Objects: true,
	}); err != nil {
		return err
	}
	b.began = n.o.Clock.Boot()
	// The directory, in shard 0, comes last: what is in a namespace was made after the namespace, and would else be there
	// without it.
	for i := len(n.shards) - 1; i >= 0; i-- {
		if err := b.shard(n.shards[i]); err != nil {
			return err
		}
	}
	return b.files()
}

// backup is one backup that is under way.
type backup struct {
	// The node that is backed up.
	n *Node
	// Of the caller: the backup ends with it.
	ctx context.Context
	// Where it goes, in order: the head, each shard with its files, the packs.
	sink core.BackupSink
	// Where packs are held for the backup; nil: there are none here.
	packs HeldPacks
	// Bytes per second at most.
	rate int64
	// Boot time at which the first byte was sent: the rate counts from there.
	began time.Duration
	// Bytes so far.
	sent int64
	// Room for one part of a file, used again for each.
	part []byte
}

// shard gives one shard, once all packs that its state names are held.
func (b *backup) shard(s *shard) error {
	for attempt := 1; ; attempt++ {
		err := b.oneState(s)
		if gone, ok := errors.AsType[*packGoneError](err); !ok {
			return err
		} else if attempt == backupStates || b.named(s, gone) {
			b.n.o.Logger.Warn("a pack for a backup cannot be had", "shard", s.id, "repository", gone.at.Repo.String(), "pack", gone.pack.Digest.String(), "why", err)
			return gone.err
		}
		b.n.o.Logger.Info("shard is backed up at a later entry", "shard", s.id, "why", err)
	}
}

// oneState gives one shard as it is now. A *packGoneError comes before anything was given.
func (b *backup) oneState(s *shard) error {
	// Again, because this replica may lag behind what a shard before this one shows.
	if err := s.barrier(b.ctx, core.ReadOptions{}); err != nil {
		return err
	}
	if err := b.checkRoom(s); err != nil {
		return err
	}
	list, err := b.newPackList(s.id)
	if err != nil {
		return err
	}
	defer list.remove()
	dir := b.n.snapshotDir("backup", s.id)
	snap, err := list.export(s, dir)
	switch {
	case store.IsFull(err):
		return b.noRoom()
	case errors.Is(err, store.ErrClosed):
		return core.Unavailable{Reason: "stopping"}
	case err != nil:
		return fmt.Errorf("back up: %w", err)
	}
	defer b.n.removeTree(dir)
	if err := fault.Point("node.backup_exported"); err != nil {
		return err
	}
	if err := list.ensure(); err != nil {
		return err
	}
	if err := b.sink.Shard(snap.Append(nil)); err != nil {
		return err
	}
	for _, f := range snap.Files {
		if err := b.file(filepath.Join(dir, f.Name), f.Size); err != nil {
			return err
		}
	}
	b.n.o.Logger.Info("shard backed up", "shard", s.id, "index", snap.Index, "keys", snap.Keys, "files", len(snap.Files), "packs", list.count)
	return nil
}

// checkRoom refuses to fill the disk: a server whose disk is full takes no new work.
func (b *backup) checkRoom(s *shard) error {
	bytes, err := s.store.DiskBytes()
	if err != nil {
		return fmt.Errorf("back up shard %d: %w", s.id, err)
	}
	free, _, err := b.n.o.FS.Disk(b.n.o.Dir)
	if err != nil {
		return nil // a file system that cannot tell: Export says when there is none
	}
	if free < bytes+bytes/4+b.n.diskReserve() { // the files may be a little larger than what they are made of
		return b.noRoom()
	}
	return nil
}

// noRoom is what a backup is refused with that would fill the disk.
func (b *backup) noRoom() error {
	return core.Exhausted{Limit: "disk", Max: int64(b.n.diskReserve())}
}

// file gives one file, at the rate.
func (b *backup) file(name string, size int64) (err error) {
	f, err := b.n.snapFS.Open(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return b.content(filepath.Base(name), f, size)
}

// content gives the bytes of a file in parts, at the rate. A file that is shorter than its size is corrupt.
func (b *backup) content(name string, f io.ReaderAt, size int64) error {
	for off := int64(0); off < size; {
		part := b.part[:min(int64(len(b.part)), size-off)]
		if _, err := f.ReadAt(part, off); errors.Is(err, io.EOF) {
			return errs.Corruptf("read %s: it ends before byte %d of %d", name, off+int64(len(part)), size)
		} else if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if err := b.sink.Data(part); err != nil {
			return err
		}
		off += int64(len(part))
		if err := b.wait(int64(len(part))); err != nil {
			return err
		}
	}
	return nil
}

// wait ends when n more bytes may be on their way.
func (b *backup) wait(n int64) error {
	b.sent += n
	due := b.began + time.Duration(float64(b.sent)/float64(b.rate)*float64(time.Second))
	timer := b.n.o.Clock.NewTimer(max(due-b.n.o.Clock.Boot(), 0))
	defer timer.Stop()
	select {
	case <-timer.C():
		return b.ctx.Err()
	case <-b.ctx.Done():
		return b.ctx.Err()
	case <-b.n.stopping:
		return core.Unavailable{Reason: "stopping"}
	}
}
