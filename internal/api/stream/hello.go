package stream

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// protocol is the version of the frames' protocol. A Hello of another one is refused.
	protocol = 1
	// sessionBytes is the size of a session's id.
	sessionBytes = 16
)

// hello opens or resumes the session, queues the Welcome as the first frame and starts the writer. What it takes on its way, the
// session's place and the session itself, it gives back when it fails.
func (st *stream) hello(ctx context.Context, in *pb.Hello) error {
	d, who := st.d, *st.who()
	spec, name, fact := d.sessionSpec(ctx, who, in)
	if fact != nil {
		return edge.Within("hello", fact)
	}
	ns, err := d.Namespace(ctx, who, name, true)
	if err != nil {
		return err
	}
	if int64(in.GetPartition()) >= int64(len(ns.Partitions)) {
		return edge.Invalid("hello.partition", "must be a partition of the namespace")
	}
	st.partitions = ns.Partitions
	st.home = home{api.Home{Partition: ns.Partitions[in.GetPartition()].Partition, Of: len(ns.Partitions), Namespace: name}}
	// The same id in another partition is another session: leases and numbers are kept by partition.
	st.key = sessionKey{st.home.Partition, spec.ID}
	// Headers go before there is a writer. Else the first frame takes them along, unless the handler ends the stream just then:
	// its status would count for them, and the frame could reach the client before it.
	if err := st.ss.SendHeader(nil); err != nil {
		return err
	}
	if err := d.enter(ctx, st); err != nil {
		return err
	}
	writes := false // the writer runs: it gives back what is taken here
	defer func() {
		if !writes {
			d.leave(st)
		}
	}()
	session, welcome, err := d.node.Session(ctx, st.home.Partition, spec, st)
	if err != nil {
		return err
	}
	defer func() {
		if !writes {
			session.Close()
		}
	}()
	moved := d.node.Moved() // before the leaders are read, so that no change falls between
	out := d.welcome(who, st.home.Partition, welcome)
	places := d.placesOf(st.partitions)
	out.Directory, out.Nodes, out.Partitions = places.Partitions, places.Nodes, uint32(len(st.partitions))
	if len(st.partitions) == 1 { // it is told once; later the client follows refusals
		out.Directory = d.directory(st.partitions)
	}
	before := []outgoing{{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: out}}}}
	for _, c := range welcome.Cancelled {
		f := cancelFrame(core.TaskHold{Task: c.Task, Token: c.Token}, c.Reason, c.Until)
		f.bytes = 0 // as the welcome's: it does not wait for room
		before = append(before, f)
	}
	st.mu.Lock()
	st.session, st.told = session, places
	st.out = append(before, st.out...) // tasks may have been assigned since the session is open
	closed := st.closed
	st.mu.Unlock()
	if closed { // the stream ended in between, before it had a session to close
		session.Close()
	}
	d.Work.Add(1)
	writes = true
	go func() {
		defer d.Work.Done()
		st.write()
	}()
	st.follow <- moved // nil, for ever, where there is only this partition: with its leader the stream ends
	return nil
}

// sessionSpec reads a Hello: what the session is, and the name of its namespace. A field is named by its path within the Hello.
func (d *door) sessionSpec(ctx context.Context, who edge.Caller, in *pb.Hello) (spec core.SessionSpec, name string, fact core.Fact) {
	if in.GetVersion() != protocol {
		return spec, "", core.Invalid{Field: "version", Reason: "not_supported", Message: "must be 1"}
	}
	if len(in.GetSession()) != sessionBytes || core.SessionID(in.GetSession()) == (core.SessionID{}) {
		return spec, "", edge.Invalid("session", "must be 16 random bytes")
	}
	if name = in.GetNamespace(); name == "" {
		md, _ := metadata.FromIncomingContext(ctx)
		if name, fact = edge.NamespaceOf(md); fact != nil {
			return spec, "", fact
		}
	}
	if fact = edge.SpaceName("namespace", name); fact != nil {
		return spec, "", fact
	}
	if fact = d.worker(in.GetWorker()); fact != nil {
		return spec, "", edge.Within("worker", fact)
	}
	// A session cannot have held more than all of its subscriptions had slots.
	if top := d.Limits.Subscriptions * d.Limits.Slots; int64(len(in.GetHeld())) > top {
		return spec, "", edge.TooLarge("held", "slots", top)
	}
	held, fact := api.Holds("held", in.GetHeld())
	if fact != nil {
		return spec, "", fact
	}
	spec = core.SessionSpec{
		ID: core.SessionID(in.GetSession()), Worker: in.GetWorker().GetId(), Principal: who.Name, Held: held,
		Host: in.GetWorker().GetHost(), SDK: d.sdkOf(ctx), Kinds: firstKinds(in.GetWorker().GetKinds()),
	}
	if !who.AllQueues() {
		spec.Reaches = who.ReachesQueue
	}
	if spec.Worker == "" { // attempts name a worker in any case
		spec.Worker = who.Name
	}
	return spec, name, nil
}

// sdkOf is the client library of a stream: what stands first in its user agent.
func (d *door) sdkOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	agent := md.Get("user-agent")
	if len(agent) == 0 {
		return ""
	}
	name, _, _ := strings.Cut(agent[0], " ")
	return core.Cut(name, int(d.Limits.WorkerBytes))
}

// firstKinds returns the first kinds, as many as are kept.
func firstKinds(kinds []string) []string {
	left := core.MaxWorkerKinds
	for i, kind := range kinds {
		if left -= len(kind); left < 0 {
			return slices.Clone(kinds[:i])
		}
	}
	return kinds
}

// worker holds what a client tells of itself to its limits. It is shown to operators, and decides nothing.
func (d *door) worker(in *pb.WorkerInfo) core.Fact {
	if fact := api.TextUpTo("id", in.GetId(), "worker_bytes", d.Limits.WorkerBytes); fact != nil {
		return fact
	}
	if fact := api.TextUpTo("host", in.GetHost(), "worker_bytes", d.Limits.WorkerBytes); fact != nil {
		return fact
	}
	if int64(len(in.GetKinds())) > d.Limits.WorkerKinds {
		return edge.TooLarge("kinds", "worker_kinds", d.Limits.WorkerKinds)
	}
	for i, kind := range in.GetKinds() {
		if fact := api.QueueName(edge.Item("kinds", i), kind); fact != nil {
			return fact
		}
	}
	return nil
}

// welcome answers a Hello: what became of the session's leases, and the limits by which the client bounds what it sends. Without
// the time of an entry the shard's time is the node's.
func (d *door) welcome(who edge.Caller, p core.Partition, w core.Welcome) *pb.Welcome {
	now := w.At.Stamp
	if now == 0 {
		now = d.backend.Now(p)
	}
	return &pb.Welcome{
		Tenant: who.Tenant, ShardTime: api.TimeOf(now),
		Kept: showHolds(w.Kept), Lost: showHolds(w.Lost), AppliedSeq: w.AppliedSeq,
		Limits: &pb.Limits{
			FrameItems: uint32(d.Limits.FrameItems), FrameBytes: uint32(d.Limits.MessageBytes), UnackedItems: uint32(d.Limits.UnackedItems),
			UnackedBytes: uint32(d.Limits.UnackedBytes), UnackedCommits: uint32(d.Limits.UnackedCommits), Slots: uint32(d.Limits.Slots),
			Waits: uint32(d.Limits.StreamWaits),
		},
		Features: api.Features(),
	}
}

// showHolds shows leases.
func showHolds(in []core.TaskHold) []*pb.Hold {
	out := make([]*pb.Hold, len(in))
	for i, h := range in {
		out[i] = &pb.Hold{Id: h.Task.String(), Token: uint64(h.Token)}
	}
	return out
}
