package campaign

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// What reliability depends on: these folders, and the versions of these modules. machineFolders
// count only for rows that are about the state machines.
var (
	codeFolders    = []string{"internal/core", "internal/keys", "internal/store", "internal/replog", "internal/node", "proto"}
	machineFolders = []string{"internal/machine"}
	codeModules    = []string{"go.etcd.io/raft/v3", "github.com/cockroachdb/pebble/v2"}
)

// CodeHash returns the hash of the code that a row is about, below the repository's root. It covers
// names and contents of what is built; tests and notes are left out.
func CodeHash(root string, row Row) (string, error) {
	folders := codeFolders
	if row.Machines {
		folders = slices.Concat(codeFolders, machineFolders)
	}
	h := sha256.New()
	for _, folder := range folders {
		if err := hashFolder(h, root, folder); err != nil {
			return "", fmt.Errorf("hash code: %w", err)
		}
	}
	versions, err := moduleVersions(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("hash code: %w", err)
	}
	for _, v := range versions {
		fmt.Fprintf(h, "module %s\n", v)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashFolder adds the files of one folder. A folder that is not there adds nothing.
func hashFolder(h io.Writer, root, folder string) error {
	// WalkDir goes in name order, which makes the hash the same everywhere.
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case d.IsDir() || !built(d.Name()):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "file %s %x\n", filepath.ToSlash(name), sha256.Sum256(b))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not built yet: its coming changes the hash
	}
	return err
}

// built reports whether a file is part of the program.
func built(name string) bool {
	return strings.HasSuffix(name, ".proto") || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// moduleVersions returns "path version" of the modules that count, as go.mod requires them.
func moduleVersions(gomod string) ([]string, error) {
	b, err := os.ReadFile(gomod)
	if err != nil {
		return nil, err
	}
	var out []string
	in := bufio.NewScanner(bytes.NewReader(b))
	for in.Scan() {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(in.Text()), "require "))
		if len(fields) >= 2 && slices.Contains(codeModules, fields[0]) {
			out = append(out, fields[0]+" "+fields[1])
		}
	}
	slices.Sort(out)
	return out, in.Err()
}

// Commit returns the short commit of the checkout, with a + when files differ from it; unknown without git.
func Commit(root string) string {
	out, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	if dirty, err := exec.Command("git", "-C", root, "status", "--porcelain").Output(); err == nil && len(bytes.TrimSpace(dirty)) > 0 {
		commit += "+"
	}
	return commit
}

// Host describes the machine by what matters to a figure, not by name.
func Host() string {
	kernel := "unknown kernel"
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), kernel)
}

// Root returns the folder of the checkout that dir lies in: the nearest one with a go.mod.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working folder")
		}
		dir = up
	}
}
