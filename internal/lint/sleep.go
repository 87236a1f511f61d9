package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
)

// fixedPort is an address of this machine with a port that another process may hold.
var fixedPort = regexp.MustCompile(`^(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1?\])?:[1-9]\d{0,4}$`)

// checkSleep finds tests, and what exists for tests, that wait by the clock or listen on a fixed port. Real processes
// (test/e2e, test/chaos, test/sdk) may sleep; so may a function given to synctest.Test, where no time passes.
func checkSleep(t *tree) []finding {
	var out []finding
	t.each(func(p *pkg, s *source) {
		if !s.test && !isKit(p.dir) || within(p.dir, "test/e2e") || within(p.dir, "test/chaos") || within(p.dir, "test/sdk") {
			return
		}
		// bubbles are the calls of synctest.Test so far. A call is visited before what is inside of it.
		var bubbles []ast.Node
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if importPath, name, _ := s.used(n.Fun); importPath == "testing/synctest" && name == "Test" {
					bubbles = append(bubbles, n)
				}
			case *ast.SelectorExpr:
				if importPath, name, _ := s.used(n); importPath == "time" && name == "Sleep" && !inside(bubbles, n) {
					out = append(out, t.at(s, n.Pos(), "sleeps: wait on a channel, or use testing/synctest"))
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					if text, err := strconv.Unquote(n.Value); err == nil && fixedPort.MatchString(text) {
						const say = "has a fixed port, %s: listen on port 0; for a mere name take another host"
						out = append(out, t.at(s, n.Pos(), say, text))
					}
				}
			}
			return true
		})
	})
	return out
}

// inside reports whether a node lies within one of the outer ones.
func inside(outer []ast.Node, n ast.Node) bool {
	for _, o := range outer {
		if o.Pos() <= n.Pos() && n.End() <= o.End() {
			return true
		}
	}
	return false
}
