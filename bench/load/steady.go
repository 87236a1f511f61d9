package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/bench"
	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// A window of steadyWindow fills steadyRetain with ended tasks well before its middle. Shorter windows retain
// less in proportion, so that the same share of them runs with tasks removed as fast as others end.
const (
	// steadyWindow is the window that the whole of steadyRetain belongs to.
	steadyWindow = 10 * time.Minute
	// steadyRetain is in bytes.
	steadyRetain = 1 << 30
	// steadyFirst is the first part of the window, which the rest is compared with.
	steadyFirst = 20 * time.Second
	// steadyShortest is the shortest window whose disk use is judged: segments of the log are larger than what a few
	// seconds write.
	steadyShortest = time.Minute
)

// steadyRun follows a load through a long window, and compares its end with its beginning.
type steadyRun struct {
	rig *bench.Rig
	// admin is where the server's use of disk is read; empty: it is not seen.
	admin adminPage
	// first is the length of the part at the beginning.
	first time.Duration
	// count is the operation whose acknowledgements are counted; empty: complete.
	count string
	// timed is the operation whose latencies are kept; empty: cycle.
	timed string

	mu sync.Mutex // guards the fields below
	// began is the beginning of the window; zero: it has not begun.
	began time.Time
	// early has the latencies of the first part.
	early *hdrhistogram.Histogram
	// late has the latencies of the second half.
	late *hdrhistogram.Histogram
	// samples are in the order of their times, one for about each second.
	samples []steadySample
	// unseen is why the disk could not be read.
	unseen error
}

// steadySample is where the run stands at one time: done operations since the start, and bytes on disk.
type steadySample struct {
	// at is the time since the window began.
	at time.Duration
	// done is the number of operations that were acknowledged so far.
	done uint64
	// disk is the store's and the log's bytes, debt what the store has still to compact.
	disk, debt float64
}

// Steady is Queue for so long that retention removes tasks as fast as others end. Its end is
// compared with its beginning.
func Steady(ctx context.Context, rig *bench.Rig) error {
	if rig.Ceiling {
		return Queue(ctx, rig)
	}
	s := &steadyRun{rig: rig, first: min(steadyFirst, rig.Window/5), early: newLatencies(), late: newLatencies()}
	if err := s.retain(ctx); err != nil {
		return err
	}
	rig.Purges()
	return errors.Join(s.follow(ctx, Queue), s.removed(ctx))
}

// follow drives the load and watches it. A server whose disk cannot be seen is driven all the same,
// with a warning.
func (s *steadyRun) follow(ctx context.Context, drive bench.Driver) (err error) {
	if s.admin, err = adminOf(s.rig); err != nil {
		s.unseen = err
	}
	s.rig.OnInterval = s.interval
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(watching)
	}()
	err = drive(ctx, s.rig)
	stop()
	<-done
	s.report()
	return err
}

// newLatencies returns a histogram in microseconds, up to an hour, with three significant digits.
func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
}

// retain sets how many bytes of ended tasks the namespace keeps, in proportion to the window.
func (s *steadyRun) retain(ctx context.Context) error {
	c, err := s.rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the one call was answered, or an error tells
	// bytes is less than the whole for a window that is shorter.
	bytes := int64(float64(steadyRetain) * min(float64(s.rig.Window)/float64(steadyWindow), 1))
	_, err = pb.NewQueueServiceClient(c.Conn()).SetNamespace(ctx, &pb.SetNamespaceRequest{
		Config: &pb.NamespaceConfig{AutoCreate: proto.Bool(true), RetainBytes: bytes},
	})
	if err != nil {
		return fmt.Errorf("set the namespace's retention: %w", err)
	}
	s.rig.Metric("retain_mib", float64(bytes)/(1<<20), "MiB")
	return nil
}

// watch takes a sample when the window begins and then each second, until it ends.
func (s *steadyRun) watch(ctx context.Context) {
	select {
	case <-s.rig.Began():
	case <-ctx.Done():
		return
	}
	s.mu.Lock()
	s.began = time.Now()
	s.mu.Unlock()
	tick := time.NewTicker(min(time.Second, s.rig.Window/10))
	defer tick.Stop()
	for !s.rig.Done() {
		s.sample(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample takes one sample, and shows disk and debt in the run's series.
func (s *steadyRun) sample(ctx context.Context) {
	const (
		store, log = "millrace_store_disk_bytes", "millrace_wal_disk_bytes"
		debt       = "millrace_store_compaction_debt_bytes"
	)
	// The count is read before the disk, whose answer takes time.
	x := steadySample{done: s.rig.Op(cmp.Or(s.count, "complete")).Acked()}
	s.mu.Lock()
	x.at = time.Since(s.began)
	s.mu.Unlock()
	if s.admin != "" {
		m, err := s.admin.metrics(ctx, store, log, debt)
		if err != nil {
			if ctx.Err() == nil && !s.rig.Done() { // the look that the window's end cuts off is none
				s.mu.Lock()
				s.unseen = err
				s.mu.Unlock()
			}
			return
		}
		x.disk, x.debt = m[store]+m[log], m[debt]
		s.rig.Gauge("disk_bytes", x.disk)
		s.rig.Gauge("compaction_debt_bytes", x.debt)
	}
	s.mu.Lock()
	s.samples = append(s.samples, x)
	s.mu.Unlock()
}

// interval takes the latencies of one second, as the harness ends it.
func (s *steadyRun) interval(op string, h *hdrhistogram.Histogram) {
	if op != cmp.Or(s.timed, "cycle") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Latencies of the warm-up are not of the window.
	if s.began.IsZero() {
		return
	}
	switch at := time.Since(s.began); {
	case at <= s.first+s.first/10: // the interval that ends with the first part ends a little after it
		s.early.Merge(h)
	case at > s.rig.Window/2:
		s.late.Merge(h)
	}
}

// between returns the samples from one time of the window to another. The caller holds mu.
func (s *steadyRun) between(from, to time.Duration) []steadySample {
	var out []steadySample
	for _, x := range s.samples {
		if x.at >= from && x.at <= to {
			out = append(out, x)
		}
	}
	return out
}

// rate is operations a second over samples; 0 for fewer than two.
func rate(samples []steadySample) float64 {
	if len(samples) < 2 {
		return 0
	}
	// The rate is between the first and the last sample, whatever lies between them.
	a, b := samples[0], samples[len(samples)-1]
	return float64(b.done-a.done) / (b.at - a.at).Seconds()
}

// peak is the largest value of samples; 0 for none.
func peak(samples []steadySample, of func(x steadySample) float64) (most float64) {
	for _, x := range samples {
		most = max(most, of(x))
	}
	return most
}

// report compares rates, p99 and disk of the end with those of the beginning. The disk of a short
// window is not judged.
func (s *steadyRun) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rig, w := s.rig, s.rig.Window
	first, last := rate(s.between(0, s.first)), rate(s.between(w/2, w))
	if first > 0 {
		what := cmp.Or(s.timed, "cycle") + "s"
		rig.Metric("first_"+what+"_per_s", first, what+"/s")
		rig.Metric("last_"+what+"_per_s", last, what+"/s")
		rig.Metric("steady_ratio", last/first, "×")
	}
	if a, b := s.early.ValueAtQuantile(99), s.late.ValueAtQuantile(99); s.early.TotalCount() > 0 && a > 0 {
		rig.Metric("first_p99_us", float64(a), "µs")
		rig.Metric("last_p99_us", float64(b), "µs")
		rig.Metric("steady_p99_ratio", float64(b)/float64(a), "×")
	}
	if s.unseen != nil {
		rig.Warn("disk_unseen", s.unseen.Error(), 0)
		return
	}
	disk := func(x steadySample) float64 { return x.disk }
	// The last third is compared with the middle one, because the disk still fills in the first.
	most, middle, end := peak(s.samples, disk), peak(s.between(w/3, w*2/3), disk), peak(s.between(w*2/3, w), disk)
	rig.Metric("disk_peak_mib", most/(1<<20), "MiB")
	rig.Metric("compaction_debt_peak_mib", peak(s.samples, func(x steadySample) float64 { return x.debt })/(1<<20), "MiB")
	if middle > 0 && w >= steadyShortest {
		rig.Metric("disk_growth", end/middle, "×")
	}
}

// removed tells how many ended tasks retention removed: a run in which it removed none shows no steady state.
func (s *steadyRun) removed(ctx context.Context) error {
	c, err := s.rig.Dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it only reads
	stats, err := c.Queue(s.rig.Queue).Stats(ctx)
	if err != nil {
		return err
	}
	s.rig.Metric("removed_tasks", float64(stats.Purged), "tasks")
	if stats.Purged == 0 {
		s.rig.Warn("retention_unreached", fmt.Sprintf("the %d tasks that ended take less than what is retained: none was removed", stats.Completed), 0)
	}
	return nil
}
