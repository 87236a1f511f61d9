package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// decision is the path of a decision record, with its number.
var decision = regexp.MustCompile(`^docs/decisions/(\d{4})-[a-z0-9-]+\.md$`)

// status is a record's second paragraph.
var status = regexp.MustCompile(`^Status: (proposed|accepted|replaced by \d{4})$`)

// checkDecisions finds decision records without a status, and numbers that are used twice or left out.
func checkDecisions(t *tree) ([]finding, error) {
	var out []finding
	// n is the number that the last record should have: docs are in order of their names, which begin with the numbers.
	n := 0
	for _, doc := range t.docs {
		m := decision.FindStringSubmatch(doc)
		if m == nil {
			continue
		}
		n++
		if want := fmt.Sprintf("%04d", n); m[1] != want {
			out = append(out, finding{doc, 1, "decisions are numbered in order: want " + want})
		}
		lines, err := prose(t.fsys, doc)
		if err != nil {
			return nil, err
		}
		// Line 1 is the title and line 2 is empty, so the second paragraph is line 3.
		if len(lines) < 3 || !status.MatchString(strings.TrimSpace(lines[2])) {
			out = append(out, finding{doc, 3, "a decision's second paragraph must be its status, such as \"Status: accepted\""})
		}
	}
	return out, nil
}
