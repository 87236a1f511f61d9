package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// neighbour is a second tenant on the same server, which uses the same names of queues, keyspaces and keys, and unique
// keys that the first one could take.
type neighbour struct {
	client *client
	// quiet keeps no ledger.
	quiet *client
	// n is the number of the next task.
	n int
}

// neighbourPace is between two rounds of calls.
const neighbourPace = 25 * time.Millisecond

// newNeighbour makes the clients.
func newNeighbour(ctx context.Context, e Env, s system, token proc.Token) (b *neighbour, err error) {
	b = &neighbour{}
	if b.client, err = dial(ctx, e, s, 1, token, "neighbour"); err != nil {
		return nil, err
	}
	b.quiet, err = dial(ctx, e, s, 2, token, "")
	return b, err
}

// load adds tasks and writes keys until ctx ends.
func (b *neighbour) load(ctx context.Context, r *rand.Rand) {
	kv := b.client.KV("registers")
	for ; ctx.Err() == nil; b.n++ {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(20+r.IntN(2000))*time.Millisecond)
		key := "r" + strconv.Itoa(b.n%registers)
		_, _ = plainJob.Add(call, b.client.Client, "of the neighbour", millrace.UniqueKey(strconv.Itoa(b.n), time.Hour)) // how it ended is in the ledger
		_, _ = kv.Put(call, key, "neighbour "+strconv.Itoa(b.n))
		_, _ = kv.Get(call, key)
		cancel()
		pause(ctx, neighbourPace)
	}
}

// work completes tasks until ctx ends.
func (b *neighbour) work(ctx context.Context) error {
	w := b.client.Worker(millrace.Slots(2), millrace.Name("neighbour"), millrace.DrainTimeout(10*time.Second))
	plainJob.Handle(w, plain)
	return w.Run(ctx)
}

// audit reads back what the neighbour sees, which is what it made and nothing else.
func (b *neighbour) audit(ctx context.Context, o *Outcome) error {
	quiet := b.quiet.Client
	final, err := tasks(ctx, quiet, "", kinds)
	if err != nil {
		return err
	}
	stats, err := counters(ctx, quiet, kinds)
	if err != nil {
		return err
	}
	calls, err := b.calls()
	if err != nil {
		return err
	}
	total := check.TotalQueue(calls, final, check.TotalOptions{})
	total.Checker = "neighbour_queue"
	o.judge(total, check.StatsRecount(stats, final))
	values := map[string]string{}
	for i := range registers {
		key := fmt.Sprintf("r%d", i)
		value, _, err := text(ctx, quiet.KV("registers"), key)
		if err != nil {
			return err
		}
		values["registers/"+key] = value
		if value != "" && !strings.HasPrefix(value, "neighbour ") {
			o.fail(fmt.Errorf("key %s of the neighbour holds %q, which it never wrote", key, value))
		}
	}
	o.judge(check.Registers(calls, values))
	// The first tenant's keys are not to be seen under the same names.
	for _, space := range []string{"accounts", "lists", "counters", "rows", "done"} {
		for _, key := range []string{account(0), "l00", "last"} {
			if value, _, err := text(ctx, quiet.KV(space), key); err != nil || value != "" {
				o.fail(fmt.Errorf("the neighbour reads %q in %s/%s, err %w", value, space, key, err))
			}
		}
	}
	return nil
}

// calls reads the ledger.
func (b *neighbour) calls() ([]check.Call, error) {
	return readLedgers([]string{b.client.ledger.Name()})
}
