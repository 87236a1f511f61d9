package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Store is the state of all shards of one node.
type Store struct {
	// o has its defaults filled in.
	o  Options
	db *pebble.DB
	// disk is the file system that the database writes through.
	disk *patientFS
	// use counts the calls that use the database.
	use usage

	closed atomic.Bool

	mu     sync.Mutex // guards shards and order
	shards map[core.ShardID]*Shard
	order  []*Shard // by id; replaced, never changed
	// limit is the size in bytes at which a shard's layer is written out. It falls as shards are
	// added.
	limit atomic.Int64

	fileBytes uint64 // at which a file of a snapshot ends
	mostFiles int    // of one snapshot

	kick    chan struct{} // work for the writer goroutine
	event   chan struct{} // a flush or compaction of the database ended
	stop    chan struct{} // closed when Close begins
	closing chan struct{} // closed when waiting for disk space ends
	stopped chan struct{} // closed when the writer goroutine is gone

	// flushAsked is set by RequestFlush. The writer goroutine takes it back before it writes.
	flushAsked atomic.Bool
	flushes    atomic.Uint64 // flushes of the database that ended well

	failOnce sync.Once
	failure  error         // set before dead is closed
	dead     chan struct{} // closed by the first failure that cannot be survived
	// errC delivers the failure. It has room for one, and fail sends one.
	errC chan error

	counts counts
}

// Open opens the store in o.Dir, or makes it.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, errors.New("open store: no directory given")
	}
	s := &Store{
		o: o, shards: map[core.ShardID]*Shard{}, fileBytes: exportFileBytes, mostFiles: maxSnapshotFiles,
		kick: make(chan struct{}, 1), event: make(chan struct{}, 1),
		stop: make(chan struct{}), closing: make(chan struct{}), stopped: make(chan struct{}),
		dead: make(chan struct{}), errC: make(chan error, 1),
	}
	s.use.idle = make(chan struct{})
	s.limit.Store(o.layerLimit(1))
	s.disk = &patientFS{FS: o.FS, clock: o.Clock, closing: s.closing, dead: s.dead, cause: s.err}
	e := o.engineOptions()
	e.FS = s.disk
	e.Logger = logger{o.Logger, s.fail}
	e.EventListener = s.listener()
	db, err := pebble.Open(o.Dir, e)
	if err != nil {
		close(s.closing)
		return nil, describeOpen(o, err)
	}
	s.db = db
	if o.Manual {
		close(s.stopped)
	} else {
		go s.run()
	}
	return s, nil
}

// listener follows what the database does. Its functions run while the database holds its lock, and
// do not wait. What the database reports in the background ends the store's use, but for want of
// room and a compaction that was cancelled.
func (s *Store) listener() *pebble.EventListener {
	ended := func() {
		select {
		case s.event <- struct{}{}:
		default:
		}
	}
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			switch {
			case IsFull(err):
				s.o.Logger.Warn("disk is full", "err", err)
			case errors.Is(err, pebble.ErrCancelledCompaction):
			default:
				s.fail(describe("write in the background", err))
			}
			ended()
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.fail(describe("file "+info.Path, info.Details))
		},
		FlushEnd: func(info pebble.FlushInfo) {
			s.flushes.Add(1)
			ended()
		},
		CompactionEnd: func(pebble.CompactionInfo) { ended() },
	}
}

// fail ends the use of the store: nothing is written any more, and Err tells why.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failure = err
		close(s.dead)
		s.errC <- err
	})
}

// err returns the failure that ended the store's use, if any.
func (s *Store) err() error {
	select {
	case <-s.dead:
		return s.failure
	default:
		return nil
	}
}

// ended says why work on the store cannot go on, if it cannot.
func (s *Store) ended() error {
	if err := s.err(); err != nil {
		return fmt.Errorf("store has stopped: %w", err)
	}
	if s.closed.Load() {
		return ErrClosed
	}
	return nil
}

// usable is ended for work that does not wait for a full disk.
func (s *Store) usable() error {
	if err := s.ended(); err != nil {
		return err
	}
	if s.Full() {
		return errFull
	}
	return nil
}

// Err delivers the first error that ends the use of the store: a failed write other than for want of room, or damage.
// Nothing is applied after it; the node is expected to end.
func (s *Store) Err() <-chan error { return s.errC }

// Full reports whether the disk is so full that the store's writes wait. They go on by themselves when there is room.
func (s *Store) Full() bool { return s.disk.full() }

// FS returns the file system beneath the store, for whatever else is durable.
func (s *Store) FS() env.FS { return NewFS(s.o.FS) }

// Shard returns a shard, made on first use; afterwards it is always the same one.
func (s *Store) Shard(id core.ShardID) (*Shard, error) {
	if !s.use.enter() {
		return nil, ErrClosed
	}
	defer s.use.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shards[id]; sh != nil {
		return sh, nil
	}
	sh, err := newShard(s, id)
	if err != nil {
		return nil, fmt.Errorf("open shard %d: %w", id, err)
	}
	s.shards[id] = sh
	s.order = sortedShards(s.shards)
	s.limit.Store(s.o.layerLimit(len(s.order)))
	return sh, nil
}

// all returns the shards in use.
func (s *Store) all() []*Shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order
}

// Close waits for calls that run, writes what is in memory unless the disk is full, and closes the
// database. What it cannot write, the log brings back at the next start. In this order: the flag
// keeps new users out, the writer goroutine ends, the layers are flushed, all other waiting ends,
// and the last call that is inside leaves. Then nothing uses the database.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return ErrClosed
	}
	s.use.enter()
	close(s.stop)
	for _, sh := range s.all() {
		sh.wake()
	}
	<-s.stopped
	err := s.lastFlush()
	close(s.closing)
	s.use.leave()
	s.use.end()
	for _, sh := range s.all() {
		err = errors.Join(err, sh.tx.closePoints())
	}
	if dead := s.err(); dead != nil {
		_ = s.db.Close() // it reports what follows from the failure, which Err has delivered
		return nil
	}
	return errors.Join(err, describe("close database", s.db.Close()))
}

// usage counts the calls that use the database, so that it is closed after the last. end adds a
// large negative number to the count: from then on enter finds it below zero, and the call that
// brings it back to that number alone is the last.
type usage struct {
	n    atomic.Int64
	once sync.Once
	// idle is closed when end was called and no call is inside.
	idle chan struct{}
}

// ended is added to the count when no new call may enter.
const ended = -1 << 62

// enter reports whether the caller may go on. If so, the caller must call leave.
func (u *usage) enter() bool {
	if u.n.Add(1) > 0 {
		return true
	}
	u.leave()
	return false
}

// leave ends what enter began.
func (u *usage) leave() {
	if u.n.Add(-1) == ended {
		u.once.Do(func() { close(u.idle) })
	}
}

// end keeps calls out and waits for those inside.
func (u *usage) end() {
	if u.n.Add(ended) == ended {
		u.once.Do(func() { close(u.idle) })
	}
	<-u.idle
}
