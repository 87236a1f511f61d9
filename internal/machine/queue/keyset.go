package queue

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// What is set for a key is kept with its lane, which stays as long as something is set. A key that is paused gives out no tasks;
// where a time was named, ticks let it go on.

// applyKeySet replaces what was set for a key of a queue.
func (m *Machine) applyKeySet(tx core.Txn, c *core.ApplyContext, op *core.KeySet) (core.OpResult, core.Fact) {
	if fact := checkKeySet(c, op); fact != nil {
		return core.OpResult{}, fact
	}
	l := m.lineOf(op.Queue)
	if l == nil {
		return core.OpResult{}, core.NotFound{Kind: "queue", ID: op.Queue}
	}
	var was laneSet
	if ln := l.keyed(op.Key); ln != nil && ln.set != nil {
		was = *ln.set
	}
	is := was
	if !op.KeepSettings {
		is.KeySettings = op.Settings
	}
	switch op.Pause {
	case core.KeyPauseStop:
		is.paused = core.QueuePaused{Since: c.Stamp, Until: op.Until, By: c.Principal, Reason: cutReason(op.Reason)}
		if was.paused.Since != 0 {
			is.paused.Since = was.paused.Since
			if is.paused.Until == was.paused.Until && is.paused.Reason == was.paused.Reason {
				is.paused = was.paused
			}
		}
	case core.KeyPauseGoOn:
		is.paused = core.QueuePaused{}
	}
	if is == was {
		return core.OpResult{Replayed: true}, nil
	}
	if was == (laneSet{}) {
		if fact := m.roomForKey(l, op.Key); fact != nil {
			return core.OpResult{}, fact
		}
		if l.share != nil && l.share.keysSet >= core.MaxKeySettings {
			return core.OpResult{}, core.Exhausted{Limit: "key_settings", Max: core.MaxKeySettings}
		}
	}
	ln := m.laneFor(l, op.Key, nil)
	before := ln.rateLimit()
	m.setKey(l, ln, &is)
	m.rerate(ln, before, ln.rateLimit(), c.Stamp)
	return core.OpResult{}, nil
}

// checkKeySet refuses what no op may set.
func checkKeySet(c *core.ApplyContext, op *core.KeySet) core.Fact {
	if fact := notYetShared(c, "op"); fact != nil {
		return fact
	}
	switch {
	case op.Queue == "" || len(op.Queue) > maxName:
		return core.Invalid{Field: "queue", Message: fmt.Sprintf("must have 1 to %d characters", maxName)}
	case op.Key == "":
		return core.Invalid{Field: "key", Message: "is required"}
	case len(op.Key) > core.MaxKey:
		return core.TooLarge{Field: "key", Limit: "key_bytes", Max: core.MaxKey}
	case strings.IndexByte(op.Key, 0) >= 0:
		return core.Invalid{Field: "key", Message: "must not have a zero byte"}
	case op.Pause > core.KeyPauseGoOn:
		return core.Invalid{Field: "pause", Message: "is not known"}
	case op.Settings.Weight > core.MaxWeight:
		return core.Invalid{Field: "weight", Message: fmt.Sprintf("must be at most %d", core.MaxWeight)}
	case op.Settings.Concurrency < 0 || op.Settings.Concurrency > core.MaxConcurrency:
		return core.Invalid{Field: "concurrency", Message: fmt.Sprintf("must be from 0 to %d", core.MaxConcurrency)}
	}
	return checkRate("rate", &op.Settings.Rate)
}

// setKey replaces what is set for the key of a lane; all zero: nothing is.
func (m *Machine) setKey(l *queueState, ln *lane, is *laneSet) {
	s := l.share
	m.touch(l)
	m.touchLane(ln)
	if ln.set != nil {
		s.keysSet--
	}
	ln.set = nil
	if *is != (laneSet{}) {
		kept := *is
		ln.set = &kept
		s.keysSet++
	}
	m.keyResumes.keep(keyResuming{ln}, ln.goesOn())
}

// goesOn reports whether a key is paused and goes on by itself.
func (ln *lane) goesOn() bool { return ln.isPaused() && ln.set.paused.Until != 0 }

// keyResuming orders the paused keys that go on by themselves, by when.
type keyResuming struct{ *lane }

func (r keyResuming) place() *int32 { return &r.byResume }
func (r keyResuming) before(o keyResuming) bool {
	switch a, b := r.set.paused.Until, o.set.paused.Until; {
	case a != b:
		return a < b
	case r.queue.number != o.queue.number:
		return r.queue.number < o.queue.number
	}
	return r.number < o.number
}

// keyResumeDue is the earliest shard time at which a key goes on by itself, by what the wall clocks show now.
func (m *Machine) keyResumeDue() core.ShardTime {
	r, ok := m.keyResumes.top()
	if !ok {
		return core.Never
	}
	return r.set.paused.Until.Add(-m.shift)
}

// tickPausedKeys lets the keys go on whose time has come, up to budget.
func (m *Machine) tickPausedKeys(c *core.ApplyContext, budget int) (used int) {
	for used < budget && m.keyResumeDue() <= c.Stamp {
		r, _ := m.keyResumes.top()
		is := *r.set
		is.paused = core.QueuePaused{}
		m.setKey(r.queue, r.lane, &is)
		used++
	}
	return used
}
