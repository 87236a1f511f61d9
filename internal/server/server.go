// Package server wires one process: data directory, store, log, node, tokens and edges. It is the
// one place that sees their concrete types. It decides how the parts are put together and what a
// server refuses to start with; what a request does is decided in the packages below.
//
// Main types:
//
//   - Options say what is wanted. withDefaults completes and checks them; nothing changes them
//     after that.
//   - Running is one server. Start makes it in a fixed order, Close takes it down in the reverse
//     one.
//   - Member is what the data directory remembers of the cluster that it belongs to.
//   - coordinator answers operators for the whole cluster: it asks other nodes over streams of the
//     transport.
//   - admin serves metrics, health, profiles and the operator's socket.
//
// How data flows: clients reach the api server over gRPC, REST or git; it proposes to the node.
// Other nodes reach the transport, which hands messages of the replicated log to the node and
// streams to handlers here: questions of operators, announcements of addresses, members, packs, and
// requests that another node forwards.
//
// Rules: a port is held before data is touched, so that two servers with the same settings fail
// early. A file that another user can change is not trusted. What the data directory remembers is
// written before it takes effect.
//
// The same package has the commands that work on a data directory without a server: Examine,
// Restore, AssessSurvivor and Recover.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/stream"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/githttp"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/replog/transport"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/rest"
	"github.com/millrace/millrace/internal/store"
)

// Durability is what an acknowledged write survives.
type Durability string

// The durabilities. Fsync survives a power cut; None survives a killed process only, and is for comparisons.
const (
	Fsync Durability = "fsync"
	None  Durability = "none"
)

// Options of a server. A zero field means its default where one is named.
type Options struct {
	Dir    string // of the data; made if missing; required
	Listen string // address of the gRPC edge; default 127.0.0.1:7081
	HTTP   string // address of the REST edge; default 127.0.0.1:7080, or a free port if Listen is on one; off: none
	Admin  string // address of the admin listener, which only reads; loopback only unless Insecure names it; default 127.0.0.1:7083, or a free port if Listen is on one; off: none
	// AdminSocket is the path of the socket by which an operator on the machine changes the cluster without a token; default
	// operator.sock in Dir; off: none.
	AdminSocket string
	Metrics     string   // address of a listener for metrics and health alone, which may be public; default off
	Insecure    []string // listeners that may be in plain text on an address that is not loopback: grpc, http, admin
	TLSCert     string   // PEM files of the edge's certificate and key; both or none
	TLSKey      string   //
	TokensFile  string   // YAML of hashed tokens; required unless Tokens is set
	Tokens      *auth.Static
	Durability  Durability // default fsync
	Name        string     // of this node; default n1
	Shards      int        // default 1; fixed when the data directory is made
	Memory      int64      // bytes for all buffers and caches; default 25 % of the machine, or of the least control group that the process is in; at least 128 MiB
	ArchiveDir  string     // receives log segments before they are reused; default none
	// LogQuota is how many bytes of log are kept for nodes that are behind; default 4 GiB, or a tenth of a smaller disk.
	LogQuota     int64
	SnapshotRate int64 // bytes per second in which a shard is sent a snapshot; default 64 MiB
	// DisconnectGrace is how long after its stream broke a session may be resumed before its leases end; 0 = they end by their own time.
	DisconnectGrace time.Duration
	Reserve         int64    // free bytes kept on the disk; default min(1 % of it, 1 GiB)
	MaxObject       int64    // bytes of one object of a push; default 100 MiB
	Git             string   // the program that packs and walks objects; default git, looked for in PATH. Without it git clients are refused
	Services        []string // whose doors are open: queue and any of kv, refs, search and ui; none: all
	UILabel         string   // TEXT or TEXT,COLOUR: what each page of the web interface shows, so that an operator sees which server it is
	Version         string
	Limits          edge.Limits // of the gRPC edge; a zero one means its default
	Cluster         config.Cluster
	EmbeddersFile   string // YAML of embedders of texts; none: the built-in one
	NoSearch        bool   // keep no index of collections, and answer no search
	VectorKernel    string // vnni, avx2 or purego; default the fastest of the machine
	Forward         bool   // REST requests that another node must serve are forwarded; else their callers are sent there

	KeyspaceMetrics bool // the admin listener tells what is done in keyspaces by their names

	descriptors config.Descriptors // what may be open at once
	openFiles   int64              // stands for RLIMIT_NOFILE in tests; 0: the process's

	OneCommitPerEntry bool // no group commit: for measuring what it is worth

	Logger *slog.Logger
	Clock  env.Clock
	Rand   env.Rand
	Net    env.Net
}

// Running is a server that serves. Its fields are set while it opens, by one goroutine, and only
// read afterwards, except for running, own, once and err. A nil part was not opened, or is not
// wanted.
type Running struct {
	Address        string // host:port of the gRPC edge
	HTTPAddress    string // of the REST edge; empty when it is off
	AdminAddress   string // of the admin listener; empty when it is off
	MetricsAddress string // of the listener for metrics and health; empty when it is off
	SocketPath     string // of the operator's socket; empty when it is off

	o     Options
	admin *admin
	web   web
	// Counts opened files. An open waits while there are too many.
	opens *store.Descriptors
	// The locked data directory, and what is open in it.
	dir   *store.Dir
	store *store.Store
	log   *wal.Log
	node  *node.Node
	// The node, once it runs. The transport starts before it, so its handlers read the node here.
	running  atomic.Pointer[node.Node]
	peers    *transport.Transport // nil without a cluster
	forwards *forwards            // of clients of other nodes; nil until they are served, or without a cluster
	asks     *coordinator
	// What the data directory remembers.
	own    ownMember
	socket *socket // nil until it is open, and when it is off

	stopAnnouncing func() // nil until it is begun, or without a cluster
	stopNoting     func() // ends notes of how long syncs take; nil until they are begun

	objects  *gitobj.Area // of repositories
	git      *githttp.Server
	api      *api.Server
	rest     *rest.Server   // over HTTP
	sessions *auth.Sessions // of browsers; nil: the web interface is closed
	embed    *embedders
	// The calls of clients that are under way; a call ends when its token is removed.
	calls    *auth.Calls      // of clients, under way
	refusals *auth.Refusals   // of tokens
	cert     *edgeCertificate // of the edges; nil without TLS
	watch    *config.Watcher  // of the files of tokens and cert
	// Receives the end of the gRPC edge, once.
	served chan error
	// Close runs once; err is its result for later calls.
	once sync.Once
	// err is what Close returned the first time.
	err error
}

// Start opens the data directory and serves. It returns when the node is ready: its log is replayed, and it leads or knows
// who does.
func Start(ctx context.Context, o Options) (*Running, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Running{o: o, served: make(chan error, 1), opens: store.NewDescriptors(store.SystemFS(), o.Clock, o.Logger)}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.closeParts())
	}
	return r, nil
}

// open makes all parts in order. On an error the caller closes the parts that exist.
//
//  1. Listeners are opened, but nothing is served on them except metrics and health, which tell
//     that the server is starting.
//  2. The data directory is locked, and log, store and node are opened: see openData.
//  3. Git, embedders and the API are made around the node.
//  4. It waits until the node knows a leader for every shard.
//  5. The API serves, first directly, then over REST and for other nodes.
func (r *Running) open(ctx context.Context) error {
	o := r.o
	fs := store.NewFS(r.opens.FS(0))
	defer context.AfterFunc(ctx, r.opens.Stop)() // a start that is given up waits for no file
	r.calls, r.refusals = auth.NewCalls(o.Tokens, o.Clock), auth.NewRefusals(o.Logger, o.Clock)
	if err := r.openCertificate(); err != nil {
		return err
	}
	// The port is taken first: two servers with the same settings fail here, before they touch
	// data.
	lis, err := r.listen()
	if err != nil {
		return err
	}
	if err := r.openHTTP(); err != nil {
		return errors.Join(err, lis.Close())
	}
	if err := errors.Join(r.openAdmin(), r.openMetrics()); err != nil {
		return errors.Join(err, lis.Close())
	}
	r.warnOfPlainText()
	// From here the port is held, so that two servers on one address fail before they touch data.
	if err := r.openData(ctx, fs); err != nil {
		return errors.Join(err, lis.Close())
	}
	closed := o.closedServices()
	if !slices.Contains(closed, api.ServiceRefs) {
		if err := r.openGit(ctx, store.NewFS(r.opens.FS(gitOpenWait))); err != nil {
			return errors.Join(err, lis.Close())
		}
	}
	memory := o.memory()
	if r.embed, err = openEmbedders(fs, &o, memory.Embeddings); err != nil {
		return errors.Join(err, lis.Close())
	}
	r.api, err = api.New(api.Options{
		Embedder: r.embed, NoSearch: o.NoSearch, Closed: closed,
		Backend: r.node, Auth: o.Tokens, Calls: r.calls, Refused: r.refusals.Note, Clock: o.Clock, Rand: o.Rand, Logger: o.Logger, Version: o.Version,
		Limits: o.Limits, Memory: edge.Memory{Frames: memory.Frames, Requests: memory.Requests, Sends: memory.Sends}, Backups: backups{r}, Operator: operator{r.asks},
		Refs: r.node, Objects: r.objectsOf(),
	})
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	if err := stream.Add(r.api, r.node); err != nil {
		return errors.Join(err, lis.Close())
	}
	r.rest, err = rest.New(r.api, rest.Options{
		Pages: r.pages(), Sessions: r.browserSessions(),
		Git: r.gitHandler(), Forward: o.Forward, Peers: r.forwarder(), PeerOf: r.peerOf, WebOf: r.webOf,
	})
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	r.watchFiles()
	r.admin.parts.Store(&parts{opens: r.opens, watch: r.watch, cert: r.cert, tokens: o.Tokens, refusals: r.refusals, clock: o.Clock, log: r.log, store: r.store, node: r.node, api: r.api, peers: r.peers, asks: r.asks, git: r.git, objects: r.objects, embed: r.embed})
	if err := r.node.WaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("wait for a leader: %w", err), lis.Close())
	}
	go func() { r.served <- r.api.Serve(lis) }()
	r.serveHTTP()
	r.serveForwards()
	return nil
}

// openData opens everything that lies in the data directory, in an order in which each step
// protects the next:
//
//  1. The directory is locked, so that no other process uses it.
//  2. The settings are compared with those that the directory was made with, before its data is
//     opened.
//  3. Store and log are opened.
//  4. The transport starts. A new directory then asks the other nodes who it is, and only after
//     that writes what it remembers: a crash before makes it ask again.
//  5. The node opens, replays the log, and answers the other nodes.
func (r *Running) openData(ctx context.Context, fs env.FS) (err error) {
	o, memory := r.o, r.o.memory()
	if r.dir, err = store.OpenDir(fs, o.Dir, o.Rand, o.Clock.Wall()); err != nil {
		return err
	}
	if err := o.keepPrivate(); err != nil {
		return err
	}
	own, bound, err := checkMember(fs, o.Dir, o.member())
	if err != nil {
		return err
	}
	if err := r.openSocket(); err != nil {
		return err
	}
	if err := r.roomToStart(fs); err != nil {
		return err
	}
	if r.store, err = store.Open(store.Options{
		FS: r.opens.FS(0), Dir: filepath.Join(o.Dir, "store"), Clock: o.Clock, MemoryBytes: memory.Store, OpenFiles: o.descriptors.StoreTables(),
		LayerBytes: memory.Layer, Logger: o.Logger,
	}); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if r.log, err = wal.Open(wal.Options{
		FS: obs.TimeSyncs(fs, o.Clock, r.admin.syncs), Clock: o.Clock, Dir: filepath.Join(o.Dir, "wal"), NoSync: o.Durability == None, ArchiveDir: o.ArchiveDir,
		SegmentBytes: segmentBytes(fs, o.Dir, o.Reserve), QueueBytes: memory.LogQueue, CacheBytes: memory.LogCache,
	}); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	n := node.Options{
		Name: o.Name, Shards: o.Shards, Dir: o.Dir, FS: fs, Clock: o.Clock, Rand: o.Rand, Logger: o.Logger, Log: r.log,
		Store: r.store, Ballast: r.dir, Unsynced: o.Durability == None, DiskReserve: uint64(o.Reserve),
		LogQuota: uint64(o.LogQuota), SnapshotRate: o.SnapshotRate, QueueBytes: memory.Proposals,
		HistoryBytes: memory.History, Resident: residentMemory, SearchBytes: memory.Search, NoSearch: o.NoSearch || slices.Contains(o.closedServices(), api.ServiceSearch), VectorKernel: o.VectorKernel, InboxBytes: memory.PeerInbox, OneCommitPerEntry: o.OneCommitPerEntry,
		Queues: uint32(o.Limits.Queues), Namespaces: uint32(o.Limits.Namespaces), DisconnectGrace: o.DisconnectGrace,
	}
	// A directory of an early version remembers nothing but has a log, so it cannot be given to a
	// cluster of several nodes.
	if !bound && len(o.Cluster.Peers) > 0 && r.log.State(0).Last > 0 {
		return &OtherMemberError{Dir: o.Dir, Setting: "a cluster", Made: "that it does not name", Given: o.Cluster.ID}
	}
	if err := r.openPeers(fs, own, bound); err != nil {
		return err
	}
	if !bound { // only now: the settings have been held to the certificates
		if own, err = r.findPlace(ctx, own); err != nil {
			return err
		}
		if err := writeMember(fs, o.Dir, own); err != nil {
			return err
		}
	}
	if r.peers != nil {
		r.peers.SetReplica(own.replica())
	}
	r.own.member = own
	n.OnFormat = func(format uint16) error { return r.keepFormat(fs, format) }
	if err := r.placeNode(fs, &n, own); err != nil {
		return err
	}
	if r.node, err = node.Open(n); err != nil {
		return err
	}
	r.running.Store(r.node)
	r.stopNoting = r.asks.syncs.begin(o.Clock, r.admin.syncs)
	r.asks.begin(r.node)
	r.startAnnouncing()
	return nil
}

// roomToStart releases the ballast, a file that only reserves space, if the disk has less free
// space than the reserve: a start writes a little before the node watches the disk, and would wait
// for space for ever. The node makes the ballast again when there is space.
func (r *Running) roomToStart(fs env.FS) (err error) {
	reserve := r.o.Reserve
	if reserve == 0 {
		if reserve, err = r.dir.BallastSize(); err != nil {
			return nil //nolint:nilerr // not every file system can tell
		}
	}
	free, _, err := fs.Disk(r.o.Dir)
	if err != nil || free >= uint64(reserve) || !r.dir.HasBallast() {
		return nil //nolint:nilerr // as above
	}
	if _, err := r.dir.ReleaseBallast(); err != nil {
		return err
	}
	r.o.Logger.Warn("disk full: the ballast is released", "bytes", reserve)
	return nil
}

// segmentBytes returns the size of log segments for the disk of dir, from 256 KiB to 64 MiB: at
// most 1/128 of the disk where possible, and at most half of the ballast, which makes room for one
// segment when the disk is full. reserve is the size of the ballast, 0 the default of BallastSize;
// one below 16 MiB counts as that, since each segment takes a descriptor.
func segmentBytes(fs env.FS, dir string, reserve int64) int64 {
	size, most := int64(64<<20), int64(64<<20)
	if reserve > 0 {
		most = max(reserve/2, 8<<20)
	}
	if _, total, err := fs.Disk(dir); err == nil {
		most = min(most, int64(total/128))
	}
	for size > 256<<10 && size > most {
		size /= 2
	}
	return size
}

// Fatal delivers the error that ends the node; nothing is served after it.
func (r *Running) Fatal() <-chan error { return r.node.Fatal() }

// Node returns the node, for tests and for embedding.
func (r *Running) Node() *node.Node { return r.node }

// Close stops serving: other nodes take over what this one leads, streams are told to go, calls in flight end, the log is
// sealed. It waits up to grace for calls, and at most handOverWait for the others.
func (r *Running) Close(grace time.Duration) error {
	r.once.Do(func() {
		r.admin.stopping.Store(true)
		r.handOver()
		if r.api != nil {
			r.api.Shutdown(grace)
			r.err = <-r.served
		}
		r.err = errors.Join(r.err, r.closeParts())
	})
	return r.err
}

// closeParts closes whatever was opened, in this order: first what takes requests, then what
// answers them, then the node, log, store and directory that they use. It joins all errors. It is
// also used for a start that failed half-way.
func (r *Running) closeParts() error {
	all := []error{r.closeHTTP()}
	if r.forwards != nil {
		all = append(all, <-r.forwards.served)
	}
	if r.watch != nil {
		r.watch.Close()
	}
	if r.socket != nil {
		all = append(all, r.socket.close())
	}
	if r.calls != nil {
		r.calls.Close()
		r.refusals.Close()
	}
	if r.admin != nil {
		all = append(all, r.admin.close())
	}
	if r.stopAnnouncing != nil {
		r.stopAnnouncing()
	}
	if r.stopNoting != nil {
		r.stopNoting()
	}
	if r.peers != nil {
		all = append(all, r.peers.Close())
	}
	r.opens.Stop() // connections are closed: what cannot be opened now is not waited for
	if r.objects != nil {
		all = append(all, r.objects.Close())
	}
	if r.embed != nil {
		all = append(all, r.embed.close())
	}
	if r.node != nil {
		r.node.Close()
	}
	if r.log != nil {
		all = append(all, r.log.Close())
	}
	if r.store != nil {
		all = append(all, r.store.Close())
	}
	if r.dir != nil {
		all = append(all, r.dir.Close())
	}
	return errors.Join(all...)
}
