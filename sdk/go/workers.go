package millrace

import (
	"context"
	"time"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// WorkerInfo is a worker as the leaders of a namespace know it: all streams with the same id and host, or all claims with the same id.
type WorkerInfo struct {
	ID string // as it calls itself; the name of its token where it does not
	// Sessions are those of its streams, named as those of attempts are, the first 16; none: a caller of Claim.
	Sessions []string
	Host     string
	SDK      string   // name and version of its client library
	Queues   []string // that it takes tasks of; of a caller of Claim, those of the last one
	Kinds    []string // that it has handlers for: the first 4 KiB of them
	Slots    int      // most tasks that it takes at a time; of a caller of Claim, of the last one
	Running  int      // tasks whose leases it has
	// OldestLease is when the oldest attempt began that it runs; zero: it runs none. ConnectedAt is when it came to these leaders, and
	// SeenAt when it was heard of last; zero: it only has leases.
	OldestLease time.Time
	ConnectedAt time.Time
	SeenAt      time.Time
	Nodes       []string // names of the leaders that know it
	Quiet       bool     // it is given no further tasks
}

// WorkerList is who takes tasks of a namespace, by id and host. Partial says that a leader was not known or did not answer in time,
// or that there are more than 10,000.
type WorkerList struct {
	Workers []WorkerInfo
	Partial bool
}

// Workers lists who takes tasks of a queue, or of any if it is empty: streams, and callers of Claim, which are shown for five minutes
// after the last one. An election forgets them until they come again.
func (c *Client) Workers(ctx context.Context, queue string) (*WorkerList, error) {
	if !utf8.ValidString(queue) {
		return nil, badText("queue")
	}
	var resp *millracev1.ListWorkersResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.present.List(ctx, &millracev1.ListWorkersRequest{Queue: queue})
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &WorkerList{Partial: resp.Partial, Workers: make([]WorkerInfo, len(resp.Workers))}
	for i, w := range resp.Workers {
		out.Workers[i] = WorkerInfo{
			ID: w.Id, Sessions: w.Sessions, Host: w.Host, SDK: w.Sdk, Queues: w.Queues, Kinds: w.Kinds, Slots: int(w.Slots), Running: int(w.Running),
			OldestLease: timeOf(w.OldestLease), ConnectedAt: timeOf(w.ConnectedAt), SeenAt: timeOf(w.SeenAt), Nodes: w.Nodes, Quiet: w.Quiet,
		}
	}
	return out, nil
}

// QuietWorker gives a worker no further tasks, by any of its streams and claims, or with on false takes that back (needs the scope
// task:operate or admin). Tasks that it runs go on. The nodes forget it once the worker was away for ten minutes, and an election may
// forget it too. It reports whether the worker was so before; one that no leader knows is ErrNotFound.
func (c *Client) QuietWorker(ctx context.Context, id string, on bool) (replayed bool, err error) {
	if !utf8.ValidString(id) {
		return false, badText("worker")
	}
	var resp *millracev1.QuietWorkerResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.present.Quiet(ctx, &millracev1.QuietWorkerRequest{Worker: id, On: on})
		return err
	})
	return resp.GetReplayed(), err
}
