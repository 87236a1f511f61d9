package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// The order in which state and log are exchanged, so that a start finds one or the other whole: a marker names the snapshot,
// the state is exchanged at one instant, the log restarts. A start that finds a marker and the state that it names
// finishes with the log, if that had not restarted; with any other state there is nothing to do. Then the marker goes.

// installing is an exchange of the state by the applier. The append that waits for it restarts the log.
type installing struct {
	// What is installed; its files are there and verified.
	fetch *fetch
	// The restart of the log; nil: Raft has not handed it out.
	append *appendWait
}

// restore takes in a snapshot that is whole.
func (s *shard) restore(f *fetch) error {
	in := &installing{fetch: f}
	s.snap.installing = in
	out, err := s.loop.core.Restore(f.offer)
	if err == nil {
		if err := s.handOut(out); err != nil {
			return err
		}
	}
	if in.append == nil {
		s.n.o.Logger.Info("snapshot is not needed any more", "shard", s.id, "index", f.snap.Index, "error", err)
		s.snap.installing = nil
		s.n.cleanUp(f.dir)
	}
	return nil
}

// exchange has the applier exchange the state; w may be submitted when that is done.
func (s *shard) exchange(w *appendWait) error {
	in := s.snap.installing
	if index, _ := w.a.Snapshot(); in == nil || in.append != nil || in.fetch.offer.Index != index {
		return fmt.Errorf("the log goes on from a snapshot at %d that was not fetched", index)
	}
	in.append = w
	if s.n.o.Manual {
		return s.install(in)
	}
	s.handOver(applierWork{install: in})
	return nil
}

// install exchanges the state, in the applier.
func (s *shard) install(in *installing) error {
	f := in.fetch
	marker := s.n.markerFile(s.id)
	if err := s.n.writeMarker(marker, f.offer.Index, f.offer.Term); err != nil {
		return fmt.Errorf("mark a snapshot: %w", err)
	}
	if err := fault.Point("node.snapshot_marked"); err != nil {
		return err
	}
	s.applier.machineMu.Lock()
	err := s.installPatiently(f)
	var m *commit.Machine
	if err == nil {
		m, err = s.openMachine()
	}
	if err == nil {
		err = s.loadPoints(m)
	}
	if err != nil {
		s.applier.machineMu.Unlock()
		return fmt.Errorf("install snapshot at entry %d: %w", f.snap.Index, err)
	}
	conf, err := s.n.readConf(s.store)
	if err != nil {
		s.applier.machineMu.Unlock()
		return fmt.Errorf("install snapshot at entry %d: %w", f.snap.Index, err)
	}
	s.view.conf.Store(&conf)
	s.applier.machine = m
	s.view.due.Store(int64(m.Due()))
	s.view.crons.Store(int64(m.CronDue()))
	s.saw(m.LastStamp())
	s.view.shifted.Store(int64(m.Shift()))
	s.hashes.restart()
	s.applier.machineMu.Unlock()
	if s.id == 0 {
		if err := s.n.takeFormat(m.Format()); err != nil {
			return err
		}
		s.n.learn(m.Members())
		if err := s.n.recheckNamespaces(); err != nil {
			return err
		}
	}
	if err := fault.Point("node.snapshot_installed"); err != nil {
		return err
	}
	s.snap.count.installed.Add(1)
	s.n.o.Logger.Info("snapshot installed", "shard", s.id, "index", f.snap.Index, "keys", f.snap.Keys)
	s.publish(f.snap.Index)
	s.waits.wakeAll() // what they wait for may have happened within what was skipped
	s.in.install(in)
	s.poke()
	return nil
}

// installPatiently waits for room while the disk is full.
func (s *shard) installPatiently(f *fetch) error {
	for {
		err := s.store.Install(f.dir, f.snap)
		if err == nil || !store.IsFull(err) || s.n.o.Manual {
			return err
		}
		s.n.o.Logger.Warn("no room for a snapshot", "shard", s.id, "error", err)
		timer := s.n.o.Clock.NewTimer(time.Second)
		select {
		case <-timer.C():
		case <-s.n.stopping:
			timer.Stop()
			return err
		}
	}
}

// restarted forgets a snapshot behind which the log has restarted.
func (s *shard) restarted() {
	s.n.cleanUp(s.snap.installing.fetch.dir)
	s.snap.installing = nil // the marker stays: a start finds the log behind it, and the next snapshot writes another
}

// markerPrefix begins the name of a marker; the shard's number follows.
const markerPrefix = "install-"

// markerFile is the path of a shard's marker in this node's directory.
func (n *Node) markerFile(id core.ShardID) string { return markerFile(n.o.Dir, id) }

// markerFile is the path of a shard's marker below a data directory.
func markerFile(dir string, id core.ShardID) string {
	return filepath.Join(dir, snapshotsDir, fmt.Sprint(markerPrefix, id))
}

// Installing reports whether a data directory, whose server does not run, is marked as being given the state of a shard at
// index: the log may end before it then, until the next start.
func Installing(fsys env.FS, dir string, id core.ShardID, index uint64) bool {
	marked, _, err := readMarker(fsys, markerFile(dir, id))
	return err == nil && marked == index
}

// markerLen is the length of a marker: index, term and a CRC-32C of both, big-endian.
const markerLen = 8 + 8 + 4

// castagnoli is the table of CRC-32C. It is not changed.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeMarker makes a marker durably, under its name only when it is whole.
func (n *Node) writeMarker(name string, index, term uint64) error {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, index), term)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	f, err := n.snapFS.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := n.snapFS.Rename(name+".tmp", name); err != nil {
		return err
	}
	return env.SyncDir(n.snapFS, filepath.Dir(name))
}

// readMarker reads a marker and checks its checksum.
func readMarker(fsys env.FS, name string) (index, term uint64, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, markerLen)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, 0, err
	}
	if crc32.Checksum(b[:16], castagnoli) != binary.BigEndian.Uint32(b[16:]) {
		return 0, 0, errs.Corruptf("%s has a wrong checksum", name)
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), nil
}

// finishInstalls does at a start what an end within an exchange left to do, and clears the directory of snapshots.
func (n *Node) finishInstalls() error {
	dir := filepath.Join(n.o.Dir, snapshotsDir)
	names, err := n.snapFS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return n.makeSnapshotsDir(dir)
	}
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		var id uint16
		if _, err := fmt.Sscanf(name, markerPrefix+"%d", &id); err == nil && !strings.HasSuffix(name, ".tmp") {
			if err := n.finishInstall(core.ShardID(id), path); err != nil {
				return fmt.Errorf("finish a snapshot of shard %d: %w", id, err)
			}
		}
		n.removeTree(path)
		_ = n.snapFS.Remove(path)
	}
	return nil
}

// makeSnapshotsDir makes the directory of snapshots, durably: a marker within it must not vanish with it.
func (n *Node) makeSnapshotsDir(dir string) error {
	if err := n.snapFS.MkdirAll(dir); err != nil {
		return fmt.Errorf("make directory of snapshots: %w", err)
	}
	if err := env.SyncDir(n.snapFS, n.o.Dir); err != nil {
		return fmt.Errorf("make directory of snapshots: %w", err)
	}
	return nil
}

// finishInstall restarts the log behind a state that was exchanged, if the marker names that state.
func (n *Node) finishInstall(id core.ShardID, marker string) error {
	index, term, err := readMarker(n.snapFS, marker)
	if err != nil {
		return err
	}
	st, err := n.o.Store.Shard(id)
	if err != nil {
		return err
	}
	if applied, _ := st.Applied(); applied != index {
		return nil // the state had not been exchanged, or has gone on since
	}
	return replog.FinishRestore(n.o.Log, id, index, term)
}
