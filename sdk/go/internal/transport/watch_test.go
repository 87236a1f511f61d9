package transport

import (
	"testing"

	"github.com/millrace/millrace/sdk/go/internal/retry"
)

func TestMovesWaitLongerOnceAllNodesWereTried(t *testing.T) {
	for moves := range 3 {
		if d := moveWait(moves, 3); d > moveWithin {
			t.Errorf("move %d waits %v, want at most %v", moves, d, moveWithin)
		}
	}
	longest := moveWait(60, 3)
	for range 50 {
		longest = max(longest, moveWait(60, 3))
	}
	if longest < 2*moveWithin || longest > moveWithin/2+retry.Max {
		t.Errorf("after 20 rounds a move waits %v at most", longest)
	}
}
