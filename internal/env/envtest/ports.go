package envtest

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports are numbers of ports from which the tests of one package draw, below those that the system gives to outgoing connections.
// Packages whose tests run at the same time have ports of their own.
type Ports struct {
	First, Count uint32
	drawn        atomic.Uint32
}

// Free returns addresses of loopback on which nothing listens now, and that no outgoing connection gets: a server that is started
// again finds its own still free.
func (p *Ports) Free(t testing.TB, n int) (out []string) {
	t.Helper()
	p.drawn.CompareAndSwap(0, 1+uint32(os.Getpid())*131%p.Count) // other processes of the same tests began elsewhere
	for range p.Count {
		if len(out) == n {
			return out
		}
		lis, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", p.First+p.drawn.Add(1)%p.Count))
		if err != nil {
			continue
		}
		defer lis.Close() //nolint:errcheck // all are open until all are drawn
		out = append(out, lis.Addr().String())
	}
	t.Fatal("no port is free")
	return nil
}
