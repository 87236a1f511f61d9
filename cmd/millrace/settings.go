package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/server"
)

// settingsVariables is the prefix of the environment variables that are settings of serve.
const settingsVariables = "MILLRACE_SERVE_"

// notSettings are flags that act on one command line only: neither the environment nor a file can
// set them.
var notSettings = []string{"config", "help", "json", "limits", "settings"}

// settingsIntro and the texts below are parts of the reference that printSettings writes.
const settingsIntro = `# Settings of the server

Written by ` + "`millrace serve --settings`" + `; a test compares.

A flag of ` + "`millrace serve`" + ` wins over the environment variable, which wins over the key of the YAML file that
` + "`--config`" + ` names. The variable is ` + "`" + settingsVariables + "`" + ` and the flag in capitals with underscores, such as
` + "`" + settingsVariables + "LOG_LEVEL`" + `; the key is the flag with underscores, such as ` + "`log_level`" + `. The server does not start with
an unknown key or variable, or with a value that is empty or cannot be read.

Secrets are never settings: tokens (as hashes) and keys of certificates are read from files. ` + "`/debug/status`" + ` of the admin
listener shows the settings in force.

| Flag | Default | Meaning |
|---|---|---|
`

// limitsIntro opens the table of limits.
const limitsIntro = `
## Limits

Each limit is a setting too. A request that exceeds a limit is refused with the name of the limit, and counted in
` + "`millrace_api_refusals_total`" + `, see [metrics](metrics.md). A name that ends in ` + "`_ms`" + ` is in milliseconds; the others count bytes, items or calls.

| Limit | Flag | Default | At most |
|---|---|---|---|
`

// memoryIntro opens the table of shares of the memory.
const memoryIntro = `
## Memory

` + "`--memory`" + ` is split into shares, each of which bounds something. What does not fit is refused or dropped under the name of
its share, and ` + "`millrace_server_memory_share_bytes`" + ` tells their sizes. Here they are for a node of a cluster of three with four
shards and 4 GiB. With less they shrink in proportion; what holds commits is never below 4 MiB.

| Share | With 4 GiB | Bounds |
|---|---|---|
`

// descriptorsIntro opens the table of shares of the file descriptors.
const descriptorsIntro = `
## Descriptors

What the process may have open at once (RLIMIT_NOFILE, ` + "`ulimit -n`" + `) is split at the start: each part keeps to its share, so that
connections never take what the database or the log needs. With few all shares shrink, ` + "`connections_node`" + ` among them; a limit that
is set and does not fit keeps the server from starting, with the sum. 256 are enough for a node. Here is the split for a node of a
cluster of three; ` + "`serve --limits`" + ` prints the one that a node would have, ` + "`millrace_server_share_descriptors`" + ` the one in force.

| Share | Of 256 | Of 1,024 | Of 65,536 | For |
|---|---|---|---|---|
`

// printSettings writes the reference of all settings as Markdown, which is docs/reference. A hidden
// flag is left out, as it is for tests; the limits are hidden too, but have a table of their own.
// The figures are for fixed sizes of a machine, so that the text is the same everywhere.
func printSettings(w io.Writer, flags *pflag.FlagSet, o *server.Options) {
	fmt.Fprint(w, settingsIntro)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || slices.Contains(notSettings, f.Name) {
			return
		}
		value := ""
		if f.DefValue != "" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(w, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	fmt.Fprint(w, memoryIntro)
	// The example is a node of a cluster of three with four shards and 4 GiB.
	for _, share := range config.PlanMemory(4<<30, 4, 2).Shares() {
		fmt.Fprintf(w, "| `%s` | %.0f MiB | %s |\n", share.Name, float64(share.Bytes)/(1<<20), share.Meaning)
	}
	fmt.Fprint(w, descriptorsIntro)
	printDescriptors(w)
	fmt.Fprint(w, limitsIntro)
	for _, row := range o.Limits.Rows() {
		fmt.Fprintf(w, "| `%s` | `--%s` | %d | %d |\n", row.Key, limitFlag(row.Key), row.Default, row.Max)
	}
}

// printDescriptors writes the table of descriptors: one row per share, one column per limit of the
// process.
func printDescriptors(w io.Writer) {
	var columns [3][]config.Share
	for i, most := range []int64{256, 1024, 65_536} {
		d, err := config.PlanDescriptors(config.DescriptorNeeds{Most: most, Peers: 2, Segments: 64, Programs: 8})
		if err != nil {
			fmt.Fprintln(w, err)
			return
		}
		columns[i] = d.Shares()
	}
	for i, s := range columns[0] {
		fmt.Fprintf(w, "| `%s` | %d | %d | %d | %s |\n", s.Name, s.Bytes, columns[1][i].Bytes, columns[2][i].Bytes, s.Meaning)
	}
}

// limitFlag returns the name of the flag that sets the limit key.
func limitFlag(key string) string { return "limit-" + strings.ReplaceAll(key, "_", "-") }

// settingsOf returns what the environment and a file may set: one setting for each flag that
// notSettings does not list. A flag with an Item method takes a list in a file; its wrapper against
// empty texts is looked through to find it.
func settingsOf(flags *pflag.FlagSet) []config.Setting {
	var out []config.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notSettings, f.Name) {
			s := config.Setting{Name: f.Name, Set: f.Value.Set, Done: f.Changed}
			value := f.Value
			if filled, ok := value.(filledValue); ok {
				value = filled.Value
			}
			if list, ok := value.(interface {
				Item(fields map[string]string) (string, error)
			}); ok {
				s.Item = list.Item
			}
			out = append(out, s)
		}
	})
	return out
}
