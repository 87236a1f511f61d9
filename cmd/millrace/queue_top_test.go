package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestAScreenHasWhatFitsAndNothingThatDrivesTheTerminal(t *testing.T) {
	got := string(screen([]string{"first line", "日本語 text", "\x1b[2Jthird", "fourth"}, 5, 4))
	if want := "\x1b[Hfirst\x1b[K\n日本語 t\x1b[K\n\\x1b[2Jt\x1b[K\n\x1b[J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(screen([]string{"a"}, 0, 0)); got != "\x1b[H\x1b[K\n\x1b[J" {
		t.Errorf("a terminal of no size: %q", got)
	}
}

func TestTheTableOfTopHasRatesAndAges(t *testing.T) {
	now := time.Unix(1e9, 0)
	half := 0.5
	views := []topView{
		{statsView: statsOf(millrace.QueueStats{Queue: "mail", Ready: 12, OldestReady: now.Add(-90 * time.Second)}), Done: &half, Failed: new(float64)},
		{statsView: statsOf(millrace.QueueStats{Queue: "other", Dead: 1, OldestReady: now.Add(time.Hour), Paused: &millrace.QueuePaused{}})},
	}
	lines := topLines(views, now, 0)
	want := []string{
		"queue ready scheduled running dead done/s fail/s oldest paused last 15 min",
		"mail 12 0 0 0 0.5 0.0 1m30s -",
		"other 0 0 0 1 - - 0s yes", // a clock that is behind that of the server makes no age
	}
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if perSecond(5, 4, time.Second) != nil || perSecond(5, 6, 0) != nil || *perSecond(5, 8, 2*time.Second) != 1.5 {
		t.Error("rates")
	}
	var out bytes.Buffer
	a := &app{out: &out}
	if err := a.showTop(views, true, now); err != nil || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "there are more queues") {
		t.Errorf("not on a terminal: %q, %v", out.String(), err)
	}
}
