package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// maxShards bounds the shards of one node, and so of a cluster.
const maxShards = 64

const (
	// DisconnectGrace is what millrace serve gives by default to a worker whose stream broke: a network that fails for a moment, or a
	// process that is suspended, costs no attempt.
	DisconnectGrace = 10 * time.Second
	// maxDisconnectGrace bounds it: most leases end before.
	maxDisconnectGrace = time.Hour
)

// minMemory is the least memory in bytes with which a server starts.
const minMemory = 128 << 20

// withDefaults returns the options with all defaults, checked. It reads the tokens file. An error
// names the option, and nothing was opened.
func (o Options) withDefaults() (Options, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:7081")
	o.HTTP = listenerNextTo(o.HTTP, o.Listen, "127.0.0.1:7080")
	o.Admin = listenerNextTo(o.Admin, o.Listen, "127.0.0.1:7083")
	o.Metrics = cmp.Or(o.Metrics, off)
	o.Durability = cmp.Or(o.Durability, Fsync)
	o.Name = cmp.Or(o.Name, "n1")
	o.Shards = cmp.Or(o.Shards, 1)
	o.Version = cmp.Or(o.Version, "dev")
	if o.Clock == nil {
		o.Clock = env.SystemClock{}
	}
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	if o.Net == nil {
		o.Net = env.SystemNet{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Memory == 0 {
		o.Memory = max(machineMemory(store.NewFS(store.SystemFS()))/4, minMemory)
	}
	if err := errors.Join(o.check(), o.checkTrusted()); err != nil {
		return o, err
	}
	// Limits that are left open are fitted to what this process may have open, so this comes after
	// all checks of what was given.
	if err := o.fitDescriptors(); err != nil {
		return o, err
	}
	if o.Tokens == nil {
		tokens, err := auth.Open(store.NewFS(store.SystemFS()), o.TokensFile)
		if err != nil {
			return o, fmt.Errorf("tokens: %w", err)
		}
		o.Tokens = tokens
	}
	return o, nil
}

// check refuses what is not safe or makes no sense. The error names the option.
func (o Options) check() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err := errors.Join(o.checkInsecure(), o.checkHTTP(), o.checkAdmin()); err != nil {
		return err
	}
	switch {
	case o.Dir == "":
		return errors.New("data: a directory is required")
	case err != nil:
		return fmt.Errorf("listen: %w", err)
	case o.Durability != Fsync && o.Durability != None:
		return fmt.Errorf("durability: %q is neither fsync nor none", o.Durability)
	case o.Shards < 1 || o.Shards > maxShards:
		return fmt.Errorf("shards: %d is not within 1 to %d", o.Shards, maxShards)
	case o.Memory < minMemory:
		return fmt.Errorf("memory: %d bytes are less than the least of %d", o.Memory, minMemory)
	case o.Cluster.Check() != nil:
		return o.Cluster.Check()
	case o.Reserve < 0:
		return errors.New("disk-reserve: must not be negative")
	case o.LogQuota < 0:
		return errors.New("log-quota: must not be negative")
	case o.DisconnectGrace < 0 || o.DisconnectGrace > maxDisconnectGrace:
		return fmt.Errorf("disconnect-grace: must be within 0s to %s", maxDisconnectGrace)
	case o.SnapshotRate < 0:
		return errors.New("snapshot-rate: must not be negative")
	case o.Limits.Check() != nil:
		return o.Limits.Check()
	case o.checkServices() != nil:
		return o.checkServices()
	case o.checkLabel() != nil:
		return o.checkLabel()
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return errors.New("tls-cert and tls-key belong together")
	case o.Tokens == nil && o.TokensFile == "":
		return errors.New("tokens: a server without tokens does not start; name a tokens file, or use --dev on loopback")
	case o.Tokens != nil && o.Tokens.Len() == 0:
		return errors.New("tokens: a server without tokens does not start; the table is empty")
	case !env.Loopback(host) && o.TLSCert == "" && !o.insecure(ListenerGRPC):
		return fmt.Errorf("listen: %s is not a loopback address; give tls-cert and tls-key, or --insecure=grpc for plain text", o.Listen)
	}
	return nil
}

// checkServices refuses services that do not exist, and a list without queue.
func (o Options) checkServices() error {
	for i, name := range o.Services {
		if !slices.Contains(api.AllServices(), name) {
			return fmt.Errorf("services: %q must be one of %s", name, strings.Join(api.AllServices(), ", "))
		}
		if slices.Contains(o.Services[:i], name) {
			return fmt.Errorf("services: %s is there twice", name)
		}
	}
	if len(o.Services) > 0 && !slices.Contains(o.Services, api.ServiceQueue) {
		return errors.New("services: queue is always among them")
	}
	return nil
}

// closedServices returns the services that are disabled.
func (o Options) closedServices() []string {
	if len(o.Services) == 0 {
		return nil
	}
	return slices.DeleteFunc(api.AllServices(), func(name string) bool { return slices.Contains(o.Services, name) })
}

// off is the address of a listener that is not to be opened.
const off = "off"

// listenerNextTo returns the address of a listener other than gRPC's: the given one, else the
// standard one. If gRPC listens on a free port, it is a free port too, because several servers then
// run on one machine.
func listenerNextTo(given, listen, standard string) string {
	_, port, err := net.SplitHostPort(listen)
	if err == nil && port == "0" {
		standard = "127.0.0.1:0"
	}
	return cmp.Or(given, standard)
}

// checkAdmin refuses an admin listener that other machines reach, unless the operator allows it: it
// asks for no token.
func (o Options) checkAdmin() error {
	if o.Admin == off {
		return nil
	}
	host, _, err := net.SplitHostPort(o.Admin)
	switch {
	case err != nil:
		return fmt.Errorf("admin: %w", err)
	case !env.Loopback(host) && !o.insecure(ListenerAdmin):
		return fmt.Errorf("admin: %s is not a loopback address, and this port asks for no token; use a loopback address, --metrics for metrics and health, or --insecure=admin", o.Admin)
	}
	return nil
}

// Loopback is env.Loopback, for programs that start a server.
func Loopback(host string) bool { return env.Loopback(host) }

// Dev sets o up for development: one admin token of the tenant default. It refuses any listener
// that is not on loopback.
func Dev(o Options, token string) (Options, error) {
	host, _, err := net.SplitHostPort(cmp.Or(o.Listen, "127.0.0.1:7081"))
	if err != nil || !env.Loopback(host) {
		return o, fmt.Errorf("listen: --dev binds to loopback only, not to %q", o.Listen)
	}
	if o.TokensFile != "" {
		return o, errors.New("tokens: --dev makes its own token")
	}
	for _, l := range []struct{ name, address string }{{"http", o.HTTP}, {"admin", o.Admin}, {"metrics", o.Metrics}} {
		if l.address == "" || l.address == off {
			continue
		}
		if host, _, err = net.SplitHostPort(l.address); err != nil || !env.Loopback(host) {
			return o, fmt.Errorf("%s: --dev binds to loopback only, not to %q", l.name, l.address)
		}
	}
	o.Tokens, err = auth.New(auth.Token{
		Hash: auth.Hash(token), Principal: auth.Principal{Name: "dev", Tenant: "default", Scopes: auth.All},
	})
	return o, err
}

// NewToken makes a token at random.
func NewToken() string { return auth.Generate(env.SystemRand{}) }

// CleanSecret returns a secret without the white space around it, and refuses one with characters
// that a header cannot carry.
func CleanSecret(s string) (string, error) { return auth.CleanSecret(s) }

// listen opens the gRPC listener, with TLS if there is a certificate.
func (r *Running) listen() (net.Listener, error) {
	lis, err := r.o.Net.Listen(r.o.Listen)
	if err != nil {
		return nil, err
	}
	r.Address = lis.Addr().String()
	if r.cert == nil {
		return lis, nil
	}
	return tls.NewListener(lis, r.cert.config("h2")), nil
}

// Exit codes of serve.
const (
	exitStorage    = 20 // a failed write or sync
	exitCorruption = 21 // damaged bytes; the error names file and offset
	exitDiskFull   = 22 // no room left beyond the reserve
	exitIdentity   = 23 // not this server's directory
)

// ExitPartial is the exit code for a backup or a restore that is complete except for the objects of
// some git repositories.
const ExitPartial = 24

// ExitCode returns the exit code for the kind of failure that ended a server, or 0 if it is not one
// of these kinds.
func ExitCode(err error) int {
	// Damage comes first: an error may join several kinds, and this is the gravest.
	var damaged *wal.CorruptionError
	var corrupt *errs.Corruption
	var newer *store.NewerFormatError
	var other *OtherMemberError
	var removed *node.RemovedError
	var unfinished *store.UnfinishedError
	var later *backup.NewerFormatError
	var program *core.NewerFormatError
	switch {
	case errors.As(err, &damaged), errors.As(err, &corrupt):
		return exitCorruption
	case errors.As(err, &newer), errors.As(err, &other), errors.As(err, &removed), errors.As(err, &unfinished), errors.As(err, &later), errors.As(err, &program), errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrNoData):
		return exitIdentity
	case errors.Is(err, syscall.ENOSPC):
		return exitDiskFull
	case errors.Is(err, wal.ErrFatal):
		return exitStorage
	}
	return 0
}

// HashToken returns the hash of a token as a tokens file holds it.
func HashToken(token string) string { return auth.Hash(token) }
