package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

func (a *app) kvCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "kv",
		Short: "Read and write keys",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.kvGetCmd(), a.kvPutCmd(), a.kvDelCmd())
	return c
}

func (a *app) kvGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get KEYSPACE KEY",
		Short: "Print a key's value",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				v, err := client.KV(args[0]).Get(ctx, args[1])
				if err != nil {
					return err
				}
				return a.print(map[string]any{"value": content(v.Bytes), "rev": v.Rev}, func(w io.Writer) {
					_, _ = w.Write(v.Bytes) // byte for byte, so that it can be piped
				})
			})
		},
	}
}

func (a *app) kvPutCmd() *cobra.Command {
	var ifRev uint64
	var ifAbsent bool
	c := &cobra.Command{
		Use:   "put KEYSPACE KEY VALUE|-",
		Short: "Store a value and print the key's new revision",
		Args:  cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := a.argument(args[2])
			if err != nil {
				return err
			}
			var opts []millrace.PutOption
			if c.Flags().Changed("if-rev") {
				opts = append(opts, millrace.IfRev(ifRev))
			}
			if ifAbsent {
				opts = append(opts, millrace.IfAbsent())
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				rev, err := client.KV(args[0]).Put(ctx, args[1], value, opts...)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"rev": rev}, func(w io.Writer) { fmt.Fprintln(w, rev) })
			})
		},
	}
	c.Flags().Uint64Var(&ifRev, "if-rev", 0, "only if the key is at this revision; 0 = absent")
	c.Flags().BoolVar(&ifAbsent, "if-absent", false, "only if the key is absent")
	return c
}

func (a *app) kvDelCmd() *cobra.Command {
	var ifRev uint64
	c := &cobra.Command{
		Use:   "del KEYSPACE KEY",
		Short: "Remove a key and say whether it was there",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var opts []millrace.DeleteOption
			if c.Flags().Changed("if-rev") {
				opts = append(opts, millrace.IfRev(ifRev))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.KV(args[0]).Delete(ctx, args[1], opts...)
				if err != nil {
					return err
				}
				return a.print(map[string]bool{"existed": existed}, func(w io.Writer) { fmt.Fprintln(w, existed) })
			})
		},
	}
	c.Flags().Uint64Var(&ifRev, "if-rev", 0, "only if the key is at this revision")
	return c
}
