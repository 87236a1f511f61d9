package lint

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// finding is one broken rule at one place.
type finding struct {
	// file is the path from the module root, with slashes.
	file string
	// line counts from 1.
	line int
	// text says what is wrong, and what to do about it.
	text string
}

// String prints a finding as compilers do.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// tree is the source of one module, without the modules nested in it.
type tree struct {
	// fsys is the module's directory: a real one, or one that a test has made up.
	fsys fs.FS
	// module is the path of the module, as go.mod names it.
	module string
	// fset has the positions of all files.
	fset *token.FileSet
	// pkgs are the packages by directory, from the module root.
	pkgs map[string]*pkg
	// docs are the Markdown files, in the order of their paths.
	docs []string
}

// pkg is the Go files of one directory, whatever their build tags, in name order.
type pkg struct {
	// dir is the directory from the module root, with slashes; . is the root itself.
	dir string
	// files are in the order of their names.
	files []*source
}

// source is one Go file.
type source struct {
	// name is the path from the module root, with slashes.
	name string
	// test says that the name ends in _test.go.
	test bool
	// ast is the parsed file, with comments.
	ast *ast.File
	// bytes is the text of the file.
	bytes []byte
	// imports are in the order of the file.
	imports []imported
	// names are the import paths by the name that the file knows them under.
	names map[string]string
}

// imported is one import declaration.
type imported struct {
	// path is the import path.
	path string
	// line is where the import stands.
	line int
}

// loadTree reads every Go file of the module that fsys holds.
func loadTree(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys, fset: token.NewFileSet(), pkgs: make(map[string]*pkg)}
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(mod))
	for t.module == "" && lines.Scan() {
		t.module, _ = strings.CutPrefix(lines.Text(), "module ")
	}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return t.enter(name)
		case strings.HasSuffix(name, ".md"):
			t.docs = append(t.docs, name)
		case strings.HasSuffix(name, ".go"):
			return t.parse(name)
		}
		return nil
	})
	return t, err
}

// enter says whether a directory belongs to the module's source.
func (t *tree) enter(dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base[0] == '.' || base[0] == '_' || slices.Contains([]string{"testdata", "node_modules", "vendor", "bin"}, base) {
		return fs.SkipDir
	}
	if _, err := fs.Stat(t.fsys, dir+"/go.mod"); err == nil {
		// It is a module of its own.
		return fs.SkipDir
	}
	return nil
}

// parse reads one Go file and adds it to its package. A file that does not parse is an error: no rule could see it.
func (t *tree) parse(name string) error {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	f, err := parser.ParseFile(t.fset, name, text, parser.ParseComments)
	if err != nil {
		return err
	}
	s := &source{name: name, test: strings.HasSuffix(name, "_test.go"), ast: f, bytes: text, names: make(map[string]string)}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		s.imports = append(s.imports, imported{path: p, line: t.line(spec.Pos())})
		s.names[importName(spec, p)] = p
	}
	dir := path.Dir(name)
	if t.pkgs[dir] == nil {
		t.pkgs[dir] = &pkg{dir: dir}
	}
	t.pkgs[dir].files = append(t.pkgs[dir].files, s)
	return nil
}

// importName is the name under which a file uses an import: the one it gives, or the path's last element that is not a
// major version.
func importName(spec *ast.ImportSpec, p string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	return base
}

// sorted returns the packages by directory.
func (t *tree) sorted() []*pkg {
	out := make([]*pkg, 0, len(t.pkgs))
	for _, p := range t.pkgs {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pkg) int { return cmp.Compare(a.dir, b.dir) })
	return out
}

// each calls fn for every file, in order.
func (t *tree) each(fn func(p *pkg, s *source)) {
	for _, p := range t.sorted() {
		for _, s := range p.files {
			fn(p, s)
		}
	}
}

// line is the line of a position in its file.
func (t *tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }

// at is a finding at a node of a file.
func (t *tree) at(s *source, pos token.Pos, format string, args ...any) finding {
	return finding{file: s.name, line: t.line(pos), text: fmt.Sprintf(format, args...)}
}

// inModule returns the directory of an import of this module, from its root.
func (t *tree) inModule(importPath string) (dir string, ok bool) {
	if importPath == t.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.module+"/")
}

// used returns the import path and the name selected from it, when e is a selector on an import of s, such as time.Now.
func (s *source) used(e ast.Expr) (importPath, name string, ok bool) {
	sel, isSelector := e.(*ast.SelectorExpr)
	if !isSelector {
		return "", "", false
	}
	x, isIdent := sel.X.(*ast.Ident)
	// An object means that something of this file hides the import.
	if !isIdent || x.Obj != nil {
		return "", "", false
	}
	importPath, ok = s.names[x.Name]
	return importPath, sel.Sel.Name, ok
}

// isKit says whether a package exists for tests only and is never linked into what ships.
func isKit(dir string) bool {
	base := path.Base(dir)
	return dir == "internal/sim" || within(dir, "test") || base != "test" && strings.HasSuffix(base, "test")
}

// within says whether dir is root or below it.
func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// short drops the folder that most packages share, as imports.txt does.
func short(dir string) string { return strings.TrimPrefix(dir, "internal/") }
