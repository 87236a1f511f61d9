package millrace

import (
	"context"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// EffectNow says whether an effect still stands.
type EffectNow int

// What stands where an effect wrote.
const (
	EffectUnknown EffectNow = EffectNow(millracev1.Effect_UNKNOWN) // it was not looked at, or the token may not read it
	EffectCurrent EffectNow = EffectNow(millracev1.Effect_CURRENT) // it stands as the commit left it
	EffectChanged EffectNow = EffectNow(millracev1.Effect_CHANGED) // something else stands there
	EffectGone    EffectNow = EffectNow(millracev1.Effect_GONE)    // nothing stands there
)

// effectNows are the names of the constants.
var effectNows = [...]string{"unknown", "current", "changed", "gone"}

// String returns the name in lower case.
func (n EffectNow) String() string {
	if n < 0 || int(n) >= len(effectNows) {
		return effectNows[0]
	}
	return effectNows[n]
}

// Effect is what one op of a commit did, or what one of its conditions asked for.
type Effect struct {
	Op    string // as in the contract, such as kv_put
	Space string // keyspace, repository, collection or queue
	Key   []byte // key, name of the ref, id of the point or of the task: its first 256 bytes; nil where the token may not read it
	Rev   uint64 // revision of what was written, or version of the point; 0: it has none
	To    string // of a ref: what it points to from then on; empty: it is gone
	Cut   bool   // Key is longer
	Now   EffectNow
}

// Effects is what the completion of a task did besides ending it, in the same log entry.
type Effects struct {
	Index     uint64 // of the log entry; 0: the completion did nothing else, or there was none
	Completed time.Time
	Token     uint64   // fencing token of the attempt
	Rev       uint64   // of the commit; 0: it wrote nothing that has one
	Count     int      // of all effects
	Effects   []Effect // the first ones, at most 100
	Checked   int      // number of all conditions
	// Conditions are the first ones, at most 100. Whether they still hold is not looked at.
	Conditions []Effect
}

// Effects reads what the completion of a task did besides ending it, and whether that still stands. A task that is not there is
// ErrNotFound.
func (c *Client) Effects(ctx context.Context, id string) (*Effects, error) {
	var resp *millracev1.EffectsResponse
	if err := c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Effects(ctx, &millracev1.EffectsRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	return &Effects{
		Index: resp.GetCommitIndex(), Completed: timeOf(resp.GetCompletedAt()), Token: resp.GetToken(), Rev: resp.GetRev(),
		Count: int(resp.GetCount()), Effects: effectList(resp.GetEffects()), Checked: int(resp.GetChecked()), Conditions: effectList(resp.GetConditions()),
	}, nil
}

// effectList reads effects of the contract.
func effectList(in []*millracev1.Effect) []Effect {
	out := make([]Effect, len(in))
	for i, e := range in {
		out[i] = Effect{Op: e.GetOp(), Space: e.GetSpace(), Key: e.GetKey(), Rev: e.GetRev(), To: e.GetTo(), Cut: e.GetCut(), Now: EffectNow(e.GetNow())}
	}
	return out
}

// WhyReason is one reason why a task is where it is.
type WhyReason struct {
	// Code is delay, retry, snooze, paused, behind, next, no_worker, no_handler, no_slot, partition_unled, disk_full, running, stopping
	// or ended. A newer server may have others.
	Code   string
	Text   string    // in words
	Object string    // what it is about: queue, kind, worker, partition, node, or token of who asked
	Note   string    // what people gave as the reason, or why it ended
	Until  time.Time // zero: open
	Limit  uint64    // the number that holds it up: attempts of the task, slots of workers, tasks that were counted; 0: none
	HeldBy []string  // who does, the first 10: workers, tasks that go before, or token of who asked
}

// Why says why a task is where it is.
type Why struct {
	Queue   string
	State   State
	Since   time.Time   // when it came to that state
	Reasons []WhyReason // the first one is what holds it up most
	Ahead   uint64      // ready tasks of the queue that go before a ready one
	Exact   bool        // false: Ahead was not counted to its end
}

// Why says why a task is where it is. A task that is not there is ErrNotFound.
func (c *Client) Why(ctx context.Context, id string) (*Why, error) {
	var resp *millracev1.WhyResponse
	if err := c.read(ctx, place.Of(id, c.hub.Partitions()), func(ctx context.Context) (err error) {
		resp, err = c.tasks.Why(ctx, &millracev1.WhyRequest{Id: id})
		return err
	}); err != nil {
		return nil, err
	}
	out := &Why{
		Queue: resp.GetQueue(), State: State(resp.GetState()), Since: timeOf(resp.GetSince()), Ahead: resp.GetAhead(), Exact: resp.GetExact(),
	}
	for _, r := range resp.GetReasons() {
		out.Reasons = append(out.Reasons, WhyReason{
			Code: r.GetCode(), Text: r.GetText(), Object: r.GetObject(), Note: r.GetNote(), Until: timeOf(r.GetUntil()),
			Limit: r.GetLimit(), HeldBy: r.GetHeldBy(),
		})
	}
	return out, nil
}
