package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// kvCmd makes the command for keys and keyspaces.
func (a *app) kvCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "kv",
		Short: "Read and write keys",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.kvGetCmd(), a.kvPutCmd(), a.kvDelCmd(), a.kvAddCmd(), a.kvRangeCmd(), a.kvDeleteRangeCmd(), a.keyspaceCmd())
	return c
}

// keyFlag adds --key-base64 to c, for keys with bytes that no argument can hold, such as NUL. It
// returns a function that turns the argument into the key; call it after the flags were parsed.
func keyFlag(c *cobra.Command) (keyOf func(arg string) (string, error)) {
	encoded := c.Flags().Bool("key-base64", false, "KEY is in base64, for bytes that an argument cannot hold")
	return func(arg string) (string, error) {
		if !*encoded {
			return arg, nil
		}
		b, err := base64.StdEncoding.DecodeString(arg)
		if err != nil {
			return "", usageError{fmt.Errorf("--key-base64: %w", err)}
		}
		return string(b), nil
	}
}

// kvGetCmd makes the command that prints a value. Without --json the output has the bytes of the
// value and nothing else, so that it can be redirected to a file.
func (a *app) kvGetCmd() *cobra.Command {
	var keyOf func(arg string) (string, error)
	var asIs bool
	c := &cobra.Command{
		Use:   "get KEYSPACE KEY",
		Short: "Print a key's value, byte for byte; on a terminal without control characters",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := keyOf(args[1])
			if err != nil {
				return err
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				v, err := client.KV(args[0]).Get(ctx, key)
				if err != nil {
					return err
				}
				// Bytes of the value are the whole output, so they do not go through print.
				if !a.json {
					return a.raw(v.Bytes, asIs)
				}
				out := map[string]any{"value": content(v.Bytes), "rev": v.Rev}
				addWriter(out, v.Writer)
				return a.print(out, nil)
			})
		},
	}
	c.Flags().BoolVar(&asIs, "raw", false, "print the value byte for byte even on a terminal")
	keyOf = keyFlag(c)
	return c
}

// addWriter adds the task that wrote a key to its JSON form, where one was kept.
func addWriter(fields map[string]any, w *millrace.KeyWriter) {
	if w != nil {
		fields["writer"] = map[string]any{"task": w.Task, "token": w.Token}
	}
}

// kvPutCmd makes the command that stores a value. --if-rev 0 is a condition too, so it asks whether
// the flag was given.
func (a *app) kvPutCmd() *cobra.Command {
	var ifRev uint64
	var ifAbsent bool
	var keyOf func(arg string) (string, error)
	c := &cobra.Command{
		Use:   "put KEYSPACE KEY VALUE|-",
		Short: "Store a value and print the key's new revision",
		Args:  cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := keyOf(args[1])
			if err != nil {
				return err
			}
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
				rev, err := client.KV(args[0]).Put(ctx, key, value, opts...)
				if err != nil {
					return err
				}
				return a.print(map[string]uint64{"rev": rev}, func(w io.Writer) { fmt.Fprintln(w, rev) })
			})
		},
	}
	c.Flags().Uint64Var(&ifRev, "if-rev", 0, "only if the key is at this revision; 0 = absent")
	c.Flags().BoolVar(&ifAbsent, "if-absent", false, "only if the key is absent")
	c.MarkFlagsMutuallyExclusive("if-rev", "if-absent")
	keyOf = keyFlag(c)
	return valuesFrom(c, 2)
}

// kvDelCmd makes the command that removes a key. That the key was absent is an answer, not an
// error.
func (a *app) kvDelCmd() *cobra.Command {
	var ifRev uint64
	var keyOf func(arg string) (string, error)
	c := &cobra.Command{
		Use:   "del KEYSPACE KEY",
		Short: "Remove a key and say whether it was there",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := keyOf(args[1])
			if err != nil {
				return err
			}
			var opts []millrace.DeleteOption
			if c.Flags().Changed("if-rev") {
				opts = append(opts, millrace.IfRev(ifRev))
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.KV(args[0]).Delete(ctx, key, opts...)
				if err != nil {
					return err
				}
				return a.print(map[string]bool{"existed": existed}, func(w io.Writer) { fmt.Fprintln(w, existed) })
			})
		},
	}
	c.Flags().Uint64Var(&ifRev, "if-rev", 0, "only if the key is at this revision")
	keyOf = keyFlag(c)
	return c
}
