package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)

func names(t *testing.T, fs env.FS, dir string) []string {
	t.Helper()
	out, err := fs.List(dir)
	must(t, err)
	slices.Sort(out)
	return out
}

func TestDirectoryKeepsItsIdentity(t *testing.T) {
	for name, mem := range map[string]*vfs.MemFS{"memory": vfs.NewCrashableMem()} {
		t.Run(name, func(t *testing.T) {
			d, err := OpenDir(NewFS(mem), "a/b/data", env.NewSeededRand(1), created)
			must(t, err)
			id := d.Identity()
			if id.Format != 1 || len(id.Node) != 16 || len(id.Cluster) != 16 || id.Node == id.Cluster || !id.Created.Equal(created) {
				t.Errorf("identity is %+v", id)
			}
			crashed := NewFS(mem.CrashClone(vfs.CrashCloneCfg{}))
			must(t, d.Close())
			again, err := OpenDir(crashed, "a/b/data", env.NewSeededRand(2), created.Add(time.Hour))
			must(t, err)
			defer func() { must(t, again.Close()) }()
			if again.Identity() != id {
				t.Errorf("after a power cut the identity is %+v, want %+v", again.Identity(), id)
			}
			if read, err := ReadDir(crashed, "a/b/data"); err != nil || read != id {
				t.Errorf("read without a lock: %+v %v", read, err)
			}
		})
	}
}

func TestIdentityFileIsFrozen(t *testing.T) {
	fs := NewFS(vfs.NewMem())
	d, err := OpenDir(fs, "data", env.NewSeededRand(1), created)
	must(t, err)
	must(t, d.Close())
	got, err := env.ReadFile(fs, "data/IDENTITY", maxIdentity)
	must(t, err)
	const want = `{"identity":{"format":1,"node":"NODE","cluster":"CLUSTER","created":"2026-01-02T03:04:05.006Z"},"crc32c":"SUM"}` + "\n"
	id := d.Identity()
	text := strings.NewReplacer(id.Node, "NODE", id.Cluster, "CLUSTER").Replace(string(got))
	i := strings.Index(text, `"crc32c":"`) + len(`"crc32c":"`)
	if text = text[:i] + "SUM" + text[i+8:]; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestSecondUserOfADirectoryIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		fs   env.FS
		path string
	}{
		"memory": {NewFS(vfs.NewMem()), "data"},
		"system": {NewFS(SystemFS()), filepath.Join(t.TempDir(), "x", "data")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := OpenDir(c.fs, c.path, env.SystemRand{}, created)
			must(t, err)
			if _, err := OpenDir(c.fs, c.path, env.SystemRand{}, created); !errors.Is(err, ErrLocked) {
				t.Errorf("second open: %v", err)
			}
			must(t, d.Close())
			d, err = OpenDir(c.fs, c.path, env.SystemRand{}, created)
			must(t, err)
			must(t, d.Close())
		})
	}
}

func TestADirectoryWhoseLockCannotBeOpenedIsNotInUse(t *testing.T) {
	for name, spoil := range map[string]func(lock string) error{
		"a directory in its place": func(lock string) error { return os.Mkdir(lock, 0o700) },
		"a link to nowhere":        func(lock string) error { return os.Symlink(filepath.Join(lock, "none"), lock) },
		"a link to itself":         func(lock string) error { return os.Symlink(lock, lock) },
		"a link to a file's child": func(lock string) error {
			file := lock + ".file"
			return errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Join(file, "x"), lock))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data")
			d, err := OpenDir(NewFS(SystemFS()), path, env.SystemRand{}, created)
			must(t, err)
			must(t, d.Close())
			lock := filepath.Join(path, lockName)
			must(t, os.Remove(lock))
			must(t, spoil(lock))
			if _, err = OpenDir(NewFS(SystemFS()), path, env.SystemRand{}, created); err == nil || errors.Is(err, ErrLocked) {
				t.Fatalf("open: %v", err)
			}
			if !strings.Contains(err.Error(), lock) || strings.Contains(err.Error(), "in use") {
				t.Errorf("the error does not tell what is wrong: %v", err)
			}
		})
	}
}

func TestDirectoryIsOnlyForItsUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d, err := OpenDir(NewFS(SystemFS()), path, env.SystemRand{}, created)
	must(t, err)
	must(t, d.Close())
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v", info.Mode())
	}
}

func TestForeignDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	fs := NewFS(vfs.NewMem())
	must(t, fs.MkdirAll("home"))
	must(t, writeFile(fs, "home/notes", []byte("dear diary")))
	if _, err := OpenDir(fs, "home", env.SystemRand{}, created); !errors.Is(err, ErrForeign) {
		t.Errorf("open: %v", err)
	}
	if got := names(t, fs, "home"); !slices.Equal(got, []string{"notes"}) {
		t.Errorf("it now holds %v", got)
	}
}

func TestEmptyAndHalfMadeDirectoriesAreTaken(t *testing.T) {
	fs := NewFS(vfs.NewMem())
	must(t, fs.MkdirAll("empty"))
	must(t, fs.MkdirAll("half"))
	must(t, writeFile(fs, "half/LOCK", nil))
	must(t, writeFile(fs, "half/IDENTITY.tmp", []byte(`{"ident`)))
	for _, path := range []string{"empty", "half"} {
		if _, err := ReadDir(fs, path); !errors.Is(err, ErrNoData) {
			t.Errorf("read of %s: %v", path, err)
		}
		d, err := OpenDir(fs, path, env.SystemRand{}, created)
		must(t, err)
		must(t, d.Close())
	}
	if _, err := ReadDir(fs, "missing"); !errors.Is(err, ErrNoData) {
		t.Errorf("read of a missing directory: %v", err)
	}
}

func TestNewerFormatIsRefusedAndLeftAlone(t *testing.T) {
	fs := NewFS(vfs.NewMem())
	must(t, fs.MkdirAll("data"))
	text := `{"format":2,"node":"with more fields than we know","more":[1]}`
	must(t, writeFile(fs, "data/IDENTITY", []byte(`{"identity":`+text+`,"crc32c":"`+checksum([]byte(text))+`"}`)))
	_, err := OpenDir(fs, "data", env.SystemRand{}, created)
	var newer *NewerFormatError
	if !errors.As(err, &newer) || newer.Found != 2 || newer.Supported != FormatVersion {
		t.Errorf("open: %v", err)
	}
	if got := names(t, fs, "data"); !slices.Equal(got, []string{"IDENTITY"}) {
		t.Errorf("it now holds %v", got)
	}
}

func TestDamagedIdentityIsNamed(t *testing.T) {
	fs := NewFS(vfs.NewMem())
	d, err := OpenDir(fs, "data", env.SystemRand{}, created)
	must(t, err)
	must(t, d.Close())
	good, err := env.ReadFile(fs, "data/IDENTITY", maxIdentity)
	must(t, err)
	for i := range good[:len(good)-1] { // without the line's end
		bad := slices.Clone(good)
		bad[i] ^= 0x01
		must(t, writeFile(fs, "data/IDENTITY", bad))
		_, err := OpenDir(fs, "data", env.SystemRand{}, created)
		var c *errs.Corruption
		if !errors.As(err, &c) || !strings.Contains(c.What, "IDENTITY") {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for _, text := range []string{"", "{}", string(good[:40])} {
		must(t, writeFile(fs, "data/IDENTITY", []byte(text)))
		var c *errs.Corruption
		if _, err := ReadDir(fs, "data"); !errors.As(err, &c) {
			t.Errorf("content %q: %v", text, err)
		}
	}
}

func TestBallastTakesRoomAndGivesItBack(t *testing.T) {
	fs := NewFS(SystemFS())
	d, err := OpenDir(fs, filepath.Join(t.TempDir(), "data"), env.SystemRand{}, created)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	if size, err := d.BallastSize(); err != nil || size <= 0 || size > maxBallast {
		t.Errorf("default size is %d, %v", size, err)
	}
	if d.HasBallast() {
		t.Error("a new directory has a ballast")
	}
	for range 2 {
		must(t, d.ReserveBallast(1<<20))
	}
	if !d.HasBallast() {
		t.Error("there is no ballast")
	}
	for _, want := range []bool{true, false} {
		if released, err := d.ReleaseBallast(); err != nil || released != want {
			t.Errorf("release: %v %v, want %v", released, err, want)
		}
	}
	if d.HasBallast() {
		t.Error("the ballast is still there")
	}
	_, err = ReadDir(fs, d.Path())
	must(t, err)
}
