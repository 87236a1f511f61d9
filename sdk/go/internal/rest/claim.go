package rest

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wakeup"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// restHold is one lease that takes a slot.
type restHold struct {
	// sub is the subscription whose slot it takes; 0: it is not known, as a Hello named the lease.
	sub uint32
	// lease is how long each renewal makes the lease; 0: it is not known, for the same reason.
	lease time.Duration
	// until is when the lease is surely over if nothing renews it; zero: it is not known.
	until time.Time
	// settling says that its end is on the way.
	settling bool
}

// restSub is one subscription: a goroutine that claims while slots are free.
type restSub struct {
	// spec is what the client asked for last: another frame replaces it as a whole.
	spec *millracev1.Subscribe
	// running says that its goroutine has not returned.
	running bool
	// wake says that slots may be free.
	wake wakeup.Wakeup
	// cancel ends the claim under way, and all after it.
	cancel context.CancelFunc
	// name is that of the claim under way; nil: it has none, or there is none.
	name []byte
	// ending says that the claim under way is being ended at the server, and done is closed when all claims are over.
	ending bool
	done   chan struct{}
}

// nudge makes the goroutine count its slots again.
func (u *restSub) nudge() { u.wake.Poke() }

// nudgeAll makes the subscriptions count their slots again. It needs mu.
func (s *restStream) nudgeAll() {
	for _, u := range s.subs {
		u.nudge()
	}
}

// stopClaims ends the claims that wait. It needs mu.
func (s *restStream) stopClaims() {
	for _, u := range s.subs {
		u.cancel()
	}
}

// endClaims ends the claims that wait, so that their answers are read: the tasks of one that is cut as it is answered would stay leased. It
// needs mu.
func (s *restStream) endClaims() {
	for _, u := range s.subs {
		switch {
		case !u.running || u.ending:
		case u.name == nil:
			u.cancel()
		default:
			u.ending = true
			go s.endClaim(u, u.name)
		}
	}
}

// endClaim has the server answer a claim, and cuts it if the answer does not come in time.
func (s *restStream) endClaim(u *restSub, name []byte) {
	defer u.cancel()
	ctx, cancel := context.WithTimeout(s.work, wire.ReleaseWithin)
	defer cancel()
	for {
		var out millracev1.EndClaimResponse
		err := s.r.invoke(ctx, millracev1.TaskService_EndClaim_FullMethodName, &millracev1.EndClaimRequest{Claim: name}, &out)
		if err != nil {
			return
		}
		// One that was not found was answered, or comes to the server behind this request.
		var again <-chan time.Time
		if !out.GetFound() {
			again = time.After(retry.Base)
		}
		select {
		case <-u.done:
			return
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}

// subscribe begins to claim.
func (s *restStream) subscribe(spec *millracev1.Subscribe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The client may ask again under the same number: one goroutine goes on claiming.
	if u := s.subs[spec.GetSub()]; u != nil {
		u.spec = spec
		u.nudge()
		return
	}
	// What is over claims nothing more; the client learns so from the end of the stream.
	if s.draining || s.retired || s.closed || s.cause != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.work)
	u := &restSub{spec: spec, running: true, wake: wakeup.New(), cancel: cancel, done: make(chan struct{})}
	s.subs[spec.GetSub()] = u
	s.open++
	go s.claims(ctx, spec.GetSub(), u)
}

// slots takes in another window. The message that a claim under way was made of stays as it is, so the new one is a copy.
func (s *restStream) slots(in *millracev1.Slots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.subs[in.GetSub()]; u != nil {
		u.spec = &millracev1.Subscribe{
			Sub: u.spec.Sub, Queues: u.spec.Queues, Slots: in.GetSlots(), Batch: u.spec.Batch, Lease: u.spec.Lease,
		}
		u.nudge()
	}
}

// drain ends the claims. What they have brought already is still given to the client; what they bring from here on goes back.
func (s *restStream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.endClaims()
}

// claims asks for tasks while slots are free, one request at a time, so that never more are given than there are slots.
func (s *restStream) claims(ctx context.Context, sub uint32, u *restSub) {
	defer func() {
		u.cancel()
		close(u.done)
		s.mu.Lock()
		// The stream may be over now: who waits for its end looks again.
		s.open--
		u.running = false
		if s.retired && s.cause == nil && !s.closed {
			s.goaway()
		}
		s.mu.Unlock()
		s.in.arrive.Poke()
	}()
	poll := newRESTPoll()
	try := 0 // claims in a row that came to nothing before their time
	for {
		in := s.nextClaim(ctx, u)
		if in == nil {
			return
		}
		in.Wait = durationpb.New(poll.wait)
		began := time.Now()
		var out millracev1.ClaimResponse
		err := s.r.claim(ctx, in, &out)
		took := time.Since(began)
		switch {
		// An answer with tasks, or one that came after a real wait: the next claim may follow at once.
		case err == nil && (len(out.Tasks) > 0 || took >= pollLeast):
			try = 0
			s.assign(sub, out.Tasks)
			continue
		case ctx.Err() != nil:
			return
		// A node of an older program knows no names of claims, though another one of its cluster does.
		case in.Claim != nil && isRefusedField(err, "claim"):
			s.mu.Lock()
			s.namesClaims = false
			s.mu.Unlock()
			continue
		// The wait was too long for something in between, or for the server. A shorter one is tried.
		case poll.missed(err, took):
			continue
		}
		wait, ok := s.pauseAfter(err, try)
		if !ok || !retry.Sleep(ctx, wait) {
			return
		}
		try++
	}
}

// isRefusedField reports whether a server refused a field of a request.
func isRefusedField(err error, field string) bool {
	f, ok := errors.AsType[*Fault](err)
	return ok && f.wire != nil && f.wire.GetCode() == wire.InvalidArgument && f.wire.GetField() == field
}

// pauseAfter says how long to wait after a claim that came to nothing before its time: without an error it was answered
// by something that does not wait. It breaks the stream when asking again cannot help.
func (s *restStream) pauseAfter(err error, try int) (wait time.Duration, ok bool) {
	wait = max(retry.Backoff(try), retry.Base)
	if err == nil {
		return wait, true
	}
	// Without any answer a lease may have been taken that nothing tells of, so the stream breaks as after a lost connection.
	if f, ok := errors.AsType[*Fault](err); ok && f.origin != byNobody && f.patience() > 0 {
		return max(wait, f.wire.GetRetryAfter().AsDuration()), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
	return 0, false
}

// nextClaim waits for free slots; nil when there is no more to claim.
func (s *restStream) nextClaim(ctx context.Context, u *restSub) *millracev1.ClaimRequest {
	for {
		s.mu.Lock()
		free, next := s.free(u, time.Now())
		// All that decides is read under one lock: a subscription that ends meanwhile asks for nothing.
		over := s.draining || s.retired || s.closed || s.cause != nil
		in := &millracev1.ClaimRequest{Queues: u.spec.GetQueues(), Strict: u.spec.GetStrict(), Lease: u.spec.GetLease(), Worker: s.worker.GetId()}
		batch := int(u.spec.GetBatch())
		u.name = nil
		if s.namesClaims && free > 0 && !over {
			u.name = wire.Random16()
			in.Claim = u.name
		}
		s.mu.Unlock()
		if over || ctx.Err() != nil {
			return nil
		}
		if free > 0 {
			// The client may leave the size of a batch to this end.
			if batch == 0 {
				batch = claimTasks
			}
			in.Max = uint32(min(free, batch, claimTasks))
			return in
		}
		if !u.rest(ctx, next) {
			return nil
		}
	}
}

// claimTasks is the most that one claim may ask for.
const claimTasks = 128

// rest waits until slots may be free, by a nudge or at a time; the zero time means only by a nudge.
func (u *restSub) rest(ctx context.Context, at time.Time) bool {
	var late <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-u.wake:
	case <-late:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// free counts the slots that nothing holds, and says when the next lease is over that nothing renewed: its task is one
// that the client forgot. It needs mu.
func (s *restStream) free(u *restSub, now time.Time) (n int, next time.Time) {
	// A slot is held from the claim until the settle that ends the task is answered, or until the lease is over.
	n = int(u.spec.GetSlots())
	for k, h := range s.held {
		// A lease that a Hello named may be of any subscription, so each counts it.
		if h.sub != 0 && h.sub != u.spec.GetSub() {
			continue
		}
		// A lease that is surely over holds no slot, though its end was never told.
		if !h.settling && !h.until.IsZero() {
			if !now.Before(h.until) {
				delete(s.held, k)
				continue
			}
			next = retry.Earlier(next, h.until)
		}
		n--
	}
	return n, next
}

// assign gives the client tasks. They go back at once when it has left meanwhile, or wants no more.
func (s *restStream) assign(sub uint32, tasks []*millracev1.Assignment) {
	if len(tasks) == 0 {
		return
	}
	now := time.Now()
	s.mu.Lock()
	// The client receives nothing any more: kept, the tasks would be out of reach until their leases end.
	if gone := s.draining || s.closed || s.cause != nil; gone {
		s.mu.Unlock()
		s.giveBack(tasks)
		return
	}
	defer s.mu.Unlock()
	for _, t := range tasks {
		// Counted from now and not from when the server gave it: a slot is rather free too late than too early.
		lease := time.Duration(t.LeaseMs) * time.Millisecond
		s.held[wire.Lease{ID: t.Id, Token: t.Token}] = &restHold{sub: sub, lease: lease, until: now.Add(lease)}
	}
	s.push(&millracev1.ServerFrame{Frame: &millracev1.ServerFrame_Assign{Assign: &millracev1.Assign{Sub: sub, Tasks: tasks}}})
}

// giveBack releases tasks that came too late. Where that fails their leases end by themselves.
func (s *restStream) giveBack(tasks []*millracev1.Assignment) {
	items := make([]*millracev1.SettleItem, len(tasks))
	for i, t := range tasks {
		items[i] = &millracev1.SettleItem{Id: t.Id, Token: t.Token, Outcome: &millracev1.SettleItem_Release{Release: &millracev1.Release{}}}
	}
	// The stream is over, and this request is not to end with it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.work), wire.ReleaseWithin)
	defer cancel()
	if c, err := settles(items); err == nil {
		_ = s.r.carry(ctx, c, &millracev1.SettleResponse{}) // as above
	}
}

// settle ends attempts. A slot is free when the server has answered: it may refuse, and leave the lease.
func (s *restStream) settle(f *millracev1.SettleFrame) error {
	c, err := settles(f.GetItems())
	if err != nil {
		return err
	}
	keys, ends := make([]wire.Lease, len(f.GetItems())), make([]bool, len(f.GetItems()))
	// A lease whose end is on the way is not counted as lost, however long the answer takes.
	s.mu.Lock()
	for i, it := range f.GetItems() {
		keys[i] = wire.Lease{ID: it.GetId(), Token: it.GetToken()}
		// A failure, a release or a stop that is refused is given up by the client; a completion may be followed by a failure.
		ends[i] = it.GetFail() != nil || it.GetRelease() != nil || it.GetStop() != nil
		if h := s.held[keys[i]]; h != nil {
			h.settling = true
		}
	}
	s.mu.Unlock()
	return s.sequenced(f.GetSeq(), func(a *millracev1.Ack) error {
		var out millracev1.SettleResponse
		err := s.r.carry(s.work, c, &out)
		a.Settled, a.At = out.Results, out.At
		s.settled(keys, ends, out.Results)
		return err
	})
}

// settled frees the slots of attempts that have ended. ends says which settles a client does not follow by another when
// they are refused.
func (s *restStream) settled(keys []wire.Lease, ends []bool, results []*millracev1.SettleResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		h := s.held[k]
		if h == nil {
			continue
		}
		h.settling = false
		if h.lease > 0 {
			h.until = time.Now().Add(h.lease)
		}
		if i >= len(results) {
			continue
		}
		e := results[i].Error
		// The lease has ended: applied, refused for good where the client does nothing more, or lost before. What an effect is refused
		// for, which the error names by its op, may be of another task.
		gone := e == nil || results[i].FailedInstead || ends[i] && retry.Patience(e.Code, e.Reason) == 0 ||
			e.Op == nil && slices.Contains([]string{wire.LeaseLost, wire.NotFound, wire.WrongState}, e.Code)
		if gone {
			delete(s.held, k)
		}
	}
	s.nudgeAll()
}

// renew extends leases. It takes no stream: what waits for one must not cost a lease.
func (s *restStream) renew(f *millracev1.RenewFrame) error {
	items := f.GetItems()
	// All leases that the client is known to have.
	if f.GetAll() {
		items = s.holds()
	}
	c, err := beats(&millracev1.HeartbeatRequest{Items: items, Extend: f.GetExtend()})
	if err != nil {
		return err
	}
	keys := make([]wire.Lease, len(items))
	for i, h := range items {
		keys[i] = wire.Lease{ID: h.GetId(), Token: h.GetToken()}
	}
	// A frame without leases is answered without a request: the client waits for its ack.
	return s.begin(func() {
		s.answer(f.GetSeq(), func(a *millracev1.Ack) error {
			if len(keys) == 0 {
				return nil
			}
			var out millracev1.HeartbeatResponse
			err := s.r.carry(s.work, c, &out)
			a.Renewed, a.At = out.Results, out.At
			s.renewed(keys, out.Results)
			return err
		})
	})
}

// holds lists the leases that are not about to end, in the order of their ids.
func (s *restStream) holds() []*millracev1.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*millracev1.Hold
	for k, h := range s.held {
		if !h.settling {
			out = append(out, &millracev1.Hold{Id: k.ID, Token: k.Token})
		}
	}
	// A frame has no more than a request may carry; the same leases come first each time.
	slices.SortFunc(out, func(a, b *millracev1.Hold) int {
		if a.Id < b.Id {
			return -1
		}
		return 1
	})
	return out[:min(len(out), wire.FrameItems)]
}

// renewed takes in which leases the server extended, and frees the slots of those that were lost.
func (s *restStream) renewed(keys []wire.Lease, results []*millracev1.HeartbeatResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		h := s.held[k]
		if h == nil || i >= len(results) {
			continue
		}
		if results[i].GetLost() {
			delete(s.held, k)
		} else if h.lease > 0 {
			h.until = time.Now().Add(h.lease)
		}
	}
	s.nudgeAll()
}
