package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/bench"
)

const (
	// jetStream names the stream and its consumer. A server that holds the stream already is refused.
	jetStream = "millrace-bench-tasks"
	// jetSubject is what messages are published under; the stream keeps all of them.
	jetSubject = "millrace-bench.tasks"
	// jetLease is how long a worker may take to acknowledge a message before the server gives it to another.
	jetLease = 30 * time.Second
	// jetAnswer is how long the server may take to connect or to answer an acknowledgement.
	jetAnswer = 20 * time.Second
	// jetConns is the largest number of connections, which callers and workers share.
	jetConns = 16
)

// jetBroker is NATS with JetStream: a stream whose messages are removed when they are acknowledged, and one pull consumer.
// Which worker holds a message is not synced; the acknowledgement is, with the removal of the message.
type jetBroker struct {
	adapter
	acknowledged
	// The server counts no syncs, or tells them to no client.
	unsynced
	seen
	// conns are the connections; streams are their handles of JetStream, by the same number.
	conns   []*nats.Conn
	streams []jetstream.JetStream
	// takers are iterators over the consumer's messages, of one connection each. Several workers read from one.
	takers []jetstream.MessagesContext
	// workers counts the goroutines of the workers, for close to wait for.
	workers sync.WaitGroup
}

// openJetStream connects, checks the server, makes the stream and starts the workers. On an error it closes and removes
// what it has made.
func openJetStream(ctx context.Context, o brokerOptions) (broker, error) {
	b := &jetBroker{adapter: adapter{address: o.addresses[0]}}
	// One connection serves 8 callers: they write to it one after the other, and few wait for it.
	for range min(jetConns, max(1, o.callers/8)) {
		c, err := nats.Connect("nats://"+b.address, nats.Timeout(jetAnswer), nats.NoReconnect())
		if err != nil {
			return nil, errors.Join(absent("jetstream", err), b.hangUp())
		}
		b.conns = append(b.conns, c)
		js, err := jetstream.New(c)
		if err != nil {
			return nil, errors.Join(absent("jetstream", err), b.hangUp())
		}
		b.streams = append(b.streams, js)
	}
	if err := b.check(ctx, o); err != nil {
		return nil, errors.Join(err, b.hangUp())
	}
	if err := b.start(ctx, o); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// check refuses a server that syncs otherwise than the run wants it, or holds the bench's stream. The monitor tells how it
// syncs; without one it is declared.
func (b *jetBroker) check(ctx context.Context, o brokerOptions) error {
	class, told := o.declared, "declared"
	if len(o.addresses) > 1 {
		var err error
		if class, told, err = jetSync(ctx, o.addresses[1]); err != nil {
			return err
		}
	}
	switch {
	case class == "":
		return refusedPeer("jetstream", "without the address of its monitor it does not tell how it syncs: give HOST:PORT,MONITOR:PORT, or --peer-durability jetstream=F")
	case class != o.class:
		return refusedPeer("jetstream", "it is of class %s (%s); the run is of class %s", class, told, o.class)
	}
	_, err := b.streams[0].Stream(ctx, jetStream)
	if err == nil {
		return refusedPeer("jetstream", "it holds the stream %s, which a bench has left there: remove it", jetStream)
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return absent("jetstream", err)
	}
	b.report = bench.PeerReport{
		Name: "jetstream", Server: "nats-server " + b.conns[0].ConnectedServerVersion(), Client: module("github.com/nats-io/nats.go"), Class: class,
		Declared: len(o.addresses) < 2, Durable: "create, complete; a claim is kept in memory",
		Settings: []bench.Param{
			param("sync_interval", "%s", told), param("retention", "workqueue"), param("storage", "file"), param("replicas", "1"),
			param("ack_wait", "%s", jetLease),
		},
	}
	return nil
}

// jetSync asks the monitor how the store is synced.
func jetSync(ctx context.Context, monitor string) (class, told string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+monitor+"/jsz?config=1", nil)
	if err != nil {
		return "", "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", absent("jetstream's monitor", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var page struct {
		Config struct {
			Always   bool          `json:"sync_always"`
			Interval time.Duration `json:"sync_interval"`
		} `json:"config"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return "", "", fmt.Errorf("read jetstream's monitor: %w", err)
	}
	if page.Config.Always {
		return "F", "always", nil
	}
	return "N", page.Config.Interval.String(), nil
}

// start makes the stream and its consumer, and begins to take messages.
func (b *jetBroker) start(ctx context.Context, o brokerOptions) error {
	_, err := b.streams[0].CreateStream(ctx, jetstream.StreamConfig{
		Name: jetStream, Subjects: []string{jetSubject}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: 1,
	})
	if err != nil {
		return fmt.Errorf("make jetstream's stream: %w", err)
	}
	_, err = b.streams[0].CreateConsumer(ctx, jetStream, jetstream.ConsumerConfig{
		Durable: jetStream, AckPolicy: jetstream.AckExplicitPolicy, AckWait: jetLease, MaxAckPending: 4 * o.slots,
	})
	if err != nil {
		return fmt.Errorf("make jetstream's consumer: %w", err)
	}
	// One iterator for each connection, but not more than there are workers.
	for i := range min(o.slots, len(b.streams)) {
		c, err := b.streams[i].Consumer(ctx, jetStream, jetStream)
		if err != nil {
			return fmt.Errorf("look up jetstream's consumer: %w", err)
		}
		m, err := c.Messages(jetstream.PullMaxMessages(max(1, 2*o.slots/len(b.streams))))
		if err != nil {
			return fmt.Errorf("take messages of jetstream: %w", err)
		}
		b.takers = append(b.takers, m)
	}
	for i := range o.slots {
		b.workers.Go(func() { b.work(b.takers[i%len(b.takers)], o.work) })
	}
	return nil
}

// work takes messages and acknowledges each, one after the other. The server answers an acknowledgement.
func (b *jetBroker) work(from jetstream.MessagesContext, w work) {
	for {
		m, err := from.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		}
		if err != nil {
			w.failed(err)
			return
		}
		n, ok := w.handled(m.Data())
		ctx, cancel := context.WithTimeout(context.Background(), jetAnswer)
		err = m.DoubleAck(ctx)
		cancel()
		switch {
		case err != nil:
			w.failed(err)
		case ok:
			w.completed(n)
		}
	}
}

// create publishes all payloads of a call, then waits for their answers.
func (b *jetBroker) create(ctx context.Context, caller int, payloads [][]byte) error {
	js := b.streams[caller%len(b.streams)]
	if len(payloads) == 1 {
		_, err := js.Publish(ctx, jetSubject, payloads[0])
		return err
	}
	answers := make([]jetstream.PubAckFuture, len(payloads))
	for i, p := range payloads {
		var err error
		if answers[i], err = js.PublishAsync(jetSubject, p); err != nil {
			return err
		}
	}
	for _, a := range answers {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// left is how many messages the stream holds: one is gone when it is acknowledged.
func (b *jetBroker) left(ctx context.Context) (uint64, error) {
	s, err := b.streams[0].Stream(ctx, jetStream)
	if err != nil {
		return 0, fmt.Errorf("ask jetstream what is left: %w", err)
	}
	return s.CachedInfo().State.Msgs, nil
}

// close ends the workers, deletes the stream with its consumer, and closes the connections.
func (b *jetBroker) close(ctx context.Context) error {
	for _, m := range b.takers {
		m.Stop()
	}
	b.workers.Wait()
	err := b.streams[0].DeleteStream(ctx, jetStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return errors.Join(err, b.hangUp())
}

// hangUp closes the connections. It does not fail: a connection of NATS returns no error when it is closed.
func (b *jetBroker) hangUp() error {
	for _, c := range b.conns {
		c.Close()
	}
	return nil
}
