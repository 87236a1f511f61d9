package load

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/millrace/millrace/bench"
	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// pingPongServer is one server of a ping-pong, with the flags that the bench gives it.
func pingPongServer(args []string) error {
	f := flag.NewFlagSet("pingpong-server", flag.ContinueOnError)
	f.Bool("json", false, "")
	kind, node, peers := f.String("kind", "", ""), f.Int("node", 0, ""), f.String("peers", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	others := slices.DeleteFunc(strings.Split(*peers, ","), func(a string) bool { return a == "" })
	return PingPong(ctx, Relay{*kind, *node, others}, func(grpc, peer string) {
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"grpc": grpc, "peer": peer})
	})
}

// putting is a suite of one row that puts keys for a second at most.
func putting(drive bench.Driver, shape bench.Shape) bench.Suite {
	shape.Nodes, shape.Shards = max(shape.Nodes, 1), max(shape.Shards, 1)
	shape.Producers, shape.Ahead, shape.Payload, shape.Key = 1, 512, 64, 16
	return bench.Suite{
		Name: "kv.small", Op: "put", Headline: "puts_per_s", Window: time.Second, Warmup: 50 * time.Millisecond, Drive: drive,
		Rows: []bench.RowSpec{{Name: "row", NoCeiling: true, Box: true, Shape: shape}},
	}
}

func TestPutsOfAStreamAreAllAcknowledgedAndReadBackFromEveryNode(t *testing.T) {
	run := on(t, bench.Procs, putting(Keys, bench.Shape{Nodes: 3, Puts: 1_500}))
	clean(t, run)
	if run.Ops != 1_500 || run.Audit.Created < 1_500 || run.Audit.ReadBack < 1_000 || run.Audit.Counted != run.Audit.ReadBack {
		t.Errorf("%d puts in the window; audit %+v", run.Ops, run.Audit)
	}
	wantMetrics(t, run, "puts_per_s", "put_p99_us", "replica_fsyncs_per_op", "replica_wal_bytes_per_op", "server_3_wal_bytes_per_op",
		"disk_takes_mib_per_s")
	for _, name := range []string{"client_cpu_us_per_op", "replica_cpu_us_per_op", "box_cpu_percent"} { // in ticks of 10 ms: so few puts may take none
		if _, ok := run.Metrics[name]; !ok {
			t.Errorf("%s is not measured", name)
		}
	}
	if _, ok := run.Metrics["creates_per_s"]; ok {
		t.Error("creates of tasks are counted, though there are none")
	}
}

func TestAnEvenNumberOfVotersIsMeasured(t *testing.T) {
	run := on(t, bench.Procs, putting(Keys, bench.Shape{Nodes: 4, Puts: 1_000}))
	clean(t, run)
	wantMetrics(t, run, "puts_per_s", "server_4_wal_bytes_per_op")
}

func TestKeysOfSeveralShardsAreReadBackToo(t *testing.T) {
	run := on(t, bench.Procs, putting(Keys, bench.Shape{Shards: 4, Puts: 1_500}))
	clean(t, run)
	if run.Ops != 1_500 {
		t.Errorf("%d puts, want 1,500", run.Ops)
	}
}

func TestAnOpenLoopOfPutsRunsAtAShareOfTheMaximum(t *testing.T) {
	run := on(t, bench.InProc, putting(KeysLatency, bench.Shape{}))
	clean(t, run)
	most, rate := run.Metrics["maximum_puts_per_s"].Value, run.Metrics["offered_per_s"].Value
	if most <= 0 || rate != most*keysShare {
		t.Errorf("offered %v of %v a second, want 30 %%", rate, most)
	}
	wantMetrics(t, run, "put_p50_us", "service_p50_us", "schedule_lag_p99_us", "put_p50_over_fdatasync")
}

func TestAnOpenLoopOfPutsRunsAtTheRateOfItsRow(t *testing.T) {
	run := on(t, bench.InProc, putting(KeysLatency, bench.Shape{Offered: 300}))
	clean(t, run)
	if rate := run.Metrics["offered_per_s"].Value; rate != 300 {
		t.Errorf("offered %v a second, want 300", rate)
	}
	if most, ok := run.Metrics["maximum_puts_per_s"]; ok {
		t.Errorf("a maximum of %v was looked for", most.Value)
	}
	if run.Ops == 0 || run.Ops > 400 { // a busy machine makes fewer in the window, and catches up on some of before
		t.Errorf("%d puts were made in the window, want about 300", run.Ops)
	}
}

func TestPutsOfALongWindowAreHeldAgainstItsBeginning(t *testing.T) {
	s := putting(KeysSteady, bench.Shape{})
	s.Window = 3 * time.Second // its first and its last third have puts also on a busy machine
	run := on(t, bench.Procs, s)
	clean(t, run)
	wantMetrics(t, run, "first_puts_per_s", "last_puts_per_s", "steady_ratio")
	if _, ok := run.Metrics["disk_peak_mib"]; !ok { // looked at each second, so that so short a window may show nothing
		t.Error("the disk is not measured")
	}
}

func TestPutsAreRelayedToTwoServersByCallsAndByMessages(t *testing.T) {
	for _, kind := range []string{relayGRPC, relayTransport} {
		t.Run(kind, func(t *testing.T) {
			s := putting(KeysUnary, bench.Shape{Nodes: 3, Pumps: 8, Kind: kind})
			s.Rows[0].Shape.Ahead, s.Rows[0].Servers, s.Rows[0].NoFsync = 0, "pingpong-server", true
			run := on(t, bench.Procs, s)
			if run.Failed != "" || len(run.Errors) > 0 || run.Audit != nil {
				t.Fatalf("failed %q, errors %+v, audit %+v: nothing is kept that could be audited", run.Failed, run.Errors, run.Audit)
			}
			wantMetrics(t, run, "puts_per_s", "server_1_cpu_us_per_op", "server_3_cpu_us_per_op")
		})
	}
}

func TestCallsOfOnePutEachAreAudited(t *testing.T) {
	s := putting(KeysUnary, bench.Shape{Pumps: 8})
	s.Rows[0].Shape.Ahead = 0
	run := on(t, bench.InProc, s)
	clean(t, run)
	if run.Ops == 0 || run.Audit.ReadBack == 0 {
		t.Errorf("%d puts, %d read back", run.Ops, run.Audit.ReadBack)
	}
}

// keyFaults are what a planted server of keys does wrong: with put 200 of each n.
type keyFaults struct {
	dropEvery   int // acknowledges it and forgets it
	spoilEvery  int // keeps another value
	againEvery  int // applies it twice
	doubleEvery int // acknowledges it with the revision of the one before
}

// faultyKeys is a server in memory that keeps keys, with planted faults.
type faultyKeys struct {
	pb.UnimplementedKVServiceServer
	f keyFaults

	mu   sync.Mutex // guards the fields below
	puts int
	keys map[string]readPut
}

type readPut struct {
	value []byte
	rev   uint64
}

// startFaultyKeys serves until the test ends, and returns the address.
func startFaultyKeys(t *testing.T, f keyFaults) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}))
	x := &faultyKeys{f: f, keys: map[string]readPut{}}
	line := &null{}
	pb.RegisterQueueStreamServer(s, line)
	pb.RegisterServerServiceServer(s, line)
	pb.RegisterKVStreamServer(s, &nullKeys{keep: x.keep})
	pb.RegisterKVServiceServer(s, x)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return lis.Addr().String()
}

func (x *faultyKeys) keep(key, value []byte, rev uint64) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.puts++
	hit := func(every int) bool { return every > 0 && x.puts%every == 200 }
	switch {
	case hit(x.f.dropEvery):
		return rev
	case hit(x.f.spoilEvery):
		value = []byte("spoiled")
	case hit(x.f.againEvery):
		x.keys[string(key)] = readPut{value, rev + 1_000_000}
		return rev
	}
	x.keys[string(key)] = readPut{value, rev}
	if x.f.doubleEvery > 0 && x.puts > x.f.doubleEvery {
		return rev - 1
	}
	return rev
}

// Get reads what was kept.
func (x *faultyKeys) Get(_ context.Context, r *pb.KVGetRequest) (*pb.KVGetResponse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.keys[string(r.Key)]
	return &pb.KVGetResponse{Value: p.value, Rev: p.rev, Found: ok}, nil
}

func TestAnAuditOfKeysCatchesWhatAServerDoesWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults keyFaults
		want   string // of the violations; empty: none
	}{
		{"nothing", keyFaults{}, ""},
		{"lost", keyFaults{dropEvery: 500}, "lost: key"},
		{"another value", keyFaults{spoilEvery: 500}, "different: key"},
		{"applied twice", keyFaults{againEvery: 500}, "doubled: key"},
		{"one revision for two puts", keyFaults{doubleEvery: 1_000}, "doubled: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := startFaultyKeys(t, c.faults)
			r := measure(t, putting(Keys, bench.Shape{Puts: 4_000}), address, func(b *bench.Config, _ *bench.Harness) {
				b.Validate, b.Durability = "full", "none"
			})
			if c.want != "" {
				wantViolation(t, r, c.want)
				return
			}
			run := onlyRun(t, r)
			clean(t, run)
			if run.Audit.ReadBack != run.Audit.Created {
				t.Errorf("%d of %d keys were read back", run.Audit.ReadBack, run.Audit.Created)
			}
		})
	}
}
