package node

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// A replica that applied something else than its leader stops when they compare their apply hashes, and says where.
func TestAReplicaThatAppliedSomethingElseStops(t *testing.T) {
	c := openCluster(t, 3, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := c.leader(ctx, 0, 0)
	lead.ns = c.ns
	bad := lead.node.o.Replica%3 + 1
	c.wires.mu.Lock()
	c.wires.alter = func(to uint64, msg []byte) {
		if at := bytes.Index(msg, []byte("innocent")); to == bad && at >= 0 {
			copy(msg[at:], "tampered")
		}
	}
	c.wires.mu.Unlock()
	lead.must(&core.KVPut{Keyspace: "ks", Key: []byte("key"), Value: []byte("innocent")})
	fatal := c.rigs[bad].node.Fatal()
	for n := 0; ; n++ {
		select {
		case err := <-fatal:
			if text := err.Error(); !strings.Contains(text, "shard 0") || !strings.Contains(text, "entry 1024") {
				t.Errorf("it stopped with %q", text)
			}
			return
		case <-ctx.Done():
			t.Fatalf("it goes on after %d entries", n)
		default:
			lead.must(&core.KVPut{Keyspace: "ks", Key: []byte("other"), Value: []byte("value")})
		}
	}
}
