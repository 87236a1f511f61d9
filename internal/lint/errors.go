package lint

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// checkErrors finds code that decides by an error's text, and panics without an explanation. Tests may read texts, as
// people do, and may panic.
func checkErrors(t *tree) []finding {
	var out []finding
	t.each(func(p *pkg, s *source) {
		if s.test || isKit(p.dir) || within(p.dir, "gen") {
			return
		}
		explained := commentedLines(t, s)
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && comparesText(n.X, n.Y) {
					out = append(out, t.at(s, n.Pos(), "compares an error's text: match its type"))
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && isErrorText(n.Tag) {
					out = append(out, t.at(s, n.Pos(), "switches on an error's text: match its type"))
				}
			case *ast.CallExpr:
				if searches(s, n) {
					out = append(out, t.at(s, n.Pos(), "searches an error's text: match its type"))
				}
				id, ok := n.Fun.(*ast.Ident)
				line := t.line(n.Pos())
				// id.Obj is nil for the builtin: a function of that name in the same file is not a panic.
				if ok && id.Name == "panic" && id.Obj == nil && p.dir != "internal/errs" && !explained[line] && !explained[line-1] {
					out = append(out, t.at(s, n.Pos(), "panics: use errs.Assertf, or say in a comment why nothing else is left"))
				}
			}
			return true
		})
	})
	return out
}

// comparesText says whether one side is an error's text. Against nil it is an iterator's Error method, which returns
// an error.
func comparesText(x, y ast.Expr) bool {
	// isNil says whether e is the name nil.
	isNil := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "nil"
	}
	return isErrorText(x) && !isNil(y) || isErrorText(y) && !isNil(x)
}

// isErrorText says whether e is a call of Error without arguments, perhaps put into lower case or trimmed.
func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	// Any method of this name counts, whatever the type: types are not known here, and a false alarm is seen at once.
	if sel.Sel.Name == "Error" && len(call.Args) == 0 {
		return true
	}
	// Functions of strings that change a text leave it an error's text.
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "strings" && slices.ContainsFunc(call.Args, isErrorText)
}

// searches says whether a call looks for something in an error's text.
func searches(s *source, call *ast.CallExpr) bool {
	if !slices.ContainsFunc(call.Args, isErrorText) {
		return false
	}
	importPath, name, ok := s.used(call.Fun)
	if ok && (importPath == "strings" || importPath == "regexp") {
		// A name that begins with one of these searches a text.
		return slices.ContainsFunc([]string{"Contains", "Has", "EqualFold", "Index", "LastIndex", "Count", "Cut", "Match"},
			func(head string) bool { return strings.HasPrefix(name, head) })
	}
	// A method of a compiled pattern has such a name too.
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasPrefix(sel.Sel.Name, "Match") || strings.HasPrefix(sel.Sel.Name, "Find"))
}

// commentedLines holds the lines on which a comment ends.
func commentedLines(t *tree, s *source) map[int]bool {
	out := make(map[int]bool)
	for _, group := range s.ast.Comments {
		out[t.line(group.End())] = true
	}
	return out
}

// codesDir declares the codes, and tableFile has a row for each. errs.OK is not an error and needs none.
const (
	codesDir  = "internal/errs"
	tableFile = "internal/edge/errors.go"
)

// checkErrorTable finds codes of errs that no package variable of the edge's error table mentions.
func checkErrorTable(t *tree) []finding {
	// rows are the names of codes that the table mentions.
	rows := make(map[string]bool)
	table := t.file(tableFile)
	if table == nil {
		return []finding{{tableFile, 1, "is missing: it holds the table from facts to codes"}}
	}
	for _, decl := range table.ast.Decls {
		// Only package variables are the table: a function may mention a code for another reason.
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.VAR {
			ast.Inspect(gen, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if importPath, name, _ := table.used(e); importPath == t.module+"/"+codesDir {
						rows[name] = true
					}
				}
				return true
			})
		}
	}
	var out []finding
	codes := t.codes()
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		if name != "OK" && !rows[name] {
			out = append(out, finding{codes[name].file, codes[name].line, "errs." + name + " has no row in the table of " + tableFile})
		}
	}
	return out
}

// codes finds the constants of type Code by their names. The finding of each is its place, without a text.
func (t *tree) codes() map[string]finding {
	out := make(map[string]finding)
	if t.pkgs[codesDir] == nil {
		return out
	}
	for _, s := range t.pkgs[codesDir].files {
		for _, decl := range s.ast.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Code" {
					for _, name := range v.Names {
						out[name.Name] = t.at(s, name.Pos(), "")
					}
				}
			}
		}
	}
	return out
}

// file returns a Go file by name, nil if there is none.
func (t *tree) file(name string) *source {
	for _, p := range t.pkgs {
		for _, s := range p.files {
			if s.name == name {
				return s
			}
		}
	}
	return nil
}
