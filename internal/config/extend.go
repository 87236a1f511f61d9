package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// OneMore describes a node that is to join a cluster for development, under a certificate of the cluster's authority. All
// fields but Rand are required.
type OneMore struct {
	Dir       string // of the cluster; absolute
	Node      uint64
	Host      string // of all addresses
	BasePort  int    // the first of ten ports: peers, gRPC, REST, admin
	Shards    int    // of the cluster
	Authority []byte // content of the cluster's ca.pem
	Key       []byte // and of its ca.key
	Tokens    []byte // content of the node's file of tokens
	Now       time.Time
	Rand      env.Rand // default the machine's
}

// AuthorityFiles are the names, in the directory of a cluster for development, of its authority's certificate and key.
func AuthorityFiles() (cert, key string) { return caFile, caKeyFile }

// TokensFile is the name of a node's file of tokens in its directory.
const TokensFile = tokensFile

// joining is the configuration file of a node that joins a running cluster. It has no peers, as the
// cluster tells them.
var joining = template.Must(template.New("").Parse(`# Node {{.Node.ID}}, which joins a cluster for development, made by millrace cluster extend.
# It is taken in by a member: millrace serve --config this --join ADDRESS --join-token-file FILE
# All settings: millrace serve --settings
name: {{.Node.Name}}
data: {{.In "data"}}
listen: {{printf "%q" .Node.GRPC}}
http: {{printf "%q" .Node.HTTP}}
admin: {{printf "%q" .Node.Admin}}
tokens: {{.In "tokens.yaml"}}
shards: {{.Shards}}
{{- if not .Loopback}}

# Clients trust ca.pem.
tls_cert: {{.In "node.pem"}}
tls_key: {{.In "node.key"}}
{{- end}}

cluster_id: "{{.All.Cluster}}"
node_id: {{.Node.ID}}
peer_listen: {{printf "%q" .Node.Peer}}
peer_ca: {{.In "ca.pem"}}
peer_cert: {{.In "node.pem"}}
peer_key: {{.In "node.key"}}
`))

// Plan makes the node's key and certificate, and returns its files. It writes none of them.
func (o OneMore) Plan() (*DevelopmentFiles, error) {
	if o.Rand == nil {
		o.Rand = env.SystemRand{}
	}
	if o.Node == 0 {
		return nil, errors.New("node: is required, and must be above 0")
	}
	d := Development{Dir: o.Dir, Nodes: 1, Host: o.Host, BasePort: o.BasePort, Shards: o.Shards, Tokens: o.Tokens, Now: o.Now, Rand: o.Rand}
	if err := d.check(); err != nil {
		return nil, err
	}
	ca, cluster, err := readAuthority(o.Authority, o.Key)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	// The plan of a first node, with the number of the new one.
	n := d.node(0)
	n.ID, n.Name = o.Node, fmt.Sprint("n", o.Node)
	n.Config = filepath.Join(n.Name, configFile)
	out := &DevelopmentFiles{Cluster: cluster, CA: caFile, Nodes: []DevelopmentNode{n}}
	cert, key, err := ca.issue(d, n, cluster)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of node %d: %w", n.ID, err)
	}
	var text bytes.Buffer
	if err := joining.Execute(&text, inside{Node: n, All: out, Shards: o.Shards, Loopback: env.Loopback(o.Host), dir: o.Dir}); err != nil {
		return nil, fmt.Errorf("write the configuration of node %d: %w", n.ID, err)
	}
	for _, f := range []File{
		{caFile, ca.pem, false}, {certFile, cert, false}, {keyFile, key, true}, {tokensFile, o.Tokens, true}, {configFile, text.Bytes(), false},
	} {
		f.Name = filepath.Join(n.Name, f.Name)
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// authorityName begins the common name of a cluster's authority; its id follows.
const authorityName = "Millrace development authority of "

// readAuthority reads the authority that newAuthority made, and the id of its cluster. It refuses a
// key that does not belong to the certificate.
func readAuthority(certPEM, keyPEM []byte) (*authority, string, error) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, "", errors.New("no PEM certificate and key")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, "", err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, "", err
	}
	// newAuthority makes no other kind of key.
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(cert.PublicKey) {
		return nil, "", errors.New("the key is not that of the certificate")
	}
	cluster, found := strings.CutPrefix(cert.Subject.CommonName, authorityName)
	if b, err := hex.DecodeString(cluster); !found || err != nil || len(b) != 16 {
		return nil, "", fmt.Errorf("the certificate of %q is not that of a cluster made by cluster init", cert.Subject.CommonName)
	}
	return &authority{cert: cert, key: private, pem: certPEM, keyPEM: keyPEM}, cluster, nil
}
