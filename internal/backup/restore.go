package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

const (
	restoreCommand = "restore"
	// stagingDir holds copies of a shard's files until they are part of the store.
	stagingDir = "restoring"
	// copyBytes is copied at a time.
	copyBytes = 1 << 20
	// exceptState is how many bytes of disk a directory takes in addition to its state, or a sixteenth of a small disk: the
	// first segments of the log, whose size suits the disk, and what the store has of its own.
	exceptState = 192 << 20
)

// NoRoomError says that a disk has not the room for what a backup holds. Nothing was changed.
type NoRoomError struct {
	Path string // on whose disk there is too little room
	Need int64  // bytes
	Free uint64
}

// Error names the figures.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("%s: %d bytes are needed, and %d are free", e.Path, e.Need, e.Free)
}

// Unwrap makes it a full disk.
func (e *NoRoomError) Unwrap() error { return syscall.ENOSPC }

// Restored says what a data directory was made of.
type Restored struct {
	Identity store.Identity
	Shards   []RestoredShard
	Content  Content // of git repositories
}

// RestoredShard is one shard of it.
type RestoredShard struct {
	Shard core.ShardID
	Index uint64 // of the backup
	Begin uint64 // the log begins behind it
	Keys  uint64
}

// Restore makes a data directory of one server in dir, which must not exist or be empty, or be what a restore left that did
// not end. It has the state of the backup, and another identity. Until it is whole no server starts on it; what is there
// when it ends with an error is left. Errors: those of Verify, a *NoRoomError, store.ErrNotEmpty, store.ErrLocked.
//
// The order of steps, of which each is durable before the next:
//  1. The mark is in the directory, and room was checked.
//  2. The store has every shard's state, whose history is broken off, and the files of
//     repositories are in place.
//  3. The logs begin behind the states, and Prepare has written what else belongs to the
//     directory.
//  4. The directory has its new identity, and the mark goes.
//
// A restore that ended anywhere before that is begun again from nothing: the mark tells the next
// one that it may remove what is there.
func (b *Backup) Restore(dir string, o Options) (out Restored, err error) {
	o = o.withDefaults()
	fsys := store.NewFS(o.Store.FS)
	made, err := store.MakeDir(fsys, dir, restoreCommand)
	if err != nil {
		return out, err
	}
	if err := b.checkRoom(fsys, dir); err != nil {
		return out, errors.Join(err, made.Abandon())
	}
	r := &restore{b: b, o: o, fs: fsys, dir: dir}
	if out, err = r.run(made); err != nil {
		return out, errors.Join(err, made.Leave())
	}
	return out, made.Finish()
}

// checkRoom refuses a backup that the disk has no room for. The state is counted with a margin of
// an eighth. The files of repositories are counted here as the backup has them, each once; objects
// counts what they take here.
func (b *Backup) checkRoom(fsys env.FS, dir string) error {
	free, total, err := fsys.Disk(dir)
	if err != nil {
		return nil // a file system that cannot tell: what has no room fails then
	}
	objects := b.Manifest.Objects.Bytes()
	bytes := b.Manifest.Bytes() - objects
	need := objects + bytes + bytes/8 + int64(min(exceptState, total/16))
	if uint64(need) > free {
		return &NoRoomError{Path: dir, Need: need, Free: free}
	}
	return nil
}

// restore is one restore that is under way.
type restore struct {
	b   *Backup
	o   Options
	fs  env.FS
	dir string
	// now is one instant for the whole restore: the floors of all shards and the identity come from
	// it.
	now time.Time
}

// run does the steps of Restore between its mark and the end of it.
func (r *restore) run(made *store.Making) (out Restored, err error) {
	r.now = r.o.Clock.Wall()
	begin, err := r.states(&out.Content)
	if err != nil {
		return out, err
	}
	if err := fault.Point("backup.states_restored"); err != nil {
		return out, err
	}
	if err := beginLogs(r.fs, r.o.Clock, filepath.Join(r.dir, logDir), begin); err != nil {
		return out, err
	}
	if r.o.Prepare != nil {
		if err := r.o.Prepare(len(begin)); err != nil {
			return out, err
		}
	}
	if err := fault.Point("backup.logs_begun"); err != nil {
		return out, err
	}
	if out.Identity, err = made.Identify(r.o.Rand, r.now); err != nil {
		return out, err
	}
	for i, s := range begin {
		snap := &r.b.Manifest.Shards[i]
		out.Shards = append(out.Shards, RestoredShard{Shard: s.shard, Index: snap.Index, Begin: s.index, Keys: snap.Keys})
	}
	return out, fault.Point("backup.identified")
}

// states makes the store, and puts in place what its state names. What was cut off on the way is made again from the beginning.
func (r *restore) states(c *Content) (begin []beginning, err error) {
	o := r.o.Store
	o.Dir = filepath.Join(r.dir, storeDir)
	st, err := store.Open(o)
	if err != nil {
		return nil, fmt.Errorf("make the store: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for i := range r.b.Manifest.Shards {
		s, err := r.shard(st, r.b.Manifest.Shards[i])
		if err != nil {
			return nil, err
		}
		begin = append(begin, s)
	}
	if err := r.objects(st, c); err != nil {
		return nil, err
	}
	if err := fault.Point("backup.objects_restored"); err != nil {
		return nil, err
	}
	if err := flush(st, r.o.Clock); err != nil {
		return nil, fmt.Errorf("make the store durable: %w", r.room(err))
	}
	return begin, nil
}

// shard makes the state of one shard. Files are copied first, since the store takes those that it
// installs for its own, and the backup must stay whole.
func (r *restore) shard(st *store.Store, snap store.Snapshot) (s beginning, err error) {
	staging := filepath.Join(r.dir, stagingDir)
	if err := r.fs.MkdirAll(staging); err != nil {
		return s, fmt.Errorf("make %s: %w", staging, err)
	}
	for _, f := range snap.Files {
		if err := r.copy(snap.Shard, f, staging); err != nil {
			return s, err
		}
	}
	sh, err := st.Shard(snap.Shard)
	if err != nil {
		return s, fmt.Errorf("make shard %d: %w", snap.Shard, err)
	}
	if err := sh.Install(staging, snap); err != nil {
		return s, r.b.located(snap.Shard, r.room(err))
	}
	if err := store.RemoveTree(r.fs, staging); err != nil {
		return s, fmt.Errorf("clear %s: %w", staging, err)
	}
	if s, err = breakOff(sh, snap.Shard, replog.FirstTerm, r.now); err != nil {
		return s, fmt.Errorf("shard %d: %w", snap.Shard, err)
	}
	return s, nil
}

// room makes a store's word for a full disk the system's.
func (r *restore) room(err error) error {
	if err != nil && (store.IsFull(err) || errors.Is(err, errNoRoom)) {
		return &NoRoomError{Path: r.dir, Need: r.b.Manifest.Bytes()}
	}
	return err
}

// copy copies one file of the backup: the store takes the copy for its own. What is wrong with it shows when it is installed.
func (r *restore) copy(id core.ShardID, f store.SnapshotFile, to string) (err error) {
	source, err := r.b.open(id, f)
	if errors.Is(err, fs.ErrNotExist) {
		err = errs.Corruptf("it is missing")
	}
	if err != nil {
		return r.b.located(id, &store.SnapshotFileError{Name: f.Name, Err: err})
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	out, err := r.fs.Create(filepath.Join(to, f.Name))
	if err != nil {
		return fmt.Errorf("copy %s: %w", f.Name, err)
	}
	buf := make([]byte, min(copyBytes, f.Size))
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{io.NewSectionReader(source, 0, f.Size)}, buf)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", f.Name, err)
	}
	return nil
}
