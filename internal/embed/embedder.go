package embed

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/vector"
)

// Kinds of embedders.
const (
	KindLexical = "lexical" // built in
	KindOllama  = "ollama"  // POST /api/embed
	KindOpenAI  = "openai"  // POST /v1/embeddings
	KindTEI     = "tei"     // POST /embed
	KindNone    = "none"    // it makes no vectors: clients bring their own
)

// Options of one embedder. A zero field means its default.
type Options struct {
	Kind  string // required
	URL   string // of the provider, http or https; its path comes before the kind's own. Required unless lexical
	Model string // as the provider calls it; required unless lexical or tei. Of none, the id as it is
	Dim   int    // of the vectors; 0 = what the first answer has
	Key   string // sent as a bearer token, if any
	// What comes before each text; both are part of the model's id.
	QueryPrefix    string
	DocumentPrefix string
	MaxText        int           // bytes of a text, beyond which it is cut; default 32 KiB, most 1 MiB
	Timeout        time.Duration // of one request; default 10 s
	InFlight       int           // requests at a time; default 4
	Waiting        int           // callers that wait for a request; default 256
	Batch          int           // texts of one request; default 32, fewer where their vectors would not fit into an answer
	Delay          time.Duration // that a text waits for others; default 2 ms

	Cache *Cache    // shared with others; nil = one of the default size
	Clock env.Clock // required unless lexical, as are Net and Rand
	Net   env.Net
	Rand  env.Rand
}

// defaultText is the default of MaxText, in bytes.
const defaultText = 32 << 10

// Bounds of settings: below or beyond them requests could only fail, or hold more than a server has.
const (
	leastText, mostText       = 4, 1 << 20 // a character has at most four bytes
	mostPrefix                = 4 << 10
	leastTimeout, mostTimeout = time.Millisecond, 10 * time.Minute
)

// maxModel bounds the id of a model.
const maxModel = 256

// maxWaitingBytes bounds the texts of all callers that wait, in bytes.
const maxWaitingBytes = 32 << 20

// withDefaults fills the fields that are zero.
func (o Options) withDefaults() Options {
	o.MaxText = cmp.Or(o.MaxText, defaultText)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.InFlight = cmp.Or(o.InFlight, 4)
	o.Waiting = cmp.Or(o.Waiting, 256)
	o.Batch = cmp.Or(o.Batch, 32)
	o.Delay = cmp.Or(o.Delay, 2*time.Millisecond)
	if o.Cache == nil {
		o.Cache = NewCache(DefaultCacheEntries, DefaultCacheBytes)
	}
	return o
}

// check refuses options that contradict the kind. The error names the kind and the setting.
func (o *Options) check() error {
	if err := o.checkLimits(); err != nil {
		return err
	}
	if o.Kind == KindLexical {
		if o.URL+o.Key != "" || o.Model != "" && o.Model != LexicalModel && o.Model != LexicalV1 || o.Dim != 0 && o.Dim != LexicalDim || o.QueryPrefix+o.DocumentPrefix != "" {
			return errors.New("embedder lexical: it has no url, key, dim or prefix, and its model must be " + LexicalModel + " or " + LexicalV1)
		}
		return nil
	}
	if o.Kind == KindNone {
		switch {
		case o.URL+o.Key+o.QueryPrefix+o.DocumentPrefix != "":
			return errors.New("embedder none: it asks no provider, so it has no url, key or prefix")
		case o.Model == "" || len(o.Model) > maxModel || strings.ContainsFunc(o.Model, unicode.IsControl):
			return fmt.Errorf("embedder none: model is required, the id that vectors of clients state, of 1 to %d bytes", maxModel)
		case o.Dim != 0 && (o.Dim < vector.MinDim || o.Dim > vector.MaxDim):
			return dimRange(o)
		}
		return nil
	}
	if !slices.Contains([]string{KindOllama, KindOpenAI, KindTEI}, o.Kind) {
		return fmt.Errorf("embedder %q: kind must be lexical, ollama, openai, tei or none", o.Kind)
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("embedder %s: its address must be http:// or https:// with a host, without user or query", o.Kind)
	case o.Model == "" && o.Kind != KindTEI:
		return fmt.Errorf("embedder %s: a model must be named", o.Kind)
	case o.Dim != 0 && (o.Dim < vector.MinDim || o.Dim > vector.MaxDim):
		return dimRange(o)
	case o.Delay < 0:
		return fmt.Errorf("embedder %s: delay must not be negative", o.Kind)
	case len(o.Model) > maxModel:
		return fmt.Errorf("embedder %s: model must be at most %d bytes", o.Kind, maxModel)
	case o.Clock == nil || o.Net == nil || o.Rand == nil:
		return fmt.Errorf("embedder %s: no clock, network or randomness given", o.Kind)
	}
	return nil
}

// checkLimits refuses a limit with which requests could only fail. The error names it.
func (o *Options) checkLimits() error {
	for _, l := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"max_text", o.MaxText, leastText, mostText},
		{"in_flight", o.InFlight, 1, 1024},
		{"waiting", o.Waiting, 1, 1 << 20},
		{"batch", o.Batch, 1, 2048},
		{"query_prefix", len(o.QueryPrefix), 0, mostPrefix},
		{"document_prefix", len(o.DocumentPrefix), 0, mostPrefix},
	} {
		if l.value < l.least || l.value > l.most {
			return fmt.Errorf("embedder %s: %s must be %d to %d, not %d", o.Kind, l.name, l.least, l.most, l.value)
		}
	}
	if o.Timeout < leastTimeout || o.Timeout > mostTimeout {
		return fmt.Errorf("embedder %s: timeout must be %v to %v with its unit, such as 10s, not %v", o.Kind, leastTimeout, mostTimeout, o.Timeout)
	}
	return nil
}

// dimRange is the error for a dimension that is out of range.
func dimRange(o *Options) error {
	return fmt.Errorf("embedder %s: dim must be %d to %d, not %d", o.Kind, vector.MinDim, vector.MaxDim, o.Dim)
}

// modelID returns the id of everything that vectors depend on: the kind, the model, and a hash of
// the prefixes if there are any. Vectors of different ids do not compare, so the id must not change
// for the same settings.
func (o *Options) modelID() string {
	switch o.Kind {
	case KindLexical:
		return cmp.Or(o.Model, LexicalModel)
	case KindNone:
		return o.Model
	}
	id := o.Kind + "/" + cmp.Or(o.Model, "default")
	if o.QueryPrefix+o.DocumentPrefix == "" {
		return id
	}
	var b [8]byte
	sum := xxhash.Sum64String(fmt.Sprintf("%d:%s%s", len(o.QueryPrefix), o.QueryPrefix, o.DocumentPrefix))
	for i := range b {
		b[i] = byte(sum >> (56 - 8*i))
	}
	return id + "#" + hex.EncodeToString(b[:4])
}

// Embedder makes vectors of one model. It is safe for concurrent use.
type Embedder struct {
	o     Options
	model string
	dim   atomic.Int64 // 0 until known
	// An answer of the provider has confirmed dim.
	shown atomic.Bool
	// nil: the embedder asks no provider.
	provider *provider
	closed   chan struct{}
	// Cancels life, which ends requests that are under way.
	stop context.CancelFunc
	life context.Context
	// Requests and timers; Close waits for them.
	running sync.WaitGroup

	// mu guards the fields below, and the queues of the tenants, but not their breakers.
	mu      sync.Mutex
	ended   bool
	tenants map[string]*tenantState
	// Tenants with texts that wait, the next one first. A tenant is in it once at most.
	turns []*tenantState
	bytes int64 // of the texts that wait
	// Callers that wait for a call of their own.
	waiting  int
	inFlight int
	// A timer runs that will send what waits.
	timer bool

	calls, failures, retries atomic.Uint64
}

// New returns an embedder, which Close must end. No provider is asked before the first text.
func New(o Options) (*Embedder, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	e := &Embedder{o: o, model: o.modelID(), closed: make(chan struct{}), tenants: make(map[string]*tenantState)}
	e.life, e.stop = context.WithCancel(context.Background())
	if o.Kind == KindLexical {
		e.dim.Store(LexicalDim)
		return e, nil
	}
	e.dim.Store(int64(o.Dim))
	if o.Kind == KindNone {
		return e, nil
	}
	e.provider = newProvider(&e.o)
	return e, nil
}

// Close ends the embedder and waits for its requests. Callers that wait get ErrClosed. It may be
// called again.
func (e *Embedder) Close() {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	e.ended = true
	var left []*call
	for _, t := range e.turns {
		left = append(left, t.pending...)
		t.pending, t.bytes, t.queued = nil, 0, false
	}
	e.turns, e.bytes = nil, 0
	close(e.closed)
	e.mu.Unlock()
	e.stop()
	e.abandon(left, ErrClosed)
	e.running.Wait()
	if e.provider != nil {
		e.provider.close()
	}
}

// Model is the id of the model: vectors of two ids do not compare.
func (e *Embedder) Model() string { return e.model }

// Older returns ids of earlier models that it can still make vectors of, if a request names them.
func (e *Embedder) Older() []string {
	if e.model == LexicalModel {
		return []string{LexicalV1}
	}
	return nil
}

// Semantic is false for the built-in model, which compares letters and not meaning.
func (e *Embedder) Semantic() bool { return e.o.Kind != KindLexical }

// Given says that clients bring all vectors of its model: it makes none.
func (e *Embedder) Given() bool { return e.o.Kind == KindNone }

// TakesTokens reports whether texts may come as tokens: the provider's protocol must know them, and
// no prefix may have to be put before them.
func (e *Embedder) TakesTokens() bool {
	return e.o.Kind == KindOpenAI && e.o.QueryPrefix+e.o.DocumentPrefix == ""
}

// Asks says whether it asks a provider.
func (e *Embedder) Asks() bool { return e.provider != nil }

// KnownDim is the dimension of the vectors, 0 while it is not known.
func (e *Embedder) KnownDim() int { return int(e.dim.Load()) }

// Dim returns the dimension of the vectors. If no answer has shown it yet, it asks the provider on
// behalf of a tenant. It is 0 for an embedder that makes no vectors and was not told.
func (e *Embedder) Dim(ctx context.Context, tenant string) (int, error) {
	if e.provider == nil || e.shown.Load() {
		return e.KnownDim(), nil
	}
	if _, err := e.Embed(ctx, Request{Tenant: tenant, Texts: []string{"dimension"}}); err != nil {
		return 0, err
	}
	return e.KnownDim(), nil
}

// Stats counts what an embedder did.
type Stats struct {
	Calls, Failures, Retries uint64 // requests to the provider; of those, failed for good; repeated
	Opened                   uint64 // times that the provider was left alone by a tenant
	Open                     bool   // it is now by one of them
	Waiting, InFlight        int
}

// Stats returns the counts so far.
func (e *Embedder) Stats() Stats {
	out := Stats{Calls: e.calls.Load(), Failures: e.failures.Load(), Retries: e.retries.Load()}
	e.mu.Lock()
	defer e.mu.Unlock()
	out.Waiting, out.InFlight = e.waiting, e.inFlight
	for _, t := range e.tenants {
		open, opened := t.breaker.state()
		out.Open, out.Opened = out.Open || open, out.Opened+opened
	}
	return out
}

// Request is a number of texts of one tenant.
type Request struct {
	Tenant string
	Model  string // one of Older; otherwise it is the embedder's
	Texts  []string
	Query  bool // they are queries; else documents
	Strict bool // a text that is too long is refused, not cut
	// Vectors of protected texts are shared with other protected texts only: otherwise the speed of
	// an answer could tell that a protected field holds a text.
	Protected bool
	Each      bool // a text that the provider refuses fails by itself
	// Tokens says that each text is a JSON array of the model's own tokens, which go to the provider as they are.
	Tokens bool
}

// Result is a text's vector and how it came about.
type Result struct {
	*Vector
	Err       error // Refused, where Each is asked for: there is no vector
	Cached    bool
	Truncated bool
}

// Embed returns a result for each text, in order, or an error for all: Unavailable, Invalid, Refused, ErrQueueFull, TextTooLong,
// ErrClosed, or that of ctx. Texts that are kept need no provider.
func (e *Embedder) Embed(ctx context.Context, r Request) ([]Result, error) {
	switch {
	case e.Given():
		return nil, ErrGiven
	case r.Tokens && !e.TakesTokens():
		return nil, ErrTokens
	}
	out := make([]Result, len(r.Texts))
	texts := make([]string, len(r.Texts))
	for i, text := range r.Texts { // all, before others can wait for one of them
		var err error
		if texts[i], out[i].Truncated, err = e.prepare(text, &r); err != nil {
			return nil, err
		}
	}
	model := e.model
	if slices.Contains(e.Older(), r.Model) {
		model = r.Model
	}
	var waits []*call // by text; nil where the vector is there
	var own []*call
	for i, given := range texts {
		v, under, mine := e.o.Cache.find(cacheKey(r.Tenant, model, given, r.Protected, r.Tokens), given)
		if under == nil {
			out[i].Vector, out[i].Cached = v, true
			continue
		}
		if e.provider == nil && mine {
			v, vectorOf := new(Vector), Lexical
			if model == LexicalV1 {
				vectorOf = lexicalV1
			}
			v.Floats, v.Tokens = vectorOf(given)
			e.o.Cache.end(under, v, nil)
			out[i].Vector = v
			continue
		}
		if waits == nil {
			waits = make([]*call, len(r.Texts))
		}
		waits[i] = under
		if mine {
			under.tokens = r.Tokens
			own = append(own, under)
		}
	}
	if len(own) > 0 {
		t, err := e.submit(r.Tenant, own)
		if err != nil {
			e.abandon(own, err)
			return nil, err
		}
		defer e.leave(t)
	}
	for i, k := range waits {
		if k == nil {
			continue
		}
		select {
		case <-k.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		refused, ok := errors.AsType[Refused](k.err)
		switch {
		case ok && r.Each:
			out[i].Err = refused
		case ok:
			refused.Text = i
			return nil, refused
		case k.err != nil:
			return nil, k.err
		}
		out[i].Vector = k.out
	}
	return out, nil
}

// prepare gives a text the form in which the model gets it.
func (e *Embedder) prepare(text string, r *Request) (given string, cut bool, err error) {
	if len(text) > e.o.MaxText {
		if r.Strict || r.Tokens {
			return "", false, TextTooLong{Limit: e.o.MaxText}
		}
		text, cut = cutText(text, e.o.MaxText), true
	}
	prefix := e.o.DocumentPrefix
	if r.Query {
		prefix = e.o.QueryPrefix
	}
	return prefix + text, cut, nil
}

// cutText returns at most limit bytes of whole characters.
func cutText(s string, limit int) string {
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

func (e *Embedder) abandon(own []*call, err error) {
	for _, k := range own {
		e.o.Cache.end(k, nil, err)
	}
}

func (e *Embedder) leave(t *tenantState) {
	e.mu.Lock()
	e.waiting--
	t.waiting--
	e.mu.Unlock()
}

// finish checks one vector of the provider and ends its call.
func (e *Embedder) finish(k *call, floats []float32, tokens int) {
	vector.Normalize(floats)
	e.o.Cache.end(k, &Vector{Floats: floats, Tokens: tokens}, nil)
}

// checkAnswer reports what is wrong with the vectors of a provider, and learns the dimension from the first.
func (e *Embedder) checkAnswer(vectors [][]float32, want int) error {
	if len(vectors) != want {
		return Invalid{fmt.Sprintf("%d vectors for %d texts", len(vectors), want)}
	}
	dim := e.dim.Load()
	if dim == 0 {
		if d := len(vectors[0]); d < vector.MinDim || d > vector.MaxDim {
			return Invalid{fmt.Sprintf("vectors of %d numbers", d)}
		}
		dim = int64(len(vectors[0]))
	}
	for _, v := range vectors {
		if err := vector.Check(v, int(dim), true); err != nil {
			return Invalid{err.Error()}
		}
	}
	if !e.dim.CompareAndSwap(0, dim) && e.dim.Load() != dim {
		return Invalid{"vectors of another dimension than before"}
	}
	e.shown.Store(true)
	return nil
}

// share divides a sum of tokens over texts by their length; providers count whole requests.
func share(total, part, all int) int {
	if all == 0 {
		return 0
	}
	return int(math.Round(float64(total) * float64(part) / float64(all)))
}

// Errors of Embed.
var (
	ErrQueueFull = errors.New("too many texts wait for the embedder")
	ErrClosed    = errors.New("the embedder is closed")
	ErrTokens    = errors.New("the embedder takes texts, not tokens")
	ErrGiven     = errors.New("the embedder makes no vectors: clients bring their own")
)

// Unavailable says that the provider does not answer, and when to ask again.
type Unavailable struct {
	After  time.Duration
	Reason string // for the operator: no address, nothing that the provider said
}

// Error gives the reason.
func (u Unavailable) Error() string { return "the embedder is unavailable: " + u.Reason }

// Invalid says that the provider's answer makes no sense.
type Invalid struct{ What string }

// Error says what is wrong.
func (i Invalid) Error() string { return "the embedder's answer is invalid: " + i.What }

// Refused says that the provider does not take a text: it is too long for the model, or makes no sense to it.
type Refused struct {
	Text   int // which one of the request
	Status int // of the provider's answer
}

// Error gives the provider's status.
func (r Refused) Error() string {
	return fmt.Sprintf("the provider refuses a text with status %d", r.Status)
}

// TextTooLong refuses a text that would have to be cut.
type TextTooLong struct{ Limit int }

// Error names the limit.
func (t TextTooLong) Error() string { return fmt.Sprintf("a text is longer than %d bytes", t.Limit) }

func joinPath(base, path string) string { return strings.TrimRight(base, "/") + path }
