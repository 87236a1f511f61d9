package millrace

import (
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// QueueRates are what a queue does per second, of the last minute, as the node that answers has seen it: it samples counters each 10 s.
type QueueRates struct {
	Created   float64
	Completed float64
	Failed    float64 // failing attempts
	Crashed   float64 // attempts whose lease was lost
}

// QueueLimits are what the configuration of a queue bounds. A zero field bounds nothing.
type QueueLimits struct {
	MaxTasks   int64 // that have not ended, per partition
	MaxBytes   int64 // payloads and results, per partition
	DefaultTTL time.Duration
	Ceilings   QueueCeilings
}

// queueRates reads rates of the contract.
func queueRates(r *millracev1.QueueRates) *QueueRates {
	if r == nil {
		return nil
	}
	return &QueueRates{Created: r.Created, Completed: r.Completed, Failed: r.Failed, Crashed: r.Crashed}
}

// queueLimits reads limits of the contract.
func queueLimits(l *millracev1.QueueLimits) *QueueLimits {
	if l == nil {
		return nil
	}
	return &QueueLimits{MaxTasks: l.MaxTasks, MaxBytes: l.MaxBytes, DefaultTTL: l.DefaultTtl.AsDuration(), Ceilings: queueCeilings(l.Ceilings)}
}

// queueWorkers reads how many workers serve a queue.
func queueWorkers(s *millracev1.QueueStats) *int {
	if s.Workers == nil {
		return nil
	}
	n := int(*s.Workers)
	return &n
}
