package queue

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// A timer that is gone may still bound what a replica expects. The steps of a tick are shared as on a replica that was opened since.
func TestTheStepsOfATickAreSharedAlikeOnAllReplicas(t *testing.T) {
	const day = 24 * 3_600_000
	var want string
	for _, restart := range []bool{false, true} {
		w := newWorld(t, Options{})
		w.do(&core.TaskCreate{ID: idOf("gone"), Queue: "mail", RunAt: epoch + day, ExpiresAt: epoch + 1})
		w.advance(1) // its timer by wall clock goes with it
		for i := range 4 {
			w.do(&core.TaskCreate{ID: numbered(i), Queue: "mail", Unique: core.Unique{Key: fmt.Sprint("k", i), TTL: 1000}})
		}
		w.do(&core.TaskCreate{ID: idOf("expires"), Queue: "mail", ExpiresAt: epoch + 1000})
		if restart {
			w.restart()
		}
		w.c.Stamp = epoch + day + 1
		w.tick(2)
		if got := w.tx.Dump(); want == "" {
			want = got
		} else if got != want {
			t.Errorf("restart changes what a tick does:\n%s", diff(want, got))
		}
	}
}
