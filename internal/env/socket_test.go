package env

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestASocketIsItsOwnersAlone(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock") // the name of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // others may look into it
		t.Fatal(err)
	}
	path := filepath.Join(dir, "operator.sock")
	l, err := ListenSocket(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("the folder has %v, %v", names, err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			own, _ := c.(*SocketConn)
			if own.Peer.UID != uint32(os.Geteuid()) || own.Peer.PID != os.Getpid() && own.Peer.PID != 0 {
				t.Errorf("the peer is %+v", own.Peer)
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ListenSocket(path, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second server: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTheSocketOfADeadProcessIsReplacedAndNothingElseIs(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := ListenSocket(path, nil)
	if err != nil {
		t.Fatalf("over the socket of a dead process: %v", err)
	}
	// A process that has replaced it keeps it.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "other" {
		t.Errorf("another file of that name is %q, %v", b, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{path, link, dir} {
		if _, err := ListenSocket(there, nil); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("%s: %v", there, err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "other" {
		t.Errorf("the file that was there is %q, %v", b, err)
	}
	for _, long := range []string{filepath.Join(dir, strings.Repeat("a", 104)), filepath.Join(dir, strings.Repeat("b", 90), "s")} {
		if _, err := ListenSocket(long, nil); !errors.Is(err, ErrSocketPath) {
			t.Errorf("a path of %d bytes: %v", len(long), err)
		}
	}
	if _, err := ListenSocket(filepath.Join(dir, "none", "s"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is missing: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
