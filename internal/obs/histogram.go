package obs

import (
	"math/bits"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts whole numbers in buckets of which each reaches twice as far as the one before. Observe is two atomic
// additions and may be called from any goroutine.
type Histogram struct {
	first  uint64
	counts []atomic.Uint64 // the last has what is beyond all bounds
	sum    atomic.Uint64
}

// NewHistogram makes a histogram of the given number of buckets; the first reaches up to first, which is at least 1.
func NewHistogram(first uint64, buckets int) *Histogram {
	return &Histogram{first: max(first, 1), counts: make([]atomic.Uint64, max(buckets, 1)+1)}
}

// Observe counts v.
func (h *Histogram) Observe(v uint64) {
	i := 0
	if v > h.first {
		i = min(bits.Len64((v-1)/h.first), len(h.counts)-1)
	}
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// Distribution is what a histogram had counted at one instant.
type Distribution struct {
	Bounds []float64 // the most that each bucket takes, rising
	Counts []uint64  // of each bucket alone, and at the end of what is beyond the last bound: one more than Bounds
	Sum    float64
}

// Read returns what was counted. Observed numbers are multiplied by unit, such as 1e-6 for microseconds that are
// shown in seconds.
func (h *Histogram) Read(unit float64) Distribution {
	d := Distribution{Bounds: make([]float64, len(h.counts)-1), Counts: make([]uint64, len(h.counts))}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
	}
	for i := range d.Bounds {
		d.Bounds[i] = float64(h.first<<i) * unit
	}
	d.Sum = float64(h.sum.Load()) * unit
	return d
}

// Count is how many numbers were observed.
func (d Distribution) Count() (n uint64) {
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Since is what was counted between an earlier reading of the same histogram and this one. The zero value is a reading of none.
func (d Distribution) Since(earlier Distribution) Distribution {
	out := Distribution{Bounds: d.Bounds, Counts: make([]uint64, len(d.Counts)), Sum: d.Sum - earlier.Sum}
	copy(out.Counts, d.Counts)
	for i := range min(len(earlier.Counts), len(out.Counts)) {
		out.Counts[i] -= earlier.Counts[i]
	}
	return out
}

// Quantile is the number that a share q of the observed ones does not exceed, about: within a bucket they are taken to lie evenly. What
// is beyond all bounds counts as the last one.
func (d Distribution) Quantile(q float64) float64 {
	left := q * float64(d.Count())
	from := 0.0
	for i, bound := range d.Bounds {
		if n := float64(d.Counts[i]); n > 0 && left <= n {
			return from + (bound-from)*left/n
		}
		left -= float64(d.Counts[i])
		from = bound
	}
	return from
}

// metric is the distribution as Prometheus wants it: each bucket with all that is below it.
func (d Distribution) metric(desc *prometheus.Desc) prometheus.Metric {
	below := make(map[float64]uint64, len(d.Bounds))
	n := uint64(0)
	for i, bound := range d.Bounds {
		n += d.Counts[i]
		below[bound] = n
	}
	m, err := prometheus.NewConstHistogram(desc, d.Count(), d.Sum, below)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
