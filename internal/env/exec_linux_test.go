package env

import (
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
