package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/millrace/millrace/bench"
)

const (
	// riverConns is the largest number of connections of the pool, which callers and the worker share.
	riverConns = 100
	// riverEvents is the buffer of the subscription: River drops an event that finds it full, and the task would look
	// lost.
	riverEvents = 1 << 17
	// riverPoll is how often the worker looks for jobs that no notification told of.
	riverPoll = 100 * time.Millisecond
)

// riverBroker is PostgreSQL with River. A job is counted when River tells that its row says completed; at the end the rows
// are counted too.
type riverBroker struct {
	adapter
	acknowledged
	// pool is the connections to the database.
	pool *pgxpool.Pool
	// client inserts jobs and runs the workers.
	client *river.Client[pgx.Tx]
	// done ends the subscription, which closes the channel of its events.
	done func()
	// events counts the goroutine that reads the subscription, for close to wait for.
	events sync.WaitGroup
	// made is the number of jobs whose insert was acknowledged; guarded by mu.
	made uint64
	// mu guards made: callers add to it at the same time.
	mu sync.Mutex // guards made
}

// riverArgs is a payload: its JSON is the bytes that were issued.
type riverArgs struct {
	Bench string `json:"bench"`
}

// Kind names the job, as River asks.
func (riverArgs) Kind() string { return "millrace-bench" }

// riverWorker hands jobs to the run.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	// work is the run.
	work work
}

// Work carries out one job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	payload, err := json.Marshal(job.Args)
	if err != nil {
		return err
	}
	w.work.handled(payload)
	return nil
}

// openRiver connects, checks the database, makes the tables and starts the workers. On an error it removes what it has
// made.
func openRiver(ctx context.Context, o brokerOptions) (broker, error) {
	c, err := pgxpool.ParseConfig(o.addresses[0])
	if err != nil {
		return nil, refusedPeer("river", "%v", err)
	}
	c.MaxConns = riverConns
	b := &riverBroker{adapter: adapter{address: postgresAddress(c)}}
	if b.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, absent("river", err)
	}
	if err := b.check(ctx, o); err != nil {
		b.pool.Close()
		return nil, err
	}
	if err := b.start(ctx, o); err != nil {
		err = errors.Join(err, dropPostgresSchema(ctx, b.pool))
		b.pool.Close()
		return nil, err
	}
	return b, nil
}

// check refuses a database that is not as the run wants it.
func (b *riverBroker) check(ctx context.Context, o brokerOptions) error {
	version, settings, err := checkPostgres(ctx, b.pool, "river", o.class)
	if err != nil {
		return err
	}
	b.report = bench.PeerReport{
		Name: "river", Server: version, Client: module("github.com/riverqueue/river"), Class: o.class, Durable: "create, claim, complete",
		Settings: append(settings, param("fetch_cooldown", "%s", river.FetchCooldownMin), param("fetch_poll_interval", "%s", riverPoll),
			param("connections", "%d", riverConns)),
	}
	return nil
}

// start makes the tables of River in a schema of their own, and starts its worker.
func (b *riverBroker) start(ctx context.Context, o brokerOptions) error {
	if _, err := b.pool.Exec(ctx, "CREATE SCHEMA "+postgresSchema); err != nil {
		return fmt.Errorf("make a schema: %w", err)
	}
	driver, quiet := riverpgxv5.New(b.pool), slog.New(slog.NewTextHandler(io.Discard, nil))
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: postgresSchema, Logger: quiet})
	if err != nil {
		return fmt.Errorf("make river's tables: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("make river's tables: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{work: o.work})
	b.client, err = river.NewClient(driver, &river.Config{
		Schema: postgresSchema, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.slots}},
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: riverPoll, Logger: quiet, MaxAttempts: 1,
	})
	if err != nil {
		return fmt.Errorf("make river's client: %w", err)
	}
	events, done := b.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: riverEvents, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled},
	})
	b.done = done
	b.events.Go(func() { riverListen(events, o.work) })
	if err := b.client.Start(ctx); err != nil {
		done()
		return fmt.Errorf("start river: %w", err)
	}
	return nil
}

// riverListen hears of jobs whose rows say that they are completed.
func riverListen(events <-chan *river.Event, w work) {
	for e := range events {
		var args riverArgs
		err := json.Unmarshal(e.Job.EncodedArgs, &args)
		if e.Kind != river.EventKindJobCompleted || err != nil {
			w.failed(fmt.Errorf("a job ended as %s", e.Kind))
			continue
		}
		// A payload begins with the digits of the task's number, and may go on with others to make up its size.
		const digits = payloadDigits
		n, err := strconv.ParseUint(args.Bench[:min(digits, len(args.Bench))], 10, 64)
		if err != nil {
			w.failed(fmt.Errorf("read a job's number: %w", err))
			continue
		}
		w.completed(n)
	}
}

// create inserts the jobs of a call: one alone by an INSERT, several by COPY. River marshals the arguments itself, so
// the payload is read into them first.
func (b *riverBroker) create(ctx context.Context, _ int, payloads [][]byte) error {
	jobs := make([]river.InsertManyParams, len(payloads))
	for i, p := range payloads {
		var args riverArgs
		if err := json.Unmarshal(p, &args); err != nil {
			return err
		}
		jobs[i] = river.InsertManyParams{Args: args}
	}
	var err error
	if len(jobs) == 1 {
		_, err = b.client.Insert(ctx, jobs[0].Args, nil)
	} else {
		_, err = b.client.InsertManyFast(ctx, jobs)
	}
	if err == nil {
		b.mu.Lock()
		b.made += uint64(len(jobs))
		b.mu.Unlock()
	}
	return err
}

// left counts the rows in every state in which a job has not ended.
func (b *riverBroker) left(ctx context.Context) (n uint64, err error) {
	err = b.pool.QueryRow(ctx, "SELECT count(*) FROM "+postgresSchema+".river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending')").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("ask river what is left: %w", err)
	}
	return n, nil
}

// settle counts rows: each job whose insert was acknowledged is there, and completed. It returns how many are not.
func (b *riverBroker) settle() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	var n uint64
	if err := b.pool.QueryRow(ctx, "SELECT count(*) FROM "+postgresSchema+".river_job WHERE state = 'completed'").Scan(&n); err != nil {
		return 0, fmt.Errorf("count river's rows: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made - min(n, b.made), nil
}

// fsyncs reads the number of syncs of the log from the statistics of PostgreSQL.
func (b *riverBroker) fsyncs(ctx context.Context) (n float64, err error) {
	if err := b.pool.QueryRow(ctx, "SELECT wal_sync FROM pg_stat_wal").Scan(&n); err != nil {
		return 0, fmt.Errorf("ask PostgreSQL how often it synced: %w", err)
	}
	return n, nil
}

// close stops the workers and the subscription, drops the schema, and closes the pool.
func (b *riverBroker) close(ctx context.Context) error {
	err := b.client.Stop(ctx)
	b.done()
	b.events.Wait()
	err = errors.Join(err, dropPostgresSchema(ctx, b.pool))
	b.pool.Close()
	return err
}
