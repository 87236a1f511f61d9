package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// clusterFinalizeCmd makes the command that ends an upgrade: it raises the format that the cluster
// writes to the newest one that the program of every member knows. There is no way back to an older
// program after it, so the cluster never does this by itself.
func (a *app) clusterFinalizeCmd() *cobra.Command {
	o := &operator{}
	c := &cobra.Command{
		Use:   "finalize",
		Short: "After an upgrade, let the cluster write what older programs cannot read",
		Long: `Finalize ends an upgrade. Until then the cluster writes the format that it wrote before, so that nodes with
the old and the new program serve side by side, and any node can go back. Then it writes the newest format that
the programs know, and older programs refuse to start with its data.

It is refused as format_held, naming the nodes, while the program of a member does not know that format or a
member is not reached; nothing is changed then. Where there is nothing to raise, nothing happens.`,
		Example: `  millrace cluster finalize`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out server.Finalized
			if err := o.call(c.Context(), http.MethodPost, "/cluster/finalize", nil, &out); err != nil {
				return err
			}
			return a.print(out, func(w io.Writer) {
				if out.Before == out.Format {
					fmt.Fprintf(w, "the cluster writes format %d already\n", out.Format)
					return
				}
				fmt.Fprintf(w, "the cluster writes format %d; before it was %d\n", out.Format, out.Before)
			})
		},
	}
	o.flags(c)
	return c
}
