package node

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestLargePayloadsAreGivenOutInParts(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	const total = 12
	for i := range total {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "big", Payload: make([]byte, 1<<20)})
	}
	if got := len(r.claim("big", total, 0)); got != 4 {
		t.Errorf("one claim took %d tasks of 1 MiB, want 4", got)
	}
	k := newSink()
	ses, _ := r.session(1, k)
	ses.Subscribe(subscription("big", total))
	k.take(total - 4)
}
