package env

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// asUser runs do on a thread of its own whose user is another one's, and ends the thread.
func asUser(t *testing.T, uid int, do func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			ended <- errno
			return
		}
		ended <- do()
	}()
	return <-ended
}

func TestASocketIsClosedToOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, folder := range []string{dir, filepath.Dir(dir)} { // others get as far as the socket
		if info, err := os.Stat(folder); err != nil || folder == dir && os.Chmod(folder, 0o755) != nil || info.Mode().Perm()&1 == 0 && folder != dir {
			t.Skipf("others cannot enter %s", folder)
		}
	}
	path := filepath.Join(dir, "operator.sock")
	refused := make(chan SocketPeer, 4)
	l, err := ListenSocket(path, func(p SocketPeer) { refused <- p })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	const nobody = 65534
	connect := func() error {
		c, err := net.DialTimeout("unix", path, time.Minute)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := asUser(t, nobody, connect); !errors.Is(err, syscall.EACCES) {
		t.Errorf("another user connects: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // even if the file is open to all, the user is checked
		t.Fatal(err)
	}
	if err := asUser(t, nobody, connect); err != nil {
		t.Fatal(err)
	}
	if p := <-refused; p.UID != nobody {
		t.Errorf("refused is %+v", p)
	}
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	c, _ := (<-accepted).(*SocketConn)
	if c.Peer.UID != 0 || len(accepted) != 0 {
		t.Errorf("accepted is %+v, and %d more", c.Peer, len(accepted))
	}
	_ = c.Close()
}
