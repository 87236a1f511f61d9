package lint

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// callFence bans names of one import path, or the import itself.
type callFence struct {
	// path is the import path that the fence is about.
	path string
	// names are the banned names; a trailing * stands for any rest. nil: the import itself is banned.
	names []string
	// but are names that stay allowed where names is {"*"}.
	but []string
	// say is what to do instead. It ends the finding.
	say string
}

// clock bans what reads or waits for the time. Types and arithmetic of package time stay allowed.
var clock = callFence{
	path:  "time",
	names: []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	say:   "time comes through env.Clock",
}

// seamFences hold in all of internal but env, lint, localport, test files and test kits: the world is reached through env.
var seamFences = []callFence{
	clock,
	{path: "os", say: "files come through env.FS", names: []string{
		"Open*", "Create*", "ReadFile", "WriteFile", "ReadDir", "Remove*", "Rename", "Mkdir*", "Stat", "Lstat", "Truncate",
		"Chmod", "Chown", "Lchown", "Chtimes", "Link", "Symlink", "Readlink", "NewFile", "DirFS", "CopyFS",
	}},
	{path: "path/filepath", names: []string{"Walk", "WalkDir", "Glob", "EvalSymlinks"}, say: "files come through env.FS"},
	{path: "io/ioutil", say: "files come through env.FS"},
	{path: "net", say: "connections come through env.Net", names: []string{
		"Dial*", "Listen", "ListenConfig", "ListenIP", "ListenMulticastUDP", "ListenPacket", "ListenTCP", "ListenUDP",
		"ListenUnix", "ListenUnixgram", "FileConn", "FileListener", "FilePacketConn",
	}},
	{path: "crypto/tls", names: []string{"Dial*", "Listen"}, say: "connections come through env.Net"},
	{path: "net/http", say: "connections come through env.Net", names: []string{
		"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "ListenAndServe", "ListenAndServeTLS",
	}},
	{path: "math/rand", names: []string{"*"}, but: randTypes, say: "randomness comes through env.Rand"},
	{path: "math/rand/v2", names: []string{"*"}, but: randTypes, say: "randomness comes through env.Rand"},
	{path: "crypto/rand", say: "randomness comes through env.Rand"},
	{path: "os/exec", say: "processes come through env"},
}

// randTypes are what is left of math/rand for a source with a seed of its own.
var randTypes = []string{
	"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf",
}

// replayFences hold where entries are replayed: replicas would part ways.
var replayFences = append(banned("replicas must replay alike",
	"math/rand", "math/rand/v2", "crypto/rand", "hash/maphash", "os", "os/exec", "os/signal", "os/user", "io/ioutil",
	"syscall", "net", "net/http", "log", "log/slog"),
	callFence{path: clock.path, names: clock.names, say: "time is the entry's stamp"})

// vectorFences hold in package vector, which may lock, and starts no goroutine.
var vectorFences = banned("vector knows neither time nor chance",
	"time", "math/rand", "math/rand/v2", "crypto/rand", "hash/maphash")

// banned makes a fence for the import of each path.
func banned(say string, paths ...string) []callFence {
	out := make([]callFence, len(paths))
	for i, p := range paths {
		out[i] = callFence{path: p, say: say}
	}
	return out
}

// replays says whether a package's code runs in Apply, so that all replicas must read it alike.
func replays(dir string) bool {
	// A kit below machine or core runs in tests only, so no replica replays it.
	if isKit(dir) {
		return false
	}
	return within(dir, "internal/core") || within(dir, "internal/keys") || within(dir, "internal/machine")
}

// fencesOf returns the call fences of one file.
func fencesOf(p *pkg, s *source) []callFence {
	switch {
	// Tests and kits may touch the world, and so may programs and the bench, which are not in internal.
	case s.test || isKit(p.dir) || !within(p.dir, "internal"):
		return nil
	case replays(p.dir):
		return replayFences
	case p.dir == "internal/vector":
		return slices.Concat(vectorFences, seamFences)
	case p.dir == "internal/env" || p.dir == "internal/lint":
		return nil
	case p.dir == "internal/localport": // no server imports it: it holds sockets of this host for the bench and for tests
		return nil
	case p.dir == "internal/auth": // keys and secrets of its own
		return slices.DeleteFunc(slices.Clone(seamFences), func(f callFence) bool { return f.path == "crypto/rand" })
	}
	return seamFences
}

// checkCalls finds banned imports, banned names of imports, and what lets a package start work of its own where that is
// banned.
func checkCalls(t *tree) []finding {
	var out []finding
	t.each(func(p *pkg, s *source) {
		fences := fencesOf(p, s)
		if fences == nil {
			return
		}
		// Imports are judged by their path, and names by their use further down: a banned name may be used under an
		// alias.
		for _, im := range s.imports {
			for _, f := range fences {
				if f.path == im.path && f.names == nil {
					out = append(out, finding{s.name, im.line, fmt.Sprintf("imports %s: %s", im.path, f.say)})
				}
			}
		}
		if _, dot := s.names["."]; dot {
			out = append(out, finding{s.name, 1, "has a dot import, which hides what a call is"})
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if f, ok := startsWork(p, n); ok {
				out = append(out, t.at(s, n.Pos(), "%s", f))
			}
			if e, ok := n.(ast.Expr); ok {
				importPath, name, _ := s.used(e)
				for _, f := range fences {
					if f.path == importPath && f.bans(name) {
						out = append(out, t.at(s, n.Pos(), "uses %s.%s: %s", importPath, name, f.say))
					}
				}
			}
			return true
		})
	})
	return out
}

// startsWork names the concurrency in a node of a package that may have none.
func startsWork(p *pkg, n ast.Node) (string, bool) {
	if !replays(p.dir) && p.dir != "internal/vector" {
		return "", false
	}
	if _, ok := n.(*ast.GoStmt); ok {
		return "starts a goroutine", true
	}
	if !replays(p.dir) {
		return "", false
	}
	switch n.(type) {
	case *ast.ChanType:
		return "has a channel: replicas must replay alike", true
	case *ast.SelectStmt:
		return "has a select: replicas must replay alike", true
	}
	return "", false
}

// bans reports whether a name of the path is banned. It is not asked about fences that ban the import.
func (f callFence) bans(name string) bool {
	if f.names == nil || slices.Contains(f.but, name) {
		return false
	}
	return slices.ContainsFunc(f.names, func(n string) bool {
		// any says that the banned name ends in a *: then its beginning decides.
		head, any := strings.CutSuffix(n, "*")
		return n == name || any && strings.HasPrefix(name, head)
	})
}
