package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// openToOthers returns what below dir other users may use, the directory itself included.
func openToOthers(t *testing.T, dir string) (out []string) {
	t.Helper()
	noErr(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil // the server has removed it meanwhile
		}
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // likewise
			return nil
		case err == nil && info.Mode().Perm()&0o077 != 0:
			out = append(out, info.Mode().String()+" "+path)
		}
		return err
	}))
	return out
}

// A directory that packages, images or volumes made before the server came is open to all users of the machine, and so is
// one that an earlier program wrote.
func TestWhatAServerStoresIsItsUsersAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	needGit(t)
	dir := t.TempDir()
	data, archive := filepath.Join(dir, "data"), filepath.Join(dir, "archive")
	for _, d := range []string{data, archive} {
		noErr(t, os.Mkdir(d, 0o755))
		noErr(t, os.Chmod(d, 0o755))
	}
	s, err := proc.New(t.Context(), proc.Options{
		Binary: program, Dir: dir, Data: data, Flags: []string{"--log-archive-dir", archive, "--ready-file", filepath.Join(dir, "ready")},
	}, "default")
	noErr(t, err)
	ctx := bounded(t, 2*time.Minute)
	start := func() {
		t.Helper()
		if _, err := s.Start(ctx); err != nil {
			t.Fatalf("%v\n%s", err, logOf(s))
		}
	}
	start()
	t.Cleanup(func() { s.Kill() })
	c, err := millrace.Dial(ctx, millrace.Address("server.test:1"), millrace.Insecure(), millrace.Token(s.Tokens[0].Secret), millrace.Dialer(s.Dial))
	noErr(t, err)
	defer c.Close()
	addMany(t, ctx, c, "q", 200)
	h := gitHost{t, s.HTTP(), s.Address(), s.Tokens[0].Secret}
	h.makeRepo("app", nil)
	w := newWork(t, "2")
	w.commit("a", "1")
	w.git("push", "-q", h.url("app"), "main")
	check := func(when string) {
		t.Helper()
		for _, d := range []string{data, archive} {
			for _, open := range openToOthers(t, d) {
				t.Errorf("%s: %s", when, open)
			}
		}
	}
	check("while it serves")
	backups := t.TempDir()
	for _, to := range []string{"folder", "file.tar"} {
		if e := millraceAs(t, s.Address(), s.Tokens[0].Secret, "backup", "--to", filepath.Join(backups, to)); e.code != 0 {
			t.Fatalf("backup ended with %d\n%s", e.code, e.out)
		}
		for _, open := range openToOthers(t, filepath.Join(backups, to)) {
			t.Errorf("in a backup: %s", open)
		}
	}
	noErr(t, s.Stop())
	// As an earlier program left it.
	noErr(t, filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return err
	}))
	noErr(t, os.Chmod(filepath.Join(data, "IDENTITY"), 0o644))
	start()
	check("after a second start")
	if log := logOf(s); !strings.Contains(log, "other users could read a directory") || !strings.Contains(log, "option=data") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
	noErr(t, s.Stop())
}

// asUser runs the binary as a user who is not root, and does not own what root makes.
func asUser(t *testing.T, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), string(out)}
}

// TestADirectoryThatCannotBeUsedSaysWhy starts servers as a user who lacks a permission: none may blame another process.
func TestADirectoryThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("real processes, one as another user, which only root may start")
	}
	top, err := os.MkdirTemp("", "millrace-private-")
	noErr(t, err)
	defer os.RemoveAll(top)
	noErr(t, os.Chmod(top, 0o755))
	noErr(t, os.Chmod(filepath.Dir(program), 0o755)) // the other user runs it
	used := filepath.Join(top, "used")
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: filepath.Join(top, "s"), Data: used}, "default")
	noErr(t, err)
	_, err = s.Start(t.Context())
	noErr(t, err)
	noErr(t, s.Stop())
	for name, c := range map[string]struct {
		prepare func(dir string) error
		want    []string
	}{
		"may not be entered":            {func(dir string) error { return os.Mkdir(dir, 0o700) }, []string{"permission denied"}},
		"may not be written":            {func(dir string) error { return os.CopyFS(dir, os.DirFS(used)) }, []string{"permission denied", "LOCK"}},
		"cannot be made":                {func(string) error { return nil }, []string{"permission denied"}},
		"is a file":                     {func(dir string) error { return os.WriteFile(dir, nil, 0o644) }, []string{"not a directory"}},
		"is another's, and all write":   {func(dir string) error { return openDir(dir, 0o777) }, []string{"mode 0777", "run as its owner"}},
		"is another's, with sticky bit": {func(dir string) error { return openDir(dir, 0o777|fs.ModeSticky) }, []string{"mode 0777", "0700"}},
	} {
		dir := filepath.Join(top, strings.ReplaceAll(name, " ", "-"))
		noErr(t, c.prepare(dir))
		if strings.Contains(name, "written") {
			noErr(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				return os.Chmod(path, 0o755)
			}))
		}
		e := asUser(t, "serve", "--dev", "--data", dir, "--listen", "127.0.0.1:0")
		if e.code == 0 || strings.Contains(e.out, "in use") {
			t.Errorf("a directory that %s: it ended with %d\n%s", name, e.code, e.out)
		}
		for _, want := range append(c.want, dir) {
			if !strings.Contains(e.out, want) {
				t.Errorf("a directory that %s: the answer lacks %q:\n%s", name, want, e.out)
			}
		}
	}
}

func openDir(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// A user that may write these files can make tokens, or read what is sent.
func TestFilesThatOthersMayChangeKeepAServerFromStarting(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir()}, "default")
	noErr(t, err)
	tokens := filepath.Join(filepath.Dir(s.LogFile()), "tokens.yaml")
	cert, key, _ := selfSigned(t)
	settings := filepath.Join(t.TempDir(), "millrace.yaml")
	noErr(t, os.WriteFile(settings, []byte("name: n1\n"), 0o600))
	embedders := filepath.Join(t.TempDir(), "embedders.yaml")
	noErr(t, os.WriteFile(embedders, []byte("embedders: []\n"), 0o600))
	for flag, file := range map[string]string{"--tokens": tokens, "--tls-key": key, "--tls-cert": cert, "--config": settings, "--embedders": embedders} {
		for _, mode := range []fs.FileMode{0o666, 0o620, 0o602} {
			noErr(t, os.Chmod(file, mode))
			e := run(t, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--tokens", tokens,
				"--tls-cert", cert, "--tls-key", key, "--config", settings, "--embedders", embedders)
			if e.code == 0 || !strings.Contains(e.out, file) || !strings.Contains(e.out, strings.TrimPrefix(flag, "--")) || !strings.Contains(e.out, "go-w") {
				t.Errorf("%s of mode %04o: it ended with %d\n%s", flag, mode, e.code, e.out)
			}
		}
		noErr(t, os.Chmod(file, 0o600))
	}
}
