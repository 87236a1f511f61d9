package millrace_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNoGeneratedTypeIsExported walks what users can reach of this package: exported functions, methods, fields, types, variables and
// constants, and through them the exported parts of unexported types. None may name a type of the generated code, or of the engine,
// which would make a change of the contract or of the engine a change of the SDK.
func TestNoGeneratedTypeIsExported(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files were read", len(files))
	}
	for _, found := range exposed(files) {
		t.Error(found)
	}
}

func TestAGeneratedTypeThatIsExportedIsFound(t *testing.T) {
	const head = `package p
import pb "github.com/millrace/millrace/gen/millrace/v1"
import "github.com/millrace/millrace/sdk/go/internal/session"
type kept struct { c *pb.Task }
type shown struct { C *pb.Task }
type fn func(*pb.Task)
func (kept) use(*pb.Task) {}
`
	for _, c := range []struct{ name, source, want string }{
		{"unexported parts", `type T struct { k kept; f fn }; type O interface { apply(*pb.Task) }; func F(t T, o O) {}`, ""},
		{"a parameter", `func F(t *pb.Task) {}`, "F: pb.Task"},
		{"a result in a type argument", `func F() func([]Seq[pb.Task]) { return nil }; type Seq[T any] func(T)`, "F: pb.Task"},
		{"a method", `type T struct{}; func (*T) M(pb.Task) {}`, "T.M: pb.Task"},
		{"a method of a generic type", `type T[A any] struct{}; func (*T[A]) M(pb.Task) {}`, "T.M: pb.Task"},
		{"a field", `type T struct { A int; F map[string]*pb.Task }`, "T: pb.Task"},
		{"an embedded type", `type T struct { *pb.Task }`, "T: pb.Task"},
		{"an alias", `type T = pb.Task`, "T: pb.Task"},
		{"a method of an interface", `type I interface { M(pb.Task) }`, "I: pb.Task"},
		{"a constraint", `func F[A pb.Task | int](a A) {}`, "F: pb.Task"},
		{"an unexported type with an exported field", `func F() shown { return shown{} }`, "F: shown: pb.Task"},
		{"an unexported function type", `type T struct { F fn }`, "T: fn: pb.Task"},
		{"a variable", `var V = pb.Task{}`, "V: pb.Task"},
		{"a type of the engine", `func F(h *session.Hub) {}`, "F: session.Hub"},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", head+c.source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := strings.Join(exposed([]*ast.File{f}), "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// surface is the declarations of a package, as its users see them.
type surface struct {
	types   map[string]*ast.TypeSpec
	methods map[string][]*ast.FuncDecl // by the type of the receiver
	hidden  map[string]bool            // names by which files import packages that users must not see
	found   []string
}

// exposed lists the types of hidden packages that can be reached from the exported declarations of files.
func exposed(files []*ast.File) []string {
	s := &surface{types: map[string]*ast.TypeSpec{}, methods: map[string][]*ast.FuncDecl{}, hidden: map[string]bool{}}
	for _, f := range files {
		s.collect(f)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			s.declaration(d)
		}
	}
	slices.Sort(s.found)
	return slices.Compact(s.found)
}

// collect takes in the imports and types of a file.
func (s *surface) collect(f *ast.File) {
	for _, i := range f.Imports {
		where, _ := strconv.Unquote(i.Path.Value)
		if !strings.Contains(where, "millrace/gen/") && !strings.Contains(where, "sdk/go/internal/") {
			continue
		}
		name := path.Base(where)
		if i.Name != nil {
			name = i.Name.Name
		}
		s.hidden[name] = true
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					s.types[t.Name.Name] = t
				}
			}
		case *ast.FuncDecl:
			if d.Recv != nil {
				name := receiver(d.Recv.List[0].Type)
				s.methods[name] = append(s.methods[name], d)
			}
		}
	}
}

// receiver names the type that a method is of.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// declaration looks at one exported declaration. Methods are looked at with their type.
func (s *surface) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			s.expression(d.Name.Name, d.Type, nil)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					s.typeSpec(spec.Name.Name, spec, nil)
				}
			case *ast.ValueSpec:
				for i, name := range spec.Names {
					switch {
					case !name.IsExported():
					case spec.Type != nil:
						s.expression(name.Name, spec.Type, nil)
					case i < len(spec.Values):
						if lit, ok := spec.Values[i].(*ast.CompositeLit); ok {
							s.expression(name.Name, lit.Type, nil)
						}
					}
				}
			}
		}
	}
}

// typeSpec looks at a type, its type parameters and its exported methods. at says how it was reached, and seen which unexported types
// led there.
func (s *surface) typeSpec(at string, t *ast.TypeSpec, seen []string) {
	if t.TypeParams != nil {
		s.fields(at, t.TypeParams, seen, true)
	}
	s.expression(at, t.Type, seen)
	for _, m := range s.methods[t.Name.Name] {
		if m.Name.IsExported() {
			s.expression(at+"."+m.Name.Name, m.Type, seen)
		}
	}
}

// expression looks at a type expression.
func (s *surface) expression(at string, e ast.Node, seen []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			s.fields(at, n.Fields, seen, false)
			return false
		case *ast.InterfaceType:
			s.fields(at, n.Methods, seen, false)
			return false
		case *ast.FuncType:
			for _, list := range []*ast.FieldList{n.TypeParams, n.Params, n.Results} {
				if list != nil {
					s.fields(at, list, seen, true)
				}
			}
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && s.hidden[x.Name] {
				s.found = append(s.found, at+": "+x.Name+"."+n.Sel.Name)
			}
			return false
		case *ast.Ident:
			t := s.types[n.Name]
			if t != nil && !n.IsExported() && !slices.Contains(seen, n.Name) {
				s.typeSpec(at+": "+n.Name, t, append(slices.Clip(seen), n.Name))
			}
		}
		return true
	})
}

// fields looks at fields, methods of an interface, or with all at parameters, whose names do not matter. What has no name is embedded.
func (s *surface) fields(at string, list *ast.FieldList, seen []string, all bool) {
	for _, f := range list.List {
		if all || len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			s.expression(at, f.Type, seen)
		}
	}
}
