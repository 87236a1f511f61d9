package profile

import (
	"math"
	"testing"
)

func TestProcessorTimeIsDividedByWhatItIsSpentOn(t *testing.T) {
	t.Parallel()
	const node = "github.com/millrace/millrace/internal/node."
	p := cpuProfile().
		cpu("internal/runtime/syscall.Syscall6 syscall.Syscall syscall.write internal/poll.(*FD).Write net.(*conn).Write "+node+"send", 30).
		cpu("internal/runtime/syscall.Syscall6 syscall.read internal/poll.(*FD).Read net.(*conn).Read a.b/c.d", 20).
		cpu("internal/runtime/syscall.Syscall6 internal/runtime/syscall.EpollWait runtime.netpoll runtime.findRunnable runtime.schedule", 10).
		cpu("runtime.futex runtime.futexwakeup runtime.notewakeup runtime.startm", 8).
		cpu("internal/runtime/syscall.Syscall6 golang.org/x/sys/unix.Fdatasync os.(*File).Sync", 2).
		cpu("runtime.runqgrab runtime.findRunnable runtime.schedule", 6).
		cpu("runtime.memclrNoHeapPointers runtime.mallocgc "+node+"put", 4).
		cpu("runtime.scanobject runtime.gcDrain runtime.gcBgMarkWorker", 4).
		cpu("runtime.memmove sort.Slice "+node+"put", 9).
		cpu("google.golang.org/grpc/internal/transport.(*loopyWriter).run google.golang.org/grpc/internal/transport.New", 3).
		cpu("golang.org/x/net/http2/hpack.(*Encoder).WriteField google.golang.org/grpc/internal/transport.New", 3).
		cpu("type:.hash.github.com/millrace/millrace/internal/core.At runtime.mapassign "+node+"put", 2).
		cpu("main.main", 1)
	parts, err := Parts(p.bytes(t), 1020)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"kernel: write a socket": 300, "kernel: read a socket": 200, "kernel: look for ready sockets": 100, "kernel: wake a thread": 80,
		"kernel: sync a file": 20, "scheduler": 60, "allocation": 40, "garbage collection": 40, "internal/node": 90, "google.golang.org/grpc": 30,
		"golang.org/x/net": 30, "main": 10, "maps": 20,
	}
	for _, got := range parts {
		if math.Abs(got.US-want[got.Name]) > 1e-6 || math.Abs(got.Share-got.US/1020) > 1e-9 {
			t.Errorf("%s: %.1f µs, share %.3f; expected %.1f µs", got.Name, got.US, got.Share, want[got.Name])
		}
		delete(want, got.Name)
	}
	if len(want) > 0 {
		t.Errorf("left out: %v", want)
	}
	if len(parts) == 0 || parts[0].Name != "kernel: write a socket" {
		t.Errorf("the largest part is not the first: %+v", parts)
	}
}
