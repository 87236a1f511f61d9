package lint

import (
	"fmt"
	"go/ast"
	"io/fs"
	"slices"
	"strings"
)

// The tables of the scripts that run tests.
const (
	// longTestsFile has rows of a package and a test.
	longTestsFile = "scripts/long_tests.txt"
	// budgetsFile has rows of "cpu", a package and its seconds, next to rows of other kinds.
	budgetsFile = "scripts/budgets.txt"
)

// checkSuite finds rows of the scripts' tables whose test or package is gone, and rows out of order: a table that nothing holds
// to the code keeps them for ever.
func checkSuite(t *tree) ([]finding, error) {
	// tests has a package and a test with a space between, as rows do.
	tests := make(map[string]bool)
	t.each(func(p *pkg, s *source) {
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				tests[p.dir+" "+f.Name.Name] = true
			}
		}
	})
	var out []finding
	// last is the row before, for the order.
	last := ""
	err := eachRow(t.fsys, longTestsFile, func(line int, words []string) {
		// The rows are sorted, so that two branches that add one seldom meet in a line.
		row := strings.Join(words, " ")
		switch {
		case !tests[row]:
			out = append(out, finding{longTestsFile, line, row + " is not a test: delete the line"})
		case row <= last:
			out = append(out, finding{longTestsFile, line, row + " is out of order"})
		}
		last = row
	})
	if err != nil {
		return nil, err
	}
	err = eachRow(t.fsys, budgetsFile, func(line int, words []string) {
		// Other rows of the budgets do not name packages.
		if words[0] == "cpu" && (len(words) != 3 || t.pkgs[words[1]] == nil) {
			out = append(out, finding{budgetsFile, line, fmt.Sprintf("%q must name a package of this module, and seconds", words)})
		}
	})
	return out, err
}

// eachRow calls f for each line of a table that has words before its #.
func eachRow(fsys fs.FS, name string, f func(line int, words []string)) error {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	for i, text := range slices.Collect(strings.Lines(string(b))) {
		text, _, _ = strings.Cut(text, "#")
		if words := strings.Fields(text); len(words) > 0 {
			f(i+1, words)
		}
	}
	return nil
}
