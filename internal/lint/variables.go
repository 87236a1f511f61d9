package lint

import (
	"go/ast"
	"go/token"
	"go/types"
)

// variables bans package variables that change: state outside the store would not be replayed.
func (w *replayWalk) variables(n ast.Node) {
	const say = "%s package variable %s: what replicas share is in the store"
	// flag reports each target that is a package variable, or a part of one.
	flag := func(what string, targets ...ast.Expr) {
		for _, e := range targets {
			if v := w.packageVariable(e); v != nil {
				w.report(n, say, what, v.Name())
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			flag("assigns", n.Lhs...)
		}
	case *ast.IncDecStmt:
		flag("assigns", n.X)
	// A range that declares its variables changes none of the package.
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			flag("assigns", n.Key, n.Value)
		}
	// An address lets the variable change where no rule sees it; so does a method with a pointer receiver.
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			flag("takes the address of", n.X)
		}
	case *ast.SelectorExpr:
		if w.addresses(n) {
			flag("takes the address of", n.X)
		}
	case *ast.CallExpr:
		// These builtins change their first argument.
		if id, ok := n.Fun.(*ast.Ident); ok && w.info.Types[n.Fun].IsBuiltin() {
			switch id.Name {
			case "clear", "copy", "delete":
				flag("changes", n.Args[0])
			}
		}
	// Only declarations of the file itself are of package variables; the file is their one parent.
	case *ast.GenDecl:
		if n.Tok == token.VAR && len(w.parents) == 1 {
			w.exported(n)
		}
	}
}

// exported bans exported package variables, which any package could change, but for errors to compare with.
func (w *replayWalk) exported(decl *ast.GenDecl) {
	failure := types.Universe.Lookup("error").Type()
	for _, spec := range decl.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			v := w.info.Defs[name]
			if v != nil && name.IsExported() && !types.Identical(v.Type(), failure) {
				w.report(name, "exports package variable %s, which others can change: offer a function", name.Name)
			}
		}
	}
}

// addresses says whether a selector is a method with a pointer receiver on something that is not a pointer.
func (w *replayWalk) addresses(sel *ast.SelectorExpr) bool {
	s := w.info.Selections[sel]
	if s == nil || s.Kind() != types.MethodVal {
		return false
	}
	recv := s.Obj().(*types.Func).Signature().Recv()
	if recv == nil {
		return false
	}
	_, wantsPointer := recv.Type().(*types.Pointer)
	_, hasPointer := s.Recv().Underlying().(*types.Pointer)
	return wantsPointer && !hasPointer
}

// packageVariable returns the package variable that e is, or is a part of.
func (w *replayWalk) packageVariable(e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			// A selector on an import is a variable of another package.
			if _, _, ok := w.file.used(x); ok {
				return asPackageVariable(w.info.Uses[x.Sel])
			}
			e = x.X
		case *ast.Ident:
			return asPackageVariable(w.info.Uses[x])
		default:
			return nil
		}
	}
}

// asPackageVariable returns an object as a variable, if it is one at the top of a package; else nil.
func asPackageVariable(o types.Object) *types.Var {
	v, ok := o.(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
}
