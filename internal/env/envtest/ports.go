package envtest

import (
	"testing"

	"github.com/millrace/millrace/internal/localport"
)

// Ports returns n addresses of 127.0.0.1, with numbers in a row, that no other test and no other process gets until t and
// its cleanups have ended: a server that is started again finds its own still free.
func Ports(t testing.TB, n int) []string {
	t.Helper()
	p, err := localport.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Addresses()
}
