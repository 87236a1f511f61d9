package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// namespaceCmd makes the command for namespaces.
func (a *app) namespaceCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "namespace",
		Short: "Make, read, configure and remove namespaces",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.namespaceCreateCmd(), a.namespaceGetCmd(), a.namespaceSetCmd(), a.namespaceRmCmd())
	return c
}

// named is like with, for a client of the namespace that an argument names. A different --ns is an
// error: one of the two is a mistake.
func (a *app) named(ctx context.Context, name string, fn func(ctx context.Context, c *millrace.Client) error) error {
	if a.conn.namespace != "" && a.conn.namespace != name {
		return usageError{fmt.Errorf("--ns %s names another namespace than %s", a.conn.namespace, name)}
	}
	a.conn.namespace = name
	return a.with(ctx, fn)
}

// namespaceCreateCmd makes the command that creates a namespace. Repeating it with the same number
// of partitions succeeds and says so.
func (a *app) namespaceCreateCmd() *cobra.Command {
	partitions := 1
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a namespace; its number of partitions is fixed",
		Long: `Make a namespace. A namespace that is used before it was made has one partition.

What one commit changes, such as a task and the keys that it writes, must be in one partition. Tasks and
keys with the same tag are (task create --tag user/1; keys like {user/1}/name). Each partition is led by
one node of a cluster, and the partitions are spread over the nodes.`,
		Example: `  millrace namespace create shop --partitions 16`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.named(c.Context(), args[0], func(ctx context.Context, client *millrace.Client) error {
				// With another number of partitions than it has, an existing namespace is an error.
				existed, err := client.CreateNamespace(ctx, partitions)
				if err != nil {
					return err
				}
				v := map[string]any{"namespace": args[0], "partitions": partitions, "replayed": existed}
				return a.print(v, func(w io.Writer) {
					done := "created"
					if existed {
						done = "exists"
					}
					fmt.Fprintf(w, "namespace %s %s with %d partitions\n", args[0], done, partitions)
				})
			})
		},
	}
	c.Flags().IntVar(&partitions, "partitions", 1, "number of partitions, 1 to 4096, fixed for good; a commit changes one partition atomically")
	return c
}

// namespaceView is a namespace as the command line prints it.
type namespaceView struct {
	// Namespace is the name.
	Namespace string `json:"namespace"`
	// Rises with each change of the configuration; 0: never configured.
	Version uint64 `json:"version"`
	// Queues and keyspaces are made by their first use.
	AutoCreate bool `json:"auto_create"`
	// Limit of ended tasks in bytes; 0 is the server's default.
	RetainBytes int64 `json:"retain_bytes"`
	// The first push to a repository creates it.
	OnPush bool `json:"create_on_push"`
	keyBounds
	Partitions []partitionView `json:"partitions"`
}

// partitionView is where a partition is. Leader is the gRPC address of the node that leads it;
// empty if Led is false, or if it is the server that answered.
type partitionView struct {
	// Partition counts from 0.
	Partition int    `json:"partition"`
	Shard     int    `json:"shard"`
	Led       bool   `json:"led"`
	Leader    string `json:"leader,omitempty"`
}

// text prints a namespace for a person.
func (v namespaceView) text(w io.Writer) {
	fmt.Fprintf(w, "namespace     %s\nversion       %d\nauto create   %t\nretain bytes  %d\nby a push     %t\n",
		v.Namespace, v.Version, v.AutoCreate, v.RetainBytes, v.OnPush)
	v.keyBounds.text(w)
	fmt.Fprintf(w, "partitions    %d\n", len(v.Partitions))
	for _, p := range v.Partitions {
		leader := p.Leader
		switch {
		case !p.Led:
			leader = "no node"
		case leader == "":
			leader = "the server that answered"
		}
		fmt.Fprintf(w, "  %-4d  shard %d  led by %s\n", p.Partition, p.Shard, leader)
	}
}

// namespaceGetCmd makes the command that prints a namespace.
func (a *app) namespaceGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Print a namespace: its configuration and where its partitions lie",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.named(c.Context(), args[0], func(ctx context.Context, client *millrace.Client) error {
				ns, err := client.Namespace(ctx)
				if err != nil {
					return err
				}
				v := namespaceView{
					Namespace: args[0], Version: ns.Config.Version, AutoCreate: ns.Config.AutoCreate,
					RetainBytes: ns.Config.RetainBytes, OnPush: ns.Config.CreateOnPush, Partitions: []partitionView{},
					keyBounds: keyBounds{
						ns.Config.KeyBytes, ns.Config.KeyWritesPerSecond, ns.Config.KeyBytesPerSecond, ns.MeasuredKeyBytes, ns.OverKeyBytes,
						ns.RecentKeyWritesPerSecond, ns.RecentKeyBytesPerSecond, ns.OvershootKeyWrites, ns.OvershootKeyBytesWritten,
					},
				}
				for _, p := range ns.Partitions {
					v.Partitions = append(v.Partitions, partitionView{p.Partition, p.Shard, p.Led, p.Address})
				}
				return a.print(v, v.text)
			})
		},
	}
}

// namespaceSetCmd makes the command that changes some settings. It reads the configuration, changes
// what flags name and writes it back with the version that it read: a change by another client in
// between is refused, not overwritten. A namespace that does not exist starts from the defaults.
func (a *app) namespaceSetCmd() *cobra.Command {
	var b keyBounds
	var autoCreate, onPush bool
	var retain int64
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a namespace's configuration (admin); settings that are not given stay",
		Example: `  millrace namespace set shop --key-bytes 1000000000 --key-writes-per-second 500
  millrace namespace set shop --auto-create=false`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.named(c.Context(), args[0], func(ctx context.Context, client *millrace.Client) error {
				// A namespace that was never configured creates queues and keyspaces at their first
				// use; that stays so unless a flag says otherwise.
				config := millrace.NamespaceConfig{AutoCreate: true}
				switch ns, err := client.Namespace(ctx); {
				case err == nil:
					config = ns.Config
				case !errors.Is(err, millrace.ErrNotFound):
					return err
				}
				f := c.Flags()
				b.given(f, &config.KeyBytes, &config.KeyWritesPerSecond, &config.KeyBytesPerSecond)
				if f.Changed("auto-create") {
					config.AutoCreate = autoCreate
				}
				if f.Changed("create-on-push") {
					config.CreateOnPush = onPush
				}
				if f.Changed("retain-bytes") {
					config.RetainBytes = retain
				}
				version, err := client.SetNamespace(ctx, config)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"version": version}, func(w io.Writer) { fmt.Fprintf(w, "version %d\n", version) })
			})
		},
	}
	b.flags(c.Flags())
	c.Flags().BoolVar(&autoCreate, "auto-create", true, "make queues and keyspaces at their first use")
	c.Flags().BoolVar(&onPush, "create-on-push", false, "make a repository at the first push to it")
	c.Flags().Int64Var(&retain, "retain-bytes", 0, "limit in bytes of ended tasks that are kept; the oldest are removed first; 0 = 10 GiB")
	return c
}

// namespaceRmCmd makes the command that removes an empty namespace.
func (a *app) namespaceRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a namespace that holds no tasks, keys, repositories, collections or rulesets",
		Long: `Remove a namespace with its configuration, its queues and its keyspaces. It is refused while the namespace
has tasks, ended ones too, keys, repositories, also deleted ones that can be brought back, collections or
rulesets. The name is free at once. Workers of the namespace end.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.named(c.Context(), args[0], func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.DeleteNamespace(ctx)
				if err != nil {
					return err
				}
				return a.print(map[string]any{"namespace": args[0], "existed": existed}, func(w io.Writer) {
					done := "removed"
					if !existed {
						done = "did not exist"
					}
					fmt.Fprintf(w, "namespace %s %s\n", args[0], done)
				})
			})
		},
	}
}
