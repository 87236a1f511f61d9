package millrace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/session"
	"github.com/millrace/millrace/sdk/go/internal/transport"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Client is a connection to one namespace. It may be used by many goroutines.
type Client struct {
	// opts does not change; router is the way to the servers.
	opts   options
	router *transport.Router
	hub    *session.Hub       // what all of the client's streams share
	calls  *session.Producers // creates and commits

	// The generated clients of the services, all over router.
	tasks   millracev1.TaskServiceClient
	kv      millracev1.KVServiceClient
	refs    millracev1.RefServiceClient
	queues  millracev1.QueueServiceClient
	search  millracev1.SearchServiceClient
	spaces  millracev1.KeyspaceServiceClient
	tenants millracev1.TenantServiceClient
	bulk    millracev1.BulkServiceClient
	crons   millracev1.CronServiceClient
	batches millracev1.BatchServiceClient
	// Limiters.
	limiters millracev1.LimiterServiceClient
	present  millracev1.WorkerServiceClient // who takes tasks
	errors   millracev1.ErrorServiceClient  // groups of errors
	server   millracev1.ServerServiceClient

	mu sync.Mutex // guards the fields below
	// closed says that Close was called.
	closed  bool
	workers map[*Worker]struct{} // that run
	// streams are those that were not closed.
	streams map[*KVStream]struct{}
}

const (
	recvBytes   = 16 << 20 // an assignment of several large payloads
	closeWithin = 10 * time.Second
)

// Dial makes a client. It does not wait for the server: the first call does, and fails when its own context ends first, or after
// the time of Timeout if that has no deadline.
// ctx bounds nothing but Dial itself. Errors: an address that is not host:port; a ctx that has ended.
func Dial(ctx context.Context, opts ...Option) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return newClient(o)
}

// newClient makes a client that goes by o.
func newClient(o options) (c *Client, err error) {
	c = &Client{opts: o, workers: map[*Worker]struct{}{}, streams: map[*KVStream]struct{}{}}
	c.hub = session.NewHub(session.Options{
		Namespace: o.namespace, Address: o.address, Timeout: o.timeout, Logger: o.logger, Ledger: ledger.New(o.ledger),
		Error: func(f *fault.Fault) error { return errorOf(f) },
	}, o.token)
	if c.router, err = c.newRouter(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", o.address, err)
	}
	c.hub.Router = c.router
	c.tasks, c.kv = millracev1.NewTaskServiceClient(c.router), millracev1.NewKVServiceClient(c.router)
	c.refs = millracev1.NewRefServiceClient(c.router)
	c.queues, c.server = millracev1.NewQueueServiceClient(c.router), millracev1.NewServerServiceClient(c.router)
	c.search = millracev1.NewSearchServiceClient(c.router)
	c.bulk, c.crons = millracev1.NewBulkServiceClient(c.router), millracev1.NewCronServiceClient(c.router)
	c.batches = millracev1.NewBatchServiceClient(c.router)
	c.limiters = millracev1.NewLimiterServiceClient(c.router)
	c.spaces, c.tenants = millracev1.NewKeyspaceServiceClient(c.router), millracev1.NewTenantServiceClient(c.router)
	c.present, c.errors = millracev1.NewWorkerServiceClient(c.router), millracev1.NewErrorServiceClient(c.router)
	c.calls = session.NewProducers(c.hub)
	return c, nil
}

// dialOptions are those of each connection of gRPC, to the node at an address.
func (c *Client) dialOptions(w *transport.Router, address string) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if c.opts.tls != nil {
		creds = credentials.NewTLS(withServerName(c.opts.tls, address))
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(session.SDKName()), // lists of workers show it
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.opts.dial(ctx, address)
			switch {
			case err == nil:
				c.hub.Dialed(nil)
			case w.Using() == transport.Stream: // else no call waits for this connection
				c.hub.Dialed(err)
			}
			return conn, err
		}),
		// Half the base with a jitter of 1 is an even draw from 0 to the base, doubling to 5 s.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: retry.Base / 2, Multiplier: 2, Jitter: 1, MaxDelay: retry.Max / 2},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: wire.PingEvery, Timeout: wire.PingTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(recvBytes), grpc.MaxCallSendMsgSize(recvBytes)),
		grpc.WithInitialConnWindowSize(8 << 20), // a fixed window, wide enough that no stream waits for its updates
		grpc.WithInitialWindowSize(4 << 20),
		grpc.WithWriteBufferSize(64 << 10),
		grpc.WithReadBufferSize(64 << 10),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(c.outgoing(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(c.outgoing(ctx), desc, cc, method, opts...)
		}),
	}
}

// withServerName names the host of an address as the one whose certificate is wanted, unless cfg names another.
func withServerName(cfg *tls.Config, address string) *tls.Config {
	if cfg.ServerName != "" {
		return cfg
	}
	host, _, _ := net.SplitHostPort(address) // checked before
	cfg = cfg.Clone()
	cfg.ServerName = host
	return cfg
}

// outgoing adds token and namespace to the metadata of a call.
func (c *Client) outgoing(ctx context.Context) context.Context {
	kv := []string{"millrace-namespace", c.opts.namespace}
	if t := c.hub.Token(); t != "" {
		kv = append(kv, "authorization", "Bearer "+t)
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

// Conn returns the connection, for the generated clients of gen/millrace/v1. Token and namespace are added to each call.
// Over REST it serves them too.
func (c *Client) Conn() grpc.ClientConnInterface { return c.router }

// Transport returns the transport in use: TransportStream or TransportREST.
func (c *Client) Transport() TransportMode { return TransportMode(c.router.Using()) }

// SetToken replaces the token, for open streams too, before the one in use expires.
func (c *Client) SetToken(token string) {
	c.hub.SetToken(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.Reauth(token)
	for w := range c.workers {
		w.engine.Reauth(token)
	}
	for s := range c.streams {
		s.puts.Reauth(token)
	}
}

// Close stops the client's workers as the end of their context does, waits for calls that are under way, and closes
// the connection. Calls that have no answer after 10 s end as unknown, those that never left as refused.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	var running []*Worker
	for w := range c.workers {
		running = append(running, w)
	}
	streams := slices.Collect(maps.Keys(c.streams))
	c.calls.Seal()
	c.mu.Unlock()
	for _, w := range running {
		w.engine.Quit()
	}
	for _, w := range running {
		<-w.ended
	}
	var drained sync.WaitGroup
	drained.Go(func() { c.calls.Close(closeWithin) })
	for _, s := range streams {
		drained.Go(func() { _ = s.Close() }) // never fails
	}
	drained.Wait()
	c.router.Close()
	return nil
}

// enter registers a running worker.
func (c *Client) enter(w *Worker) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.workers[w] = struct{}{}
	return nil
}

// leave takes a worker off the list whose Run has ended.
func (c *Client) leave(w *Worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.workers, w)
}

// read carries out a unary call that changes nothing: until ctx ends, or its time is over, it is tried again when the server cannot
// be reached. It goes to the leader of a partition, which may be anywhere.
func (c *Client) read(ctx context.Context, partition int, call func(ctx context.Context) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.repeat(ctx, partition, false, call)
}

// change is read for a call that changes something and may be repeated. A refusal after a try whose outcome is unknown
// proves nothing: that try may have been the reason for it.
func (c *Client) change(ctx context.Context, partition int, call func(ctx context.Context) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.repeat(ctx, partition, true, call)
}

// last is read for a call that lasts, or opens a stream that does: it has no time of its own, and leaves ctx as it is.
func (c *Client) last(ctx context.Context, partition int, call func(ctx context.Context) error) error {
	return c.repeat(ctx, partition, false, call)
}

// bounded is ctx with the client's timeout, if it has no deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.opts.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.opts.timeout)
}

// routed is ctx for a unary call about a partition; r is nil where there are not several.
func (c *Client) routed(ctx context.Context, partition int) (context.Context, *transport.Route) {
	if c.hub.Partitions() <= 1 {
		return ctx, nil
	}
	r := &transport.Route{Partition: partition}
	return transport.WithRoute(ctx, r), r
}

// repeat is read, change and last. Where the error names the partition's leader the call goes there at once, a few times in a row; else
// it waits as the error asks.
func (c *Client) repeat(ctx context.Context, partition int, changes bool, call func(ctx context.Context) error) error {
	unsure := false
	ctx, r := c.routed(transport.Repeatable(ctx), partition)
	for try := 0; ; try++ {
		err := call(ctx)
		if err == nil {
			return nil
		}
		f := faultOf(err)
		if ctx.Err() != nil {
			out := fault.Ended(ctx, unsure || f.Unknown, f.Message)
			if err := c.hub.DialError(); err != nil {
				out.Code, out.Message = wire.Unavailable, "server "+c.opts.address+" is not reached: "+err.Error()
			}
			return errorOf(out)
		}
		if c.isClosed() {
			return errorOf(fault.Closed())
		}
		if unsure {
			f.Unknown = true
		}
		unsure = changes && f.Unknown
		if c.router.Redirect(r, f.Refusal()) && try < retry.Hops {
			continue
		}
		if f.Patience() == 0 {
			return errorOf(f)
		}
		if !retry.Sleep(ctx, f.Wait(try)) {
			f.Cause = fault.Ended(ctx, false, "").Cause // the last answer tells more than that the time was over
			return errorOf(f)
		}
	}
}

// isClosed reports whether Close was called.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// record ends a line of the ledger with what err says of its outcome. Without a ledger it does nothing.
func (c *Client) record(line ledger.Line, at *millracev1.At, err error) {
	if c.hub.Ledger == nil {
		return
	}
	code := ""
	out := OutcomeOf(err)
	if e, ok := errors.AsType[*Error](err); ok && out == Refused {
		code = string(e.Code)
	}
	c.hub.Ledger.End(line, at, out.String(), code)
}
