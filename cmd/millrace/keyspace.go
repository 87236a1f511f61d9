package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// kvAddCmd makes the command that adds to a number under a key. The bounds are checked by the
// server in the same commit. Flags that were not given must send no condition, so it asks whether
// they changed instead of comparing their values.
func (a *app) kvAddCmd() *cobra.Command {
	var ifRev uint64
	var floor, ceiling int64
	var keyOf func(arg string) (string, error)
	c := &cobra.Command{
		Use:   "add KEYSPACE KEY N",
		Short: "Add to the number under a key and print the sum; an absent key holds 0",
		Example: `  millrace kv add stock apples 5
  millrace kv add stock apples --floor 0 -- -3`,
		Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := keyOf(args[1])
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil {
				return usageError{fmt.Errorf("argument N: %w", err)}
			}
			var opts []millrace.AddNumberOption
			if c.Flags().Changed("if-rev") {
				opts = append(opts, millrace.IfRev(ifRev))
			}
			if c.Flags().Changed("floor") {
				opts = append(opts, millrace.Floor(floor))
			}
			if c.Flags().Changed("ceiling") {
				opts = append(opts, millrace.Ceiling(ceiling))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				sum, err := client.KV(args[0]).Add(ctx, key, n, opts...)
				if err != nil {
					return err
				}
				return a.print(map[string]int64{"sum": sum}, func(w io.Writer) { fmt.Fprintln(w, sum) })
			})
		},
	}
	c.Flags().Uint64Var(&ifRev, "if-rev", 0, "only if the key is at this revision; 0 = absent")
	c.Flags().Int64Var(&floor, "floor", 0, "refuse the addition if the sum would be below this")
	c.Flags().Int64Var(&ceiling, "ceiling", 0, "refuse the addition if the sum would be above this")
	keyOf = keyFlag(c)
	return c
}

// rangeFlags adds the flags that name a range of keys to c. It returns a function that reads the
// range after the flags were parsed: a prefix, or all keys from --from up to and without --to.
// Without flags it is all keys.
func rangeFlags(c *cobra.Command) (rangeOf func() (millrace.KeyRange, error)) {
	prefix := c.Flags().String("prefix", "", "only keys that begin with this")
	from := c.Flags().String("from", "", "first key of the range")
	to := c.Flags().String("to", "", "end of the range; this key is not part of it")
	return func() (millrace.KeyRange, error) {
		// Between with an empty bound is open on that side, so one of the two flags is enough.
		bounded := c.Flags().Changed("from") || c.Flags().Changed("to")
		if bounded && c.Flags().Changed("prefix") {
			return millrace.KeyRange{}, usageError{errors.New("--prefix and --from or --to are mutually exclusive")}
		}
		if bounded {
			return millrace.Between(*from, *to), nil
		}
		return millrace.Prefix(*prefix), nil
	}
}

// kvRangeCmd makes the command that prints a range of keys. The SDK fetches the range page by page,
// so the command uses little memory.
func (a *app) kvRangeCmd() *cobra.Command {
	var rangeOf func() (millrace.KeyRange, error)
	var keysOnly, stale bool
	var limit int
	c := &cobra.Command{
		Use:   "range KEYSPACE",
		Short: "Print the keys of a range, in byte order, with their revisions and values",
		Long: `Range prints one line per key: the key, its revision and its value, quoted where they hold more than
plain text. With --json each line is an object.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := rangeOf()
			if err != nil {
				return err
			}
			var opts []millrace.ReadOption
			if stale {
				opts = append(opts, millrace.Stale(0))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				entries := client.KV(args[0]).Range
				if keysOnly {
					entries = client.KV(args[0]).Keys
				}
				n := 0
				for e, err := range entries(ctx, r, opts...) {
					if err != nil {
						return err
					}
					if err := a.printEntry(e, keysOnly); err != nil {
						return err
					}
					if n++; n == limit {
						break
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&keysOnly, "keys-only", false, "print keys and revisions without values")
	c.Flags().BoolVar(&stale, "stale", false, "read what this node has applied, without asking a majority; it may be old")
	c.Flags().IntVar(&limit, "limit", 0, "print at most this many keys; 0 = all")
	rangeOf = rangeFlags(c)
	return c
}

// printEntry prints one key with its revision, and its value unless keysOnly is set.
func (a *app) printEntry(e millrace.Entry, keysOnly bool) error {
	v := map[string]any{"key": content([]byte(e.Key)), "rev": e.Rev}
	addWriter(v, e.Writer)
	if !keysOnly {
		v["value"] = content(e.Bytes)
	}
	return a.print(v, func(w io.Writer) {
		if keysOnly {
			fmt.Fprintf(w, "%s\t%d\n", plain(e.Key), e.Rev)
			return
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", plain(e.Key), e.Rev, plain(string(e.Bytes)))
	})
}

// plain returns s as it is, or quoted if it is empty or holds anything that would break a line,
// such as a line feed or invalid UTF-8.
func plain(s string) string {
	if s != "" && utf8.ValidString(s) && strconv.CanBackquote(s) {
		return s
	}
	return strconv.Quote(s)
}

// kvDeleteRangeCmd makes the command that removes a range of keys. Without bounds it would remove
// all keys, so it demands --all for that.
func (a *app) kvDeleteRangeCmd() *cobra.Command {
	var rangeOf func() (millrace.KeyRange, error)
	var all bool
	c := &cobra.Command{
		Use:   "del-range KEYSPACE",
		Short: "Remove the keys of a range and say how many there were",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			// Exactly one of the two ways to name the keys must be used.
			named := c.Flags().Changed("prefix") || c.Flags().Changed("from") || c.Flags().Changed("to")
			if named == all {
				return usageError{errors.New("give one of --prefix, --from and --to, or --all")}
			}
			r, err := rangeOf()
			if err != nil {
				return err
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				n, err := client.KV(args[0]).DeleteRange(ctx, r, millrace.CountKeys())
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"count": n}, func(w io.Writer) { fmt.Fprintln(w, n) })
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove all keys of the keyspace")
	rangeOf = rangeFlags(c)
	return c
}

// keyspaceCmd makes the command for keyspaces, below kv.
func (a *app) keyspaceCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "keyspace",
		Short: "Configure keyspaces and look into them",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.keyspaceListCmd(), a.keyspaceShowCmd(), a.keyspaceSetCmd(), a.keyspaceDeleteCmd())
	return c
}

// keyspaceListCmd makes the command that lists the keyspaces of the namespace.
func (a *app) keyspaceListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List keyspaces by name", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				list, err := client.Keyspaces(ctx)
				if err != nil {
					return err
				}
				for _, k := range list {
					if err := a.print(keyspaceFields(k), func(w io.Writer) { fmt.Fprintln(w, k.Name) }); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// keyspaceFields returns the JSON form of a keyspace, which list and show share.
func keyspaceFields(k millrace.KeyspaceInfo) map[string]any {
	return map[string]any{
		"keyspace": k.Name, "version": k.Config.Version, "keys": k.Keys, "more_keys": k.MoreKeys, "bytes": k.Bytes,
		"quota_bytes": k.Config.Bytes, "quota_writes_per_second": k.Config.WritesPerSecond,
		"quota_bytes_per_second": k.Config.BytesPerSecond, "measured_bytes": k.Measured, "over_quota": k.OverQuota,
		"writers": k.Config.Writers,
	}
}

// keyspaceShowCmd makes the command that prints one keyspace. "or more" after the count says that
// the server stopped counting.
func (a *app) keyspaceShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show KEYSPACE", Short: "Print a keyspace's configuration and what is in it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				k, err := client.KV(args[0]).Info(ctx)
				if err != nil {
					return err
				}
				return a.print(keyspaceFields(k), func(w io.Writer) {
					more := ""
					if k.MoreKeys {
						more = " or more"
					}
					fmt.Fprintf(w, "keyspace  %s\nversion   %d\nkeys      %d%s\nbytes     %d\n", k.Name, k.Config.Version, k.Keys, more, k.Bytes)
					fmt.Fprintf(w, "quota     %d bytes, %d writes/s, %d bytes/s (0 = none)\n", k.Config.Bytes, k.Config.WritesPerSecond, k.Config.BytesPerSecond)
					fmt.Fprintf(w, "writers   %v\n", k.Config.Writers)
					if k.Config.Bytes > 0 {
						fmt.Fprintf(w, "measured  %d bytes, over quota: %v\n", k.Measured, k.OverQuota)
					}
				})
			})
		},
	}
}

// keyspaceSetCmd makes the command that replaces a keyspace's configuration: a limit that is not
// given becomes 0, and writers are kept only where that is given.
func (a *app) keyspaceSetCmd() *cobra.Command {
	var config millrace.KeyspaceConfig
	c := &cobra.Command{
		Use:   "set KEYSPACE",
		Short: "Replace a keyspace's configuration, or make the keyspace (admin), and print its version",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				version, err := client.KV(args[0]).Configure(ctx, config)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"version": version}, func(w io.Writer) { fmt.Fprintln(w, version) })
			})
		},
	}
	c.Flags().Int64Var(&config.Bytes, "bytes", 0, "limit in bytes of one replica on disk; 0 = no limit")
	c.Flags().Int64Var(&config.WritesPerSecond, "writes-per-second", 0, "limit of puts per second, over all nodes; 0 = no limit")
	c.Flags().Int64Var(&config.BytesPerSecond, "bytes-per-second", 0, "limit of bytes put per second, over all nodes; 0 = no limit")
	c.Flags().BoolVar(&config.Writers, "writers", false, "keep with each key the task that wrote it last; kv get --json shows it")
	return c
}

// keyspaceDeleteCmd makes the command that removes a keyspace.
func (a *app) keyspaceDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete KEYSPACE", Short: "Remove a keyspace and all its keys (admin), and say whether it was there", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.KV(args[0]).Drop(ctx)
				if err != nil {
					return err
				}
				return a.print(map[string]bool{"existed": existed}, func(w io.Writer) { fmt.Fprintln(w, existed) })
			})
		},
	}
}
