package commit_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/commit"
)

// TestScripts runs the scripts of testdata: each entry on two replicas, one of which decodes it from its encoding.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w, err := newWorld(commit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.run(d)
			if err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			if out == "" {
				return "ok"
			}
			return out
		})
	})
}

// withoutClock drops the shard's own record from a dump: each entry has a stamp of its own.
func withoutClock(dump string) string {
	clock := hex.EncodeToString(keys.ShardTime()) + " "
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, clock) {
			b.WriteString(line)
		}
	}
	return b.String()
}
