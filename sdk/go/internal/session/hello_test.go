package session

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// A server refuses a Hello with a field that it does not know. A worker may be newer than its server, so what a Hello says without being
// asked to is what the first servers knew.
func TestAHelloHasOnlyFieldsThatOldServersKnow(t *testing.T) {
	w := &Worker{}
	w.opts.Name = "w"
	h := &millracev1.Hello{Version: 1}
	(&workerStream{w: w, s: &session{}, held: map[wire.Lease]*Attempt{}}).hello(h)
	known := []string{"version", "session", "namespace", "worker", "held", "partition", "id", "kinds", "host"}
	for _, m := range []protoreflect.Message{h.ProtoReflect(), h.Worker.ProtoReflect()} {
		m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			if !slices.Contains(known, string(f.Name())) {
				t.Errorf("a Hello has %s", f.FullName())
			}
			return true
		})
	}
}
