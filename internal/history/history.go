// Package history keeps in memory what the counters of queues, and of the node, were: each ten seconds for an hour, and each five minutes
// for a day.
//
// It has no clock and no goroutine: who samples names the times. Time is divided into steps, counted from the zero of the boot
// clock, so that steps of the wall clock move nothing. See DESIGN.md.
package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

const (
	// Step is the length of a step: there is one sample in each.
	Step = 10 * time.Second
	// CoarseStep is the length of a step of the day.
	CoarseStep = coarse * Step
	// SparkBins is how many half minutes a spark line has.
	SparkBins = 30
	// Missing is the value of a step without a sample.
	Missing = math.MaxUint32

	steps       = 360 // kept of Step: an hour
	coarse      = 30  // steps of a coarse one
	coarseSteps = 288 // kept: a day
	rateSteps   = 6   // of which rates are: a minute
	binSteps    = 3   // of a bin of a spark line
)

// Series is one of the numbers that are kept of a queue.
type Series int

// The series. The first four count what was done within the step, the others are at its end.
const (
	Created Series = iota
	Completed
	Failed
	Crashed
	Ready
	Running
	Dead
	seriesKept
	flows = Ready
)

// The series of the node, in the places of those of a queue.
const (
	Entries      = Created   // written to its log
	Syncs        = Completed // of its log
	LogKiB       = Failed    // written to its log
	Mutations    = Crashed   // written to its store
	DiskFreeMiB  = Ready
	MemoryMiB    = Running // taken by the process
	LogOnDiskMiB = Dead
)

// seriesNames are what clients call the series, of a queue and of the node.
var seriesNames = [...][seriesKept]string{
	{"created", "completed", "failed", "crashed", "ready", "running", "dead"},
	{"entries", "fsyncs", "log_kib", "mutations", "disk_free_mib", "memory_mib", "log_on_disk_mib"},
}

// SeriesNames are what clients call the series of queues, or of the node, by Series.
func SeriesNames(node bool) []string {
	if node {
		return seriesNames[1][:]
	}
	return seriesNames[0][:]
}

// Key names a queue. An empty Queue is all queues of the namespace together.
type Key struct {
	Tenant    core.TenantID
	Namespace core.NamespaceID
	Queue     string
	// Node is the node itself, which has series of its own: the other fields are zero.
	Node bool
}

// Counters are what is sampled, by Series: the first four count from the first task on.
type Counters [seriesKept]uint64

// Rates are per second.
type Rates struct{ Created, Completed, Failed, Crashed float64 }

const (
	seriesBytes = int64(seriesKept) * (steps + coarseSteps) * 4
	// knownBytes is about what is held for a queue without its series: its name, its last counters and its place in the map.
	knownBytes = 256
)

// History is safe for use by several goroutines.
type History struct {
	// Bounds of known and of those of them that have series.
	maxKnown, maxSeries int

	// mu guards the fields below.
	mu     sync.Mutex
	known  map[Key]*line
	filled int           // of known, have series
	step   int64         // of the last sample; -1: there is none
	at     time.Duration // of the last sample, by the boot clock
	wall   time.Time     // of the last sample
	// The sample that is being taken is the run-th, and has a sample before it in the step before, or in the same.
	run    uint64
	joined bool
}

// line is what is known of a queue.
type line struct {
	key  Key
	last Counters
	born uint64 // run in which it became known
	run  uint64 // of its last sample
	busy uint64 // what it did lately: it loses a 32nd with each step
	kept *rings // nil: there is no room for its series
}

// rings are the series of a queue, by step modulo their length.
type rings struct {
	fine   [seriesKept][steps]uint32
	coarse [seriesKept][coarseSteps]uint32
}

// New makes a history that holds about bytes at most.
func New(bytes int64) *History {
	return &History{
		maxKnown: int(bytes / 5 / knownBytes), maxSeries: int(bytes / 5 * 4 / seriesBytes), known: make(map[Key]*line), step: -1,
	}
}

// Begin begins a sample that is taken at a time of the boot clock, which never falls; wall is only shown. All queues are added, and
// End ends it. One goroutine takes samples.
func (h *History) Begin(at time.Duration, wall time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	step := int64(at / Step)
	h.run++
	h.joined = h.step >= 0 && step <= h.step+1
	if h.step >= 0 {
		for _, l := range h.known {
			l.advance(h.step, step)
		}
	}
	h.step, h.at, h.wall = step, at, wall
}

// advance makes the steps after from, up to to, steps without a sample.
func (l *line) advance(from, to int64) {
	for s := max(from, to-steps) + 1; s <= to; s++ {
		l.busy -= (l.busy + 31) / 32
		if l.kept != nil {
			for i := range l.kept.fine {
				l.kept.fine[i][s%steps] = Missing
			}
		}
	}
	if l.kept == nil {
		return
	}
	for s := max(from/coarse, to/coarse-coarseSteps) + 1; s <= to/coarse; s++ {
		for i := range l.kept.coarse {
			l.kept.coarse[i][s%coarseSteps] = Missing
		}
	}
}

// Add adds the counters of a queue to the sample, once.
func (h *History) Add(k Key, c Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.known[k]
	joined := h.joined
	if l == nil {
		if len(h.known) >= h.maxKnown+h.maxKnown/16 {
			return
		}
		k.Queue = strings.Clone(k.Queue)
		l = &line{key: k, born: h.run, run: h.run - 1}
		// Where all queues were known, one that was not has come since the last sample, and has counted from 0.
		joined = joined && len(h.known) < h.maxKnown
		h.known[k] = l
	}
	if l.kept == nil && h.filled < h.maxSeries {
		h.fill(l)
	}
	joined = joined && l.run == h.run-1
	for i := range flows {
		joined = joined && c[i] >= l.last[i]
	}
	if joined {
		for i := range flows {
			l.busy += c[i] - l.last[i]
		}
	}
	if l.kept != nil {
		l.kept.add(h.step, &l.last, &c, joined)
	}
	l.last, l.run = c, h.run
}

// add notes a sample. Without joined nothing is known of what was done in the step.
func (r *rings) add(step int64, before, now *Counters, joined bool) {
	for i := range seriesKept {
		fine, wide := &r.fine[i][step%steps], &r.coarse[i][step/coarse%coarseSteps]
		switch {
		case i >= flows:
			*fine = short(now[i])
			*wide = *fine
		case joined:
			*fine = plus(*fine, now[i]-before[i])
			*wide = plus(*wide, now[i]-before[i])
		}
	}
}

// short is a number as it is kept. What does not fit is the greatest one that does.
func short(n uint64) uint32 { return uint32(min(n, Missing-1)) }

// plus adds to a number as it is kept.
func plus(a uint32, n uint64) uint32 {
	if a == Missing {
		a = 0
	}
	return short(uint64(a) + min(n, Missing))
}

// fill gives a queue series in which all steps are missing. The mutex is held.
func (h *History) fill(l *line) {
	l.kept = new(rings)
	for i := range seriesKept {
		for s := range l.kept.fine[i] {
			l.kept.fine[i][s] = Missing
		}
		for s := range l.kept.coarse[i] {
			l.kept.coarse[i][s] = Missing
		}
	}
	h.filled++
}

// End ends a sample. Queues that were not in it are forgotten. Those that do the least make room: for series, to queues that do more
// than twice as much, so that two which are alike do not take them from each other.
func (h *History) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var with, without []*line
	tooMany := len(h.known) > h.maxKnown
	for k, l := range h.known {
		switch {
		case l.run != h.run:
			delete(h.known, k)
			if l.kept != nil {
				h.filled--
			}
		case l.kept != nil && k.Node: // it makes room for no queue
		case l.kept != nil:
			with = append(with, l)
		case l.busy > 0 || tooMany: // one that does nothing takes no series from others
			without = append(without, l)
		}
	}
	if len(without) == 0 {
		return
	}
	slices.SortFunc(with, lessBusy)
	slices.SortFunc(without, lessBusy)
	for i := 0; i < len(with) && i < len(without); i++ {
		out, in := with[i], without[len(without)-1-i]
		if in.busy <= 2*out.busy {
			break
		}
		out.kept = nil
		h.filled--
		h.fill(in)
	}
	for _, l := range without {
		if len(h.known) <= h.maxKnown {
			return
		}
		if l.kept == nil {
			delete(h.known, l.key)
		}
	}
}

// lessBusy orders queues: those that did the least come first, and of those that did the same the ones known for longest, so that each
// of many has its turn to be known.
func lessBusy(a, b *line) int {
	return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.born, b.born), strings.Compare(a.key.Queue, b.key.Queue))
}

// of returns the series of a queue; nil: there are none, or the last sample is more than two steps before now. The mutex is held.
func (h *History) of(k Key, now time.Duration) *rings {
	if l := h.known[k]; l != nil && h.step >= 0 && int64(now/Step) <= h.step+2 {
		return l.kept
	}
	return nil
}

// Rates returns what a queue did per second in the steps of the last minute that there are; false: there are none.
func (h *History) Rates(k Key, now time.Duration) (r Rates, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.of(k, now)
	if kept == nil {
		return r, false
	}
	var sums [flows]uint64
	n := 0
	for i := range flows {
		sums[i], n = kept.sum(i, h.step-rateSteps, h.step)
	}
	if n == 0 {
		return r, false
	}
	per := func(s Series) float64 { return float64(sums[s]) / (float64(n) * Step.Seconds()) }
	return Rates{Created: per(Created), Completed: per(Completed), Failed: per(Failed), Crashed: per(Crashed)}, true
}

// sum adds up the steps after from, up to to, that are not missing, and counts them.
func (r *rings) sum(i Series, from, to int64) (sum uint64, n int) {
	for s := max(from+1, 0); s <= to; s++ {
		if v := r.fine[i][s%steps]; v != Missing {
			sum += uint64(v)
			n++
		}
	}
	return sum, n
}

// Spark returns how many tasks of a queue were completed in each of the last half minutes, oldest first, up to the last step. It begins
// after the last half minute without a sample; nil: that is the last one.
func (h *History) Spark(k Key, now time.Duration) []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.of(k, now)
	if kept == nil {
		return nil
	}
	var out []uint32
	for to := h.step; len(out) < SparkBins; to -= binSteps {
		sum, n := kept.sum(Completed, to-binSteps, to)
		if n == 0 {
			break
		}
		out = append(out, short(sum))
	}
	slices.Reverse(out)
	return out
}

// Steps is how many steps an hour has, or a day of coarse ones.
func Steps(day bool) int {
	if day {
		return coarseSteps
	}
	return steps
}

// Line is one series of a queue.
type Line struct {
	// The length of its steps.
	Step time.Duration
	// When its last step began, by the wall clock at the last sample.
	Last time.Time
	// One value for each step, oldest first. Of a coarse step that lacks some of its steps it is of the others.
	Values []uint32
}

// All returns all series of a queue, by Series, of the same steps: an hour of them, or a day of coarse ones. false: none are kept.
func (h *History) All(k Key, day bool) ([]Line, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.known[k]
	if of == nil || of.kept == nil {
		return nil, false
	}
	length, step := Step, h.step
	if day {
		length, step = CoarseStep, h.step/coarse
	}
	last := h.wall.Add(time.Duration(step)*length - h.at)
	out := make([]Line, seriesKept)
	for s := range out {
		ring := of.kept.fine[s][:]
		if day {
			ring = of.kept.coarse[s][:]
		}
		first := int((step + 1) % int64(len(ring)))
		out[s] = Line{Step: length, Last: last, Values: slices.Concat(ring[first:], ring[:first])}
	}
	return out, true
}

// Recent is what a queue did lately, as its series tell.
type Recent struct {
	// Rise is by how much its dead tasks rose within the last ten minutes, and RiseSince when that began, by the wall clock at the last sample.
	Rise      uint64
	RiseSince time.Time
	// Ended and Crashed are its attempts of the last minute: all that ended, and those that crashed.
	Ended, Crashed uint64
	// CrashedSince is when the crashes of these ten minutes began that come up to now with less than a minute in between; zero: there are none.
	CrashedSince time.Time
}

// recentSteps is how far Recent looks back.
const recentSteps = 60

// Recent returns what a queue did lately; false: nothing is known of it.
func (h *History) Recent(k Key, now time.Duration) (r Recent, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.of(k, now)
	if kept == nil {
		return r, false
	}
	begun := func(step int64) time.Time { return h.wall.Add(time.Duration(step)*Step - h.at) }
	for _, s := range [...]Series{Completed, Failed, Crashed} {
		sum, _ := kept.sum(s, h.step-rateSteps, h.step)
		r.Ended += sum
	}
	r.Crashed, _ = kept.sum(Crashed, h.step-rateSteps, h.step)
	first := max(h.step-recentSteps+1, 0)
	least := uint64(Missing)
	for s := first; s <= h.step; s++ {
		n := uint64(kept.fine[Dead][s%steps])
		if n == Missing {
			continue
		}
		// Of equal lows the last one counts: the rise began after it.
		if n <= least {
			least, r.RiseSince = n, begun(s+1)
		}
		r.Rise = n - least
	}
	if r.Rise == 0 {
		r.RiseSince = time.Time{}
	}
	last := int64(-1)
	for s := h.step; s >= first && (last < 0 || last-s <= rateSteps); s-- {
		if n := kept.fine[Crashed][s%steps]; n != Missing && n > 0 {
			last = s
			r.CrashedSince = begun(s)
		} else if last < 0 && h.step-s >= rateSteps {
			break
		}
	}
	return r, true
}
