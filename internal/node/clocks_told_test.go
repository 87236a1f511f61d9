package node

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env/envtest"
)

// said is a log that may be read while it is written.
type said struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// TestTheLogTellsWhenShardTimeAndTheWallClockPart: a clock that was wrong is worth a look, because what ran meanwhile was stamped
// by it.
func TestTheLogTellsWhenShardTimeAndTheWallClockPart(t *testing.T) {
	clock := envtest.NewClock(time.UnixMilli(1_700_000_000_000))
	var log said
	l := openLong(t, longOptions{clock: clock, node: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	defer func() { l.close() }()
	says := func(text string, n int, ahead time.Duration) {
		t.Helper()
		for range 3 {
			l.pass(time.Second)
		}
		if got := log.count(text); got != n {
			t.Errorf("the log says %d times %q, want %d:\n%s", got, text, n, log.b.String())
		}
		if got := l.node.Stats().Shards[0].Ahead.Round(time.Second); got != ahead {
			t.Errorf("shard time is told to be ahead by %v, want %v", got, ahead)
		}
	}
	says("wall clock", 0, 0)
	clock.StepWall(2 * time.Second)
	says("wall clock", 0, -2*time.Second) // a step that needs no words
	clock.StepWall(time.Hour - 2*time.Second)
	says("behind the wall clock", 1, -time.Hour)
	says("behind the wall clock", 1, -time.Hour)
	clock.StepWall(-time.Hour)
	says("agree again", 1, 0)
	clock.StepWall(24 * time.Hour)
	says("behind the wall clock", 2, -24*time.Hour)
	l.restart()
	says("behind the wall clock", 3, -24*time.Hour) // a start tells it too, and shard time does not step to the clock
	clock.StepWall(-48 * time.Hour)
	says("ahead of the wall clock", 1, 24*time.Hour)
	says("run_at and what is shown follow the wall clock", 4, 24*time.Hour)
	l.restart()
	says("ahead of the wall clock", 2, 24*time.Hour)
}
