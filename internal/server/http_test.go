package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/auth"
)

// holderOf is a table of one token.
func holderOf(t testing.TB, token string) *auth.Static {
	t.Helper()
	table, err := auth.New(auth.Token{
		Hash: auth.Hash(token), Principal: auth.Principal{Name: "someone", Tenant: "acme", Scopes: auth.All},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTheHTTPListenerIsSafeOrDoesNotStart(t *testing.T) {
	tokens := holderOf(t, "t")
	for _, c := range []struct {
		name string
		o    Options
		want string // in the error; empty starts
	}{
		{"loopback", Options{HTTP: "127.0.0.1:0"}, ""},
		{"off", Options{HTTP: "off"}, ""},
		{"by default", Options{}, ""},
		{"plain text in public", Options{HTTP: "0.0.0.0:0"}, "http"},
		{"plain text on every address", Options{HTTP: ":0"}, "http"},
		{"plain text by a name", Options{HTTP: "example.org:0"}, "http"},
		{"plain text in public, asked for", Options{HTTP: "0.0.0.0:0", Insecure: []string{"http"}}, ""},
		{"TLS in public", Options{HTTP: "0.0.0.0:0", TLSCert: "c", TLSKey: "k"}, ""},
		{"no port", Options{HTTP: "127.0.0.1"}, "http"},
	} {
		c.o.Dir, c.o.Tokens, c.o.Listen = t.TempDir(), tokens, "127.0.0.1:0"
		_, err := c.o.withDefaults()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
	if _, err := Dev(Options{HTTP: "0.0.0.0:0"}, NewToken()); err == nil || !strings.Contains(err.Error(), "http") {
		t.Errorf("development in public: %v", err)
	}
	standard := net.JoinHostPort("127.0.0.1", "7080")
	for listen, want := range map[string]string{"": standard, net.JoinHostPort("127.0.0.1", "9999"): standard, "127.0.0.1:0": "127.0.0.1:0"} {
		o, err := Options{Dir: "d", Tokens: tokens, Listen: listen}.withDefaults()
		if err != nil || o.HTTP != want {
			t.Errorf("next to %q: HTTP on %q, want %q (%v)", listen, o.HTTP, want, err)
		}
	}
}

func TestAPortThatIsTakenKeepsTheServerFromTouchingData(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	dir := filepath.Join(t.TempDir(), "data")
	_, err = Start(t.Context(), Options{
		Dir: dir, Listen: "127.0.0.1:0", HTTP: lis.Addr().String(), Admin: off, Tokens: holderOf(t, "t"), Memory: minMemory,
	})
	if err == nil || !strings.Contains(err.Error(), "http") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was made: %v", err)
	}
}

// certificate writes one for 127.0.0.1, and returns the files and who trusts it.
func certificate(t *testing.T) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "millrace"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, content := range map[string][]byte{cert: public, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust = x509.NewCertPool()
	trust.AppendCertsFromPEM(public)
	return cert, key, trust
}

func TestRESTSpeaksBothVersionsOfHTTPOverTLS(t *testing.T) {
	cert, key, trust := certificate(t)
	s, err := Start(t.Context(), Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: off, TLSCert: cert, TLSKey: key,
		Tokens: holderOf(t, "t"), Memory: minMemory, Durability: None,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(0)
	for major := 1; major <= 2; major++ {
		var protocols http.Protocols
		protocols.SetHTTP1(major == 1)
		protocols.SetHTTP2(major == 2)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, Protocols: &protocols}
		client := &http.Client{Transport: transport}
		do := func(method, path, body string) (*http.Response, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.HTTPAddress+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer t")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp, string(b)
		}
		resp, body := do("POST", "/v1/tasks", `{"queue":"q","payload":[1]}`)
		if resp.StatusCode != http.StatusCreated || resp.ProtoMajor != major {
			t.Errorf("HTTP/%d: %s %s", major, resp.Proto, body)
		}
		if resp, body := do("POST", "/v1/tasks", `{"queue":"q"`+strings.Repeat(" ", 9<<20)+"}"); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("HTTP/%d: a large body: %d %s", major, resp.StatusCode, body)
		}
		if resp, body := do("POST", "/v1/tasks:claim", `{"queues":["q"],"max":9}`); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"payload":[1]`) {
			t.Errorf("HTTP/%d: after a refusal: %d %s", major, resp.StatusCode, body)
		}
		transport.CloseIdleConnections()
	}
	plain := &http.Client{Transport: new(http.Transport)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddress+"/v1/openapi.json", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := plain.Do(req); err == nil {
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain text on a port of TLS: %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
}

func TestAServerWithoutHTTPHasNoAddressForIt(t *testing.T) {
	s, err := Start(context.Background(), Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", HTTP: off, Admin: off, Tokens: holderOf(t, "t"), Memory: minMemory, Durability: None,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.HTTPAddress != "" {
		t.Errorf("HTTP on %s", s.HTTPAddress)
	}
	if err := s.Close(0); err != nil {
		t.Error(err)
	}
}
