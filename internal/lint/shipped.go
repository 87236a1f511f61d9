package lint

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutantSwitch is what builds with planted bugs read from the environment.
const mutantSwitch = "MILLRACE_MUTANT"

// checkLinked finds packages that target, a package pattern such as ./cmd/millrace, would link and must not: test
// libraries, test kits, files of fault or mutant builds; for the client library, anything internal.
func checkLinked(dir, module, target, goos, tags string) ([]string, error) {
	cmd := exec.Command("go", "list", "-deps", "-tags", tags, "-f", "{{.ImportPath}} {{range .GoFiles}}{{.}},{{end}}", target)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var failure bytes.Buffer
	cmd.Stderr = &failure
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what %s links: %w: %s", target, err, failure.Bytes())
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		// The go command lists a package's files for the given tags, so a file of a fault build is there only if it
		// would be linked.
		linked, files, _ := strings.Cut(strings.TrimSpace(line), " ")
		own, ours := strings.CutPrefix(linked, module+"/")
		what := ""
		switch {
		case slices.ContainsFunc(testLibraries, func(l string) bool { return within(linked, l) }):
			what = "a test library"
		case ours && isKit(own):
			what = "a package for tests"
		// The client library must be of use to programs that cannot import what is internal.
		case ours && target == "./sdk/go" && within(own, "internal"):
			what = "an internal package"
		case ours && own == "internal/fault" && slices.Contains(strings.Split(files, ","), "on.go"):
			what = "fault points"
		}
		if what != "" {
			out = append(out, fmt.Sprintf("%s links %s (%s), on %s with tags %q", target, linked, what, goos, tags))
		}
	}
	return out, nil
}

// checkBinary builds target and finds in the binary what only builds for tests have: the code of fault points, and the
// switch for planted bugs.
func checkBinary(dir, module, target, tags, scratch string) ([]string, error) {
	binary := filepath.Join(scratch, "binary")
	// The binary is of this system, whatever the releases are built for.
	cmd := exec.Command("go", "build", "-tags", tags, "-o", binary, target)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", target, err, text)
	}
	symbols, err := symbolsOf(binary)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range symbols {
		if strings.HasPrefix(s, module+"/internal/fault.") {
			out = append(out, target+" ships a fault point: symbol "+s)
		}
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte(mutantSwitch)) {
		out = append(out, target+" ships planted bugs: it reads "+mutantSwitch)
	}
	return out, nil
}

// symbolsOf lists the symbols of a binary of this system.
func symbolsOf(binary string) ([]string, error) {
	var out []string
	// A binary of Linux has the form ELF, one of macOS the form Mach-O; other systems are not built for.
	if f, err := elf.Open(binary); err == nil {
		defer func() { _ = f.Close() }() // only read
		symbols, err := f.Symbols()
		for _, s := range symbols {
			out = append(out, s.Name)
		}
		return out, err
	}
	f, err := macho.Open(binary)
	if err != nil {
		return nil, fmt.Errorf("read symbols of %s: %w", binary, err)
	}
	defer func() { _ = f.Close() }() // only read
	if f.Symtab != nil {
		for _, s := range f.Symtab.Syms {
			// Mach-O puts an underscore before each symbol.
			out = append(out, strings.TrimPrefix(s.Name, "_"))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no symbols", binary)
	}
	return out, nil
}
