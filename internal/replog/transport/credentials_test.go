package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/replog/transport"
)

const day = 24 * time.Hour

// Extended key usages of certificates that a node must not have.
var (
	noUse     = []x509.ExtKeyUsage{}
	anyUse    = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	serverUse = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientUse = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	mailUse   = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageEmailProtection}
)

// strangerTo connects to a node over TLS with a certificate of its own, says hello as node 9 and returns what came of it.
func strangerTo(t *testing.T, r *rig, n *node, config *tls.Config, h transport.Hello) (transport.Reason, error) {
	t.Helper()
	config.InsecureSkipVerify = true
	c := tls.Client(r.raw(n), config)
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	h.VersionMin, h.VersionMax, h.Cluster, h.To, h.Class = 1, 1, testCluster, n.id, transport.Control
	h.Formats = transport.Formats{Min: 1, Max: 1}
	if h.From == 0 {
		h.From = 9
	}
	if _, err := c.Write(transport.EncodeHello(h)); err != nil {
		return 0, err
	}
	return transport.ReadAnswer(c)
}

func keyPair(t *testing.T, ca *authority, c certificate) tls.Certificate {
	t.Helper()
	if c.uri == "" {
		c.uri = transport.URI(testCluster, 9)
	}
	cert, key := ca.issue(t, c)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestPeersWithoutAValidCertificateAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cert  func(t *testing.T, r *rig) []tls.Certificate
		alert string // what the stranger learns from TLS
		want  transport.Reason
		log   []string
	}{
		"good": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{})}
		}, "", 0, nil},
		"none": {func(*testing.T, *rig) []tls.Certificate { return nil }, "certificate required", 0, []string{"didn't provide a certificate"}},
		"foreign": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, newAuthority(t), certificate{})}
		}, "unknown certificate authority", 0, []string{"unknown authority", transport.URI(testCluster, 9), "node=2"}},
		"expired": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{begin: -2 * day, end: -day})}
		}, "expired certificate", 0, []string{"expired", transport.URI(testCluster, 9)}},
		"not yet valid": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{begin: day})}
		}, "expired certificate", 0, []string{"not yet valid"}},
		"for servers only": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uses: serverUse})}
		}, "bad certificate", 0, []string{"key usage"}},
		"for no use": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uses: noUse})}
		}, "", transport.UntrustedCertificate, []string{"untrusted_certificate", "serverAuth and clientAuth"}},
		"for any use": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uses: anyUse})}
		}, "", transport.UntrustedCertificate, []string{"untrusted_certificate", "peer=9"}},
		"for clients only": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uses: clientUse})}
		}, "", transport.UntrustedCertificate, []string{"untrusted_certificate", "peer=9"}},
		"for clients and mail": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uses: mailUse})}
		}, "", transport.UntrustedCertificate, []string{"untrusted_certificate", "peer=9"}},
		"another node's": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uri: transport.URI(testCluster, 3)})}
		}, "", transport.WrongIdentity, []string{"wrong_identity", "peer=9", transport.URI(testCluster, 3)}},
		"another cluster's": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uri: transport.URI(transport.ClusterID{5}, 9)})}
		}, "", transport.WrongIdentity, []string{"wrong_identity", transport.URI(transport.ClusterID{5}, 9)}},
		"not a node's": {func(t *testing.T, r *rig) []tls.Certificate {
			return []tls.Certificate{keyPair(t, r.ca, certificate{uri: "https://example.org/"})}
		}, "", transport.WrongIdentity, []string{"wrong_identity", "example.org"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTLSRig(t)
				b := r.start(r.options(2), nil)
				if err := b.SetPeer(9, address(999)); err != nil {
					t.Fatal(err)
				}
				got, err := strangerTo(t, r, b, &tls.Config{Certificates: c.cert(t, r)}, transport.Hello{})
				switch {
				case c.alert == "" && (err != nil || got != c.want):
					t.Errorf("answered %s, %v; want %s", got, err, c.want)
				case c.alert != "" && (err == nil || !strings.Contains(err.Error(), c.alert)):
					t.Errorf("the stranger learns %v, want %q", err, c.alert)
				}
				synctest.Wait()
				if c.log != nil {
					b.wantLog(t, c.log...)
				}
				if n := b.Stats().Connections; n != 0 && name != "good" {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		b := r.start(r.options(2), nil)
		_, err := strangerTo(t, r, b, &tls.Config{
			Certificates: []tls.Certificate{keyPair(t, r.ca, certificate{})}, MaxVersion: tls.VersionTLS12,
		}, transport.Hello{})
		if err == nil || !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("TLS 1.2: %v", err)
		}
	})
}

// fakeNode listens as node 9 with a certificate, and returns what it was told and how the connection ended.
func fakeNode(t *testing.T, r *rig, cert tls.Certificate) <-chan []byte {
	t.Helper()
	lis, err := r.net.Listen(address(9))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	said := make(chan []byte, 100)
	go func() {
		for {
			raw, err := lis.Accept()
			if err != nil {
				return
			}
			c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert})
			b, _ := io.ReadAll(c)
			said <- b
			c.Close()
		}
	}()
	return said
}

func TestTheDialerVerifiesWhomItReachesAndSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		cert func(t *testing.T, r *rig) tls.Certificate
		want transport.Reason
	}{
		"foreign": {func(t *testing.T, _ *rig) tls.Certificate {
			return keyPair(t, newAuthority(t), certificate{})
		}, transport.UntrustedCertificate},
		"expired": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{begin: -2 * day, end: -day})
		}, transport.ExpiredCertificate},
		"for no use": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uses: noUse})
		}, transport.UntrustedCertificate},
		"for any use": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uses: anyUse})
		}, transport.UntrustedCertificate},
		"for servers only": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uses: serverUse})
		}, transport.UntrustedCertificate},
		"for clients only": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uses: clientUse})
		}, transport.UntrustedCertificate},
		"another node's": {func(t *testing.T, r *rig) tls.Certificate {
			return keyPair(t, r.ca, certificate{uri: transport.URI(testCluster, 3)})
		}, transport.WrongIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTLSRig(t)
				said := fakeNode(t, r, c.cert(t, r))
				a := r.start(r.options(1), nil)
				if err := a.SetPeer(9, address(9)); err != nil {
					t.Fatal(err)
				}
				b := <-said
				if !transport.CanReadHello(b) || len(b) != 78 {
					t.Errorf("it was told %q, not only what is wrong", b)
				}
				synctest.Wait()
				if p := a.peer(t, 9); p.Control.Connected || p.Control.Refused != c.want {
					t.Errorf("status: %+v, want %s", p, c.want)
				}
				a.wantLog(t, "reason="+c.want.String(), "peer=9", "node=1")
			})
		})
	}
}

func TestAnExpiredCertificateIsNamedOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		oa, ob := r.options(1), r.options(2)
		oa.TLS = r.files(1, r.ca, certificate{end: 30 * day})
		ob.TLS = r.files(2, r.ca, certificate{end: 10 * time.Minute})
		a, b := r.start(oa, nil), r.start(ob, nil)
		b.wantLog(t, "level=WARN", "expires soon", "valid_until") // its end is near
		r.join(a, b)
		pass(15 * time.Minute)
		if !a.connected(t, 2) {
			t.Error("the end of a certificate ended a connection")
		}
		r.net.Break(address(1))
		r.net.Break(address(2))
		pass(5 * time.Second)
		if p := a.peer(t, 2); p.Control.Connected || p.Control.Inbound || p.Control.Refused != transport.ExpiredCertificate {
			t.Errorf("status of a node whose certificate is over: %+v", p)
		}
		a.wantLog(t, "reason=expired_certificate", "peer=2")
		b.wantLog(t, "reason=expired_certificate", "peer=1", "does not accept this node's certificate")
		a.wantLog(t, "before its greeting", "expired", transport.URI(testCluster, 2))
		if p := b.peer(t, 1); !strings.Contains(p.Control.Error, "expired certificate") {
			t.Errorf("who dials with such a certificate learns %q", p.Control.Error)
		}

		// A new certificate is all it takes.
		r.files(2, r.ca, certificate{})
		pass(20 * time.Second)
		if !a.connected(t, 2) {
			t.Errorf("with a new certificate: %+v", a.Status())
		}
		if time.Until(b.Stats().CertificateEnd) < 300*day {
			t.Errorf("the certificate in use ends %s", b.Stats().CertificateEnd)
		}
	})
}

func TestTheEndOfACertificateIsComplainedAboutEveryDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		o := r.options(1)
		o.TLS = r.files(1, r.ca, certificate{end: 33 * day})
		o.IdleTimeout, o.ReloadEvery = 6*time.Hour, time.Hour // there are no peers, and months pass
		a := r.start(o, nil)
		complaints := func(text string) int {
			a.logs.mu.Lock()
			defer a.logs.mu.Unlock()
			return strings.Count(a.logs.b.String(), text)
		}
		if n := complaints("expires soon"); n != 0 || a.Stats().CertificateSoon {
			t.Errorf("33 days before the end: %d complaints, state %v", n, a.Stats().CertificateSoon)
		}
		pass(6*day - time.Hour) // the process runs on, and the file is not replaced
		if n := complaints("expires soon"); n != 3 || !a.Stats().CertificateSoon {
			t.Errorf("27 days before the end: %d complaints, want one for each of 3 days; state %v", n, a.Stats().CertificateSoon)
		}
		pass(29 * day)
		if n := complaints("has expired"); n != 2 || !a.Stats().CertificateSoon {
			t.Errorf("after the end: %d complaints, state %v", n, a.Stats().CertificateSoon)
		}
		a.wantLog(t, "level=ERROR", "has expired", "file=cert-1")
		before := complaints("expires soon")
		r.files(1, r.ca, certificate{})
		pass(3 * day)
		if n := complaints("expires soon"); n != before || a.Stats().CertificateSoon {
			t.Errorf("with a new certificate: %d complaints more, state %v", n-before, a.Stats().CertificateSoon)
		}
	})
}

func TestFilesThatPeersWouldRefuseAreRefusedAtTheStart(t *testing.T) {
	r := newTLSRig(t)
	for want, change := range map[string]func() *transport.Files{
		"expired": func() *transport.Files {
			return r.files(1, r.ca, certificate{begin: -2 * day, end: -day})
		},
		"unknown authority": func() *transport.Files {
			f := r.files(1, newAuthority(t), certificate{})
			r.write(f.CA, r.ca.pem)
			return f
		},
		"wrong_identity": func() *transport.Files {
			return r.files(1, r.ca, certificate{uri: transport.URI(testCluster, 2)})
		},
		"key usage":                 func() *transport.Files { return r.files(1, r.ca, certificate{uses: serverUse}) },
		"serverAuth and clientAuth": func() *transport.Files { return r.files(1, r.ca, certificate{uses: noUse}) },
		"both extended key usages":  func() *transport.Files { return r.files(1, r.ca, certificate{uses: anyUse}) },
		"private key does not match": func() *transport.Files {
			f := r.files(1, r.ca, certificate{})
			f.Key = r.files(2, r.ca, certificate{}).Key
			return f
		},
		"no PEM certificate": func() *transport.Files {
			f := r.files(1, r.ca, certificate{})
			r.write(f.CA, []byte("nonsense"))
			return f
		},
		"failed to find": func() *transport.Files {
			f := r.files(1, r.ca, certificate{})
			r.write(f.Cert, nil)
			return f
		},
		"more than": func() *transport.Files {
			f := r.files(1, r.ca, certificate{})
			r.write(f.Key, make([]byte, 2<<20))
			return f
		},
		"read absent": func() *transport.Files {
			f := r.files(1, r.ca, certificate{})
			f.Cert = "absent"
			return f
		},
	} {
		o := transport.Options{Cluster: testCluster, Node: 1, Listen: "127.0.0.1:0", FS: r.disk, TLS: change()}
		_, err := transport.New(o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
}

func TestCertificateFilesAreReadAgainWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		first := b.Stats().CertificateEnd

		// A bad file changes nothing and is complained about once.
		f := r.files(2, r.ca, certificate{end: 500 * day})
		r.write(f.Key, []byte("half a file"))
		pass(time.Minute)
		if !a.connected(t, 2) || !b.Stats().CertificateEnd.Equal(first) || b.Stats().ReloadFailures < 5 {
			t.Errorf("after a bad file: %+v", b.Stats())
		}
		b.logs.mu.Lock()
		if n := strings.Count(b.logs.b.String(), "of no use"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		b.logs.mu.Unlock()
		if err := b.Reload(); err == nil {
			t.Error("a reload by hand does not tell what is wrong")
		}

		// A good one is used for new connections; the old ones stay.
		r.files(2, r.ca, certificate{end: 500 * day})
		pass(time.Minute)
		if b.Stats().CertificateEnd.Equal(first) || a.Stats().Control.Connects != 1 {
			t.Errorf("after a good file: %+v", b.Stats())
		}
		r.net.Break(address(2))
		pass(5 * time.Second)
		if !a.connected(t, 2) {
			t.Error("not connected with the new certificate")
		}
	})
}

func TestAnAuthorityIsReplacedInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		next := newAuthority(t)
		both := append(append([]byte(nil), r.ca.pem...), next.pem...)
		reload := func() {
			t.Helper()
			for _, n := range []*node{a, b} {
				if err := n.Reload(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		// Both authorities are trusted, then certificates change, then only the new one is.
		r.write("ca-1", both)
		r.write("ca-2", both)
		reload()
		if a.Stats().Control.Connects != 1 || !a.connected(t, 2) {
			t.Errorf("a second authority cost connections: %+v", a.Stats())
		}
		r.files(1, next, certificate{})
		r.write("ca-1", both)
		r.files(2, next, certificate{})
		r.write("ca-2", both)
		reload()
		if a.Stats().Control.Connects != 1 {
			t.Error("a new certificate cost connections")
		}
		r.write("ca-1", next.pem)
		r.write("ca-2", next.pem)
		reload()
		// Those made before are gone at once. New ones may take a while: each waits as long as after any loss.
		for _, n := range []*node{a, b} {
			p := n.Status()[0]
			for _, l := range []transport.LinkStatus{p.Control, p.Bulk, p.Parts} {
				if l.Connected && l.Connects == 1 {
					t.Errorf("a connection under an authority that is trusted no more is still there: %+v", p)
				}
			}
		}
		pass(5 * time.Second)
		if !a.connected(t, 2) || !b.connected(t, 1) {
			t.Errorf("not connected under the new authority: %+v", a.Status())
		}
		a.wantLog(t, "authority has changed")
	})
}

func TestANodeWithANewAuthorityCutsOffThoseOfTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a, b := r.pair()
		r.files(2, newAuthority(t), certificate{})
		if err := b.Reload(); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if p := b.peer(t, 1); p.Control.Connected || p.Control.Inbound || p.Control.Refused != transport.UntrustedCertificate {
			t.Errorf("status: %+v", p)
		}
		if p := a.peer(t, 2); p.Control.Connected || p.Control.Inbound {
			t.Errorf("status: %+v", p)
		}
		b.wantLog(t, "reason=untrusted_certificate", "peer=1")
	})
}

func TestPlainAndTLSNodesDoNotUnderstandEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTLSRig(t)
		a := r.start(r.options(1), nil)
		o := r.options(2)
		o.TLS, o.Plain = nil, true
		b := r.start(o, nil)
		r.join(a, b)
		pass(20 * time.Second)
		if a.peer(t, 2).Control.Connected || b.peer(t, 1).Control.Connected {
			t.Error("they connected")
		}
		a.wantLog(t, "before its greeting", "does not look like a TLS handshake")
	})
}
