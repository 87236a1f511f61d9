package retrieval

import (
	"cmp"
	"slices"
)

// nearTried bounds the names that a misspelled role is compared with.
const nearTried = 10_000

// nearRoles returns at most three roles that are spelled like one, nearest first: at most two edits away, or a third of
// its length.
func (in *inner) nearRoles(fields []int, role string) []string {
	type near struct {
		name string
		far  int
	}
	limit := max(2, len(role)/3)
	var found []near
	tried := 0
	for _, f := range fields {
		for name := range in.sets[f].rows {
			if tried++; tried > nearTried {
				break
			}
			if d := editDistance(role, name, limit); d <= limit && !slices.Contains(found, near{name, d}) {
				found = append(found, near{name, d})
			}
		}
	}
	slices.SortFunc(found, func(a, b near) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, n := range found[:min(3, len(found))] {
		out = append(out, n.name)
	}
	return out
}

// editDistance is Levenshtein's, in bytes; beyond limit it is some number above it. row[j] is the
// distance of the bytes of a so far to the first j bytes of b. Once all of them are beyond the
// limit, no later one can be within it.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit || len(a) > 64 || len(b) > 64 {
		return limit + 1
	}
	var row [65]int
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			d := min(row[j]+1, row[j+1]+1)
			if a[i] == b[j] {
				d = min(d, diagonal)
			} else {
				d = min(d, diagonal+1)
			}
			diagonal, row[j+1] = row[j+1], d
			least = min(least, d)
		}
		if least > limit {
			return limit + 1
		}
	}
	return row[len(b)]
}
