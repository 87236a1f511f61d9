package node

import (
	"testing"
	"time"
)

func TestALearnerIsLateThatLacksWhatItsLeaderHadASecondAgo(t *testing.T) {
	var m marks
	if m.late(0) {
		t.Error("late behind a leader that has just begun")
	}
	m = m.note(5*time.Second, 100)
	if m.late(100) || !m.late(99) {
		t.Error("what a leader had when it began is not waited for")
	}
	for i := range 30 { // ten entries with each tick of 100 ms
		m = m.note(5*time.Second+time.Duration(i+1)*100*time.Millisecond, uint64(110+10*i))
	}
	if m.late(300) || !m.late(299) { // as of 7 s, the log ends at 400
		t.Errorf("late is judged by %+v", m[0])
	}
	if len(m) > 11 {
		t.Errorf("%d marks are kept for a second", len(m))
	}
	for _, l := range []learnerLag{{}, {entries: 7}, {entries: 7, late: true}} {
		if got := decodeLag(l.encode()); got != l {
			t.Errorf("%+v is reported as %+v", l, got)
		}
	}
	n := &Node{o: Options{NearEntries: 7}}
	if !n.caughtUp(learnerLag{entries: 7}) || n.caughtUp(learnerLag{entries: 8}) || n.caughtUp(learnerLag{late: true}) {
		t.Error("the bound of a learner is something else")
	}
}
