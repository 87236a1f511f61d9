package retry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWaitsAreAsTheVectorsSay draws each wait many times: none is longer than the vector says, and some come near it.
func TestWaitsAreAsTheVectorsSay(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "proto", "conformance", "backoff.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Server, Away []int } // the longest wait before each try, in milliseconds
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Server) == 0 || len(file.Away) == 0 {
		t.Fatal("the file lacks vectors")
	}
	check := func(name string, wait func(n int) time.Duration, most []int) {
		for n, ms := range most {
			longest := time.Duration(0)
			for range 3000 {
				longest = max(longest, wait(n))
			}
			if limit := time.Duration(ms) * time.Millisecond; longest > limit || longest < limit*9/10 {
				t.Errorf("%s: the longest wait before try %d is %v, want %v", name, n, longest, limit)
			}
		}
	}
	check("server", Backoff, file.Server)
	check("away", Away, file.Away)
}
