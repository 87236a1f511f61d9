package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millrace/millrace/bench"
)

const (
	// rabbitQueue is the queue of the bench. A server that holds it already is refused.
	rabbitQueue = "millrace-bench-tasks"
	// rabbitConns is the largest number of connections, which callers and workers share by channels of their own.
	rabbitConns = 8
	// rabbitPrefetch is how many messages a worker may have in advance, so that it need not wait for the next.
	rabbitPrefetch = 2
	// rabbitAnswer is how long the confirms of one call may take.
	rabbitAnswer = 20 * time.Second
	// notFound is the code of AMQP for a queue that does not exist.
	notFound = 404
)

// rabbitBroker is RabbitMQ with a quorum queue, whose log is synced before a publish is confirmed. An acknowledgement by a
// worker is not answered: it has been carried out when the queue says that nothing is left.
type rabbitBroker struct {
	adapter
	acknowledged
	// The server counts no syncs, or tells them to no client.
	unsynced
	// conns are the connections; channels are spread over them.
	conns []*amqp.Connection
	// makers are the channels of the callers, by the caller's number.
	makers []*rabbitMaker
	// takers are the channels of the workers, until settle closes them.
	takers []*amqp.Channel
	// workers counts the goroutines of the workers, for settle to wait for.
	workers sync.WaitGroup
}

// rabbitMaker is the channel of one caller, which gets confirms. No other goroutine uses it.
type rabbitMaker struct{ ch *amqp.Channel }

// openRabbitMQ connects, checks the server, makes the queue and starts the workers. On an error it closes and removes
// what it has made.
func openRabbitMQ(_ context.Context, o brokerOptions) (broker, error) {
	if o.class != "F" {
		return nil, refusedPeer("rabbitmq", "quorum queues sync always: it has no class %s", o.class)
	}
	b := &rabbitBroker{adapter: adapter{address: o.addresses[0]}}
	// One connection serves 8 callers; two at least, so that the socket of one is not the limit.
	for range min(rabbitConns, max(2, o.callers/8)) {
		c, err := amqp.DialConfig("amqp://"+b.address, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
		if err != nil {
			return nil, errors.Join(absent("rabbitmq", err), hangUp(b.conns...))
		}
		b.conns = append(b.conns, c)
	}
	if err := b.check(); err != nil {
		return nil, errors.Join(err, hangUp(b.conns...))
	}
	if err := b.start(o); err != nil {
		return nil, errors.Join(err, b.remove(), hangUp(b.conns...))
	}
	return b, nil
}

// check refuses a server that holds the bench's queue.
func (b *rabbitBroker) check() error {
	ch, err := b.conns[0].Channel()
	if err != nil {
		return absent("rabbitmq", err)
	}
	_, err = ch.QueueDeclarePassive(rabbitQueue, true, false, false, false, nil)
	if err == nil {
		return refusedPeer("rabbitmq", "it holds the queue %s, which a bench has left there: remove it", rabbitQueue)
	}
	// A passive declare of a queue that does not exist fails with notFound, and closes the channel.
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != notFound {
		return absent("rabbitmq", err)
	}
	version, _ := b.conns[0].Properties["version"].(string)
	b.report = bench.PeerReport{
		Name: "rabbitmq", Server: "RabbitMQ " + version, Client: module("github.com/rabbitmq/amqp091-go"), Class: "F", Declared: true,
		Durable: "create; a claim is kept in memory; an acknowledgement is logged, and not answered",
		Settings: []bench.Param{
			param("queue_type", "quorum"), param("members", "1"), param("confirms", "on"), param("prefetch_per_worker", "%d", rabbitPrefetch),
		},
	}
	return nil
}

// start makes the queue, the callers' channels and the workers.
func (b *rabbitBroker) start(o brokerOptions) error {
	ch, err := b.conns[0].Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if _, err := ch.QueueDeclare(rabbitQueue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return fmt.Errorf("make rabbitmq's queue: %w", err)
	}
	for i := range o.callers {
		ch, err := b.conns[i%len(b.conns)].Channel()
		if err == nil {
			err = ch.Confirm(false)
		}
		if err != nil {
			return fmt.Errorf("open a channel with confirms: %w", err)
		}
		b.makers = append(b.makers, &rabbitMaker{ch})
	}
	// Workers of one connection read from one channel, whose prefetch is theirs together.
	for i := range min(o.slots, len(b.conns)) {
		ch, err := b.conns[i].Channel()
		if err == nil {
			err = ch.Qos(max(1, rabbitPrefetch*o.slots/len(b.conns)), 0, false)
		}
		if err != nil {
			return fmt.Errorf("open a channel of workers: %w", err)
		}
		deliveries, err := ch.Consume(rabbitQueue, fmt.Sprintf("millrace-bench-%d", i), false, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("consume rabbitmq's queue: %w", err)
		}
		b.takers = append(b.takers, ch)
		for range max(1, o.slots/len(b.conns)) {
			b.workers.Go(func() { rabbitWork(deliveries, o.work) })
		}
	}
	return nil
}

// rabbitWork acknowledges messages, one after the other.
func rabbitWork(from <-chan amqp.Delivery, w work) {
	for d := range from {
		n, ok := w.handled(d.Body)
		if err := d.Ack(false); err != nil {
			w.failed(err)
			return
		}
		if ok {
			w.completed(n)
		}
	}
}

// create publishes all payloads of a call, then waits for their confirms.
func (b *rabbitBroker) create(ctx context.Context, caller int, payloads [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, rabbitAnswer)
	defer cancel()
	m := b.makers[caller]
	confirms := make([]*amqp.DeferredConfirmation, len(payloads))
	for i, p := range payloads {
		c, err := m.ch.PublishWithDeferredConfirmWithContext(ctx, "", rabbitQueue, true, false, amqp.Publishing{
			ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: p,
		})
		if err != nil {
			return err
		}
		confirms[i] = c
	}
	for _, c := range confirms {
		switch ok, err := c.WaitContext(ctx); {
		case err != nil:
			return err
		case !ok:
			return errors.New("rabbitmq refused a message")
		}
	}
	return nil
}

// left counts what is ready, behind all acknowledgements that the workers sent on their channels. What a worker has and
// did not acknowledge is ready again when its channel has gone: see settle.
func (b *rabbitBroker) left(context.Context) (n uint64, err error) {
	for _, ch := range b.takers {
		if n, err = ready(ch); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// ready returns the number of messages that no worker has. The answer comes behind all that was sent on the channel
// before.
func ready(ch *amqp.Channel) (uint64, error) {
	q, err := ch.QueueDeclarePassive(rabbitQueue, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("ask rabbitmq what is left: %w", err)
	}
	return uint64(q.Messages), nil
}

// settle ends the workers, so that what they did not acknowledge is ready again, and tells how much that is.
func (b *rabbitBroker) settle() (uint64, error) {
	for _, ch := range b.takers {
		if err := ch.Close(); err != nil {
			return 0, fmt.Errorf("end a worker of rabbitmq: %w", err)
		}
	}
	b.takers = nil
	b.workers.Wait()
	ch, err := b.conns[0].Channel()
	if err != nil {
		return 0, fmt.Errorf("open a channel: %w", err)
	}
	defer ch.Close() //nolint:errcheck // it was only asked
	return ready(ch)
}

// close ends the workers, deletes the queue, and closes all connections.
func (b *rabbitBroker) close(context.Context) error {
	_, err := b.settle()
	return errors.Join(err, b.remove(), hangUp(b.conns...))
}

// remove deletes the queue, with the messages that it may still have.
func (b *rabbitBroker) remove() error {
	ch, err := b.conns[0].Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	_, err = ch.QueueDelete(rabbitQueue, false, false, false)
	return err
}
