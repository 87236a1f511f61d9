// Command millrace is the server and its command line. It owns no logic of the server: it turns
// flags, variables of the environment and files into options, calls internal/server, bench or the
// SDK, and prints what they return.
//
// Its main types:
//
//   - app holds what all subcommands share: the streams, the global flags and the connection to a
//     server. Each subcommand is a method that returns a cobra.Command, in a file with the
//     subcommand's name.
//   - serveOptions are the settings of a server, filled by flags, environment and file in this
//     order of precedence.
//   - runner runs commands for tasks (millrace work). A command runs below a supervisor, which is
//     another process of this program: see work_supervise.go.
//   - demo, updater (git's update-ref dialect) and operator (cluster commands) are the state of one
//     run of their subcommands.
//
// How a command line flows through it:
//
//  1. main catches signals and calls execute, which builds the tree of commands and runs one.
//  2. The command checks its flags and arguments; what it refuses is a usageError.
//  3. app.with or app.waiting connects to a server and bounds the time; the command calls the SDK.
//  4. app.print writes the answer: one JSON value per line with --json, else text. Control
//     characters are escaped in both.
//  5. exitCode maps the error to the exit code. It is the only place that does.
//
// Rules: the output has only what was asked for, messages go to the error stream; secrets are read
// from files, flags or variables and never printed; a flag, argument or variable that is given must
// not be empty.
package main

import "os"

// A process that was started as a supervisor of millrace work does nothing else: it must not parse
// flags or catch the signals that a command line catches.
func main() {
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		os.Exit(supervise())
	}
	told, stop := heedSignals()
	code := execute(told, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
