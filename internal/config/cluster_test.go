package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env"
)

// local begins addresses that nothing listens on.
const local = "127.0.0.1:"

func TestAListOfNodesReadsTheSameFromAFlagAndFromAFile(t *testing.T) {
	const flag = "1=127.0.0.1:7400/127.0.0.1:7401/127.0.0.1:7402,2=[::1]:7410/host:7411"
	const file = `peers:
  - {id: 1, address: "127.0.0.1:7400", api: "127.0.0.1:7401", http: "127.0.0.1:7402"}
  - id: 2
    address: "[::1]:7410"
    api: host:7411
`
	var text string
	set := func(s string) error { text = s; return nil }
	if err := Fill([]Setting{{Name: "peers", Set: set, Item: PeerItem}}, "X_", nil, []byte(file)); err != nil {
		t.Fatal(err)
	}
	if text != flag {
		t.Errorf("the file reads as %q, want %q", text, flag)
	}
	peers, err := ParsePeers(flag)
	want := []Peer{{1, local + "7400", local + "7401", local + "7402"}, {2, "[::1]:" + "7410", "host:7411", ""}}
	if err != nil || !slices.Equal(peers, want) || FormatPeers(peers) != flag {
		t.Errorf("got %+v, %v", peers, err)
	}
	for file, want := range map[string]string{
		"peers:\n  - {id: 1, adr: a}":                               "line 2: unknown field adr",
		"peers:\n  - {id: 1, address: \"a:1\"}":                     "field api is missing",
		"peers:\n  - {id: 0, address: \"a:1\", api: \"a:2\"}":       "line 2",
		"peers:\n  - {id: 1, address: \"a\", api: \"a:2\"}":         "host:port",
		"peers:\n  - {id: 1, address: [a], api: \"a:2\"}":           "address: one value is wanted",
		"peers:\n  - {id: 1, id: 2}":                                "id: given twice",
		"peers:\n  - {id: \"1,2\", address: \"a:1\", api: \"a:2\"}": "line 2",
		"peers: {id: 1}": "a list is wanted",
		"peers:\n- 1":    "a mapping is wanted",
	} {
		err := Fill([]Setting{{Name: "peers", Set: set, Item: PeerItem}}, "X_", nil, []byte(file))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "key peers") {
			t.Errorf("%q: %v does not say %q", file, err, want)
		}
	}
	for _, bad := range []string{"", "1", "1=a:1", "1=a:1/b", "x=a:1/b:2", "0=a:1/b:2", "1=a:1/b:2/c:3/d:4", "1=a:0/b:2", "1=a:70000/b:2", "1=a:1/b:2,"} {
		if _, err := ParsePeers(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAPlaceInAClusterThatMakesNoSenseIsRefusedByTheSettingsName(t *testing.T) {
	good := func() Cluster {
		return Cluster{
			ID: "00112233445566778899aabbccddeeff", Node: 1, Listen: local + "7400", CA: "ca", Cert: "c", Key: "k",
			Peers: []Peer{{1, local + "7400", local + "7401", ""}, {2, local + "7410", local + "7411", ""}},
		}
	}
	c := good()
	if err := c.Check(); err != nil || !c.Enabled() {
		t.Errorf("a good one: %v", err)
	}
	if err := new(Cluster).Check(); err != nil {
		t.Errorf("none: %v", err)
	}
	plain := good()
	plain.CA, plain.Cert, plain.Key, plain.Plain = "", "", "", true
	if err := plain.Check(); err != nil {
		t.Errorf("plain text on loopback: %v", err)
	}
	for want, change := range map[string]func(*Cluster){
		"cluster-id":                    func(c *Cluster) { c.ID = "12" },
		"not all zero":                  func(c *Cluster) { c.ID = strings.Repeat("0", 32) },
		"node-id":                       func(c *Cluster) { c.Node = 0 },
		"this node, 3":                  func(c *Cluster) { c.Node = 3 },
		"node 1 is there twice":         func(c *Cluster) { c.Peers[1].ID = 1 },
		"address 127.0.0.1:7400":        func(c *Cluster) { c.Peers[1].Address = local + "7400" },
		"peer-listen":                   func(c *Cluster) { c.Listen = "" },
		"peer-ca":                       func(c *Cluster) { c.Key = "" },
		"mutually exclusive":            func(c *Cluster) { c.Plain = true },
		"need cluster-id":               func(c *Cluster) { *c = Cluster{Plain: true} },
		"peer-plain: 192.0.2.1:7400":    func(c *Cluster) { *c = plain; c.Listen = "192.0.2.1:7400" },
		"advertise-peer: is required":   func(c *Cluster) { c.Peers, c.Listen = nil, "0.0.0.0:"+"7400" },
		"advertise-peer: address":       func(c *Cluster) { c.AdvertisePeer = "h" + ":0" },
		"advertise-peer: [::]:7400":     func(c *Cluster) { c.AdvertisePeer = "[::]:" + "7400" },
		"advertise-grpc: 0.0.0.0:1":     func(c *Cluster) { c.AdvertiseGRPC = "0.0.0.0:" + "1" },
		"advertise-http":                func(c *Cluster) { c.AdvertiseHTTP = "h" },
		"advertise-peer: 192.0.2.1:1":   func(c *Cluster) { *c = plain; c.AdvertisePeer = "192.0.2.1:1" },
		"settings of peers":             func(c *Cluster) { *c = Cluster{AdvertiseHTTP: "h:1"} },
		"node 2: 192.0.2.1:1 must be a": func(c *Cluster) { *c = plain; c.Peers = good().Peers; c.Peers[1].Address = "192.0.2.1:1" },
	} {
		c := good()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
}

func TestANodeAnnouncesWhatItsOwnSettingsSay(t *testing.T) {
	peers := []Peer{{1, "h1:1", "h1:2", "h1:3"}, {2, "h2:1", "h2:2", ""}}
	for want, c := range map[Peer]Cluster{
		{1, "h1:1", "h1:2", "h1:3"}: {Node: 1, Peers: peers, Listen: "0.0.0.0:" + "9"},
		{2, "h2:1", "h2:2", "h9:3"}: {Node: 2, Peers: peers, AdvertiseHTTP: "h9:3"},
		{1, "p:1", "g:2", "w:3"}:    {Node: 1, Peers: peers, AdvertisePeer: "p:1", AdvertiseGRPC: "g:2", AdvertiseHTTP: "w:3"},
		{3, local + "7420", "", ""}: {Node: 3, Listen: local + "7420"},
		{4, "p:4", "", ""}:          {Node: 4, Listen: "0.0.0.0:" + "7430", AdvertisePeer: "p:4"},
	} {
		if got := c.Own(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestADevelopmentClusterHasKeysCertificatesAndConfigurations(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	plan, err := Development{
		Dir: "/c", Nodes: 3, Host: "10.1.2.3", BasePort: 7400, Shards: 4, Tokens: []byte("tokens"), Now: now, Rand: env.NewSeededRand(1),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]File)
	for _, f := range plan.Files {
		files[f.Name] = f
		if secret := strings.HasSuffix(f.Name, ".key") || strings.HasSuffix(f.Name, "tokens.yaml"); secret != f.Secret {
			t.Errorf("%s: secret is %v", f.Name, f.Secret)
		}
	}
	if len(files) != 2+3*5 {
		t.Errorf("%d files", len(files))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files["ca.pem"].Content) {
		t.Fatal("no authority")
	}
	for i, n := range plan.Nodes {
		pair, err := tls.X509KeyPair(files[filepath.Join(n.Name, "node.pem")].Content, files[filepath.Join(n.Name, "node.key")].Content)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now.AddDate(0, 11, 0), DNSName: "10.1.2.3"}); err != nil {
			t.Errorf("node %d: %v", n.ID, err)
		}
		if got, want := pair.Leaf.URIs[0].String(), "millrace://"+plan.Cluster+"/node/"+string(rune('1'+i)); got != want {
			t.Errorf("node %d is %s, want %s", n.ID, got, want)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now.AddDate(1, 0, 1)}); err == nil {
			t.Errorf("node %d: valid after a year", n.ID)
		}
		var c Cluster
		keys := map[string]*string{"cluster-id": &c.ID, "peer-listen": &c.Listen, "peer-ca": &c.CA, "peer-cert": &c.Cert, "peer-key": &c.Key}
		settings := []Setting{
			{Name: "peers", Item: PeerItem, Set: func(s string) (err error) { c.Peers, err = ParsePeers(s); return err }},
			{Name: "node-id", Set: func(string) error { c.Node = n.ID; return nil }},
		}
		for _, other := range []string{"name", "data", "listen", "http", "admin", "tokens", "shards", "tls-cert", "tls-key"} {
			settings = append(settings, Setting{Name: other, Set: func(string) error { return nil }})
		}
		for name, into := range keys {
			settings = append(settings, Setting{Name: name, Set: func(s string) error { *into = s; return nil }})
		}
		if err := Fill(settings, "X_", nil, files[n.Config].Content); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil || len(c.Peers) != 3 || c.ID != plan.Cluster || c.Cert != filepath.Join("/c", n.Name, "node.pem") {
			t.Errorf("node %d: %+v, %v", n.ID, c, err)
		}
	}
	block, _ := pem.Decode(files["ca.pem"].Content)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !ca.IsCA || ca.NotAfter.Before(now.AddDate(9, 11, 0)) {
		t.Errorf("authority: %v, until %v", err, ca.NotAfter)
	}
}
