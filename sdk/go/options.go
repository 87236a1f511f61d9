package millrace

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// Option changes how Dial connects.
type Option interface{ dial(o *options) }

// dialFunc is an Option that sets fields of options.
type dialFunc func(o *options)

func (f dialFunc) dial(o *options) { f(o) }

// options is what the options of Dial, and the environment, come to.
type options struct {
	address   string   // the first of addresses
	addresses []string // of nodes of one cluster
	rest      string   // host:port, or several with commas; empty: restHosts finds it
	// transport says which of gRPC and REST may be used.
	transport TransportMode
	token     string
	namespace string
	// timeout bounds calls whose context has no deadline; 0 or less: it does not.
	timeout time.Duration
	// tls is nil for clear text; insecure says that clear text was asked for, and is not only the default of this machine.
	tls      *tls.Config
	insecure bool
	// dial makes all connections.
	dial   func(ctx context.Context, address string) (net.Conn, error)
	dials  bool // dial is the caller's
	logger *slog.Logger
	ledger io.Writer
	codec  Codec
}

// Address sets the server's host:port, or those of several nodes of one cluster, with commas between them. Any of these nodes tells
// the client which node leads, and it speaks to that one. When all of them are gone it goes on with the members that they named.
// Default: the variable MILLRACE_URL, then 127.0.0.1:7081.
func Address(hostPort string) Option { return dialFunc(func(o *options) { o.address = hostPort }) }

// RESTAddress sets the host:port of the server's REST routes, for a client that gRPC does not reach, or those of several nodes, with
// commas between them. The first one that answers is used; a node that does not lead redirects.
//
// Default: MILLRACE_REST_URL if the address comes from MILLRACE_URL. Else the server's address, which may be that of a proxy for
// both, and port 7080 of the same host if that address has the port 7081. TLS applies to REST as it does to gRPC.
func RESTAddress(hostPort string) Option { return dialFunc(func(o *options) { o.rest = hostPort }) }

// Transport sets how the client speaks to the server. Default: MILLRACE_TRANSPORT (auto, stream or rest), then TransportAuto:
// gRPC with its streams, and REST while something on the way lets no gRPC through.
func Transport(m TransportMode) Option { return dialFunc(func(o *options) { o.transport = m }) }

// Token sets the token that authenticates every call, one word of ASCII; white space around it is removed. Default: MILLRACE_TOKEN.
func Token(token string) Option { return dialFunc(func(o *options) { o.token = token }) }

// Namespace sets the namespace of all calls. Default: MILLRACE_NAMESPACE, then default.
func Namespace(name string) Option { return dialFunc(func(o *options) { o.namespace = name }) }

// defaultTimeout is that of calls that neither their context nor an option bounds.
const defaultTimeout = 30 * time.Second

// Timeout bounds each call whose context has no deadline. It ends as if its context had: with CodeDeadlineExceeded, refused if it
// had not left, else unknown. 0 or less means no bound. Default: 30 seconds.
//
// What lasts by its nature goes on as long as its context: Client.Wait and Handle.Wait, Client.Claim, workers, what reads or
// writes a stream (KV.Range, KV.Stream, Client.Watch, Client.Events, Repo.Load, Repo.Session, Client.Backup), changes of a cluster
// by an Operator, and the calls of Client.Conn.
func Timeout(d time.Duration) Option { return dialFunc(func(o *options) { o.timeout = d }) }

// TLS makes the client encrypt with cfg; nil means the system's certificate authorities. It is the default unless all addresses are
// loopback addresses.
func TLS(cfg *tls.Config) Option {
	return dialFunc(func(o *options) {
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.tls, o.insecure = cfg, false
	})
}

// Insecure sends everything, the token too, in clear text, even beyond loopback addresses.
func Insecure() Option { return dialFunc(func(o *options) { o.insecure, o.tls = true, nil }) }

// Dialer sets the function that makes connections, of gRPC and REST. Default: net.Dialer over TCP.
func Dialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return dialFunc(func(o *options) { o.dial, o.dials = dial, dial != nil })
}

// Logger sets where the client logs what it returns to no caller, such as tasks of an unknown kind. Default: slog.Default().
func Logger(l *slog.Logger) Option { return dialFunc(func(o *options) { o.logger = l }) }

// DefaultCodec sets what encodes arguments, results and values that are neither bytes nor text, unless a job has a codec of its own.
// Default: JSON.
func DefaultCodec(c Codec) Option { return dialFunc(func(o *options) { o.codec = c }) }

// Ledger makes the client write one JSON line per call to w when the call ends: its op, ids, token, place in the log and outcome, and
// when it began and ended, in microseconds of one monotonic clock. Each line is one Write. It is for audits of what was promised.
func Ledger(w io.Writer) Option { return dialFunc(func(o *options) { o.ledger = w }) }

// cleanToken takes off the white space around a token: a file of one ends with a line feed. The error does not show the token.
func cleanToken(s string) (string, error) {
	s = strings.TrimSpace(s)
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return "", errors.New("the token must be one word of ASCII: it holds white space, a control character, or one that is not ASCII")
		}
	}
	return s, nil
}

// defaultAddress is where a server on the same machine listens.
const defaultAddress = "127.0.0.1:" + grpcPort

// newOptions applies opts over the environment and fills in what is missing.
func newOptions(opts []Option) (options, error) { return optionsOver(os.Getenv, opts) }

// optionsOver is newOptions over another environment.
func optionsOver(env func(name string) string, opts []Option) (options, error) {
	o := options{timeout: defaultTimeout}
	if name := env("MILLRACE_TRANSPORT"); name != "" {
		var err error
		if o.transport, err = parseTransport(name); err != nil {
			return o, err
		}
	}
	for _, opt := range opts {
		opt.dial(&o)
	}
	if o.address == "" {
		o.rest = cmp.Or(o.rest, env("MILLRACE_REST_URL"))
	}
	o.address = cmp.Or(o.address, env("MILLRACE_URL"), defaultAddress)
	var err error
	if o.token, err = cleanToken(cmp.Or(o.token, env("MILLRACE_TOKEN"))); err != nil {
		return o, err
	}
	o.namespace = cmp.Or(o.namespace, env("MILLRACE_NAMESPACE"), "default")
	if o.logger == nil {
		o.logger = slog.Default()
	}
	if o.codec == nil {
		o.codec = JSON
	}
	if o.dial == nil {
		o.dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	for _, address := range strings.Split(o.address, ",") {
		address = strings.TrimSpace(address)
		if _, _, err := net.SplitHostPort(address); err != nil {
			return o, fmt.Errorf("address %q must be host:port: %w", address, err)
		}
		o.addresses = append(o.addresses, address)
	}
	o.address = o.addresses[0]
	for _, address := range o.restNamed() {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return o, fmt.Errorf("REST address %q must be host:port: %w", address, err)
		}
	}
	if o.transport > TransportREST {
		return o, fmt.Errorf("transport %d is none", o.transport)
	}
	if o.tls == nil && !o.insecure && !o.local() {
		o.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

// restNamed are the places of REST that are named.
func (o *options) restNamed() (hosts []string) {
	if o.rest == "" {
		return nil
	}
	for _, address := range strings.Split(o.rest, ",") {
		hosts = append(hosts, strings.TrimSpace(address))
	}
	return hosts
}

// local reports whether all addresses are of this machine.
func (o *options) local() bool {
	for _, address := range o.addresses {
		if host, _, _ := net.SplitHostPort(address); !loopback(host) { // it was checked before
			return false
		}
	}
	return true
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
