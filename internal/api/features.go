package api

import "slices"

// features are what this server has that version 1 of the protocol began without, sorted. A client that may meet older servers looks for
// a name instead of trying. A name that was told once stays.
var features = []string{
	"available", // a subscription without slots is told of tasks
	"bulk",      // jobs about many tasks
	"cancel",
	"end_claim", // EndClaim, and the field claim that names one
	"errors",    // groups of errors
	"events",    // GET /v1/events
	"expires_at",
	"keys", // lines, shares and limits of keys, and limits of queues
	"labels",
	"pause",
	"report",       // progress, log lines and checkpoints
	"task_actions", // retry, release by force, edit, delete
	"waits",        // frames that wait for the end of tasks
	"watch",
	"why",
}

// Features returns the names of what this server has. The caller may change the list.
func Features() []string { return slices.Clone(features) }
