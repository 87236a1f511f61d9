package node

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// A leader that is cut off does not know yet that another one may lead, which saw leases end and gave others. A session that it
// opened would tell its client of neither.
func TestALeaderThatIsCutOffOpensNoSession(t *testing.T) {
	c := openCluster(t, 3, Options{ReadWait: time.Hour})
	ctx := within(t, time.Minute)
	lead := c.leader(ctx, 0, 0)
	c.known(ctx)
	spec := core.SessionSpec{ID: core.SessionID{1}, Worker: "w"}
	ses, _, err := lead.node.Session(ctx, c.ns, spec, newSink())
	if err != nil {
		t.Fatal(err)
	}
	ses.Close()
	c.wires.alone(lead.node.o.Replica, true)
	_, _, err = lead.node.Session(ctx, c.ns, spec, newSink()) // it ends when the leader steps down
	if !errors.Is(err, core.Unavailable{Reason: "no_leader"}) {
		t.Errorf("cut off: %v, want that there is no leader", err)
	}
	c.wires.alone(lead.node.o.Replica, false)
	c.until(ctx, "no node opens a session", func() bool {
		for _, r := range c.rigs {
			if ses, _, err := r.node.Session(ctx, c.ns, spec, newSink()); err == nil {
				ses.Close()
				return true
			}
		}
		return false
	})
}
