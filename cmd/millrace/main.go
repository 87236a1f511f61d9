// Command millrace is the server and its command line: one file per subcommand, each a shell around run functions.
package main

import "os"

func main() {
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		os.Exit(supervise())
	}
	told, stop := heedSignals()
	code := execute(told, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
