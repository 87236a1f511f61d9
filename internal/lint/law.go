package lint

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// lawFile is the file of import rules, from the module root.
const lawFile = "internal/lint/imports.txt"

// law is what imports.txt says.
type law struct {
	// rows are in the order of the file. No package is a member of two, as long as its name is written alike in both.
	rows []lawRow
	// planned are packages that have a row before they exist: the line that says so, by pattern.
	planned map[string]int
}

// lawRow says what some packages may import of the module.
type lawRow struct {
	// line is the number of the row's first line.
	line int
	// allowed are the patterns of what may be imported; empty for NONE.
	allowed []string
	// members are the patterns of the packages that may import it.
	members []string
	// text is what is allowed, as it is written.
	text string
	// reason stands after the #. It may be empty.
	reason string
}

// roots are the folders whose packages are named in full; any other name is below internal.
var roots = []string{"gen", "cmd", "test", "bench", "sdk", "pkg", "examples", "ui", "internal"}

// readLaw parses imports.txt: rows of the form
//
//	a, b/{c,d} < e, f/...  # reason
//	planned: e
//
// where "x < y" lets y import x, "..." stands for a folder and all below it, NONE for no package, and a line that ends in
// a comma goes on in the next.
func readLaw(fsys fs.FS) (*law, error) {
	text, err := fs.ReadFile(fsys, lawFile)
	if err != nil {
		return nil, err
	}
	l := &law{planned: make(map[string]int)}
	// pending is the row read so far, whose first line is first; empty between rows.
	pending, first := "", 0
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if pending == "" {
			first = i + 1
		}
		pending += line
		if strings.HasSuffix(line, ",") {
			pending += " "
			continue
		}
		if err := l.add(pending, first); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", lawFile, first, err)
		}
		pending = ""
	}
	if pending != "" {
		return nil, fmt.Errorf("%s:%d: the last line ends in a comma", lawFile, first)
	}
	return l, nil
}

// add parses one row or one list of planned packages, with its lines joined. number is that of its first line.
func (l *law) add(line string, number int) error {
	line, reason, _ := strings.Cut(line, "#")
	if list, ok := strings.CutPrefix(line, "planned:"); ok {
		names, err := patterns(list)
		for _, p := range names {
			l.planned[p] = number
		}
		return err
	}
	left, right, ok := strings.Cut(line, "<")
	if !ok {
		return fmt.Errorf("neither a row (a < b) nor planned: %q", line)
	}
	r := lawRow{line: number, text: strings.TrimSpace(left), reason: strings.TrimSpace(reason)}
	var err error
	if r.text != "NONE" {
		if r.allowed, err = patterns(left); err != nil {
			return err
		}
	}
	if r.members, err = patterns(right); err != nil {
		return err
	}
	// A second row would leave it open which of the two holds.
	for _, m := range r.members {
		for _, other := range l.rows {
			if slices.Contains(other.members, m) {
				return fmt.Errorf("%s has a row already, in line %d", short(m), other.line)
			}
		}
	}
	l.rows = append(l.rows, r)
	return nil
}

// patterns splits a list of names, opens its braces, and names packages from the module root.
func patterns(list string) ([]string, error) {
	var out []string
	rest := strings.TrimSpace(list)
	for rest != "" {
		name, after := splitName(rest)
		rest = strings.TrimSpace(after)
		names := []string{name}
		if head, tail, ok := strings.Cut(name, "{"); ok {
			inner, suffix, closed := strings.Cut(tail, "}")
			if !closed {
				return nil, fmt.Errorf("%q opens a brace and does not close it", name)
			}
			// A name with braces stands for as many names as they have parts.
			names = nil
			for _, part := range strings.Split(inner, ",") {
				names = append(names, head+strings.TrimSpace(part)+suffix)
			}
		}
		for _, n := range names {
			if n == "" || strings.ContainsAny(n, " \t") {
				return nil, fmt.Errorf("%q must be a package name", n)
			}
			// The first element decides whether a name is complete or below internal.
			if first, _, _ := strings.Cut(n, "/"); !slices.Contains(roots, first) {
				n = "internal/" + n
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// splitName cuts at the first comma outside braces.
func splitName(list string) (name, rest string) {
	// depth is how many braces are open.
	depth := 0
	for i, c := range list {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' && depth == 0:
			return strings.TrimSpace(list[:i]), list[i+1:]
		}
	}
	return strings.TrimSpace(list), ""
}

// row returns the row of a package.
func (l *law) row(dir string) (lawRow, bool) {
	// The first row that has the package counts.
	for _, r := range l.rows {
		if slices.ContainsFunc(r.members, func(p string) bool { return matches(p, dir) }) {
			return r, true
		}
	}
	return lawRow{}, false
}

// allows reports whether the row lets its members import a package.
func (r lawRow) allows(dir string) bool {
	return slices.ContainsFunc(r.allowed, func(p string) bool { return matches(p, dir) })
}

// matches reports whether a pattern names a directory: itself, or with /... anything below it too.
func matches(pattern, dir string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(dir, root)
	}
	return pattern == dir
}
