package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/store"
)

// maxPEMBytes bounds a file of certificates or a key; a chain has a few KiB.
const maxPEMBytes = 1 << 20

// edgeCertificate is the certificate and key of the edges, which can be replaced while they serve.
type edgeCertificate struct {
	// fs reads the files, and clock tells how old the certificate is.
	fs    env.FS
	clock env.Clock
	// Paths of the PEM files.
	cert, key string
	// The pair in force; handshakes read it.
	pair atomic.Pointer[tls.Certificate]
}

// openCertificate reads the edges' certificate. Without one in the settings there is no TLS, and
// cert stays nil.
func (r *Running) openCertificate() error {
	if r.o.TLSCert == "" {
		return nil
	}
	c := &edgeCertificate{fs: store.NewFS(store.SystemFS()), clock: r.o.Clock, cert: r.o.TLSCert, key: r.o.TLSKey}
	if _, err := c.load(); err != nil {
		return err
	}
	r.cert = c
	return nil
}

// load reads both files and puts the pair into force. A pair that does not match, as when only one
// file was replaced so far, is refused. So is one that is not valid now while the pair in force is.
// It returns what to log of a new pair; nil if nothing changed.
func (c *edgeCertificate) load() (change []any, err error) {
	cert, err := env.ReadFile(c.fs, c.cert, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("tls-cert: %w", err)
	}
	key, err := env.ReadFile(c.fs, c.key, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls-cert: %w", err)
	}
	old, now := c.pair.Load(), c.clock.Wall()
	if old != nil && pair.Leaf.Equal(old.Leaf) && sameChain(&pair, old) {
		return nil, nil
	}
	// A new pair that is not valid now is refused only while the old one is: otherwise it is no
	// worse.
	if old != nil && now.Before(old.Leaf.NotAfter) {
		switch {
		case !now.Before(pair.Leaf.NotAfter):
			return nil, fmt.Errorf("tls-cert: %s has ended at %s", c.cert, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		case now.Before(pair.Leaf.NotBefore):
			return nil, fmt.Errorf("tls-cert: %s begins at %s only", c.cert, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
		}
	}
	c.pair.Store(&pair)
	return []any{"file", c.cert, "valid_until", pair.Leaf.NotAfter.UTC()}, nil
}

// sameChain reports whether two pairs have the same chain of certificates.
func sameChain(a, b *tls.Certificate) bool {
	if len(a.Certificate) != len(b.Certificate) {
		return false
	}
	for i := range a.Certificate {
		if string(a.Certificate[i]) != string(b.Certificate[i]) {
			return false
		}
	}
	return true
}

// config returns the TLS settings of a listener for some protocols. Each handshake uses the pair in
// force at that moment. Sessions are not resumed: a client would not notice that the certificate
// was replaced.
func (c *edgeCertificate) config(protocols ...string) *tls.Config {
	return &tls.Config{
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
		MinVersion:             tls.VersionTLS12,
		NextProtos:             protocols,
		SessionTicketsDisabled: true,
	}
}

// watchFiles starts to read tokens and certificate again when their files change, until the server
// is closed. Calls whose token is not valid any more are ended.
func (r *Running) watchFiles() {
	var all []*config.Source
	log := r.o.Logger
	if r.o.TokensFile != "" {
		tokens := r.o.Tokens
		n, expired := tokens.Count(r.o.Clock.Wall())
		log.Info("tokens: read", "file", r.o.TokensFile, "tokens", n, "expired", expired)
		if expired == n {
			log.Warn("tokens: all have expired, no client can call this server", "file", r.o.TokensFile)
		}
		all = append(all, &config.Source{Name: "tokens", Files: []string{r.o.TokensFile}, Load: func() ([]any, error) {
			c, err := tokens.Reload(r.o.Clock.Wall())
			if err != nil || !c.Any() {
				return nil, err
			}
			r.calls.Sweep() // what is under way ends with its token
			return []any{"file", r.o.TokensFile, "tokens", c.Tokens, "added", c.Added, "removed", c.Removed, "altered", c.Altered, "expired", c.Expired}, nil
		}})
	}
	if r.cert != nil {
		log.Info("certificate: read", "file", r.o.TLSCert, "valid_until", r.cert.pair.Load().Leaf.NotAfter.UTC())
		all = append(all, &config.Source{Name: "certificate", Files: []string{r.o.TLSCert, r.o.TLSKey}, Load: r.cert.load})
	}
	r.watch = config.Watch(store.NewFS(store.SystemFS()), r.o.Clock, log, all...)
}

// Reload reads the tokens file and all certificates again, whether they changed or not. What cannot
// be used leaves in force what was read before; the log tells about both.
func (r *Running) Reload() error {
	err := r.watch.Reload()
	if r.peers != nil {
		err = errors.Join(err, r.peers.Reload())
	}
	return err
}

// viewParts returns the parts; false before the node runs.
func (a *admin) viewParts() (*parts, bool) {
	p := a.parts.Load()
	return p, p != nil
}

// fileMetrics are those of tokens and certificates: how old they are, how many tokens there are,
// what was refused.
func fileMetrics() []obs.Metric[*parts] {
	of := func(name, help string, read func(config.SourceStats) float64) obs.Metric[*parts] {
		return obs.Metric[*parts]{Name: name, Help: help, Labels: []string{"source"}, Bound: 4, Values: func(x *parts, put func(float64, ...string)) {
			for _, s := range x.watch.Stats() {
				put(read(s), s.Name)
			}
		}}
	}
	count := func(name, help string, read func(n, expired int) int) obs.Metric[*parts] {
		return figure(name, help, func(x *parts) int { return read(x.tokens.Count(x.clock.Wall())) })
	}
	return []obs.Metric[*parts]{
		of("millrace_config_source_age_seconds", "Time since what is in force of tokens and certificate was read from its files", func(s config.SourceStats) float64 { return s.Age.Seconds() }),
		of("millrace_config_source_refused_state", "1 while files of tokens or certificate are refused, and what was read before stays in force", func(s config.SourceStats) float64 { return float64(bit(s.Refused)) }),
		of("millrace_config_source_reloads_total", "Times that tokens or certificate were read again and had changed", func(s config.SourceStats) float64 { return float64(s.Reads) }),
		of("millrace_config_failed_reloads_total", "Times that files of tokens or certificate were read again and refused", func(s config.SourceStats) float64 { return float64(s.Failures) }),
		count("millrace_auth_known_tokens", "Tokens in force, expired ones apart", func(n, expired int) int { return n - expired }),
		count("millrace_auth_expired_tokens", "Tokens in force that have expired", func(_, expired int) int { return expired }),
		{Name: "millrace_auth_refused_tokens_total", Help: "Tokens that were refused: not known, removed from the file, or expired", Labels: []string{"reason"}, Bound: 3, Values: func(x *parts, put func(float64, ...string)) {
			x.refusals.Each(func(why auth.Reason, n uint64) { put(float64(n), why.String()) })
		}},
		figure("millrace_server_certificate_end_seconds", "Unix time at which the certificate of the public listeners ends; 0 without TLS", func(x *parts) int64 {
			if x.cert == nil {
				return 0
			}
			return x.cert.pair.Load().Leaf.NotAfter.Unix()
		}),
	}
}
