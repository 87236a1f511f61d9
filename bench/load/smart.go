package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// Kinds of clients of a cluster: what they do when they ask a node that does not lead.
const (
	// kindPlain asks any node, as behind a balancer, and follows a redirect.
	kindPlain = "plain"
	// kindRotation asks the nodes in turn and follows nothing.
	kindRotation = "rotation"
	// kindSDK is the Go client, which finds the leader by itself.
	kindSDK = "sdk"
)

// taskDoor is a client of a cluster's queue. A caller has one call under way at a time; callers are many.
type taskDoor interface {
	// create makes one task and returns its id.
	create(ctx context.Context, caller int) (id string, err error)
	// claim takes a task, waiting a little for one; id is empty when none came.
	claim(ctx context.Context, caller int) (id string, token uint64, err error)
	// complete ends a task. replayed says that an earlier try had ended it.
	complete(ctx context.Context, caller int, id string, token uint64) (replayed bool, err error)
	// traffic is what was sent to the servers so far. known is false when that cannot be told.
	traffic(ctx context.Context) (t traffic, known bool, err error)
}

// Operations of a caller, in the order in which they come.
const (
	// opCreate counts creates of tasks.
	opCreate = iota
	// opClaim counts claims.
	opClaim
	// opComplete counts completions.
	opComplete
	// opKinds is the number of kinds.
	opKinds
)

// traffic is what clients sent, in whatever unit they send: requests, or calls and frames.
type traffic struct {
	// sent counts everything.
	sent uint64
	// redirected counts what was answered with another address.
	redirected uint64
	// refused counts what a node refused without an address.
	refused uint64
	// of counts what was sent for operations of each kind; all 0 when that is not known.
	of [opKinds]uint64
}

// smartRun is callers, each of which creates a task, claims one, and completes it, over and over.
type smartRun struct {
	rig *bench.Rig
	// door is the kind of client that the row names.
	door taskDoor

	// The operations, and cycle for the way from a create to a completion.
	create, take, settle, cycle *bench.Op
	// empty counts claims that no task came of.
	empty atomic.Uint64
}

// lastClaims is how many claims in a row a caller makes for nothing once the window is over. All
// tasks were created before, so that none is left then.
const lastClaims = 10

// Smart drives a cluster as clients do that find the leader by themselves, and counts what that takes.
func Smart(ctx context.Context, rig *bench.Rig) (err error) {
	r := &smartRun{rig: rig, create: rig.Op("create"), take: rig.Op("claim"), settle: rig.Op("complete"), cycle: rig.Op("cycle")}
	switch rig.Shape.Kind {
	case kindSDK:
		door, err := newSDKDoor(ctx, rig)
		if err != nil {
			return err
		}
		defer door.close()
		r.door = door
	case kindPlain, kindRotation:
		door, err := newWebDoor(rig)
		if err != nil {
			return err
		}
		defer door.http.CloseIdleConnections()
		r.door = door
	default:
		return fmt.Errorf("%q is not a kind of client", rig.Shape.Kind)
	}
	before, known, err := r.door.traffic(ctx)
	if err != nil {
		return err
	}
	done := rig.Generate(ctx, rig.Shape.Loops(), r.once)
	err = rig.Measure(ctx)
	<-done
	if err != nil {
		return err
	}
	if known && !rig.Ceiling {
		if err := r.count(ctx, before); err != nil {
			return err
		}
	}
	return rig.Drain(ctx)
}

// count sets what the operations took since the traffic was before, warm-up included. An operation
// is a create, a claim that a task came of, or a completion.
func (r *smartRun) count(ctx context.Context, before traffic) error {
	t, _, err := r.door.traffic(ctx)
	if err != nil {
		return err
	}
	done := [opKinds]uint64{r.create.Acked(), r.take.Acked(), r.settle.Acked()}
	// Operations are what the callers wanted; sent is what that took.
	ops, cycles, sent := done[opCreate]+done[opClaim]+done[opComplete], done[opComplete], t.sent-before.sent
	if cycles == 0 || sent == 0 {
		return nil
	}
	set := func(name, unit string, n, of uint64) { r.rig.Metric(name, float64(n)/float64(of), unit) }
	set("requests_per_op", "requests", sent, ops)
	set("redirects_per_request", "redirects", t.redirected-before.redirected, sent)
	set("refusals_per_request", "refusals", t.refused-before.refused, sent)
	set("empty_claims_per_cycle", "claims", r.empty.Load(), cycles)
	for op, name := range [opKinds]string{"create", "claim", "complete"} {
		if n := t.of[op] - before.of[op]; n > 0 {
			set("requests_per_"+name, "requests", n, done[op])
		}
	}
	return nil
}

// once takes one task all the way, which need not be the one that the caller created. A call that
// fails ends the turn; the task is then left to another caller, or to its lease.
func (r *smartRun) once(ctx context.Context, p *bench.Pump) {
	id, err := r.door.create(ctx, p.Number)
	r.create.Record(p.Number, p.Intended, 1, err)
	if err != nil {
		if !refused(err) {
			r.rig.Ledger.CreateUnknown(1)
		}
		return
	}
	r.rig.Ledger.Created(id)
	// The task that is claimed may be of another caller.
	token, ok := uint64(0), false
	if id, token, ok = r.claim(ctx, p.Number); !ok {
		return
	}
	began := time.Now()
	replayed, err := r.door.complete(ctx, p.Number, id, token)
	r.settle.Record(p.Number, began, 1, err)
	if err != nil {
		r.rig.Ledger.CompleteUnknown(id, token)
		return
	}
	r.rig.Ledger.Completed(id, token, replayed)
	r.cycle.Record(p.Number, p.Intended, 1, nil)
}

// claim takes a task, however often it must ask. After the window it gives up when none is left.
func (r *smartRun) claim(ctx context.Context, caller int) (id string, token uint64, ok bool) {
	// late counts the claims in a row that came to nothing after the window.
	for late := 0; late < lastClaims && ctx.Err() == nil; {
		began := time.Now()
		id, token, err := r.door.claim(ctx, caller)
		if err != nil {
			r.take.Record(caller, began, 0, err)
			return "", 0, false
		}
		if id != "" {
			r.take.Record(caller, began, 1, nil)
			return id, token, true
		}
		r.empty.Add(1)
		if r.rig.Done() {
			late++
		}
	}
	return "", 0, false
}
