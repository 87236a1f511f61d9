package transport

import (
	"testing"
	"time"
)

func TestTheFastestAnswerOfLateTellsWhetherAnswersComeFast(t *testing.T) {
	var p AckPace
	now := time.Now()
	answer := func(took time.Duration) bool {
		now = now.Add(took)
		p.Answered(now.Add(-took), now)
		return p.Fast()
	}
	if p.Fast() {
		t.Error("answers come fast before there is one")
	}
	if answer(SlowAck) {
		t.Error("a slow answer was taken for a fast one")
	}
	if !answer(SlowAck - 1) {
		t.Error("a fast answer was not seen")
	}
	for range 3 {
		if !answer(time.Second) {
			t.Error("one slow answer hides a recent fast one")
		}
	}
	for since := now; now.Sub(since) < 2*ackWindow; {
		answer(time.Second)
	}
	if p.Fast() {
		t.Error("a fast answer counts for good")
	}
}
