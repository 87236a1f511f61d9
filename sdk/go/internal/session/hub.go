package session

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/frame"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/transport"
)

// Options is what the streams of a client need to know of it. All fields are required, but Ledger and Timeout.
type Options struct {
	// Namespace is that of all streams.
	Namespace string
	Address   string // host:port that messages name when no server is reached
	// Timeout bounds calls whose context has no deadline; 0 or less: it does not.
	Timeout time.Duration
	Logger  *slog.Logger
	Ledger  *ledger.Ledger // nil: no line is written
	// Error makes the error that users get of a fault. It is called for what leaves the engine as an error: the causes of contexts
	// of handlers, and the end of a worker.
	Error func(*fault.Fault) error
}

// Hub is what all streams of one client share. It may be used by many goroutines.
type Hub struct {
	Options
	// Router is set once, before the first stream is opened.
	Router *transport.Router

	// codec is that of the streams' frames.
	codec frame.Codec
	// token is never nil. A stream that is open is told of a change by its writer.
	token atomic.Pointer[string]
	// dialErr is the error of the last dial; nil after one that succeeded.
	dialErr atomic.Pointer[error]
	// outage is what the log was told of a server that is lost.
	outage outage
	// parts is the number of partitions of the namespace; 0: it is not known yet.
	parts atomic.Int32
	// pins has a bool for each queue of which it is known whether it is pinned.
	pins sync.Map
	// pinned is Pinned, made once: each create asks.
	pinned func(queue string) bool
	// turn names, modulo their number, the partition of tasks that say none.
	turn atomic.Uint32
}

// NewHub makes the hub of a client that begins with a token, which may be empty.
func NewHub(o Options, token string) *Hub {
	h := &Hub{Options: o, codec: frame.New()}
	h.pinned = h.Pinned
	h.token.Store(&token)
	h.turn.Store(rand.Uint32())
	return h
}

// Codec returns the codec of the streams' frames.
func (h *Hub) Codec() frame.Codec { return h.codec }

// Token returns the token of the calls that begin now.
func (h *Hub) Token() string { return *h.token.Load() }

// SetToken replaces the token for what begins from now on; open streams are told by their own methods.
func (h *Hub) SetToken(token string) { h.token.Store(&token) }

// Dialed takes in how a dial ended; nil is success.
func (h *Hub) Dialed(err error) {
	if err == nil {
		h.dialErr.Store(nil)
		return
	}
	h.dialErr.Store(&err)
}

// DialError returns the error of the last dial, nil when it succeeded.
func (h *Hub) DialError() error {
	if err := h.dialErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Lost takes in that a try to reach the server at an address failed.
func (h *Hub) Lost(address string) { h.outage.failed(h.Logger, address, h.whyLost()) }

// Reached takes in that the server was reached at an address.
func (h *Hub) Reached(address string) { h.outage.over(h.Logger, address) }

// whyLost returns why the server is not reached, as far as that is known.
func (h *Hub) whyLost() error {
	if err := h.DialError(); err != nil {
		return err
	}
	return transport.ErrNotReached
}

// Partitions is how many partitions the namespace has; 0 while that is not known.
func (h *Hub) Partitions() int { return int(h.parts.Load()) }

// Learned takes in how many partitions there are. A namespace never loses any.
func (h *Hub) Learned(n int) {
	for {
		old := h.parts.Load()
		if int32(n) <= old {
			return
		}
		if h.parts.CompareAndSwap(old, int32(n)) {
			h.Router.Widen(n)
			return
		}
	}
}

// Next is the partition of tasks that say none. It changes with each frame of creates, so that what goes out together stays
// together: frames and log entries are as large as with one partition.
func (h *Hub) Next(partitions int) int { return int(h.turn.Load() % uint32(max(partitions, 1))) }
