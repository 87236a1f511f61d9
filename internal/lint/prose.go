package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// proseFile is the file of words that are still allowed, from the module root.
const proseFile = "internal/lint/prose.txt"

// unplain are words and turns that a reader of English as a second language trips over, and what to write instead.
var unplain = []struct {
	is    *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`\b[Aa]new\b`), `"again" or "from scratch"`},
	{regexp.MustCompile(`\b[Nn]obody\b`), "who it is: no client, no node, no worker"},
	{regexp.MustCompile(`\b[Ww]hoever\b`), "who it is: the client that, any node that"},
	{regexp.MustCompile(`\b(is|are) no [a-z]`), `"is not a …"; in errors "must be …"`},
	{regexp.MustCompile(`\b(is|are) none of\b`), `"is not one of"; in errors "must be one of"`},
	{regexp.MustCompile(`\bof late\b`), `"recently"`},
	{regexp.MustCompile(`\b[Ss]o many\b`), "the number, or \"that many\""},
	{regexp.MustCompile(`\bas ever\b`), `"as before"`},
	{regexp.MustCompile(`\b[Bb]eside\b`), `"besides", "next to", "in addition to" or "mutually exclusive"`},
}

// plainNo are the turns with "is no" that are plain English.
var plainNo = regexp.MustCompile(`\b([Tt]here (is|are) no|(is|are) no (longer|more|less|later|earlier|faster|slower|larger|smaller|better|worse|such))\b`)

// checkProse finds unplain words in comments, in texts of the program, in documents and in the contract. A line "count
// area" in prose.txt says how many an area has left. The count may only fall.
func checkProse(t *tree) ([]finding, error) {
	// byArea are the words that were found, by area.
	byArea := make(map[string][]finding)
	// look finds words in a text of several lines, whose first line is the given one of the file.
	look := func(file string, line int, text string) {
		for i, l := range strings.Split(text, "\n") {
			l = plainNo.ReplaceAllString(l, "")
			for _, u := range unplain {
				for _, word := range u.is.FindAllString(l, -1) {
					a := areaOf(file)
					byArea[a] = append(byArea[a], finding{file, line + i, fmt.Sprintf("%q is hard to read: write %s", word, u.write)})
				}
			}
		}
	}
	t.each(func(p *pkg, s *source) {
		// This package names the words that it looks for.
		if within(p.dir, "gen") || within(p.dir, "internal/lint") {
			return
		}
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				look(s.name, t.line(c.Pos()), c.Text)
			}
		}
		if s.test {
			return
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				look(s.name, t.line(l.Pos()), l.Value)
			}
			return true
		})
	})
	for _, doc := range t.docs {
		if within(doc, "docs/decisions") { // an accepted record is not rewritten
			continue
		}
		lines, err := prose(t.fsys, doc)
		if err != nil {
			return nil, err
		}
		look(doc, 1, strings.Join(lines, "\n"))
	}
	contracts, err := fs.Glob(t.fsys, "proto/*/*/*.proto")
	if err != nil {
		return nil, err
	}
	for _, name := range contracts {
		b, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return nil, err
		}
		look(name, 1, string(b))
	}
	return judgeProse(t, byArea)
}

// areaOf is the folder, one or two levels deep, that a file is counted under.
func areaOf(file string) string {
	dir := strings.SplitN(path.Dir(file), "/", 3)
	if dir[0] == "internal" && len(dir) > 1 {
		return dir[0] + "/" + dir[1]
	}
	return dir[0]
}

// judgeProse compares what was found with the counts of prose.txt.
func judgeProse(t *tree, byArea map[string][]finding) ([]finding, error) {
	allowed, err := readProse(t.fsys)
	if err != nil {
		return nil, err
	}
	var out []finding
	for _, area := range slices.Sorted(maps.Keys(byArea)) {
		if found := byArea[area]; len(found) > allowed[area] {
			out = append(out, found...)
			if allowed[area] > 0 {
				out = append(out, finding{proseFile, 1, fmt.Sprintf("%s has %d unplain words, and %d are allowed", area, len(found), allowed[area])})
			}
		}
	}
	for _, area := range slices.Sorted(maps.Keys(allowed)) {
		if n := len(byArea[area]); n < allowed[area] {
			out = append(out, finding{proseFile, 1, fmt.Sprintf("%s has %d unplain words left: write %d in place of %d", area, n, n, allowed[area])})
		}
	}
	return out, nil
}

// readProse reads how many words each area may have. Without the file, none may have any.
func readProse(fsys fs.FS) (map[string]int, error) {
	out := make(map[string]int)
	b, err := fs.ReadFile(fsys, proseFile)
	if err != nil {
		// Without the file no word is allowed.
		return out, nil
	}
	for line := range bytes.Lines(b) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		number, area, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(number)
		if err != nil || n <= 0 || area == "" {
			return nil, fmt.Errorf("%s: %q must be a count and an area", proseFile, text)
		}
		out[area] = n
	}
	return out, nil
}
