package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/server"
)

// clusterCmd makes the cluster command. init, extend and recover work on local directories; the
// other commands reach a running node through operator.
func (a *app) clusterCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Set up and operate clusters",
		Long: `Cluster sets up clusters (init, extend) and operates them. The operating commands reach the cluster in one of two ways:
from anywhere through the gRPC address of a node (MILLRACE_URL or --server), with a token that has the scope cluster,
as the role operator does; or, on the machine of a node, through --socket, the operator socket in the node's data
directory, which needs no token and which only root and the server's own user can open.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usageError{errors.New("name a subcommand; see --help")} },
	}
	c.AddCommand(a.clusterInitCmd(), a.clusterStatusCmd(), a.clusterTransferCmd(), a.clusterRecoverCmd())
	c.AddCommand(a.clusterExtendCmd(), a.clusterAddCmd(), a.clusterRemoveCmd(), a.clusterReplaceCmd(), a.clusterPromoteCmd(), a.clusterCancelCmd())
	c.AddCommand(a.clusterDrainCmd(), a.clusterBalanceCmd(), a.clusterFinalizeCmd())
	return c
}

// clusterInit are the flags of cluster init. dir is as the user gave it and appears in messages;
// plan says what is made.
type clusterInit struct {
	dir  string
	plan config.Development
}

// clusterInitCmd makes the command that plans and writes a development cluster.
func (a *app) clusterInitCmd() *cobra.Command {
	o := &clusterInit{}
	c := &cobra.Command{
		Use:   "init",
		Short: "Make the certificates and configurations of a cluster on one machine",
		Long: `Init makes a directory for a cluster for development: a certificate authority that is the cluster's
own, and for each node a directory with its certificate, key, tokens and configuration. Then it prints
how to start the nodes.

Each node has ten ports from --base-port on: the first is for its peers, then come gRPC, REST and
admin. The certificates of the nodes are valid for a year, that of the authority for ten. Keys and
tokens can be read by their owner only. A holder of ca.key can make nodes of this cluster. No node needs that file: keep it elsewhere.`,
		Example: `  millrace cluster init --dir ./cluster
  millrace serve --config ./cluster/n1/millrace.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			server.PrivateFiles()
			return a.clusterInit(o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "./cluster", "directory to make; it must not exist or must be empty")
	f.IntVar(&o.plan.Nodes, "nodes", 3, "number of nodes, 1 to 9")
	f.StringVar(&o.plan.Host, "host", "127.0.0.1", "host of all addresses; clients need TLS if it is not loopback")
	f.IntVar(&o.plan.BasePort, "base-port", 7400, "first port of the first node")
	f.IntVar(&o.plan.Shards, "shards", 4, "shards of the cluster, 1 to 64")
	return c
}

// startedNode is a node as cluster init reports it, with the command that starts it.
type startedNode struct {
	config.DevelopmentNode
	Command string `json:"command"`
}

// clusterInit makes the directory of a cluster. config.Development plans all files in memory, and
// nothing is written if the plan is refused. The admin token is printed nowhere: the nodes get its
// hash, and only a file has the token itself. If the process dies while it writes, the directory is
// not empty, so a second run refuses it: the user removes the directory and starts again.
func (a *app) clusterInit(o *clusterInit) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	token := server.NewToken()
	d := o.plan
	d.Dir, d.Now = dir, time.Now()
	d.Tokens = fmt.Appendf(nil, "tokens:\n  - name: admin\n    tenant: default\n    hash: %s\n    roles: [admin, operator]\n", server.HashToken(token))
	made, err := d.Plan()
	if err != nil {
		return usageError{err}
	}
	files := append(made.Files, config.File{Name: "token", Content: []byte(token + "\n"), Secret: true})
	if err := writeNew(dir, files); err != nil {
		return err
	}
	out := struct {
		Dir     string        `json:"dir"`
		Cluster string        `json:"cluster_id"`
		CA      string        `json:"ca"`
		Token   string        `json:"token_file"`
		Nodes   []startedNode `json:"nodes"`
	}{Dir: dir, Cluster: made.Cluster, CA: filepath.Join(o.dir, made.CA), Token: filepath.Join(o.dir, "token")}
	for _, n := range made.Nodes {
		n.Config = filepath.Join(o.dir, n.Config)
		out.Nodes = append(out.Nodes, startedNode{n, "millrace serve --config " + n.Config})
	}
	return a.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "cluster %s in %s\nadmin token in %s, authority in %s\n\nto start it:\n", out.Cluster, o.dir, out.Token, out.CA)
		for _, n := range out.Nodes {
			fmt.Fprintf(w, "  %s\n", n.Command)
		}
	})
}

// writeNew writes files into a directory that does not exist yet or is empty; any other directory
// is refused and nothing is written. Files with secrets get mode 0600, other files 0644,
// directories 0700. It stops at the first error and leaves what it wrote.
func writeNew(dir string, files []config.File) error {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%s is not empty: nothing was written", dir)
	}
	for _, f := range files {
		path, mode := filepath.Join(dir, f.Name), os.FileMode(0o644)
		if f.Secret {
			mode = 0o600
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := writeOnce(path, f.Content, mode); err != nil {
			return err
		}
	}
	return nil
}

// writeOnce writes a file that must not exist yet.
func writeOnce(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// clusterFlags adds the settings of a node's place in a cluster to the flags of serve. The
// addresses that a node announces default to the ones it listens on, which config resolves.
func clusterFlags(f *pflag.FlagSet, c *config.Cluster, join *secretFlags) {
	f.StringVar(&c.ID, "cluster-id", "", "id of the cluster that this node belongs to, 32 hexadecimal digits; empty: a single-node server")
	f.Uint64Var(&c.Node, "node-id", 0, "number of this node in the cluster, from 1; the number of a removed node is never used again")
	f.Var(peersValue{&c.Peers}, "peers", "all nodes of the cluster, as ID=PEER/GRPC[/REST],... where each part is a host:port: for the other nodes, for gRPC and, if served, for REST; in the file a list of objects with id, address, api, http")
	f.StringVar(&c.Listen, "peer-listen", "", "address to listen on for the other nodes")
	f.StringVar(&c.AdvertisePeer, "advertise-peer", "", "address at which the other nodes reach this one; default its entry in --peers, else --peer-listen")
	f.StringVar(&c.AdvertiseGRPC, "advertise-grpc", "", "gRPC address to which other nodes send clients; default its entry in --peers, else --listen")
	f.StringVar(&c.AdvertiseHTTP, "advertise-http", "", "REST address to which other nodes send clients; default its entry in --peers, else --http")
	f.StringVar(&c.CA, "peer-ca", "", "PEM file with the certificates of the authority that issued the nodes' certificates")
	f.StringVar(&c.Cert, "peer-cert", "", "PEM file with the certificate of this node, whose URI is millrace://CLUSTER-ID/node/NODE-ID; read again when it changes")
	f.StringVar(&c.Key, "peer-key", "", "PEM file with the key of that certificate")
	f.StringVar(&c.Join, "join", "", "join a running cluster: the --peer-listen address of one of its members; not allowed together with --peers")
	join.add(f, "join-token", "token to join with, from cluster add; it holds once, for an hour")
	f.BoolVar(&c.Plain, "peer-plain", false, "plain text between nodes: no node proves its identity; loopback addresses only")
}

// peersValue is the flag for the list of peers. It reads and writes the list in one text form, and
// reads objects from a configuration file.
type peersValue struct{ peers *[]config.Peer }

// String returns the list in the form that Set reads. The flag package calls it on the zero value
// too.
func (v peersValue) String() string {
	if v.peers == nil {
		return ""
	}
	return config.FormatPeers(*v.peers)
}

// Set replaces the whole list.
func (v peersValue) Set(s string) (err error) {
	*v.peers, err = config.ParsePeers(s)
	return err
}

func (v peersValue) Type() string { return "nodes" }

// Item reads one node of the list in a configuration file.
func (v peersValue) Item(fields map[string]string) (string, error) { return config.PeerItem(fields) }
