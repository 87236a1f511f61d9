package lint

import (
	"fmt"
	"maps"
	"slices"
)

// serverTests are packages whose tests may start a whole server.
var serverTests = []string{"internal/api", "internal/api/stream", "internal/etcdapi", "internal/githttp", "internal/rest", "sdk/go"}

// checkImports finds imports of the module that imports.txt does not allow, packages without a row, and rows whose
// package is gone.
func checkImports(t *tree, l *law) []finding {
	var out []finding
	for _, p := range t.sorted() {
		r, ok := l.row(p.dir)
		if !ok {
			out = append(out, finding{p.files[0].name, 1, fmt.Sprintf("package %s has no row in %s", short(p.dir), lawFile)})
			continue
		}
		for _, s := range p.files {
			out = append(out, checkFileImports(t, p, s, r)...)
		}
	}
	return append(out, checkRows(t, l)...)
}

// checkFileImports holds the imports of one file against the row of its package. Imports of other modules are
// checkLibraries'.
func checkFileImports(t *tree, p *pkg, s *source, r lawRow) []finding {
	var out []finding
	// Each import is judged by itself, so that each line to change is named.
	for _, im := range s.imports {
		dir, ours := t.inModule(im.path)
		if !ours || r.allows(dir) || (s.test || within(p.dir, "test")) && testMayImport(p.dir, dir) {
			continue
		}
		reason := r.reason
		if reason == "" {
			reason = "a new edge is a decision; its place is " + lawFile
		}
		out = append(out, finding{s.name, im.line, fmt.Sprintf("imports %s; allowed: %s; because: %s", dir, r.text, reason)})
	}
	return out
}

// testMayImport says what a test file of from, or any file below test/, may import besides the row of its package.
func testMayImport(from, dir string) bool {
	// A test of package x_test imports x, and every test may import a kit.
	if dir == from || isKit(dir) {
		return true
	}
	return dir == "internal/server" && slices.Contains(serverTests, from)
}

// checkRows holds the names in imports.txt against the packages there are.
func checkRows(t *tree, l *law) []finding {
	// exists says whether a package fits a pattern.
	exists := func(pattern string) bool {
		for dir := range t.pkgs {
			if matches(pattern, dir) {
				return true
			}
		}
		return false
	}
	var out []finding
	// named is the first line that names a pattern.
	named := make(map[string]int)
	for _, r := range l.rows {
		for _, p := range slices.Concat(r.members, r.allowed) {
			if named[p] == 0 {
				named[p] = r.line
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(named)) {
		// A row that names what is planned is allowed before its package exists.
		if _, planned := l.planned[p]; !planned && !exists(p) {
			out = append(out, finding{
				lawFile, named[p], fmt.Sprintf("names %s, which has no Go file: delete it, or list it as planned", short(p)),
			})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(l.planned)) {
		switch {
		case exists(p):
			out = append(out, finding{
				lawFile, l.planned[p], fmt.Sprintf("lists %s as planned, but it exists: take it off the list", short(p)),
			})
		case named[p] == 0:
			out = append(out, finding{lawFile, l.planned[p], fmt.Sprintf("lists %s as planned, but no row names it", short(p))})
		}
	}
	return out
}
