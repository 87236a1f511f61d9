package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

func (a *app) tokenCmd() *cobra.Command {
	var name, tenant, role string
	c := &cobra.Command{
		Use:   "token",
		Short: "Make a token, and its row for the tokens file of serve",
		Long: `Token makes a random token. Only its hash goes into the tokens file; the token itself is printed
here once.`,
		Example: `  millrace token --name ci --tenant acme --role worker`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			token := server.NewToken()
			row := map[string]string{
				"name": name, "tenant": tenant, "role": role, "token": token, "hash": server.HashToken(token),
			}
			return a.print(row, func(w io.Writer) {
				fmt.Fprintf(w, "token (shown once): %s\n\ntokens:\n  - name: %s\n    tenant: %s\n    hash: %s\n    roles: [%s]\n",
					token, name, tenant, row["hash"], role)
			})
		},
	}
	c.Flags().StringVar(&name, "name", "dev", "who holds it: recorded as the creator of tasks")
	c.Flags().StringVar(&tenant, "tenant", "default", "tenant it belongs to")
	c.Flags().StringVar(&role, "role", "admin", "producer, worker, admin (of the tenant) or operator (of the server: backups of all tenants)")
	return c
}
