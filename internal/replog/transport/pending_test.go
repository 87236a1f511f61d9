package transport

import (
	"net"
	"testing"
	"time"
)

// newcomer is a connection that was accepted and is to greet.
type newcomer struct {
	*conn
	*attempt
	closed error
}

// arrive accepts a connection from a host; speaks says that its first byte has come.
func arrive(t *testing.T, p *pending, host string, member, speaks bool) *newcomer {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	g := &newcomer{conn: newConn(near)}
	if g.attempt = p.accepted(g.conn, host, member); g.attempt == nil {
		return nil
	}
	g.cancel = func(err error) { g.closed = err }
	if speaks {
		g.wire.reads.Add(1)
	}
	return g
}

func open(gs []*newcomer) (n int) {
	for _, g := range gs {
		if g != nil && g.closed == nil {
			n++
		}
	}
	return n
}

func TestStrangersOfOneHostKeepOnlyThatHostOut(t *testing.T) {
	p := &pending{most: 4, limit: 4 * time.Second}
	var crowd []*newcomer
	for range 100 {
		crowd = append(crowd, arrive(t, p, "crowd", false, true))
	}
	if n := open(crowd); n != 4 || crowd[0].closed != nil {
		t.Errorf("%d of the crowd greet, the first: %v", n, crowd[0].closed)
	}
	if arrive(t, p, "crowd", false, true) != nil {
		t.Error("one more of the crowd gets in")
	}
	other := arrive(t, p, "other", false, true)
	if other == nil || open(crowd) != 3 || crowd[3].closed == nil || crowd[0].closed != nil {
		t.Errorf("another host's makes the newest of the crowd go: %v, %d are open", other, open(crowd))
	}
	var peers []*newcomer
	for range 4 {
		peers = append(peers, arrive(t, p, "peer", true, true))
	}
	if open(peers) != 4 || open(crowd) != 3 || other.closed != nil {
		t.Error("peers have no places of their own")
	}
	newest := arrive(t, p, "peer", true, true)
	if newest == nil || peers[0].closed == nil || open(peers) != 3 {
		t.Error("at a peer's host the oldest does not go")
	}
}

func TestEmptyConnectionsMakeRoomForWhoSpeaks(t *testing.T) {
	for _, member := range []bool{true, false} {
		p := &pending{most: 4, limit: 4 * time.Second}
		honest := arrive(t, p, "host", member, true)
		var empty []*newcomer
		for range 3000 {
			empty = append(empty, arrive(t, p, "host", member, false))
		}
		if open(empty) != 4*silentPerGreeting || empty[2999].closed != nil || honest.closed != nil {
			t.Errorf("member %t: %d are open, honest %v", member, open(empty), honest.closed)
		}
		if late := arrive(t, p, "host", member, true); late == nil || honest.closed != nil {
			t.Errorf("member %t: there is no room for a node that greets", member)
		}
		p.pass(time.Second)
		if open(empty) != 0 || honest.closed != nil {
			t.Errorf("member %t: %d empty ones outlast their time, honest %v", member, open(empty), honest.closed)
		}
		p.pass(3 * time.Second)
		if honest.closed == nil {
			t.Errorf("member %t: a greeting has no end", member)
		}
	}
}
