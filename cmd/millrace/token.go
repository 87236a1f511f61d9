package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// tokenCmd makes the command that makes a token and its row for a tokens file. It writes no file:
// the row is printed. The default role is left out if scopes are given and --role is not.
func (a *app) tokenCmd() *cobra.Command {
	var spec server.TokenSpec
	var role, expires string
	c := &cobra.Command{
		Use:   "token",
		Short: "Make a token, and its row for the tokens file of serve",
		Long: `Token makes a random token. Only its hash goes into the tokens file; the token itself is printed
here once. Token refuses what serve would refuse.`,
		Example: `  millrace token --name ci --tenant acme --role worker --expires 2160h
  millrace token --name search --tenant acme --scope search:read --expires 2030-01-01T00:00:00Z
  millrace token --name mailer --tenant acme --role worker --queue mail --queue 'ci.*'
  millrace token --name push --tenant acme --scope ref:read --scope ref:write --repos 'default/app-*'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if role != "" && (c.Flags().Changed("role") || len(spec.Scopes) == 0) {
				spec.Roles = []string{role}
			}
			if spec.Expires, err = tokenEnd(expires, time.Now()); err != nil {
				return usageError{err}
			}
			token, file, err := server.MakeToken(spec)
			if err != nil {
				return usageError{err}
			}
			row := map[string]string{
				"name": spec.Name, "tenant": spec.Tenant, "role": strings.Join(spec.Roles, ","), "token": token, "hash": server.HashToken(token),
				"file": string(file),
			}
			return a.print(row, func(w io.Writer) { fmt.Fprintf(w, "token (shown once): %s\n\n%s", token, file) })
		},
	}
	f := c.Flags()
	f.StringVar(&spec.Name, "name", "dev", "name of the holder; recorded as the creator of tasks")
	f.StringVar(&spec.Tenant, "tenant", "default", "tenant that the token belongs to")
	f.StringVar(&role, "role", "admin", "producer, worker, viewer (reads), responder (a viewer who acts on tasks and queues that are there), admin (of the tenant) or operator (of the server: backups of all tenants); with --scope the role is optional")
	f.StringArrayVar(&spec.Scopes, "scope", nil, "scope that the token has, such as task:read; may be repeated")
	f.StringArrayVar(&spec.Repos, "repos", nil, "namespace/repository that the scopes of refs are limited to, with * for any text; may be repeated; default all of the tenant")
	f.StringArrayVar(&spec.Queues, "queue", nil, "queue that the scopes of tasks and admin are limited to, or the beginning of its name with * behind it; may be repeated; default all of the tenant")
	f.StringVar(&expires, "expires", "", "when the token expires: a duration from now, such as 2160h, or a time as in RFC 3339; default never")
	return c
}

// tokenEnd reads when a token expires: a duration from now, in whole seconds, or a time as in RFC
// 3339. An empty text is the zero time, which means never. A time in the past is an error.
func tokenEnd(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	// A time and a duration cannot be confused, so the order of the two tries does not matter.
	end, err := time.Parse(time.RFC3339, s)
	if err != nil {
		d, derr := time.ParseDuration(s)
		if derr != nil {
			return time.Time{}, fmt.Errorf("--expires: %q must be a duration, such as 2160h, or a time as in RFC 3339", s)
		}
		end = now.Add(d).Truncate(time.Second).UTC()
	}
	if !end.After(now) {
		return time.Time{}, errors.New("--expires: must be in the future")
	}
	return end, nil
}
