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
	riverConns  = 100
	riverEvents = 1 << 17
	riverPoll   = 100 * time.Millisecond
)

// riverBroker is PostgreSQL with River. A job is counted when River tells that its row says completed; at the end the rows
// are counted too.
type riverBroker struct {
	adapter
	acknowledged
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	done   func() // ends the subscription
	events sync.WaitGroup
	made   uint64
	mu     sync.Mutex // guards made
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
		const digits = payloadDigits
		n, err := strconv.ParseUint(args.Bench[:min(digits, len(args.Bench))], 10, 64)
		if err != nil {
			w.failed(fmt.Errorf("read a job's number: %w", err))
			continue
		}
		w.completed(n)
	}
}

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

func (b *riverBroker) left(ctx context.Context) (n uint64, err error) {
	err = b.pool.QueryRow(ctx, "SELECT count(*) FROM "+postgresSchema+".river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending')").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("ask river what is left: %w", err)
	}
	return n, nil
}

// settle counts rows: each job whose insert was acknowledged is there, and completed.
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

func (b *riverBroker) fsyncs(ctx context.Context) (n float64, err error) {
	if err := b.pool.QueryRow(ctx, "SELECT wal_sync FROM pg_stat_wal").Scan(&n); err != nil {
		return 0, fmt.Errorf("ask PostgreSQL how often it synced: %w", err)
	}
	return n, nil
}

func (b *riverBroker) close(ctx context.Context) error {
	err := b.client.Stop(ctx)
	b.done()
	b.events.Wait()
	err = errors.Join(err, dropPostgresSchema(ctx, b.pool))
	b.pool.Close()
	return err
}
