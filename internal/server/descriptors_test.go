package server

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/edge"
)

// A limit that does not fit keeps the server from starting; one that was not set becomes what fits.
func TestWhatMayBeOpenFitsOrTheServerDoesNotStart(t *testing.T) {
	o, err := Dev(Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", openFiles: 1024, Limits: edge.Limits{ConnectionsNode: 20_000}}, NewToken())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"connections_node of 20000", "RLIMIT_NOFILE is 1024"} {
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	o.openFiles = 100
	o.Limits.ConnectionsNode = 0
	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "a server needs at least") {
		t.Errorf("with 100: %v", err)
	}
	for _, most := range []int64{256, 1024} {
		o.openFiles = most
		got, err := o.withDefaults()
		if err != nil || got.descriptors.Sum() > most || got.Limits.ConnectionsNode != got.descriptors.Connections || got.Limits.ConnectionsAddress < 1 {
			t.Errorf("with %d: %+v, %v", most, got.descriptors, err)
		}
	}
}
