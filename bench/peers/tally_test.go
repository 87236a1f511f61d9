package main

import (
	"strings"
	"testing"
	"time"
)

func TestTallyFindsWhatIsLostDoubledDifferentAndUnexpected(t *testing.T) {
	y := newTally(64)
	_, payloads := y.issue(5)
	for n := range uint64(4) {
		y.created(n)
	}
	y.set(4, unknown, unknown)
	for _, n := range []int{0, 1, 2, 4} { // 3 is lost
		got, ok := y.handled(payloads[n])
		if !ok || got != uint64(n) || len(payloads[n]) != 64 {
			t.Fatalf("payload %s is number %d, %v", payloads[n], got, ok)
		}
		y.completed(got)
	}
	y.completed(1)
	if _, ok := y.handled([]byte(strings.Replace(string(payloads[0]), "xxx", "xyx", 1))); ok {
		t.Error("a payload that was changed was taken for one that was sent")
	}
	if _, ok := y.handled([]byte(strings.Replace(string(payloads[0]), "0000", "9999", 1))); ok {
		t.Error("a payload that was never sent was taken for one that was")
	}
	y.issue(1)
	y.set(5, had, again) // whose create was refused
	checked, redelivered, wrong := y.judge()
	want := "lost: 1 tasks that were acknowledged were never completed; doubled: 1 tasks were completed more than once; " +
		"unexpected: 1 tasks came to a worker whose create had failed; different: 2 payloads came that are not as they were sent"
	if got := strings.Join(wrong, "; "); got != want || checked != 6 || redelivered != 0 {
		t.Errorf("%d checked, %d redelivered, %s", checked, redelivered, got)
	}
}

func TestTallyOfAWholeRunIsClean(t *testing.T) {
	y := newTally(0)
	_, payloads := y.issue(3)
	for n, p := range payloads {
		got, _ := y.handled(p) // before the answer to its create
		y.created(uint64(n))
		y.handled(p) // once more: its lease was lost
		y.completed(got)
	}
	if checked, redelivered, wrong := y.judge(); checked != 3 || redelivered != 3 || len(wrong) != 0 {
		t.Errorf("%d checked, %d redelivered, %v", checked, redelivered, wrong)
	}
}

func TestRoomIsGivenBackByProducersThatAreStopped(t *testing.T) {
	l := &lane{room: make(chan struct{}, 4)}
	over := make(chan struct{})
	if !l.take(3, over) {
		t.Fatal("there is room for 3 of 4")
	}
	close(over)
	for l.take(2, over) { // of room and the end, either may be seen first
		l.handled()
		l.handled()
	}
	if len(l.room) != 3 {
		t.Errorf("%d are taken, want 3", len(l.room))
	}
	for range 5 { // one more than were made: of a create that failed, and was carried out
		l.handled()
	}
	if len(l.room) != 0 || time.Duration(l.waited.Load()) <= 0 {
		t.Errorf("%d are taken", len(l.room))
	}
}
