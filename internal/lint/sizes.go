package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

const (
	// sizesFile has the reasons for what is longer than these limits.
	sizesFile = "internal/lint/sizes.txt"
	// fileLines is the number of lines of a file that needs no reason.
	fileLines = 800
	// testFileLines is that of a test file, whose cases take more room.
	testFileLines = 1200
	// funcLines is that of a function, from func to its last brace.
	funcLines = 80
)

// checkSizes finds files and functions that are long without a reason in sizes.txt, and reasons that are not needed any more.
// It is a question, not a limit: the answer is a line "path reason" or "path:Function reason".
func checkSizes(t *tree) ([]finding, error) {
	reasons, err := readSizes(t.fsys)
	if err != nil {
		return nil, err
	}
	var out []finding
	// needed are the keys of all that is long, to find reasons that are not needed.
	needed := make(map[string]bool)
	// ask reports what is longer than its limit and has no reason. key is what a line of sizes.txt begins with.
	ask := func(s *source, line int, key string, long, limit int) {
		if long <= limit {
			return
		}
		needed[key] = true
		if _, ok := reasons[key]; !ok {
			const say = "%s has %d lines, over %d: split it, or write the reason into %s"
			out = append(out, finding{s.name, line, fmt.Sprintf(say, key, long, limit, sizesFile)})
		}
	}
	t.each(func(p *pkg, s *source) {
		if within(p.dir, "gen") || ast.IsGenerated(s.ast) {
			return
		}
		limit := fileLines
		if s.test {
			limit = testFileLines
		}
		ask(s, 1, s.name, bytes.Count(s.bytes, []byte("\n")), limit)
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				ask(s, t.line(f.Pos()), s.name+":"+f.Name.Name, t.line(f.End())-t.line(f.Pos())+1, funcLines)
			}
		}
	})
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if !needed[key] {
			out = append(out, finding{sizesFile, reasons[key], key + " is not long: delete the line"})
		}
	}
	return out, nil
}

// readSizes returns the line of each name in sizes.txt.
func readSizes(fsys fs.FS) (map[string]int, error) {
	text, err := fs.ReadFile(fsys, sizesFile)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int)
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, reason, _ := strings.Cut(line, " ")
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason", sizesFile, i+1, key)
		}
		out[key] = i + 1
	}
	return out, nil
}
