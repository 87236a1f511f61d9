package server

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestARaiseWhoseAnswerIsLostIsAskedForAgainAndReportedAsThisCalls(t *testing.T) {
	format := uint16(1)
	tries, pauses := 0, 0
	once := func() (Finalized, error) {
		out := Finalized{Format: 2, Before: format}
		switch tries++; tries {
		case 1:
			return out, core.WrongMembership{Reason: "changed"}
		case 2: // applied, and the leader that would have said so is gone
			format = 2
			return out, core.Unavailable{Reason: "no_leader", Unknown: true}
		case 3: // the others know of no leader yet
			return out, core.Unavailable{Reason: "no_leader"}
		case 4:
			return out, core.FormatHeld{Format: 2, Silent: []uint64{3}}
		}
		return out, nil
	}
	got, err := finalizeUntil(format, once, func() bool { pauses++; return true })
	if want := (Finalized{Format: 2, Before: 1}); err != nil || got != want || tries != 5 || pauses != 4 {
		t.Errorf("finalize: %+v, %v after %d tries and %d pauses, want %+v after 5 and 4", got, err, tries, pauses, want)
	}
	tries, format = 1, 1
	_, err = finalizeUntil(format, once, func() bool { return tries < 4 })
	if u, ok := errors.AsType[core.Unavailable](err); !ok || !u.Unknown {
		t.Errorf("when time is over: %v, want an unknown outcome", err)
	}
}

func TestARaiseThatIsRefusedIsNotAskedForAgain(t *testing.T) {
	for _, fact := range []core.Fact{core.FormatHeld{Format: 2}, core.Unavailable{Reason: "no_leader"}, core.DeadlineExceeded{Unknown: true}} {
		tries := 0
		_, err := finalizeUntil(1, func() (Finalized, error) { tries++; return Finalized{}, fact.(error) }, func() bool { return true })
		if err == nil || tries != 1 {
			t.Errorf("after %v: %v, %d tries", fact, err, tries)
		}
	}
}
