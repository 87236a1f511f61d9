package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
)

// SearchLoad is load on a server that runs: bodies are posted in turn by clients, each of which
// waits for its answer.
type SearchLoad struct {
	// URL is that of the route, or of the server, whose search is meant then.
	URL string
	// Token is that of the client; empty: none is sent.
	Token string
	// Bodies are posted in turn by all clients together.
	Bodies [][]byte
	// Concurrency is the number of clients, each with a connection.
	Concurrency int
	// Window is how long they post.
	Window time.Duration
	// Rate, above 0, is arrivals a second of an open loop. No more than Concurrency clients are
	// started; an arrival that none of them is free for is dropped.
	Rate float64
	// Arrivals is the pattern of arrivals of an open loop.
	Arrivals bench.Arrivals
	// Full says that afterwards each body is asked for as exact too, and its gate judged row by row.
	Full bool
	// Cold makes every text unique by a number in front of it, so that no cache knows it.
	Cold bool
	// Seed chooses the arrivals, and the numbers of cold texts.
	Seed uint64
}

// SearchFigures are what came of a load. Latencies are in milliseconds, from when a request was due.
type SearchFigures struct {
	// Path is the route.
	Path        string `json:"path"`
	Concurrency int    `json:"concurrency"`
	// Seconds is the time up to the last answer.
	Seconds float64 `json:"seconds"`
	// Requests counts those that were answered with success, and Errors those that failed.
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	// Dropped counts the arrivals that no client was free for.
	Dropped uint64 `json:"dropped"`
	// Overloaded counts what the server of an open loop refused with a time to retry, which is not an error.
	Overloaded uint64 `json:"overloaded"`
	// PerSecond is requests by seconds.
	PerSecond float64 `json:"requests_per_s"`
	// The percentiles are for callers in Go; in JSON they stand in Millis, by name.
	P50, P95 float64            `json:"-"`
	P99, Max float64            `json:"-"`
	Millis   map[string]float64 `json:"latency_ms"`
	// FirstError is the text of the first error of one client.
	FirstError string `json:"first_error,omitempty"`
	// Recall and Violations are those of a load whose answers were all validated; otherwise nil.
	Recall     *float64 `json:"recall_at_10,omitempty"`
	Violations *int     `json:"gate_violations,omitempty"`
}

// maxBodyLine bounds a line of a file of bodies.
const maxBodyLine = 8 << 20

// ReadBodies reads one JSON body per line. Empty lines are passed over; a line that is not JSON is
// an error with its number.
func ReadBodies(in io.Reader) ([][]byte, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxBodyLine)
	var out [][]byte
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			return nil, fmt.Errorf("line %d is no JSON", n)
		}
		out = append(out, bytes.Clone(line))
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("the data has no body")
	}
	return out, nil
}

// searchClient is one client of a load, with counts of its own that are added up at the end.
type searchClient struct {
	// line is the client's connection, and hist has its latencies in microseconds.
	line *httpLine
	hist *hdrhistogram.Histogram
	// bad counts errors, the text of the first of which is first; shed counts refusals by an
	// overloaded server.
	bad   uint64
	shed  uint64
	first string
}

// Run carries a load out on the server at base. path is the route of the bodies. It returns what
// came of it also when ctx ended.
func (s *SearchLoad) Run(ctx context.Context, base, path string) (*SearchFigures, error) {
	if len(s.Bodies) == 0 || s.Concurrency < 1 || s.Concurrency > 100_000 {
		return nil, errors.New("a load has bodies, and 1 to 100000 clients")
	}
	clients := make([]*searchClient, s.Concurrency)
	for i := range clients {
		line, err := newHTTPLine(base, s.Token)
		if err != nil {
			return nil, err
		}
		defer line.close()
		clients[i] = &searchClient{line: line, hist: hdrhistogram.New(1, int64(restTimeout/time.Microsecond), 3)}
	}
	// next and dropped are shared by all clients.
	var next, dropped atomic.Uint64
	began := time.Now()
	end := began.Add(s.Window)
	var wait sync.WaitGroup
	due := s.arrivals(ctx, end, &dropped)
	for _, c := range clients {
		wait.Go(func() {
			// An open loop ends with its arrivals, a closed one with the time.
			for ctx.Err() == nil && time.Now().Before(end) {
				at := time.Now()
				if due != nil {
					var more bool
					if at, more = <-due; !more {
						return
					}
				}
				n := next.Add(1)
				c.post(ctx, path, s.body(n), at, due != nil)
			}
		})
	}
	wait.Wait()
	f := s.figures(path, clients, time.Since(began), dropped.Load())
	if !s.Full || ctx.Err() != nil {
		return f, ctx.Err()
	}
	return f, s.validate(ctx, base, path, f)
}

// validate asks for each body again as exact, and compares answers with it and with their gate.
func (s *SearchLoad) validate(ctx context.Context, base, path string, f *SearchFigures) error {
	door := newSearchDoor(base, s.Token, "")
	q, err := door.check(ctx, path, s.Bodies, nil)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	f.Recall, f.Violations = &q.recall, &q.violations
	return nil
}

// arrivals are the times at which requests of an open loop are due; nil for a closed one. A time
// that no client takes while Concurrency of them wait is dropped.
func (s *SearchLoad) arrivals(ctx context.Context, end time.Time, dropped *atomic.Uint64) <-chan time.Time {
	if s.Rate <= 0 {
		return nil
	}
	due := make(chan time.Time, s.Concurrency)
	go func() {
		defer close(due)
		over := func() bool { return ctx.Err() != nil || !time.Now().Before(end) }
		bench.Pace(bench.NewSchedule(s.Arrivals, s.Rate, s.Seed), over, func(at time.Time) {
			if !at.Before(end) {
				return
			}
			select {
			case due <- at:
			default:
				dropped.Add(1)
			}
		})
	}()
	return due
}

// body is the n-th body. A cold one has a text that was never asked for before; n and the seed make it unique.
func (s *SearchLoad) body(n uint64) []byte {
	body := s.Bodies[n%uint64(len(s.Bodies))]
	if !s.Cold {
		return body
	}
	// The body is of a search or of an embedding: its text is in one of these fields.
	for _, field := range []string{`"query_text":"`, `"text":"`} {
		if i := bytes.Index(body, []byte(field)); i >= 0 {
			at := i + len(field)
			out := append(bytes.Clone(body[:at]), fmt.Sprintf("%x-%d ", s.Seed, n)...)
			return append(out, body[at:]...)
		}
	}
	return body
}

// post sends one body and counts its end. sheds says that a refusal for overload is not an error.
func (c *searchClient) post(ctx context.Context, path string, body []byte, due time.Time, sheds bool) {
	status, err := c.line.post(ctx, path, body)
	if err == nil && status != http.StatusOK {
		if sheds && c.line.overloaded(status) {
			c.shed++
			return
		}
		err = &refusedError{status, string(c.line.body[:min(len(c.line.body), 300)])}
	}
	if err != nil {
		if c.bad++; c.first == "" {
			c.first = err.Error()
		}
		return
	}
	_ = c.hist.RecordValue(max(1, time.Since(due).Microseconds())) // beyond the range it is an error of the line before
}

// figures adds up what the clients did. took is the whole time, up to the last answer.
func (s *SearchLoad) figures(path string, clients []*searchClient, took time.Duration, dropped uint64) *SearchFigures {
	all := hdrhistogram.New(1, int64(restTimeout/time.Microsecond), 3)
	f := &SearchFigures{Path: path, Concurrency: s.Concurrency, Seconds: took.Seconds(), Dropped: dropped}
	for _, c := range clients {
		all.Merge(c.hist)
		f.Errors += c.bad
		f.Overloaded += c.shed
		if f.FirstError == "" {
			f.FirstError = c.first
		}
	}
	f.Requests = uint64(all.TotalCount())
	// The rate is over the whole time, so that a slow last answer lowers it.
	f.PerSecond = float64(f.Requests) / took.Seconds()
	ms := func(us int64) float64 { return float64(us) / 1000 }
	f.P50, f.P95, f.P99, f.Max = ms(all.ValueAtQuantile(50)), ms(all.ValueAtQuantile(95)), ms(all.ValueAtQuantile(99)), ms(all.Max())
	f.Millis = map[string]float64{"p50": f.P50, "p95": f.P95, "p99": f.P99, "max": f.Max}
	return f
}
