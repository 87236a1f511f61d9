package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/internal/replog/transport"
)

func openForward(t *testing.T, n *node, to transport.NodeID) transport.Stream {
	t.Helper()
	s, err := n.OpenForward(context.Background(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRequestsOfClientsHaveABoundApartFromStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		oa, ob := r.options(1), r.options(2)
		oa.Streams, ob.Streams, oa.Forwards, ob.Forwards = 2, 2, 3, 4
		a, b := r.start(oa, nil), r.start(ob, nil)
		r.join(a, b)
		if _, err := a.OpenForward(context.Background(), 2); refusalOf(err) != transport.UnknownStream {
			t.Errorf("to a node that serves none: %v", err)
		}
		b.HandleForward(echo)
		b.HandleStream("echo", echo)
		for range 3 {
			openForward(t, a, 2)
		}
		if _, err := a.OpenForward(context.Background(), 2); !errors.Is(err, transport.ErrTooManyStreams) {
			t.Errorf("beyond the bound: %v", err)
		}
		s := open(t, a, 2, "echo") // it has its place
		_ = s.Close()
		a.HandleForward(echo)
		for range 3 {
			openForward(t, b, 1)
		}
		if _, err := b.OpenForward(context.Background(), 1); refusalOf(err) != transport.TooManyStreams {
			t.Errorf("beyond the bound of the node that accepts: %v", err)
		}
	})
}

// refusalOf is the reason for which a connection was refused; 0: it was not.
func refusalOf(err error) transport.Reason {
	if e, ok := errors.AsType[*transport.RefusedError](err); ok {
		return e.Reason
	}
	return 0
}

func TestARequestOfAClientCrossesAsItWasSent(t *testing.T) {
	for name, rigOf := range rigs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := rigOf(t).pair()
				b.HandleForward(echo)
				s := openForward(t, a, 2)
				want := string(make([]byte, 300_000))
				go func() {
					_, _ = io.WriteString(s, want) // the answer tells
					_ = s.CloseWrite()
				}()
				if got, err := io.ReadAll(s); err != nil || string(got) != want {
					t.Errorf("%d bytes of %d came back: %v", len(got), len(want), err)
				}
			})
		})
	}
}

// TestARequestOfAClientIsNotShownToAnotherNode: a process that listens at the address of node 9 gets nothing, unless its
// certificate names node 9.
func TestARequestOfAClientIsNotShownToAnotherNode(t *testing.T) {
	for name, cert := range map[string]func(t *testing.T, r *rig) tls.Certificate{
		"a stranger": func(t *testing.T, _ *rig) tls.Certificate { return keyPair(t, newAuthority(t), certificate{}) },
		"another node of the cluster": func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uri: transport.URI(testCluster, 3)})
		},
		"that node of another cluster": func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uri: transport.URI(transport.ClusterID{7}, 9)})
		},
		"that node, expired": func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{begin: -2 * day, end: -day})
		},
		"that node, for clients only":    func(t *testing.T, r *rig) tls.Certificate { return keyPair(t, r.ca, certificate{uses: clientUse}) },
		"that node, for no use in words": func(t *testing.T, r *rig) tls.Certificate { return keyPair(t, r.ca, certificate{uses: noUse}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTLSRig(t)
				said := fakeNode(t, r, cert(t, r))
				a := r.start(r.options(1), nil)
				if err := a.SetPeer(9, address(9)); err != nil {
					t.Fatal(err)
				}
				if _, err := a.OpenForward(context.Background(), 9); refusalOf(err) == 0 {
					t.Errorf("opened: %v", err)
				}
				synctest.Wait()
				for b := range len(said) {
					if got := <-said; !transport.CanReadHello(got) || len(got) != 78 {
						t.Errorf("connection %d was told %q, not only what is wrong", b, got)
					}
				}
			})
		})
	}
}

func TestANodeThatIsNoPeerForwardsNothing(t *testing.T) {
	for _, to := range []transport.NodeID{0, 1} { // whichever node, or the very one
		synctest.Test(t, func(t *testing.T) {
			r := newTLSRig(t)
			a := r.start(r.options(1), nil)
			a.HandleForward(echo)
			c := tls.Client(r.raw(a), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{keyPair(t, r.ca, certificate{})}})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			h := transport.Hello{
				VersionMin: 1, VersionMax: 1, Cluster: testCluster, From: 9, To: to, Class: transport.ForwardClass, Formats: transport.Formats{Min: 1, Max: 1},
			}
			if _, err := c.Write(transport.EncodeHello(h)); err != nil {
				t.Fatal(err)
			}
			want := transport.UnknownPeer
			if to == 0 {
				want = transport.WrongNode
			}
			if got, err := transport.ReadAnswer(c); err != nil || got != want {
				t.Errorf("to node %s: answered %s, %v; want %s", to, got, err, want)
			}
		})
	}
}
