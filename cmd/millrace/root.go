package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"
)

// version is the program's version. The linker sets it when a release is built.
var version = "dev"

// app is what all subcommands share: streams, global flags and the connection. One process runs one
// command, so fields that flags fill are set once, before the command runs, and only read
// afterwards.
type app struct {
	in io.Reader
	// out takes what the command was asked for, err messages. Commands use print and tell, which
	// escape control characters, not the streams.
	out, err io.Writer
	// --json: every answer is one JSON value per line.
	json bool
	// How signals reach the command.
	told *interrupts
	// The output is a terminal.
	terminal bool
	// The command does its work whether or not its output can be written, as serve and work do. A
	// failed write then is not an error.
	serves bool
	// Filled by connectionFlags, which the commands that talk to a server have.
	conn connection
}

// execute runs one command line and returns its exit code. An output that cannot be written makes a
// command fail, because it did not deliver what it was asked for; a closed pipe does so silently,
// as the reader wanted no more.
func execute(told *interrupts, args []string, in io.Reader, stdout, errOut io.Writer) int {
	out := &checked{w: stdout}
	a := &app{in: in, out: out, err: errOut, told: told, terminal: isTerminal(stdout)}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	// ctx ends with the first signal, so every command that passes it on ends then.
	err := root.ExecuteContext(told.ctx)
	if out.err != nil && !a.serves && (err == nil || errors.Is(err, out.err)) {
		err = exitError{exitRefused, fmt.Errorf("write the output: %w", out.err)}
		if errors.Is(out.err, syscall.EPIPE) {
			err = exitError{exitRefused, errReported} // the reader has what it wanted
		}
	}
	if err != nil {
		a.report(err)
	}
	return exitCode(err, told.ctx.Err() != nil)
}

// root builds the tree of all commands. Errors are printed by report and not by cobra.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "A durable work queue whose side effects commit with the task",
		Long: `Millrace is a durable work queue whose side effects commit with the task: a worker finishes a
task and, in the same log entry, writes keys, moves git refs, stores points to search for and
enqueues follow-up tasks, fenced by its lease.

Exit codes: 0 ok, 1 refused or failed, 2 usage, 3 unavailable; serve adds 20 storage error,
21 corruption, 22 disk full, 23 wrong identity.`,
		Example: `  millrace serve --dev --data ./data --token-file ./token
  export MILLRACE_TOKEN=$(cat ./token)
  millrace task create mail '{"to":"ada"}'
  millrace work -q mail --exec ./send.sh`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see --help", args[0])}
			}
			return c.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, one value per line")
	// The order here is that of the help.
	root.AddCommand(a.serveCmd(), a.demoCmd(), a.demoWorkerCmd(), a.taskCmd(), a.queueCmd(), a.limiterCmd(), a.workerCmd(), a.bulkCmd(), a.batchCmd(), a.kvCmd(), a.refCmd(), a.searchCmd(), a.namespaceCmd(), a.tenantCmd(),
		a.workCmd(), a.uiCmd(), a.doctorCmd(), a.backupCmd(), a.restoreCmd(), a.tokenCmd(), a.clusterCmd(), a.benchCmd(), a.versionCmd())
	// All commands get the same checks of their arguments, so no command has to call them itself.
	for _, c := range root.Commands() {
		wrapUsage(c)
	}
	return root
}

// wrapUsage makes errors about arguments, missing flags and flags that exclude one another usage
// errors, which exit with 2, for c and all commands below it. It puts all such checks into Args,
// which cobra calls before RunE, and refuses empty texts.
func wrapUsage(c *cobra.Command) {
	refuseEmpty(c)
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := errors.Join(check(c, args), c.ValidateRequiredFlags(), c.ValidateFlagGroups(), checkArguments(c, args), checkVariables(c))
			if err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapUsage(sub)
	}
}

// print writes one answer: v as a line of JSON with --json, else what text writes. The answer is
// built in memory and written at once, so that a partial one never appears. text may be nil where
// the caller has checked for --json.
func (a *app) print(v any, text func(w io.Writer)) error {
	var b bytes.Buffer
	if !a.json {
		text(&b)
		_, err := a.out.Write(escaped(b.Bytes()))
		return err
	}
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.out.Write(escapedJSON(b.Bytes()))
	return err
}

// versionCmd makes the command that prints the version.
func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print(map[string]string{"version": version}, func(w io.Writer) { fmt.Fprintln(w, "millrace", version) })
		},
	}
}
