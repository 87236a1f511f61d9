//go:build darwin || freebsd

package env

import "golang.org/x/sys/unix"

// socketPeer asks the kernel for the user at the other end. The structure has no process number.
func socketPeer(fd int) (SocketPeer, error) {
	cred, err := unix.GetsockoptXucred(fd, 0, unix.LOCAL_PEERCRED) // 0 is SOL_LOCAL
	if err != nil {
		return SocketPeer{}, err
	}
	return SocketPeer{UID: cred.Uid}, nil
}
