package node

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/store"
)

// HeldPacks keep the packs of git repositories on the disk for one backup. It is for one goroutine.
type HeldPacks interface {
	// Freeze keeps packs from being removed until thaw is called.
	Freeze() (thaw func())
	// Add holds a pack if it is on this node; what is in it is not looked at.
	Add(at PackPlace, p core.Pack) (here bool, err error)
	// Ensure holds a pack that is what p says. What is not on this node, or damaged, comes from others. ErrPackGone: none has it.
	Ensure(ctx context.Context, at PackPlace, p core.Pack) error
	// Each calls fn for each file that Ensure held, once, in ascending order of digests, until that fails.
	Each(fn func(f core.BackupFile, content io.ReaderAt) error) error
}

// PackPlace says of which repository a pack is.
type PackPlace struct {
	// The shard that the partition lies in.
	Shard     core.ShardID
	Partition core.Partition
	Repo      core.RepoID
}

// ErrPackGone says that no node that can be reached has a pack, whole. It is wrapped together with the reason.
var ErrPackGone = errors.New("the pack cannot be had")

// backupStates bounds how often a shard's state is written for one backup. It is written again when a pack that it names was
// rolled up before it came from another node: the state of a later entry does not name it any more.
const backupStates = 4

// packGoneError says which pack of a state cannot be had.
type packGoneError struct {
	// Where the pack belongs.
	at PackPlace
	// The pack that cannot be had.
	pack core.Pack
	// Why no node gave it.
	err error
}

// Error says why.
func (e *packGoneError) Error() string { return e.err.Error() }

// named reports whether the state of now still names a pack that cannot be had: then another look does not help.
func (b *backup) named(s *shard, gone *packGoneError) bool {
	if s.barrier(b.ctx, core.ReadOptions{}) != nil {
		return true
	}
	lines, _, err := b.n.Packs(s.id, gone.at.Partition, gone.at.Repo)
	return err != nil || slices.ContainsFunc(lines, func(l core.PackLine) bool { return l.Digest == gone.pack.Digest })
}

// packList is the list of the packs that an exported state names. It is a file, because it may be long: for each pack its
// length in 2 bytes, partition, repository and line of the manifest.
type packList struct {
	// The backup that it is a part of.
	b *backup
	// The shard whose state is exported.
	shard core.ShardID
	// Path of the file, which remove deletes.
	name string
	// The file, read again by ensure when it is whole.
	file env.File
	// Writes to file, until export has flushed it.
	out *bufio.Writer
	// Room for one record, used again for each.
	buf []byte
	// How many packs are listed.
	count int
	// Some are not on this node, and come from others.
	lacking bool
}

const packRecordHead = 10 + len(core.RepoID{}) // partition and repository

// newPackList makes an empty list in a file of its own; remove gives it back.
func (b *backup) newPackList(id core.ShardID) (*packList, error) {
	l := &packList{b: b, shard: id, name: b.n.snapshotDir("packs", id)}
	err := b.n.snapFS.MkdirAll(filepath.Dir(l.name))
	if err == nil {
		l.file, err = b.n.snapFS.OpenReadWrite(l.name)
	}
	if err != nil {
		return nil, fmt.Errorf("list packs: %w", err)
	}
	l.out = bufio.NewWriterSize(l.file, 64<<10)
	return l, nil
}

// remove closes and deletes the file. One that stays behind is deleted at the next start.
func (l *packList) remove() {
	_ = l.file.Close() // it goes
	if err := l.b.n.snapFS.Remove(l.name); err != nil {
		l.b.n.o.Logger.Warn("list of packs not removed; a start will", "err", err)
	}
}

// export writes the state of a shard, and holds the packs that it names as far as they are on this node.
func (l *packList) export(s *shard, dir string) (snap store.Snapshot, err error) {
	if l.b.packs != nil { // else a rollup could remove what the state names, before it is held
		defer l.b.packs.Freeze()()
	}
	snap, err = s.store.ExportEach(dir, l.add)
	if err == nil {
		err = l.out.Flush()
	}
	return snap, err
}

// add takes in a key of the state.
func (l *packList) add(key, value []byte) error {
	p, repo, _, ok := keys.PackOf(key)
	if !ok {
		return nil
	}
	if l.b.packs == nil {
		return core.Invalid{Field: "method", Reason: "not_supported", Message: "this node does not serve git: ask one that does, for the objects of repositories"}
	}
	line, err := core.DecodePackLine(value)
	if err != nil {
		return errs.Corruptf("manifest of repository %s: %v", repo, err)
	}
	here, err := l.b.packs.Add(PackPlace{l.shard, p, repo}, line.Pack)
	if err != nil {
		return err
	}
	l.count++
	l.lacking = l.lacking || !here
	l.buf = append(l.buf[:0], 0, 0)
	l.buf = append(keys.AppendPartition(l.buf, p), repo[:]...)
	l.buf = core.AppendPackLine(l.buf, &line)
	binary.BigEndian.PutUint16(l.buf, uint16(len(l.buf)-2))
	_, err = l.out.Write(l.buf)
	return err
}

// ensure holds all packs of the list, whole.
func (l *packList) ensure() error {
	if l.count == 0 {
		return nil
	}
	if l.lacking {
		l.b.n.o.Logger.Info("packs for a backup come from other nodes", "shard", l.shard)
	}
	size, err := l.b.n.snapFS.Size(l.name)
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	in := bufio.NewReaderSize(io.NewSectionReader(l.file, 0, size), 64<<10)
	for range l.count {
		at, pack, err := l.read(in)
		if err != nil {
			return fmt.Errorf("list packs: %w", err)
		}
		if err := l.b.packs.Ensure(l.b.ctx, at, pack); errors.Is(err, ErrPackGone) {
			return &packGoneError{at, pack, err}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// read reads the next record. What is shorter than it says is an error.
func (l *packList) read(in *bufio.Reader) (at PackPlace, pack core.Pack, err error) {
	var n [2]byte
	if _, err := io.ReadFull(in, n[:]); err != nil {
		return at, pack, err
	}
	rest := make([]byte, binary.BigEndian.Uint16(n[:]))
	if _, err := io.ReadFull(in, rest); err != nil {
		return at, pack, err
	}
	if len(rest) < packRecordHead {
		return at, pack, io.ErrUnexpectedEOF
	}
	at.Shard = l.shard
	at.Partition, _ = keys.DecodePartition(rest[:10])
	copy(at.Repo[:], rest[10:])
	line, err := core.DecodePackLine(rest[packRecordHead:])
	return at, line.Pack, err
}

// files gives the packs.
func (b *backup) files() error {
	if b.packs == nil {
		return nil
	}
	files, bytes := 0, int64(0)
	err := b.packs.Each(func(f core.BackupFile, content io.ReaderAt) error {
		if err := b.sink.File(f); err != nil {
			return err
		}
		files++
		bytes += f.Size
		return b.content(f.Digest.String(), content, f.Size)
	})
	if err == nil && files > 0 {
		b.n.o.Logger.Info("packs backed up", "files", files, "bytes", bytes)
	}
	return err
}
