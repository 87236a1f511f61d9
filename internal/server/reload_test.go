package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// await waits until ok; what never comes ends the test.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// statusOf is the status of a list of queues, asked for with a token.
func statusOf(t *testing.T, client *http.Client, base, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/queues", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestTheTokensFileIsReadAgainWhileTheServerRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	rows := func(tokens ...string) string {
		out := "tokens:\n"
		for _, token := range tokens {
			out += fmt.Sprintf("  - {name: %s, tenant: acme, hash: %q, roles: [admin]}\n", token, HashToken(token))
		}
		return out
	}
	put(t, file, rows("a", "b"))
	log := new(logged)
	s, err := Start(t.Context(), Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", TokensFile: file, Memory: minMemory, Durability: None,
		Logger: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(0)
	client, base := &http.Client{Transport: new(http.Transport)}, "http://"+s.HTTPAddress
	defer client.CloseIdleConnections()
	status := func(token string) int { return statusOf(t, client, base, token) }
	if status("a") != 200 || status("b") != 200 || status("c") != 401 {
		t.Fatalf("at the start: %d %d %d", status("a"), status("b"), status("c"))
	}
	put(t, file, rows("a", "c"))
	await(t, "the file is read without a word", func() bool { return status("b") == 401 })
	if status("a") != 200 || status("c") != 200 {
		t.Errorf("after one was removed and one added: %d %d", status("a"), status("c"))
	}
	await(t, "the log tells of it", func() bool { return log.has("added=1 removed=1") })
	for _, bad := range []string{"", "tokens: []\n", "tokens: [{name: a", rows("a") + "  - {name: x}\n", "# nothing yet\n"} {
		put(t, file, bad)
		if err := s.Reload(); err == nil {
			t.Errorf("%q was taken", bad)
		}
		if status("a") != 200 || status("c") != 200 {
			t.Errorf("after %q: %d %d", bad, status("a"), status("c"))
		}
	}
	got := scrape(t, s)
	if got[`millrace_config_source_refused_state{source="tokens"}`] != 1 || got["millrace_auth_known_tokens"] != 2 || got[`millrace_config_failed_reloads_total{source="tokens"}`] < 5 {
		t.Errorf("metrics of a file that is refused: %v", got)
	}
	next := file + ".next"
	put(t, next, rows("c"))
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	await(t, "a file put in its place is read", func() bool { return status("a") == 401 })
	if status("c") != 200 {
		t.Error("the token that is left does not open")
	}
}

// pair is a certificate for 127.0.0.1 and its key, as PEM.
type pair struct {
	serial    int64
	cert, key string
}

func newPair(t *testing.T, serial int64, from, to time.Time) pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		serial, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}
}

func validPair(t *testing.T, serial int64) pair {
	return newPair(t, serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// tlsRig is a server with TLS on both public listeners, whose files a test replaces.
type tlsRig struct {
	t         *testing.T
	s         *Running
	cert, key string
	log       *logged
	cache     tls.ClientSessionCache
}

func newTLSRig(t *testing.T) *tlsRig {
	t.Helper()
	dir := t.TempDir()
	r := &tlsRig{
		t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), log: new(logged),
		cache: tls.NewLRUClientSessionCache(8),
	}
	first := validPair(t, 1)
	put(t, r.cert, first.cert)
	put(t, r.key, first.key)
	var err error
	r.s, err = Start(t.Context(), Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", TLSCert: r.cert, TLSKey: r.key,
		Tokens: holderOf(t, "t"), Memory: minMemory, Durability: None, Logger: r.log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.s.Close(0) })
	return r
}

// shown is the serial number of the certificate that a listener shows, to a client that would resume a session.
func (r *tlsRig) shown(address, protocol string, version uint16) int64 {
	r.t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{protocol}, ClientSessionCache: r.cache, MaxVersion: version,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if conn.ConnectionState().DidResume {
		r.t.Error("a session was resumed")
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func (r *tlsRig) want(what string, serial int64) {
	r.t.Helper()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if grpc, rest := r.shown(r.s.Address, "h2", version), r.shown(r.s.HTTPAddress, "http/1.1", version); grpc != serial || rest != serial {
			r.t.Errorf("%s: certificates %d and %d are shown, want %d", what, grpc, rest, serial)
		}
	}
}

func TestACertificateIsReplacedWhileTheServerRuns(t *testing.T) {
	r := newTLSRig(t)
	r.want("at the start", 1)
	second := validPair(t, 2)
	put(t, r.cert, second.cert) // the key comes later
	if err := r.s.Reload(); err == nil {
		t.Error("a certificate without its key was taken")
	}
	r.want("with half of the new pair", 1)
	put(t, r.key, second.key)
	await(t, "both files are read without a word", func() bool { return r.shown(r.s.Address, "h2", 0) == 2 })
	r.want("with the new pair", 2)
	third := validPair(t, 3)
	put(t, r.key, third.key) // the other way round
	if err := r.s.Reload(); err == nil {
		t.Error("a key without its certificate was taken")
	}
	r.want("with the key of the next pair", 2)
	put(t, r.cert, third.cert)
	for serial := int64(3); serial < 23; serial++ {
		if serial > 3 {
			p := validPair(t, serial)
			put(t, r.cert, p.cert)
			put(t, r.key, p.key)
		}
		if err := r.s.Reload(); err != nil {
			t.Fatal(err)
		}
		r.want("replaced again", serial)
	}
	if !r.log.has("certificate: read again, in force") {
		t.Error("the log does not tell of it")
	}
	if end := scrape(t, r.s)["millrace_server_certificate_end_seconds"]; end != float64(r.s.cert.pair.Load().Leaf.NotAfter.Unix()) {
		t.Errorf("the metric of its end is %v", end)
	}
}

func TestWhatIsNoGoodCertificateReplacesNone(t *testing.T) {
	r := newTLSRig(t)
	now := time.Now()
	good, other := validPair(t, 2), validPair(t, 3)
	for what, p := range map[string]pair{
		"two of different pairs": {cert: good.cert, key: other.key},
		"one that has ended":     newPair(t, 4, now.Add(-2*time.Hour), now.Add(-time.Hour)),
		"one that has not begun": newPair(t, 5, now.Add(time.Hour), now.Add(2*time.Hour)),
		"an empty certificate":   {key: good.key},
		"an empty key":           {cert: good.cert},
		"half of a certificate":  {cert: good.cert[:len(good.cert)/2], key: good.key},
		"the key as certificate": {cert: good.key, key: good.key},
	} {
		put(t, r.cert, p.cert)
		put(t, r.key, p.key)
		err := r.s.Reload()
		if err == nil {
			t.Errorf("%s was taken", what)
		} else if strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the error repeats a key: %v", what, err)
		}
	}
	if err := errors.Join(os.Remove(r.cert), os.Remove(r.key)); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Reload(); err == nil {
		t.Error("missing files were taken")
	}
	r.want("after all that", 1)
}
