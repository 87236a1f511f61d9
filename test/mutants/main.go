// Command mutants writes an overlay for the go command: product files with every planted bug in them. A planted bug proves
// that a test finds what it is there to find. Product files hold no trace of them.
//
//	go run ./test/mutants FOLDER
//	MILLRACE_MUTANT=no_fsync go test -overlay FOLDER/overlay.json -tags "invariants mutants" ./internal/replog/wal
//
// Each patch of this folder is one bug, and has its name; the code that it adds asks planted("name"). The environment's
// MILLRACE_MUTANT names the bug that is on; tests with the tag mutants set it by themselves.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chosen is the variable of the environment that names the bug that is on.
const chosen = "MILLRACE_MUTANT"

// patches is the folder of this program, from the root of the module.
const patches = "test/mutants"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "use: go run ./test/mutants FOLDER, from the root of the module")
		os.Exit(2)
	}
	if err := overlay(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// overlay writes the files with all bugs, and overlay.json, into a folder.
func overlay(folder string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	files, err := planted(root)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for name, text := range files {
		to := filepath.Join(folder, "planted", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
		replace[filepath.Join(root, name)] = to
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "overlay.json"), text, 0o644)
}

// planted returns the text of each file that a bug changes or adds, with all bugs in it, by its path from the root.
func planted(root string) (map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(root, patches, "*.patch"))
	if err != nil {
		return nil, err
	}
	edits := map[string][]edit{} // by file
	var wrong []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		bug := strings.TrimSuffix(filepath.Base(name), ".patch")
		hunks, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, h := range hunks {
			e, err := h.locate(root, bug)
			wrong = append(wrong, err)
			edits[h.file] = append(edits[h.file], e...)
		}
	}
	out := map[string]string{}
	folders := map[string]string{} // a package's folder to its name
	for file, list := range edits {
		text, err := apply(root, file, list)
		wrong = append(wrong, err)
		out[file] = text
		_, after, _ := strings.Cut("\n"+text, "\npackage ")
		folders[filepath.Dir(file)], _, _ = strings.Cut(after, "\n")
	}
	for folder, name := range folders {
		out[filepath.Join(folder, "planted_bugs.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nfunc planted(name string) bool { return os.Getenv(%q) == name }\n", name, chosen)
	}
	return out, errors.Join(wrong...)
}

// edit replaces lines of a file: del lines from the line with index at on, by lines.
type edit struct {
	bug     string
	at, del int
	lines   []string
}

// apply returns the text of a file with all edits in it. Two bugs may add lines in one place, but not change one line.
func apply(root, file string, edits []edit) (string, error) {
	base, err := read(root, file)
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	var out []string
	done, last := 0, ""
	for _, e := range edits {
		if e.at < done {
			return "", fmt.Errorf("%s: %s and %s change one line: let one of them add a line instead", file, last, e.bug)
		}
		out = append(out, base[done:e.at]...)
		out = append(out, e.lines...)
		done, last = e.at+e.del, e.bug
	}
	out = append(out, base[done:]...)
	if len(base) == 0 { // a new file
		out = append(out, "")
	}
	return strings.Join(out, "\n"), nil
}

// read returns the lines of a file, without any for one that is not there.
func read(root, file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(string(text), "\n"), err
}
