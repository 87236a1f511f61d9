package millrace

import (
	"net"
	"testing"
)

func TestATokenIsNotTakenToALeaderInClearText(t *testing.T) {
	var at [2]string
	for i := range at {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // nobody is let in
		at[i] = l.Addr().String()
	}
	c, err := Dial(t.Context(), Address(at[0]), Token("secret"), Transport(TransportStream))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	named := func(leader string) *Error { return &Error{Code: CodeNotLeader, Leader: leader} }
	if c.ways.follow(named("192.0.2.1:7081")) {
		t.Error("a client without TLS follows a leader beyond this machine")
	}
	if !c.ways.follow(named(at[1])) || c.ways.now.address != at[1] {
		t.Errorf("a leader on this machine is not followed: the client is at %s", c.ways.now.address)
	}
	if c.ways.follow(named(at[1])) {
		t.Error("a client that is there goes there again")
	}
}
