package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env/envtest"
)

// holders is a table that a test changes.
type holders struct {
	mu  sync.Mutex // guards all
	all map[string]Principal
}

func (h *holders) Lookup(token string, now time.Time) (Principal, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.all[token]
	return p, ok && p.live(now)
}

func (h *holders) set(token string, p Principal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[token] = p
}

type callRig struct {
	t     *testing.T
	clock *envtest.Clock
	table *holders
	calls *Calls
}

func newCallRig(t *testing.T) *callRig {
	r := &callRig{t: t, clock: envtest.NewClock(now), table: &holders{all: map[string]Principal{}}}
	r.calls = NewCalls(r.table, r.clock)
	t.Cleanup(r.calls.Close)
	return r
}

func (r *callRig) begin(token string, p Principal, rights Rights) *Call {
	r.table.set(token, p)
	return r.calls.Begin(context.Background(), Holder{Principal: p, Token: token}, rights)
}

func TestACallEndsWhenItsTokenDoesNotAllowItAnyMore(t *testing.T) {
	all := Principal{Name: "ci", Tenant: "acme", Scopes: All, Repos: []string{"a/*", "b/x"}}
	writes := Rights{Allows: func(s Scopes) bool { return s.Has(RefWrite) }, Keeps: RefWrite.Family(), Repos: true}
	change := func(f func(*Principal)) Principal {
		p := all
		f(&p)
		return p
	}
	for _, c := range []struct {
		what  string
		then  Principal
		goes  bool
		after time.Duration
	}{
		{what: "nothing changed", then: all, goes: true},
		{what: "another name", then: change(func(p *Principal) { p.Name = "other" })},
		{what: "another tenant", then: change(func(p *Principal) { p.Tenant = "rival" })},
		{what: "an end in the past", then: change(func(p *Principal) { p.Expires = now })},
		{what: "an end in the future", then: change(func(p *Principal) { p.Expires = now.Add(time.Hour) }), goes: true},
		{what: "an end that has come", then: change(func(p *Principal) { p.Expires = now.Add(time.Hour) }), after: time.Hour},
		{what: "without the scope that it needs", then: change(func(p *Principal) { p.Scopes &^= RefWrite })},
		{what: "without one of the same kind", then: change(func(p *Principal) { p.Scopes &^= RefForce })},
		{what: "without one of another kind", then: change(func(p *Principal) { p.Scopes &^= KVWrite }), goes: true},
		{what: "one repository less", then: change(func(p *Principal) { p.Repos = []string{"a/*"} })},
		{what: "one repository more", then: change(func(p *Principal) { p.Repos = []string{"c/*", "b/x", "a/*"} }), goes: true},
		{what: "fewer queues", then: change(func(p *Principal) { p.Queues = []string{"mail"} }), goes: true}, // the call is of no queue
		{what: "all repositories", then: change(func(p *Principal) { p.Repos = nil }), goes: true},
	} {
		r := newCallRig(t)
		call := r.begin("t", all, writes)
		r.table.set("t", c.then)
		if c.after > 0 {
			r.clock.StepWall(c.after)
		}
		r.calls.Sweep()
		if goes := call.Err() == nil; goes != c.goes || call.Revoked() == goes {
			t.Errorf("%s: goes on: %v, revoked: %v", c.what, goes, call.Revoked())
		}
		if !c.goes && !errors.Is(context.Cause(call), ErrEnded) {
			t.Errorf("%s: its cause is %v", c.what, context.Cause(call))
		}
		if c.goes && call.Holder().Scopes != c.then.Scopes {
			t.Errorf("%s: it has the scopes %v", c.what, call.Holder().Scopes)
		}
		call.End()
		if goes := c.goes; goes && call.Revoked() {
			t.Errorf("%s: its own end counts as the token's", c.what)
		}
	}
	r := newCallRig(t)
	limited := r.begin("t", Principal{Name: "ci", Tenant: "acme", Scopes: All}, writes)
	r.table.set("t", all)
	r.calls.Sweep()
	if limited.Err() == nil {
		t.Error("a call of any repository goes on with a token of some")
	}
	removed := r.begin("u", all, Rights{})
	r.table.mu.Lock()
	delete(r.table.all, "u")
	r.table.mu.Unlock()
	r.calls.Sweep()
	if !removed.Revoked() {
		t.Error("a call goes on without its token")
	}
}

func TestACallThatGotAnotherTokenLivesByThat(t *testing.T) {
	r := newCallRig(t)
	p := Principal{Name: "ci", Tenant: "acme", Scopes: All, Expires: now.Add(time.Minute)}
	call := r.begin("old", p, Rights{})
	defer call.End()
	longer := p
	longer.Expires = time.Time{}
	r.table.set("new", longer)
	for what, who := range map[string]Principal{"another name": {Name: "x", Tenant: "acme"}, "another tenant": {Name: "ci", Tenant: "x"}} {
		if call.Renew(Holder{Principal: who, Token: "new"}) {
			t.Errorf("it took a token of %s", what)
		}
	}
	if !call.Renew(Holder{Principal: longer, Token: "new"}) {
		t.Fatal("it did not take the new token")
	}
	r.clock.StepWall(time.Hour)
	r.calls.Sweep()
	if call.Err() != nil {
		t.Error("it ended with its first token")
	}
	if child, ok := CallOf(context.WithValue(call, otherKey{}, 1)); !ok || child != call {
		t.Error("the context of its work does not know it")
	}
}

// otherKey is the key of a value in a context below that of a call.
type otherKey struct{}

func TestTheSweepRunsByItselfAndCountsEveryCallOnce(t *testing.T) {
	r := newCallRig(t)
	p := Principal{Name: "ci", Tenant: "acme", Scopes: All}
	var all []*Call
	for range 3 * callShards {
		all = append(all, r.begin("t", p, Rights{}))
	}
	for i, call := range all { // from the ends and from the middle
		if i%3 != 1 {
			call.End()
			call.End()
		}
	}
	p.Expires = now
	r.table.set("t", p)
	deadline := time.After(30 * time.Second)
	for i, call := range all {
		if i%3 != 1 {
			continue
		}
		for call.Err() == nil {
			r.clock.Advance(sweepEvery)
			select {
			case <-deadline:
				t.Fatal("a call was never ended")
			case <-time.After(time.Millisecond):
			}
		}
		call.End()
	}
	for i := range r.calls.shards {
		if r.calls.shards[i].first != nil {
			t.Errorf("shard %d still has a call", i)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	calls := NewCalls(&holders{}, envtest.NewClock(now))
	defer calls.Close()
	who := Holder{Principal: Principal{Name: "ci", Tenant: "acme", Scopes: All}, Token: "t"}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		calls.Begin(ctx, who, Rights{}).End()
	}
}
