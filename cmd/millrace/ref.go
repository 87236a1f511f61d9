package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// refFlags name the repository of a command: its name and, if it has one, its placement tag.
type refFlags struct{ repo, tag string }

// refCmd makes the command for repositories and refs. The flags that name the repository are
// persistent and shared by all commands below.
func (a *app) refCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "ref",
		Short: "Keep git repositories, read their refs and move them",
		Example: `  millrace ref repo create app
  millrace ref -R app list --prefix refs/heads/
  millrace ref -R app update refs/heads/main NEW OLD
  git -C src for-each-ref --format='create %(refname) %(objectname)' | millrace ref -R app update-ref --stdin`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	f := &refFlags{}
	c.PersistentFlags().StringVarP(&f.repo, "repo", "R", "", "name of the repository; default MILLRACE_REPO")
	c.PersistentFlags().StringVar(&f.tag, "tag", "", "placement tag of the repository, if it has one")
	c.AddCommand(
		a.refRepoCmd(f), a.refListCmd(f), a.refShowCmd(f), a.refUpdateCmd(f), a.refCreateCmd(f), a.refDeleteCmd(f),
		a.refVerifyCmd(f), a.refSymbolicCmd(f), a.refLogCmd(f), a.refUpdateRefCmd(f))
	return c
}

// withRepo connects and runs fn on the repository that the flags or MILLRACE_REPO name.
func (a *app) withRepo(ctx context.Context, f *refFlags, fn func(ctx context.Context, r millrace.Repo) error) error {
	name := cmp.Or(f.repo, os.Getenv("MILLRACE_REPO"))
	if name == "" {
		return usageError{errors.New("name a repository by -R or MILLRACE_REPO")}
	}
	return a.with(ctx, func(ctx context.Context, c *millrace.Client) error {
		return fn(ctx, c.Repo(name).Tagged(f.tag))
	})
}

// refRepoCmd makes the commands for repositories as a whole, whose argument is the repository's
// name. create and set share the variables of their flags, as only one command runs per process.
func (a *app) refRepoCmd(f *refFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "repo",
		Short: "Make, list, configure and delete repositories",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	// named makes a command about the repository that its argument names; the tag still comes from
	// the flag.
	named := func(use, short string, run func(ctx context.Context, r millrace.Repo) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				return a.withRepo(c.Context(), &refFlags{args[0], f.tag}, run)
			},
		}
	}
	var branch, config, id string
	var ifVersion int64
	create := named("create", "Make a repository", func(ctx context.Context, r millrace.Repo) error {
		settings, err := a.repoSettings(branch, config, -1)
		if err != nil {
			return err
		}
		info, err := r.Create(ctx, settings)
		if err != nil {
			return err
		}
		return a.printRepo(info)
	})
	create.Flags().StringVar(&branch, "default-branch", "", "branch that HEAD points to; default main")
	create.Flags().StringVar(&config, "config", "", "settings as JSON, or - for standard input")
	show := named("show", "Tell what a repository is", func(ctx context.Context, r millrace.Repo) error {
		info, err := r.Info(ctx)
		if err != nil {
			return err
		}
		return a.printRepo(info)
	})
	set := named("set", "Replace the settings of a repository", func(ctx context.Context, r millrace.Repo) error {
		settings, err := a.repoSettings(branch, config, ifVersion)
		if err != nil {
			return err
		}
		if config == "" { // only the branch changes
			info, err := r.Info(ctx)
			if err != nil {
				return err
			}
			settings.Config = &info.Config
		}
		version, err := r.Set(ctx, settings)
		if err != nil {
			return err
		}
		return a.print(map[string]uint64{"version": version}, func(w io.Writer) { fmt.Fprintln(w, version) })
	})
	set.Flags().StringVar(&branch, "default-branch", "", "branch that HEAD points to from now on")
	set.Flags().StringVar(&config, "config", "", "all settings as JSON, or - for standard input; default: unchanged")
	set.Flags().Int64Var(&ifVersion, "if-version", -1, "only if the settings are at this version")
	remove := named("delete", "Delete a repository; it can be brought back for 7 days", func(ctx context.Context, r millrace.Repo) error {
		id, err := r.Delete(ctx)
		if err != nil {
			return err
		}
		return a.print(map[string]string{"id": id}, func(w io.Writer) { fmt.Fprintln(w, id) })
	})
	undelete := named("undelete", "Bring a deleted repository back", func(ctx context.Context, r millrace.Repo) error {
		id, err := r.Undelete(ctx, id)
		if err != nil {
			return err
		}
		return a.print(map[string]string{"id": id}, func(w io.Writer) { fmt.Fprintln(w, id) })
	})
	undelete.Flags().StringVar(&id, "id", "", "id of the repository; default the one deleted last")
	c.AddCommand(create, a.refRepoListCmd(), show, set, remove, undelete)
	return c
}

// refRepoListCmd makes the command that lists repositories, or the deleted ones that can still be
// brought back.
func (a *app) refRepoListCmd() *cobra.Command {
	var deleted bool
	list := &cobra.Command{
		Use: "list", Short: "List repositories by name", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				var opts []millrace.RepoListOption
				if deleted {
					opts = append(opts, millrace.OnlyDeleted())
				}
				repos, err := client.Repos(ctx, opts...)
				if err != nil {
					return err
				}
				for _, info := range repos {
					if err := a.print(repoJSON(info), func(w io.Writer) {
						fmt.Fprintf(w, "%s\t%s\t%d refs\t%d bytes\n", info.Name, info.ID, info.Refs, info.Bytes)
					}); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	list.Flags().BoolVar(&deleted, "deleted", false, "list deleted repositories that can be brought back")
	return list
}

// repoSettings returns the settings that flags of a repository give. config is JSON, or - for
// standard input; empty leaves Config nil. A negative ifVersion sets no condition.
func (a *app) repoSettings(branch, config string, ifVersion int64) (millrace.RepoSettings, error) {
	out := millrace.RepoSettings{DefaultBranch: branch}
	if ifVersion >= 0 {
		out.IfVersion = new(uint64(ifVersion))
	}
	if config == "" {
		return out, nil
	}
	text, err := a.argument(config)
	if err != nil {
		return out, err
	}
	if out.Config, err = parseRepoConfig(text); err != nil {
		return out, usageError{fmt.Errorf("--config: %w", err)}
	}
	return out, nil
}

// repoConfig is the JSON form of a repository's settings, as --config takes and the output shows
// it. It has its own type so that names and words are those of the REST API, and unknown fields are
// refused.
type repoConfig struct {
	// Version rises with each change of the settings.
	Version uint64 `json:"version,omitempty"`
	State   string `json:"state,omitempty"`
	// Hide are patterns of refs that are neither listed nor changed without the scope ref:admin.
	Hide  []string   `json:"hide,omitempty"`
	Rules []repoRule `json:"rules,omitempty"`
	// How long entries of a ref's log are kept, and how many of them at most.
	ReflogDays int32 `json:"reflog_days,omitempty"`
	ReflogMax  int32 `json:"reflog_max,omitempty"`
	// Limits of the repository and of one push, in bytes.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	MaxPush  int64 `json:"max_push,omitempty"`
}

// repoRule is one rule about refs. Refs is the pattern of names that it covers, Deny what it
// forbids there, Except the principals that it does not bind, and Only the way by which these refs
// may change. Queue goes with Only "effects": only completions of that queue's tasks may change
// them.
type repoRule struct {
	Refs   string   `json:"refs"`
	Deny   []string `json:"deny,omitempty"`
	Except []string `json:"except,omitempty"`
	Only   string   `json:"only,omitempty"`
	Queue  string   `json:"queue,omitempty"`
}

// parseRepoConfig reads settings from JSON. It checks names and words; the server checks the rest.
func parseRepoConfig(text []byte) (*millrace.RepoConfig, error) {
	var in repoConfig
	d := json.NewDecoder(strings.NewReader(string(text)))
	// A misspelt setting would silently be no setting.
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	out := &millrace.RepoConfig{
		Hide: in.Hide, ReflogDays: int(in.ReflogDays), ReflogMax: int(in.ReflogMax), MaxBytes: in.MaxBytes, MaxPush: in.MaxPush,
	}
	var ok bool
	if out.State, ok = millrace.ParseRepoState(strings.ToLower(cmp.Or(in.State, "ready"))); !ok {
		return nil, fmt.Errorf("state %q must be one of ready, importing, archived", in.State)
	}
	// A rule without only may change in every way.
	for _, r := range in.Rules {
		rule := millrace.RefRule{Refs: r.Refs, Except: r.Except, Queue: r.Queue}
		for _, word := range r.Deny {
			deny, ok := millrace.ParseRefDeny(strings.ToLower(word))
			if !ok {
				return nil, fmt.Errorf("deny %q must be one of create, update, delete, force", word)
			}
			rule.Deny = append(rule.Deny, deny)
		}
		if rule.Only, ok = millrace.ParseRefDoor(strings.ToLower(cmp.Or(r.Only, "any"))); !ok {
			return nil, fmt.Errorf("only %q must be one of any, api, push, effects", r.Only)
		}
		out.Rules = append(out.Rules, rule)
	}
	return out, nil
}

// repoConfigJSON is the inverse of parseRepoConfig: what it returns can be given to --config again.
func repoConfigJSON(c millrace.RepoConfig) repoConfig {
	out := repoConfig{
		Version: c.Version, State: c.State.String(), Hide: c.Hide, ReflogDays: int32(c.ReflogDays), ReflogMax: int32(c.ReflogMax),
		MaxBytes: c.MaxBytes, MaxPush: c.MaxPush,
	}
	for _, r := range c.Rules {
		rule := repoRule{Refs: r.Refs, Except: r.Except, Only: r.Only.String(), Queue: r.Queue}
		for _, d := range r.Deny {
			rule.Deny = append(rule.Deny, d.String())
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// repoJSON returns the JSON form of a repository. A tag and a time of deletion appear only if there
// is one.
func repoJSON(r millrace.RepoInfo) map[string]any {
	out := map[string]any{
		"name": r.Name, "id": r.ID, "default_branch": r.DefaultBranch, "config": repoConfigJSON(r.Config),
		"created_at": r.CreatedAt, "created_by": r.CreatedBy, "rev": r.Rev, "refs": r.Refs, "packs": r.Packs, "bytes": r.Bytes,
	}
	if r.Tag != "" {
		out["tag"] = r.Tag
	}
	if !r.DeletedAt.IsZero() {
		out["deleted_at"] = r.DeletedAt
	}
	return out
}

// printRepo prints one repository with its settings.
func (a *app) printRepo(r millrace.RepoInfo) error {
	return a.print(repoJSON(r), func(w io.Writer) {
		fmt.Fprintf(w, "name            %s\nid              %s\ndefault branch  %s\nrev             %d\nrefs            %d\npacks           %d, %d bytes\n",
			r.Name, r.ID, r.DefaultBranch, r.Rev, r.Refs, r.Packs, r.Bytes)
		b, err := json.Marshal(repoConfigJSON(r.Config))
		if err == nil {
			fmt.Fprintf(w, "config          %s\n", b)
		}
	})
}

// refJSON returns the JSON form of a ref, without the fields that do not apply to it: a symbolic
// ref has a target, others an id.
func refJSON(r millrace.Ref) map[string]any {
	out := map[string]any{"name": r.Name, "rev": r.Rev}
	for name, v := range map[string]string{"id": r.ID, "type": r.Type, "peeled": r.Peeled, "target": r.Target} {
		if v != "" {
			out[name] = v
		}
	}
	return out
}

// refLine prints a ref in the form of git show-ref: the id or, for a symbolic ref, its target, then
// the name.
func refLine(w io.Writer, r millrace.Ref) {
	if r.Target != "" {
		fmt.Fprintf(w, "ref: %s\t%s\n", r.Target, r.Name)
		return
	}
	fmt.Fprintf(w, "%s\t%s\n", r.ID, r.Name)
}

// refListCmd makes the command that lists refs. All of them are from one instant, even if the list
// takes several requests.
func (a *app) refListCmd(f *refFlags) *cobra.Command {
	var q millrace.RefQuery
	c := &cobra.Command{
		Use: "list", Short: "List refs as of one instant", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withRepo(c.Context(), f, func(ctx context.Context, r millrace.Repo) error {
				_, err := r.Each(ctx, q, func(ref millrace.Ref) error {
					return a.print(refJSON(ref), func(w io.Writer) { refLine(w, ref) })
				})
				return err
			})
		},
	}
	c.Flags().StringVar(&q.Prefix, "prefix", "", "only refs whose names begin with this")
	c.Flags().StringArrayVar(&q.Globs, "glob", nil, "only refs whose names match: * within a component, ** across components")
	c.Flags().StringVar(&q.PointsAt, "points-at", "", "only refs that point to this object id, directly or through a tag")
	c.Flags().StringVar(&q.After, "after", "", "only refs whose names sort after this one")
	c.Flags().IntVar(&q.Limit, "limit", 0, "print at most this many refs; 0 = all")
	return c
}

// refShowCmd makes the command that prints one ref.
func (a *app) refShowCmd(f *refFlags) *cobra.Command {
	return &cobra.Command{
		Use: "show REF", Short: "Print one ref", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withRepo(c.Context(), f, func(ctx context.Context, r millrace.Repo) error {
				ref, err := r.Get(ctx, args[0])
				if err != nil {
					return err
				}
				return a.print(refJSON(ref), func(w io.Writer) { refLine(w, ref) })
			})
		},
	}
}

// change makes a command that makes a single change to a repository's refs. of builds the change
// from the arguments, which args has checked. The command prints the values before and after.
func (a *app) change(f *refFlags, use, short string, args cobra.PositionalArgs, of func(args []string) millrace.RefChange) *cobra.Command {
	var message string
	var noDeref bool
	c := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			change := of(args).Message(message)
			if noDeref {
				change = change.NoDeref()
			}
			return a.withRepo(c.Context(), f, func(ctx context.Context, r millrace.Repo) error {
				out, err := r.Update(ctx, change)
				if err != nil {
					return err
				}
				v := map[string]any{"old": out.Results[0].Old, "new": out.Results[0].New, "rev": out.Rev}
				return a.print(v, func(w io.Writer) {
					fmt.Fprintf(w, "%s..%s\n", cmp.Or(out.Results[0].Old, zeros), cmp.Or(out.Results[0].New, zeros))
				})
			})
		},
	}
	c.Flags().StringVarP(&message, "message", "m", "", "message of the entry in the ref's log")
	mayBeEmpty(c.Flags(), "message")
	c.Flags().BoolVar(&noDeref, "no-deref", false, "change a symbolic ref itself, not the ref that it points to")
	return c
}

// argOr returns argument i, or an empty text if there are fewer.
func argOr(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// refUpdateCmd makes the command that moves a ref. With OLD the ref moves only if it is there.
func (a *app) refUpdateCmd(f *refFlags) *cobra.Command {
	return a.change(f, "update REF NEW [OLD]", "Let a ref point to another object", cobra.RangeArgs(2, 3), func(args []string) millrace.RefChange {
		if len(args) == 3 {
			return millrace.MoveRef(args[0], args[2], args[1])
		}
		return millrace.SetRef(args[0], args[1])
	})
}

// refCreateCmd makes the command that creates a ref and fails if it exists.
func (a *app) refCreateCmd(f *refFlags) *cobra.Command {
	return a.change(f, "create REF NEW", "Make a ref that must not exist", cobra.ExactArgs(2), func(args []string) millrace.RefChange {
		return millrace.CreateRef(args[0], args[1])
	})
}

// refDeleteCmd makes the command that deletes a ref, with OLD only if it is there.
func (a *app) refDeleteCmd(f *refFlags) *cobra.Command {
	return a.change(f, "delete REF [OLD]", "Delete a ref", cobra.RangeArgs(1, 2), func(args []string) millrace.RefChange {
		return millrace.DeleteRef(args[0], argOr(args, 1))
	})
}

// refVerifyCmd makes the command that changes nothing and fails unless the ref is as expected.
func (a *app) refVerifyCmd(f *refFlags) *cobra.Command {
	return a.change(f, "verify REF [OLD]", "Fail unless a ref is at OLD, or does not exist", cobra.RangeArgs(1, 2), func(args []string) millrace.RefChange {
		return millrace.VerifyRef(args[0], argOr(args, 1))
	})
}

// refSymbolicCmd makes the command that prints the target of a symbolic ref, or sets it if there is
// a second argument.
func (a *app) refSymbolicCmd(f *refFlags) *cobra.Command {
	c := a.change(f, "symbolic REF [TARGET]", "Print what a symbolic ref points to, or let it point elsewhere", cobra.RangeArgs(1, 2), func(args []string) millrace.RefChange {
		return millrace.PointRef(args[0], args[1])
	})
	// The command that sets is the ordinary command for one change. This one reads if there is no
	// target.
	set := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 2 {
			return set(c, args)
		}
		return a.withRepo(c.Context(), f, func(ctx context.Context, r millrace.Repo) error {
			ref, err := r.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if ref.Target == "" {
				return fmt.Errorf("%s is not a symbolic ref", args[0])
			}
			return a.print(refJSON(ref), func(w io.Writer) { fmt.Fprintln(w, ref.Target) })
		})
	}
	return c
}

// refLogCmd makes the command that prints a ref's log. Entry 0 is the newest, as in git's REF@{0}.
func (a *app) refLogCmd(f *refFlags) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "log REF", Short: "Print the log of a ref, deleted or not, newest first", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withRepo(c.Context(), f, func(ctx context.Context, r millrace.Repo) error {
				entries, err := r.Reflog(ctx, args[0], limit)
				if err != nil {
					return err
				}
				// An entry of a symbolic ref has targets instead of ids.
				for i, e := range entries {
					v := map[string]any{
						"n": i, "old": e.Old, "new": e.New, "principal": e.Principal, "cause": e.Cause, "message": e.Message,
						"time": e.Time, "index": e.Index, "rev": e.Rev, "request": e.Request, "task": e.Task,
						"old_target": e.OldTarget, "new_target": e.NewTarget,
					}
					if err := a.print(v, func(w io.Writer) {
						fmt.Fprintf(w, "%s %s@{%d}: %s %s by %s %s\n", cmp.Or(e.New, e.NewTarget, zeros), args[0], i,
							e.Time.Format("2006-01-02T15:04:05Z07:00"), e.Cause, e.Principal, e.Message)
					}); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 100, "print at most this many entries, up to 1,000")
	return c
}

// Exit codes of update-ref, which are git's: 128 for a fatal error, 129 for a wrong command line.
const (
	exitFatal    = 128
	exitGitUsage = 129
)

// refUpdateRefCmd makes the command that stands in for git update-ref: scripts can use it without a
// change. Its grammar, its messages and its exit codes are git's. With --stdin it lasts as long as
// its input, so --timeout does not bound it by default.
func (a *app) refUpdateRefCmd(f *refFlags) *cobra.Command {
	var stdin, nul, remove, noDeref, createLog bool
	var message string
	c := &cobra.Command{
		Use:   "update-ref [-m MESSAGE] [--no-deref] (-d REF [OLD] | REF NEW [OLD] | --stdin [-z])",
		Short: "Change refs as git update-ref does, in its dialect and with its exit codes",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			// The same combinations as git refuses: -z needs --stdin; --stdin takes no arguments;
			// -d takes a ref and perhaps its old value; otherwise there is a ref, a new value and
			// perhaps an old one.
			bad := nul && !stdin || stdin && (remove || len(args) > 0) ||
				!stdin && remove && (len(args) < 1 || len(args) > 2) || !stdin && !remove && (len(args) < 2 || len(args) > 3)
			if bad {
				return exitError{exitGitUsage, errors.New("usage: millrace ref " + c.Use)}
			}
			if c.Flags().Changed("message") && message == "" {
				return a.fatal(fatalError("Refusing to perform update with empty message."))
			}
			run := a.with
			if stdin {
				run = a.waiting // it lasts as long as its input
			}
			name := cmp.Or(f.repo, os.Getenv("MILLRACE_REPO"))
			if name == "" {
				return exitError{exitGitUsage, errors.New("name a repository by -R or MILLRACE_REPO")}
			}
			return run(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				store := &repoStore{repo: client.Repo(name).Tagged(f.tag)}
				defer store.close()
				u := &updater{store: store, in: bufio.NewReader(a.in), out: a.out, message: message, noDeref: noDeref, term: '\n'}
				if nul {
					u.term = 0
				}
				if stdin {
					return a.fatal(u.run(ctx))
				}
				return a.fatal(u.args(ctx, args, remove))
			})
		},
	}
	c.Flags().BoolVar(&stdin, "stdin", false, "read commands from standard input")
	c.Flags().BoolVarP(&nul, "null", "z", false, "commands end in NUL instead of a line feed, and nothing is quoted")
	c.Flags().BoolVarP(&remove, "delete", "d", false, "delete the ref")
	c.Flags().BoolVar(&noDeref, "no-deref", false, "change symbolic refs themselves, not the refs that they point to")
	c.Flags().BoolVar(&createLog, "create-reflog", false, "accepted as git does; every ref has a log anyway")
	c.Flags().StringVarP(&message, "message", "m", "", "message of the entry in the ref's log")
	mayBeEmpty(c.Flags(), "message")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitGitUsage, err} })
	return valuesFrom(c, 0) // git's dialect has a meaning for empty ones
}

// fatal prints a fatalError the way git does, and returns an error with git's exit code. It returns
// any other error as it is.
func (a *app) fatal(err error) error {
	var f fatalError
	if !errors.As(err, &f) {
		return err
	}
	a.tell("fatal:", strings.TrimRight(string(f), "\n\x00"))
	return exitError{exitFatal, errReported}
}

// args makes the one change that the arguments of update-ref describe. An empty or zero value
// follows git: a zero NEW deletes the ref, a zero OLD means that the ref must not exist, except
// with -d, where it means any value.
func (u *updater) args(ctx context.Context, args []string, remove bool) error {
	values := &fields{term: '\n', command: "update-ref"}
	// value reads an argument as if it were a field of a stream, so that both have the same rules.
	// An empty one is the zero id.
	value := func(s, what string) (string, error) {
		values.rest = " " + s
		if s == "" {
			return zeros, nil
		}
		id, _, err := values.value(ctx, u, args[0], what, true)
		return id, err
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeUpdate, Name: args[0]}
	old := argOr(args, 2)
	hasOld := len(args) == 3
	if remove {
		old, hasOld = argOr(args, 1), len(args) == 2
	} else {
		id, err := value(args[1], "newvalue")
		if err != nil {
			return err
		}
		if id != zeros {
			c.New = id
		}
	}
	if hasOld {
		id, err := value(old, "oldvalue")
		if err != nil {
			return err
		}
		if !remove || id != zeros { // a zero old value of -d means any, as in git
			c.Old = &id
		}
	}
	u.add(c)
	return u.apply(ctx)
}

// repoStore is a refStore on a server. Transactions go through a session, which the first commit
// opens and close ends.
type repoStore struct {
	// repo is the repository; session is nil before the first commit.
	repo    millrace.Repo
	session *millrace.RefSession
}

// resolve reads one ref. A symbolic ref is followed by the server.
func (s *repoStore) resolve(ctx context.Context, name string) (string, error) {
	set, err := s.repo.BatchGet(ctx, []string{name})
	if err != nil {
		return "", err
	}
	return set.Refs[0].ID, nil
}

// commit makes the changes in one transaction of the session, which it opens if there is none. A
// session that failed is not opened again: the stream ends with its error.
func (s *repoStore) commit(ctx context.Context, changes []millrace.RefChangeSpec) error {
	if s.session == nil {
		var err error
		if s.session, err = s.repo.Session(ctx); err != nil {
			return err
		}
	}
	tx := s.session.Begin()
	for _, c := range changes {
		tx.Add(millrace.NewRefChange(c))
	}
	_, err := tx.Commit(ctx)
	return err
}

// close ends the session, if there is one.
func (s *repoStore) close() {
	if s.session != nil {
		_ = s.session.Close() // never fails
	}
}
