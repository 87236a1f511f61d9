package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/server"
)

// clusterExtend are the flags of cluster extend. dir is as the user gave it and appears in
// messages.
type clusterExtend struct {
	dir  string
	plan config.OneMore
}

// clusterExtendCmd makes the command that adds the files of one more node to a development cluster.
func (a *app) clusterExtendCmd() *cobra.Command {
	o := &clusterExtend{}
	c := &cobra.Command{
		Use:   "extend NODE",
		Short: "Make the certificate and configuration of one more node of a cluster made by init",
		Long: `Extend makes, in the directory of a cluster that cluster init made, the directory of one more node: its
certificate, issued by the cluster's authority, its key, the cluster's tokens and a configuration without
peers. The node joins with the token that cluster add prints.

Its ten ports begin at --base-port, which by default is where those of cluster init --base-port go on:
node 4 gets 7430.`,
		Example: `  millrace cluster extend n4 --dir ./cluster
  millrace cluster add n4
  millrace serve --config ./cluster/n4/millrace.yaml --join 127.0.0.1:7400 --join-token-file join`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			if o.plan.Node, err = parseNode(args[0]); err != nil {
				return err
			}
			server.PrivateFiles()
			return a.clusterExtend(o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "./cluster", "directory that cluster init made")
	f.StringVar(&o.plan.Host, "host", "127.0.0.1", "host of all addresses; clients need TLS if it is not loopback")
	f.IntVar(&o.plan.BasePort, "base-port", 0, "first port of the node; default 7400 plus ten for each node before it")
	f.IntVar(&o.plan.Shards, "shards", 4, "shards of the cluster; must be the same on all nodes")
	return c
}

// clusterExtend issues a certificate for one more node and writes the node's directory. It needs
// the key of the cluster's authority in dir. It changes no file of another node: the node becomes a
// member only when cluster add admits it. The directory must be new, so an existing node is never
// overwritten.
func (a *app) clusterExtend(o *clusterExtend) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	p := o.plan
	p.Dir, p.Now = dir, time.Now()
	// Each node has ten ports, in the order of the nodes' numbers; beyond 1000 nodes the port must
	// be given.
	if p.BasePort == 0 && p.Node <= 1000 {
		p.BasePort = 7400 + 10*int(p.Node-1)
	}
	// The key of the authority must be in the directory. Users are told to keep it elsewhere, so
	// they may have to bring it back first.
	cert, key := config.AuthorityFiles()
	if p.Authority, err = os.ReadFile(filepath.Join(dir, cert)); err == nil {
		p.Key, err = os.ReadFile(filepath.Join(dir, key))
	}
	if err != nil {
		return err
	}
	if p.Tokens, err = anyTokens(dir); err != nil {
		return err
	}
	made, err := p.Plan()
	if err != nil {
		return usageError{err}
	}
	// The plan has exactly one node: the new one.
	n := made.Nodes[0]
	files := made.Files
	for i := range files { // below the node's own directory, which must be new
		if files[i].Name, err = filepath.Rel(n.Name, files[i].Name); err != nil {
			return err
		}
	}
	if err := writeNew(filepath.Join(dir, n.Name), files); err != nil {
		return err
	}
	n.Config = filepath.Join(o.dir, n.Config)
	return a.print(n, func(w io.Writer) {
		fmt.Fprintf(w, "node %d in %s\n\nto take it in:\n", n.ID, filepath.Dir(n.Config))
		fmt.Fprintf(w, "  millrace cluster add %s\n", n.Name)
		fmt.Fprintf(w, "  millrace serve --config %s --join ADDRESS-OF-A-MEMBER --join-token-file FILE\n", n.Config)
	})
}

// anyTokens returns the tokens file of any node of the cluster, as all nodes have the same one.
func anyTokens(dir string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(dir, "n*", config.TokensFile))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("no node of the cluster has a file of tokens")
	}
	return os.ReadFile(found[0])
}
