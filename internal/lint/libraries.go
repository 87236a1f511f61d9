package lint

import (
	"slices"
	"strings"
)

// libraryFence keeps one library, named by the prefix of its import paths, to the packages that allow says.
type libraryFence struct {
	// prefix covers the path itself and all below it.
	prefix string
	// allow reports whether a file may import the library.
	allow func(p *pkg, s *source) bool
	// where is what allow says, for people.
	where string
	// reason ends the finding.
	reason string
}

// testLibraries never reach what ships: only test files, test kits and test/ may import them.
var testLibraries = []string{
	"github.com/anishathalye/porcupine", "github.com/cockroachdb/datadriven", "github.com/go-git/go-git",
	"github.com/rogpeppe/go-internal/testscript", "go.uber.org/goleak", "pgregory.net/rapid",
}

// libraryFences holds the longest prefix first where two overlap: the first that fits an import decides.
func libraryFences() []libraryFence {
	fences := []libraryFence{
		{
			"github.com/cockroachdb/pebble/v2/vfs",
			func(p *pkg, _ *source) bool { return p.dir == "internal/store" || isKit(p.dir) },
			"store and test kits", "one package owns the engine, and hands others a file system through env",
		},
		only("github.com/cockroachdb/pebble", "one package owns the engine", "internal/store"),
		only("go.etcd.io/raft", "one package owns consensus", "internal/replog"),
		only("google.golang.org/grpc", "only edges and clients speak it",
			"internal/api/...", "internal/edge", "internal/etcdapi", "internal/rest", "sdk/go/...", "gen/...", "bench/load", "test/sdk/fake"),
		only("go.etcd.io/etcd/api", "one package speaks etcd", "internal/etcdapi"),
		only("go.etcd.io/bbolt", "one package speaks etcd", "internal/etcdapi"),
		only("golang.org/x/text", "one package cuts texts into words", "internal/words"),
		only("github.com/google/cel-go", "one package evaluates rules", "internal/rules"),
		only("github.com/golang-jwt/jwt", "one package judges tokens", "internal/auth"),
		only("github.com/prometheus", "packages below node offer a Stats struct", "internal/obs"),
		only("go.opentelemetry.io", "packages below node offer a Stats struct", "internal/obs"),
		only("github.com/spf13/cobra", "a command line is a shell around a function", "cmd/..."),
	}
	for _, prefix := range []string{"google.golang.org/protobuf", "github.com/golang/protobuf", "github.com/gogo/protobuf"} {
		fences = append(fences, libraryFence{
			prefix, func(p *pkg, _ *source) bool { return !replays(p.dir) },
			"all but core, keys and machine", "stored and replayed bytes have an encoding of their own",
		})
	}
	for _, prefix := range testLibraries {
		fences = append(fences, libraryFence{
			prefix, func(p *pkg, s *source) bool { return s.test || isKit(p.dir) },
			"test files, *test packages, sim and test", "a test library does not ship",
		})
	}
	return fences
}

// only keeps a library to packages named by patterns as in imports.txt.
func only(prefix, reason string, where ...string) libraryFence {
	names := make([]string, len(where))
	for i, w := range where {
		names[i] = short(w)
	}
	return libraryFence{
		prefix: prefix,
		allow: func(p *pkg, _ *source) bool {
			return slices.ContainsFunc(where, func(w string) bool { return matches(w, p.dir) })
		},
		where:  strings.Join(names, ", "),
		reason: reason,
	}
}

// checkLibraries finds imports of libraries outside the packages they are kept to.
func checkLibraries(t *tree) []finding {
	fences := libraryFences()
	var out []finding
	t.each(func(p *pkg, s *source) {
		for _, im := range s.imports {
			// The first fence that fits decides, which is why longer prefixes stand first.
			i := slices.IndexFunc(fences, func(f libraryFence) bool { return within(im.path, f.prefix) })
			if i < 0 || fences[i].allow(p, s) {
				continue
			}
			out = append(out, finding{
				s.name, im.line, "imports " + im.path + "; allowed in: " + fences[i].where + "; because: " + fences[i].reason,
			})
		}
	})
	return out
}
