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

// Source is content that is read from files, and read again when they change.
type Source struct {
	Name  string   // for the log
	Files []string // that it is made of
	// Load reads the files. It returns what a log line should tell of a change; none: nothing has changed. An error leaves what
	// was in force.
	Load func() (change []any, err error)

	mu sync.Mutex // one read at a time; guards the fields below
	// The files at the last look.
	seen []look
	// The files when they were read last, whether that succeeded or not.
	done []look
	// When to read again even if the files look the same, by the boot clock; 0: not at all.
	again time.Duration
	// When the content in force was read, by the boot clock.
	readAt time.Duration
	// Why the files are not in force; empty: they are.
	refused string
	// reads and failures count since the start; see SourceStats.
	reads    uint64
	failures uint64
}

// look is what one look found of a file: its stamp, or that it does not exist.
type look struct {
	stamp env.Stamp
	gone  bool
}

// SourceStats are the counters of one source.
type SourceStats struct {
	Name     string
	Age      time.Duration // since what is in force was read
	Refused  bool          // the files are not in force
	Reads    uint64        // that found something new
	Failures uint64        // reads that were refused
}

// Watcher reads sources again when their files change. A file may be written in place, replaced, or
// be a link that is changed. A file that is being written is not read until two looks in a row have
// found it the same.
type Watcher struct {
	fs      env.FS
	clock   env.Clock
	log     *slog.Logger
	sources []*Source
	stop    func()
}

// Watch starts to watch sources whose files have just been read. Close ends it. At the first look
// each source is read once more, in case its files changed in between.
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

// look reads a source's files if they have changed since they were read last and are at rest, or if
// another try is due. One goroutine calls it, every watchEvery.
func (w *Watcher) look(s *Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Two looks in a row must agree, and differ from what was read last.
	before := s.seen
	s.seen = w.stamps(s)
	due := s.again != 0 && w.clock.Boot() >= s.again
	if !slices.Equal(s.seen, before) || slices.Equal(s.seen, s.done) && !due {
		return
	}
	_ = w.load(s, false) // it has logged what is wrong
}

// load reads the files as they were seen. The caller holds s.mu. After a failure it plans another
// try; after a change it plans one more read, as the stamps of some file systems are coarse. asked
// says that an operator asked for it, so the log tells the result even if it is the same as before.
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
