//go:build !linux && !darwin && !freebsd

package env

import "errors"

// socketPeer fails, so that every connection is refused: this system does not tell which user connects.
func socketPeer(int) (SocketPeer, error) {
	return SocketPeer{}, errors.New("this system does not tell who connects to a socket")
}
