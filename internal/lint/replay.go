package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// checkReplay finds, in packages whose code is replayed by every replica, what types tell: a map walked in its random
// order, a package variable that changes, and a float that is computed with or decides.
//
// All files of a package are checked together, whatever their build tags; what they then declare twice is ignored.
// dir is a directory of the module, where the go command can look up what is outside of it.
func checkReplay(t *tree, dir string) ([]finding, error) {
	// Packages that are imported are type-checked too, but only judged ones have their bodies read.
	judged := func(p *pkg) bool { return replays(p.dir) }
	c := newTypeChecker(t, judged)
	if err := c.findExports(dir); err != nil {
		return nil, err
	}
	var out []finding
	for _, p := range t.sorted() {
		if !judged(p) {
			continue
		}
		c.check(p)
		for _, s := range p.files {
			if !s.test {
				w := &replayWalk{tree: t, file: s, info: c.info}
				ast.Walk(w, s.ast)
				out = append(out, w.out...)
			}
		}
	}
	return append(out, c.unknown...), nil
}

// typeChecker reads types: of this module from its source, of everything else from what the compiler exported.
type typeChecker struct {
	// tree is the source of this module.
	tree *tree
	// judged says whether the bodies of a package are read.
	judged func(*pkg) bool
	// exports reads the types of what is outside of the module, from files that findExports has found.
	exports types.Importer
	// info collects what is learnt of all packages.
	info *types.Info
	// done has the packages that were read, by directory.
	done map[string]*types.Package
	// unknown are imports that could not be read: what depends on them cannot be judged.
	unknown []finding
}

// newTypeChecker returns a checker that has read nothing yet. findExports must be called before it can.
func newTypeChecker(t *tree, judged func(*pkg) bool) *typeChecker {
	return &typeChecker{tree: t, judged: judged, done: make(map[string]*types.Package), info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object),
		Defs: make(map[*ast.Ident]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection),
	}}
}

// findExports asks the go command for the export files of all that judged packages import from outside, by whatever
// way.
func (c *typeChecker) findExports(dir string) error {
	// outside are the import paths of other modules and of the standard library. seen are the packages of this one that
	// were visited.
	outside, seen := map[string]bool{}, map[string]bool{}
	// collect visits a package and all of this module that it imports, but for tests.
	var collect func(p *pkg)
	collect = func(p *pkg) {
		if p == nil || seen[p.dir] {
			return
		}
		seen[p.dir] = true
		for _, s := range p.files {
			for _, im := range s.imports {
				if d, ours := c.tree.inModule(im.path); s.test {
					continue
				} else if ours {
					collect(c.tree.pkgs[d])
				} else {
					outside[im.path] = true
				}
			}
		}
	}
	for _, p := range c.tree.sorted() {
		if c.judged(p) {
			collect(p)
		}
	}
	// files are the export files by import path; empty for a package that the go command could not build.
	files := make(map[string]string)
	if len(outside) > 0 {
		args := []string{"list", "-e", "-export", "-f", "{{.ImportPath}} {{.Export}}", "--"}
		cmd := exec.Command("go", append(args, slices.Sorted(maps.Keys(outside))...)...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("list export files: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			importPath, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			files[importPath] = file
		}
	}
	c.exports = importer.ForCompiler(c.tree.fset, "gc", func(p string) (io.ReadCloser, error) {
		if files[p] == "" {
			return nil, fmt.Errorf("no export file of %s", p)
		}
		return os.Open(files[p])
	})
	return nil
}

// Import implements types.Importer.
func (c *typeChecker) Import(importPath string) (*types.Package, error) {
	if importPath == "unsafe" {
		return types.Unsafe, nil
	}
	dir, ours := c.tree.inModule(importPath)
	if !ours {
		return c.exports.Import(importPath)
	}
	p := c.tree.pkgs[dir]
	if p == nil {
		return nil, fmt.Errorf("no package in %s", dir)
	}
	return c.check(p), nil
}

// check reads a package's types once; bodies only where they are judged.
func (c *typeChecker) check(p *pkg) *types.Package {
	if done := c.done[p.dir]; done != nil {
		return done
	}
	var files []*ast.File
	for _, s := range p.files {
		if !s.test {
			files = append(files, s.ast)
		}
	}
	conf := types.Config{Importer: c, IgnoreFuncBodies: !c.judged(p), Error: func(err error) {
		e, ok := errors.AsType[types.Error](err)
		// Other errors are not told: the compiler finds them, and files of different build tags contradict each other
		// here.
		if ok && strings.HasPrefix(e.Msg, "could not import") {
			at := c.tree.fset.Position(e.Pos)
			c.unknown = append(c.unknown, finding{at.Filename, at.Line, "cannot be judged: " + e.Msg})
		}
	}}
	c.done[p.dir], _ = conf.Check(c.tree.module+"/"+p.dir, c.tree.fset, files, c.info) // errors went to conf.Error
	return c.done[p.dir]
}

// replayWalk visits one file; parents are the nodes above the present one.
type replayWalk struct {
	// tree and file are where findings are placed.
	tree *tree
	file *source
	// info has the types of the file's expressions.
	info *types.Info
	// parents are the nodes above the present one, the root first.
	parents []ast.Node
	// out are the findings so far.
	out []finding
}

// Visit implements ast.Visitor.
func (w *replayWalk) Visit(n ast.Node) ast.Visitor {
	// A nil node says that the children of the last parent have been visited.
	if n == nil {
		w.parents = w.parents[:len(w.parents)-1]
		return nil
	}
	w.mapOrder(n)
	w.floats(n)
	w.variables(n)
	w.parents = append(w.parents, n)
	return w
}

// report adds a finding at a node.
func (w *replayWalk) report(n ast.Node, format string, args ...any) {
	w.out = append(w.out, w.tree.at(w.file, n.Pos(), format, args...))
}

// mapOrder allows a walk over a map only through slices.Sorted(maps.Keys(m)).
func (w *replayWalk) mapOrder(n ast.Node) {
	switch n := n.(type) {
	case *ast.RangeStmt:
		if isMap(w.info.TypeOf(n.X)) {
			w.report(n, "ranges over a map: its order differs between replicas; range over slices.Sorted(maps.Keys(m))")
		}
	case *ast.CallExpr:
		importPath, name, _ := w.file.used(n.Fun)
		if importPath != "maps" || !slices.Contains([]string{"All", "Keys", "Values"}, name) {
			return
		}
		// Only the call right around it makes the order of a map harmless.
		if len(w.parents) > 0 {
			if outer, ok := w.parents[len(w.parents)-1].(*ast.CallExpr); ok {
				p, f, _ := w.file.used(outer.Fun)
				if p == "slices" && (f == "Sorted" || f == "SortedFunc" && name == "Keys") {
					return
				}
			}
		}
		w.report(n, "walks a map with maps.%s: its order differs between replicas; use slices.Sorted(maps.Keys(m))", name)
	}
}

// isMap reports whether a type is a map, or a type parameter whose constraint allows one.
func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := t.(*types.TypeParam); ok {
		u, ok := p.Constraint().Underlying().(*types.Interface)
		for i := 0; ok && i < u.NumEmbeddeds(); i++ {
			e := u.EmbeddedType(i)
			// All terms of a union would have to be maps for a range to compile, so the first one tells.
			if union, isUnion := e.(*types.Union); isUnion && union.Len() > 0 {
				e = union.Term(0).Type()
			}
			if isMap(e) {
				return true
			}
		}
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// floats bans arithmetic and comparison of floats, which compilers fuse differently per processor, and what turns one
// into a whole number. Storing and copying them is free.
func (w *replayWalk) floats(n ast.Node) {
	const say = "%s a float: compilers round differently per processor, so replicas would part ways"
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if w.isFloat(n.X) || w.isFloat(n.Y) {
			w.report(n, say, "computes with or compares")
		}
	case *ast.AssignStmt:
		if n.Tok != token.ASSIGN && n.Tok != token.DEFINE && w.isFloat(n.Lhs[0]) {
			w.report(n, say, "computes with")
		}
	case *ast.IncDecStmt:
		if w.isFloat(n.X) {
			w.report(n, say, "computes with")
		}
	case *ast.CallExpr:
		if len(n.Args) == 0 || !w.isFloat(n.Args[0]) {
			return
		}
		// A conversion to an integer rounds, and min and max compare.
		fun := w.info.Types[n.Fun]
		if fun.IsType() && isKind(fun.Type, types.IsInteger) {
			w.report(n, say, "makes an integer of")
		}
		if id, ok := n.Fun.(*ast.Ident); ok && fun.IsBuiltin() && (id.Name == "min" || id.Name == "max") {
			w.report(n, say, "compares")
		}
	}
}

// isFloat reports whether an expression is a float or a complex number that is not a constant: the compiler computes
// those exactly.
func (w *replayWalk) isFloat(e ast.Expr) bool {
	tv := w.info.Types[e]
	return tv.Value == nil && isKind(tv.Type, types.IsFloat|types.IsComplex)
}

// isKind reports whether the type below t is a basic one of a kind; false for an unknown type.
func isKind(t types.Type, kind types.BasicInfo) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&kind != 0
}
