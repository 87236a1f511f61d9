package auth

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// sweepEvery is how often the tokens of all calls under way are looked at: a call ends at most so long after its token.
const sweepEvery = 5 * time.Second

// callShards is over how many locks the calls are spread.
const callShards = 16

// ErrEnded is the cause of the context of a call whose token no longer allows it: the token has expired, was removed, or says
// less than when the call began.
var ErrEnded = errors.New("the token does not allow this call any more")

// Lookup tells who holds a token, and whether it can be used at now.
type Lookup interface {
	Lookup(token string, now time.Time) (Principal, bool)
}

// Holder is the holder of a token, with the token or with the session that stands for it.
type Holder struct {
	Principal
	Token   string
	From    string   // the client's address, for logs; empty: it is not known
	Session *Session // nil: the token was sent
}

// MaxText bounds the text of a token that a client sends, in bytes, before it is hashed.
const MaxText = 4 << 10

// Find returns the holder of a token that a client at the address from has sent, if it can be used at now. refused is told of a token
// that cannot, and whose it was as far as that is known; no token, and one that is too long, are not looked up.
func Find(tokens Lookup, token, from string, now time.Time, refused func(who Principal, from string)) (Holder, bool) {
	if token == "" || len(token) > MaxText {
		return Holder{}, false
	}
	who, ok := tokens.Lookup(token, now)
	if !ok || who.Tenant == "" {
		refused(who, from)
		return Holder{}, false
	}
	return Holder{Principal: who, Token: token, From: from}, true
}

// Rights are what a call needs to go on.
type Rights struct {
	// Allows says whether scopes allow the call; nil: any do.
	Allows func(Scopes) bool
	// Keeps are scopes that the call was begun by, as far as its holder had them, and reads only then: it must not lose one.
	Keeps Scopes
	// Repos says that the call is of a repository, which the token must go on to reach.
	Repos bool
	// Queues says that the call may be of tasks or queues: the token must go on to reach all queues that it reached.
	Queues bool
}

// Calls are all calls and streams under way, of all doors. It ends each whose token does not allow it any more. It is safe for
// concurrent use.
type Calls struct {
	tokens Lookup
	clock  env.Clock
	shards [callShards]callShard
	turn   atomic.Uint32
	stop   func()
}

// callShard is one part of the list of calls, so that calls which begin and end at once do not wait
// for one lock.
type callShard struct {
	mu    sync.Mutex // guards first, and the links and over of its calls
	first *Call
	_     [40]byte // keeps shards on lines of cache of their own
}

// Call is one call under way. It is the context of the call's work.
type Call struct {
	context.Context
	cancel context.CancelCauseFunc
	rights Rights
	shard  *callShard
	// Links in the list of its shard; the shard's mu guards them and over.
	prev, next *Call
	// It was taken out of the list.
	over   bool
	mu     sync.Mutex             // one change of holder at a time
	holder atomic.Pointer[Holder] // as of the last look
}

// NewCalls begins to look after calls whose tokens are looked up in tokens, until Close.
func NewCalls(tokens Lookup, clock env.Clock) *Calls {
	c := &Calls{tokens: tokens, clock: clock}
	c.stop = env.Every(clock, sweepEvery, c.Sweep)
	return c
}

// Close ends that. Calls go on.
func (c *Calls) Close() { c.stop() }

// callKey is the key under which a call finds itself in a context.
type callKey struct{}

// Begin counts a call in. Its work runs under the context that is returned, which ends with ErrEnded as its cause once the
// holder's token does not allow it; End must be called at its end.
func (c *Calls) Begin(ctx context.Context, who Holder, rights Rights) *Call {
	call := &Call{rights: rights, shard: &c.shards[c.turn.Add(1)%callShards]}
	call.holder.Store(&who)
	call.Context, call.cancel = context.WithCancelCause(ctx)
	s := call.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.next = s.first; call.next != nil {
		call.next.prev = call
	}
	s.first = call
	return call
}

// CallOf returns the call that a context is of.
func CallOf(ctx context.Context) (*Call, bool) {
	call, ok := ctx.Value(callKey{}).(*Call)
	return call, ok
}

// Value returns the call itself to CallOf.
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// End counts the call out, and ends its context. It may be called again.
func (c *Call) End() {
	c.cancel(nil)
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	default:
		s.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// Holder returns who makes the call, with the rights that the token had at the last look.
func (c *Call) Holder() *Holder { return c.holder.Load() }

// Renew goes on with the call under another token of the same holder. It reports false where it is another holder's, or reaches
// fewer queues than the call may have begun to work on.
func (c *Call) Renew(who Holder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.holder.Load()
	if who.Tenant != old.Tenant || who.Name != old.Name || c.rights.Queues && !who.keepsQueues(&old.Principal) {
		return false
	}
	who.From = old.From
	c.holder.Store(&who)
	return true
}

// Revoked reports whether the call was ended because of its token.
func (c *Call) Revoked() bool { return c.Err() != nil && errors.Is(context.Cause(c), ErrEnded) }

// Sweep looks at the tokens of all calls now.
func (c *Calls) Sweep() {
	now, seen := c.clock.Wall(), make(map[string]found)
	var end []*Call
	for i := range c.shards {
		end = c.shards[i].sweep(end, func(call *Call) bool { return call.look(c.tokens, now, seen) })
	}
	for _, call := range end {
		call.cancel(ErrEnded)
	}
}

// sweep appends the calls of a shard that may not go on.
func (s *callShard) sweep(end []*Call, look func(*Call) bool) []*Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	for call := s.first; call != nil; call = call.next {
		if !look(call) {
			end = append(end, call)
		}
	}
	return end
}

// found is what a token was found to be.
type found struct {
	who  Principal
	live bool
}

// look reports whether a call may go on, and takes over what its token says now.
func (c *Call) look(tokens Lookup, now time.Time, seen map[string]found) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.holder.Load()
	f, ok := seen[old.Token]
	switch {
	case old.Session != nil:
		f.who, f.live = old.Session.Holder(now)
	case !ok:
		f.who, f.live = tokens.Lookup(old.Token, now)
		seen[old.Token] = f
	}
	if !f.live || f.who.Name != old.Name || f.who.Tenant != old.Tenant || !c.rights.suffice(&old.Principal, &f.who) {
		return false
	}
	if f.who.Scopes != old.Scopes || !slices.Equal(f.who.Repos, old.Repos) || !slices.Equal(f.who.Queues, old.Queues) {
		c.holder.Store(&Holder{f.who, old.Token, old.From, old.Session})
	}
	return true
}

// suffice reports whether what a holder may do now is enough for a call that was begun with what they might do before.
func (r *Rights) suffice(old, now *Principal) bool {
	switch {
	case r.Allows != nil && !r.Allows(now.Scopes):
		return false
	case old.Scopes&^now.Scopes&r.Keeps != 0:
		return false
	case r.Queues && !now.keepsQueues(old):
		return false
	case r.Repos && len(now.Repos) > 0:
		return len(old.Repos) > 0 && !slices.ContainsFunc(old.Repos, func(glob string) bool { return !slices.Contains(now.Repos, glob) })
	}
	return true
}
