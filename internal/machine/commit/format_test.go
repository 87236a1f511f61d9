package commit

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestTheFormatRisesForTheMembershipThatWasLookedAtAndNeverFalls(t *testing.T) {
	c := newClub(t, 1, 2, 3)
	if got := c.m.Format(); got != core.FormatFirst {
		t.Fatalf("a new cluster writes format %d", got)
	}
	version := c.m.Members().Version
	if fact := c.apply(&core.FormatRaise{To: 3, Members: version - 1}); fact != (core.WrongMembership{Reason: "changed"}) {
		t.Errorf("a raise for another membership: %v", fact)
	}
	c.ok(&core.FormatRaise{To: 3, Members: version})
	if c.m.Format() != 3 || c.m.Members().Version != version {
		t.Errorf("format %d, directory %d", c.m.Format(), c.m.Members().Version)
	}
	c.ok(&core.FormatRaise{To: 3}) // again
	if _, ok := c.apply(&core.FormatRaise{To: 2, Members: version}).(core.Invalid); !ok {
		t.Error("the format fell")
	}
	opened := New(Options{})
	if err := opened.Open(c.tx); err != nil || opened.Format() != 3 {
		t.Errorf("opened again: format %d, %v", opened.Format(), err)
	}
	opened.BreakOff(c.tx, 0)
	if err := opened.Open(c.tx); err != nil || opened.Format() != 3 {
		t.Errorf("in a history that begins with this state: format %d, %v", opened.Format(), err)
	}
}
