package rest

import (
	"net/http"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// claim serves POST /v1/tasks:claim. Tasks go back to their queues at once if the client does not get the answer.
// It is written by hand: what was taken goes back when the caller is gone.
func (c *restCall) claim() error {
	in := new(pb.ClaimRequest)
	if err := readBody(c, in, claimRequestFields); err != nil {
		return err
	}
	// A node that was named as the leader by another does not send the claim on.
	out, err := c.s.Tasks().ClaimFor(c.ctx, in, c.asks(hopParam))
	if err != nil {
		return err
	}
	// No content; where the answer stands is in its header, as in all others.
	if len(out.GetTasks()) == 0 {
		c.showIndex(out.GetAt())
		c.head(http.StatusNoContent, nil, 0)
		return nil
	}
	// Tasks that were granted to a client which is gone would be lost to all until their leases end.
	if c.r.Context().Err() == nil {
		err = c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeClaimResponse(w, out) })
		if err == nil {
			return nil
		}
	}
	c.s.Tasks().GiveBack(c.ctx, out.GetTasks())
	return errGone
}

// complete serves POST /v1/tasks/{id}/complete.
// It is written by hand: it is one item of a batch.
func (c *restCall) complete() error {
	m := oneBody[completeBody]{item: new(pb.SettleItem), outcome: completeBody{Complete: new(pb.Complete)}}
	b, err := c.body()
	if err != nil {
		return err
	}
	d := newJSONReader(b, &c.s.Limits)
	readObject(d, &m, completeOneFields)
	d.End()
	// The result's type may come after the result, so both are held together only at the end.
	m.outcome.finish(d)
	if d.Fact() != nil {
		return d.Fact()
	}
	m.item.Outcome = &pb.SettleItem_Complete{Complete: m.outcome.Complete}
	return c.settleOne(m.item, "complete")
}

// failTask serves POST /v1/tasks/{id}/fail.
// It is written by hand: it is one item of a batch.
func (c *restCall) failTask() error {
	m := oneBody[pb.Fail]{item: new(pb.SettleItem)}
	if err := readBody(c, &m, failOneFields); err != nil {
		return err
	}
	m.item.Outcome = &pb.SettleItem_Fail{Fail: &m.outcome}
	return c.settleOne(m.item, "fail")
}

// snooze serves POST /v1/tasks/{id}/snooze.
// It is written by hand: it is one item of a batch.
func (c *restCall) snooze() error {
	m := oneBody[pb.Snooze]{item: new(pb.SettleItem)}
	if err := readBody(c, &m, snoozeOneFields); err != nil {
		return err
	}
	m.item.Outcome = &pb.SettleItem_Snooze{Snooze: &m.outcome}
	return c.settleOne(m.item, "snooze")
}

// release serves POST /v1/tasks/{id}/release.
// It is written by hand: it is one item of a batch.
func (c *restCall) release() error {
	m := oneBody[pb.Release]{item: new(pb.SettleItem)}
	if err := readBody(c, &m, releaseOneFields); err != nil {
		return err
	}
	m.item.Outcome = &pb.SettleItem_Release{Release: &m.outcome}
	return c.settleOne(m.item, "release")
}

// stopTask serves POST /v1/tasks/{id}/stop.
// It is written by hand: it is one item of a batch.
func (c *restCall) stopTask() error {
	m := oneBody[pb.Stop]{item: new(pb.SettleItem)}
	if err := readBody(c, &m, stopOneFields); err != nil {
		return err
	}
	m.item.Outcome = &pb.SettleItem_Stop{Stop: &m.outcome}
	return c.settleOne(m.item, "stop")
}

// settleOne settles one task, whose refusal is the answer's.
func (c *restCall) settleOne(item *pb.SettleItem, outcome string) error {
	item.Id = c.params[0]
	settled, at, err := c.s.Tasks().SettleOne(c.ctx, item, outcome, c.route.name())
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, at, func(w *jsonWriter) {
		writeSettleResult(w, settled)
		w.Exact("index", at.GetIndex())
	})
}

// heartbeatOne serves POST /v1/tasks/{id}/heartbeat.
// It is written by hand: it is one item of a batch.
func (c *restCall) heartbeatOne() error {
	// The token comes from the body, the id from the path.
	in := new(pb.HeartbeatRequest)
	if err := readBody(c, in, heartbeatOneFields); err != nil {
		return err
	}
	// Without a token: the service refuses it by its name.
	if len(in.GetItems()) == 0 {
		in.Items = []*pb.Hold{{}}
	}
	hold := in.GetItems()[0]
	hold.Id = c.params[0]
	out, err := c.s.Tasks().Heartbeat(c.ctx, in)
	if err != nil {
		// The body is the one item.
		return edge.Unprefixed("items[0]", err)
	}
	r := out.GetResults()[0]
	if r.GetLost() {
		id, _ := core.ParseTaskID(hold.GetId()) // Heartbeat read it
		return core.LeaseLost{Task: id, Given: core.Token(hold.GetToken())}
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) {
		w.time("lease_until", r.GetLeaseUntil())
		w.OptBool("cancel", r.GetCancel())
		w.Exact("index", out.GetAt().GetIndex())
	})
}
