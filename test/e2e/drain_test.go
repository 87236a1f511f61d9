package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/server"
)

// leads lists how many shards each node leads, by node.
func (c *nodes) leads() map[uint64]int {
	c.t.Helper()
	var s server.ClusterStatus
	_, body := fetch(c.t, "GET", c.admin(), "/cluster/status")
	noErr(c.t, json.Unmarshal([]byte(body), &s))
	out := make(map[uint64]int)
	for _, n := range s.Nodes {
		out[n.ID] = len(n.Leads)
	}
	return out
}

func TestADrainedNodeLeadsNothingUntilThatIsUndone(t *testing.T) {
	t.Parallel()
	c := growing(t, 3, 3)
	c.leader()
	ask := func(code int, args ...string) string {
		t.Helper()
		e := c.command(args...)
		if e.code != code {
			t.Fatalf("cluster %v: exit %d, want %d\n%s", args, e.code, code, e.out)
		}
		return e.out
	}
	ask(0, "balance")
	eventually(t, "each node leads one shard", func() bool { return fmt.Sprint(c.leads()) == "map[1:1 2:1 3:1]" })
	if said := ask(0, "drain", "n2"); !strings.Contains(said, "voter, drained") {
		t.Errorf("drain says\n%s", said)
	}
	if got := c.leads(); got[2] != 0 {
		t.Errorf("node 2 is drained, and the nodes lead %v", got)
	}
	eventually(t, "the others lead what it led", func() bool { got := c.leads(); return got[2] == 0 && got[1]+got[3] == 3 })
	if said := ask(1, "transfer", "--shard", "1", "--to", "2"); !strings.Contains(said, "drained") {
		t.Errorf("a shard is moved to it: %s", said)
	}
	c.stop(1) // it is so over restarts
	c.start(1)
	ask(0, "balance")
	if got := c.leads(); got[2] != 0 {
		t.Errorf("node 2 was started again, and leads %d shards", got[2])
	}
	ask(0, "drain", "3")
	if said := ask(1, "drain", "1"); !strings.Contains(said, "nobody_leads") {
		t.Errorf("the last one is drained: %s", said)
	}
	ask(0, "drain", "n2", "--undo")
	ask(0, "drain", "n3", "--undo")
	eventually(t, "shards go home", func() bool { ask(0, "balance"); return fmt.Sprint(c.leads()) == "map[1:1 2:1 3:1]" })
}
