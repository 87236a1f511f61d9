package env

import "syscall"

// socketPeer asks the kernel for user and process at the other end, as they were when it connected.
func socketPeer(fd int) (SocketPeer, error) {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return SocketPeer{}, err
	}
	return SocketPeer{UID: cred.Uid, PID: int(cred.Pid)}, nil
}
