package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// linked is a module from which the program links at least one package.
type linked struct {
	// path and version are as go.mod has them; version is empty for the main module.
	path, version string
	// sum is what go.sum has: h1: and the base64 of a SHA-256 over the module's files.
	sum string
	// texts are the files with licenses and notices of the linked packages, in the order of their names.
	texts []text
	// needs are the paths of the modules whose packages its own packages import, in order.
	needs []string
}

// text is a file with a license or a notice.
type text struct {
	// name is the path of the file from the module's root, with slashes.
	name string
	// body is the text, with line breaks of Unix.
	body string
}

// platform is a system that the program is built for.
type platform struct{ goos, goarch, cgo string }

// platforms are all that a release or a build from source can link for. cgo adds a module, so both kinds count.
func platforms() []platform {
	var out []platform
	for _, goos := range []string{"linux", "darwin"} {
		for _, goarch := range []string{"amd64", "arm64"} {
			out = append(out, platform{goos, goarch, "0"}, platform{goos, goarch, "1"})
		}
	}
	return out
}

// listed is what the go command says about a package; Module is nil for the standard library.
type listed struct {
	// ImportPath names the package, and Dir is where its files are.
	ImportPath, Dir string
	// Imports are the import paths of what its files import.
	Imports []string
	Module  *struct {
		// Dir is the root of the module's files.
		Path, Version, Dir string
		// Main says that it is the module of the working directory.
		Main bool
	}
}

// licenseName matches names of files that hold a license or a notice.
var licenseName = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)([-._].*)?$`)

// linkedModules finds the modules that target links on any of platforms, in the order of their paths.
func linkedModules(dir, target string, on []platform) ([]linked, error) {
	sums, err := readSums(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	// packages are the linked packages of all platforms, by import path.
	packages := map[string]listed{}
	// imports are, by import path, those of all platforms together: files differ between them.
	imports := map[string]map[string]bool{}
	for _, p := range on {
		all, err := listPackages(dir, target, p)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			// A package of the standard library is not of a module.
			if l.Module == nil {
				continue
			}
			packages[l.ImportPath] = l
			if imports[l.ImportPath] == nil {
				imports[l.ImportPath] = map[string]bool{}
			}
			for _, i := range l.Imports {
				imports[l.ImportPath][i] = true
			}
		}
	}
	// modules are by their path; the main one is among them.
	modules := map[string]*linked{}
	// needs are the modules that a module's packages import, by its path.
	needs := map[string]map[string]bool{}
	for name, l := range packages {
		m := modules[l.Module.Path]
		if m == nil {
			m = &linked{path: l.Module.Path, version: l.Module.Version, sum: sums[l.Module.Path+" "+l.Module.Version]}
			modules[m.path] = m
			needs[m.path] = map[string]bool{}
		}
		for i := range imports[name] {
			if to, ok := packages[i]; ok && to.Module.Path != m.path {
				needs[m.path][to.Module.Path] = true
			}
		}
		if l.Module.Main {
			continue
		}
		if err := m.addTexts(l); err != nil {
			return nil, err
		}
	}
	var out []linked
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		m.needs = slices.Sorted(maps.Keys(needs[path]))
		slices.SortFunc(m.texts, func(a, b text) int { return strings.Compare(a.name, b.name) })
		out = append(out, *m)
	}
	return out, nil
}

// addTexts adds the texts that hold for a package: those in its directory and in every one above, up to the module's
// root, and in the root's directory of licenses.
func (m *linked) addTexts(l listed) error {
	root := l.Module.Dir
	within, err := filepath.Rel(root, l.Dir)
	if err != nil {
		return err
	}
	dirs := []string{"licenses", "LICENSES"}
	for at := within; ; at = filepath.Dir(at) {
		dirs = append(dirs, at)
		if at == "." {
			break
		}
	}
	for _, at := range dirs {
		files, err := os.ReadDir(filepath.Join(root, at))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		for _, f := range files {
			name := filepath.ToSlash(filepath.Join(at, f.Name()))
			// known says that a package in the same or another directory has brought this text already.
			known := slices.ContainsFunc(m.texts, func(t text) bool { return t.name == name })
			isText := strings.EqualFold(at, "licenses") || licenseName.MatchString(f.Name()) && !strings.HasSuffix(f.Name(), ".go")
			if known || !isText || !f.Type().IsRegular() {
				continue
			}
			body, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return err
			}
			m.texts = append(m.texts, text{name, strings.ReplaceAll(string(body), "\r\n", "\n")})
		}
	}
	return nil
}

// listPackages asks the go command for all packages that target links on a platform.
func listPackages(dir, target string, p platform) ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Imports,Module", target)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+p.goos, "GOARCH="+p.goarch, "CGO_ENABLED="+p.cgo)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what %s links: %w: %s", target, err, failure.Bytes())
	}
	var out []listed
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
}

// readSums reads the sums of modules' files from a go.sum, by path and version with a space between.
func readSums(name string) (map[string]string, error) {
	raw, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // no module is needed
	} else if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasSuffix(f[1], "/go.mod") {
			out[f[0]+" "+f[1]] = f[2]
		}
	}
	return out, nil
}
