package lint

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The parts of Markdown that links are found by.
var (
	// link is an inline link or image, whose target is the first group.
	link = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	// reference is a definition of a link at the beginning of a line.
	reference = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)`)
	// scheme begins a target that is a URL: it is not looked up.
	scheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	// code is code within a line, in which nothing is a link.
	code = regexp.MustCompile("`[^`]*`")
	// unslugged are the characters of a heading that its anchor leaves out, as GitHub makes it.
	unslugged = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// checkLinks finds relative links of Markdown files whose file, folder or heading is not there.
func checkLinks(t *tree) ([]finding, error) {
	var out []finding
	for _, doc := range t.docs {
		lines, err := prose(t.fsys, doc)
		if err != nil {
			return nil, err
		}
		// A link in code, such as one that a page shows as an example, leads nowhere.
		for i, line := range lines {
			bare := code.ReplaceAllString(line, "")
			for _, m := range slices.Concat(link.FindAllStringSubmatch(bare, -1), reference.FindAllStringSubmatch(bare, -1)) {
				if why := dangles(t.fsys, doc, m[1]); why != "" {
					out = append(out, finding{doc, i + 1, "link to " + m[1] + ": " + why})
				}
			}
		}
	}
	return out, nil
}

// prose returns the lines of a Markdown file; those of code blocks are empty.
func prose(fsys fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	// fenced says that the line is inside a block of code.
	fenced := false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			lines[i] = ""
		} else if fenced {
			lines[i] = ""
		}
	}
	return lines, nil
}

// dangles says why a link leads nowhere, or nothing.
func dangles(fsys fs.FS, from, target string) string {
	if scheme.MatchString(target) || strings.HasPrefix(target, "//") {
		return ""
	}
	file, heading, _ := strings.Cut(target, "#")
	name := from
	if file != "" {
		name = path.Join(path.Dir(from), file)
		if strings.HasPrefix(file, "/") {
			name = strings.TrimPrefix(path.Clean(file), "/")
		}
	}
	// A target above the root of the repository cannot be there.
	if !fs.ValidPath(name) {
		return "leads out of the repository"
	}
	if _, err := fs.Stat(fsys, name); err != nil {
		return "there is no such file"
	}
	if heading == "" || !strings.HasSuffix(name, ".md") {
		return ""
	}
	lines, err := prose(fsys, name)
	if err != nil {
		return err.Error()
	}
	for _, line := range lines {
		// A heading begins with at least one # and a space.
		text := strings.TrimLeft(line, "#")
		if text != line && strings.HasPrefix(text, " ") && slug(text) == heading {
			return ""
		}
	}
	return "there is no such heading"
}

// slug is the name under which a heading can be linked to.
func slug(heading string) string {
	text := unslugged.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(text, " ", "-")
}
