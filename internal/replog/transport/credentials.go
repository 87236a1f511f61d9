package transport

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Files name the PEM files of a node's identity.
type Files struct {
	CA   string // the authority's certificates: what they issued is trusted
	Cert string // this node's certificate, then those between it and the authority
	Key  string // the certificate's key
}

// maxCredentialBytes bounds one of the files.
const maxCredentialBytes = 1 << 20

const (
	// expirySoon is how long before its end a certificate is complained about: a month leaves time to issue another one
	// by hand.
	expirySoon = 30 * 24 * time.Hour
	// expiryEvery is how often that is logged.
	expiryEvery = 24 * time.Hour
)

// identity is the node that a certificate names as its holder.
type identity struct {
	cluster ClusterID
	node    NodeID
}

// URI returns the subject alternative name of a node's certificate: millrace://<cluster id>/node/<node id>.
func URI(cluster ClusterID, node NodeID) string {
	return "millrace://" + cluster.String() + "/node/" + node.String()
}

// names says whether a certificate is that of a node.
func names(cert *x509.Certificate, cluster ClusterID, node NodeID) bool {
	want := URI(cluster, node)
	for _, u := range cert.URIs {
		if u.String() == want {
			return true
		}
	}
	return false
}

// namesAny reports whether a certificate is one of a node of the cluster, whichever.
func namesAny(cert *x509.Certificate, cluster ClusterID) bool {
	for _, u := range cert.URIs {
		if strings.HasPrefix(u.String(), strings.TrimSuffix(URI(cluster, 0), "0")) {
			return true
		}
	}
	return false
}

// fit says whether a certificate may be used both to dial and to accept, as the certificate of a node is. A
// certificate that names no use, or any use, is not one that an authority issued for a node.
func fit(cert *x509.Certificate) bool {
	return slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
}

// unfit is what is said of a certificate that is not fit.
const unfit = "the certificate must have both extended key usages, serverAuth and clientAuth"

// claims returns the names in a certificate, for logs: they prove nothing unless it is trusted.
func claims(certs []*x509.Certificate) []string {
	if len(certs) == 0 {
		return nil
	}
	var out []string
	for i, u := range certs[0].URIs {
		if i == 4 { // its maker may have put in any number
			break
		}
		out = append(out, u.String())
	}
	return out
}

// credentials are the content of the files at one time. They do not change: a reload makes others.
type credentials struct {
	// sum is the SHA-256 of all files, so that a change shows.
	sum [sha256.Size]byte
	// cas is that of the authority's file alone: connections are looked at again only if it
	// changes.
	cas [sha256.Size]byte
	// cert is this node's certificate with its key, and pool what it trusts.
	cert tls.Certificate
	pool *x509.CertPool
}

// readCredentials reads the files. The second result tells their content even when it makes no
// sense. The sum is of the files that were read before an error.
func readCredentials(fsys env.FS, f Files) (content [3][]byte, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for i, name := range []string{f.CA, f.Cert, f.Key} {
		b, err := env.ReadFile(fsys, name, maxCredentialBytes+1)
		if err == nil && len(b) > maxCredentialBytes {
			err = fmt.Errorf("more than %d bytes", maxCredentialBytes)
		}
		if err != nil {
			return content, sum, fmt.Errorf("read %s: %w", name, err)
		}
		content[i] = b
		one := sha256.Sum256(b)
		h.Write(one[:])
	}
	return content, [sha256.Size]byte(h.Sum(nil)), nil
}

// parseCredentials makes sense of the files' content. A certificate that this node's peers would refuse is refused here.
func parseCredentials(content [3][]byte, sum [sha256.Size]byte, f Files, me identity, now time.Time) (*credentials, error) {
	c := &credentials{sum: sum, cas: sha256.Sum256(content[0]), pool: x509.NewCertPool()}
	if !c.pool.AppendCertsFromPEM(content[0]) {
		return nil, fmt.Errorf("%s: no PEM certificate", f.CA)
	}
	var err error
	if c.cert, err = tls.X509KeyPair(content[1], content[2]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", f.Cert, f.Key, err)
	}
	chain, err := parseChain(c.cert.Certificate)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	c.cert.Leaf = chain[0]
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := c.verify(chain, me, use, now); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Cert, err)
		}
	}
	return c, nil
}

// parseChain parses a chain of certificates.
func parseChain(raw [][]byte) ([]*x509.Certificate, error) {
	chain := make([]*x509.Certificate, 0, len(raw))
	for _, b := range raw {
		cert, err := x509.ParseCertificate(b)
		if err != nil {
			return nil, err
		}
		chain = append(chain, cert)
	}
	return chain, nil
}

// verify says whether a chain of certificates is that of a node, for a use, now. Its error is a *RefusedError.
func (c *credentials) verify(chain []*x509.Certificate, who identity, use x509.ExtKeyUsage, now time.Time) error {
	if len(chain) == 0 {
		return &RefusedError{Reason: UntrustedCertificate, Detail: "no certificate"}
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		reason := UntrustedCertificate
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			reason = ExpiredCertificate
		}
		return &RefusedError{Reason: reason, Detail: err.Error()}
	}
	if !fit(chain[0]) {
		return &RefusedError{Reason: UntrustedCertificate, Detail: unfit}
	}
	if who.node == 0 && namesAny(chain[0], who.cluster) {
		return nil
	}
	if !names(chain[0], who.cluster, who.node) {
		return &RefusedError{
			Reason: WrongIdentity,
			Detail: fmt.Sprintf("the certificate names %q, not %s", claims(chain), URI(who.cluster, who.node)),
		}
	}
	return nil
}

// server returns the settings for a connection that was accepted. The standard library checks the peer's chain, so that
// strangers get no further than the handshake; its identity is compared with what the peer says it is.
func (c *credentials) server(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.cert}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: c.pool, Time: now, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// client returns the settings for a connection that is dialled. The peer's certificate is verified right after the
// handshake, before a byte is sent but the refusal: in this way the peer learns why, where TLS itself would only say
// that the certificate is bad.
func (c *credentials) client(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.cert}, InsecureSkipVerify: true,
		Time: now, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// Reload looks at the certificate files again. New connections use what it finds; older ones are closed if the authority
// has changed and does not know their certificates any more. An error leaves everything as it was.
//
// A file that is being replaced may make no sense for a moment. So an error is logged once for each
// content and the old credentials stay; the next look finds the new ones.
func (t *Transport) Reload() error {
	if t.o.TLS == nil {
		return nil
	}
	t.reloading.Lock()
	defer t.reloading.Unlock()
	old := t.creds.Load()
	content, sum, err := readCredentials(t.o.FS, *t.o.TLS)
	if err != nil {
		return t.badFiles(sum, err)
	}
	now := t.o.Clock.Wall()
	if old != nil && sum == old.sum {
		t.bad = ""
		t.complain(old, now)
		return nil
	}
	c, err := parseCredentials(content, sum, *t.o.TLS, identity{t.o.Cluster, t.o.Node}, now)
	if err != nil {
		return t.badFiles(sum, err)
	}
	t.creds.Store(c)
	t.bad = ""
	t.log.Info("peer certificate in use", "file", t.o.TLS.Cert, "valid_until", c.cert.Leaf.NotAfter)
	t.complained = time.Time{}
	t.complain(c, now)
	if old != nil && old.cas != c.cas {
		t.dropForeign(c, now)
	}
	return nil
}

// complain logs that this node's certificate ends soon, once a day, and that it has ended, at once and then once a day.
// reloading is held.
func (t *Transport) complain(c *credentials, now time.Time) {
	end := c.cert.Leaf.NotAfter
	since := now.Sub(t.complained)
	ended := now.After(end) && t.complained.Before(end)
	if !c.endsSoon(now) || since >= 0 && since < expiryEvery && !ended { // below 0: the clock was set back
		return
	}
	t.complained = now
	if now.After(end) {
		t.log.Error("the certificate of this node has expired: peers refuse new connections; replace the file", "file", t.o.TLS.Cert, "valid_until", end)
		return
	}
	t.log.Warn("the certificate of this node expires soon: replace the file", "file", t.o.TLS.Cert, "valid_until", end, "left", end.Sub(now).Round(time.Minute))
}

// endsSoon reports whether the certificate ends within expirySoon, or has ended.
func (c *credentials) endsSoon(now time.Time) bool { return c.cert.Leaf.NotAfter.Sub(now) < expirySoon }

// badFiles notes that the files make no sense, and logs it once for each content. reloading is held.
func (t *Transport) badFiles(sum [sha256.Size]byte, err error) error {
	t.stats.reloadFailures.Add(1)
	if what := string(sum[:]) + err.Error(); t.bad != what && t.creds.Load() != nil {
		t.bad = what
		t.log.Error("peer certificate files are of no use; those read before stay", "error", err)
	}
	return err
}

// dropForeign closes connections whose peers' certificates c does not verify. It compares what each
// peer has shown when it connected.
func (t *Transport) dropForeign(c *credentials, now time.Time) {
	for _, p := range t.peerList() {
		for _, x := range p.all() {
			if x.tls == nil {
				continue
			}
			use := x509.ExtKeyUsageClientAuth
			if x.outbound {
				use = x509.ExtKeyUsageServerAuth
			}
			err := c.verify(x.tls.ConnectionState().PeerCertificates, identity{t.o.Cluster, p.id}, use, now)
			if err != nil {
				x.close(fmt.Errorf("the authority has changed: %w", err))
			}
		}
	}
}

// watchFiles looks at the certificate files from time to time.
func (t *Transport) watchFiles() {
	timer := t.o.Clock.NewTimer(t.o.ReloadEvery)
	defer timer.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C():
			_ = t.Reload() // it has logged what is wrong
			timer.Reset(t.o.ReloadEvery)
		}
	}
}
