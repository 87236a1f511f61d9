package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"time"
)

// heartbeat is how often the clocks are read through a window. A pause of the host shows as a gap
// between two beats.
const heartbeat = 50 * time.Millisecond

// watched is one process whose use is charged to the run. The first one of a watch is the driver.
type watched struct {
	name string
	pid  int
	// apart says that the process is not of the row: what it uses is not a cost of the row's
	// operations, but not that of others either.
	apart bool
}

// watch looks at the host through one window. A goroutine beats through the window (run); start and
// stop are its edges, and report, series and ends are read after it.
type watch struct {
	clocks Clocks
	// host is nil where the host is not observed.
	host  Observer
	procs []watched
	// ops reads how much was done so far.
	ops func() (created, completed uint64)
	// gauges reads the driver's gauges; may be nil.
	gauges func() map[string]float64

	mu sync.Mutex // guards the fields below
	// first and last are the clocks at start and at the newest beat.
	first instant
	last  instant
	// worst holds the largest deviations from first, and the longest gap between beats, in milliseconds.
	worst struct{ realtime, boottime, gap float64 }
	beats int
	// thirds has the progress at every beat, from which ends cuts the thirds of the window.
	thirds  []progress
	seconds []hostSecond
	begin   hostMark
	end     hostMark
	// lost says why the host could not be read. The run is then not observed, and counters are read no more.
	lost error
	// spent is the CPU seconds in the window of processes that were watched and have ended.
	spent float64
}

// instant is one reading of all clocks, one right after the other.
type instant struct{ real, mono, boot time.Duration }

// progress is how much was done up to a time.
type progress struct {
	// at is the time since the window began.
	at                 time.Duration
	created, completed uint64
}

// hostMark is the host's counters at one moment. use has an entry for each watched process; a
// process that was gone has CPU NaN.
type hostMark struct {
	at       time.Duration
	cpu      HostCPU
	pressure Pressure
	use      []ProcessUse
}

// hostSecond is the host and the progress at the end of one second.
type hostSecond struct {
	mark               hostMark
	created, completed uint64
	gauges             map[string]float64
}

func newWatch(clocks Clocks, host Observer, procs []watched, ops func() (created, completed uint64)) *watch {
	return &watch{clocks: clocks, host: host, procs: procs, ops: ops}
}

// read reads all clocks.
func (w *watch) read() instant {
	return instant{w.clocks.Realtime(), w.clocks.Monotonic(), w.clocks.Boottime()}
}

// start begins the window.
func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = w.read()
	w.last = w.first
	w.begin = w.mark()
	w.end = w.begin
	w.thirds = append(w.thirds, progress{})
}

// mark reads the host's counters; the first failure is kept in lost. The caller holds mu, so that
// procs does not change.
func (w *watch) mark() hostMark {
	m := hostMark{at: w.clocks.Monotonic() - w.first.mono}
	if w.host == nil || w.lost != nil {
		return m
	}
	var err error
	if m.cpu, err = w.host.CPU(); err != nil {
		w.lost = err
		return m
	}
	if m.pressure, err = w.host.Pressure(); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.lost = err
		return m
	}
	m.use = make([]ProcessUse, len(w.procs))
	for i, p := range w.procs {
		use, err := w.host.Process(p.pid)
		if err != nil {
			use = ProcessUse{CPU: math.NaN()} // it has ended: the run says so by itself
		}
		if i > 0 { // what a server runs is its work; the driver ran the servers
			use.CPU += use.Helpers
		}
		m.use[i] = use
	}
	return m
}

// beat is one heartbeat: it reads the clocks and the progress, and keeps the worst deviations.
func (w *watch) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.read()
	w.beats++
	w.worst.realtime = worse(w.worst.realtime, ms((now.real-w.first.real)-(now.mono-w.first.mono)))
	w.worst.boottime = worse(w.worst.boottime, ms((now.boot-w.first.boot)-(now.mono-w.first.mono)))
	w.worst.gap = max(w.worst.gap, ms(now.boot-w.last.boot))
	w.last = now
	if w.ops != nil {
		created, completed := w.ops()
		w.thirds = append(w.thirds, progress{now.mono - w.first.mono, created, completed})
	}
}

// second keeps the host's counters, once a second.
func (w *watch) second() {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := hostSecond{mark: w.mark()}
	if w.ops != nil {
		s.created, s.completed = w.ops()
	}
	if w.gauges != nil {
		s.gauges = w.gauges()
	}
	w.seconds = append(w.seconds, s)
}

// stop ends the window.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.read()
	w.worst.realtime = worse(w.worst.realtime, ms((now.real-w.first.real)-(now.mono-w.first.mono)))
	w.worst.boottime = worse(w.worst.boottime, ms((now.boot-w.first.boot)-(now.mono-w.first.mono)))
	w.worst.gap = max(w.worst.gap, ms(now.boot-w.last.boot))
	w.last = now
	w.end = w.mark()
	if w.ops != nil {
		created, completed := w.ops()
		w.thirds = append(w.thirds, progress{now.mono - w.first.mono, created, completed})
	}
}

// run beats until ctx ends, keeps a second each second, and calls each once an interval. It blocks;
// all three happen on its goroutine.
func (w *watch) run(ctx context.Context, interval time.Duration, each func()) {
	beats := time.NewTicker(heartbeat)
	defer beats.Stop()
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	intervals := time.NewTicker(interval)
	defer intervals.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
			w.beat()
		case <-seconds.C:
			w.second()
		case <-intervals.C:
			each()
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// worse returns the one of two deviations that is farther from 0.
func worse(a, b float64) float64 {
	if math.Abs(b) > math.Abs(a) {
		return b
	}
	return a
}

// elapsed is the length of the window by the monotonic clock, up to the newest beat.
func (w *watch) elapsed() time.Duration { return w.last.mono - w.first.mono }

// report sums up what was seen. The CPU of others is what the host used without the watched
// processes and without those that ended in the window. A first or last second that is much shorter
// than a second tells nothing about the hypervisor and is passed over.
func (w *watch) report() HostReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := float64(w.elapsed()) / float64(heartbeat)
	out := HostReport{
		Observed: w.host != nil && w.lost == nil, Realtime: w.worst.realtime, Boottime: w.worst.boottime, LongestGap: w.worst.gap,
	}
	if due >= 1 {
		out.Heartbeat = float64(w.beats) / due
	}
	if !out.Observed {
		return out
	}
	cores := float64(max(w.host.Cores(), 1))
	last := w.begin
	for _, s := range w.seconds {
		if span := (s.mark.at - last.at).Seconds() * cores; span > 0.5*cores {
			lost := (s.mark.cpu.Steal - last.cpu.Steal) / span
			out.Steal = max(out.Steal, lost)
			out.Seconds++
			if lost > stealLimit {
				out.Stolen++
			}
		}
		last = s.mark
	}
	seconds := (w.end.at - w.begin.at).Seconds()
	if seconds <= 0 {
		return out
	}
	if len(w.seconds) == 0 {
		out.Steal = (w.end.cpu.Steal - w.begin.cpu.Steal) / (seconds * cores)
	}
	busy, ours := w.end.cpu.Busy-w.begin.cpu.Busy, w.spent
	for i := range w.procs {
		if d := w.cpu(i); d > 0 {
			ours += d
		}
	}
	out.Foreign = max(0, (busy-ours)/(seconds*cores))
	p, q := w.begin.pressure, w.end.pressure
	out.PressureCPU, out.PressureIO, out.PressureMem = (q.CPU-p.CPU)/seconds, (q.IO-p.IO)/seconds, (q.Memory-p.Memory)/seconds
	return out
}

// cpu returns the CPU seconds that watched process i used in the window; NaN when that is not known.
func (w *watch) cpu(i int) float64 {
	if len(w.begin.use) <= i || len(w.end.use) <= i {
		return math.NaN()
	}
	return w.end.use[i].CPU - w.begin.use[i].CPU
}

// series returns the window second by second: differences between consecutive readings.
func (w *watch) series() []Second {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Second
	last := hostSecond{mark: w.begin}
	for i, s := range w.seconds {
		sec := Second{At: i + 1, Created: s.created - last.created, Completed: s.completed - last.completed, Gauges: s.gauges}
		span := (s.mark.at - last.mark.at).Seconds()
		if len(s.mark.use) > 0 && len(last.mark.use) > 0 && span > 0 {
			sec.CPU, sec.RSS = map[string]float64{}, map[string]uint64{}
			for j, p := range w.procs {
				if share := (s.mark.use[j].CPU - last.mark.use[j].CPU) / span; !math.IsNaN(share) {
					sec.CPU[p.name], sec.RSS[p.name] = share, s.mark.use[j].RSS
				}
			}
		}
		out, last = append(out, sec), s
	}
	return out
}

// ends returns the rates of the first and the last third of the window, of what count counts; 0 and
// 0 for a window of too few beats.
func (w *watch) ends(count func(p progress) uint64) (first, last float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.thirds)
	if n < 4 {
		return 0, 0
	}
	end := w.thirds[n-1]
	at := func(d time.Duration) progress {
		for _, p := range w.thirds {
			if p.at >= d {
				return p
			}
		}
		return end
	}
	a, b := at(end.at/3), at(end.at*2/3)
	rate := func(p, q progress) float64 {
		if q.at <= p.at {
			return 0
		}
		return float64(count(q)-count(p)) / (q.at - p.at).Seconds()
	}
	return rate(w.thirds[0], a), rate(b, end)
}
