package server

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/env"
)

// Names of listeners that may use plain text on an address which other machines reach, if the
// operator names them.
const (
	ListenerGRPC  = "grpc"
	ListenerHTTP  = "http"
	ListenerAdmin = "admin"
)

// insecureListeners are all names that the option accepts.
var insecureListeners = []string{ListenerGRPC, ListenerHTTP, ListenerAdmin}

// insecure reports whether a listener may be in plain text on a public address.
func (o Options) insecure(listener string) bool { return slices.Contains(o.Insecure, listener) }

// checkInsecure refuses unknown and repeated names of listeners, and an address for metrics that is
// malformed or the admin listener's.
func (o Options) checkInsecure() error {
	for i, name := range o.Insecure {
		switch {
		case !slices.Contains(insecureListeners, name):
			return fmt.Errorf("insecure: %q must be one of %s", name, strings.Join(insecureListeners, ", "))
		case slices.Contains(o.Insecure[:i], name):
			return fmt.Errorf("insecure: %s is there twice", name)
		}
	}
	if o.Metrics == off || o.Metrics == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.Metrics); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	// Two listeners on a free port get different ports.
	if o.Metrics == o.Admin && !strings.HasSuffix(o.Metrics, ":0") {
		return errors.New("metrics: must be another address than admin")
	}
	return nil
}

// warnOfPlainText logs each listener that the operator lets other machines reach in plain text.
func (r *Running) warnOfPlainText() {
	o := &r.o
	// The admin listener never has TLS.
	for _, l := range []struct {
		name, address, bound, what string
		tls                        bool
	}{
		{ListenerGRPC, o.Listen, r.Address, "tokens and data of clients", o.TLSCert != ""},
		{ListenerHTTP, o.HTTP, r.HTTPAddress, "tokens and data of clients", o.TLSCert != ""},
		{ListenerAdmin, o.Admin, r.AdminAddress, "metrics, profiles and settings, without a token", false},
	} {
		host, _, err := net.SplitHostPort(l.address)
		if err != nil || env.Loopback(host) || l.tls || !o.insecure(l.name) {
			continue
		}
		r.o.Logger.Warn("insecure: a listener is in plain text on an address that other machines reach", "listener", l.name, "address", l.bound, "readable", l.what, "from", reach(host))
	}
}

// reach says from where an address that is not loopback is reached, for that log line.
func reach(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "every network of this machine"
	}
	return "every machine that reaches " + host
}
