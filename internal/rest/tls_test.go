package rest

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/millrace/millrace/internal/edge"
)

// newTLSRig is a rig whose REST side speaks TLS, so HTTP/2 too.
func newTLSRig(t *testing.T, l edge.Limits) *restRig {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The certificate of the standard library's tests, and who trusts it.
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS()
	certificates := borrowed.TLS.Certificates
	roots := borrowed.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	borrowed.Close()

	r := &restRig{rig: newRig(t, l), web: lis.Addr(), scheme: "https"}
	r.h = frontOf(t, r.rig)
	served := make(chan error, 1)
	config := &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	go func() { served <- r.h.Serve(lis, config) }()
	r.trust = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: r.trust, ForceAttemptHTTP2: true}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		r.s.Shutdown(0)
		if err := <-served; err != nil {
			t.Errorf("serve REST: %v", err)
		}
	})
	return r
}

// rawAbove is raw, above TLS where the rig speaks that.
func (r *restRig) rawAbove() rawConn {
	r.t.Helper()
	c := r.raw()
	if r.trust != nil {
		config := r.trust.Clone()
		config.NextProtos, config.ServerName = []string{"http/1.1"}, "example.com"
		c.Conn = tls.Client(c.Conn, config)
	}
	return c
}
