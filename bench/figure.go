package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Durability is what an acknowledged write of a run survives.
type Durability string

// The durabilities that our servers offer.
const (
	Fsync Durability = "fsync" // acknowledged after fsync on a majority of the voters
	None  Durability = "none"  // page cache only
)

// Validity says how far a figure can be trusted.
type Validity string

// The validities, from the best to the worst. The worst that applies to a row is its own.
const (
	Valid          Validity = "valid"
	HostUnobserved Validity = "host not observed" // no procfs: interference would go unseen
	Unsteady       Validity = "noisy"             // spread over 20 %: something on the host interferes
	LowerBound     Validity = "at least"          // the generator was the wall: the system can do this or more
	NoVerdict      Validity = "no verdict"        // spread over 30 %, or too few valid runs
	Invalid        Validity = "invalid"           // every run was left out
	AuditFailed    Validity = "audit failed"      // acknowledged writes are lost, doubled or different
)

// Topology is where the servers of a run live.
type Topology string

// The topologies.
const (
	Procs  Topology = "procs"  // server processes of this executable, driver in the bench process
	InProc Topology = "inproc" // driver and servers in one process
	Remote Topology = "remote" // servers that were found running
)

// Label is what every figure carries. All fields are required.
type Label struct {
	Durability Durability `json:"durability"`
	Voters     int        `json:"voters"`
	Topology   Topology   `json:"topology"`
	Validity   Validity   `json:"validity"`
	Note       string     `json:"note,omitempty"` // what else sets the figure apart, such as one commit per entry
}

// Class names durability and voters, such as fsync×3. A table column never mixes classes.
func (l Label) Class() string { return string(l.Durability) + "×" + strconv.Itoa(l.Voters) }

// check refuses a label with a field missing. Note is optional.
func (l Label) check() error {
	switch {
	case l.Durability == "":
		return errors.New("a figure without durability")
	case l.Voters < 1:
		return errors.New("a figure without voters")
	case l.Topology == "":
		return errors.New("a figure without topology")
	case l.Validity == "":
		return errors.New("a figure without validity")
	}
	return nil
}

// Figure is one metric over the valid runs of a row. It cannot be made without its label, and prints with it.
type Figure struct {
	// label and unit are never empty in a figure that was made.
	label Label
	unit  string
	// values are those of the valid runs, in the order they ran. The slice is not shared: NewFigure copies it.
	values []float64
}

// NewFigure makes a figure of the values of valid runs. Errors: an incomplete label, no unit, no values, a value that is
// no number.
func NewFigure(label Label, unit string, values ...float64) (Figure, error) {
	if err := label.check(); err != nil {
		return Figure{}, err
	}
	if unit == "" || len(values) == 0 {
		return Figure{}, errors.New("a figure without unit or values")
	}
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Figure{}, fmt.Errorf("a figure of %v %s", v, unit)
		}
	}
	return Figure{label, unit, slices.Clone(values)}, nil
}

// IsZero reports whether f was never made.
func (f Figure) IsZero() bool { return f.unit == "" }

// Label returns what the figure holds for.
func (f Figure) Label() Label { return f.label }

// Unit returns the unit, such as cycles/s or µs.
func (f Figure) Unit() string { return f.unit }

// Runs returns how many valid runs the figure is made of.
func (f Figure) Runs() int { return len(f.values) }

// Values returns the value of each valid run, in the order they ran.
func (f Figure) Values() []float64 { return slices.Clone(f.values) }

// Median returns the middle value, or the mean of the two middle ones.
func (f Figure) Median() float64 { return Median(f.values) }

// Min returns the least value.
func (f Figure) Min() float64 {
	if f.IsZero() {
		return 0
	}
	return slices.Min(f.values)
}

// Max returns the greatest value.
func (f Figure) Max() float64 {
	if f.IsZero() {
		return 0
	}
	return slices.Max(f.values)
}

// MAD returns the median absolute deviation from the median.
func (f Figure) MAD() float64 {
	m := f.Median()
	d := make([]float64, len(f.values))
	for i, v := range f.values {
		d[i] = math.Abs(v - m)
	}
	return Median(d)
}

// Spread returns (max − min) ÷ median; 0 for one run or a median of 0.
func (f Figure) Spread() float64 {
	m := f.Median()
	if m == 0 {
		return 0
	}
	return (f.Max() - f.Min()) / math.Abs(m)
}

// minInterval is the least number of runs that a 95 % interval is printed for: with 5 runs even the
// whole range misses the median in 6 %.
const minInterval = 6

// Interval returns the 95 % interval of the median by the order statistics of the runs; ok is false below 6 runs.
func (f Figure) Interval() (low, high float64, ok bool) {
	n := len(f.values)
	if n < minInterval {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(f.values))
	// The interval from the (k+1)-th least to the (k+1)-th greatest value misses the median with
	// probability 2·P(B ≤ k), where B counts the heads of n throws of a coin: each run lies above
	// the median with probability ½. Take the largest k for which that is at most 5 %. p is P(B =
	// i), and tail is the sum so far.
	k, tail, p := 0, 0.0, math.Pow(0.5, float64(n))
	for i := 0; ; i++ {
		if tail += p; 2*tail > 0.05 {
			break
		}
		k = i
		p = p * float64(n-i) / float64(i+1)
	}
	return sorted[k], sorted[n-1-k], true
}

// Outliers returns the indexes of values that are more than 3 scaled median absolute deviations from the median. They
// are flagged, never dropped.
func (f Figure) Outliers() []int {
	// 1.4826 scales the deviation to the standard deviation of a normal distribution.
	mad := f.MAD() * 1.4826
	if mad == 0 {
		return nil
	}
	var out []int
	for i, v := range f.values {
		if math.Abs(v-f.Median()) > 3*mad {
			out = append(out, i)
		}
	}
	return out
}

// With returns the figure under another validity.
func (f Figure) With(v Validity) Figure {
	if !f.IsZero() && v != "" {
		f.label.Validity = v
	}
	return f
}

// String prints value and label, such as 45,120 cycles/s · fsync×1 · procs · median of 5 (spread 4 %).
func (f Figure) String() string {
	if f.IsZero() {
		return "not measured"
	}
	var b strings.Builder
	if f.label.Validity == LowerBound {
		b.WriteString("≥ ")
	}
	fmt.Fprintf(&b, "%s %s · %s · %s", Number(f.Median()), f.unit, f.label.Class(), f.label.Topology)
	if n := len(f.values); n > 1 {
		fmt.Fprintf(&b, " · median of %d (spread %.0f %%)", n, f.Spread()*100)
	} else {
		b.WriteString(" · one run")
	}
	if f.label.Note != "" {
		b.WriteString(" · " + f.label.Note)
	}
	if f.label.Validity != Valid {
		fmt.Fprintf(&b, " · %s", f.label.Validity)
	}
	return b.String()
}

// figureJSON is the wire form of a figure. Readers take only unit, values and label from it; the
// other fields are there for people and for other programs.
type figureJSON struct {
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	MAD    float64   `json:"mad"`
	Spread float64   `json:"spread"`
	Low    *float64  `json:"ci95_low,omitempty"`
	High   *float64  `json:"ci95_high,omitempty"`
	Runs   int       `json:"runs"`
	Values []float64 `json:"values"`
	Label
}

// MarshalJSON writes value, label and what follows from the values.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f.IsZero() {
		return []byte("null"), nil
	}
	out := figureJSON{
		Unit: f.unit, Median: f.Median(), Min: f.Min(), Max: f.Max(), MAD: f.MAD(), Spread: f.Spread(), Runs: len(f.values),
		Values: f.values, Label: f.label,
	}
	if low, high, ok := f.Interval(); ok {
		out.Low, out.High = &low, &high
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads a figure; what follows from the values is computed again.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = Figure{}
		return nil
	}
	var in figureJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	got, err := NewFigure(in.Label, in.Unit, in.Values...)
	if err != nil {
		return err
	}
	*f = got
	return nil
}

// Median returns the middle value, or the mean of the two middle ones; 0 for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Number prints v for people: thousands apart, and three digits that matter below a hundred.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 0.1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
