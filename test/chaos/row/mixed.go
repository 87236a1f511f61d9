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
	// lists and accounts are how many there are of each.
	lists    = 16
	accounts = 8
	// opening is what each account has at first.
	opening = int64(1000)
	// producers add tasks, and registers are keys with one writer each.
	producers = 4
	registers = 3
	// maxTasks is how many tasks one run adds at most.
	maxTasks = 6000
	// slots are those of each of the two workers.
	slots = 8
	// Kinds of tasks, each in a queue of its name: those without effects, those that append to a
	// list, those that move money, and those that follow a move.
	kindPlain  = "plain"
	kindEffect = "effect"
	kindMove   = "move"
	kindFollow = "follow"
)

var (
	// retries is short, so that a failed attempt is made again within the run.
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

// move is the argument of a task that moves money between accounts.
type move struct {
	From, To string
	Amount   int64
}

// follow is a task, by its id, that an attempt wanted to add with its completion. parent and token
// are those of the attempt.
type follow struct {
	parent string
	token  uint64
	id     string
}

// mixed is a workload of all services: tasks that complete, fail and are late, effects on lists, counters and
// accounts, numbers that completions add to, follow-up tasks, rows written with their task, and keys with one writer each.
type mixed struct {
	e Env
	// clients make tasks, and run a worker each.
	clients [2]*client
	// quiet keeps no ledger: its calls are not judged.
	quiet *client
	// kinds are those that are made.
	kinds []string
	// added counts the tasks, up to maxTasks.
	added atomic.Int64

	mu sync.Mutex // guards the fields below
	// effects are the ids of the tasks with effects on lists, noted before they are added.
	effects []string
	// completed are those of them that are completed, as read back at the end.
	completed []string
	// pairs are reads of such a task and of the key that its completion puts.
	pairs []check.PairRead
	// transfers is what each move was to move, by the id of its task.
	transfers map[string]check.Transfer
	// follows are follow-up tasks, in the order in which attempts built them.
	follows []follow
	// rows is how each commit of a task together with a row ended, by the id of the task.
	rows map[string]check.Outcome
	// snapshots are reads of all accounts at one index.
	snapshots []check.Snapshot
	kvFinal   map[string]string
}

// newMixed makes the clients and opens the accounts. made are the kinds of tasks that will be added.
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

// list is the one that a task appends to.
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

// add adds one task, of a kind that is drawn. What is needed to judge it is noted before the call,
// because a task whose create ends unknown may be there.
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

// addMove adds a task that moves money between two accounts.
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

// later makes a failed read a short wait, after which the task is tried again.
func later(err error) error {
	if err == nil {
		return nil
	}
	return millrace.RetryIn(50*time.Millisecond, err)
}

// effect appends the task's id to a list, counts it, and leaves a key of its own. The commit is
// refused when a key has changed since it was read, and then build runs this again.
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

// move moves money between two accounts and adds a follow-up task, in the same way.
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

// snapshot reads all accounts, and then commits if none of them has changed: the index of that
// commit is the one that all reads are of.
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

// readPair reads a young task and its key, in an order that is drawn. As long as there are none,
// the id is empty.
func (m *mixed) readPair(ctx context.Context, r *rand.Rand) (p check.PairRead, err error) {
	m.mu.Lock()
	n := len(m.effects)
	if n > 0 {
		// One that is young enough to be completed just now.
		p.ID = m.effects[max(0, n-1-r.IntN(20))]
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
