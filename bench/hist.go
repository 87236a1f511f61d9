package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of all histograms: from 1 µs to an hour, with three significant digits
// (at most 0.1 % off).
const (
	histMin    = 1
	histMax    = int64(time.Hour / time.Microsecond)
	histDigits = 3
)

func newHist() *hdrhistogram.Histogram { return hdrhistogram.New(histMin, histMax, histDigits) }

// opShards spreads the recording of one operation: goroutines that record at once rarely share a lock.
const opShards = 8

// Op counts the calls of one operation, and keeps the latencies of those that belong to the window (see
// Rig.times). Its methods may be called from any goroutine; rotate is for one goroutine at a time.
type Op struct {
	name string
	rig  *Rig
	// A recording goroutine takes the shard of its own number, modulo opShards.
	shards [opShards]opShard
	// scratch is the histogram of one interval, reused by rotate.
	scratch *hdrhistogram.Histogram
}

// opShard is the part of an Op that some of the goroutines record into. mu guards all but the two
// counters, which drivers read while calls go on.
type opShard struct {
	mu sync.Mutex
	// interval has the latencies since the last rotate.
	interval *hdrhistogram.Histogram
	// all has those of the whole window up to then.
	all *hdrhistogram.Histogram
	// sumNanos is the sum of the latencies of the window in nanoseconds: the mean comes from it,
	// since histograms round.
	sumNanos float64
	// calls are those of the window that ended well, and all that failed since the start.
	calls Calls
	// items counts what was acknowledged in the window.
	items atomic.Uint64
	// life counts what was acknowledged since the start, warm-up included.
	life atomic.Uint64
	// The padding keeps two shards off one cache line.
	_ [64]byte
}

// Record notes one call that began at a time (the intended one, in an open loop) and has just ended: how many items it
// had, and how it ended. shard is any number that differs between goroutines.
func (o *Op) Record(shard int, began time.Time, items int, err error) {
	s := &o.shards[uint(shard)%opShards]
	if err != nil {
		o.fail(s, err)
		return
	}
	s.life.Add(uint64(items))
	measuring := o.rig.measuring.Load()
	if measuring {
		s.items.Add(uint64(items))
	}
	if !o.rig.times(measuring, began) {
		return
	}
	d := time.Since(began)
	us := min(max(d.Microseconds(), histMin), histMax)
	s.mu.Lock()
	s.calls.OK++
	s.sumNanos += float64(d)
	_ = s.interval.RecordValue(us) // it is within the range
	s.mu.Unlock()
}

// Count notes acknowledged items whose latency another operation has.
func (o *Op) Count(shard, items int) {
	s := &o.shards[uint(shard)%opShards]
	s.life.Add(uint64(items))
	if o.rig.measuring.Load() {
		s.items.Add(uint64(items))
		s.mu.Lock()
		s.calls.OK++
		s.mu.Unlock()
	}
}

// Latency notes a latency that no call of its own had, such as from create to claim.
func (o *Op) Latency(shard int, d time.Duration) {
	if !o.rig.measuring.Load() {
		return
	}
	s := &o.shards[uint(shard)%opShards]
	us := min(max(d.Microseconds(), histMin), histMax)
	s.mu.Lock()
	s.sumNanos += float64(d)
	_ = s.interval.RecordValue(us) // it is within the range
	s.mu.Unlock()
}

// Dropped notes an arrival that could not be started.
func (o *Op) Dropped() {
	s := &o.shards[0]
	s.mu.Lock()
	s.calls.Dropped++
	s.mu.Unlock()
}

// fail counts a call that failed: as unknown where the server may have applied it, else as refused.
func (o *Op) fail(s *opShard, err error) {
	unknown := o.rig.classify(o.name, err)
	s.mu.Lock()
	if unknown {
		s.calls.Unknown++
	} else {
		s.calls.Refused++
	}
	s.mu.Unlock()
}

// reset forgets successes and latencies from before the window. Failures stay counted: an error in
// the warm-up is an error of the run.
func (o *Op) reset() {
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		s.interval.Reset()
		s.all.Reset()
		s.calls.OK, s.sumNanos = 0, 0
		s.items.Store(0)
		s.mu.Unlock()
	}
}

// items returns how many items were acknowledged in the window so far.
func (o *Op) items() (n uint64) {
	for i := range o.shards {
		n += o.shards[i].items.Load()
	}
	return n
}

// Acked returns how many items were acknowledged since the start, warm-up included.
func (o *Op) Acked() (n uint64) {
	for i := range o.shards {
		n += o.shards[i].life.Load()
	}
	return n
}

// rotate returns the histogram of the interval that ends now, and begins another. It is good until the next call.
func (o *Op) rotate() *hdrhistogram.Histogram {
	if o.scratch == nil {
		o.scratch = newHist()
	}
	into := o.scratch
	if into.TotalCount() > 0 {
		into.Reset()
	}
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		if s.interval.TotalCount() > 0 {
			into.Merge(s.interval)
			s.all.Merge(s.interval)
			s.interval.Reset()
		}
		s.mu.Unlock()
	}
	return into
}

// summary returns the latencies and calls of the window so far, the open interval included.
func (o *Op) summary() (Latency, Calls) {
	all, calls, sum := newHist(), Calls{}, 0.0
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		all.Merge(s.all)
		all.Merge(s.interval)
		calls.OK += s.calls.OK
		calls.Refused += s.calls.Refused
		calls.Unknown += s.calls.Unknown
		calls.Dropped += s.calls.Dropped
		sum += s.sumNanos
		s.mu.Unlock()
	}
	n := all.TotalCount()
	if n == 0 {
		return Latency{}, calls
	}
	at := func(q float64) float64 { return float64(all.ValueAtQuantile(q)) }
	return Latency{
		Count: uint64(n), P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(all.Max()),
		Mean: sum / float64(n) / 1e3,
	}, calls
}

// P50 returns the median latency of the window so far, in microseconds.
func (o *Op) P50() float64 {
	l, _ := o.summary()
	return l.P50
}

// P99 returns the 99th percentile of the latencies in the window so far, in microseconds; 0 when there are none.
func (o *Op) P99() float64 {
	l, _ := o.summary()
	return l.P99
}

// histLog keeps one histogram per interval and operation in memory, in the format of HdrHistogram
// logs, until save writes them. One goroutine at a time uses it.
type histLog struct {
	start time.Time
	logs  map[string]*opLog
}

// opLog is the log of one operation: w writes into b.
type opLog struct {
	b bytes.Buffer
	w *hdrhistogram.HistogramLogWriter
}

func newHistLog(start time.Time) *histLog {
	return &histLog{start: start, logs: map[string]*opLog{}}
}

// add writes the interval of an operation, from from to to. The first one of an operation begins its log.
func (l *histLog) add(op string, h *hdrhistogram.Histogram, from, to time.Time) error {
	o := l.logs[op]
	if o == nil {
		o = &opLog{}
		o.w = hdrhistogram.NewHistogramLogWriter(&o.b)
		if err := o.w.OutputLogFormatVersion(); err != nil {
			return err
		}
		if err := o.w.OutputStartTime(l.start.UnixMilli()); err != nil {
			return err
		}
		if err := o.w.OutputLegend(); err != nil {
			return err
		}
		l.logs[op] = o
	}
	h.SetTag(op)
	h.SetStartTimeMs(from.UnixMilli())
	h.SetEndTimeMs(to.UnixMilli())
	return o.w.OutputIntervalHistogram(h)
}

// save writes the logs to out/hist/BASE.OP.hlog and returns their paths below out. There is nothing
// to save when no window opened.
func (l *histLog) save(out, base string) ([]string, error) {
	if l == nil || len(l.logs) == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Join(out, "hist"), 0o755); err != nil {
		return nil, fmt.Errorf("keep histograms: %w", err)
	}
	var names []string
	for _, op := range sortedKeys(l.logs) {
		name := filepath.Join("hist", base+"."+op+".hlog")
		if err := os.WriteFile(filepath.Join(out, name), l.logs[op].b.Bytes(), 0o644); err != nil {
			return nil, fmt.Errorf("keep histograms: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}
