package retry

import (
	"testing"
	"time"
)

func TestANodeThatKnowsOfNoLeaderIsGivenMoreTimeOnceAllWereAsked(t *testing.T) {
	var u Unled
	now := time.Unix(1000, 0)
	stays := func() (d time.Duration) {
		for at := []string{"n1", "n2"}[u.left%2]; !u.Leave(at, 2, now); d += 50 * time.Millisecond {
			now = now.Add(50 * time.Millisecond)
		}
		return d
	}
	for i, want := range []time.Duration{unledFor, unledFor, 2 * unledFor, 2 * unledFor, 4 * unledFor} {
		if got := stays(); got != want {
			t.Errorf("node %d in a row is left after %v, want %v", i+1, got, want)
		}
	}
	for range 30 {
		if got := stays(); got > unledForMax {
			t.Fatalf("a node is left after %v, want %v at most", got, unledForMax)
		}
	}
	now = now.Add(2 * unledApart)
	if got := stays(); got != unledFor {
		t.Errorf("long after that a node is left after %v, want %v", got, unledFor)
	}
	if u = (Unled{}); u.Leave("n", 1, now) || u.Leave("n", 1, now.Add(time.Hour)) {
		t.Error("the only node is left")
	}
}
