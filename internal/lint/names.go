package lint

import (
	"go/ast"
	"regexp"
	"slices"
)

// emptyNames say nothing about what a package holds.
var emptyNames = []string{"common", "util", "utils", "helper", "helpers", "types", "models", "manager"}

// The forms of a TODO: one must cite the issue or the decision that will end it.
var (
	// todo finds every TODO.
	todo = regexp.MustCompile(`\bTODO\b`)
	// citedTodo finds those that cite what will end them.
	citedTodo = regexp.MustCompile(`\bTODO\((#\d+|decision \d{4})\)`)
)

// checkNames finds packages whose name says nothing, init functions, and TODOs that cite nothing.
func checkNames(t *tree) []finding {
	var out []finding
	t.each(func(p *pkg, s *source) {
		if within(p.dir, "gen") {
			return
		}
		if slices.Contains(emptyNames, s.ast.Name.Name) {
			out = append(out, t.at(s, s.ast.Name.Pos(), "package name %s says nothing: name what it holds", s.ast.Name.Name))
		}
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, t.at(s, f.Pos(), "has an init: call what is needed where it is needed"))
			}
		}
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				all, cited := todo.FindAllString(c.Text, -1), citedTodo.FindAllString(c.Text, -1)
				if len(all) > len(cited) && p.dir != "internal/lint" { // which speaks of them
					out = append(out, t.at(s, c.Pos(), "a TODO cites nothing: write TODO(#12) for an issue, TODO(decision 0012) for a record"))
				}
			}
		}
	})
	return out
}
