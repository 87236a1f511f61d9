package api

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// Translator turns messages of one caller into ops of one partition. Its methods check shape, limits and scopes; a
// fact names the field by its path within the message.
type Translator struct {
	// l is what shape and size are held to.
	l *edge.Limits
	// who is the caller, whose scopes count and whose name stands in commits.
	who auth.Principal
	// part is where all is put that says nothing else.
	part core.Partition
	// now is the time of the shard as wall clocks show it: times that callers name are compared with
	// it.
	now core.ShardTime
	// rand makes the ids of tasks that come without.
	rand env.Rand

	// space is the name of the namespace, parts how many partitions it has. Up to 1, everything is in
	// part.
	space string
	parts int
	// leads tells which partitions this node leads; nil: none is preferred.
	leads PlaceBackend
	// pins tells which queues are in one partition; nil: none is.
	pins QueueBackend
	// pinnedNow is what pins told of queues: one request is placed by one answer.
	pinnedNow map[string]bool
	// points tells what points must be like.
	points SearchBackend
	// edge looks up the facts of transactions of refs, and the vectors of points.
	edge pointEdge
	// bound says that all must be in part, as in a stream. Else part is that of a call, which is chosen
	// by what it is about.
	bound bool

	// queues is what was found out of the queues of tasks.
	queues queueLooks
	// opens are the batches that earlier ops of the commit that is read open under ids of their own.
	opens []core.TaskID

	// seed is made of what makes the commit that is read repeatable; zero: nothing does. seedMs is the
	// time of the ids of its tasks, in milliseconds, and drawn how many were drawn.
	seed   [16]byte
	seedMs int64
	drawn  uint64
}

// taskCreate reads a task that is to be made.
func (t *Translator) taskCreate(in *pb.TaskSpec) (*core.TaskCreate, core.Fact) {
	op := new(core.TaskCreate)
	if fact := t.fillCreate(op, in); fact != nil {
		return nil, fact
	}
	return op, nil
}

// fillCreate is taskCreate into an op that the caller made.
func (t *Translator) fillCreate(op *core.TaskCreate, in *pb.TaskSpec) (fact core.Fact) {
	// An absent message is not an empty one: its client forgot it.
	if in == nil {
		return edge.Invalid("", "is required")
	}
	if fact = reservedOf(in); fact != nil {
		return fact
	}
	if fact = QueueName("queue", in.GetQueue()); fact != nil {
		return fact
	}
	if fact = t.reachesQueue(in.GetQueue()); fact != nil {
		return fact
	}
	// A task needs no kind.
	if in.GetKind() != "" {
		if fact = QueueName("kind", in.GetKind()); fact != nil {
			return fact
		}
	}
	if op.ID, fact = t.newTaskID(in.GetId()); fact != nil {
		return fact
	}
	op.Queue, op.TaskKind = in.GetQueue(), in.GetKind()
	if fact = t.content(op, in); fact != nil {
		return fact
	}
	if fact = t.schedule(op, in); fact != nil {
		return fact
	}
	if fact = t.policy(op, in); fact != nil {
		return fact
	}
	if op.Unique, fact = t.unique(in.GetUnique()); fact != nil {
		return fact
	}
	if fact = TextUpTo("tag", in.GetTag(), "tag_bytes", t.l.TagBytes); fact != nil {
		return fact
	}
	op.Tag = in.GetTag()
	if len(in.GetAfter()) > 0 || in.GetOnDepFailure() != 0 {
		if fact = t.after(op, in); fact != nil {
			return fact
		}
	}
	if in.GetBatch() != "" {
		if fact = t.addTo(op, in.GetBatch()); fact != nil {
			return fact
		}
	}
	if in.GetKey() != "" || in.GetCost() != 0 || len(in.GetLimiters()) > 0 {
		if fact = t.sharedFields(op, in); fact != nil {
			return fact
		}
	}
	// Most tasks have neither, and older clusters can write no others.
	if len(in.GetLabels()) == 0 && in.GetExpiresAt() == nil {
		return nil
	}
	return t.operatedFields(op, in)
}

// operatedFields reads the fields that a create has from core.FormatOperate on.
func (t *Translator) operatedFields(op *core.TaskCreate, in *pb.TaskSpec) (fact core.Fact) {
	// A refusal names a field that the client has given.
	field := "labels"
	if in.GetExpiresAt() != nil {
		field = "expires_at"
	}
	if fact = t.operated(field); fact != nil {
		return fact
	}
	if op.Labels, fact = labels(in.GetLabels()); fact != nil {
		return fact
	}
	op.ExpiresAt, fact = moment("expires_at", in.GetExpiresAt(), t.now, t.l.HorizonMs)
	return fact
}

// reservedOf refuses fields of a task that the contract has and no server heeds yet.
func reservedOf(in *pb.TaskSpec) core.Fact {
	switch {
	case in.GetWebhook() != "":
		return edge.NotSupported("webhook")
	}
	return nil
}

// newTaskID reads the id that a producer made, or makes one. Where there are several partitions, it is made when the
// task's is known.
func (t *Translator) newTaskID(s string) (core.TaskID, core.Fact) {
	switch {
	// The id says the partition, which is not known yet.
	case s == "" && t.several():
		return core.TaskID{}, nil
	case s == "":
		ms, random := t.draw()
		return core.NewTaskID(ms, t.part.Index, random), nil
	}
	return ReadTaskID("id", s)
}

// draw returns the time and the random part of a new task's id. In a commit that can be repeated they follow from what
// makes it repeatable and from the place of the task in it: a repetition must have the content of the first try, and its
// answer must name the task that the first try made. The time is that of the task whose worker commits, so that what is
// sorted by id stays nearly in order; without such a task it is 0.
func (t *Translator) draw() (ms int64, random [9]byte) {
	if t.seed == [16]byte{} {
		t.rand.Fill(random[:])
		return int64(t.now), random
	}
	// The place in the commit is the count of ids drawn before it.
	t.drawn++
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(t.seed[:], t.drawn))
	copy(random[:], sum[:])
	return t.seedMs, random
}

// repeatableBy has the ids of the next commit's tasks follow from the lease that it ends, which no other commit ends, or else
// from its request id. Without either they are random.
func (t *Translator) repeatableBy(id core.RequestID, ends core.TaskHold) {
	t.seed, t.seedMs, t.drawn = id, ends.Task.Millis(), 0
	// The lease is stronger than the request id: its commit can be applied once, with whatever request
	// id it comes.
	if ends.Token != 0 {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(ends.Task[:], uint64(ends.Token)))
		copy(t.seed[:], sum[:])
	}
}

// content reads what a task carries: payload, type and headers.
func (t *Translator) content(op *core.TaskCreate, in *pb.TaskSpec) core.Fact {
	if int64(len(in.GetPayload())) > t.l.PayloadBytes {
		return edge.TooLarge("payload", "payload_bytes", t.l.PayloadBytes)
	}
	op.Payload = in.GetPayload()
	if fact := TextUpTo("content_type", in.GetContentType(), "content_type_bytes", t.l.ContentTypeBytes); fact != nil {
		return fact
	}
	op.ContentType = in.GetContentType()
	// Nothing is allocated for none.
	if len(in.GetHeaders()) == 0 {
		return nil
	}
	if int64(len(in.GetHeaders())) > t.l.Headers {
		return edge.TooLarge("headers", "headers", t.l.Headers)
	}
	op.Headers = make([]core.Header, len(in.GetHeaders()))
	var bytes int64
	for i, h := range in.GetHeaders() {
		if h.GetName() == "" {
			return edge.Invalid(edge.Item("headers", i)+".name", "must not be empty")
		}
		if fact := plainText("name", h.GetName()); fact != nil {
			return edge.Within(edge.Item("headers", i), fact)
		}
		if fact := plainText("value", h.GetValue()); fact != nil {
			return edge.Within(edge.Item("headers", i), fact)
		}
		bytes += int64(len(h.GetName()) + len(h.GetValue()))
		op.Headers[i] = core.Header{Name: h.GetName(), Value: h.GetValue()}
	}
	// The sum counts: many short headers cost as much as few long ones.
	if bytes > t.l.HeaderBytes {
		return edge.TooLarge("headers", "header_bytes", t.l.HeaderBytes)
	}
	return nil
}

// schedule reads when a task is to run, and before which others.
func (t *Translator) schedule(op *core.TaskCreate, in *pb.TaskSpec) (fact core.Fact) {
	if int64(in.GetPriority()) > t.l.Priority {
		return edge.Beyond("priority", "priority", t.l.Priority, "is out of range")
	}
	op.Priority = uint8(in.GetPriority())
	if in.GetRunAt() != nil && in.GetDelay() != nil {
		return edge.Invalid("delay", "and run_at are mutually exclusive")
	}
	if op.RunAt, fact = moment("run_at", in.GetRunAt(), t.now, t.l.HorizonMs); fact != nil {
		return fact
	}
	op.Delay, fact = Millis("delay", in.GetDelay(), HorizonSpan(t.l))
	return fact
}

// policy reads how often and for how long a task may be tried.
func (t *Translator) policy(op *core.TaskCreate, in *pb.TaskSpec) (fact core.Fact) {
	if fact = count("max_attempts", in.GetMaxAttempts(), "max_attempts", t.l.Attempts); fact != nil {
		return fact
	}
	if fact = count("max_crashes", in.GetMaxCrashes(), "max_crashes", t.l.Crashes); fact != nil {
		return fact
	}
	op.MaxAttempts, op.MaxCrashes = in.GetMaxAttempts(), in.GetMaxCrashes()
	if op.MaxDeliveries, fact = t.deliveries(in.MaxDeliveries); fact != nil {
		return fact
	}
	if op.Lease, fact = Millis("lease", in.GetLease(), LeaseSpan(t.l)); fact != nil {
		return fact
	}
	if op.MaxRun, fact = Millis("max_run", in.GetMaxRun(), PositiveSpan(t.l)); fact != nil {
		return fact
	}
	op.Retry, fact = t.retry(in.GetRetry())
	return fact
}

// deliveries reads a bound on deliveries: unset is the queue's, 0 is off.
func (t *Translator) deliveries(n *int32) (int32, core.Fact) {
	switch {
	case n == nil:
		return 0, nil
	// Stored as -1, because 0 is unset there.
	case *n == 0:
		return -1, nil
	}
	return *n, count("max_deliveries", *n, "max_deliveries", t.l.Deliveries)
}

// retry reads the pauses between attempts. A factor is kept in percent: Apply
// computes with no floats.
func (t *Translator) retry(in *pb.Retry) (r core.Retry, fact core.Fact) {
	if in == nil {
		return r, nil
	}
	if in.GetBackoff() < 0 || in.GetBackoff() > pb.Backoff_EQUAL_JITTER {
		return r, edge.NotSupported("retry.backoff")
	}
	r.Backoff = core.Backoff(in.GetBackoff())
	if r.Base, fact = Millis("retry.base", in.GetBase(), PositiveSpan(t.l)); fact != nil {
		return r, fact
	}
	if r.Max, fact = Millis("retry.max", in.GetMax(), PositiveSpan(t.l)); fact != nil {
		return r, fact
	}
	if f := in.GetFactor(); f != 0 {
		if math.IsNaN(f) || f < 1 || f > float64(t.l.RetryFactor) {
			return r, edge.Beyond("retry.factor", "retry_factor", t.l.RetryFactor, "is out of range")
		}
		// What has more decimals would be another factor than the client asked for.
		percent := math.Round(f * 100)
		if math.Abs(f*100-percent) > 1e-6 {
			return r, edge.Invalid("retry.factor", "must have at most two decimals")
		}
		r.FactorPercent = uint32(percent)
	}
	return r, nil
}

// unique reads the key under which no second task is made for a while.
func (t *Translator) unique(in *pb.Unique) (u core.Unique, fact core.Fact) {
	if in == nil {
		return u, nil
	}
	if in.GetKey() == "" {
		return u, edge.Invalid("unique.key", "must not be empty")
	}
	if fact = TextUpTo("unique.key", in.GetKey(), "unique_key_bytes", t.l.UniqueKeyBytes); fact != nil {
		return u, fact
	}
	switch in.GetUntil() {
	case pb.Unique_TTL, pb.Unique_START, pb.Unique_TERMINAL:
		u.Until = core.UniqueUntil(in.GetUntil())
	default:
		return u, edge.Invalid("unique.until", "must be ttl, start or terminal")
	}
	switch in.GetOnConflict() {
	case pb.Unique_RETURN:
	case pb.Unique_REJECT:
		u.Reject = true
	case pb.Unique_REPLACE:
		u.Replace = true
	default:
		return u, edge.Invalid("unique.on_conflict", "must be return, reject or replace")
	}
	if u.Until != core.UniqueTTL || u.Replace {
		field := "unique.until"
		if u.Replace {
			field = "unique.on_conflict"
		}
		if fact = t.shared(field); fact != nil {
			return u, fact
		}
	}
	u.Key = in.GetKey()
	u.TTL, fact = Millis("unique.ttl", in.GetTtl(), Span{1, t.l.UniqueTTLMs, "unique_ttl_ms"})
	return u, fact
}

// LeaseSpan is how long a lease may be.
func LeaseSpan(l *edge.Limits) Span { return Span{leaseMinMs, l.LeaseMs, "lease_ms"} }

// HorizonSpan is how long a duration may be that has no limit of its own.
func HorizonSpan(l *edge.Limits) Span { return Span{0, l.HorizonMs, "horizon_ms"} }

// PositiveSpan is HorizonSpan without 0.
func PositiveSpan(l *edge.Limits) Span { return Span{1, l.HorizonMs, "horizon_ms"} }

// Holds reads leases, of a list that is a field.
func Holds(list string, in []*pb.Hold) ([]core.TaskHold, core.Fact) {
	out := make([]core.TaskHold, len(in))
	for i, h := range in {
		var fact core.Fact
		if out[i], fact = hold("id", "token", h.GetId(), h.GetToken()); fact != nil {
			return nil, edge.Within(edge.Item(list, i), fact)
		}
	}
	return out, nil
}

// GrantQueues reads the queues of a claim or subscription, which are served in turn, by their weights or, if strict, in their order.
func (s *Server) GrantQueues(in []*pb.QueueWeight, strict bool) ([]core.GrantQueue, core.Fact) {
	if len(in) == 0 {
		return nil, edge.Invalid("queues", "must name at least one queue")
	}
	if most := s.Limits.ClaimQueues; int64(len(in)) > most {
		return nil, edge.TooLarge("queues", "claim_queues", most)
	}
	if strict {
		if fact := s.shared("strict"); fact != nil {
			return nil, fact
		}
	}
	weighted := strict
	out := make([]core.GrantQueue, len(in))
	for i, q := range in {
		if fact := QueueName(edge.Item("queues", i)+".name", q.GetName()); fact != nil {
			return nil, fact
		}
		out[i] = core.GrantQueue{Name: q.GetName(), Weight: max(q.GetWeight(), 1)}
		if q.GetWeight() <= 1 {
			continue
		}
		weighted = true
		field := edge.Item("queues", i) + ".weight"
		switch fact := s.shared(field); {
		case fact != nil:
			return nil, fact
		case q.GetWeight() > core.MaxWeight:
			return nil, edge.Beyond(field, "weight", core.MaxWeight, "is out of range")
		case strict:
			return nil, edge.Invalid("strict", "and weights are mutually exclusive")
		}
	}
	if weighted {
		return out, namedOnce(out)
	}
	return out, nil
}

// namedOnce refuses a list that names a queue again: it would have two shares, or two places in the order.
func namedOnce(queues []core.GrantQueue) core.Fact {
	seen := make(map[string]bool, len(queues))
	for i := range queues {
		if seen[queues[i].Name] {
			return edge.Invalid(edge.Item("queues", i)+".name", "must be named once where queues have weights or an order")
		}
		seen[queues[i].Name] = true
	}
	return nil
}
