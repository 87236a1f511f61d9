package replog

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/wal"
)

// Log is the node's log, which all its shards share.
type Log = wal.Log

// ErrQueueFull says that the log takes nothing more for now.
var ErrQueueFull = wal.ErrQueueFull

// LogOptions are the options of a log.
type LogOptions = wal.Options

// OpenLog opens a node's log.
func OpenLog(o LogOptions) (*Log, error) { return wal.Open(o) }

// Submit hands a's content to the log. done is called once it is durable, or with what ended the log; not when an error
// is returned. An Append that is Empty has nothing to submit.
func Submit(log *Log, shard core.ShardID, a *Append, done func(error)) error {
	if a.snapshot != nil && !a.restarted {
		a.restarted = true
		end := done
		if len(a.entries) > 0 {
			end = func(error) {} // what ended the log ends the entries too, which come behind
		}
		log.ResetTo(shard, a.snapshot.GetIndex(), a.snapshot.GetTerm(), a.hard, end)
		if len(a.entries) == 0 {
			return nil
		}
	}
	return log.Append(wal.Batch{Shard: shard, HardState: a.hard, Entries: a.entries, Done: done})
}
