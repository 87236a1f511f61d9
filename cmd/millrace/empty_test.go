package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run runs a command line with nothing to read, and returns its exit code and what it printed on the error stream.
func run(t *testing.T, args ...string) (code int, errOut string) {
	t.Helper()
	told, stop := heedSignals()
	defer stop()
	var out, failed bytes.Buffer
	code = execute(told, args, strings.NewReader(""), &out, &failed)
	return code, failed.String()
}

// eachCommand calls fn for every command that can be run, with the words that name it.
func eachCommand(c *cobra.Command, words []string, fn func(c *cobra.Command, words []string)) {
	if c.Runnable() {
		fn(c, words)
	}
	for _, sub := range c.Commands() {
		eachCommand(sub, append(words[:len(words):len(words)], sub.Name()), fn)
	}
}

// emptyFlags are the flags of texts that may be empty, with the reason.
var emptyFlags = map[string]string{
	"task fail --message":      "a failure without words is a failure all the same, which must be reported",
	"task fail --code":         "as its message",
	"task edit --payload":      "a payload may be empty, as that of a create",
	"ref create --message":     "a log entry may have no message",
	"ref update --message":     "a log entry may have no message",
	"ref symbolic --message":   "a log entry may have no message",
	"ref verify --message":     "a log entry may have no message",
	"ref delete --message":     "a log entry may have no message",
	"ref update-ref --message": "git's own words refuse it, with git's exit code",
}

func TestAFlagThatIsGivenAndEmptyIsAMistake(t *testing.T) {
	tried, allowed := 0, 0
	eachCommand((&app{}).root(), nil, func(c *cobra.Command, words []string) {
		flags := make(map[string]*pflag.Flag)
		for _, set := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { flags[f.Name] = f })
		}
		for name := range flags {
			if _, may := emptyFlags[strings.Join(words, " ")+" --"+name]; may {
				allowed++
				continue
			}
			tried++
			code, said := run(t, append(words[:len(words):len(words)], "--"+name+"=")...)
			want := exitUsage
			if c.Name() == "update-ref" {
				want = exitGitUsage // as git
			}
			if code != want || !strings.Contains(said, name) {
				t.Errorf("%s --%s=: exit code %d, %s", strings.Join(words, " "), name, code, said)
			}
		}
	})
	if tried < 300 || allowed != len(emptyFlags) {
		t.Errorf("only %d flags were tried, and %d of %d may be empty", tried, allowed, len(emptyFlags))
	}
}

func TestAnEmptyArgumentIsAMistakeWhereItIsAName(t *testing.T) {
	for _, words := range []string{
		"task get|", "task wait|", "task create|", "task create||x", "task claim|", "task complete||x", "task fail|",
		"task cancel|", "task cancel|01ARZ3NDEKTSV4RRFFQ69G5FAV|", "task retry|", "task release||--force", "task edit||--priority|1", "task rm|",
		"queue pause|", "queue resume|",
		"kv get||k", "kv get|ks|", "kv put||k|v", "kv put|ks||v", "kv del|ks|", "kv add|ks||1", "kv add|ks|k|", "kv range|", "kv del-range|",
		"kv keyspace set|", "kv keyspace delete|", "queue set|", "queue stats|", "namespace create|", "tenant set|",
		"ref show|", "ref log|", "ref update|refs/heads/a|0123456789012345678901234567890123456789|", "ref delete|refs/heads/a|", "ref repo create|", "ref repo get|",
		"search collection get|", "search query|c|", "search upsert|c||{}", "search remove|c|", "search import||-", "search ruleset get|", "search ruleset delete|", "search embed|",
		"cluster add|", "cluster drain|", "cluster extend|", "backup verify|", "bench report|", "bench compare||x",
	} {
		parts := strings.Split(words, "|")
		args := append(strings.Fields(parts[0]), parts[1:]...)
		if code, said := run(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, said)
		}
	}
	for _, words := range []string{"kv put|ks|k|", "task create|q|", "task complete|01ARZ3NDEKTSV4RRFFQ69G5FAV|--lease-token|4|"} {
		parts := strings.Split(words, "|")
		args := append(strings.Fields(parts[0]), parts[1:]...)
		args = append(args, "--server", "host.invalid:1", "--timeout", "1ms")
		if code, said := run(t, args...); code == exitUsage {
			t.Errorf("%q: an empty value is a value: %s", args, said)
		}
	}
}

func TestAVariableThatIsSetAndEmptyIsAMistake(t *testing.T) {
	for _, c := range []struct{ variable, words string }{
		{"MILLRACE_URL", "task list -q q"},
		{"MILLRACE_TOKEN", "kv get ks k"},
		{"MILLRACE_NAMESPACE", "kv del-range ks --all"},
		{"MILLRACE_REPO", "ref list"},
		{"MILLRACE_TRANSPORT", "search collection list"},
		{"MILLRACE_REST_URL", "queue list"},
		{"MILLRACE_TOKEN", "cluster status"},
		{"MILLRACE_SERVE_LISTEN", "serve --dev --data ./nowhere"},
		{"MILLRACE_SERVE_DURABILITY", "serve --dev --data ./nowhere"},
	} {
		t.Run(c.variable+" "+c.words, func(t *testing.T) {
			t.Setenv(c.variable, "")
			if code, said := run(t, strings.Fields(c.words)...); code != exitUsage || !strings.Contains(said, c.variable) || !strings.Contains(said, "must not be empty") {
				t.Errorf("exit code %d, %s", code, said)
			}
		})
	}
	t.Setenv("MILLRACE_NAMESPACE", "")
	if code, said := run(t, "kv", "get", "ks", "k", "--ns", "a", "--server", "host.invalid:1", "--timeout", "1ms"); code == exitUsage {
		t.Errorf("a flag wins over the variable: %s", said)
	}
	if _, err := os.Stat("nowhere"); err == nil {
		t.Error("a server was begun")
	}
}

func TestFlagsThatExcludeOneAnotherAreAMistake(t *testing.T) {
	for _, words := range []string{
		"task create q x --at 2030-01-02T03:04:05Z --delay 5m",
		"task create q x --delay 0s --at 2030-01-02T03:04:05Z",
		"task create q x --expires-in 5m --expires-at 2030-01-02T03:04:05Z",
		"task edit 01ARZ3NDEKTSV4RRFFQ69G5FAV --payload x --payload-file f",
		"task edit 01ARZ3NDEKTSV4RRFFQ69G5FAV --never-expires --expires-at 2030-01-02T03:04:05Z",
		"queue pause q --for 5m --until 2030-01-02T03:04:05Z",
		"task get 01ARZ3NDEKTSV4RRFFQ69G5FAV --token a --token-file b",
		"task get 01ARZ3NDEKTSV4RRFFQ69G5FAV --attempts --raw result",
		"task get 01ARZ3NDEKTSV4RRFFQ69G5FAV --raw result --json",
		"task get 01ARZ3NDEKTSV4RRFFQ69G5FAV --raw output",
		"kv del-range ks --prefix a --from b",
		"kv del-range ks --all --prefix a",
		"kv put ks k v --if-absent --if-rev 4",
	} {
		if code, said := run(t, strings.Fields(words)...); code != exitUsage {
			t.Errorf("%s: exit code %d, %s", words, code, said)
		}
	}
}
