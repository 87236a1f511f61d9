//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// mountKit is a mounted file system, told what to do by its input.
type mountKit struct {
	*testing.T
	at  string
	in  io.WriteCloser
	out *bufio.Scanner
}

func newMount(t *testing.T) *mountKit {
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting takes root")
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("not run: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "mnt")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	in, commands := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(filepath.Join(dir, "store"), at, in, out)
		out.CloseWithError(err)
		ended <- err
	}()
	k := &mountKit{t, at, commands, bufio.NewScanner(answers)}
	t.Cleanup(func() {
		commands.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(at, "d", "f")); t.Name() == "TestAPowerCutOfAMount" && string(b) != "synced" {
			t.Errorf("after the end the file holds %q, err %v", b, err)
		}
	})
	if !k.out.Scan() || k.out.Text() != "{}" {
		t.Fatalf("it said %q, err %v", k.out.Text(), k.out.Err())
	}
	return k
}

func (k *mountKit) do(command string) (a answer) {
	k.Helper()
	if _, err := io.WriteString(k.in, command+"\n"); err != nil {
		k.Fatal(err)
	}
	if !k.out.Scan() {
		k.Fatalf("no answer to %s: %v", command, k.out.Err())
	}
	if err := json.Unmarshal(k.out.Bytes(), &a); err != nil {
		k.Fatal(err)
	}
	return a
}

func (k *mountKit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *mountKit) write(name, data string, sync bool) {
	k.Helper()
	f, err := os.OpenFile(filepath.Join(k.at, name), os.O_RDWR|os.O_CREATE, 0o600)
	k.ok(err)
	_, err = f.WriteAt([]byte(data), 0)
	k.ok(err)
	if sync {
		k.ok(f.Sync())
	}
	k.ok(f.Close())
}

func (k *mountKit) sync(dir string) {
	k.Helper()
	f, err := os.Open(filepath.Join(k.at, dir))
	k.ok(err)
	k.ok(f.Sync())
	k.ok(f.Close())
}

func TestAPowerCutOfAMount(t *testing.T) {
	k := newMount(t)
	k.ok(os.Mkdir(filepath.Join(k.at, "d"), 0o700))
	k.sync(".")
	k.write("d/f", "synced", true)
	k.sync("d")
	k.write("d/f", "not synced", false)
	k.write("d/g", "without a name on the disk", true)
	if b, err := os.ReadFile(filepath.Join(k.at, "d", "f")); err != nil || string(b) != "not synced" {
		t.Fatalf("before the cut the file holds %q, err %v", b, err)
	}
	a := k.do(`{"do":"cut","seed":1,"share":0}`)
	if a.Error != "" || a.Cut == nil || a.Cut.NamesLost != 1 || a.Cut.SectorsLost == 0 {
		t.Fatalf("the cut answered %+v %+v", a, a.Cut)
	}
	if b, err := os.ReadFile(filepath.Join(k.at, "d", "f")); err != nil || string(b) != "synced" {
		t.Fatalf("after the cut the file holds %q, err %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(k.at, "d", "g")); !os.IsNotExist(err) {
		t.Fatalf("a name that was not synced is there, err %v", err)
	}
}

func TestBrokenAndFullMounts(t *testing.T) {
	k := newMount(t)
	k.write("f", "x", true)
	if a := k.do(`{"do":"rules","rules":[{"kinds":["sync"],"error":"EIO","times":1},{"kinds":["grow"],"error":"ENOSPC"}]}`); a.Error != "" {
		t.Fatal(a.Error)
	}
	f, err := os.OpenFile(filepath.Join(k.at, "f"), os.O_RDWR, 0)
	k.ok(err)
	defer f.Close()
	_, err = f.WriteAt([]byte("y"), 0)
	k.ok(err)
	if err := f.Sync(); err == nil {
		t.Fatal("the sync that was to fail did not")
	}
	k.ok(f.Sync())
	if _, err := f.WriteAt([]byte("y"), 1); err == nil {
		t.Fatal("a full disk took a byte")
	}
	if a := k.do(`{"do":"calls"}`); a.Calls == nil || a.Calls.Failed != 2 {
		t.Fatalf("calls answered %+v", a.Calls)
	}
	if a := k.do(`{"do":"nothing"}`); a.Error == "" {
		t.Fatal("an unknown command was taken")
	}
}
