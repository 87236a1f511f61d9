package session

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestALostServerIsToldOfOnce: one line when it is lost, one when it is back, none for a short cut.
func TestALostServerIsToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		lines := func() (lost, back int) {
			return strings.Count(said.String(), "is not reached"), strings.Count(said.String(), "is reached again")
		}
		var o outage
		o.over(log, "a:1")
		o.failed(log, "a:1", errors.New("refused"))
		time.Sleep(900 * time.Millisecond)
		o.failed(log, "a:1", errors.New("refused"))
		o.over(log, "a:1")
		if said.Len() > 0 {
			t.Errorf("a cut of less than a second is told of: %s", said.String())
		}
		for range 50 {
			o.failed(log, "a:1", errors.New("refused"))
			time.Sleep(500 * time.Millisecond)
		}
		if lost, back := lines(); lost != 1 || back != 0 || !strings.Contains(said.String(), "refused") || !strings.Contains(said.String(), "a:1") {
			t.Errorf("while it is lost: %s", said.String())
		}
		o.over(log, "b:2")
		o.over(log, "b:2")
		if lost, back := lines(); lost != 1 || back != 1 || !strings.Contains(said.String(), "after=25s") {
			t.Errorf("when it is back: %s", said.String())
		}
	})
}
