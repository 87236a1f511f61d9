package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// recovered are the packages whose code runs below a recover: of the API, of package http, or of a reader of what others wrote.
// There a panic ends one call, and what that call holds must come back all the same.
var recovered = []string{
	"internal/api", "internal/api/stream", "internal/auth", "internal/edge", "internal/embed", "internal/githttp", "internal/gitobj", "internal/retrieval", "internal/node",
	"internal/rest", "internal/rules", "internal/vector",
}

// givesBack are the names of methods that give back, with those that take.
var givesBack = map[string][]string{
	"Unlock": {"Lock"}, "RUnlock": {"RLock"}, "leave": {"enter", "aside"}, "give": {"take", "grow"}, "release": {"acquire", "hold"},
	"Leave": {"Enter"}, "Give": {"Take"},
}

// calm are packages of this module whose functions take no part in a call: a clock, randomness, words.
var calm = []string{"internal/core", "internal/env", "internal/errs", "internal/fault", "internal/keys", "internal/obs"}

// givenBackByHand are functions that give back without defer although something that can panic stands between, and why that is
// right.
var givenBackByHand = map[string]string{
	"api/stream.stream.push":     "what it calls under the lock is a counter of package edge, which runs no code of others",
	"api/stream.stream.Assign":   "as above",
	"api/stream.stream.sent":     "as above",
	"node.shard.applyEntry":      "the applier: nothing recovers above it, and a panic there ends the process",
	"node.shard.install":         "the applier, as above",
	"retrieval.Index.BuildGraph": "one goroutine of the node's upkeep, above which nothing recovers; searches go on while it builds",
}

// checkGiveBack finds what is given back outside defer after a call that can panic: into a function value, an interface of this
// module, or another of its packages. A lock that is held over the package's own code alone is not judged, because that code is
// read with the lock in view.
func checkGiveBack(t *tree, dir string) ([]finding, error) {
	judged := func(p *pkg) bool { return slices.Contains(recovered, p.dir) }
	c := newTypeChecker(t, judged)
	if err := c.findExports(dir); err != nil {
		return nil, err
	}
	var out []finding
	used := make(map[string]bool)
	for _, p := range t.sorted() {
		if !judged(p) {
			continue
		}
		c.check(p)
		leads := &leadsOut{info: c.info, module: t.module, dir: p.dir, known: make(map[types.Object]bool)}
		functions := functionsOf(p)
		// leads must know the package's own functions before the first of them is judged.
		leads.find(functions)
		for _, f := range functions {
			w := giveWalk{tree: t, file: f.file, info: c.info, leads: leads}
			w.function(f.decl.Body)
			name := short(p.dir) + "." + functionName(f.decl)
			if _, known := givenBackByHand[name]; known && len(w.out) > 0 {
				used[name] = true
				continue
			}
			out = append(out, w.out...)
		}
	}
	// A name without an offence would hide the next one.
	for name := range givenBackByHand {
		if !used[name] {
			out = append(out, finding{"internal/lint/giveback.go", 1, "givenBackByHand names " + name + ", which gives nothing back by hand"})
		}
	}
	return append(out, c.unknown...), nil
}

// functionName is the name of a function, after its receiver's type.
func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return types.ExprString(of) + "." + fn.Name.Name
}

// giveWalk judges one function, and those written inside it.
type giveWalk struct {
	// tree and file are where findings are placed.
	tree *tree
	file *source
	// info has the types of the file's expressions.
	info *types.Info
	// leads knows which calls lead out of the package.
	leads *leadsOut
	// out are the findings so far.
	out []finding
}

// taken is something that must be given back: by a call of text, or by a method of text.
type taken struct {
	// text is the call as it is written, such as s.mu.Unlock.
	text string
	// pos is where it is taken or given back.
	pos token.Pos
}

// function judges a body. Function literals in it are bodies of their own: they run at another time.
func (w *giveWalk) function(body *ast.BlockStmt) {
	var takes, gives []taken
	// risky are calls that may panic between a take and its give back: those that lead out of the package.
	var risky []token.Pos
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			w.function(n.Body)
			return false
		// A deferred call, or one of another goroutine, gives nothing back by hand. Literals in it are judged all the
		// same.
		case *ast.DeferStmt, *ast.GoStmt:
			ast.Inspect(n, func(n ast.Node) bool {
				if lit, ok := n.(*ast.FuncLit); ok {
					w.function(lit.Body)
					return false
				}
				return true
			})
			return false
		// A variable of type func() that a call returned gives back what that call took.
		case *ast.AssignStmt:
			takes = append(takes, w.handed(n)...)
		// A give back is a statement of its own, so its call is not looked into.
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok {
				if text, ok := w.gives(call); ok {
					gives = append(gives, taken{text, call.Pos()})
					return false
				}
			}
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
				// Each take is matched by the text of what would give it back.
				for give, from := range givesBack {
					if slices.Contains(from, sel.Sel.Name) {
						takes = append(takes, taken{types.ExprString(sel.X) + "." + give, n.Pos()})
						return true
					}
				}
			}
			if w.leads.call(n) {
				risky = append(risky, n.Pos())
			}
		}
		return true
	})
	for _, g := range gives {
		// from is the nearest take before the give back. Without one, what is given back was taken elsewhere, and is
		// not judged.
		from := token.NoPos
		for _, t := range takes {
			if t.text == g.text && t.pos < g.pos {
				from = t.pos
			}
		}
		between := func(p token.Pos) bool { return from < p && p < g.pos }
		if i := slices.IndexFunc(risky, between); from.IsValid() && i >= 0 {
			w.out = append(w.out, w.tree.at(w.file, g.pos, "gives back by %s() outside defer, after line %d, which can panic below a recover",
				g.text, w.tree.line(risky[i])))
		}
	}
}

// handed returns the variables of type func() that a call is assigned to.
func (w *giveWalk) handed(n *ast.AssignStmt) (out []taken) {
	if len(n.Rhs) != 1 {
		return nil
	}
	if _, ok := n.Rhs[0].(*ast.CallExpr); !ok {
		return nil
	}
	for _, e := range n.Lhs {
		if id, ok := e.(*ast.Ident); ok && isPlainFunc(w.info.TypeOf(id)) {
			out = append(out, taken{id.Name, n.Pos()})
		}
	}
	return out
}

// isPlainFunc says that a type is func(), by no other name: a context's CancelFunc gives back nothing that others wait for.
func isPlainFunc(t types.Type) bool {
	sig, ok := t.(*types.Signature)
	return ok && sig.Params().Len() == 0 && sig.Results().Len() == 0
}

// gives says what a call gives back.
func (w *giveWalk) gives(call *ast.CallExpr) (text string, ok bool) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name, isPlainFunc(w.info.TypeOf(f)) && w.isVariable(f)
	case *ast.SelectorExpr:
		if givesBack[f.Sel.Name] != nil {
			return types.ExprString(f.X) + "." + f.Sel.Name, true
		}
	}
	return "", false
}

// isVariable says whether a name is a variable, so that its call is not one of a declared function.
func (w *giveWalk) isVariable(id *ast.Ident) bool {
	_, ok := w.info.ObjectOf(id).(*types.Var)
	return ok
}

// leadsOut knows which calls of a package lead out of it: by a function value, an interface of this module, or into another of
// its packages, at once or by way of the package's own functions.
type leadsOut struct {
	// info has the types of the package.
	info *types.Info
	// module is the path of the module, and dir the directory of the package in it.
	module, dir string
	// known are the functions of the package that lead out of it.
	known map[types.Object]bool
}

// find marks the package's functions until none is added.
func (l *leadsOut) find(functions []function) {
	// again says that the last round has found a function: its callers lead out too, so one more round is needed.
	for again := true; again; {
		again = false
		for _, f := range functions {
			of := l.info.Defs[f.decl.Name]
			if l.known[of] {
				continue
			}
			ast.Inspect(f.decl.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				// What runs on another goroutine, or later, is not a part of the call.
				case *ast.GoStmt, *ast.FuncLit:
					return false
				case *ast.CallExpr:
					if l.call(n) {
						l.known[of], again = true, true
					}
				}
				return !l.known[of]
			})
		}
	}
}

// call says whether a call leads out of the package.
func (l *leadsOut) call(call *ast.CallExpr) bool {
	// Conversions and builtins run no code of others.
	if tv := l.info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return false
	}
	var of types.Object
	fun := ast.Unparen(call.Fun)
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		of = l.info.ObjectOf(f)
	case *ast.SelectorExpr:
		of = l.info.ObjectOf(f.Sel)
		// A method of an interface may be any code. Interfaces of other modules, such as error, are taken to be
		// harmless.
		if s := l.info.Selections[f]; s != nil && s.Kind() == types.MethodVal && types.IsInterface(s.Recv()) {
			return l.ours(of)
		}
	}
	// A variable holds a function value, which may be any code.
	if _, ok := of.(*types.Var); ok {
		return true
	}
	// Origin is the function as declared, where the call is of an instance of a generic one.
	if fn, ok := of.(*types.Func); ok && fn.Origin() != nil && l.known[fn.Origin()] {
		return true
	}
	return l.ours(of) && of.Pkg().Path() != l.module+"/"+l.dir
}

// ours says whether something belongs to this module, and not to a calm package of it.
func (l *leadsOut) ours(of types.Object) bool {
	if of == nil || of.Pkg() == nil {
		return false
	}
	dir, ok := strings.CutPrefix(of.Pkg().Path(), l.module+"/")
	return ok && !slices.Contains(calm, dir) && !within(dir, "gen")
}

// function is a function that a package declares.
type function struct {
	// file is where the function is declared.
	file *source
	// decl is its declaration, with a body.
	decl *ast.FuncDecl
}

// functionsOf returns the functions of a package that have a body, without those of its tests.
func functionsOf(p *pkg) (out []function) {
	for _, s := range p.files {
		if s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				out = append(out, function{s, fn})
			}
		}
	}
	return out
}
