//go:build faults

package wal_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// points are all fault points of the package.
var points = []string{
	"wal.append", "wal.archive", "wal.create", "wal.open", "wal.recycle", "wal.rotate", "wal.seal", "wal.synced",
	"wal.write", "wal.written",
}

func TestFaultAtAnyPointLosesNothingAcknowledged(t *testing.T) {
	defer fault.Set(nil)
	planted := errors.New("planted")
	for _, point := range points {
		for _, nth := range []int{1, 2, 7} {
			disk, clock := replogtest.NewDisk(), &replogtest.HandClock{}
			reached := 0
			fault.Set(func(name string) error {
				if !slices.Contains(points, name) {
					t.Errorf("%s is not in the list", name)
				}
				if name == point {
					if reached++; reached == nth {
						return planted
					}
				}
				return nil
			})
			o := small(disk)
			o.Clock, o.ArchiveDir = clock, "/archive"
			h := &history{}
			l, err := wal.Open(o)
			if err == nil {
				w := newLoad(uint64(nth), l, clock)
				h = w.h
				for range 600 {
					if err := w.step(); err != nil {
						if point == "wal.append" && errors.Is(err, planted) {
							h.steps = h.steps[:len(h.steps)-1] // refused, so it is not in the log
						}
						break
					}
				}
				for l.Step() {
				}
				_ = l.Close()
			}
			if reached < min(nth, 2) && (point != "wal.open" || nth == 1) {
				t.Errorf("%s was reached %d times", point, reached)
			}
			fault.Set(nil)
			o.FS = disk.Crash(0, uint64(nth))
			if l, err = wal.Open(o); err != nil {
				t.Fatalf("%s: does not open: %v", point, err)
			}
			if _, why := h.matches(t, l); why != "" {
				t.Fatalf("%s, time %d: %s", point, nth, why)
			}
			_ = l.Close()
		}
	}
}
