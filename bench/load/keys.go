package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// There are more keys in use than a window of seconds puts, and few enough that a driver can hold
// what was acknowledged of each.
const (
	keysInUse = 1 << 20
	// keysKeyspace is the keyspace of all runs.
	keysKeyspace = "bench"
	// underWayLook is how often the calls under way are counted.
	underWayLook = 5 * time.Millisecond
)

// keyRun is one client that puts keys through one stream, without waiting for one answer before the
// next put. One goroutine sends and another takes the answers.
type keyRun struct {
	rig *bench.Rig
	// ledger has what was acknowledged of each key. The audit reads it.
	ledger *bench.KeyLedger
	// put is where puts are recorded.
	put *bench.Op
	// client and stream are used by the goroutine that sends, and by the one that waits.
	client *millrace.Client
	stream *millrace.KVStream
	// next is the number of the next put.
	next atomic.Uint64
	// sent counts puts that were given to the stream.
	sent atomic.Uint64
	// ended counts puts with an answer, whatever it is. sent − ended is what is under way.
	ended atomic.Uint64
	// under is what the goroutine of look has seen. It is read when that has ended.
	under underWay
}

// underWay is the sum of the puts under way over a number of looks, within the window.
type underWay struct{ sum, looks uint64 }

// Keys puts keys as fast as one stream takes them. A row that says how many puts there are ends
// when all of them are acknowledged, or with its window if that is over first.
func Keys(ctx context.Context, rig *bench.Rig) error {
	k, err := openKeys(ctx, rig)
	if err != nil {
		return err
	}
	return errors.Join(k.run(ctx), k.close())
}

// KeysSteady is Keys for so long that stores compact and logs are reused. Its end is compared with
// its beginning.
func KeysSteady(ctx context.Context, rig *bench.Rig) error {
	if rig.Ceiling {
		return Keys(ctx, rig)
	}
	s := &steadyRun{
		rig: rig, first: min(steadyFirst, rig.Window/5), count: "put", timed: "put", early: newLatencies(), late: newLatencies(),
	}
	return s.follow(ctx, Keys)
}

// newKeyLedger makes the ledger of a run, by the row's sizes.
func newKeyLedger(rig *bench.Rig) *bench.KeyLedger {
	return bench.NewKeyLedger(bench.KeyOptions{
		Keyspace: keysKeyspace, Keys: keysInUse, KeyBytes: max(rig.Shape.Key, 8), ValueBytes: len(rig.Payload),
		Partitions: max(rig.Shape.Shards, 1), Seed: rig.Seed, Full: rig.Full,
	})
}

// openKeys connects the client, and gives the rig the ledger that the audit reads.
func openKeys(ctx context.Context, rig *bench.Rig) (*keyRun, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	rig.Keys = newKeyLedger(rig)
	return &keyRun{rig: rig, ledger: rig.Keys, put: rig.Op("put"), client: c, stream: c.KV(keysKeyspace).Stream()}, nil
}

// close ends the stream before its client.
func (k *keyRun) close() error { return errors.Join(k.stream.Close(), k.client.Close()) }

// run feeds the stream for the warm-up, and then through the window as the shape says.
func (k *keyRun) run(ctx context.Context) error {
	if err := k.feed(ctx, until(time.Now().Add(k.rig.Warmup))); err != nil {
		return err
	}
	err := k.rig.MeasureWork(ctx, func(ctx context.Context) error {
		looking, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.look(looking)
		}()
		over := until(time.Now().Add(k.rig.Window))
		// left is the number of puts that the row still wants; it counts only where the row names a
		// number.
		left := k.rig.Shape.Puts
		err := k.feed(ctx, func() bool {
			left--
			return k.rig.Shape.Puts > 0 && left < 0 || over()
		})
		stop()
		<-done
		return err
	})
	if k.under.looks > 0 {
		k.rig.UnderWay(float64(k.under.sum) / float64(k.under.looks))
	}
	return err
}

// until returns a function that reports whether a time has come. It reads the clock only in one of
// 16 calls, since a reading would cost a part of a put. Not for use by several goroutines.
func until(end time.Time) func() bool {
	// every is 16, so a window ends up to 15 puts late.
	const every = 16
	n := 0
	return func() bool {
		n++
		return n%every == 0 && !time.Now().Before(end)
	}
}

// look counts what is under way until ctx ends. k.under is its own until then.
func (k *keyRun) look(ctx context.Context) {
	tick := time.NewTicker(underWayLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.under.sum += k.sent.Load() - k.ended.Load()
			k.under.looks++
		case <-ctx.Done():
			return
		}
	}
}

// sentPut is a put that waits for its answer. Its latency counts from at.
type sentPut struct {
	// n is the number of the put, from which the ledger knows key and value.
	n  uint64
	at time.Time
	// w gets the answer.
	w millrace.Written
}

// feed puts keys until over says so, or ctx ends, and returns when each put has its answer. The
// channel between both goroutines bounds the puts under way to the row's number.
func (k *keyRun) feed(ctx context.Context, over func() bool) error {
	sent := make(chan sentPut, max(k.rig.Shape.Ahead, 1))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for p := range sent {
			rev, err := p.w.Wait(ctx)
			k.answer(0, p.n, p.at, rev, err)
		}
	}()
	for !over() && ctx.Err() == nil {
		n := k.next.Add(1) - 1
		p := sentPut{n: n, at: time.Now()}
		var err error
		// sent is counted before the put, so that it is never smaller than ended.
		k.sent.Add(1)
		if p.w, err = k.stream.Put(ctx, k.ledger.Key(n), k.ledger.Value(n)); err != nil {
			k.answer(1, n, p.at, 0, err)
			continue
		}
		sent <- p
	}
	close(sent)
	<-answered
	return ctx.Err()
}

// answer takes the server's answer to a put, or the error that it was not sent for.
func (k *keyRun) answer(caller int, n uint64, at time.Time, rev uint64, err error) {
	k.ended.Add(1)
	keyAnswer(k.ledger, k.put, caller, n, at, rev, err)
}

// keyAnswer notes the answer in ledger and recorder. A refused put changed nothing; any other error
// leaves its outcome unknown.
func keyAnswer(l *bench.KeyLedger, put *bench.Op, caller int, n uint64, at time.Time, rev uint64, err error) {
	if err == nil {
		l.Acked(n, rev)
	} else if !refused(err) {
		l.Unknown(n)
	}
	put.Record(caller, at, 1, err)
}

// keysShare is the part of its maximum that a stream of puts is offered when its latency is
// measured. keysProbe is how long the maximum is looked for, at most the window.
const (
	keysShare = 0.3
	keysProbe = 2 * time.Second
)

// KeysLatency offers puts one by one, and does not wait for one answer before the next put. The
// rate is the one that is asked for, else that of the row, else 30 % of what the same stream took
// just before as fast as it could. Latencies count from when a put was due; service is the part of
// them from when it was sent.
func KeysLatency(ctx context.Context, rig *bench.Rig) error {
	if rig.Ceiling {
		return Keys(ctx, rig)
	}
	k, err := openKeys(ctx, rig)
	if err != nil {
		return err
	}
	// A rate that is asked for goes before that of the row.
	if rig.Rate <= 0 {
		rig.Rate = float64(rig.Shape.Offered)
	}
	if rig.Rate <= 0 {
		most, err := k.maximum(ctx)
		if err != nil {
			return errors.Join(err, k.close())
		}
		rig.Rate = most * keysShare
		rig.Metric("maximum_puts_per_s", most, "puts/s")
	}
	rig.Metric("offered_per_s", rig.Rate, "puts/s")
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.offer(ctx)
	}()
	err = rig.Measure(ctx)
	<-done
	return errors.Join(err, k.close())
}

// offer puts keys when they are due, until the window ends, and returns when each put has its answer. The
// pacing goroutine never blocks on sent, since Offer keeps the calls under way within its capacity.
func (k *keyRun) offer(ctx context.Context) {
	service := k.rig.Op("service")
	var underWay atomic.Int64
	answer := func(caller int, p sentPut, began time.Time, rev uint64, err error) {
		k.answer(caller, p.n, p.at, rev, err)
		service.Latency(caller, time.Since(began))
		underWay.Add(-1)
	}
	type offered struct {
		sentPut
		began time.Time
	}
	sent := make(chan offered, k.rig.InFlight) // no more are under way
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for p := range sent {
			rev, err := p.w.Wait(ctx)
			answer(0, p.sentPut, p.began, rev, err)
		}
	}()
	k.rig.Offer(ctx, &underWay, func(due time.Time) {
		p := offered{sentPut{n: k.next.Add(1) - 1, at: due}, time.Now()}
		var err error
		if p.w, err = k.stream.Put(ctx, k.ledger.Key(p.n), k.ledger.Value(p.n)); err != nil {
			answer(1, p.sentPut, p.began, 0, err)
			return
		}
		sent <- p
	})
	close(sent)
	<-answered
}

// maximum returns what the stream takes as fast as it can, in puts a second: the second half of a
// short closed loop, after the first has warmed up.
func (k *keyRun) maximum(ctx context.Context) (perSecond float64, err error) {
	half := min(keysProbe, k.rig.Window) / 2
	if err := k.feed(ctx, until(time.Now().Add(half))); err != nil {
		return 0, err
	}
	began, before := time.Now(), k.ledger.Acknowledged()
	if err := k.feed(ctx, until(time.Now().Add(half))); err != nil {
		return 0, err
	}
	n := k.ledger.Acknowledged() - before
	if n == 0 {
		return 0, errors.New("find the maximum: nothing was put")
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
