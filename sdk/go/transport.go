package millrace

import (
	"fmt"
	"net"

	"github.com/millrace/millrace/sdk/go/internal/rest"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

// TransportMode says how a client speaks to its server.
type TransportMode uint8

// The modes.
const (
	TransportAuto   TransportMode = iota // gRPC, and REST while something between lets no gRPC through
	TransportStream                      // gRPC alone
	TransportREST                        // REST alone
)

// transportNames are the words of the variable MILLRACE_TRANSPORT.
var transportNames = [...]string{TransportAuto: "auto", TransportStream: "stream", TransportREST: "rest"}

// String returns auto, stream or rest.
func (m TransportMode) String() string {
	if int(m) < len(transportNames) {
		return transportNames[m]
	}
	return "unknown"
}

// parseTransport reads what String returns.
func parseTransport(name string) (TransportMode, error) {
	for m, n := range transportNames {
		if n == name {
			return TransportMode(m), nil
		}
	}
	return 0, fmt.Errorf("transport %q must be one of auto, stream, rest", name)
}

// newRouter makes the client's way to its servers.
func (c *Client) newRouter() (*transport.Router, error) {
	o := transport.Options{
		Mode: transport.Mode(c.opts.transport), Addresses: c.opts.addresses, Namespace: c.opts.namespace, Codec: c.hub.Codec(),
		Logger: c.opts.logger, Encrypted: c.opts.tls != nil, Secure: c.opts.secure, DialOptions: c.dialOptions, Partitions: c.hub.Partitions,
		Moved:   func() { c.hub.Dialed(nil) },
		Lost:    c.hub.Lost,
		Reached: c.hub.Reached,
	}
	if o.Mode != transport.Stream {
		o.REST = rest.New(c.restOptions())
	}
	return transport.New(o)
}

// restOptions is what REST needs to know of the client.
func (c *Client) restOptions() rest.Options {
	return rest.Options{
		Hosts: c.opts.restHosts(), Namespace: c.opts.namespace, TLS: c.opts.tls, Proxy: !c.opts.dials, Dial: c.opts.dial,
		Secure: c.opts.secure, Token: c.hub.Token, Partitions: c.hub.Partitions,
	}
}

// restHosts are the places where REST may be: the one that is named, or each address itself, which may be that of a proxy
// for both, and the port next to gRPC's own.
func (o *options) restHosts() []string {
	hosts := o.restNamed()
	if len(hosts) > 0 {
		return hosts
	}
	for _, address := range o.addresses {
		hosts = append(hosts, address)
		if host, port, err := net.SplitHostPort(address); err == nil && port == grpcPort {
			hosts = append(hosts, net.JoinHostPort(host, restPort))
		}
	}
	return hosts
}

// secure reports whether TLS is spoken at a place of REST.
func (o *options) secure(hostPort string) bool {
	host, _, _ := net.SplitHostPort(hostPort) // checked before
	return o.tls != nil || !o.insecure && !loopback(host)
}

// The ports that a server listens on by default.
const (
	grpcPort = "7081"
	restPort = "7080"
)
