package millrace

import (
	"context"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// TenantConfig bounds all keyspaces, tasks and streams of all namespaces of a tenant together. A bound of 0 is none, but for those of
// tasks that there are, which have defaults. What passes one is refused with ErrExhausted, or with CodeRateLimited; ends of attempts,
// deletes and reads go on.
type TenantConfig struct {
	Version            uint64 // rises with each change
	KeyBytes           int64  // on disk, of one replica, measured every 10 s
	KeyWritesPerSecond int64  // puts, of all nodes together
	KeyBytesPerSecond  int64  // of keys and values put, of all nodes together

	Weight               int   // the tenant's share of the log while other tenants wait too, 1 to 1,000; 0: 1
	TaskCreatesPerSecond int64 // tasks created, of all nodes together
	Streams              int64 // that are open, of all nodes together
	Tasks                int64 // that have not ended; 0: 20,000,000
	TaskBytes            int64 // of payloads, results, logs and checkpoints, of ended tasks too; 0: 64 GiB
	RunningTasks         int64 // 0: 100,000
}

// TenantInfo is a tenant, what bounds it, and what it takes.
type TenantInfo struct {
	// Name is the tenant's, and Config what bounds it.
	Name       string
	Config     TenantConfig
	Namespaces int // how many there are

	MeasuredKeyBytes uint64 // what all keyspaces took on the disk of the node that answered, at the last comparison with the bound
	OverKeyBytes     bool   // puts are refused

	// What all nodes let through of the rates lately, where there are any, and what passed beyond them and is not made good yet.
	RecentKeyWritesPerSecond uint64
	RecentKeyBytesPerSecond  uint64
	OvershootKeyWrites       uint64
	OvershootKeyBytesWritten uint64

	// What there is of tasks, as the node that answered has applied it, and of streams, and how much of that is beyond the bounds.
	CurrentTasks          uint64
	CurrentTaskBytes      uint64
	CurrentRunningTasks   uint64
	CurrentStreams        uint64
	OvershootTasks        uint64
	OvershootTaskBytes    uint64
	OvershootRunningTasks uint64

	// Tasks that were created lately, where there is a rate, and those that passed beyond it and are not made good yet.
	RecentTaskCreatesPerSecond uint64
	OvershootTaskCreates       uint64

	Refusals Refusals // of these bounds
}

// Refusals are what bounds refused in the last 24 hours, to half an hour. Each node counts in its memory what it refused itself, from its
// start on. What was held up for a rate counts once.
type Refusals struct {
	Bounds  []BoundRefusals // those that refused anything, the one that refused most first
	Nodes   []RefusalNode   // those whose counts these are, by name
	Partial bool            // a node did not answer, or did not count all bounds by themselves
}

// BoundRefusals is how often a bound refused something.
type BoundRefusals struct {
	Bound string // the field that sets it, such as key_bytes; any other limit of a namespace: as errors name it, such as max_tasks
	Count uint64
	Last  time.Time
}

// RefusalNode is a node that counts what it refuses.
type RefusalNode struct {
	Node  string    // its name
	Since time.Time // its start
}

// refusalsOf reads what bounds refused.
func refusalsOf(r *millracev1.Refusals) Refusals {
	out := Refusals{Partial: r.GetPartial()}
	for _, b := range r.GetBounds() {
		out.Bounds = append(out.Bounds, BoundRefusals{Bound: b.GetBound(), Count: b.GetCount(), Last: timeOf(b.GetLast())})
	}
	for _, n := range r.GetNodes() {
		out.Nodes = append(out.Nodes, RefusalNode{Node: n.GetNode(), Since: timeOf(n.GetSince())})
	}
	return out
}

// Tenant reads a tenant; an empty name is the client's own (needs the scope admin), any other one needs the scope tenant:admin.
// One that was never used, nor configured, is ErrNotFound.
func (c *Client) Tenant(ctx context.Context, name string) (TenantInfo, error) {
	var resp *millracev1.GetTenantResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.tenants.Get(ctx, &millracev1.GetTenantRequest{Tenant: name})
		return err
	})
	if err != nil {
		return TenantInfo{}, err
	}
	t := resp.GetConfig()
	return TenantInfo{
		Name: resp.GetTenant(), Namespaces: int(resp.GetNamespaces()), MeasuredKeyBytes: resp.GetMeasuredKeyBytes(), OverKeyBytes: resp.GetOverKeyBytes(),
		RecentKeyWritesPerSecond: resp.GetRecentKeyWritesPerSecond(), RecentKeyBytesPerSecond: resp.GetRecentKeyBytesPerSecond(),
		OvershootKeyWrites: resp.GetOvershootKeyWrites(), OvershootKeyBytesWritten: resp.GetOvershootKeyBytesWritten(),
		CurrentTasks: resp.GetCurrentTasks(), CurrentTaskBytes: resp.GetCurrentTaskBytes(), CurrentRunningTasks: resp.GetCurrentRunningTasks(),
		CurrentStreams: resp.GetCurrentStreams(), OvershootTasks: resp.GetOvershootTasks(), OvershootTaskBytes: resp.GetOvershootTaskBytes(),
		OvershootRunningTasks: resp.GetOvershootRunningTasks(), RecentTaskCreatesPerSecond: resp.GetRecentTaskCreatesPerSecond(),
		OvershootTaskCreates: resp.GetOvershootTaskCreates(), Refusals: refusalsOf(resp.GetRefusals()),
		Config: TenantConfig{
			Version: t.GetVersion(), KeyBytes: t.GetKeyBytes(), KeyWritesPerSecond: t.GetKeyWritesPerSecond(), KeyBytesPerSecond: t.GetKeyBytesPerSecond(),
			Weight: int(t.GetWeight()), TaskCreatesPerSecond: t.GetTaskCreatesPerSecond(), Streams: t.GetStreams(),
			Tasks: t.GetTasks(), TaskBytes: t.GetTaskBytes(), RunningTasks: t.GetRunningTasks(),
		},
	}, nil
}

// SetTenant replaces what bounds a tenant (needs the scope tenant:admin), whose Version must be 0 or the one in force, and
// returns the new version. The tenant need not have been used yet. One without bounds is not configured any more: its version
// is 0, and versions that were in force do not come again.
func (c *Client) SetTenant(ctx context.Context, name string, config TenantConfig) (version uint64, err error) {
	req := &millracev1.SetTenantRequest{Tenant: name, Config: &millracev1.TenantConfig{
		KeyBytes: config.KeyBytes, KeyWritesPerSecond: config.KeyWritesPerSecond, KeyBytesPerSecond: config.KeyBytesPerSecond,
		Weight: uint32(max(config.Weight, 0)), TaskCreatesPerSecond: config.TaskCreatesPerSecond, Streams: config.Streams,
		Tasks: config.Tasks, TaskBytes: config.TaskBytes, RunningTasks: config.RunningTasks,
	}}
	if config.Version != 0 {
		req.IfVersion = &config.Version
	}
	var resp *millracev1.SetTenantResponse
	err = c.change(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.tenants.Set(ctx, req)
		return err
	})
	return resp.GetVersion(), err
}
