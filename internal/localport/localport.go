// Package localport reserves ports of 127.0.0.1 for servers that must be told a number before they listen: child processes,
// members of a cluster that know each other's addresses, and servers that are started again at the same address. A server
// that can listen on port 0 by itself needs no reservation.
//
// A number is reserved by the UDP socket of the same number, which this process holds until Release. The kernel gives that
// socket to one process only, in all programs and for all users, and takes it back when the process ends, however it ends.
// So two reservations never share a number, and a server that is down for a moment finds its number free when it comes back.
//
// Numbers lie outside the range from which the kernel draws the ports of outgoing connections and of port 0. What is left
// are foreign programs that listen on a number of that range without asking here: Reserve leaves a number out on which one
// listens at that moment.
package localport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bounds is a range of port numbers, both ends included.
type bounds struct{ first, last int }

const (
	lowest      = 10_000 // below it are ports of well-known services
	highest     = 65_535
	leastRange  = 1_000                                    // numbers of a range that is worth using
	rangeOfLast = 32_767                                   // the last number of the usual range: Linux draws from 32768 on, other systems from 49152 on
	rangeFile   = "/proc/sys/net/ipv4/ip_local_port_range" // of Linux: the first and the last number that the kernel draws
	passes      = 3                                        // another process may hold a number only while it tries a row of them
)

// Ports are numbers in a row that no other holder of a reservation has.
type Ports struct {
	first int
	locks []net.PacketConn // the UDP sockets, one for each number
}

// Reserve returns n numbers in a row on which nothing listens now. Release must follow, once the servers have ended. Error:
// there are no n free numbers in a row.
func Reserve(n int) (*Ports, error) {
	text, err := os.ReadFile(rangeFile)
	if err != nil {
		text = nil // a system without this file
	}
	return reserve(outside(string(text)), n)
}

// First is the lowest number.
func (p *Ports) First() int { return p.first }

// Addresses are all numbers as addresses of 127.0.0.1, in ascending order.
func (p *Ports) Addresses() []string {
	out := make([]string, len(p.locks))
	for i := range out {
		out[i] = address(p.first + i)
	}
	return out
}

// Release lets others reserve the numbers. A second call does nothing.
func (p *Ports) Release() {
	for _, lock := range p.locks {
		_ = lock.Close() // nothing was sent
	}
	p.locks = nil
}

// outside returns the range that reservations are drawn from, given the text of rangeFile; empty text means the usual range.
func outside(text string) bounds {
	usual := bounds{lowest, rangeOfLast}
	words := strings.Fields(text)
	if len(words) != 2 {
		return usual
	}
	first, err := strconv.Atoi(words[0])
	last, err2 := strconv.Atoi(words[1])
	switch {
	case err != nil || err2 != nil:
		return usual
	case first-lowest >= leastRange:
		return bounds{lowest, first - 1}
	case highest-last >= leastRange:
		return bounds{max(last+1, lowest), highest}
	}
	return usual // the kernel draws from nearly all: the sockets still keep reservations apart
}

// reserve tries each row of n numbers within b once in a pass, beginning at a random one.
func reserve(b bounds, n int) (*Ports, error) {
	starts := b.last - b.first + 1 - n + 1
	if n < 1 || starts < 1 {
		return nil, fmt.Errorf("reserve %d ports: must be 1 to %d", n, b.last-b.first+1)
	}
	for range passes {
		from := rand.IntN(starts)
		for tried := 0; tried < starts; {
			first := b.first + (from+tried)%starts
			p := &Ports{first: first}
			taken := p.hold(n)
			if taken < 0 {
				return p, nil
			}
			p.Release()
			tried += taken + 1 // a row that begins up to the number that is taken has that number too
		}
	}
	return nil, fmt.Errorf("reserve %d ports: no such row is free between %d and %d", n, b.first, b.last)
}

// hold locks n numbers and returns -1, or the offset of the first one that is taken.
func (p *Ports) hold(n int) int {
	for i := range n {
		lock, err := net.ListenPacket("udp4", address(p.first+i))
		if err != nil {
			return i
		}
		p.locks = append(p.locks, lock)
		if !unused(p.first + i) {
			return i
		}
	}
	return -1
}

// unused reports whether nothing listens on a number. It does not listen there itself: a program that this process starts at that moment
// has a copy of each socket until it runs, so that the number would stay taken after the socket is closed here.
func unused(number int) bool {
	conn, err := net.DialTimeout("tcp4", address(number), time.Second)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func address(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
