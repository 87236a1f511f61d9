package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// fetch is a snapshot on its way here: its files are filled in order, a part at a time. It is the worker's.
type fetch struct {
	// The shard that needs it.
	s *shard
	// The newest offer of it, which Restore is given.
	offer *replog.Offer
	// What its files are, with their sizes and checksums.
	snap store.Snapshot
	// Directory of the files here, which go with it.
	dir string

	// The place of the part that comes next.
	at snapshotPlace
	// The file that is being filled; nil: none yet.
	out env.File
	// When the next part is asked for again.
	await await
	// Boot time when a part came, even one that was here already.
	heard time.Duration
	// Boot time when the leader was last told anything.
	said time.Duration
	// Bytes that may still be asked for until the next tick.
	room int64
	// All has come; the files are being verified, or are.
	whole bool
}

// takeOffer looks at a snapshot that the leader offers, and begins to fetch it.
func (s *shard) takeOffer(o *replog.Offer) {
	snap, err := store.ParseSnapshot(o.Data)
	switch {
	case err != nil:
	case snap.Shard != s.id || snap.Index != o.Index:
		err = fmt.Errorf("it is of shard %d at entry %d, not of %d at %d", snap.Shard, snap.Index, s.id, o.Index)
	case s.snap.installing != nil || s.n.full.Load():
		return // it is offered again
	default:
		s.n.later(func() { s.beginFetch(o, snap) })
		return
	}
	s.n.o.Logger.Warn("offer of a snapshot makes no sense", "shard", s.id, "from", o.From, "error", err)
}

// beginFetch begins to fetch a snapshot, unless it is on its way already. Another one takes the place of one that is
// not whole.
func (s *shard) beginFetch(o *replog.Offer, snap store.Snapshot) {
	if f := s.snap.fetch; f != nil {
		if f.offer.From == o.From && f.snap.Index == snap.Index {
			f.offer = o // it goes on where it was
			return
		}
		if f.whole {
			return // it is offered again, should that one be of no use
		}
		f.abandon("another one is offered")
	}
	now := s.n.o.Clock.Boot()
	f := &fetch{
		s: s, offer: o, snap: snap, dir: s.n.snapshotDir("in", s.id), at: snapshotPlace{index: snap.Index}, heard: now,
		await: newAwait(),
	}
	if err := s.n.snapFS.MkdirAll(f.dir); err != nil {
		s.n.o.Logger.Warn("fetch of a snapshot", "shard", s.id, "error", err)
		return
	}
	s.n.o.Logger.Info("snapshot is fetched", "shard", s.id, "from", o.From, "index", snap.Index, "files", len(snap.Files))
	s.snap.fetch = f
	s.snap.fetching.Store(true)
	s.n.fetches++
	f.room = s.n.fetchRoom()
	f.ask(now)
}

// fetchRoom is how many bytes may come to each shard that fetches, between two ticks.
func (n *Node) fetchRoom() int64 {
	return max(n.o.SnapshotRate*int64(n.o.TickEvery)/int64(time.Second)/max(n.fetches, 1), int64(n.o.SnapshotPart))
}

// over ends a fetch, whose files are to be installed or to go.
func (f *fetch) over() {
	f.s.snap.fetch = nil
	f.s.snap.fetching.Store(false)
	f.s.n.fetches--
}

// ask asks for the next part, unless as much has come as may.
func (f *fetch) ask(now time.Duration) {
	if f.room <= 0 {
		return
	}
	f.await.ask(now)
	f.say(f.at, now)
}

// say tells the leader a place in the snapshot, which it sends the part of. That behind the last file has none.
func (f *fetch) say(p snapshotPlace, now time.Duration) {
	f.said = now
	f.s.n.send(f.offer.From, f.s.id, Control, p.append([]byte{peerSnapshotAsk}))
}

// tickFetch asks again for what did not come, and gives up a leader that does not answer.
func (s *shard) tickFetch(now time.Duration) {
	f := s.snap.fetch
	switch {
	case f == nil:
	case f.whole:
		f.stay(now)
	case now-f.heard >= leaderSilence:
		f.abandon("its leader does not answer")
	default:
		f.room = s.n.fetchRoom()
		if f.await.due(now) {
			f.ask(now)
		}
		f.stay(now)
	}
}

// stay tells the leader, now and then, that the snapshot is still needed: while a part is waited for, and while all of them
// are verified, which of a large state takes longer than the leader waits for a question.
func (f *fetch) stay(now time.Duration) {
	if now-f.said >= askSilence/3 {
		f.say(snapshotPlace{f.snap.Index, uint32(len(f.snap.Files)), 0}, now)
	}
}

// takePart takes in a part, if it is the one that comes next.
func (s *shard) takePart(from uint64, msg []byte) {
	f := s.snap.fetch
	p, data, ok := readPlace(msg)
	if f == nil || f.whole || !ok || from != f.offer.From || p.index != f.at.index || len(data) == 0 {
		return
	}
	now := s.n.o.Clock.Boot()
	f.heard = now
	if p != f.at {
		return
	}
	f.await.came(now)
	if err := f.take(data); err != nil {
		f.abandon(err.Error())
		return
	}
	f.room -= int64(len(data))
	if int(f.at.file) < len(f.snap.Files) {
		f.ask(now)
		return
	}
	f.whole = true
	s.verify(f)
}

// verify has the files of a fetch verified in parallel: other work with files goes on meanwhile.
func (s *shard) verify(f *fetch) {
	if s.n.o.Manual {
		s.verified(f, s.n.o.verify(s.store, f.dir, f.snap))
		return
	}
	s.n.upkeep.Go(func() {
		err := s.n.o.verify(s.store, f.dir, f.snap)
		select {
		case s.n.files <- func() { s.verified(f, err) }: // not dropped: it comes once
		case <-s.n.stopping:
		}
	})
}

// verified gives a fetch to the loop, if its files are what they should be.
func (s *shard) verified(f *fetch, err error) {
	if err != nil {
		f.abandon(err.Error())
		return
	}
	f.over()
	select {
	case s.snap.fetched <- f:
		s.poke()
	default: // another one waits to be installed
		s.n.removeTree(f.dir)
	}
}

// take writes a part behind those that came before.
func (f *fetch) take(data []byte) (err error) {
	file := f.snap.Files[f.at.file]
	if uint64(len(data)) > uint64(file.Size)-f.at.offset {
		return errors.New("a part is longer than its file")
	}
	fsys := f.s.n.snapFS
	if f.out == nil {
		if f.out, err = fsys.Create(filepath.Join(f.dir, file.Name)); err != nil {
			return err
		}
	}
	if _, err := f.out.Write(data); err != nil {
		return err
	}
	if f.at.offset += uint64(len(data)); f.at.offset < uint64(file.Size) {
		return nil
	}
	out := f.out
	f.out, f.at.offset = nil, 0
	f.at.file++
	if err := out.Sync(); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// abandon gives a fetch up: its files go, and the leader offers again.
func (f *fetch) abandon(why string) {
	f.s.n.o.Logger.Warn("snapshot was not fetched", "shard", f.s.id, "from", f.offer.From, "index", f.snap.Index, "why", why)
	if f.out != nil {
		_ = f.out.Close() // the file goes too
	}
	f.over()
	f.s.n.removeTree(f.dir)
}
