package lint

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// checkComments finds packages without a package comment, or with two, and exported names without a comment.
func checkComments(t *tree) []finding {
	var out []finding
	for _, p := range t.sorted() {
		if within(p.dir, "gen") {
			continue
		}
		files := slices.DeleteFunc(slices.Clone(p.files), func(s *source) bool { return s.test })
		// Where all files are tests, one of them says what for.
		if len(files) == 0 {
			files = p.files
		}
		var described []*source
		for _, s := range files {
			if s.ast.Doc != nil && strings.TrimSpace(s.ast.Doc.Text()) != "" {
				described = append(described, s)
			}
			if !s.test {
				out = append(out, uncommented(t, s)...)
			}
		}
		switch len(described) {
		case 0:
			out = append(out, finding{files[0].name, 1, "package " + files[0].ast.Name.Name + " has no package comment"})
		case 1:
		default:
			out = append(out, t.at(described[1], described[1].ast.Doc.Pos(), "package %s has a second package comment; the first is in %s",
				described[1].ast.Name.Name, described[0].name))
		}
	}
	return out
}

// wellKnown are methods whose contract is the standard library's, and Code, whose contract is core.Fact's.
var wellKnown = []string{
	"Code", "Error", "String", "Unwrap", "Is", "As", "GoString", "Format", "MarshalText", "UnmarshalText", "MarshalJSON",
	"UnmarshalJSON", "MarshalYAML", "UnmarshalYAML", "Len", "Less", "Swap", "Push", "Pop",
}

// uncommented finds exported types, functions, methods of exported types, constants and variables without a comment;
// one comment over a group, or behind a name, is enough.
func uncommented(t *tree, s *source) []finding {
	var out []finding
	// miss reports one name without a comment.
	miss := func(name *ast.Ident, what string) {
		out = append(out, t.at(s, name.Pos(), "exported %s %s has no comment", what, name.Name))
	}
	for _, decl := range s.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			// A method of an unexported type is seen through an interface at most, whose own comment tells.
			exempt := d.Recv != nil && (!receiverExported(d) || slices.Contains(wellKnown, d.Name.Name))
			if d.Doc == nil && d.Name.IsExported() && !exempt {
				miss(d.Name, "function")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch x := spec.(type) {
				case *ast.TypeSpec:
					if x.Name.IsExported() && d.Doc == nil && x.Doc == nil && x.Comment == nil {
						miss(x.Name, "type")
					}
				case *ast.ValueSpec:
					for _, name := range x.Names {
						if name.IsExported() && d.Doc == nil && x.Doc == nil && x.Comment == nil {
							miss(name, fmt.Sprint(d.Tok))
						}
					}
				}
			}
		}
	}
	return out
}

// receiverExported reports whether the type of a method's receiver is exported, behind a pointer and type parameters.
func receiverExported(d *ast.FuncDecl) bool {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}
