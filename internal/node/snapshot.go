package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// How a replica that is behind the leader's log gets on: Raft asks its leader for a snapshot, the leader writes its state as
// files and offers them, the replica fetches them part by part (fetch.go), and when all are there and whole its state is
// exchanged for theirs and its log restarts behind them (install.go). A part that is lost is asked for again, so a broken
// connection costs nothing that had come. A leader that goes takes its files along; the next one offers its own.

const (
	// snapshotsDir holds, in the data directory, what is made, fetched and installed. Nothing in it outlives a start.
	snapshotsDir = "snapshots"
	// keepUnused is how long a snapshot is kept when no replica asks for it.
	keepUnused = 30 * time.Second
	// offerSilence is how long a leader waits for a request for an offer before it takes the offer for lost.
	offerSilence = time.Second
	// askSilence is after how long a replica is given up that neither asks for anything nor says that it waits.
	askSilence = 10 * time.Second
	// leaderSilence is after how long a leader is given up that sends nothing: longer than a connection may stand still before it
	// is closed, so that what had come by it is not fetched once more.
	leaderSilence = 30 * time.Second
	// remakeAfter is how long a leader waits before it tries again to make one.
	remakeAfter = time.Second
	// maxPartMessage bounds a message with a part, so that those that wait for their file take little memory.
	maxPartMessage = 512 << 10
	// fileWork is how many pieces of work with files wait; beyond that they are dropped, as a network drops.
	fileWork = 64
)

// snapshots is a shard's part in this.
type snapshots struct {
	// A snapshot that was made, for the loop; holds one.
	made chan madeSnapshot
	// A snapshot that is whole, to be installed; holds one.
	fetched chan *fetch

	// Snapshots made, bytes of them sent, and snapshots installed, since the start.
	count struct{ made, sent, installed atomic.Uint64 }

	// The log keeps what is behind this index; 0: nothing for a snapshot.
	hold atomic.Uint64
	// What followers can have; nil: nothing.
	serving atomic.Pointer[keptSnapshot]
	// A fetch is under way.
	fetching atomic.Bool

	// Of the loop.
	making     bool
	restAt     time.Duration            // boot time before which none is made
	offers     map[uint64]time.Duration // by replica that was offered the one kept: when
	installing *installing              // nil: none, and offers are looked at

	// The fetch under way; only the goroutine that works with files changes it.
	fetch *fetch
}

// keptSnapshot is a snapshot that followers can have.
type keptSnapshot struct {
	// What the files hold, and up to which index.
	snap store.Snapshot
	// The configuration of the shard at the snapshot's index.
	conf replog.Conf
	// Directory of the files, which are removed with it.
	dir string
	// Its files cannot be read: it is dropped at the next tick.
	lost atomic.Bool

	// Guards the fields below.
	mu sync.Mutex
	// Boot time at which any replica asked for a part last, or at which it was made.
	used time.Duration
	// By replica, the boot time at which it asked last.
	heard map[uint64]time.Duration
}

// ask notes that a replica asked for a part.
func (k *keptSnapshot) ask(from uint64, now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used, k.heard[from] = now, now
}

// last returns when a replica was last heard of, and when any was.
func (k *keptSnapshot) last(from uint64) (heard, used time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.heard[from], k.used
}

// madeSnapshot is what became of making one: a snapshot, or an error.
type madeSnapshot struct {
	// Set also with an error, since its directory is to be removed.
	kept *keptSnapshot
	// Term of the entry at the snapshot's index.
	term uint64
	// Why there is none; nil: kept can be offered.
	err error
}

// later does work with files outside the loops, in order; with Options.Manual at once.
func (n *Node) later(f func()) {
	if n.o.Manual {
		f()
		return
	}
	select {
	case n.files <- f:
	default:
	}
}

// workFiles does what later was given, until the node stops.
func (n *Node) workFiles() {
	defer n.upkeep.Done()
	for {
		select {
		case f := <-n.files:
			f()
		case <-n.stopping:
			return
		}
	}
}

// takeSnapshots takes in what was made, and what was fetched.
func (s *shard) takeSnapshots() error {
	select {
	case m := <-s.snap.made:
		s.keepSnapshot(m)
	default:
	}
	select {
	case f := <-s.snap.fetched:
		return s.restore(f)
	default:
	}
	return nil
}

// tickSnapshots does, with each tick, what a leader does for followers that need a snapshot.
func (s *shard) tickSnapshots(now time.Duration) {
	sn := &s.snap
	if sn.fetching.Load() {
		s.n.later(func() { s.tickFetch(now) })
	}
	k := sn.serving.Load()
	if !s.loop.leading {
		if k != nil {
			s.dropSnapshot(k)
		}
		return
	}
	if s.loop.core.SnapshotWanted() && !sn.making && now >= sn.restAt {
		if k != nil { // the log has gone on without it
			s.dropSnapshot(k)
			k = nil
		}
		s.makeSnapshot()
	}
	if k != nil {
		s.tickOffers(k, now)
	}
}

// tickOffers gives up replicas that do not take what they were offered, and in the end the snapshot.
func (s *shard) tickOffers(k *keptSnapshot, now time.Duration) {
	for _, f := range s.loop.core.Followers() {
		at, offered := s.snap.offers[f.Replica]
		if !offered {
			continue
		}
		heard, _ := k.last(f.Replica)
		switch {
		case f.Match >= k.snap.Index:
			delete(s.snap.offers, f.Replica)
		case heard < at && now-at >= offerSilence, now-max(at, heard) >= askSilence:
			delete(s.snap.offers, f.Replica)
			s.loop.core.SnapshotFailed(f.Replica)
		}
	}
	if _, used := k.last(0); len(s.snap.offers) == 0 && now-used >= keepUnused || k.lost.Load() {
		s.dropSnapshot(k)
	}
}

// makeSnapshot writes the state as files, outside the loop. What is in the log behind the state stays there meanwhile.
func (s *shard) makeSnapshot() {
	sn := &s.snap
	sn.making = true
	sn.hold.Store(s.view.applied.Load())
	dir := s.n.snapshotDir("out", s.id)
	work := func() {
		m := madeSnapshot{kept: &keptSnapshot{dir: dir, heard: map[uint64]time.Duration{}}}
		if m.kept.snap, m.err = s.store.Export(dir); m.err == nil {
			m.term, m.err = s.n.o.Log.Term(s.id, m.kept.snap.Index)
		}
		if m.err == nil {
			m.kept.conf, m.err = s.n.readConf(s.store)
		}
		if m.err == nil && m.kept.conf.Index > m.kept.snap.Index {
			m.err = errors.New("the configuration changed meanwhile")
		}
		sn.made <- m // there is one at a time
		s.poke()
	}
	if s.n.o.Manual {
		work()
		return
	}
	go work() // it ends soon when the store closes, which waits for it
}

// keepSnapshot offers what was made to those who need it.
func (s *shard) keepSnapshot(m madeSnapshot) {
	sn, now := &s.snap, s.n.o.Clock.Boot()
	sn.making = false
	if m.err == nil && !covers(m.kept.conf, s.loop.core.Conf()) {
		m.err = errors.New("it does not know who came meanwhile")
	}
	if m.err != nil || !s.loop.leading {
		if m.err != nil {
			s.n.o.Logger.Warn("snapshot not made", "shard", s.id, "error", m.err)
		}
		sn.restAt = now + remakeAfter
		sn.hold.Store(0)
		s.n.cleanUp(m.kept.dir)
		return
	}
	sn.count.made.Add(1)
	k := m.kept
	k.used = now
	sn.offers = map[uint64]time.Duration{}
	sn.hold.Store(k.snap.Index)
	sn.serving.Store(k)
	index := k.snap.Index
	s.loop.core.Keep(index, m.term, k.conf, k.snap.Append(nil))
	s.n.o.Logger.Info("snapshot made", "shard", s.id, "index", k.snap.Index, "keys", k.snap.Keys, "files", len(k.snap.Files))
}

// dropSnapshot ends all offers of a snapshot, and removes its files outside the loop. Raft is told, so that it asks
// again for those that still need one.
func (s *shard) dropSnapshot(k *keptSnapshot) {
	s.loop.core.Forget()
	for _, to := range slices.Sorted(maps.Keys(s.snap.offers)) {
		s.loop.core.SnapshotFailed(to)
	}
	s.snap.offers = nil
	s.snap.serving.Store(nil)
	s.snap.hold.Store(0)
	s.n.cleanUp(k.dir)
}

// snapshotPlace is a place in the files of a snapshot.
type snapshotPlace struct {
	// Index of the snapshot.
	index uint64
	// Position of the file in the list of the snapshot.
	file uint32
	// In the file, in bytes.
	offset uint64
}

// placeLen is the length of an encoded place: index, file and offset, big-endian.
const placeLen = 8 + 4 + 8

// append writes the place, as requests and parts name it.
func (p snapshotPlace) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, p.index)
	b = binary.BigEndian.AppendUint32(b, p.file)
	return binary.BigEndian.AppendUint64(b, p.offset)
}

// readPlace reads what append wrote; rest is what follows it.
func readPlace(b []byte) (p snapshotPlace, rest []byte, ok bool) {
	if len(b) < placeLen {
		return p, nil, false
	}
	return snapshotPlace{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint64(b[12:])}, b[placeLen:], true
}

// serveAsk answers a follower that asks for a part of a snapshot. Without an answer it asks again, and gives up in the end.
func (s *shard) serveAsk(from uint64, msg []byte) {
	p, rest, ok := readPlace(msg)
	k := s.snap.serving.Load()
	if !ok || len(rest) > 0 || k == nil || p.index != k.snap.Index {
		return
	}
	k.ask(from, s.n.o.Clock.Boot())
	if int(p.file) >= len(k.snap.Files) {
		return
	}
	file := k.snap.Files[p.file]
	if p.offset >= uint64(file.Size) {
		return
	}
	head := p.append([]byte{peerSnapshotPart})
	out := append(head, make([]byte, min(uint64(s.n.o.SnapshotPart), uint64(file.Size)-p.offset))...)
	if err := s.n.readPart(filepath.Join(k.dir, file.Name), out[len(head):], int64(p.offset)); err != nil {
		s.n.o.Logger.Warn("read part of a snapshot", "shard", s.id, "error", err)
		k.lost.Store(true)
		return
	}
	s.n.send(from, s.id, Parts, out)
	s.snap.count.sent.Add(uint64(len(out) - len(head)))
}

// readPart fills b with the bytes of a file from an offset on; fewer than that are an error.
func (n *Node) readPart(name string, b []byte, off int64) error {
	f, err := n.snapFS.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	_, err = f.ReadAt(b, off)
	return err
}

// snapshotDir names a directory that none was before in this run.
func (n *Node) snapshotDir(kind string, id core.ShardID) string {
	return filepath.Join(n.o.Dir, snapshotsDir, fmt.Sprintf("%s-%d-%d", kind, id, n.snapshots.Add(1)))
}

// cleanUp removes a directory of files that are not used any more, outside the loop that calls it.
func (n *Node) cleanUp(dir string) {
	if n.o.Manual {
		n.removeTree(dir)
		return
	}
	n.upkeep.Go(func() { n.removeTree(dir) })
}

// removeTree removes a directory of files. What cannot be removed is removed at the next start.
func (n *Node) removeTree(dir string) {
	names, err := n.snapFS.List(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		_ = n.snapFS.Remove(filepath.Join(dir, name))
	}
	_ = n.snapFS.Remove(dir)
}
