package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// maxProfile bounds one profile that is read over HTTP, in bytes. Those of a busy server are below 1 MiB.
const maxProfile = 64 << 20

// ErrAbsent says that the process has no such profile.
var ErrAbsent = errors.New("no such profile")

// Source hands out the profiles of one process, gzipped protocol buffers as pprof reads them.
type Source interface {
	// Rates sets how many nanoseconds of blocking make one block sample, and of how many lock waits one is kept.
	// 1, 1 keeps all; 0, 0 none.
	Rates(ctx context.Context, block, mutex int) error
	// Sample profiles the CPU for d.
	Sample(ctx context.Context, d time.Duration) ([]byte, error)
	// Snapshot returns a profile other than CPU as it is now, or ErrAbsent. Heap collects garbage first.
	Snapshot(ctx context.Context, k Kind) ([]byte, error)
}

// paths are the names of the profiles below debug/pprof.
var paths = map[Kind]string{
	Alloc: "allocs", Heap: "heap", Block: "block", Mutex: "mutex", Goroutine: "goroutine", Leak: "goroutineleak",
}

// HTTP asks the admin listener of a server, and its operator's socket to change the rates.
type HTTP struct {
	Base string // "http://127.0.0.1:7083"
	// Socket is the path of the operator's socket; empty: the admin listener of an older program
	// changes the rates.
	Socket string
	Client *http.Client // nil means http.DefaultClient; a deadline comes from the context
}

// Rates implements Source by POST debug/pprof/rates at the operator's socket.
func (h HTTP) Rates(ctx context.Context, block, mutex int) error {
	at := h // an older program, whose admin listener does it
	if h.Socket != "" {
		at = HTTP{Base: "http://operator", Client: bench.SocketClient(h.Socket)}
		defer at.Client.CloseIdleConnections()
	}
	_, err := at.do(ctx, http.MethodPost, "rates", url.Values{
		"block": {strconv.Itoa(block)}, "mutex": {strconv.Itoa(mutex)},
	})
	return err
}

// Sample implements Source. The server counts whole seconds: d is rounded up to them.
func (h HTTP) Sample(ctx context.Context, d time.Duration) ([]byte, error) {
	seconds := int((d + time.Second - 1) / time.Second)
	return h.do(ctx, http.MethodGet, "profile", url.Values{"seconds": {strconv.Itoa(max(seconds, 1))}})
}

// Snapshot implements Source.
func (h HTTP) Snapshot(ctx context.Context, k Kind) ([]byte, error) {
	name, ok := paths[k]
	if !ok {
		return nil, fmt.Errorf("profile %s: %w", k, ErrAbsent)
	}
	q := url.Values{}
	if k == Heap {
		q.Set("gc", "1")
	}
	return h.do(ctx, http.MethodGet, name, q)
}

// do sends one request and returns the body of its answer, of at most maxProfile bytes. 404 means ErrAbsent.
func (h HTTP) do(ctx context.Context, method, name string, query url.Values) ([]byte, error) {
	address := strings.TrimSuffix(h.Base, "/") + "/debug/pprof/" + name
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	client := h.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProfile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", address, err)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s %s: %w", method, address, ErrAbsent)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s: %s: %s", method, address, resp.Status, firstLine(b))
	case len(b) > maxProfile:
		return nil, fmt.Errorf("%s: more than %d bytes", address, maxProfile)
	}
	return b, nil
}

// firstLine cuts an error page to what fits into an error.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line[:min(len(line), 200)])
}

// Self profiles the process that it runs in. A process has one CPU profile at a time.
type Self struct{}

// Rates implements Source.
func (Self) Rates(_ context.Context, block, mutex int) error {
	runtime.SetBlockProfileRate(block)
	runtime.SetMutexProfileFraction(mutex)
	return nil
}

// Sample implements Source.
func (Self) Sample(ctx context.Context, d time.Duration) ([]byte, error) {
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return nil, fmt.Errorf("profile cpu: %w", err)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		pprof.StopCPUProfile()
		return out.Bytes(), nil
	case <-ctx.Done():
		pprof.StopCPUProfile()
		return nil, ctx.Err()
	}
}

// Snapshot implements Source.
func (Self) Snapshot(_ context.Context, k Kind) ([]byte, error) {
	p := pprof.Lookup(paths[k])
	if p == nil {
		return nil, fmt.Errorf("profile %s: %w", k, ErrAbsent)
	}
	if k == Heap {
		runtime.GC()
	}
	var out bytes.Buffer
	if err := p.WriteTo(&out, 0); err != nil {
		return nil, fmt.Errorf("profile %s: %w", k, err)
	}
	return out.Bytes(), nil
}
