package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// compareAlpha bounds the chance that any of the rows is called changed though none is.
// compareChange is the least change that matters to a user; tests with many runs find smaller ones.
// What a change must be to be called one.
const (
	// compareAlpha holds for all rows together, by Holm's rule.
	compareAlpha = 0.05
	// compareChange is a share of the old median.
	compareChange = 0.03
	// compareRuns is the least number of valid runs of each side: with 4 and 4 the exact test can reach 0.05.
	compareRuns = 4
	// exactChoices bounds how many choices of ranks are counted one by one before the normal
	// approximation is taken.
	exactChoices = 200_000
)

// Words of a comparison.
const (
	Unchanged = "no change"
	Better    = "better"
	Worse     = "worse"
	Unclear   = "cannot decide"
)

// Compared is one row of two results.
type Compared struct {
	Suite      string `json:"suite"`
	Row        string `json:"row"`
	Durability string `json:"durability"`
	Metric     string `json:"metric"`
	Old        Figure `json:"old"`
	New        Figure `json:"new"`
	// Change is new ÷ old − 1, of the medians.
	Change float64 `json:"change"`
	// P is the two-sided p value of Mann–Whitney's test, after Holm's correction. It is 1 where the
	// row is not decided.
	P float64 `json:"p"`
	// Word is one of Unchanged, Better, Worse and Unclear. Empty means that holm has still to
	// decide; no caller sees that.
	Word string `json:"word"`
	Why  string `json:"why,omitempty"`
}

// Compare holds the rows that two results share against each other: a row has changed when Mann–Whitney's test says so at
// 0.05, corrected for the number of rows by Holm, and its median moved by 3 % at least. Error: *UsageError for results of
// different hosts, unless force is set, and for results that share no row under one durability.
func Compare(old, new *Result, force bool) ([]Compared, error) {
	if !force && old.Env.HostHash != new.Env.HostHash {
		return nil, usage("force", "the results are of different hosts, %s and %s: give --force to compare them nevertheless", old.Env.HostHash, new.Env.HostHash)
	}
	var out []Compared
	var missing []string
	for i := range old.Suites {
		a := &old.Suites[i]
		b := new.Find(a.Suite, a.Row, a.Durability)
		if b == nil {
			missing = append(missing, a.Suite+"/"+a.Row+" "+a.Durability)
			continue
		}
		out = append(out, comparedRow(a, b, force))
	}
	if len(out) == 0 {
		return nil, usage("result", "the two results share no row under one durability; the first has %s", strings.Join(missing[:min(len(missing), 5)], ", "))
	}
	holm(out)
	return out, nil
}

// comparedRow compares one row. Word stays empty when the test can decide, so that holm sets it with all rows
// in view. It is Unclear when shapes or labels differ, or when a side has too few runs.
func comparedRow(a, b *Row, force bool) Compared {
	c := Compared{Suite: a.Suite, Row: a.Row, Durability: a.Durability, Metric: a.Headline, Old: a.Summary, New: b.Summary, P: 1}
	if m := a.Summary.Median(); m != 0 {
		c.Change = b.Summary.Median()/m - 1
	}
	switch shape := unlike(a.Shape, b.Shape); {
	case shape != "" && !force:
		c.Word, c.Why = Unclear, "other settings: "+shape
	case a.Label.Topology != b.Label.Topology || a.Label.Note != b.Label.Note:
		c.Word, c.Why = Unclear, fmt.Sprintf("the labels differ: %s, %s", a.Label.Topology, b.Label.Topology)
	case counted(a) < compareRuns || counted(b) < compareRuns:
		c.Word, c.Why = Unclear, fmt.Sprintf("%d and %d valid runs, at least %d of each side decide", counted(a), counted(b), compareRuns)
	default:
		c.P = mannWhitney(a.Summary.values, b.Summary.values)
	}
	return c
}

// counted is how many valid runs a row's figure is made of. A row that is invalid or failed its
// audit has none, though its figure shows values.
func counted(r *Row) int {
	if r.Label.Validity == Invalid || r.Label.Validity == AuditFailed {
		return 0
	}
	return r.Summary.Runs()
}

// unlike names the first setting that differs, with the value of the first list that has it; empty:
// both lists are the same.
func unlike(a, b []Param) string {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return b[i].Name + "=" + b[i].Value
		case i >= len(b) || a[i] != b[i]:
			return a[i].Name + "=" + a[i].Value
		}
	}
	return ""
}

// holm corrects the p values of the undecided rows for their number, and sets the word of each. Holm's rule
// orders the p values and multiplies the k-th least of n by n−k (k from 0), never letting one fall below its
// predecessor: so the chance of even one false change stays below compareAlpha.
func holm(all []Compared) {
	var order []int
	for i := range all {
		if all[i].Word == "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[a].P, all[b].P) })
	least := 0.0
	for k, i := range order {
		c := &all[i]
		least = max(least, min(1, c.P*float64(len(order)-k))) // never below that of a smaller one
		c.P = least
		switch up := c.Change > 0; {
		case c.P >= compareAlpha || math.Abs(c.Change) < compareChange:
			c.Word = Unchanged
		case up == moreIsBetter(c.Old.Unit()):
			c.Word = Better
		default:
			c.Word = Worse
		}
	}
}

// moreIsBetter reports whether a larger value of a unit is the better one: rates are, times and bytes are not.
func moreIsBetter(unit string) bool {
	return strings.HasSuffix(unit, "/s") || unit == "×" || unit == "share"
}

// mannWhitney returns the two-sided p value of the hypothesis that both samples come from one
// distribution. It counts all choices of ranks one by one while there are at most exactChoices of
// them, ties included. Beyond that it takes the normal approximation, with corrections for ties and
// for continuity. Source: Mann and Whitney 1947, On a Test of Whether one of Two Random Variables
// is Stochastically Larger than the Other.
func mannWhitney(a, b []float64) float64 {
	ranks, ties := rank(append(slices.Clone(a), b...))
	n, m := len(a), len(b)
	sum := 0.0
	for _, r := range ranks[:n] {
		sum += r
	}
	mean := float64(n*(n+m+1)) / 2
	off := math.Abs(sum - mean)
	if ways(n+m, n) <= exactChoices {
		// The exact test: the share of all choices whose rank sum is at least as far from the mean
		// as the one that was seen.
		far, total := 0, 0
		chooseRanks(ranks, n, 0, func(s float64) {
			total++
			if math.Abs(s-mean) >= off-1e-9 {
				far++
			}
		})
		return float64(far) / float64(total)
	}
	all := float64(n + m)
	variance := float64(n*m) / 12 * (all + 1 - ties/(all*(all-1)))
	if variance <= 0 {
		return 1
	}
	z := max(0, off-0.5) / math.Sqrt(variance)
	return math.Erfc(z / math.Sqrt2)
}

// rank gives each value its rank from 1, in the order of values; equal values share the mean of their ranks.
// ties is the sum of t³ − t over groups of t equal values, which the variance is corrected by.
func rank(values []float64) (ranks []float64, ties float64) {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	ranks = make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[order[k]] = float64(i+j+1) / 2
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return ranks, ties
}

// ways is the number of ways to choose k of n, or exactChoices+1 when there are more than exactChoices.
func ways(n, k int) int {
	out := 1
	for i := range min(k, n-k) {
		if out = out * (n - i) / (i + 1); out > exactChoices {
			return exactChoices + 1
		}
	}
	return out
}

// chooseRanks calls f with the sum of each choice of k ranks, on top of sum.
func chooseRanks(ranks []float64, k int, sum float64, f func(sum float64)) {
	if k == 0 {
		f(sum)
		return
	}
	for i := 0; i+k <= len(ranks); i++ {
		chooseRanks(ranks[i+1:], k-1, sum+ranks[i], f)
	}
}

// CompareExit is the exit code of a comparison: only a regression fails. A row that cannot be decided does not.
func CompareExit(all []Compared) int {
	code := ExitOK
	for i := range all {
		switch all[i].Word {
		case Worse:
			return ExitFail
		case Unclear:
			code = ExitNoVerdict
		}
	}
	return code
}

// WriteCompared prints a comparison, one line per row, each figure with its label.
func WriteCompared(w io.Writer, all []Compared) error {
	var b strings.Builder
	for i := range all {
		c := &all[i]
		fmt.Fprintf(&b, "%-13s %s/%s %s: %+.1f %%, p %.3f", c.Word, c.Suite, c.Row, c.Durability, 100*c.Change, c.P)
		if c.Why != "" {
			b.WriteString(" (" + c.Why + ")")
		}
		fmt.Fprintf(&b, "\n    old %s\n    new %s\n", c.Old, c.New)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
