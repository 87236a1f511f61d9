package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// adminPage is the base address of a listener for operators, from which a driver reads what a server uses.
type adminPage string

// errNoAdmin says that what a server uses cannot be read.
var errNoAdmin = errors.New("the server has no admin listener: what it uses cannot be read")

// adminOf returns the page of the first server.
func adminOf(rig *bench.Rig) (adminPage, error) {
	if rig.Servers[0].Admin == "" {
		return "", errNoAdmin
	}
	return adminPage(rig.Servers[0].Admin), nil
}

// get reads one page and hands its body to read. Any status except 200 is an error.
func (a adminPage) get(ctx context.Context, path string, read func(body io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(a)+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read %s of the server: %w", path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s of the server: %s", path, resp.Status)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read %s of the server: %w", path, err)
	}
	return nil
}

// metrics reads metrics without labels by name. It is an error when one of them is not there.
func (a adminPage) metrics(ctx context.Context, names ...string) (map[string]float64, error) {
	return bench.Metrics(ctx, string(a), names...)
}

// collect makes the server collect its garbage, which a heap profile with gc=1 does before it is written.
func (a adminPage) collect(ctx context.Context) error {
	return a.get(ctx, "/debug/pprof/heap?gc=1", func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
}

// footprint is the memory of a server that has nothing to do.
type footprint struct {
	// resident is the bytes of the process, as the kernel counts them.
	resident float64
	// live is the bytes of its heap after a collection, without buffers and caches that have bounds
	// of their own. It is what grows with the data.
	live float64
}

// footprint collects garbage and reads what is left. The store's tables and cache are taken off
// only where they lie in the heap; its layers and the log's cache always do.
func (a adminPage) footprint(ctx context.Context) (f footprint, err error) {
	// The metrics that are read, all in bytes.
	const (
		resident, heap  = "process_resident_memory_bytes", "go_memstats_heap_alloc_bytes"
		tables, blocks  = "millrace_store_memtable_bytes", "millrace_store_cache_bytes"
		layers, entries = "millrace_store_layer_bytes", "millrace_wal_cache_bytes"
	)
	if err := a.collect(ctx); err != nil {
		return f, err
	}
	m, err := a.metrics(ctx, resident, heap, tables, blocks, layers, entries)
	if err != nil {
		return f, err
	}
	f.resident, f.live = m[resident], m[heap]-m[layers]-m[entries]
	inHeap, err := a.storeInHeap(ctx)
	if inHeap {
		f.live -= m[tables] + m[blocks]
	}
	return f, err
}

// storeInHeap reports whether the database's tables and cache lie in Go's heap: they do in a build without cgo.
func (a adminPage) storeInHeap(ctx context.Context) (bool, error) {
	var status struct {
		Build struct {
			Settings map[string]string `json:"settings"`
		} `json:"build"`
	}
	err := a.get(ctx, "/debug/status", func(body io.Reader) error { return json.NewDecoder(body).Decode(&status) })
	// A server that names no setting is taken for a build with cgo.
	return status.Build.Settings["CGO_ENABLED"] == "0", err
}

// fillBatch is the tasks of one call of a fill, and fillCallers the calls under way at once.
const (
	fillBatch   = 512
	fillCallers = 8
)

// fill creates n tasks as fast as they are acknowledged. It notes each in the ledger. The first error ends it.
func fill(ctx context.Context, rig *bench.Rig, c *millrace.Client, n int, opts ...millrace.AddOption) error {
	job := millrace.Job[[]byte, []byte](rig.Queue).Queue(rig.Queue).Lease(rig.Shape.Lease)
	// Every call sends the same bytes, so one list serves all callers.
	args := make([][]byte, fillBatch)
	for i := range args {
		args[i] = rig.Payload
	}
	// left counts the tasks that no caller has taken on yet. Each caller takes a batch off before
	// it creates it.
	var left atomic.Int64
	left.Store(int64(n))
	return atOnce(ctx, fillCallers, func(ctx context.Context, _ int) error {
		for {
			// before is what was left when this caller took its batch; 0 or less: nothing was.
			before := left.Add(-fillBatch) + fillBatch
			if before <= 0 {
				return nil
			}
			handles, err := job.AddMany(ctx, c, args[:min(before, fillBatch)], opts...)
			if err != nil {
				return fmt.Errorf("fill the queue: %w", err)
			}
			for _, h := range handles {
				rig.Ledger.Created(h.ID)
			}
		}
	})
}

// atOnce calls f n times at once, with i from 0, and waits for all. It returns the first error,
// which ends the context of the others.
func atOnce(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls sync.WaitGroup
	// failed is the first error of a call; later ones are of the context that it ended.
	var failed atomic.Pointer[error]
	for i := range n {
		calls.Go(func() {
			if err := f(ctx, i); err != nil && failed.CompareAndSwap(nil, &err) {
				cancel(err)
			}
		})
	}
	calls.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
