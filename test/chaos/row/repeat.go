package row

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// repeaters are goroutines, over two tenants.
	repeaters = 64
	// hotKeys are the unique keys that all of a tenant's goroutines share.
	hotKeys = 50
	// uniqueTime is how long a unique key is kept: longer than a run.
	uniqueTime = time.Hour
	idemQueue  = "idem"
)

// RepeatUnderKills makes about n creates under unique keys and commits under request ids, with too little patience,
// while the server is killed; what ends unknown is repeated under the same key until it is known.
func RepeatUnderKills(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	s, err := e.server(ctx, nil, "alpha", "beta")
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	r := &repeated{e: e, s: s, requests: map[string]map[uint64]bool{}, maker: map[string]int{}}
	for i := range r.clients {
		if r.clients[i], err = dial(ctx, e, one{s}, i, s.Tokens[i%2], s.Tokens[i%2].Tenant+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	ops, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	kills, each := max(2, min(8, n/200)), n/repeaters+1
	pace := time.Duration(kills) * time.Second / time.Duration(each) // so that the load lasts as long as the kills
	for i := range repeaters {
		wg.Go(func() { r.repeat(ops, i, each, pace) })
	}
	o.fail(killLoop(ctx, e, s, o, kills))
	if s.Address() == "" {
		stop() // it does not serve any more: that is among the errors
	}
	late := time.AfterFunc(drainWithin, stop)
	wg.Wait()
	late.Stop()
	err = r.audit(ctx, o)
	for _, c := range r.clients {
		o.fail(c.close())
	}
	if err == nil {
		err = r.ledgers(o)
	}
	if err != nil {
		return nil, err
	}
	if n := r.open.Load(); n > 0 {
		o.fail(fmt.Errorf("%d operations were repeated until %s after the last kill and never acknowledged", n, drainWithin))
	}
	o.Done = int(r.done.Load())
	finish(ctx, s, o)
	return o, nil
}

// repeated is one run of that row.
type repeated struct {
	e Env
	s *proc.Server
	// clients belong to the two tenants in turn.
	clients [4]*client
	// done counts the operations whose end became known.
	done atomic.Int64
	// open counts those whose end never did.
	open atomic.Int64
	// final are the tasks of both tenants, as read back.
	final []check.TaskState

	mu sync.Mutex // guards the fields below
	// requests has, by tenant and request id, the revisions that a request was answered with.
	requests map[string]map[uint64]bool
	// maker is the client that made a request, under the same name.
	maker map[string]int
	// commits are all calls with request ids: the SDK's ledgers do not have them.
	commits []check.Call

	// sent are the requests of each client, by client.
	sent [4]struct {
		sync.Mutex // guards list
		list       []sent
	}
}

// repeat makes count operations of one goroutine, each until it is known how it ended.
func (r *repeated) repeat(ctx context.Context, goroutine, count int, pace time.Duration) {
	random := rand.New(rand.NewPCG(r.e.Seed, uint64(1000+goroutine)))
	ids := rand.New(rand.NewPCG(r.e.Seed, uint64(5000+goroutine/2))) // neighbours are of two tenants and draw the same
	for i := range count {
		who := goroutine % len(r.clients)
		switch random.IntN(4) {
		case 0:
			r.request(ctx, who, random, ids)
		case 1:
			r.create(ctx, who, fmt.Sprintf("own-%d-%d", goroutine, i), random)
		default:
			r.create(ctx, who, fmt.Sprintf("hot-%d", random.IntN(hotKeys)), random)
		}
		if ctx.Err() != nil {
			return
		}
		r.done.Add(1)
		pause(ctx, time.Duration(random.Int64N(int64(2*pace)+1)))
	}
}

// attempts calls f with growing patience until it reports that the end is known, or ctx ends. Then
// the operation stays open.
func (r *repeated) attempts(ctx context.Context, random *rand.Rand, f func(ctx context.Context) (known bool)) {
	patience := time.Duration(1+random.IntN(40)) * time.Millisecond
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, patience)
		known := f(call)
		cancel()
		if known {
			return
		}
		pause(ctx, min(patience, 500*time.Millisecond))
		patience = min(2*patience, 5*time.Second)
	}
	r.open.Add(1)
}

// create makes a task under a unique key.
func (r *repeated) create(ctx context.Context, who int, key string, random *rand.Rand) {
	job := millrace.Job[string, string](idemQueue)
	r.attempts(ctx, random, func(ctx context.Context) bool {
		_, err := job.Add(ctx, r.clients[who].Client, key, millrace.UniqueKey(key, uniqueTime))
		return err == nil
	})
}

// request commits a put under a request id, and then repeats a request of the same client. Applied
// twice, a put would raise the key's revision twice.
func (r *repeated) request(ctx context.Context, who int, random, ids *rand.Rand) {
	id := make([]byte, 16)
	for i := range id {
		id[i] = byte(ids.UintN(256))
	}
	key := hex.EncodeToString(id)
	name := r.tenant(who) + "/" + key
	put := &millracev1.KVPut{Keyspace: "requests", Key: []byte(key), Value: []byte("1")}
	req := &millracev1.CommitRequest{RequestId: id, Ops: []*millracev1.Op{{Op: &millracev1.Op_KvPut{KvPut: put}}}}
	r.mu.Lock()
	r.requests[name], r.maker[name] = map[uint64]bool{}, who
	r.mu.Unlock()
	r.commit(ctx, who, name, req, random)
	mine := &r.sent[who]
	mine.Lock()
	mine.list = append(mine.list, sent{name, req})
	again := mine.list[random.IntN(len(mine.list))]
	mine.Unlock()
	r.commit(ctx, who, again.name, again.req, random) // perhaps acknowledged long ago, before a kill
}

// sent is a request that was acknowledged.
type sent struct {
	name string
	req  *millracev1.CommitRequest
}

// commit sends a request until it is acknowledged.
func (r *repeated) commit(ctx context.Context, who int, name string, req *millracev1.CommitRequest, random *rand.Rand) {
	api := millracev1.NewCommitServiceClient(r.clients[who].Conn())
	r.attempts(ctx, random, func(ctx context.Context) bool {
		resp, err := api.Commit(ctx, req)
		call := check.Call{Op: check.OpCommit, RequestID: name, Outcome: check.Unknown, Tenant: r.tenant(who)}
		if err == nil {
			call.Outcome, call.Replayed, call.Index = check.OK, resp.Replayed, resp.GetAt().GetIndex()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.commits = append(r.commits, call)
		if err == nil && len(resp.Results) == 1 {
			r.requests[name][resp.Results[0].Rev] = true
		}
		return err == nil
	})
}

// tenant is the one of a client.
func (r *repeated) tenant(who int) string { return r.s.Tokens[who%2].Tenant }

// audit reads back both tenants, and that neither can read a task of the other.
func (r *repeated) audit(ctx context.Context, o *Outcome) error {
	for i := range 2 {
		own, err := tasks(ctx, r.clients[i].Client, r.tenant(i), []string{idemQueue})
		if err != nil {
			return err
		}
		r.final = append(r.final, own...)
		for _, t := range own[:min(len(own), 20)] {
			if _, err := r.clients[1-i].Task(ctx, t.ID); !errors.Is(err, millrace.ErrNotFound) {
				o.fail(fmt.Errorf("task %s of tenant %s, read by the other: %w", t.ID, t.Tenant, err))
			}
		}
	}
	effects := map[string]int{}
	for name, revs := range r.requests {
		_, key, _ := strings.Cut(name, "/")
		_, rev, err := text(ctx, r.clients[r.maker[name]].KV("requests"), key)
		if err != nil {
			return err
		}
		if rev == 0 {
			continue
		}
		// The revision that the key has now is one that the request may have been answered with.
		revs[rev] = true
		effects[name] = len(revs) // one revision, however often it was answered
	}
	o.judge(check.RequestsOnce(r.commits, effects))
	return r.keep()
}

// keep writes the commits' ledger next to those of the SDK.
func (r *repeated) keep() error {
	f, err := os.Create(r.e.Dir + "/ledger-requests.jsonl")
	if err != nil {
		return fmt.Errorf("keep ledger: %w", err)
	}
	enc := json.NewEncoder(f)
	for i := range r.commits {
		err = errors.Join(err, enc.Encode(&r.commits[i]))
	}
	return errors.Join(err, f.Close())
}

// ledgers judges what the ledgers of the clients say: index order for each, and unique keys for all together.
func (r *repeated) ledgers(o *Outcome) error {
	var all []check.Call
	for i, c := range r.clients {
		calls, err := readLedgers([]string{c.ledger.Name()})
		if err != nil {
			return err
		}
		for j := range calls {
			calls[j].Tenant = r.tenant(i)
			if calls[j].Outcome == check.Unknown {
				o.Figures["unknown"]++
			}
		}
		o.judge(check.IndexOrder(calls))
		all = append(all, calls...)
	}
	o.Figures["calls"] = float64(len(all))
	o.judge(check.Idempotency(all, r.final))
	return nil
}
