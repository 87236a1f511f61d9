package millrace

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
)

// Option changes how Dial connects.
type Option func(*options)

type options struct {
	address   string
	token     string
	namespace string
	tls       *tls.Config
	insecure  bool
	dial      func(ctx context.Context, address string) (net.Conn, error)
	logger    *slog.Logger
	ledger    io.Writer
	codec     Codec
}

// Address is the server's host:port. Default: MILLRACE_URL, then 127.0.0.1:7081.
func Address(hostPort string) Option { return func(o *options) { o.address = hostPort } }

// Token authenticates every call. Default: MILLRACE_TOKEN.
func Token(token string) Option { return func(o *options) { o.token = token } }

// Namespace is the namespace of all calls. Default: MILLRACE_NAMESPACE, then default.
func Namespace(name string) Option { return func(o *options) { o.namespace = name } }

// TLS encrypts with cfg; nil means the system's certificate authorities. It is the default when the address is no
// loopback address.
func TLS(cfg *tls.Config) Option {
	return func(o *options) {
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.tls, o.insecure = cfg, false
	}
}

// Insecure sends everything, the token too, in clear text, even beyond loopback addresses.
func Insecure() Option { return func(o *options) { o.insecure, o.tls = true, nil } }

// Dialer replaces the way connections are made.
func Dialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(o *options) { o.dial = dial }
}

// Logger receives what no caller is told, such as tasks of an unknown kind. Default: slog.Default().
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// DefaultCodec encodes arguments, results and values that are neither bytes nor text, where a job names no codec of its
// own. Default: JSON.
func DefaultCodec(c Codec) Option { return func(o *options) { o.codec = c } }

// WithLedger writes one JSON line per call to w when the call ends: its op, ids, token, place in the log and outcome,
// and when it began and ended, in microseconds of one monotonic clock. Lines are written one at a time, whole.
func WithLedger(w io.Writer) Option { return func(o *options) { o.ledger = w } }

const defaultAddress = "127.0.0.1:7081"

// newOptions applies opts over the environment and fills in what is missing.
func newOptions(opts []Option) (options, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	o.address = cmp.Or(o.address, os.Getenv("MILLRACE_URL"), defaultAddress)
	o.token = cmp.Or(o.token, os.Getenv("MILLRACE_TOKEN"))
	o.namespace = cmp.Or(o.namespace, os.Getenv("MILLRACE_NAMESPACE"), "default")
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
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		return o, fmt.Errorf("address %q is no host:port: %w", o.address, err)
	}
	if o.tls == nil && !o.insecure && !loopback(host) {
		o.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
