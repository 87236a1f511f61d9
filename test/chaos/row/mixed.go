package row

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// Sizes of the workload: small enough to be read back within seconds, large enough that a kill always hits something.
const (
	lists      = 16
	accounts   = 8
	opening    = int64(1000)
	producers  = 4
	registers  = 3
	maxTasks   = 6000 // of one run
	slots      = 8    // of each of two workers
	kindPlain  = "plain"
	kindEffect = "effect"
	kindMove   = "move"
	kindFollow = "follow"
)

var (
	retries   = millrace.RetryPolicy{Backoff: millrace.Fixed, Base: 50 * time.Millisecond}
	plainJob  = job[string](kindPlain)
	effectJob = job[string](kindEffect)
	moveJob   = job[move](kindMove)
	followJob = job[string](kindFollow)
	kinds     = []string{kindPlain, kindEffect, kindMove, kindFollow}
)

// job declares a kind whose tasks survive many kills: each may cost a lease.
func job[A any](kind string) *millrace.JobOf[A, string] {
	return millrace.Job[A, string](kind).Lease(5 * time.Second).Attempts(200).Crashes(200).Retry(retries)
}

type move struct {
	From, To string
	Amount   int64
}

// follow is a task that an attempt wanted to add with its completion.
type follow struct {
	parent string
	token  uint64
	id     string
}

// mixed is a workload of all services: tasks that complete, fail and are late, effects on lists, counters and
// accounts, numbers that completions add to, follow-up tasks, rows written with their task, and keys with one writer each.
type mixed struct {
	e       Env
	clients [2]*client // each makes tasks and runs a worker
	quiet   *client    // keeps no ledger
	kinds   []string   // that are made
	added   atomic.Int64

	mu        sync.Mutex // guards the fields below
	effects   []string   // ids of the tasks with effects on lists
	completed []string   // of those, as read back at the end
	pairs     []check.PairRead
	transfers map[string]check.Transfer
	follows   []follow
	rows      map[string]check.Outcome // task ids that were to be made together with a row
	snapshots []check.Snapshot
	kvFinal   map[string]string
}

func newMixed(ctx context.Context, e Env, s system, token proc.Token, made ...string) (*mixed, error) {
	m := &mixed{e: e, kinds: made, transfers: map[string]check.Transfer{}, rows: map[string]check.Outcome{}, kvFinal: map[string]string{}}
	var err error
	for i := range m.clients {
		if m.clients[i], err = dial(ctx, e, s, i, token, strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	if m.quiet, err = dial(ctx, e, s, 2, token, ""); err != nil {
		return nil, err
	}
	return m, m.quiet.Commit(ctx, func(tx *millrace.Tx) {
		for i := range accounts {
			tx.KV("accounts").Put(account(i), strconv.FormatInt(opening, 10))
		}
	})
}

func account(i int) string { return fmt.Sprintf("a%d", i) }

func list(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return fmt.Sprintf("l%02d", h.Sum32()%lists)
}

// load starts producers and writers; it returns when they ended, after ctx has.
func (m *mixed) load(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() { m.produce(ctx, m.clients[i%2], rand.New(rand.NewPCG(m.e.Seed, uint64(100+i)))) })
	}
	for i := range registers {
		wg.Go(func() { m.write(ctx, m.clients[i%2], "r"+strconv.Itoa(i)) })
	}
	wg.Go(func() { m.watchBank(ctx) })
	wg.Go(func() { m.watchEffects(ctx, rand.New(rand.NewPCG(m.e.Seed, 200))) })
	wg.Wait()
}

// work runs both workers until ctx ends and their tasks are settled or given back.
func (m *mixed) work(ctx context.Context) error {
	var wg sync.WaitGroup
	var errs [2]error
	for i, c := range m.clients {
		wg.Go(func() {
			w := c.Worker(millrace.Slots(slots), millrace.Name("worker-"+strconv.Itoa(i)), millrace.DrainTimeout(10*time.Second))
			plainJob.Handle(w, plain)
			effectJob.Handle(w, m.effect)
			moveJob.Handle(w, m.move)
			followJob.Handle(w, plain)
			errs[i] = w.Run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// produce adds tasks of all kinds, with patience that is often too short for a restart: those end unknown.
func (m *mixed) produce(ctx context.Context, c *client, r *rand.Rand) {
	for ctx.Err() == nil && m.added.Load() < maxTasks {
		m.added.Add(1)
		patience := time.Duration(20+r.IntN(3000)) * time.Millisecond
		if r.IntN(3) == 0 {
			patience = time.Duration(1+r.IntN(30)) * time.Millisecond
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		m.add(call, c, r)
		cancel()
		pause(ctx, time.Duration(r.IntN(8))*time.Millisecond)
	}
}

func (m *mixed) add(ctx context.Context, c *client, r *rand.Rand) {
	id := millrace.NewID()
	opts := []millrace.AddOption{millrace.ID(id)}
	if r.IntN(10) == 0 {
		opts = append(opts, millrace.In(time.Duration(r.IntN(300))*time.Millisecond))
	}
	switch kind := m.kinds[r.IntN(len(m.kinds))]; kind {
	case kindEffect:
		m.mu.Lock()
		m.effects = append(m.effects, id)
		m.mu.Unlock()
		_, _ = effectJob.Add(ctx, c.Client, "x", opts...) // how it ended is in the ledger, here and below
	case kindMove:
		m.addMove(ctx, c, r)
	case kindFollow:
		m.addWithRow(ctx, c)
	default:
		_, _ = plainJob.Add(ctx, c.Client, strconv.Itoa(r.IntN(100)), opts...)
	}
}

func (m *mixed) addMove(ctx context.Context, c *client, r *rand.Rand) {
	from := r.IntN(accounts)
	args := move{account(from), account((from + 1 + r.IntN(accounts-1)) % accounts), int64(1 + r.IntN(9))}
	id := millrace.NewID()
	m.mu.Lock()
	m.transfers[id] = check.Transfer{From: args.From, To: args.To, Amount: args.Amount}
	m.mu.Unlock()
	_, _ = moveJob.Add(ctx, c.Client, args, millrace.ID(id))
}

// addWithRow makes a task and a key in one commit: both or neither.
func (m *mixed) addWithRow(ctx context.Context, c *client) {
	var id string
	err := c.Commit(ctx, func(tx *millrace.Tx) {
		h := plainJob.AddTx(tx, "row")
		id = h.ID
		tx.KV("rows").Put(id, "1", millrace.IfAbsent())
	})
	if id == "" { // it ended before anything was put into it
		return
	}
	m.mu.Lock()
	m.rows[id] = check.Outcome(millrace.OutcomeOf(err).String())
	m.mu.Unlock()
}

// sumSpace is the keyspace of numbers that each completion adds one to, that of its queue.
const sumSpace = "sums"

// countIn counts a completion, in the commit that makes it.
func countIn(fx *millrace.Tx, t *millrace.Task) { fx.KV(sumSpace).Add(t.Queue, 1) }

// plain fails some attempts, at random but the same for equal ids.
func plain(_ context.Context, t *millrace.Task, arg string) (string, error) {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", t.ID, t.Attempt)
	switch h.Sum32() % 12 {
	case 0:
		return "", millrace.RetryIn(20*time.Millisecond, errors.New("failed on purpose"))
	case 1:
		return "", millrace.Snooze(30 * time.Millisecond)
	}
	countIn(t.Effects(), t)
	return arg, nil
}

// effectTries bounds how often effects are built again within an attempt, after another task changed the same key.
const effectTries = 20

// build runs f to fill the effects of t, and again when they were refused.
func build(ctx context.Context, t *millrace.Task, f func(ctx context.Context, fx *millrace.Tx) error) error {
	tries := 0
	t.OnRefused(func(ctx context.Context, refused *millrace.Error) error {
		if tries++; tries > effectTries || !errors.Is(refused, millrace.ErrPrecondition) {
			return millrace.RetryIn(20*time.Millisecond, refused)
		}
		t.Effects().Reset()
		return later(f(ctx, t.Effects()))
	})
	return later(f(ctx, t.Effects()))
}

// later makes a failed read a short wait.
func later(err error) error {
	if err == nil {
		return nil
	}
	return millrace.RetryIn(50*time.Millisecond, err)
}

// effect appends the task's id to a list, counts it, and leaves a key of its own.
func (m *mixed) effect(ctx context.Context, t *millrace.Task, _ string) (string, error) {
	name := list(t.ID)
	return "done", build(ctx, t, func(ctx context.Context, fx *millrace.Tx) error {
		ids, listRev, err := text(ctx, m.quiet.KV("lists"), name)
		if err != nil {
			return err
		}
		n, countRev, err := number(ctx, m.quiet.KV("counters"), name)
		if err != nil {
			return err
		}
		fx.KV("lists").Put(name, ids+t.ID+"\n", millrace.IfRev(listRev))
		fx.KV("counters").Put(name, strconv.FormatInt(n+1, 10), millrace.IfRev(countRev))
		fx.KV("done").Put(t.ID, strconv.FormatUint(t.Token(), 10), millrace.IfAbsent())
		countIn(fx, t)
		return nil
	})
}

// move moves money between two accounts and adds a follow-up task.
func (m *mixed) move(ctx context.Context, t *millrace.Task, a move) (string, error) {
	return "moved", build(ctx, t, func(ctx context.Context, fx *millrace.Tx) error {
		kv := m.quiet.KV("accounts")
		from, fromRev, err := number(ctx, kv, a.From)
		if err != nil {
			return err
		}
		to, toRev, err := number(ctx, kv, a.To)
		if err != nil {
			return err
		}
		fx.KV("accounts").Put(a.From, strconv.FormatInt(from-a.Amount, 10), millrace.IfRev(fromRev))
		fx.KV("accounts").Put(a.To, strconv.FormatInt(to+a.Amount, 10), millrace.IfRev(toRev))
		countIn(fx, t)
		h := followJob.AddTx(fx, t.ID)
		m.mu.Lock()
		m.follows = append(m.follows, follow{t.ID, t.Token(), h.ID})
		m.mu.Unlock()
		return nil
	})
}

// write is the one writer of a key, and reads it between its writes.
func (m *mixed) write(ctx context.Context, c *client, key string) {
	kv := c.KV("registers")
	for n := 1; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_, _ = kv.Put(call, key, strconv.Itoa(n))
		_, _ = kv.Get(call, key)
		cancel()
		pause(ctx, 5*time.Millisecond)
	}
}

// watchBank reads all accounts at one instant: the reads count when a commit finds all of them unchanged.
func (m *mixed) watchBank(ctx context.Context) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		s, err := m.snapshot(call)
		cancel()
		if err == nil {
			m.mu.Lock()
			m.snapshots = append(m.snapshots, s)
			m.mu.Unlock()
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func (m *mixed) snapshot(ctx context.Context) (check.Snapshot, error) {
	s := check.Snapshot{Accounts: map[string]int64{}}
	revs := map[string]uint64{}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards what the reads below write
	var errs error
	for i := range accounts { // at once: the less time between them, the fewer have changed by then
		wg.Go(func() {
			n, rev, err := number(ctx, m.quiet.KV("accounts"), account(i))
			mu.Lock()
			defer mu.Unlock()
			s.Accounts[account(i)], revs[account(i)] = n, rev
			errs = errors.Join(errs, err)
		})
	}
	wg.Wait()
	if errs != nil {
		return s, errs
	}
	done, err := m.quiet.CommitResult(ctx, func(tx *millrace.Tx) {
		for name, rev := range revs {
			tx.KV("accounts").Check(name, millrace.RevEqual(rev))
		}
		tx.KV("audits").Put("last", "1")
	})
	if err != nil {
		return s, err
	}
	s.Index = done.At.Index
	return s, nil
}

// watchEffects reads tasks with effects, and the keys that their completion puts, while they complete: the task first or
// the key first, so that each order would show the one without the other.
func (m *mixed) watchEffects(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		read, err := m.readPair(call, r)
		cancel()
		if err == nil && read.ID != "" {
			m.mu.Lock()
			m.pairs = append(m.pairs, read)
			m.mu.Unlock()
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func (m *mixed) readPair(ctx context.Context, r *rand.Rand) (p check.PairRead, err error) {
	m.mu.Lock()
	n := len(m.effects)
	if n > 0 {
		p.ID = m.effects[max(0, n-1-r.IntN(20))] // young enough to be completed just now
	}
	m.mu.Unlock()
	if n == 0 {
		return p, nil
	}
	task := func() error {
		info, err := m.quiet.Task(ctx, p.ID)
		if errors.Is(err, millrace.ErrNotFound) {
			return nil
		}
		if err == nil {
			p.Completed = info.State == millrace.Completed
		}
		return err
	}
	key := func() error {
		value, _, err := text(ctx, m.quiet.KV("done"), p.ID)
		p.Put = value != ""
		return err
	}
	first, second := key, task
	if p.TaskFirst = r.IntN(2) == 0; p.TaskFirst {
		first, second = task, key
	}
	if err := first(); err != nil {
		return p, err
	}
	return p, second()
}
