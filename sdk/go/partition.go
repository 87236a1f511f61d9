package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// A namespace has P partitions, each with a leader of its own. A client learns P from the first stream that it is let in
// on, and then has a stream for each partition that it uses: a stream with a session, which follows that partition's leader.
// Until then, and for ever where P is 1, the first stream is the only one.

// partitions is how many the namespace has; 0 while that is not known.
func (c *Client) partitions() int { return int(c.parts.Load()) }

// learned takes in how many partitions there are. A namespace never loses any.
func (c *Client) learned(n int) {
	for {
		old := c.parts.Load()
		if int32(n) <= old {
			return
		}
		if c.parts.CompareAndSwap(old, int32(n)) {
			c.router.Widen(n)
			return
		}
	}
}

// learn returns how many partitions there are, and waits for the first stream if it has to.
func (c *Client) learn(ctx context.Context) (int, *Error) {
	if n := c.partitions(); n > 0 {
		return n, nil
	}
	k := c.prod.newCall()
	k.asks = true
	ended, e := c.prod.do(ctx, k)
	if ended {
		c.prod.free(k)
	}
	return c.partitions(), e
}

// place names the tasks of k and finds its partition. While it is not known how many there are, k stays open.
func (c *Client) place(k *call) (err *Error) {
	n := c.partitions()
	switch {
	case k.placed:
	case k.commit != nil:
		home := -1
		if f := k.commit.Fence; f != nil {
			home = partitionOf(f.Task, n)
			if home < 0 {
				n = 1 // the server says that there is no such lease
			}
		}
		k.place, err = placeAll(k.commit.Conditions, k.commit.Ops, n, home)
		k.placed = n > 0
	default:
		for _, s := range k.specs {
			if k.place, err = placeTask(s, n, c.next(n)); err != nil {
				return err
			}
		}
		k.placed = n > 0
	}
	return err
}

// next is the partition of tasks that say none. It changes with each frame of creates, so that what goes out together stays
// together: frames and log entries are as large as with one partition.
func (c *Client) next(partitions int) int { return int(c.turn.Load() % uint32(max(partitions, 1))) }

// do carries out a call that was placed, on the stream of its partition.
func (c *Client) do(ctx context.Context, k *call) (ended bool, err *Error) {
	for {
		p := c.producer(k.place)
		if p == nil {
			return true, closedError()
		}
		if ended, err = p.do(ctx, k); err == nil || err.Reason != reasonUnplaced {
			return ended, err
		}
		k.state.Store(callQueued)
		k.err = nil
		if err = c.place(k); err != nil {
			return true, err
		}
	}
}

// producer returns the stream of a partition; nil when the client is closed.
func (c *Client) producer(partition int) *producerStream {
	if partition == 0 {
		return c.prod
	}
	if all := c.others.Load(); all != nil && partition < len(*all) && (*all)[partition] != nil {
		return (*all)[partition]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	all := make([]*producerStream, max(c.partitions(), partition+1))
	if old := c.others.Load(); old != nil {
		copy(all, *old)
	}
	if all[partition] == nil {
		all[partition] = newProducerStream(c, partition)
		c.others.Store(&all)
	}
	return all[partition]
}

// producers are the streams there are.
func (c *Client) producers() []*producerStream {
	out := []*producerStream{c.prod}
	if all := c.others.Load(); all != nil {
		for _, p := range *all {
			if p != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// NewID makes an id for a task that is added with opts, of which a tag or a unique key say its partition: the task has it
// as it is. It waits for the server when the client has not spoken to it yet.
func (c *Client) NewID(ctx context.Context, opts ...AddOption) (string, error) {
	n, e := c.learn(ctx)
	if e != nil {
		return "", e
	}
	spec := new(millracev1.TaskSpec)
	for _, o := range opts {
		o.task(spec)
	}
	spec.Id = ""
	if _, e := placeTask(spec, n, -1); e != nil {
		return "", e
	}
	return spec.Id, nil
}

// anywhere is the partition of a call that is about none.
const anywhere = -1
