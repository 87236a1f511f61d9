package api

import (
	"context"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// CommitService applies ops all or nothing.
type CommitService struct {
	pb.UnimplementedCommitServiceServer
	s *Server
}

// Commit applies one commit.
func (cs *CommitService) Commit(ctx context.Context, in *pb.CommitRequest) (*pb.CommitResponse, error) {
	c, err := cs.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	// Everything that needs no state is judged by now.
	commit, fact := c.t.Commit(in)
	if fact != nil {
		return nil, fact
	}
	if fact := cs.s.Rated(&commit, false); fact != nil {
		return nil, fact
	}
	// A request id, if there is one, makes it safe to repeat.
	p, err := c.proposeOnce(ctx, commit)
	if err != nil {
		return nil, err
	}
	return c.answers("Commit").CommitResponse(p.Results[0], p.At)
}

// KVService reads and writes keys (kv_service.go, kv_range.go).
type KVService struct {
	pb.UnimplementedKVServiceServer
	s    *Server // what all services share
	keys KeyBackend
}

// Get reads one key.
func (ks *KVService) Get(ctx context.Context, in *pb.KVGetRequest) (*pb.KVGetResponse, error) {
	// Checked before the namespace is looked up: a key of the wrong form is wrong everywhere.
	t := Translator{l: &ks.s.Limits}
	if fact := t.key(in.GetKeyspace(), in.GetKey()); fact != nil {
		return nil, fact
	}
	c, err := ks.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.KVGetResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	o, fact := t.Freshness(in.GetMinIndex(), in.GetStale(), in.GetMaxStaleness())
	if fact != nil {
		return nil, fact
	}
	// An absent key has revision 0.
	read, at, err := ks.keys.Key(ctx, c.t.partOfKey(in.GetKey()), in.GetKeyspace(), in.GetKey(), o)
	if err != nil {
		return nil, err
	}
	return &pb.KVGetResponse{Value: read.Value, Rev: read.Rev, Found: read.Rev != 0, At: ShowAt(at), Writer: ShowWriter(read.Writer)}, nil
}

// QueueService configures queues and counts what is in them.
type QueueService struct {
	pb.UnimplementedQueueServiceServer
	s      *Server // what all services share
	queues QueueBackend
	spaces NamespaceBackend
}

// List reads a page of queues, by name or in another order.
func (qs *QueueService) List(ctx context.Context, in *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	limit, fact := qs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	choice, plain, fact := queueChoiceOf(in)
	if fact != nil {
		return nil, fact
	}
	var after string
	if plain {
		if after, fact = readNameCursor(in.GetCursor(), true); fact != nil {
			return nil, fact
		}
	}
	c, err := qs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListQueuesResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	var stats []core.QueueStats
	var at core.At
	var next string
	if plain {
		stats, at, err = c.reachedQueues(ctx, after, limit, readOptions(0, in.GetStale()))
		// There may be more; the page after the last one is empty.
		if len(stats) == limit {
			next = showCursor([]byte(stats[limit-1].Queue))
		}
	} else {
		choice.now = c.t.now
		stats, next, at, err = c.chosenQueues(ctx, choice, in.GetCursor(), limit)
	}
	if err != nil {
		return nil, err
	}
	return &pb.ListQueuesResponse{Queues: c.showQueues(ctx, stats), At: ShowAt(at), Cursor: next}, nil
}

// beginQueue is begin for a queue that must exist.
func (qs *QueueService) beginQueue(ctx context.Context, name string) (*call, error) {
	if fact := QueueName("queue", name); fact != nil {
		return nil, fact
	}
	if fact := qs.s.reachesQueue(ctx, name); fact != nil {
		return nil, fact
	}
	c, err := qs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, core.NotFound{Kind: "queue", ID: name}
	}
	return c, err
}

// Get reads a queue's configuration.
func (qs *QueueService) Get(ctx context.Context, in *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	c, err := qs.beginQueue(ctx, in.GetQueue())
	if err != nil {
		return nil, err
	}
	// All partitions have the configuration that was set in the first one. A queue that is not there has none.
	o := readOptions(0, in.GetStale())
	q, at, err := qs.queues.Queue(ctx, c.t.part, in.GetQueue(), o)
	if edge.Is[core.NotFound](err) && c.t.several() {
		q, at, err = c.queue(ctx, in.GetQueue(), o)
	}
	if err != nil {
		return nil, err
	}
	return &pb.GetQueueResponse{Config: showQueueConfig(q.Config), At: ShowAt(at)}, nil
}

// Stats reads a queue's counters.
func (qs *QueueService) Stats(ctx context.Context, in *pb.QueueStatsRequest) (*pb.QueueStatsResponse, error) {
	c, err := qs.beginQueue(ctx, in.GetQueue())
	if err != nil {
		return nil, err
	}
	q, at, err := c.queue(ctx, in.GetQueue(), readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.QueueStatsResponse{Stats: c.showQueues(ctx, []core.QueueStats{q})[0], At: ShowAt(at)}, nil
}

// Set replaces a queue's configuration.
func (qs *QueueService) Set(ctx context.Context, in *pb.SetQueueRequest) (*pb.SetQueueResponse, error) {
	if fact := QueueName("queue", in.GetQueue()); fact != nil {
		return nil, fact
	}
	if fact := qs.s.reachesQueue(ctx, in.GetQueue()); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	t := Translator{l: &qs.s.Limits}
	// Before the namespace is made: a mistake leaves nothing behind.
	config, fact := t.queueConfig(in.GetConfig())
	// Bounds of queues are newer than queues.
	if fact == nil && config.Limits != (core.QueueLimits{}) {
		fact = qs.s.operated("")
	}
	if fact == nil && config.Share != (core.QueueShare{}) {
		fact = qs.s.shared("")
	}
	if to := config.Share.DeadLetter; fact == nil && to != "" {
		fact = qs.s.reachesQueue(ctx, to) // copies of tasks are made there for who sets it
	}
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	c, err := qs.s.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	r, at, err := c.set(ctx, setting{
		version: version,
		op: func(version int64) core.Op {
			return &core.QueueSet{Queue: in.GetQueue(), Config: config, IfVersion: version}
		},
		now: func() (found, error) {
			q, _, err := qs.queues.Queue(ctx, c.t.part, in.GetQueue(), core.ReadOptions{})
			f := found{version: q.Config.Version}
			q.Config.Version = config.Version
			// All but the version, which the server counts.
			f.same, f.op = q.Config == config, &core.QueueSet{Queue: in.GetQueue(), Config: q.Config, IfVersion: -1}
			return f, ignoreNotFound(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.SetQueueResponse{Version: r.Version, At: ShowAt(at)}, nil
}

// Delete removes a queue, from all partitions: the first one, which judges the version, and then the others. Where one
// fails the outcome is unknown until the call is repeated.
func (qs *QueueService) Delete(ctx context.Context, in *pb.DeleteQueueRequest) (*pb.DeleteQueueResponse, error) {
	name := in.GetQueue()
	if fact := QueueName("queue", name); fact != nil {
		return nil, fact
	}
	if fact := qs.s.reachesQueue(ctx, name); fact != nil {
		return nil, fact
	}
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	c, err := qs.s.begin(ctx, false)
	unknown := core.NotFound{Kind: "queue", ID: name}
	if edge.UnknownNamespace(err) {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	if fact := qs.s.removes("queue"); fact != nil {
		return nil, fact
	}
	if c.t.several() && !in.GetPurge() {
		q, _, err := c.queue(ctx, name, core.ReadOptions{})
		if err != nil {
			return nil, err
		}
		// With one partition Apply looks for them. With several, all must be asked before the first one
		// removes its part.
		for _, s := range [...]core.State{core.Running, core.Ready, core.Scheduled, core.Blocked} {
			if q.States[s] > 0 {
				return nil, core.WrongState{State: s}
			}
		}
	}
	existed, at, err := c.deleteQueue(ctx, &core.QueueDelete{Queue: name, Purge: in.GetPurge(), IfVersion: version})
	if err != nil {
		return nil, err
	}
	if !existed {
		return nil, unknown
	}
	return &pb.DeleteQueueResponse{At: ShowAt(at)}, nil
}

// ServerService tells what a server is.
type ServerService struct {
	pb.UnimplementedServerServiceServer
	s    *Server // what all services share
	self NodeBackend
}

// Status tells what this server is. What it has done counts all tenants' work, so only admin is told that.
func (ss *ServerService) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	who, ok := edge.CallerOf(ctx)
	if !ok {
		return nil, core.Unauthenticated{}
	}
	// From memory: a monitor may ask often.
	st := ss.self.Status()
	out := &pb.StatusResponse{
		Version: ss.s.o.Version, Durability: st.Durability, Node: st.Node, Shards: uint32(st.Shards),
		StartedAt: timestamppb.New(time.UnixMilli(st.StartedMillis)), DiskFull: st.DiskFull,
		Features: Features(),
	}
	if SeesNode(who.Principal) {
		out.AppliedIndex, out.Fsyncs, out.LogBytes = st.AppliedIndex, st.Fsyncs, st.LogBytes
		out.Entries, out.StoreMutations = st.Entries, st.StoreMutations
	}
	return out, nil
}

// SeesNode reports whether a caller may read the counters of a node, which add up what all tenants do: an operator may, whose
// scopes are of no tenant.
func SeesNode(who auth.Principal) bool {
	return who.Scopes.Has(auth.Cluster) || who.Scopes.Has(auth.TenantAdmin)
}

// healthService answers gRPC's health checks, for the server as a whole.
type healthService struct {
	healthpb.UnimplementedHealthServer
	s *Server
}

// Check says whether new calls are served.
func (h *healthService) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	// Health is that of the whole server.
	if in.GetService() != "" {
		return nil, core.NotFound{Kind: "service", ID: in.GetService()}
	}
	// A server that stops is not to be sent new calls.
	state := healthpb.HealthCheckResponse_SERVING
	if h.s.Stopping() {
		state = healthpb.HealthCheckResponse_NOT_SERVING
	}
	return &healthpb.HealthCheckResponse{Status: state}, nil
}

// removes refuses the removal of a kind of thing until the cluster writes entries that may remove it.
func (s *Server) removes(kind string) core.Fact {
	return s.fromFormat(core.FormatQueues, kind, kind+"s are removed once the upgrade of the cluster is finalized")
}

// fromFormat refuses what a cluster does from a format on until it writes such entries. A node that is new does not know yet.
func (s *Server) fromFormat(format uint16, field, message string) core.Fact {
	switch {
	case s.node.self.Format() >= format:
		return nil
	case !s.node.self.KnowsFormat():
		return core.Unavailable{Reason: "no_leader"}
	}
	return core.Invalid{Field: field, Reason: "not_supported", Message: message}
}

// upgraded is what a caller is told of what is supported by the next format.
const upgraded = "is supported once the upgrade of the cluster is finalized"

// The services, for other ways in: who calls them has done what guard does.

// Tasks is the service of tasks.
func (s *Server) Tasks() *TaskService { return &TaskService{s: s, tasks: s.node.tasks} }

// Commits is the service of commits.
func (s *Server) Commits() *CommitService { return &CommitService{s: s} }

// Keys is the service of keys.
func (s *Server) Keys() *KVService { return &KVService{s: s, keys: s.node.keys} }

// Keyspaces is the service of keyspaces.
func (s *Server) Keyspaces() *KeyspaceService { return &KeyspaceService{s: s, keys: s.node.keys} }

// Queues is the service of queues and namespaces.
func (s *Server) Queues() *QueueService {
	return &QueueService{s: s, queues: s.node.queues, spaces: s.node.spaces}
}

// Refs is the service of repositories and refs.
func (s *Server) Refs() *RefService { return &RefService{s: s, refs: s.o.Refs} }

// Searches is the service of collections, rulesets and searches.
func (s *Server) Searches() *SearchService { return &SearchService{s: s, search: s.node.search} }

// Tenants is the service of tenants.
func (s *Server) Tenants() *TenantService { return &TenantService{s: s, tenants: s.o.Backend} }

// Cluster is the service of the cluster.
func (s *Server) Cluster() *ClusterService { return &ClusterService{s: s} }

// Info is the service of what this server is.
func (s *Server) Info() *ServerService { return &ServerService{s: s, self: s.node.self} }
