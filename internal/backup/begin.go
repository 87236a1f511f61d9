package backup

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/store"
)

// Options of what makes data directories. A zero field means its default.
type Options struct {
	Store  store.Options // FS is beneath everything; Dir is set by this package
	Clock  env.Clock     // default the machine's
	Rand   env.Rand      // default the machine's
	Logger *slog.Logger  // default none
	// Prepare writes what else the directory holds, before a server can start on it.
	Prepare func(shards int) error
}

func (o Options) withDefaults() Options {
	if o.Store.FS == nil {
		o.Store.FS = store.SystemFS()
	}
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Store.Clock, o.Store.Logger = o.Clock, o.Logger
	return o
}

// Names in a data directory that its servers know.
const (
	// storeDir has the state of every shard (package store), logDir the log of all shards (package
	// replog).
	storeDir = "store"
	logDir   = "wal"
)

// segmentBytes is the size of the segments of logs that hold nothing yet.
const segmentBytes = 1 << 20

// beginning is where the log of a shard begins: behind the state.
//
// A restored or recovered shard has no entries: the first one of its new history is the one behind
// index, of the given term or a later one. term is above every term that the directory knows of.
type beginning struct {
	shard core.ShardID
	index uint64
	term  uint64
}

// breakOff breaks the history of a shard off at its state: what follows is told apart from what came after that state
// elsewhere, and is this server's alone. term is the highest that is known.
//
// The machine writes the floor into the state under an index of its own, one beyond what was
// applied. If the process dies after that, the next attempt breaks off once more, further on, which
// does no harm: a server starts only when the whole directory is done.
func breakOff(st *store.Shard, id core.ShardID, term uint64, now time.Time) (beginning, error) {
	m := commit.New(commit.Options{Shard: id})
	if err := st.View(m.Open); err != nil {
		return beginning{}, fmt.Errorf("open the state: %w", err)
	}
	applied, _ := st.Applied()
	index := max(applied, replog.FirstIndex) + 1
	// Microseconds: later than any other restore gave out, and more than a partition gives out in that time.
	err := st.Apply(index, func(tx *store.Txn) error {
		m.BreakOff(tx, uint64(max(now.UnixMicro(), 0)))
		return nil
	})
	if err != nil {
		return beginning{}, fmt.Errorf("break the history off: %w", err)
	}
	said, _ := m.Term()
	return beginning{id, index, max(term, said, replog.FirstTerm) + 1}, nil
}

// beginLogs makes a log in dir that begins where the shards say. If the process dies on the way,
// the next attempt removes what is there.
func beginLogs(fsys env.FS, clock env.Clock, dir string, begin []beginning) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	log, err := replog.OpenLog(replog.LogOptions{FS: fsys, Clock: clock, Dir: dir, SegmentBytes: segmentBytes})
	if err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	for _, b := range begin {
		if err := replog.Reset(log, b.shard, b.index, b.term); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	if err := log.Close(); err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	return env.SyncDir(fsys, filepath.Dir(dir))
}

// fullEvery is how often a write that takes long is asked whether it waits for room on the disk.
const fullEvery = 100 * time.Millisecond

// errNoRoom says that the disk became full.
var errNoRoom = errors.New("no room on the disk")

// flush makes a store durable. It does not wait for room: a full disk ends it.
func flush(st *store.Store, clock env.Clock) error {
	done := make(chan error, 1)
	go func() { done <- st.Flush() }() // ended by Close too
	timer := clock.NewTimer(fullEvery)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case err := <-st.Err():
			return err
		case <-timer.C():
			if st.Full() {
				return errNoRoom
			}
			timer.Reset(fullEvery)
		}
	}
}
