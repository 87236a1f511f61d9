package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// errorRow checks a group of errors, or what is known of all groups of a queue.
func (a *audit) errorRow(row keys.QueueRow, value []byte) error {
	q := a.queues[row.Queue]
	if q == nil {
		a.find("queue number %d of %d has groups of errors", row.Queue, a.meta.queues)
		return nil
	}
	if row.Record == keys.RecordErrors {
		var err error
		if _, q.errors, err = decodeErrors(value); err != nil {
			return err
		}
		a.errors++
		return a.has(keys.AppendErrorTimer(nil, a.p, q.errors.due, row.Queue), "timer of the groups of errors of queue number %d", row.Queue)
	}
	g, err := decodeErrorGroup(value)
	if err != nil {
		return err
	}
	fp := core.Fingerprint(row.Fingerprint)
	if fp == 0 {
		q.foundErrors.other = true
	} else {
		q.foundErrors.groups++
	}
	var recent uint64
	for _, n := range g.Trend {
		recent += n
	}
	if g.Count < recent || g.Trend[core.ErrorHours-1] == 0 || g.Last < g.First || len(g.Sample) == 0 || len(g.Sample) > core.ErrorSample {
		a.find("group %s of errors of queue number %d counts %d errors, %d of them lately, from %d to %d, with %d tasks",
			fp, row.Queue, g.Count, recent, g.First, g.Last, len(g.Sample))
	}
	if g.Code != "" && fp != fingerprintOf(g.Kind, &core.TaskError{Code: g.Code}) {
		a.find("group %s of errors of queue number %d is not that of kind %q and code %q", fp, row.Queue, g.Kind, g.Code)
	}
	return nil
}

// compareErrors compares how many groups of errors a queue is said to have with those that were found.
func (a *audit) compareErrors(number uint32, q *counted) {
	if q.errors.groups != q.foundErrors.groups || q.errors.other != q.foundErrors.other {
		a.find("queue number %d counts %d groups of errors, others %v, and has %d, %v",
			number, q.errors.groups, q.errors.other, q.foundErrors.groups, q.foundErrors.other)
	}
}
