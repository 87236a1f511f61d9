package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// sharedFields reads the fields that a create has from core.FormatShare on.
func (t *Translator) sharedFields(op *core.TaskCreate, in *pb.TaskSpec) (fact core.Fact) {
	// A refusal names a field that the client has given.
	field := "key"
	switch {
	case in.GetKey() != "":
	case in.GetCost() != 0:
		field = "cost"
	default:
		field = "limiters"
	}
	if fact := t.shared(field); fact != nil {
		return fact
	}
	if in.GetKey() != "" {
		if fact := TaskKey("key", in.GetKey()); fact != nil {
			return fact
		}
	}
	if in.GetCost() > core.MaxCost {
		return edge.Beyond("cost", "cost", core.MaxCost, "is out of range")
	}
	op.Key, op.Cost = in.GetKey(), in.GetCost()
	op.Limiters, fact = limiterNames("limiters", in.GetLimiters())
	return fact
}

// TaskKey holds a key to its form.
func TaskKey(field, key string) core.Fact {
	switch {
	case key == "":
		return edge.Invalid(field, "is required")
	case strings.IndexByte(key, 0) >= 0:
		return edge.Invalid(field, "must not have a zero byte")
	}
	return TextUpTo(field, key, "key_bytes", core.MaxKey)
}

// shared refuses what a cluster does from core.FormatShare on until it writes such entries.
func (s *Server) shared(field string) core.Fact {
	return s.fromFormat(core.FormatShare, field, upgraded)
}

// Shares reports whether the cluster writes entries of core.FormatShare.
func (s *Server) Shares() bool { return s.o.Backend.Format() >= core.FormatShare }

// shared is that of the server.
func (t *Translator) shared(field string) core.Fact {
	if t.edge.s == nil {
		return nil
	}
	return t.edge.s.shared(field)
}

// queueShare reads how a queue is shared, and what limits it.
func (t *Translator) queueShare(in *pb.QueueConfig) (s core.QueueShare, fact core.Fact) {
	if s.DeadLetter = in.GetDeadLetter(); s.DeadLetter != "" {
		if fact = QueueName("dead_letter", s.DeadLetter); fact != nil {
			return s, fact
		}
	}
	switch {
	case pb.QueueConfig_Fairness_name[int32(in.GetFairness())] == "":
		return s, edge.Invalid("fairness", "must be lanes or none")
	case pb.QueueConfig_Order_name[int32(in.GetOrder())] == "":
		return s, edge.Invalid("order", "must be fifo or strict")
	}
	s.NoFairness = in.GetFairness() == pb.QueueConfig_NONE
	s.Strict = in.GetOrder() == pb.QueueConfig_STRICT
	if s.Concurrency, fact = concurrency("concurrency", in.GetConcurrency()); fact != nil {
		return s, fact
	}
	if s.KeyConcurrency, fact = concurrency("concurrency", in.GetPerKey().GetConcurrency()); fact != nil {
		return s, edge.Within("per_key", fact)
	}
	if s.Rate, fact = t.rate(in.GetRate()); fact != nil {
		return s, edge.Within("rate", fact)
	}
	if s.KeyRate, fact = t.rate(in.GetPerKey().GetRate()); fact != nil {
		return s, edge.Within("per_key", edge.Within("rate", fact))
	}
	if in.GetMaxWorkers() < 0 {
		return s, edge.Invalid("max_workers", "must not be negative")
	}
	s.MaxWorkers = in.GetMaxWorkers()
	names, fact := limiterNames("limiters", in.GetLimiters())
	copy(s.Limiters[:], names)
	return s, fact
}

// concurrency reads how many tasks run at once; 0: there is no bound.
func concurrency(field string, n int64) (int64, core.Fact) {
	switch {
	case n < 0:
		return 0, edge.Invalid(field, "must not be negative")
	case n > core.MaxConcurrency:
		return 0, edge.Beyond(field, "concurrency", core.MaxConcurrency, "is out of range")
	}
	return n, nil
}

// rate reads a rate; unset: nothing is bounded.
func (t *Translator) rate(in *pb.Rate) (r core.Rate, fact core.Fact) {
	if in == nil {
		return r, nil
	}
	switch {
	case in.GetLimit() < 1:
		return r, edge.Invalid("limit", "must be at least 1")
	case in.GetLimit() > core.MaxRate:
		return r, edge.Beyond("limit", "rate", core.MaxRate, "is out of range")
	case in.GetBurst() < 0:
		return r, edge.Invalid("burst", "must not be negative")
	case in.GetBurst() > core.MaxRate:
		return r, edge.Beyond("burst", "rate", core.MaxRate, "is out of range")
	case in.GetPer() == nil:
		return r, edge.Invalid("per", "is required")
	}
	if r.Per, fact = Millis("per", in.GetPer(), Span{Min: 1, Max: core.MaxRatePer, Limit: "rate_per_ms"}); fact != nil {
		return r, fact
	}
	r.Limit, r.Burst = in.GetLimit(), in.GetBurst()
	if r.Limit > int64(r.Per)*1_000_000 {
		return r, edge.Invalid("", "must be at most 1,000,000,000 in a second")
	}
	return r, nil
}

// showRate shows a rate; unset: nothing is bounded.
func showRate(r core.Rate) *pb.Rate {
	if r == (core.Rate{}) {
		return nil
	}
	return &pb.Rate{Limit: r.Limit, Per: spanOf(r.Per), Burst: r.Burst}
}

// showPerKey shows the limits of each key of a queue; unset: there are none.
func showPerKey(s *core.QueueShare) *pb.KeyLimits {
	if s.KeyConcurrency == 0 && s.KeyRate == (core.Rate{}) {
		return nil
	}
	return &pb.KeyLimits{Concurrency: s.KeyConcurrency, Rate: showRate(s.KeyRate)}
}

// showShare shows how a queue is shared in its configuration.
func showShare(out *pb.QueueConfig, s *core.QueueShare) {
	if s.NoFairness {
		out.Fairness = pb.QueueConfig_NONE
	}
	if s.Strict {
		out.Order = pb.QueueConfig_STRICT
	}
	out.Concurrency, out.Rate, out.PerKey, out.MaxWorkers = s.Concurrency, showRate(s.Rate), showPerKey(s), s.MaxWorkers
	out.Limiters = s.LimiterNames()
}

// keyOrders are the orders of a list of keys.
var keyOrders = map[string]core.KeyOrder{
	"": core.KeysByName, "name": core.KeysByName, "backlog": core.KeysByBacklog, "oldest": core.KeysByOldest, "owed": core.KeysByOwed,
}

// listedKey is a key of a list, with the sum of the weights in its partition; 0: it is not known.
type listedKey struct {
	core.QueueKey
	weights uint64
}

// Keys lists the keys of a queue, over all partitions of the namespace. Only by name there are further pages.
func (qs *QueueService) Keys(ctx context.Context, in *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	limit, fact := qs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	order, ok := keyOrders[in.GetSort()]
	if !ok {
		return nil, edge.Invalid("sort", "must be name, backlog, oldest or owed")
	}
	if fact := TextUpTo("prefix", in.GetPrefix(), "key_bytes", core.MaxKey); fact != nil {
		return nil, fact
	}
	if order != core.KeysByName && in.GetCursor() != "" {
		return nil, core.Invalid{Field: "cursor", Reason: "bad_cursor", Message: "must not be set: a list in this order has one page"}
	}
	after, fact := readKeyCursor(in.GetCursor())
	if fact != nil {
		return nil, fact
	}
	c, err := qs.beginQueue(ctx, in.GetQueue())
	if err != nil {
		return nil, err
	}
	q := core.KeyQuery{Queue: in.GetQueue(), Prefix: in.GetPrefix(), After: after, Order: order, Limit: limit}
	var mu sync.Mutex // guards the answer
	var all []listedKey
	var lists []core.KeyList
	var at core.At
	read := func(p core.Partition) error {
		one := q
		list, oneAt, err := qs.queues.QueueKeys(ctx, p, &one, readOptions(0, in.GetStale()))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		merge(&at, oneAt)
		for i := range list.Keys {
			all = append(all, listedKey{list.Keys[i], list.Weights})
		}
		lists = append(lists, list)
		return nil
	}
	if c.t.several() {
		err = c.each(0, read)
	} else {
		err = read(c.t.part)
	}
	if err != nil {
		return nil, err
	}
	sortKeys(all, order)
	out := &pb.ListKeysResponse{Use: showUse(lists), At: ShowAt(at)}
	running := uint64(0)
	for i := range lists {
		running += lists[i].Use.Running
	}
	if after == "" && in.GetPrefix() == "" {
		out.Unkeyed = showKey(unkeyed(lists), running)
	}
	if len(all) >= limit {
		all = all[:limit]
		if order == core.KeysByName {
			out.Cursor = showCursor([]byte(all[limit-1].Key))
		}
	}
	for i := range all {
		out.Keys = append(out.Keys, showKey(&all[i], running))
	}
	return out, nil
}

// showUse tells how much of the limits of a queue is used: they hold in each partition by itself, so it is that of the partition where
// most is. How many keys wait is summed up, where all were looked at.
func showUse(lists []core.KeyList) *pb.QueueUse {
	out := &pb.QueueUse{}
	all := len(lists) > 0
	var waiting, held uint32
	for i := range lists {
		l := &lists[i]
		out.Running, out.Rate = max(out.Running, l.Use.Running), max(out.Rate, l.Use.Rate)
		out.Workers = max(out.Workers, uint32(l.Use.Workers))
		waiting, held, all = waiting+uint32(l.Waiting), held+uint32(l.Held), all && l.All
	}
	if all {
		out.WaitingKeys, out.HeldKeys = &waiting, &held
	}
	return out
}

// unkeyed puts the tasks without a key of all partitions together. What holds them up is told where it is the same in each partition that
// has such tasks ready; what they are due of several partitions is not.
func unkeyed(lists []core.KeyList) *listedKey {
	var out listedKey
	if len(lists) == 1 {
		out.weights = lists[0].Weights
	}
	first := true
	for i := range lists {
		k := &lists[i].Unkeyed
		out.Tasks, out.Ready, out.Running = out.Tasks+k.Tasks, out.Ready+k.Ready, out.Running+k.Running
		out.Limit, out.Weight = k.Limit, k.Weight
		if k.Ready == 0 {
			continue
		}
		if first {
			out.WaitsFor, out.Until, out.OldestReady, out.Owed = k.WaitsFor, k.Until, k.OldestReady, k.Owed
		}
		if out.WaitsFor != k.WaitsFor {
			out.WaitsFor, out.Until = "", 0
		}
		out.Until, out.OldestReady, out.Owed = min(out.Until, k.Until), min(out.OldestReady, k.OldestReady), max(out.Owed, k.Owed)
		out.HeldBy = append(out.HeldBy, k.HeldBy...)
		first = false
	}
	if out.HeldBy = out.HeldBy[:min(len(out.HeldBy), core.MaxHolders)]; out.WaitsFor == "" {
		out.HeldBy = nil
	}
	return &out
}

// readKeyCursor reads the key behind which a page begins; empty: it is the first page.
func readKeyCursor(cursor string) (string, core.Fact) {
	if cursor == "" {
		return "", nil
	}
	raw, fact := readCursor(cursor)
	if fact == nil && (len(raw) == 0 || len(raw) > core.MaxKey) {
		fact = core.Invalid{Field: "cursor", Reason: "bad_cursor", Message: "must be one of this list"}
	}
	return string(raw), fact
}

// sortKeys puts the keys of all partitions in one order. A key that several partitions have is there for each of them.
func sortKeys(all []listedKey, order core.KeyOrder) {
	slices.SortStableFunc(all, func(a, b listedKey) int {
		switch {
		case order == core.KeysByBacklog && a.Ready != b.Ready:
			return cmp.Compare(b.Ready, a.Ready)
		case order == core.KeysByOwed && a.Owed != b.Owed:
			return cmp.Compare(b.Owed, a.Owed)
		case order == core.KeysByOldest && a.OldestReady != b.OldestReady:
			return cmp.Compare(readyOr(a.OldestReady, core.Never), readyOr(b.OldestReady, core.Never))
		}
		return strings.Compare(a.Key, b.Key)
	})
}

// readyOr is when the oldest task of a key became ready, or another time where none is ready.
func readyOr(at, otherwise core.ShardTime) core.ShardTime {
	if at == 0 {
		return otherwise
	}
	return at
}

// showKey shows a key of a queue of which a number of tasks run.
func showKey(k *listedKey, running uint64) *pb.QueueKey {
	out := &pb.QueueKey{
		Key: k.Key, Tasks: k.Tasks, Ready: k.Ready, Running: k.Running, Settings: showKeySettings(&k.Settings), Paused: showPaused(k.Paused),
		OldestReady: TimeOf(k.OldestReady), WaitsFor: waitsFor(k.WaitsFor), Until: TimeOf(k.Until), HeldBy: k.HeldBy, Owed: k.Owed,
		Limit: k.Limit, Weight: k.Weight,
	}
	if k.Running > 0 && running > 0 { // the partitions are read one after the other
		out.Share = min(float64(k.Running)/float64(running), 1)
	}
	if k.weights > 0 {
		out.Due = new(0.0)
		if k.Ready > 0 {
			*out.Due = float64(k.Weight) / float64(k.weights)
		}
	}
	return out
}

// waitsFor is what holds a key up, in the word of its setting.
func waitsFor(code string) string {
	if code == core.WhyLaneLimit {
		return "concurrency"
	}
	return code
}

// showKeySettings shows what is set for a key; unset: nothing is.
func showKeySettings(s *core.KeySettings) *pb.KeySettings {
	if *s == (core.KeySettings{}) {
		return nil
	}
	return &pb.KeySettings{Weight: s.Weight, Concurrency: s.Concurrency, Rate: showRate(s.Rate)}
}

// SetKey sets the weight and the limits of a key, in all partitions of the namespace.
func (qs *QueueService) SetKey(ctx context.Context, in *pb.SetKeyRequest) (*pb.SetKeyResponse, error) {
	op := &core.KeySet{Queue: in.GetQueue(), Key: in.GetKey()}
	t := Translator{l: &qs.s.Limits}
	s := in.GetSettings()
	if s.GetWeight() > core.MaxWeight {
		return nil, edge.Within("settings", edge.Beyond("weight", "weight", core.MaxWeight, "is out of range"))
	}
	var fact core.Fact
	op.Settings.Weight = s.GetWeight()
	if op.Settings.Concurrency, fact = concurrency("concurrency", s.GetConcurrency()); fact != nil {
		return nil, edge.Within("settings", fact)
	}
	if op.Settings.Rate, fact = t.rate(s.GetRate()); fact != nil {
		return nil, edge.Within("settings", edge.Within("rate", fact))
	}
	replayed, at, err := qs.setKey(ctx, op, nil)
	if err != nil {
		return nil, err
	}
	return &pb.SetKeyResponse{Replayed: replayed, At: ShowAt(at)}, nil
}

// PauseKey stops giving out the tasks of a key, in all partitions of the namespace.
func (qs *QueueService) PauseKey(ctx context.Context, in *pb.PauseKeyRequest) (*pb.PauseKeyResponse, error) {
	if fact := reason(in.GetReason()); fact != nil {
		return nil, fact
	}
	op := &core.KeySet{Queue: in.GetQueue(), Key: in.GetKey(), KeepSettings: true, Pause: core.KeyPauseStop, Reason: in.GetReason()}
	replayed, at, err := qs.setKey(ctx, op, func(t *Translator) (fact core.Fact) {
		op.Until, fact = moment("until", in.GetUntil(), t.now, t.l.HorizonMs)
		return fact
	})
	if err != nil {
		return nil, err
	}
	return &pb.PauseKeyResponse{Replayed: replayed, At: ShowAt(at)}, nil
}

// ResumeKey lets a paused key go on.
func (qs *QueueService) ResumeKey(ctx context.Context, in *pb.ResumeKeyRequest) (*pb.ResumeKeyResponse, error) {
	op := &core.KeySet{Queue: in.GetQueue(), Key: in.GetKey(), KeepSettings: true, Pause: core.KeyPauseGoOn}
	replayed, at, err := qs.setKey(ctx, op, nil)
	if err != nil {
		return nil, err
	}
	return &pb.ResumeKeyResponse{Replayed: replayed, At: ShowAt(at)}, nil
}

// setKey proposes op to all partitions, the first one first. times reads what depends on the time of the shard; nil: nothing does.
func (qs *QueueService) setKey(ctx context.Context, op *core.KeySet, times func(t *Translator) core.Fact) (replayed bool, at core.At, err error) {
	if fact := TaskKey("key", op.Key); fact != nil {
		return false, at, fact
	}
	c, err := qs.beginQueue(ctx, op.Queue)
	if err != nil {
		return false, at, err
	}
	if fact := qs.s.shared("key"); fact != nil {
		return false, at, fact
	}
	if times != nil {
		if fact := times(&c.t); fact != nil {
			return false, at, fact
		}
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil || !c.t.several() {
		return r.Replayed, at, err
	}
	_, err = c.elsewhere(ctx, op)
	return r.Replayed, at, err
}
