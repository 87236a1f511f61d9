package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// serveWith starts a server with flags of its own.
func serveWith(t *testing.T, flags ...string) *proc.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	s, err := proc.New(t.Context(), proc.Options{Binary: program, Dir: t.TempDir(), Flags: flags}, "default")
	noErr(t, err)
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	t.Cleanup(func() { s.Kill() })
	return s
}

// TestATerminatedServerEndsWithinItsGrace has clients that take no hint: a stream that ignores the goodbye, a claim that
// waits, a worker. None of them hangs.
func TestATerminatedServerEndsWithinItsGrace(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "--grace", "500ms")
	r := newRaw(t, s.Address(), s.Tokens[0].Secret)
	deaf := r.openStream(t)
	deaf.hello(1)
	if f, a := deaf.next(); f.GetWelcome() == nil {
		t.Fatalf("no welcome: %v %v", f, a)
	}
	waiting := make(chan error, 2)
	ctx := bounded(t, 20*time.Second)
	c, err := millrace.Dial(ctx, millrace.Address(s.Address()), millrace.Token(s.Tokens[0].Secret))
	noErr(t, err)
	defer c.Close()
	go func() {
		_, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"none"}, Wait: 15 * time.Second})
		waiting <- err
	}()
	working, stop := context.WithCancel(ctx)
	w := c.Worker(millrace.Queues("none"))
	w.HandleAny(func(context.Context, *millrace.Task) ([]byte, error) { return nil, nil })
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	if err := s.Stop(); err != nil {
		t.Errorf("%v\n%s", err, logOf(s))
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := <-waiting; err == nil {
		t.Error("the claim that waited was answered as if nothing had happened")
	}
	for f, _ := deaf.lastWords(); f != nil; f, _ = deaf.lastWords() { // ends: no stream hangs
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("worker: %v", err)
	}
	noErr(t, s.Doctor(ctx))
}

func TestLimitsThatManyShareRefuseByName(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "--limit-streams-tenant", "2", "--limit-calls-tenant", "3", "--limit-subscriptions", "1",
		"--limit-slots", "8", "--limit-payload-bytes", "100")
	r := newRaw(t, s.Address(), s.Tokens[0].Secret)
	subscribe := func(sub, slots uint32) *millracev1.ClientFrame {
		return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Subscribe{Subscribe: &millracev1.Subscribe{
			Sub: sub, Slots: slots, Queues: queues(1),
		}}}
	}
	var open []*stream
	for i := range 2 {
		st := r.openStream(t)
		st.hello(byte(i + 1))
		if f, a := st.next(); f.GetWelcome() == nil {
			t.Fatalf("stream %d: %v", i, a)
		}
		open = append(open, st)
	}
	third := r.openStream(t)
	third.hello(3)
	if a := third.ended(); a.code() != "RESOURCE_EXHAUSTED" || a.err().GetLimit() != "streams_tenant" {
		t.Errorf("a third stream: %d %v", a.status, a.err())
	}
	open[0].send(subscribe(1, 8))
	open[0].send(subscribe(2, 1))
	if a := open[0].ended(); a.err().GetLimit() != "subscriptions" {
		t.Errorf("a second subscription: %d %v", a.status, a.err())
	}
	open[1].send(subscribe(1, 9))
	if a := open[1].ended(); a.err().GetLimit() != "slots" {
		t.Errorf("9 slots: %d %v", a.status, a.err())
	}
	fourth := r.openStream(t)
	fourth.hello(4)
	if f, a := fourth.next(); f.GetWelcome() == nil {
		t.Errorf("a stream after two have ended: %v", a)
	}

	answers := make(chan answer, 3)
	for range 3 {
		go func() {
			answers <- r.call(t, "TaskService/Claim", &millracev1.ClaimRequest{Queues: queues(1), Wait: durationpb.New(2 * time.Second)})
		}()
	}
	time.Sleep(500 * time.Millisecond) // until all three wait
	if a := r.call(t, "QueueService/List", &millracev1.ListQueuesRequest{}); a.code() != "RESOURCE_EXHAUSTED" || a.err().GetLimit() != "calls_tenant" {
		t.Errorf("a fourth call: %d %v", a.status, a.err())
	}
	for range 3 {
		if a := <-answers; a.status != 0 {
			t.Errorf("a claim that waits: %d %v", a.status, a.err())
		}
	}
	a := r.call(t, "TaskService/Create", task(func(s *millracev1.TaskSpec) { s.Payload = make([]byte, 101) }))
	if a.code() != "TOO_LARGE" || a.err().GetLimit() != "payload_bytes" || a.err().GetMax() != 100 {
		t.Errorf("a payload over the limit that was set: %v", a.err())
	}
	stillServes(t, r, "all that")
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns who trusts it.
func selfSigned(t *testing.T) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noErr(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	noErr(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(secret)
	noErr(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	noErr(t, os.WriteFile(cert, certPEM, 0o600))
	noErr(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	trust = x509.NewCertPool()
	if !trust.AppendCertsFromPEM(certPEM) {
		t.Fatal("the certificate is none")
	}
	return cert, key, trust
}

func TestWithACertificateOnlyTLSIsServed(t *testing.T) {
	t.Parallel()
	cert, key, trust := selfSigned(t)
	s := serveWith(t, "--tls-cert", cert, "--tls-key", key)
	ctx := bounded(t, 20*time.Second)
	dial := func(opts ...millrace.Option) *millrace.Client {
		c, err := millrace.Dial(ctx, append([]millrace.Option{millrace.Address(s.Address()), millrace.Token(s.Tokens[0].Secret)}, opts...)...)
		noErr(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	if _, err := dial(millrace.TLS(&tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12})).KV("k").Put(ctx, "a", "1"); err != nil {
		t.Errorf("a put over TLS: %v", err)
	}
	short := bounded(t, time.Second)
	if _, err := dial(millrace.TLS(nil)).KV("k").Get(short, "a"); err == nil {
		t.Error("a client that does not trust the certificate was served")
	}
	conn, err := net.Dial("tcp", s.Address())
	noErr(t, err)
	defer conn.Close()
	noErr(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	noErr(t, err)
	said, _ := io.ReadAll(conn)
	if bytes.Contains(said, []byte{0, 0, 0, 4}) { // the frame of settings with which HTTP/2 begins
		t.Errorf("plain text was answered with %q", said)
	}
}
