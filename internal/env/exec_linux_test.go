package env

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLimitsHoldBeforeThereIsInput(t *testing.T) {
	var out strings.Builder
	c := sh(t, `read line; ulimit -d; ulimit -c; ulimit -t; ulimit -f`)
	c.Limits = Limits{MemoryBytes: 64 << 20, FileBytes: 1 << 20, CPU: 3 * time.Second}
	c.Feed = func(w io.Writer) error { _, err := io.WriteString(w, "go\n"); return err }
	c.Drain = func(r io.Reader) error { _, err := io.Copy(&out, r); return err }
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || !e.OK() || out.String() != "65536\n0\n3\n2048\n" {
		t.Errorf("%+v, %v, limits %q", e, err, out.String())
	}
}

func TestAProgramThatWritesTooMuchIsEnded(t *testing.T) {
	c := sh(t, `read line; exec cat >`+filepath.Join(t.TempDir(), "file"))
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.Limits.FileBytes = 1 << 16
	c.Feed = func(w io.Writer) error {
		if _, err := io.WriteString(w, "go\n"); err != nil {
			return err
		}
		_, err := io.Copy(w, endless{})
		return err
	}
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || e.OK() || e.Signal != "" && e.Signal != syscall.SIGXFSZ.String() {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestAProgramThatYieldsIsBehindAllOthersAndGainsNoPrivileges(t *testing.T) {
	var out strings.Builder
	c := sh(t, `read line; cat /proc/self/oom_score_adj; nice; grep NoNewPrivs /proc/self/status; sh -c 'cat /proc/self/oom_score_adj; nice'`)
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.Yields = true
	c.Feed = func(w io.Writer) error { _, err := io.WriteString(w, "go\n"); return err }
	c.Drain = func(r io.Reader) error { _, err := io.Copy(&out, r); return err }
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	nice := min(20-own+5, 19)
	want := fmt.Sprintf("1000\n%d\nNoNewPrivs:\t1\n1000\n%d\n", nice, nice)
	if e, err := (SystemExec{}).Run(t.Context(), c); err != nil || !e.OK() || out.String() != want {
		t.Errorf("%+v, %v: %q, not %q", e, err, out.String(), want)
	}
	// What holds for the program holds for no other goroutine of this process.
	self, err := os.ReadFile("/proc/thread-self/status")
	if err != nil || strings.Contains(string(self), "NoNewPrivs:\t1") {
		t.Errorf("this thread: %v\n%s", err, self)
	}
}

func TestAProgramReachesOnlyWhatItIsGiven(t *testing.T) {
	if !CanRestrict() {
		t.Skip("this kernel does not restrict what programs reach")
	}
	dir := t.TempDir()
	for _, name := range []string{"mine/in", "mine/out/old", "others/secret", "others/of/mine"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	system := []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/nonexistent"}
	for _, c := range []struct {
		script string
		ok     bool
	}{
		{"cat mine/in", true},
		{"ls mine", true},
		{"echo x >mine/out/new && mv mine/out/new mine/out/newer && rm mine/out/newer", true},
		{"mkdir mine/out/d && mv mine/out/old mine/out/d/old && ln mine/out/d/old mine/out/old", true},
		{"echo x >mine/in", false},
		{"rm mine/in", false},
		{"cat others/secret", false},
		{"ls others", false},
		{"cat mine/../others/of/mine", false},
		{"echo x >new", false},
		{"ln -s ../others/secret mine/out/link", false},
		{"mkfifo mine/out/fifo", false},
		{"cat /proc/1/environ", false},
		{"sh -c 'cat others/secret'", false},
	} {
		cmd := sh(t, "cd "+dir+"; "+c.script)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		cmd.Reach = &Reach{Read: append(system, filepath.Join(dir, "mine")), Write: []string{filepath.Join(dir, "mine/out"), "/dev/null"}}
		if e, err := (SystemExec{}).Run(t.Context(), cmd); err != nil || e.OK() != c.ok {
			t.Errorf("%s: %+v, %v, %q", c.script, e, err, e.Lines())
		}
	}
	if _, err := os.ReadFile(filepath.Join(dir, "others/secret")); err != nil {
		t.Errorf("this process is restricted too: %v", err)
	}
}

func TestAProgramThatUsesUpItsTimeIsToldFromOneThatIsKilled(t *testing.T) {
	c := sh(t, `read line; while :; do :; done`)
	c.Limits.CPU = time.Second
	c.Feed = func(w io.Writer) error { _, err := io.WriteString(w, "go\n"); return err }
	e, err := SystemExec{}.Run(t.Context(), c)
	if err != nil || e.Signal != syscall.SIGXCPU.String() || e.CPU < time.Second/2 {
		t.Errorf("%+v, %v", e, err)
	}
}
