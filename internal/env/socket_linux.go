package env

import "syscall"

func socketPeer(fd int) (SocketPeer, error) {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return SocketPeer{}, err
	}
	return SocketPeer{UID: cred.Uid, PID: int(cred.Pid)}, nil
}
