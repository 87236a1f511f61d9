package queue

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// A task is read with as much of its payload and its result as is asked for, and with their whole lengths.
func TestATaskIsReadUpToABound(t *testing.T) {
	w := newWorld(t, Options{})
	payload, short, long := "<script>alert(1)</script>", "done", strings.Repeat("r", 5000)
	for name, result := range map[string]string{"short": short, "long": long, "empty": ""} {
		w.do(&core.TaskCreate{ID: idOf(name), Queue: "mail", Payload: []byte(payload), ContentType: "text/html"})
		token := w.do(claimOp(1, "mail")).res.Assigned[0].Token
		w.do(&core.TaskComplete{Task: idOf(name), Token: token, Result: []byte(result), ResultType: "text/plain"})
		for _, most := range []core.ContentSize{{}, {Payload: 3}, {Result: 3}, {Payload: 1 << 20, Result: 1 << 20}} {
			got, size, ok, err := TaskUpTo(w.tx, testPartition, idOf(name), most)
			if err != nil || !ok {
				t.Fatalf("%s: %v, %v", name, ok, err)
			}
			if size != (core.ContentSize{Payload: len(payload), Result: len(result)}) {
				t.Errorf("%s: the lengths are %+v", name, size)
			}
			if p, r := payload[:min(most.Payload, len(payload))], result[:min(most.Result, len(result))]; string(got.Payload) != p || string(got.Result) != r {
				t.Errorf("%s up to %+v: %q and %q", name, most, got.Payload, got.Result)
			}
			if got.ContentType != "text/html" {
				t.Errorf("%s: the type is %q", name, got.ContentType)
			}
		}
	}
	w.do(&core.TaskCreate{ID: idOf("waits"), Queue: "mail"})
	got, size, ok, err := TaskUpTo(w.tx, testPartition, idOf("waits"), core.ContentSize{Payload: 9, Result: 9})
	if err != nil || !ok || got.HasResult || size != (core.ContentSize{}) {
		t.Errorf("a task that waits: %+v, %v, %v, %v", got, size, ok, err)
	}
	if _, _, ok, err := TaskUpTo(w.tx, testPartition, idOf("unknown"), core.ContentSize{}); ok || err != nil {
		t.Errorf("an unknown task: %v, %v", ok, err)
	}
}
