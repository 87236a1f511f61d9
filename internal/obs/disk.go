package obs

import (
	"time"

	"github.com/millrace/millrace/internal/env"
)

// NewSyncTimes makes a histogram of microseconds that suits the times of a disk's syncs: from 32 µs to 4 s.
func NewSyncTimes() *Histogram { return NewHistogram(32, 18) }

// TimeSyncs returns fs with files that note in h how many microseconds each SyncData took that succeeded. It is the seam
// at which a log's syncs are timed; the log itself knows nothing of it.
func TimeSyncs(fs env.FS, clock env.Clock, h *Histogram) env.FS { return timedFS{fs, clock, h} }

// timedFS wraps the files that are opened for writing; the others are not synced.
type timedFS struct {
	env.FS
	clock env.Clock
	h     *Histogram
}

func (f timedFS) Create(name string) (env.File, error) { return f.file(f.FS.Create(name)) }

func (f timedFS) OpenReadWrite(name string) (env.File, error) {
	return f.file(f.FS.OpenReadWrite(name))
}

func (f timedFS) file(file env.File, err error) (env.File, error) {
	if err != nil {
		return nil, err
	}
	return timedFile{file, f.clock, f.h}, nil
}

// timedFile times the syncs of one file.
type timedFile struct {
	env.File
	clock env.Clock
	h     *Histogram
}

func (f timedFile) SyncData() error {
	begin := f.clock.Boot()
	err := f.File.SyncData()
	if err == nil {
		f.h.Observe(uint64((f.clock.Boot() - begin) / time.Microsecond))
	}
	return err
}
