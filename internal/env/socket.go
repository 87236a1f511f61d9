package env

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// SocketPeer is the process at the other end of a local socket, as the system names it.
type SocketPeer struct {
	UID uint32
	PID int // 0: the system does not tell
}

// SocketConn is a connection of a local socket.
type SocketConn struct {
	net.Conn
	Peer SocketPeer
}

// SocketListener accepts connections of this process's own user and of root on a socket in the file system.
type SocketListener struct {
	// lis was made under a temporary name, so it does not unlink anything when it is closed; Close
	// removes path.
	lis  *net.UnixListener
	path string
	// made identifies the socket, so that Close removes no other file that has the name by then.
	made fs.FileInfo
	// refused is told each peer that was not let in; it may be nil.
	refused func(SocketPeer)
	// once has the socket removed by the first Close only.
	once sync.Once
}

// maxSocketPath is the longest name of a socket: the shortest bound of the systems that there are (104 bytes with the
// byte at the end). A socket is made in a folder of its own first, whose name is longer by socketFolder.
const (
	maxSocketPath = 103
	socketFolder  = len("/.op0123456789/s")
	socketLook    = time.Second // for whether a process listens on a socket that is there
)

// ErrSocketPath says that a name is too long for a socket. Errors of ListenSocket wrap it.
var ErrSocketPath = fmt.Errorf("the path of a socket must be at most %d bytes, with %d bytes for its folder", maxSocketPath, maxSocketPath-socketFolder)

// ListenSocket makes a socket that only its owner and root can connect to. One that a process has left there, which listens
// on it no more, is replaced; any other file, and a socket on which a process listens, is an error. refused is called with
// each peer that is not let in. The socket is never open to others, not for an instant: it is made in a folder of its own,
// which only the owner can enter, and then given its name.
func ListenSocket(path string, refused func(SocketPeer)) (*SocketListener, error) {
	if !filepath.IsAbs(path) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		path = abs
	}
	dir := filepath.Dir(path)
	if len(path) > maxSocketPath || len(dir)+socketFolder > maxSocketPath {
		return nil, fmt.Errorf("%s: %w", path, ErrSocketPath)
	}
	if err := freeSocket(path); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(dir, ".op") // for its owner alone
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // it is empty, and a name that is left harms nothing
	temp := filepath.Join(folder, "s")
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	lis.SetUnlinkOnClose(false) // it gets another name
	l := &SocketListener{lis: lis, path: path, refused: refused}
	if err = os.Chmod(temp, 0o600); err == nil {
		l.made, err = os.Lstat(temp)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	return l, nil
}

// freeSocket returns an error unless a socket may be made at path.
func freeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: is there, and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, socketLook)
	if err == nil {
		_ = c.Close() // nothing was said
		return fmt.Errorf("%s: another process listens on it: %w", path, syscall.EADDRINUSE)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the process that made it is gone
	}
	return fmt.Errorf("%s: is there, and whether a process listens on it is not known: %w", path, err)
}

// Accept returns the next connection of this process's user or of root.
func (l *SocketListener) Accept() (net.Conn, error) {
	for {
		c, err := l.lis.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(c)
		if err == nil && (peer.UID == 0 || peer.UID == uint32(os.Geteuid())) {
			return &SocketConn{c, peer}, nil
		}
		_ = c.Close() // nothing was said
		if err == nil && l.refused != nil {
			l.refused(peer)
		}
	}
}

// Close ends listening and removes the socket, unless another file has its name by now.
func (l *SocketListener) Close() error {
	err := l.lis.Close()
	l.once.Do(func() {
		if now, e := os.Lstat(l.path); e == nil && os.SameFile(now, l.made) {
			err = errors.Join(err, os.Remove(l.path))
		}
	})
	return err
}

// Addr returns the path.
func (l *SocketListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// peerOf asks the system who is at the other end of a connection.
func peerOf(c *net.UnixConn) (peer SocketPeer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer, err
	}
	if failed := raw.Control(func(fd uintptr) { peer, err = socketPeer(int(fd)) }); failed != nil {
		return peer, failed
	}
	return peer, err
}
