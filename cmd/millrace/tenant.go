package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	millrace "github.com/millrace/millrace/sdk/go"
)

// tenantCmd makes the command for tenants.
func (a *app) tenantCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "tenant",
		Short: "Limit what tenants use, and show their usage",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.tenantGetCmd(), a.tenantSetCmd())
	return c
}

// keyBounds are the limits of all keys of a namespace or a tenant and what they use, as the command
// line takes and prints them. Flags fill only the first three.
type keyBounds struct {
	// Limits; 0 means no limit.
	KeyBytes int64 `json:"key_bytes"`
	// Puts, and bytes of keys and values put, per second over all nodes.
	KeyWritesPerSecond int64 `json:"key_writes_per_second"`
	KeyBytesPerSecond  int64 `json:"key_bytes_per_second"`
	// The size at the last measurement, and whether it is over the limit, so that puts are refused.
	MeasuredKeyBytes uint64 `json:"measured_key_bytes"`
	OverKeyBytes     bool   `json:"over_key_bytes"`

	// The rates of the recent past over all nodes, and how much was put beyond the limit of the
	// rate.
	RecentWritesPerSecond uint64 `json:"recent_key_writes_per_second"`
	RecentBytesPerSecond  uint64 `json:"recent_key_bytes_per_second"`
	OvershootWrites       uint64 `json:"overshoot_key_writes"`
	OvershootBytes        uint64 `json:"overshoot_key_bytes_written"`
}

// flags adds the flags of the three limits.
func (b *keyBounds) flags(f *pflag.FlagSet) {
	f.Int64Var(&b.KeyBytes, "key-bytes", 0, "limit in bytes of the keys of one replica on disk; 0 = no limit")
	f.Int64Var(&b.KeyWritesPerSecond, "key-writes-per-second", 0, "limit of puts of keys per second, over all nodes; 0 = no limit")
	f.Int64Var(&b.KeyBytesPerSecond, "key-bytes-per-second", 0, "limit in bytes of keys and values put per second, over all nodes; 0 = no limit")
}

// given copies the limits whose flags were given to bytes, writes and rate, and leaves the others
// as they are.
func (b *keyBounds) given(f *pflag.FlagSet, bytes, writes, rate *int64) {
	for name, to := range map[string]struct{ from, to *int64 }{
		"key-bytes": {&b.KeyBytes, bytes}, "key-writes-per-second": {&b.KeyWritesPerSecond, writes}, "key-bytes-per-second": {&b.KeyBytesPerSecond, rate},
	} {
		if f.Changed(name) {
			*to.to = *to.from
		}
	}
}

// text prints limits and usage for a person; usage only where there is a limit.
func (b keyBounds) text(w io.Writer) {
	fmt.Fprintf(w, "key quota     %d bytes, %d writes/s, %d bytes/s (0 = none)\n", b.KeyBytes, b.KeyWritesPerSecond, b.KeyBytesPerSecond)
	if b.KeyWritesPerSecond+b.KeyBytesPerSecond > 0 {
		fmt.Fprintf(w, "keys put      %d/s, %d bytes/s; %d and %d bytes beyond the rate\n", b.RecentWritesPerSecond, b.RecentBytesPerSecond, b.OvershootWrites, b.OvershootBytes)
	}
	if b.KeyBytes == 0 {
		return
	}
	fmt.Fprintf(w, "keys measured %d bytes", b.MeasuredKeyBytes)
	if b.OverKeyBytes {
		fmt.Fprintf(w, ", %d over the quota: puts are refused", b.MeasuredKeyBytes-uint64(b.KeyBytes))
	}
	fmt.Fprintln(w)
}

// taskBounds are the limits of tasks and streams of a tenant and what it uses, as the command line takes and prints them. Flags fill
// those up to RunningTasks.
type taskBounds struct {
	// Weight is the share of the log while other tenants wait too; 0 means 1.
	Weight int `json:"weight"`
	// Limits over all nodes; 0 means no limit.
	TaskCreatesPerSecond int64 `json:"task_creates_per_second"`
	Streams              int64 `json:"streams"`
	// Limits of what there is; 0 means the default.
	Tasks        int64 `json:"tasks"`
	TaskBytes    int64 `json:"task_bytes"`
	RunningTasks int64 `json:"running_tasks"`

	// What there is, and how much of it is beyond the limits.
	CurrentTasks          uint64 `json:"current_tasks"`
	CurrentTaskBytes      uint64 `json:"current_task_bytes"`
	CurrentRunningTasks   uint64 `json:"current_running_tasks"`
	CurrentStreams        uint64 `json:"current_streams"`
	OvershootTasks        uint64 `json:"overshoot_tasks"`
	OvershootTaskBytes    uint64 `json:"overshoot_task_bytes"`
	OvershootRunningTasks uint64 `json:"overshoot_running_tasks"`
	RecentTaskCreates     uint64 `json:"recent_task_creates_per_second"`
	OvershootTaskCreates  uint64 `json:"overshoot_task_creates"`
}

// taskBoundsOf shows what the server told of a tenant.
func taskBoundsOf(t *millrace.TenantInfo) taskBounds {
	return taskBounds{
		Weight: t.Config.Weight, TaskCreatesPerSecond: t.Config.TaskCreatesPerSecond, Streams: t.Config.Streams,
		Tasks: t.Config.Tasks, TaskBytes: t.Config.TaskBytes, RunningTasks: t.Config.RunningTasks,
		CurrentTasks: t.CurrentTasks, CurrentTaskBytes: t.CurrentTaskBytes, CurrentRunningTasks: t.CurrentRunningTasks, CurrentStreams: t.CurrentStreams,
		OvershootTasks: t.OvershootTasks, OvershootTaskBytes: t.OvershootTaskBytes, OvershootRunningTasks: t.OvershootRunningTasks,
		RecentTaskCreates: t.RecentTaskCreatesPerSecond, OvershootTaskCreates: t.OvershootTaskCreates,
	}
}

// flags adds the flags of the limits.
func (b *taskBounds) flags(f *pflag.FlagSet) {
	f.IntVar(&b.Weight, "weight", 0, "share of the log while other tenants wait too, 1 to 1000; 0 = 1")
	f.Int64Var(&b.TaskCreatesPerSecond, "task-creates-per-second", 0, "limit of tasks created per second, over all nodes; 0 = no limit")
	f.Int64Var(&b.Streams, "streams", 0, "limit of open streams, over all nodes; 0 = no limit")
	f.Int64Var(&b.Tasks, "tasks", 0, "limit of tasks that have not ended; 0 = 20000000")
	f.Int64Var(&b.TaskBytes, "task-bytes", 0, "limit in bytes of payloads, results, logs and checkpoints; 0 = 64 GiB")
	f.Int64Var(&b.RunningTasks, "running-tasks", 0, "limit of running tasks; 0 = 100000")
}

// given copies the limits whose flags were given to c, and leaves the others as they are.
func (b *taskBounds) given(f *pflag.FlagSet, c *millrace.TenantConfig) {
	if f.Changed("weight") {
		c.Weight = b.Weight
	}
	for name, to := range map[string]struct{ from, to *int64 }{
		"task-creates-per-second": {&b.TaskCreatesPerSecond, &c.TaskCreatesPerSecond}, "streams": {&b.Streams, &c.Streams},
		"tasks": {&b.Tasks, &c.Tasks}, "task-bytes": {&b.TaskBytes, &c.TaskBytes}, "running-tasks": {&b.RunningTasks, &c.RunningTasks},
	} {
		if f.Changed(name) {
			*to.to = *to.from
		}
	}
}

// text prints limits and usage for a person.
func (b *taskBounds) text(w io.Writer) {
	fmt.Fprintf(w, "weight        %d\n", max(b.Weight, 1))
	line := func(name string, has, bound, beyond uint64, byDefault string) {
		most := byDefault
		if bound > 0 {
			most = fmt.Sprint(bound)
		}
		fmt.Fprintf(w, "%-13s %d of %s", name, has, most)
		if beyond > 0 {
			fmt.Fprintf(w, ", %d beyond the quota", beyond)
		}
		fmt.Fprintln(w)
	}
	line("tasks", b.CurrentTasks, uint64(max(b.Tasks, 0)), b.OvershootTasks, "20000000 (default)")
	line("task bytes", b.CurrentTaskBytes, uint64(max(b.TaskBytes, 0)), b.OvershootTaskBytes, "64 GiB (default)")
	line("running", b.CurrentRunningTasks, uint64(max(b.RunningTasks, 0)), b.OvershootRunningTasks, "100000 (default)")
	line("streams", b.CurrentStreams, uint64(max(b.Streams, 0)), 0, "any number")
	if b.TaskCreatesPerSecond > 0 {
		fmt.Fprintf(w, "creates       %d/s of %d/s; %d beyond the rate\n", b.RecentTaskCreates, b.TaskCreatesPerSecond, b.OvershootTaskCreates)
	}
}

// tenantView is a tenant as the command line prints it.
type tenantView struct {
	// Tenant is the name.
	Tenant string `json:"tenant"`
	// Rises with each change of the limits; 0: the tenant has none.
	Version uint64 `json:"version"`
	// Namespaces is how many namespaces the tenant has.
	Namespaces int `json:"namespaces"`
	keyBounds
	taskBounds
}

// tenantGetCmd makes the command that prints a tenant. An empty name is the token's own tenant.
func (a *app) tenantGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get [NAME]",
		Short: "Print the limits of a tenant, by default the token's own, and what it uses",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				t, err := client.Tenant(ctx, append(args, "")[0])
				if err != nil {
					return err
				}
				v := tenantView{t.Name, t.Config.Version, t.Namespaces, keyBounds{
					t.Config.KeyBytes, t.Config.KeyWritesPerSecond, t.Config.KeyBytesPerSecond, t.MeasuredKeyBytes, t.OverKeyBytes,
					t.RecentKeyWritesPerSecond, t.RecentKeyBytesPerSecond, t.OvershootKeyWrites, t.OvershootKeyBytesWritten,
				}, taskBoundsOf(&t)}
				return a.print(v, func(w io.Writer) {
					fmt.Fprintf(w, "tenant        %s\nversion       %d\nnamespaces    %d\n", v.Tenant, v.Version, v.Namespaces)
					v.keyBounds.text(w)
					v.taskBounds.text(w)
				})
			})
		},
	}
}

// tenantSetCmd makes the command that changes a tenant's limits. Like namespace set it reads the
// configuration, changes what flags name and writes it back under the version that it read.
func (a *app) tenantSetCmd() *cobra.Command {
	var b keyBounds
	var tasks taskBounds
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the limits of a tenant (scope tenant:admin); limits that are not given stay",
		Long: `Set changes the limits of all keyspaces, tasks and streams of all namespaces of a tenant together. It needs the scope
tenant:admin, which the role operator has. The tenant need not have been used yet. A tenant whose
limits are all 0 counts as not configured; at most 10,000 tenants can be configured.`,
		Example: `  millrace tenant set acme --key-bytes 10000000000 --key-writes-per-second 5000
  millrace tenant set acme --tasks 1000000 --task-creates-per-second 2000 --weight 3`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				// A tenant that was never used has no configuration yet and starts from zero
				// limits.
				t, err := client.Tenant(ctx, args[0])
				if err != nil && !errors.Is(err, millrace.ErrNotFound) {
					return err
				}
				b.given(c.Flags(), &t.Config.KeyBytes, &t.Config.KeyWritesPerSecond, &t.Config.KeyBytesPerSecond)
				tasks.given(c.Flags(), &t.Config)
				version, err := client.SetTenant(ctx, args[0], t.Config)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"version": version}, func(w io.Writer) { fmt.Fprintf(w, "version %d\n", version) })
			})
		},
	}
	b.flags(c.Flags())
	tasks.flags(c.Flags())
	return c
}
