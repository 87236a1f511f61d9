package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/env"
)

const (
	// watchEvery is how often files are looked at. A change is read when two looks have found the same: within two of these.
	watchEvery = 500 * time.Millisecond
	// settleAfter is when files are read once more after a change: some file systems stamp times no finer than this, so that a
	// later write may look like the one before.
	settleAfter = 2 * time.Second
	// retryAfter is when files that were refused are read again, though they look the same: what was wrong may have been a full
	// table of descriptors, or a time that had not come.
	retryAfter = 10 * time.Second
)

// Source is content that is made from files, and again when they change.
type Source struct {
	Name  string   // for the log
	Files []string // that it is made of
	// Load reads the files. It returns what a log line should tell of a change; none: nothing has changed. An error leaves what
	// was in force.
	Load func() (change []any, err error)

	mu       sync.Mutex // one read at a time; guards the fields below
	seen     []look     // at the last look
	done     []look     // when they were read last, whatever came of it
	again    time.Duration
	readAt   time.Duration // when what is in force was read, by the boot clock
	refused  string        // why the files are not in force; empty: they are
	reads    uint64
	failures uint64
}

// look is what one look found of a file: its stamp, or that it is not there.
type look struct {
	stamp env.Stamp
	gone  bool
}

// SourceStats are the figures of one source.
type SourceStats struct {
	Name     string
	Age      time.Duration // since what is in force was read
	Refused  bool          // the files are not in force
	Reads    uint64        // that found something new
	Failures uint64        // reads that were refused
}

// Watcher reads sources again when their files change. A file may be written in place, replaced by another, or be a link that
// is changed. What is being written when it is looked at is not read before two looks in a row have found the same.
type Watcher struct {
	fs      env.FS
	clock   env.Clock
	log     *slog.Logger
	sources []*Source
	stop    func()
}

// Watch looks after sources, whose files have been read just now, until Close.
func Watch(fsys env.FS, clock env.Clock, log *slog.Logger, sources ...*Source) *Watcher {
	w := &Watcher{fs: fsys, clock: clock, log: log, sources: sources, stop: func() {}}
	for _, s := range sources {
		s.readAt, s.again = clock.Boot(), clock.Boot() // and once more at the first look, for what happened in between
	}
	if len(sources) > 0 {
		w.stop = env.Every(clock, watchEvery, func() {
			for _, s := range w.sources {
				w.look(s)
			}
		})
	}
	return w
}

// Close ends the watch.
func (w *Watcher) Close() { w.stop() }

// Reload reads all files now, changed or not, and logs what it finds.
func (w *Watcher) Reload() error {
	var all []error
	for _, s := range w.sources {
		s.mu.Lock()
		s.seen = w.stamps(s)
		all = append(all, w.load(s, true))
		s.mu.Unlock()
	}
	return errors.Join(all...)
}

// Stats returns the figures of all sources.
func (w *Watcher) Stats() []SourceStats {
	out := make([]SourceStats, 0, len(w.sources))
	for _, s := range w.sources {
		s.mu.Lock()
		out = append(out, SourceStats{s.Name, w.clock.Boot() - s.readAt, s.refused != "", s.reads, s.failures})
		s.mu.Unlock()
	}
	return out
}

// look reads a source's files if they have changed, and are at rest.
func (w *Watcher) look(s *Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.seen
	s.seen = w.stamps(s)
	due := s.again != 0 && w.clock.Boot() >= s.again
	if !slices.Equal(s.seen, before) || slices.Equal(s.seen, s.done) && !due {
		return
	}
	_ = w.load(s, false) // it has logged what is wrong
}

// load reads the files as they were seen. s.mu is held.
func (w *Watcher) load(s *Source, asked bool) error {
	now, first := w.clock.Boot(), !slices.Equal(s.seen, s.done)
	change, err := s.Load()
	s.done, s.again = s.seen, 0
	if err != nil {
		s.again = now + retryAfter
		s.failures++
		if why := fmt.Sprint(err); asked || s.refused != why {
			s.refused = why
			w.log.Error(s.Name+": the files are refused, what was read before stays in force", "err", err)
		}
		return err
	}
	if first {
		s.again = now + settleAfter
	}
	mended := s.refused != ""
	s.refused, s.readAt = "", now
	if len(change) > 0 {
		s.reads++
		w.log.Info(s.Name+": read again, in force", change...)
	} else if asked || mended {
		w.log.Info(s.Name + ": read again, nothing has changed")
	}
	return nil
}

// stamps looks at a source's files.
func (w *Watcher) stamps(s *Source) []look {
	out := make([]look, len(s.Files))
	for i, name := range s.Files {
		stamp, err := w.fs.Stamp(name)
		out[i] = look{stamp, errors.Is(err, fs.ErrNotExist)}
	}
	return out
}
