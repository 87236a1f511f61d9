package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/server"
)

// serveOptions are the settings of serve. Flags fill them first; fillSettings then fills what no
// flag set from the environment (MILLRACE_SERVE_<FLAG>) and from the file. Fields here are texts or
// choices that serveUntil turns into server.Options.
type serveOptions struct {
	// The options of the server, which most flags fill directly.
	server.Options
	// Development mode: one admin token, loopback addresses only.
	dev bool
	// Where the development token is kept; empty: nowhere.
	tokenFile string
	// The token that admits a new node to a cluster.
	joinToken secretFlags
	// File that exists while the server serves.
	readyFile string
	// Path of the configuration file; empty: none.
	config   string
	logLevel string
	// Sizes in bytes, with an optional unit. An empty memory is the server's default.
	memory    string
	maxObject string
	// How long calls in flight may take after the server was told to stop.
	grace time.Duration
	// --limits and --settings print and do not serve.
	limits bool
	// The node's place in a cluster; zero for a single-node server.
	cluster config.Cluster

	// groupCommit says that commits that arrive together share a log entry.
	groupCommit bool
	settings    bool
	// Variables that look like settings and are not; the server warns of them once it has a log.
	unread []unread
}

// serveCmd makes the command that runs a server.
func (a *app) serveCmd() *cobra.Command {
	o := &serveOptions{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server on a data directory",
		Long: `Serve runs one durable node on a data directory. Every call needs a token: --tokens names a file
of hashed ones (see millrace token), --dev makes a single admin token and binds to loopback only.

A flag wins over the environment variable MILLRACE_SERVE_<FLAG>, in capitals and with underscores
such as MILLRACE_SERVE_LOG_LEVEL, which wins over the key <flag> in snake_case of the --config file.
Unknown keys and variables are refused, and so are empty values.

Every limit of the gRPC edge is a setting too: --limit-<name>, see --limits.

SIGINT and SIGTERM end the calls in flight within --grace and seal the log; the second of them ends the
process at once, which loses nothing that was acknowledged. SIGHUP does not end the server, nor does
a closed standard output.

Tokens and certificates are read again when their files change, and on SIGHUP. A file that cannot be
used, or that holds no token, is refused with a line in the log: what was read before stays in force.

The process ends with 20 after a failed write or sync, 21 when stored bytes are damaged, 22 when
the disk is full beyond its reserve, 23 when the directory is not this server's.`,
		Example: `  millrace serve --dev --data ./data --token-file ./token
  millrace serve --data /var/lib/millrace --tokens /etc/millrace/tokens.yaml --listen 127.0.0.1:7081`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.limits {
				return a.printLimits(o)
			}
			if o.settings {
				printSettings(a.out, c.Flags(), &o.Options)
				return nil
			}
			if err := fillSettings(c.Flags(), o.config); err != nil {
				return usageError{err}
			}
			o.unread = unreadOf(c.Flags())
			server.PrivateFiles()
			return a.serve(c.Context(), o)
		},
	}
	o.flags(c.Flags())
	return c
}

// flags makes the flags of serve. A flag is a setting too, unless notSettings lists it. The limits
// of the edge are hidden flags, as there are many.
func (o *serveOptions) flags(f *pflag.FlagSet) {
	// Where the data and the settings are, and the listeners.
	f.StringVar(&o.config, "config", "", "YAML file with these settings")
	f.StringVar(&o.Dir, "data", "", "data directory; created if it does not exist (required)")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7081", "address of the gRPC listener")
	f.StringVar(&o.HTTP, "http", "", "address of the REST listener, or off; default 127.0.0.1:7080, or a free port if --listen has port 0")
	f.StringVar(&o.Admin, "admin", "", "address of the admin listener, or off: metrics, health, status and profiles, read-only and without a token; default 127.0.0.1:7083, or a free port if --listen has port 0")
	f.StringVar(&o.AdminSocket, "admin-socket", "", "path of the operator socket, or off: root and the server's own user on this machine operate the cluster through it without a token; default operator.sock in --data")
	f.StringVar(&o.Metrics, "metrics", "off", "address of a listener for only /metrics, /healthz and /readyz, or off: plain text, without a token, and allowed on a public address")
	f.BoolVar(&o.groupCommit, "group-commit", true, "gather commits into log entries; false: one commit per entry, to measure what group commit is worth")
	_ = f.MarkHidden("group-commit")
	// Who may call.
	f.BoolVar(&o.dev, "dev", false, "development mode: make one admin token, print it, and listen on loopback addresses only")
	f.StringVar(&o.tokenFile, "token-file", "", "with --dev: file that keeps the token; a token in it is used again")
	f.StringVar(&o.TokensFile, "tokens", "", "YAML file with the hashes of tokens; read again when it changes, and on SIGHUP")
	f.StringVar((*string)(&o.Durability), "durability", "fsync", "fsync: a write is on disk before it is acknowledged; none: a power cut loses acknowledged writes (for comparisons only)")
	f.StringVar(&o.Name, "name", "n1", "name of this node")
	// What the server may use, and how it keeps data.
	f.IntVar(&o.Shards, "shards", 1, "number of shards of a new data directory, 1 to 64; fixed for the directory, and the same on all nodes of a cluster")
	f.StringVar(&o.memory, "memory", "", "memory for buffers and caches, such as 512MiB; default a quarter of the machine's memory, or of the control group's limit")
	f.StringVar(&o.TLSCert, "tls-cert", "", "PEM file with the certificate of the gRPC and REST listeners; read again, with its key, when a file changes, and on SIGHUP")
	f.StringVar(&o.TLSKey, "tls-key", "", "PEM file with the key of --tls-cert")
	f.Var((*insecureValue)(&o.Insecure), "insecure", "listeners that are allowed to use plain text on an address that is not loopback: a list of grpc, http and admin; without a value grpc,http")
	f.Lookup("insecure").NoOptDefVal = insecureBare
	f.StringVar(&o.ArchiveDir, "log-archive-dir", "", "directory that gets a copy of each log segment before the segment is reused")
	f.Int64Var(&o.Reserve, "disk-reserve", 0, "bytes of the disk to keep free: with less, new work is refused; default 1 % of the disk, at most 1 GiB")
	f.Int64Var(&o.LogQuota, "log-quota", 0, "bytes of log to keep for nodes that are behind; a node that needs older entries gets a snapshot; default 4 GiB, or a tenth of a smaller disk")
	f.StringVar(&o.maxObject, "git-object", "100MiB", "size limit of one git object in a push, such as a file's content")
	f.StringVar(&o.Git, "git", "git", "git program that serves git clients: a path, or a name to look up in PATH")
	f.Var((*listValue)(&o.Services), "services", "services to enable, such as queue,refs: a list of queue (required), kv, refs, search and ui; a disabled service has no routes and no methods; default all")
	f.StringVar(&o.UILabel, "ui-label", "", "text that each page of the web interface shows, such as PRODUCTION, and after a comma its colour, such as red or #c00: so that an operator sees which server it is")
	f.Int64Var(&o.SnapshotRate, "snapshot-rate", 64<<20, "limit in bytes per second at which this node fetches snapshots")
	// Search.
	f.StringVar(&o.EmbeddersFile, "embedders", "", "YAML file of the embedders, which make vectors of texts; default: only the built-in one, which counts words")
	f.BoolVar(&o.NoSearch, "no-search", false, "keep no search index on this node, and refuse searches here")
	f.StringVar(&o.VectorKernel, "vector-kernel", "", "instructions that compare vectors: vnni, avx2 or purego; default the fastest that this machine has")
	f.BoolVar(&o.Forward, "forward", false, "in a cluster, forward a REST request that another node must serve, instead of redirecting the client with 307; ?forward=0 or ?forward=1 overrides this for one request")
	f.BoolVar(&o.KeyspaceMetrics, "keyspace-metrics", false, "report metrics of the hundred most used keyspaces by tenant, namespace and name, instead of only the sum over all keyspaces")
	// What the process tells, and how it ends.
	f.StringVar(&o.readyFile, "ready-file", "", "file that exists while the server serves: a JSON object with its addresses and process id")
	f.StringVar(&o.logLevel, "log-level", "info", "lowest level of log lines: debug, info, warn or error")
	spanVar(f, &o.grace, "grace", 25*time.Second, "how long calls in flight may go on after the server is told to stop")
	spanVar(f, &o.DisconnectGrace, "disconnect-grace", server.DisconnectGrace, "how long a worker whose stream broke has to come back before its tasks are given to others, unless their leases are renewed meanwhile; at most 1h, 0s: until the leases end")
	f.BoolVar(&o.limits, "limits", false, "print all limits with their defaults and highest values, and exit")
	clusterFlags(f, &o.cluster, &o.joinToken)
	f.BoolVar(&o.settings, "settings", false, "print all settings as Markdown, and exit")
	for _, row := range o.Limits.Rows() {
		name := limitFlag(row.Key)
		f.Int64Var(row.Value, name, 0, fmt.Sprintf("default %d, at most %d", row.Default, row.Max))
		_ = f.MarkHidden(name) // there are many; --limits lists them
	}
}

// printLimits prints all limits of the edge with their defaults and highest values, and how the
// file descriptors of this process would be shared out.
func (a *app) printLimits(o *serveOptions) error {
	for _, row := range o.Limits.Rows() {
		v := map[string]any{"limit": row.Key, "default": row.Default, "max": row.Max}
		if err := a.print(v, func(w io.Writer) {
			fmt.Fprintf(w, "%-22s %15d  at most %d\n", row.Key, row.Default, row.Max)
		}); err != nil {
			return err
		}
	}
	d, err := o.Descriptors()
	if err != nil {
		return err
	}
	for _, row := range d.Shares() {
		v := map[string]any{"descriptors": row.Name, "share": row.Bytes}
		if err := a.print(v, func(w io.Writer) { fmt.Fprintf(w, "descriptors: %-12s %12d  %s\n", row.Name, row.Bytes, row.Meaning) }); err != nil {
			return err
		}
	}
	return nil
}

// fillSettings sets flags that were not given: from the environment, else from the file. The file
// must not be writable by other users. Unknown keys and variables are errors.
func fillSettings(flags *pflag.FlagSet, file string) error {
	var content []byte
	if file != "" {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			return err
		}
		if err := server.CheckTrusted(file); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	return config.Fill(settingsOf(flags), settingsVariables, os.Environ(), content)
}

// gcPercent lets the heap grow to four times what is alive in it before it is collected (GOGC).
// What is alive is small compared with the server's memory; when it is not, the memory limit makes
// the collector run earlier. At Go's default of 100, collecting takes a tenth of the time of a busy
// server.
const gcPercent = 300

// fewProcs is the number of cores below which the server runs Go code on one thread more than it
// has cores. A compaction, the writing of a layer or the collector keeps a thread for milliseconds.
// On two cores, two of these at once would leave no thread to acknowledge what the log has taken,
// although the operating system could share the cores more finely. With more cores the additional
// thread only costs processor time.
const fewProcs = 4

// serve runs a server and looks after its ready file, which must exist only while the server
// serves: it removes the file of an earlier run before anything else, and its own at the end. After
// a crash the file stays until the next start.
func (a *app) serve(ctx context.Context, o *serveOptions) (err error) {
	if o.readyFile == "" {
		return a.serveUntil(ctx, o)
	}
	if err := removeReady(o.readyFile); err != nil {
		return usageError{fmt.Errorf("--ready-file: %w", err)}
	}
	defer func() { err = errors.Join(err, removeReady(o.readyFile)) }()
	return a.serveUntil(ctx, o)
}

// serveUntil checks the settings, runs a server until ctx ends or the server cannot go on, and
// closes it.
//
//  1. It checks all settings, so that a wrong one is reported before the data directory is
//     touched.
//  2. It sets the limits of the Go runtime, unless the environment sets them.
//  3. It catches SIGHUP before the server starts, because its default would end a server that is
//     starting.
//  4. It starts the server and announces it.
//  5. It waits: SIGHUP reads tokens and certificates again, the end of ctx closes the server
//     within --grace, and a fatal error closes it at once and decides the exit code.
func (a *app) serveUntil(ctx context.Context, o *serveOptions) (err error) {
	if o.Dir == "" {
		return usageError{errors.New("--data is required")}
	}
	if err := o.Limits.Check(); err != nil {
		return usageError{err}
	}
	if o.cluster.Token, err = o.joinToken.read(); err != nil {
		return err
	}
	if err := o.cluster.Check(); err != nil {
		return usageError{err}
	}
	o.Cluster = o.cluster
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level: %w", err)}
	}
	if o.memory != "" {
		n, err := parseBytes(o.memory)
		if err != nil {
			return usageError{fmt.Errorf("--memory: %w", err)}
		}
		o.Memory = n
	}
	if o.MaxObject, err = parseBytes(o.maxObject); err != nil {
		return usageError{fmt.Errorf("--git-object: %w", err)}
	} else if o.MaxObject < 1<<20 {
		return usageError{errors.New("--git-object: must be at least 1MiB")}
	}
	// Variables of the Go runtime win over what the server would choose.
	if os.Getenv("GOMEMLIMIT") == "" && o.Memory > 0 {
		debug.SetMemoryLimit(o.GoMemory()) // the collector works harder before the process grows beyond its share
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if cores := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && cores < fewProcs {
		runtime.GOMAXPROCS(cores + 1)
	}
	o.Version, o.OneCommitPerEntry = version, !o.groupCommit
	o.Logger = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
	for _, v := range o.unread {
		o.Logger.Warn("environment variable is not read", "variable", v.short, "instead", v.whole)
	}
	var token string
	if o.dev {
		if token, err = devToken(o.tokenFile, func(what string) { o.Logger.Warn(what) }); err != nil {
			return err
		}
		if o.Options, err = server.Dev(o.Options, token); err != nil {
			return usageError{err}
		}
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP) // from here on it ends no server, one that is starting neither
	defer signal.Stop(again)
	s, err := server.Start(ctx, o.Options)
	if err != nil {
		return err
	}
	a.serves = true
	if err := a.announce(o, s, token); err != nil {
		return errors.Join(err, s.Close(0))
	}
	for {
		select {
		case <-again:
			_ = s.Reload() // the log tells what was refused
		case <-ctx.Done():
			return s.Close(o.grace)
		case err := <-s.Fatal():
			_ = s.Close(0) // the first error tells why; what follows from it adds nothing
			return err
		}
	}
}

// removeReady removes the ready file if it exists and is a regular file. Anything else at the path
// stays: writing the file reports it.
func removeReady(file string) error {
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // the write of it tells what is wrong
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unread is a variable of the environment that lacks the word SERVE of a setting's name (short), so
// it has no effect, and the name that it should have (whole).
type unread struct{ short, whole string }

// unreadOf returns the variables of the environment that were probably meant as settings. A
// variable that clients read, such as MILLRACE_TOKEN, is not among them, as no setting has that
// name.
func unreadOf(flags *pflag.FlagSet) (out []unread) {
	for _, s := range settingsOf(flags) {
		v := unread{s.Variable("MILLRACE_"), s.Variable(settingsVariables)}
		if _, set := os.LookupEnv(v.short); set {
			out = append(out, v)
		}
	}
	return out
}

// announce tells that the server serves. It writes the ready file under another name and renames
// it, so that a reader never sees a part of it. A failure to print is ignored, a failure to write
// the file ends the server: a supervisor may wait for it. The token is printed only if no file
// keeps it. In development mode a link signs a browser in; it is never in a file.
func (a *app) announce(o *serveOptions, s *server.Running, token string) error {
	// The form of the ready file and of the output with --json. Addresses are those that the
	// listeners have, with the ports that were chosen.
	ready := struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http,omitempty"`
		Admin   string `json:"admin,omitempty"`
		Metrics string `json:"metrics,omitempty"`
		Socket  string `json:"socket,omitempty"`
		PID     int    `json:"pid"`
		Data    string `json:"data"`
		SignIn  string `json:"sign_in,omitempty"`
	}{s.Address, s.HTTPAddress, s.AdminAddress, s.MetricsAddress, s.SocketPath, os.Getpid(), o.Dir, ""}
	if o.readyFile != "" {
		b, err := json.Marshal(ready)
		if err != nil {
			return err
		}
		tmp := o.readyFile + ".tmp"
		if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
			return err
		}
		if err := os.Rename(tmp, o.readyFile); err != nil {
			return err
		}
	}
	if token != "" {
		link, err := s.SignInLink(token)
		if err != nil {
			return err
		}
		ready.SignIn = link // it is good once: no file keeps it
	}
	_ = a.print(ready, func(w io.Writer) { // the reader may be gone: the server goes on serving
		fmt.Fprintf(w, "millrace serves %s on %s (durability %s)\n", o.Dir, s.Address, o.Durability)
		if s.HTTPAddress != "" {
			fmt.Fprintf(w, "REST on %s (see /v1/openapi.json)\n", s.HTTPAddress)
		}
		if ready.SignIn != "" {
			fmt.Fprintf(w, "web interface, signs in once within a minute (millrace ui makes another link): %s\n", ready.SignIn)
		}
		if s.AdminAddress != "" {
			fmt.Fprintf(w, "metrics, health and profiles on http://%s\n", s.AdminAddress)
		}
		if s.MetricsAddress != "" {
			fmt.Fprintf(w, "metrics and health on http://%s\n", s.MetricsAddress)
		}
		if s.SocketPath != "" {
			fmt.Fprintf(w, "operator's socket %s\n", s.SocketPath)
		}
		if token != "" && o.tokenFile == "" {
			fmt.Fprintf(w, "token, shown once: %s\n", token)
		}
		if o.tokenFile != "" {
			fmt.Fprintf(w, "token in %s\n", o.tokenFile)
		}
	})
	return nil
}

// parseBytes reads a number of bytes of 0 or more, with an optional KiB, MiB or GiB.
func parseBytes(s string) (int64, error) {
	for suffix, shift := range map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30, "": 0} {
		digits, ok := strings.CutSuffix(s, suffix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64); err == nil && n >= 0 && n <= (1<<62)>>shift {
			return n << shift, nil
		}
	}
	return 0, fmt.Errorf("%q must be a number of bytes, such as 512MiB", s)
}
