package apitest

import "github.com/millrace/millrace/internal/core"

// SampleFacts has one of every fact, by the name of its type.
func SampleFacts() map[string]core.Fact {
	return map[string]core.Fact{
		"Invalid":          core.Invalid{Field: "tasks[3].unique.ttl", Reason: "r", Message: "m"},
		"TooLarge":         core.TooLarge{Field: "f", Limit: "payload_bytes", Max: 9},
		"Unauthenticated":  core.Unauthenticated{},
		"Denied":           core.Denied{Scope: "admin"},
		"NotFound":         core.NotFound{Kind: "task", ID: "x"},
		"AlreadyExists":    core.AlreadyExists{Kind: "task", ID: "x"},
		"LeaseLost":        core.LeaseLost{Given: 5},
		"WrongState":       core.WrongState{State: core.Running}, // of a queue; of a task it names the task
		"WrongBatch":       core.WrongBatch{State: core.BatchSealed},
		"SessionExpired":   core.SessionExpired{},
		"WrongMembership":  core.WrongMembership{Reason: "learner_behind", Node: 4, Lag: 1001},
		"NotEmpty":         core.NotEmpty{Held: []string{"tasks", "keys"}},
		"QueuePinned":      core.QueuePinned{Queue: "mail"},
		"InUse":            core.InUse{Kind: "limiter", ID: "api", By: "queue mail"},
		"NotMoved":         core.NotMoved{Why: "node 3 is behind"},
		"FormatHeld":       core.FormatHeld{Format: 2, Older: []uint64{1, 3}, Silent: []uint64{4}},
		"RevMismatch":      core.RevMismatch{Rev: 8, Value: []byte("now")},
		"WrongPartition":   core.WrongPartition{Ops: []int{1, 4}},
		"RateLimited":      core.RateLimited{Limit: "creates", RetryAfter: 1500},
		"Exhausted":        core.Exhausted{Limit: "queues", Max: 10},
		"NotLeader":        core.NotLeader{Leader: "n2:7081"},
		"Unavailable":      core.Unavailable{Reason: "overload", Limit: "proposals", Unknown: true},
		"DeadlineExceeded": core.DeadlineExceeded{Unknown: true},
	}
}
