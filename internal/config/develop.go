package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"text/template"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// Development describes a cluster for development, with a certificate authority of its own, all on one host. All
// fields but Rand are required.
type Development struct {
	Dir      string // where its files will lie; absolute, as the configurations name them
	Nodes    int    // 1 to 9
	Host     string // of all addresses
	BasePort int    // the first of ten ports for each node: peers, gRPC, REST, admin
	Shards   int    // 1 to 64
	Tokens   []byte // content of each node's file of tokens
	Now      time.Time
	Rand     env.Rand // default the machine's
}

// How long the certificates of a development cluster are valid. They begin an hour early, for clocks that are behind.
const (
	authorityYears = 10
	nodeYears      = 1
	validBefore    = time.Hour
)

// portsPerNode lets a person read the node off a port.
const portsPerNode = 10

// Names in the directory of a development cluster.
const (
	caFile     = "ca.pem"
	caKeyFile  = "ca.key"
	certFile   = "node.pem"
	keyFile    = "node.key"
	tokensFile = "tokens.yaml"
	configFile = "millrace.yaml"
)

// File is one file of a development cluster.
type File struct {
	Name    string // relative to the directory
	Content []byte
	Secret  bool // for the owner's eyes only
}

// DevelopmentNode is one node of a development cluster.
type DevelopmentNode struct {
	ID     uint64 `json:"id"`
	Name   string `json:"name"`
	Config string `json:"config"` // file, relative to the directory
	Peer   string `json:"peer"`
	GRPC   string `json:"grpc"`
	HTTP   string `json:"http"`
	Admin  string `json:"admin"`
}

// DevelopmentFiles are the files of a development cluster.
type DevelopmentFiles struct {
	Cluster string // id
	CA      string // file of the authority's certificate, relative to the directory
	Nodes   []DevelopmentNode
	Files   []File
}

// Plan makes keys and certificates, and returns all files of the cluster. It writes none of them.
func (d Development) Plan() (*DevelopmentFiles, error) {
	if d.Rand == nil {
		d.Rand = env.SystemRand{}
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	var id [16]byte
	d.Rand.Fill(id[:])
	out := &DevelopmentFiles{Cluster: hex.EncodeToString(id[:]), CA: caFile}
	ca, err := newAuthority(d, out.Cluster)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	out.Files = append(out.Files, File{caFile, ca.pem, false}, File{caKeyFile, ca.keyPEM, true})
	for i := range d.Nodes {
		out.Nodes = append(out.Nodes, d.node(i))
	}
	for _, n := range out.Nodes {
		cert, key, err := ca.issue(d, n, out.Cluster)
		if err != nil {
			return nil, fmt.Errorf("make the certificate of node %d: %w", n.ID, err)
		}
		text, err := d.configuration(n, out)
		if err != nil {
			return nil, err
		}
		for _, f := range []File{
			{caFile, ca.pem, false},
			{certFile, cert, false},
			{keyFile, key, true},
			{tokensFile, d.Tokens, true},
			{configFile, text, false},
		} {
			f.Name = filepath.Join(n.Name, f.Name)
			out.Files = append(out.Files, f)
		}
	}
	return out, nil
}

// check refuses a cluster that cannot be made. Ports of all nodes must fit below 65536.
func (d Development) check() error {
	// The last port of the last node.
	last := d.BasePort + portsPerNode*d.Nodes - 1
	switch {
	case d.Nodes < 1 || d.Nodes > 9:
		return fmt.Errorf("nodes: %d is not within 1 to 9", d.Nodes)
	case d.Shards < 1 || d.Shards > 64:
		return fmt.Errorf("shards: %d is not within 1 to 64", d.Shards)
	case d.BasePort < 1 || last > 65535:
		return fmt.Errorf("base-port: ports %d to %d are not within 1 to 65535", d.BasePort, last)
	case net.ParseIP(d.Host) == nil && !hostName(d.Host):
		return fmt.Errorf("host: %q is neither an IP address nor a host's name", d.Host)
	case !filepath.IsAbs(d.Dir):
		return fmt.Errorf("dir: %q is not absolute", d.Dir)
	case d.Now.IsZero():
		return errors.New("development cluster: the time is needed")
	}
	return nil
}

// hostName reports whether s can be the name of a host: letters, digits, dots and hyphens only.
func hostName(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= 253
}

// node returns node i, counted from 0, with its addresses. The admin listener is always on
// loopback, as it asks for no token.
func (d Development) node(i int) DevelopmentNode {
	at := func(host string, offset int) string {
		return net.JoinHostPort(host, strconv.Itoa(d.BasePort+portsPerNode*i+offset))
	}
	name := "n" + strconv.Itoa(i+1)
	return DevelopmentNode{
		ID: uint64(i + 1), Name: name, Config: filepath.Join(name, configFile),
		Peer: at(d.Host, 0), GRPC: at(d.Host, 1), HTTP: at(d.Host, 2),
		Admin: at("127.0.0.1", 3), // asks for no token
	}
}

// configuration is a node's configuration file. Clients need TLS unless the host is loopback.
var configuration = template.Must(template.New("").Parse(`# Node {{.Node.ID}} of {{len .All.Nodes}} of a cluster for development, made by millrace cluster init.
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
peers:
{{- range .All.Nodes}}
  - id: {{.ID}}
    address: {{printf "%q" .Peer}}
    api: {{printf "%q" .GRPC}}
    http: {{printf "%q" .HTTP}}
{{- end}}
`))

// inside is what the templates of configurations see. All is the whole cluster, Loopback whether
// clients reach it on this machine only.
type inside struct {
	Node     DevelopmentNode
	All      *DevelopmentFiles
	Shards   int
	Loopback bool
	dir      string
}

// In returns the quoted path of a file of the node.
func (i inside) In(name string) string { return strconv.Quote(filepath.Join(i.dir, i.Node.Name, name)) }

// configuration writes the configuration file of node n.
func (d Development) configuration(n DevelopmentNode, all *DevelopmentFiles) ([]byte, error) {
	var b bytes.Buffer
	err := configuration.Execute(&b, inside{Node: n, All: all, Shards: d.Shards, Loopback: env.Loopback(d.Host), dir: d.Dir})
	if err != nil {
		return nil, fmt.Errorf("write the configuration of node %d: %w", n.ID, err)
	}
	return b.Bytes(), nil
}

// reader makes an io.Reader of a source of randomness, for the crypto packages.
type reader struct{ env.Rand }

// Read fills b, and never fails.
func (r reader) Read(b []byte) (int, error) {
	r.Fill(b)
	return len(b), nil
}

// authority issues the certificates of one cluster. pem and keyPEM are its certificate and key as
// files.
type authority struct {
	cert        *x509.Certificate
	key         *ecdsa.PrivateKey
	pem, keyPEM []byte
}

// newAuthority makes the authority of a cluster, whose id is in its name.
func newAuthority(d Development, cluster string) (*authority, error) {
	cert := &x509.Certificate{
		Subject:   pkix.Name{CommonName: authorityName + cluster},
		NotBefore: d.Now.Add(-validBefore), NotAfter: d.Now.AddDate(authorityYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), reader{d.Rand})
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key}
	if a.pem, a.keyPEM, err = certify(reader{d.Rand}, cert, cert, key, key); err != nil {
		return nil, err
	}
	// The certificate is parsed again, because signing adds fields that certificates of nodes refer
	// to.
	block, _ := pem.Decode(a.pem)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// issue makes the certificate of a node. Its URI names the cluster and the node, which is how other
// nodes know it. It is valid for localhost and the host, so clients may use it too.
func (a *authority) issue(d Development, n DevelopmentNode, cluster string) (cert, key []byte, err error) {
	name := &url.URL{Scheme: "millrace", Host: cluster, Path: "/node/" + strconv.FormatUint(n.ID, 10)}
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Millrace node " + n.Name},
		NotBefore: d.Now.Add(-validBefore), NotAfter: d.Now.AddDate(nodeYears, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ip := net.ParseIP(d.Host); ip == nil {
		c.DNSNames = append(c.DNSNames, d.Host)
	} else {
		c.IPAddresses = append(c.IPAddresses, ip)
	}
	priv, err := ecdsa.GenerateKey(elliptic.P256(), reader{d.Rand})
	if err != nil {
		return nil, nil, err
	}
	return certify(reader{d.Rand}, c, a.cert, priv, a.key)
}

// certify signs a certificate for a key by another certificate, and returns certificate and key as
// PEM. The serial number is random.
func certify(rnd io.Reader, c, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) (cert, private []byte, err error) {
	serial := make([]byte, 16)
	if _, err := io.ReadFull(rnd, serial); err != nil {
		return nil, nil, err
	}
	serial[0] = serial[0]&0x7f | 0x40 // positive, and as long as it may be
	c.SerialNumber = new(big.Int).SetBytes(serial)
	der, err := x509.CreateCertificate(rnd, c, by, &key.PublicKey, byKey)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	encode := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER), nil
}
