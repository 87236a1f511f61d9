package main

import (
	"fmt"
	"strings"
)

// hunk is one change of a patch in the unified form.
type hunk struct {
	file  string
	at    int      // index of its first line in the file that it was made for
	lines []string // each begins with a blank, a minus or a plus
}

// parse returns the hunks of a patch.
func parse(text string) ([]hunk, error) {
	var out []hunk
	file := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimPrefix(line, "+++ b/")
		case strings.HasPrefix(line, "--- "):
			file = ""
		case strings.HasPrefix(line, "@@ -"):
			h := hunk{file: file}
			if _, err := fmt.Sscanf(line, "@@ -%d", &h.at); err != nil || file == "" {
				return nil, fmt.Errorf("%q must name lines of a file", line)
			}
			h.at = max(h.at-1, 0)
			out = append(out, h)
		case file == "":
		case line == "":
			return nil, fmt.Errorf("%s: a line of a patch must begin with a blank, a minus or a plus", file)
		case strings.Contains(" -+", line[:1]) && len(out) > 0:
			h := &out[len(out)-1]
			h.lines = append(h.lines, line)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("a patch must change something")
	}
	return out, nil
}

// locate finds the lines that h changes in the file as it is now: where they were, or nearest to there.
func (h hunk) locate(root, bug string) ([]edit, error) {
	base, err := read(root, h.file)
	if err != nil {
		return nil, err
	}
	var old []string
	for _, l := range h.lines {
		if l[0] != '+' {
			old = append(old, l[1:])
		}
	}
	at := -1
	for off := 0; off <= max(len(base), h.at) && at < 0; off++ {
		for _, try := range []int{h.at - off, h.at + off} {
			if try >= 0 && try+len(old) <= len(base) && equal(base[try:try+len(old)], old) {
				at = try
				break
			}
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("%s/%s.patch does not fit %s any more: write it again for the lines as they are", patches, bug, h.file)
	}
	var out []edit
	e := edit{bug: bug, at: at}
	end := func() {
		if e.del > 0 || len(e.lines) > 0 {
			out = append(out, e)
		}
		e = edit{bug: bug, at: at}
	}
	for _, l := range h.lines {
		switch l[0] {
		case ' ':
			end()
			at++
			e.at = at
		case '-':
			e.del++
			at++
		case '+':
			e.lines = append(e.lines, l[1:])
		}
	}
	end()
	return out, nil
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
