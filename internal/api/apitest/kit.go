package apitest

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

// Now is the time of every test's clock at first.
var Now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// Clock moves only when a test says so. Wall and boot time move together.
type Clock struct {
	// mu guards the fields below, and those of the timers.
	mu sync.Mutex
	// past is how far the clock has moved since Now.
	past time.Duration
	// timers are all timers that were ever made.
	timers []*timer
}

// timer is a timer of a Clock, whose mutex guards due.
type timer struct {
	clock *Clock
	// due is when it fires, as past of the clock; 0: it is stopped.
	due time.Duration
	// c has room for one time, which Advance sends under the mutex.
	c chan time.Time
}

// Wall returns the time that tests have set.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Now.Add(c.past)
}

// Boot returns the time since the machine started.
func (c *Clock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Hour + c.past
}

// NewTimer returns a timer of this clock.
func (c *Clock) NewTimer(d time.Duration) env.Timer {
	t := &timer{clock: c, c: make(chan time.Time, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.due = c.past + d
	c.timers = append(c.timers, t)
	return t
}

// C returns the channel that the time comes on.
func (t *timer) C() <-chan time.Time { return t.c }

// Stop ends the timer, and reports whether it ran.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.due != 0
	t.due = 0
	return was
}

// Reset starts the timer again, and reports whether it ran.
func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.due != 0
	t.due = t.clock.past + d
	return was
}

// Armed is how many timers wait.
func (c *Clock) Armed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.timers {
		if t.due != 0 {
			n++
		}
	}
	return n
}

// Advance moves the clock and fires what is due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past += d
	for _, t := range c.timers {
		if t.due != 0 && t.due <= c.past {
			t.due = 0
			t.c <- Now.Add(c.past)
		}
	}
}

// SweepClock has the same time, but no timers: tests sweep, with Sweep.
type SweepClock struct{ *Clock }

// NewTimer returns a timer of this clock.
func (SweepClock) NewTimer(time.Duration) env.Timer { return new(Clock).NewTimer(time.Hour) }

// Auth knows tokens by their text: tenant/scope,scope or tenant/scope,scope/expiry in seconds after Now.
type Auth struct {
	*Planter
	// Mu guards Revoked.
	Mu sync.Mutex
	// Revoked are the tokens that were ended, by their text.
	Revoked map[string]bool
	// seen are the tokens that were looked up, by their hash.
	seen map[[sha256.Size]byte]string
}

// Row finds a token by its hash, once it was looked up by its text.
func (a *Auth) Row(hash [sha256.Size]byte, now time.Time) (auth.Principal, bool) {
	a.Mu.Lock()
	token := a.seen[hash]
	a.Mu.Unlock()
	return a.Lookup(token, now)
}

// Lookup reads who holds a token from its text: TENANT/SCOPES, with /LIFE behind it, and /queues=PATTERNS joined by a plus sign.
func (a *Auth) Lookup(token string, now time.Time) (auth.Principal, bool) {
	a.step()
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if a.seen == nil {
		a.seen = make(map[[sha256.Size]byte]string)
	}
	a.seen[sha256.Sum256([]byte(token))] = token
	tenant, rest, ok := strings.Cut(token, "/")
	if !ok || a.Revoked[token] {
		return auth.Principal{}, false
	}
	rest, queues, scoped := strings.Cut(rest, "/queues=")
	names, life, limited := strings.Cut(rest, "/")
	p := auth.Principal{Name: "someone", Tenant: tenant}
	if scoped {
		p.Queues = strings.Split(queues, "+")
	}
	for name := range strings.SplitSeq(names, ",") {
		scope, _ := auth.ParseScope(name)
		if name == "all" {
			scope = auth.All
		}
		p.Scopes |= scope
	}
	if limited {
		d, err := time.ParseDuration(life)
		if err != nil {
			return p, false
		}
		p.Expires = Now.Add(d)
		return p, now.Before(p.Expires)
	}
	return p, true
}

// Revoke ends a token.
func (a *Auth) Revoke(token string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Revoked[token] = true
}

// KnownToBeRefused are the tokens of the matrices of rights that a look into the table refuses; the others are refused unread.
var KnownToBeRefused = map[string]int64{"an unknown token": 1, "an expired token": 1, "a revoked token": 1}

// LockedWriter is a writer for several goroutines.
type LockedWriter struct {
	// mu lets one goroutine write at a time.
	mu sync.Mutex
	// W is read by a test when all have written.
	W *strings.Builder
}

// Write writes.
func (l *LockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.W.Write(b)
}

// As is a context with a token, and more metadata.
func As(token string, more ...string) context.Context {
	md := []string{"authorization", "Bearer " + token}
	return metadata.AppendToOutgoingContext(context.Background(), append(md, more...)...)
}

// ErrorOf is the error that a call's status carries.
func ErrorOf(t *testing.T, err error) *pb.Error {
	t.Helper()
	if err == nil {
		t.Fatal("the call succeeded")
	}
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	t.Fatalf("the status carries no error: %v", err)
	return nil
}

// Eventually waits until ok, letting other goroutines run; a test that never gets there times out as a whole.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// ID is a task id that a producer might have made.
func ID(n byte) string { return core.NewTaskID(Now.UnixMilli(), 0, [9]byte{n}).String() }

// AsMetadata adds metadata to a context.
func AsMetadata(ctx context.Context, kv ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

// Operator answers with what it was asked for.
type Operator struct{ *Planter }

// ClusterStatus answers as a test has set.
func (o Operator) ClusterStatus(context.Context) (*pb.ClusterStatusResponse, error) {
	o.step()
	return &pb.ClusterStatusResponse{
		ClusterId: "0a", Asked: 2, Format: 1, Warnings: []string{"w"},
		Nodes:  []*pb.ClusterNode{{Id: 2, Grpc: "h:1", Leads: []uint32{0, 3}, Replicas: []*pb.ClusterReplica{{Shard: 3, Leads: true}}}},
		Shards: []*pb.ClusterShard{{Shard: 3, Leader: 2}},
	}, nil
}

// ChangeMembers answers as a test has set.
func (o Operator) ChangeMembers(_ context.Context, op core.MemberChange) (*pb.ChangeMembersResponse, error) {
	o.step()
	if op.Do == core.MemberPromote {
		return nil, core.WrongMembership{Reason: "learner_behind", Node: op.Node, Lag: 9}
	}
	return &pb.ChangeMembersResponse{
		Version: 1 << 60, Members: []*pb.ClusterMember{{Node: op.Node, Peer: op.Peer, Grpc: op.API, Http: op.HTTP, State: "joining"}}, Job: &pb.MemberJob{Id: 1, Node: op.Node},
	}, nil
}

// TransferShard answers as a test has set.
func (o Operator) TransferShard(context.Context, core.ShardID, uint64) error {
	o.step()
	return nil
}

// BalanceShards answers as a test has set.
func (o Operator) BalanceShards(ctx context.Context) (*pb.ClusterStatusResponse, error) {
	return o.ClusterStatus(ctx)
}

// FinalizeFormat answers as a test has set.
func (o Operator) FinalizeFormat(context.Context) (*pb.FinalizeFormatResponse, error) {
	o.step()
	return &pb.FinalizeFormatResponse{Format: 2, Before: 1}, nil
}

// Backup gives a backup of one shard, whose rate it notes; with more than a few bytes in a second it never ends.
func (n *Node) Backup(ctx context.Context, rate int64, sink core.BackupSink) error {
	n.step()
	if rate == 13 {
		return core.Exhausted{Limit: "backups", Max: 1}
	}
	err := sink.Head(core.BackupHead{Cluster: "ab", Node: "n1", Version: "v1", Format: 1, Shards: 1, StartedMillis: Now.UnixMilli()})
	if err == nil {
		err = sink.Shard([]byte("description"))
	}
	if err == nil {
		err = sink.Data([]byte("bytes"))
	}
	if err == nil && (rate == 14 || rate == 16) {
		err = errors.Join(sink.File(core.BackupFile{Digest: core.Digest{1, 31: 2}, Size: 4, Index: true}), sink.Data([]byte("pack")))
	}
	if err == nil && rate == 15 {
		err = errs.Corruptf("damaged pack 3/x.pack")
	}
	for err == nil && rate > 100 {
		err = errors.Join(sink.Data(make([]byte, 64<<10)), ctx.Err())
	}
	return err
}
