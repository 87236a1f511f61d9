package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"github.com/millrace/millrace/bench"
)

const (
	// beanTube is the tube, which is beanstalkd's word for a queue. A server that holds it already is refused.
	beanTube = "millrace-bench-tasks"
	// beanLease is the time to run: a job that is not deleted within it is ready again.
	beanLease = 30 * time.Second
	// beanWait is how long a worker waits for a job before it looks whether it is to end. beanstalkd counts whole
	// seconds: a part of one would be 0.
	beanWait = time.Second
	// beanConns is the largest number of connections of each side. Workers or producers share them beyond it.
	beanConns = 256
)

// beanBroker is beanstalkd. A reservation is kept in memory: after a restart its job is ready again.
type beanBroker struct {
	adapter
	acknowledged
	// The server counts no syncs, or tells them to no client.
	unsynced
	seen
	// admin is the connection for statistics; guarded by mu.
	admin *beanstalk.Conn
	// makers are the connections of the callers: caller i uses the one of its number, modulo their count.
	makers []*beanstalk.Conn
	// takers are the connections of the workers, one goroutine each.
	takers []*beanstalk.Conn
	// workers counts the goroutines of the workers, for close to wait for.
	workers sync.WaitGroup
	// stop is closed when the workers are to end.
	stop chan struct{}
	mu   sync.Mutex // guards admin, whose answers must not mix
}

// openBeanstalkd connects, checks the server and starts a worker on each connection of the takers. On an error all
// connections are closed again.
func openBeanstalkd(_ context.Context, o brokerOptions) (broker, error) {
	b := &beanBroker{adapter: adapter{address: o.addresses[0]}, stop: make(chan struct{})}
	admin, err := beanstalk.Dial("tcp", b.address)
	if err != nil {
		return nil, absent("beanstalkd", err)
	}
	b.admin = admin
	if err := b.check(o); err != nil {
		return nil, errors.Join(err, b.hangUp())
	}
	for range min(o.callers, beanConns) {
		if b.makers, err = b.dial(b.makers); err != nil {
			return nil, errors.Join(err, b.hangUp())
		}
	}
	for range min(o.slots, beanConns) {
		if b.takers, err = b.dial(b.takers); err != nil {
			return nil, errors.Join(err, b.hangUp())
		}
	}
	for _, c := range b.takers {
		b.workers.Go(func() { b.work(c, o.work) })
	}
	return b, nil
}

// dial opens one more connection, and returns the list with it.
func (b *beanBroker) dial(to []*beanstalk.Conn) ([]*beanstalk.Conn, error) {
	c, err := beanstalk.Dial("tcp", b.address)
	if err != nil {
		return to, absent("beanstalkd", err)
	}
	return append(to, c), nil
}

// check refuses a beanstalkd without a log, or with the bench's tube. How often it syncs its log it does not tell.
func (b *beanBroker) check(o brokerOptions) error {
	if o.declared == "" {
		return refusedPeer("beanstalkd", "it does not tell whether it syncs its log: say --peer-durability beanstalkd=F when it runs with -f 0, or N")
	}
	if o.declared != o.class {
		return refusedPeer("beanstalkd", "it is declared to be of class %s; the run is of class %s", o.declared, o.class)
	}
	stats, err := b.admin.Stats()
	if err != nil {
		return fmt.Errorf("ask beanstalkd what it is: %w", err)
	}
	if stats["binlog-current-index"] == "0" {
		return refusedPeer("beanstalkd", "it keeps no log: start it with -b")
	}
	tubes, err := b.admin.ListTubes()
	if err != nil {
		return fmt.Errorf("ask beanstalkd for its tubes: %w", err)
	}
	if slices.Contains(tubes, beanTube) {
		return refusedPeer("beanstalkd", "it holds the tube %s, which a bench has left there: remove its jobs", beanTube)
	}
	b.report = bench.PeerReport{
		Name: "beanstalkd", Server: "beanstalkd " + stats["version"], Client: module("github.com/beanstalkd/go-beanstalk"), Class: o.declared,
		Declared: true, Durable: "create, complete; a claim is kept in memory",
		Settings: []bench.Param{
			param("sync", "%s", map[string]string{"F": "-f 0", "N": "-F"}[o.declared]), param("binlog_max_size", "%s", stats["binlog-max-size"]),
			param("time_to_run", "%s", beanLease),
		},
	}
	return nil
}

// create puts one job after the other: the protocol of beanstalkd has no batch.
func (b *beanBroker) create(_ context.Context, caller int, payloads [][]byte) error {
	t := beanstalk.NewTube(b.makers[caller%len(b.makers)], beanTube)
	for _, p := range payloads {
		if _, err := t.Put(p, 1, 0, beanLease); err != nil {
			return err
		}
	}
	return nil
}

// work reserves and deletes jobs, one after the other.
func (b *beanBroker) work(c *beanstalk.Conn, w work) {
	tube := beanstalk.NewTubeSet(c, beanTube)
	for {
		select {
		case <-b.stop:
			return
		default:
		}
		id, body, err := tube.Reserve(beanWait)
		if errors.Is(err, beanstalk.ErrTimeout) || errors.Is(err, beanstalk.ErrDeadline) {
			continue
		}
		if err != nil {
			w.failed(err)
			return
		}
		n, ok := w.handled(body)
		if err := c.Delete(id); err != nil {
			w.failed(err)
			return
		}
		if ok {
			w.completed(n)
		}
	}
}

// left returns the jobs of the tube that have not been deleted, whatever their state.
func (b *beanBroker) left(context.Context) (n uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A tube without jobs and without clients does not exist, so it is not an error that it is not found.
	t := beanstalk.NewTube(b.admin, beanTube)
	stats, err := t.Stats()
	if errors.Is(err, beanstalk.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask beanstalkd what is left: %w", err)
	}
	for _, name := range []string{"current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried"} {
		v, err := strconv.ParseUint(stats[name], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s of beanstalkd: %w", name, err)
		}
		n += v
	}
	return n, nil
}

// close ends the workers. A tube without jobs and clients is gone by itself.
func (b *beanBroker) close(context.Context) error {
	close(b.stop)
	b.workers.Wait()
	return b.hangUp()
}

// hangUp closes all connections. A connection that was not opened yet is not in the lists.
func (b *beanBroker) hangUp() error {
	return hangUp(slices.Concat(b.makers, b.takers, []*beanstalk.Conn{b.admin})...)
}
