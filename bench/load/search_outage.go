package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/internal/localport"
	"github.com/millrace/millrace/internal/server"
)

// What SearchOutage offers: searches of known texts, and new texts besides. The load is the same
// whether the provider is well or not, so that only the fault differs.
const (
	// outageTexts is the number of texts that the server knows.
	outageTexts = 100
	// outageLines is the number of connections that search.
	outageLines = 4
	// outageEvery is the time between two searches of a line.
	outageEvery = 4 * time.Millisecond
	// outageNew is the time between two new texts.
	outageNew = 50 * time.Millisecond
	// outageWaiting is the most new texts under way at once.
	outageWaiting = 64
	// outageBack is how long after a fault new texts may still fail.
	outageBack = 30 * time.Second
	// outageDim is the length of the provider's vectors: short, since their content does not matter.
	outageDim = 3
)

// outageFault is what a provider does wrong. Without an answer it takes no connection.
type outageFault struct {
	// name is the fault's in metrics and rows.
	name string
	// answer takes the place of the provider's own; nil: it refuses connections.
	answer http.HandlerFunc
}

// outageFaults are ways in which providers fail: refuse connections, hang, refuse with a status, answer with
// something that is not the vectors, stop in the middle, never end, or send the client elsewhere.
func outageFaults() []outageFault {
	// status answers with a status and no body, body with a text that is not what was asked for.
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
	}
	return []outageFault{
		{"refuse", nil},
		{"hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"500", status(http.StatusInternalServerError)},
		{"429", status(http.StatusTooManyRequests)},
		{"dim", body(`{"data":[{"index":0,"embedding":[1,2]}]}`)},
		{"count", body(`{"data":[]}`)},
		{"nan", body(`{"data":[{"index":0,"embedding":[1,NaN,3]}]}`)},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"data":[{"ind`)
		}},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			part := []byte(strings.Repeat(" ", 1<<16))
			for range 1 << 14 { // a gigabyte
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:9/", http.StatusFound)
		}},
	}
}

// SearchOutage times searches of known texts while the provider of vectors is well, and under each
// of its faults, in turn. It tells how much the p99 rises, how long after each fault new texts are
// embedded again, and whether goroutines are left over. The server runs in this process, because
// its provider does.
func SearchOutage(ctx context.Context, rig *bench.Rig) error {
	before := runtime.NumGoroutine()
	o := &outage{rig: rig}
	// worst is the largest ratio of all faults, back the longest time to recover.
	var worst, back float64
	err := o.start(ctx)
	if err == nil {
		err = rig.MeasureWork(ctx, func(ctx context.Context) error {
			faults := outageFaults()
			// A row of one fault has its name as its kind.
			if i := slices.IndexFunc(faults, func(f outageFault) bool { return f.name == rig.Shape.Kind }); i >= 0 {
				faults = faults[i : i+1]
			}
			// Each fault has two parts of the window: one before it, and one under it.
			each := rig.Window / time.Duration(2*len(faults))
			for _, f := range faults {
				ratio, took, err := o.fault(ctx, f, each)
				if err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
				rig.Metric(f.name+"_p99_ratio", ratio, "ratio")
				rig.Metric(f.name+"_back_s", took.Seconds(), "s")
				worst, back = max(worst, ratio), max(back, took.Seconds())
			}
			return nil
		})
	}
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	rig.Metric("cached_p99_ratio", worst, "ratio")
	rig.Metric("back_s", back, "s")
	// Goroutines may need a moment to end, so they are counted again for up to ten seconds.
	left := runtime.NumGoroutine() - before
	for end := time.Now().Add(10 * time.Second); left > 0 && time.Now().Before(end); left = runtime.NumGoroutine() - before {
		if err := bench.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if rig.Metric("goroutines_left", float64(max(0, left)), "goroutines"); left > 0 {
		rig.Fail("search", fmt.Errorf("%d goroutines are left of what the faults held up", left))
	}
	return nil
}

// outage is a provider of vectors that has a fault when it is told so, and a server that asks it.
type outage struct {
	rig *bench.Rig
	// dir has the server's data and settings, and is removed at the end.
	dir string
	// reserved is the provider's port, which it takes again after a fault without connections.
	reserved *localport.Ports
	// address is that of the provider.
	address string
	// provider is the server of the provider that runs.
	provider *http.Server
	// answer is that of the fault under way; nil: the provider is well.
	answer atomic.Pointer[http.HandlerFunc]
	// server is the Millrace of the run, in this process.
	server *server.Running
	// token is that of its only client.
	token string
	// door prepares and embeds.
	door *searchDoor
	// bodies are searches for the known texts.
	bodies [][]byte
	// texts counts the new texts so far, so that each is new.
	texts atomic.Uint64
}

// start starts the provider and the server, stores the known texts, and searches each once, so that
// their vectors are in the cache.
func (o *outage) start(ctx context.Context) (err error) {
	if err := o.listen(ctx); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
		return err
	}
	file := filepath.Join(o.dir, "embedders.yaml")
	// The timeout bounds how long a provider that hangs can hold a new text.
	list := fmt.Sprintf("embedders: [{name: far, kind: openai, url: \"http://%s\", model: m, dim: %d, timeout: 2s}]\n", o.address, outageDim)
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		return err
	}
	o.token = server.NewToken()
	options, err := server.Dev(server.Options{
		Dir: filepath.Join(o.dir, "data"), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", EmbeddersFile: file,
	}, o.token)
	if err != nil {
		return err
	}
	if o.server, err = server.Start(ctx, options); err != nil {
		return err
	}
	o.door = newSearchDoor("http://"+o.server.HTTPAddress, o.token, "")
	if err := o.door.do(ctx, http.MethodPut, "/v1/collections/ws", fmt.Appendf(nil, `{"embedder":"far","dim":%d}`, outageDim), nil); err != nil {
		return err
	}
	var points []map[string]any
	for i := range outageTexts {
		text := fmt.Sprint("known ", i)
		points = append(points, map[string]any{"id": fmt.Sprint("w", i), "payload": map[string]any{"text": text}})
		o.bodies = append(o.bodies, mustJSON(map[string]any{"collection": "ws", "query_text": text}))
	}
	if err := o.door.do(ctx, http.MethodPost, "/v1/collections/ws/points:upsert", mustJSON(map[string]any{"points": points}), nil); err != nil {
		return err
	}
	for _, body := range o.bodies {
		if err := o.door.do(ctx, http.MethodPost, SearchRoute, body, nil); err != nil {
			return err
		}
	}
	return nil
}

// listen starts the provider, at the address that it had before.
func (o *outage) listen(ctx context.Context) error {
	if o.reserved == nil {
		reserved, err := localport.Reserve(1)
		if err != nil {
			return err
		}
		// The port is kept reserved, so that no other process takes it while the provider is down.
		o.reserved, o.address = reserved, reserved.Addresses()[0]
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.address)
	if err != nil {
		return err
	}
	o.provider = &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(o.provider)
	return nil
}

// close ends server and provider and removes their data. It may be called after a start that failed.
func (o *outage) close() error {
	var err error
	if o.server != nil {
		err = o.server.Close(time.Second)
	}
	if o.provider != nil {
		err = errors.Join(err, o.provider.Close())
	}
	if o.reserved != nil {
		o.reserved.Release()
	}
	if o.door != nil {
		o.door.http.CloseIdleConnections()
	}
	if o.dir != "" {
		err = errors.Join(err, os.RemoveAll(o.dir))
	}
	return err
}

// ServeHTTP answers as an OpenAI-compatible provider does, or as its fault says.
func (o *outage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if answer := o.answer.Load(); answer != nil {
		(*answer)(w, r)
		return
	}
	data := make([]map[string]any, len(in.Input))
	for i, text := range in.Input {
		// The vector depends on the text's length only: it is never judged.
		data[i] = map[string]any{"index": i, "embedding": [outageDim]int{1, len(text), 2}}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data}) // the server may have closed the connection: the provider does not care
}

// fault compares the p99 of known texts under a fault with that before it, and returns how long
// after its end new texts are embedded.
func (o *outage) fault(ctx context.Context, f outageFault, each time.Duration) (ratio float64, back time.Duration, err error) {
	well, err := o.load(ctx, each)
	if err != nil {
		return 0, 0, err
	}
	// To close the provider is the fault of refused connections.
	if f.answer == nil {
		err = o.provider.Close()
	} else {
		o.answer.Store(&f.answer)
	}
	if err != nil {
		return 0, 0, err
	}
	ill, err := o.load(ctx, each)
	if err != nil {
		return 0, 0, err
	}
	ended := time.Now()
	// The fault ends before the provider listens again, so that its first answers are good.
	if o.answer.Store(nil); f.answer == nil {
		if err := o.listen(ctx); err != nil {
			return 0, 0, err
		}
	}
	for {
		err := o.embed(ctx)
		if err == nil {
			return ill / well, time.Since(ended), nil
		}
		if time.Since(ended) > outageBack {
			return 0, 0, fmt.Errorf("new texts are not embedded %v after its end: %w", outageBack, err)
		}
		if err := bench.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
}

// embed asks for the vector of a new text.
func (o *outage) embed(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"model":"far","text":"new %d"}`, o.texts.Add(1))
	return o.door.do(ctx, http.MethodPost, "/v1/embed", body, nil)
}

// load searches known texts for a while, and embeds new ones besides. It returns the p99 in
// microseconds, from when a search was due. Any failed search is an error: the cache must answer
// whatever the provider does.
func (o *outage) load(ctx context.Context, d time.Duration) (p99 float64, err error) {
	from, end := time.Now(), time.Now().Add(d)
	op := o.rig.Op("search")
	hists := make([]*hdrhistogram.Histogram, outageLines)
	// faults has a place for each line, and the last one for the new texts.
	faults := make([]error, outageLines+1)
	var wait sync.WaitGroup
	for i := range outageLines {
		hists[i] = hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
		wait.Go(func() {
			// Lines begin one after the other, so that searches are spread evenly.
			faults[i] = o.line(ctx, from.Add(time.Duration(i)*outageEvery/outageLines), end, func(due time.Time, err error) error {
				op.Record(i, due, 1, err)
				return errors.Join(err, hists[i].RecordValue(max(1, time.Since(due).Microseconds())))
			})
		})
	}
	wait.Go(func() { faults[outageLines] = o.newTexts(ctx, from, end) })
	wait.Wait()
	for _, h := range hists[1:] {
		hists[0].Merge(h)
	}
	return float64(hists[0].ValueAtQuantile(99)), errors.Join(faults...)
}

// line searches known texts over one connection, at its own fixed times. It does not skip a time
// that has passed, so that a stall counts for each search that it holds up.
func (o *outage) line(ctx context.Context, due, end time.Time, record func(due time.Time, err error) error) error {
	l, err := newHTTPLine(o.door.base, o.token)
	if err != nil {
		return err
	}
	defer l.close()
	for n := 0; due.Before(end); n, due = n+1, due.Add(outageEvery) {
		if err := bench.Pause(ctx, time.Until(due)); err != nil {
			return err
		}
		status, err := l.post(ctx, SearchRoute, o.bodies[n%len(o.bodies)])
		if err == nil && status != http.StatusOK {
			err = &refusedError{status, string(l.body[:min(len(l.body), 500)])}
		}
		if err := record(due, err); err != nil {
			return err
		}
	}
	return nil
}

// newTexts asks for new texts, each by a call of its own. A call that the fault keeps from its
// vector must be refused for now (503); any other refusal is an error.
func (o *outage) newTexts(ctx context.Context, due, end time.Time) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	// mu guards faults.
	var mu sync.Mutex
	var faults []error
	// under has an item for each new text that is under way.
	under := make(chan struct{}, outageWaiting)
	for ; due.Before(end); due = due.Add(outageNew) {
		if err := bench.Pause(ctx, time.Until(due)); err != nil {
			return err
		}
		select {
		case under <- struct{}{}:
		default:
			continue // as many hang as may
		}
		wait.Go(func() {
			defer func() { <-under }()
			err := o.embed(ctx)
			if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusServiceUnavailable {
				err = nil
			}
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err)
		})
	}
	wait.Wait()
	return errors.Join(slices.DeleteFunc(faults, func(err error) bool { return err == nil })...)
}
