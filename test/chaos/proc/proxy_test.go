package proc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// proxied is a proxy before an echo, and a connection through it.
func proxied(t *testing.T) (*Proxy, net.Conn) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	p, err := NewProxy(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close(), lis.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, through(t, p)
}

func through(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := c.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
}

// hear reads as many bytes as what has, within d.
func hear(c net.Conn, what string, d time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(d))
	b := make([]byte, len(what))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != what {
		return errors.New("heard " + string(b))
	}
	return nil
}

const (
	patience = 10 * time.Second
	moment   = 100 * time.Millisecond
)

func TestAProxyHoldsBackAndThenDeliversAll(t *testing.T) {
	for name, rule := range map[string]Rule{"forward": {Forward: Way{Stall: true}}, "back": {Back: Way{Stall: true}}, "both": Silence} {
		p, c := proxied(t)
		say(t, c, "one")
		if err := hear(c, "one", patience); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := p.Hindered()
		p.Set(rule)
		say(t, c, "two")
		if err := hear(c, "two", moment); err == nil {
			t.Errorf("%s: a stalled proxy lets bytes through", name)
		}
		if p.Hindered() == before {
			t.Errorf("%s: the stall is not counted", name)
		}
		p.Set(Rule{})
		if err := hear(c, "two", patience); err != nil {
			t.Errorf("%s: after the stall: %v", name, err)
		}
	}
}

func TestAStalledProxyHoldsBackNewConnectionsAndTheEndsOfOldOnes(t *testing.T) {
	p, c := proxied(t)
	say(t, c, "one")
	if err := hear(c, "one", patience); err != nil {
		t.Fatal(err)
	}
	p.Set(Silence)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(moment))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		t.Error("the end of a connection comes through a stall")
	}
	fresh := through(t, p)
	say(t, fresh, "two")
	if err := hear(fresh, "two", moment); err == nil {
		t.Error("a new connection comes through a stall")
	}
	p.Set(Rule{})
	if err := hear(fresh, "two", patience); err != nil {
		t.Errorf("the new connection after the stall: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the old connection ends with %v", err)
	}
}

func TestAProxyRefusesAndResets(t *testing.T) {
	p, c := proxied(t)
	say(t, c, "one")
	if err := hear(c, "one", patience); err != nil {
		t.Fatal(err)
	}
	p.Set(Rule{Refuse: true})
	say(t, c, "two")
	if err := hear(c, "two", patience); err != nil {
		t.Errorf("an open connection, while new ones are refused: %v", err)
	}
	if fresh, err := net.Dial("tcp", p.Address()); err == nil { // else it was refused at once
		if err := hear(fresh, "x", patience); err == nil {
			t.Error("a connection that was to be refused is served")
		}
		_ = fresh.Close()
	}
	p.Reset()
	if err := hear(c, "x", patience); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a connection that was reset ends with %v", err)
	}
}

func TestAProxyDelaysAndSlowsDown(t *testing.T) {
	p, c := proxied(t)
	p.Set(Rule{Forward: Way{Delay: moment}, Back: Way{Delay: moment}})
	begin := time.Now()
	say(t, c, "one")
	if err := hear(c, "one", patience); err != nil || time.Since(begin) < 2*moment {
		t.Errorf("delayed bytes came after %s, %v", time.Since(begin), err)
	}
	p.Set(Rule{Forward: Way{Rate: 1 << 20}})
	begin = time.Now()
	long := string(bytes.Repeat([]byte("x"), 256<<10))
	go func() { _, _ = c.Write([]byte(long)) }() // the echo tells
	if err := hear(c, long, patience); err != nil || time.Since(begin) < moment {
		t.Errorf("256 KiB at 1 MiB a second came after %s, %v", time.Since(begin), err)
	}
}
