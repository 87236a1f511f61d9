package config

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/env"
)

// Peer is one node of a cluster, with the addresses at which others reach it.
type Peer struct {
	ID      uint64 // from 1
	Address string // host:port for its peers
	API     string // host:port of its gRPC edge, which clients are sent to
	HTTP    string // host:port of its REST edge; empty: none
}

// Cluster is a node's place in a cluster. The zero value is a single-node server. It is what the
// settings say; Check refuses contradictions.
type Cluster struct {
	ID     string // 32 hexadecimal digits
	Node   uint64 // this node
	Listen string // address for peers
	Peers  []Peer // all nodes, with this one
	CA     string // PEM files: the authority that issued the nodes' certificates,
	Cert   string // this node's certificate
	Key    string // and its key
	Plain  bool   // plain text between peers instead, on loopback only
	Join   string // address of a member that takes this node in; empty: none, or it was taken in before
	Token  string // to join with

	// What this node announces as its own addresses, host:port. Empty: what Peers says of it, else where it listens.
	AdvertisePeer string // for the other nodes
	AdvertiseGRPC string // of its gRPC edge, which clients are sent to
	AdvertiseHTTP string // of its REST edge
}

// Own returns this node's own addresses by the settings: the advertised ones win over the entry in
// Peers, and the peer address falls back to where the node listens.
func (c *Cluster) Own() Peer {
	own := Peer{ID: c.Node}
	for _, p := range c.Peers {
		if p.ID == c.Node {
			own = p
		}
	}
	own.Address = cmp.Or(c.AdvertisePeer, own.Address, c.Listen)
	own.API, own.HTTP = cmp.Or(c.AdvertiseGRPC, own.API), cmp.Or(c.AdvertiseHTTP, own.HTTP)
	return own
}

// advertised lists the advertised addresses with the names of their settings.
func (c *Cluster) advertised() [][2]string {
	return [][2]string{{"advertise-peer", c.AdvertisePeer}, {"advertise-grpc", c.AdvertiseGRPC}, {"advertise-http", c.AdvertiseHTTP}}
}

// checkAdvertised refuses addresses that other nodes and clients cannot dial. A listen address for
// all interfaces is such a one, so it needs advertise-peer.
func (c *Cluster) checkAdvertised() error {
	for _, a := range c.advertised() {
		if a[1] == "" {
			continue
		}
		host, err := hostOf(a[1])
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", a[0], err)
		case unspecified(host):
			return fmt.Errorf("%s: %s must be an address that other machines can dial", a[0], a[1])
		}
	}
	switch host, _ := hostOf(c.Own().Address); { // checkPeers and Check have judged its form
	case unspecified(host):
		return fmt.Errorf("advertise-peer: is required, because other nodes cannot dial peer-listen %s", c.Listen)
	case c.Plain && !env.Loopback(host):
		return fmt.Errorf("advertise-peer: %s must be a loopback address with peer-plain", c.Own().Address)
	}
	return nil
}

// unspecified reports whether a host stands for all addresses of a machine, such as 0.0.0.0 or
// nothing.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// MaxPeers bounds a list of peers. It is more than any cluster has.
const MaxPeers = 100

// Names reports whether the settings have a peer address for a node.
func (c Cluster) Names(node uint64) bool {
	return slices.ContainsFunc(c.Peers, func(p Peer) bool { return p.ID == node && p.Address != "" })
}

// Enabled reports whether the settings describe a cluster. One field of it is enough, so that Check
// can name what is missing.
func (c *Cluster) Enabled() bool {
	return c.ID != "" || c.Node != 0 || len(c.Peers) > 0 || c.Join != "" || c.Token != ""
}

// ClusterID returns the id as bytes. The zero id is refused, because it stands for no cluster.
func (c *Cluster) ClusterID() (id [16]byte, err error) {
	b, err := hex.DecodeString(c.ID)
	if err != nil || len(b) != len(id) || [16]byte(b) == id {
		return id, fmt.Errorf("cluster-id: %q is not 32 hexadecimal digits, not all zero", c.ID)
	}
	return [16]byte(b), nil
}

// Check refuses settings that contradict each other. The error names the setting.
func (c *Cluster) Check() error {
	if !c.Enabled() {
		if c.Listen != "" || c.CA != "" || c.Cert != "" || c.Key != "" || c.Plain || c.AdvertisePeer+c.AdvertiseGRPC+c.AdvertiseHTTP != "" {
			return errors.New("settings of peers need cluster-id, node-id and peers")
		}
		return nil
	}
	if _, err := c.ClusterID(); err != nil {
		return err
	}
	if err := c.checkPeers(); err != nil {
		return err
	}
	if _, err := hostOf(c.Join); c.Join != "" && err != nil {
		return fmt.Errorf("join: %w", err)
	}
	host, err := hostOf(c.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("peer-listen: %w", err)
	case c.Plain && (c.CA != "" || c.Cert != "" || c.Key != ""):
		return errors.New("peer-plain is mutually exclusive with peer-ca, peer-cert and peer-key")
	case c.Plain && !env.Loopback(host):
		return fmt.Errorf("peer-plain: %s must be a loopback address: plain text between peers stays on one machine", c.Listen)
	case !c.Plain && (c.CA == "" || c.Cert == "" || c.Key == ""):
		return errors.New("peer-ca, peer-cert and peer-key are required, or peer-plain on loopback")
	}
	return c.checkAdvertised()
}

// checkPeers checks the list of peers: addresses and numbers are unique, and this node is in it. A
// node that joins has no list.
func (c *Cluster) checkPeers() error {
	ids, addresses := make(map[uint64]bool), make(map[string]bool)
	for _, p := range c.Peers {
		host, err := hostOf(p.Address)
		switch {
		case err != nil:
			return fmt.Errorf("peers: node %d: %w", p.ID, err)
		case ids[p.ID]:
			return fmt.Errorf("peers: node %d is there twice", p.ID)
		case addresses[p.Address]:
			return fmt.Errorf("peers: address %s is there twice", p.Address)
		case c.Plain && !env.Loopback(host):
			return fmt.Errorf("peers: node %d: %s must be a loopback address with peer-plain", p.ID, p.Address)
		}
		ids[p.ID], addresses[p.Address] = true, true
	}
	switch {
	case c.Node == 0:
		return errors.New("node-id: is required, and must be above 0")
	case len(c.Peers) > 0 && c.Join != "":
		return errors.New("join is mutually exclusive with peers: a node that joins gets its peers from the cluster")
	case c.Join != "" && c.Token == "":
		return errors.New("join-token: is required with join")
	case len(c.Peers) == 0: // of a node that was taken in, or is about to be
	case !ids[c.Node]:
		return fmt.Errorf("peers: this node, %d, is not among them", c.Node)
	}
	return nil
}

// hostOf returns the host of an address host:port. The port must be a number from 1 to 65535.
func hostOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("address %s: the port must be a number of 1 to 65535", address)
	}
	return host, nil
}

// ParsePeers reads a list of peers: <id>=<address>/<gRPC address>/<REST address>, with commas between nodes. The last
// part may be missing.
func ParsePeers(s string) ([]Peer, error) {
	var out []Peer
	for item := range strings.SplitSeq(s, ",") {
		id, rest, ok := strings.Cut(item, "=")
		n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
		parts := strings.Split(strings.TrimSpace(rest), "/")
		if !ok || err != nil || n == 0 || len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf("%q is not <id>=<address>/<gRPC address>/<REST address>", item)
		}
		p := Peer{ID: n, Address: parts[0], API: parts[1]}
		if len(parts) == 3 {
			p.HTTP = parts[2]
		}
		for _, address := range parts {
			if _, err := hostOf(address); err != nil {
				return nil, fmt.Errorf("node %d: %w", n, err)
			}
		}
		if out = append(out, p); len(out) > MaxPeers {
			return nil, fmt.Errorf("more than %d nodes", MaxPeers)
		}
	}
	return out, nil
}

// FormatPeers returns the list in the form that ParsePeers reads.
func FormatPeers(peers []Peer) string {
	items := make([]string, len(peers))
	for i, p := range peers {
		items[i] = fmt.Sprintf("%d=%s/%s", p.ID, p.Address, p.API)
		if p.HTTP != "" {
			items[i] += "/" + p.HTTP
		}
	}
	return strings.Join(items, ",")
}

// PeerItem turns one node of a list in a configuration file into the text form of ParsePeers. The
// node has the fields id, address, api, and optionally http.
func PeerItem(fields map[string]string) (string, error) {
	for name := range fields {
		switch name {
		case "id", "address", "api", "http":
		case "":
			return "", errors.New("a mapping is wanted")
		default:
			return "", fmt.Errorf("unknown field %s; a node has id, address, api and http", name)
		}
	}
	for _, name := range []string{"id", "address", "api"} {
		if fields[name] == "" {
			return "", fmt.Errorf("field %s is missing", name)
		}
	}
	item := fields["id"] + "=" + fields["address"] + "/" + fields["api"]
	if fields["http"] != "" {
		item += "/" + fields["http"]
	}
	if _, err := ParsePeers(item); err != nil || strings.Contains(item, ",") {
		return "", fmt.Errorf("%s: not an id and addresses of the form host:port", item)
	}
	return item, nil
}
