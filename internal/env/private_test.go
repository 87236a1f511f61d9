package env_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/env"
)

// put makes a file of a mode, which the umask of this process does not change.
func put(t *testing.T, name string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, name string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(name, 0o700), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestADirectoryThatOthersMayUseBecomesPrivateWithAllBelowIt(t *testing.T) {
	for _, mode := range []fs.FileMode{0o755, 0o750, 0o711, 0o777, 0o705, 0o740} {
		top := t.TempDir()
		dir := filepath.Join(top, "data")
		mkdir(t, filepath.Join(dir, "store", "deep"), 0o775)
		mkdir(t, filepath.Join(dir, "store"), 0o700) // what lies below a private directory counts too
		put(t, filepath.Join(dir, "store", "000004.sst"), 0o644)
		put(t, filepath.Join(dir, "store", "deep", "pack"), 0o466)
		put(t, filepath.Join(dir, "LOCK"), 0o600)
		outside := filepath.Join(top, "outside")
		put(t, outside, 0o644)
		if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		mkdir(t, dir, mode)
		if n, err := env.KeepPrivate(dir); n != 4 || err != nil {
			t.Errorf("mode %04o: %d changed, error %v, want the directory, one below it and two files", mode, n, err)
		}
		for name, want := range map[string]fs.FileMode{
			dir: 0o700, filepath.Join(dir, "store", "deep"): 0o700, filepath.Join(dir, "store", "000004.sst"): 0o600,
			filepath.Join(dir, "store", "deep", "pack"): 0o400, filepath.Join(dir, "LOCK"): 0o600, outside: 0o644,
		} {
			if got := modeOf(t, name); got != want {
				t.Errorf("mode %04o: %s has %04o, want %04o", mode, name, got, want)
			}
		}
		if n, err := env.KeepPrivate(dir); n != 0 || err != nil {
			t.Errorf("a second time: %d changed, error %v", n, err)
		}
	}
	if n, err := env.KeepPrivate(filepath.Join(t.TempDir(), "none")); n != 0 || err != nil {
		t.Errorf("a directory that is missing: %d changed, error %v", n, err)
	}
}

func TestAFileThatOthersMayChangeIsNotTrusted(t *testing.T) {
	for name, c := range map[string]struct {
		file, dir fs.FileMode
		trusted   bool
		readable  bool
	}{
		"private":                       {0o600, 0o700, true, false},
		"read by all":                   {0o644, 0o755, true, true},
		"read by the group":             {0o640, 0o755, true, false},
		"read only":                     {0o400, 0o755, true, false},
		"written by all":                {0o666, 0o700, false, false},
		"written by the group":          {0o660, 0o700, false, false},
		"written by others only":        {0o602, 0o700, false, false},
		"replaced by all":               {0o600, 0o777, false, false},
		"in a directory with sticky":    {0o600, 0o777 | fs.ModeSticky, true, false},
		"written, in a sticky one":      {0o666, 0o777 | fs.ModeSticky, false, false},
		"in a directory that all write": {0o644, 0o703, false, false},
	} {
		dir := filepath.Join(t.TempDir(), "d")
		mkdir(t, dir, c.dir)
		file := filepath.Join(dir, "tokens.yaml")
		put(t, file, c.file)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, link} {
			readable, err := env.CheckTrusted(path)
			_, refused := errors.AsType[*env.WritableError](err)
			if (err == nil) != c.trusted || refused == c.trusted || readable != c.readable {
				t.Errorf("%s: %s: readable %v, error %v", name, path, readable, err)
			}
		}
	}
	if _, err := env.CheckTrusted(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}
