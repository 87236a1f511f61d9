package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// searchCmd makes the command for collections, points, searches and rulesets.
func (a *app) searchCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "search",
		Short: "Store points in collections, and find the best matches among those that a filter lets through",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	a.connectionFlags(c)
	c.AddCommand(a.searchCollectionCmd(), a.searchUpsertCmd(), a.searchImportCmd(), a.searchRemoveCmd(), a.searchQueryCmd(), a.searchEmbedCmd(), a.searchRulesetCmd())
	return c
}

// searchCollectionCmd makes the command for collections as a whole.
func (a *app) searchCollectionCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "collection",
		Short: "Make, read, list and remove collections",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.collectionCreateCmd(), a.collectionGetCmd(), a.collectionListCmd(), a.collectionDeleteCmd())
	return c
}

// fieldOf reads one --field: NAME:TYPE, followed by options with a colon before each. unindexed and
// protected are properties; role, credential and block name what the gate uses the field for, and
// the last of these wins. The server checks the type.
func fieldOf(s string) (f millrace.SchemaField, err error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 {
		return f, usageError{fmt.Errorf("--field %s: want NAME:TYPE, and options behind more colons", s)}
	}
	f = millrace.SchemaField{Name: parts[0], Type: parts[1]}
	for _, o := range parts[2:] {
		switch o {
		case "unindexed":
			f.Unindexed = true
		case "protected":
			f.Protected = true
		case "role", "credential", "block":
			f.Gate = o
		default:
			return f, usageError{fmt.Errorf("--field %s: %s must be one of unindexed, protected, role, credential, block", s, o)}
		}
	}
	return f, nil
}

// collectionCreateCmd makes the command that creates a collection. A collection of that name with
// the same definition is not an error.
func (a *app) collectionCreateCmd() *cobra.Command {
	var def millrace.CollectionConfig
	var fields, texts []string
	c := &cobra.Command{
		Use:   "create COLLECTION",
		Short: "Make a collection; its definition is fixed",
		Example: `  millrace search collection create notes
  millrace search collection create workers --field role:keywords:role --field certs:credentials:credential --field home:geo --field note:keyword:unindexed`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, s := range fields {
				f, err := fieldOf(s)
				if err != nil {
					return err
				}
				def.Schema = append(def.Schema, f)
			}
			for _, name := range texts {
				def.TextFields = append(def.TextFields, millrace.TextField{Name: name})
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.Collection(args[0]).Create(ctx, def)
				if err != nil {
					return err
				}
				return a.print(map[string]any{"collection": args[0], "existed": existed}, func(w io.Writer) {
					if existed {
						fmt.Fprintf(w, "%s was there\n", args[0])
					} else {
						fmt.Fprintf(w, "%s\n", args[0])
					}
				})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&def.Embedder, "embedder", "", "name of the embedder that makes vectors of texts; default the server's")
	f.IntVar(&def.Dim, "dim", 0, "numbers per vector; default the model's")
	f.BoolVar(&def.Dot, "dot", false, "compare vectors by dot product; default by cosine")
	f.StringArrayVar(&fields, "field", nil, "NAME:TYPE[:OPTION...], repeated: keyword, keywords, int, float, bool, time, geo, text, credentials; options: unindexed, protected, role, credential, block")
	f.StringArrayVar(&texts, "text-field", nil, "field whose text is embedded, repeated; default text")
	f.Int64Var(&def.MaxPoints, "max-points", 0, "limit of points per partition; default 1048576")
	return c
}

// collectionGetCmd makes the command that prints a collection. Its fields are printed in the form
// that --field reads.
func (a *app) collectionGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get COLLECTION",
		Short: "Print a collection's definition and counters",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				k := client.Collection(args[0])
				def, err := k.Config(ctx)
				if err != nil {
					return err
				}
				st, err := k.Stats(ctx)
				if err != nil {
					return err
				}
				v := map[string]any{
					"collection": args[0], "embedder": def.Embedder, "model": def.Model, "dim": def.Dim, "points": st.Points, "recordings": st.Recordings, "memory_bytes": st.MemoryBytes,
					"graph_rows": st.GraphRows, "tail_rows": st.TailRows,
				}
				return a.print(v, func(w io.Writer) {
					fmt.Fprintf(w, "collection  %s\nmodel       %s (%d numbers, embedder %s)\npoints      %d\nmemory      %d bytes\n", args[0], def.Model, def.Dim, def.Embedder, st.Points, st.MemoryBytes)
					for _, f := range def.Schema {
						fmt.Fprintf(w, "field       %s:%s", f.Name, f.Type)
						for _, o := range []struct {
							on   bool
							name string
						}{{f.Unindexed, "unindexed"}, {f.Gate != "", f.Gate}, {f.Protected, "protected"}} {
							if o.on {
								fmt.Fprintf(w, ":%s", o.name)
							}
						}
						fmt.Fprintln(w)
					}
				})
			})
		},
	}
}

// collectionListCmd makes the command that lists all collections, page by page.
func (a *app) collectionListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List collections",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				for cursor := ""; ; {
					names, next, err := client.Collections(ctx, 1000, cursor)
					if err != nil {
						return err
					}
					for _, name := range names {
						if err := a.print(map[string]string{"collection": name}, func(w io.Writer) { fmt.Fprintln(w, name) }); err != nil {
							return err
						}
					}
					if next == "" {
						return nil
					}
					cursor = next
				}
			})
		},
	}
}

// collectionDeleteCmd makes the command that removes a collection. It prints nothing.
func (a *app) collectionDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete COLLECTION",
		Short: "Remove a collection with all its points and recordings",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return client.Collection(args[0]).Delete(ctx)
			})
		},
	}
}

// searchUpsertCmd makes the command that stores one point.
func (a *app) searchUpsertCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "upsert COLLECTION ID PAYLOAD|-",
		Short:   "Store a point: the payload is a JSON object, whose text is embedded",
		Example: `  millrace search upsert notes n1 '{"text":"the pump in hall 3 leaks"}'`,
		Args:    cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			payload := []byte(args[2])
			if args[2] == "-" {
				var err error
				if payload, err = io.ReadAll(c.InOrStdin()); err != nil {
					return err
				}
			}
			if !json.Valid(payload) {
				return usageError{errors.New("PAYLOAD is no JSON")}
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				got, err := client.Collection(args[0]).Upsert(ctx, millrace.Point{ID: args[1], Payload: json.RawMessage(payload)})
				if err == nil {
					err = got[0].Err
				}
				if err != nil {
					return err
				}
				return a.print(map[string]any{"version": got[0].Version, "existed": got[0].Existed}, func(w io.Writer) { fmt.Fprintln(w, got[0].Version) })
			})
		},
	}
}

// searchRemoveCmd makes the command that removes points, and prints how many of them existed.
func (a *app) searchRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remove COLLECTION ID...",
		Short: "Remove points",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				existed, err := client.Collection(args[0]).Remove(ctx, args[1:]...)
				if err != nil {
					return err
				}
				n := 0
				for _, there := range existed {
					if there {
						n++
					}
				}
				return a.print(map[string]int{"removed": n}, func(w io.Writer) { fmt.Fprintf(w, "removed %d\n", n) })
			})
		},
	}
}

// searchQueryCmd makes the command that searches. Weights and the least score are sent only if
// their flags were given, because 0 is a value of its own and the defaults depend on the embedder.
func (a *app) searchQueryCmd() *cobra.Command {
	var s millrace.Search
	var params, judged, least string
	var full bool
	var near, words float64
	c := &cobra.Command{
		Use:   "query COLLECTION TEXT",
		Short: "Find the points that best match a text, among those that pass the conditions",
		Example: `  millrace search query workers 'need a mig welder' --role welder --credential aws_d1.1 --client acme
  millrace search query workers 'forklift' --filter 'km(home, p.site) < 40.0' --params '{"site":[41.5,-88.1]}' --explain`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			s.Text = args[1]
			if c.Flags().Changed("dense") {
				s.Dense = &near
			}
			if c.Flags().Changed("lexical") {
				s.Lexical = &words
			}
			// Parameters are passed on as the user wrote them: the server reads their numbers
			// without loss.
			for _, p := range []struct {
				name, text string
				to         *any
			}{{"params", params, &s.Gate.Params}, {"judge-params", judged, &s.Params}} {
				if p.text == "" {
					continue
				}
				if !json.Valid([]byte(p.text)) {
					return usageError{fmt.Errorf("--%s: is no JSON object", p.name)}
				}
				*p.to = json.RawMessage(p.text)
			}
			if least != "" {
				var v float64
				if _, err := fmt.Sscan(least, &v); err != nil {
					return usageError{fmt.Errorf("--min-score: %w", err)}
				}
				s.MinScore = &v
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				found, err := client.Collection(args[0]).Search(ctx, s)
				if err != nil {
					return err
				}
				return a.print(found, func(w io.Writer) { printFound(w, found, full) })
			})
		},
	}
	f := c.Flags()
	f.IntVar(&s.K, "k", 10, "number of results, 1 to 1000")
	// Conditions that a row must meet to be a result at all.
	f.StringArrayVar(&s.Gate.Roles, "role", nil, "role, repeated: a row must have one of them")
	f.StringArrayVar(&s.Gate.Credentials, "credential", nil, "credential, repeated: a row must have all of them")
	f.StringVar(&s.Gate.Client, "client", "", "client: rows that block it are left out")
	f.StringVar(&s.Gate.Filter, "filter", "", "expression over indexed fields that a row must satisfy")
	f.StringVar(&params, "params", "", "JSON object of the values that --filter names as p.NAME")
	// How rows that pass are judged and ranked.
	f.StringVar(&s.Ruleset, "ruleset", "", "NAME or NAME@VERSION that judges rows")
	f.StringVar(&judged, "judge-params", "", "JSON object of the values that rules name as params.NAME")
	f.BoolVar(&s.OnlyEligible, "eligible", false, "leave out rows that are only conditionally eligible")
	f.StringVar(&s.DecayField, "decay", "", "field of type time; the older it is, the lower the score")
	f.DurationVar(&s.HalfLife, "half-life", 720*time.Hour, "age that halves a score, with --decay")
	f.Float64Var(&near, "dense", 0, "weight of the vectors' similarity; default depends on the embedder")
	f.Float64Var(&words, "lexical", 0, "weight of matching words; default depends on the embedder")
	f.StringVar(&least, "min-score", "", "leave out rows below this score")
	// How the search runs, and what is printed.
	f.BoolVar(&s.Exact, "exact", false, "compare the 32-bit vectors of all rows that pass, instead of an approximation")
	f.BoolVar(&s.Record, "record", false, "record the search durably, and print its id")
	f.BoolVar(&s.Explain, "explain", false, "print what each rule did")
	f.BoolVar(&full, "payload", false, "print payloads too")
	return c
}

// printFound prints the results of a search: score, verdict and id, with full also the payload,
// then how many rows each condition left out. A rule is printed only if it did not hold.
func printFound(w io.Writer, found *millrace.Found, full bool) {
	for _, r := range found.Results {
		// A row that is not eligible without condition passed with conditions; the reasons below
		// say which.
		verdict := "conditional"
		if r.Eligible {
			verdict = "eligible"
		}
		fmt.Fprintf(w, "%9.6f  %-11s  %s\n", r.Score, verdict, r.ID)
		for _, u := range r.Reasons {
			if !u.OK {
				fmt.Fprintf(w, "           %s: %s\n", u.Rule, u.Reason)
			}
		}
		if full {
			fmt.Fprintf(w, "           %s\n", r.Payload)
		}
	}
	g := found.Gate
	fmt.Fprintf(w, "%d of %d rows passed (role %d, credential %d, block %d, filter %d left out), by %s\n", g.Passed, g.Considered, g.Role, g.Credential, g.Block, g.Filter, found.Plan)
	if found.SearchID != "" {
		fmt.Fprintf(w, "search %s\n", found.SearchID)
	}
}

// searchEmbedCmd makes the command that prints the vectors of texts.
func (a *app) searchEmbedCmd() *cobra.Command {
	var embedder string
	c := &cobra.Command{
		Use:   "embed TEXT...",
		Short: "Print the vectors of texts",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				list, model, err := client.Embed(ctx, embedder, args...)
				if err != nil {
					return err
				}
				return a.print(map[string]any{"model": model, "vectors": list}, func(w io.Writer) {
					for _, e := range list {
						fmt.Fprintln(w, e.Vector)
					}
				})
			})
		},
	}
	c.Flags().StringVar(&embedder, "embedder", "", "name of the embedder; default the server's")
	return c
}

// searchRulesetCmd makes the command for rulesets.
func (a *app) searchRulesetCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "ruleset",
		Short: "Publish, read, list and remove rulesets",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.rulesetPutCmd(), a.rulesetGetCmd(), a.rulesetListCmd(), a.rulesetDeleteCmd())
	return c
}

// rulesetPutCmd makes the command that publishes the next version of a ruleset. Unknown fields of a
// rule are refused, as a misspelt condition would be no condition.
func (a *app) rulesetPutCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "put RULESET COLLECTION FILE|-",
		Short:   "Publish the next version of a ruleset: a JSON list of rules",
		Example: `  echo '[{"id":"new","when":"years < params.least","severity":"conditional"}]' | millrace search ruleset put staffing workers -`,
		Args:    cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			in, end, err := openInput(c, args[2])
			if err != nil {
				return err
			}
			defer end()
			var rules []millrace.Rule
			d := json.NewDecoder(in)
			d.DisallowUnknownFields()
			// Only the first JSON value of the input is read; the server checks the rules
			// themselves.
			if err := d.Decode(&rules); err != nil {
				return usageError{fmt.Errorf("%s: %w", args[2], err)}
			}
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				n, err := client.PublishRules(ctx, args[0], args[1], rules)
				if err != nil {
					return err
				}
				name := fmt.Sprintf("%s@%d", args[0], n)
				return a.print(map[string]string{"ruleset": name}, func(w io.Writer) { fmt.Fprintln(w, name) })
			})
		},
	}
}

// openInput opens the file name, or returns standard input for "-". The caller calls end when it
// has read the input.
func openInput(c *cobra.Command, name string) (in io.Reader, end func(), err error) {
	if name == "-" {
		return c.InOrStdin(), func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil // it was only read
}

// rulesetGetCmd makes the command that prints a version of a ruleset, by default the newest.
func (a *app) rulesetGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get RULESET[@VERSION]",
		Short: "Print a version of a ruleset as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				name, collection, rules, err := client.Rules(ctx, args[0])
				if err != nil {
					return err
				}
				return a.print(map[string]any{"ruleset": name, "collection": collection, "rules": rules}, func(w io.Writer) {
					b, err := json.MarshalIndent(rules, "", "  ")
					if err != nil {
						b = []byte(err.Error())
					}
					fmt.Fprintf(w, "%s\n", b)
				})
			})
		},
	}
}

// rulesetListCmd makes the command that lists rulesets.
func (a *app) rulesetListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List rulesets, each with its newest version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				names, err := client.Rulesets(ctx)
				if err != nil {
					return err
				}
				for _, name := range names {
					if err := a.print(map[string]string{"ruleset": name}, func(w io.Writer) { fmt.Fprintln(w, name) }); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// rulesetDeleteCmd makes the command that removes a ruleset. It prints nothing.
func (a *app) rulesetDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete RULESET",
		Short: "Remove a ruleset with all its versions; their numbers are not used again",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return client.DeleteRules(ctx, args[0])
			})
		},
	}
}
