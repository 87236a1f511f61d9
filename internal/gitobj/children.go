package gitobj

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// ChildLimits bound the programs that run at once. Zero is the default.
type ChildLimits struct {
	Bytes   int64         // of memory, of all together; default 512 MiB
	Waiting int           // calls that wait for a place, half of them for fetches and half for all else; default 256
	Wait    time.Duration // for which one waits; default 1 minute
}

func (l ChildLimits) withDefaults() ChildLimits {
	l.Bytes = cmp.Or(l.Bytes, 512<<20)
	l.Waiting = cmp.Or(l.Waiting, 256)
	l.Wait = cmp.Or(l.Wait, time.Minute)
	return l
}

// class is what a program runs for. Each class has half of the memory, and places, of its own:
// fetches that clients take slowly leave the places of pushes alone, and the other way round. The
// memory of a class is shared out by three rules: each program is counted with what it is thought
// to need; no tenant gets more than three quarters; and who may run next depends on who has used
// processors least in the last minutes.
type class uint8

const (
	forPush  class = iota // and all else that is not a fetch
	forFetch              //
	classes
)

// Bounds of one class, whose memory is share bytes.
const (
	fewPlaces, manyPlaces = 4, 8
	// usualBytes is what a program needs that works on small objects, a few thousand of them.
	usualBytes = 32 << 20
	// mostBytes is the most memory for one program, however much there is.
	mostBytes = 1 << 30
)

// bounds follow from the memory of a class.
type bounds struct {
	bytes int64 // of all programs of the class
	// usual is counted for one program, unless it is known to need more.
	usual int64
	// most is for one program: the limit that the kernel holds it to.
	most        int64
	tenantBytes int64 // of all of a tenant
	places      int   // programs at once
	tenant      int   // of one tenant
	principal   int   // of one of its principals
	// waiting is how many calls may wait.
	waiting int
}

// boundsOf computes the bounds of one class.
func boundsOf(l ChildLimits) bounds {
	b := bounds{bytes: l.Bytes / int64(classes), waiting: max(l.Waiting/int(classes), 1)}
	b.places = int(min(max(b.bytes/usualBytes, fewPlaces), manyPlaces))
	b.tenant, b.principal = b.places*3/4, b.places/2
	b.tenantBytes = b.bytes * 3 / 4
	b.usual = min(b.bytes/int64(b.places), usualBytes)
	b.most = min(b.bytes/2, mostBytes)
	return b
}

// Places is how many programs may run at once.
func (l ChildLimits) Places() int { return int(classes) * boundsOf(l.withDefaults()).places }

// children hands out leave to run a program. It has a share for each class. What runs git asks
// enter, gets a leave, and ends it with the time that was used.
type children struct {
	// clock tells how long callers wait.
	clock env.Clock
	// wait is how long a call that is not patient waits.
	wait time.Duration
	// shares are by class. Each has its own lock, so that pushes do not wait for fetches.
	shares [classes]*share
}

// newChildren makes a share for each class, with the bounds of l.
func newChildren(l ChildLimits, clock env.Clock) *children {
	c := &children{clock: clock, wait: l.Wait}
	for i := range c.shares {
		c.shares[i] = &share{
			bounds: boundsOf(l), name: [classes]string{"git_pushes", "git_fetches"}[i], clock: clock,
			tenants: make(map[core.TenantID]taken), principals: make(map[asker]int), used: make(map[asker]usage),
		}
	}
	return c
}

// asker is the caller that a program runs for. Without a name it is the tenant as a whole.
type asker struct {
	// tenant is the tenant, and principal one of its principals; empty: all of them.
	tenant    core.TenantID
	principal string
}

// wanted is what a call asks for.
type wanted struct {
	class class
	by    asker
	bytes int64 // that the program is thought to need; at least the usual is counted, and at most the most
	// patient calls wait as long as ctx does: those in the background.
	patient bool
}

// enter waits until a program may run. It refuses when too many wait, or when it has waited too long.
func (c *children) enter(ctx context.Context, a wanted) (*leave, error) {
	s := c.shares[a.class]
	w := &waiter{by: a.by, bytes: min(max(a.bytes, s.usual), s.most), places: 1}
	wait := c.wait
	if a.patient {
		wait = 0
	}
	if err := s.admit(ctx, w, wait); err != nil {
		return nil, err
	}
	return &leave{c: c, s: s, by: a.by, bytes: w.bytes}, nil
}

// leave is the leave to run one program.
type leave struct {
	// c hands out the leave, and s is the share that it counts in.
	c     *children
	s     *share
	by    asker
	bytes int64 // that are counted
}

// need reserves memory until the program has the given bytes in all, and waits until they are free.
// Only its own goroutine may call it. A program that runs waits here while it holds a place, so
// these waits come first when memory is free; the program gives up in the end, so that two of them
// cannot wait for each other for ever.
func (l *leave) need(ctx context.Context, bytes int64) error {
	bytes = min(bytes, l.s.most)
	if bytes <= l.bytes {
		return nil
	}
	if err := l.s.admit(ctx, &waiter{by: l.by, bytes: bytes - l.bytes}, l.c.wait); err != nil {
		return err
	}
	l.bytes = bytes
	return nil
}

// end gives the leave back, after the program has used processors for some time.
func (l *leave) end(cpu time.Duration) { l.s.give(l.by, l.bytes, cpu) }

// usual is what a program gets of which nothing else is known, in bytes.
func (c *children) usual() int64 { return c.shares[forPush].usual }

// mostWalked is how much memory the commits of a walk may take, in bytes: what one program may have, without that of the program
// that reads them.
func (c *children) mostWalked() int64 {
	s := c.shares[forPush]
	return s.most - s.usual
}

// counts returns how many run and how many wait.
func (c *children) counts() (running, waiting int) {
	for _, s := range c.shares {
		s.mu.Lock()
		running, waiting = running+s.running, waiting+len(s.queue)
		s.mu.Unlock()
	}
	return running, waiting
}

// share are the places and the memory of one class.
type share struct {
	bounds
	name  string // begins the names of its limits
	clock env.Clock

	mu sync.Mutex // guards the fields below
	// running is how many programs run.
	running int
	// held is how many bytes they are counted with.
	held int64
	// tenants and principals have what the programs of each have now; one that has nothing is not
	// in them.
	tenants    map[core.TenantID]taken
	principals map[asker]int
	// queue are those that wait, in the order in which they came.
	queue []*waiter
	// used is how long each asker has used processors lately.
	used map[asker]usage
}

// taken is what the programs of one tenant have.
type taken struct {
	// places is how many programs run, and bytes how much memory they are counted with.
	places int
	bytes  int64
}

// waiter waits for a place with memory, or for more memory for a program that runs.
type waiter struct {
	by asker
	// bytes is how much memory is asked for; what a program has already is not in it.
	bytes int64
	// places is 1, or 0 for more memory.
	places int
	// let is closed when it is let in; what it asked for is counted by then.
	let chan struct{}
}

// admit lets w in, after wait at the latest; 0 is as long as ctx. A waiter that gives up may have
// been let in at the same moment: then it keeps the place, or gives it back if ctx has ended.
func (s *share) admit(ctx context.Context, w *waiter, wait time.Duration) error {
	s.mu.Lock()
	limit := s.full(w)
	if limit == "" {
		s.take(w)
		s.mu.Unlock()
		return nil
	}
	if w.places > 0 && s.crowded(w.by.tenant) {
		s.mu.Unlock()
		return core.Unavailable{Reason: "overload", Limit: "git_waiting"}
	}
	w.let = make(chan struct{})
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	var late <-chan time.Time
	if wait > 0 {
		t := s.clock.NewTimer(wait)
		defer t.Stop()
		late = t.C()
	}
	var err error
	select {
	case <-w.let:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-late:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, w)
	if i < 0 && err == nil {
		return nil // it was let in just now
	}
	if i < 0 {
		s.back(w.by, w.places, w.bytes)
		return err
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	if err != nil {
		return err
	}
	return core.Unavailable{Reason: "overload", Limit: s.full(w)}
}

// full returns the name of the limit that keeps w out; empty when none does. The caller holds mu.
func (s *share) full(w *waiter) string {
	of := s.tenants[w.by.tenant]
	switch {
	case w.places > 0 && s.principals[w.by] >= s.principal:
		return s.name + "_principal"
	case w.places > 0 && of.places >= s.tenant:
		return s.name + "_tenant"
	case w.places > 0 && s.running >= s.places:
		return s.name
	case of.bytes+w.bytes > s.tenantBytes:
		return s.name + "_memory_tenant"
	case s.held+w.bytes > s.bytes:
		return s.name + "_memory"
	}
	return ""
}

// crowded reports whether no more calls of a tenant may wait: too many do, or half of those that
// may are this tenant's. The caller holds mu. So one tenant cannot keep all others from waiting.
func (s *share) crowded(tenant core.TenantID) bool {
	n := 0
	for _, w := range s.queue {
		if w.by.tenant == tenant {
			n++
		}
	}
	return len(s.queue) >= s.waiting || n >= max(s.waiting/2, 1)
}

// take counts what w has got. The caller holds mu.
func (s *share) take(w *waiter) {
	of := s.tenants[w.by.tenant]
	of.places, of.bytes = of.places+w.places, of.bytes+w.bytes
	s.tenants[w.by.tenant] = of
	if w.places > 0 {
		s.principals[w.by]++
	}
	s.running, s.held = s.running+w.places, s.held+w.bytes
}

// give takes a place and memory back, and counts the time that was used.
func (s *share) give(by asker, bytes int64, cpu time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(by, cpu)
	s.charge(asker{tenant: by.tenant}, cpu)
	s.back(by, 1, bytes)
}

// back gives back what was taken, and lets in who may run now: those first whose tenant has used least lately, among them
// those whose principal has, and of these who came first. The caller holds mu.
func (s *share) back(by asker, places int, bytes int64) {
	of := s.tenants[by.tenant]
	of.places, of.bytes = of.places-places, of.bytes-bytes
	s.tenants[by.tenant] = of
	if of == (taken{}) {
		delete(s.tenants, by.tenant)
	}
	if places > 0 {
		if s.principals[by]--; s.principals[by] == 0 {
			delete(s.principals, by)
		}
	}
	s.running, s.held = s.running-places, s.held-bytes

	order := slices.Clone(s.queue)
	slices.SortStableFunc(order, func(a, b *waiter) int {
		return cmp.Or(
			cmp.Compare(a.places, b.places), // what runs already goes on first
			cmp.Compare(s.lately(asker{tenant: a.by.tenant}), s.lately(asker{tenant: b.by.tenant})),
			cmp.Compare(s.tenants[a.by.tenant].places, s.tenants[b.by.tenant].places),
			cmp.Compare(s.lately(a.by), s.lately(b.by)),
		)
	})
	for _, w := range order {
		if s.full(w) == "" {
			s.take(w)
			s.queue = slices.DeleteFunc(s.queue, func(q *waiter) bool { return q == w })
			close(w.let)
		}
	}
}

// usage is for how long processors were used, as it counts at an instant: each halfLife half of it is forgotten.
type usage struct {
	// cpu is what counted at the instant at.
	cpu time.Duration
	at  time.Duration // of the clock that never falls
}

const (
	halfLife = time.Minute
	// usedLeast is what is not worth being remembered, and heldUsages from how many on it is forgotten.
	usedLeast  = 10 * time.Millisecond
	heldUsages = 4096
)

// lately returns what counts now. The caller holds mu.
func (s *share) lately(by asker) time.Duration {
	u := s.used[by]
	return u.cpu >> min((s.clock.Boot()-u.at)/halfLife, 62)
}

// charge counts time that was used. The caller holds mu.
func (s *share) charge(by asker, cpu time.Duration) {
	now := s.clock.Boot()
	if len(s.used) >= heldUsages {
		for other := range s.used {
			if s.lately(other) < usedLeast {
				delete(s.used, other)
			}
		}
		if len(s.used) >= heldUsages {
			clear(s.used) // as many as that have used much: all begin again
		}
	}
	// What of a half life has passed counts for the next one too.
	u := s.used[by]
	if past := (now - u.at) / halfLife; past > 0 {
		u = usage{u.cpu >> min(past, 62), u.at + past*halfLife}
	}
	if u.cpu == 0 {
		u.at = now
	}
	u.cpu += cpu
	s.used[by] = u
}
